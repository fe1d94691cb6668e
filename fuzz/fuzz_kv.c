/* Drives the KV store (src/kv) by bytes: sizes of the budget first, then one operation for two bytes, kv_check behind each. Besides the
 * invariants: a promised slot is always there, and a page that a caller holds keeps its bytes. */
#include "kv/kv.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT_BYTES = 64, MAX_HELD = 100, MAX_PINNED = 16, MAX_DEPTH = 8 };

typedef struct player {
    kv_store *store;
    bool no_memory;
    kv_slot *held[MAX_HELD]; /* one entry a reference */
    int n_held;
    kv_unit *pinned[MAX_PINNED]; /* one entry a pin */
    int n_pinned;
} player;

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

static void *slab_alloc(void *user, size_t bytes)
{
    const player *const p = user;
    return p->no_memory ? NULL : aligned_alloc(SLOT_BYTES, bytes);
}

static void slab_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

static void take(player *p, bool page, bool promised)
{
    if (p->n_held == MAX_HELD) {
        return;
    }
    kv_counters before;
    kv_get_counters(p->store, &before);
    kv_slot *const slot = page ? kv_take_page(p->store, promised) : kv_take_state(p->store, promised);
    require(slot != NULL || !promised || (page ? before.pages_promised : before.states_promised) == 0);
    if (slot != NULL) {
        memcpy(kv_data(slot), &slot, sizeof slot);
        p->held[p->n_held++] = slot;
    }
}

static void hold(player *p, kv_slot *slot)
{
    if (slot != NULL && p->n_held < MAX_HELD && kv_hold(slot)) {
        p->held[p->n_held++] = slot;
    }
}

static void drop(player *p, uint8_t which)
{
    if (p->n_held > 0) {
        const int i = which % p->n_held;
        kv_drop(p->store, p->held[i]);
        p->held[i] = p->held[--p->n_held];
    }
}

/* The path of a byte: its bits choose one of two units at each depth, and the salt. */
static kv_match find(player *p, uint8_t path)
{
    int32_t ids[MAX_DEPTH * KV_UNIT_TOKENS] = {0};
    for (int i = 0; i < MAX_DEPTH; i++) {
        ids[i * KV_UNIT_TOKENS + i] = path >> (i % 4) & 1;
    }
    const kv_salt salt = {&path, path >> 7};
    kv_match match;
    kv_find(p->store, salt, ids, MAX_DEPTH * KV_UNIT_TOKENS, NULL, (int64_t)(path >> 4 & 7) * KV_UNIT_TOKENS + 128, &match);
    require(match.n_units <= MAX_DEPTH && match.n_resume <= match.n_units);
    int64_t depth = 0;
    for (const kv_unit *unit = match.last; unit != NULL; unit = kv_parent(unit)) {
        require(kv_unit_page(unit) != NULL);
        depth++;
    }
    require(depth == match.n_units);
    return match;
}

static void publish(player *p, uint8_t path)
{
    const kv_match match = find(p, path);
    if (p->n_held == 0 || match.n_units == MAX_DEPTH) {
        return;
    }
    int32_t ids[KV_UNIT_TOKENS] = {0};
    ids[match.n_units] = path >> (match.n_units % 4) & 1;
    const kv_salt salt = {&path, path >> 7};
    kv_publish(p->store, match.last, salt, ids, NULL, p->held[p->n_held - 1]);
}

static void pin(player *p, uint8_t path)
{
    kv_unit *const unit = find(p, path).last;
    if (unit != NULL && p->n_pinned < MAX_PINNED && kv_pin(unit)) {
        p->pinned[p->n_pinned++] = unit;
    }
}

static void unpin(player *p, uint8_t which)
{
    if (p->n_pinned > 0) {
        const int i = which % p->n_pinned;
        kv_unpin(p->store, p->pinned[i]);
        p->pinned[i] = p->pinned[--p->n_pinned];
    }
}

static void attach(player *p, uint8_t path)
{
    kv_unit *const unit = find(p, path).last;
    if (unit != NULL && p->n_held > 0) {
        kv_attach_snapshot(p->store, unit, p->held[p->n_held - 1]);
    }
}

static void play(player *p, uint8_t what, uint8_t how)
{
    kv_match match;
    switch (what % 12) {
    case 0: take(p, true, (how & 1) != 0); break;
    case 1: take(p, false, (how & 1) != 0); break;
    case 2: drop(p, how); break;
    case 3: publish(p, how); break;
    case 4: pin(p, how); break;
    case 5: unpin(p, how); break;
    case 6: attach(p, how); break;
    case 7: kv_reserve(p->store, how & 15, how >> 6); break;
    case 8: kv_unreserve(p->store, how & 15, how >> 6); break;
    case 9: kv_trim(p->store, how & 31, how >> 5); break;
    case 10:
        match = find(p, how);
        hold(p, match.last != NULL ? kv_unit_page(match.last) : NULL);
        hold(p, match.resume != NULL ? kv_unit_snapshot(match.resume) : NULL);
        break;
    default: p->no_memory = (how & 1) != 0; break;
    }
    require(kv_check(p->store) == NULL);
    for (int i = 0; i < p->n_held; i++) {
        require(memcmp(kv_data(p->held[i]), &p->held[i], sizeof p->held[i]) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    player p = {.n_held = 0};
    const kv_options options = {.page_bytes = SLOT_BYTES,
                                .state_bytes = SLOT_BYTES,
                                .max_pages = data[0],
                                .max_states = data[1] % 16,
                                .memory = {slab_alloc, slab_free, &p}};
    require(kv_store_new(&options, &p.store, NULL) == DI_OK);
    for (size_t i = 2; i + 1 < size && i < 2000; i += 2) {
        play(&p, data[i], data[i + 1]);
    }
    while (p.n_held > 0) {
        drop(&p, 0);
    }
    while (p.n_pinned > 0) {
        unpin(&p, 0);
    }
    kv_unreserve(p.store, INT64_MAX, INT64_MAX);
    kv_trim(p.store, 0, 0);
    require(kv_check(p.store) == NULL);
    kv_counters end;
    kv_get_counters(p.store, &end);
    require(end.units == 0 && end.pages_used == 0 && end.states_used == 0 && end.pages_cached == 0 && end.states_cached == 0);
    kv_store_free(p.store);
    return 0;
}
