/* bench_slice.c - see bench_slice.h. Every round measures the ceiling and then the work, so that a host whose clock moves moves both;
 * figures are medians over the rounds. The byte floor of a step counts the dense weights of all layers, the head and each routed expert
 * that is hit, in checkpoint bytes; which are hit is counted in the same steps run with a trace. */
#include "bench_slice.h"

#include "bench_disk.h"
#include "ceiling.h"
#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"
#include "open.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_LAYERS = 128, MAX_EXPERTS = 384, MAX_THREADS = 1024, STEPS = 2, STREAM_STEPS = 6, FMA_ROUNDS = 400000 };

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

/* Multiply-adds a nanosecond. */
static double fma_rate(bench_slice *s)
{
    double done = 0.0;
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
    di_status status = di_engine_open(model, &setup->engine, &s->engine, err);
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

/* --- Steps -------------------------------------------------------------------------------------------------------------- */

static int32_t random_id(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((*seed >> 33) % BENCH_ID_RANGE);
}

/* A sequence behind n tokens; with `all` every row goes through every layer, else only what the last one depends on. */
static di_status start(di_engine *engine, size_t n, bool all, uint64_t *seed, di_sequence **out, di_error *err)
{
    int32_t *const ids = ar_calloc(n, sizeof *ids);
    di_sequence *s = NULL;
    di_status status = ids != NULL ? di_sequence_new(engine, &s, err) : err_memory(err, "prompt", n * sizeof *ids);
    for (size_t i = 0; ids != NULL && i < n; i++) {
        ids[i] = random_id(seed);
    }
    if (status == DI_OK) {
        status = di_sequence_keep_logits(s, all, err);
    }
    if (status == DI_OK) {
        status = di_sequence_feed(s, ids, n, err);
    }
    if (status == DI_OK) {
        status = di_sequence_run(s, err);
    }
    free(ids);
    if (status != DI_OK) {
        di_sequence_free(s);
        return status;
    }
    *out = s;
    return DI_OK;
}

static di_status start_batch(const bench_slice *s, di_engine *engine, int32_t n, uint64_t *seed, di_sequence **seqs, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t i = 0; i < n && status == DI_OK; i++) {
        status = start(engine, (size_t)s->setup.context, false, seed, &seqs[i], err);
    }
    return status;
}

/* One token for each sequence; adds the nanoseconds of the passes. */
static di_status step(di_engine *engine, di_sequence **seqs, int32_t n, uint64_t *seed, int64_t *ns, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t i = 0; i < n && status == DI_OK; i++) {
        const int32_t id = random_id(seed);
        status = di_sequence_feed(seqs[i], &id, 1, err);
    }
    const int64_t begin = clock_now_ns();
    for (int32_t ran = 1; ran > 0 && status == DI_OK;) {
        status = di_engine_step(engine, &ran, err);
    }
    *ns += clock_now_ns() - begin;
    return status;
}

/* --- Which experts are hit ---------------------------------------------------------------------------------------------- */

typedef struct hit_set {
    uint8_t hit[MAX_LAYERS][MAX_EXPERTS];
} hit_set;

static void collect_hits(void *user, const di_trace *t)
{
    hit_set *const set = user;
    const char *const dot = strchr(t->name, '.');
    if (t->name[0] != 'L' || dot == NULL || strcmp(dot, ".router_ids") != 0) {
        return;
    }
    const long layer = strtol(t->name + 1, NULL, 10);
    const int32_t *const ids = t->data;
    for (int64_t i = 0; layer < MAX_LAYERS && i < t->dims[0] * t->dims[1]; i++) {
        if (ids[i] < MAX_EXPERTS) {
            set->hit[layer][ids[i]] = 1;
        }
    }
}

static int64_t count_hits(const hit_set *set)
{
    int64_t n = 0;
    for (size_t l = 0; l < MAX_LAYERS; l++) {
        for (size_t e = 0; e < MAX_EXPERTS; e++) {
            n += set->hit[l][e];
        }
    }
    return n;
}

