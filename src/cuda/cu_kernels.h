/* cu_kernels.h - what the CUDA files offer to the C files of the room: one launcher a kernel. Each returns a cudaError_t as int and
 * only asks for work; faults of the work itself come out of the device's sync. Thread: the one that owns the device. */
#ifndef CUDA_CU_KERNELS_H
#define CUDA_CU_KERNELS_H

#include "cuda/cu_layout.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Shared memory of a multiprocessor that blocks may use together. */
#define CU_SHARED_BYTES (227 * 1024)

typedef struct CUstream_st *cu_stream; /* cudaStream_t, without its header */

/* Packs a matrix [n_out, n_in] whose checkpoint bytes lie on the device; n_out is a multiple of 64, n_in of 256. *bad counts what
 * can't be packed. */
int cu_launch_pack(cu_format format, const uint8_t *data, const uint8_t *scale, int64_t n_out, int64_t n_in, uint8_t *out,
                   uint32_t *bad, cu_stream stream);

/* --- Products ----------------------------------------------------------------------------------------------------------------- */

/* y = x W^T. Rows of x hold BF16 values, already on the grid the stage wants. Exactly one of y16 and y32 is set. */
typedef struct cu_linear {
    const uint8_t *packed; /* [n_out, n_in] */
    int32_t n_out;         /* multiple of 64 */
    int32_t n_in;          /* of a row of W; multiple of 256 * split */
    int32_t split;         /* canonical chunks of inputs, 1 or 4: a property of the matrix, the same in all jobs of a set */
    int32_t group_rows;    /* block-diagonal: so many outputs share n_in inputs, the next group the next n_in; 0 = all share */
    const uint16_t *x;     /* [n_rows, ldx] */
    int64_t ldx;
    uint16_t *y16; /* [n_rows, ldy] */
    float *y32;
    int64_t ldy;
    const uint8_t *arranged; /* x of cu_launch_arrange, which is read in place of x; NULL = rows are read. Of sets with n_rows > 16 */
} cu_linear;

/* Rows of x for blocks of CU_ARRANGED_ROWS tokens: the inputs of a tile, token after token as they lie in a stage of the ring, so a block
 * fetches them in one copy. Small copies are what many tokens would wait for. */
#define CU_ARRANGED_ROWS 32
#define CU_TOKEN_PITCH (CU_TILE_INPUTS * 2 + 16) /* bytes of a token's tile in shared memory: no two of eight in the same banks */
static inline size_t cu_arranged_bytes(int32_t n_rows, int64_t ldx)
{
    const size_t rows = (size_t)(n_rows + CU_ARRANGED_ROWS - 1) / CU_ARRANGED_ROWS * CU_ARRANGED_ROWS;
    return rows * (size_t)(ldx / CU_TILE_INPUTS) * CU_TOKEN_PITCH;
}
/* ldx is a multiple of 256. */
int cu_launch_arrange(const uint16_t *x, int32_t n_rows, int64_t ldx, uint8_t *out, cu_stream stream);

#define CU_MAX_JOBS 3

/* How the canonical chunks of a matrix are shared out (kernels/linear.cu). */
typedef enum cu_linear_way {
    CU_IN_TURN,
    CU_WARPS,
    CU_CLUSTERS
} cu_linear_way;

/* Products of the same rows and format, in one launch. */
typedef struct cu_linear_set {
    cu_linear jobs[CU_MAX_JOBS];
    int32_t n_jobs;
    int32_t n_rows;
    cu_format format; /* CU_FP8 or CU_BF16 */
    /* The launcher's. */
    cu_linear_way way;
    int32_t block_rows;   /* tokens of an item */
    int32_t n_items;
    int32_t n_stages;
    uint32_t stage_bytes;
    /* Of products with many tokens: the rows, packed; jobs[].x and ldx are not looked at. */
    const uint8_t *packed_rows; /* [inputs / 64, padded_rows / 8] atoms of 1 KB (kernels/gemm.cuh) */
    int32_t padded_rows;
} cu_linear_set;

