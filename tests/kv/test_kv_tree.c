/* Keys, look-up, publishing and pins (kv/kv_tree.c). */
#include "kv_fixture.h"

#include "core/digest.h"
#include "kv/kv_int.h"

#include <string.h>

static void expect_key(const kv_unit *unit, const char *hex)
{
    char text[DIGEST_HEX_BYTES];
    digest_hex(unit->key, text);
    assert_string_equal(text, hex);
}

/* Computed outside from the formula in the head of kv_tree.c. */
static void keys_have_their_values(void **state)
{
    (void)state;
    kv_store *const store = fix_store(3, 0, NULL);
    int32_t ids[KV_UNIT_TOKENS];
    uint8_t image[KV_KEY_BYTES];
    for (uint8_t i = 0; i < KV_KEY_BYTES; i++) {
        image[i] = i;
    }
    kv_unit *const first = fix_add(store, NULL, 1);
    expect_key(first, "46b81c768148923be73806bd0ce6ee96938bc8ebad500a23c5ac9e961759db9b");
    kv_slot *const pages[] = {kv_take_page(store, false), kv_take_page(store, false)};
    expect_key(kv_publish(store, first, (kv_salt){0}, fix_ids(-2, ids), image, pages[0]), "3bf695464c939fa818f9123830b3d732d69ef4c658ca4e8dd0777494e421a65b");
    expect_key(kv_publish(store, NULL, (kv_salt){0}, fix_ids(1, ids), NULL, pages[1]), "9f7bb7489bc827f9d682b03bc5148034c8db1950590d2331e5ab01cf77cdabd9");
    kv_drop(store, pages[0]);
    kv_drop(store, pages[1]);
    fix_free(store);
}

static void a_new_store_matches_nothing(void **state)
{
    (void)state;
    kv_store *const store = fix_store(0, 0, NULL);
    const int32_t tags[] = {1, 2};
    const kv_match match = fix_find(store, tags, 2);
    assert_int_equal(match.n_units, 0);
    assert_null(match.last);
    assert_null(match.resume);
    const kv_counters c = fix_counters(store);
    assert_int_equal(c.lookups, 1);
    assert_int_equal(c.lookup_tokens, 256);
    assert_int_equal(c.matched_tokens, 0);
    fix_free(store);
}

static void the_longest_prefix_of_whole_units_matches(void **state)
{
    (void)state;
    kv_store *const store = fix_store(10, 0, NULL);
    const int32_t long_one[] = {1, 2, 3};
    const int32_t branch[] = {1, 2, 4, 5};
    const int32_t inside[] = {2, 3};
    kv_unit *const last = fix_chain(store, long_one, 3);
    const kv_match match = fix_find(store, branch, 4);
    assert_int_equal(match.n_units, 2);
    assert_ptr_equal(match.last, kv_parent(last));
    assert_int_equal(match.n_resume, 0);
    assert_null(match.resume);
    assert_null(kv_parent(kv_parent(match.last)));
    assert_int_equal(fix_find(store, long_one, 3).n_units, 3);
    assert_ptr_equal(fix_find(store, long_one, 3).last, last);
    assert_int_equal(fix_find(store, inside, 2).n_units, 0); /* a prefix, not a part */
    int32_t ids[2 * KV_UNIT_TOKENS];
    fix_ids(1, ids);
    fix_ids(2, ids + KV_UNIT_TOKENS);
    kv_match short_match;
    kv_find(store, fix_salt, ids, 255, NULL, INT64_MAX, &short_match);
    assert_int_equal(short_match.n_units, 1);
    kv_find(store, fix_salt, ids, 256, NULL, 255, &short_match);
    assert_int_equal(short_match.n_units, 1);
    kv_find(store, fix_salt, ids, 256, NULL, 127, &short_match);
    assert_int_equal(short_match.n_units, 0);
    kv_find(store, fix_salt, ids, 256, NULL, INT64_MIN, &short_match);
    assert_int_equal(short_match.n_units, 0);
    kv_find(store, fix_salt, NULL, 0, NULL, INT64_MAX, &short_match);
    assert_int_equal(short_match.n_units, 0);
    assert_int_equal(fix_counters(store).matched_tokens, (2 + 3 + 3 + 1 + 1) * 128);
    fix_free(store);
}

