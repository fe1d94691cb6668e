/* bench_slice.c - see bench_slice.h. Every round measures the ceiling and then the work, so that a host whose clock moves moves both;
 * figures are medians over the rounds. The byte floor of a step counts the dense weights of all layers, the head and each routed expert
 * that is hit, in checkpoint bytes; which are hit is counted in the same steps run with a trace. */
#include "bench_slice.h"

#include "bench_disk.h"
#include "ceiling.h"
#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"
#include "core/pool.h"
#include "open.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, STEPS = 2, STREAM_STEPS = 6, FMA_ROUNDS = 400000 };

static const size_t DEVICE_BYTES = (size_t)1 << 29; /* ten times the cache of an H200 */

struct bench_slice { /* owner and thread: who made it */
    const di_model *model;
    bench_setup setup;
    di_model_info info;
    di_step_bytes bytes;
    di_engine *engine;
    pool *pool;
    int threads;
    uint8_t *data; /* what the read ceiling reads: more than eight last-level caches */
    size_t n_data;
    size_t part; /* of data, read by one round */
    size_t at;
    int way;
    float sink[MAX_THREADS];
    double done[MAX_THREADS];
    bench_disk *disk; /* NULL unless weights are read from it */
    bool on_device; /* the engine's memory is a device's: then neither pool nor data */
    double experts[BENCH_MAX_BATCHES]; /* that steps of these batches read, of all layers */
};

/* --- Ceilings ----------------------------------------------------------------------------------------------------------- */

static void read_share(void *arg, size_t begin, size_t end, int thread)
{
    bench_slice *const s = arg;
    const size_t share = s->part / (size_t)s->threads;
    for (size_t i = begin; i < end; i++) {
        s->sink[thread] += (float)(ceiling_read(s->data + s->at + i * share, share, s->way) & 1);
    }
}

/* Bytes a nanosecond. */
static double read_rate(bench_slice *s)
{
    if (s->on_device) {
        double rate = 0.0;
        (void)di_engine_measure_copy(s->engine, DEVICE_BYTES, &rate, NULL); /* no room: no ceiling */
        return rate * 1e-9;
    }
    const int64_t begin = clock_now_ns();
    pool_run(s->pool, (size_t)s->threads, read_share, s);
    const int64_t ns = clock_now_ns() - begin;
    s->at = s->at + 2 * s->part <= s->n_data ? s->at + s->part : 0;
    return (double)s->part / (double)ns;
}

static void fma_share(void *arg, size_t begin, size_t end, int thread)
{
    bench_slice *const s = arg;
    for (size_t i = begin; i < end; i++) {
        s->done[i] = ceiling_fma(FMA_ROUNDS, &s->sink[thread]);
    }
}

/* Multiply-adds a nanosecond; of a device what the user says, 0 = unknown. */
static double fma_rate(bench_slice *s)
{
    double done = 0.0;
    if (s->on_device) {
        return s->setup.product_tflops * 500.0;
    }
    const int64_t begin = clock_now_ns();
    pool_run(s->pool, (size_t)s->threads, fma_share, s);
    const int64_t ns = clock_now_ns() - begin;
    for (int i = 0; i < s->threads; i++) {
        done += s->done[i];
    }
    return done / (double)ns;
}

static void choose_way(bench_slice *s)
{
    double best = 0.0;
    int way = 0;
    for (int i = 0; i < 2 * CEILING_READ_WAYS; i++) {
        s->way = i % CEILING_READ_WAYS;
        const double rate = read_rate(s);
        way = rate > best ? s->way : way;
        best = rate > best ? rate : best;
    }
    s->way = way;
}

static di_status prepare_ceilings(bench_slice *s, di_error *err)
{
    s->on_device = strcmp(di_engine_backend(s->engine), "cuda") == 0;
    if (s->on_device) {
        return DI_OK;
    }
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    s->part = cache > 0 ? (size_t)cache : (size_t)64 << 20;
    s->n_data = 8 * s->part;
    void *const data = mmap(NULL, s->n_data, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return err_memory(err, "buffer of the read ceiling", s->n_data);
    }
    s->data = data;
    (void)madvise(data, s->n_data, MADV_HUGEPAGE);
    memset(data, 1, s->n_data);
    const di_status status = pool_new(s->threads, &s->pool, err);
    if (status == DI_OK) {
        choose_way(s);
    }
    return status;
}