/* Experts of all layers that a step of n sequences reads, on average over a few steps. */
static di_status measure_hits(bench_slice *s, int32_t n, double *out, di_error *err)
{
    enum { TRACED_STEPS = 4 };
    di_engine *engine = NULL;
    di_sequence *seqs[BENCH_MAX_BATCH] = {NULL};
    uint64_t seed = 7;
    int64_t hits = 0;
    int64_t ns = 0;
    hit_set *const set = ar_calloc(1, sizeof *set);
    di_engine_options options = s->setup.engine;
    options.trace = collect_hits;
    options.trace_user = set;
    di_status status = set != NULL ? di_engine_open(s->model, &options, &engine, err) : err_memory(err, "hits", sizeof *set);
    if (status == DI_OK) {
        status = start_batch(s, engine, n, &seed, seqs, err);
    }
    for (int i = 0; i < TRACED_STEPS && status == DI_OK; i++) {
        memset(set, 0, sizeof *set);
        status = step(engine, seqs, n, &seed, &ns, err);
        hits += count_hits(set);
    }
    *out = (double)hits / TRACED_STEPS;
    di_engine_close(engine);
    free(set);
    return status;
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

di_status bench_slice_decode(bench_slice *s, int32_t n, bench_result *out, di_error *err)
{
    di_sequence *seqs[BENCH_MAX_BATCH] = {NULL};
    double ms[BENCH_MAX_ROUNDS];
    double share[BENCH_MAX_ROUNDS];
    double rates[BENCH_MAX_ROUNDS];
    uint64_t seed = 7;
    double hits = (double)s->info.n_layers * (double)s->info.n_active_experts;
    di_status status = n > 1 ? measure_hits(s, n, &hits, err) : DI_OK;
    const double bytes = (double)s->bytes.dense + (double)s->bytes.head + hits * (double)s->bytes.expert;
    if (status == DI_OK) {
        status = start_batch(s, s->engine, n, &seed, seqs, err);
    }
    for (int32_t r = -1; r < s->setup.rounds && status == DI_OK; r++) {
        const double rate = read_rate(s);
        int64_t ns = 0;
        for (int i = 0; i < STEPS && status == DI_OK; i++) {
            status = step(s->engine, seqs, n, &seed, &ns, err);
        }
        if (r >= 0) { /* the one before was to warm up */
            ms[r] = (double)ns / STEPS * 1e-6;
            rates[r] = rate;
            share[r] = bytes / rate / ((double)ns / STEPS);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        di_sequence_free(seqs[i]);
    }
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
static di_status stream_round(bench_slice *s, di_sequence **seqs, int32_t n, uint64_t *seed, bench_result *out, di_error *err)
{
    di_stream_stats before;
    di_stream_stats after;
    double rates[2] = {0};
    int64_t ns = 0;
    di_status status = bench_disk_rate(s->disk, &rates[0], err);
    di_engine_get_stream_stats(s->engine, &before);
    for (int i = 0; i < STREAM_STEPS && status == DI_OK; i++) {
        status = step(s->engine, seqs, n, seed, &ns, err);
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

di_status bench_slice_stream(bench_slice *s, int32_t n, bench_result *out, di_error *err)
{
    enum { FIELDS = 6 };
    di_sequence *seqs[BENCH_MAX_BATCH] = {NULL};
    double figures[FIELDS][BENCH_MAX_ROUNDS];
    double medians[FIELDS] = {0};
    uint64_t seed = 7;
    di_status status = start_batch(s, s->engine, n, &seed, seqs, err);
    for (int32_t r = -2; r < s->setup.rounds && status == DI_OK; r++) { /* the first fill the slots */
        bench_result one;
        status = stream_round(s, seqs, n, &seed, &one, err);
        const double values[FIELDS] = {one.ms, one.bytes, one.ceiling, one.hits, one.experts, one.share};
        for (int i = 0; i < FIELDS && r >= 0; i++) {
            figures[i][r] = values[i];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        di_sequence_free(seqs[i]);
    }
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
        status = start(s->engine, (size_t)s->setup.prompt, true, &seed, &seq, err);
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
