/* Random operations on a store beside a naive model: what it holds, what may be evicted and what is promised are counted again from
 * scratch after every step, and kv_check looks at the inside. The model does not know the policy but for one thing: a single victim
 * is the least of all. Pages carry what they are a page of, so that a match is known to give the bytes that were published. */
#include "kv_fixture.h"

#include "kv/kv_int.h"

#include <string.h>

enum { MAX_UNITS = 160, MAX_HELD = 400, MAX_DEPTH = 12, TAGS = 3, SALTS = 2, STEPS = 16000, PHASE = 200 };

typedef struct model_unit {
    kv_unit *unit; /* NULL = not in the tree */
    int parent;    /* -1 = none */
    int32_t tag;
    int salt; /* of first units */
    int pins;
    kv_slot *page;
    kv_slot *snapshot;
    uint64_t name; /* of the prefix */
    uint64_t value; /* as they were before the step */
    uint64_t tick;
} model_unit;

typedef struct world {
    kv_store *store;
    fix_memory memory;
    uint64_t random;
    int64_t max_pages;
    int64_t max_states;
    int64_t promised_pages;
    int64_t promised_states;
    model_unit units[MAX_UNITS];
    kv_slot *held[MAX_HELD]; /* one entry a reference */
    int n_held;
    int64_t evicted_pages; /* by the last step: pages that nobody held */
    int64_t evicted_units;
    int64_t evicted_states;
    model_unit victim; /* one of them */
    int64_t matches; /* how far the test reached */
    int64_t refusals;
    int64_t refused_pins;
    int64_t evictions;
} world;

static const kv_salt salts[SALTS] = {{"one", 3}, {"two", 3}};

static int64_t below(world *w, int64_t n)
{
    return (int64_t)(unit_random(&w->random) % (uint64_t)n);
}

/* ---- the model's view ---- */

static int held_by_callers(const world *w, const kv_slot *slot)
{
    int n = 0;
    for (int i = 0; i < w->n_held; i++) {
        n += w->held[i] == slot;
    }
    return n;
}

static bool is_under(const world *w, int unit, int ancestor)
{
    for (; unit >= 0; unit = w->units[unit].parent) {
        if (unit == ancestor) {
            return true;
        }
    }
    return false;
}

static bool locked(const world *w, int unit)
{
    for (int i = 0; i < MAX_UNITS; i++) {
        if (w->units[i].unit != NULL && w->units[i].pins > 0 && is_under(w, i, unit)) {
            return true;
        }
    }
    return false;
}

static bool is_leaf(const world *w, int unit)
{
    for (int i = 0; i < MAX_UNITS; i++) {
        if (w->units[i].unit != NULL && w->units[i].parent == unit) {
            return false;
        }
    }
    return true;
}

static bool page_evictable(const world *w, int unit)
{
    return w->units[unit].unit != NULL && held_by_callers(w, w->units[unit].page) == 0 && !locked(w, unit);
}

static int64_t used(const world *w, bool pages)
{
    int64_t n = 0;
    for (int i = 0; i < w->n_held; i++) {
        bool first = (w->held[i]->pool == &w->store->pages) == pages;
        for (int j = 0; j < i; j++) {
            first = first && w->held[j] != w->held[i];
        }
        n += first;
    }
    return n;
}

static void compare(const world *w)
{
    int64_t units = 0;
    int64_t cached = 0;
    int64_t evictable = 0;
    int64_t snapshots = 0;
    for (int i = 0; i < MAX_UNITS; i++) {
        const model_unit *const u = &w->units[i];
        if (u->unit != NULL) {
            units++;
            cached += held_by_callers(w, u->page) == 0;
            evictable += page_evictable(w, i);
            snapshots += u->snapshot != NULL && held_by_callers(w, u->snapshot) == 0;
        }
    }
    const kv_counters c = fix_counters(w->store);
    assert_int_equal(c.units, units);
    assert_int_equal(c.pages_used, used(w, true));
    assert_int_equal(c.pages_cached, cached);
    assert_int_equal(c.pages_evictable, evictable);
    assert_int_equal(c.pages_used + c.pages_cached + c.pages_free + c.pages_absent, w->max_pages);
    assert_int_equal(c.pages_promised, w->promised_pages);
    assert_true(c.pages_free + c.pages_evictable >= c.pages_promised);
    assert_int_equal(c.states_used, used(w, false));
    assert_int_equal(c.states_cached, snapshots);
    assert_int_equal(c.states_used + c.states_cached + c.states_free + c.states_absent, w->max_states);
    assert_int_equal(c.states_promised, w->promised_states);
    assert_true(c.states_free + c.states_cached >= c.states_promised);
    fix_check(w->store);
}

