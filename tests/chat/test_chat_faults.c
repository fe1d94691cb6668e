/* A running service in which one allocation after the other fails, on whichever of its threads: the call that needed it ends with a
 * defined status, nothing of it is left, and the next one is answered as if nothing had been.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc timeout=120 */
#include "chat_support.h"
#include "support/refuse.h"

#include <stdio.h>

static _Atomic long left = -1; /* allocations until one fails; below 0: none will */
static _Atomic bool failed;
static _Thread_local bool is_test; /* the test's own allocations do not count */

static bool refuse(void)
{
    if (is_test || atomic_load(&left) < 0) {
        return false;
    }
    if (atomic_fetch_sub(&left, 1) != 0) {
        return false;
    }
    atomic_store(&failed, true);
    return true;
}

static held_script script;
static di_service *service;

static bool is_idle(void *arg)
{
    di_service_stats stats;
    di_service_get_stats(arg, &stats);
    return di_service_pending(arg) == 0 && stats.n_output == 0 && stats.scheduler.n_running == 0 && stats.kv.pages_used == 0 &&
           stats.kv.states_used == 0;
}

/* True when the allocation was reached. */
static bool fails_at(long k, const char *body)
{
    di_error err = {.message = ""};
    di_call *c = NULL;
    const di_call_options options = {.route = DI_ROUTE_CHAT, .body = body, .n = strlen(body), .id = "chatcmpl-1", .tenant = "t"};
    atomic_store(&failed, false);
    is_test = false;
    atomic_store(&left, k);
    const di_status status = di_service_submit(service, &options, &c, &err);
    is_test = true;
    if (status != DI_OK) {
        assert_int_equal(status, DI_E_MEMORY);
    } else {
        char *const text = chat_read_all(c);
        const di_call_info info = chat_info(c);
        if (info.error == DI_OK) {
            assert_int_equal(info.http_status, 200);
            expect_part(text, "\"finish_reason\":\"stop\"");
        } else if (!info.stream) {
            if (info.http_status != 503) {
                fail_msg("allocation %ld: status %d: %s", k, info.http_status, text);
            }
            assert_true(info.retry_after_s > 0);
        }
        free(text);
        di_call_free(c);
    }
    chat_until(is_idle, service);
    atomic_store(&left, -1);
    return atomic_load(&failed);
}

static void every_allocation_may_fail(const char *body)
{
    long k = 0;
    bool reached = true;
    while (reached) {
        reached = fails_at(k, body);
        char *const text = chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO "}", 200);
        expect_part(text, "\"content\":\"Hello there, how are you today?\"");
        free(text);
        k++;
    }
    print_message("%ld allocations\n", k);
    assert_true(k > 20);
    chat_until(is_idle, service);
}

static void answers_in_one_piece_survive(void **state)
{
    (void)state;
    every_allocation_may_fail(CHAT_HELLO ",\"n\":2}");
}

static void streams_survive(void **state)
{
    (void)state;
    every_allocation_may_fail(CHAT_HELLO ",\"stream\":true,\"stop\":\"yesterday\"}");
}

static int open_service(void **state)
{
    is_test = true;
    chat_setup(state);
    held_init(&script, "Hello there, how are you today?", INT64_MAX);
    service = chat_open(&script, NULL);
    return 0;
}

static int close_service(void **state)
{
    chat_close(service, &script);
    return chat_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_in_one_piece_survive),
        cmocka_unit_test(streams_survive),
    };
    return cmocka_run_group_tests(tests, open_service, close_service);
}
