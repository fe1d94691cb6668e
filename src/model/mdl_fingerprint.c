/* mdl_fingerprint.c - a digest of everything that the bytes of caches depend on besides the tokens: weights, configuration, tokenizer (its
 * text decides about Engram ids), layout, and the numerics of the backend. Caches of two runners with equal fingerprints are bit for bit
 * interchangeable; a new one is needed whenever a row would come out different (serving.md 4.1, namespaces).
 *
 * Backends that give the same bits share a numerics name (decisions/0006): which instruction set ran does not matter.
 *
 * Of a large checkpoint not every byte is read: each tensor's name, type, shape and a piece from its middle are. Weights that were
 * trained further differ there; a file that was changed by hand in a few bytes needs a cache folder of its own. */
#include "core/core.h"
#include "model/model_int.h"

#include <stdlib.h>
#include <string.h>

#define VERSION "deepinfer caches 1"
#define WHOLE_BYTES ((uint64_t)256 << 20) /* checkpoints up to here are read whole */
#define PIECE_BYTES ((size_t)4096)
#define MAX_FILE_BYTES ((size_t)256 << 20)

typedef struct absorber {
    uint8_t digest[DIGEST_BYTES];
    di_status status;
} absorber;

/* digest = SHA-256(digest || SHA-256(data)): lengths are fixed, so no two lists of parts are the same text. */
static void absorb(absorber *a, const void *data, size_t size)
{
    uint8_t text[2 * DIGEST_BYTES];
    if (a->status != DI_OK) {
        return;
    }
    memcpy(text, a->digest, DIGEST_BYTES);
    a->status = digest_sha256(data, size, text + DIGEST_BYTES, NULL);
    if (a->status == DI_OK) {
        a->status = digest_sha256(text, sizeof text, a->digest, NULL);
    }
}

static void absorb_number(absorber *a, int64_t value)
{
    uint8_t text[8];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)((uint64_t)value >> (8 * i));
    }
    absorb(a, text, sizeof text);
}

/* A file that is not there counts as an empty one. */
static di_status absorb_file(absorber *a, const char *dir, const char *name, di_error *err)
{
    char *data = NULL;
    size_t size = 0;
    char *const path = file_path_join(dir, name);
    di_status status = path != NULL ? DI_OK : err_memory(err, "path", strlen(dir));
    if (status == DI_OK && file_exists(path)) {
        status = file_read(path, MAX_FILE_BYTES, &data, &size, err);
    }
    if (status == DI_OK) {
        absorb(a, data != NULL ? data : "", size);
    }
    free(data);
    free(path);
    return status;
}

static void absorb_tensor(absorber *a, const st_tensor *t, bool whole)
{
    absorb(a, t->name, t->name_size);
    absorb_number(a, (int64_t)t->dtype);
    for (int i = 0; i < t->n_dims; i++) {
        absorb_number(a, t->dims[i]);
    }
    if (whole || t->size <= PIECE_BYTES) {
        absorb(a, t->data, t->size);
    } else {
        absorb(a, t->data + (t->size - PIECE_BYTES) / 2, PIECE_BYTES);
    }
}

/* Rows are in the released formats: what can differ is which there are, and where. */
static void absorb_layout(absorber *a, const mdl_runner *r)
{
    const mdl_layout *const l = &r->layout;
    const size_t sizes[] = {l->page_bytes, l->window_row_bytes, mdl_flat_state_bytes(r, false), mdl_flat_state_bytes(r, true)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        absorb_number(a, (int64_t)sizes[i]);
    }
    for (int32_t i = 0; i < r->c->n_kv_sources; i++) {
        const int32_t source = r->c->kv_sources[i];
        absorb_number(a, (int64_t)l->compressed[source].offset);
        absorb_number(a, (int64_t)l->index_keys[source].offset);
    }
}

di_status mdl_fingerprint(const mdl_runner *r, uint8_t out[DIGEST_BYTES], di_error *err)
{
    const di_model *const m = r->model;
    const char *const numerics = r->ops->numerics != NULL ? r->ops->numerics : r->ops->name;
    const bool whole = mdl_checkpoint_bytes(m->checkpoint) <= WHOLE_BYTES;
    absorber a = {.digest = {0}, .status = DI_OK};
    if (m->dir == NULL) {
        return err_set(err, DI_E_UNSUPPORTED,
                       "a model that is only in memory can't have a cache below the device: write it to a folder first");
    }
    absorb(&a, VERSION, sizeof VERSION - 1);
    absorb(&a, numerics, strlen(numerics));
    absorb(&a, &m->config.swiglu_limit, sizeof m->config.swiglu_limit);
    absorb_layout(&a, r);
    di_status status = absorb_file(&a, m->dir, "config.json", err);
    if (status == DI_OK) {
        status = absorb_file(&a, m->dir, "tokenizer.json", err);
    }
    if (status != DI_OK) {
        return status;
    }
    for (size_t i = 0; i < mdl_checkpoint_count(m->checkpoint); i++) {
        absorb_tensor(&a, mdl_checkpoint_at(m->checkpoint, i), whole);
    }
    memcpy(out, a.digest, DIGEST_BYTES);
    return a.status == DI_OK ? DI_OK : err_set(err, a.status, "no SHA-256 for the fingerprint of the model");
}
