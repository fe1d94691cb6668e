/* The scheduler without a model (a script gives the ids): errors of submitting, order of admission, tenants, priorities and preemption,
 * deadlines, cancelling, choices, ends, counters. */
#include "core/clock.h"
#include "engine/engine_int.h"
#include "engine/eng_model.h"
#include "support/unit.h"

#include <deepinfer/scheduler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LOG = 512, STOP = 7, MAX_N = 3 };

static di_model *model;

/* What happened, in order: "+a" admitted, "a.0=12" a token, "a.0!S" an end (S stop, L length, C cancelled, D deadline, F failed). */
typedef struct bench {
    di_engine *engine;
    di_scheduler *sched;
    char log[1 << 16];
    size_t size;
    char last_error[512];
    di_task *cancel; /* in the next callback */
    int64_t stop_at; /* the script stops there; -1 = never */
    int64_t cached;
} bench;

typedef struct job {
    char name;
    di_task *task;
} job;

static void note(bench *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(b->log + b->size, sizeof b->log - b->size, format, args);
    va_end(args);
    assert_true(n > 0 && b->size + (size_t)n < sizeof b->log);
    b->size += (size_t)n;
}

static void on_events(void *user, const di_task_event *events, size_t n)
{
    static const char ends[] = "-SLCDF";
    bench *const b = user;
    for (size_t i = 0; i < n; i++) {
        const di_task_event *const e = &events[i];
        const job *const j = e->user;
        if (e->admitted) {
            note(b, "+%c ", j->name);
            b->cached = e->cached_tokens;
        }
        if (e->sample != NULL) {
            note(b, "%c.%d=%d ", j->name, e->choice, e->sample->id);
        }
        if (e->end != DI_TASK_RUNNING) {
            note(b, "%c.%d!%c ", j->name, e->choice, ends[e->end]);
        }
        if (e->error != NULL) {
            (void)snprintf(b->last_error, sizeof b->last_error, "%s", e->error->message);
        }
    }
    if (b->cancel != NULL) {
        di_task_cancel(b->cancel);
        b->cancel = NULL;
    }
}

/* Token n of choice c is 10 (c + 1) + n % 10. */
static int32_t script(void *user, void *task_user, int32_t choice, int64_t n)
{
    const bench *const b = user;
    (void)task_user;
    return n == b->stop_at ? STOP : (int32_t)(10 * (choice + 1) + n % 10);
}

static bench *open_bench(di_scheduler_options o, int64_t kv_bytes)
{
    bench *const b = calloc(1, sizeof *b);
    di_error err;
    assert_non_null(b);
    const di_engine_options e = {.chunk_tokens = 64, .n_threads = 1, .kv_bytes = kv_bytes};
    if (di_engine_open(model, &e, &b->engine, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    o.on_events = on_events;
    o.user = b;
    o.script = script;
    o.script_user = b;
    b->stop_at = -1;
    if (di_scheduler_new(b->engine, &o, &b->sched, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return b;
}

static void close_bench(bench *b)
{
    kv_counters k;
    kv_get_counters(b->engine->kv, &k);
    const char *const broken = kv_check(b->engine->kv);
    di_scheduler_free(b->sched);
    kv_get_counters(b->engine->kv, &k);
    assert_null(broken);
    assert_int_equal(k.pages_used + k.pages_promised + k.states_used + k.states_promised, 0);
    di_engine_close(b->engine);
    free(b);
}

static di_status submit(bench *b, job *j, char name, di_task_options o, di_error *err)
{
    static const int32_t prompt[200] = {1, 2, 3};
    static const int32_t stop = STOP;
    di_sampling sampling;
    di_sampling_default(&sampling);
    sampling.stop_ids = &stop;
    sampling.n_stop_ids = 1;
    o.prompt = o.prompt != NULL ? o.prompt : prompt;
    o.n_prompt = o.n_prompt > 0 ? o.n_prompt : 3;
    o.sampling = o.sampling != NULL ? o.sampling : &sampling;
    o.user = j;
    *j = (job){.name = name};
    return di_task_submit(b->sched, &o, &j->task, err);
}

static void add(bench *b, job *j, char name, di_task_options o)
{
    di_error err;
    if (submit(b, j, name, o, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
}

static void step(bench *b)
{
    di_step_info info;
    assert_int_equal(di_scheduler_step(b->sched, &info, NULL), DI_OK);
}

/* Until nothing is left to do. */
static void drain(bench *b)
{
    di_step_info info = {.idle = false};
    for (int i = 0; i < 10000 && !info.idle; i++) {
        assert_int_equal(di_scheduler_step(b->sched, &info, NULL), DI_OK);
    }
    assert_true(info.idle);
}

static void expect_log(bench *b, const char *text)
{
    b->log[b->size] = '\0';
    assert_string_equal(b->log, text);
    b->size = 0;
}

/* ---- ends ---- */

static void tokens_come_until_the_length(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 4}, 0);
    job j;
    add(b, &j, 'a', (di_task_options){.max_tokens = 3});
    drain(b);
    expect_log(b, "+a a.0=10 a.0=11 a.0=12 a.0!L ");
    close_bench(b);
}

static void a_stop_id_ends_and_is_told(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 4}, 0);
    job j;
    b->stop_at = 2;
    add(b, &j, 'a', (di_task_options){.max_tokens = 9});
    drain(b);
    expect_log(b, "+a a.0=10 a.0=11 a.0=7 a.0!S ");
    close_bench(b);
}

static void without_a_length_the_context_ends_it(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 4}, 0);
    job j;
    add(b, &j, 'a', (di_task_options){.n_prompt = 200});
    drain(b);
    di_scheduler_stats stats;
    di_scheduler_get_stats(b->sched, &stats);
    assert_int_equal(stats.prefill_tokens, 200);
    assert_int_equal(stats.decode_tokens, 55); /* 56 are sampled, the last one is not run */
    assert_non_null(strstr(b->log, "a.0=15 a.0!L "));
    close_bench(b);
}

