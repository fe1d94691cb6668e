/* Slots, slabs and promises (kv/kv_store.c). */
#include "kv_fixture.h"

#include <string.h>

static void options_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    fix_memory memory = {.left = -1};
    const kv_options good = {
        .page_bytes = 128, .state_bytes = 64, .max_pages = 4, .max_states = 4, .memory = fix_kv_memory(&memory)};
    kv_store *store = NULL;
    di_error err;
    kv_options bad = good;
    bad.page_bytes = 100;
    unit_expect_error(kv_store_new(&bad, &store, &err), DI_E_ARGUMENT, &err, "KV pages", "100 bytes", "multiple of 64", NULL);
    bad = good;
    bad.state_bytes = 0;
    unit_expect_error(kv_store_new(&bad, &store, &err), DI_E_ARGUMENT, &err, "KV states", "0 bytes", NULL);
    bad = good;
    bad.max_pages = -1;
    unit_expect_error(kv_store_new(&bad, &store, &err), DI_E_ARGUMENT, &err, "-1 KV pages", "too many", NULL);
    bad.max_pages = INT64_MAX;
    unit_expect_error(kv_store_new(&bad, &store, &err), DI_E_ARGUMENT, &err, "too many", NULL);
    bad = good;
    bad.state_bytes = SIZE_MAX / 64 * 64;
    unit_expect_error(kv_store_new(&bad, &store, &err), DI_E_ARGUMENT, &err, "KV states", "too many", NULL);
    bad = good;
    bad.memory.alloc = NULL;
    unit_expect_error(kv_store_new(&bad, &store, &err), DI_E_ARGUMENT, &err, "without functions", NULL);
    assert_null(store);
    kv_store_free(NULL);
}

static void memory_is_taken_in_slabs_when_it_is_needed(void **state)
{
    (void)state;
    fix_memory memory = {.left = -1};
    kv_store *const store = fix_store(70, 3, &memory);
    kv_counters c = fix_counters(store);
    assert_int_equal(memory.live, 0);
    assert_int_equal(c.bytes, 0);
    assert_int_equal(c.pages_absent, 70);
    kv_slot *pages[70];
    for (int i = 0; i < 70; i++) {
        pages[i] = kv_take_page(store, false);
        assert_non_null(pages[i]);
        assert_int_equal(memory.live, i < 64 ? 1 : 2);
        assert_int_equal((uintptr_t)kv_data(pages[i]) % 64, 0);
        memset(kv_data(pages[i]), i, FIX_PAGE_BYTES);
    }
    for (int i = 0; i < 70; i++) {
        const unsigned char *const bytes = kv_data(pages[i]);
        assert_int_equal(bytes[0], i);
        assert_int_equal(bytes[FIX_PAGE_BYTES - 1], i);
    }
    assert_null(kv_take_page(store, false));
    kv_slot *const running = kv_take_state(store, false);
    c = fix_counters(store);
    assert_int_equal(c.bytes, 70 * FIX_PAGE_BYTES + FIX_STATE_BYTES);
    assert_int_equal(c.pages_used, 70);
    assert_int_equal(c.pages_absent, 0);
    assert_int_equal(c.states_used, 1);
    assert_int_equal(c.states_absent, 2);
    fix_check(store);
    for (int i = 0; i < 70; i++) {
        kv_drop(store, pages[i]);
    }
    kv_drop(store, running);
    kv_drop(store, NULL);
    assert_int_equal(fix_counters(store).pages_free, 70);
    fix_free(store);
    assert_int_equal(memory.live, 0);
}

static void references_keep_a_slot(void **state)
{
    (void)state;
    kv_store *const store = fix_store(1, 0, NULL);
    kv_slot *const page = kv_take_page(store, false);
    assert_false(kv_shared(page));
    assert_true(kv_hold(page));
    assert_true(kv_shared(page));
    kv_drop(store, page);
    assert_null(kv_take_page(store, false));
    kv_drop(store, page);
    assert_ptr_equal(kv_take_page(store, false), page);
    kv_drop(store, page);
    assert_null(kv_take_state(store, false));
    fix_free(store);
}

static void a_reference_that_is_not_there_is_not_dropped(void **state)
{
    (void)state;
    kv_store *const store = fix_store(1, 0, NULL);
    kv_slot *const page = kv_unit_page(fix_add(store, NULL, 1));
    kv_drop(store, page);
    assert_int_equal(fix_counters(store).pages_cached, 1);
    kv_trim(store, 0, 0);
    kv_drop(store, page);
    assert_int_equal(fix_counters(store).pages_free, 1);
    fix_free(store);
}

