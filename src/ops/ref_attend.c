/* ref_attend.c - sparse attention with sink over the window and the selected compressed entries (model.md 3.8).
 *
 * Slot order and tiles of 64 are part of the numerics: probabilities are rounded to bf16 relative to the running maximum after their
 * tile. A query's slots are its min(pos + 1, window) window rows, oldest first, then its list: a function of the position alone, and
 * behind the first window the official order. (In front of it the official layout depends on how the prompt was cut.) */
#include "ops/ops_exp.h"
#include "ops/ref.h"
#include "ops/rope.h"
#include "ops/vector.h"

#define TILE 64
#define MAX_DECODED 16384 /* compressed entries decoded at once: 64 MiB at head_dim 512 */

size_t ref_attention_floats(int32_t n_heads, int32_t head_dim)
{
    return (size_t)n_heads * ((size_t)head_dim + 2 + TILE + REF_TILE);
}

void ref_attention_begin(ref_attention *st, int32_t n_heads, int32_t head_dim, float scale, float *memory)
{
    size_t h = (size_t)n_heads;
    *st = (ref_attention){.n_heads = n_heads, .head_dim = head_dim, .scale = scale};
    st->o = memory;
    st->p = st->o + h * (size_t)head_dim;
    st->product = st->p + h * TILE;
    st->max = st->product + h * REF_TILE;
    st->den = st->max + h;
    memset(st->o, 0, h * (size_t)head_dim * sizeof(float));
    for (size_t i = 0; i < h; i++) {
        st->max[i] = -1e30f;
        st->den[i] = 0.0f;
    }
}

OPS_CLONES float ref_attention_softmax(ref_attention *st, size_t h, uint64_t valid)
{
    float *p = st->p + h * TILE;
    float x[TILE + 1];
    for (size_t i = 0; i < TILE; i++) {
        x[i] = p[i] * st->scale;
    }
    for (size_t i = 0; valid != ~(uint64_t)0 && i < TILE; i++) {
        x[i] = valid >> i & 1 ? x[i] : -INFINITY;
    }
    float top = st->max[h];
    for (size_t i = 0; i < TILE; i++) {
        top = x[i] > top ? x[i] : top;
    }
    for (size_t i = 0; i < TILE; i++) {
        x[i] -= top;
    }
    x[TILE] = st->max[h] - top;
    ops_exp(x, TILE + 1, x);
    for (size_t i = 0; i < TILE; i++) {
        p[i] = bf16_round(x[i]);
    }
    float column[16]; /* sixteen columns of four, then across, as the official sum does */
    float sum = 0.0f;
    for (size_t i = 0; i < 16; i++) {
        column[i] = ((x[i] + x[16 + i]) + x[32 + i]) + x[48 + i];
    }
    for (size_t i = 0; i < 16; i++) {
        sum += column[i];
    }
    st->den[h] = st->den[h] * x[TILE] + sum;
    st->max[h] = top;
    return x[TILE];
}

void ref_attention_tile(ref_attention *st, const float *q, const float *kt, size_t ldk, const float *v, size_t ldv, uint64_t valid)
{
    size_t h = (size_t)st->n_heads;
    size_t d = (size_t)st->head_dim;
    for (size_t j = 0; j < TILE; j += REF_TILE) {
        ref_mm32(st->p + j, TILE, q, d, h, kt + j, ldk, d, REF_K_BLOCK_FINE);
    }
    for (size_t i = 0; i < h; i++) {
        float alpha = ref_attention_softmax(st, i, valid);
        for (size_t c = 0; c < d && alpha != 1.0f; c++) {
            st->o[i * d + c] *= alpha;
        }
    }
    for (size_t c = 0; c < d; c += REF_TILE) {
        ref_mm32(st->product, REF_TILE, st->p, TILE, h, v + c, ldv, TILE, REF_K_BLOCK);
        for (size_t i = 0; i < h; i++) {
            for (size_t j = 0; j < REF_TILE; j++) {
                st->o[i * d + c + j] += st->product[i * REF_TILE + j];
            }
        }
    }
}

