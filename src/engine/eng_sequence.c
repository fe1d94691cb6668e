/* eng_sequence.c - sequences: feeding, reading logits, sampling. */
#include "core/core.h"
#include "engine/engine_int.h"

#include <stdlib.h>
#include <string.h>

di_status di_sequence_new(di_engine *e, di_sequence **out, di_error *err)
{
    if (e->scheduled) {
        return err_set(err, DI_E_STATE, "the engine belongs to a scheduler: submit a task, or open another engine");
    }
    di_sequence *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_memory(err, "sequence", sizeof *s);
    }
    di_status status = eng_cache_init(&s->cache, e->kv, e->runner, &s->caches, false, err);
    if (status != DI_OK) {
        free(s);
        return status;
    }
    s->engine = e;
    s->previous = e->last;
    *(e->last != NULL ? &e->last->next : &e->first) = s;
    e->last = s;
    *out = s;
    return DI_OK;
}

static void queue_free(eng_queue *q)
{
    free(q->ids);
    free(q->in_image);
    free(q->embed);
}

void di_sequence_free(di_sequence *s)
{
    if (s == NULL) {
        return;
    }
    di_engine *e = s->engine;
    *(s->previous != NULL ? &s->previous->next : &e->first) = s->next;
    *(s->next != NULL ? &s->next->previous : &e->last) = s->previous;
    eng_cache_fini(&s->cache, &s->caches, !s->failed);
    eng_sampler_free(s->sampler);
    queue_free(&s->queue);
    free(s->logits);
    free(s);
}

/* --- Feeding ----------------------------------------------------------------------------------------------------------- */

static di_status usable(const di_sequence *s, di_error *err)
{
    return s->failed ? err_set(err, DI_E_STATE, "the sequence took part in a step that failed: free it and start again") : DI_OK;
}

static di_status check_input(const di_sequence *s, const di_input *in, di_error *err)
{
    int32_t vocab = s->engine->c->vocab;
    for (size_t i = 0; i < in->n; i++) {
        if (in->ids[i] < 0 || in->ids[i] >= vocab) {
            return err_set(err, DI_E_ARGUMENT, "token %zu has id %d: the vocabulary is 0..%d", i, in->ids[i], vocab - 1);
        }
    }
    int64_t length = di_sequence_length(s);
    if (in->n > (size_t)(s->engine->max_tokens - length)) {
        return err_set(err, DI_E_LIMIT, "%zu tokens behind %lld do not fit the context of %lld tokens", in->n, (long long)length,
                       (long long)s->engine->max_tokens);
    }
    return DI_OK;
}

/* One array of the queue in a new size, its queued part at the front. NULL when memory is short; the old array stays. */
static void *moved(const void *old, size_t begin, size_t queued, size_t capacity, size_t element)
{
    uint8_t *p = ar_calloc(capacity, element);
    if (p != NULL && old != NULL) {
        memcpy(p, (const uint8_t *)old + begin * element, queued * element);
    }
    return p;
}

/* Room for n more tokens behind the queued ones, with image flags and embedding rows when these or earlier tokens need them. */
static di_status queue_reserve(di_sequence *s, const di_input *in, di_error *err)
{
    eng_queue *q = &s->queue;
    size_t row = (size_t)s->engine->c->hidden * sizeof(bf16);
    size_t queued = eng_queued(s);
    bool image = in->in_image != NULL || q->in_image != NULL;
    bool embed = in->embed != NULL || q->embed != NULL;
    bool has_all = (!image || q->in_image != NULL) && (!embed || q->embed != NULL);
    if (q->end + in->n <= q->capacity && has_all) {
        return DI_OK;
    }
    size_t capacity = (queued + in->n) * 2;
    eng_queue grown = {.end = queued, .capacity = capacity};
    grown.ids = moved(q->ids, q->begin, queued, capacity, sizeof *q->ids);
    grown.in_image = image ? moved(q->in_image, q->begin, queued, capacity, 1) : NULL;
    grown.embed = embed ? moved(q->embed, q->begin, queued, capacity, row) : NULL;
    if (grown.ids == NULL || (image && grown.in_image == NULL) || (embed && grown.embed == NULL)) {
        queue_free(&grown);
        return err_memory(err, "queued tokens", capacity * (sizeof *q->ids + (embed ? row : 0)));
    }
    queue_free(q);
    *q = grown;
    return DI_OK;
}

