/* kv_tree.c - units: their keys, look-up, publishing, pins.
 *
 * A hit is believed only when ids, image digest and parent are equal too; since the parent was verified the same way, the whole prefix
 * is. A colliding key is a miss.
 *
 * Locks: a unit is locked by its own pins and by locked children, so a pin walks up only as far as units that were not locked yet, and
 * the number of evictable pages is exact. A unit that is not locked has no locked descendant: leaf by leaf it can be evicted. */
#include "kv/kv_int.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t no_image[KV_KEY_BYTES];

/* ---- the index ---- */

kv_unit **kv_bucket(const kv_store *store, const uint8_t key[KV_KEY_BYTES])
{
    uint64_t hash;
    memcpy(&hash, key, sizeof hash);
    return &store->buckets[hash & (store->n_buckets - 1)];
}

static kv_unit *unit_with(const kv_store *store, const uint8_t key[KV_KEY_BYTES])
{
    kv_unit *unit = *kv_bucket(store, key);
    while (unit != NULL && memcmp(unit->key, key, KV_KEY_BYTES) != 0) {
        unit = unit->next;
    }
    return unit;
}

static bool is_same(const kv_unit *unit, const kv_unit *parent, const int32_t *ids, const uint8_t *image)
{
    return unit->parent == parent && memcmp(unit->ids, ids, sizeof unit->ids) == 0 &&
           memcmp(unit->image, image, KV_KEY_BYTES) == 0;
}

/* ---- look-up ---- */

static void add_match(kv_unit *unit, kv_match *out)
{
    kv_unit_use(unit, true);
    out->n_units = unit->depth;
    out->last = unit;
    if (unit->snapshot != NULL) {
        out->n_resume = unit->depth;
        out->resume = unit;
    }
}

/* The unit of these ids behind `parent`, whose key `key` becomes its own; NULL when it is not there. */
static kv_unit *child_of(const kv_store *store, const kv_unit *parent, const int32_t *ids, const uint8_t *image, uint8_t key[KV_KEY_BYTES])
{
    kv_unit *const unit = kv_key_next(store->name_space, key, ids, image, key) ? unit_with(store, key) : NULL;
    return unit != NULL && is_same(unit, parent, ids, image) ? unit : NULL;
}

void kv_find(kv_store *store, kv_salt salt, const int32_t *ids, int64_t n, const uint8_t (*image)[KV_KEY_BYTES],
             int64_t max_tokens, kv_match *out)
{
    *out = (kv_match){0};
    const int64_t n_units = (n < max_tokens ? n : max_tokens) / KV_UNIT_TOKENS;
    uint8_t key[KV_KEY_BYTES];
    bool more = n_units > 0 && kv_key_root(store->name_space, salt, key);
    store->now++;
    for (int64_t i = 0; i < n_units && more; i++) {
        kv_unit *const unit = child_of(store, out->last, ids + i * KV_UNIT_TOKENS, image != NULL ? image[i] : no_image, key);
        more = unit != NULL;
        if (more) {
            add_match(unit, out);
        }
    }
    if (out->resume != NULL) {
        kv_snapshot_use(out->resume, true);
    }
    store->sums.lookups++;
    store->sums.lookup_tokens += n > 0 ? n : 0;
    store->sums.matched_tokens += out->n_units * KV_UNIT_TOKENS;
    store->sums.resumed_tokens += out->n_resume * KV_UNIT_TOKENS;
}

kv_unit *kv_peek(const kv_store *store, kv_salt salt, const int32_t *ids, int64_t n_units)
{
    kv_unit *last = NULL;
    uint8_t key[KV_KEY_BYTES];
    bool more = n_units > 0 && kv_key_root(store->name_space, salt, key);
    for (int64_t i = 0; i < n_units && more; i++) {
        kv_unit *const unit = child_of(store, last, ids + i * KV_UNIT_TOKENS, no_image, key);
        more = unit != NULL;
        last = more ? unit : last;
    }
    return last;
}

int64_t kv_depth(const kv_unit *unit)
{
    return unit != NULL ? unit->depth : 0;
}

kv_unit *kv_parent(const kv_unit *unit)
{
    return unit->parent;
}

const uint8_t *kv_unit_key(const kv_unit *unit)
{
    return unit->key;
}

kv_slot *kv_unit_page(const kv_unit *unit)
{
    return unit->page;
}

kv_slot *kv_unit_snapshot(const kv_unit *unit)
{
    return unit->snapshot;
}

/* ---- adding and removing ---- */