/* Not where weights come from the disk: those steps count what they read. */
static di_status count_experts(bench_slice *s, di_error *err)
{
    const bench_setup *const setup = &s->setup;
    bool same = true; /* a lone sequence reads what it chooses, all of it different */
    for (size_t i = 0; i < setup->n_batches; i++) {
        s->experts[i] = (double)s->info.n_layers * (double)s->info.n_active_experts;
        same = same && setup->batches[i] == 1;
    }
    if (same || setup->engine.ram_budget > 0 || setup->engine.ram_percent > 0) {
        return DI_OK;
    }
    return bench_count_experts(s->model, &setup->engine, setup->context, setup->batches, setup->n_batches, s->experts, err);
}

di_status bench_slice_new(const di_model *model, const bench_setup *setup, bench_slice **out, di_error *err)
{
    bench_slice *const s = ar_calloc(1, sizeof *s);
    if (s == NULL) {
        return err_memory(err, "bench", sizeof *s);
    }
    s->model = model;
    s->setup = *setup;
    di_model_get_info(model, &s->info);
    di_model_get_step_bytes(model, &s->bytes);
    di_status status = count_experts(s, err);
    if (status == DI_OK) {
        status = di_engine_open(model, &setup->engine, &s->engine, err);
    }
    if (status == DI_OK) {
        di_engine_stats stats;
        di_engine_get_stats(s->engine, &stats);
        s->threads = stats.n_threads;
        cli_say_engine_weights(s->engine);
        status = prepare_ceilings(s, err);
    }
    di_stream_stats stream = {.budget_bytes = 0};
    if (status == DI_OK) {
        di_engine_get_stream_stats(s->engine, &stream);
    }
    if (stream.budget_bytes > 0) {
        status = bench_disk_new(setup->file, &s->disk, err);
    }
    if (status != DI_OK) {
        bench_slice_free(s);
        return status;
    }
    *out = s;
    return DI_OK;
}

void bench_slice_free(bench_slice *s)
{
    if (s == NULL) {
        return;
    }
    di_engine_close(s->engine);
    pool_free(s->pool);
    bench_disk_free(s->disk);
    if (s->data != NULL) {
        (void)munmap(s->data, s->n_data);
    }
    free(s);
}

/* --- Cases -------------------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_median_of(double *values, int32_t n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

di_status bench_slice_decode(bench_slice *s, size_t which, bench_result *out, di_error *err)
{
    const int32_t n = s->setup.batches[which];
    const double hits = s->experts[which];
    const double bytes = (double)s->bytes.dense + (double)s->bytes.head + hits * (double)s->bytes.expert;
    double ms[BENCH_MAX_ROUNDS];
    double share[BENCH_MAX_ROUNDS];
    double rates[BENCH_MAX_ROUNDS];
    bench_batch batch;
    di_status status = bench_batch_start(&batch, s->engine, n, s->setup.context, err);
    for (int32_t r = -1; r < s->setup.rounds && status == DI_OK; r++) {
        const double rate = read_rate(s);
        int64_t ns = 0;
        for (int i = 0; i < STEPS && status == DI_OK; i++) {
            status = bench_batch_step(&batch, &ns, err);
        }
        if (r >= 0) { /* the one before was to warm up */
            ms[r] = (double)ns / STEPS * 1e-6;
            rates[r] = rate;
            share[r] = rate > 0.0 ? bytes / rate / ((double)ns / STEPS) : 0.0;
        }
    }
    bench_batch_end(&batch);
    if (status == DI_OK) {
        *out = (bench_result){.ms = bench_median_of(ms, s->setup.rounds),
                              .experts = hits / s->info.n_layers,
                              .bytes = bytes,
                              .ceiling = bench_median_of(rates, s->setup.rounds),
                              .share = bench_median_of(share, s->setup.rounds)};
        out->tokens = n * 1e3 / out->ms;
    }
    return status;
}

bool bench_slice_streams(const bench_slice *s) { return s->disk != NULL; }