int cu_launch_linear(const cu_linear_set *set, int n_sms, cu_stream stream);

/* The same products with many tokens, and the same bits. Hopper only; y16 aligned to 16 bytes; group_rows a multiple of 128. */
int cu_launch_gemm(const cu_linear_set *set, int n_sms, cu_stream stream);

/* Packed rows that n_rows need: the last block of tokens is read whole. */
static inline int32_t cu_padded_rows(int32_t n_rows) { return (n_rows + 255 + 31) / 32 * 32; }

/* Packs rows for cu_launch_gemm. Bytes of out: padded_rows * n * 2. */
typedef struct cu_pack_rows {
    const uint16_t *x; /* [n_rows, ldx], 4-byte aligned, ldx even */
    int64_t ldx;
    int32_t n_rows;
    int32_t padded_rows;
    int32_t n; /* inputs of a row, multiple of 64 */
    bool q8;   /* put on the Q8 grid first, as cu_launch_quantise does */
    uint8_t *out;
    const int32_t *slots; /* device [padded_rows]: packed row i is row slots[i] / per_row of x, clear where negative; NULL = row i */
    int32_t per_row;
    const uint32_t *n_used; /* device: packed rows that are wanted at all; NULL = all */
} cu_pack_rows;

int cu_launch_pack_rows(const cu_pack_rows *args, cu_stream stream);

/* --- Experts ------------------------------------------------------------------------------------------------------------------ */

/* Packed matrices of one expert. */
typedef struct cu_expert {
    const uint8_t *w1;
    const uint8_t *w2;
    const uint8_t *w3;
} cu_expert;

#define CU_BLOCK_TOKENS 12

/* Tokens of one expert that are multiplied together, with all that fetching them needs: written once a step, read by every block. */
typedef struct cu_token_block {
    cu_expert weights;
    int32_t first; /* of the sorted assignments: rows first .. first + n - 1 of work.h */
    int32_t n;
    int32_t token[CU_BLOCK_TOKENS];
    int32_t slot[CU_BLOCK_TOKENS]; /* row of work.out: token * (n_active + 1) + place in the token's list */
    float weight[CU_BLOCK_TOKENS];
} cu_token_block;

/* At most CU_MANY_TOKENS assignments of one expert: packed rows row0 .. row0 + n - 1. */
typedef struct cu_many_block {
    int32_t expert; /* n_experts = the shared one */
    int32_t row0;   /* multiple of 8 */
    int32_t n;
    int32_t unused;
} cu_many_block;

/* Packed rows of n_rows tokens, all assignments and the shared expert's, each expert's from a multiple of eight on; and blocks. */
static inline int64_t cu_many_rows(int64_t n_rows, int64_t n_active, int64_t n_experts)
{
    return (n_rows * (n_active + 1) + 8 * (n_experts + 1) + 31) / 32 * 32;
}
/* Most blocks of a class: routed blocks of at most 64, 128, 160, 192 assignments, and the shared expert's. */
#define CU_MANY_TOKENS 192
#define CU_MANY_CLASSES 5
#define CU_MANY_SHARED 4
static inline int32_t cu_many_blocks(int32_t n_rows, int32_t n_active, int32_t n_experts)
{
    return (int32_t)((int64_t)n_rows * (n_active + 1) / CU_MANY_TOKENS) + n_experts + 1;
}

