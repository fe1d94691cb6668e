/* bench_cpu.c - kernels of the CPU backend at released shapes, as shares of what this machine can do.
 *
 *   bench_cpu [--json] [--threads N] [CASE...]
 *
 * Weights are copies of one matrix, enough of them that a round never meets what the last-level cache still holds from
 * before: the working set is eight times that cache, or a quarter of memory where that is less; the first line of
 * output says which. Every round runs the ceilings and all cases one after the other; a figure is the median of its
 * rounds, a ratio the median of the ratios to the ceiling of the same round. The read ceiling is the best of four ways
 * to read, each thread its own part. The compute ceiling is the better of fused multiply-add and BF16 dot product. One
 * thread is measured in its processor time, so that other programs count little; several in the time that passes. CASE
 * keeps the cases whose names begin with one of the given words. */
#include "ceiling.h"
#include "core/clock.h"
#include "core/pool.h"
#include "cpu/cpu.h"
#include "cpu/cpu_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 7
#define MAX_CASES 64

typedef struct bench bench;

/* Does one measured piece of work and returns its amount: bytes read or multiply-adds. */
typedef double (*work_fn)(bench *b, const void *what);

typedef struct bench_case {
    char name[48];
    work_fn work;
    const void *what;
    int ceiling;   /* case whose rate is the bound; itself for a ceiling */
    bool computes; /* multiply-adds instead of bytes */
    double rate[ROUNDS];
} bench_case;

struct bench {
    int threads;
    bool json;
    ops_device *dev;
    pool *pool;
    uint8_t *data; /* what the read ceiling reads */
    size_t n_data;
    size_t at; /* part of `data` that comes next */
    float sink;
    bench_case cases[MAX_CASES];
    int n_cases;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_cpu: %s\n", what);
    exit(1);
}

static void *need(void *p)
{
    if (p == NULL) {
        fail("out of memory");
    }
    return p;
}

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z ^ (z >> 27);
}

/* --- Ceilings ---------------------------------------------------------------------------------------------------- */

typedef struct read_run {
    const uint8_t *data;
    size_t share;
    int way;
    uint64_t sum[64];
} read_run;

static void read_share(void *arg, size_t begin, size_t end, int thread)
{
    read_run *run = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        run->sum[i % 64] |= ceiling_read(run->data + i * run->share, run->share, run->way);
    }
}

/* The next seventh of the buffer. */
static double work_read(bench *b, const void *what)
{
    const size_t part = b->n_data / ROUNDS;
    read_run run = {.data = b->data + b->at * part, .share = part / (size_t)b->threads, .way = *(const int *)what};
    b->at = (b->at + 1) % ROUNDS;
    pool_run(b->pool, (size_t)b->threads, read_share, &run);
    b->sink += (float)(run.sum[0] & 1);
    return (double)(run.share * (size_t)b->threads);
}

typedef struct flop_run {
    bool dot;
    double done[1024];
    float sink[1024];
} flop_run;

static void flop_share(void *arg, size_t begin, size_t end, int thread)
{
    flop_run *run = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        run->sink[i] = 0.0f;
        run->done[i] = run->dot ? ceiling_dot(200000, &run->sink[i]) : ceiling_fma(400000, &run->sink[i]);
    }
}

static double work_flops(bench *b, const void *what)
{
    flop_run run = {.dot = *(const bool *)what};
    double sum = 0.0;
    pool_run(b->pool, (size_t)b->threads, flop_share, &run);
    for (int t = 0; t < b->threads; t++) {
        sum += run.done[t];
        b->sink += run.sink[t];
    }
    return sum;
}

/* --- Products ---------------------------------------------------------------------------------------------------- */

/* Copies of one matrix, and its products with so many rows. */
typedef struct product {
    ops_format format;
    int64_t n_out;
    int64_t n_in;
    int32_t rows;
    size_t round_bytes; /* of weights in one measurement */
    ops_matrix *copies;
    size_t n_copies;
    size_t *at; /* copy that comes next */
    float *x;
    float *y;
} product;

static size_t weight_bytes(const product *p)
{
    const size_t n = (size_t)p->n_out * (size_t)p->n_in;
    return p->format == OPS_BF16 ? 2 * n : p->format == OPS_FP8 ? n + n / 1024 : n / 2 + n / 32;
}

static ops_matrix random_matrix(const product *p, uint64_t *seed)
{
    const size_t n = (size_t)p->n_out * (size_t)p->n_in;
    const size_t bytes = p->format == OPS_BF16 ? 2 * n : p->format == OPS_FP8 ? n : n / 2;
    const size_t scales = p->format == OPS_FP8 ? n / 1024 : n / 32;
    uint8_t *data = need(malloc(bytes));
    uint8_t *scale = need(malloc(scales));
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t bits = random_bits(seed);
        if (p->format == OPS_FP8) {
            bits &= 0xF7F7F7F7F7F7F7F7u; /* no NaN */
        } else if (p->format == OPS_BF16) {
            bits = (bits & 0x8FFF8FFF8FFF8FFFu) | 0x3000300030003000u;
        }
        memcpy(data + i, &bits, 8);
    }
    memset(scale, 120, scales);
    return (ops_matrix){.format = p->format, .n_out = p->n_out, .n_in = p->n_in, .data = data, .scale = scale};
}