static bool in_tree(const world *w, const kv_unit *unit)
{
    for (size_t b = 0; b < w->store->n_buckets; b++) {
        for (const kv_unit *u = w->store->buckets[b]; u != NULL; u = u->next) {
            if (u == unit) {
                return true;
            }
        }
    }
    return false;
}

/* Learns what a step evicted, which must be allowed: nothing pinned, no unit before those behind it, no snapshot in use. */
static void learn_evictions(world *w)
{
    bool gone[MAX_UNITS] = {false};
    w->evicted_pages = 0;
    w->evicted_units = 0;
    w->evicted_states = 0;
    for (int i = 0; i < MAX_UNITS; i++) {
        model_unit *const u = &w->units[i];
        gone[i] = u->unit != NULL && !in_tree(w, u->unit);
        if (gone[i]) {
            assert_false(locked(w, i));
            w->victim = *u;
            w->evicted_units++;
            w->evicted_pages += held_by_callers(w, u->page) == 0;
            w->evictions++;
        }
        if (u->unit != NULL && u->snapshot != NULL && (gone[i] || kv_unit_snapshot(u->unit) == NULL)) {
            assert_true(gone[i] || held_by_callers(w, u->snapshot) == 0);
            w->evicted_states += held_by_callers(w, u->snapshot) == 0;
            u->snapshot = NULL;
        }
    }
    for (int i = 0; i < MAX_UNITS; i++) {
        const bool orphan = w->units[i].unit != NULL && w->units[i].parent >= 0 && gone[w->units[i].parent];
        assert_true(!orphan || gone[i]);
    }
    for (int i = 0; i < MAX_UNITS; i++) {
        if (gone[i]) {
            w->units[i].unit = NULL;
        }
    }
}

static void remember_ranks(world *w)
{
    for (int i = 0; i < MAX_UNITS; i++) {
        if (w->units[i].unit != NULL) {
            w->units[i].value = w->units[i].unit->value;
            w->units[i].tick = w->units[i].unit->rank.tick;
        }
    }
}

static bool goes_before(const model_unit *a, const model_unit *b)
{
    return a->value != b->value ? a->value < b->value : a->tick < b->tick;
}

/* The leaf that is to be evicted for a page; -1: none gives one at once. */
static int least_leaf(const world *w)
{
    int least = -1;
    for (int i = 0; i < MAX_UNITS; i++) {
        if (page_evictable(w, i) && is_leaf(w, i) && (least < 0 || goes_before(&w->units[i], &w->units[least]))) {
            least = i;
        }
    }
    return least;
}

/* Slots that n more can be had from, if memory lasts. */
static bool covers(const world *w, bool pages, int64_t n)
{
    const kv_counters c = fix_counters(w->store);
    const int64_t ready =
        pages ? c.pages_free + c.pages_evictable - c.pages_promised : c.states_free + c.states_cached - c.states_promised;
    const int64_t absent = w->memory.left != 0 ? (pages ? c.pages_absent : c.states_absent) : 0;
    return ready + absent >= n;
}

/* ---- steps ---- */

static int any_unit(world *w)
{
    int n = 0;
    int some = -1;
    for (int i = 0; i < MAX_UNITS; i++) {
        if (w->units[i].unit != NULL && below(w, ++n) == 0) {
            some = i;
        }
    }
    return some;
}

static void keep(world *w, kv_slot *slot)
{
    w->held[w->n_held++] = slot;
}

