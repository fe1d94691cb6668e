/* bench_replay.c - rows of a prompt that do not run (docs/replay.md), over the demo model: what skipping them saves, and what bounded
 * replay of the decoder changes.
 *
 *   bench_replay [--json] [--only time|eval] [--rounds N] [--threads N] [--backend NAME] [--chunk N] [--slice LAYERS] [EVAL.JSONL]
 *
 * time: a prompt of 8,192 tokens through an engine that runs every row in every layer (full), one that skips what no result depends on
 * (halo), and one that runs the decoder for the last window (replay), in turns. Prediction: what the rows that ran would take, stage by
 * stage and layer by layer, at the times a row of the same turn's full run, and the time outside of stages as it was there. The ratio is
 * time / prediction (bar 1.15), or the share of the full run's time. Medians; q1 and q3 are the ratio's quartiles. With a backend that
 * works beside the host each prompt runs twice: stage by stage, each waited for, which says what rows take, and freely, which is the time.
 * --slice takes whole layers of released shapes with random weights (di_synthetic) instead of the demo model, and time only.
 *
 * eval: each prompt of the evaluation set (EVAL.JSONL, else tests/data/demo_model/eval.jsonl) that is longer than the window, exactly and
 * replayed. Greedy answers: those that are the same to the last token, and those that are the reference's. Then the reference output
 * behind both prompts, position by position: the Kullback-Leibler divergence of the replayed distribution from the exact one, in nats,
 * and how often the likeliest token is another. The first position is the one behind the prompt. */
#include "core/core.h"
#include "core/json.h"
#include "cpu_bench.h"
#include "engine/engine_int.h"
#include "order.h"
#include "stage_clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 8192, MAX_ROUNDS = 31, MOST_NEW = 512, EOS = 1 };

#define SLICE_KV ((int64_t)4 << 30)

static di_model *model;
static di_model_info info;
static const char *only = "";
static int rounds = CPU_BENCH_ROUNDS;
static int threads = 1;
static int chunk;
static int slice; /* layers; 0 = the demo model */
static const char *backend;
static bool json;

static void report(const char *name, const char *metric, double value, const char *unit, const char *baseline, double ratio)
{
    if (json) {
        printf("{\"bench\":\"replay\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\","
               "\"ratio\":%.4g}\n",
               name, metric, value, unit, baseline, ratio);
    } else {
        printf("%-12s %-22s %10.4g %-7s %7.3f x %s\n", name, metric, value, unit, ratio, baseline);
    }
    fflush(stdout);
}

static di_engine *open_engine(di_replay replay, bool full)
{
    di_engine *e = NULL;
    di_error err;
    const di_engine_options o = {.n_threads = threads,
                                 .chunk_tokens = chunk,
                                 .backend = backend,
                                 .replay = replay,
                                 .kv_bytes = slice > 0 ? SLICE_KV : 0};
    bench_must(di_engine_open(model, &o, &e, &err), &err);
    e->full = full;
    return e;
}

/* ---- time ---- */

static double prompt_ms(di_engine *e, const int32_t *ids, size_t n)
{
    di_sequence *q = NULL;
    di_error err;
    bench_must(di_sequence_new(e, &q, &err), &err);
    const int64_t began = clock_now_ns();
    bench_must(di_sequence_feed(q, ids, n, &err), &err);
    bench_must(di_sequence_run(q, &err), &err);
    const int64_t ns = clock_now_ns() - began;
    di_sequence_free(q);
    return (double)ns * 1e-6;
}

static bool beside_host(const di_engine *e) { return strcmp(e->backend->name, "cuda") == 0; }

/* Milliseconds of the prompt, and what its stages did. */
static double run_prompt(di_engine *e, const int32_t *ids, size_t n, stage_cells *out)
{
    const bool beside = beside_host(e);
    stage_clock_waits(beside);
    stage_clock_start(e);
    const double ms = prompt_ms(e, ids, n);
    stage_clock_stop(e);
    stage_clock_cells(out);
    return beside ? prompt_ms(e, ids, n) : ms;
}

typedef struct timing {
    const char *name;
    di_engine *engine;
    double ms[MAX_ROUNDS];
    double to_predicted[MAX_ROUNDS];
    double to_full[MAX_ROUNDS];
} timing;

static void report_timing(timing *t)
{
    const int n = rounds;
    qsort(t->ms, (size_t)n, sizeof *t->ms, bench_by_double);
    qsort(t->to_predicted, (size_t)n, sizeof *t->to_predicted, bench_by_double);
    qsort(t->to_full, (size_t)n, sizeof *t->to_full, bench_by_double);
    report(t->name, "time", t->ms[n / 2], "ms", "prediction", t->to_predicted[n / 2]);
    report(t->name, "q1", t->ms[n / 4], "ms", "prediction", t->to_predicted[n / 4]);
    report(t->name, "q3", t->ms[n - 1 - n / 4], "ms", "prediction", t->to_predicted[n - 1 - n / 4]);
    report(t->name, "against full", t->ms[n / 2], "ms", "full", t->to_full[n / 2]);
}

