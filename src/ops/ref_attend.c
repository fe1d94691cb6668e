/* ref_attend.c - sparse attention with sink over the window and the selected compressed entries (model.md 3.8).
 *
 * Slot order and tiles of 64 are part of the numerics: probabilities are rounded to bf16 relative to the running maximum after their
 * tile. A query's slots are its min(pos + 1, window) window rows, oldest first, then its list: a function of the position alone, and
 * behind the first window the official order. (In front of it the official layout depends on how the prompt was cut.) */
#include "ops/ref.h"
#include "ops/rope.h"
#include "ops/vector.h"

#define TILE 64

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

/* Logits p[64] of one head become bf16 probabilities; returns the factor for what was summed before. */
static float softmax_tile(ref_attention *st, size_t h, uint64_t valid)
{
    float *p = st->p + h * TILE;
    float top = st->max[h];
    for (size_t i = 0; i < TILE; i++) {
        p[i] *= st->scale;
        if (valid >> i & 1 && p[i] > top) {
            top = p[i];
        }
    }
    float alpha = expf(st->max[h] - top);
    float e[TILE];
    for (size_t i = 0; i < TILE; i++) {
        e[i] = valid >> i & 1 ? expf(p[i] - top) : 0.0f;
        p[i] = bf16_round(e[i]);
    }
    float sum = 0.0f; /* sixteen columns of four, then across, as the official sum does */
    for (size_t i = 0; i < 16; i++) {
        sum += ((e[i] + e[16 + i]) + e[32 + i]) + e[48 + i];
    }
    st->den[h] = st->den[h] * alpha + sum;
    st->max[h] = top;
    return alpha;
}

