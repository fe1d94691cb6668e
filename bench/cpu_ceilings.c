/* cpu_ceilings.c - the read and compute ceilings of the CPU bench, over the threads of a lane. */
#include "ceiling.h"
#include "core/clock.h"
#include "cpu_bench.h"

#define MAX_THREADS 64

static const int WAYS[CEILING_READ_WAYS] = {0, 1, 2, 3};
static const bool FMA = false;
static const bool DOT = true;

typedef struct read_run {
    const uint8_t *data;
    size_t share;
    int way;
    uint64_t sum[MAX_THREADS];
} read_run;

static void read_share(void *arg, size_t begin, size_t end, int thread)
{
    read_run *run = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        run->sum[i] |= ceiling_read(run->data + i * run->share, run->share, run->way);
    }
}

/* The next part of the buffer. */
static double work_read(cpu_bench *b, const bench_lane *lane, const void *what)
{
    const size_t part = b->n_data / CPU_BENCH_ROUNDS;
    read_run run = {.data = b->data + b->at * part, .share = part / (size_t)lane->threads, .way = *(const int *)what};
    b->at = (b->at + 1) % CPU_BENCH_ROUNDS;
    pool_run(lane->pool, (size_t)lane->threads, read_share, &run);
    b->sink += (float)(run.sum[0] & 1);
    return (double)(run.share * (size_t)lane->threads);
}

typedef struct flop_run {
    bool dot;
    double done[MAX_THREADS];
    float sink[MAX_THREADS];
} flop_run;

static void flop_share(void *arg, size_t begin, size_t end, int thread)
{
    flop_run *run = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        run->done[i] = run->dot ? ceiling_dot(200000, &run->sink[i]) : ceiling_fma(400000, &run->sink[i]);
    }
}

static double work_flops(cpu_bench *b, const bench_lane *lane, const void *what)
{
    flop_run run = {.dot = *(const bool *)what};
    double sum = 0.0;
    pool_run(lane->pool, (size_t)lane->threads, flop_share, &run);
    for (int t = 0; t < lane->threads; t++) {
        sum += run.done[t];
        b->sink += run.sink[t];
    }
    return sum;
}

/* The best way to read in this lane. */
static const int *best_way(cpu_bench *b, const bench_lane *lane)
{
    const int *way = &WAYS[0];
    double best = 0.0;
    for (int i = 0; i < 3 * CEILING_READ_WAYS; i++) {
        const int *const tried = &WAYS[i % CEILING_READ_WAYS];
        const int64_t start = clock_now_ns();
        const double rate = work_read(b, lane, tried) / (double)(clock_now_ns() - start);
        if (rate > best) {
            best = rate;
            way = tried;
        }
    }
    return way;
}

static double mean(const bench_case *c)
{
    double sum = 0.0;
    for (int r = 0; r < CPU_BENCH_ROUNDS; r++) {
        sum += c->rate[r];
    }
    return sum / CPU_BENCH_ROUNDS;
}

void bench_ceilings(cpu_bench *b)
{
    float sink = 0.0f;
    const bool has_dot = ceiling_dot(1, &sink) > 0.0;
    int dot[CPU_BENCH_LANES] = {-1, -1};
    for (int i = 0; i < CPU_BENCH_LANES; i++) {
        bench_lane *lane = &b->lanes[i];
        lane->read = bench_add(b, lane, "read", work_read, best_way(b, lane), -1, false);
        lane->compute = bench_add(b, lane, "fma", work_flops, &FMA, -1, true);
        dot[i] = has_dot ? bench_add(b, lane, "dot", work_flops, &DOT, -1, true) : -1;
    }
    bench_run(b, 0);
    for (int i = 0; i < CPU_BENCH_LANES; i++) {
        bench_lane *lane = &b->lanes[i];
        if (dot[i] >= 0 && mean(&b->cases[dot[i]]) > mean(&b->cases[lane->compute])) {
            lane->compute = dot[i];
        }
    }
    b->n_fixed = b->n_cases;
}
