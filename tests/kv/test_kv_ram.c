/* The memory tier (kv/kv_ram.c): what is found, what goes for room, what is held, expiry, purging; and a random run against its invariants. */
#include "kv/kv_ram.h"
#include "support/unit.h"

#include <string.h>

static const uint8_t *key_of(int i, uint8_t out[KV_KEY_BYTES])
{
    memset(out, 0, KV_KEY_BYTES);
    memcpy(out, &i, sizeof i);
    return out;
}

static kv_ram *new_ram(int64_t bytes)
{
    kv_ram *ram = NULL;
    assert_int_equal(kv_ram_new(bytes, &ram, NULL), DI_OK);
    return ram;
}

/* Adds and lists record i of 100 bytes, which nobody holds afterwards. False: no room. */
static bool add(kv_ram *ram, int i, uint8_t tenant)
{
    uint8_t key[KV_KEY_BYTES];
    kv_ram_record *const r = kv_ram_add(ram, key_of(i, key), KV_DISK_UNIT, 100);
    if (r == NULL) {
        return false;
    }
    memset(r->data, i, 100);
    r->tenant.id[0] = tenant;
    kv_ram_list(ram, r);
    kv_ram_drop(ram, r);
    assert_null(kv_ram_check(ram));
    return true;
}

/* Held. */
static kv_ram_record *find(kv_ram *ram, int i)
{
    uint8_t key[KV_KEY_BYTES];
    kv_ram_record *const r = kv_ram_find(ram, key_of(i, key), KV_DISK_UNIT, 1000);
    if (r != NULL) {
        const uint8_t *const bytes = r->data;
        assert_int_equal(bytes[0], (uint8_t)i);
        assert_int_equal(bytes[99], (uint8_t)i);
    }
    return r;
}

static bool has(kv_ram *ram, int i)
{
    kv_ram_record *const r = find(ram, i);
    kv_ram_drop(ram, r);
    return r != NULL;
}

static void the_least_recently_used_goes(void **state)
{
    (void)state;
    kv_ram *const ram = new_ram(350);
    for (int i = 0; i < 3; i++) {
        assert_true(add(ram, i, 0));
    }
    assert_true(has(ram, 0));
    assert_true(add(ram, 3, 0));
    assert_true(has(ram, 0));
    assert_false(has(ram, 1));
    assert_true(has(ram, 2));
    kv_ram_counters k;
    kv_ram_get_counters(ram, &k);
    assert_int_equal(k.bytes, 300);
    assert_int_equal(k.held_bytes, 0);
    assert_int_equal(k.records[KV_DISK_UNIT], 3);
    assert_int_equal(k.evicted, 1);
    kv_ram_free(ram);
}

static void what_is_held_stays(void **state)
{
    (void)state;
    kv_ram *const ram = new_ram(250);
    assert_true(add(ram, 0, 0));
    assert_true(add(ram, 1, 0));
    kv_ram_record *const zero = find(ram, 0);
    kv_ram_record *const one = find(ram, 1);
    assert_false(add(ram, 2, 0));
    kv_ram_drop(ram, zero);
    assert_true(add(ram, 2, 0));
    assert_false(has(ram, 0));
    kv_ram_drop(ram, one);
    kv_ram_free(ram);
}

static void a_record_is_found_once_it_is_complete(void **state)
{
    (void)state;
    uint8_t key[KV_KEY_BYTES];
    kv_ram *const ram = new_ram(1000);
    kv_ram_record *const r = kv_ram_add(ram, key_of(5, key), KV_DISK_UNIT, 100);
    assert_false(has(ram, 5));
    memset(r->data, 5, 100);
    kv_ram_record *const twin = kv_ram_add(ram, key, KV_DISK_UNIT, 100);
    kv_ram_list(ram, r);
    kv_ram_list(ram, twin); /* its like is there: it goes with its last hold */
    assert_null(kv_ram_check(ram));
    kv_ram_drop(ram, twin);
    assert_true(has(ram, 5));
    assert_null(kv_ram_find(ram, key, KV_DISK_SNAPSHOT, 0));
    kv_ram_drop(ram, r);
    kv_ram_free(ram);
}