static void choices_share_a_prompt(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 4}, 0);
    job j;
    add(b, &j, 'a', (di_task_options){.n_prompt = 150, .max_tokens = 2, .n = 3});
    drain(b);
    expect_log(b, "+a a.0=10 a.1=20 a.2=30 a.0=11 a.0!L a.1=21 a.1!L a.2=31 a.2!L ");
    di_scheduler_stats stats;
    di_scheduler_get_stats(b->sched, &stats);
    assert_int_equal(stats.prefill_tokens, 150);
    assert_int_equal(stats.decode_tokens, 3);
    close_bench(b);
}

/* ---- cancelling ---- */

static void cancelling_ends_with_an_event(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 1}, 0);
    job jobs[3];
    add(b, &jobs[0], 'a', (di_task_options){.max_tokens = 200});
    add(b, &jobs[1], 'b', (di_task_options){.max_tokens = 1});
    add(b, &jobs[2], 'c', (di_task_options){.max_tokens = 1});
    di_task_cancel(jobs[1].task); /* in the queue */
    step(b);
    step(b);
    step(b);
    di_task_cancel(jobs[0].task); /* in flight */
    di_task_cancel(jobs[0].task);
    drain(b);
    expect_log(b, "b.0!C +a a.0=10 a.0=11 a.0!C +c c.0=10 c.0!L ");
    close_bench(b);
}

static void one_choice_can_be_cancelled(void **state)
{
    (void)state;
    for (int32_t choice = 0; choice < 3; choice++) {
        for (int steps = 0; steps < 5; steps++) { /* in the queue, during the prompt, when the choices join, behind */
            bench *const b = open_bench((di_scheduler_options){.max_running = 3}, 0);
            job j;
            add(b, &j, 'a', (di_task_options){.n_prompt = 130, .max_tokens = 20, .n = 3});
            for (int i = 0; i < steps; i++) {
                step(b);
            }
            di_task_cancel_choice(j.task, choice);
            di_task_cancel_choice(j.task, -1);
            di_task_cancel_choice(j.task, 3);
            drain(b);
            for (int32_t k = 0; k < 3; k++) {
                char end[32];
                (void)snprintf(end, sizeof end, "a.%d!%c ", k, k == choice ? 'C' : 'L');
                assert_non_null(strstr(b->log, end));
            }
            close_bench(b);
        }
    }
}

static void a_callback_may_cancel(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 2}, 0);
    job j;
    add(b, &j, 'a', (di_task_options){.max_tokens = 1});
    b->cancel = j.task; /* at its admission */
    drain(b);
    expect_log(b, "+a a.0!C ");
    add(b, &j, 'b', (di_task_options){.max_tokens = 1});
    step(b);
    b->cancel = j.task; /* as it is told of its end */
    drain(b);
    expect_log(b, "+b b.0=10 b.0!L ");
    close_bench(b);
}

