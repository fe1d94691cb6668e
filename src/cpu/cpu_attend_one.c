/* cpu_attend_one.c - attention of one query by all threads: fewer queries than threads.
 *
 * Its heads are shared in sixteens where there are enough, and no thread waits for another. Else few heads are cut into
 * parts that decode all slots each, and only logits are exchanged: rows that another core has just written cost more to
 * fetch than to decode. Between the two, many threads share first slots and then heads. */
#include "cpu/cpu_attend.h"

#define SLOTS_A_SHARE 8

typedef struct query_run {
    const cpu_attend_run *run;
    ref_slots slots;
    size_t n_slots;
    size_t i_seq;
    size_t t;
    int64_t pos;
    size_t most;          /* slots that there is memory for */
    size_t n_parts;       /* of heads; with few of them each part decodes all slots for itself */
    float *columns;       /* [head_dim][n_columns] */
    float *values;        /* [most][ld], with few heads [n_parts][most][ld] */
    const float **rows;   /* into values, [most] or [n_parts][most] */
    float *logits;        /* [most][n_columns] */
    const float **places; /* [most] into logits */
} query_run;

/* Slots [s0, s1) from `values` on. */
static void unpack_rows(const query_run *q, size_t s0, size_t s1, float *values)
{
    const cpu_attend_run *run = q->run;
    for (size_t s = s0; s < s1; s++) {
        const int64_t j = (int64_t)s - q->slots.n_window;
        float *row = values + (s - s0) * run->ld;
        if (j < 0) {
            cpu_attend_window(run, q->i_seq, q->slots.oldest + (int64_t)s, row);
        } else {
            cpu_attend_entry(run, &run->a->seqs[q->i_seq], q->slots.entries[j], row);
        }
    }
}

/* Shares of a few slots: decoded, and their logits. */
static void query_slots(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const cpu_attend_run *run = q->run;
    const size_t s0 = begin * SLOTS_A_SHARE;
    const size_t s1 = end * SLOTS_A_SHARE < q->n_slots ? end * SLOTS_A_SHARE : q->n_slots;
    (void)thread;
    unpack_rows(q, s0, s1, q->values + s0 * run->ld);
    cpu_attend_logits(run, q->rows + s0, s1 - s0, q->columns, 0, cpu_attend_round16((size_t)run->a->n_heads),
                q->logits + s0 * run->n_columns);
}

/* With few heads: all slots decoded for each part, and its share of the logits. */
static void query_parts(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const cpu_attend_run *run = q->run;
    (void)thread;
    for (size_t part = begin; part < end; part++) {
        const float **const rows = q->rows + part * q->most;
        const size_t s0 = q->n_slots * part / q->n_parts;
        const size_t s1 = q->n_slots * (part + 1) / q->n_parts;
        cpu_attend_unpack(run, q->i_seq, &q->slots, 0, q->n_slots, q->n_slots, q->values + part * q->most * run->ld);
        run->blocks->logits(rows + s0, s1 - s0, q->columns, (size_t)run->a->n_heads, run->d,
                            q->logits + s0 * run->n_columns, run->n_columns, 1);
    }
}

/* With many heads: a part takes heads in sixteens through all slots, a tile at a time. */
static void query_sixteens(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const cpu_attend_run *run = q->run;
    const ops_attend_args *a = run->a;
    const cpu_attend_space m = cpu_attend_space_of(run, thread);
    const size_t h0 = begin * 16;
    const size_t h1 = end * 16 < (size_t)a->n_heads ? end * 16 : (size_t)a->n_heads;
    const float *rows[CPU_ATTEND_TILE];
    const float *logits[CPU_ATTEND_TILE];
    ref_attention st;
    for (size_t i = 0; i < CPU_ATTEND_TILE; i++) {
        rows[i] = m.tile + i * run->ld;
        logits[i] = m.logits + i * run->n_columns;
    }
    cpu_attend_turn(run, q->t, 1, h0, cpu_attend_round16(h1), m.columns);
    ref_attention_begin(&st, (int32_t)(h1 - h0), a->head_dim, a->scale, m.state);
    for (size_t s0 = 0; s0 < q->n_slots; s0 += CPU_ATTEND_TILE) {
        const size_t n = q->n_slots - s0 < CPU_ATTEND_TILE ? q->n_slots - s0 : CPU_ATTEND_TILE;
        unpack_rows(q, s0, s0 + n, m.tile);
        cpu_attend_logits(run, rows, n, m.columns, h0, cpu_attend_round16(h1) - h0, m.logits + h0);
        cpu_attend_tile(run, &st, logits, 0, rows, n, h0, h1);
    }
    cpu_attend_finish(run, &st, q->t, q->pos, h0);
}

