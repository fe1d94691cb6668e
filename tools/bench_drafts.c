/* bench_drafts.c - see bench_drafts.h. One engine, two schedulers one after the other: without drafts, and with all that are proposed.
 * Steps are timed once every sequence decodes, so neither prompts nor ends fall into them. */
#include "bench_drafts.h"

#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"

#include <deepinfer/scheduler.h>

#include <stdlib.h>

enum { STEPS = 4, WARM_STEPS = 4, MOST_TOKENS = 1 + DI_MAX_VERIFIED };

typedef struct batch {
    di_scheduler *scheduler;
    bool started[BENCH_MAX_BATCH];
    int32_t n_started;
    int64_t n_tokens;
    di_error failure;
    bool failed;
} batch;

static void on_events(void *user, const di_task_event *events, size_t n)
{
    batch *const b = user;
    for (size_t i = 0; i < n; i++) {
        bool *const started = events[i].user;
        if (events[i].sample != NULL) {
            b->n_started += !*started;
            b->n_tokens++;
            *started = true;
        }
        if (events[i].end == DI_TASK_FAILED && !b->failed) {
            b->failed = true;
            b->failure = *events[i].error;
        }
    }
}

static di_status submit(batch *b, const bench_setup *setup, int32_t n, di_error *err)
{
    const size_t context = (size_t)setup->context;
    uint64_t seed = 7;
    di_status status = DI_OK;
    int32_t *const ids = ar_calloc(context, sizeof *ids);
    if (ids == NULL) {
        return err_memory(err, "prompt", context * sizeof *ids);
    }
    for (int32_t i = 0; i < n && status == DI_OK; i++) {
        di_task *task;
        di_sampling sampling;
        di_sampling_default(&sampling);
        sampling.temperature = 0.0f;
        for (size_t k = 0; k < context; k++) {
            ids[k] = bench_random_id(&seed);
        }
        const di_task_options options = {.prompt = ids,
                                         .n_prompt = context,
                                         .sampling = &sampling,
                                         .no_cache = true,
                                         .max_tokens = (int64_t)MOST_TOKENS * STEPS * (setup->rounds + 64), /* none ends */
                                         .user = &b->started[i]};
        status = di_task_submit(b->scheduler, &options, &task, err);
    }
    free(ids);
    return status;
}

static di_status steps(batch *b, int n, di_error *err)
{
    di_status status = DI_OK;
    for (int i = 0; i < n && status == DI_OK; i++) {
        di_step_info info;
        status = di_scheduler_step(b->scheduler, &info, err);
    }
    if (status == DI_OK && b->failed) {
        *err = b->failure;
        status = err->code;
    }
    return status;
}

static di_status start(batch *b, int32_t n, di_error *err)
{
    di_status status = DI_OK;
    while (status == DI_OK && b->n_started < n) {
        status = steps(b, 1, err);
    }
    return status == DI_OK ? steps(b, WARM_STEPS, err) : status;
}

typedef struct figures {
    double ms[BENCH_MAX_ROUNDS];
    double propose_ms[BENCH_MAX_ROUNDS];
    double tokens[BENCH_MAX_ROUNDS];
} figures;

static di_status run_rounds(batch *b, int32_t rounds, int32_t n, figures *out, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t r = 0; r < rounds && status == DI_OK; r++) {
        di_scheduler_stats before;
        di_scheduler_stats after;
        const int64_t n_tokens = b->n_tokens;
        di_scheduler_get_stats(b->scheduler, &before);
        const int64_t begin = clock_now_ns();
        status = steps(b, STEPS, err);
        out->ms[r] = (double)(clock_now_ns() - begin) / STEPS * 1e-6;
        di_scheduler_get_stats(b->scheduler, &after);
        out->propose_ms[r] = (double)(after.draft_ns - before.draft_ns) / STEPS * 1e-6;
        out->tokens[r] = (double)(b->n_tokens - n_tokens) / STEPS / n;
    }
    return status;
}

static di_status run_way(di_engine *engine, const bench_setup *setup, int32_t n, bool drafts, figures *out, di_error *err)
{
    batch *const b = ar_calloc(1, sizeof *b);
    if (b == NULL) {
        return err_memory(err, "batch", sizeof *b);
    }
    const di_scheduler_options options = {.on_events = on_events, .user = b, .draft_tokens = drafts ? 0 : -1};
    di_status status = di_scheduler_new(engine, &options, &b->scheduler, err);
    if (status == DI_OK) {
        status = submit(b, setup, n, err);
    }
    if (status == DI_OK) {
        status = start(b, n, err);
    }
    if (status == DI_OK) {
        status = run_rounds(b, setup->rounds, n, out, err);
    }
    di_scheduler_free(b->scheduler);
    free(b);
    return status;
}

di_status bench_drafts_run(const di_model *model, const bench_setup *setup, int32_t n, bench_drafts_result *out, di_error *err)
{
    di_engine *engine = NULL;
    di_engine_options options = setup->engine;
    figures off;
    figures on;
    options.draft = true;
    if (options.chunk_tokens < n * MOST_TOKENS) { /* a step has room for the drafts of all */
        options.chunk_tokens = n * MOST_TOKENS;
    }
    di_status status = di_engine_open(model, &options, &engine, err);
    if (status == DI_OK) {
        status = run_way(engine, setup, n, false, &off, err);
    }
    if (status == DI_OK) {
        status = run_way(engine, setup, n, true, &on, err);
    }
    di_engine_close(engine);
    if (status == DI_OK) {
        *out = (bench_drafts_result){.off_ms = bench_median_of(off.ms, setup->rounds),
                                     .ms = bench_median_of(on.ms, setup->rounds),
                                     .propose_ms = bench_median_of(on.propose_ms, setup->rounds),
                                     .tokens = bench_median_of(on.tokens, setup->rounds)};
    }
    return status;
}