static void bench_time(void)
{
    static int32_t ids[LONG];
    static stage_cells full;
    static stage_cells part;
    timing all[] = {{.name = "full", .engine = open_engine(DI_REPLAY_OFF, true)},
                    {.name = "halo", .engine = open_engine(DI_REPLAY_OFF, false)},
                    {.name = "replay", .engine = open_engine(DI_REPLAY_DECODER, false)}};
    uint64_t seed = 5;
    for (size_t i = 0; i < LONG; i++) {
        ids[i] = (int32_t)(bench_random(&seed) % (uint64_t)info.vocab_size);
    }
    (void)run_prompt(all[0].engine, ids, LONG / 8, &full); /* to warm up */
    for (int r = 0; r < rounds; r++) {
        double outside = 0.0;
        double scale = 1e-6;
        for (size_t i = 0; i < 3; i++) {
            timing *const t = &all[i];
            t->ms[r] = run_prompt(t->engine, ids, LONG, i == 0 ? &full : &part);
            if (i == 0 && beside_host(t->engine)) { /* waiting for stages took time too: shares only */
                scale = t->ms[r] / stage_clock_predict(&full, &full);
            } else if (i == 0) {
                outside = t->ms[r] - stage_clock_predict(&full, &full) * scale;
            }
            t->to_predicted[r] = t->ms[r] / (stage_clock_predict(&full, i == 0 ? &full : &part) * scale + outside);
            t->to_full[r] = t->ms[r] / all[0].ms[r];
        }
    }
    for (size_t i = 0; i < 3; i++) {
        report_timing(&all[i]);
        di_engine_close(all[i].engine);
    }
}

/* ---- eval ---- */

typedef struct tally {
    di_engine *exact;
    di_engine *replay;
    int64_t prompts;
    int64_t same;            /* greedy answers */
    int64_t exact_right;     /* that are the reference's */
    int64_t replay_right;
    int64_t positions;
    int64_t others;          /* likeliest token differs */
    int64_t first_others;
    double divergence;       /* sums */
    double first_divergence;
    double most;
} tally;

static int32_t *ids_of(const js_value *list, size_t *n)
{
    *n = js_length(list);
    int32_t *const ids = bench_need(ar_calloc(*n + 1, sizeof *ids));
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)js_int(js_at(list, i));
    }
    return ids;
}

/* Behind the prompt, most of which the cache has the second time. */
static di_sequence *fed(di_engine *e, const int32_t *ids, size_t n)
{
    di_sequence *q = NULL;
    di_error err;
    bench_must(di_sequence_new(e, &q, &err), &err);
    bench_must(di_sequence_use_cache(q, NULL, 0, &err), &err);
    bench_must(di_sequence_feed(q, ids, n, &err), &err);
    bench_must(di_sequence_run(q, &err), &err);
    return q;
}

/* Greedy ids up to the end of the text, at most MOST_NEW; returns how many. */
static size_t answer(di_engine *e, const int32_t *prompt, size_t n_prompt, int32_t *out)
{
    di_sequence *const q = fed(e, prompt, n_prompt);
    di_error err;
    size_t n = 0;
    for (bool ended = false; !ended && n < MOST_NEW; n++) {
        di_sample sample;
        bench_must(di_sequence_sample(q, &sample, &err), &err);
        out[n] = sample.id;
        ended = sample.id == EOS;
        bench_must(ended ? DI_OK : di_sequence_run(q, &err), &err);
    }
    di_sequence_free(q);
    return n;
}

