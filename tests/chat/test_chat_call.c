/* The life of a call: it can be cancelled and freed at each phase, and gives everything back; deadlines, full queues, readers that do not
 * read, draining. */
#include "chat_support.h"

#include <semaphore.h>

#define STREAM CHAT_HELLO ",\"stream\":true}"
#define LONG_TEXT "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"

static bool is_idle(void *arg)
{
    di_service_stats stats;
    di_service_get_stats(arg, &stats);
    return stats.scheduler.n_running == 0 && stats.scheduler.n_waiting == 0 && stats.n_output == 0 && di_service_pending(arg) == 0;
}

/* Nothing is left of any call but what the prefix cache keeps. */
static void expect_idle(di_service *s)
{
    di_service_stats stats;
    chat_until(is_idle, s);
    di_service_get_stats(s, &stats);
    assert_int_equal(stats.kv.pages_used, 0);
    assert_int_equal(stats.kv.states_used, 0);
    assert_int_equal(stats.n_preparing, 0);
    assert_int_equal(stats.n_waiting, 0);
    assert_int_equal(stats.n_running, 0);
}

static di_call *submit_as(di_service *s, const char *tenant, const char *body)
{
    return chat_submit_with(s, &(di_call_options){.route = DI_ROUTE_CHAT, .body = body, .n = strlen(body), .tenant = tenant});
}

/* --- Phases -------------------------------------------------------------------------------------------------------------------- */

typedef struct stage {
    held_script script;
    di_service *service;
    di_call *blocker; /* of PREPARING: its wake-up holds the only preparation thread */
    sem_t in_wake;
    sem_t go_on;
    di_call *call;
} stage;

static void hold_thread(void *user)
{
    stage *const g = user;
    sem_post(&g->in_wake);
    while (sem_wait(&g->go_on) != 0) {
    }
}

/* A call that stands in the phase. */
static void reach(stage *g, di_call_phase phase, const char *body)
{
    const di_service_options options = {.n_prepare_threads = 1};
    memset(g, 0, sizeof *g);
    held_init(&g->script, LONG_TEXT, phase == DI_CALL_DECODE ? 3 : phase == DI_CALL_ENDED ? INT64_MAX : 0);
    g->service = chat_open(&g->script, &options);
    sem_init(&g->in_wake, 0, 0);
    sem_init(&g->go_on, 0, 0);
    if (phase == DI_CALL_PREPARING) {
        const di_call_options hold = {.route = DI_ROUTE_TOKENIZE, .body = "{}", .n = 2, .wake = hold_thread, .user = g};
        g->blocker = chat_submit_with(g->service, &hold);
        while (sem_wait(&g->in_wake) != 0) {
        }
    }
    if (phase == DI_CALL_QUEUED) {
        assert_int_equal(di_service_set_tenant(g->service, "t", DI_TENANT_PAUSED, NULL), DI_OK);
    }
    g->call = submit_as(g->service, "t", body);
    assert_int_equal(chat_wait_phase(g->call, phase).phase, phase);
}

static void go_on(stage *g)
{
    if (g->blocker != NULL) {
        sem_post(&g->go_on);
        di_call_free(g->blocker);
    }
    held_allow(&g->script, INT64_MAX);
}

static void leave(stage *g)
{
    expect_idle(g->service);
    chat_close(g->service, &g->script);
    sem_destroy(&g->in_wake);
    sem_destroy(&g->go_on);
}

static void a_call_is_cancelled_in_every_phase(void **state)
{
    (void)state;
    for (int phase = DI_CALL_PREPARING; phase < DI_CALL_ENDED; phase++) {
        stage g;
        reach(&g, (di_call_phase)phase, STREAM);
        di_call_cancel(g.call);
        go_on(&g);
        char *const text = chat_read_all(g.call);
        const di_call_info info = chat_info(g.call);
        assert_true(info.cancelled);
        assert_int_equal(info.error, DI_E_CANCELLED);
        assert_int_equal(info.http_status, phase == DI_CALL_PREPARING ? 499 : 200);
        assert_int_equal(info.stream, phase != DI_CALL_PREPARING);
        expect_part(text, "The request was cancelled.");
        expect_no_part(text, "[DONE]");
        free(text);
        di_call_free(g.call);
        leave(&g);
    }
}

static void an_answer_in_one_piece_is_cancelled_with_499(void **state)
{
    (void)state;
    for (int phase = DI_CALL_PREPARING; phase < DI_CALL_ENDED; phase++) {
        stage g;
        reach(&g, (di_call_phase)phase, CHAT_HELLO "}");
        di_call_cancel(g.call);
        go_on(&g);
        char *const text = chat_read_all(g.call);
        assert_int_equal(chat_info(g.call).http_status, 499);
        expect_part(text, "{\"error\":{\"message\":\"The request was cancelled.\"");
        free(text);
        di_call_free(g.call);
        leave(&g);
    }
}

