/* Two stores on one directory: each finds what the other put, the budget is one for both, and who stays takes over what the other left. */
#include "kv_disk_fixture.h"

#include "core/core.h"

enum { BYTES = 50000, LIMIT_S = 60 };

static kv_disk_options shared_options(const dfix_dir *d)
{
    kv_disk_options o = dfix_options(d);
    o.shared = true;
    o.no_sync = true;
    return o;
}

static void until_found(kv_disk *disk, uint64_t i)
{
    const int64_t end = clock_now_ns() + (int64_t)LIMIT_S * 1000000000;
    while (dfix_get(disk, i, KV_DISK_UNIT, NULL) != DI_OK) {
        assert_true(clock_now_ns() < end);
    }
}

static void each_finds_what_the_other_put(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = shared_options(&d);
    kv_disk *const a = dfix_open(&o);
    kv_disk *const b = dfix_open(&o);
    for (uint64_t i = 0; i < 40; i++) { /* more than a segment each */
        assert_int_equal(dfix_put(i % 2 == 0 ? a : b, i, KV_DISK_UNIT, BYTES), KV_DISK_STORED);
    }
    for (uint64_t i = 0; i < 40; i++) {
        until_found(i % 2 == 0 ? b : a, i);
    }
    assert_int_equal(dfix_put(a, 1, KV_DISK_UNIT, BYTES), KV_DISK_PRESENT);
    assert_int_equal(dfix_counters(a).corrupt + dfix_counters(b).corrupt, 0);
    kv_disk_close(a);
    for (uint64_t i = 0; i < 40; i++) {
        assert_int_equal(dfix_get(b, i, KV_DISK_UNIT, NULL), DI_OK);
    }
    const int64_t end = clock_now_ns() + (int64_t)LIMIT_S * 1000000000;
    while (dfix_care(b, KV_DISK_PURGE, NULL) != 0 || dfix_n_segments(&d) != 0) { /* a's segments too, once they are b's */
        assert_true(clock_now_ns() < end);
    }
    kv_disk_close(b);
    dfix_remove(&d);
}

static void the_budget_is_one_for_both(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = shared_options(&d);
    o.max_bytes = 16 << 20;
    kv_disk *const a = dfix_open(&o);
    kv_disk *const b = dfix_open(&o);
    int stored[2] = {0};
    for (uint64_t i = 0; i < 600; i++) {
        kv_disk *const disk = i % 3 == 0 ? a : b;
        const kv_disk_verdict verdict = dfix_put(disk, i, KV_DISK_UNIT, BYTES);
        assert_true(verdict == KV_DISK_STORED || verdict == KV_DISK_NO_ROOM);
        stored[i % 3 == 0 ? 0 : 1] += verdict == KV_DISK_STORED ? 1 : 0;
        assert_true(dfix_n_segments(&d) <= 16);
    }
    assert_true(stored[0] > 50);
    assert_true(stored[1] > 100);
    kv_disk_close(a);
    kv_disk_close(b);
    dfix_remove(&d);
}

/* What a `done` hands over while the store is closed comes back like everything else. */
static void count_and_start_again(kv_disk_op *op);

typedef struct chain {
    kv_disk *disk;
    kv_disk_care care;
    int n;
    int n_cancelled;
} chain;

static void count_and_start_again(kv_disk_op *op)
{
    chain *const c = op->user;
    c->n++;
    c->n_cancelled += op->status == DI_E_CANCELLED ? 1 : 0;
    if (c->n_cancelled < 3) {
        kv_disk_care_start(c->disk, &c->care);
    }
}

static void nothing_is_lost_in_closing(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = shared_options(&d);
    chain c = {.disk = dfix_open(&o)};
    c.care = (kv_disk_care){.op = {.done = count_and_start_again, .user = &c}, .kind = KV_DISK_FLUSH};
    kv_disk_care_start(c.disk, &c.care);
    kv_disk_close(c.disk);
    assert_int_equal(c.n_cancelled, 3);
    assert_true(c.n == 3 || c.n == 4);
    dfix_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_finds_what_the_other_put),
        cmocka_unit_test(the_budget_is_one_for_both),
        cmocka_unit_test(nothing_is_lost_in_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
