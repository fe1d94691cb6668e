/* Which unit and which snapshot go first (kv/kv_evict.c). */
#include "kv_fixture.h"

#include "core/clock.h"

#include <stdlib.h>

static int64_t length_of(kv_store *store, int32_t tag) /* of a match; a use, as any look-up */
{
    int32_t ids[KV_UNIT_TOKENS];
    kv_match match;
    kv_find(store, fix_salt, fix_ids(tag, ids), KV_UNIT_TOKENS, NULL, INT64_MAX, &match);
    return match.n_units;
}

static void what_was_never_hit_goes_in_the_order_of_its_use(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 0, NULL);
    for (int32_t tag = 0; tag < 4; tag++) {
        fix_add(store, NULL, tag);
    }
    for (int32_t tag = 4; tag < 6; tag++) {
        fix_add(store, NULL, tag);
    }
    assert_int_equal(length_of(store, 0), 0);
    assert_int_equal(length_of(store, 1), 0);
    assert_int_equal(length_of(store, 2), 1);
    fix_free(store);
}

static void whole_branches_go_before_newer_ones(void **state)
{
    (void)state;
    kv_store *const store = fix_store(9, 0, NULL);
    const int32_t old_one[] = {1, 2, 3, 4};
    const int32_t new_one[] = {5, 6, 7, 8};
    fix_chain(store, old_one, 4);
    fix_chain(store, new_one, 4);
    kv_trim(store, 5, 0);
    fix_check(store);
    assert_int_equal(fix_find(store, old_one, 4).n_units, 1); /* the last ones first */
    assert_int_equal(fix_find(store, new_one, 4).n_units, 4);
    kv_trim(store, 3, 0);
    assert_int_equal(fix_find(store, old_one, 4).n_units, 0);
    assert_int_equal(fix_find(store, new_one, 4).n_units, 3);
    fix_free(store);
}

static void a_hit_outlasts_younger_units(void **state)
{
    (void)state;
    kv_store *const store = fix_store(8, 0, NULL);
    for (int32_t tag = 0; tag < 8; tag++) {
        fix_add(store, NULL, tag);
    }
    assert_int_equal(length_of(store, 0), 1);
    for (int32_t tag = 100; tag < 107; tag++) {
        fix_add(store, NULL, tag); /* all but the one that was hit */
    }
    assert_int_equal(length_of(store, 0), 1);
    assert_int_equal(length_of(store, 7), 0);
    fix_free(store);
}

static void old_fame_fades(void **state)
{
    (void)state;
    kv_store *const store = fix_store(8, 0, NULL);
    fix_add(store, NULL, 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(length_of(store, 0), 1);
    }
    int32_t tag = 1;
    for (; tag < 1000 && fix_counters(store).pages_evicted < 7 * 5; tag++) {
        fix_add(store, NULL, tag);
    }
    const kv_counters before = fix_counters(store);
    assert_int_equal(length_of(store, 0), 1); /* five turnovers are fewer than the limit of seven; this is a use again */
    assert_int_equal(before.units, 8);
    for (int32_t i = 0; i < 7 * 12; i++) {
        fix_add(store, NULL, tag + i);
    }
    assert_int_equal(length_of(store, 0), 0);
    fix_free(store);
}

static void the_end_of_a_run_is_a_use(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 0, NULL);
    const int32_t tags[] = {1, 2};
    kv_unit *const last = fix_chain(store, tags, 2);
    assert_true(kv_pin(last));
    fix_add(store, NULL, 3);
    fix_add(store, NULL, 4);
    kv_unpin(store, last);
    kv_trim(store, 2, 0);
    assert_int_equal(fix_find(store, tags, 2).n_units, 2);
    assert_int_equal(length_of(store, 3), 0);
    assert_int_equal(length_of(store, 4), 0);
    fix_free(store);
}

