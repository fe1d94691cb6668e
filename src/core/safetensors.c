/* safetensors.c - reading; see safetensors.h. The header is scanned twice (json_scan.h): once to count, once to fill arrays of
 * the right size. Nothing of the header is believed before it is checked against the file:
 *   1. every tensor alone: known dtype, dimensions >= 0, shape x dtype == end - begin, all without overflow;
 *   2. all names: no two equal;
 *   3. all extents in order of their offset: the first begins at 0, each begins where the one before ends, the last ends with
 *      the file. So no byte belongs to two tensors and none to nobody. */
#include "core/safetensors.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/file.h"
#include "core/json_scan.h"
#include "core/name_index.h"

#include <string.h>

#define LENGTH_BYTES 8
#define MAX_DEPTH 4

struct st_file {
    file_map map; /* data NULL for a header in memory */
    char *label;
    st_tensor *tensors;
    uint32_t *order; /* by name */
    char *names;
    size_t count;
};

typedef struct extent {
    size_t begin;
    size_t end;
    size_t tensor;
} extent;

typedef struct reader {
    jsc scan;
    st_file *file;
    extent *extents;
    size_t data_size;
    const char *tensor; /* being read, for messages */
} reader;

static const struct {
    const char *name;
    size_t bytes;
} dtypes[ST_N_DTYPES] = {
    [ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},   [ST_I8] = {"I8", 1},   [ST_F8_E4M3] = {"F8_E4M3", 1},
    [ST_F8_E8M0] = {"F8_E8M0", 1}, [ST_I16] = {"I16", 2}, [ST_BF16] = {"BF16", 2}, [ST_F16] = {"F16", 2},
    [ST_I32] = {"I32", 4},         [ST_F32] = {"F32", 4}, [ST_I64] = {"I64", 8}, [ST_F64] = {"F64", 8},
};

size_t st_dtype_bytes(st_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *st_dtype_name(st_dtype dtype)
{
    return dtypes[dtype].name;
}

/* Starts every message about the tensor being read. */
#define TENSOR_ERROR(r, err, code, format, ...) \
    err_set((err), (code), "%s: tensor \"%.160s\": " format, (r)->file->label, (r)->tensor, __VA_ARGS__)

static di_status scan_status(const jsc *scan)
{
    return scan->fault_limit ? DI_E_LIMIT : DI_E_FORMAT;
}

static bool token_is(const jsc *scan, const char *text)
{
    return !scan->token_escaped && scan->token_size == strlen(text) && memcmp(scan->token, text, scan->token_size) == 0;
}

/* A number of the header as an int64_t >= 0. */
static di_status read_size(reader *r, const char *what, int64_t *out, di_error *err)
{
    const jsc *const s = &r->scan;
    const int shown = s->token_size < 40 ? (int)s->token_size : 40;
    int64_t value = 0;
    for (size_t i = 0; i < s->token_size; i++) {
        const char c = s->token[i];
        if (c < '0' || c > '9') {
            return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s %.*s is not a whole number >= 0", what, shown, s->token);
        }
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, c - '0', &value)) {
            return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s %.*s is larger than 2^63 - 1", what, shown, s->token);
        }
    }
    *out = value;
    return DI_OK;
}

/* An array of at most `capacity` sizes. */
static di_status read_sizes(reader *r, const char *what, int64_t *values, size_t capacity, size_t *n, di_error *err)
{
    jsc_event event = jsc_next(&r->scan, err);
    if (event == JSC_ERROR) {
        return scan_status(&r->scan);
    }
    if (event != JSC_ARRAY_BEGIN) {
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s must be an array", what);
    }
    *n = 0;
    for (;;) {
        event = jsc_next(&r->scan, err);
        if (event == JSC_ERROR) {
            return scan_status(&r->scan);
        }
        if (event == JSC_ARRAY_END) {
            return DI_OK;
        }
        if (event != JSC_NUMBER) {
            return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s must hold numbers only", what);
        }
        if (*n == capacity) {
            return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s has more than %zu numbers", what, capacity);
        }
        const di_status status = read_size(r, what, &values[*n], err);
        if (status != DI_OK) {
            return status;
        }
        (*n)++;
    }
}

static di_status read_dtype(reader *r, st_dtype *out, di_error *err)
{
    const jsc_event event = jsc_next(&r->scan, err);
    if (event == JSC_ERROR) {
        return scan_status(&r->scan);
    }
    if (event != JSC_STRING) {
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s", "dtype must be a string");
    }
    for (int i = 0; i < ST_N_DTYPES; i++) {
        if (token_is(&r->scan, dtypes[i].name)) {
            *out = (st_dtype)i;
            return DI_OK;
        }
    }
    const int shown = r->scan.token_size < 40 ? (int)r->scan.token_size : 40;
    return TENSOR_ERROR(r, err, DI_E_UNSUPPORTED, "dtype \"%.*s\" is not supported", shown, r->scan.token);
}

