/* tiny.h - a checkpoint small enough to be written anew for every test: the released layout, 3 layers of width 32, every kind of
 * layer and a draft stage in it. Bytes are a fixed pattern; only loading is tested with it. */
#ifndef MODEL_TINY_H
#define MODEL_TINY_H

#include "core/safetensors.h"
#include "model/mdl_config.h"

#define TINY_SHARD_1 "model-00001-of-00002.safetensors"
#define TINY_SHARD_2 "model-00002-of-00002.safetensors"
#define TINY_INDEX "model.safetensors.index.json"

const char *tiny_config_text(void);
void tiny_config(mdl_config *config);

/* How one tensor differs from what it should be. All fields may be NULL or 0. */
typedef struct tiny_edit {
    const char *tensor;
    const char *name; /* another name; "" = left out */
    st_dtype dtype;   /* where use_dtype is set; its size must not change */
    bool use_dtype;
    int n_dims; /* where not 0: another shape of as many elements */
    int64_t dims[3];
    const char *extra; /* one more tensor of this name */
} tiny_edit;

/* Writes config.json, two shards and their index; the index lists what the shards hold. */
void tiny_write(const char *dir, const tiny_edit *edit);

#endif
