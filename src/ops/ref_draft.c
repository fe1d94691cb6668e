/* ref_draft.c - what only the draft model does: taps, attention inside a block, the Markov and confidence heads (dspark.md 1.3, 1.6-1.8).
 *
 * Slot order and tiles of 64 are part of the numerics, as in ref_attend.c. Here the reference walks its ring of `window` slots from slot 0
 * on, whatever position lies there, and then the block. */
#include "ops/ref.h"

#define TILE 64

/* ---- taps ---- */

static void tap_rows(void *arg, size_t begin, size_t end, int thread)
{
    const ops_tap_args *const a = arg;
    const size_t n = (size_t)a->hidden;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const bf16 *const x = a->x + t * (size_t)a->hc * n;
        bf16 *const out = a->out + t * (size_t)a->ld;
        for (size_t i = 0; i < n; i++) {
            float sum = bf16_to_f32(x[i]);
            for (size_t k = 1; k < (size_t)a->hc; k++) {
                sum += bf16_to_f32(x[k * n + i]);
            }
            out[i] = bf16_from_f32(sum / (float)a->hc);
        }
    }
}

void ref_tap(ops_device *device, const ops_tap_args *a)
{
    pool_run(ref_of(device)->pool, (size_t)a->n_rows, tap_rows, (void *)a);
}

/* ---- attention ---- */

typedef struct block_run {
    const ops_draft_attend_args *a;
    const ops_seq *seq;
    size_t n_slots;
    size_t n_wide; /* a multiple of the tile */
    float *v;      /* [n_wide, head_dim] */
    float *kt;     /* [head_dim, n_wide] */
    float *memory; /* per thread: one query row, attention state */
    size_t memory_floats;
} block_run;

/* Ring rows in slot order, then the block's. */
static void unpack_slots(const block_run *run)
{
    const ops_draft_attend_args *const a = run->a;
    const ops_seq *const seq = run->seq;
    const size_t d = (size_t)a->head_dim;
    const size_t bytes = fmt_q8_bytes(d);
    const int64_t oldest = seq->pos0 - a->window;
    const int64_t from = oldest > seq->window_from ? oldest : seq->window_from;
    float *v = run->v;
    for (int32_t slot = 0; slot < a->window; slot++) {
        const int64_t back = (seq->pos0 - 1 - slot) % a->window;
        const int64_t pos = seq->pos0 - 1 - (back < 0 ? back + a->window : back);
        if (pos >= from) {
            fmt_q8_unpack(seq->state + a->ring_offset + (size_t)(pos % a->ring_slots) * bytes, d, v);
            v += d;
        }
    }
    for (int32_t i = 0; i < seq->n_rows; i++, v += d) {
        fmt_q8_unpack(a->kv + (size_t)(seq->row0 + i) * bytes, d, v);
    }
    memset(v, 0, (run->n_wide - run->n_slots) * d * sizeof *v);
    ref_transpose(run->v, d, run->n_wide, d, run->kt, run->n_wide);
}

static void block_rows(void *arg, size_t begin, size_t end, int thread)
{
    const block_run *const run = arg;
    const ops_draft_attend_args *const a = run->a;
    const size_t d = (size_t)a->head_dim;
    const size_t width = (size_t)a->n_heads * d;
    float *const q = run->memory + (size_t)thread * run->memory_floats;
    for (size_t i = begin; i < end; i++) {
        const size_t t = (size_t)run->seq->row0 + i;
        ref_attention st;
        fmt_bf16_to_f32(a->q + t * width, width, q);
        ref_attention_begin(&st, a->n_heads, a->head_dim, a->scale, q + width);
        for (size_t s0 = 0; s0 < run->n_slots; s0 += TILE) {
            const size_t n = run->n_slots - s0;
            const uint64_t valid = n >= TILE ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
            ref_attention_tile(&st, q, run->kt + s0, run->n_wide, run->v + s0 * d, d, valid);
        }
        ref_attention_end(&st, a->sink, a->o + t * width);
        ref_unrotate(a->rope, (size_t)a->rope_dim, run->seq->pos0 + (int64_t)i, (size_t)a->n_heads, d, a->o + t * width);
    }
}

void ref_draft_attend(ops_device *device, const ops_draft_attend_args *a)
{
    ref_device *const dev = ref_of(device);
    const size_t d = (size_t)a->head_dim;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        const ops_seq *const seq = &a->seqs[i];
        block_run run = {.a = a, .seq = seq, .memory_floats = (size_t)a->n_heads * d + ref_attention_floats(a->n_heads, a->head_dim)};
        const int64_t context = seq->pos0 - seq->window_from < a->window ? seq->pos0 - seq->window_from : a->window;
        run.n_slots = (size_t)(context + seq->n_rows);
        run.n_wide = (run.n_slots + TILE - 1) / TILE * TILE;
        if (!ref_stage_begin(dev)) {
            return;
        }
        run.v = ref_scratch(dev, run.n_wide * d, sizeof(float));
        run.kt = ref_scratch(dev, run.n_wide * d, sizeof(float));
        run.memory = ref_scratch(dev, (size_t)dev->n_threads * run.memory_floats, sizeof(float));
        if (run.v == NULL || run.kt == NULL || run.memory == NULL) {
            return;
        }
        unpack_slots(&run);
        pool_run(dev->pool, (size_t)seq->n_rows, block_rows, &run);
    }
}

/* ---- Markov and confidence heads ---- */


static void add_base(void *arg, size_t begin, size_t end, int thread)
{
    const ops_markov_args *const a = arg;
    (void)thread;
    for (int32_t t = 0; t < a->n_rows; t++) {
        const float *const base = a->base + (size_t)t * (size_t)(a->ld_base * a->vocab);
        float *const out = a->logits + (size_t)t * (size_t)a->vocab;
        for (size_t i = begin; i < end; i++) {
            out[i] = base[i] + out[i];
        }
    }
}

void ref_markov(ops_device *device, const ops_markov_args *a)
{
    ref_device *const dev = ref_of(device);
    const size_t hidden = (size_t)a->hidden;
    const size_t rank = (size_t)a->rank;
    const size_t rows = (size_t)a->n_rows;
    if (!ref_stage_begin(dev)) {
        return;
    }
    float *const e = ref_scratch(dev, rows * rank, sizeof(float));
    float *const joined = ref_scratch(dev, rows * (hidden + rank), sizeof(float));
    if (e == NULL || joined == NULL) {
        return;
    }
    for (size_t t = 0; t < rows; t++) {
        bf16 *const row = (bf16 *)(void *)(joined + t * (hidden + rank)); /* the file's rows are not aligned */
        memcpy(row, a->embed->data + (size_t)a->previous[t] * rank * sizeof *row, rank * sizeof *row);
        fmt_bf16_to_f32(row, rank, e + t * rank);
        fmt_bf16_to_f32(a->h + t * (size_t)a->ld_base * hidden, hidden, joined + t * (hidden + rank));
        memcpy(joined + t * (hidden + rank) + hidden, e + t * rank, rank * sizeof *e);
    }
    ref_linear jobs[2] = {ref_linear_to_f32(a->head, e, a->n_rows, a->logits),
                          ref_linear_to_f32(a->proj, joined, a->n_rows, a->confidence)};
    dev->linear(dev, jobs, 2);
    pool_run(dev->pool, (size_t)a->vocab, add_base, (void *)a);
}
