/* cpu_attend.c - sparse attention (model.md 3.8) without transposing keys: a tile's logits are rows of the cache times
 * the query turned on its side, with heads in the lanes of a vector; its sums over values have channels in the lanes.
 * Keys and values are the same fp32 rows, decoded from their codes and used where they lie, through pointers.
 *
 * With at least as many queries as threads, each thread takes queries: it decodes the window of a few neighbours once,
 * and what their lists name either once for all (when they name it often enough) or tile by tile. A model with few
 * heads would leave lanes empty: there neighbours share a vector, and their logits for all rows that any of them sees
 * are made together. With fewer queries than threads, the threads share one (cpu_attend_one.c). A query with few heads
 * and no neighbour has blocks of a row in the lanes (cpu_blocks_avx512.c). Slot order, tiles and sums are the
 * reference's, so results have its bits. */
#include "cpu/cpu_attend.h"

#define MAX_DECODED 16384 /* entries decoded for all queries: 32 MiB at head_dim 512 */
#define SLOTS_AHEAD 8
#define ROWS_AT_ONCE 4 /* decoded and multiplied: they are still in the first cache then */
#define FEW_HEADS 12    /* at most so many: neighbours share columns */
#define MOST_COLUMNS 64 /* of a pass of several queries */

static size_t most_window_rows(const cpu_attend_run *run) { return (size_t)run->a->window + CPU_ATTEND_NEIGHBOURS - 1; }

static size_t most_joined(const cpu_attend_run *run)
{
    return run->per_pass > 1 ? (size_t)CPU_ATTEND_UNION * (size_t)run->a->topk : 0;
}

static void plan_memory(cpu_attend_run *run)
{
    const ops_attend_args *a = run->a;
    const size_t heads = (size_t)a->n_heads;
    run->d = (size_t)a->head_dim;
    run->ld = run->d + 16;
    run->per_pass = heads > FEW_HEADS ? 1 : MOST_COLUMNS / heads;
    if (run->per_pass > CPU_ATTEND_NEIGHBOURS) {
        run->per_pass = CPU_ATTEND_NEIGHBOURS;
    }
    run->n_columns = cpu_attend_round16(run->per_pass * heads);
    const cpu_blocks *const blocks = run->kernels->blocks;
    run->blocks = heads <= FEW_HEADS && blocks != NULL && run->d % blocks->chunk == 0 ? blocks : NULL;
    const size_t shared_logits = run->per_pass > 1 ? most_window_rows(run) + most_joined(run) : 0;
    run->memory_floats = (run->d + CPU_ATTEND_TILE + shared_logits) * run->n_columns +
                         (most_window_rows(run) + CPU_ATTEND_TILE) * run->ld +
                         cpu_attend_round16(ref_attention_floats(a->n_heads, a->head_dim));
}

cpu_attend_space cpu_attend_space_of(const cpu_attend_run *run, int thread)
{
    cpu_attend_space m;
    m.columns = run->memory + (size_t)thread * run->memory_floats;
    m.window = m.columns + run->d * run->n_columns;
    m.tile = m.window + most_window_rows(run) * run->ld;
    m.logits = m.tile + CPU_ATTEND_TILE * run->ld;
    m.state = m.logits + CPU_ATTEND_TILE * run->n_columns;
    m.window_logits = m.state + cpu_attend_round16(ref_attention_floats(run->a->n_heads, run->a->head_dim));
    m.entry_logits = m.window_logits + most_window_rows(run) * run->n_columns;
    m.rows = run->rows + (size_t)thread * most_joined(run);
    m.place = run->place + (size_t)thread * run->n_cache;
    return m;
}

void cpu_attend_turn(const cpu_attend_run *run, size_t t, size_t n, size_t h0, size_t h1, float *columns)
{
    const size_t heads = (size_t)run->a->n_heads * n;
    const bf16 *q = run->a->q + t * (size_t)run->a->n_heads * run->d;
    for (size_t i0 = 0; i0 < run->d; i0 += 16) {
        for (size_t h = h0; h < h1; h++) {
            for (size_t i = i0; i < i0 + 16; i++) {
                columns[i * run->n_columns + h] = h < heads ? bf16_to_f32(q[h * run->d + i]) : 0.0f;
            }
        }
    }
}

