/* eng_engine.c - the engine object and its step: one forward pass over queued tokens of many sequences.
 *
 * A step takes sequences in the order of the list; those with one queued token (decoding) go first, so that a long prompt does not stall
 * them; a prompt gets what is left of the chunk. How tokens are grouped does not change any result (model.md 3.12, ops.h). */
#include "core/core.h"
#include "engine/engine_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_CHUNK 256
#define MAX_CHUNK 65536
#define SLOT_ALIGN 64
#define MAX_SLOTS (1 << 24)

static di_status check_options(const di_model *model, const di_engine_options *o, di_engine *e, di_error *err)
{
    if (o->n_threads < 0 || o->n_threads > 1024) {
        return err_set(err, DI_E_ARGUMENT, "n_threads is %d: must be 0 (all processors) to 1024", o->n_threads);
    }
    if (o->chunk_tokens < 0 || o->chunk_tokens > MAX_CHUNK) {
        return err_set(err, DI_E_ARGUMENT, "chunk_tokens is %d: must be 0 (default %d) to %d", o->chunk_tokens, DEFAULT_CHUNK, MAX_CHUNK);
    }
    if (o->kv_bytes < 0) {
        return err_set(err, DI_E_ARGUMENT, "kv_bytes is %lld: must be 0 (a quarter of the memory) or more", (long long)o->kv_bytes);
    }
    if (o->ram_budget < 0 || o->ram_percent < 0 || o->ram_percent > 100) {
        return err_set(err, DI_E_ARGUMENT, "ram_budget is %lld and ram_percent %d: 0 is all weights, else bytes, or percent up to 100",
                       (long long)o->ram_budget, o->ram_percent);
    }
    if (o->max_tokens < 0 || o->max_tokens > mdl_config_of(model)->max_positions) {
        return err_set(err, DI_E_ARGUMENT, "max_tokens is %lld: the model's limit is %d", (long long)o->max_tokens,
                       mdl_config_of(model)->max_positions);
    }
    if (o->replay < DI_REPLAY_OFF || o->replay > DI_REPLAY_BOTH) {
        return err_set(err, DI_E_ARGUMENT, "replay is %d: must be one of di_replay, %d to %d", (int)o->replay, (int)DI_REPLAY_OFF,
                       (int)DI_REPLAY_BOTH);
    }
    e->replay = o->replay;
    e->max_tokens = o->max_tokens > 0 ? o->max_tokens : mdl_config_of(model)->max_positions;
    e->chunk = o->chunk_tokens > 0 ? o->chunk_tokens : DEFAULT_CHUNK;
    e->chunk = e->chunk < e->max_tokens ? e->chunk : (int32_t)e->max_tokens;
    return DI_OK;
}

void di_engine_options_default(di_engine_options *out)
{
    *out = (di_engine_options){.backend = NULL};
}

/* --- KV memory --------------------------------------------------------------------------------------------------------- */

static void *slab_alloc(void *user, size_t bytes) { return mdl_alloc(user, bytes); }
static void slab_free(void *user, void *p) { mdl_free(user, p); }

/* A quarter of this machine's memory. Nothing is taken before it is used. */
static int64_t default_kv_bytes(void)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    const int64_t page = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page > 0 ? pages / 4 * page : (int64_t)1 << 30;
}

