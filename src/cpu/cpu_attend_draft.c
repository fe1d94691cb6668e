/* cpu_attend_draft.c - attention inside blocks of drafts (dspark.md 1.6): all queries of a block see the same slots, so a
 * slot is decoded once for all of them, and their heads stand side by side in the lanes as if they were one query's.
 *
 * A block is cut into parts of its heads, so that every thread has one; each part decodes the slots for itself, a tile at a
 * time. Slot order, tiles and sums are the reference's (ops/ref_draft.c), so results have its bits. */
#include "cpu/cpu_attend.h"

#define MOST_HEADS 64 /* of a part: its columns stay in the second cache */

typedef struct draft_run {
    const ops_draft_attend_args *a;
    cpu_attend_run way;   /* lengths and kernels of a part; `a`, `rows` and `memory` are not used */
    size_t heads;         /* of a block, all its queries' */
    size_t n_parts;       /* of a block */
    float *memory;        /* per thread */
    size_t memory_floats;
} draft_run;

typedef struct draft_space {
    float *columns; /* [head_dim][n_columns] */
    float *tile;    /* [CPU_ATTEND_TILE][ld] */
    float *logits;  /* [CPU_ATTEND_TILE][n_columns] */
    float *state;
} draft_space;

static size_t space_floats(const draft_run *run)
{
    const cpu_attend_run *const w = &run->way;
    return (w->d + CPU_ATTEND_TILE) * w->n_columns + CPU_ATTEND_TILE * w->ld +
           cpu_attend_round16(ref_attention_floats((int32_t)w->n_columns, run->a->head_dim));
}

static draft_space space_of(const draft_run *run, int thread)
{
    const cpu_attend_run *const w = &run->way;
    draft_space m;
    m.columns = run->memory + (size_t)thread * run->memory_floats;
    m.tile = m.columns + w->d * w->n_columns;
    m.logits = m.tile + CPU_ATTEND_TILE * w->ld;
    m.state = m.logits + CPU_ATTEND_TILE * w->n_columns;
    return m;
}

/* Heads [h0, h1) of a block, counted through its queries; columns without a head are zero. */
static void turn_heads(const draft_run *run, const ops_seq *seq, size_t h0, size_t h1, float *columns)
{
    const size_t d = run->way.d;
    const size_t ld = run->way.n_columns;
    const bf16 *const q = run->a->q + ((size_t)seq->row0 * (size_t)run->a->n_heads + h0) * d;
    for (size_t i0 = 0; i0 < d; i0 += 16) {
        for (size_t h = 0; h < ld; h++) {
            for (size_t i = i0; i < i0 + 16; i++) {
                columns[i * ld + h] = h < h1 - h0 ? bf16_to_f32(q[h * d + i]) : 0.0f;
            }
        }
    }
}

/* The slots of a block that are still to come: the ring's in ascending place mod window, then its own rows. */
typedef struct draft_slots {
    const ops_draft_attend_args *a;
    const ops_seq *seq;
    int64_t from; /* position of the oldest row that is seen */
    int32_t slot;
    int32_t own;
} draft_slots;

static draft_slots slots_of(const ops_draft_attend_args *a, const ops_seq *seq)
{
    const int64_t oldest = seq->pos0 - a->window;
    return (draft_slots){.a = a, .seq = seq, .from = oldest > seq->window_from ? oldest : seq->window_from};
}

/* The packed row of the next one; NULL behind the last. */
static const uint8_t *next_slot(draft_slots *s)
{
    const ops_draft_attend_args *const a = s->a;
    const size_t bytes = fmt_q8_bytes((size_t)a->head_dim);
    while (s->slot < a->window) {
        const int64_t back = (s->seq->pos0 - 1 - s->slot++) % a->window;
        const int64_t pos = s->seq->pos0 - 1 - (back < 0 ? back + a->window : back);
        if (pos >= s->from) {
            return s->seq->state + a->ring_offset + (size_t)(pos % a->ring_slots) * bytes;
        }
    }
    return s->own < s->seq->n_rows ? a->kv + (size_t)(s->seq->row0 + s->own++) * bytes : NULL;
}

