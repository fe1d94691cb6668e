/* bench_draft.c - time per token of the demo model without drafts, with five a step, and with as many as pay, turn by turn.
 *
 *   bench_draft [--json] [--threads=N] [--turns=N] [BATCH...]        (1 8 64; two threads; 301, 31 and 11 turns)
 *
 * A turn takes so many prompts of the evaluation set as the batch has choices, those with the longest answers, and runs them together in
 * each of the three ways, in rotated order; other turns take other prompts until the list begins again. The clock runs from the step in
 * which every choice has its first token to the end, and time per token is over what came since. All three give the same tokens, which is
 * checked. A line of a way says how much faster it is than none. As many as pay stand in a line of their own beside the better of the
 * other two: the one with the lower median over all turns, for the lesser of two times in each turn would be better than either. Ratios are
 * taken within a turn, and their median has a 95 % interval from order statistics. Drafts of the demo model are nearly always right on
 * these prompts. */
#include "core/clock.h"
#include "core/file.h"
#include "core/json.h"
#include "cpu_bench.h"
#include "order.h"

#include <deepinfer/scheduler.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS = 3, OFF = 0, FIXED = 1, AUTO = 2, FIXED_DRAFTS = 5, MAX_TURNS = 301, MAX_BATCH = 128, MAX_OUT = 96, EOS = 1 };

static const char *const WAY_NAMES[WAYS] = {"off", "fixed:5", "auto"};

typedef struct prompt {
    int32_t *ids; /* [n], owned */
    size_t n;
    size_t n_answer;
} prompt;

typedef struct answer {
    int32_t ids[MAX_OUT];
    int32_t n;
} answer;

/* One way of drafting, with an engine of its own. */
typedef struct way {
    di_engine *engine;
    di_scheduler *scheduler;
    answer answers[MAX_BATCH];
    int32_t n_started; /* choices that have a token */
    int64_t n_tokens;
} way;

typedef struct bench {
    bool json;
    int32_t threads;
    int turns; /* 0 = by the batch */
    di_model *model;
    prompt *prompts; /* [n_prompts], longest answers first */
    size_t n_prompts;
    way ways[WAYS];
} bench;

/* --- Prompts ------------------------------------------------------------------------------------------------------- */

static void add_prompt(bench *b, const char *line, size_t size)
{
    js_doc *doc = NULL;
    di_error err;
    bench_must(js_parse(line, size, "eval.jsonl", NULL, &doc, &err), &err);
    const js_value *const ids = js_get(js_root(doc), "prompt_ids");
    prompt *const p = &b->prompts[b->n_prompts++];
    p->n = js_length(ids);
    p->n_answer = js_length(js_get(js_root(doc), "reference_output_ids"));
    p->ids = bench_need(calloc(p->n + 1, sizeof *p->ids));
    for (size_t i = 0; i < p->n; i++) {
        p->ids[i] = (int32_t)js_int(js_at(ids, i));
    }
    js_free(doc);
}

static int longest_first(const void *a, const void *b)
{
    const prompt *const x = a;
    const prompt *const y = b;
    return (x->n_answer < y->n_answer) - (x->n_answer > y->n_answer);
}

/* Of answers of 24 tokens and more. */
static void read_prompts(bench *b)
{
    char *text = NULL;
    size_t size = 0;
    size_t n_lines = 0;
    di_error err;
    bench_must(file_read("tests/data/demo_model/eval.jsonl", (size_t)256 << 20, &text, &size, &err), &err);
    for (size_t i = 0; i < size; i++) {
        n_lines += text[i] == '\n';
    }
    b->prompts = bench_need(calloc(n_lines + 1, sizeof *b->prompts));
    for (const char *line = text; line < text + size;) {
        const char *const end = memchr(line, '\n', (size_t)(text + size - line));
        const size_t n = end != NULL ? (size_t)(end - line) : (size_t)(text + size - line);
        if (n > 0) {
            add_prompt(b, line, n);
        }
        line += n + 1;
    }
    free(text);
    qsort(b->prompts, b->n_prompts, sizeof *b->prompts, longest_first);
    while (b->n_prompts > 0 && b->prompts[b->n_prompts - 1].n_answer < 24) {
        free(b->prompts[--b->n_prompts].ids);
    }
}

