/* mdl_stream.c - see mdl_stream.h.
 *
 * A slot's memory has an area for each of an expert's three matrices: scales are read to its front and codes to its end, so that the
 * backend's form, which is larger than the codes by the scales, is made in the same place. */
#include "model/mdl_stream.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MATRICES = 3, READS = 2 * MATRICES };

#define TRUST_FROM 0.5f /* guesses are read when so many of them were right lately: a wrong one costs a read, a right one saves waiting */
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct weight_slot { /* what mdl_slots knows nothing of */
    mdl_stream *stream;
    uint8_t *memory;
    mdl_read reads[READS];
    int n_left; /* reads that are not over */
    bool failed;
    ops_matrix w[MATRICES];
} weight_slot;

struct mdl_stream { /* owner and thread: the runner */
    ops_feed feed; /* first: what the stage gives back is a stream */
    const ops_backend *ops;
    ops_device *dev;
    mdl_reader *reader;
    mdl_expert_group groups[MDL_EXPERT_GROUPS];
    mdl_slots table;
    weight_slot *slots; /* [table.n_slots] */
    uint8_t *memory;
    size_t memory_bytes;
    size_t slot_bytes;
    ops_matrix **to_form; /* [3 * n_slots] scratch of a take */
    void **form_at;

    /* The running call of the stage. */
    int32_t first;      /* number of the layer's expert 0 */
    int32_t *needed;    /* [most experts of a layer] that were not taken yet */
    int32_t n_needed;
    int32_t n_missing;  /* the last of them, which have no slot yet, stand in `missing` */
    int32_t *missing;
    int32_t *taken;
    int32_t n_taken;
    bool failed; /* a read that it needs */

    /* The guess: for the layer that begins at guess_first. */
    int32_t guess_first; /* -1 = none */
    bool guess_sent;
    uint8_t *guess; /* [most experts of a layer] 1 = likely */
    float trust;    /* share of guesses that were right, the newest counting most */

    _Atomic int64_t hits;
    _Atomic int64_t misses;
    _Atomic int64_t guessed;
    _Atomic int64_t guessed_right;
};

/* ---- sizes ---- */

static size_t code_bytes(const ops_matrix *m) { return (size_t)m->n_out * (size_t)m->n_in / 2; }
static size_t scale_bytes(const ops_matrix *m) { return (size_t)m->n_out * (size_t)m->n_in / 32; }

/* Free bytes before the scales, so that the codes' end is not before the form's. */
static size_t gap_bytes(const ops_matrix *m, size_t form)
{
    const size_t stored = mdl_read_span(scale_bytes(m)) + code_bytes(m);
    return form > stored ? (form - stored + MDL_READ_ALIGN - 1) / MDL_READ_ALIGN * MDL_READ_ALIGN : 0;
}

static size_t area_bytes(const ops_backend *ops, const ops_device *dev, const ops_matrix *m)
{
    return gap_bytes(m, ops->form_bytes(dev, m)) + mdl_read_span(scale_bytes(m)) + mdl_read_span(code_bytes(m));
}

size_t mdl_stream_slot_bytes(const ops_backend *ops, const ops_device *dev, const mdl_expert_group *groups)
{
    size_t most = 0;
    for (int g = 0; g < MDL_EXPERT_GROUPS; g++) {
        if (groups[g].n_layers > 0 && groups[g].n_experts > 0) {
            const mdl_expert_weights *const e = &groups[g].layers[0].experts[0];
            const size_t n = area_bytes(ops, dev, &e->w1) + area_bytes(ops, dev, &e->w2) + area_bytes(ops, dev, &e->w3);
            most = n > most ? n : most;
        }
    }
    return most;
}

static int32_t n_experts(const mdl_stream *s)
{
    return s->groups[0].n_layers * s->groups[0].n_experts + s->groups[1].n_layers * s->groups[1].n_experts;
}

/* Number of expert 0 of a layer. */
static int32_t first_of(const mdl_stream *s, int32_t layer)
{
    const int32_t in_backbone = layer < s->groups[0].n_layers ? layer : s->groups[0].n_layers;
    return in_backbone * s->groups[0].n_experts + (layer - in_backbone) * s->groups[1].n_experts;
}

