/* cpu_attend.c - sparse attention (model.md 3.8) without transposing keys: a tile's logits are rows of the cache times
 * the query turned on its side, with heads in the lanes of a vector; its sums over values have channels in the lanes.
 * Keys and values are the same fp32 rows, decoded from their codes and used where they lie, through pointers.
 *
 * With at least as many queries as threads, each thread takes queries: it decodes the window of a few neighbours once,
 * and what their lists name either once for all (when they name it often enough) or tile by tile. A model with few
 * heads would leave lanes empty: there neighbours share a vector, and their logits for all rows that any of them sees
 * are made together. With fewer queries than threads, the threads share one: its heads in sixteens where there are enough,
 * else first its slots and then its heads. A query with few heads and no neighbour has blocks of a row in the lanes
 * (cpu_blocks_avx512.c). Slot order, tiles and sums are
 * the reference's, so results have its bits. */
#include "cpu/cpu_int.h"

#define TILE 64
#define NEIGHBOURS 16     /* queries whose windows are decoded together */
#define MAX_DECODED 16384 /* entries decoded for all queries: 32 MiB at head_dim 512 */
#define SLOTS_A_SHARE 8
#define SLOTS_AHEAD 4
#define FEW_HEADS 12    /* at most so many: neighbours share columns */
#define MOST_COLUMNS 64 /* of a pass of several queries */
#define UNION 3         /* lists of a pass are worth joining when together they name at most so many times topk */

/* Memory of one thread. */
typedef struct attend_memory {
    float *columns;       /* [head_dim][n_columns] the query, one column a head */
    float *window;        /* [window + NEIGHBOURS - 1][ld] */
    float *tile;          /* [TILE][ld] entries of one tile */
    float *logits;        /* [TILE][n_columns] */
    float *state;         /* of ref_attention */
    float *window_logits; /* [window + NEIGHBOURS - 1][n_columns] of a pass of several queries */
    float *entry_logits;  /* [UNION * topk][n_columns] the same, for entries that any of them names */
    const float **rows;   /* [UNION * topk] those entries */
    int32_t *place;       /* [n_cache] and their row in entry_logits, or -1 */
} attend_memory;

typedef struct attend_run {
    const ops_attend_args *a;
    const cpu_kernels *kernels;
    const cpu_blocks *blocks; /* for queries without neighbours; NULL = as all others */
    size_t d;
    size_t ld; /* floats from row to row: a little more than d, else all rows would fall into the same cache sets */
    size_t per_pass;  /* queries side by side in the columns */
    size_t n_columns; /* their heads, rounded up to 16 */
    size_t first_seq; /* sequences of this run */
    size_t n_seqs;
    float *cache; /* [n_cache][ld] all entries of the run's only sequence; NULL = decoded as they come */
    size_t n_cache;
    float *memory; /* per thread */
    size_t memory_floats;
    const float **rows; /* per thread [UNION * topk] */
    int32_t *place;     /* per thread [n_cache] */
} attend_run;

static size_t round16(size_t n) { return (n + 15) / 16 * 16; }

static size_t most_window_rows(const attend_run *run) { return (size_t)run->a->window + NEIGHBOURS - 1; }

static size_t most_joined(const attend_run *run)
{
    return run->per_pass > 1 ? (size_t)UNION * (size_t)run->a->topk : 0;
}

static void plan_memory(attend_run *run)
{
    const ops_attend_args *a = run->a;
    const size_t heads = (size_t)a->n_heads;
    run->d = (size_t)a->head_dim;
    run->ld = run->d + 16;
    run->per_pass = heads > FEW_HEADS ? 1 : MOST_COLUMNS / heads < NEIGHBOURS ? MOST_COLUMNS / heads : NEIGHBOURS;
    run->n_columns = round16(run->per_pass * heads);
    const cpu_blocks *const blocks = run->kernels->blocks;
    run->blocks = heads <= FEW_HEADS && blocks != NULL && run->d % blocks->chunk == 0 ? blocks : NULL;
    const size_t shared_logits = run->per_pass > 1 ? most_window_rows(run) + most_joined(run) : 0;
    run->memory_floats = (run->d + TILE + shared_logits) * run->n_columns + (most_window_rows(run) + TILE) * run->ld +
                         round16(ref_attention_floats(a->n_heads, a->head_dim));
}