/* An eighth of the budget is for states, which running sequences and snapshots share, the rest for pages. */
static di_status open_kv(di_engine *e, const di_engine_options *o, di_error *err)
{
    const mdl_layout *const l = mdl_runner_layout(e->runner);
    const int64_t bytes = o->kv_bytes > 0 ? o->kv_bytes : default_kv_bytes();
    const size_t page_bytes = l->page_bytes > 0 ? l->page_bytes : SLOT_ALIGN; /* a model without global KV */
    const int64_t states = bytes / 8 / (int64_t)l->state_bytes;
    const int64_t pages = (bytes - bytes / 8) / (int64_t)page_bytes;
    kv_options k = {.page_bytes = page_bytes,
                    .state_bytes = l->state_bytes,
                    .max_pages = pages < MAX_SLOTS ? pages : MAX_SLOTS,
                    .max_states = states < MAX_SLOTS ? states : MAX_SLOTS,
                    .memory = {.alloc = slab_alloc, .free = slab_free, .user = e->runner}};
    if (states < 1 || pages < 1) {
        return err_set(err, DI_E_ARGUMENT, "kv_bytes is %lld: a sequence needs %zu bytes fixed and %zu for each %d tokens",
                       (long long)bytes, l->state_bytes, page_bytes, KV_UNIT_TOKENS);
    }
    di_status status = eng_tier_name_space(e, &o->cache, k.name_space, err);
    if (status == DI_OK) {
        status = kv_store_new(&k, &e->kv, err);
    }
    return status == DI_OK ? eng_tier_open(e, &o->cache, k.name_space, err) : status;
}

/* --- Weights ----------------------------------------------------------------------------------------------------------- */

static int64_t ram_budget(const di_model *model, const di_engine_options *o)
{
    di_model_info info;
    di_model_get_info(model, &info);
    return o->ram_budget > 0 ? o->ram_budget : (int64_t)((double)info.weight_bytes * o->ram_percent / 100.0);
}

/* --- Opening ----------------------------------------------------------------------------------------------------------- */

/* The backend that was named, or the fastest one that takes the model's sizes. */
static di_status open_runner(di_engine *e, const di_engine_options *o, di_error *err)
{
    mdl_runner_options r = {.device = {.n_threads = o->n_threads, .isa = o->cpu_isa, .pin = o->cpu_pin},
                            .max_rows = e->chunk,
                            .max_tokens = e->max_tokens,
                            .draft = o->draft,
                            .trace = o->trace,
                            .trace_user = o->trace_user,
                            .ram_budget = ram_budget(e->model, o),
                            .weight_cache = o->weight_cache != NULL && o->weight_cache[0] != '\0' ? o->weight_cache : NULL};
    const bool any = o->backend == NULL || strcmp(o->backend, "auto") == 0;
    di_status status = ops_backend_find(o->backend, &e->backend, err);
    if (status != DI_OK) {
        return status;
    }
    const ops_backend *const *at = ops_backends();
    while (*at != e->backend) {
        at++;
    }
    for (;;) {
        r.backend = e->backend;
        status = mdl_runner_new(e->model, &r, &e->runner, err);
        do {
            at++;
        } while (*at != NULL && !(*at)->available());
        if (status != DI_E_UNSUPPORTED || !any || *at == NULL) {
            return status;
        }
        e->backend = *at;
    }
}

di_status di_engine_open(const di_model *model, const di_engine_options *options, di_engine **out, di_error *err)
{
    di_engine_options defaults;
    di_engine_options_default(&defaults);
    const di_engine_options *o = options != NULL ? options : &defaults;
    di_engine *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return err_memory(err, "engine", sizeof *e);
    }
    e->model = model;
    e->c = mdl_config_of(model);
    e->traced = o->trace != NULL;
    di_status status = check_options(model, o, e, err);
    if (status == DI_OK) {
        status = open_runner(e, o, err);
    }
    if (status == DI_OK) {
        status = open_kv(e, o, err);
    }
    if (status == DI_OK) {
        e->n_threads = mdl_runner_threads(e->runner);
        e->items = ar_calloc((size_t)e->chunk, sizeof *e->items);
        e->in_step = ar_calloc((size_t)e->chunk, sizeof *e->in_step);
        if (e->items == NULL || e->in_step == NULL) {
            status = err_memory(err, "step", (size_t)e->chunk * sizeof *e->items);
        }
    }
    if (status != DI_OK) {
        di_engine_close(e);
        return status;
    }
    *out = e;
    return DI_OK;
}