/* Decodes the next tile; returns how many slots it has. */
static size_t unpack_tile(const cpu_attend_run *w, draft_slots *slots, float *tile)
{
    size_t n = 0;
    for (const uint8_t *row; n < CPU_ATTEND_TILE && (row = next_slot(slots)) != NULL; n++) {
        w->kernels->unpack_q8(row, w->d, tile + n * w->ld);
    }
    return n;
}

/* Sums to outputs, query by query. */
static void finish_heads(const draft_run *run, const ref_attention *st, const ops_seq *seq, size_t h0, size_t h1)
{
    const ops_draft_attend_args *const a = run->a;
    const size_t heads = (size_t)a->n_heads;
    const size_t d = run->way.d;
    for (size_t h = h0; h < h1;) {
        const size_t i = h / heads;
        const size_t end = (i + 1) * heads < h1 ? (i + 1) * heads : h1;
        bf16 *const o = a->o + ((size_t)seq->row0 * heads + h) * d;
        ref_attention part = *st;
        part.n_heads = (int32_t)(end - h);
        part.o += (h - h0) * d;
        part.max += h - h0;
        part.den += h - h0;
        ref_attention_end(&part, a->sink + h % heads, o);
        ref_unrotate(a->rope, (size_t)a->rope_dim, seq->pos0 + (int64_t)i, end - h, d, o);
        h = end;
    }
}

/* Heads [h0, h1) of a block through all slots. */
static void draft_part(const draft_run *run, const ops_seq *seq, size_t h0, size_t h1, const draft_space *m)
{
    const cpu_attend_run *const w = &run->way;
    const float *rows[CPU_ATTEND_TILE];
    const float *logits[CPU_ATTEND_TILE];
    draft_slots slots = slots_of(run->a, seq);
    ref_attention st;
    for (size_t i = 0; i < CPU_ATTEND_TILE; i++) {
        rows[i] = m->tile + i * w->ld;
        logits[i] = m->logits + i * w->n_columns;
    }
    turn_heads(run, seq, h0, h1, m->columns);
    ref_attention_begin(&st, (int32_t)(h1 - h0), run->a->head_dim, run->a->scale, m->state);
    for (size_t n; (n = unpack_tile(w, &slots, m->tile)) > 0;) {
        cpu_attend_logits(w, rows, n, m->columns, 0, cpu_attend_round16(h1 - h0), m->logits);
        cpu_attend_tile(w, &st, logits, 0, rows, n, 0, h1 - h0);
    }
    finish_heads(run, &st, seq, h0, h1);
}

/* Parts [begin, end) of all blocks, counted through. */
static void draft_parts(void *arg, size_t begin, size_t end, int thread)
{
    const draft_run *const run = arg;
    const draft_space m = space_of(run, thread);
    for (size_t i = begin; i < end; i++) {
        const size_t part = i % run->n_parts;
        draft_part(run, &run->a->seqs[i / run->n_parts], run->heads * part / run->n_parts,
                   run->heads * (part + 1) / run->n_parts, &m);
    }
}

void cpu_draft_attend(ops_device *device, const ops_draft_attend_args *a)
{
    ref_device *const dev = ref_of(device);
    if (a->n_seqs == 0 || !ref_stage_begin(dev)) {
        return;
    }
    const size_t n_seqs = (size_t)a->n_seqs;
    const size_t threads = (size_t)dev->n_threads;
    draft_run run = {.a = a, .heads = (size_t)a->seqs[0].n_rows * (size_t)a->n_heads};
    const size_t shared = (threads + n_seqs - 1) / n_seqs;
    const size_t narrow = (run.heads + MOST_HEADS - 1) / MOST_HEADS;
    run.n_parts = shared > narrow ? shared : narrow;
    run.n_parts = run.n_parts < run.heads ? run.n_parts : run.heads;
    run.way = (cpu_attend_run){.kernels = ((const cpu_device *)(const void *)device)->kernels, .d = (size_t)a->head_dim};
    run.way.ld = run.way.d + 16;
    run.way.n_columns = cpu_attend_round16((run.heads + run.n_parts - 1) / run.n_parts);
    run.memory_floats = space_floats(&run);
    run.memory = ref_scratch(dev, threads * run.memory_floats, sizeof(float));
    if (run.memory != NULL) {
        pool_run(dev->pool, n_seqs * run.n_parts, draft_parts, &run);
    }
}
