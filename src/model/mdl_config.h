/* mdl_config.h - the shape of a DeepSeek-V4.1-Flash checkpoint, read from config.json (model.md 1).
 *
 * Field names follow model.md; counts start with n_. Every value has been checked when mdl_config_read returns: later code
 * multiplies and indexes with them without further checks. Plain data, immutable after reading. */
#ifndef MODEL_MDL_CONFIG_H
#define MODEL_MDL_CONFIG_H

#include "ops/ops_types.h"

enum {
    MDL_MAX_BLOCK = 64,          /* drafts of a proposal */
    MDL_MAX_LAYERS = 128,        /* backbone and draft layers together */
    MDL_MAX_HC = OPS_MAX_HC,     /* residual streams */
    MDL_MAX_ENGRAM_LAYERS = 8,
    MDL_MAX_NGRAM = 8,
    MDL_MAX_ENGRAM_COLUMNS = 64, /* (max_ngram - 1) * heads */
    MDL_MAX_TAPS = 8
};

typedef struct mdl_rope_config {
    double theta;          /* rope_theta: layers of ratio 0 */
    double compress_theta; /* compress_rope_theta: layers of ratio > 0, with YaRN */
    double factor;
    double beta_fast;
    double beta_slow;
    int32_t original_positions; /* original_max_position_embeddings */
} mdl_rope_config;

typedef struct mdl_draft_config {
    int32_t n_stages; /* num_nextn_predict_layers; 0 = the checkpoint has no draft */
    int32_t block_size;
    int32_t noise_token_id;
    int32_t n_taps;
    int32_t taps[MDL_MAX_TAPS]; /* dspark_target_layer_ids */
    int32_t markov_rank;
    int32_t n_experts;
    int32_t n_active_experts;
    float temperature[MDL_MAX_BLOCK]; /* dspark_confidence_temperature: [block_size] of the confidences (dspark.md 1.8); 1 without it */
} mdl_draft_config;

typedef struct mdl_vision_config {
    bool present;
    int32_t n_layers;
    int32_t hidden;
    int32_t n_heads;
    int32_t intermediate;
    int32_t patch_size;
    double rope_theta;
    int32_t downsample_ratio;
    int32_t max_image_tokens;
    int32_t min_pixels;
    double max_wh_ratio; /* 0 = null */
} mdl_vision_config;

typedef struct mdl_engram_config {
    int32_t n_layers;
    int32_t layers[MDL_MAX_ENGRAM_LAYERS];      /* engram_layer_ids, ascending */
    int64_t n_rows[MDL_MAX_ENGRAM_LAYERS];      /* engram_num_embeddings */
    int32_t max_ngram;
    int32_t n_heads;
    int32_t head_dim;
    int32_t vocab_start;      /* engram_vocab_size: where the prime search starts */
    int32_t pad_token_id;     /* raw id */
    int32_t compressed_vocab; /* engram_compressed_vocab_size */
} mdl_engram_config;

typedef struct mdl_config {
    int32_t bos_token_id;
    int32_t eos_token_id;
    int32_t pad_token_id;
    int32_t image_token_id; /* -1 = none */

    int32_t vocab;
    int32_t hidden;
    int32_t n_layers;
    int32_t n_heads;
    int32_t head_dim;
    int32_t rope_dim; /* qk_rope_head_dim: the last rope_dim channels of a head rotate */
    int32_t q_lora;
    int32_t o_lora; /* per group */
    int32_t o_groups;
    int32_t moe_inter;
    int32_t n_experts; /* routed */
    int32_t n_active_experts;
    float routed_scale;
    float swiglu_limit;
    float norm_eps;
    int32_t max_positions;
    int32_t window; /* sliding_window */

    int32_t hc; /* hc_mult */
    int32_t hc_iters;
    float hc_eps;

    int32_t ratio[MDL_MAX_LAYERS]; /* compress_ratios: n_layers + draft.n_stages entries of 0, 1 or 2 */
    /* Derived: the layer whose compressed cache / index list layer L reads; -1 for ratio 0. */
    int32_t kv_source[MDL_MAX_LAYERS];
    int32_t index_source[MDL_MAX_LAYERS];
    int32_t n_kv_sources;
    int32_t kv_sources[MDL_MAX_LAYERS]; /* ascending */
    int32_t n_index_sources;
    int32_t index_sources[MDL_MAX_LAYERS]; /* ascending */
    int32_t index_heads;
    int32_t index_dim;
    int32_t index_topk;
    int32_t candidate_layer; /* candidate_source_layer_id; -1 = none */
    int32_t candidate_blocks;
    int32_t candidate_block_size;

    mdl_rope_config rope;
    mdl_engram_config engram;
    mdl_draft_config draft;
    mdl_vision_config vision;
} mdl_config;

/* Reads and checks DIR/config.json. Errors: DI_E_IO, DI_E_FORMAT (names the JSON path and what it must be), DI_E_UNSUPPORTED (a
 * well-formed value that this code does not implement). */
di_status mdl_config_read(const char *dir, mdl_config *out, di_error *err);

/* The same from text, for fuzzers and tests. */
di_status mdl_config_parse(const char *text, size_t size, mdl_config *out, di_error *err);

static inline bool mdl_is_kv_source(const mdl_config *c, int32_t layer) { return c->kv_source[layer] == layer; }
static inline bool mdl_is_index_source(const mdl_config *c, int32_t layer) { return c->index_source[layer] == layer; }

#endif