/* Work memory of the experts stage, all on the device; sizes for n_rows tokens and n_active experts a token. */
typedef struct cu_experts_work {
    uint16_t *x;              /* [n_rows, hidden] Q8 values */
    uint16_t *h;              /* [n_rows * (n_active + 1), inter] Q8 values; the shared expert's rows last */
    uint16_t *out;            /* [n_rows, n_active + 1, hidden] */
    cu_token_block *blocks;   /* [n_rows * n_active] */
    uint32_t *done;           /* [n_rows * (n_active + 1)] finished items of phase 1 a block, shared blocks first */
    uint32_t *counters;       /* [2]: next item, number of routed blocks */
    /* With many tokens, instead of x, h, blocks and done; counters [CU_MANY_CLASSES + 1] are the numbers of each class's
     * blocks and of packed rows. */
    uint8_t *packed_x;    /* [hidden / 64, most_rows / 8] atoms (kernels/gemm.cuh) */
    uint8_t *packed_h;    /* [inter / 64, most_rows / 8] */
    int32_t *slots;       /* [most_rows] row of out of each packed row, -1 = none */
    float *slot_weight;   /* [most_rows] */
    cu_many_block *many;  /* [CU_MANY_CLASSES, most_blocks] */
    int32_t most_rows;    /* cu_many_rows */
    int32_t most_blocks;  /* cu_many_blocks */
} cu_experts_work;

typedef struct cu_experts_args {
    int32_t n_rows;
    int32_t hidden; /* multiple of 256 */
    int32_t inter;  /* multiple of 256 */
    int32_t n_experts;
    int32_t n_active;
    float limit;
    const uint16_t *u;        /* [n_rows, hidden] */
    const int32_t *ids;       /* [n_rows, n_active] ascending */
    const float *weights;     /* [n_rows, n_active] */
    const cu_expert *experts; /* device [n_experts] FP4 */
    cu_expert shared;         /* FP8 */
    uint16_t *y;              /* [n_rows, hidden] */
    cu_experts_work work;
    /* The launcher's. */
    int32_t block_rows; /* most tokens of a block */
    int32_t n_stages;
    uint32_t stage_bytes;
} cu_experts_args;

int cu_launch_experts(const cu_experts_args *args, int n_sms, cu_stream stream);
/* The same with many tokens, and the same bits. Hopper only. */
int cu_launch_experts_many(const cu_experts_args *args, int n_sms, cu_stream stream);
/* Its first and last step. n_items_first: items that blocks take without asking. */
int cu_launch_experts_prepare(const cu_experts_args *args, int n_items_first, cu_stream stream);
int cu_launch_experts_combine(const cu_experts_args *args, cu_stream stream);

#define CU_MAX_EXPERTS 512

/* --- Rows ------------------------------------------------------------------------------------------------------------------------ */

/* out = x on the Q8 grid, group by group of 32. n is a multiple of 32. */
int cu_launch_quantise(const uint16_t *x, uint16_t *out, int32_t n_rows, int32_t n, cu_stream stream);

/* Rotates the last rope_dim of each head's head_dim values at the row's position, in place. */
typedef struct cu_rotate {
    int32_t n_rows;
    int32_t n_heads;
    int32_t head_dim;
    int32_t rope_dim;
    const int64_t *pos; /* [n_rows] */
    const float *rope;  /* [rope_dim / 2] */
    uint16_t *q;        /* [n_rows, n_heads, head_dim] */
} cu_rotate;

int cu_launch_rotate(const cu_rotate *args, cu_stream stream);

/* What is left of ops_attn_in behind the products: norms, rotation, packing. */
typedef struct cu_attn_rows {
    int32_t n_rows;
    int32_t q_lora;
    int32_t head_dim;
    int32_t rope_dim;
    float eps;
    const uint16_t *q;  /* [n_rows, q_lora] products; NULL = none */
    const uint16_t *kv; /* [n_rows, head_dim]; NULL = none */
    const int64_t *pos;
    const float *rope;
    const float *q_norm;
    const float *kv_norm;
    uint16_t *qr;    /* out [n_rows, q_lora] */
    uint8_t *packed; /* out [n_rows, head_dim + head_dim / 32] */
} cu_attn_rows;

int cu_launch_attn_rows(const cu_attn_rows *args, cu_stream stream);

/* Scores to the best experts and their weights (model.md 3.9). */
typedef struct cu_route {
    int32_t n_rows;
    int32_t n_experts;
    int32_t n_active;
    float scale;
    const float *logits;    /* [n_rows, n_experts] */
    const uint8_t *is_text; /* [n_rows] */
    const float *bias;
    const float *bias_vl;
    int32_t *ids;   /* out [n_rows, n_active] */
    float *weights; /* out */
} cu_route;

