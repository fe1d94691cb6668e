/* mdl_kept.h - weights that one start has prepared, for the next ones: DIR/<checkpoint>-<form>.weights (mdl_kept_file.h).
 *
 * The file is mapped, and is the only copy: nothing of it is read before it is used. When there is none, or it is of another checkpoint or
 * form, damaged or too small, weights are prepared from the checkpoint as ever and a new file is written on the way; when that
 * cannot be (disk full, no permission, another process at it) they are prepared all the same. None of this fails a start: what happened
 * stands in the note of mdl_weight_stats.
 *
 * What is looked at: head, table and every size always; the bytes of all forms when a file has at most MDL_KEPT_WHOLE bytes, else a piece
 * from the middle of each. A mapped file must stay what it is: it is replaced by renaming, and
 * may be deleted. Owner and thread: the runner. */
#ifndef MODEL_MDL_KEPT_H
#define MODEL_MDL_KEPT_H

#include "model/mdl_checkpoint.h"
#include "model/mdl_kept_file.h"
#include "model/model.h"

#define MDL_KEPT_WHOLE ((uint64_t)256 << 20) /* checkpoints and files up to here are read whole when they are compared */
#define MDL_KEPT_SUFFIX ".weights"

typedef struct mdl_kept mdl_kept;

/* For a runner whose device is open and whose weights are bound. Fails for lack of memory only. */
di_status mdl_kept_open(mdl_runner *r, const char *dir, const io_table *io, mdl_kept **out, di_error *err);
/* The next matrix for products: gets its form when the file has one. NULL does nothing. */
di_status mdl_kept_take(mdl_kept *k, mdl_runner *r, ops_matrix *m, di_error *err);
/* It was prepared instead, or has no form: writes it, when a file is being written. NULL does nothing. */
void mdl_kept_add(mdl_kept *k, mdl_runner *r, const ops_matrix *m);
/* Behind the last one. NULL does nothing. */
void mdl_kept_end(mdl_kept *k);
/* After the matrices' weight_free. NULL is ignored. */
void mdl_kept_free(mdl_kept *k);

/* A note alone: why there is no cache. */
di_status mdl_kept_without(const char *why, mdl_kept **out, di_error *err);
void mdl_kept_get_stats(const mdl_kept *k, mdl_weight_stats *out);

/* Digest of names, types, shapes and content of all tensors. Of a checkpoint above MDL_KEPT_WHOLE a piece of each tensor is read, and the
 * files' sizes and times count too. Errors: DI_E_UNSUPPORTED (no SHA-256). */
di_status mdl_kept_digest(const mdl_checkpoint *checkpoint, uint8_t out[DIGEST_BYTES], di_error *err);

#endif
