/* mdl_checkpoint.h - the safetensors shards of one checkpoint, mapped read-only, seen as one set of tensors (model.md 2.1).
 *
 * DIR holds either model.safetensors.index.json and the shards it names, or a single model.safetensors. Index and shards must
 * agree: every tensor is listed once and lies in the shard that the index names. Nothing but the shards' headers is read.
 * Immutable after opening, any thread. */
#ifndef MODEL_MDL_CHECKPOINT_H
#define MODEL_MDL_CHECKPOINT_H

#include <deepinfer/base.h>

#include "core/safetensors.h"

typedef struct mdl_checkpoint mdl_checkpoint;

/* Errors: DI_E_IO, DI_E_FORMAT, DI_E_UNSUPPORTED, DI_E_MEMORY; messages name the file and the tensor. */
di_status mdl_checkpoint_open(const char *dir, mdl_checkpoint **out, di_error *err);
void mdl_checkpoint_close(mdl_checkpoint *checkpoint);

/* A checkpoint of one file that the caller has opened; takes it over on success. For lists of headers and for tests. */
di_status mdl_checkpoint_of_file(st_file *file, mdl_checkpoint **out, di_error *err);

/* Tensors over all shards, in the order of shards (by name) and of their headers. */
size_t mdl_checkpoint_count(const mdl_checkpoint *checkpoint);
const st_tensor *mdl_checkpoint_at(const mdl_checkpoint *checkpoint, size_t i);

/* Index of the tensor for mdl_checkpoint_at, or mdl_checkpoint_count when absent. O(log count). */
size_t mdl_checkpoint_index(const mdl_checkpoint *checkpoint, const char *name);

/* NULL when absent. */
const st_tensor *mdl_checkpoint_find(const mdl_checkpoint *checkpoint, const char *name);

/* File name of the shard that holds tensor i. */
const char *mdl_checkpoint_shard_of(const mdl_checkpoint *checkpoint, size_t i);

size_t mdl_checkpoint_n_shards(const mdl_checkpoint *checkpoint);
const st_file *mdl_checkpoint_shard(const mdl_checkpoint *checkpoint, size_t i);

/* The file that lists the tensors, for messages: the index, or the only shard. */
const char *mdl_checkpoint_list_name(const mdl_checkpoint *checkpoint);

/* Payload bytes of all tensors. */
uint64_t mdl_checkpoint_bytes(const mdl_checkpoint *checkpoint);

/* Checks the text of an index alone (for fuzzers): every shard name is a plain file name. Returns the number of tensors. */
di_status mdl_checkpoint_check_index(const char *text, size_t size, size_t *n_tensors, di_error *err);

#endif