int cu_launch_route(const cu_route *args, cu_stream stream);

/* --- Products with matrices as the checkpoint holds them --------------------------------------------------------------------------- */

typedef enum cu_plain_format {
    CU_PLAIN_F32,
    CU_PLAIN_BF16,
    CU_PLAIN_FP8,
    CU_PLAIN_FP4
} cu_plain_format;

/* y = x W^T in the reference's order of sums. Exactly one of y16 and y32 is set. */
typedef struct cu_plain {
    cu_plain_format format;
    const uint8_t *data;
    const uint8_t *scale;
    int32_t n_out;
    int32_t n_in; /* multiple of 32 */
    int32_t n_rows;
    const uint16_t *x; /* [n_rows, ldx] */
    int64_t ldx;
    uint16_t *y16; /* [n_rows, ldy] */
    float *y32;
    int64_t ldy;
} cu_plain;

int cu_launch_plain(const cu_plain *args, cu_stream stream);

typedef struct cu_plain_weight {
    const uint8_t *data;
    const uint8_t *scale;
} cu_plain_weight;

/* w1, w2, w3 of one expert. */
typedef struct cu_plain_expert {
    cu_plain_weight w[3];
} cu_plain_expert;

/* Assignments of rows to experts in the order of experts. */
typedef struct cu_plain_sort {
    int32_t n_rows;
    int32_t n_active;
    int32_t n_experts;
    const int32_t *ids;   /* [n_rows, n_active] */
    const float *weights; /* [n_rows, n_active] */
    int32_t *start;       /* out [n_experts + 1] first assignment of each expert */
    int32_t *row;         /* out [n_rows * n_active] of each assignment */
    float *weight;        /* out [n_rows * n_active] of each assignment */
    int32_t *place;       /* out [n_rows, n_active] assignment of each place in a row's list */
} cu_plain_sort;

int cu_launch_plain_sort(const cu_plain_sort *args, cu_stream stream);

/* y [assignments, n_out] = the rows of each expert times its matrix number `which`. */
typedef struct cu_plain_experts {
    int32_t n_experts;
    int32_t n_out;
    int32_t n_in;
    int32_t which;
    bool gather; /* x has batch rows, not assignments */
    const uint16_t *x;
    const int32_t *start;
    const int32_t *row;
    const cu_plain_expert *experts; /* device [n_experts] FP4 */
    uint16_t *y16;
    float *y32;
} cu_plain_experts;

int cu_launch_plain_experts(const cu_plain_experts *args, cu_stream stream);
/* h [n_rows, n] from gate and up [n_rows, n]; weight [n_rows], NULL = 1. */
int cu_launch_plain_activate(const float *gate, const float *up, const float *weight, float limit, int32_t n_rows, int32_t n, uint16_t *h,
                             cu_stream stream);
/* routed [assignments, hidden], shared [n_rows, hidden]. */
int cu_launch_plain_combine(const uint16_t *routed, const uint16_t *shared, const int32_t *place, int32_t n_rows, int32_t n_active,
                            int32_t hidden, uint16_t *y, cu_stream stream);

/* --- Sequences --------------------------------------------------------------------------------------------------------------------- */

/* ops_seq on the device. */
typedef struct cu_seq {
    int32_t row0;
    int32_t n_rows;
    int64_t pos0;
    int64_t window_from;
    uint8_t *state;
    int64_t pages_at; /* offset of this sequence's pages, in bytes from the start of the table */
} cu_seq;

/* What the kernels of a stage know of its sequences, one block of device memory: cu_seq [n_seqs], int32 [n_rows] sequence of each row,
 * page pointers. */
typedef struct cu_seqs {
    const uint8_t *table;
    int32_t n_seqs;
    int64_t row_seq_at;
} cu_seqs;

typedef struct cu_paged {
    int64_t offset;
    int32_t per_page;
    int32_t row_bytes;
} cu_paged;

/* --- Attention --------------------------------------------------------------------------------------------------------------------- */