static void a_promise_is_kept(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 2, NULL);
    assert_true(kv_reserve(store, 3, 1));
    assert_false(kv_reserve(store, 2, 0));
    assert_false(kv_reserve(store, 0, 2));
    assert_false(kv_reserve(store, 1, 2)); /* neither */
    assert_int_equal(fix_counters(store).pages_promised, 3);
    kv_slot *const free_one = kv_take_page(store, false);
    assert_non_null(free_one);
    assert_null(kv_take_page(store, false));
    kv_slot *pages[3];
    for (int i = 0; i < 3; i++) {
        pages[i] = kv_take_page(store, true);
        assert_non_null(pages[i]);
    }
    assert_null(kv_take_page(store, true)); /* no promise is left */
    kv_slot *const running = kv_take_state(store, true);
    assert_non_null(running);
    assert_int_equal(fix_counters(store).states_promised, 0);
    fix_check(store);
    for (int i = 0; i < 3; i++) {
        kv_drop(store, pages[i]);
    }
    kv_drop(store, running);
    kv_drop(store, free_one);
    assert_true(kv_reserve(store, 4, 2));
    kv_unreserve(store, 1, 5);
    assert_int_equal(fix_counters(store).pages_promised, 3);
    assert_int_equal(fix_counters(store).states_promised, 0);
    kv_unreserve(store, -1, -1);
    assert_int_equal(fix_counters(store).pages_promised, 3);
    fix_free(store);
}

static void amounts_out_of_range_are_not_promised(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 2, NULL);
    assert_true(kv_reserve(store, 0, 0));
    assert_false(kv_reserve(store, -1, 0));
    assert_false(kv_reserve(store, 0, -1));
    assert_false(kv_reserve(store, INT64_MAX, 0));
    assert_false(kv_reserve(store, 1, INT64_MAX));
    assert_int_equal(fix_counters(store).pages_promised, 0);
    fix_free(store);
}

static void a_promise_counts_what_can_be_evicted(void **state)
{
    (void)state;
    kv_store *const store = fix_store(3, 0, NULL);
    const int32_t tags[] = {1, 2, 3};
    kv_unit *const last = fix_chain(store, tags, 3);
    assert_true(kv_pin(kv_parent(last)));
    assert_false(kv_reserve(store, 2, 0));
    assert_true(kv_reserve(store, 1, 0));
    kv_slot *const page = kv_take_page(store, true);
    assert_non_null(page);
    assert_int_equal(fix_counters(store).pages_evicted, 1);
    assert_int_equal(fix_find(store, tags, 3).n_units, 2);
    kv_drop(store, page);
    kv_unpin(store, fix_find(store, tags, 2).last);
    fix_free(store);
}

static void what_is_promised_cannot_be_held_or_pinned(void **state)
{
    (void)state;
    kv_store *const store = fix_store(3, 1, NULL);
    const int32_t tags[] = {1, 2, 3};
    kv_unit *const last = fix_chain(store, tags, 3);
    fix_snapshot(store, last);
    assert_true(kv_reserve(store, 1, 1));
    assert_false(kv_pin(last)); /* would take three */
    assert_true(kv_pin(kv_parent(last)));
    assert_false(kv_hold(kv_unit_page(last)));
    assert_false(kv_hold(kv_unit_snapshot(last)));
    assert_true(kv_hold(kv_unit_page(kv_parent(last)))); /* locked: costs nothing */
    fix_check(store);
    kv_unreserve(store, 1, 1);
    assert_true(kv_pin(last));
    assert_true(kv_hold(kv_unit_snapshot(last)));
    assert_false(kv_reserve(store, 1, 0));
    assert_false(kv_reserve(store, 0, 1));
    fix_check(store);
    kv_drop(store, kv_unit_snapshot(last));
    kv_drop(store, kv_unit_page(kv_parent(last)));
    kv_unpin(store, last);
    kv_unpin(store, kv_parent(last));
    assert_true(kv_reserve(store, 3, 1));
    fix_free(store);
}

static void holding_takes_memory_rather_than_a_promise(void **state)
{
    (void)state;
    fix_memory memory = {.left = 1};
    kv_store *const store = fix_store(65, 0, &memory);
    kv_unit *const unit = fix_add(store, NULL, 1);
    assert_true(kv_reserve(store, 64, 0)); /* 63 free and the unit's */
    assert_false(kv_pin(unit));
    assert_false(kv_hold(kv_unit_page(unit)));
    memory.left = 1;
    assert_true(kv_pin(unit));
    assert_int_equal(memory.live, 2);
    fix_check(store);
    kv_unpin(store, unit);
    fix_free(store);
}

