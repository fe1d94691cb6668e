/* mdl_weights.h - every tensor of a checkpoint, bound to the place where the forward pass uses it (model.md 2.2).
 *
 * Vectors are copied (bf16 widened to fp32: exact); matrices borrow the mapped shards. Immutable after mdl_weights_bind, but for
 * mdl_weights_place. */
#ifndef MODEL_MDL_WEIGHTS_H
#define MODEL_MDL_WEIGHTS_H

#include "model/mdl_checkpoint.h"
#include "model/mdl_config.h"
#include "ops/ops_types.h"

typedef struct mdl_mhc_weights {
    ops_matrix fn;      /* [(2 + hc) * hc, hc * hidden] F32 */
    const float *base;  /* [(2 + hc) * hc] */
    const float *scale; /* [3] */
} mdl_mhc_weights;

typedef struct mdl_expert_weights {
    ops_matrix w1; /* gate branch [moe_inter, hidden] */
    ops_matrix w2; /* down [hidden, moe_inter] */
    ops_matrix w3; /* up [moe_inter, hidden] */
} mdl_expert_weights;

typedef struct mdl_compressor_weights {
    ops_matrix wkv;         /* [head_dim, hidden] BF16 */
    ops_matrix wgate;       /* same; only ratio 2, else data == NULL */
    const float *norm;      /* [head_dim] */
    ops_matrix index_wk;    /* indexer.wk [index_dim, head_dim] BF16 */
    const float *index_k_norm; /* [index_dim] */
} mdl_compressor_weights;

typedef struct mdl_indexer_weights {
    ops_matrix wq_b;         /* [index_heads * index_dim, q_lora] FP8 */
    ops_matrix weights_proj; /* [index_heads, hidden] BF16 */
} mdl_indexer_weights;

typedef struct mdl_engram_weights {
    ops_matrix table;      /* embed: [rows, head_dim] OPS_FP8R */
    ops_matrix wkv;        /* [hidden * (hc + 1), columns * head_dim] FP8 */
    const float *q_weight; /* [hc, hidden] */
    const float *k_weight; /* [hc, hidden] */
} mdl_engram_weights;

/* One block of the backbone or of the draft. */
typedef struct mdl_layer_weights {
    const float *attn_norm; /* [hidden] */
    const float *ffn_norm;  /* [hidden] */
    mdl_mhc_weights hc_attn;
    mdl_mhc_weights hc_ffn;

    const float *attn_sink; /* [n_heads] */
    ops_matrix wq_a;        /* [q_lora, hidden] FP8 */
    const float *q_norm;    /* [q_lora] */
    ops_matrix wq_b;        /* [n_heads * head_dim, q_lora] FP8 */
    ops_matrix wkv;         /* [head_dim, hidden] FP8 */
    const float *kv_norm;   /* [head_dim] */
    ops_matrix wo_a;        /* [o_groups * o_lora, n_heads * head_dim / o_groups] FP8, consumed as BF16 (model.md 3.8) */
    ops_matrix wo_b;        /* [hidden, o_groups * o_lora] FP8 */

    mdl_compressor_weights compressor; /* KV sources only, else wkv.data == NULL */
    mdl_indexer_weights indexer;       /* index sources only, else wq_b.data == NULL */
    mdl_engram_weights engram;         /* Engram layers only, else table.data == NULL */

    ops_matrix gate;             /* router [n_experts, hidden] BF16 */
    const float *gate_bias;      /* [n_experts] */
    const float *gate_bias_vl;   /* [n_experts] */
    int32_t n_experts;
    mdl_expert_weights *experts; /* [n_experts] FP4 */
    mdl_expert_weights shared;   /* FP8 */
} mdl_layer_weights;

typedef struct mdl_draft_weights {
    ops_matrix main_proj;       /* mtp.0: [hidden, n_taps * hidden] FP8 */
    const float *main_norm;     /* mtp.0: [hidden] */
    mdl_layer_weights *stages;  /* [n_stages]; NULL when the checkpoint has no draft */
    const float *norm;          /* last stage: [hidden] */
    ops_matrix markov_embed;    /* last stage: [vocab, markov_rank] BF16 */
    ops_matrix markov_head;     /* last stage: [vocab, markov_rank] BF16 */
    ops_matrix confidence_proj; /* last stage: [1, hidden + markov_rank] BF16 */
} mdl_draft_weights;

typedef struct mdl_vision_block_weights {
    const float *norm1; /* [vision.hidden] */
    ops_matrix wqkv;
    const float *wqkv_bias;
    ops_matrix wo;
    const float *wo_bias;
    const float *norm2;
    ops_matrix w1; /* mlp.w1 */
    ops_matrix w2; /* mlp.w2 */
} mdl_vision_block_weights;

typedef struct mdl_vision_weights {
    ops_matrix patch_proj;
    const float *patch_bias;
    mdl_vision_block_weights *blocks; /* [vision.n_layers]; NULL when there is no vision tower */
    const float *norm;
    ops_matrix aligner_w1;
    const float *aligner_w1_bias;
    ops_matrix aligner_w2;
    const float *aligner_w2_bias;
    const float *image_start; /* [hidden] */
    const float *image_end;
    const float *image_newline;
} mdl_vision_weights;

typedef struct mdl_weights {
    ops_matrix embed;           /* [vocab, hidden] BF16 */
    ops_matrix head;            /* [vocab, hidden] BF16, used as fp32 */
    const float *norm;          /* [hidden] */
    mdl_layer_weights *layers;  /* [n_layers] */
    mdl_draft_weights draft;
    mdl_vision_weights vision;
    void *owned;                /* private: all copied vectors and arrays */
    const float *values;        /* the copied vectors, one after the other; on the host */
    size_t n_values;
} mdl_weights;

/* The checks of mdl_weights_bind alone: names, types and shapes, from headers. *n_floats = values it would copy. */
di_status mdl_weights_check(const mdl_config *config, const mdl_checkpoint *checkpoint, size_t *n_floats, di_error *err);

/* Binds all tensors, checking name, dtype and shape of each; missing and extra tensors are errors that name them
 * (image_pad is tolerated). Errors: DI_E_FORMAT, DI_E_MEMORY. */
di_status mdl_weights_bind(const mdl_config *config, const mdl_checkpoint *checkpoint, mdl_weights *out, di_error *err);
/* Lets the vectors point into `values`, a copy of weights->values in the memory of a device. */
void mdl_weights_place(const mdl_config *config, mdl_weights *weights, const float *values);
void mdl_weights_free(mdl_weights *weights);

#endif
