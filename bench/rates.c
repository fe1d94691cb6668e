/* rates.c - see rates.h. */
#include "rates.h"

#include "ceiling.h"
#include "core/clock.h"
#include "cpu_bench.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

int64_t rates_now_ns(int threads)
{
    if (threads > 1) {
        return clock_now_ns();
    }
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void read_share(void *arg, size_t begin, size_t end, int thread)
{
    rates *r = arg;
    const size_t share = r->part / (size_t)r->threads;
    for (size_t i = begin; i < end; i++) {
        r->sink[thread] += (float)(ceiling_read(r->data + r->at * r->part + i * share, share, r->way) & 1);
    }
}

double rates_read(rates *r)
{
    const int64_t start = rates_now_ns(r->threads);
    pool_run(r->pool, (size_t)r->threads, read_share, r);
    r->at = (r->at + 1) % r->parts;
    return (double)r->part / (double)(rates_now_ns(r->threads) - start);
}

static void fma_share(void *arg, size_t begin, size_t end, int thread)
{
    rates *r = arg;
    for (size_t i = begin; i < end; i++) {
        r->fma[i] = ceiling_fma(400000, &r->sink[thread]);
    }
}

double rates_fma(rates *r)
{
    double done = 0.0;
    const int64_t start = rates_now_ns(r->threads);
    pool_run(r->pool, (size_t)r->threads, fma_share, r);
    const int64_t ns = rates_now_ns(r->threads) - start;
    for (int i = 0; i < r->threads; i++) {
        done += r->fma[i];
    }
    return done / (double)ns;
}

void rates_open(rates *r, int threads, size_t part, size_t parts)
{
    *r = (rates){.threads = threads, .part = part, .parts = parts};
    if (threads < 1 || threads > RATES_THREADS || pool_new(threads, &r->pool, NULL) != DI_OK) {
        bench_fail("cannot open a pool");
    }
    r->data = mmap(NULL, part * parts, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->data == MAP_FAILED) {
        bench_fail("out of memory");
    }
    (void)madvise(r->data, part * parts, MADV_HUGEPAGE);
    memset(r->data, 1, part * parts);
    double best = 0.0;
    int way = 0;
    for (int i = 0; i < 2 * CEILING_READ_WAYS; i++) {
        r->way = i % CEILING_READ_WAYS;
        const double rate = rates_read(r);
        way = rate > best ? r->way : way;
        best = rate > best ? rate : best;
    }
    r->way = way;
}

void rates_close(rates *r)
{
    pool_free(r->pool);
    munmap(r->data, r->part * r->parts);
}