OPS_CLONES void ref_attention_end(ref_attention *st, const float *sink, bf16 *o)
{
    size_t d = (size_t)st->head_dim; /* a multiple of 32 */
    for (size_t h = 0; h < (size_t)st->n_heads; h++) {
        float e = sink[h] - st->max[h];
        ops_exp(&e, 1, &e);
        float den = st->den[h] + e;
        for (size_t c = 0; c < d; c += 16) {
            const v16 x = *(const v16u *)(st->o + h * d + c) / den;
            v16_to_bf16(&x, o + h * d + c);
        }
    }
}

void ref_transpose(const float *src, size_t lds, size_t rows, size_t columns, float *dst, size_t ldd)
{
    enum { B = 16 };
    for (size_t i0 = 0; i0 < rows; i0 += B) {
        size_t i1 = i0 + B < rows ? i0 + B : rows;
        for (size_t c0 = 0; c0 < columns; c0 += B) {
            size_t c1 = c0 + B < columns ? c0 + B : columns;
            for (size_t c = c0; c < c1; c++) {
                for (size_t i = i0; i < i1; i++) {
                    dst[c * ldd + i] = src[i * lds + c];
                }
            }
        }
    }
}

/* --- The stage -------------------------------------------------------------------------------------------------------- */

/* Rows of one sequence, decoded once a call: v [n, head_dim], kt its transpose. Of the window, row i is position first + i. Of the
 * compressed cache, row i is entry i; n == 0 when decoding all of it would cost more than decoding what the lists name. */
typedef struct row_view {
    int64_t first;
    size_t n;
    float *v;
    float *kt;
} row_view;

typedef struct attend_run {
    const ops_attend_args *a;
    const ops_seq *seq;
    size_t i_seq;
    row_view window;
    row_view cache;
    float *memory;      /* per thread */
    size_t memory_floats;
} attend_run;

/* Both decoders work on groups of 16 rows, so that each transposes its own. */
#define GROUP 16

static void transpose_group(const row_view *view, size_t g, size_t d)
{
    size_t i = g * GROUP;
    size_t n = view->n - i < GROUP ? view->n - i : GROUP;
    ref_transpose(view->v + i * d, d, n, d, view->kt + i, view->n);
}

const uint8_t *ref_window_row(const ops_attend_args *a, size_t i_seq, int64_t pos)
{
    const ops_seq *kv_seq = &a->kv_seqs[i_seq];
    size_t bytes = fmt_q8_bytes((size_t)a->head_dim);
    int64_t at = pos - kv_seq->pos0;
    return at >= 0 ? a->kv + (size_t)(kv_seq->row0 + at) * bytes
                   : a->seqs[i_seq].state + a->ring_offset + (size_t)(pos % a->ring_slots) * bytes;
}

static void decode_window(void *arg, size_t begin, size_t end, int thread)
{
    const attend_run *run = arg;
    size_t d = (size_t)run->a->head_dim;
    (void)thread;
    for (size_t g = begin; g < end; g++) {
        for (size_t i = g * GROUP; i < (g + 1) * GROUP && i < run->window.n; i++) {
            fmt_q8_unpack(ref_window_row(run->a, run->i_seq, run->window.first + (int64_t)i), d, run->window.v + i * d);
        }
        transpose_group(&run->window, g, d);
    }
}

static void decode_cache(void *arg, size_t begin, size_t end, int thread)
{
    const attend_run *run = arg;
    size_t d = (size_t)run->a->head_dim;
    (void)thread;
    for (size_t g = begin; g < end; g++) {
        for (size_t i = g * GROUP; i < (g + 1) * GROUP && i < run->cache.n; i++) {
            fmt_q4n_unpack(ref_paged_row(run->seq, &run->a->compressed, (int64_t)i), d, run->cache.v + i * d);
        }
        transpose_group(&run->cache, g, d);
    }
}

