/* kv_fixture.h - a small store over memory that can run out, and prefixes to fill it with. */
#ifndef TESTS_KV_FIXTURE_H
#define TESTS_KV_FIXTURE_H

#include "support/unit.h"

#include "kv/kv.h"

enum { FIX_PAGE_BYTES = 128, FIX_STATE_BYTES = 192, FIX_SLAB_PAGES = 64 };

typedef struct fix_memory {
    int64_t left; /* allocations that still succeed; negative = all */
    int64_t live;
    int64_t refused;
} fix_memory;

kv_memory fix_kv_memory(fix_memory *memory);

/* Over memory that does not run out when `memory` is NULL. */
kv_store *fix_store(int64_t max_pages, int64_t max_states, fix_memory *memory);
void fix_free(kv_store *store); /* checks that nothing but the tree holds slots */
void fix_check(const kv_store *store);
kv_counters fix_counters(const kv_store *store);

extern const kv_salt fix_salt;

/* The ids of a unit that `tag` names: equal tags give equal ids. */
const int32_t *fix_ids(int32_t tag, int32_t out[KV_UNIT_TOKENS]);

/* Publishes unit `tag` behind parent with a page of its own, which the tree alone holds afterwards. */
kv_unit *fix_add(kv_store *store, kv_unit *parent, int32_t tag);

/* fix_add for each tag in turn, the first as a first unit. Returns the last unit. */
kv_unit *fix_chain(kv_store *store, const int32_t *tags, int64_t n);
void fix_snapshot(kv_store *store, kv_unit *unit); /* a state that the tree alone holds afterwards */

/* kv_find over the ids of these tags. */
kv_match fix_find(kv_store *store, const int32_t *tags, int64_t n);

#endif