static void memory_that_is_not_there_is_not_promised(void **state)
{
    (void)state;
    fix_memory memory = {.left = 1};
    kv_store *const store = fix_store(1000, 10, &memory);
    assert_true(kv_reserve(store, 64, 0));
    assert_false(kv_reserve(store, 1, 0));
    assert_false(kv_reserve(store, 0, 1));
    for (int i = 0; i < 64; i++) {
        assert_non_null(kv_take_page(store, true));
    }
    assert_null(kv_take_page(store, false));
    fix_check(store);
    memory.left = -1;
    assert_true(kv_reserve(store, 900, 10));
    fix_check(store);
    kv_store_free(store);
    assert_int_equal(memory.live, 0);
}

static void nothing_is_evicted_while_the_budget_is_not_used_up(void **state)
{
    (void)state;
    fix_memory memory = {.left = -1};
    kv_store *const store = fix_store(128, 2, &memory);
    for (int32_t i = 0; i < 64; i++) {
        fix_snapshot(store, fix_add(store, NULL, i));
        if (i == 1) {
            assert_int_equal(fix_counters(store).states_evicted, 0);
        }
    }
    assert_int_equal(fix_counters(store).pages_free, 0);
    assert_true(kv_reserve(store, 1, 0)); /* takes no memory yet: the tree's pages can go */
    kv_slot *const page = kv_take_page(store, true);
    assert_int_equal(fix_counters(store).pages_evicted, 0);
    assert_int_equal(fix_counters(store).pages_free, 63);
    assert_int_equal(fix_counters(store).states_evicted, 62);
    kv_drop(store, page);
    fix_free(store);
}

static void memory_that_was_refused_is_asked_for_again_later(void **state)
{
    (void)state;
    fix_memory memory = {.left = 1};
    kv_store *const store = fix_store(128, 0, &memory);
    for (int32_t i = 0; i < 164; i++) {
        fix_add(store, NULL, i);
    }
    assert_int_equal(fix_counters(store).pages_evicted, 100);
    assert_int_equal(memory.refused, 2);
    memory.left = 1;
    for (int32_t i = 0; i < 64; i++) {
        fix_add(store, NULL, 1000 + i);
    }
    assert_int_equal(memory.live, 2);
    fix_free(store);
}

static void a_promised_page_is_had_without_memory(void **state)
{
    (void)state;
    fix_memory memory = {.left = 1};
    kv_store *const store = fix_store(128, 0, &memory);
    for (int32_t i = 0; i < 64; i++) {
        fix_add(store, NULL, i);
    }
    assert_true(kv_reserve(store, 64, 0));
    kv_slot *pages[64];
    for (int i = 0; i < 64; i++) {
        pages[i] = kv_take_page(store, true);
        assert_non_null(pages[i]);
        fix_check(store);
    }
    assert_int_equal(fix_counters(store).units, 0);
    for (int i = 0; i < 64; i++) {
        kv_drop(store, pages[i]);
    }
    fix_free(store);
}

/* A page that was kept below the device once was not kept there again with what it held later. */
static void a_slot_forgets_its_tag_when_it_is_taken_again(void **state)
{
    (void)state;
    kv_store *const store = fix_store(1, 1, NULL);
    for (int i = 0; i < 2; i++) {
        kv_slot *const slots[] = {kv_take_page(store, false), kv_take_state(store, false)};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(kv_tag(slots[k]), 0);
            kv_set_tag(slots[k], 7);
            assert_int_equal(kv_tag(slots[k]), 7);
            kv_drop(store, slots[k]);
        }
    }
    fix_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(a_slot_forgets_its_tag_when_it_is_taken_again),
        cmocka_unit_test(memory_is_taken_in_slabs_when_it_is_needed),
        cmocka_unit_test(references_keep_a_slot),
        cmocka_unit_test(a_reference_that_is_not_there_is_not_dropped),
        cmocka_unit_test(a_promise_is_kept),
        cmocka_unit_test(amounts_out_of_range_are_not_promised),
        cmocka_unit_test(a_promise_counts_what_can_be_evicted),
        cmocka_unit_test(what_is_promised_cannot_be_held_or_pinned),
        cmocka_unit_test(holding_takes_memory_rather_than_a_promise),
        cmocka_unit_test(memory_that_is_not_there_is_not_promised),
        cmocka_unit_test(nothing_is_evicted_while_the_budget_is_not_used_up),
        cmocka_unit_test(memory_that_was_refused_is_asked_for_again_later),
        cmocka_unit_test(a_promised_page_is_had_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
