/* net_clock.c - a clock on the wall that jumps by decades with every look at it: limits, deadlines and signs of life do not notice.
 *
 * ctest: wrap=clock_gettime,time,gettimeofday */
#include "rig.h"
#include "support/unit.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
time_t __wrap_time(time_t *out);
int __wrap_gettimeofday(struct timeval *out, void *zone);

static _Atomic unsigned int looks;

static time_t jumping(void)
{
    return (time_t)1600000000 + (time_t)(atomic_fetch_add(&looks, 1) % 3) * 1000000000;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    const int result = __real_clock_gettime(clock, out);
    if (clock == CLOCK_REALTIME) {
        out->tv_sec = jumping();
    }
    return result;
}

time_t __wrap_time(time_t *out)
{
    const time_t now = jumping();
    if (out != NULL) {
        *out = now;
    }
    return now;
}

int __wrap_gettimeofday(struct timeval *out, void *zone)
{
    (void)zone;
    *out = (struct timeval){.tv_sec = jumping()};
    return 0;
}

static void the_wall_clock_does_not_matter(void **state)
{
    (void)state;
    rig g;
    wire stream;
    wire w;
    wire_reply s;
    wire_reply r;
    char *const dir = unit_scratch_new();
    char path[512];
    snprintf(path, sizeof path, "%s/log", dir);
    rig_start(&g, &(srv_options){.keep_alive = 20, .rate_limit = 3, .access_log = path, .queue_timeout = 100000});
    di_call *const call = rig_call(&g, &stream, "/v1/chat/completions");
    assert_int_equal(fake_seen_of(call)->queue_timeout_ms, 100000);
    fake_status(call, 200, true, 0);
    wire_read_head(&stream, &s);
    wire_read_more(&stream, &s, ": keep-alive\n\n: keep-alive\n\n: keep-alive\n\n");
    wire_open(&w, g.url);
    fake_answer_all(g.service);
    for (int i = 0; i < 4; i++) {
        wire_post(&w, "/v1/messages", "", "{}");
        wire_read(&w, &r);
        assert_int_equal(r.status, i < 2 ? 200 : 429);
        if (i >= 2) {
            assert_in_range(strtol(wire_header(&r, "Retry-After"), NULL, 10), 1, 20);
        }
        wire_fini(&r);
    }
    assert_false(srv_wait_idle(g.server, 10));
    fake_end(call, DI_FINISH_STOP);
    wire_read_rest(&stream, &s, true);
    assert_true(srv_wait_idle(g.server, 60000));
    assert_true(atomic_load(&looks) > 0);
    wire_fini(&s);
    wire_close(&w);
    wire_close(&stream);
    rig_stop(&g);
    unit_scratch_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wall_clock_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
