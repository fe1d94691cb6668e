/* bench_cache.c - tiers of the prefix cache, over the demo model: how soon the first token of a long prompt comes behind a restart, what
 * writing costs, and whether a stream of sessions is ever slower with a disk below.
 *
 *   bench_cache [--json] [--pairs N] [--only CASE] [FOLDER]
 *
 * ttft/8192: nine tenths of the prompt were computed by an engine that was closed; the next one finds them, with the snapshot at the match,
 * in FOLDER (build/bench-cache, which is emptied). Baseline: the same prompt for a tenant that has nothing there.
 * write: prompts of 1,024 tokens with and without tiers, in turns; the ratio is their throughput's, of 31 pairs. Each is new, so all of it
 * is written.
 * trace/KIND/P: prompts with the mean lengths of Mooncake's conversation (12,035 tokens) and tool-agent traces (8,596), a sixteenth of
 * them, uniform from a half to one and a half. Each belongs to one of eight sessions, chosen by Zipf's law with exponent 1; P % of it
 * are the session's, computed before, and the rest is new. The device has room for few. Baseline: the same requests without tiers.
 * isolation: first-token times of prompts that another tenant has in the cache against those of new ones, N pairs (100) in random
 * order; p of a two-sided Mann-Whitney test, which should not be small. Baseline: 0.01.  Ratios are medians of pairs in turns; q1 and
 * q3 are their quartiles. --only takes the beginning of a case's name. */
#include "core/clock.h"
#include "cpu_bench.h"
#include "order.h"

#include <deepinfer/engine.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ROUNDS = CPU_BENCH_ROUNDS,
    WRITE_ROUNDS = 31,
    LONG = 8192,
    KNOWN = 57 * 128,
    SHORT = 1024,
    N_SESSIONS = 8,
    N_REQUESTS = 16,
    MOST = 2048
};

static di_model *model;
static di_model_info info;
static const char *folder = "build/bench-cache";
static const char *only = "";
static bool json;

static void report(const char *name, const char *metric, double value, const char *unit, const char *baseline, double ratio)
{
    if (json) {
        printf("{\"bench\":\"cache\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\","
               "\"ratio\":%.4g}\n",
               name, metric, value, unit, baseline, ratio);
    } else {
        printf("%-14s %-12s %10.4g %-6s %6.3f x %s\n", name, metric, value, unit, ratio, baseline);
    }
    fflush(stdout);
}

static bool wanted(const char *name) { return strncmp(name, only, strlen(only)) == 0; }

/* The median of values and the one of ratios, with its quartiles. Sorts both. */
static void report_pairs(const char *name, const char *metric, const char *unit, const char *baseline, double *values, double *ratios,
                         size_t n)
{
    qsort(values, n, sizeof *values, bench_by_double);
    qsort(ratios, n, sizeof *ratios, bench_by_double);
    report(name, metric, values[n / 2], unit, baseline, ratios[n / 2]);
    report(name, "q1", values[n / 4], unit, baseline, ratios[n / 4]);
    report(name, "q3", values[n - 1 - n / 4], unit, baseline, ratios[n - 1 - n / 4]);
}