static void an_expired_record_is_not_found(void **state)
{
    (void)state;
    uint8_t key[KV_KEY_BYTES];
    kv_ram *const ram = new_ram(1000);
    kv_ram_record *const r = kv_ram_add(ram, key_of(1, key), KV_DISK_UNIT, 100);
    r->expires_ns = 500;
    kv_ram_list(ram, r);
    kv_ram_record *const early = kv_ram_find(ram, key, KV_DISK_UNIT, 499);
    assert_ptr_equal(early, r);
    assert_null(kv_ram_find(ram, key, KV_DISK_UNIT, 500)); /* held twice, so it lives on, unlisted */
    assert_null(kv_ram_check(ram));
    kv_ram_drop(ram, early);
    kv_ram_drop(ram, r);
    kv_ram_counters k;
    kv_ram_get_counters(ram, &k);
    assert_int_equal(k.bytes, 0);
    assert_int_equal(k.expired, 1);
    kv_ram_free(ram);
}

static void a_purge_takes_one_tenant_or_all(void **state)
{
    (void)state;
    kv_ram *const ram = new_ram(1000);
    for (int i = 0; i < 6; i++) {
        assert_true(add(ram, i, (uint8_t)(i % 2)));
    }
    assert_int_equal(kv_ram_purge(ram, &(kv_tenant){.id = {1}}), 3);
    assert_true(has(ram, 0));
    assert_false(has(ram, 1));
    assert_int_equal(kv_ram_purge(ram, NULL), 3);
    assert_false(has(ram, 0));
    kv_ram_free(ram);
}

static void sizes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    uint8_t key[KV_KEY_BYTES];
    di_error err;
    kv_ram *ram = NULL;
    unit_expect_error(kv_ram_new(-1, &ram, &err), DI_E_ARGUMENT, &err, "negative", NULL);
    ram = new_ram(100);
    assert_null(kv_ram_add(ram, key_of(0, key), KV_DISK_UNIT, 0));
    assert_null(kv_ram_add(ram, key_of(0, key), KV_DISK_UNIT, -5));
    assert_null(kv_ram_add(ram, key_of(0, key), KV_DISK_UNIT, 101));
    assert_null(kv_ram_add(ram, key_of(0, key), KV_DISK_UNIT, INT64_MAX));
    kv_ram_free(ram);
    kv_ram_free(NULL);
}

static void random_use_keeps_every_invariant(void **state)
{
    (void)state;
    enum { N = 40, STEPS = 20000 };
    kv_ram *const ram = new_ram(1250);
    kv_ram_record *held[N] = {NULL};
    uint64_t seed = 4;
    for (int step = 0; step < STEPS; step++) {
        const int i = (int)(unit_random(&seed) % N);
        const uint64_t what = unit_random(&seed) % 100;
        if (held[i] != NULL) {
            kv_ram_drop(ram, held[i]);
            held[i] = NULL;
        } else if (what < 50) {
            (void)add(ram, i, (uint8_t)(i % 3));
        } else if (what < 99) {
            held[i] = find(ram, i);
        } else {
            (void)kv_ram_purge(ram, &(kv_tenant){.id = {(uint8_t)(i % 3)}});
        }
        const char *const broken = kv_ram_check(ram);
        if (broken != NULL) {
            fail_msg("step %d: %s", step, broken);
        }
    }
    for (int i = 0; i < N; i++) {
        kv_ram_drop(ram, held[i]);
    }
    kv_ram_free(ram);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_goes),
        cmocka_unit_test(what_is_held_stays),
        cmocka_unit_test(a_record_is_found_once_it_is_complete),
        cmocka_unit_test(an_expired_record_is_not_found),
        cmocka_unit_test(a_purge_takes_one_tenant_or_all),
        cmocka_unit_test(sizes_that_make_no_sense_are_refused),
        cmocka_unit_test(random_use_keeps_every_invariant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
