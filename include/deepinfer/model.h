/* deepinfer/model.h - a checkpoint in the released layout, opened and checked.
 *
 * A di_model is immutable after opening and may be shared by threads and engines; it must outlive them. Weights stay in the
 * mapped files. Unstable until 1.0. */
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