/* Packs copies of a random matrix until they take n_bytes. */
static void make_copies(const bench *b, product *p, size_t n_bytes)
{
    uint64_t seed = 1;
    const ops_matrix source = random_matrix(p, &seed);
    p->n_copies = n_bytes / weight_bytes(p) + 1;
    p->copies = need(calloc(p->n_copies, sizeof *p->copies));
    p->at = need(calloc(1, sizeof *p->at));
    p->round_bytes = n_bytes / ROUNDS;
    for (size_t i = 0; i < p->n_copies; i++) {
        p->copies[i] = source;
        cpu_backend.weight_load(b->dev, &p->copies[i], OPS_USE_PRODUCT, NULL);
        need(p->copies[i].packed);
    }
    free((void *)source.data);
    free((void *)source.scale);
}

static void free_copies(const bench *b, const product *p)
{
    for (size_t i = 0; i < p->n_copies; i++) {
        cpu_backend.weight_free(b->dev, &p->copies[i]);
    }
    free(p->copies);
    free(p->at);
}

/* The same copies, other rows. */
static void make_rows(product *p, int32_t rows)
{
    uint64_t seed = 2;
    p->rows = rows;
    p->x = need(malloc((size_t)rows * (size_t)p->n_in * sizeof *p->x));
    p->y = need(calloc((size_t)rows * (size_t)p->n_out, sizeof *p->y));
    for (size_t i = 0; i < (size_t)rows * (size_t)p->n_in; i++) {
        p->x[i] = (float)(int32_t)(random_bits(&seed) % 31) - 15.0f;
    }
}

/* A few matrices a call, as a stage gives them. */
static double work_product(bench *b, const void *what)
{
    const product *p = what;
    ref_device *dev = ref_of(b->dev);
    double done = 0.0;
    do {
        ref_linear jobs[6];
        const size_t n = p->rows < 4 ? 6 : 1;
        ref_stage_begin(dev);
        for (size_t i = 0; i < n; i++) {
            jobs[i] = ref_linear_to_f32(&p->copies[*p->at], p->x, p->rows, p->y);
            *p->at = (*p->at + 1) % p->n_copies;
        }
        dev->linear(dev, jobs, n);
        done += (double)n * (double)weight_bytes(p);
    } while (p->rows < 4 && done < (double)p->round_bytes);
    return p->rows < 4 ? done : (double)p->n_out * (double)p->n_in * (double)p->rows;
}

/* --- Rounds ------------------------------------------------------------------------------------------------------ */

static int add_case(bench *b, const char *name, work_fn work, const void *what, int ceiling, bool computes)
{
    if (b->n_cases == MAX_CASES) {
        fail("too many cases");
    }
    bench_case *c = &b->cases[b->n_cases];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->work = work;
    c->what = what;
    c->ceiling = ceiling < 0 ? b->n_cases : ceiling;
    c->computes = computes;
    return b->n_cases++;
}

static int64_t now_ns(const bench *b)
{
    if (b->threads > 1) {
        return clock_now_ns();
    }
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values)
{
    double sorted[ROUNDS];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, compare);
    return sorted[ROUNDS / 2];
}

static void report(const bench *b, const bench_case *c)
{
    const bench_case *bound = &b->cases[c->ceiling];
    const char *metric = c->computes ? "multiply_adds" : "bandwidth";
    const char *unit = c->computes ? "GMAC/s" : "GB/s";
    double ratio[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        ratio[r] = c->rate[r] / bound->rate[r];
    }
    if (b->json) {
        printf("{\"bench\":\"cpu\",\"case\":\"%s/"
               "%d\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\","
               "\"ratio\":%.3f}\n",
               c->name, b->threads, metric, median(c->rate), unit, bound->name, median(ratio));
    } else {
        printf("%-28s %2d thread%s %9.2f %-7s %5.1f %% of %s\n", c->name, b->threads, b->threads > 1 ? "s" : " ",
               median(c->rate), unit, 100.0 * median(ratio), bound->name);
    }
    fflush(stdout);
}

/* Runs all cases in turns and reports those from `first` on. */
static void run_cases(bench *b, int first)
{
    for (int r = -1; r < ROUNDS; r++) { /* one round to warm up */
        for (int i = 0; i < b->n_cases; i++) {
            bench_case *c = &b->cases[i];
            const int64_t start = now_ns(b);
            const double done = c->work(b, c->what);
            const int64_t ns = now_ns(b) - start;
            if (r >= 0) {
                c->rate[r] = done / (double)(ns > 0 ? ns : 1);
            }
        }
    }
    for (int i = first; i < b->n_cases; i++) {
        report(b, &b->cases[i]);
    }
}