/* Memory of one thread: query, attention state, one assembled tile both ways. */
typedef struct attend_memory {
    float *q;
    float *state;
    float *v;
    float *kt;
} attend_memory;

static size_t attend_memory_floats(const ops_attend_args *a)
{
    size_t d = (size_t)a->head_dim;
    return (size_t)a->n_heads * d + ref_attention_floats(a->n_heads, a->head_dim) + 2 * TILE * d;
}

static attend_memory attend_memory_of(const attend_run *run, int thread)
{
    size_t d = (size_t)run->a->head_dim;
    attend_memory m;
    m.q = run->memory + (size_t)thread * run->memory_floats;
    m.v = m.q + (size_t)run->a->n_heads * d;
    m.kt = m.v + TILE * d;
    m.state = m.kt + TILE * d;
    return m;
}

/* Puts slots [s0, s0 + 64) into the thread's tile. Returns the valid mask. */
static uint64_t assemble_tile(const attend_run *run, const attend_memory *m, const ref_slots *slots, int32_t s0)
{
    size_t d = (size_t)run->a->head_dim;
    int32_t n = 0;
    for (; n < TILE; n++) {
        float *v = m->v + (size_t)n * d;
        int32_t j = s0 + n - slots->n_window;
        if (j < 0) {
            memcpy(v, run->window.v + (size_t)(slots->oldest + s0 + n - run->window.first) * d, d * sizeof *v);
        } else if (j >= slots->n_entries || slots->entries[j] < 0) {
            break;
        } else if (run->cache.n > 0) {
            memcpy(v, run->cache.v + (size_t)slots->entries[j] * d, d * sizeof *v);
        } else {
            fmt_q4n_unpack(ref_paged_row(run->seq, &run->a->compressed, slots->entries[j]), d, v);
        }
    }
    memset(m->v + (size_t)n * d, 0, (size_t)(TILE - n) * d * sizeof(float));
    ref_transpose(m->v, d, TILE, d, m->kt, TILE);
    return n == TILE ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

/* The tile when it is a run of decoded rows: its first row in *view, else -1. */
static int64_t tile_in_place(const attend_run *run, const ref_slots *slots, int32_t s0, const row_view **view)
{
    int32_t j = s0 - slots->n_window;
    if (j + TILE <= 0) {
        *view = &run->window;
        return slots->oldest - run->window.first + s0;
    }
    if (j < 0 || j + TILE > slots->n_entries || run->cache.n == 0 || slots->entries[j] < 0 ||
        slots->entries[j + TILE - 1] != slots->entries[j] + TILE - 1) {
        return -1; /* lists ascend, so equal ends mean a run */
    }
    *view = &run->cache;
    return slots->entries[j];
}

int64_t ref_oldest(const ops_attend_args *a, const ops_seq *seq, int64_t pos)
{
    const int64_t oldest = pos - a->window + 1;
    return oldest > seq->window_from ? oldest : seq->window_from;
}

ref_slots ref_slots_of(const ops_attend_args *a, const ops_seq *seq, size_t t, int64_t pos)
{
    ref_slots slots = {.oldest = ref_oldest(a, seq, pos), .n_entries = a->topk};
    slots.n_window = (int32_t)(pos - slots.oldest + 1);
    slots.entries = a->topk > 0 ? a->list + t * (size_t)a->topk : NULL;
    return slots;
}

static void attend_row(const attend_run *run, const attend_memory *m, size_t t, int64_t pos)
{
    const ops_attend_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    size_t width = (size_t)a->n_heads * d;
    ref_slots slots = ref_slots_of(a, run->seq, t, pos);
    ref_attention st;
    fmt_bf16_to_f32(a->q + t * width, width, m->q);
    ref_attention_begin(&st, a->n_heads, a->head_dim, a->scale, m->state);
    for (int32_t s0 = 0; s0 < slots.n_window + slots.n_entries; s0 += TILE) {
        const row_view *view = NULL;
        int64_t at = tile_in_place(run, &slots, s0, &view);
        if (at >= 0) {
            ref_attention_tile(&st, m->q, view->kt + at, view->n, view->v + (size_t)at * d, d, ~(uint64_t)0);
            continue;
        }
        uint64_t valid = assemble_tile(run, m, &slots, s0);
        if (valid == 0) {
            break;
        }
        ref_attention_tile(&st, m->q, m->kt, TILE, m->v, d, valid);
    }
    ref_attention_end(&st, a->sink, a->o + t * width);
}

void ref_unrotate(const float *rope, size_t rope_dim, int64_t pos, size_t n_heads, size_t head_dim, bf16 *o)
{
    float c[OPS_MAX_ROPE_DIM / 2];
    float s[OPS_MAX_ROPE_DIM / 2];
    float tail[OPS_MAX_ROPE_DIM];
    rope_row(rope, rope_dim / 2, pos, c, s);
    for (size_t h = 0; h < n_heads; h++) {
        bf16 *const last = o + (h + 1) * head_dim - rope_dim;
        fmt_bf16_to_f32(last, rope_dim, tail);
        rope_apply(tail, rope_dim / 2, c, s, 1);
        fmt_f32_to_bf16(tail, rope_dim, last);
    }
}

void ref_unrotate_heads(const ops_attend_args *a, size_t t, int64_t pos, size_t h0, size_t h1)
{
    const size_t d = (size_t)a->head_dim;
    ref_unrotate(a->rope, (size_t)a->rope_dim, pos, h1 - h0, d, a->o + (t * (size_t)a->n_heads + h0) * d);
}

static void attend_rows(void *arg, size_t begin, size_t end, int thread)
{
    const attend_run *run = arg;
    attend_memory m = attend_memory_of(run, thread);
    for (size_t i = begin; i < end; i++) {
        size_t t = (size_t)run->seq->row0 + i;
        int64_t pos = run->seq->pos0 + (int64_t)i;
        attend_row(run, &m, t, pos);
        ref_unrotate_heads(run->a, t, pos, 0, (size_t)run->a->n_heads);
    }
}

/* --- Fewer rows than threads: the threads share a row's slots, then its heads -------------------------------------------- */

typedef struct row_run {
    const attend_run *run;
    ref_slots slots;
    size_t t;
    int64_t pos;
    row_view view; /* the row's slots; n is a multiple of the tile */
    size_t n_slots;
} row_run;

static void decode_slots(void *arg, size_t begin, size_t end, int thread)
{
    const row_run *r = arg;
    size_t d = (size_t)r->run->a->head_dim;
    (void)thread;
    for (size_t g = begin; g < end; g++) {
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++) {
            int64_t j = (int64_t)i - r->slots.n_window;
            float *v = r->view.v + i * d;
            if (i >= r->n_slots) {
                memset(v, 0, d * sizeof *v);
            } else if (j < 0) {
                fmt_q8_unpack(ref_window_row(r->run->a, r->run->i_seq, r->slots.oldest + (int64_t)i), d, v);
            } else {
                fmt_q4n_unpack(ref_paged_row(r->run->seq, &r->run->a->compressed, r->slots.entries[j]), d, v);
            }
        }
        transpose_group(&r->view, g, d);
    }
}