static void tenants_share_nothing(void **state)
{
    (void)state;
    kv_store *const store = fix_store(10, 0, NULL);
    static const kv_salt salts[] = {{NULL, 0}, {"a", 1}, {"b", 1}, {"a\0", 2}, {"tenant", 5}};
    int32_t ids[KV_UNIT_TOKENS];
    kv_match match;
    fix_ids(1, ids);
    for (size_t i = 0; i < sizeof salts / sizeof *salts; i++) {
        kv_find(store, salts[i], ids, KV_UNIT_TOKENS, NULL, INT64_MAX, &match);
        assert_int_equal(match.n_units, 0);
        kv_slot *const page = kv_take_page(store, false);
        kv_unit *const unit = kv_publish(store, NULL, salts[i], ids, NULL, page);
        assert_ptr_equal(kv_unit_page(unit), page);
        kv_drop(store, page);
        kv_find(store, salts[i], ids, KV_UNIT_TOKENS, NULL, INT64_MAX, &match);
        assert_ptr_equal(match.last, unit);
    }
    assert_int_equal(fix_counters(store).units, 5);
    fix_free(store);
}

static void images_are_part_of_the_prefix(void **state)
{
    (void)state;
    kv_store *const store = fix_store(10, 0, NULL);
    static const uint8_t image[2][KV_KEY_BYTES] = {{7}, {0}};
    static const uint8_t other[2][KV_KEY_BYTES] = {{8}, {0}};
    static const uint8_t none[2][KV_KEY_BYTES];
    int32_t ids[2 * KV_UNIT_TOKENS];
    fix_ids(1, ids);
    fix_ids(2, ids + KV_UNIT_TOKENS);
    kv_slot *const pages[] = {kv_take_page(store, false), kv_take_page(store, false)};
    kv_unit *const first = kv_publish(store, NULL, fix_salt, ids, image[0], pages[0]);
    kv_unit *const second = kv_publish(store, first, fix_salt, ids + KV_UNIT_TOKENS, NULL, pages[1]);
    kv_match match;
    kv_find(store, fix_salt, ids, 256, image, 256, &match);
    assert_ptr_equal(match.last, second);
    assert_int_equal(match.n_units, 2);
    kv_find(store, fix_salt, ids, 256, other, 256, &match);
    assert_int_equal(match.n_units, 0);
    kv_find(store, fix_salt, ids, 256, none, 256, &match);
    assert_int_equal(match.n_units, 0);
    kv_find(store, fix_salt, ids, 256, NULL, 256, &match);
    assert_int_equal(match.n_units, 0);
    kv_drop(store, pages[0]);
    kv_drop(store, pages[1]);
    fix_free(store);
}

/* Equal keys of different prefixes do not exist as far as anybody knows: one is made by changing what a unit holds. */
static void a_key_alone_is_not_believed(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 0, NULL);
    const int32_t tags[] = {1, 2};
    kv_unit *const last = fix_chain(store, tags, 2);
    int32_t ids[KV_UNIT_TOKENS];
    kv_slot *const page = kv_take_page(store, false);
    last->ids[127]++;
    assert_int_equal(fix_find(store, tags, 2).n_units, 1);
    assert_null(kv_publish(store, kv_parent(last), fix_salt, fix_ids(2, ids), NULL, page));
    last->ids[127]--;
    last->image[31]++;
    assert_int_equal(fix_find(store, tags, 2).n_units, 1);
    last->image[31]--;
    kv_unit *const parent = last->parent;
    last->parent = NULL;
    assert_int_equal(fix_find(store, tags, 2).n_units, 1);
    last->parent = parent;
    assert_int_equal(fix_find(store, tags, 2).n_units, 2);
    kv_drop(store, page);
    fix_free(store);
}

static void an_equal_unit_is_published_once(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 0, NULL);
    kv_unit *const unit = fix_add(store, NULL, 1);
    int32_t ids[KV_UNIT_TOKENS];
    kv_slot *const page = kv_take_page(store, false);
    assert_ptr_equal(kv_publish(store, NULL, fix_salt, fix_ids(1, ids), NULL, page), unit);
    assert_ptr_not_equal(kv_unit_page(unit), page);
    assert_false(kv_shared(page));
    kv_drop(store, page);
    const kv_counters c = fix_counters(store);
    assert_int_equal(c.published, 1);
    assert_int_equal(c.duplicates, 1);
    assert_int_equal(c.pages_cached, 1);
    fix_free(store);
}

