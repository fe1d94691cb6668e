/* The disk tier: what was put is found and read byte for byte, in this process and after a restart; what expires, is purged or does not
 * fit is not. */
#include "kv_disk_fixture.h"

#include "core/io.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {1, 100, 3840, 3841, 4096, 70000, 200000};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static void put_all_sizes(kv_disk *disk)
{
    for (size_t i = 0; i < N_SIZES; i++) {
        assert_int_equal(dfix_put(disk, i, KV_DISK_UNIT, sizes[i]), KV_DISK_STORED);
        assert_int_equal(dfix_put(disk, i, KV_DISK_SNAPSHOT, sizes[i]), KV_DISK_STORED);
    }
}

static void expect_all_sizes(kv_disk *disk)
{
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t size;
        assert_int_equal(dfix_get(disk, i, KV_DISK_UNIT, &size), DI_OK);
        assert_int_equal(size, sizes[i]);
        assert_int_equal(dfix_get(disk, i, KV_DISK_SNAPSHOT, &size), DI_OK);
        assert_int_equal(size, sizes[i]);
    }
    assert_int_equal(dfix_get(disk, N_SIZES, KV_DISK_UNIT, NULL), DI_E_STATE);
}

static void what_was_put_is_read(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = dfix_options(&d);
    kv_disk *const disk = dfix_open(&o);
    put_all_sizes(disk);
    expect_all_sizes(disk);
    const kv_disk_counters c = dfix_counters(disk);
    assert_int_equal(c.stored, 2 * N_SIZES);
    assert_int_equal(c.records[KV_DISK_UNIT], N_SIZES);
    assert_int_equal(c.records[KV_DISK_SNAPSHOT], N_SIZES);
    assert_int_equal(c.reads, 2 * N_SIZES);
    assert_int_equal(c.read_bytes, c.stored_bytes);
    assert_int_equal(c.corrupt, 0);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void restart(bool keep_index, const io_table *io)
{
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    o.io = io;
    kv_disk *disk = dfix_open(&o);
    put_all_sizes(disk);
    kv_disk_close(disk);
    if (!keep_index) {
        dfix_drop_index(&d);
    }
    disk = dfix_open(&o);
    kv_disk_counters c = dfix_counters(disk);
    assert_int_equal(c.rebuilt, !keep_index);
    assert_int_equal(c.records[KV_DISK_UNIT], N_SIZES);
    expect_all_sizes(disk);
    c = dfix_counters(disk);
    assert_int_equal(c.reads, 2 * N_SIZES);
    assert_true(c.read_bytes > 0);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_restart_finds_everything_in_the_index(void **state)
{
    (void)state;
    restart(true, NULL);
}

static void a_restart_without_index_finds_everything_in_the_segments(void **state)
{
    (void)state;
    restart(false, NULL);
}

static void threads_do_what_io_uring_does(void **state)
{
    (void)state;
    restart(true, &io_by_threads);
    restart(false, &io_by_threads);
}

static void a_record_that_is_there_is_not_written_again(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = dfix_options(&d);
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_put(disk, 1, KV_DISK_UNIT, 5000), KV_DISK_STORED);
    assert_int_equal(dfix_put(disk, 1, KV_DISK_UNIT, 5000), KV_DISK_PRESENT);
    assert_int_equal(dfix_counters(disk).stored, 1);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_chain_is_found_up_to_its_first_gap(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = dfix_options(&d);
    kv_disk *const disk = dfix_open(&o);
    static uint8_t keys[8][KV_KEY_BYTES];
    for (uint64_t i = 0; i < 8; i++) {
        dfix_key(i, keys[i]);
        if (i != 5) {
            assert_int_equal(dfix_put(disk, i, KV_DISK_UNIT, 1000), KV_DISK_STORED);
        }
    }
    assert_int_equal(dfix_put(disk, 1, KV_DISK_SNAPSHOT, 2000), KV_DISK_STORED);
    assert_int_equal(dfix_put(disk, 4, KV_DISK_SNAPSHOT, 2000), KV_DISK_STORED);
    kv_disk_found found[8];
    bool over = false;
    kv_disk_find find = {.op = {.done = dfix_set, .user = &over}, .keys = keys, .n = 8, .first = 2, .found = found};
    kv_disk_find_start(disk, &find);
    dfix_wait(disk, &over);
    assert_int_equal(find.op.status, DI_OK);
    assert_int_equal(find.n_units, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(found[i].unit.bytes, i < 2 ? 0 : 1000);
        assert_int_equal(found[i].snapshot.bytes, i == 1 || i == 4 ? 2000 : 0);
    }
    kv_disk_release(disk, &find);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_second_process_is_refused_unless_the_directory_is_shared(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    for (int first = 0; first < 2; first++) { /* who was told to share, and who was not */
        for (int later = 0; later < 2; later++) {
            kv_disk_options o = dfix_options(&d);
            kv_disk *second = NULL;
            di_error err;
            o.shared = first == 1;
            kv_disk *const disk = dfix_open(&o);
            o.shared = later == 1;
            const di_status status = kv_disk_open(&o, &second, &err);
            assert_int_equal(status, first == 1 && later == 1 ? DI_OK : DI_E_STATE);
            if (status == DI_OK) {
                kv_disk_close(second);
            } else {
                assert_non_null(strstr(err.message, "another process"));
                assert_true((strstr(err.message, "does not share it") != NULL) == (later == 1));
            }
            kv_disk_close(disk);
        }
    }
    dfix_remove(&d);
}

static void an_expired_record_is_not_found(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = dfix_options(&d);
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_put_as(disk, 1, &(kv_disk_put){.bytes = 1000, .ttl_s = 1}), KV_DISK_STORED);
    assert_int_equal(dfix_put_as(disk, 2, &(kv_disk_put){.bytes = 1000, .ttl_s = 1, .pinned = true}), KV_DISK_STORED);
    const int64_t end = clock_now_ns() + (int64_t)60 * 1000000000;
    while (dfix_get(disk, 1, KV_DISK_SNAPSHOT, NULL) != DI_E_STATE || dfix_counters(disk).expired == 0) {
        assert_true(clock_now_ns() < end); /* the sweep meets it by itself: nothing here uses the record */
        kv_disk_poll(disk);
    }
    assert_int_equal(dfix_get(disk, 1, KV_DISK_UNIT, NULL), DI_E_STATE);
    assert_int_equal(dfix_get(disk, 2, KV_DISK_UNIT, NULL), DI_OK);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_full_store_forgets_the_oldest_and_keeps_its_budget(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    o.max_bytes = 16 << 20;
    o.no_sync = true;
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_put_as(disk, 1000000, &(kv_disk_put){.bytes = 100000, .pinned = true}), KV_DISK_STORED);
    for (uint64_t i = 0; i < 600; i++) {
        assert_int_equal(dfix_put(disk, i, KV_DISK_UNIT, 100000), KV_DISK_STORED);
        assert_true(dfix_counters(disk).bytes <= o.max_bytes);
    }
    assert_int_equal(dfix_get(disk, 0, KV_DISK_UNIT, NULL), DI_E_STATE);
    assert_int_equal(dfix_get(disk, 599, KV_DISK_UNIT, NULL), DI_OK);
    assert_int_equal(dfix_get(disk, 1000000, KV_DISK_UNIT, NULL), DI_OK);
    assert_true(dfix_counters(disk).evicted > 400);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void what_is_used_outlives_what_is_not(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    o.max_bytes = 16 << 20;
    o.no_sync = true;
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_put(disk, 1000000, KV_DISK_UNIT, 50000), KV_DISK_STORED);
    for (uint64_t i = 0; i < 600; i++) {
        assert_int_equal(dfix_put(disk, i, KV_DISK_UNIT, 100000), KV_DISK_STORED);
        assert_int_equal(dfix_get(disk, 1000000, KV_DISK_UNIT, NULL), DI_OK);
    }
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_class_with_priority_is_spared_a_turn_longer(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    o.max_bytes = 16 << 20;
    o.no_sync = true;
    o.classes[1].priority = 1;
    kv_disk *const disk = dfix_open(&o);
    for (uint64_t i = 0; i < 9; i++) {
        const kv_disk_put like = {.bytes = 100000, .class_id = i < 6 ? 1 : 0};
        assert_int_equal(dfix_put_as(disk, i, &like), KV_DISK_STORED);
    }
    for (uint64_t i = 0; i < 180; i++) { /* once round, not twice */
        assert_int_equal(dfix_put(disk, 100 + i, KV_DISK_UNIT, 100000), KV_DISK_STORED);
    }
    for (uint64_t i = 0; i < 9; i++) {
        assert_int_equal(dfix_get(disk, i, KV_DISK_UNIT, NULL), i < 6 ? DI_OK : DI_E_STATE);
    }
    assert_true(dfix_counters(disk).rewritten_bytes >= 6 * 100000);
    kv_disk_close(disk);
    dfix_remove(&d);
}

enum { MANY = 200, LEASED_BYTES = 100000 };

typedef struct lease { /* of one record */
    uint8_t key[1][KV_KEY_BYTES];
    kv_disk_found found;
    kv_disk_find find;
} lease;

static void take_lease(kv_disk *disk, lease *l, uint64_t i)
{
    bool over = false;
    dfix_key(i, l->key[0]);
    l->find = (kv_disk_find){.op = {.done = dfix_set, .user = &over}, .keys = l->key, .n = 1, .found = &l->found};
    kv_disk_find_start(disk, &l->find);
    dfix_wait(disk, &over);
    assert_int_equal(l->find.n_units, 1);
}

static void expect_readable(kv_disk *disk, const lease *l, uint64_t i)
{
    static uint8_t got[LEASED_BYTES];
    static uint8_t want[LEASED_BYTES];
    bool over = false;
    kv_disk_read read = {.op = {.done = dfix_set, .user = &over}, .place = l->found.unit, .out = got};
    memcpy(read.key, l->key[0], sizeof read.key);
    kv_disk_read_start(disk, &read);
    dfix_wait(disk, &over);
    assert_int_equal(read.op.status, DI_OK);
    dfix_fill(i, KV_DISK_UNIT, want, LEASED_BYTES);
    assert_memory_equal(got, want, LEASED_BYTES);
}

/* Every record is leased, so nothing can go: what does not fit is refused, what is leased stays readable, even when it is purged. */
static void what_is_leased_stays_and_the_budget_fails_closed(void **state)
{
    (void)state;
    static lease leases[MANY];
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    o.max_bytes = 16 << 20;
    o.no_sync = true;
    kv_disk *const disk = dfix_open(&o);
    uint64_t n = 0;
    while (dfix_put(disk, n, KV_DISK_UNIT, LEASED_BYTES) == KV_DISK_STORED) {
        take_lease(disk, &leases[n], n);
        n++;
        assert_true(n < MANY);
    }
    assert_true(n > MANY / 2);
    assert_int_equal(dfix_counters(disk).no_room, 1);
    assert_int_equal(dfix_counters(disk).evicted, 0);
    assert_true(dfix_counters(disk).bytes <= o.max_bytes);
    assert_int_equal(dfix_care(disk, KV_DISK_PURGE, NULL), n);
    for (uint64_t i = 0; i < n; i++) {
        expect_readable(disk, &leases[i], i);
        kv_disk_release(disk, &leases[i].find);
    }
    assert_int_equal(dfix_put(disk, n, KV_DISK_UNIT, LEASED_BYTES), KV_DISK_STORED);
    assert_int_equal(dfix_get(disk, 0, KV_DISK_UNIT, NULL), DI_E_STATE);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_tenants_quota_and_purge_touch_nobody_else(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    o.tenant_bytes = 10 * 53248; /* ten records of 50,000 bytes */
    kv_disk *disk = dfix_open(&o);
    kv_tenant a;
    kv_tenant b;
    assert_true(kv_tenant_of((kv_salt){"a", 1}, &a));
    assert_true(kv_tenant_of((kv_salt){"b", 1}, &b));
    assert_memory_not_equal(&a, &b, sizeof a);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(dfix_put_as(disk, 100 + i, &(kv_disk_put){.bytes = 50000, .tenant = b}), KV_DISK_STORED);
    }
    for (uint64_t i = 0; i < 30; i++) {
        assert_int_equal(dfix_put_as(disk, i, &(kv_disk_put){.bytes = 50000, .tenant = a}), KV_DISK_STORED);
    }
    assert_int_equal(dfix_counters(disk).records[KV_DISK_UNIT], 15);
    for (uint64_t i = 0; i < 30; i++) {
        assert_int_equal(dfix_get(disk, i, KV_DISK_UNIT, NULL), i < 20 ? DI_E_STATE : DI_OK);
    }
    assert_int_equal(dfix_care(disk, KV_DISK_PURGE, &a), 10);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(dfix_counters(disk).records[KV_DISK_UNIT], 5);
        assert_int_equal(dfix_get(disk, 25, KV_DISK_UNIT, NULL), DI_E_STATE);
        assert_int_equal(dfix_get(disk, 102, KV_DISK_UNIT, NULL), DI_OK);
        kv_disk_close(disk);
        dfix_drop_index(&d); /* nothing comes back from the segments either */
        disk = dfix_open(&o);
    }
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void admission_waits_for_the_second_sighting(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    o.admit = 2;
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_put(disk, 1, KV_DISK_UNIT, 100), KV_DISK_NOT_ADMITTED);
    assert_int_equal(dfix_put(disk, 1, KV_DISK_UNIT, 100), KV_DISK_STORED);
    assert_int_equal(dfix_counters(disk).not_admitted, 1);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void pins_and_compaction(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    kv_disk *disk = dfix_open(&o);
    uint8_t keys[2][KV_KEY_BYTES];
    for (uint64_t i = 0; i < 40; i++) {
        assert_int_equal(dfix_put(disk, i, KV_DISK_UNIT, 60000), KV_DISK_STORED);
    }
    dfix_key(3, keys[0]);
    dfix_key(99, keys[1]);
    bool over = false;
    kv_disk_care care = {.op = {.done = dfix_set, .user = &over}, .kind = KV_DISK_PIN, .keys = keys, .n = 2};
    kv_disk_care_start(disk, &care);
    dfix_wait(disk, &over);
    assert_int_equal(care.n_done, 1);
    assert_int_equal(dfix_counters(disk).pinned_bytes, 61440);
    const int64_t freed = dfix_care(disk, KV_DISK_COMPACT, NULL); /* the copy without the pin leaves */
    assert_true(freed > 0);
    kv_disk_close(disk);
    dfix_drop_index(&d);
    disk = dfix_open(&o);
    assert_int_equal(dfix_counters(disk).pinned_bytes, 61440);
    assert_int_equal(dfix_counters(disk).records[KV_DISK_UNIT], 40);
    for (uint64_t i = 0; i < 40; i++) {
        assert_int_equal(dfix_get(disk, i, KV_DISK_UNIT, NULL), DI_OK);
    }
    kv_disk_close(disk);
    dfix_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_is_read),
        cmocka_unit_test(a_restart_finds_everything_in_the_index),
        cmocka_unit_test(a_restart_without_index_finds_everything_in_the_segments),
        cmocka_unit_test(threads_do_what_io_uring_does),
        cmocka_unit_test(a_record_that_is_there_is_not_written_again),
        cmocka_unit_test(a_chain_is_found_up_to_its_first_gap),
        cmocka_unit_test(a_second_process_is_refused_unless_the_directory_is_shared),
        cmocka_unit_test(an_expired_record_is_not_found),
        cmocka_unit_test(a_full_store_forgets_the_oldest_and_keeps_its_budget),
        cmocka_unit_test(what_is_used_outlives_what_is_not),
        cmocka_unit_test(a_class_with_priority_is_spared_a_turn_longer),
        cmocka_unit_test(what_is_leased_stays_and_the_budget_fails_closed),
        cmocka_unit_test(a_tenants_quota_and_purge_touch_nobody_else),
        cmocka_unit_test(admission_waits_for_the_second_sighting),
        cmocka_unit_test(pins_and_compaction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