static attend_memory memory_of(const attend_run *run, int thread)
{
    attend_memory m;
    m.columns = run->memory + (size_t)thread * run->memory_floats;
    m.window = m.columns + run->d * run->n_columns;
    m.tile = m.window + most_window_rows(run) * run->ld;
    m.logits = m.tile + TILE * run->ld;
    m.state = m.logits + TILE * run->n_columns;
    m.window_logits = m.state + round16(ref_attention_floats(run->a->n_heads, run->a->head_dim));
    m.entry_logits = m.window_logits + most_window_rows(run) * run->n_columns;
    m.rows = run->rows + (size_t)thread * most_joined(run);
    m.place = run->place + (size_t)thread * run->n_cache;
    return m;
}

/* columns[i][h] = q[h][i] for heads [h0, h1) of n queries from row t on, counted through; columns without a head are zero. */
static void turn_heads(const attend_run *run, size_t t, size_t n, size_t h0, size_t h1, float *columns)
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

static void turn_queries(const attend_run *run, size_t t, size_t n, float *columns)
{
    turn_heads(run, t, n, 0, run->n_columns, columns);
}

/* q[h] in block order for the heads of row t, and zeros up to a multiple of four heads; fits where columns do. */
static void query_in_blocks(const attend_run *run, size_t t, float *q)
{
    const size_t heads = (size_t)run->a->n_heads;
    fmt_bf16_to_f32(run->a->q + t * heads * run->d, heads * run->d, q);
    run->blocks->turn_row(q, heads * run->d);
    memset(q + heads * run->d, 0, (run->n_columns - heads) * run->d * sizeof *q);
}

/* Logits [n_rows][n_columns] of `count` columns from c0 on, both multiples of 16. */
static void make_logits(const attend_run *run, const float *const *rows, size_t n_rows, const float *columns, size_t c0,
                        size_t count, float *logits)
{
    run->kernels->rows_times(rows, n_rows, columns + c0, run->n_columns, count, run->d, REF_K_BLOCK_FINE, logits + c0,
                             run->n_columns);
}

static size_t n_slots_of(const ref_slots *slots)
{
    size_t n = (size_t)slots->n_window;
    for (int32_t j = 0; j < slots->n_entries && slots->entries[j] >= 0; j++) {
        n++;
    }
    return n;
}

/* Packed row of slot s: of the window, or of an entry. */
static const uint8_t *packed_slot(const attend_run *run, size_t i_seq, const ref_slots *slots, size_t s)
{
    const int64_t j = (int64_t)s - slots->n_window;
    return j < 0 ? ref_window_row(run->a, i_seq, slots->oldest + (int64_t)s)
                 : ref_paged_row(&run->a->seqs[i_seq], &run->a->compressed, slots->entries[j]);
}

/* Slots [s0, s1) of a query's n in block order, from `values` on. No prefetcher follows rows of a few lines that lie
 * about, so each is asked for while those before it are decoded. */
static void unpack_slots(const attend_run *run, size_t i_seq, const ref_slots *slots, size_t s0, size_t s1, size_t n,
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

static void unpack_window(const attend_run *run, size_t i_seq, int64_t pos, float *row)
{
    run->kernels->unpack_q8(ref_window_row(run->a, i_seq, pos), run->d, row);
}

static void unpack_entry(const attend_run *run, const ops_seq *seq, int64_t entry, float *row)
{
    run->kernels->unpack_q4n(ref_paged_row(seq, &run->a->compressed, entry), run->d, row);
}

/* Logits st->p of n slots to sums. */
static void weigh_tile(const attend_run *run, ref_attention *st, const float *const *rows, size_t n)
{
    const uint64_t valid = n == TILE ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1;
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

/* Heads [h0, h1) of a tile, columns c0 + h of its logits, to sums. st has h1 - h0 heads. */
static void finish_tile(const attend_run *run, ref_attention *st, const float *const *logits, size_t c0,
                        const float *const *rows, size_t n, size_t h0, size_t h1)
{
    for (size_t h = h0; h < h1; h++) {
        float *p = st->p + (h - h0) * TILE;
        for (size_t i = 0; i < n; i++) {
            p[i] = logits[i][c0 + h];
        }
        for (size_t i = n; i < TILE; i++) {
            p[i] = 0.0f;
        }
    }
    weigh_tile(run, st, rows, n);
}

/* Sums to outputs of heads from h0 on. */
static void finish_heads(const attend_run *run, ref_attention *st, size_t t, int64_t pos, size_t h0)
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
    int64_t first;    /* position of the row at m->window */
    bool has_window;  /* logits of all window rows are there, */
    bool has_entries; /* and of all entries that the lists name */
} attend_pass;

/* Logits of every window row that a query of the pass sees. */
static void join_windows(const attend_run *run, const attend_memory *m, attend_pass *p)
{
    const int64_t oldest = ref_oldest(run->a, &run->a->seqs[p->i_seq], p->pos0);
    const int64_t end = p->pos0 + (int64_t)p->n;
    for (int64_t pos = oldest; pos < end; pos += TILE) {
        const float *rows[TILE];
        const size_t n = end - pos < TILE ? (size_t)(end - pos) : TILE;
        const size_t at = (size_t)(pos - p->first);
        for (size_t i = 0; i < n; i++) {
            rows[i] = m->window + (at + i) * run->ld;
        }
        make_logits(run, rows, n, m->columns, 0, run->n_columns, m->window_logits + at * run->n_columns);
    }
    p->has_window = true;
}

/* The same for entries, when the lists have enough in common. */
static void join_entries(const attend_run *run, const attend_memory *m, attend_pass *p)
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
    make_logits(run, m->rows, n, m->columns, 0, run->n_columns, m->entry_logits);
    p->has_entries = true;
}