/* --- One turn ------------------------------------------------------------------------------------------------------ */

static void on_events(void *user, const di_task_event *events, size_t n)
{
    way *const w = user;
    for (size_t i = 0; i < n; i++) {
        answer *const a = events[i].user;
        if (events[i].sample == NULL) {
            continue;
        }
        w->n_started += a->n == 0;
        w->n_tokens++;
        if (a->n < MAX_OUT) {
            a->ids[a->n++] = events[i].sample->id;
        }
    }
}

/* Microseconds a token. */
static double run_way(bench *b, way *w, int32_t batch, size_t first)
{
    static const int32_t stop = EOS;
    di_error err;
    di_sampling greedy;
    di_sampling_default(&greedy);
    greedy.temperature = 0.0f;
    greedy.stop_ids = &stop;
    greedy.n_stop_ids = 1;
    w->n_started = 0;
    w->n_tokens = 0;
    for (int32_t i = 0; i < batch; i++) {
        const prompt *const p = &b->prompts[(first + (size_t)i) % b->n_prompts];
        di_task *task;
        w->answers[i].n = 0;
        const di_task_options options = {.prompt = p->ids, .n_prompt = p->n, .sampling = &greedy, .no_cache = true, .max_tokens = MAX_OUT,
                                         .user = &w->answers[i]};
        bench_must(di_task_submit(w->scheduler, &options, &task, &err), &err);
    }
    int64_t begin = 0;
    int64_t n_before = 0;
    for (di_step_info step = {.idle = false}; !step.idle;) {
        bench_must(di_scheduler_step(w->scheduler, &step, &err), &err);
        if (begin == 0 && w->n_started == batch) {
            begin = clock_now_ns();
            n_before = w->n_tokens;
        }
    }
    return 1e-3 * (double)(clock_now_ns() - begin) / (double)(w->n_tokens - n_before);
}

static void check_equal(const way *a, const way *b, int32_t batch)
{
    for (int32_t i = 0; i < batch; i++) {
        const answer *const x = &a->answers[i];
        const answer *const y = &b->answers[i];
        if (x->n != y->n || memcmp(x->ids, y->ids, (size_t)x->n * sizeof x->ids[0]) != 0) {
            bench_fail("drafts changed a text");
        }
    }
}

/* --- A batch size -------------------------------------------------------------------------------------------------- */

