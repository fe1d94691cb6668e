/* safetensors_write.c - the writer of safetensors.h. Tensors are ordered by falling element size, so that each one is aligned to
 * its element as long as the data starts at a multiple of 8: the header is padded with spaces to make it so. */
#include "core/safetensors.h"

#include "core/arith.h"
#include "core/buf.h"
#include "core/err.h"
#include "core/file.h"

#include <string.h>

#define LENGTH_BYTES 8
#define ALIGNMENT 8

struct st_writer {
    st_tensor *tensors; /* names owned */
    size_t count;
    size_t capacity;
};

di_status st_writer_new(st_writer **out, di_error *err)
{
    st_writer *const w = ar_calloc(1, sizeof *w);
    if (w == NULL) {
        return err_memory(err, "safetensors writer", sizeof *w);
    }
    *out = w;
    return DI_OK;
}

void st_writer_free(st_writer *w)
{
    if (w == NULL) {
        return;
    }
    for (size_t i = 0; i < w->count; i++) {
        free((char *)(uintptr_t)w->tensors[i].name);
    }
    free(w->tensors);
    free(w);
}

static bool grow(st_writer *w)
{
    if (w->count < w->capacity) {
        return true;
    }
    const size_t capacity = w->capacity != 0 ? 2 * w->capacity : 16;
    st_tensor *const tensors = realloc(w->tensors, capacity * sizeof *tensors);
    if (tensors == NULL) {
        return false;
    }
    w->tensors = tensors;
    w->capacity = capacity;
    return true;
}

di_status st_writer_add(st_writer *w, const char *name, st_dtype dtype, int n_dims, const int64_t *dims, const void *data,
                        di_error *err)
{
    if (name[0] == '\0' || n_dims < 0 || n_dims > ST_MAX_DIMS) {
        return err_set(err, DI_E_ARGUMENT, "tensor \"%.160s\": needs a name and 0..%d dimensions", name, ST_MAX_DIMS);
    }
    for (size_t i = 0; i < w->count; i++) {
        if (strcmp(w->tensors[i].name, name) == 0) {
            return err_set(err, DI_E_ARGUMENT, "tensor \"%.160s\" was added twice", name);
        }
    }
    st_tensor t = {.dtype = dtype, .n_dims = n_dims, .data = data, .size = st_dtype_bytes(dtype)};
    for (int i = 0; i < n_dims; i++) {
        if (dims[i] < 0 || !ar_mul(t.size, (size_t)dims[i], &t.size)) {
            return err_set(err, DI_E_ARGUMENT, "tensor \"%.160s\": dimension %d is %lld", name, i, (long long)dims[i]);
        }
        t.dims[i] = dims[i];
    }
    char *const copy = strdup(name);
    if (copy == NULL || !grow(w)) {
        free(copy);
        return err_memory(err, name, sizeof t);
    }
    t.name = copy;
    t.name_size = strlen(copy);
    w->tensors[w->count++] = t;
    return DI_OK;
}

static void add_entry(buf *header, const st_tensor *t, size_t begin)
{
    buf_puts(header, header->size > 1 ? "," : "");
    buf_json_string(header, t->name, strlen(t->name));
    buf_printf(header, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(t->dtype));
    for (int i = 0; i < t->n_dims; i++) {
        buf_printf(header, "%s%lld", i > 0 ? "," : "", (long long)t->dims[i]);
    }
    buf_printf(header, "],\"data_offsets\":[%zu,%zu]}", begin, begin + t->size);
}

/* The header, and the tensors' data in the order that it gives. `parts` has room for all; NULL = not wanted. */
static di_status make_header(const st_writer *w, const char *label, buf *header, file_part *parts, size_t *data_size, di_error *err)
{
    size_t n_parts = 0;
    size_t offset = 0;
    buf_puts(header, "{");
    for (size_t bytes = ALIGNMENT; bytes > 0; bytes /= 2) {
        for (size_t i = 0; i < w->count; i++) {
            const st_tensor *const t = &w->tensors[i];
            if (st_dtype_bytes(t->dtype) != bytes) {
                continue;
            }
            add_entry(header, t, offset);
            if (parts != NULL) {
                parts[n_parts++] = (file_part){.data = t->data, .size = t->size};
            }
            if (!ar_add(offset, t->size, &offset)) {
                return err_set(err, DI_E_LIMIT, "%s: the tensors have more than 2^64 bytes", label);
            }
        }
    }
    buf_puts(header, "}");
    while (header->size % ALIGNMENT != 0 && buf_puts(header, " ")) {
    }
    *data_size = offset;
    return header->failed ? err_memory(err, label, header->size) : DI_OK;
}

di_status st_write(st_writer *w, const char *path, di_error *err)
{
    buf header;
    buf_init(&header, ST_MAX_HEADER_BYTES);
    file_part *const parts = ar_calloc(w->count + 2, sizeof *parts);
    size_t data_size;
    di_status status = parts != NULL ? DI_OK : err_memory(err, path, (w->count + 2) * sizeof *parts);
    if (status == DI_OK) {
        status = make_header(w, path, &header, parts + 2, &data_size, err);
    }
    if (status == DI_OK) {
        uint8_t length[LENGTH_BYTES];
        for (unsigned i = 0; i < LENGTH_BYTES; i++) {
            length[i] = (uint8_t)((uint64_t)header.size >> 8 * i);
        }
        parts[0] = (file_part){.data = length, .size = sizeof length};
        parts[1] = (file_part){.data = header.data, .size = header.size};
        status = file_write_parts(path, parts, w->count + 2, err);
    }
    free(parts);
    buf_fini(&header);
    return status;
}

di_status st_writer_open(st_writer *w, const char *label, st_file **out, di_error *err)
{
    buf header;
    size_t data_size;
    buf_init(&header, ST_MAX_HEADER_BYTES);
    di_status status = make_header(w, label, &header, NULL, &data_size, err);
    if (status == DI_OK) {
        status = st_open_header(header.data, header.size, data_size, label, out, err);
    }
    for (size_t i = 0; status == DI_OK && i < w->count; i++) {
        (void)st_attach(*out, w->tensors[i].name, w->tensors[i].data);
    }
    buf_fini(&header);
    return status;
}
