/* ref.h - inside the reference backend: its device, scratch memory, and the matrix product that all stages share.
 *
 * The reference is plain C: loops run over outputs in vectors and walk each reduction in ascending order, in short partial sums, so
 * that an output depends on its own row alone. Other CPU backends may start from a ref_device and replace `linear` (bit-identical
 * results expected) or whole stages. Everything here runs on the thread that owns the device, or inside its pool. */
#ifndef OPS_REF_H
#define OPS_REF_H

#include "core/pool.h"
#include "ops/formats.h"
#include "ops/ops.h"

/* Products are summed over blocks of so many inputs before they join the running sum. 32 is the block of GEMM_q (model.md 3.2);
 * fp32 weights, whose products are not exact, and attention logits use the finer block. */
#define REF_K_BLOCK 32
#define REF_K_BLOCK_FINE 16

/* Outputs a tile: decoded weights are laid out [n_in][REF_TILE]. */
#define REF_TILE 32

/* y = x W^T for n_rows rows. `x` holds values that are already rounded as the stage wants (Q8, bf16 or fp32). Exactly one of y16 (rounded
 * to bf16) and y32 is set. */
typedef struct ref_linear {
    const ops_matrix *w;
    int64_t out0;  /* first output row of w, a multiple of REF_TILE unless n_out covers all */
    int64_t n_out; /* outputs wanted */
    const float *x;
    size_t ldx;
    int32_t n_rows;
    bf16 *y16;
    float *y32;
    size_t ldy;
} ref_linear;

typedef struct ref_block ref_block;

/* The two kernels of index scoring. keys [n][REF_TILE] from Q4E rows, one column a row; NULL = zeros. */
typedef void (*ref_keys_fn)(const uint8_t *const rows[REF_TILE], size_t n, float *keys);
/* c [m][REF_TILE] = a [m][k] times keys [k][REF_TILE]: exact products in partial sums of 32. */
typedef void (*ref_score_fn)(const float *a, size_t m, const float *keys, size_t k, float *c);

typedef struct ref_device {
    pool *pool; /* NULL = one thread */
    int n_threads;
    ref_block *scratch; /* memory of the running stage */
    di_error error;     /* first failure since the last sync; code DI_OK = none */
    void (*linear)(struct ref_device *dev, const ref_linear *jobs, size_t n_jobs);
    ref_keys_fn unpack_keys;
    ref_score_fn products;
} ref_device;

static inline ref_device *ref_of(ops_device *dev) { return (ref_device *)dev; }

/* Scratch of a stage: n elements of `size` bytes, 64-byte aligned, not cleared, valid until the next stage begins. NULL after a failure,
 * which is recorded in the device; the stage then returns without writing outputs. */
void *ref_scratch(ref_device *dev, size_t n, size_t size);
/* Starts a stage: all scratch is free again. False after a failure that sync has not reported yet: the stage must not run then, since what
 * it would read (lists, ids) may not have been written. */
bool ref_stage_begin(ref_device *dev);
/* What is taken between the two is free again behind the second: a stage that works in parts whose number nobody knows. Not nested. */
void ref_scratch_keep(ref_device *dev);
void ref_scratch_drop(ref_device *dev);
void ref_scratch_free(ref_device *dev);

di_status ref_device_init(ref_device *dev, const ops_device_options *options, di_error *err);
void ref_device_fini(ref_device *dev);

/* c[r][0..32) = sum_k a[r][k] * b[k][0..32), r < m; partial sums of `block` inputs. b rows are ldb floats apart. */
void ref_mm32(float *c, size_t ldc, const float *a, size_t lda, size_t m, const float *b, size_t ldb, size_t k, size_t block);

/* Decodes rows [o0, o0 + n) of w, n <= REF_TILE, into tile[n_in][REF_TILE]; missing outputs are zero. */
void ref_decode_tile(const ops_matrix *w, int64_t o0, int64_t n, float *tile);