/* A promise for everything else: the sequence gives its own page for the shared one. */
static void a_duplicate_page_can_be_exchanged_under_promises(void **state)
{
    (void)state;
    kv_store *const store = fix_store(3, 0, NULL);
    kv_unit *const first = fix_add(store, NULL, 1);
    kv_unit *const second = fix_add(store, first, 2);
    int32_t ids[KV_UNIT_TOKENS];
    assert_true(kv_pin(first));
    kv_slot *const page = kv_take_page(store, false);
    assert_true(kv_reserve(store, 1, 0));
    assert_ptr_equal(kv_publish(store, first, fix_salt, fix_ids(2, ids), NULL, page), second);
    assert_false(kv_pin(second));
    kv_drop(store, page);
    assert_true(kv_hold(kv_unit_page(second)));
    assert_true(kv_pin(second));
    kv_unpin(store, first);
    kv_slot *const next = kv_take_page(store, true);
    assert_non_null(next);
    fix_check(store);
    kv_drop(store, next);
    kv_drop(store, kv_unit_page(second));
    kv_unpin(store, second);
    fix_free(store);
}

static void a_slot_has_one_place_in_the_tree(void **state)
{
    (void)state;
    kv_store *const store = fix_store(4, 2, NULL);
    int32_t ids[KV_UNIT_TOKENS];
    kv_slot *const page = kv_take_page(store, false);
    kv_unit *const unit = kv_publish(store, NULL, fix_salt, fix_ids(1, ids), NULL, page);
    assert_null(kv_publish(store, unit, fix_salt, fix_ids(2, ids), NULL, page));
    kv_unit *const other = fix_add(store, NULL, 3);
    kv_slot *const ring = kv_take_state(store, false);
    assert_null(kv_publish(store, unit, fix_salt, fix_ids(2, ids), NULL, ring));
    kv_attach_snapshot(store, unit, page);
    assert_null(kv_unit_snapshot(unit));
    kv_attach_snapshot(store, unit, ring);
    kv_attach_snapshot(store, other, ring);
    assert_ptr_equal(kv_unit_snapshot(unit), ring);
    assert_null(kv_unit_snapshot(other));
    kv_slot *const later = kv_take_state(store, false);
    kv_attach_snapshot(store, unit, later); /* the first stays */
    assert_ptr_equal(kv_unit_snapshot(unit), ring);
    assert_false(kv_shared(later));
    fix_check(store);
    kv_drop(store, ring);
    kv_drop(store, later);
    kv_drop(store, page);
    fix_free(store);
}

static void a_match_resumes_at_its_last_snapshot(void **state)
{
    (void)state;
    kv_store *const store = fix_store(10, 10, NULL);
    const int32_t tags[] = {1, 2, 3, 4, 5};
    const int32_t branch[] = {1, 2, 3, 9};
    kv_unit *const last = fix_chain(store, tags, 5);
    kv_unit *const third = kv_parent(kv_parent(last));
    kv_unit *const second = kv_parent(third);
    fix_snapshot(store, second);
    kv_match match = fix_find(store, branch, 4);
    assert_int_equal(match.n_units, 3);
    assert_ptr_equal(match.last, third);
    assert_int_equal(match.n_resume, 2);
    assert_ptr_equal(match.resume, second);
    fix_snapshot(store, last);
    match = fix_find(store, tags, 5);
    assert_int_equal(match.n_resume, 5);
    assert_ptr_equal(match.resume, last);
    assert_ptr_equal(fix_find(store, tags, 4).resume, second);
    assert_int_equal(fix_counters(store).resumed_tokens, (2 + 5 + 2) * 128);
    fix_free(store);
}

