/* kv_rank.h - many records in the orders that the index wants them in, by small numbers beside them: comparing and moving the records
 * themselves was half of a start from segments. */
#ifndef KV_KV_RANK_H
#define KV_KV_RANK_H

#include "kv/kv_index.h"

typedef struct kv_ranked {
    uint64_t rank[3]; /* the first bytes of what it is ordered by */
    const kv_indexed *item;
} kv_ranked;

/* Each name once, in order, with the record that counts (the highest sequence); returns how many. `out` has room for n. */
size_t kv_rank_by_name(kv_ranked *out, const kv_indexed *items, size_t n);
void kv_rank_by_tenant(kv_ranked *ranked, size_t n); /* then by sequence */

#endif