/* The reference's own `linear`: tiles of all jobs are spread over the pool; each is decoded once. */
void ref_linear_run(ref_device *dev, const ref_linear *jobs, size_t n_jobs);

/* One tile of one job; scratch holds the largest n_in * REF_TILE floats of the run. */
typedef void (*ref_tile_fn)(const ref_linear *job, size_t tile, float *scratch, void *user);
/* Spreads the tiles of all jobs over the pool. */
void ref_linear_tiles(ref_device *dev, const ref_linear *jobs, size_t n_jobs, ref_tile_fn fn, void *user);
void ref_linear_tile(const ref_linear *job, size_t tile, float *scratch, void *user);
/* Writes results c[m][REF_TILE] of rows r0.. into the job's output. */
void ref_linear_store(const ref_linear *job, size_t tile, int32_t r0, int32_t m, const float *c);

/* Whole matrix, all outputs: fills one job. */
ref_linear ref_linear_to_bf16(const ops_matrix *w, const float *x, int32_t n_rows, bf16 *y);
ref_linear ref_linear_to_f32(const ops_matrix *w, const float *x, int32_t n_rows, float *y);

/* bf16 rows [n_rows][n] widened to fp32 scratch, with Q8 rounding when `quantise`. NULL on failure. */
float *ref_widen(ref_device *dev, const bf16 *x, int32_t n_rows, size_t n, bool quantise);

/* Sum of x^2 in sixteen interleaved partial sums. */
float ref_sum_squares(const float *x, size_t n);
/* y = w * (x * rsqrt(mean(x^2) + eps)) in fp32 (model.md 3.3); y may be x. The caller rounds. */
void ref_rmsnorm(const float *x, const float *w, size_t n, float eps, float *y);

static inline float ref_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Hyper-connection coefficients from the raw mix row m[(2 + hc) * hc] (already times rsqrt) (model.md 3.4). */
void ref_mhc_coefficients(const float *m, const float *base, const float *scale, int32_t hc, int32_t iters, float eps, float *pre,
                          float *post, float *comb);

/* u = bf16(sum_k pre[k] X[k]) for one token: x [hc, n] in fp32 (model.md 3.4). */
void ref_collapse(const float *x, const float *pre, size_t hc, size_t n, float *u);

/* Online softmax attention of one query row over tiles of 64 slots (model.md 3.8). */
typedef struct ref_attention {
    int32_t n_heads;
    int32_t head_dim;
    float scale;
    float *max;    /* [n_heads] running maximum, -1e30 at the start */
    float *den;    /* [n_heads] */
    float *o;      /* [n_heads, head_dim] */
    float *p;      /* [n_heads, 64] scratch */
    float *product; /* [n_heads, 32] scratch */
} ref_attention;

size_t ref_attention_floats(int32_t n_heads, int32_t head_dim);
void ref_attention_begin(ref_attention *st, int32_t n_heads, int32_t head_dim, float scale, float *memory);
/* One tile: kt [head_dim][64] with row stride ldk, v [64][head_dim] with row stride ldv, bit i of valid = slot i counts. */
void ref_attention_tile(ref_attention *st, const float *q, const float *kt, size_t ldk, const float *v, size_t ldv, uint64_t valid);
void ref_attention_end(ref_attention *st, const float *sink, bf16 *o);
/* dst[c][i] = src[i][c] in blocks that stay in the first cache. */
void ref_transpose(const float *src, size_t lds, size_t rows, size_t columns, float *dst, size_t ldd);
/* Inverse rotation of the last rope_dim channels of n_heads rows o [n_heads, head_dim] at a position. */
void ref_unrotate(const float *rope, size_t rope_dim, int64_t pos, size_t n_heads, size_t head_dim, bf16 *o);
/* The middle of a tile: logits p[64] of head h become bf16 probabilities; returns the factor for what was summed before. */
float ref_attention_softmax(ref_attention *st, size_t h, uint64_t valid);

