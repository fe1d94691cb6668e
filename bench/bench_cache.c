/* bench_cache.c - tiers of the prefix cache, over the demo model: how soon the first token of a long prompt comes behind a restart, what
 * writing costs, and whether a stream of sessions is ever slower with a disk below.
 *
 *   bench_cache [--json] [--pairs N] [--only CASE] [FOLDER]
 *
 * ttft/8192: nine tenths of the prompt were computed by an engine that was closed; the next one finds them, with the snapshot at the match,
 * in FOLDER (build/bench-cache, which is emptied). Baseline: the same prompt for a tenant that has nothing there.
 * write: prompts of 1,024 tokens, each new, so all of it is written. A turn is two of them without tiers, two with, two with, two
 * without; writing that goes on behind the last one has a fifth of a second, uncounted, to end before the other side begins.
 * trace/KIND/P: prompts with the mean lengths of Mooncake's conversation (12,035 tokens) and tool-agent traces (8,596), a sixteenth of
 * them, uniform from a half to one and a half. Each belongs to one of eight sessions, chosen by Zipf's law with exponent 1; P % of it
 * are the session's, computed before, and the rest is new. Device and memory tier have room for few. Baselines: the same requests without
 * tiers, and with the memory tier but no disk, all three in turns.
 * isolation: first-token times of prompts that another tenant has in the cache against those of new ones, N pairs (100) in random
 * order; p of a two-sided Mann-Whitney test, which should not be small. Baseline: 0.01.
 *
 * Ratios are medians over turns, with an interval of 95 % for the median. --only takes the beginning of a case's name. */
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
#include <time.h>
#include <unistd.h>

enum {
    ROUNDS = CPU_BENCH_ROUNDS,
    WRITE_TURNS = 31,
    WRITE_BLOCK = 2,
    LONG = 8192,
    KNOWN = 57 * 128,
    SHORT = 1024,
    N_SESSIONS = 8,
    N_REQUESTS = 12,
    MOST = 2048
};

static const int64_t DIR_BYTES = (int64_t)1 << 30;
static di_model *model;
static di_model_info info;
static const char *folder = "build/bench-cache";
static const char *only = "";
static bool json;

static void report(const char *name, const char *metric, double value, const char *unit, const char *baseline, bench_spread ratio)
{
    if (json) {
        printf("{\"bench\":\"cache\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\","
               "\"ratio\":%.4g,\"ratio_low\":%.4g,\"ratio_high\":%.4g}\n",
               name, metric, value, unit, baseline, ratio.median, ratio.low, ratio.high);
    } else {
        printf("%-22s %-10s %9.4g %-6s %6.3f x %-9s (%.3f to %.3f)\n", name, metric, value, unit, ratio.median, baseline, ratio.low,
               ratio.high);
    }
    fflush(stdout);
}

static bool wanted(const char *name) { return strncmp(name, only, strlen(only)) == 0; }

