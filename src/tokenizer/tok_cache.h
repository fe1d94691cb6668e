/* tok_cache.h - the compiled cache file, see tok_cache.c. Nothing here reports errors: a cache works or is not there. */
#ifndef TOKENIZER_TOK_CACHE_H
#define TOKENIZER_TOK_CACHE_H

#include "core/digest.h"
#include "tokenizer/tok_int.h"

#include <stddef.h>

#define TOK_CACHE_MAGIC "DI-TOKEN"
/* Rises with every change of a table's layout, contents or hash function. */
#define TOK_CACHE_VERSION 2

/* What the system says about a file; no padding, compared as bytes. */
typedef struct tok_stamp {
    uint64_t size;
    int64_t modified_ns;
    int64_t changed_ns;
    uint64_t inode;
    uint64_t device;
    uint64_t believed; /* 0: taken too soon after a change to tell the next one apart */
} tok_stamp;

/* The beginning of the file, little-endian like the tables. */
typedef struct tok_cache_head {
    char magic[8];
    uint64_t checksum; /* XXH3-64 of everything behind it */
    uint32_t version;
    int32_t n_ids;
    int32_t n_base;
    uint32_t whole_pieces;
    uint32_t max_token_bytes;
    uint32_t n_nodes;
    uint64_t n_bytes; /* spellings and padding */
    uint32_t shifts[3]; /* pairs, pieces, words */
    int32_t n_lead[TOK_PASSES];
    uint8_t lead[TOK_PASSES][2];
    tok_stamp stamp;
    uint8_t digest[DIGEST_BYTES]; /* SHA-256 of the JSON */
    int32_t byte_id[256];
    uint32_t first[TOK_PASSES][256];
} tok_cache_head;

_Static_assert(sizeof(tok_cache_head) == 152 + 3 * 1024, "no padding, which would be written uninitialised");

#define TOK_CACHE_SUMMED (offsetof(tok_cache_head, checksum) + sizeof(uint64_t))

/* Name of the cache file for a tokenizer.json, malloc'ed; makes the folder. `folder` NULL is the default ($DI_CACHE_DIR, else
 * $XDG_CACHE_HOME/deepinfer, else ~/.cache/deepinfer), "" is none. NULL: no caching. */
char *tok_cache_path(const char *folder, const char *json);

bool tok_stamp_take(const char *path, tok_stamp *out);
bool tok_stamp_same(const tok_stamp *a, const tok_stamp *b);

/* The tokenizer in the file with what it was made from, or NULL. Whether that is what is wanted is for the caller to say. */
di_tokenizer *tok_cache_load(const char *file, tok_stamp *stamp, uint8_t digest[DIGEST_BYTES]);
void tok_cache_store(const char *file, const tok_stamp *stamp, const uint8_t digest[DIGEST_BYTES], const di_tokenizer *tok);

/* The checks of tok_cache_load, on a file in memory at a multiple of 64. The map goes to the tokenizer; NULL leaves it with the caller. */
di_tokenizer *tok_cache_adopt(file_map *map);
uint64_t tok_cache_checksum(const uint8_t *file, size_t size);

#endif