static const mdl_expert_weights *expert_at(const mdl_stream *s, int32_t number)
{
    const int32_t backbone = s->groups[0].n_layers * s->groups[0].n_experts;
    const mdl_expert_group *const g = &s->groups[number < backbone ? 0 : 1];
    const int32_t i = number < backbone ? number : number - backbone;
    return &g->layers[i / g->n_experts].experts[i % g->n_experts];
}

/* ---- reading an expert ---- */

static void read_is_over(mdl_read *read)
{
    weight_slot *const x = read->user;
    mdl_stream *const s = x->stream;
    const size_t i = (size_t)(read - x->reads);
    ops_matrix *const m = &x->w[i / 2];
    *(i % 2 == 0 ? &m->scale : &m->data) = read->result;
    x->failed = x->failed || read->result == NULL;
    if (--x->n_left > 0) {
        return;
    }
    mdl_slot *const slot = &s->table.slots[x - s->slots];
    if (!x->failed) {
        slot->state = MDL_SLOT_READ;
        return;
    }
    s->failed = s->failed || slot->needed;
    mdl_slots_drop(&s->table, (int32_t)(x - s->slots));
}

static void start_reads(mdl_stream *s, int32_t slot, bool urgent)
{
    weight_slot *const x = &s->slots[slot];
    const mdl_expert_weights *const e = expert_at(s, s->table.slots[slot].expert);
    const ops_matrix *const from[MATRICES] = {&e->w1, &e->w2, &e->w3};
    uint8_t *area = x->memory;
    x->n_left = READS;
    x->failed = false;
    for (int i = 0; i < MATRICES; i++) {
        const ops_matrix *const m = from[i];
        uint8_t *const scales = area + gap_bytes(m, s->ops->form_bytes(s->dev, m));
        x->w[i] = (ops_matrix){.format = m->format, .n_out = m->n_out, .n_in = m->n_in};
        x->reads[2 * i] = (mdl_read){
            .data = m->scale, .size = scale_bytes(m), .memory = scales, .over = read_is_over, .user = x};
        x->reads[2 * i + 1] = (mdl_read){.data = m->data,
                                         .size = code_bytes(m),
                                         .memory = scales + mdl_read_span(scale_bytes(m)),
                                         .over = read_is_over,
                                         .user = x};
        area += area_bytes(s->ops, s->dev, m);
    }
    for (int i = 0; i < READS; i++) {
        mdl_reader_ask(s->reader, &x->reads[i], urgent);
    }
}

/* Experts that have no slot get one, as far as there are any. */
static void place_missing(mdl_stream *s)
{
    while (s->n_missing > 0) {
        const int32_t slot = mdl_slots_take(&s->table, s->first + s->missing[s->n_missing - 1], false);
        if (slot < 0) {
            break;
        }
        s->n_missing--;
        s->table.slots[slot].needed = true;
        start_reads(s, slot, true);
    }
}

/* ---- guesses ---- */

static int32_t experts_of_layer(const mdl_stream *s, int32_t first)
{
    return s->groups[first < s->groups[0].n_layers * s->groups[0].n_experts ? 0 : 1].n_experts;
}

void mdl_stream_guess(mdl_stream *s, int32_t layer, const int32_t *ids, size_t n)
{
    s->guess_first = first_of(s, layer);
    s->guess_sent = false;
    memset(s->guess, 0, (size_t)experts_of_layer(s, s->guess_first));
    for (size_t i = 0; i < n; i++) {
        s->guess[ids[i]] = 1;
    }
}

static void send_guess(mdl_stream *s)
{
    const int32_t n = experts_of_layer(s, s->guess_first);
    int32_t left = s->trust >= TRUST_FROM ? s->table.n_slots / 4 : 0;
    s->guess_sent = true;
    for (int32_t e = 0; e < n && left > 0; e++) {
        if (s->guess[e] == 0 || s->table.where[s->guess_first + e] >= 0) {
            continue;
        }
        const int32_t slot = mdl_slots_take(&s->table, s->guess_first + e, true);
        if (slot < 0) {
            break;
        }
        s->guessed++;
        left--;
        start_reads(s, slot, false);
    }
}

/* How right the guess for this layer was, now that its experts are known. */
static void judge_guess(mdl_stream *s, const int32_t *ids, int32_t n)
{
    int32_t right = 0;
    int32_t all = 0;
    for (int32_t i = 0; i < n; i++) {
        right += s->guess[ids[i]];
    }
    for (int32_t e = 0; e < experts_of_layer(s, s->first); e++) {
        all += s->guess[e];
    }
    if (all > 0) {
        s->trust += ((float)right / (float)all - s->trust) / 16.0f;
    }
    s->guess_first = -1;
}