void cpu_attend_blocks(const cpu_attend_run *run, size_t t, float *q)
{
    const size_t heads = (size_t)run->a->n_heads;
    fmt_bf16_to_f32(run->a->q + t * heads * run->d, heads * run->d, q);
    run->blocks->turn_row(q, heads * run->d);
    memset(q + heads * run->d, 0, (run->n_columns - heads) * run->d * sizeof *q);
}

void cpu_attend_logits(const cpu_attend_run *run, const float *const *rows, size_t n_rows, const float *columns, size_t c0,
                        size_t count, float *logits)
{
    run->kernels->rows_times(rows, n_rows, columns + c0, run->n_columns, count, run->d, REF_K_BLOCK_FINE, logits + c0,
                             run->n_columns);
}

size_t cpu_attend_n_slots(const ref_slots *slots)
{
    size_t n = (size_t)slots->n_window;
    for (int32_t j = 0; j < slots->n_entries && slots->entries[j] >= 0; j++) {
        n++;
    }
    return n;
}

/* Packed row of slot s: of the window, or of an entry. */
static const uint8_t *packed_slot(const cpu_attend_run *run, size_t i_seq, const ref_slots *slots, size_t s)
{
    const int64_t j = (int64_t)s - slots->n_window;
    return j < 0 ? ref_window_row(run->a, i_seq, slots->oldest + (int64_t)s)
                 : ref_paged_row(&run->a->seqs[i_seq], &run->a->compressed, slots->entries[j]);
}

/* No prefetcher follows rows of a few lines that lie
 * about, so each is asked for while those before it are decoded. */
void cpu_attend_unpack(const cpu_attend_run *run, size_t i_seq, const ref_slots *slots, size_t s0, size_t s1, size_t n,
                         float *values)
{
    const size_t window = (size_t)slots->n_window;
    for (size_t s = s0; s < s1; s++) {
        if (s + SLOTS_AHEAD < n) {
            const size_t bytes = s + SLOTS_AHEAD < window ? fmt_q8_bytes(run->d) : fmt_q4n_bytes(run->d);
            const uint8_t *const next = packed_slot(run, i_seq, slots, s + SLOTS_AHEAD);
            for (size_t i = 0; i < bytes; i += 64) {
                __builtin_prefetch(next + i);
            }
        }
        (s < window ? run->blocks->unpack_q8 : run->blocks->unpack_q4n)(packed_slot(run, i_seq, slots, s), run->d,
                                                                         values + (s - s0) * run->ld);
    }
}

void cpu_attend_window(const cpu_attend_run *run, size_t i_seq, int64_t pos, float *row)
{
    run->kernels->unpack_q8(ref_window_row(run->a, i_seq, pos), run->d, row);
}

void cpu_attend_entry(const cpu_attend_run *run, const ops_seq *seq, int64_t entry, float *row)
{
    run->kernels->unpack_q4n(ref_paged_row(seq, &run->a->compressed, entry), run->d, row);
}

/* Logits st->p of n slots to sums. */
static void weigh_tile(const cpu_attend_run *run, ref_attention *st, const float *const *rows, size_t n)
{
    const uint64_t valid = n == CPU_ATTEND_TILE ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
    const size_t heads = (size_t)st->n_heads;
    for (size_t h = 0; h < heads; h++) {
        const float alpha = ref_attention_softmax(st, h, valid);
        float *o = st->o + h * run->d;
        for (size_t c = 0; c < run->d && alpha != 1.0f; c++) {
            o[c] *= alpha;
        }
    }
    run->kernels->add_rows(st->p, heads, rows, n, run->d, st->o);
}

void cpu_attend_tile(const cpu_attend_run *run, ref_attention *st, const float *const *logits, size_t c0,
                        const float *const *rows, size_t n, size_t h0, size_t h1)
{
    for (size_t h = h0; h < h1; h++) {
        float *p = st->p + (h - h0) * CPU_ATTEND_TILE;
        for (size_t i = 0; i < n; i++) {
            p[i] = logits[i][c0 + h];
        }
        for (size_t i = n; i < CPU_ATTEND_TILE; i++) {
            p[i] = 0.0f;
        }
    }
    weigh_tile(run, st, rows, n);
}