static void attend_heads(void *arg, size_t begin, size_t end, int thread)
{
    const row_run *r = arg;
    const ops_attend_args *a = r->run->a;
    size_t d = (size_t)a->head_dim;
    size_t first = r->t * (size_t)a->n_heads + begin;
    attend_memory m = attend_memory_of(r->run, thread);
    ref_attention st;
    fmt_bf16_to_f32(a->q + first * d, (end - begin) * d, m.q);
    ref_attention_begin(&st, (int32_t)(end - begin), a->head_dim, a->scale, m.state);
    for (size_t s0 = 0; s0 < r->n_slots; s0 += TILE) {
        size_t n = r->n_slots - s0;
        uint64_t valid = n >= TILE ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
        ref_attention_tile(&st, m.q, r->view.kt + s0, r->view.n, r->view.v + s0 * d, d, valid);
    }
    ref_attention_end(&st, a->sink + begin, a->o + first * d);
    ref_unrotate_heads(a, r->t, r->pos, begin, end);
}

static bool view_alloc(ref_device *dev, row_view *view, size_t n, size_t d)
{
    view->n = n;
    view->v = ref_scratch(dev, n * d, sizeof(float));
    view->kt = ref_scratch(dev, n * d, sizeof(float));
    return view->v != NULL && view->kt != NULL;
}

