/* kv_pages.h - memory that the disk reads into and writes from, on huge pages where there are any.
 *
 * A transfer of 114 KB is one piece of a huge page, but 28 small ones, and the kernel, the bus and a virtual machine's host handle each
 * piece by itself. A virtio disk has places for 254 pieces: nine neighbours, merged into one request, fill it, and the queue is one deep.
 * On huge pages restoring is about twice as fast there (docs/kv_cache.md). */
#ifndef KV_KV_PAGES_H
#define KV_KV_PAGES_H

#include <stddef.h>

typedef struct kv_pages_chunk kv_pages_chunk;

typedef struct kv_pages { /* owner and thread: whose buffers they are. All zero: empty */
    kv_pages_chunk *chunks; /* the newest first */
    size_t room;            /* left in it */
} kv_pages;

/* Memory of at least `size` bytes, a whole number of blocks, aligned for any disk; all of it goes with kv_pages_fini. NULL: there is
 * none. */
void *kv_pages_take(kv_pages *pages, size_t size);
void kv_pages_fini(kv_pages *pages);

#endif