/* ---- the feed ---- */

/* One expert that the stage needs; false when it has no slot yet. */
static bool expect(mdl_stream *s, int32_t id)
{
    const int32_t at = s->table.where[s->first + id];
    if (at < 0) {
        s->misses++;
        return false;
    }
    mdl_slot *const slot = &s->table.slots[at];
    s->hits++;
    s->guessed_right += slot->guessed ? 1 : 0;
    slot->needed = true;
    for (int i = 0; i < READS && slot->state == MDL_SLOT_READING; i++) {
        mdl_reader_hurry(s->reader, &s->slots[at].reads[i]);
    }
    return true;
}

static void feed_begin(ops_feed *feed, const int32_t *ids, int32_t n)
{
    mdl_stream *const s = (mdl_stream *)(void *)feed;
    for (int32_t i = 0; i < s->table.n_slots; i++) {
        s->table.slots[i].needed = false; /* also of a pass that failed */
    }
    s->failed = false;
    s->n_taken = 0;
    s->n_missing = 0;
    s->n_needed = n;
    memcpy(s->needed, ids, (size_t)n * sizeof *ids);
    for (int32_t i = n - 1; i >= 0; i--) { /* missing ones are placed from the end of their list */
        if (!expect(s, ids[i])) {
            s->missing[s->n_missing++] = ids[i];
        }
    }
    if (s->guess_first == s->first) {
        judge_guess(s, ids, n);
    }
    place_missing(s);
    if (s->guess_first >= 0 && !s->guess_sent) {
        send_guess(s);
    }
    mdl_reader_poll(s->reader, false);
}

/* Moves what is there from `needed` to `taken`, and lists what has to be brought into the backend's form. Returns how many matrices. */
static size_t collect(mdl_stream *s)
{
    int32_t left = 0;
    size_t n = 0;
    for (int32_t i = 0; i < s->n_needed; i++) {
        const int32_t at = s->table.where[s->first + s->needed[i]];
        if (at < 0 || s->table.slots[at].state == MDL_SLOT_READING) {
            s->needed[left++] = s->needed[i];
            continue;
        }
        weight_slot *const x = &s->slots[at];
        s->taken[s->n_taken++] = s->needed[i];
        uint8_t *area = x->memory;
        for (int m = 0; m < MATRICES && s->table.slots[at].state == MDL_SLOT_READ; m++) {
            s->to_form[n] = &x->w[m];
            s->form_at[n++] = area;
            area += area_bytes(s->ops, s->dev, &x->w[m]);
        }
        s->table.slots[at].state = MDL_SLOT_FORMED;
    }
    s->n_needed = left;
    return n;
}

static di_status feed_take(ops_feed *feed, int32_t *ids, int32_t *n, ops_expert *experts, di_error *err)
{
    mdl_stream *const s = (mdl_stream *)(void *)feed;
    mdl_reader_poll(s->reader, false);
    place_missing(s);
    size_t n_form = collect(s);
    while (s->n_taken == 0 && !s->failed) {
        mdl_reader_poll(s->reader, true);
        place_missing(s);
        n_form = collect(s);
    }
    if (s->failed) {
        const di_status status = mdl_reader_failure(s->reader, err);
        return status != DI_OK ? status : err_set(err, DI_E_IO, "an expert could not be read");
    }
    s->ops->form(s->dev, s->to_form, s->form_at, n_form);
    for (int32_t i = 0; i < s->n_taken; i++) {
        const weight_slot *const x = &s->slots[s->table.where[s->first + s->taken[i]]];
        experts[s->taken[i]] = (ops_expert){.w1 = &x->w[0], .w2 = &x->w[1], .w3 = &x->w[2]};
    }
    memcpy(ids, s->taken, (size_t)s->n_taken * sizeof *ids);
    *n = s->n_taken;
    return DI_OK;
}

static void feed_done(ops_feed *feed)
{
    mdl_stream *const s = (mdl_stream *)(void *)feed;
    for (int32_t i = 0; i < s->n_taken; i++) {
        const int32_t at = s->table.where[s->first + s->taken[i]];
        s->table.slots[at].needed = false;
        mdl_slots_use(&s->table, at);
    }
    s->n_taken = 0;
    place_missing(s);
    mdl_reader_poll(s->reader, false);
}

