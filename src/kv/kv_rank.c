/* kv_rank.c - see kv_rank.h. Names are digests, so three words of them are nearly always enough; what is equal in these is compared whole,
 * whoever made it. */
#include "kv/kv_rank.h"

#include <stdlib.h>
#include <string.h>

static uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return __builtin_bswap64(word); /* the first byte counts most */
}

static int by_rank(const kv_ranked *a, const kv_ranked *b)
{
    for (size_t i = 0; i < 3; i++) {
        if (a->rank[i] != b->rank[i]) {
            return a->rank[i] < b->rank[i] ? -1 : 1;
        }
    }
    return 0;
}

/* Of two records of one name the one that counts comes first. */
static int by_name(const void *a, const void *b)
{
    int order = by_rank(a, b);
    if (order == 0) {
        const kv_indexed *const x = ((const kv_ranked *)a)->item;
        const kv_indexed *const y = ((const kv_ranked *)b)->item;
        order = memcmp(&x->name, &y->name, sizeof x->name);
        order = order != 0 ? order : (x->entry.sequence < y->entry.sequence) - (x->entry.sequence > y->entry.sequence);
    }
    return order;
}

static int by_tenant(const void *a, const void *b)
{
    return by_rank(a, b);
}

size_t kv_rank_by_name(kv_ranked *out, const kv_indexed *items, size_t n)
{
    size_t n_names = 0;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *const name = items[i].name.bytes;
        out[i] = (kv_ranked){{word_at(name), word_at(name + 8), word_at(name + 16)}, &items[i]};
    }
    qsort(out, n, sizeof *out, by_name);
    for (size_t i = 0; i < n; i++) {
        if (n_names == 0 || memcmp(&out[n_names - 1].item->name, &out[i].item->name, sizeof items->name) != 0) {
            out[n_names++] = out[i];
        }
    }
    return n_names;
}

void kv_rank_by_tenant(kv_ranked *ranked, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const kv_entry *const entry = &ranked[i].item->entry;
        ranked[i] = (kv_ranked){{word_at(entry->tenant), word_at(entry->tenant + 8), entry->sequence}, ranked[i].item};
    }
    qsort(ranked, n, sizeof *ranked, by_tenant);
}
