/* mdl_kept_file.h - one file with the weights of a checkpoint in the form that a backend computes with, mapped by later starts.
 *
 *   head [128 bytes]   struct mdl_kept_head
 *   table [64 bytes a matrix]   struct mdl_kept_entry, in the order in which a runner prepares its weights
 *   forms, each at a multiple of 64, in the same order
 *
 * Numbers are little-endian. A file is written under another name and renamed when all of it is on the disk: what has the right name is
 * whole, or was damaged later. Head and table have a checksum, each form has one of its own and one of a piece from its middle; what of
 * these is looked at is the reader's choice (mdl_kept.h). Bytes are hostile: every size and place is checked before it is used. */
#ifndef MODEL_MDL_KEPT_FILE_H
#define MODEL_MDL_KEPT_FILE_H

#include "core/digest.h"
#include "core/file.h"
#include "core/io.h"
#include "ops/ops_types.h"

#define MDL_KEPT_FORM_BYTES 32
#define MDL_KEPT_ALIGN 64
#define MDL_KEPT_PIECE ((size_t)4096)

/* What the forms are of, and for whom. */
typedef struct mdl_kept_key {
    char form[MDL_KEPT_FORM_BYTES]; /* ops_backend.kept_name, padded with zeros, the last one zero */
    uint8_t checkpoint[DIGEST_BYTES];
} mdl_kept_key;

typedef struct mdl_kept_head {
    char magic[8];
    uint32_t version;
    uint32_t n_entries;
    uint64_t file_bytes;
    mdl_kept_key key;
    uint8_t zero[24];
    uint8_t sum[DIGEST_SUM_BYTES]; /* of the head before it and the table */
} mdl_kept_head;

typedef struct mdl_kept_entry {
    uint32_t format; /* ops_format */
    uint32_t zero;
    int64_t n_out;
    int64_t n_in;
    uint64_t offset;
    uint64_t size; /* 0 = this matrix has no form: offset 0, no sums */
    uint8_t sum[DIGEST_SUM_BYTES];
    uint64_t piece; /* digest_hash of the piece in the middle */
} mdl_kept_entry;

/* Looks at head and table of a file of `size` bytes. key NULL = any. *entries lie in `data`. Errors: DI_E_FORMAT with `label`;
 * DI_E_STATE: a sound file of another checkpoint or another form. */
di_status mdl_kept_check(const uint8_t *data, size_t size, const mdl_kept_key *key, const char *label, const mdl_kept_entry **entries,
                         size_t *n_entries, di_error *err);

/* Are the bytes of a form those that were written? Without `whole` its piece alone is looked at. */
bool mdl_kept_sound(const mdl_kept_entry *entry, const uint8_t *form, bool whole);

/* --- Writing ---------------------------------------------------------------------------------------------------------------- */

typedef struct mdl_kept_writer mdl_kept_writer; /* owner and thread: who made it */

/* Begins DIR/NAME of at most n_entries forms of `bytes` bytes in all, each rounded up to MDL_KEPT_ALIGN; DIR is made when it is not there.
 * The space is taken at once. Errors: DI_E_IO (also: no space), DI_E_STATE (another process is writing this file), DI_E_MEMORY. */
di_status mdl_kept_writer_new(const io_table *io, const char *dir, const char *name, const mdl_kept_key *key, size_t n_entries,
                              size_t bytes, mdl_kept_writer **out, di_error *err);
/* The next form; size 0 = this matrix has none. Written when this returns. Errors: DI_E_IO; nothing can be added then. */
di_status mdl_kept_writer_add(mdl_kept_writer *w, const ops_matrix *shape, const void *form, size_t size, di_error *err);
/* Gives the file its name. Errors: DI_E_IO. */
di_status mdl_kept_writer_finish(mdl_kept_writer *w, uint64_t *file_bytes, di_error *err);
/* Also takes away what was written, unless it was finished. NULL is ignored. */
void mdl_kept_writer_free(mdl_kept_writer *w);

#endif