ops_feed *mdl_stream_layer(mdl_stream *s, int32_t layer)
{
    s->first = first_of(s, layer);
    return &s->feed;
}

/* ---- opening ---- */

static di_status take_memory(mdl_stream *s, int32_t n_slots, di_error *err)
{
    if (!ar_mul((size_t)n_slots, s->slot_bytes, &s->memory_bytes)) {
        return err_memory(err, "experts in memory", SIZE_MAX);
    }
    void *const memory = mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return err_memory(err, "experts in memory", s->memory_bytes);
    }
    s->memory = memory;
    if (s->slot_bytes >= HUGE_PAGE) {
        (void)madvise(memory, s->memory_bytes, MADV_HUGEPAGE); /* a wish */
    }
    for (int32_t i = 0; i < n_slots; i++) {
        s->slots[i].stream = s;
        s->slots[i].memory = s->memory + (size_t)i * s->slot_bytes;
    }
    return DI_OK;
}

di_status mdl_stream_new(const ops_backend *ops, ops_device *dev, const mdl_expert_group groups[MDL_EXPERT_GROUPS], mdl_reader *reader,
                         size_t bytes, mdl_stream **out, di_error *err)
{
    mdl_stream *const s = ar_calloc(1, sizeof *s);
    if (s == NULL) {
        return err_memory(err, "stream of experts", sizeof *s);
    }
    s->feed = (ops_feed){.begin = feed_begin, .take = feed_take, .done = feed_done};
    s->ops = ops;
    s->dev = dev;
    s->reader = reader;
    s->guess_first = -1;
    memcpy(s->groups, groups, sizeof s->groups);
    s->slot_bytes = mdl_stream_slot_bytes(ops, dev, groups);
    const int32_t all = n_experts(s);
    const size_t fit = s->slot_bytes > 0 ? bytes / s->slot_bytes : 0;
    const int32_t n_slots = fit < MDL_STREAM_LEAST ? MDL_STREAM_LEAST : fit < (size_t)all ? (int32_t)fit : all;
    const size_t widest = (size_t)(groups[0].n_experts > groups[1].n_experts ? groups[0].n_experts : groups[1].n_experts);
    di_status status = mdl_slots_init(&s->table, n_slots, all, err);
    s->slots = ar_calloc((size_t)n_slots, sizeof *s->slots);
    s->to_form = ar_calloc((size_t)n_slots * MATRICES, sizeof *s->to_form);
    s->form_at = ar_calloc((size_t)n_slots * MATRICES, sizeof *s->form_at);
    s->needed = ar_calloc(widest, sizeof *s->needed);
    s->missing = ar_calloc(widest, sizeof *s->missing);
    s->taken = ar_calloc(widest, sizeof *s->taken);
    s->guess = ar_calloc(widest, 1);
    if (status == DI_OK && (s->slots == NULL || s->to_form == NULL || s->form_at == NULL || s->needed == NULL || s->missing == NULL ||
                            s->taken == NULL || s->guess == NULL)) {
        status = err_memory(err, "stream of experts", (size_t)n_slots * sizeof *s->slots);
    }
    if (status == DI_OK) {
        status = take_memory(s, n_slots, err);
    }
    if (status != DI_OK) {
        mdl_stream_free(s);
        return status;
    }
    *out = s;
    return DI_OK;
}

void mdl_stream_free(mdl_stream *s)
{
    if (s == NULL) {
        return;
    }
    if (s->memory != NULL) {
        (void)munmap(s->memory, s->memory_bytes);
    }
    mdl_slots_fini(&s->table);
    free(s->slots);
    free(s->to_form);
    free(s->form_at);
    free(s->needed);
    free(s->missing);
    free(s->taken);
    free(s->guess);
    free(s);
}

void mdl_stream_get_stats(const mdl_stream *s, mdl_stream_stats *out)
{
    out->cache_bytes = (int64_t)s->memory_bytes;
    out->experts = n_experts(s);
    out->slots = s->table.n_slots;
    out->hits = s->hits;
    out->misses = s->misses;
    out->guessed = s->guessed;
    out->guessed_right = s->guessed_right;
}