static void step_take(world *w)
{
    const bool pages = below(w, 3) != 0;
    const bool promised = below(w, 2) == 0;
    int64_t *const promises = pages ? &w->promised_pages : &w->promised_states;
    const bool uses_promise = promised && *promises > 0;
    const bool possible = uses_promise || covers(w, pages, 1);
    const kv_counters before = fix_counters(w->store);
    const int expected = least_leaf(w);
    kv_slot *const slot = pages ? kv_take_page(w->store, promised) : kv_take_state(w->store, promised);
    assert_int_equal(slot != NULL, possible);
    w->refusals += !possible;
    *promises -= uses_promise;
    const model_unit least = expected >= 0 ? w->units[expected] : (model_unit){0};
    learn_evictions(w);
    if ((pages ? before.pages_free : before.states_free) > 0 || !possible) {
        assert_int_equal(w->evicted_units + w->evicted_states, 0);
    } else if (pages) {
        assert_true(w->evicted_pages <= 1);
        if (w->evicted_pages == 1 && expected >= 0) {
            assert_int_equal(w->evicted_units, 1);
            assert_int_equal(w->victim.value, least.value);
            assert_int_equal(w->victim.tick, least.tick);
        }
    } else {
        assert_int_equal(w->evicted_units, 0);
        assert_true(w->evicted_states <= 1);
    }
    if (slot != NULL) {
        keep(w, slot);
    }
}

static void step_drop(world *w)
{
    if (w->n_held > 0) {
        const int64_t i = below(w, w->n_held);
        kv_drop(w->store, w->held[i]);
        w->held[i] = w->held[--w->n_held];
    }
}

static void step_hold(world *w)
{
    const int i = any_unit(w);
    kv_slot *slot = w->n_held > 0 ? w->held[below(w, w->n_held)] : NULL;
    bool costs = false;
    if (i >= 0 && below(w, 2) == 0) {
        slot = w->units[i].page;
        costs = page_evictable(w, i);
    } else if (i >= 0 && w->units[i].snapshot != NULL) {
        slot = w->units[i].snapshot;
        costs = held_by_callers(w, slot) == 0;
    }
    if (slot == NULL || w->n_held == MAX_HELD) {
        return;
    }
    const bool possible = !costs || covers(w, slot->pool == &w->store->pages, 1);
    assert_int_equal(kv_hold(slot), possible);
    w->refusals += !possible;
    if (possible) {
        keep(w, slot);
    }
}

static void step_reserve(world *w)
{
    const int64_t pages = below(w, w->max_pages / 2 + 2);
    const int64_t states = below(w, w->max_states / 2 + 2);
    if (below(w, 2) == 0) {
        kv_unreserve(w->store, pages, states);
        w->promised_pages -= pages < w->promised_pages ? pages : w->promised_pages;
        w->promised_states -= states < w->promised_states ? states : w->promised_states;
        return;
    }
    const bool possible = covers(w, true, pages) && covers(w, false, states);
    assert_int_equal(kv_reserve(w->store, pages, states), possible);
    w->refusals += !possible;
    w->promised_pages += possible ? pages : 0;
    w->promised_states += possible ? states : 0;
}

/* Promises nearly all that is left, so that what follows is refused. */
static void step_reserve_most(world *w)
{
    const kv_counters c = fix_counters(w->store);
    const int64_t left = c.pages_free + c.pages_evictable - c.pages_promised - below(w, 3);
    if (left > 0) {
        assert_true(kv_reserve(w->store, left, 0));
        w->promised_pages += left;
    }
}

static uint64_t name_of(uint64_t parent, int32_t tag)
{
    return (parent ^ (uint64_t)(tag + 1)) * 0x9E3779B97F4A7C15u;
}

static int find_model(const world *w, int parent, int salt, int32_t tag)
{
    for (int i = 0; i < MAX_UNITS; i++) {
        const model_unit *const u = &w->units[i];
        if (u->unit != NULL && u->parent == parent && u->tag == tag && (parent >= 0 || u->salt == salt)) {
            return i;
        }
    }
    return -1;
}

static bool page_in_tree(const world *w, const kv_slot *page)
{
    for (int i = 0; i < MAX_UNITS; i++) {
        if (w->units[i].unit != NULL && w->units[i].page == page) {
            return true;
        }
    }
    return false;
}

