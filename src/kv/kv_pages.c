/* kv_pages.c - see kv_pages.h. Pieces are cut from chunks of whole huge pages and never given back singly. */
#include "kv/kv_pages.h"

#include "kv/kv_record.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

struct kv_pages_chunk {
    kv_pages_chunk *next;
    unsigned char *memory;
    size_t size;
};

static bool add_chunk(kv_pages *pages, size_t size)
{
    kv_pages_chunk *const chunk = malloc(sizeof *chunk);
    void *const memory = chunk != NULL ? aligned_alloc(HUGE_PAGE, size) : NULL;
    if (memory == NULL) {
        free(chunk);
        return false;
    }
    (void)madvise(memory, size, MADV_HUGEPAGE); /* a wish: without huge pages it is only slower */
    *chunk = (kv_pages_chunk){.next = pages->chunks, .memory = memory, .size = size};
    pages->chunks = chunk;
    pages->room = size;
    return true;
}

void *kv_pages_take(kv_pages *pages, size_t size)
{
    if (size > SIZE_MAX / 2) {
        return NULL;
    }
    const size_t wanted = (size_t)kv_padded(size);
    if (pages->room < wanted && !add_chunk(pages, (wanted + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE)) {
        return NULL;
    }
    pages->room -= wanted;
    return pages->chunks->memory + pages->chunks->size - wanted - pages->room;
}

void kv_pages_fini(kv_pages *pages)
{
    while (pages->chunks != NULL) {
        kv_pages_chunk *const next = pages->chunks->next;
        free(pages->chunks->memory);
        free(pages->chunks);
        pages->chunks = next;
    }
    pages->room = 0;
}
