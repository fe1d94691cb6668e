/* chat_grammars.h - compiled grammars that are kept, by the digest of everything they depend on (chat_constraint_key).
 *
 * The least recently used go when there are too many, or when they hold too much; a grammar grows while it is used, so all are weighed
 * whenever one is added.
 *
 * Owner and lock: the compiler's (chat_compile.c). */
#ifndef CHAT_CHAT_GRAMMARS_H
#define CHAT_CHAT_GRAMMARS_H

#include "core/digest.h"

#include <deepinfer/grammar.h>

#define CHAT_MAX_GRAMMARS 256

typedef struct chat_cached_grammar {
    uint8_t key[DIGEST_BYTES];
    di_grammar *grammar; /* NULL = free */
    uint64_t used;       /* at this turn */
    size_t fresh_bytes;  /* when it came */
} chat_cached_grammar;

typedef struct chat_grammars {
    chat_cached_grammar entries[CHAT_MAX_GRAMMARS];
    uint64_t turn;
    int64_t n;       /* when one was last added */
    int64_t n_bytes; /* of them */
} chat_grammars;

/* A reference of the caller's own; NULL: it isn't there, or has grown so much that a new one should take its place. */
di_grammar *chat_grammars_get(chat_grammars *g, const uint8_t key[DIGEST_BYTES]);
/* Takes a reference of its own; nothing when the key is there already. */
void chat_grammars_keep(chat_grammars *g, const uint8_t key[DIGEST_BYTES], di_grammar *grammar);
void chat_grammars_fini(chat_grammars *g);

#endif
