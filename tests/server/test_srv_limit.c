/* Tests of srv_limit.c. Time is an argument, so none of them waits. */
#include "support/unit.h"

#include "server/srv_limit.h"

#define SECOND INT64_C(1000000000)

static void a_bucket_holds_a_minute_and_fills_evenly(void **state)
{
    (void)state;
    srv_limit limit = {.rate = 6};
    int32_t retry = 0;
    int64_t now = 1000 * SECOND;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(srv_limit_enter(&limit, now, &retry), SRV_ADMITTED);
        srv_limit_leave(&limit);
    }
    assert_int_equal(srv_limit_enter(&limit, now, &retry), SRV_TOO_FAST);
    assert_int_equal(retry, 10);
    assert_int_equal(srv_limit_enter(&limit, now + 9 * SECOND, &retry), SRV_TOO_FAST);
    assert_int_equal(retry, 1);
    assert_int_equal(srv_limit_enter(&limit, now + 10 * SECOND, &retry), SRV_ADMITTED);
    assert_int_equal(srv_limit_enter(&limit, now + 10 * SECOND, &retry), SRV_TOO_FAST);
    /* Behind a long pause it holds a minute's requests again, not more. */
    now += 100000 * SECOND;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(srv_limit_enter(&limit, now, &retry), SRV_ADMITTED);
    }
    assert_int_equal(srv_limit_enter(&limit, now, &retry), SRV_TOO_FAST);
}

static void a_clock_that_steps_back_gives_nothing_away(void **state)
{
    (void)state;
    srv_limit limit = {.rate = 1};
    int32_t retry = 0;
    assert_int_equal(srv_limit_enter(&limit, 500 * SECOND, &retry), SRV_ADMITTED);
    assert_int_equal(srv_limit_enter(&limit, 400 * SECOND, &retry), SRV_TOO_FAST);
    assert_int_equal(srv_limit_enter(&limit, 560 * SECOND, &retry), SRV_ADMITTED);
}

static void so_many_run_at_a_time(void **state)
{
    (void)state;
    srv_limit limit = {.concurrency = 2, .rate = 60000};
    int32_t retry = 0;
    assert_int_equal(srv_limit_enter(&limit, SECOND, &retry), SRV_ADMITTED);
    assert_int_equal(srv_limit_enter(&limit, SECOND, &retry), SRV_ADMITTED);
    assert_int_equal(srv_limit_enter(&limit, SECOND, &retry), SRV_TOO_MANY);
    assert_int_equal(retry, 1);
    srv_limit_leave(&limit);
    assert_int_equal(srv_limit_enter(&limit, SECOND, &retry), SRV_ADMITTED);
    assert_int_equal(srv_limit_enter(&limit, SECOND, &retry), SRV_TOO_MANY);
}

static void without_limits_everything_passes(void **state)
{
    (void)state;
    srv_limit limit = {.rate = 0};
    int32_t retry = 0;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(srv_limit_enter(&limit, 0, &retry), SRV_ADMITTED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_holds_a_minute_and_fills_evenly),
        cmocka_unit_test(a_clock_that_steps_back_gives_nothing_away),
        cmocka_unit_test(so_many_run_at_a_time),
        cmocka_unit_test(without_limits_everything_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