static void add_to_model(world *w, const model_unit *unit)
{
    int i = 0;
    while (w->units[i].unit != NULL) {
        i++;
    }
    assert_true(i < MAX_UNITS);
    w->units[i] = *unit;
}

static void step_publish(world *w)
{
    kv_slot *const page = w->n_held > 0 ? w->held[below(w, w->n_held)] : NULL;
    if (page == NULL || page->pool != &w->store->pages) {
        return;
    }
    const int parent = below(w, 5) == 0 ? -1 : any_unit(w);
    const int salt = (int)below(w, SALTS);
    model_unit unit = {.parent = parent, .salt = salt, .tag = (int32_t)below(w, TAGS), .page = page};
    kv_unit *const above = parent >= 0 ? w->units[parent].unit : NULL;
    if (above != NULL && above->depth == MAX_DEPTH) {
        return;
    }
    unit.name = name_of(parent >= 0 ? w->units[parent].name : (uint64_t)salt << 32, unit.tag);
    const int there = find_model(w, parent, salt, unit.tag);
    const bool refused = there < 0 && page_in_tree(w, page);
    if (!page_in_tree(w, page)) {
        memcpy(kv_data(page), &unit.name, sizeof unit.name);
    }
    int32_t ids[KV_UNIT_TOKENS];
    unit.unit = kv_publish(w->store, above, salts[salt], fix_ids(unit.tag, ids), NULL, page);
    if (refused) {
        assert_null(unit.unit);
    } else if (there >= 0) {
        assert_ptr_equal(unit.unit, w->units[there].unit);
    } else {
        assert_non_null(unit.unit);
        add_to_model(w, &unit);
    }
}

static void step_attach(world *w)
{
    const int i = any_unit(w);
    kv_slot *const state = w->n_held > 0 ? w->held[below(w, w->n_held)] : NULL;
    if (i < 0 || state == NULL) {
        return;
    }
    bool possible = state->pool == &w->store->states && w->units[i].snapshot == NULL;
    for (int k = 0; k < MAX_UNITS; k++) {
        possible = possible && (w->units[k].unit == NULL || w->units[k].snapshot != state);
    }
    kv_attach_snapshot(w->store, w->units[i].unit, state);
    w->units[i].snapshot = possible ? state : w->units[i].snapshot;
    assert_ptr_equal(kv_unit_snapshot(w->units[i].unit), w->units[i].snapshot);
}

static void step_pin(world *w)
{
    const int i = any_unit(w);
    if (i < 0) {
        return;
    }
    if (below(w, 5) > 1) {
        kv_unpin(w->store, w->units[i].unit);
        w->units[i].pins -= w->units[i].pins > 0;
        return;
    }
    int64_t n = 0;
    for (int u = i; u >= 0; u = w->units[u].parent) {
        n += page_evictable(w, u);
    }
    const bool possible = covers(w, true, n);
    assert_int_equal(kv_pin(w->units[i].unit), possible);
    w->refused_pins += !possible;
    w->units[i].pins += possible;
}

static void step_find(world *w)
{
    int32_t ids[MAX_DEPTH * KV_UNIT_TOKENS];
    const int salt = (int)below(w, SALTS);
    const int64_t n = 1 + below(w, MAX_DEPTH);
    int last = -1;
    int resume = -1;
    int64_t n_units = 0;
    bool inside = true;
    for (int64_t i = 0; i < n; i++) {
        int32_t tag = (int32_t)below(w, TAGS);
        for (int32_t t = 0; t < TAGS && inside && find_model(w, last, salt, tag) < 0; t++) {
            tag = t; /* rather along what is there */
        }
        fix_ids(tag, ids + i * KV_UNIT_TOKENS);
        const int unit = inside ? find_model(w, last, salt, tag) : -1;
        inside = unit >= 0;
        last = inside ? unit : last;
        n_units += inside;
        resume = inside && w->units[unit].snapshot != NULL ? unit : resume;
    }
    kv_match match;
    kv_find(w->store, salts[salt], ids, n * KV_UNIT_TOKENS + below(w, KV_UNIT_TOKENS), NULL, n * KV_UNIT_TOKENS, &match);
    assert_int_equal(match.n_units, n_units);
    assert_ptr_equal(match.last, last >= 0 ? w->units[last].unit : NULL);
    assert_ptr_equal(match.resume, resume >= 0 ? w->units[resume].unit : NULL);
    assert_int_equal(match.n_resume, resume >= 0 ? match.resume->depth : 0);
    for (int u = last; u >= 0; u = w->units[u].parent) {
        assert_memory_equal(kv_data(kv_unit_page(w->units[u].unit)), &w->units[u].name, sizeof w->units[u].name);
    }
    w->matches += n_units > 0;
}