static void freeing_ends_everything(void **state)
{
    (void)state;
    for (int steps = 0; steps < 4; steps++) {
        bench *const b = open_bench((di_scheduler_options){.max_running = 4}, 0);
        job jobs[4];
        for (int i = 0; i < 4; i++) {
            add(b, &jobs[i], (char)('a' + i), (di_task_options){.n_prompt = 100, .n = i == 0 ? 3 : 1});
        }
        for (int i = 0; i < steps; i++) {
            step(b);
        }
        close_bench(b);
    }
}

/* ---- deadlines ---- */

static void deadlines_end_waiting_and_running_tasks(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 1}, 0);
    job jobs[3];
    const int64_t now = clock_now_ns();
    add(b, &jobs[0], 'a', (di_task_options){.max_tokens = 2, .queue_deadline = now + INT64_C(1000000000000)});
    add(b, &jobs[1], 'b', (di_task_options){.max_tokens = 2, .queue_deadline = now});
    add(b, &jobs[2], 'c', (di_task_options){.max_tokens = 2, .deadline = 1});
    drain(b);
    expect_log(b, "c.0!D b.0!D +a a.0=10 a.0=11 a.0!L ");
    for (int tries = 0; tries < 40; tries++) { /* a deadline that passes while it runs, or before on a busy machine */
        add(b, &jobs[0], 'd', (di_task_options){.deadline = clock_now_ns() + (INT64_C(1000) << tries / 2)});
        drain(b);
        b->log[b->size] = '\0';
        b->size = 0;
        if (strstr(b->log, "d.0=1") != NULL && strstr(b->log, "d.0!D") != NULL) {
            close_bench(b);
            return;
        }
    }
    fail_msg("no deadline passed while a task ran");
}

/* ---- order ---- */

static void priority_then_least_served_tenant(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 1}, 0);
    job jobs[6];
    add(b, &jobs[0], 'a', (di_task_options){.tenant = "x", .max_tokens = 4});
    add(b, &jobs[1], 'b', (di_task_options){.tenant = "x", .max_tokens = 1});
    add(b, &jobs[2], 'c', (di_task_options){.tenant = "x", .max_tokens = 1});
    add(b, &jobs[3], 'd', (di_task_options){.tenant = "y", .max_tokens = 1});
    add(b, &jobs[4], 'e', (di_task_options){.tenant = "y", .max_tokens = 1});
    add(b, &jobs[5], 'f', (di_task_options){.tenant = "x", .max_tokens = 1, .priority = 1});
    drain(b);
    /* x pays 3 + 2 for f and 3 + 8 for a, y then catches up with 3 + 2 twice. */
    expect_log(b, "+f f.0=10 f.0!L +d d.0=10 d.0!L +a a.0=10 a.0=11 a.0=12 a.0=13 a.0!L +e e.0=10 e.0!L +b b.0=10 b.0!L +c c.0=10 c.0!L ");
    close_bench(b);
}

static void a_heavier_tenant_gets_more(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 1}, 0);
    job jobs[24];
    assert_int_equal(di_scheduler_set_weight(b->sched, "x", 3.0, NULL), DI_OK);
    for (int i = 0; i < 24; i++) {
        add(b, &jobs[i], (char)(i % 2 == 0 ? 'x' : 'y'), (di_task_options){.tenant = i % 2 == 0 ? "x" : "y", .max_tokens = 1});
    }
    int x = 0;
    int n = 0;
    di_step_info info;
    while (n < 12) {
        b->size = 0;
        assert_int_equal(di_scheduler_step(b->sched, &info, NULL), DI_OK);
        b->log[b->size] = '\0';
        n += strchr(b->log, '+') != NULL;
        x += strstr(b->log, "+x") != NULL;
    }
    assert_int_equal(x, 9);
    close_bench(b);
}

