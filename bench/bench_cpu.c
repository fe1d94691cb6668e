/* bench_cpu.c - kernels of the CPU backend at released shapes, as shares of what this machine can do.
 *
 *   bench_cpu [--json] [CASE...]
 *
 * Every case runs with one thread and with two. Weights are copies of one matrix, many enough that what the last-level
 * cache still holds from before never meets its reader again; the read ceiling's buffer is eight times that cache, or a
 * quarter of memory where that is less (standard error says which). A round runs the ceilings and all cases one after
 * the other; a figure is the median of its rounds, a ratio the median of the ratios to the ceiling of the same round.
 * The read ceiling is the best of four ways to read, each thread its own part; the compute ceiling the better of fused
 * multiply-add and BF16 dot product. One thread is measured in its processor time, so that other programs count little;
 * two in the time that passes. CASE keeps the cases whose names begin with one of the given words. */
#include "cpu/cpu.h"
#include "cpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void open_lanes(cpu_bench *b)
{
    for (int i = 0; i < CPU_BENCH_LANES; i++) {
        bench_lane *lane = &b->lanes[i];
        const ops_device_options options = {.n_threads = i + 1};
        lane->threads = i + 1;
        if (cpu_backend.open(&options, &lane->dev, NULL) != DI_OK || pool_new(i + 1, &lane->pool, NULL) != DI_OK) {
            bench_fail("cannot open a device");
        }
    }
}

int main(int argc, char **argv)
{
    char *words[CPU_BENCH_CASES];
    cpu_bench b = {.words = words};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b.json = true;
        } else if (b.n_words < CPU_BENCH_CASES) {
            words[b.n_words++] = argv[i];
        }
    }
    if (!cpu_backend.available()) {
        bench_fail("this processor has no AVX2");
    }
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    b.n_data = (cache > 0 ? (size_t)cache : (size_t)64 << 20) * 8;
    b.n_data = b.n_data > memory / 4 ? memory / 4 : b.n_data;
    b.data = mmap(NULL, b.n_data, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.data == MAP_FAILED) {
        bench_fail("out of memory");
    }
    (void)madvise(b.data, b.n_data, MADV_HUGEPAGE);
    memset(b.data, 1, b.n_data);
    fprintf(stderr, "last-level cache %ld MiB, read buffer %zu MiB\n", cache >> 20, b.n_data >> 20);
    open_lanes(&b);
    bench_ceilings(&b);
    bench_products(&b);
    bench_stages(&b);
    for (int i = 0; i < CPU_BENCH_LANES; i++) {
        cpu_backend.close(b.lanes[i].dev);
        pool_free(b.lanes[i].pool);
    }
    munmap(b.data, b.n_data);
    return 0;
}