static void a_call_is_freed_in_every_phase(void **state)
{
    (void)state;
    for (int phase = DI_CALL_PREPARING; phase <= DI_CALL_ENDED; phase++) {
        for (int stream = 0; stream < 2; stream++) {
            stage g;
            reach(&g, (di_call_phase)phase, stream ? STREAM : CHAT_HELLO "}");
            di_call_free(g.call);
            go_on(&g);
            leave(&g);
        }
    }
}

static void all_calls_are_cancelled_for_a_shutdown(void **state)
{
    (void)state;
    for (int phase = DI_CALL_PREPARING; phase < DI_CALL_ENDED; phase++) {
        stage g;
        reach(&g, (di_call_phase)phase, CHAT_HELLO "}");
        di_service_cancel_all(g.service);
        go_on(&g);
        char *const text = chat_read_all(g.call);
        assert_int_equal(chat_info(g.call).http_status, 503);
        assert_int_equal(chat_info(g.call).error, DI_E_CANCELLED);
        expect_part(text, "The server is shutting down.");
        free(text);
        di_call_free(g.call);
        leave(&g);
    }
}

static void phases_come_in_order_with_their_times(void **state)
{
    (void)state;
    stage g;
    reach(&g, DI_CALL_DECODE, STREAM);
    di_call_info info = chat_info(g.call);
    assert_int_equal(info.http_status, 200);
    assert_true(info.stream);
    assert_int_equal(info.ended_at, 0);
    go_on(&g);
    free(chat_read_all(g.call));
    info = chat_info(g.call);
    assert_true(info.submitted_at > 0);
    assert_true(info.queued_at >= info.submitted_at);
    assert_true(info.admitted_at >= info.queued_at);
    assert_true(info.first_token_at >= info.admitted_at);
    assert_true(info.ended_at >= info.first_token_at);
    assert_int_equal(info.finish, DI_FINISH_STOP);
    assert_int_equal(info.error, DI_OK);
    assert_int_equal(info.usage.completion_tokens, (int64_t)g.script.n - 1);
    assert_true(info.usage.prompt_tokens > 0);
    di_call_cancel(g.call); /* too late: nothing changes */
    assert_false(chat_info(g.call).cancelled);
    di_call_free(g.call);
    leave(&g);
}

/* --- Wake-ups ------------------------------------------------------------------------------------------------------------------- */

typedef struct waker {
    _Atomic int n;
    _Atomic(di_call *) call;
    _Atomic bool ended;
} waker;

static void count_wake(void *user)
{
    waker *const w = user;
    di_call *const c = atomic_load(&w->call);
    atomic_fetch_add(&w->n, 1);
    if (c != NULL && chat_info(c).phase == DI_CALL_ENDED) {
        atomic_store(&w->ended, true);
    }
}

static bool has_ended(void *arg)
{
    return atomic_load(&((waker *)arg)->ended);
}

static void every_change_wakes_and_nothing_does_after_the_free(void **state)
{
    (void)state;
    held_script script;
    waker w = {.n = 0};
    held_init(&script, "Hello", 0);
    di_service *const s = chat_open(&script, NULL);
    const di_call_options options = {
        .route = DI_ROUTE_CHAT, .body = STREAM, .n = strlen(STREAM), .wake = count_wake, .user = &w, .id = "chatcmpl-mine"};
    di_call *c = chat_submit_with(s, &options);
    atomic_store(&w.call, c);
    assert_string_equal(di_call_id(c), "chatcmpl-mine");
    chat_wait_phase(c, DI_CALL_PREFILL);
    held_allow(&script, INT64_MAX);
    chat_until(has_ended, &w);
    char *const text = chat_read_all(c);
    expect_part(text, "\"id\":\"chatcmpl-mine\"");
    free(text);
    di_call_free(c);

    held_allow(&script, script.given);
    atomic_store(&w.call, NULL);
    c = chat_submit_with(s, &options);
    di_call_free(c);
    const int before = atomic_load(&w.n);
    held_allow(&script, INT64_MAX);
    expect_idle(s);
    assert_int_equal(atomic_load(&w.n), before);
    chat_close(s, &script);
}

static void waiting_ends_with_output_the_end_or_the_time(void **state)
{
    (void)state;
    stage g;
    reach(&g, DI_CALL_PREFILL, CHAT_HELLO "}");
    assert_false(di_call_wait(g.call, 0));
    assert_false(di_call_wait(g.call, 1));
    go_on(&g);
    assert_true(di_call_wait(g.call, -1));
    assert_int_equal(chat_info(g.call).phase, DI_CALL_ENDED);
    assert_true(chat_info(g.call).unread > 0);
    free(chat_read_all(g.call));
    assert_int_equal(chat_info(g.call).unread, 0);
    di_call_free(g.call);
    leave(&g);
}