/* Shape x dtype must give exactly the bytes between the offsets, and those must lie inside the data. */
static di_status check_entry(reader *r, st_tensor *t, const int64_t offsets[2], di_error *err)
{
    size_t size = st_dtype_bytes(t->dtype);
    for (int i = 0; i < t->n_dims; i++) {
        if (!ar_mul(size, (size_t)t->dims[i], &size)) {
            return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s", "the product of its shape overflows 64 bits");
        }
    }
    if (offsets[0] > offsets[1]) {
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "data_offsets [%lld, %lld] run backwards", (long long)offsets[0],
                            (long long)offsets[1]);
    }
    if ((uint64_t)offsets[1] > r->data_size) {
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "data_offsets end at byte %lld, but the file holds %zu bytes of data (truncated?)",
                            (long long)offsets[1], r->data_size);
    }
    if (size != (size_t)(offsets[1] - offsets[0])) {
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "shape and dtype %s need %zu bytes, data_offsets give %lld",
                            st_dtype_name(t->dtype), size, (long long)(offsets[1] - offsets[0]));
    }
    t->size = size;
    return DI_OK;
}

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* One field of an entry; its key has just been read. */
static di_status read_field(reader *r, st_tensor *t, int64_t offsets[2], unsigned *seen, di_error *err)
{
    unsigned field = 0;
    if (token_is(&r->scan, "dtype")) {
        field = HAS_DTYPE;
    } else if (token_is(&r->scan, "shape")) {
        field = HAS_SHAPE;
    } else if (token_is(&r->scan, "data_offsets")) {
        field = HAS_OFFSETS;
    }
    if (field == 0 || (*seen & field) != 0) {
        const int shown = r->scan.token_size < 40 ? (int)r->scan.token_size : 40;
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s field \"%.*s\"", field == 0 ? "unknown" : "duplicate", shown, r->scan.token);
    }
    *seen |= field;
    size_t n;
    if (field == HAS_DTYPE) {
        return read_dtype(r, &t->dtype, err);
    }
    if (field == HAS_SHAPE) {
        const di_status status = read_sizes(r, "shape", t->dims, ST_MAX_DIMS, &n, err);
        t->n_dims = status == DI_OK ? (int)n : 0;
        return status;
    }
    const di_status status = read_sizes(r, "data_offsets", offsets, 2, &n, err);
    if (status == DI_OK && n != 2) {
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "data_offsets must hold 2 numbers, found %zu", n);
    }
    return status;
}

static di_status read_entry(reader *r, st_tensor *t, extent *x, di_error *err)
{
    jsc_event event = jsc_next(&r->scan, err);
    if (event == JSC_ERROR) {
        return scan_status(&r->scan);
    }
    if (event != JSC_OBJECT_BEGIN) {
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "%s", "its header entry must be an object");
    }
    int64_t offsets[2] = {0, 0};
    unsigned seen = 0;
    while ((event = jsc_next(&r->scan, err)) == JSC_KEY) {
        const di_status status = read_field(r, t, offsets, &seen, err);
        if (status != DI_OK) {
            return status;
        }
    }
    if (event == JSC_ERROR) {
        return scan_status(&r->scan);
    }
    if (seen != HAS_ALL) {
        const char *const missing = (seen & HAS_DTYPE) == 0 ? "dtype" : (seen & HAS_SHAPE) == 0 ? "shape" : "data_offsets";
        return TENSOR_ERROR(r, err, DI_E_FORMAT, "its header entry has no %s", missing);
    }
    x->begin = (size_t)offsets[0];
    x->end = (size_t)offsets[1];
    return check_entry(r, t, offsets, err);
}

static di_status read_metadata(reader *r, di_error *err)
{
    jsc_event event = jsc_next(&r->scan, err);
    if (event == JSC_OBJECT_BEGIN) {
        while ((event = jsc_next(&r->scan, err)) == JSC_KEY) {
            event = jsc_next(&r->scan, err);
            if (event != JSC_STRING) {
                break;
            }
        }
    }
    if (event == JSC_ERROR) {
        return scan_status(&r->scan);
    }
    if (event != JSC_OBJECT_END) {
        return err_set(err, DI_E_FORMAT, "%s: __metadata__ must be an object of strings", r->file->label);
    }
    return DI_OK;
}

/* Names stand in one-line messages and in C strings, so neither control characters nor NUL are let in. */
static bool name_printable(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F) {
            return false;
        }
    }
    return size > 0;
}

