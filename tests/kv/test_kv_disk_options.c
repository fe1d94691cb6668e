/* Options of the disk tier: what is left out, what is refused, and that a refusal names the way out. */
#include "kv_disk_fixture.h"

#include "kv/kv_disk_int.h"

#include <string.h>

#define MIB ((int64_t)1 << 20)

static void defaults_follow_from_the_budget(void **state)
{
    (void)state;
    const int64_t budgets[] = {16 * MIB, 100 * MIB, 1024 * MIB, 1024 * 1024 * MIB};
    const int64_t segments[] = {MIB, 6 * MIB, 64 * MIB, 256 * MIB};
    for (size_t i = 0; i < 4; i++) {
        kv_disk_options o = {.path = "x", .max_bytes = budgets[i]};
        kv_options_fill_in(&o);
        assert_int_equal(o.segment_bytes, segments[i]);
        assert_int_equal(o.max_record_bytes, segments[i] / 4 - KV_BLOCK);
        assert_int_equal(o.classes[0].ttl_s, 7 * 86400);
        assert_int_equal(o.classes[1].ttl_s, 3 * 86400);
        assert_int_equal(o.queue_depth, 32);
        assert_int_equal(kv_options_check(&o, NULL), DI_OK);
    }
}

static void expect_refusal(kv_disk_options o, const char *word)
{
    di_error err;
    kv_options_fill_in(&o);
    assert_int_equal(kv_options_check(&o, &err), DI_E_ARGUMENT);
    assert_non_null(strstr(err.message, word));
}

static void what_cannot_work_is_refused(void **state)
{
    (void)state;
    const kv_disk_options good = {.path = "x", .max_bytes = 64 * MIB};
    kv_disk_options o = good;
    o.max_bytes = 16 * MIB - 1;
    expect_refusal(o, "16 MiB");
    o = good;
    o.segment_bytes = MIB + 1;
    expect_refusal(o, "multiples of 4096");
    o = good;
    o.segment_bytes = 16 * MIB;
    expect_refusal(o, "an eighth of the budget");
    o = good;
    o.max_record_bytes = 2 * MIB;
    expect_refusal(o, "out of its range");
    o = good;
    o.queue_depth = 257;
    expect_refusal(o, "out of its range");
    o = good;
    o.classes[3].priority = 4;
    expect_refusal(o, "out of its range");
    o = good;
    o.tenant_bytes = -1;
    expect_refusal(o, "out of its range");
}

static void a_path_is_needed_and_named(void **state)
{
    (void)state;
    kv_disk *disk = NULL;
    di_error err;
    assert_int_equal(kv_disk_open(&(kv_disk_options){.max_bytes = 64 * MIB}, &disk, &err), DI_E_ARGUMENT);
    assert_int_equal(kv_disk_open(&(kv_disk_options){.path = "/nowhere/at/all", .max_bytes = 64 * MIB}, &disk, &err), DI_E_IO);
    assert_non_null(strstr(err.message, "/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_follow_from_the_budget),
        cmocka_unit_test(what_cannot_work_is_refused),
        cmocka_unit_test(a_path_is_needed_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