static void leaves_that_give_no_page_go_last(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 0, NULL);
    const int32_t tags[] = {1, 2, 3};
    kv_unit *const last = fix_chain(store, tags, 3);
    kv_slot *const page = kv_unit_page(last);
    assert_true(kv_hold(page));
    fix_add(store, NULL, 9);
    kv_slot *const first = kv_take_page(store, false);
    assert_int_equal(fix_find(store, tags, 3).n_units, 3); /* older, but the other one gave the page */
    assert_int_equal(fix_counters(store).pages_evicted, 1);
    kv_slot *const second = kv_take_page(store, false);
    assert_int_equal(fix_counters(store).pages_evicted, 3); /* the leaf in the way and its parent */
    assert_int_equal(fix_find(store, tags, 3).n_units, 1);
    fix_check(store);
    kv_drop(store, first);
    kv_drop(store, second);
    kv_drop(store, page);
    fix_free(store);
}

/* ---- snapshots ---- */

typedef struct path {
    int32_t tags[300];
    kv_unit *units[300]; /* [0] unused: [i] is the i-th */
} path;

static void path_init(path *p, kv_store *store, int32_t first_tag, int64_t n)
{
    p->units[0] = NULL;
    for (int64_t i = 0; i < n; i++) {
        p->tags[i] = first_tag + (int32_t)i;
        p->units[i + 1] = fix_add(store, p->units[i], p->tags[i]);
    }
}

static bool has(const path *p, int64_t unit)
{
    return kv_unit_snapshot(p->units[unit]) != NULL;
}

static void snapshots_on_the_way_go_before_the_one_that_was_used(void **state)
{
    (void)state;
    kv_store *const store = fix_store(100, 10, NULL);
    path p;
    path_init(&p, store, 1, 50);
    for (int64_t i = 16; i <= 48; i += 16) {
        fix_snapshot(store, p.units[i]);
    }
    fix_snapshot(store, p.units[50]); /* two units behind another: of little value until it is used */
    assert_int_equal(fix_find(store, p.tags, 50).n_resume, 50);
    kv_trim(store, 100, 3);
    assert_false(has(&p, 16));
    kv_trim(store, 100, 2);
    assert_true(has(&p, 50));
    kv_trim(store, 100, 1);
    assert_true(has(&p, 50));
    assert_int_equal(fix_counters(store).units, 50); /* units stay */
    assert_int_equal(fix_find(store, p.tags, 50).n_resume, 50);
    kv_trim(store, 100, 0);
    assert_int_equal(fix_find(store, p.tags, 50).n_resume, 0);
    fix_free(store);
}

static void a_weaker_snapshot_goes_even_if_it_was_used_last(void **state)
{
    (void)state;
    kv_store *const store = fix_store(100, 10, NULL);
    path p;
    path other;
    path_init(&p, store, 1, 12);
    path_init(&other, store, 1000, 60);
    fix_snapshot(store, p.units[10]);
    fix_snapshot(store, p.units[12]);
    fix_snapshot(store, other.units[60]);
    assert_int_equal(fix_find(store, p.tags, 12).n_resume, 12);
    assert_int_equal(fix_find(store, p.tags, 12).n_resume, 12);
    assert_int_equal(fix_find(store, p.tags, 11).n_resume, 10);
    kv_trim(store, 100, 2);
    assert_false(has(&p, 10));
    assert_true(has(&p, 12));
    assert_true(has(&other, 60));
    fix_free(store);
}

static void a_shared_beginning_keeps_its_snapshot(void **state)
{
    (void)state;
    kv_store *const store = fix_store(200, 4, NULL);
    path stem;
    path_init(&stem, store, 1, 16);
    fix_snapshot(store, stem.units[16]);
    for (int32_t i = 0; i < 40; i++) {
        assert_int_equal(fix_find(store, stem.tags, 16).n_resume, 16);
        fix_snapshot(store, fix_add(store, stem.units[16], 1000 + i));
        fix_check(store);
    }
    assert_true(has(&stem, 16));
    assert_int_equal(fix_counters(store).states_evicted, 37);
    fix_free(store);
}

static void a_snapshot_gains_when_the_one_before_it_goes(void **state)
{
    (void)state;
    kv_store *const store = fix_store(200, 3, NULL);
    path p;
    path other;
    path_init(&p, store, 1, 40);
    path_init(&other, store, 1000, 30);
    fix_snapshot(store, p.units[20]);     /* saves 20 units */
    fix_snapshot(store, p.units[40]);     /* 20, and 40 without the other */
    fix_snapshot(store, other.units[30]); /* 30 */
    kv_trim(store, 200, 2);
    assert_false(has(&p, 20));
    kv_trim(store, 200, 1);
    assert_true(has(&p, 40));
    assert_false(has(&other, 30));
    fix_free(store);
}