static void a_paused_tenant_waits(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 1}, 0);
    job jobs[3];
    di_tenant_info tenants[4];
    add(b, &jobs[0], 'a', (di_task_options){.tenant = "x", .max_tokens = 2});
    step(b);
    assert_int_equal(di_scheduler_set_tenant(b->sched, "x", DI_TENANT_PAUSED, NULL), DI_OK);
    add(b, &jobs[1], 'b', (di_task_options){.tenant = "x", .max_tokens = 1});
    add(b, &jobs[2], 'c', (di_task_options){.tenant = "y", .max_tokens = 1});
    drain(b); /* a runs on, b stays */
    expect_log(b, "+a a.0=10 a.0=11 a.0!L +c c.0=10 c.0!L ");
    assert_int_equal(di_scheduler_get_tenants(b->sched, tenants, 4), 2);
    assert_string_equal(tenants[0].name, "x");
    assert_int_equal(tenants[0].state, DI_TENANT_PAUSED);
    assert_int_equal(tenants[0].n_waiting, 1);
    assert_int_equal(tenants[0].generated_tokens, 2);
    assert_int_equal(tenants[1].prompt_tokens, 3);
    assert_int_equal(di_scheduler_set_tenant(b->sched, "x", DI_TENANT_OPEN, NULL), DI_OK);
    drain(b);
    expect_log(b, "+b b.0=10 b.0!L ");
    close_bench(b);
}

static void a_draining_tenant_takes_nothing_new(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 1}, 0);
    job jobs[2];
    di_error err;
    add(b, &jobs[0], 'a', (di_task_options){.tenant = "x", .max_tokens = 1});
    assert_int_equal(di_scheduler_set_tenant(b->sched, "x", DI_TENANT_DRAINING, NULL), DI_OK);
    unit_expect_error(submit(b, &jobs[1], 'b', (di_task_options){.tenant = "x"}, &err), DI_E_STATE, &err, "'x'", "draining", NULL);
    drain(b);
    expect_log(b, "+a a.0=10 a.0!L ");
    close_bench(b);
}

static void a_higher_priority_preempts(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 1}, 0);
    job jobs[2];
    di_scheduler_stats stats;
    add(b, &jobs[0], 'a', (di_task_options){.max_tokens = 4});
    step(b);
    step(b);
    step(b);
    add(b, &jobs[1], 'b', (di_task_options){.max_tokens = 2, .priority = 1});
    drain(b);
    di_scheduler_get_stats(b->sched, &stats);
    assert_int_equal(stats.n_preempted, 1);
    b->log[b->size] = '\0';
    assert_non_null(strstr(b->log, "+b b.0=10 b.0=11 b.0!L a.0=1")); /* and nothing of a is lost or told twice */
    assert_non_null(strstr(b->log, "a.0=13 a.0!L "));
    assert_null(strstr(strstr(b->log, "+a") + 1, "+a"));
    for (int i = 0; i < 4; i++) {
        char token[32];
        (void)snprintf(token, sizeof token, "a.0=%d ", 10 + i);
        const char *const first = strstr(b->log, token);
        assert_non_null(first);
        assert_null(strstr(first + 1, token));
    }
    close_bench(b);
}

/* ---- memory ---- */

static void a_repeated_prompt_is_cached_within_its_tenant(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 2}, 0);
    job j;
    static const struct {
        const char *tenant;
        bool no_cache;
        int64_t cached;
    } cases[] = {{"x", false, 0}, {"x", false, 128}, {"y", false, 0}, {"x", true, 0}, {"y", false, 128}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        add(b, &j, 'a', (di_task_options){.n_prompt = 140, .max_tokens = 1, .tenant = cases[i].tenant, .no_cache = cases[i].no_cache});
        drain(b);
        assert_int_equal(b->cached, cases[i].cached);
    }
    di_kv_stats kv;
    di_engine_get_kv_stats(b->engine, &kv);
    assert_int_equal(kv.resumed_tokens, 256);
    close_bench(b);
}