/* --- Limits --------------------------------------------------------------------------------------------------------------------- */

static void a_deadline_in_the_queue_is_overload(void **state)
{
    (void)state;
    static const char messages[] =
        "{\"model\":\"DeepSeek-V4.1-Flash\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
    held_script script;
    held_init(&script, LONG_TEXT, INT64_MAX);
    di_service *const s = chat_open(&script, NULL);
    assert_int_equal(di_service_set_tenant(s, "t", DI_TENANT_PAUSED, NULL), DI_OK);
    di_call *const c = chat_submit_with(s, &(di_call_options){.route = DI_ROUTE_MESSAGES, .body = messages, .n = strlen(messages),
                                                              .tenant = "t", .queue_timeout_ms = 100});
    char *const text = chat_read_all(c);
    assert_int_equal(chat_info(c).http_status, 503);
    assert_true(chat_info(c).retry_after_s > 0);
    expect_part(text, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"");
    free(text);
    di_call_free(c);
    chat_close(s, &script);
}

typedef struct moment {
    int64_t at;
} moment;

static bool has_come(void *arg)
{
    return clock_now_ns() > ((moment *)arg)->at;
}

static void a_deadline_while_running_is_a_timeout(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        held_script script;
        held_init(&script, LONG_TEXT, 2);
        di_service *const s = chat_open(&script, NULL);
        const char *const body = stream ? STREAM : CHAT_HELLO "}";
        di_call *const c = chat_submit_with(s, &(di_call_options){.route = DI_ROUTE_CHAT, .body = body, .n = strlen(body),
                                                                  .timeout_ms = 2000});
        moment end = {.at = chat_wait_phase(c, DI_CALL_DECODE).submitted_at + 2000000000};
        chat_until(has_come, &end);
        held_allow(&script, INT64_MAX);
        char *const text = chat_read_all(c);
        assert_int_equal(chat_info(c).http_status, stream ? 200 : 504);
        assert_int_equal(chat_info(c).error, DI_E_LIMIT);
        expect_part(text, "The request took longer than its time limit.");
        expect_no_part(text, "[DONE]");
        free(text);
        di_call_free(c);
        expect_idle(s);
        chat_close(s, &script);
    }
}

static void a_full_queue_is_429_and_a_draining_tenant_503(void **state)
{
    (void)state;
    held_script script;
    const di_service_options options = {.scheduler = {.max_waiting = 1}};
    held_init(&script, "Hello", INT64_MAX);
    di_service *const s = chat_open(&script, &options);
    assert_int_equal(di_service_set_tenant(s, "t", DI_TENANT_PAUSED, NULL), DI_OK);
    assert_int_equal(di_service_set_tenant(s, "d", DI_TENANT_DRAINING, NULL), DI_OK);
    di_call *const third = submit_as(s, "d", STREAM);
    char *text = chat_read_all(third);
    assert_int_equal(chat_info(third).http_status, 503);
    free(text);
    di_call *const first = submit_as(s, "t", CHAT_HELLO "}");
    chat_wait_phase(first, DI_CALL_QUEUED);
    di_call *const second = submit_as(s, "t", STREAM);
    text = chat_read_all(second);
    assert_int_equal(chat_info(second).http_status, 429);
    assert_false(chat_info(second).stream);
    assert_true(chat_info(second).retry_after_s > 0);
    expect_part(text, "Too many requests are waiting.");
    free(text);
    assert_int_equal(di_service_set_tenant(s, "t", DI_TENANT_OPEN, NULL), DI_OK);
    text = chat_read_all(first);
    expect_part(text, "\"content\":\"Hello\"");
    free(text);
    di_call_free(first);
    di_call_free(second);
    di_call_free(third);
    expect_idle(s);
    chat_close(s, &script);
}