static void remove_tree(const char *path)
{
    DIR *const dir = opendir(path);
    char name[4096];
    for (const struct dirent *e = NULL; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.' && snprintf(name, sizeof name, "%s/%s", path, e->d_name) < (int)sizeof name && unlink(name) != 0) {
            remove_tree(name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    (void)rmdir(path);
}

static di_engine *open_engine(bool tiers, int64_t kv_bytes)
{
    di_engine *e = NULL;
    di_error err;
    const di_engine_options o = {.n_threads = 1,
                                 .kv_bytes = kv_bytes,
                                 .cache = {.dir = tiers ? folder : NULL,
                                           .dir_bytes = tiers ? (int64_t)1 << 30 : 0,
                                           .ram_bytes = tiers ? (int64_t)128 << 20 : 0}};
    bench_must(di_engine_open(model, &o, &e, &err), &err);
    return e;
}

/* Nanoseconds from the prompt to the first token, and how many of its tokens did not have to run. */
static int64_t first_token(di_engine *e, const char *salt, const int32_t *ids, size_t n, int64_t *cached)
{
    di_sequence *q = NULL;
    di_sample sample;
    di_error err;
    const int64_t began = clock_now_ns();
    bench_must(di_sequence_new(e, &q, &err), &err);
    bench_must(di_sequence_use_cache(q, salt, strlen(salt), &err), &err);
    bench_must(di_sequence_feed(q, ids, n, &err), &err);
    bench_must(di_sequence_run(q, &err), &err);
    bench_must(di_sequence_sample(q, &sample, &err), &err);
    const int64_t ns = clock_now_ns() - began;
    *cached = di_sequence_cached(q);
    di_sequence_free(q);
    return ns;
}

static void fill(int32_t *ids, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(bench_random(&seed) % (uint64_t)info.vocab_size);
    }
}

/* ---- time to the first token ---- */

static void bench_first_token(void)
{
    static int32_t ids[LONG];
    double cold[ROUNDS];
    double warm[ROUNDS];
    double ratio[ROUNDS];
    int64_t cached = 0;
    remove_tree(folder);
    fill(ids, LONG, 1);
    di_engine *e = open_engine(true, 0);
    (void)first_token(e, "known", ids, KNOWN + 1, &cached);
    di_engine_close(e);
    for (int i = 0; i < ROUNDS; i++) {
        char salt[16];
        (void)snprintf(salt, sizeof salt, "new-%d", i);
        fill(ids + KNOWN, LONG - KNOWN, (uint64_t)i + 2); /* what is behind the match is new */
        e = open_engine(true, 0);
        warm[i] = (double)first_token(e, "known", ids, LONG, &cached) * 1e-6;
        if (cached != KNOWN) {
            bench_fail("the prefix was not restored");
        }
        cold[i] = (double)first_token(e, salt, ids, LONG, &cached) * 1e-6;
        ratio[i] = cold[i] / warm[i];
        di_engine_close(e);
    }
    report_pairs("ttft/8192", "restored", "ms", "cold", warm, ratio, ROUNDS);
    report("ttft/8192", "cold", bench_median(cold), "ms", "cold", 1.0);
}

/* ---- writing ---- */

static void bench_writing(void)
{
    static int32_t ids[SHORT];
    double with[WRITE_ROUNDS];
    double ratio[WRITE_ROUNDS];
    int64_t cached;
    remove_tree(folder);
    di_engine *const engines[2] = {open_engine(false, 0), open_engine(true, 0)};
    for (int i = 0; i < WRITE_ROUNDS; i++) {
        double seconds[2];
        for (int k = 0; k < 2; k++) {
            const int which = (i + k) % 2;
            fill(ids, SHORT, (uint64_t)(100 + i));
            seconds[which] = (double)first_token(engines[which], "w", ids, SHORT, &cached) * 1e-9;
        }
        with[i] = SHORT / seconds[1];
        ratio[i] = seconds[0] / seconds[1];
    }
    report_pairs("write", "prefill", "tok/s", "no tiers", with, ratio, WRITE_ROUNDS);
    di_engine_close(engines[0]);
    di_engine_close(engines[1]);
}

/* ---- sessions ---- */

static size_t zipf(uint64_t *seed, size_t n)
{
    double sum = 0.0;
    for (size_t i = 1; i <= n; i++) {
        sum += 1.0 / (double)i;
    }
    double at = (double)(bench_random(seed) >> 11) / 9007199254740992.0 * sum;
    size_t i = 0;
    while (i + 1 < n && at >= 1.0 / (double)(i + 1)) {
        at -= 1.0 / (double)(i + 1);
        i++;
    }
    return i;
}

typedef struct trace {
    const char *kind;
    size_t mean; /* tokens of a prompt */
} trace;

/* Seconds of all requests. Their sessions' parts are computed before, by the same engine. */
static double run_trace(bool tiers, const trace *t, double share)
{
    static int32_t ids[MOST];
    size_t n[N_SESSIONS];
    uint64_t seed = 7;
    int64_t ns = 0;
    int64_t cached;
    remove_tree(folder);
    di_engine *const e = open_engine(tiers, 3 * info.state_bytes * 8);
    for (size_t i = 0; i < N_SESSIONS; i++) {
        n[i] = t->mean / 2 + bench_random(&seed) % t->mean;
        fill(ids, n[i], 1000 + i);
        (void)first_token(e, "s", ids, (size_t)(share * (double)n[i]), &cached);
    }
    for (uint64_t i = 0; i < N_REQUESTS; i++) {
        const size_t which = zipf(&seed, N_SESSIONS);
        const size_t known = (size_t)(share * (double)n[which]);
        fill(ids, known, 1000 + which);
        fill(ids + known, n[which] - known, 2000 + i);
        ns += first_token(e, "s", ids, n[which], &cached);
    }
    di_engine_close(e);
    return (double)ns * 1e-9;
}

static void bench_trace(const trace *t, int percent)
{
    double with[ROUNDS];
    double ratio[ROUNDS];
    char name[64];
    (void)snprintf(name, sizeof name, "trace/%s/%d", t->kind, percent);
    if (!wanted(name)) {
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        double seconds[2];
        for (int k = 0; k < 2; k++) {
            const int tiers = (i + k) % 2;
            seconds[tiers] = run_trace(tiers != 0, t, percent / 100.0);
        }
        with[i] = seconds[1];
        ratio[i] = seconds[0] / seconds[1];
    }
    report_pairs(name, "seconds", "s", "no tiers", with, ratio, ROUNDS);
}

static void bench_traces(void)
{
    static const trace traces[] = {{"conversation", 12035 / 16}, {"tool-agent", 8596 / 16}};
    static const int percents[] = {50, 80, 96};
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        for (size_t k = 0; k < sizeof percents / sizeof *percents; k++) {
            bench_trace(&traces[i], percents[k]);
        }
    }
}

