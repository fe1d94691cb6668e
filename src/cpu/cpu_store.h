/* cpu_store.h - memory for packed weights: large slabs on huge pages.
 *
 * A matrix is read from front to back at the memory's speed; with pages of 4 KiB the walks through page tables would
 * cost about a tenth of it. Matrices lie one after the other in slabs; a slab goes back to the system when the last of
 * its matrices does. Owner: the device, on whose thread all calls are made. */
#ifndef CPU_CPU_STORE_H
#define CPU_CPU_STORE_H

#include "core/cpus.h"

#include <stddef.h>

typedef struct cpu_slab cpu_slab;

typedef struct cpu_store {
    cpu_slab *slabs;
    size_t next_size; /* of the next slab; they grow */
    const cpus *spread; /* borrowed: pages of slabs lie on all memory nodes in turn, since all threads read all weights. NULL = they lie
                         * where the thread that fills them runs */
} cpu_store;

/* `bytes` of zeros, 64-byte aligned; NULL when there is no memory. */
void *cpu_store_take(cpu_store *s, size_t bytes);
void cpu_store_give(cpu_store *s, void *p);
/* Gives back what is left. */
void cpu_store_fini(cpu_store *s);

#endif