static void step_trim(world *w)
{
    const kv_counters before = fix_counters(w->store);
    const int64_t pages = below(w, w->max_pages + 1);
    const int64_t states = below(w, w->max_states + 1);
    kv_trim(w->store, pages, states);
    learn_evictions(w);
    const kv_counters after = fix_counters(w->store);
    const int64_t fixed = before.pages_cached - before.pages_evictable;
    const int64_t goal = pages > fixed ? pages : fixed;
    assert_int_equal(after.pages_cached, before.pages_cached > goal ? goal : before.pages_cached);
    assert_true(after.states_cached <= states);
    assert_true(before.states_cached > states || w->evicted_units > 0 || w->evicted_states == 0);
}

/* Phases in turn, so that the store is now full of what runs, now of what is left. */
static void one_step(world *w, int step)
{
    static void (*const steps[])(world *) = {step_take,    step_take,   step_take, step_drop, step_drop, step_hold, step_reserve,
                                             step_publish, step_publish, step_publish, step_attach, step_pin, step_pin,
                                             step_find, step_find};
    remember_ranks(w);
    if (below(w, 100) == 0) {
        step_trim(w);
    } else if (below(w, 30) == 0) {
        w->memory.left = below(w, 2) == 0 ? 0 : -1;
    } else if (step / PHASE % 3 == 1 && below(w, 10) == 0) {
        step_reserve_most(w);
    } else if (step / PHASE % 3 == 2 && below(w, 3) == 0) {
        step_drop(w);
    } else if (step / PHASE % 3 == 2 && below(w, 4) == 0) {
        kv_unreserve(w->store, w->promised_pages, w->promised_states);
        w->promised_pages = 0;
        w->promised_states = 0;
    } else if (w->n_held < MAX_HELD) {
        steps[below(w, (int64_t)(sizeof steps / sizeof *steps))](w);
    } else {
        step_drop(w);
    }
}

static void run(uint64_t seed, int64_t max_pages, int64_t max_states)
{
    static world w;
    w = (world){.random = seed, .max_pages = max_pages, .max_states = max_states, .memory.left = -1};
    w.store = fix_store(max_pages, max_states, &w.memory);
    for (int step = 0; step < STEPS; step++) {
        one_step(&w, step);
        compare(&w);
    }
    while (w.n_held > 0) {
        kv_drop(w.store, w.held[--w.n_held]);
    }
    for (int i = 0; i < MAX_UNITS; i++) {
        for (; w.units[i].unit != NULL && w.units[i].pins > 0; w.units[i].pins--) {
            kv_unpin(w.store, w.units[i].unit);
        }
    }
    kv_unreserve(w.store, INT64_MAX, INT64_MAX);
    kv_trim(w.store, 0, 0);
    assert_int_equal(fix_counters(w.store).units, 0);
    print_message("%lld pages, %lld states: %lld look-ups that matched, %lld refusals, %lld of pins, %lld units evicted\n",
                  (long long)max_pages, (long long)max_states, (long long)w.matches, (long long)w.refusals,
                  (long long)w.refused_pins, (long long)w.evictions);
    assert_true(w.matches > 500 && w.refusals > 100 && w.refused_pins > 0 && w.evictions > 200);
    fix_free(w.store);
    assert_int_equal(w.memory.live, 0);
}

static void a_small_store_agrees_with_the_model(void **state)
{
    (void)state;
    run(1, 5, 2);
    run(2, 8, 4);
    run(3, 16, 4);
}

static void a_store_of_several_slabs_agrees_with_the_model(void **state)
{
    (void)state;
    run(4, 70, 10);
    run(5, 100, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_store_agrees_with_the_model),
        cmocka_unit_test(a_store_of_several_slabs_agrees_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