/* The best way to read with so many threads. */
static int best_read(bench *b)
{
    static const int ways[CEILING_READ_WAYS] = {0, 1, 2, 3};
    double best = 0.0;
    int way = 0;
    for (int i = 0; i < 3 * CEILING_READ_WAYS; i++) {
        const int64_t start = now_ns(b);
        const double rate = work_read(b, &ways[i % CEILING_READ_WAYS]) / (double)(now_ns(b) - start);
        if (rate > best) {
            best = rate;
            way = i % CEILING_READ_WAYS;
        }
    }
    return way;
}

static bool wanted(char *const *words, int n_words, const char *name)
{
    for (int i = 0; i < n_words; i++) {
        if (strncmp(name, words[i], strlen(words[i])) == 0) {
            return true;
        }
    }
    return n_words == 0;
}

/* Cases of one matrix: its rows at several numbers of tokens. One matrix's copies are in memory at a time. */
static void bench_products(bench *b, int n_fixed, int read, int flops, char *const *words, int n_words)
{
    static const struct {
        const char *name;
        ops_format format;
        int64_t n_out;
        int64_t n_in;
    } shapes[] = {{"fp4_w1", OPS_FP4, 2304, 5120},    {"fp4_w2", OPS_FP4, 5120, 2304},
                  {"fp8_wq_b", OPS_FP8, 32768, 1280}, {"fp8_wo_b", OPS_FP8, 5120, 8192},
                  {"fp8_wq_a", OPS_FP8, 1280, 5120},  {"bf16_head", OPS_BF16, 16160, 5120}};
    static const int32_t rows[] = {1, 2, 4, 8, 12, 32, 128};
    enum { N_ROWS = sizeof rows / sizeof *rows };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        product p[N_ROWS] = {{.format = shapes[s].format, .n_out = shapes[s].n_out, .n_in = shapes[s].n_in}};
        b->n_cases = n_fixed;
        for (size_t r = 0; r < N_ROWS; r++) {
            char name[48];
            snprintf(name, sizeof name, "%s_x%d", shapes[s].name, (int)rows[r]);
            if (!wanted(words, n_words, name)) {
                continue;
            }
            if (p[0].copies == NULL) {
                make_copies(b, &p[0], b->n_data);
            }
            p[r] = p[0];
            make_rows(&p[r], rows[r]);
            add_case(b, name, work_product, &p[r], rows[r] < 4 ? read : flops, rows[r] >= 4);
        }
        if (p[0].copies != NULL) {
            run_cases(b, n_fixed);
            free_copies(b, &p[0]);
        }
        for (size_t r = 0; r < N_ROWS; r++) {
            free(p[r].rows != 0 ? p[r].x : NULL);
            free(p[r].rows != 0 ? p[r].y : NULL);
        }
    }
}

static void bench_threads(int threads, bool json, char *const *words, int n_words)
{
    static const bool dot = true;
    static const bool fma = false;
    bench b = {.threads = threads, .json = json};
    const ops_device_options options = {.n_threads = threads};
    if (cpu_backend.open(&options, &b.dev, NULL) != DI_OK || pool_new(threads, &b.pool, NULL) != DI_OK) {
        fail("no such number of threads");
    }
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    b.n_data = (cache > 0 ? (size_t)cache : (size_t)64 << 20) * 8;
    b.n_data = b.n_data > memory / 4 ? memory / 4 : b.n_data;
    b.data = mmap(NULL, b.n_data, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.data == MAP_FAILED) {
        fail("out of memory");
    }
    (void)madvise(b.data, b.n_data, MADV_HUGEPAGE);
    memset(b.data, 1, b.n_data);
    fprintf(stderr, "%d thread%s, last-level cache %ld MiB, working set %zu MiB\n", threads, threads > 1 ? "s" : "",
            cache >> 20, b.n_data >> 20);
    const int way = best_read(&b);
    const int read = add_case(&b, "read", work_read, &way, -1, false);
    int flops = add_case(&b, "fma", work_flops, &fma, -1, true);
    const int dots = ceiling_dot(1, &b.sink) > 0.0 ? add_case(&b, "dot", work_flops, &dot, -1, true) : -1;
    run_cases(&b, 0);
    if (dots >= 0 && median(b.cases[dots].rate) > median(b.cases[flops].rate)) {
        flops = dots;
    }
    bench_products(&b, b.n_cases, read, flops, words, n_words);
    munmap(b.data, b.n_data);
    cpu_backend.close(b.dev);
    pool_free(b.pool);
}

int main(int argc, char **argv)
{
    bool json = false;
    int threads = 0;
    int n = 0;
    char *words[64];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            threads = atoi(argv[++i]);
        } else if (n < 64) {
            words[n++] = argv[i];
        }
    }
    if (!cpu_backend.available()) {
        fail("this processor has no AVX2");
    }
    if (threads > 0) {
        bench_threads(threads, json, words, n);
        return 0;
    }
    bench_threads(1, json, words, n);
    bench_threads(2, json, words, n);
    return 0;
}