static void submits_are_checked(void **state)
{
    (void)state;
    bench *const b = open_bench((di_scheduler_options){.max_running = 3, .max_waiting = 2}, 0);
    static const int32_t bad[] = {1, 256};
    char name[DI_MAX_TENANT_BYTES + 2];
    job j;
    di_error err;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.n = 4}, &err), DI_E_ARGUMENT, &err, "n is 4", "1 to 3", NULL);
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.n = -1}, &err), DI_E_ARGUMENT, &err, "n is -1", NULL);
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.max_tokens = -5}, &err), DI_E_ARGUMENT, &err, "max_tokens is -5", NULL);
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.verify = (di_verify)3}, &err), DI_E_ARGUMENT, &err, "verify is 3", NULL);
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.tenant = name}, &err), DI_E_ARGUMENT, &err, "513 bytes", NULL);
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.prompt = bad, .n_prompt = 2}, &err), DI_E_ARGUMENT, &err, "token 1", "256",
                      "0..255", NULL);
    static const int32_t zeros[256] = {0};
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.prompt = zeros, .n_prompt = 256}, &err), DI_E_LIMIT, &err, "256 tokens", NULL);
    unit_expect_error(di_task_submit(b->sched, &(di_task_options){.prompt = zeros}, &j.task, &err), DI_E_ARGUMENT, &err, "empty", NULL);
    di_sampling sampling;
    di_sampling_default(&sampling);
    sampling.top_p = 2.0f;
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.sampling = &sampling}, &err), DI_E_ARGUMENT, &err, "top_p", NULL);
    add(b, &j, 'a', (di_task_options){.max_tokens = 1});
    add(b, &j, 'b', (di_task_options){.max_tokens = 1});
    unit_expect_error(submit(b, &j, 'c', (di_task_options){.max_tokens = 1}, &err), DI_E_LIMIT, &err, "queue is full", NULL);
    close_bench(b);
}

static void memory_bounds_the_length(void **state)
{
    (void)state;
    di_model_info info;
    di_model_get_info(model, &info);
    bench *const b = open_bench((di_scheduler_options){.max_running = 3}, ((int64_t)info.state_bytes + 64) * 8); /* one state */
    job j;
    di_error err;
    unit_expect_error(submit(b, &j, 'a', (di_task_options){.n = 2}, &err), DI_E_LIMIT, &err, "KV memory", "2 choices", NULL);
    add(b, &j, 'a', (di_task_options){.max_tokens = 2});
    drain(b);
    expect_log(b, "+a a.0=10 a.0=11 a.0!L ");
    close_bench(b);
}

static void options_are_checked(void **state)
{
    (void)state;
    di_engine *e = NULL;
    di_scheduler *s = NULL;
    di_error err;
    const di_engine_options o = {.chunk_tokens = 16, .n_threads = 1};
    assert_int_equal(di_engine_open(model, &o, &e, NULL), DI_OK);
    unit_expect_error(di_scheduler_new(e, &(di_scheduler_options){.max_running = 1}, &s, &err), DI_E_ARGUMENT, &err, "on_events", NULL);
    unit_expect_error(di_scheduler_new(e, &(di_scheduler_options){.on_events = on_events, .step_tokens = 17}, &s, &err), DI_E_ARGUMENT, &err,
                      "step_tokens is 17", "16", NULL);
    unit_expect_error(di_scheduler_new(e, &(di_scheduler_options){.on_events = on_events, .max_running = -1}, &s, &err), DI_E_ARGUMENT, &err,
                      "max_running", NULL);
    unit_expect_error(di_scheduler_new(e, &(di_scheduler_options){.on_events = on_events, .ahead_tokens = -1}, &s, &err), DI_E_ARGUMENT,
                      &err, "ahead_tokens", NULL);
    di_sequence *q;
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    unit_expect_error(di_scheduler_new(e, &(di_scheduler_options){.on_events = on_events}, &s, &err), DI_E_STATE, &err, "sequences", NULL);
    di_sequence_free(q);
    di_engine_close(e);
}

static int open_model(void **state)
{
    (void)state;
    model = eng_model_open("tests/data/model/t6");
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    di_model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_until_the_length),
        cmocka_unit_test(a_stop_id_ends_and_is_told),
        cmocka_unit_test(without_a_length_the_context_ends_it),
        cmocka_unit_test(choices_share_a_prompt),
        cmocka_unit_test(cancelling_ends_with_an_event),
        cmocka_unit_test(one_choice_can_be_cancelled),
        cmocka_unit_test(a_callback_may_cancel),
        cmocka_unit_test(freeing_ends_everything),
        cmocka_unit_test(deadlines_end_waiting_and_running_tasks),
        cmocka_unit_test(priority_then_least_served_tenant),
        cmocka_unit_test(a_heavier_tenant_gets_more),
        cmocka_unit_test(a_paused_tenant_waits),
        cmocka_unit_test(a_draining_tenant_takes_nothing_new),
        cmocka_unit_test(a_higher_priority_preempts),
        cmocka_unit_test(a_repeated_prompt_is_cached_within_its_tenant),
        cmocka_unit_test(submits_are_checked),
        cmocka_unit_test(memory_bounds_the_length),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
