/* kv_evict.c - which unit or snapshot goes next.
 *
 * GreedyDual with frequency: what is used gets the value clock + cost * (1 + uses), the least value goes, and the clock moves on to the
 * value of what went, so that unused things age without being touched (Young, "The k-server dual and loose competitiveness for
 * paging", 1994; Cao and Irani, USITS 1997; frequency: Cherkasova, HPL-98-69, 1998). Sizes are equal within a pool. Equal values go
 * by last use, so what was never hit goes in LRU order. Uses count up to a limit: old fame lasts for that many turnovers.
 *
 *  - Units: the cost of each is one unit of prefill. Only leaves of the tree without pins are candidates; a parent becomes one when its
 *    last child goes. A leaf whose page a sequence holds gives no slot: it is marked so that it goes behind all others.
 *  - Snapshots: the cost is the number of units up to the nearest snapshot before it that was resumed from at least as often (weaker
 *    ones go first, so they will not be there), up to SPAN_MAX. It grows when snapshots before it go; so a victim's value is computed
 *    again, and a victim yields to a weaker snapshot before it.
 *
 * Costs: O(log n) for a use or an eviction plus SPAN_MAX steps for a snapshot, nothing is ever scanned. */
#include "kv/kv_int.h"

#include "core/arith.h"

#include <stddef.h>
#include <stdlib.h>

enum {
    USES_MAX = 7,
    SPAN_MAX = 64, /* units: 8192 tokens */
    RETRIES = 8    /* values computed again for one eviction */
};

#define HELD ((uint64_t)1 << 63)

/* ---- the heap ---- */

bool kv_heap_init(kv_heap *heap, int64_t capacity)
{
    *heap = (kv_heap){.items = ar_calloc((size_t)capacity, sizeof(kv_rank *)), .capacity = capacity};
    return heap->items != NULL;
}

void kv_heap_fini(kv_heap *heap)
{
    free(heap->items);
    *heap = (kv_heap){0};
}

bool kv_rank_before(const kv_rank *a, const kv_rank *b)
{
    return a->value != b->value ? a->value < b->value : a->tick < b->tick;
}

static void heap_set(kv_heap *heap, int64_t i, kv_rank *item)
{
    heap->items[i] = item;
    item->at = i + 1;
}