/* Sorts both. */
static void report_turns(const char *name, const char *metric, const char *unit, const char *baseline, double *values, double *ratios,
                         size_t n)
{
    report(name, metric, bench_spread_of(values, n).median, unit, baseline, bench_spread_of(ratios, n));
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

/* ram_bytes, dir_bytes: 0 = no such tier. */
static di_engine *open_engine(int64_t kv_bytes, int64_t ram_bytes, int64_t dir_bytes)
{
    di_engine *e = NULL;
    di_error err;
    const di_engine_options o = {
        .n_threads = 1,
        .kv_bytes = kv_bytes,
        .cache = {.dir = dir_bytes > 0 ? folder : NULL, .dir_bytes = dir_bytes, .ram_bytes = ram_bytes}};
    bench_must(di_engine_open(model, &o, &e, &err), &err);
    return e;
}

static di_engine *open_with_tiers(void)
{
    return open_engine(0, (int64_t)128 << 20, DIR_BYTES);
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
    di_engine *e = open_with_tiers();
    (void)first_token(e, "known", ids, KNOWN + 1, &cached);
    di_engine_close(e);
    for (int i = 0; i < ROUNDS; i++) {
        char salt[16];
        (void)snprintf(salt, sizeof salt, "new-%d", i);
        fill(ids + KNOWN, LONG - KNOWN, (uint64_t)i + 2); /* what is behind the match is new */
        e = open_with_tiers();
        warm[i] = (double)first_token(e, "known", ids, LONG, &cached) * 1e-6;
        if (cached != KNOWN) {
            bench_fail("the prefix was not restored");
        }
        cold[i] = (double)first_token(e, salt, ids, LONG, &cached) * 1e-6;
        ratio[i] = cold[i] / warm[i];
        di_engine_close(e);
    }
    report_turns("ttft/8192", "restored", "ms", "cold", warm, ratio, ROUNDS);
    report("ttft/8192", "cold", bench_spread_of(cold, ROUNDS).median, "ms", "cold", (bench_spread){1, 1, 1});
}

/* ---- writing ---- */

/* Seconds of a block of new prompts. */
static double write_block(di_engine *e, uint64_t *seed)
{
    static int32_t ids[SHORT];
    const struct timespec rest = {.tv_nsec = 200000000};
    int64_t ns = 0;
    int64_t cached;
    for (int i = 0; i < WRITE_BLOCK; i++) {
        fill(ids, SHORT, (*seed)++);
        ns += first_token(e, "w", ids, SHORT, &cached);
    }
    (void)nanosleep(&rest, NULL);
    return (double)ns * 1e-9;
}

static void bench_writing(void)
{
    double rate[WRITE_TURNS];
    double ratio[WRITE_TURNS];
    uint64_t seed = 100;
    remove_tree(folder);
    di_engine *const without = open_engine(0, 0, 0);
    di_engine *const with = open_with_tiers();
    for (int i = 0; i < WRITE_TURNS; i++) {
        double plain = write_block(without, &seed);
        const double written = write_block(with, &seed) + write_block(with, &seed);
        plain += write_block(without, &seed);
        rate[i] = 2 * WRITE_BLOCK * SHORT / written;
        ratio[i] = plain / written;
    }
    report_turns("write", "prefill", "tok/s", "no tiers", rate, ratio, WRITE_TURNS);
    di_engine_close(without);
    di_engine_close(with);
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

enum { NO_TIERS, NO_DISK, ALL_TIERS, SETTINGS };

/* Seconds of all requests. Their sessions' parts are computed before, by the same engine. */
static double run_trace(int setting, const trace *t, double share)
{
    static int32_t ids[MOST];
    size_t n[N_SESSIONS];
    uint64_t seed = 7;
    int64_t ns = 0;
    int64_t cached;
    remove_tree(folder);
    di_engine *const e = open_engine(24 * info.state_bytes, setting == NO_TIERS ? 0 : 8 * info.state_bytes,
                                     setting == ALL_TIERS ? DIR_BYTES : 0);
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
    static const char *const baselines[] = {[NO_TIERS] = "no tiers", [NO_DISK] = "no disk"};
    double with[ROUNDS];
    double ratio[ALL_TIERS][ROUNDS];
    char name[64];
    (void)snprintf(name, sizeof name, "trace/%s/%d", t->kind, percent);
    if (!wanted(name)) {
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        double seconds[SETTINGS];
        for (int k = 0; k < SETTINGS; k++) {
            const int setting = (i + k) % SETTINGS;
            seconds[setting] = run_trace(setting, t, percent / 100.0);
        }
        with[i] = seconds[ALL_TIERS];
        ratio[NO_TIERS][i] = seconds[NO_TIERS] / seconds[ALL_TIERS];
        ratio[NO_DISK][i] = seconds[NO_DISK] / seconds[ALL_TIERS];
    }
    for (int k = 0; k < ALL_TIERS; k++) {
        report_turns(name, "requests", "s", baselines[k], with, ratio[k], ROUNDS);
    }
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
    di_engine *const e = open_with_tiers();
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
    report("isolation", "p", p, "p", "0.01", (bench_spread){p / 0.01, p / 0.01, p / 0.01});
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
