/* deepinfer/model.h - a checkpoint in the released layout, opened and checked.
 *
 * A di_model is immutable after opening and may be shared by threads and engines; it must outlive them. Weights stay in the
 * mapped files, which must not change while it is open. */
#ifndef DEEPINFER_MODEL_H
#define DEEPINFER_MODEL_H

#include <deepinfer/base.h>
#include <deepinfer/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct di_model di_model;

typedef struct di_model_options {
    float swiglu_limit; /* replaces the configured limit when > 0; for verification only */
} di_model_options;

DI_API void di_model_options_default(di_model_options *out); /* the same as all zero */

/* Opens DIR: config.json, the safetensors shards through their index, tokenizer.json when there is one, and the Engram map (from
 * engram_compressed_map.i32 when present, else from the tokenizer). Every tensor is checked by name, type, shape and extent.
 * `options` may be NULL. Errors: DI_E_IO, DI_E_FORMAT, DI_E_UNSUPPORTED, DI_E_MEMORY; messages name file and field or tensor. */
DI_API di_status di_model_open(const char *dir, const di_model_options *options, di_model **out, di_error *err);
DI_API void di_model_close(di_model *model);

/* Where `--model` would look (architecture.md 5): DI_MODEL, else models/demo beside the program or its source tree, else
 * /usr/share/deepinfer/demo. Writes a NUL-terminated path. Errors: DI_E_IO when there is none, DI_E_LIMIT when `capacity` is short. */
DI_API di_status di_model_default_path(char *path, size_t capacity, di_error *err);

typedef struct di_model_info {
    int32_t vocab_size;
    int32_t hidden_size;
    int32_t n_layers;       /* backbone */
    int32_t n_draft_layers; /* DSpark stages; 0 = none */
    int32_t n_vision_layers;
    int32_t n_experts;
    int32_t n_active_experts;
    int32_t bos_token_id;
    int32_t eos_token_id;
    int64_t max_tokens;     /* longest context */
    int64_t n_tensors;
    int64_t weight_bytes;   /* all tensors of the checkpoint */
    int64_t kv_bytes_per_token; /* growing part of a sequence's state */
    int64_t state_bytes;    /* fixed part */
} di_model_info;

DI_API void di_model_get_info(const di_model *model, di_model_info *out);

/* NULL when the checkpoint has no tokenizer.json. Borrowed. */
DI_API const di_tokenizer *di_model_tokenizer(const di_model *model);

/* --- Inspection --------------------------------------------------------------------------------------------------------- */

/* What a checkpoint consists of: config.json and the shards' headers are read and checked as di_model_open does, weights are not. */
typedef struct di_inspection di_inspection;

typedef struct di_part {
    const char *name; /* static string: "routed experts", or a number format */
    int64_t n_tensors;
    int64_t n_parameters; /* scales are none */
    int64_t n_bytes;
} di_part;

typedef struct di_layer {
    int32_t ratio;        /* tokens behind one compressed entry; 0 = sliding window only */
    int32_t kv_source;    /* layer whose compressed cache it reads; -1 = none */
    int32_t index_source; /* layer whose index list it uses; -1 = none */
    bool has_engram;
    int64_t n_parameters;
    int64_t n_bytes;
} di_layer;

/* Errors: as di_model_open. */
DI_API di_status di_inspection_new(const char *dir, di_inspection **out, di_error *err);
DI_API void di_inspection_free(di_inspection *inspection);

/* All borrowed; the functions with a list return its length. Parts and formats each add up to the whole checkpoint. */
DI_API const di_model_info *di_inspection_info(const di_inspection *inspection);
DI_API size_t di_inspection_parts(const di_inspection *inspection, const di_part **parts);
DI_API size_t di_inspection_formats(const di_inspection *inspection, const di_part **formats);
DI_API size_t di_inspection_layers(const di_inspection *inspection, const di_layer **layers); /* of the backbone */

/* --- Synthetic checkpoints ---------------------------------------------------------------------------------------------- */

/* A slice of the released model: its shapes and number formats, random weights spread as trained ones are, evenly chosen experts. For
 * measuring; the texts are noise. */
typedef struct di_synthetic {
    int32_t n_layers;  /* 1..40; 0 = 2. The first has one entry for two tokens, the others one a token; no Engram */
    int32_t n_experts; /* routed, a layer, 6..384; 0 = 48 */
    int32_t vocab;     /* 4096..129280; 0 = 4096 */
    int32_t n_drafts;  /* layers of a draft model, 0..3, with 128 experts a layer, or n_experts where that is less; it proposes 5 tokens */
} di_synthetic;

/* Writes DIR (created when its parent is there) as di_model_open reads it; config.json comes last. Errors: DI_E_ARGUMENT, DI_E_IO,
 * DI_E_MEMORY. */
DI_API di_status di_synthetic_write(const di_synthetic *options, const char *dir, di_error *err);

/* The same in memory. Tensors of a kind share their values, so before a backend packs them it takes little more than the largest. Errors:
 * DI_E_ARGUMENT, DI_E_MEMORY. */
DI_API di_status di_synthetic_open(const di_synthetic *options, di_model **out, di_error *err);

/* Bytes of an opened checkpoint that a step reads. */
typedef struct di_step_bytes {
    int64_t dense;         /* of all layers, shared experts included */
    int64_t head;
    int64_t expert;        /* of one routed expert */
    int64_t dense_values;  /* multiply-adds of a token in the dense matrices */
    int64_t head_values;
    int64_t expert_values;
} di_step_bytes;

DI_API void di_model_get_step_bytes(const di_model *model, di_step_bytes *out);

/* --- Tracing ---------------------------------------------------------------------------------------------------------- */

typedef enum di_dtype { DI_F32 = 0, DI_BF16 = 1, DI_I32 = 2 } di_dtype;

/* One named intermediate value of a forward pass; names are those of the golden files ("L3.attn_in", "cache.L0.window", "logits"). Row t of
 * a per-token tensor belongs to the t-th token of the pass. Valid during the callback. */
typedef struct di_trace {
    const char *name;
    di_dtype dtype;
    int32_t n_dims;
    int64_t dims[4];
    const void *data;
} di_trace;

typedef void (*di_trace_fn)(void *user, const di_trace *tensor);

#ifdef __cplusplus
}
#endif
#endif