/* The script stops before the end of the text: an end that comes in one batch with the last tokens is no longer bounded. */
static void who_does_not_read_is_dropped_and_others_are_not(void **state)
{
    (void)state;
    held_script script;
    const di_service_options options = {.max_unread_bytes = 3000};
    held_init(&script, LONG_TEXT, 0);
    di_service *const s = chat_open(&script, &options);
    di_call *const lazy = chat_submit(s, DI_ROUTE_CHAT, STREAM);
    held_allow(&script, (int64_t)script.n - 1);
    assert_int_equal(chat_wait_phase(lazy, DI_CALL_ENDED).phase, DI_CALL_ENDED);
    const di_call_info info = chat_info(lazy);
    assert_true(info.cancelled);
    assert_int_equal(info.error, DI_E_LIMIT);
    assert_true(info.unread < 3000 + 300);
    char *text = chat_read_all(lazy);
    expect_part(text, "The output was not read.");
    free(text);
    di_call *const piece = chat_submit(s, DI_ROUTE_CHAT, CHAT_HELLO "}");
    held_allow(&script, INT64_MAX);
    text = chat_read_all(piece);
    expect_part(text, "\"content\":\"" LONG_TEXT "\"");
    free(text);
    di_call_free(lazy);
    di_call_free(piece);
    expect_idle(s);
    chat_close(s, &script);
}

static void too_many_calls_are_not_taken(void **state)
{
    (void)state;
    di_error err;
    held_script script;
    const di_service_options options = {.max_calls = 1};
    held_init(&script, "Hello", 0);
    di_service *const s = chat_open(&script, &options);
    di_call *const first = chat_submit(s, DI_ROUTE_CHAT, STREAM);
    di_call *second = NULL;
    const di_call_options another = {.route = DI_ROUTE_CHAT, .body = STREAM, .n = strlen(STREAM)};
    unit_expect_error(di_service_submit(s, &another, &second, &err), DI_E_LIMIT, &err, "1 calls", NULL);
    di_call_free(first);
    held_allow(&script, INT64_MAX);
    expect_idle(s);
    chat_close(s, &script);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    di_error err;
    held_script script;
    char name[DI_MAX_TENANT_BYTES + 2];
    di_call *c = NULL;
    held_init(&script, "Hello", 0);
    di_service *const s = chat_open(&script, NULL);
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    unit_expect_error(di_service_submit(s, &(di_call_options){.route = (di_route)99}, &c, &err), DI_E_ARGUMENT, &err, "route", NULL);
    unit_expect_error(di_service_submit(s, &(di_call_options){.tenant = name}, &c, &err), DI_E_ARGUMENT, &err, "tenant", NULL);
    unit_expect_error(di_service_submit(s, &(di_call_options){.id = name}, &c, &err), DI_E_ARGUMENT, &err, "id", NULL);
    unit_expect_error(di_service_submit(s, &(di_call_options){.n = 1}, &c, &err), DI_E_ARGUMENT, &err, "body", NULL);
    unit_expect_error(di_service_submit(s, &(di_call_options){.timeout_ms = -1}, &c, &err), DI_E_ARGUMENT, &err, "timeout", NULL);
    unit_expect_error(di_service_set_tenant(s, name, DI_TENANT_OPEN, &err), DI_E_ARGUMENT, &err, "name", NULL);
    unit_expect_error(di_service_set_tenant(s, "a", (di_tenant_state)9, &err), DI_E_ARGUMENT, &err, "state", NULL);
    chat_close(s, &script);
}

/* --- Draining -------------------------------------------------------------------------------------------------------------------- */

static void a_draining_service_finishes_what_it_has(void **state)
{
    (void)state;
    di_error err;
    stage g;
    di_call *late = NULL;
    const di_call_options another = {.route = DI_ROUTE_CHAT, .body = STREAM, .n = strlen(STREAM)};
    reach(&g, DI_CALL_DECODE, STREAM);
    di_service_drain(g.service);
    unit_expect_error(di_service_submit(g.service, &another, &late, &err), DI_E_STATE, &err, "draining", NULL);
    assert_int_equal(di_service_pending(g.service), 1);
    go_on(&g);
    char *const text = chat_read_all(g.call);
    expect_part(text, "[DONE]");
    free(text);
    di_call_free(g.call);
    leave(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_cancelled_in_every_phase),
        cmocka_unit_test(an_answer_in_one_piece_is_cancelled_with_499),
        cmocka_unit_test(a_call_is_freed_in_every_phase),
        cmocka_unit_test(all_calls_are_cancelled_for_a_shutdown),
        cmocka_unit_test(phases_come_in_order_with_their_times),
        cmocka_unit_test(every_change_wakes_and_nothing_does_after_the_free),
        cmocka_unit_test(waiting_ends_with_output_the_end_or_the_time),
        cmocka_unit_test(a_deadline_in_the_queue_is_overload),
        cmocka_unit_test(a_deadline_while_running_is_a_timeout),
        cmocka_unit_test(a_full_queue_is_429_and_a_draining_tenant_503),
        cmocka_unit_test(who_does_not_read_is_dropped_and_others_are_not),
        cmocka_unit_test(too_many_calls_are_not_taken),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(a_draining_service_finishes_what_it_has),
    };
    return cmocka_run_group_tests(tests, chat_setup, chat_teardown);
}