/* Query i of a pass. */
static void attend_query(const attend_run *run, const attend_memory *m, const attend_pass *p, size_t i_query)
{
    const ops_attend_args *a = run->a;
    const ops_seq *seq = &a->seqs[p->i_seq];
    const size_t t = p->t0 + i_query;
    const int64_t pos = p->pos0 + (int64_t)i_query;
    const size_t c0 = i_query * (size_t)a->n_heads;
    const size_t from = c0 / 16 * 16;
    const ref_slots slots = ref_slots_of(a, seq, t, pos);
    const size_t n_slots = n_slots_of(&slots);
    ref_attention st;
    ref_attention_begin(&st, a->n_heads, a->head_dim, a->scale, m->state);
    for (size_t s0 = 0; s0 < n_slots; s0 += TILE) {
        const float *rows[TILE];
        const float *logits[TILE];
        const size_t n = n_slots - s0 < TILE ? n_slots - s0 : TILE;
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
                unpack_entry(run, seq, (int64_t)at, m->tile + i * run->ld);
                rows[i] = m->tile + i * run->ld;
            }
            n_ready += j < 0 ? p->has_window : p->has_entries;
        }
        make_logits(run, rows + n_ready, n - n_ready, m->columns, from, round16(c0 + (size_t)a->n_heads - from),
                    m->logits + n_ready * run->n_columns);
        finish_tile(run, &st, logits, c0, rows, n, 0, (size_t)a->n_heads);
    }
    finish_heads(run, &st, t, pos, 0);
}

/* A query that shares nothing with others: a tile is decoded, multiplied and added while it is in the second cache. */
static void attend_alone(const attend_run *run, const attend_memory *m, size_t i_seq, size_t t, int64_t pos)
{
    const ops_attend_args *a = run->a;
    const size_t heads = (size_t)a->n_heads;
    const ref_slots slots = ref_slots_of(a, &a->seqs[i_seq], t, pos);
    const size_t n_slots = n_slots_of(&slots);
    ref_attention st;
    query_in_blocks(run, t, m->columns);
    ref_attention_begin(&st, a->n_heads, a->head_dim, a->scale, m->state);
    for (size_t s0 = 0; s0 < n_slots; s0 += TILE) {
        const float *rows[TILE];
        const size_t n = n_slots - s0 < TILE ? n_slots - s0 : TILE;
        for (size_t i = 0; i < n; i++) {
            rows[i] = m->tile + i * run->ld;
        }
        unpack_slots(run, i_seq, &slots, s0, s0 + n, n_slots, m->tile);
        memset(st.p, 0, heads * TILE * sizeof *st.p);
        run->blocks->logits(rows, n, m->columns, heads, run->d, st.p, 1, TILE);
        weigh_tile(run, &st, rows, n);
    }
    run->blocks->turn_row(st.o, heads * run->d);
    finish_heads(run, &st, t, pos, 0);
}