static void enqueue(di_sequence *s, const di_input *in)
{
    eng_queue *q = &s->queue;
    size_t hidden = (size_t)s->engine->c->hidden;
    if (eng_queued(s) == 0) {
        s->n_logits = 0; /* the results before are read or no longer wanted */
    }
    memcpy(q->ids + q->end, in->ids, in->n * sizeof *q->ids);
    if (q->in_image != NULL) {
        if (in->in_image != NULL) {
            memcpy(q->in_image + q->end, in->in_image, in->n);
        } else {
            memset(q->in_image + q->end, 0, in->n);
        }
    }
    if (in->embed != NULL) {
        memcpy(q->embed + q->end * hidden, in->embed, in->n * hidden * sizeof *q->embed);
    }
    q->end += in->n;
}

/* KV for n more tokens; the first ones of a sequence that uses the prefix cache are looked up. *skip = how many need not run. Nothing has
 * changed on failure. */
static di_status reserve(di_sequence *s, const int32_t *ids, size_t n, size_t *skip, di_error *err)
{
    const int64_t length = di_sequence_length(s);
    int64_t start = 0;
    *skip = 0;
    di_status status = eng_cache_note(&s->cache, ids, n, err);
    if (status == DI_OK && length == 0) {
        const di_replay replay = s->keep_all ? DI_REPLAY_OFF : s->engine->replay;
        s->caches.decoder_from = eng_decoder_from(s->engine->runner, replay, (int64_t)n);
        eng_restored restored = eng_cache_restore(&s->cache, &s->caches);
        status = eng_cache_find(&s->cache, &s->caches, &start, err);
        eng_restored_fini(s->engine->kv, &restored);
    }
    if (status == DI_OK) {
        status = eng_cache_reserve(&s->cache, &s->caches, length + (int64_t)n, err);
    }
    if (status != DI_OK && length == 0) {
        eng_cache_reset(&s->cache, &s->caches);
    } else if (status != DI_OK) {
        eng_cache_forget(&s->cache, n);
    } else {
        *skip = (size_t)start;
        s->engine->resumed_tokens += start;
    }
    return status;
}

di_status di_sequence_feed_input(di_sequence *s, const di_input *in, di_error *err)
{
    size_t skip = 0;
    di_status status = usable(s, err);
    if (status == DI_OK) {
        status = check_input(s, in, err);
    }
    if (status != DI_OK || in->n == 0) {
        return status;
    }
    if (in->in_image != NULL || in->embed != NULL || s->keep_all) {
        eng_cache_leave(&s->cache);
    }
    status = queue_reserve(s, in, err);
    if (status == DI_OK) {
        status = reserve(s, in->ids, in->n, &skip, err);
    }
    if (status != DI_OK) {
        return status;
    }
    for (size_t i = 0; s->sampler != NULL && i < in->n; i++) {
        eng_sampler_accept(s->sampler, in->ids[i], true);
    }
    enqueue(s, in);
    s->queue.begin += skip;
    return DI_OK;
}

di_status di_sequence_feed(di_sequence *s, const int32_t *ids, size_t n, di_error *err)
{
    return di_sequence_feed_input(s, &(di_input){.ids = ids, .n = n}, err);
}

di_status di_sequence_use_cache(di_sequence *s, const void *salt, size_t n, di_error *err)
{
    if (di_sequence_length(s) > 0) {
        return err_set(err, DI_E_STATE, "the prefix cache is used from the first token on: call this before feeding");
    }
    const di_status status = eng_cache_activate(&s->cache, salt, n, s->engine->replay, err);
    if (status == DI_OK && s->engine->tier != NULL) {
        eng_keep keep = {.class_id = 0};
        (void)kv_tenant_of((kv_salt){.data = salt, .size = n}, &keep.tenant);
        eng_cache_set_tier(&s->cache, s->engine->tier, &keep);
    }
    return status;
}

