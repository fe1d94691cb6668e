/* Allocations that fail, on whichever thread: an open says so, a put or a read fails or succeeds, and bytes are never wrong.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc */
#include "support/refuse.h"

#include "kv_disk_fixture.h"

#include "core/io.h"

#include "core/core.h"

#include <stdatomic.h>

static atomic_int allowed = -1; /* allocations that still succeed; negative: all */
static atomic_int n_refused;

static bool refuse(void)
{
    int left = atomic_load(&allowed);
    while (left > 0 && !atomic_compare_exchange_weak(&allowed, &left, left - 1)) {
    }
    if (left == 0) {
        atomic_fetch_add(&n_refused, 1);
    }
    return left == 0;
}

static kv_disk_options quick_options(const dfix_dir *d)
{
    kv_disk_options o = dfix_options(d);
    o.no_sync = true;
    o.io = &io_by_threads;
    return o;
}

enum { BYTES = 3000, TRIES = 400 };

static void fill(const kv_disk_options *o)
{
    kv_disk *const disk = dfix_open(o);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(dfix_put(disk, i, KV_DISK_UNIT, BYTES), KV_DISK_STORED);
    }
    kv_disk_close(disk);
}

static void an_open_without_memory_fails_or_finds_everything(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    fill(&o);
    int n_failed = 0;
    for (int k = 0; k < TRIES; k++) {
        kv_disk *disk = NULL;
        di_error err;
        dfix_drop_index(&d);
        atomic_store(&n_refused, 0);
        atomic_store(&allowed, k);
        const di_status status = kv_disk_open(&o, &disk, &err);
        atomic_store(&allowed, -1);
        if (status != DI_OK) {
            assert_true(status == DI_E_MEMORY || status == DI_E_IO);
            n_failed++;
            continue;
        }
        const bool all = atomic_load(&n_refused) == 0;
        for (uint64_t i = 0; i < 5; i++) {
            const di_status got = dfix_get(disk, i, KV_DISK_UNIT, NULL);
            assert_true(got == DI_OK || (!all && (got == DI_E_STATE || got == DI_E_MEMORY)));
        }
        kv_disk_close(disk);
        if (all) {
            break;
        }
        assert_int_not_equal(k, TRIES - 1);
    }
    assert_true(n_failed > 5);
    dfix_remove(&d);
}

/* A put and a read, handed over while the store's threads can't allocate; the fixture's own allocations are made before. */
static void operations_without_memory_fail_and_later_ones_succeed(void **state)
{
    (void)state;
    static uint8_t payload[BYTES];
    static uint8_t got[BYTES];
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    fill(&o);
    kv_disk *const disk = dfix_open(&o);
    uint8_t key[1][KV_KEY_BYTES];
    kv_disk_found found;
    bool over = false;
    kv_disk_find find = {.op = {.done = dfix_set, .user = &over}, .keys = key, .n = 1, .found = &found};
    dfix_key(3, key[0]);
    kv_disk_find_start(disk, &find);
    dfix_wait(disk, &over);
    assert_int_equal(find.n_units, 1);
    bool read_over = false;
    bool put_over = false;
    kv_disk_read read = {.op = {.done = dfix_set, .user = &read_over}, .place = found.unit, .out = got};
    kv_disk_put put = {.op = {.done = dfix_set, .user = &put_over}, .payload = payload, .bytes = BYTES};
    dfix_key(3, read.key);
    dfix_key(77, put.key);
    dfix_fill(77, KV_DISK_UNIT, payload, BYTES);
    atomic_store(&allowed, 0);
    kv_disk_read_start(disk, &read);
    assert_true(kv_disk_put_start(disk, &put));
    dfix_wait(disk, &read_over);
    dfix_wait(disk, &put_over);
    atomic_store(&allowed, -1);
    assert_int_equal(read.op.status, DI_E_MEMORY);
    assert_int_not_equal(put.verdict, KV_DISK_STORED);
    kv_disk_release(disk, &find);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(dfix_get(disk, i, KV_DISK_UNIT, NULL), DI_OK);
    }
    const int64_t end = clock_now_ns() + (int64_t)60 * 1000000000;
    while (dfix_put(disk, 77, KV_DISK_UNIT, BYTES) != KV_DISK_STORED) {
        assert_true(clock_now_ns() < end);
    }
    kv_disk_close(disk);
    dfix_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_without_memory_fails_or_finds_everything),
        cmocka_unit_test(operations_without_memory_fail_and_later_ones_succeed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