void di_engine_close(di_engine *e)
{
    if (e == NULL) {
        return;
    }
    while (e->first != NULL) {
        di_sequence_free(e->first);
    }
    eng_tier_free(e->tier);
    kv_store_free(e->kv);
    mdl_runner_free(e->runner);
    free(e->items);
    free(e->in_step);
    free(e->logits);
    free(e);
}

const char *di_engine_backend(const di_engine *e) { return e->backend->name; }

void di_engine_get_weight_stats(const di_engine *e, di_weight_stats *out)
{
    mdl_weight_stats s;
    mdl_runner_get_weight_stats(e->runner, &s);
    *out = (di_weight_stats){.load_ns = s.load_ns, .mapped_bytes = s.mapped_bytes, .written_bytes = s.written_bytes};
    _Static_assert(sizeof out->note == sizeof s.note, "notes");
    _Static_assert(sizeof out->placement == sizeof s.placement, "lines");
    memcpy(out->note, s.note, sizeof s.note);
    memcpy(out->placement, s.placement, sizeof s.placement);
}

di_status di_engine_measure_copy(di_engine *e, size_t bytes, double *rate, di_error *err)
{
    return mdl_runner_measure_copy(e->runner, bytes, rate, err);
}

void di_engine_get_stream_stats(const di_engine *e, di_stream_stats *out)
{
    mdl_stream_stats s;
    mdl_runner_get_stream_stats(e->runner, &s);
    *out = (di_stream_stats){.budget_bytes = s.budget_bytes,
                             .resident_bytes = s.resident_bytes,
                             .cache_bytes = s.cache_bytes,
                             .experts = s.experts,
                             .slots = s.slots,
                             .hits = s.hits,
                             .misses = s.misses,
                             .guessed = s.guessed,
                             .guessed_right = s.guessed_right,
                             .engram_rows = s.engram_rows,
                             .read_bytes = s.read_bytes,
                             .wait_ns = s.wait_ns};
}

void di_engine_get_stats(const di_engine *e, di_engine_stats *out)
{
    *out = (di_engine_stats){.n_steps = e->n_steps, .n_tokens = e->n_tokens, .n_threads = e->n_threads};
    for (const di_sequence *s = e->first; s != NULL; s = s->next) {
        const mdl_layout *const l = mdl_runner_layout(e->runner);
        out->sequence_bytes += (int64_t)(l->state_bytes + (size_t)s->cache.n_pages * l->page_bytes);
    }
}

void di_engine_get_kv_stats(const di_engine *e, di_kv_stats *out)
{
    kv_counters k;
    kv_get_counters(e->kv, &k);
    *out = (di_kv_stats){.bytes = (int64_t)k.bytes,
                         .pages = k.pages_used + k.pages_cached + k.pages_free + k.pages_absent,
                         .pages_used = k.pages_used,
                         .pages_cached = k.pages_cached,
                         .states = k.states_used + k.states_cached + k.states_free + k.states_absent,
                         .states_used = k.states_used,
                         .states_cached = k.states_cached,
                         .lookup_tokens = k.lookup_tokens,
                         .matched_tokens = k.matched_tokens,
                         .resumed_tokens = e->resumed_tokens,
                         .pages_evicted = k.pages_evicted};
}

/* --- The step ---------------------------------------------------------------------------------------------------------- */

/* Tokens that the pass leaves for later ones lie before `target`. */
static void add_item(di_engine *e, di_sequence *s, int32_t n, int32_t *n_items)
{
    const eng_queue *q = &s->queue;
    const size_t hidden = (size_t)e->c->hidden;
    const int64_t end = s->caches.n_tokens + n;
    const int64_t total = di_sequence_length(s);
    const int64_t target = eng_cache_target(&s->cache, s->caches.n_tokens, total);
    const int64_t after = target - end;
    e->items[*n_items] = (mdl_item){.seq = &s->caches,
                                    .ids = q->ids + q->begin,
                                    .in_image = q->in_image != NULL ? q->in_image + q->begin : NULL,
                                    .embed = q->embed != NULL ? q->embed + q->begin * hidden : NULL,
                                    .n = n,
                                    .n_after = after,
                                    .n_logits = s->keep_all ? (int32_t)(n + after) : target == total ? 1 : 0,
                                    .full = e->full};
    e->in_step[(*n_items)++] = s;
}

