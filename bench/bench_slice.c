/* bench_slice.c - a slice of the released model, two layers of real shapes, through the engine: decode against the byte
 * floor, prefill against the multiply-add peak.
 *
 *   bench_slice [--json] [--stages] [--experts N] [CASE...]
 *
 * The model is di_synthetic of <deepinfer/model.h> with N routed experts a layer (48). CASE keeps the cases that begin
 * with a given word (decode_x1, decode_x8, prefill_512), --stages tells how long each stage took.
 *
 * The byte floor of a step is what it must read, at the read ceiling of the same round: all dense weights of the
 * layers, the head, the shared experts and the routed experts that are hit (batch 1: six a layer; batch 8: counted in
 * the same steps run with a trace), in checkpoint bytes. A prefill's floor is its multiply-adds in the layers at the
 * fp32 fused multiply-add peak. What a step spends outside all stages is the engine's own. One thread is measured in
 * processor time, two in time that passes; every figure is the median of seven rounds, each of which measures the
 * ceilings too, the read ceiling before and behind its steps. */
#include "core/clock.h"
#include "cpu_bench.h"
#include "rates.h"
#include "stage_clock.h"

#include <deepinfer/engine.h>
#include <deepinfer/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = CPU_BENCH_ROUNDS, PROMPT = 512, BATCH = 8 };

/* The model, and what the bench was asked for. */
typedef struct slice {
    di_step_bytes bytes; /* of the model */
    int n_experts;       /* routed, a layer */
    double hit; /* routed experts of both layers that a step of a batch reads, on average */
    char *const *words; /* cases asked for; none = all */
    int n_words;
    bool json;
    bool stages;
} slice;

static void report(bool json, const char *name, int threads, double value, const char *unit, const char *baseline,
                   double ratio)
{
    if (json) {
        printf("{\"bench\":\"slice\",\"case\":\"%s/"
               "%d\",\"metric\":\"speed\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\","
               "\"ratio\":%.3f}\n",
               name, threads, value, unit, baseline, ratio);
    } else {
        printf("%-16s %d thread%s %9.2f %-6s %5.1f %% of %s\n", name, threads, threads > 1 ? "s" : " ", value, unit,
               100.0 * ratio, baseline);
    }
    fflush(stdout);
}

/* A sequence behind n tokens; with `all` every row goes through every layer, else only what the last one depends on. */
static di_sequence *start(di_engine *engine, uint64_t *seed, size_t n, bool all)
{
    int32_t ids[PROMPT];
    di_error err;
    di_sequence *s;
    bench_must(di_sequence_new(engine, &s, &err), &err);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(bench_random(seed) % 4000);
    }
    bench_must(di_sequence_keep_logits(s, all, &err), &err);
    bench_must(di_sequence_feed(s, ids, n, &err), &err);
    bench_must(di_sequence_run(s, &err), &err);
    return s;
}

/* One token for each sequence; nanoseconds of the pass. */
static int64_t step(di_engine *engine, di_sequence **s, size_t n, int threads, uint64_t *seed)
{
    di_error err;
    int32_t ran;
    for (size_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)(bench_random(seed) % 4000);
        bench_must(di_sequence_feed(s[i], &id, 1, &err), &err);
    }
    const int64_t begin = rates_now_ns(threads);
    bench_must(di_engine_step(engine, &ran, &err), &err);
    return rates_now_ns(threads) - begin;
}

/* Bytes that a step of n sequences reads. */
static double floor_bytes(const slice *s, int32_t n)
{
    const double hit = n == 1 ? 2.0 * 6.0 : s->hit;
    return (double)s->bytes.dense + (double)s->bytes.head + hit * (double)s->bytes.expert;
}

/* Experts that the tokens of a step chose (trace of router_ids), by layer. */
typedef struct hit_set {
    uint8_t hit[2][384];
} hit_set;

static void collect_hits(void *user, const di_trace *t)
{
    hit_set *set = user;
    if (strstr(t->name, "router_ids") == NULL) {
        return;
    }
    const int32_t *ids = t->data;
    for (int64_t i = 0; i < t->dims[0] * t->dims[1]; i++) {
        set->hit[t->name[1] - '0'][ids[i]] = 1;
    }
}

static void start_batch(di_engine *engine, di_sequence **seqs, int32_t n, uint64_t *seed)
{
    for (int32_t i = 0; i < n; i++) {
        seqs[i] = start(engine, seed, 200, false);
    }
}

/* The steps that bench_decode measures, once with a trace; there each pass may run a part of the batch. */
static void measure_hits(slice *s, const di_model *model)
{
    hit_set set;
    di_error err;
    di_engine *engine;
    di_sequence *seqs[BATCH];
    uint64_t seed = 7;
    const int steps = 2 * (ROUNDS + 1);
    const di_engine_options options = {.chunk_tokens = PROMPT, .trace = collect_hits, .trace_user = &set};
    bench_must(di_engine_open(model, &options, &engine, &err), &err);
    start_batch(engine, seqs, BATCH, &seed);
    for (int i = 0; i < steps; i++) {
        memset(&set, 0, sizeof set);
        step(engine, seqs, BATCH, 1, &seed);
        for (int b = 0; b < BATCH; b++) {
            bench_must(di_sequence_run(seqs[b], &err), &err);
        }
        for (int e = 0; e < s->n_experts; e++) {
            s->hit += (double)(set.hit[0][e] + set.hit[1][e]) / steps;
        }
    }
    di_engine_close(engine);
}

