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
} cu_linear;

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
} cu_linear_set;

int cu_launch_linear(const cu_linear_set *set, int n_sms, cu_stream stream);

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

/* Work memory of the experts stage, all on the device; sizes for n_rows tokens and n_active experts a token. */
typedef struct cu_experts_work {
    uint16_t *x;              /* [n_rows, hidden] Q8 values */
    uint16_t *h;              /* [n_rows * (n_active + 1), inter] Q8 values; the shared expert's rows last */
    uint16_t *out;            /* [n_rows, n_active + 1, hidden] */
    cu_token_block *blocks;   /* [n_rows * n_active] */
    uint32_t *done;           /* [n_rows * (n_active + 1)] finished items of phase 1 a block, shared blocks first */
    uint32_t *counters;       /* [2]: next item, number of routed blocks */
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
    const uint16_t *q;  /* [n_rows, q_lora] products */
    const uint16_t *kv; /* [n_rows, head_dim] */
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

/* --- Residual streams ------------------------------------------------------------------------------------------------------------- */

#define CU_SEAM_STREAMS 4
#define CU_SEAM_MIXES ((2 + CU_SEAM_STREAMS) * CU_SEAM_STREAMS)

/* ops_seam_open with four streams. hidden is a multiple of 512 and at most 8192. */
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
    const float *norm;   /* [hidden] */
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