/* Fills items; returns the number of tokens. A traced pass holds one sequence. */
static int32_t plan_step(di_engine *e, int32_t *n_items)
{
    int32_t left = e->chunk;
    *n_items = 0;
    for (int decoding = 1; decoding >= 0; decoding--) {
        for (di_sequence *s = e->first; s != NULL && left > 0; s = s->next) {
            size_t queued = eng_queued(s);
            if (s->failed || queued == 0 || (queued == 1) != decoding || (e->traced && *n_items > 0)) {
                continue;
            }
            int32_t n = queued < (size_t)left ? (int32_t)queued : left;
            const int64_t from = s->caches.n_tokens;
            n = (int32_t)(eng_cache_limit(&s->cache, &s->caches, from, from + n) - from);
            add_item(e, s, n, n_items);
            left -= n;
        }
    }
    return e->chunk - left;
}

static di_status reserve_rows(float **rows, int32_t *capacity, int32_t need, int32_t vocab, di_error *err)
{
    if (need <= *capacity) {
        return DI_OK;
    }
    size_t bytes = (size_t)need * (size_t)vocab * sizeof(float);
    float *p = realloc(*rows, bytes);
    if (p == NULL) {
        return err_memory(err, "logits", bytes);
    }
    *rows = p;
    *capacity = need;
    return DI_OK;
}

static int32_t wanted_rows(const mdl_item *item)
{
    int64_t n = item->n_logits - item->n_after;
    return n < 0 ? 0 : n > item->n ? item->n : (int32_t)n;
}

/* Room for everything the step will produce, before it starts: nothing can fail behind the pass. */
static di_status reserve_step(di_engine *e, int32_t n_items, di_error *err)
{
    int32_t total = 0;
    di_status status = DI_OK;
    for (int32_t i = 0; i < n_items && status == DI_OK; i++) {
        di_sequence *s = e->in_step[i];
        int32_t want = wanted_rows(&e->items[i]);
        total += want;
        int32_t kept = s->keep_all ? s->n_logits : 0;
        status = reserve_rows(&s->logits, &s->logits_capacity, kept + want, e->c->vocab, err);
    }
    return status == DI_OK ? reserve_rows(&e->logits, &e->logits_capacity, total, e->c->vocab, err) : status;
}

static void finish_step(di_engine *e, int32_t n_items)
{
    size_t vocab = (size_t)e->c->vocab;
    const float *row = e->logits;
    for (int32_t i = 0; i < n_items; i++) {
        di_sequence *s = e->in_step[i];
        size_t want = (size_t)wanted_rows(&e->items[i]);
        s->queue.begin += (size_t)e->items[i].n;
        if (want > 0) {
            size_t kept = s->keep_all ? (size_t)s->n_logits : 0;
            memcpy(s->logits + kept * vocab, row, want * vocab * sizeof *row);
            s->n_logits = (int32_t)(kept + want);
            row += want * vocab;
        }
        eng_cache_update(&s->cache, &s->caches, e->items[i].n_after == 0);
    }
}

di_status di_engine_step(di_engine *e, int32_t *n_tokens, di_error *err)
{
    int32_t n_items = 0;
    int32_t n_logits = 0;
    int32_t n = plan_step(e, &n_items);
    *n_tokens = 0;
    if (n == 0) {
        return DI_OK;
    }
    di_status status = reserve_step(e, n_items, err);
    if (status != DI_OK) {
        return status;
    }
    status = mdl_forward(e->runner, e->items, n_items, e->logits, &n_logits, err);
    if (status != DI_OK) {
        for (int32_t i = 0; i < n_items; i++) {
            e->in_step[i]->failed = true;
        }
        return status;
    }
    finish_step(e, n_items);
    e->n_steps++;
    e->n_tokens += n;
    *n_tokens = n;
    return DI_OK;
}
