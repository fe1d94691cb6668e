/* bench_structured.c - what constraints cost a batch: the same tasks with and without them, in turn, on the demo model.
 *
 *   bench_structured [--json] [TURNS [TASKS [TOKENS]]]
 *
 * 64 tasks of 48 tokens. In one half of the runs every other task is held to a JSON Schema whose texts are longer than that; in the other
 * none is, and no task ends before its limit, so that both halves run the same number of tokens. A turn is four runs, with, without,
 * without, with, or the other way round, so that a machine that becomes slower or faster counts for neither; its ratio is the time without
 * over the time with constraints. The figure is the mean of the ratios with its interval of 95 % (normal), and how long sampling waited for
 * masks. The same for processor time, which other programs of the machine disturb less. */
#include <deepinfer/scheduler.h>

#include "core/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TURNS = 256, MAX_TASKS = 256, MAX_PROMPT = 64 };

static const char *const schemas[] = {
    "{\"type\":\"string\",\"minLength\":2000}",
    "{\"type\":\"array\",\"minItems\":300,\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"n\":{\"type\":"
    "\"integer\"}},\"required\":[\"name\",\"n\"],\"additionalProperties\":false}}",
    "{\"type\":\"array\",\"minItems\":300,\"items\":{\"anyOf\":[{\"enum\":[\"red\",\"green\",\"blue\"]},{\"type\":\"number\"}]}}",
};
enum { N_SCHEMAS = sizeof schemas / sizeof schemas[0] };

typedef struct bench {
    di_model *model;
    di_engine *engine;
    di_scheduler *scheduler;
    di_grammar *grammars[N_SCHEMAS];
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt;
    int n_tasks;
    int n_tokens;
} bench;

static void need(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        fprintf(stderr, "bench_structured: %s\n", err->message);
        exit(1);
    }
}

static void ignore(void *user, const di_task_event *events, size_t n)
{
    (void)user;
    (void)events;
    (void)n;
}

static void submit(bench *b, int i, bool constrained)
{
    di_sampling sampling;
    di_task *task;
    di_error err;
    di_sampling_default(&sampling);
    sampling.seed = (uint64_t)i;
    const di_task_options o = {.prompt = b->prompt,
                               .n_prompt = b->n_prompt,
                               .sampling = &sampling,
                               .max_tokens = b->n_tokens,
                               .no_cache = true,
                               .grammar = constrained && i % 2 == 0 ? b->grammars[i / 2 % N_SCHEMAS] : NULL};
    need(di_task_submit(b->scheduler, &o, &task, &err), &err);
}

typedef struct spent {
    double wall_s;
    double cpu_s; /* of all threads */
} spent;

typedef struct ratios {
    double sum;
    double squares;
} ratios;

static double cpu_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static spent run(bench *b, bool constrained)
{
    di_step_info info = {.idle = false};
    di_error err;
    const int64_t began = clock_now_ns();
    const double cpu = cpu_now();
    for (int i = 0; i < b->n_tasks; i++) {
        submit(b, i, constrained);
    }
    while (!info.idle) {
        need(di_scheduler_step(b->scheduler, &info, &err), &err);
    }
    return (spent){.wall_s = (double)(clock_now_ns() - began) * 1e-9, .cpu_s = cpu_now() - cpu};
}

/* Times of the two runs without and the two with constraints, whose order is that of the turn. */
static void take_turn(bench *b, bool first, spent *with, spent *without)
{
    const bool order[] = {first, !first, !first, first};
    *with = *without = (spent){.wall_s = 0.0};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const spent one = run(b, order[i]);
        spent *const sum = order[i] ? with : without;
        sum->wall_s += one.wall_s;
        sum->cpu_s += one.cpu_s;
    }
}

static void add(ratios *r, double ratio)
{
    r->sum += ratio;
    r->squares += ratio * ratio;
}