void cpu_attend_finish(const cpu_attend_run *run, ref_attention *st, size_t t, int64_t pos, size_t h0)
{
    const ops_attend_args *a = run->a;
    const size_t heads = (size_t)st->n_heads;
    ref_attention_end(st, a->sink + h0, a->o + (t * (size_t)a->n_heads + h0) * run->d);
    ref_unrotate_heads(a, t, pos, h0, h0 + heads);
}

/* --- A thread a query -------------------------------------------------------------------------------------------- */

/* Neighbouring queries whose heads stand in the columns. */
typedef struct attend_pass {
    size_t i_seq;
    size_t t0;    /* batch row and */
    int64_t pos0; /* position of the first */
    size_t n;
    size_t columns;   /* their heads, rounded up to 16: lanes beyond them would be work for nothing */
    int64_t first;    /* position of the row at m->window */
    bool has_window;  /* logits of all window rows are there, */
    bool has_entries; /* and of all entries that the lists name */
} attend_pass;

/* Logits of every window row that a query of the pass sees. */
static void join_windows(const cpu_attend_run *run, const cpu_attend_space *m, attend_pass *p)
{
    const int64_t oldest = ref_oldest(run->a, &run->a->seqs[p->i_seq], p->pos0);
    const int64_t end = p->pos0 + (int64_t)p->n;
    for (int64_t pos = oldest; pos < end; pos += CPU_ATTEND_TILE) {
        const float *rows[CPU_ATTEND_TILE];
        const size_t n = end - pos < CPU_ATTEND_TILE ? (size_t)(end - pos) : CPU_ATTEND_TILE;
        const size_t at = (size_t)(pos - p->first);
        for (size_t i = 0; i < n; i++) {
            rows[i] = m->window + (at + i) * run->ld;
        }
        cpu_attend_logits(run, rows, n, m->columns, 0, p->columns, m->window_logits + at * run->n_columns);
    }
    p->has_window = true;
}

/* The same for entries, when the lists have enough in common. */
static void join_entries(const cpu_attend_run *run, const cpu_attend_space *m, attend_pass *p)
{
    const ops_attend_args *a = run->a;
    const size_t topk = (size_t)a->topk;
    size_t n = 0;
    memset(m->place, 0xFF, run->n_cache * sizeof *m->place);
    for (size_t i = 0; i < p->n * topk; i++) {
        const int32_t e = a->list[p->t0 * topk + i];
        if (e >= 0 && m->place[e] < 0) {
            if (n == most_joined(run)) {
                return;
            }
            m->place[e] = (int32_t)n;
            m->rows[n++] = run->cache + (size_t)e * run->ld;
        }
    }
    cpu_attend_logits(run, m->rows, n, m->columns, 0, p->columns, m->entry_logits);
    p->has_entries = true;
}

/* Query i of a pass. */
static void attend_query(const cpu_attend_run *run, const cpu_attend_space *m, const attend_pass *p, size_t i_query)
{
    const ops_attend_args *a = run->a;
    const ops_seq *seq = &a->seqs[p->i_seq];
    const size_t t = p->t0 + i_query;
    const int64_t pos = p->pos0 + (int64_t)i_query;
    const size_t c0 = i_query * (size_t)a->n_heads;
    const size_t from = c0 / 16 * 16;
    const ref_slots slots = ref_slots_of(a, seq, t, pos);
    const size_t n_slots = cpu_attend_n_slots(&slots);
    ref_attention st;
    ref_attention_begin(&st, a->n_heads, a->head_dim, a->scale, m->state);
    for (size_t s0 = 0; s0 < n_slots; s0 += CPU_ATTEND_TILE) {
        const float *rows[CPU_ATTEND_TILE];
        const float *logits[CPU_ATTEND_TILE];
        const size_t n = n_slots - s0 < CPU_ATTEND_TILE ? n_slots - s0 : CPU_ATTEND_TILE;
        size_t n_ready = 0; /* slots whose logits are there: the first ones, as entries follow the window */
        for (size_t i = 0; i < n; i++) {
            const int64_t j = (int64_t)(s0 + i) - slots.n_window;
            const size_t at = j < 0 ? (size_t)(slots.oldest + (int64_t)(s0 + i) - p->first) : (size_t)slots.entries[j];
            logits[i] = m->logits + i * run->n_columns;
            if (j < 0) {
                rows[i] = m->window + at * run->ld;
                logits[i] = p->has_window ? m->window_logits + at * run->n_columns : logits[i];
            } else if (run->cache != NULL) {
                rows[i] = run->cache + at * run->ld;
                logits[i] = p->has_entries ? m->entry_logits + (size_t)m->place[at] * run->n_columns : logits[i];
            } else {
                cpu_attend_entry(run, seq, (int64_t)at, m->tile + i * run->ld);
                rows[i] = m->tile + i * run->ld;
            }
            n_ready += j < 0 ? p->has_window : p->has_entries;
        }
        cpu_attend_logits(run, rows + n_ready, n - n_ready, m->columns, from,
                          cpu_attend_round16(c0 + (size_t)a->n_heads - from),
                          m->logits + n_ready * run->n_columns);
        cpu_attend_tile(run, &st, logits, c0, rows, n, 0, (size_t)a->n_heads);
    }
    cpu_attend_finish(run, &st, t, pos, 0);
}

