/* kv_check.c - every invariant of the store, for tests and fuzzing; see kv.h and kv_int.h.
 *
 * Each check computes what the incremental code keeps from what it was derived from: standings from references, counters from slots,
 * locks and children from parents, ranks from uses, keys from ids. It writes only the scratch fields of units. */
#include "kv/kv_int.h"

#include <string.h>

static bool slot_is_sound(const kv_pool *pool, const kv_slot *slot, const kv_slab *slab)
{
    const char *const memory = slab->memory;
    const kv_unit *const unit = slot->unit;
    const bool in_tree = unit == NULL || (slot->refs > 0 && (pool == &pool->store->pages ? unit->page : unit->snapshot) == slot);
    return slot->pool == pool && slot->refs >= 0 && in_tree && slot->standing == kv_standing_of(slot) &&
           slot->data == memory + (size_t)(slot - slab->slots) * pool->slot_bytes;
}

static const char *check_slots(const kv_pool *pool)
{
    int64_t count[KV_STANDINGS] = {0};
    int64_t n = 0;
    for (const kv_slab *slab = pool->slabs; slab != NULL; slab = slab->next) {
        for (int64_t i = 0; i < slab->n; i++) {
            if (!slot_is_sound(pool, &slab->slots[i], slab)) {
                return "slot";
            }
            count[slab->slots[i].standing]++;
        }
        n += slab->n;
    }
    if (n != pool->n_slots || n > pool->max) {
        return "number of slots";
    }
    return memcmp(count, pool->count, sizeof count) == 0 ? NULL : "counters of slots";
}

static const char *check_pool(const kv_pool *pool)
{
    const char *const broken = check_slots(pool);
    if (broken != NULL) {
        return broken;
    }
    int64_t n_free = 0;
    for (const kv_slot *slot = pool->free; slot != NULL; slot = slot->next_free) {
        n_free++;
        if (slot->standing != KV_FREE || n_free > pool->n_slots) {
            return "free list";
        }
    }
    if (n_free != pool->count[KV_FREE]) {
        return "length of the free list";
    }
    const bool kept = pool->promised >= 0 && pool->promised <= pool->count[KV_FREE] + pool->count[KV_EVICTABLE];
    return kept ? NULL : "promises";
}

static const char *check_heap(const kv_heap *heap, int64_t n_candidates)
{
    if (heap->n != n_candidates || heap->n > heap->capacity) {
        return "number of victims";
    }
    for (int64_t i = 0; i < heap->n; i++) {
        if (heap->items[i]->at != i + 1 || (i > 0 && kv_rank_before(heap->items[i], heap->items[(i - 1) / 2]))) {
            return "order of victims";
        }
    }
    return NULL;
}

static const char *check_unit(const kv_store *store, const kv_unit *unit)
{
    if (unit->store != store || unit->page == NULL || unit->page->unit != unit ||
        (unit->snapshot != NULL && unit->snapshot->unit != unit)) {
        return "slots of a unit";
    }
    for (const kv_unit *other = *kv_bucket(store, unit->key); other != unit; other = other->next) {
        if (other == NULL || memcmp(other->key, unit->key, KV_KEY_BYTES) == 0) {
            return "index";
        }
    }
    const kv_unit *const parent = unit->parent;
    uint8_t key[KV_KEY_BYTES];
    if (parent != NULL && (!kv_key_next(store->name_space, parent->key, unit->ids, unit->image, key) ||
                           memcmp(key, unit->key, sizeof key) != 0)) {
        return "key";
    }
    if (unit->depth != (parent != NULL ? parent->depth + 1 : 1)) {
        return "depth";
    }
    if (unit->n_pins < 0 || unit->n_children != unit->seen_children || unit->n_locked != unit->seen_locked) {
        return "children and locks";
    }
    const bool candidate = kv_unit_is_victim(unit);
    if ((unit->rank.at != 0) != candidate || (candidate && unit->rank.value != kv_unit_value(unit))) {
        return "rank of a unit";
    }
    const bool snapshot_candidate = unit->snapshot != NULL && unit->snapshot->standing == KV_EVICTABLE;
    return (unit->snapshot_rank.at != 0) == snapshot_candidate ? NULL : "rank of a snapshot";
}

/* The next unit in the order of the index, NULL behind the last; *bucket is the walk's place. */
static kv_unit *next_unit(const kv_store *store, const kv_unit *unit, size_t *bucket)
{
    kv_unit *next = unit != NULL ? unit->next : NULL;
    while (next == NULL && *bucket < store->n_buckets) {
        next = store->buckets[(*bucket)++];
    }
    return next;
}

/* Fills the scratch fields of all units. */
static void count_children(const kv_store *store)
{
    size_t bucket = 0;
    for (kv_unit *unit = next_unit(store, NULL, &bucket); unit != NULL; unit = next_unit(store, unit, &bucket)) {
        unit->seen_children = 0;
        unit->seen_locked = 0;
    }
    bucket = 0;
    for (const kv_unit *unit = next_unit(store, NULL, &bucket); unit != NULL; unit = next_unit(store, unit, &bucket)) {
        if (unit->parent != NULL) {
            unit->parent->seen_children++;
            unit->parent->seen_locked += kv_locked(unit);
        }
    }
}

static const char *check_tree(const kv_store *store)
{
    count_children(store);
    int64_t n_units = 0;
    int64_t n_leaves = 0;
    int64_t n_snapshots = 0;
    size_t bucket = 0;
    for (const kv_unit *unit = next_unit(store, NULL, &bucket); unit != NULL; unit = next_unit(store, unit, &bucket)) {
        const char *const broken = check_unit(store, unit);
        if (broken != NULL) {
            return broken;
        }
        n_units++;
        n_leaves += unit->rank.at != 0;
        n_snapshots += unit->snapshot_rank.at != 0;
    }
    const kv_counters *const sums = &store->sums;
    if (n_units != sums->units || sums->published - sums->pages_evicted != n_units) {
        return "number of units";
    }
    const char *const broken = check_heap(&store->pages.victims, n_leaves);
    return broken != NULL ? broken : check_heap(&store->states.victims, n_snapshots);
}

const char *kv_check(const kv_store *store)
{
    const char *broken = check_pool(&store->pages);
    if (broken == NULL) {
        broken = check_pool(&store->states);
    }
    return broken != NULL ? broken : check_tree(store);
}