static bench_spread spread_of(const double *values, int n)
{
    double sorted[MAX_TURNS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    return bench_spread_of(sorted, (size_t)n);
}

static void report(const bench *b, const char *name, const char *metric, double value, const char *unit, const char *baseline,
                   bench_spread ratio)
{
    if (b->json) {
        printf("{\"bench\":\"draft\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\",\"ratio\":%.4g,"
               "\"ratio_low\":%.4g,\"ratio_high\":%.4g}\n", name, metric, value, unit, baseline, ratio.median, ratio.low, ratio.high);
    } else {
        printf("%-12s %-16s %10.4g %-8s %-10s %6.3f  (%.3f to %.3f)\n", name, metric, value, unit, baseline, ratio.median, ratio.low,
               ratio.high);
    }
    (void)fflush(stdout);
}

/* Ratios of two ways' times in the same turn. */
static bench_spread ratios(double us[WAYS][MAX_TURNS], int n, int above, int below)
{
    double ratio[MAX_TURNS];
    for (int i = 0; i < n; i++) {
        ratio[i] = us[above][i] / us[below][i];
    }
    return spread_of(ratio, n);
}

static void report_all(const bench *b, const char *name, double us[WAYS][MAX_TURNS], int n)
{
    char metric[32];
    for (int kind = 0; kind < WAYS; kind++) {
        report(b, name, WAY_NAMES[kind], spread_of(us[kind], n).median, "us/token", "off", ratios(us, n, OFF, kind));
    }
    const int better = spread_of(us[OFF], n).median <= spread_of(us[FIXED], n).median ? OFF : FIXED;
    const bench_spread ratio = ratios(us, n, AUTO, better);
    (void)snprintf(metric, sizeof metric, "auto / %s", WAY_NAMES[better]);
    report(b, name, metric, ratio.median, "times", WAY_NAMES[better], ratio);
}

static void bench_batch(bench *b, int32_t batch)
{
    const int n = b->turns > 0 ? b->turns : batch == 1 ? MAX_TURNS : batch <= 8 ? 31 : 11;
    double us[WAYS][MAX_TURNS];
    char name[32];
    (void)snprintf(name, sizeof name, "batch_%d", batch);
    for (int turn = -1; turn < n; turn++) { /* the first is not counted */
        const size_t first = (size_t)(turn + 1) * (size_t)batch;
        for (int k = 0; k < WAYS; k++) {
            const int i = (k + turn + WAYS) % WAYS;
            const double value = run_way(b, &b->ways[i], batch, first);
            us[i][turn < 0 ? 0 : turn] = value;
        }
        check_equal(&b->ways[OFF], &b->ways[FIXED], batch);
        check_equal(&b->ways[OFF], &b->ways[AUTO], batch);
    }
    report_all(b, name, us, n);
}

/* --- Main ---------------------------------------------------------------------------------------------------------- */

static void open_way(bench *b, int kind)
{
    way *const w = &b->ways[kind];
    di_error err;
    bench_must(di_engine_open(b->model, &(di_engine_options){.n_threads = b->threads, .draft = kind != OFF}, &w->engine, &err), &err);
    const di_scheduler_options options = {
        .on_events = on_events, .user = w, .draft_tokens = kind == FIXED ? FIXED_DRAFTS : 0, .draft_auto = kind == AUTO};
    bench_must(di_scheduler_new(w->engine, &options, &w->scheduler, &err), &err);
}

static void report_drafts(const bench *b, int kind)
{
    di_scheduler_stats stats;
    di_scheduler_get_stats(b->ways[kind].scheduler, &stats);
    if (stats.n_verified > 0) {
        fprintf(stderr, "%s: %.2f drafts of a proposal verified, %.2f right; %.0f %% of steps propose\n", WAY_NAMES[kind],
                (double)stats.drafted_tokens / (double)stats.n_verified, (double)stats.accepted_tokens / (double)stats.n_verified,
                100.0 * (double)stats.n_proposing / (double)stats.n_steps);
    }
}

int main(int argc, char **argv)
{
    static bench b = {.threads = 2};
    int32_t batches[16] = {1, 8, 64};
    int n_batches = 0;
    di_error err;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b.json = true;
        } else if (strncmp(argv[i], "--threads=", 10) == 0) {
            b.threads = atoi(argv[i] + 10);
        } else if (strncmp(argv[i], "--turns=", 8) == 0 && atoi(argv[i] + 8) > 0 && atoi(argv[i] + 8) <= MAX_TURNS) {
            b.turns = atoi(argv[i] + 8);
        } else if (atoi(argv[i]) > 0 && atoi(argv[i]) <= MAX_BATCH && n_batches < 16) {
            batches[n_batches++] = atoi(argv[i]);
        } else {
            bench_fail("usage: bench_draft [--json] [--threads=N] [--turns=N] [BATCH...], batches of 1 to 128, at most 301 turns");
        }
    }
    n_batches = n_batches > 0 ? n_batches : 3;
    bench_must(di_model_open("models/demo", NULL, &b.model, &err), &err);
    read_prompts(&b);
    for (int kind = 0; kind < WAYS; kind++) {
        open_way(&b, kind);
    }
    for (int i = 0; i < n_batches; i++) {
        bench_batch(&b, batches[i]);
    }
    report_drafts(&b, FIXED);
    report_drafts(&b, AUTO);
    for (int kind = 0; kind < WAYS; kind++) {
        di_scheduler_free(b.ways[kind].scheduler);
        di_engine_close(b.ways[kind].engine);
    }
    for (size_t i = 0; i < b.n_prompts; i++) {
        free(b.prompts[i].ids);
    }
    free(b.prompts);
    di_model_close(b.model);
    return 0;
}
