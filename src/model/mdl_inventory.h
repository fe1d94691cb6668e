/* mdl_inventory.h - which tensors a checkpoint of a given configuration holds: name, dtype and shape of each (model.md 2.2,
 * dspark.md 1.2, vision.md 2). One table; binding the weights, counting them and listing them all walk it. */
#ifndef MODEL_MDL_INVENTORY_H
#define MODEL_MDL_INVENTORY_H

#include "core/safetensors.h"
#include "model/mdl_config.h"
#include "ops/ops_types.h"

#define MDL_MAX_NAME 96

/* The struct of mdl_weights.h that a tensor is bound in. */
typedef enum mdl_scope {
    MDL_IN_MODEL,        /* mdl_weights */
    MDL_IN_LAYER,        /* mdl_weights.layers[layer] */
    MDL_IN_LAYER_EXPERT, /* mdl_weights.layers[layer].experts[expert] */
    MDL_IN_DRAFT,        /* mdl_weights.draft */
    MDL_IN_STAGE,        /* mdl_weights.draft.stages[layer] */
    MDL_IN_STAGE_EXPERT, /* mdl_weights.draft.stages[layer].experts[expert] */
    MDL_IN_VISION,       /* mdl_weights.vision */
    MDL_IN_VISION_BLOCK  /* mdl_weights.vision.blocks[layer] */
} mdl_scope;

typedef enum mdl_role {
    MDL_VECTOR, /* widened to fp32 and copied */
    MDL_MATRIX, /* data of an ops_matrix */
    MDL_SCALE   /* scale of an ops_matrix; comes right after its data */
} mdl_role;

typedef struct mdl_tensor {
    char name[MDL_MAX_NAME];
    st_dtype dtype;
    int n_dims;
    int64_t dims[2];
    mdl_role role;
    ops_format format;   /* of the matrix */
    int64_t n_out;       /* of the matrix: elements, not bytes */
    int64_t n_in;
    mdl_scope scope;
    int32_t layer;
    int32_t expert;
    size_t offset;       /* of the pointer or ops_matrix inside the scope's struct */
} mdl_tensor;

/* Stops at the first status that is not DI_OK and returns it. */
typedef di_status (*mdl_tensor_fn)(void *arg, const mdl_tensor *tensor, di_error *err);

di_status mdl_inventory_walk(const mdl_config *config, mdl_tensor_fn fn, void *arg, di_error *err);

/* Number of tensors and of payload bytes. */
void mdl_inventory_totals(const mdl_config *config, uint64_t *n_tensors, uint64_t *n_bytes);

/* "F8_E4M3 [2048, 128]". */
void mdl_shape_text(st_dtype dtype, int n_dims, const int64_t *dims, char *out, size_t size);

#endif
