/* safetensors.h - the container format of checkpoints: 8-byte little-endian header length, JSON header, data.
 *
 * A file of hostile origin is a normal case: every size is checked with overflow-safe arithmetic before use, names must be
 * unique, extents in order of offset must tile the data without gap or overlap, and shape x dtype must equal the extent.
 * Reading maps the file; nothing but the header is touched. Immutable after opening, any thread. A file that somebody shortens
 * while it is open raises SIGBUS on access, as with every mapping: checkpoints are replaced by renaming, not rewritten. */
#ifndef CORE_SAFETENSORS_H
#define CORE_SAFETENSORS_H

#include "core/file.h"

#include <deepinfer/base.h>

typedef enum st_dtype {
    ST_BOOL, ST_U8, ST_I8, ST_F8_E4M3, ST_F8_E8M0, ST_I16, ST_BF16, ST_F16, ST_I32, ST_F32, ST_I64, ST_F64, ST_N_DTYPES
} st_dtype;

#define ST_MAX_DIMS 8
#define ST_MAX_HEADER_BYTES (100u << 20)

size_t st_dtype_bytes(st_dtype dtype);
const char *st_dtype_name(st_dtype dtype); /* "F8_E4M3" */

typedef struct st_tensor {
    const char *name; /* borrowed from the file object */
    size_t name_size;
    st_dtype dtype;
    int n_dims; /* 0 = scalar */
    int64_t dims[ST_MAX_DIMS];
    const uint8_t *data; /* borrowed from the mapping; only byte-aligned */
    size_t size;         /* bytes */
} st_tensor;

typedef struct st_file st_file;

/* Messages call the file by its base name (`label` below). Errors name tensor and file: DI_E_IO, DI_E_FORMAT,
 * DI_E_UNSUPPORTED (a dtype not listed above), DI_E_MEMORY. */
di_status st_open(const char *path, st_file **out, di_error *err);
void st_close(st_file *file);

/* The same checks over a header in memory, for files that are only listed: data pointers are NULL. `data_size` is the number of
 * bytes after the header. */
di_status st_open_header(const char *header, size_t header_size, size_t data_size, const char *label, st_file **out, di_error *err);

/* Gives a tensor of such a file its data, st_tensor.size bytes, borrowed as long as the file is open: a checkpoint that exists in memory
 * only. False when there is no tensor of that name. Before the file is shared. */
bool st_attach(st_file *file, const char *name, const void *data);

const char *st_label(const st_file *file);
const file_map *st_mapping(const st_file *file); /* borrowed; its data is NULL for a file of which only the header is there */
size_t st_count(const st_file *file);
const st_tensor *st_at(const st_file *file, size_t i); /* in the order of the header */
const st_tensor *st_find(const st_file *file, const char *name); /* NULL when absent; O(log count) */

/* Writer: collects borrowed tensors, then writes the file (ordered by falling element size, then by call order; header padded to
 * 8 bytes). The data pointers must stay valid until st_write returns. */
typedef struct st_writer st_writer;
di_status st_writer_new(st_writer **out, di_error *err);
di_status st_writer_add(st_writer *w, const char *name, st_dtype dtype, int n_dims, const int64_t *dims, const void *data, di_error *err);
di_status st_write(st_writer *w, const char *path, di_error *err);
/* What st_write would write, as an open file over the borrowed data. */
di_status st_writer_open(st_writer *w, const char *label, st_file **out, di_error *err);
void st_writer_free(st_writer *w);

#endif
