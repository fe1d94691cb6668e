/* bench_grammar.c - speed of constraints: masks, and compiling up to the first of them.
 *
 *   bench_grammar FILE [--each]
 *
 * FILE has a schema a line, with instances as the ids of their tokens: {"id","schema":TEXT,"tests":[{"valid","ids":[...]}]};
 * bench_grammar.py makes it. An instance is gone through token by token, a mask before each, up to the first token that the mask does
 * not allow; its verdict is wrong when that is not what `valid` says. The first mask of a schema counts with its compilation, all others
 * as masks. --each prints a line of all times for each schema, in nanoseconds; else there is one line a figure.
 *
 * The tokenizer is DI_TOKENIZERS/v41.json, else build/tokenizers/v41.json, else the demo model's. Times are processor time of the
 * thread. */
#include "core/file.h"
#include "core/json.h"
#include "cpu_bench.h"

#include <deepinfer/grammar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_BYTES ((size_t)1 << 28)
#define END_ID 1

typedef struct times {
    int64_t *ns;
    size_t n;
    size_t capacity;
} times;

typedef struct bench {
    di_vocabulary *vocabulary;
    uint32_t *mask;
    size_t n_ids;
    times masks;  /* of the present schema, or with totals of all */
    times firsts; /* compilations with their first masks */
    bool each;
    int n_schemas;
    int n_refused;
    int n_failing; /* schemas with a wrong verdict */
} bench;

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void add_time(times *t, int64_t ns)
{
    if (t->n == t->capacity) {
        t->capacity = t->capacity != 0 ? 2 * t->capacity : 1024;
        t->ns = bench_need(realloc(t->ns, t->capacity * sizeof *t->ns));
    }
    t->ns[t->n++] = ns;
}

static bool has(const uint32_t *mask, int64_t id) { return (mask[id / 32] >> id % 32 & 1) != 0; }

/* Goes through one instance. *ns is the time of compilation until the first mask was made, then -1. */
static bool accepts(bench *b, di_grammar *g, const js_value *ids, int64_t *ns)
{
    di_error err;
    di_matcher *m;
    bool fits = true;
    bench_must(di_matcher_new(g, b->vocabulary, &m, &err), &err);
    for (size_t i = 0; fits && i <= js_length(ids); i++) {
        const int64_t id = i < js_length(ids) ? js_int(js_at(ids, i)) : END_ID;
        const int64_t start = now_ns();
        bench_must(di_matcher_mask(m, b->mask, NULL, &err), &err);
        const int64_t took = now_ns() - start;
        add_time(*ns >= 0 ? &b->firsts : &b->masks, *ns >= 0 ? *ns + took : took);
        *ns = -1;
        fits = id >= 0 && (size_t)id < b->n_ids && has(b->mask, id);
        if (fits && i < js_length(ids)) {
            bench_must(di_matcher_accept(m, (int32_t)id, &fits, &err), &err);
        }
    }
    di_matcher_free(m);
    return fits;
}

static void print_each(bench *b, const char *id, int64_t first, bool fine)
{
    printf("{\"id\":\"%s\",\"first\":%lld,\"fine\":%s,\"masks\":[", id, (long long)first, fine ? "true" : "false");
    for (size_t i = 0; i < b->masks.n; i++) {
        printf("%s%lld", i == 0 ? "" : ",", (long long)b->masks.ns[i]);
    }
    puts("]}");
    b->masks.n = 0;
}

