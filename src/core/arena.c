/* arena.c - bump allocation out of malloc'ed blocks; see arena.h. */
#include "core/arena.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BLOCK 4096
#define LARGEST_BLOCK (1024 * 1024)

struct arena_block {
    arena_block *older;
    size_t size; /* of data */
    _Alignas(max_align_t) unsigned char data[];
};

void arena_init(arena *a, size_t max_bytes)
{
    *a = (arena){.max = max_bytes};
}

void arena_fini(arena *a)
{
    arena_block *block = a->blocks;
    while (block) {
        arena_block *older = block->older;
        free(block);
        block = older;
    }
    arena_init(a, a->max);
}

/* A block with room for `need` bytes. A large piece goes behind the newest block, whose free end stays in use. */
static void *add_block(arena *a, size_t need)
{
    size_t size = a->blocks ? a->held : FIRST_BLOCK;
    size = size > LARGEST_BLOCK ? LARGEST_BLOCK : size;
    const bool own = need > size / 2;
    size = own ? need : size;
    const size_t room = a->max - a->held;
    if (size > room && need <= room) {
        size = need; /* the end of the budget */
    }
    if (size > room || size > PTRDIFF_MAX - sizeof(arena_block)) { /* nothing is larger, and sanitizers end a program that asks */
        a->over_budget = true;
        return NULL;
    }
    arena_block *block = malloc(sizeof(*block) + size);
    if (!block) {
        return NULL;
    }
    block->size = size;
    a->held += size;
    if (own && a->blocks) {
        block->older = a->blocks->older;
        a->blocks->older = block;
    } else {
        block->older = a->blocks;
        a->blocks = block;
        a->left = size - need;
    }
    memset(block->data, 0, need);
    return block->data;
}

void *arena_alloc(arena *a, size_t count, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    if (size != 0 && count > (SIZE_MAX - align) / size) {
        return NULL;
    }
    const size_t need = (count * size + align - 1) / align * align;
    if (!a->blocks || need > a->left) {
        return add_block(a, need);
    }
    unsigned char *place = a->blocks->data + (a->blocks->size - a->left);
    a->left -= need;
    memset(place, 0, need);
    return place;
}

char *arena_copy(arena *a, const void *data, size_t size)
{
    char *copy = size < SIZE_MAX ? arena_alloc(a, 1, size + 1) : NULL;
    if (copy && size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}