static void heap_up(kv_heap *heap, int64_t i, kv_rank *item)
{
    while (i > 0 && kv_rank_before(item, heap->items[(i - 1) / 2])) {
        heap_set(heap, i, heap->items[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_set(heap, i, item);
}

static void heap_down(kv_heap *heap, int64_t i, kv_rank *item)
{
    for (int64_t child = 2 * i + 1; child < heap->n; child = 2 * i + 1) {
        if (child + 1 < heap->n && kv_rank_before(heap->items[child + 1], heap->items[child])) {
            child++;
        }
        if (!kv_rank_before(heap->items[child], item)) {
            break;
        }
        heap_set(heap, i, heap->items[child]);
        i = child;
    }
    heap_set(heap, i, item);
}

/* Restores the order around place i, which `item` takes. */
static void heap_place(kv_heap *heap, int64_t i, kv_rank *item)
{
    if (i > 0 && kv_rank_before(item, heap->items[(i - 1) / 2])) {
        heap_up(heap, i, item);
    } else {
        heap_down(heap, i, item);
    }
}

static void heap_remove(kv_heap *heap, kv_rank *item)
{
    const int64_t i = item->at - 1;
    heap->n--;
    item->at = 0;
    if (i < heap->n) {
        heap_place(heap, i, heap->items[heap->n]);
    }
}

/* A candidate stands in the heap under this value and tick, anything else stands in none. */
static void heap_update(kv_heap *heap, kv_rank *item, bool candidate, uint64_t value)
{
    item->value = value;
    if (candidate && item->at == 0) {
        heap->n++;
        heap_up(heap, heap->n - 1, item);
    } else if (candidate) {
        heap_place(heap, item->at - 1, item);
    } else if (item->at != 0) {
        heap_remove(heap, item);
    }
}

static void advance(kv_pool *pool, uint64_t value)
{
    if (value > pool->clock) {
        pool->clock = value;
    }
}

/* ---- units ---- */

static kv_unit *unit_of(kv_rank *rank)
{
    return (kv_unit *)(void *)((char *)rank - offsetof(kv_unit, rank));
}

bool kv_unit_is_victim(const kv_unit *unit)
{
    return unit->n_children == 0 && !kv_locked(unit);
}

uint64_t kv_unit_value(const kv_unit *unit)
{
    return unit->value | (unit->page->refs > 1 ? HELD : 0);
}

void kv_unit_rank(kv_unit *unit)
{
    heap_update(&unit->store->pages.victims, &unit->rank, kv_unit_is_victim(unit), kv_unit_value(unit));
}

void kv_unit_unrank(kv_unit *unit)
{
    heap_update(&unit->store->pages.victims, &unit->rank, false, 0);
}

void kv_unit_use(kv_unit *unit, bool hit)
{
    if (hit && unit->hits < USES_MAX) {
        unit->hits++;
    }
    unit->value = unit->store->pages.clock + 1 + (uint64_t)unit->hits;
    unit->rank.tick = unit->store->now;
    kv_unit_rank(unit);
}

static void evict_unit(kv_store *store)
{
    kv_unit *const victim = unit_of(store->pages.victims.items[0]);
    advance(&store->pages, victim->value);
    kv_unit_remove(victim);
    store->sums.pages_evicted++;
}

/* Leaves that give no slot are asked only when no other leaf is left, and then one of their ancestors gives it. */
void kv_evict_page(kv_store *store)
{
    while (store->pages.count[KV_FREE] == 0) {
        evict_unit(store);
    }
}

/* ---- snapshots ---- */

static kv_unit *unit_of_snapshot(kv_rank *rank)
{
    return (kv_unit *)(void *)((char *)rank - offsetof(kv_unit, snapshot_rank));
}

/* The units that would be computed again without this snapshot and the weaker ones before it. *weakest: of those that can go, the one
 * to go first, or NULL. */
static uint64_t span_of(const kv_unit *unit, kv_unit **weakest)
{
    *weakest = NULL;
    kv_unit *before = unit->parent;
    uint64_t span = 1;
    for (; span < SPAN_MAX && before != NULL; before = before->parent, span++) {
        if (before->snapshot == NULL) {
            continue;
        }
        if (before->resumes >= unit->resumes) {
            break;
        }
        const bool less = *weakest == NULL || before->resumes < (*weakest)->resumes ||
                          (before->resumes == (*weakest)->resumes &&
                           kv_rank_before(&before->snapshot_rank, &(*weakest)->snapshot_rank));
        if (before->snapshot->standing == KV_EVICTABLE && less) {
            *weakest = before;
        }
    }
    return span;
}

static uint64_t snapshot_value(const kv_unit *unit, kv_unit **weakest)
{
    return unit->base + span_of(unit, weakest) * (1 + (uint64_t)unit->resumes);
}

void kv_snapshot_rank(kv_unit *unit)
{
    const bool candidate = unit->snapshot != NULL && unit->snapshot->standing == KV_EVICTABLE;
    kv_unit *weakest;
    const uint64_t value = candidate ? snapshot_value(unit, &weakest) : 0;
    heap_update(&unit->store->states.victims, &unit->snapshot_rank, candidate, value);
}

void kv_snapshot_use(kv_unit *unit, bool resume)
{
    if (resume && unit->resumes < USES_MAX) {
        unit->resumes++;
    }
    unit->base = unit->store->states.clock;
    unit->snapshot_rank.tick = unit->store->now;
    kv_snapshot_rank(unit);
}

void kv_evict_state(kv_store *store)
{
    kv_heap *const victims = &store->states.victims;
    kv_unit *weakest;
    kv_unit *least = unit_of_snapshot(victims->items[0]);
    uint64_t value = snapshot_value(least, &weakest);
    for (int tries = 0; tries < RETRIES && value > least->snapshot_rank.value; tries++) {
        heap_update(victims, &least->snapshot_rank, true, value);
        least = unit_of_snapshot(victims->items[0]);
        value = snapshot_value(least, &weakest);
    }
    advance(&store->states, least->snapshot_rank.value);
    kv_snapshot_remove(weakest != NULL ? weakest : least);
}

void kv_trim(kv_store *store, int64_t max_pages, int64_t max_states)
{
    const int64_t *const pages = store->pages.count;
    const int64_t *const states = store->states.count;
    while (pages[KV_EVICTABLE] > 0 && pages[KV_LOCKED] + pages[KV_EVICTABLE] > max_pages) {
        evict_unit(store);
    }
    while (states[KV_EVICTABLE] > 0 && states[KV_EVICTABLE] > max_states) {
        kv_evict_state(store);
    }
}
