/* kv_bench.c - what the cases of bench_kv share: figures, a directory, a store in it. */
#include "kv_bench.h"

#include "core/core.h"
#include "cpu_bench.h"
#include "order.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- figures ---- */

void kv_bench_report(const kv_bench *b, const char *name, const char *metric, double value, const char *unit, const char *baseline,
                     double ratio)
{
    if (b->json && baseline != NULL) {
        printf("{\"bench\":\"kv\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\",\"ratio\":%.3f}\n",
               name, metric, value, unit, baseline, ratio);
    } else if (b->json) {
        printf("{\"bench\":\"kv\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":null,\"ratio\":null}\n",
               name, metric, value, unit);
    } else if (baseline != NULL) {
        printf("%-12s %-13s %9.4g %-5s %6.3f x %s\n", name, metric, value, unit, ratio, baseline);
    } else {
        printf("%-12s %-13s %9.4g %-5s\n", name, metric, value, unit);
    }
    fflush(stdout);
}

double kv_bench_median(const double values[KV_BENCH_TURNS])
{
    double sorted[KV_BENCH_TURNS];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, KV_BENCH_TURNS, sizeof *sorted, bench_by_double);
    return sorted[KV_BENCH_TURNS / 2];
}

void kv_bench_report_turns(const kv_bench *b, const char *name, const char *metric, const double *values, const char *unit,
                           const char *baseline, const double *ratios)
{
    const double *const by = baseline != NULL ? ratios : values;
    size_t least = 0;
    size_t most = 0;
    for (size_t i = 1; i < KV_BENCH_TURNS; i++) {
        least = by[i] < by[least] ? i : least;
        most = by[i] > by[most] ? i : most;
    }
    kv_bench_report(b, name, metric, kv_bench_median(values), unit, baseline, baseline != NULL ? kv_bench_median(ratios) : 0);
    kv_bench_report(b, name, "least", values[least], unit, baseline, by[least]);
    kv_bench_report(b, name, "most", values[most], unit, baseline, by[most]);
}

/* ---- a store ---- */

static void wake(void *user)
{
    sem_post(user);
}

void kv_bench_open(kv_bench *b, int64_t segment_bytes, int64_t max_bytes)
{
    const kv_disk_options o = {.path = b->path,
                               .max_bytes = max_bytes,
                               .segment_bytes = segment_bytes,
                               .queue_depth = KV_BENCH_DEPTH,
                               .wake = wake,
                               .wake_user = &b->news};
    di_error err;
    bench_must(kv_disk_open(&o, &b->disk, &err), &err);
}

void kv_bench_key(int64_t i, uint8_t out[KV_KEY_BYTES])
{
    di_error err;
    bench_must(digest_sha256(&i, sizeof i, out, &err), &err);
}

void kv_bench_until_over(kv_bench *b)
{
    while (b->n_over < b->n) {
        sem_wait(&b->news);
        kv_disk_poll(b->disk);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

void kv_bench_make_directory(kv_bench *b)
{
    const char *const folder = getenv("TMPDIR");
    snprintf(b->path, sizeof b->path, "%s/bench-kv-XXXXXX", folder != NULL ? folder : P_tmpdir);
    if (mkdtemp(b->path) == NULL) {
        bench_fail("no directory can be made");
    }
}

void kv_bench_remove_directory(kv_bench *b)
{
    (void)nftw(b->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
