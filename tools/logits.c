/* logits.c - see logits.h. */
#include "logits.h"

#include "core/core.h"

#include <string.h>

void cli_logits_init(cli_logits *l, int32_t vocab)
{
    memset(l, 0, sizeof *l);
    l->vocab = vocab;
}

void cli_logits_fini(cli_logits *l)
{
    free(l->ids);
    free(l->positions);
    free(l->rows);
    memset(l, 0, sizeof *l);
}

/* realloc for an array; NULL (and the old array intact) when the size overflows or memory is short. */
static void *grow(void *data, size_t capacity, size_t size)
{
    size_t bytes;
    return ar_mul(capacity, size, &bytes) ? realloc(data, bytes) : NULL;
}

static size_t larger_capacity(size_t have, size_t need)
{
    const size_t doubled = have < 16 ? 16 : 2 * have;
    return doubled > need ? doubled : need;
}

di_status cli_logits_add_ids(cli_logits *l, const int32_t *ids, size_t n, di_error *err)
{
    const size_t need = l->n_ids + n;
    if (need > l->ids_capacity) {
        const size_t capacity = larger_capacity(l->ids_capacity, need);
        int32_t *larger = grow(l->ids, capacity, sizeof *larger);
        if (larger == NULL) {
            return err_memory(err, "logits to dump", capacity * sizeof *larger);
        }
        l->ids = larger;
        l->ids_capacity = capacity;
    }
    memcpy(l->ids + l->n_ids, ids, n * sizeof *ids);
    l->n_ids = need;
    return DI_OK;
}

di_status cli_logits_add_rows(cli_logits *l, const float *rows, size_t n, di_error *err)
{
    const size_t vocab = (size_t)l->vocab;
    const size_t need = l->n_rows + n;
    if (n > l->n_ids) {
        return err_set(err, DI_E_INTERNAL, "%zu rows of logits for %zu tokens", n, l->n_ids);
    }
    if (need > l->rows_capacity) {
        const size_t capacity = larger_capacity(l->rows_capacity, need);
        float *larger = grow(l->rows, capacity, vocab * sizeof *larger);
        l->rows = larger != NULL ? larger : l->rows;
        int32_t *positions = larger != NULL ? grow(l->positions, capacity, sizeof *positions) : NULL;
        if (positions == NULL) {
            return err_memory(err, "logits to dump", capacity * vocab * sizeof *larger);
        }
        l->positions = positions;
        l->rows_capacity = capacity;
    }
    memcpy(l->rows + l->n_rows * vocab, rows, n * vocab * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        l->positions[l->n_rows + i] = (int32_t)(l->n_ids - n + i);
    }
    l->n_rows = need;
    return DI_OK;
}

di_status cli_logits_write(const cli_logits *l, const char *path, di_error *err)
{
    const int64_t n_ids = (int64_t)l->n_ids;
    const int64_t dims[2] = {(int64_t)l->n_rows, l->vocab};
    st_writer *writer = NULL;
    di_status status = st_writer_new(&writer, err);
    if (status == DI_OK) {
        status = st_writer_add(writer, "ids", ST_I32, 1, &n_ids, l->ids, err);
    }
    if (status == DI_OK) {
        status = st_writer_add(writer, "positions", ST_I32, 1, dims, l->positions, err);
    }
    if (status == DI_OK) {
        status = st_writer_add(writer, "logits", ST_F32, 2, dims, l->rows, err);
    }
    if (status == DI_OK) {
        status = st_write(writer, path, err);
    }
    st_writer_free(writer);
    return status;
}