/* ---- what a tenant can learn of another ---- */

typedef struct timing {
    double ns;
    bool repeats; /* what the other tenant asked */
} timing;

static int by_time(const void *a, const void *b)
{
    const double x = ((const timing *)a)->ns;
    const double y = ((const timing *)b)->ns;
    return (x > y) - (x < y);
}

/* Two-sided p of the rank sum of n times of each kind, by the normal approximation. */
static double mann_whitney(timing *times, size_t n)
{
    double ranks = 0.0;
    qsort(times, 2 * n, sizeof *times, by_time);
    for (size_t i = 0; i < 2 * n; i++) {
        ranks += times[i].repeats ? (double)(i + 1) : 0.0;
    }
    const double half = (double)n;
    const double u = ranks - half * (half + 1) / 2;
    const double z = (u - half * half / 2) / sqrt(half * half * (2 * half + 1) / 12);
    return erfc(fabs(z) / sqrt(2.0));
}

static void bench_isolation(size_t n_pairs)
{
    enum { PROMPT = 140 };
    timing *const times = bench_need(calloc(2 * n_pairs, sizeof *times));
    uint64_t seed = 3;
    remove_tree(folder);
    di_engine *const e = open_engine(true, 0);
    for (size_t i = 0; i < n_pairs; i++) {
        int32_t ids[2][PROMPT];
        int64_t cached;
        fill(ids[0], PROMPT, 2 * i + 1000);
        fill(ids[1], PROMPT, 2 * i + 1001);
        (void)first_token(e, "victim", ids[0], PROMPT, &cached);
        const size_t first = (size_t)(bench_random(&seed) >> 40) % 2;
        for (size_t k = 0; k < 2; k++) {
            const size_t which = (first + k) % 2;
            times[2 * i + k] = (timing){.ns = (double)first_token(e, "spy", ids[which], PROMPT, &cached), .repeats = which == 0};
        }
    }
    const double p = mann_whitney(times, n_pairs);
    report("isolation", "p", p, "p", "0.01", p / 0.01);
    di_engine_close(e);
    free(times);
}

int main(int argc, char **argv)
{
    char path[4096];
    size_t n_pairs = 100;
    di_error err;
    for (int i = 1; i < argc; i++) {
        json = json || strcmp(argv[i], "--json") == 0;
        if (strcmp(argv[i], "--pairs") == 0 && i + 1 < argc) {
            n_pairs = strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (argv[i][0] != '-') {
            folder = argv[i];
        }
    }
    (void)mkdir("build", 0777);
    bench_must(di_model_default_path(path, sizeof path, &err), &err);
    bench_must(di_model_open(path, NULL, &model, &err), &err);
    di_model_get_info(model, &info);
    if (wanted("ttft/8192")) {
        bench_first_token();
    }
    if (wanted("write")) {
        bench_writing();
    }
    bench_traces();
    if (wanted("isolation")) {
        bench_isolation(n_pairs > 0 ? n_pairs : 1);
    }
    remove_tree(folder);
    di_model_close(model);
    return 0;
}