typedef struct cu_attend_job {
    int32_t n_rows;
    int32_t n_heads;
    int32_t head_dim; /* at most 512, a multiple of 32 */
    int32_t rope_dim;
    int32_t window;
    int32_t topk;
    int32_t ring_slots;
    float scale;
    int64_t ring_offset;
    cu_paged compressed;
    cu_seqs seqs;    /* with pages where topk > 0 */
    cu_seqs kv_seqs; /* without pages */
    const uint16_t *q;
    const uint8_t *kv;
    const int32_t *list;
    const float *sink;
    const float *rope;
    uint16_t *o;
} cu_attend_job;

int cu_launch_attend(const cu_attend_job *args, int n_sms, cu_stream stream);
/* ops_draft_attend: blocks of drafts; topk, compressed, list and kv_seqs are not used. */
int cu_launch_draft_attend(const cu_attend_job *args, cu_stream stream);

/* rows = rows of kv, all sequences. */
int cu_launch_window_store(const cu_seqs *seqs, int32_t rows, int32_t ring_slots, int32_t row_bytes, int64_t ring_offset, const uint8_t *kv,
                           cu_stream stream);

/* What is left of ops_compress between and behind the products. */
typedef struct cu_compress_job {
    int32_t n_rows;
    int32_t ratio;
    int32_t head_dim;
    int32_t rope_dim;
    int32_t index_dim;
    int32_t open_groups; /* OPS_OPEN_GROUPS */
    float norm_eps;
    int64_t open_offset;
    cu_paged compressed;
    cu_paged index_keys;
    cu_seqs seqs; /* with pages */
    const float *kv;   /* [n_rows, head_dim] */
    const float *gate; /* [n_rows, head_dim] ratio 2 */
    const float *rope;
    const float *norm;
    const float *index_k_norm;
    uint16_t *lat;       /* [n_rows, head_dim] normalised latents, in the row that completes a group; zeros in others */
    const uint16_t *key; /* [n_rows, index_dim] their products */
} cu_compress_job;

/* kv and gate to latents. */
int cu_launch_compress_latents(const cu_compress_job *args, cu_stream stream);
/* Latents and keys into the pages, first tokens of groups into the states. */
int cu_launch_compress_store(const cu_compress_job *args, cu_stream stream);

/* --- Selection --------------------------------------------------------------------------------------------------------------------- */

#define CU_MAX_INDEX_DIM 128

typedef struct cu_index_job {
    int32_t n_rows;
    int32_t row0; /* first batch row of this group of rows */
    int32_t n_group;
    int32_t ratio;
    int32_t rope_dim;
    int32_t n_heads;
    int32_t index_dim; /* multiple of 32, at most CU_MAX_INDEX_DIM */
    int32_t topk;
    int32_t n_blocks;
    int32_t block_size;
    int32_t cand_stride;
    bool make_candidates;
    bool use_candidates;
    float scale; /* of the head weights */
    cu_seqs seqs; /* with pages */
    cu_paged index_keys;
    const int64_t *pos;
    const float *rope;
    const uint16_t *iq; /* [n_rows, n_heads, index_dim] products */
    const uint16_t *iw; /* [n_rows, n_heads] products */
    int8_t *codes;      /* [n_rows, n_heads, index_dim] twice the E2M1 values */
    float *scales;      /* [n_rows, n_heads, index_dim / 32], a quarter of the scale: codes of queries and keys are doubled */
    float *weights;     /* [n_rows, n_heads] */
    uint16_t *order;    /* [n_group, stride] order of each score; 0 = does not count */
    uint16_t *block_order; /* [n_group, block_stride] */
    int32_t stride;        /* multiple of 8 */
    int32_t block_stride;
    uint8_t *candidates;
    int32_t *list;
    float *score;
    int32_t score_stride;
} cu_index_job;

/* Queries and head weights of all rows. */
int cu_launch_index_queries(const cu_index_job *args, cu_stream stream);
/* Scores and selection of a group of rows. */
int cu_launch_index_scores(const cu_index_job *args, cu_stream stream);
int cu_launch_index_select(const cu_index_job *args, cu_stream stream);