/* Slots of one query: its window rows from the oldest on, then its list. */
typedef struct ref_slots {
    int64_t oldest;   /* position of slot 0 */
    int32_t n_window; /* min(pos + 1 - window_from, window) */
    const int32_t *entries;
    int32_t n_entries; /* width of the list; -1 ends it early */
} ref_slots;

/* Slots of batch row t at position pos; the oldest window position of a query; packed window row of a position, from the batch or
 * the ring. */
ref_slots ref_slots_of(const ops_attend_args *a, const ops_seq *seq, size_t t, int64_t pos);
int64_t ref_oldest(const ops_attend_args *a, const ops_seq *seq, int64_t pos);
const uint8_t *ref_window_row(const ops_attend_args *a, size_t i_seq, int64_t pos);
/* Inverse rotation of heads [h0, h1) of batch row t. */
void ref_unrotate_heads(const ops_attend_args *a, size_t t, int64_t pos, size_t h0, size_t h1);

/* The k best of n scores, higher first, ties to the lower index, those not above -inf left out; ascending indices into out.
 * `keys` is scratch for n values. Returns how many. */
int32_t ref_top_k(const float *score, int32_t n, int32_t k, uint64_t *keys, int32_t *out);

void ref_unpack_keys(const uint8_t *const rows[REF_TILE], size_t n, float *keys);
void ref_products(const float *a, size_t m, const float *keys, size_t k, float *c);

/* Candidate blocks of one row (model.md 3.7.2): score [visible]; sets bits in `bits` (cleared first, `stride` bytes).
 * `scratch` holds n_blocks_total floats, keys and indices for as many blocks. */
void ref_candidates(const float *score, int32_t visible, int32_t block_size, int32_t keep, float *block_score, uint64_t *keys,
                    int32_t *picked, uint8_t *bits, size_t stride);

/* Row j of a paged cache. */
static inline uint8_t *ref_paged_row(const ops_seq *seq, const ops_paged *c, int64_t j)
{
    return seq->pages[j / c->per_page] + c->offset + (size_t)(j % c->per_page) * (size_t)c->row_bytes;
}

void ref_embed(ops_device *dev, const ops_embed_args *a);
void ref_seam_open(ops_device *dev, const ops_seam_open_args *a);
void ref_seam_close(ops_device *dev, const ops_seam_close_args *a);
void ref_engram(ops_device *dev, const ops_engram_args *a);
void ref_attn_in(ops_device *dev, const ops_attn_in_args *a);
void ref_compress(ops_device *dev, const ops_compress_args *a);
void ref_query(ops_device *dev, const ops_query_args *a);
void ref_index(ops_device *dev, const ops_index_args *a);
void ref_attend(ops_device *dev, const ops_attend_args *a);
void ref_window_store(ops_device *dev, const ops_window_store_args *a);
void ref_attn_out(ops_device *dev, const ops_attn_out_args *a);
void ref_router(ops_device *dev, const ops_router_args *a);
void ref_experts(ops_device *dev, const ops_experts_args *a);
void ref_head(ops_device *dev, const ops_head_args *a);
void ref_tap(ops_device *dev, const ops_tap_args *a);
void ref_draft_attend(ops_device *dev, const ops_draft_attend_args *a);
void ref_markov(ops_device *dev, const ops_markov_args *a);
void ref_keep_rows(ops_device *dev, const ops_keep_rows_args *a);

/* Memory functions of every CPU backend. */
void *ref_mem_alloc(ops_device *dev, size_t bytes);
void ref_mem_free(ops_device *dev, void *memory);
void ref_copy(ops_device *dev, void *dst, const void *src, size_t bytes);
di_status ref_sync(ops_device *dev, di_error *err);
int32_t ref_n_threads(const ops_device *dev);

extern const ops_backend ref_backend;

#endif