static bool may_enter_tree(const kv_slot *slot, const kv_pool *pool)
{
    return slot->pool == pool && slot->refs > 0 && slot->unit == NULL;
}

static void enter_tree(kv_unit *unit, kv_slot *slot)
{
    slot->unit = unit;
    slot->refs++;
    kv_slot_settle(slot);
}

static kv_unit *add_unit(kv_store *store, const kv_unit *like, kv_slot *page)
{
    kv_unit *const unit = malloc(sizeof *unit);
    if (unit == NULL) {
        return NULL;
    }
    *unit = *like;
    kv_unit **const bucket = kv_bucket(store, unit->key);
    unit->next = *bucket;
    *bucket = unit;
    unit->page = page;
    kv_unit_use(unit, false);
    enter_tree(unit, page);
    if (unit->parent != NULL) {
        unit->parent->n_children++;
        kv_unit_use(unit->parent, false);
    }
    store->sums.units++;
    store->sums.published++;
    return unit;
}

kv_unit *kv_publish(kv_store *store, kv_unit *parent, kv_salt salt, const int32_t ids[KV_UNIT_TOKENS], const uint8_t *image,
                    kv_slot *page)
{
    kv_unit like = {.store = store, .parent = parent, .depth = parent != NULL ? parent->depth + 1 : 1};
    memcpy(like.image, image != NULL ? image : no_image, sizeof like.image);
    memcpy(like.ids, ids, sizeof like.ids);
    if (parent != NULL) {
        memcpy(like.key, parent->key, sizeof like.key);
    } else if (!kv_key_root(store->name_space, salt, like.key)) {
        return NULL;
    }
    if (!kv_key_next(store->name_space, like.key, ids, like.image, like.key)) {
        return NULL;
    }
    store->now++;
    kv_unit *const there = unit_with(store, like.key);
    if (there == NULL) {
        return may_enter_tree(page, &store->pages) ? add_unit(store, &like, page) : NULL;
    }
    if (!is_same(there, parent, ids, like.image)) {
        return NULL;
    }
    store->sums.duplicates++;
    kv_unit_use(there, false);
    return there;
}

void kv_attach_snapshot(kv_store *store, kv_unit *unit, kv_slot *state)
{
    if (unit->snapshot != NULL || !may_enter_tree(state, &store->states)) {
        return;
    }
    store->now++;
    unit->snapshot = state;
    unit->resumes = 0;
    enter_tree(unit, state);
    kv_snapshot_use(unit, false);
}

void kv_snapshot_remove(kv_unit *unit)
{
    kv_slot *const state = unit->snapshot;
    unit->snapshot = NULL;
    kv_snapshot_rank(unit);
    kv_slot_leave_tree(state);
    unit->store->sums.states_evicted++;
}

void kv_unit_remove(kv_unit *unit)
{
    kv_store *const store = unit->store;
    if (unit->snapshot != NULL) {
        kv_snapshot_remove(unit);
    }
    kv_unit **place = kv_bucket(store, unit->key);
    while (*place != unit) {
        place = &(*place)->next;
    }
    *place = unit->next;
    kv_unit_unrank(unit);
    kv_slot_leave_tree(unit->page);
    if (unit->parent != NULL) {
        unit->parent->n_children--;
        kv_unit_rank(unit->parent);
    }
    store->sums.units--;
    free(unit);
}

/* ---- pins ---- */

bool kv_pin(kv_unit *unit)
{
    if (unit == NULL) {
        return true;
    }
    int64_t n_evictable = 0;
    for (const kv_unit *u = unit; u != NULL && !kv_locked(u); u = u->parent) {
        n_evictable += u->page->standing == KV_EVICTABLE;
    }
    if (!kv_pool_cover(&unit->store->pages, n_evictable)) {
        return false;
    }
    bool first = !kv_locked(unit);
    unit->n_pins++;
    for (kv_unit *u = unit; first; u = u->parent) {
        kv_slot_settle(u->page);
        first = u->parent != NULL && !kv_locked(u->parent);
        if (u->parent != NULL) {
            u->parent->n_locked++;
        }
    }
    return true;
}

void kv_unpin(kv_store *store, kv_unit *unit)
{
    if (unit == NULL || unit->n_pins == 0) {
        return;
    }
    store->now++;
    unit->n_pins--;
    kv_unit *u = unit;
    while (u != NULL && !kv_locked(u)) {
        kv_slot_settle(u->page);
        kv_unit_use(u, false);
        if (u->parent != NULL) {
            u->parent->n_locked--;
        }
        u = u->parent;
    }
}
