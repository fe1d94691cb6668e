/* tok_open.c - opening (from the cache file or the JSON) and closing a tokenizer, and the look-ups of single tokens. */
#include "tokenizer/tok_cache.h"
#include "tokenizer/tok_int.h"

#include "core/err.h"
#include "core/file.h"

#include <stdlib.h>

/* Below this building is about as quick as mapping, and a cache that nobody sees would only be in the way. */
#define CACHED_FILE_BYTES ((uint64_t)1 << 20)

/* What opening one file needs. `cached` is what the cache file holds, until it is known to be what is wanted. */
typedef struct opening {
    const char *path;
    char *cache_file; /* NULL: no caching */
    tok_stamp stamp;
    tok_stamp cached_stamp;
    uint8_t cached_digest[DIGEST_BYTES];
    di_tokenizer *cached;
} opening;

static di_status build_from(const file_map *map, const char *path, di_tokenizer **out, di_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    tok_source source;
    di_status status = tok_source_read((const char *)map->data, map->size, name, &source, err);
    if (status != DI_OK) {
        return status;
    }
    status = tok_build(&source, out, err);
    tok_source_fini(&source);
    if (status != DI_OK) {
        err_prefix(err, "%s", name);
    }
    return status;
}

/* The stamp did not tell, so the text of the file does. Stores what was found or built for the next time. */
static di_status open_by_digest(opening *o, di_tokenizer **out, di_error *err)
{
    uint8_t digest[DIGEST_BYTES];
    file_map map;
    tok_stamp after;
    di_status status = file_map_open(o->path, &map, err);
    if (status != DI_OK) {
        return status;
    }
    const bool digested = o->cache_file != NULL && digest_sha256(map.data, map.size, digest, NULL) == DI_OK;
    bool renew = digested;
    if (digested && o->cached != NULL && memcmp(digest, o->cached_digest, DIGEST_BYTES) == 0) {
        *out = o->cached;
        o->cached = NULL;
        renew = o->stamp.believed != 0; /* else nothing would be gained */
    } else {
        status = build_from(&map, o->path, out, err);
    }
    file_map_close(&map);
    /* A file that changed while it was read is left alone. */
    if (status == DI_OK && renew && tok_stamp_take(o->path, &after)) {
        after.believed = o->stamp.believed;
        if (memcmp(&after, &o->stamp, sizeof after) == 0) {
            tok_cache_store(o->cache_file, &o->stamp, digest, *out);
        }
    }
    return status;
}

static di_status open_file(const char *path, const char *cache_dir, di_tokenizer **out, di_error *err)
{
    opening o = {.path = path};
    if (tok_stamp_take(path, &o.stamp) && (cache_dir != NULL || o.stamp.size >= CACHED_FILE_BYTES)) {
        o.cache_file = tok_cache_path(cache_dir, path);
    }
    if (o.cache_file != NULL) {
        o.cached = tok_cache_load(o.cache_file, &o.cached_stamp, o.cached_digest);
    }
    di_status status = DI_OK;
    if (o.cached != NULL && tok_stamp_same(&o.stamp, &o.cached_stamp)) {
        *out = o.cached;
        o.cached = NULL;
    } else {
        status = open_by_digest(&o, out, err);
    }
    di_tokenizer_close(o.cached);
    free(o.cache_file);
    return status;
}

di_status di_tokenizer_open_with(const char *path, const di_tokenizer_options *options, di_tokenizer **out, di_error *err)
{
    const char *const cache_dir = options != NULL ? options->cache_dir : NULL;
    if (!file_is_dir(path)) {
        return open_file(path, cache_dir, out, err);
    }
    char *joined = file_path_join(path, "tokenizer.json");
    if (joined == NULL) {
        return err_memory(err, "path", strlen(path));
    }
    const di_status status = open_file(joined, cache_dir, out, err);
    free(joined);
    return status;
}

di_status di_tokenizer_open(const char *path, di_tokenizer **out, di_error *err)
{
    return di_tokenizer_open_with(path, NULL, out, err);
}

/* Tables that were built; those of a cache file go with its mapping. */
static void free_tables(di_tokenizer *tok)
{
    tok_added_fini(&tok->added);
    free(tok->pairs.slots);
    free(tok->pairs.filter);
    free(tok->words.slots);
    free(tok->pieces.slots);
    free(tok->cjk);
    free(tok->seams);
    free(tok->byte_pair);
    free(tok->offset);
    free(tok->bytes);
    free(tok->flags);
}

void di_tokenizer_close(di_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    while (tokenizer->idle != NULL) {
        tok_scratch *next = tokenizer->idle->next;
        tok_scratch_free(tokenizer->idle);
        tokenizer->idle = next;
    }
    (void)pthread_mutex_destroy(&tokenizer->lock);
    if (tokenizer->mapped.data != NULL) {
        file_map_close(&tokenizer->mapped);
    } else {
        free_tables(tokenizer);
    }
    free(tokenizer);
}

int32_t di_tokenizer_vocab_size(const di_tokenizer *tokenizer)
{
    return tokenizer->n_ids;
}

const uint8_t *di_tokenizer_bytes(const di_tokenizer *tokenizer, int32_t id, size_t *n)
{
    if (id < 0 || id >= tokenizer->n_ids) {
        *n = 0;
        return NULL;
    }
    return tok_token(tokenizer, id, n);
}

unsigned di_tokenizer_flags(const di_tokenizer *tokenizer, int32_t id)
{
    return id < 0 || id >= tokenizer->n_ids ? 0 : tokenizer->flags[id] & ~TOK_LITERAL;
}

int32_t di_tokenizer_find(const di_tokenizer *tokenizer, const char *bytes, size_t n)
{
    if (n == 0 || n > tokenizer->max_token_bytes) {
        return -1;
    }
    const int32_t id = tok_added_find(&tokenizer->added, (const uint8_t *)bytes, n);
    return id != TOK_NONE ? id : tok_pieces_find(tokenizer, (const uint8_t *)bytes, n);
}
