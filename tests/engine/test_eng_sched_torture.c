/* Fails each allocation of opening a scheduler, with and without measuring, submitting and running tasks in turn (support/torture.h): a clean
 * DI_E_MEMORY from the call, or an event that says so; nothing leaks, nothing crashes, and the KV store is as before. The ids come
 * from a script: what the executor's thread does allocates nothing.
 * ctest: timeout=240 wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "engine/eng_model.h"
#include "support/torture.h"

#include <deepinfer/scheduler.h>

#include <limits.h>
#include <stdio.h>

enum { N_PROMPT = 130, N_NEW = 70, N_TASKS = 2 };

static di_model *model;

typedef struct told {
    int n_ends;
    di_error failure; /* code 0: none failed */
} told;

static void on_events(void *user, const di_task_event *events, size_t n)
{
    told *const t = user;
    for (size_t i = 0; i < n; i++) {
        t->n_ends += events[i].end != DI_TASK_RUNNING;
        if (events[i].end == DI_TASK_FAILED) {
            t->failure = *events[i].error;
        }
    }
}

static int32_t script(void *user, void *task_user, int32_t choice, int64_t n)
{
    (void)user;
    (void)task_user;
    return (int32_t)((choice * 7 + n) % 200);
}

static di_status submit(di_scheduler *s, int32_t n, di_error *err)
{
    int32_t prompt[N_PROMPT];
    di_task *task;
    di_sampling sampling;
    for (int32_t i = 0; i < N_PROMPT; i++) {
        prompt[i] = i;
    }
    di_sampling_default(&sampling);
    sampling.repetition_penalty = 1.1f;
    sampling.top_p = 0.5f;
    const di_task_options o = {
        .prompt = prompt, .n_prompt = N_PROMPT, .sampling = &sampling, .n = n, .max_tokens = N_NEW, .tenant = "tenant"};
    return di_task_submit(s, &o, &task, err);
}

static di_status run(const void *arg, di_error *err)
{
    di_engine *engine = NULL;
    di_scheduler *s = NULL;
    told t = {.n_ends = 0, .failure = {.code = DI_OK}};
    const di_engine_options e = {.backend = "ref", .n_threads = 1, .chunk_tokens = 64};
    const di_scheduler_options o = {.on_events = on_events, .user = &t, .max_running = 4, .script = script};
    (void)arg;
    di_status status = di_engine_open(model, &e, &engine, err);
    if (status == DI_OK) {
        status = di_scheduler_new(engine, &o, &s, err);
    }
    for (int32_t i = 0; status == DI_OK && i < N_TASKS; i++) {
        status = submit(s, 1 + i, err);
    }
    di_step_info info = {.idle = false};
    while (status == DI_OK && !info.idle) {
        status = di_scheduler_step(s, &info, err);
    }
    if (status == DI_OK && t.n_ends != N_TASKS * (N_TASKS + 1) / 2) {
        fail_msg("%d choices ended", t.n_ends);
    }
    if (status == DI_OK && t.failure.code != DI_OK) {
        *err = t.failure;
        status = t.failure.code;
    }
    di_scheduler_free(s);
    di_engine_close(engine);
    if (status == DI_OK && torture.failed) { /* a unit was not published: all tokens came, which is what was to be seen */
        (void)snprintf(err->message, sizeof err->message, "out of memory: did without");
        status = DI_E_MEMORY;
        err->code = status;
    }
    return status;
}

static void every_allocation(void **state)
{
    (void)state;
    torture_all("tasks", run, NULL, LONG_MAX);
}

/* With a draft model, whose costs are measured. */
static di_status open_automatic(const void *arg, di_error *err)
{
    di_engine *engine = NULL;
    di_scheduler *s = NULL;
    told t = {.n_ends = 0};
    const di_engine_options e = {.backend = "ref", .n_threads = 1, .chunk_tokens = 8, .draft = true};
    const di_scheduler_options o = {.on_events = on_events, .user = &t, .max_running = 4, .draft_auto = true};
    (void)arg;
    di_status status = di_engine_open(model, &e, &engine, err);
    if (status == DI_OK) {
        status = di_scheduler_new(engine, &o, &s, err);
    }
    di_scheduler_free(s);
    di_engine_close(engine);
    return status;
}

static void every_allocation_of_measuring(void **state)
{
    (void)state;
    torture_all("measuring", open_automatic, NULL, LONG_MAX);
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
        cmocka_unit_test(every_allocation),
        cmocka_unit_test(every_allocation_of_measuring),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