void ref_attention_tile(ref_attention *st, const float *q, const float *kt, size_t ldk, const float *v, size_t ldv, uint64_t valid)
{
    size_t h = (size_t)st->n_heads;
    size_t d = (size_t)st->head_dim;
    for (size_t j = 0; j < TILE; j += REF_TILE) {
        ref_mm32(st->p + j, TILE, q, d, h, kt + j, ldk, d, REF_K_BLOCK_FINE);
    }
    for (size_t i = 0; i < h; i++) {
        float alpha = softmax_tile(st, i, valid);
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

void ref_attention_end(ref_attention *st, const float *sink, bf16 *o)
{
    size_t d = (size_t)st->head_dim;
    for (size_t h = 0; h < (size_t)st->n_heads; h++) {
        float den = st->den[h] + expf(sink[h] - st->max[h]);
        for (size_t c = 0; c < d; c++) {
            o[h * d + c] = bf16_from_f32(st->o[h * d + c] / den);
        }
    }
}

/* --- The stage -------------------------------------------------------------------------------------------------------- */

/* Window rows of one sequence, decoded once a call: row i of v is position first + i; kt is its transpose. */
typedef struct window_view {
    int64_t first;
    size_t n;
    float *v;
    float *kt;
    size_t ldk;
} window_view;

typedef struct attend_run {
    const ops_attend_args *a;
    const ops_seq *seq;
    const ops_seq *kv_seq;
    window_view window;
    float *memory;      /* per thread */
    size_t memory_floats;
} attend_run;

static void decode_window(void *arg, size_t begin, size_t end, int thread)
{
    const attend_run *run = arg;
    const ops_attend_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    size_t bytes = fmt_q8_bytes(d);
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        int64_t pos = run->window.first + (int64_t)i;
        int64_t at = pos - run->kv_seq->pos0;
        const uint8_t *row = at >= 0 ? a->kv + (size_t)(run->kv_seq->row0 + at) * bytes
                                     : run->seq->state + a->ring_offset + (size_t)(pos % a->window) * bytes;
        float *v = run->window.v + i * d;
        fmt_q8_unpack(row, d, v);
        for (size_t c = 0; c < d; c++) {
            run->window.kt[c * run->window.ldk + i] = v[c];
        }
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

/* Slots of one query: its window rows from the oldest on, then its list. */
typedef struct slot_list {
    int64_t oldest;   /* position of slot 0 */
    int32_t n_window; /* min(pos + 1, window) */
    const int32_t *entries;
    int32_t n_entries; /* width of the list; -1 ends it early */
} slot_list;

/* Puts slots [s0, s0 + 64) into the thread's tile. Returns the valid mask. */
static uint64_t assemble_tile(const attend_run *run, const attend_memory *m, const slot_list *slots, int32_t s0)
{
    size_t d = (size_t)run->a->head_dim;
    int32_t n = 0;
    for (; n < TILE; n++) {
        float *v = m->v + (size_t)n * d;
        int32_t j = s0 + n - slots->n_window;
        if (j < 0) {
            memcpy(v, run->window.v + (size_t)(slots->oldest + s0 + n - run->window.first) * d, d * sizeof *v);
        } else if (j < slots->n_entries && slots->entries[j] >= 0) {
            fmt_q4n_unpack(ref_paged_row(run->seq, &run->a->compressed, slots->entries[j]), d, v);
        } else {
            break;
        }
    }
    memset(m->v + (size_t)n * d, 0, (size_t)(TILE - n) * d * sizeof(float));
    for (size_t i = 0; i < TILE; i++) {
        for (size_t c = 0; c < d; c++) {
            m->kt[c * TILE + i] = m->v[i * d + c];
        }
    }
    return n == TILE ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
}

static void attend_row(const attend_run *run, const attend_memory *m, size_t t, int64_t pos)
{
    const ops_attend_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    size_t width = (size_t)a->n_heads * d;
    slot_list slots = {.oldest = pos >= a->window ? pos - a->window + 1 : 0, .n_entries = a->topk};
    slots.n_window = (int32_t)(pos - slots.oldest + 1);
    slots.entries = a->topk > 0 ? a->list + t * (size_t)a->topk : NULL;
    ref_attention st;
    fmt_bf16_to_f32(a->q + t * width, width, m->q);
    ref_attention_begin(&st, a->n_heads, a->head_dim, a->scale, m->state);
    for (int32_t s0 = 0; s0 < slots.n_window + slots.n_entries; s0 += TILE) {
        if (s0 + TILE <= slots.n_window) {
            size_t at = (size_t)(slots.oldest - run->window.first) + (size_t)s0;
            ref_attention_tile(&st, m->q, run->window.kt + at, run->window.ldk, run->window.v + at * d, d, ~(uint64_t)0);
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

static void unrotate_heads(const ops_attend_args *a, size_t t, int64_t pos)
{
    size_t d = (size_t)a->head_dim;
    size_t r = (size_t)a->rope_dim;
    float c[256];
    float s[256];
    float tail[512];
    rope_row(a->rope, r / 2, pos, c, s);
    for (size_t h = 0; h < (size_t)a->n_heads; h++) {
        bf16 *o = a->o + (t * (size_t)a->n_heads + h) * d + d - r;
        fmt_bf16_to_f32(o, r, tail);
        rope_apply(tail, r / 2, c, s, 1);
        fmt_f32_to_bf16(tail, r, o);
    }
}

static void attend_rows(void *arg, size_t begin, size_t end, int thread)
{
    const attend_run *run = arg;
    attend_memory m = attend_memory_of(run, thread);
    for (size_t i = begin; i < end; i++) {
        size_t t = (size_t)run->seq->row0 + i;
        int64_t pos = run->seq->pos0 + (int64_t)i;
        attend_row(run, &m, t, pos);
        unrotate_heads(run->a, t, pos);
    }
}

void ref_attend(ops_device *device, const ops_attend_args *a)
{
    ref_device *dev = ref_of(device);
    size_t d = (size_t)a->head_dim;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        attend_run run = {.a = a, .seq = &a->seqs[i], .kv_seq = &a->kv_seqs[i]};
        if (run.seq->n_rows == 0) {
            continue;
        }
        ref_scratch_reset(dev);
        window_view *w = &run.window;
        w->first = run.seq->pos0 >= a->window ? run.seq->pos0 - a->window + 1 : 0;
        w->n = (size_t)(run.seq->pos0 + run.seq->n_rows - w->first);
        w->ldk = w->n;
        w->v = ref_scratch(dev, w->n * d, sizeof(float));
        w->kt = ref_scratch(dev, w->ldk * d, sizeof(float));
        run.memory_floats = attend_memory_floats(a);
        run.memory = ref_scratch(dev, (size_t)dev->n_threads * run.memory_floats, sizeof(float));
        if (w->v == NULL || w->kt == NULL || run.memory == NULL) {
            return;
        }
        pool_run(dev->pool, w->n, decode_window, &run);
        pool_run(dev->pool, (size_t)run.seq->n_rows, attend_rows, &run);
    }
}

void ref_window_store(ops_device *device, const ops_window_store_args *a)
{
    (void)device;
    size_t bytes = (size_t)a->row_bytes;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        const ops_seq *seq = &a->seqs[i];
        int32_t first = seq->n_rows > a->window ? seq->n_rows - a->window : 0;
        for (int32_t t = first; t < seq->n_rows; t++) {
            size_t slot = (size_t)((seq->pos0 + t) % a->window);
            memcpy(seq->state + a->ring_offset + slot * bytes, a->kv + (size_t)(seq->row0 + t) * bytes, bytes);
        }
    }
}