static di_status count_entries(jsc *scan, const char *label, size_t *n, size_t *name_bytes, di_error *err)
{
    jsc_event event = jsc_next(scan, err);
    if (event != JSC_ERROR && event != JSC_OBJECT_BEGIN) {
        return err_set(err, DI_E_FORMAT, "%s: the header must be a JSON object", label);
    }
    while (event != JSC_ERROR && (event = jsc_next(scan, err)) == JSC_KEY) {
        (*n)++;
        *name_bytes += scan->token_size + 1;
        event = jsc_next(scan, err);
        if (!jsc_skip(scan, event, err)) {
            event = JSC_ERROR;
        }
    }
    if (event == JSC_OBJECT_END) {
        event = jsc_next(scan, err);
    }
    return event == JSC_END ? DI_OK : scan_status(scan);
}

static di_status read_entries(reader *r, di_error *err)
{
    st_file *const file = r->file;
    char *name = file->names;
    bool metadata = false;
    jsc_next(&r->scan, err);
    while (jsc_next(&r->scan, err) == JSC_KEY) {
        const size_t size = jsc_unescape(&r->scan, name);
        name[size] = '\0';
        if (!name_printable(name, size)) {
            return err_set(err, DI_E_FORMAT, "%s: the name of tensor %zu is empty or holds control characters", file->label,
                           file->count);
        }
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata) {
                return err_set(err, DI_E_FORMAT, "%s: duplicate __metadata__", file->label);
            }
            metadata = true;
            const di_status status = read_metadata(r, err);
            if (status != DI_OK) {
                return status;
            }
            continue;
        }
        st_tensor *const t = &file->tensors[file->count];
        extent *const x = &r->extents[file->count];
        r->tensor = name;
        t->name = name;
        t->name_size = size;
        x->tensor = file->count;
        const di_status status = read_entry(r, t, x, err);
        if (status != DI_OK) {
            return status;
        }
        file->count++;
        name += size + 1;
    }
    return DI_OK;
}

static const char *name_of(const void *tensors, size_t i, size_t *size)
{
    const st_tensor *const t = (const st_tensor *)tensors + i;
    *size = t->name_size;
    return t->name;
}

static di_status check_names(st_file *file, uint32_t *scratch, di_error *err)
{
    nix_sort(file->tensors, name_of, file->order, scratch, file->count);
    const size_t k = nix_duplicate(file->tensors, name_of, file->order, file->count);
    if (k != 0) {
        return err_set(err, DI_E_FORMAT, "%s: duplicate tensor \"%.160s\"", file->label, file->tensors[file->order[k]].name);
    }
    return DI_OK;
}

static int compare_extents(const void *a, const void *b)
{
    const extent *const x = a;
    const extent *const y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

static di_status check_tiling(const st_file *file, extent *extents, size_t data_size, di_error *err)
{
    bool sorted = true;
    for (size_t i = 1; sorted && i < file->count; i++) {
        sorted = compare_extents(&extents[i - 1], &extents[i]) <= 0;
    }
    if (!sorted) {
        qsort(extents, file->count, sizeof *extents, compare_extents);
    }
    size_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const extent *const x = &extents[i];
        const char *const name = file->tensors[x->tensor].name;
        if (x->begin < end) {
            return err_set(err, DI_E_FORMAT, "%s: tensor \"%.160s\" overlaps \"%.160s\"", file->label, name,
                           file->tensors[extents[i - 1].tensor].name);
        }
        if (x->begin > end) {
            return err_set(err, DI_E_FORMAT, "%s: %zu bytes before tensor \"%.160s\" belong to no tensor", file->label,
                           x->begin - end, name);
        }
        end = x->end;
    }
    if (end != data_size) {
        return err_set(err, DI_E_FORMAT, "%s: %zu bytes at the end belong to no tensor", file->label, data_size - end);
    }
    return DI_OK;
}