static int32_t likeliest(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < info.vocab_size; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static double log_sum(const float *logits)
{
    const double most = (double)logits[likeliest(logits)];
    double sum = 0.0;
    for (int32_t i = 0; i < info.vocab_size; i++) {
        sum += exp((double)logits[i] - most);
    }
    return most + log(sum);
}

/* Sum of p (log p - log q). */
static double divergence(const float *p, const float *q)
{
    const double of_p = log_sum(p);
    const double of_q = log_sum(q);
    double sum = 0.0;
    for (int32_t i = 0; i < info.vocab_size; i++) {
        const double log_p = (double)p[i] - of_p;
        sum += exp(log_p) * (log_p - ((double)q[i] - of_q));
    }
    return sum > 0.0 ? sum : 0.0;
}

static const float *row_of(const di_sequence *q)
{
    const float *rows = NULL;
    int32_t n = 0;
    di_error err;
    bench_must(di_sequence_logits(q, &rows, &n, &err), &err);
    return rows;
}

static void count(tally *t, const float *exact, const float *replay, bool first)
{
    const double d = divergence(exact, replay);
    const bool other = likeliest(exact) != likeliest(replay);
    t->positions++;
    t->divergence += d;
    t->others += other;
    t->most = d > t->most ? d : t->most;
    t->first_divergence += first ? d : 0.0;
    t->first_others += first && other;
}

/* The reference output behind both prompts, token by token. */
static void follow(tally *t, const int32_t *prompt, size_t n_prompt, const int32_t *output, size_t n_output)
{
    di_sequence *const a = fed(t->exact, prompt, n_prompt);
    di_sequence *const b = fed(t->replay, prompt, n_prompt);
    di_error err;
    for (size_t i = 0; i < n_output; i++) {
        count(t, row_of(a), row_of(b), i == 0);
        bench_must(di_sequence_feed(a, &output[i], 1, &err), &err);
        bench_must(di_sequence_feed(b, &output[i], 1, &err), &err);
        bench_must(di_sequence_run(a, &err), &err);
        bench_must(di_sequence_run(b, &err), &err);
    }
    di_sequence_free(a);
    di_sequence_free(b);
}

static void evaluate(tally *t, const js_value *line)
{
    static int32_t of_exact[MOST_NEW];
    static int32_t of_replay[MOST_NEW];
    size_t n_prompt;
    size_t n_output;
    int32_t *const prompt = ids_of(js_get(line, "prompt_ids"), &n_prompt);
    int32_t *const output = ids_of(js_get(line, "reference_output_ids"), &n_output);
    if ((int64_t)n_prompt > mdl_window(t->exact->runner)) {
        const size_t n_exact = answer(t->exact, prompt, n_prompt, of_exact);
        const size_t n_replay = answer(t->replay, prompt, n_prompt, of_replay);
        t->prompts++;
        t->same += n_exact == n_replay && memcmp(of_exact, of_replay, n_exact * sizeof *of_exact) == 0;
        t->exact_right += n_exact == n_output && memcmp(of_exact, output, n_output * sizeof *output) == 0;
        t->replay_right += n_replay == n_output && memcmp(of_replay, output, n_output * sizeof *output) == 0;
        follow(t, prompt, n_prompt, output, n_output);
    }
    free(prompt);
    free(output);
}

static void each_line(tally *t, const char *text, size_t size)
{
    di_error err;
    for (const char *line = text; line < text + size;) {
        const char *const end = memchr(line, '\n', (size_t)(text + size - line));
        const size_t n = (size_t)((end != NULL ? end : text + size) - line);
        js_doc *doc = NULL;
        if (n > 0) {
            bench_must(js_parse(line, n, "eval.jsonl", NULL, &doc, &err), &err);
            evaluate(t, js_root(doc));
            js_free(doc);
        }
        line += n + 1;
    }
}

static void bench_eval(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    di_error err;
    tally t = {.exact = open_engine(DI_REPLAY_OFF, false), .replay = open_engine(DI_REPLAY_DECODER, false)};
    bench_must(file_read(path, (size_t)256 << 20, &text, &size, &err), &err);
    each_line(&t, text, size);
    const double prompts = t.prompts > 0 ? (double)t.prompts : 1.0;
    const double positions = t.positions > 0 ? (double)t.positions : 1.0;
    report("eval", "same answers", (double)t.same, "", "prompts", (double)t.same / prompts);
    report("eval", "reference, exact", (double)t.exact_right, "", "prompts", (double)t.exact_right / prompts);
    report("eval", "reference, replay", (double)t.replay_right, "", "prompts", (double)t.replay_right / prompts);
    report("eval", "other likeliest", (double)t.others, "", "positions", (double)t.others / positions);
    report("eval", "other likeliest, first", (double)t.first_others, "", "prompts", (double)t.first_others / prompts);
    report("eval", "divergence", t.divergence / positions, "nats", "positions", positions);
    report("eval", "divergence, first", t.first_divergence / prompts, "nats", "prompts", prompts);
    report("eval", "divergence, most", t.most, "nats", "one", 1.0);
    free(text);
    di_engine_close(t.exact);
    di_engine_close(t.replay);
}

static int number(const char *text, int most)
{
    const int n = text != NULL ? atoi(text) : 0;
    if (n < 1 || n > most) {
        bench_fail("a number that is out of range");
    }
    return n;
}

int main(int argc, char **argv)
{
    const char *path = "tests/data/demo_model/eval.jsonl";
    di_error err;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            rounds = number(argv[++i], MAX_ROUNDS);
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            threads = number(argv[++i], 1024);
        } else if (strcmp(argv[i], "--chunk") == 0 && i + 1 < argc) {
            chunk = number(argv[++i], LONG);
        } else if (strcmp(argv[i], "--slice") == 0 && i + 1 < argc) {
            slice = number(argv[++i], 40);
            only = "time";
        } else if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) {
            backend = argv[++i];
        } else {
            path = argv[i];
        }
    }
    bench_must(slice > 0 ? di_synthetic_open(&(di_synthetic){.n_layers = slice}, &model, &err)
                         : di_model_open("models/demo", NULL, &model, &err),
               &err);
    di_model_get_info(model, &info);
    if (strncmp("time", only, strlen(only)) == 0) {
        bench_time();
    }
    if (strncmp("eval", only, strlen(only)) == 0) {
        bench_eval(path);
    }
    di_model_close(model);
    return 0;
}