/* One round: the steps between two looks at the read ceiling. Milliseconds a step, its share of the floor, and the
 * share of it that was spent outside stages. */
typedef struct decode_round {
    double ms;
    double ratio;
    double outside;
} decode_round;

static decode_round run_steps(const slice *s, di_engine *engine, rates *c, di_sequence **seqs, int32_t n,
                              uint64_t *seed)
{
    const int steps = n == 1 ? 4 : 2;
    const int64_t in_stages = stage_clock_ns();
    int64_t passed = 0;
    int64_t ns = 0;
    double rate = rates_read(c);
    for (int i = 0; i < steps; i++) {
        const int64_t begin = clock_now_ns();
        ns += step(engine, seqs, (size_t)n, c->threads, seed);
        passed += clock_now_ns() - begin;
    }
    rate = (rate + rates_read(c)) / 2.0;
    return (decode_round){.ms = (double)ns / steps * 1e-6,
                          .ratio = floor_bytes(s, n) / rate / ((double)ns / steps),
                          .outside = 1.0 - (double)(stage_clock_ns() - in_stages) / (double)passed};
}

static void bench_decode(const slice *s, di_engine *engine, rates *c, int32_t n)
{
    di_sequence *seqs[BATCH];
    double ms[ROUNDS];
    double ratio[ROUNDS];
    double outside[ROUNDS];
    uint64_t seed = 7;
    char name[32];
    snprintf(name, sizeof name, "decode_x%d", (int)n);
    if (!bench_wanted(s->words, s->n_words, name)) {
        return;
    }
    start_batch(engine, seqs, n, &seed);
    (void)run_steps(s, engine, c, seqs, n, &seed);
    stage_clock_start(engine);
    for (int r = 0; r < ROUNDS; r++) {
        const decode_round one = run_steps(s, engine, c, seqs, n, &seed);
        ms[r] = one.ms;
        ratio[r] = one.ratio;
        outside[r] = one.outside;
    }
    stage_clock_stop(engine);
    report(s->json, name, c->threads, bench_median(ms), "ms", "byte floor", bench_median(ratio));
    report(s->json, name, c->threads, bench_median(ms) * bench_median(outside), "ms", "step, outside stages",
           bench_median(outside));
    if (s->stages) {
        stage_clock_print(ROUNDS * (n == 1 ? 4 : 2));
    }
    for (int32_t i = 0; i < n; i++) {
        di_sequence_free(seqs[i]);
    }
}

static void bench_prefill(const slice *s, di_engine *engine, rates *c)
{
    double speed[ROUNDS];
    double ratio[ROUNDS];
    uint64_t seed = 9;
    const double attention = 2.0 * 2.0 * 64.0 * 512.0 * (128.0 + PROMPT / 2.0); /* both layers, about */
    const double layers = (double)s->bytes.dense_values + 2.0 * 6.0 * (double)s->bytes.expert_values;
    const double work = PROMPT * (layers + attention + (double)s->bytes.head_values);
    if (!bench_wanted(s->words, s->n_words, "prefill_512")) {
        return;
    }
    stage_clock_start(engine);
    for (int r = 0; r < ROUNDS; r++) {
        const double rate = rates_fma(c);
        const int64_t begin = rates_now_ns(c->threads);
        di_sequence *seq = start(engine, &seed, PROMPT, true);
        const int64_t ns = rates_now_ns(c->threads) - begin;
        speed[r] = PROMPT * 1e9 / (double)ns;
        ratio[r] = work / rate / (double)ns;
        di_sequence_free(seq);
    }
    stage_clock_stop(engine);
    report(s->json, "prefill_512", c->threads, bench_median(speed), "tok/s", "fma", bench_median(ratio));
    if (s->stages) {
        stage_clock_print(ROUNDS);
    }
}

static void bench_threads(const slice *s, const di_model *model, int threads)
{
    const di_engine_options options = {.n_threads = threads, .chunk_tokens = PROMPT};
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t n_data = (cache > 0 ? (size_t)cache : (size_t)64 << 20) * 8;
    di_error err;
    di_engine *engine;
    rates c;
    rates_open(&c, threads, n_data / ROUNDS, ROUNDS);
    bench_must(di_engine_open(model, &options, &engine, &err), &err);
    bench_decode(s, engine, &c, 1);
    bench_decode(s, engine, &c, BATCH);
    bench_prefill(s, engine, &c);
    di_engine_close(engine);
    rates_close(&c);
}

int main(int argc, char **argv)
{
    char *words[8];
    slice s = {.words = words, .n_experts = 48};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            s.json = true;
        } else if (strcmp(argv[i], "--stages") == 0) {
            s.stages = true;
        } else if (strcmp(argv[i], "--experts") == 0 && i + 1 < argc) {
            s.n_experts = atoi(argv[++i]);
        } else if (s.n_words < 8) {
            words[s.n_words++] = argv[i];
        }
    }
    di_error err;
    di_model *model;
    bench_must(di_synthetic_open(&(di_synthetic){.n_experts = s.n_experts}, &model, &err), &err);
    di_model_get_step_bytes(model, &s.bytes);
    measure_hits(&s, model);
    fprintf(stderr,
            "%d experts, 12 hit by one token, %.1f by a batch; a step of one token reads %.0f MB, of %d about %.0f MB\n",
            s.n_experts, s.hit, floor_bytes(&s, 1) * 1e-6, BATCH, floor_bytes(&s, BATCH) * 1e-6);
    bench_threads(&s, model, 1);
    bench_threads(&s, model, 2);
    di_model_close(model);
    return 0;
}