/* Fills file->tensors; its label and map are already set. On failure the caller closes the file. */
static di_status read_header(st_file *file, const char *header, size_t size, const uint8_t *data, size_t data_size, di_error *err)
{
    reader r = {.file = file, .data_size = data_size};
    uint32_t *scratch = NULL;
    size_t n = 0;
    size_t name_bytes = 1;
    jsc_init(&r.scan, header, size, file->label, MAX_DEPTH);
    di_status status = count_entries(&r.scan, file->label, &n, &name_bytes, err);
    if (status != DI_OK) {
        return status;
    }
    file->tensors = ar_calloc(n, sizeof *file->tensors);
    file->order = ar_calloc(n, sizeof *file->order);
    file->names = ar_calloc(name_bytes, 1);
    r.extents = ar_calloc(n, sizeof *r.extents);
    scratch = ar_calloc(n, sizeof *scratch);
    if (file->tensors == NULL || file->order == NULL || file->names == NULL || r.extents == NULL || scratch == NULL) {
        status = err_memory(err, file->label, n * sizeof *file->tensors);
        goto out;
    }
    jsc_init(&r.scan, header, size, file->label, MAX_DEPTH);
    status = read_entries(&r, err);
    if (status == DI_OK) {
        status = check_names(file, scratch, err);
    }
    if (status == DI_OK) {
        status = check_tiling(file, r.extents, data_size, err);
    }
    for (size_t i = 0; status == DI_OK && data != NULL && i < file->count; i++) {
        file->tensors[r.extents[i].tensor].data = data + r.extents[i].begin;
    }

out:
    free(scratch);
    free(r.extents);
    return status;
}

static di_status new_file(const char *label, st_file **out, di_error *err)
{
    st_file *const file = ar_calloc(1, sizeof *file);
    char *const copy = strdup(label);
    if (file == NULL || copy == NULL) {
        free(file);
        free(copy);
        return err_memory(err, label, sizeof *file);
    }
    file->label = copy;
    *out = file;
    return DI_OK;
}

static di_status read_mapped(st_file *file, di_error *err)
{
    const uint8_t *const bytes = file->map.data;
    if (file->map.size < LENGTH_BYTES) {
        return err_set(err, DI_E_FORMAT, "%s: %zu bytes are too few for a safetensors file", file->label, file->map.size);
    }
    uint64_t header_size = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) {
        header_size |= (uint64_t)bytes[i] << 8 * i;
    }
    if (header_size > ST_MAX_HEADER_BYTES) {
        return err_set(err, DI_E_FORMAT, "%s: a header of %llu bytes is larger than the limit of %u", file->label,
                       (unsigned long long)header_size, ST_MAX_HEADER_BYTES);
    }
    const size_t rest = file->map.size - LENGTH_BYTES;
    if (header_size > rest) {
        return err_set(err, DI_E_FORMAT, "%s: the header has %llu bytes, but only %zu follow (truncated?)", file->label,
                       (unsigned long long)header_size, rest);
    }
    const uint8_t *const data = bytes + LENGTH_BYTES + header_size;
    return read_header(file, (const char *)bytes + LENGTH_BYTES, (size_t)header_size, data, rest - (size_t)header_size, err);
}

di_status st_open(const char *path, st_file **out, di_error *err)
{
    const char *const slash = strrchr(path, '/');
    st_file *file;
    di_status status = new_file(slash != NULL ? slash + 1 : path, &file, err);
    if (status != DI_OK) {
        return status;
    }
    status = file_map_open(path, &file->map, err);
    if (status == DI_OK) {
        status = read_mapped(file, err);
    }
    if (status != DI_OK) {
        st_close(file);
        return status;
    }
    *out = file;
    return DI_OK;
}

di_status st_open_header(const char *header, size_t header_size, size_t data_size, const char *label, st_file **out, di_error *err)
{
    st_file *file;
    di_status status = new_file(label, &file, err);
    if (status != DI_OK) {
        return status;
    }
    if (header_size > ST_MAX_HEADER_BYTES) {
        status = err_set(err, DI_E_FORMAT, "%s: a header of %zu bytes is larger than the limit of %u", label, header_size,
                         ST_MAX_HEADER_BYTES);
    } else {
        status = read_header(file, header, header_size, NULL, data_size, err);
    }
    if (status != DI_OK) {
        st_close(file);
        return status;
    }
    *out = file;
    return DI_OK;
}

void st_close(st_file *file)
{
    if (file == NULL) {
        return;
    }
    file_map_close(&file->map);
    free(file->label);
    free(file->tensors);
    free(file->order);
    free(file->names);
    free(file);
}

const char *st_label(const st_file *file)
{
    return file->label;
}

const file_map *st_mapping(const st_file *file)
{
    return &file->map;
}

size_t st_count(const st_file *file)
{
    return file->count;
}

const st_tensor *st_at(const st_file *file, size_t i)
{
    return i < file->count ? &file->tensors[i] : NULL;
}

const st_tensor *st_find(const st_file *file, const char *name)
{
    const size_t i = nix_find(file->tensors, name_of, file->order, file->count, name, strlen(name));
    return i < file->count ? &file->tensors[i] : NULL;
}

bool st_attach(st_file *file, const char *name, const void *data)
{
    const size_t i = nix_find(file->tensors, name_of, file->order, file->count, name, strlen(name));
    if (i < file->count) {
        file->tensors[i].data = data;
    }
    return i < file->count;
}
