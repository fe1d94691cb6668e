/* cpu_attend.h - what the two ways of attention share: cpu_attend.c, where a thread takes queries, and cpu_attend_one.c,
 * where all threads take one. Rows [n][ld] are decoded fp32 rows of head_dim values. */
#ifndef CPU_ATTEND_H
#define CPU_ATTEND_H

#include "cpu/cpu_int.h"

enum {
    CPU_ATTEND_TILE = 64,
    CPU_ATTEND_NEIGHBOURS = 16, /* queries whose windows are decoded together */
    CPU_ATTEND_UNION = 3 /* lists of a pass are worth joining when together they name at most so many times topk */
};

/* Memory of one thread. */
typedef struct cpu_attend_space {
    float *columns;       /* [head_dim][n_columns] the query, one column a head */
    float *window;        /* [window + CPU_ATTEND_NEIGHBOURS - 1][ld] */
    float *tile;          /* [CPU_ATTEND_TILE][ld] entries of one tile */
    float *logits;        /* [CPU_ATTEND_TILE][n_columns] */
    float *state;         /* of ref_attention */
    float *window_logits; /* [window + CPU_ATTEND_NEIGHBOURS - 1][n_columns] of a pass of several queries */
    float *entry_logits;  /* [CPU_ATTEND_UNION * topk][n_columns] the same, for entries that any of them names */
    const float **rows;   /* [CPU_ATTEND_UNION * topk] those entries */
    int32_t *place;       /* [n_cache] and their row in entry_logits, or -1 */
} cpu_attend_space;

typedef struct cpu_attend_run {
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
    const float **rows; /* per thread [CPU_ATTEND_UNION * topk] */
    int32_t *place;     /* per thread [n_cache] */
} cpu_attend_run;

static inline size_t cpu_attend_round16(size_t n) { return (n + 15) / 16 * 16; }

cpu_attend_space cpu_attend_space_of(const cpu_attend_run *run, int thread);

/* columns[i][h] = q[h][i] for heads [h0, h1) of n queries from row t on, counted through; columns without a head are
 * zero. h1 is at most n_columns. */
void cpu_attend_turn(const cpu_attend_run *run, size_t t, size_t n, size_t h0, size_t h1, float *columns);

/* q[h] in block order for the heads of row t, and zeros up to a multiple of four heads; fits where columns do. */
void cpu_attend_blocks(const cpu_attend_run *run, size_t t, float *q);

/* Logits [n_rows][n_columns] of `count` columns from c0 on, both multiples of 16. */
void cpu_attend_logits(const cpu_attend_run *run, const float *const *rows, size_t n_rows, const float *columns,
                       size_t c0, size_t count, float *logits);

size_t cpu_attend_n_slots(const ref_slots *slots);

/* Slots [s0, s1) of a query's n in block order, to rows from `values` on. */
void cpu_attend_unpack(const cpu_attend_run *run, size_t i_seq, const ref_slots *slots, size_t s0, size_t s1, size_t n,
                       float *values);

/* The row of a position in the window, and of an entry, in plain order. */
void cpu_attend_window(const cpu_attend_run *run, size_t i_seq, int64_t pos, float *row);
void cpu_attend_entry(const cpu_attend_run *run, const ops_seq *seq, int64_t entry, float *row);

/* Heads [h0, h1) of a tile, columns c0 + h of its logits, to sums. st has h1 - h0 heads. */
void cpu_attend_tile(const cpu_attend_run *run, ref_attention *st, const float *const *logits, size_t c0,
                     const float *const *rows, size_t n, size_t h0, size_t h1);

/* Sums to outputs of heads from h0 on. */
void cpu_attend_finish(const cpu_attend_run *run, ref_attention *st, size_t t, int64_t pos, size_t h0);

/* Every query of the run, one after the other, each by all threads. */
void cpu_attend_one(ref_device *dev, const cpu_attend_run *run);

#endif
