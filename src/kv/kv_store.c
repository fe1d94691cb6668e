/* kv_store.c - slots, slabs and promises; see kv.h.
 *
 * Taking a promised slot never fails, because a promise counts only slots that are there: free ones and evictable ones. Memory is taken
 * when a promise needs it (kv_pool_cover), so it is kv_reserve that fails when there is none. What would take a slot out of that
 * count without a promise asks kv_pool_cover too (kv_hold, kv_pin, an unpromised take).
 *
 * Taking prefers a free slot, then new memory within the budget, then eviction: nothing is evicted while the budget is not used up.
 * Memory that could not be had is asked for again only after some more takes, since a device's allocator is slow to say no. */
#include "kv/kv_int.h"

#include "core/arith.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, PAGES_PER_SLAB = 64, STATES_PER_SLAB = 1, PAUSE = 64 };

#define MAX_SLOTS ((int64_t)1 << 40)

/* ---- pools ---- */

static di_status pool_init(kv_pool *pool, kv_store *store, const char *what, size_t slot_bytes, int64_t max, int64_t slab_slots,
                           di_error *err)
{
    size_t bytes;
    if (slot_bytes == 0 || slot_bytes % ALIGNMENT != 0) {
        return err_set(err, DI_E_ARGUMENT, "%s of %zu bytes: must be a multiple of %d", what, slot_bytes, ALIGNMENT);
    }
    if (max < 0 || max > MAX_SLOTS || !ar_mul((size_t)(max > slab_slots ? max : slab_slots), slot_bytes, &bytes)) {
        return err_set(err, DI_E_ARGUMENT, "%lld %s of %zu bytes: too many", (long long)max, what, slot_bytes);
    }
    *pool = (kv_pool){.store = store, .slot_bytes = slot_bytes, .max = max, .slab_slots = slab_slots};
    if (!kv_heap_init(&pool->victims, max)) {
        return err_memory(err, what, (size_t)max * sizeof(void *));
    }
    return DI_OK;
}

static void pool_fini(kv_pool *pool)
{
    kv_slab *slab = pool->slabs;
    while (slab != NULL) {
        kv_slab *const next = slab->next;
        pool->store->memory.free(pool->store->memory.user, slab->memory);
        free(slab);
        slab = next;
    }
    kv_heap_fini(&pool->victims);
}

/* Takes the memory of one slab more. False at the end of the budget or of memory. */
static bool pool_grow(kv_pool *pool)
{
    const kv_memory *const memory = &pool->store->memory;
    const int64_t room = pool->max - pool->n_slots;
    const int64_t n = room < pool->slab_slots ? room : pool->slab_slots;
    if (n <= 0) {
        return false;
    }
    kv_slab *const slab = calloc(1, sizeof *slab + (size_t)n * sizeof slab->slots[0]);
    void *const bytes = slab != NULL ? memory->alloc(memory->user, (size_t)n * pool->slot_bytes) : NULL;
    if (bytes == NULL) {
        free(slab);
        pool->pause = PAUSE;
        return false;
    }
    slab->memory = bytes;
    slab->n = n;
    slab->next = pool->slabs;
    pool->slabs = slab;
    for (int64_t i = n - 1; i >= 0; i--) {
        kv_slot *const slot = &slab->slots[i];
        *slot = (kv_slot){.pool = pool, .data = (char *)bytes + (size_t)i * pool->slot_bytes, .next_free = pool->free};
        pool->free = slot;
    }
    pool->n_slots += n;
    pool->count[KV_FREE] += n;
    pool->pause = 0;
    return true;
}

bool kv_pool_cover(kv_pool *pool, int64_t n)
{
    if (n < 0 || n > pool->max) {
        return false;
    }
    while (pool->count[KV_FREE] + pool->count[KV_EVICTABLE] - pool->promised < n) {
        if (!pool_grow(pool)) {
            return false;
        }
    }
    return true;
}

static void unreserve(kv_pool *pool, int64_t n)
{
    if (n > 0) {
        pool->promised -= n < pool->promised ? n : pool->promised;
    }
}

/* ---- slots ---- */

kv_standing kv_standing_of(const kv_slot *slot)
{
    if (slot->refs == 0) {
        return KV_FREE;
    }
    if (slot->unit == NULL || slot->refs > 1) {
        return KV_USED;
    }
    return slot == slot->unit->page && kv_locked(slot->unit) ? KV_LOCKED : KV_EVICTABLE;
}

void kv_slot_settle(kv_slot *slot)
{
    kv_pool *const pool = slot->pool;
    pool->count[slot->standing]--;
    slot->standing = kv_standing_of(slot);
    pool->count[slot->standing]++;
    if (slot->unit != NULL && slot == slot->unit->page) {
        kv_unit_rank(slot->unit);
    } else if (slot->unit != NULL) {
        kv_snapshot_rank(slot->unit);
    }
}

static void release(kv_slot *slot)
{
    slot->refs--;
    if (slot->refs == 0) {
        slot->next_free = slot->pool->free;
        slot->pool->free = slot;
    }
    kv_slot_settle(slot);
}

void kv_slot_leave_tree(kv_slot *slot)
{
    slot->unit = NULL;
    release(slot);
}