static void one_schema(bench *b, const js_value *line)
{
    /* As the collection means it: members in any order, integers and strings in any spelling. */
    const di_grammar_options options = {.order = DI_ORDER_ANY, .integers_any = true, .escapes_all = true};
    di_grammar *g;
    di_error err;
    size_t n;
    const char *schema = js_string(js_get(line, "schema"), &n);
    const js_value *tests = js_get(line, "tests");
    const int64_t start = now_ns();
    const di_status status = di_grammar_compile(DI_GRAMMAR_SCHEMA, schema, n, &options, &g, NULL, &err);
    int64_t ns = now_ns() - start;
    b->n_schemas++;
    if (status != DI_OK) {
        b->n_refused++;
        return;
    }
    bool fine = true;
    for (size_t i = 0; i < js_length(tests); i++) {
        const bool valid = js_bool(js_get(js_at(tests, i), "valid"));
        fine = accepts(b, g, js_get(js_at(tests, i), "ids"), &ns) == valid && fine;
    }
    b->n_failing += !fine;
    if (b->each && b->firsts.n != 0) {
        print_each(b, js_string(js_get(line, "id"), &n), b->firsts.ns[b->firsts.n - 1], fine);
    }
    di_grammar_free(g);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void report(const char *metric, const char *which, double value, const char *unit)
{
    printf("{\"bench\":\"grammar\",\"case\":\"maskbench\",\"metric\":\"%s%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":null,"
           "\"ratio\":null}\n", metric, which, value, unit);
}

static void report_times(const char *metric, times *t)
{
    static const struct {
        const char *name;
        double part;
    } points[] = {{"_p50", 0.5}, {"_p90", 0.9}, {"_p99", 0.99}, {"_p999", 0.999}, {"_max", 1.0}};
    double sum = 0;
    for (size_t i = 0; i < t->n; i++) {
        sum += (double)t->ns[i];
    }
    if (t->n == 0) {
        return;
    }
    qsort(t->ns, t->n, sizeof *t->ns, compare);
    report(metric, "_average", sum / (double)t->n * 1e-3, "µs");
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        report(metric, points[i].name, (double)t->ns[(size_t)(points[i].part * (double)(t->n - 1))] * 1e-3, "µs");
    }
}

static di_tokenizer *open_tokenizer(void)
{
    char path[4096];
    di_tokenizer *t;
    di_error err;
    const char *folder = getenv("DI_TOKENIZERS");
    (void)snprintf(path, sizeof path, "%s/v41.json", folder != NULL ? folder : "build/tokenizers");
    bench_must(di_tokenizer_open(file_exists(path) ? path : "models/demo/tokenizer.json", &t, &err), &err);
    return t;
}

static void run_lines(bench *b, char *text, size_t n)
{
    for (char *at = text, *end; at < text + n; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + n - at));
        end = end != NULL ? end : text + n;
        js_doc *doc;
        di_error err;
        bench_must(js_parse(at, (size_t)(end - at), "line", NULL, &doc, &err), &err);
        one_schema(b, js_root(doc));
        js_free(doc);
    }
}

int main(int argc, char **argv)
{
    bench b = {.each = argc == 3 && strcmp(argv[2], "--each") == 0};
    char *text;
    size_t n;
    di_error err;
    const int32_t end = END_ID;
    if (argc < 2) {
        bench_fail("the file of schemas and instances is missing; bench_grammar.py makes it");
    }
    bench_must(file_read(argv[1], MAX_BYTES, &text, &n, &err), &err);
    di_tokenizer *tokenizer = open_tokenizer();
    bench_must(di_vocabulary_new(tokenizer, &end, 1, &b.vocabulary, &err), &err);
    b.n_ids = di_vocabulary_mask_words(b.vocabulary) * 32;
    b.mask = bench_need(calloc(b.n_ids / 32, sizeof *b.mask));
    run_lines(&b, text, n);
    if (!b.each) {
        report_times("mask", &b.masks);
        report_times("compile_and_first_mask", &b.firsts);
        report("schemas", "", b.n_schemas, "count");
        report("refused", "", b.n_refused, "count");
        report("failing", "", b.n_failing, "count");
    }
    free(b.masks.ns);
    free(b.firsts.ns);
    free(b.mask);
    free(text);
    di_vocabulary_free(b.vocabulary);
    di_tokenizer_close(tokenizer);
    return 0;
}