/* A query that shares nothing with others: a tile is decoded, multiplied and added while it is in the second cache. */
static void attend_alone(const cpu_attend_run *run, const cpu_attend_space *m, size_t i_seq, size_t t, int64_t pos)
{
    const ops_attend_args *a = run->a;
    const size_t heads = (size_t)a->n_heads;
    const ref_slots slots = ref_slots_of(a, &a->seqs[i_seq], t, pos);
    const size_t n_slots = cpu_attend_n_slots(&slots);
    ref_attention st;
    cpu_attend_blocks(run, t, m->columns);
    ref_attention_begin(&st, a->n_heads, a->head_dim, a->scale, m->state);
    for (size_t s0 = 0; s0 < n_slots; s0 += CPU_ATTEND_TILE) {
        const float *rows[CPU_ATTEND_TILE];
        const size_t n = n_slots - s0 < CPU_ATTEND_TILE ? n_slots - s0 : CPU_ATTEND_TILE;
        for (size_t i = 0; i < n; i++) {
            rows[i] = m->tile + i * run->ld;
        }
        memset(st.p, 0, heads * CPU_ATTEND_TILE * sizeof *st.p);
        for (size_t i = 0; i < n; i += ROWS_AT_ONCE) {
            const size_t m_rows = n - i < ROWS_AT_ONCE ? n - i : ROWS_AT_ONCE;
            cpu_attend_unpack(run, i_seq, &slots, s0 + i, s0 + i + m_rows, n_slots, m->tile + i * run->ld);
            run->blocks->logits(rows + i, m_rows, m->columns, heads, run->d, st.p + i, 1, CPU_ATTEND_TILE);
        }
        weigh_tile(run, &st, rows, n);
    }
    run->blocks->turn_row(st.o, heads * run->d);
    cpu_attend_finish(run, &st, t, pos, 0);
}

/* n neighbours from batch row t0 on, whose window rows from position `first` on lie in m->window. */
static void attend_neighbours(const cpu_attend_run *run, const cpu_attend_space *m, size_t i_seq, size_t t0, int64_t pos0,
                              size_t n, int64_t first)
{
    for (size_t i = 0; i < n; i += run->per_pass) {
        attend_pass p = {.i_seq = i_seq, .t0 = t0 + i, .pos0 = pos0 + (int64_t)i, .first = first};
        p.n = n - i < run->per_pass ? n - i : run->per_pass;
        p.columns = cpu_attend_round16(p.n * (size_t)run->a->n_heads);
        cpu_attend_turn(run, p.t0, p.n, 0, p.columns, m->columns);
        if (p.n > 1) {
            join_windows(run, m, &p);
        }
        if (p.n > 1 && run->cache != NULL) {
            join_entries(run, m, &p);
        }
        for (size_t q = 0; q < p.n; q++) {
            attend_query(run, m, &p, q);
        }
    }
}

