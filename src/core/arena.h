/* arena.h - memory of one request: allocated piece by piece, freed at once (architecture.md 2, idea 6).
 *
 * Blocks grow geometrically up to 1 MiB; larger pieces get a block of their own. The byte budget counts whole blocks, so it bounds
 * what the process really holds. An arena belongs to one thread at a time. */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include <deepinfer/base.h>

typedef struct arena_block arena_block;

typedef struct arena {
    arena_block *blocks; /* newest first */
    size_t left;         /* bytes free at the end of the newest block */
    size_t held;         /* bytes of all blocks */
    size_t max;          /* budget */
    bool over_budget;    /* an allocation has failed because of it, and not for the system's memory */
} arena;

void arena_init(arena *a, size_t max_bytes);
void arena_fini(arena *a); /* frees everything; the arena is then as after arena_init */

/* Zeroed memory for count items of `size` bytes, aligned for any type. NULL when the budget or the system has no more, or
 * count * size overflows. A size of zero gives a valid pointer. */
void *arena_alloc(arena *a, size_t count, size_t size);

/* A copy with a NUL behind it. NULL as above. */
char *arena_copy(arena *a, const void *data, size_t size);

#endif