static void query_heads(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const cpu_attend_run *run = q->run;
    const size_t heads = (size_t)run->a->n_heads;
    for (size_t part = begin; part < end; part++) {
        const size_t h0 = heads * part / q->n_parts;
        const size_t h1 = heads * (part + 1) / q->n_parts;
        const float *const *rows = q->rows + (run->blocks != NULL ? part * q->most : 0);
        ref_attention st;
        ref_attention_begin(&st, (int32_t)(h1 - h0), run->a->head_dim, run->a->scale, cpu_attend_space_of(run, thread).state);
        for (size_t s0 = 0; s0 < q->n_slots; s0 += CPU_ATTEND_TILE) {
            const size_t n = q->n_slots - s0 < CPU_ATTEND_TILE ? q->n_slots - s0 : CPU_ATTEND_TILE;
            cpu_attend_tile(run, &st, q->places + s0, 0, rows + s0, n, h0, h1);
        }
        if (run->blocks != NULL) {
            run->blocks->turn_row(st.o, (h1 - h0) * run->d);
        }
        cpu_attend_finish(run, &st, q->t, q->pos, h0);
    }
}

static void share_query(ref_device *dev, const cpu_attend_run *run, size_t i_seq, int32_t i, query_run *memory)
{
    const ops_attend_args *a = run->a;
    const ops_seq *seq = &a->seqs[i_seq];
    query_run q = *memory;
    q.run = run;
    q.i_seq = i_seq;
    q.t = (size_t)(seq->row0 + i);
    q.pos = seq->pos0 + i;
    q.slots = ref_slots_of(a, seq, q.t, q.pos);
    q.n_slots = cpu_attend_n_slots(&q.slots);
    const size_t sixteens = ((size_t)a->n_heads + 15) / 16;
    if (sixteens >= (size_t)dev->n_threads) {
        pool_run(dev->pool, sixteens, query_sixteens, &q);
        return;
    }
    if (run->blocks != NULL) {
        cpu_attend_blocks(run, q.t, q.columns);
        pool_run(dev->pool, q.n_parts, query_parts, &q);
    } else {
        cpu_attend_turn(run, q.t, 1, 0, run->n_columns, q.columns);
        pool_run(dev->pool, (q.n_slots + SLOTS_A_SHARE - 1) / SLOTS_A_SHARE, query_slots, &q);
    }
    pool_run(dev->pool, q.n_parts, query_heads, &q);
}

void cpu_attend_one(ref_device *dev, const cpu_attend_run *run)
{
    const size_t heads = (size_t)run->a->n_heads;
    const size_t threads = (size_t)dev->n_threads;
    query_run q = {.columns = cpu_attend_space_of(run, 0).columns, .most = (size_t)run->a->window + (size_t)run->a->topk};
    q.n_parts = threads < heads ? threads : heads;
    const size_t n_rows = run->blocks != NULL ? q.n_parts * q.most : q.most;
    q.values = ref_scratch(dev, n_rows * run->ld, sizeof(float));
    q.rows = ref_scratch(dev, n_rows, sizeof *q.rows);
    q.logits = ref_scratch(dev, q.most * run->n_columns, sizeof(float));
    q.places = ref_scratch(dev, q.most, sizeof *q.places);
    if (q.values == NULL || q.rows == NULL || q.logits == NULL || q.places == NULL) {
        return;
    }
    for (size_t s = 0; s < n_rows; s++) {
        q.rows[s] = q.values + s * run->ld;
    }
    for (size_t s = 0; s < q.most; s++) {
        q.places[s] = q.logits + s * run->n_columns;
    }
    for (size_t i_seq = run->first_seq; i_seq < run->first_seq + run->n_seqs; i_seq++) {
        for (int32_t i = 0; i < run->a->seqs[i_seq].n_rows; i++) {
            share_query(dev, run, i_seq, i, &q);
        }
    }
}

