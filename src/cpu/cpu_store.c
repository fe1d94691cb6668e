/* cpu_store.c - see cpu_store.h. */
#include "cpu/cpu_store.h"

#include "core/arith.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SLAB_FIRST ((size_t)32 << 20)
#define SLAB_MOST ((size_t)1 << 30)
#define HUGE_PAGE ((size_t)2 << 20)

struct cpu_slab {
    cpu_slab *next;
    uint8_t *memory;
    size_t size;
    size_t used;
    size_t n_live; /* matrices in it */
};

static cpu_slab *slab_new(cpu_store *s, size_t bytes)
{
    cpu_slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL) {
        return NULL;
    }
    s->next_size = s->next_size == 0 ? SLAB_FIRST : s->next_size < SLAB_MOST ? 2 * s->next_size : SLAB_MOST;
    slab->size = bytes > s->next_size ? bytes : s->next_size;
    void *memory = MAP_FAILED;
    if (ar_add(slab->size, HUGE_PAGE - 1, &slab->size)) {
        slab->size = slab->size / HUGE_PAGE * HUGE_PAGE;
        memory = mmap(NULL, slab->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED) {
        free(slab);
        return NULL;
    }
    (void)madvise(memory, slab->size, MADV_HUGEPAGE); /* a wish: without huge pages it is only slower */
    if (s->spread != NULL) {
        (void)cpus_interleave(s->spread, memory, slab->size); /* a wish too */
    }
    slab->memory = memory;
    slab->next = s->slabs;
    s->slabs = slab;
    return slab;
}

void *cpu_store_take(cpu_store *s, size_t bytes)
{
    cpu_slab *slab = s->slabs;
    if (!ar_add(bytes, 63, &bytes)) {
        return NULL;
    }
    bytes = bytes / 64 * 64;
    if (slab == NULL || slab->size - slab->used < bytes) {
        slab = slab_new(s, bytes);
    }
    if (slab == NULL) {
        return NULL;
    }
    void *p = slab->memory + slab->used;
    slab->used += bytes;
    slab->n_live++;
    return p;
}

void cpu_store_give(cpu_store *s, void *p)
{
    for (cpu_slab **link = &s->slabs; p != NULL && *link != NULL; link = &(*link)->next) {
        cpu_slab *const slab = *link;
        if ((uintptr_t)p - (uintptr_t)slab->memory < slab->size) {
            if (--slab->n_live == 0) {
                *link = slab->next;
                (void)munmap(slab->memory, slab->size);
                free(slab);
            }
            return;
        }
    }
}

void cpu_store_fini(cpu_store *s)
{
    while (s->slabs != NULL) {
        cpu_slab *const slab = s->slabs;
        s->slabs = slab->next;
        (void)munmap(slab->memory, slab->size);
        free(slab);
    }
}