/* n neighbours from batch row t0 on, whose window rows from position `first` on lie in m->window. */
static void attend_neighbours(const attend_run *run, const attend_memory *m, size_t i_seq, size_t t0, int64_t pos0,
                              size_t n, int64_t first)
{
    for (size_t i = 0; i < n; i += run->per_pass) {
        attend_pass p = {.i_seq = i_seq, .t0 = t0 + i, .pos0 = pos0 + (int64_t)i, .first = first};
        p.n = n - i < run->per_pass ? n - i : run->per_pass;
        turn_queries(run, p.t0, p.n, m->columns);
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
    const attend_run *run = arg;
    const ops_attend_args *a = run->a;
    const attend_memory m = memory_of(run, thread);
    size_t before = 0; /* rows of the sequences before */
    for (size_t i_seq = run->first_seq; i_seq < run->first_seq + run->n_seqs && before < end; i_seq++) {
        const ops_seq *seq = &a->seqs[i_seq];
        const size_t n = (size_t)seq->n_rows;
        for (size_t i = begin > before ? begin - before : 0; i < n && before + i < end;) {
            const size_t left = (end - before < n ? end - before : n) - i;
            const size_t group = left < NEIGHBOURS ? left : NEIGHBOURS;
            const int64_t pos0 = seq->pos0 + (int64_t)i;
            if (group == 1 && run->blocks != NULL && run->cache == NULL) {
                attend_alone(run, &m, i_seq, (size_t)seq->row0 + i, pos0);
                i++;
                continue;
            }
            const int64_t first = ref_oldest(a, seq, pos0);
            for (int64_t pos = first; pos < pos0 + (int64_t)group; pos++) {
                unpack_window(run, i_seq, pos, m.window + (size_t)(pos - first) * run->ld);
            }
            attend_neighbours(run, &m, i_seq, (size_t)seq->row0 + i, pos0, group, first);
            i += group;
        }
        before += n;
    }
}

static void unpack_cache(void *arg, size_t begin, size_t end, int thread)
{
    const attend_run *run = arg;
    (void)thread;
    for (size_t e = begin; e < end; e++) {
        unpack_entry(run, &run->a->seqs[run->first_seq], (int64_t)e, run->cache + e * run->ld);
    }
}

/* --- All threads one query --------------------------------------------------------------------------------------- */

typedef struct query_run {
    const attend_run *run;
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
    const attend_run *run = q->run;
    for (size_t s = s0; s < s1; s++) {
        const int64_t j = (int64_t)s - q->slots.n_window;
        float *row = values + (s - s0) * run->ld;
        if (j < 0) {
            unpack_window(run, q->i_seq, q->slots.oldest + (int64_t)s, row);
        } else {
            unpack_entry(run, &run->a->seqs[q->i_seq], q->slots.entries[j], row);
        }
    }
}

/* Shares of a few slots: decoded, and their logits. */
static void query_slots(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const attend_run *run = q->run;
    const size_t s0 = begin * SLOTS_A_SHARE;
    const size_t s1 = end * SLOTS_A_SHARE < q->n_slots ? end * SLOTS_A_SHARE : q->n_slots;
    (void)thread;
    unpack_rows(q, s0, s1, q->values + s0 * run->ld);
    make_logits(run, q->rows + s0, s1 - s0, q->columns, 0, round16((size_t)run->a->n_heads),
                q->logits + s0 * run->n_columns);
}

/* With few heads: all slots decoded for each part, and its share of the logits. Rows that another core has just written
 * cost more to fetch than to decode. */
static void query_parts(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const attend_run *run = q->run;
    (void)thread;
    for (size_t part = begin; part < end; part++) {
        const float **const rows = q->rows + part * q->most;
        const size_t s0 = q->n_slots * part / q->n_parts;
        const size_t s1 = q->n_slots * (part + 1) / q->n_parts;
        unpack_slots(run, q->i_seq, &q->slots, 0, q->n_slots, q->n_slots, q->values + part * q->most * run->ld);
        run->blocks->logits(rows + s0, s1 - s0, q->columns, (size_t)run->a->n_heads, run->d,
                            q->logits + s0 * run->n_columns, run->n_columns, 1);
    }
}

/* With many heads: a part takes heads in sixteens through all slots, a tile at a time. */
static void query_sixteens(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const attend_run *run = q->run;
    const ops_attend_args *a = run->a;
    const attend_memory m = memory_of(run, thread);
    const size_t h0 = begin * 16;
    const size_t h1 = end * 16 < (size_t)a->n_heads ? end * 16 : (size_t)a->n_heads;
    const float *rows[TILE];
    const float *logits[TILE];
    ref_attention st;
    for (size_t i = 0; i < TILE; i++) {
        rows[i] = m.tile + i * run->ld;
        logits[i] = m.logits + i * run->n_columns;
    }
    turn_heads(run, q->t, 1, h0, round16(h1), m.columns);
    ref_attention_begin(&st, (int32_t)(h1 - h0), a->head_dim, a->scale, m.state);
    for (size_t s0 = 0; s0 < q->n_slots; s0 += TILE) {
        const size_t n = q->n_slots - s0 < TILE ? q->n_slots - s0 : TILE;
        unpack_rows(q, s0, s0 + n, m.tile);
        make_logits(run, rows, n, m.columns, h0, round16(h1) - h0, m.logits + h0);
        finish_tile(run, &st, logits, 0, rows, n, h0, h1);
    }
    finish_heads(run, &st, q->t, q->pos, h0);
}

static void query_heads(void *arg, size_t begin, size_t end, int thread)
{
    const query_run *q = arg;
    const attend_run *run = q->run;
    const size_t heads = (size_t)run->a->n_heads;
    for (size_t part = begin; part < end; part++) {
        const size_t h0 = heads * part / q->n_parts;
        const size_t h1 = heads * (part + 1) / q->n_parts;
        const float *const *rows = q->rows + (run->blocks != NULL ? part * q->most : 0);
        ref_attention st;
        ref_attention_begin(&st, (int32_t)(h1 - h0), run->a->head_dim, run->a->scale, memory_of(run, thread).state);
        for (size_t s0 = 0; s0 < q->n_slots; s0 += TILE) {
            const size_t n = q->n_slots - s0 < TILE ? q->n_slots - s0 : TILE;
            finish_tile(run, &st, q->places + s0, 0, rows + s0, n, h0, h1);
        }
        if (run->blocks != NULL) {
            run->blocks->turn_row(st.o, (h1 - h0) * run->d);
        }
        finish_heads(run, &st, q->t, q->pos, h0);
    }
}

static void share_query(ref_device *dev, const attend_run *run, size_t i_seq, int32_t i, query_run *memory)
{
    const ops_attend_args *a = run->a;
    const ops_seq *seq = &a->seqs[i_seq];
    query_run q = *memory;
    q.run = run;
    q.i_seq = i_seq;
    q.t = (size_t)(seq->row0 + i);
    q.pos = seq->pos0 + i;
    q.slots = ref_slots_of(a, seq, q.t, q.pos);
    q.n_slots = n_slots_of(&q.slots);
    const size_t sixteens = ((size_t)a->n_heads + 15) / 16;
    if (sixteens >= (size_t)dev->n_threads) {
        pool_run(dev->pool, sixteens, query_sixteens, &q);
        return;
    }
    if (run->blocks != NULL) {
        query_in_blocks(run, q.t, q.columns);
        pool_run(dev->pool, q.n_parts, query_parts, &q);
    } else {
        turn_queries(run, q.t, 1, q.columns);
        pool_run(dev->pool, (q.n_slots + SLOTS_A_SHARE - 1) / SLOTS_A_SHARE, query_slots, &q);
    }
    pool_run(dev->pool, q.n_parts, query_heads, &q);
}

/* --- The stage --------------------------------------------------------------------------------------------------- */

static void run_shared(ref_device *dev, const attend_run *run)
{
    const size_t heads = (size_t)run->a->n_heads;
    const size_t threads = (size_t)dev->n_threads;
    query_run q = {.columns = memory_of(run, 0).columns, .most = (size_t)run->a->window + (size_t)run->a->topk};
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
static void run_stretch(ref_device *dev, attend_run *run)
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
        run_shared(dev, run);
    } else {
        pool_run(dev->pool, run->n_cache, unpack_cache, run);
        pool_run(dev->pool, rows, attend_queries, run);
    }
}

void cpu_attend(ops_device *device, const ops_attend_args *a)
{
    ref_device *dev = ref_of(device);
    attend_run run = {.a = a, .kernels = ((const cpu_device *)(const void *)device)->kernels};
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