static void open_all(bench *b, di_vocabulary **vocabulary)
{
    static const char text[] = "Continue the story: Jack walked into the village and saw a rabbit.";
    const char *const source = getenv("DI_MODEL");
    di_model_info info;
    di_error err;
    need(di_model_open(source != NULL ? source : "models/demo", NULL, &b->model, &err), &err);
    di_model_get_info(b->model, &info);
    const di_tokenizer *const t = di_model_tokenizer(b->model);
    need(di_tokenizer_encode(t, text, sizeof text - 1, 0, b->prompt, MAX_PROMPT, &b->n_prompt, &err), &err);
    need(di_vocabulary_new(t, &info.eos_token_id, 1, vocabulary, &err), &err);
    for (int i = 0; i < N_SCHEMAS; i++) {
        need(di_grammar_compile(DI_GRAMMAR_SCHEMA, schemas[i], strlen(schemas[i]), NULL, &b->grammars[i], NULL, &err), &err);
    }
    need(di_engine_open(b->model, NULL, &b->engine, &err), &err);
    const di_scheduler_options o = {.on_events = ignore, .vocabulary = *vocabulary};
    need(di_scheduler_new(b->engine, &o, &b->scheduler, &err), &err);
}

static void close_all(bench *b, di_vocabulary *vocabulary)
{
    di_scheduler_free(b->scheduler);
    di_engine_close(b->engine);
    for (int i = 0; i < N_SCHEMAS; i++) {
        di_grammar_free(b->grammars[i]);
    }
    di_vocabulary_free(vocabulary);
    di_model_close(b->model);
}

static void report(bool json, const char *metric, double value, const char *unit)
{
    if (json) {
        printf("{\"bench\":\"structured\",\"case\":\"half of a batch\",\"metric\":\"%s\",\"value\":%.5g,\"unit\":\"%s\",\"baseline\":"
               "\"unconstrained\",\"ratio\":null}\n",
               metric, value, unit);
    } else {
        printf("%-28s %10.5g %s\n", metric, value, unit);
    }
}

static void report_ratio(bool json, const ratios *r, int n, const char *const names[3])
{
    const double mean = r->sum / n;
    const double half = 1.96 * sqrt((r->squares / n - mean * mean) / (n - 1));
    report(json, names[0], mean, "1");
    report(json, names[1], mean - half, "1");
    report(json, names[2], mean + half, "1");
}

static int number(int argc, char **argv, int i, int low, int high, int otherwise)
{
    const int value = i < argc ? atoi(argv[i]) : otherwise;
    return value < low ? low : value > high ? high : value;
}

int main(int argc, char **argv)
{
    const bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    const int at = json ? 2 : 1;
    const int n_turns = number(argc, argv, at, 2, MAX_TURNS, 12);
    bench b = {.n_tasks = number(argc, argv, at + 1, 2, MAX_TASKS, 64), .n_tokens = number(argc, argv, at + 2, 2, 256, 48)};
    di_vocabulary *vocabulary = NULL;
    di_scheduler_stats stats;
    ratios wall = {.sum = 0.0};
    ratios cpu = {.sum = 0.0};
    double seconds = 0.0;
    open_all(&b, &vocabulary);
    (void)run(&b, true); /* tables of the grammars, caches of the processor */
    di_scheduler_get_stats(b.scheduler, &stats);
    const int64_t waited = stats.mask_wait_ns;
    for (int i = 0; i < n_turns; i++) {
        spent with;
        spent without;
        take_turn(&b, i % 2 == 0, &with, &without);
        seconds += with.wall_s;
        add(&wall, without.wall_s / with.wall_s);
        add(&cpu, without.cpu_s / with.cpu_s);
    }
    di_scheduler_get_stats(b.scheduler, &stats);
    report_ratio(json, &wall, n_turns, (const char *const[]){"throughput ratio", "its lower end, 95 %", "its upper end, 95 %"});
    report_ratio(json, &cpu, n_turns, (const char *const[]){"processor time ratio", "lower end of that", "upper end of that"});
    report(json, "constrained throughput", 2.0 * n_turns * b.n_tasks * b.n_tokens / seconds, "tok/s");
    report(json, "waiting for masks", (double)(stats.mask_wait_ns - waited) * 1e-9 / seconds, "of the time");
    report(json, "masks, processor time", stats.n_masks > 0 ? (double)stats.mask_ns * 1e-3 / (double)stats.n_masks : 0.0, "us");
    close_all(&b, vocabulary);
    return 0;
}