/* --- Look-ups, moves, taps ------------------------------------------------------------------------------------------------------------ */

int cu_launch_embed(const uint16_t *table, const int32_t *ids, const uint16_t *rows, const uint8_t *row_given, int32_t n_rows, int32_t hc,
                    int32_t hidden, uint16_t *x, float *pre, cu_stream stream);
int cu_launch_tap(const uint16_t *x, int32_t n_rows, int32_t hc, int32_t hidden, int64_t ld, uint16_t *out, cu_stream stream);

/* Rows move down inside a buffer, by way of scratch memory: target row i is number from[i] now. */
int cu_launch_gather_rows(const uint8_t *buffer, int64_t row_bytes, const int32_t *from, int32_t n, uint8_t *out, cu_stream stream);

typedef struct cu_engram_job {
    int32_t n_rows;
    int32_t hc;
    int32_t hidden;
    int32_t n_columns;
    int32_t head_dim;
    float norm_eps;
    const int64_t *rows;
    const uint8_t *is_text;
    const uint8_t *table;
    const uint8_t *table_scale;
    const float *q_weight;
    const float *k_weight;
    uint16_t *z;        /* [n_rows, n_columns * head_dim] Q8 values */
    const uint16_t *kv; /* [n_rows, (hc + 1) * hidden] products */
    uint16_t *x;
} cu_engram_job;

int cu_launch_engram_lookup(const cu_engram_job *args, cu_stream stream);
int cu_launch_engram_write(const cu_engram_job *args, cu_stream stream);

/* joined [n_rows, hidden + rank] = (row of h, embedding of previous); e [n_rows, rank] the latter. */
int cu_launch_markov_rows(const uint16_t *embed, const int32_t *previous, const uint16_t *h, int64_t ld_h, int32_t n_rows, int32_t hidden,
                          int32_t rank, uint16_t *e, uint16_t *joined, cu_stream stream);
/* logits [n_rows, vocab] += rows of base, ld_base rows apart. */
int cu_launch_add_base(float *logits, const float *base, int64_t ld_base, int32_t n_rows, int64_t vocab, cu_stream stream);

/* --- Residual streams ------------------------------------------------------------------------------------------------------------- */

#define CU_SEAM_STREAMS 4
#define CU_SEAM_MIXES ((2 + CU_SEAM_STREAMS) * CU_SEAM_STREAMS)

/* ops_seam_open with four streams. hidden is a multiple of 32 and at most 8192. */
typedef struct cu_seam_open_job {
    int32_t n_rows;
    int32_t hidden;
    int32_t iters;
    float hc_eps;
    float norm_eps;
    const uint16_t *x;   /* [n_rows, 4, hidden] */
    const float *pre_in; /* [n_rows, 4] */
    const float *fn;     /* [24, 4 * hidden]; NULL = no coefficients */
    const float *base;   /* [24] */
    const float *scale;  /* [3] */
    const float *norm;   /* [hidden]; NULL = u is the collapse itself */
    float *pre;          /* out [n_rows, 4] */
    float *post;         /* out [n_rows, 4] */
    float *comb;         /* out [n_rows, 4, 4] */
    uint16_t *u;         /* out [n_rows, hidden] */
} cu_seam_open_job;

int cu_launch_seam_open(const cu_seam_open_job *args, cu_stream stream);

/* ops_seam_close with four streams; hidden is even. */
typedef struct cu_seam_close_job {
    int32_t n_rows;
    int32_t hidden;
    const uint16_t *y; /* [n_rows, hidden] */
    const float *post; /* [n_rows, 4] */
    const float *comb; /* [n_rows, 4, 4] */
    uint16_t *x;       /* in/out [n_rows, 4, hidden] */
} cu_seam_close_job;

int cu_launch_seam_close(const cu_seam_close_job *args, cu_stream stream);

#ifdef __cplusplus
}
#endif

#endif