/* Some steps between two looks at the disk's rate. */
static di_status stream_round(bench_slice *s, bench_batch *batch, bench_result *out, di_error *err)
{
    di_stream_stats before;
    di_stream_stats after;
    double rates[2] = {0};
    int64_t ns = 0;
    di_status status = bench_disk_rate(s->disk, &rates[0], err);
    di_engine_get_stream_stats(s->engine, &before);
    for (int i = 0; i < STREAM_STEPS && status == DI_OK; i++) {
        status = bench_batch_step(batch, &ns, err);
    }
    di_engine_get_stream_stats(s->engine, &after);
    if (status == DI_OK) {
        status = bench_disk_rate(s->disk, &rates[1], err);
    }
    const double needed = (double)(after.hits - before.hits + after.misses - before.misses);
    *out = (bench_result){.ms = (double)ns / STREAM_STEPS * 1e-6,
                          .bytes = (double)(after.read_bytes - before.read_bytes) / STREAM_STEPS,
                          .ceiling = (rates[0] + rates[1]) / 2.0,
                          .hits = (double)(after.hits - before.hits) / (needed > 0.0 ? needed : 1.0),
                          .experts = needed / STREAM_STEPS / s->info.n_layers};
    out->share = out->ceiling > 0.0 ? out->bytes / out->ceiling / (out->ms * 1e6) : 0.0;
    return status;
}

di_status bench_slice_stream(bench_slice *s, size_t which, bench_result *out, di_error *err)
{
    enum { FIELDS = 6 };
    const int32_t n = s->setup.batches[which];
    bench_batch batch;
    double figures[FIELDS][BENCH_MAX_ROUNDS];
    double medians[FIELDS] = {0};
    di_status status = bench_batch_start(&batch, s->engine, n, s->setup.context, err);
    for (int32_t r = -2; r < s->setup.rounds && status == DI_OK; r++) { /* the first fill the slots */
        bench_result one;
        status = stream_round(s, &batch, &one, err);
        const double values[FIELDS] = {one.ms, one.bytes, one.ceiling, one.hits, one.experts, one.share};
        for (int i = 0; i < FIELDS && r >= 0; i++) {
            figures[i][r] = values[i];
        }
    }
    bench_batch_end(&batch);
    for (int i = 0; i < FIELDS && status == DI_OK; i++) {
        medians[i] = bench_median_of(figures[i], s->setup.rounds);
    }
    if (status == DI_OK) {
        *out = (bench_result){.ms = medians[0],
                              .tokens = n * 1e3 / medians[0],
                              .bytes = medians[1],
                              .ceiling = medians[2],
                              .hits = medians[3],
                              .experts = medians[4],
                              .share = medians[5]};
    }
    return status;
}

di_status bench_slice_prefill(bench_slice *s, bench_result *out, di_error *err)
{
    double ms[BENCH_MAX_ROUNDS];
    double share[BENCH_MAX_ROUNDS];
    double rates[BENCH_MAX_ROUNDS];
    uint64_t seed = 9;
    const double active = (double)s->info.n_layers * (double)s->info.n_active_experts;
    const double work = (double)s->setup.prompt * ((double)s->bytes.dense_values + (double)s->bytes.head_values +
                                                   active * (double)s->bytes.expert_values);
    di_status status = DI_OK;
    for (int32_t r = 0; r < s->setup.rounds && status == DI_OK; r++) {
        di_sequence *seq = NULL;
        const double rate = fma_rate(s);
        const int64_t begin = clock_now_ns();
        status = bench_prompt_run(s->engine, (size_t)s->setup.prompt, &seed, &seq, err);
        const int64_t ns = clock_now_ns() - begin;
        ms[r] = (double)ns * 1e-6;
        rates[r] = rate;
        share[r] = rate > 0.0 ? work / rate / (double)ns : 0.0;
        di_sequence_free(seq);
    }
    if (status == DI_OK) {
        *out = (bench_result){.ms = bench_median_of(ms, s->setup.rounds),
                              .ceiling = bench_median_of(rates, s->setup.rounds),
                              .share = bench_median_of(share, s->setup.rounds)};
        out->tokens = s->setup.prompt * 1e3 / out->ms;
    }
    return status;
}