/* Entries that the last row can see, when the lists of the rows name them often enough to decode all at once. */
static size_t cache_rows(const ops_attend_args *a, const ops_seq *seq)
{
    if (a->topk == 0) {
        return 0;
    }
    int64_t n = (seq->pos0 + seq->n_rows) / a->ratio;
    return n < (int64_t)a->topk * seq->n_rows / 2 && n <= MAX_DECODED ? (size_t)n : 0;
}

static void attend_narrow(ref_device *dev, const attend_run *run)
{
    const ops_attend_args *a = run->a;
    for (int32_t i = 0; i < run->seq->n_rows; i++) {
        row_run r = {.run = run, .t = (size_t)(run->seq->row0 + i), .pos = run->seq->pos0 + i};
        r.slots = ref_slots_of(a, run->seq, r.t, r.pos);
        r.n_slots = (size_t)r.slots.n_window;
        for (int32_t j = 0; j < r.slots.n_entries && r.slots.entries[j] >= 0; j++) {
            r.n_slots++;
        }
        if (!view_alloc(dev, &r.view, (r.n_slots + TILE - 1) / TILE * TILE, (size_t)a->head_dim)) {
            return;
        }
        pool_run(dev->pool, r.view.n / GROUP, decode_slots, &r);
        pool_run(dev->pool, (size_t)a->n_heads, attend_heads, &r);
    }
}

static void attend_wide(ref_device *dev, attend_run *run)
{
    const ops_attend_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    run->window.first = ref_oldest(a, run->seq, run->seq->pos0);
    if (view_alloc(dev, &run->window, (size_t)(run->seq->pos0 + run->seq->n_rows - run->window.first), d) &&
        view_alloc(dev, &run->cache, cache_rows(a, run->seq), d)) {
        pool_run(dev->pool, (run->window.n + GROUP - 1) / GROUP, decode_window, run);
        pool_run(dev->pool, (run->cache.n + GROUP - 1) / GROUP, decode_cache, run);
        pool_run(dev->pool, (size_t)run->seq->n_rows, attend_rows, run);
    }
}

void ref_attend(ops_device *device, const ops_attend_args *a)
{
    ref_device *dev = ref_of(device);
    for (int32_t i = 0; i < a->n_seqs; i++) {
        attend_run run = {.a = a, .seq = &a->seqs[i], .i_seq = (size_t)i, .memory_floats = attend_memory_floats(a)};
        if (!ref_stage_begin(dev)) {
            return;
        }
        run.memory = ref_scratch(dev, (size_t)dev->n_threads * run.memory_floats, sizeof(float));
        if (run.memory == NULL) {
            return;
        }
        if (run.seq->n_rows < dev->n_threads || run.seq->n_rows == 1) {
            attend_narrow(dev, &run);
        } else {
            attend_wide(dev, &run);
        }
    }
}

void ref_window_store(ops_device *device, const ops_window_store_args *a)
{
    (void)device;
    size_t bytes = (size_t)a->row_bytes;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        const ops_seq *seq = &a->seqs[i];
        int32_t first = seq->n_rows > a->ring_slots ? seq->n_rows - a->ring_slots : 0;
        for (int32_t t = first; t < seq->n_rows; t++) {
            size_t slot = (size_t)((seq->pos0 + t) % a->ring_slots);
            memcpy(seq->state + a->ring_offset + slot * bytes, a->kv + (size_t)(seq->row0 + t) * bytes, bytes);
        }
    }
}