static void pins_protect_a_unit_and_its_ancestors(void **state)
{
    (void)state;
    kv_store *const store = fix_store(5, 5, NULL);
    const int32_t tags[] = {1, 2, 3, 4};
    kv_unit *const last = fix_chain(store, tags, 4);
    kv_unit *const third = kv_parent(last);
    fix_snapshot(store, third);
    assert_true(kv_pin(NULL));
    assert_true(kv_pin(third));
    assert_true(kv_pin(third));
    assert_true(kv_pin(kv_parent(third)));
    kv_counters c = fix_counters(store);
    assert_int_equal(c.pages_cached, 4);
    assert_int_equal(c.pages_evictable, 1);
    assert_int_equal(c.states_cached, 1);
    kv_trim(store, 0, 0);
    c = fix_counters(store);
    assert_int_equal(c.units, 3);
    assert_int_equal(c.states_evicted, 1);
    assert_int_equal(fix_find(store, tags, 4).n_units, 3);
    kv_unpin(store, third);
    kv_trim(store, 0, 0);
    assert_int_equal(fix_counters(store).units, 3);
    kv_unpin(store, third);
    fix_check(store);
    kv_trim(store, 0, 0);
    assert_int_equal(fix_counters(store).units, 2);
    kv_unit *const second = fix_find(store, tags, 4).last;
    kv_unpin(store, second);
    kv_unpin(store, second); /* has none any more */
    kv_unpin(store, NULL);
    fix_check(store);
    kv_trim(store, 0, 0);
    c = fix_counters(store);
    assert_int_equal(c.units, 0);
    assert_int_equal(c.pages_evicted, 4);
    assert_int_equal(c.pages_free, 5);
    fix_free(store);
}

static void branches_lock_what_they_share(void **state)
{
    (void)state;
    kv_store *const store = fix_store(5, 0, NULL);
    kv_unit *const stem = fix_add(store, NULL, 1);
    kv_unit *const left = fix_add(store, stem, 2);
    kv_unit *const right = fix_add(store, stem, 3);
    assert_true(kv_pin(left));
    assert_true(kv_pin(right));
    assert_int_equal(fix_counters(store).pages_evictable, 0);
    kv_unpin(store, left);
    assert_int_equal(fix_counters(store).pages_evictable, 1);
    assert_true(kv_pin(stem));
    kv_unpin(store, right);
    assert_int_equal(fix_counters(store).pages_evictable, 2);
    kv_unpin(store, stem);
    assert_int_equal(fix_counters(store).pages_evictable, 3);
    fix_free(store);
}

static void a_held_page_outlives_its_unit(void **state)
{
    (void)state;
    kv_store *const store = fix_store(2, 1, NULL);
    const int32_t tags[] = {1, 2};
    kv_unit *const last = fix_chain(store, tags, 2);
    fix_snapshot(store, last);
    kv_slot *const page = kv_unit_page(last);
    kv_slot *const ring = kv_unit_snapshot(last);
    assert_true(kv_hold(page));
    assert_true(kv_hold(ring));
    memset(kv_data(page), 0x5A, FIX_PAGE_BYTES);
    assert_true(kv_reserve(store, 1, 0)); /* the first unit's, behind the second */
    assert_false(kv_reserve(store, 1, 0));
    kv_slot *const taken = kv_take_page(store, true);
    assert_non_null(taken);
    kv_counters c = fix_counters(store);
    assert_int_equal(c.units, 0);
    assert_int_equal(c.pages_used, 2);
    assert_int_equal(c.states_used, 1);
    assert_int_equal(c.states_evicted, 1);
    assert_int_equal(((const unsigned char *)kv_data(page))[FIX_PAGE_BYTES - 1], 0x5A);
    int32_t ids[KV_UNIT_TOKENS];
    kv_unit *const again = kv_publish(store, NULL, fix_salt, fix_ids(1, ids), NULL, page); /* may enter the tree once more */
    assert_ptr_equal(kv_unit_page(again), page);
    kv_attach_snapshot(store, again, ring);
    assert_ptr_equal(kv_unit_snapshot(again), ring);
    fix_check(store);
    kv_drop(store, page);
    kv_drop(store, ring);
    kv_drop(store, taken);
    fix_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_their_values),
        cmocka_unit_test(a_new_store_matches_nothing),
        cmocka_unit_test(the_longest_prefix_of_whole_units_matches),
        cmocka_unit_test(tenants_share_nothing),
        cmocka_unit_test(images_are_part_of_the_prefix),
        cmocka_unit_test(a_key_alone_is_not_believed),
        cmocka_unit_test(an_equal_unit_is_published_once),
        cmocka_unit_test(a_duplicate_page_can_be_exchanged_under_promises),
        cmocka_unit_test(a_slot_has_one_place_in_the_tree),
        cmocka_unit_test(a_match_resumes_at_its_last_snapshot),
        cmocka_unit_test(pins_protect_a_unit_and_its_ancestors),
        cmocka_unit_test(branches_lock_what_they_share),
        cmocka_unit_test(a_held_page_outlives_its_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
