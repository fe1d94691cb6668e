/* cpu_rounds.c - how the CPU bench measures: all cases in turns, medians, one line a case. */
#include "core/clock.h"
#include "cpu_bench.h"
#include "ops/formats.h"
#include "order.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS CPU_BENCH_ROUNDS

_Noreturn void bench_fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

void bench_must(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        bench_fail(err->message);
    }
}

void *bench_need(void *p)
{
    if (p == NULL) {
        bench_fail("out of memory");
    }
    return p;
}

uint64_t bench_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z ^ (z >> 27);
}

/* About normal: the sum of four. */
static float random_normal(uint64_t *state, float sigma)
{
    const uint64_t bits = bench_random(state);
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        sum += (float)(bits >> (16 * i) & 0xFFFF) * 0x1p-16f - 0.5f;
    }
    return sum * sigma * 1.7320508f; /* each has a variance of 1 / 12 */
}

void bench_fill_fp8(uint8_t *codes, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        codes[i] = e4m3_from_f32(random_normal(state, 120.0f));
    }
}

void bench_fill_fp4(uint8_t *codes, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t low = e2m1_from_f32(random_normal(state, 2.5f));
        codes[i] = (uint8_t)(low | e2m1_from_f32(random_normal(state, 2.5f)) << 4);
    }
}

bool bench_wanted(char *const *words, int n_words, const char *name)
{
    for (int i = 0; i < n_words; i++) {
        if (strncmp(name, words[i], strlen(words[i])) == 0) {
            return true;
        }
    }
    return n_words == 0;
}

int bench_add(cpu_bench *b, bench_lane *lane, const char *name, bench_work work, const void *what, int ceiling,
              bool computes)
{
    if (b->n_cases == CPU_BENCH_CASES) {
        bench_fail("too many cases");
    }
    bench_case *c = &b->cases[b->n_cases];
    *c = (bench_case){.lane = lane, .work = work, .what = what, .computes = computes};
    snprintf(c->name, sizeof c->name, "%s", name);
    c->ceiling = ceiling < 0 ? b->n_cases : ceiling;
    return b->n_cases++;
}

static int64_t now_ns(const bench_lane *lane)
{
    if (lane->threads > 1) {
        return clock_now_ns();
    }
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double bench_median(const double values[CPU_BENCH_ROUNDS])
{
    double sorted[ROUNDS];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, bench_by_double);
    return sorted[ROUNDS / 2];
}

static void report(const cpu_bench *b, const bench_case *c)
{
    const bench_case *bound = &b->cases[c->ceiling];
    const char *metric = c->computes ? "multiply_adds" : "bandwidth";
    const char *unit = c->computes ? "GMAC/s" : "GB/s";
    double ratio[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        ratio[r] = c->rate[r] / bound->rate[r];
    }
    if (b->json) {
        printf("{\"bench\":\"cpu\",\"case\":\"%s/%d\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\","
               "\"baseline\":\"%s\",\"ratio\":%.3f}\n",
               c->name, c->lane->threads, metric, bench_median(c->rate), unit, bound->name, bench_median(ratio));
    } else {
        printf("%-20s %d thread%s %9.2f %-7s %5.1f %% of %s\n", c->name, c->lane->threads,
               c->lane->threads > 1 ? "s" : " ", bench_median(c->rate), unit, 100.0 * bench_median(ratio), bound->name);
    }
    fflush(stdout);
}

void bench_run(cpu_bench *b, int first)
{
    for (int r = -1; r < ROUNDS && b->n_cases > first; r++) { /* one round to warm up */
        for (int i = 0; i < b->n_cases; i++) {
            bench_case *c = &b->cases[i];
            const int64_t start = now_ns(c->lane);
            const double done = c->work(b, c->lane, c->what);
            const int64_t ns = now_ns(c->lane) - start;
            if (r >= 0) {
                c->rate[r] = done / (double)(ns > 0 ? ns : 1);
            }
        }
    }
    for (int i = first; i < b->n_cases; i++) {
        report(b, &b->cases[i]);
    }
    b->n_cases = b->n_fixed > 0 ? b->n_fixed : b->n_cases;
}
