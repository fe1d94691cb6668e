/* mdl_kept_digest.c - what a checkpoint is, for files of prepared weights (mdl_kept.h). */
#include "model/mdl_kept.h"

#include "core/err.h"

#include <string.h>

#define VERSION "deepinfer weights 1"

/* A fixed part of what is digested: lengths never blur into one another. */
typedef struct piece {
    uint8_t before[DIGEST_BYTES];
    uint8_t name[DIGEST_SUM_BYTES];
    int64_t dims[ST_MAX_DIMS];
    int64_t dtype;
    int64_t size;
    int64_t written_ns;
    uint8_t content[DIGEST_SUM_BYTES];
} piece;

static di_status absorb(piece *p, uint8_t digest[DIGEST_BYTES], di_error *err)
{
    memcpy(p->before, digest, DIGEST_BYTES);
    return digest_sha256(p, sizeof *p, digest, err);
}

static di_status absorb_tensor(const st_tensor *t, bool whole, uint8_t digest[DIGEST_BYTES], di_error *err)
{
    piece p;
    const size_t n = whole || t->size < MDL_KEPT_PIECE ? t->size : MDL_KEPT_PIECE;
    memset(&p, 0, sizeof p);
    digest_sum(t->name, t->name_size, p.name);
    for (int i = 0; i < t->n_dims; i++) {
        p.dims[i] = t->dims[i];
    }
    p.dtype = (int64_t)t->dtype * (ST_MAX_DIMS + 1) + t->n_dims;
    p.size = (int64_t)t->size;
    digest_sum(t->data + (t->size - n) / 2, n, p.content);
    return absorb(&p, digest, err);
}

static di_status absorb_shard(const st_file *file, uint8_t digest[DIGEST_BYTES], di_error *err)
{
    const file_map *const map = st_mapping(file);
    piece p;
    memset(&p, 0, sizeof p);
    p.size = (int64_t)map->identity.size;
    p.written_ns = map->identity.written_ns;
    return absorb(&p, digest, err);
}

di_status mdl_kept_digest(const mdl_checkpoint *checkpoint, uint8_t out[DIGEST_BYTES], di_error *err)
{
    const bool whole = mdl_checkpoint_bytes(checkpoint) <= MDL_KEPT_WHOLE;
    di_status status = digest_sha256(VERSION, sizeof VERSION - 1, out, err);
    for (size_t i = 0; i < mdl_checkpoint_n_shards(checkpoint) && !whole && status == DI_OK; i++) {
        status = absorb_shard(mdl_checkpoint_shard(checkpoint, i), out, err);
    }
    for (size_t i = 0; i < mdl_checkpoint_count(checkpoint) && status == DI_OK; i++) {
        status = absorb_tensor(mdl_checkpoint_at(checkpoint, i), whole, out, err);
    }
    return status;
}