static void a_held_snapshot_stays(void **state)
{
    (void)state;
    kv_store *const store = fix_store(10, 2, NULL);
    kv_unit *const a = fix_add(store, NULL, 1);
    kv_unit *const b = fix_add(store, a, 2);
    fix_snapshot(store, a);
    fix_snapshot(store, b);
    assert_true(kv_hold(kv_unit_snapshot(a)));
    assert_true(kv_reserve(store, 0, 1));
    assert_false(kv_reserve(store, 0, 1));
    kv_slot *const running = kv_take_state(store, true);
    assert_non_null(running);
    assert_non_null(kv_unit_snapshot(a));
    assert_null(kv_unit_snapshot(b));
    fix_check(store);
    kv_drop(store, running);
    kv_drop(store, kv_unit_snapshot(a));
    fix_free(store);
}

/* ---- time ---- */

enum { MANY = 100000 };

static void very_many_units_are_quick(void **state)
{
    (void)state;
    kv_store *const store = fix_store(MANY, MANY / 16, NULL);
    const int64_t start_ns = clock_now_ns();
    kv_unit *unit = NULL;
    for (int32_t i = 0; i < MANY; i++) { /* long branches from one stem */
        unit = fix_add(store, i % 8192 == 0 ? NULL : unit, i);
        if (i % 16 == 15) {
            fix_snapshot(store, unit);
        }
    }
    const int64_t added_ns = clock_now_ns();
    fix_check(store);
    const int64_t checked_ns = clock_now_ns();
    for (int i = 0; i < 100; i++) { /* the longest walk up */
        assert_true(kv_pin(unit));
        kv_unpin(store, unit);
    }
    const int64_t pinned_ns = clock_now_ns();
    int32_t *const tags = malloc(8192 * sizeof *tags);
    for (int32_t i = 0; i < 8192; i++) {
        tags[i] = i;
    }
    const int64_t before_ns = clock_now_ns();
    assert_int_equal(fix_find(store, tags, 8192).n_resume, 8192);
    const int64_t found_ns = clock_now_ns();
    free(tags);
    kv_trim(store, MANY, 0);
    const int64_t snapshots_ns = clock_now_ns();
    kv_trim(store, 0, 0);
    const int64_t end_ns = clock_now_ns();
    assert_int_equal(fix_counters(store).pages_evicted, MANY);
    assert_int_equal(fix_counters(store).states_evicted, MANY / 16);
    print_message("add %.2f us a unit, check %.0f ms, pin and unpin %.1f us, look up %.2f us a unit, evict %.2f us a snapshot and "
                  "%.2f us a unit\n",
                  (double)(added_ns - start_ns) / 1e3 / MANY, (double)(checked_ns - added_ns) / 1e6,
                  (double)(pinned_ns - checked_ns) / 1e5, (double)(found_ns - before_ns) / 1e3 / 8192,
                  (double)(snapshots_ns - found_ns) / 1e3 / (MANY / 16), (double)(end_ns - snapshots_ns) / 1e3 / MANY);
    assert_true(end_ns - snapshots_ns < 5000000000); /* far more than it takes */
    fix_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_never_hit_goes_in_the_order_of_its_use),
        cmocka_unit_test(whole_branches_go_before_newer_ones),
        cmocka_unit_test(a_hit_outlasts_younger_units),
        cmocka_unit_test(old_fame_fades),
        cmocka_unit_test(the_end_of_a_run_is_a_use),
        cmocka_unit_test(leaves_that_give_no_page_go_last),
        cmocka_unit_test(snapshots_on_the_way_go_before_the_one_that_was_used),
        cmocka_unit_test(a_weaker_snapshot_goes_even_if_it_was_used_last),
        cmocka_unit_test(a_shared_beginning_keeps_its_snapshot),
        cmocka_unit_test(a_snapshot_gains_when_the_one_before_it_goes),
        cmocka_unit_test(a_held_snapshot_stays),
        cmocka_unit_test(very_many_units_are_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