static kv_slot *take(kv_pool *pool, bool promised, void (*evict)(kv_store *store))
{
    if (promised && pool->promised > 0) {
        pool->promised--;
    } else if (!kv_pool_cover(pool, 1)) {
        return NULL;
    }
    if (pool->free == NULL && pool->pause > 0) {
        pool->pause--;
    } else if (pool->free == NULL) {
        pool_grow(pool);
    }
    if (pool->free == NULL) {
        evict(pool->store);
    }
    kv_slot *const slot = pool->free;
    pool->free = slot->next_free;
    slot->next_free = NULL;
    slot->refs = 1;
    slot->tag = 0;
    kv_slot_settle(slot);
    return slot;
}

kv_slot *kv_take_page(kv_store *store, bool promised)
{
    return take(&store->pages, promised, kv_evict_page);
}

kv_slot *kv_take_state(kv_store *store, bool promised)
{
    return take(&store->states, promised, kv_evict_state);
}

void *kv_data(const kv_slot *slot)
{
    return slot->data;
}

bool kv_hold(kv_slot *slot)
{
    if (slot->standing == KV_EVICTABLE && !kv_pool_cover(slot->pool, 1)) {
        return false;
    }
    slot->refs++;
    kv_slot_settle(slot);
    return true;
}

void kv_drop(kv_store *store, kv_slot *slot)
{
    (void)store;
    if (slot != NULL && slot->standing == KV_USED) { /* else the tree's reference is the only one, and not the caller's to give */
        release(slot);
    }
}

bool kv_shared(const kv_slot *slot)
{
    return slot->refs > 1;
}

void kv_set_tag(kv_slot *slot, uint32_t tag)
{
    slot->tag = tag;
}

uint32_t kv_tag(const kv_slot *slot)
{
    return slot->tag;
}

/* ---- promises ---- */

bool kv_reserve(kv_store *store, int64_t n_pages, int64_t n_states)
{
    if (!kv_pool_cover(&store->pages, n_pages) || !kv_pool_cover(&store->states, n_states)) {
        return false;
    }
    store->pages.promised += n_pages;
    store->states.promised += n_states;
    return true;
}

void kv_unreserve(kv_store *store, int64_t n_pages, int64_t n_states)
{
    unreserve(&store->pages, n_pages);
    unreserve(&store->states, n_states);
}

/* ---- the store ---- */

/* One bucket a page: there are at most as many units. All at once, because growing the table in a step would be a pause. Memory
 * that no unit has touched yet costs address space only. */
static di_status index_init(kv_store *store, int64_t max_pages, di_error *err)
{
    store->n_buckets = 16;
    while (store->n_buckets < (size_t)max_pages) {
        store->n_buckets *= 2;
    }
    store->buckets = ar_calloc(store->n_buckets, sizeof(kv_unit *));
    if (store->buckets == NULL) {
        return err_memory(err, "index of the KV cache", store->n_buckets * sizeof(kv_unit *));
    }
    return DI_OK;
}

di_status kv_store_new(const kv_options *options, kv_store **out, di_error *err)
{
    if (options->memory.alloc == NULL || options->memory.free == NULL) {
        return err_set(err, DI_E_ARGUMENT, "KV cache without functions to get memory");
    }
    kv_store *const store = calloc(1, sizeof *store);
    if (store == NULL) {
        return err_memory(err, "KV cache", sizeof *store);
    }
    store->memory = options->memory;
    memcpy(store->name_space, options->name_space, sizeof store->name_space);
    di_status status =
        pool_init(&store->pages, store, "KV pages", options->page_bytes, options->max_pages, PAGES_PER_SLAB, err);
    if (status == DI_OK) {
        status = pool_init(&store->states, store, "KV states", options->state_bytes, options->max_states, STATES_PER_SLAB, err);
    }
    if (status == DI_OK) {
        status = index_init(store, options->max_pages, err);
    }
    if (status != DI_OK) {
        kv_store_free(store);
        return status;
    }
    *out = store;
    return DI_OK;
}

void kv_store_free(kv_store *store)
{
    if (store == NULL) {
        return;
    }
    for (size_t i = 0; store->buckets != NULL && i < store->n_buckets; i++) {
        kv_unit *unit = store->buckets[i];
        while (unit != NULL) {
            kv_unit *const next = unit->next;
            free(unit);
            unit = next;
        }
    }
    pool_fini(&store->pages);
    pool_fini(&store->states);
    free(store->buckets);
    free(store);
}

void kv_get_counters(const kv_store *store, kv_counters *out)
{
    const kv_pool *const pages = &store->pages;
    const kv_pool *const states = &store->states;
    *out = store->sums;
    out->pages_used = pages->count[KV_USED];
    out->pages_cached = pages->count[KV_LOCKED] + pages->count[KV_EVICTABLE];
    out->pages_evictable = pages->count[KV_EVICTABLE];
    out->pages_free = pages->count[KV_FREE];
    out->pages_absent = pages->max - pages->n_slots;
    out->pages_promised = pages->promised;
    out->states_used = states->count[KV_USED];
    out->states_cached = states->count[KV_EVICTABLE];
    out->states_free = states->count[KV_FREE];
    out->states_absent = states->max - states->n_slots;
    out->states_promised = states->promised;
    out->bytes = (size_t)pages->n_slots * pages->slot_bytes + (size_t)states->n_slots * states->slot_bytes;
}
