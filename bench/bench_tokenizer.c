/* bench_tokenizer.c - speed of the tokenizer, one JSON line a figure.
 *
 *   bench_tokenizer [FILE.txt ...]
 *
 * Each file is a case named like it. Without files those of DI_BENCH_TEXT are taken (english, code, chinese; made by
 * tools/tokenizer/make_corpora.py), and what is not there is left out. The tokenizer is DI_TOKENIZERS/v41.json, else
 * build/tokenizers/v41.json, else the demo model's. "cold" is the first pass over the text with a tokenizer just opened.
 *
 * Times are processor time of the whole process, so that other programs on the machine count little; only the figures of two
 * threads are time that passes. bench_tokenizer.py runs this program beside other tokenizers and fills in the ratios. */
#include "core/clock.h"
#include "core/file.h"

#include <deepinfer/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BYTES ((size_t)1 << 30)
#define REPEATS 5
#define PAIRS 41 /* of runs with one and with two threads */

static void report(const char *name, const char *metric, double value, const char *unit)
{
    printf("{\"bench\":\"tokenizer\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":null,"
           "\"ratio\":null}\n", name, metric, value, unit);
    fflush(stdout);
}

static int64_t cpu_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double mb_per_s(size_t bytes, int64_t ns)
{
    return (double)bytes * 1e3 / (double)(ns > 0 ? ns : 1);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t encode_ns(const di_tokenizer *tok, const char *text, size_t n, int32_t *ids, size_t *n_ids)
{
    const int64_t start = cpu_now_ns();
    if (di_tokenizer_encode(tok, text, n, 0, ids, n, n_ids, NULL) != DI_OK) {
        exit(1);
    }
    return cpu_now_ns() - start;
}

static int64_t decode_ns(const di_tokenizer *tok, const int32_t *ids, size_t n_ids, char *text, size_t n)
{
    size_t n_text;
    const int64_t start = cpu_now_ns();
    if (di_tokenizer_decode(tok, ids, n_ids, 0, text, n, &n_text, NULL) != DI_OK || n_text != n) {
        exit(1);
    }
    return cpu_now_ns() - start;
}

static int64_t passed_ns(const di_tokenizer *tok, const char *text, size_t n, int n_threads, int32_t *ids)
{
    size_t n_ids;
    const int64_t start = clock_now_ns();
    if (di_tokenizer_encode_parallel(tok, text, n, 0, n_threads, ids, n, &n_ids, NULL) != DI_OK) {
        exit(1);
    }
    return clock_now_ns() - start;
}

static int compare_ratios(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The machine may be faster now and slower then, by more than what is measured: a run with one thread and one with two that follow each
 * other are a pair, and the ratio is the median over pairs. */
static void bench_threads(const di_tokenizer *tok, const char *name, const char *text, size_t n, int32_t *ids)
{
    int64_t one[PAIRS];
    int64_t two[PAIRS];
    double ratio[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        one[i] = passed_ns(tok, text, n, 1, ids);
        two[i] = passed_ns(tok, text, n, 2, ids);
        ratio[i] = (double)one[i] / (double)two[i];
    }
    qsort(one, PAIRS, sizeof *one, compare);
    qsort(two, PAIRS, sizeof *two, compare);
    qsort(ratio, PAIRS, sizeof *ratio, compare_ratios);
    report(name, "encode_one_thread", mb_per_s(n, one[PAIRS / 2]), "MB/s");
    report(name, "encode_two_threads", mb_per_s(n, two[PAIRS / 2]), "MB/s");
    report(name, "two_threads_ratio", ratio[PAIRS / 2], "x");
    report(name, "two_threads_ratio_quartile_1", ratio[PAIRS / 4], "x");
    report(name, "two_threads_ratio_quartile_3", ratio[3 * PAIRS / 4], "x");
}

static void bench_text(const char *path, const char *name, const char *text, size_t n)
{
    di_tokenizer *tok = NULL;
    di_error err;
    size_t n_ids = 0;
    int64_t times[REPEATS];
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    char *back = malloc(n + 1);
    if (ids == NULL || back == NULL || di_tokenizer_open(path, &tok, &err) != DI_OK) {
        exit(1);
    }
    memset(ids, 0, (n + 1) * sizeof *ids); /* the pages of the output are not what is measured */
    memset(back, 0, n + 1);
    report(name, "encode_cold", mb_per_s(n, encode_ns(tok, text, n, ids, &n_ids)), "MB/s");
    for (int i = 0; i < REPEATS; i++) {
        times[i] = encode_ns(tok, text, n, ids, &n_ids);
    }
    qsort(times, REPEATS, sizeof *times, compare);
    report(name, "encode_warm", mb_per_s(n, times[REPEATS / 2]), "MB/s");
    for (int i = 0; i < REPEATS; i++) {
        times[i] = decode_ns(tok, ids, n_ids, back, n);
    }
    qsort(times, REPEATS, sizeof *times, compare);
    report(name, "decode", mb_per_s(n, times[REPEATS / 2]), "MB/s");
    bench_threads(tok, name, text, n, ids);
    report(name, "bytes_per_token", (double)n / (double)(n_ids != 0 ? n_ids : 1), "bytes");
    di_tokenizer_close(tok);
    free(ids);
    free(back);
}

/* One piece of a megabyte: quadratic behaviour would show here. */
static void bench_runs(const char *path)
{
    static const struct {
        const char *name;
        const char *unit;
    } runs[] = {
        {"run_letter", "a"},        {"run_space", " "},          {"run_dash", "-"},
        {"run_cjk", "\xE5\xA5\xBD"}, {"run_mark", "\xCC\x81"}, {"run_emoji", "\xF0\x9F\x91\xA9\xE2\x80\x8D"},
    };
    const size_t n = 1 << 20;
    di_tokenizer *tok = NULL;
    int32_t *ids = calloc(n + 8, sizeof *ids);
    char *text = malloc(n + 8);
    if (ids == NULL || text == NULL || di_tokenizer_open(path, &tok, NULL) != DI_OK) {
        exit(1);
    }
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        size_t length = 0;
        size_t n_ids;
        while (length < n) {
            memcpy(text + length, runs[i].unit, strlen(runs[i].unit));
            length += strlen(runs[i].unit);
        }
        const int64_t first = encode_ns(tok, text, length, ids, &n_ids);
        const int64_t second = encode_ns(tok, text, length, ids, &n_ids);
        report(runs[i].name, "encode", (double)(first < second ? first : second) / (double)length, "ns/byte");
    }
    di_tokenizer_close(tok);
    free(ids);
    free(text);
}

static void bench_open(const char *path, const char *name, const char *cache_dir)
{
    const di_tokenizer_options options = {.cache_dir = cache_dir};
    int64_t times[REPEATS + 1];
    for (int i = 0; i < REPEATS + 1; i++) { /* the first is for the cache to be made */
        di_tokenizer *tok = NULL;
        const int64_t start = cpu_now_ns();
        if (di_tokenizer_open_with(path, &options, &tok, NULL) != DI_OK) {
            exit(1);
        }
        times[i] = cpu_now_ns() - start;
        di_tokenizer_close(tok);
    }
    qsort(times + 1, REPEATS, sizeof *times, compare);
    report("open", name, (double)times[1 + REPEATS / 2] / 1e3, "\xC2\xB5s");
}

static char *find_tokenizer(void)
{
    const char *folder = getenv("DI_TOKENIZERS");
    char *path = file_path_join(folder != NULL ? folder : "build/tokenizers", "v41.json");
    if (path != NULL && file_exists(path)) {
        return path;
    }
    free(path);
    return file_path_join("models/demo", "tokenizer.json");
}

static void bench_file(const char *tokenizer, const char *path)
{
    char *text = NULL;
    size_t n;
    di_error err;
    if (file_read(path, MAX_BYTES, &text, &n, &err) != DI_OK) {
        fprintf(stderr, "%s\n", err.message);
        return;
    }
    const char *slash = strrchr(path, '/');
    char name[64];
    (void)snprintf(name, sizeof name, "%.60s", slash != NULL ? slash + 1 : path);
    name[strcspn(name, ".")] = '\0';
    bench_text(tokenizer, name, text, n);
    free(text);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"english.txt", "code.txt", "chinese.txt"};
    const char *folder = getenv("DI_BENCH_TEXT");
    char *tokenizer = find_tokenizer();
    if (tokenizer == NULL) {
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        bench_file(tokenizer, argv[i]);
    }
    for (size_t i = 0; argc == 1 && folder != NULL && i < sizeof names / sizeof *names; i++) {
        char *path = file_path_join(folder, names[i]);
        if (path != NULL && file_exists(path)) {
            bench_file(tokenizer, path);
        }
        free(path);
    }
    if (argc == 1) {
        bench_runs(tokenizer);
        bench_open(tokenizer, "json", "");
        bench_open(tokenizer, "cache", "build/bench-cache");
    }
    free(tokenizer);
    return 0;
}
