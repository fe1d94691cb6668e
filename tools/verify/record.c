/* record.c - see record.h. */
#include "record.h"

#include <string.h>

size_t vf_dtype_bytes(di_dtype dtype)
{
    return dtype == DI_BF16 ? 2 : 4;
}

double vf_number(di_dtype dtype, const uint8_t *data, size_t i)
{
    uint32_t bits;
    float f;
    if (dtype == DI_BF16) {
        uint16_t half;
        memcpy(&half, data + 2 * i, sizeof half);
        bits = (uint32_t)half << 16;
    } else {
        memcpy(&bits, data + 4 * i, sizeof bits);
    }
    if (dtype == DI_I32) {
        return (double)(int32_t)bits;
    }
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* Room for `need` more elements of `size` bytes behind `have`. */
static bool reserve(void **data, size_t *capacity, size_t have, size_t need, size_t size)
{
    size_t total;
    size_t bytes;
    if (!ar_add(have, need, &total)) {
        return false;
    }
    if (total <= *capacity) {
        return true;
    }
    if (total < 2 * *capacity) {
        total = 2 * *capacity;
    }
    if (!ar_mul(total, size, &bytes)) {
        return false;
    }
    void *larger = realloc(*data, bytes);
    if (larger == NULL) {
        return false;
    }
    *data = larger;
    *capacity = total;
    return true;
}

static vf_record *record_of(vf_trace *t, const char *name, di_dtype dtype)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->records[i].name, name) == 0) {
            return &t->records[i];
        }
    }
    void *data = t->records;
    const bool room = reserve(&data, &t->capacity, t->n, 1, sizeof *t->records);
    t->records = data;
    char *copy = room ? strdup(name) : NULL;
    if (copy == NULL) {
        return NULL;
    }
    vf_record *r = &t->records[t->n++];
    *r = (vf_record){.name = copy, .dtype = dtype};
    return r;
}

static bool append(vf_record *r, const di_trace *tensor)
{
    const bool whole = strncmp(tensor->name, "cache.", 6) == 0;
    size_t n = 1;
    for (int32_t d = 0; d < tensor->n_dims; d++) {
        n *= (size_t)tensor->dims[d];
    }
    const size_t n_rows = whole || tensor->n_dims == 0 ? 1 : (size_t)tensor->dims[0];
    const size_t bytes = vf_dtype_bytes(r->dtype);
    void *data = r->data;
    void *rows = r->rows;
    const bool room = reserve(&data, &r->capacity, r->n_elements, n, bytes);
    const bool row_room = room && reserve(&rows, &r->row_capacity, r->n_rows, n_rows, sizeof *r->rows);
    r->data = data;
    r->rows = rows;
    if (!row_room) {
        return false;
    }
    if (n > 0) {
        memcpy(r->data + r->n_elements * bytes, tensor->data, n * bytes);
    }
    for (size_t i = 0; i < n_rows; i++) {
        r->rows[r->n_rows++] = (vf_row){r->n_elements + i * (n / n_rows), n / n_rows};
    }
    r->n_elements += n;
    return true;
}

void vf_trace_on(void *user, const di_trace *tensor)
{
    vf_trace *t = user;
    if (t->status != DI_OK) {
        return;
    }
    vf_record *r = record_of(t, tensor->name, tensor->dtype);
    if (r == NULL || !append(r, tensor)) {
        t->status = DI_E_MEMORY;
    }
}

void vf_trace_clear(vf_trace *t)
{
    for (size_t i = 0; i < t->n; i++) {
        t->records[i].n_elements = 0;
        t->records[i].n_rows = 0;
    }
}

void vf_trace_fini(vf_trace *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->records[i].name);
        free(t->records[i].data);
        free(t->records[i].rows);
    }
    free(t->records);
    memset(t, 0, sizeof *t);
}

const vf_record *vf_trace_find(const vf_trace *t, const char *name, size_t *rank)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->records[i].name, name) == 0) {
            *rank = i;
            return t->records[i].n_rows > 0 ? &t->records[i] : NULL;
        }
    }
    return NULL;
}