/* Rows [begin, end) of the run's sequences, counted through. */
static void attend_queries(void *arg, size_t begin, size_t end, int thread)
{
    const cpu_attend_run *run = arg;
    const ops_attend_args *a = run->a;
    const cpu_attend_space m = cpu_attend_space_of(run, thread);
    size_t before = 0; /* rows of the sequences before */
    for (size_t i_seq = run->first_seq; i_seq < run->first_seq + run->n_seqs && before < end; i_seq++) {
        const ops_seq *seq = &a->seqs[i_seq];
        const size_t n = (size_t)seq->n_rows;
        for (size_t i = begin > before ? begin - before : 0; i < n && before + i < end;) {
            const size_t left = (end - before < n ? end - before : n) - i;
            const size_t group = left < CPU_ATTEND_NEIGHBOURS ? left : CPU_ATTEND_NEIGHBOURS;
            const int64_t pos0 = seq->pos0 + (int64_t)i;
            if (group == 1 && run->blocks != NULL && run->cache == NULL) {
                attend_alone(run, &m, i_seq, (size_t)seq->row0 + i, pos0);
                i++;
                continue;
            }
            const int64_t first = ref_oldest(a, seq, pos0);
            for (int64_t pos = first; pos < pos0 + (int64_t)group; pos++) {
                cpu_attend_window(run, i_seq, pos, m.window + (size_t)(pos - first) * run->ld);
            }
            attend_neighbours(run, &m, i_seq, (size_t)seq->row0 + i, pos0, group, first);
            i += group;
        }
        before += n;
    }
}

static void unpack_cache(void *arg, size_t begin, size_t end, int thread)
{
    const cpu_attend_run *run = arg;
    (void)thread;
    for (size_t e = begin; e < end; e++) {
        cpu_attend_entry(run, &run->a->seqs[run->first_seq], (int64_t)e, run->cache + e * run->ld);
    }
}

/* --- The stage --------------------------------------------------------------------------------------------------- */

/* Entries that the last row can see, when the lists of the rows name them often enough to decode all; else 0. */
static size_t dense_entries(const ops_attend_args *a, const ops_seq *seq)
{
    if (a->topk == 0 || seq->n_rows < 4) {
        return 0;
    }
    const int64_t n = (seq->pos0 + seq->n_rows) / a->ratio;
    return n < (int64_t)a->topk * seq->n_rows / 2 && n <= MAX_DECODED ? (size_t)n : 0;
}

/* A stretch of sequences: one whose entries are decoded together, or several without. */
static void run_stretch(ref_device *dev, cpu_attend_run *run)
{
    size_t rows = 0;
    for (size_t i = run->first_seq; i < run->first_seq + run->n_seqs; i++) {
        rows += (size_t)run->a->seqs[i].n_rows;
    }
    run->memory = ref_scratch(dev, (size_t)dev->n_threads * run->memory_floats, sizeof(float));
    run->cache = run->n_cache > 0 ? ref_scratch(dev, run->n_cache * run->ld, sizeof(float)) : NULL;
    run->rows = ref_scratch(dev, (size_t)dev->n_threads * most_joined(run), sizeof *run->rows);
    run->place = ref_scratch(dev, (size_t)dev->n_threads * run->n_cache, sizeof *run->place);
    if (run->memory == NULL || (run->n_cache > 0 && run->cache == NULL) || run->rows == NULL || run->place == NULL) {
        return;
    }
    if (rows < (size_t)dev->n_threads) {
        cpu_attend_one(dev, run);
    } else {
        pool_run(dev->pool, run->n_cache, unpack_cache, run);
        pool_run(dev->pool, rows, attend_queries, run);
    }
}

void cpu_attend(ops_device *device, const ops_attend_args *a)
{
    ref_device *dev = ref_of(device);
    cpu_attend_run run = {.a = a, .kernels = ((const cpu_device *)(const void *)device)->kernels};
    plan_memory(&run);
    for (size_t i = 0; i < (size_t)a->n_seqs; i += run.n_seqs) {
        run.first_seq = i;
        run.n_seqs = 1;
        run.n_cache = dense_entries(a, &a->seqs[i]);
        while (run.n_cache == 0 && i + run.n_seqs < (size_t)a->n_seqs &&
               dense_entries(a, &a->seqs[i + run.n_seqs]) == 0) {
            run.n_seqs++;
        }
        if (!ref_stage_begin(dev)) {
            return;
        }
        run_stretch(dev, &run);
    }
}
