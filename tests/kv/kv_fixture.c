/* kv_fixture.c - see kv_fixture.h. */
#include "kv_fixture.h"

#include <stdlib.h>

const kv_salt fix_salt = {"tenant", 6};

static void *memory_alloc(void *user, size_t bytes)
{
    fix_memory *const memory = user;
    if (memory != NULL && memory->left == 0) {
        memory->refused++;
        return NULL;
    }
    void *const p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory != NULL && p != NULL) {
        memory->left--;
        memory->live++;
    }
    return p;
}

static void memory_free(void *user, void *p)
{
    fix_memory *const memory = user;
    if (memory != NULL) {
        memory->live--;
    }
    free(p);
}

kv_memory fix_kv_memory(fix_memory *memory)
{
    return (kv_memory){memory_alloc, memory_free, memory};
}

kv_store *fix_store(int64_t max_pages, int64_t max_states, fix_memory *memory)
{
    const kv_options options = {.page_bytes = FIX_PAGE_BYTES,
                                .state_bytes = FIX_STATE_BYTES,
                                .max_pages = max_pages,
                                .max_states = max_states,
                                .name_space = {1, 2, 3},
                                .memory = fix_kv_memory(memory)};
    kv_store *store = NULL;
    di_error err;
    if (kv_store_new(&options, &store, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return store;
}

void fix_check(const kv_store *store)
{
    const char *const broken = kv_check(store);
    if (broken != NULL) {
        fail_msg("broken: %s", broken);
    }
}

kv_counters fix_counters(const kv_store *store)
{
    kv_counters counters;
    kv_get_counters(store, &counters);
    return counters;
}

void fix_free(kv_store *store)
{
    fix_check(store);
    const kv_counters counters = fix_counters(store);
    assert_int_equal(counters.pages_used, 0);
    assert_int_equal(counters.states_used, 0);
    kv_store_free(store);
}

const int32_t *fix_ids(int32_t tag, int32_t out[KV_UNIT_TOKENS])
{
    for (int32_t i = 0; i < KV_UNIT_TOKENS; i++) {
        out[i] = i + (i == 77 ? tag : 0);
    }
    return out;
}

kv_unit *fix_add(kv_store *store, kv_unit *parent, int32_t tag)
{
    int32_t ids[KV_UNIT_TOKENS];
    kv_slot *const page = kv_take_page(store, false);
    assert_non_null(page);
    kv_unit *const unit = kv_publish(store, parent, fix_salt, fix_ids(tag, ids), NULL, page);
    kv_drop(store, page);
    assert_non_null(unit);
    return unit;
}

kv_unit *fix_chain(kv_store *store, const int32_t *tags, int64_t n)
{
    kv_unit *unit = NULL;
    for (int64_t i = 0; i < n; i++) {
        unit = fix_add(store, unit, tags[i]);
    }
    return unit;
}

void fix_snapshot(kv_store *store, kv_unit *unit)
{
    kv_slot *const state = kv_take_state(store, false);
    assert_non_null(state);
    kv_attach_snapshot(store, unit, state);
    assert_ptr_equal(kv_unit_snapshot(unit), state);
    kv_drop(store, state);
}

kv_match fix_find(kv_store *store, const int32_t *tags, int64_t n)
{
    int32_t *const ids = malloc((size_t)(n > 0 ? n : 1) * KV_UNIT_TOKENS * sizeof *ids);
    assert_non_null(ids);
    for (int64_t i = 0; i < n; i++) {
        fix_ids(tags[i], ids + i * KV_UNIT_TOKENS);
    }
    kv_match match;
    kv_find(store, fix_salt, ids, n * KV_UNIT_TOKENS, NULL, INT64_MAX, &match);
    free(ids);
    return match;
}