int64_t di_sequence_cached(const di_sequence *s) { return s->cache.cached; }

di_status di_sequence_keep_logits(di_sequence *s, bool all, di_error *err)
{
    if (eng_queued(s) > 0) {
        return err_set(err, DI_E_STATE, "tokens are queued: choose which logits to keep before feeding");
    }
    s->keep_all = all;
    return DI_OK;
}

di_status di_sequence_run(di_sequence *s, di_error *err)
{
    di_status status = usable(s, err);
    while (status == DI_OK && eng_queued(s) > 0) {
        int32_t n = 0;
        status = di_engine_step(s->engine, &n, err);
    }
    return status;
}

bool di_sequence_ready(const di_sequence *s) { return !s->failed && eng_queued(s) == 0 && s->n_logits > 0; }

int64_t di_sequence_length(const di_sequence *s) { return s->caches.n_tokens + (int64_t)eng_queued(s); }

static di_status check_ready(const di_sequence *s, di_error *err)
{
    if (di_sequence_ready(s)) {
        return DI_OK;
    }
    return s->failed ? usable(s, err) : err_set(err, DI_E_STATE, "the sequence has no result yet: feed tokens and step until it is ready");
}

di_status di_sequence_logits(const di_sequence *s, const float **logits, int32_t *n_rows, di_error *err)
{
    di_status status = check_ready(s, err);
    if (status == DI_OK) {
        *logits = s->logits;
        *n_rows = s->n_logits;
    }
    return status;
}

di_status di_sequence_trace_caches(di_sequence *s, di_error *err)
{
    di_status status = check_ready(s, err);
    return status == DI_OK ? mdl_seq_trace(&s->caches, err) : status;
}

/* --- Sampling ---------------------------------------------------------------------------------------------------------- */

di_status di_sequence_set_sampling(di_sequence *s, const di_sampling *sampling, di_error *err)
{
    if (di_sequence_length(s) > 0) {
        return err_set(err, DI_E_STATE, "choose the sampling before the first token is fed, so that penalties can count the prompt");
    }
    eng_sampler *sampler = NULL;
    di_status status = eng_sampler_new(sampling, s->engine->c->vocab, &sampler, err);
    if (status == DI_OK) {
        eng_sampler_free(s->sampler);
        s->sampler = sampler;
    }
    return status;
}

static di_status default_sampler(di_sequence *s, di_error *err)
{
    di_sampling sampling;
    di_sampling_default(&sampling);
    return s->sampler != NULL ? DI_OK : eng_sampler_new(&sampling, s->engine->c->vocab, &s->sampler, err);
}

di_status di_sequence_sample(di_sequence *s, di_sample *out, di_error *err) { return di_sequence_sample_masked(s, NULL, out, err); }

di_status di_sequence_sample_masked(di_sequence *s, const uint32_t *mask, di_sample *out, di_error *err)
{
    di_status status = check_ready(s, err);
    if (status == DI_OK) {
        status = default_sampler(s, err);
    }
    if (status != DI_OK) {
        return status;
    }
    const float *row = s->logits + (size_t)(s->n_logits - 1) * (size_t)s->engine->c->vocab;
    di_sample sample;
    status = eng_sampler_choose(s->sampler, row, di_sequence_length(s), mask, &sample, err);
    if (status != DI_OK) {
        return status;
    }
    eng_sampler *sampler = s->sampler;
    s->sampler = NULL; /* the feed below must not count the token as prompt */
    status = di_sequence_feed(s, &sample.id, 1, err);
    s->sampler = sampler;
    if (status == DI_OK) {
        eng_sampler_accept(sampler, sample.id, false);
        *out = sample;
    }
    return status;
}
