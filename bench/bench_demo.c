/* bench_demo.c - the demo model through the engine: decode of 1 and 32 sequences and prefill against its roofline.
 *
 *   bench_demo [--json] [--stages] [--model DIR] [CASE...]
 *
 * The roofline of a step is the longer of two times: its bytes at the read ceiling and its multiply-adds at the fp32
 * fused multiply-add peak. Bytes are those of the layers' matrices, the head and the routed experts that are hit
 * (counted in the same kind of steps with a trace), in checkpoint form; multiply-adds are those of these matrices and of
 * attention over the rows that a query has. Both ceilings belong to the same round, and the read ceiling is that of a
 * buffer of the model's size, read again and again: it lies in caches, as the model does. What a step spends outside all
 * stages is the engine's own. One thread is measured in processor time, two in time that passes; figures are medians of
 * seven rounds. CASE keeps the cases that begin with a given word (decode_x1, decode_x32, prefill_512). */
#include "core/clock.h"
#include "cpu_bench.h"
#include "model/mdl_inventory.h"
#include "model/model.h"
#include "rates.h"
#include "stage_clock.h"

#include <deepinfer/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = CPU_BENCH_ROUNDS, CONTEXT = 200, PROMPT = 512, MOST = 32, LAYERS = 64, EXPERTS = 384, LOOKS = 4 };

/* What the model weighs, and what the bench was asked for. */
typedef struct demo {
    const mdl_config *config;
    size_t dense_bytes; /* matrices of all layers and the head */
    size_t dense_values;
    size_t expert_bytes; /* of one routed expert */
    size_t expert_values;
    size_t all_bytes; /* with all experts */
    double hit[MOST + 1]; /* routed experts of all layers that a step of so many sequences reads, on average */
    char *const *words;
    int n_words;
    bool json;
    bool stages;
} demo;

static di_status count_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    demo *d = arg;
    const bool head = strcmp(t->name, "head.weight") == 0;
    const bool matrix = t->role == MDL_MATRIX && strstr(t->name, "embed") == NULL; /* tables are looked up */
    size_t bytes = st_dtype_bytes(t->dtype);
    (void)err;
    for (int i = 0; i < t->n_dims; i++) {
        bytes *= (size_t)t->dims[i];
    }
    if (t->scope == MDL_IN_LAYER_EXPERT) {
        d->all_bytes += bytes;
        d->expert_bytes += t->layer == 0 && t->expert == 0 ? bytes : 0;
        d->expert_values += t->layer == 0 && t->expert == 0 && matrix ? (size_t)(t->n_out * t->n_in) : 0;
    } else if ((t->scope == MDL_IN_LAYER || head) && (matrix || head)) {
        d->all_bytes += bytes;
        d->dense_bytes += bytes;
        d->dense_values += (size_t)(t->n_out * t->n_in);
    }
    return DI_OK;
}

static void report(const demo *d, const char *name, int threads, double value, const char *unit, const char *baseline,
                   double ratio)
{
    if (d->json) {
        printf("{\"bench\":\"demo\",\"case\":\"%s/%d\",\"metric\":\"speed\",\"value\":%.4g,\"unit\":\"%s\","
               "\"baseline\":\"%s\",\"ratio\":%.3f}\n",
               name, threads, value, unit, baseline, ratio);
    } else {
        printf("%-12s %d thread%s %10.3f %-6s %5.1f %% of %s\n", name, threads, threads > 1 ? "s" : " ", value, unit,
               100.0 * ratio, baseline);
    }
    fflush(stdout);
}

/* --- Steps ------------------------------------------------------------------------------------------------------- */

/* A sequence behind n tokens; with `all` every row goes through every layer. */
static di_sequence *start(di_engine *engine, uint64_t *seed, size_t n, bool all)
{
    int32_t ids[PROMPT];
    di_error err;
    di_sequence *s;
    bench_must(di_sequence_new(engine, &s, &err), &err);
    for (size_t i = 0; i < n; i++) {
        ids[i] = 300 + (int32_t)(bench_random(seed) % 2000);
    }
    bench_must(di_sequence_keep_logits(s, all, &err), &err);
    bench_must(di_sequence_feed(s, ids, n, &err), &err);
    bench_must(di_sequence_run(s, &err), &err);
    return s;
}

static void feed(di_sequence **s, int32_t n, uint64_t *seed)
{
    di_error err;
    for (int32_t i = 0; i < n; i++) {
        const int32_t id = 300 + (int32_t)(bench_random(seed) % 2000);
        bench_must(di_sequence_feed(s[i], &id, 1, &err), &err);
    }
}

/* Experts that the tokens of a step chose (trace of router_ids), by layer. */
typedef struct hit_set {
    uint8_t hit[LAYERS][EXPERTS];
} hit_set;

static void collect_hits(void *user, const di_trace *t)
{
    hit_set *set = user;
    if (strstr(t->name, "router_ids") == NULL) {
        return;
    }
    const int layer = atoi(t->name + 1);
    const int32_t *ids = t->data;
    for (int64_t i = 0; i < t->dims[0] * t->dims[1]; i++) {
        set->hit[layer][ids[i]] = 1;
    }
}

static void measure_hits(demo *d, const di_model *model, int32_t n)
{
    enum { STEPS = 4 };
    static hit_set set; /* too large for a stack */
    di_error err;
    di_engine *engine;
    di_sequence *seqs[MOST];
    uint64_t seed = 7;
    bench_must(
        di_engine_open(model, &(di_engine_options){.trace = collect_hits, .trace_user = &set}, &engine, &err), &err);
    for (int32_t i = 0; i < n; i++) {
        seqs[i] = start(engine, &seed, CONTEXT, false);
    }
    for (int i = 0; i < STEPS; i++) {
        memset(&set, 0, sizeof set);
        feed(seqs, n, &seed);
        for (int32_t s = 0; s < n; s++) {
            bench_must(di_sequence_run(seqs[s], &err), &err);
        }
        for (size_t e = 0; e < sizeof set; e++) {
            d->hit[n] += (double)(&set.hit[0][0])[e] / STEPS;
        }
    }
    di_engine_close(engine);
}

/* --- The roofline ------------------------------------------------------------------------------------------------ */

/* Multiply-adds of `rows` tokens that see about `context` tokens each. */
static double work_of(const demo *d, double rows, double context)
{
    const mdl_config *c = d->config;
    const double window = context < c->window ? context : c->window;
    double slots = 0.0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const double ratio = c->ratio[i];
        const double listed = ratio > 0.0 ? context / ratio : 0.0;
        slots += window + (listed < c->index_topk ? listed : c->index_topk);
    }
    const double attention = 2.0 * slots * c->n_heads * c->head_dim;
    const double experts = (double)c->n_layers * c->n_active_experts * (double)d->expert_values;
    return rows * ((double)d->dense_values + experts + attention);
}

/* Nanoseconds that the machine needs at least. A ceiling is the best of a few looks: one that was disturbed is none. */
static double roofline(rates *c, double bytes, double work)
{
    double read = 0.0;
    double fma = 0.0;
    for (int i = 0; i < LOOKS; i++) {
        const double r = rates_read(c);
        const double f = rates_fma(c);
        read = r > read ? r : read;
        fma = f > fma ? f : fma;
    }
    const double memory = bytes / read;
    const double compute = work / fma;
    return memory > compute ? memory : compute;
}

static void bench_decode(const demo *d, di_engine *engine, rates *c, int32_t n)
{
    const int steps = n == 1 ? 64 : 8;
    di_sequence *seqs[MOST];
    double ms[ROUNDS];
    double ratio[ROUNDS];
    double outside[ROUNDS];
    uint64_t seed = 7;
    int32_t ran;
    di_error err;
    char name[32];
    snprintf(name, sizeof name, "decode_x%d", (int)n);
    if (!bench_wanted(d->words, d->n_words, name)) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        seqs[i] = start(engine, &seed, CONTEXT, false);
    }
    stage_clock_start(engine);
    const double bytes = (double)d->dense_bytes + d->hit[n] * (double)d->expert_bytes;
    for (int r = 0; r < ROUNDS; r++) {
        const double least = roofline(c, bytes, work_of(d, n, CONTEXT + steps * ROUNDS / 2.0));
        const int64_t in_stages = stage_clock_ns();
        int64_t passed = 0;
        int64_t ns = 0;
        for (int i = 0; i < steps; i++) {
            feed(seqs, n, &seed);
            const int64_t wall = clock_now_ns();
            const int64_t begin = rates_now_ns(c->threads);
            bench_must(di_engine_step(engine, &ran, &err), &err);
            ns += rates_now_ns(c->threads) - begin;
            passed += clock_now_ns() - wall;
        }
        ms[r] = (double)ns * 1e-6 / steps;
        ratio[r] = least / ((double)ns / steps);
        outside[r] = 1.0 - (double)(stage_clock_ns() - in_stages) / (double)passed;
    }
    stage_clock_stop(engine);
    report(d, name, c->threads, bench_median(ms), "ms", "roofline", bench_median(ratio));
    report(d, name, c->threads, bench_median(ms) * bench_median(outside), "ms", "step, outside stages",
           bench_median(outside));
    if (d->stages) {
        stage_clock_print(ROUNDS * steps);
    }
    for (int32_t i = 0; i < n; i++) {
        di_sequence_free(seqs[i]);
    }
}

static void bench_prefill(const demo *d, di_engine *engine, rates *c)
{
    double speed[ROUNDS];
    double ratio[ROUNDS];
    uint64_t seed = 9;
    if (!bench_wanted(d->words, d->n_words, "prefill_512")) {
        return;
    }
    stage_clock_start(engine);
    for (int r = 0; r < ROUNDS; r++) {
        const double least = roofline(c, (double)d->all_bytes, work_of(d, PROMPT, PROMPT / 2.0));
        const int64_t begin = rates_now_ns(c->threads);
        di_sequence *seq = start(engine, &seed, PROMPT, true);
        const int64_t ns = rates_now_ns(c->threads) - begin;
        speed[r] = PROMPT * 1e9 / (double)ns;
        ratio[r] = least / (double)ns;
        di_sequence_free(seq);
    }
    stage_clock_stop(engine);
    report(d, "prefill_512", c->threads, bench_median(speed), "tok/s", "roofline", bench_median(ratio));
    if (d->stages) {
        stage_clock_print(ROUNDS);
    }
}

static void bench_threads(const demo *d, const di_model *model, int threads)
{
    const di_engine_options options = {.n_threads = threads, .chunk_tokens = PROMPT};
    di_error err;
    di_engine *engine;
    rates c;
    rates_open(&c, threads, d->all_bytes, 1);
    bench_must(di_engine_open(model, &options, &engine, &err), &err);
    bench_decode(d, engine, &c, 1);
    bench_decode(d, engine, &c, MOST);
    bench_prefill(d, engine, &c);
    di_engine_close(engine);
    rates_close(&c);
}

int main(int argc, char **argv)
{
    char *words[8];
    demo d = {.words = words};
    const char *dir = "models/demo";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            d.json = true;
        } else if (strcmp(argv[i], "--stages") == 0) {
            d.stages = true;
        } else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) {
            dir = argv[++i];
        } else if (d.n_words < 8) {
            words[d.n_words++] = argv[i];
        }
    }
    di_error err;
    di_model *model;
    bench_must(di_model_open(dir, NULL, &model, &err), &err);
    d.config = mdl_config_of(model);
    if (d.config->n_layers > LAYERS) {
        bench_fail("the model has too many layers");
    }
    bench_must(mdl_inventory_walk(d.config, count_tensor, &d, &err), &err);
    measure_hits(&d, model, 1);
    measure_hits(&d, model, MOST);
    fprintf(stderr, "%.1f MB of matrices; experts hit: %.1f by one token, %.1f by %d\n", (double)d.all_bytes * 1e-6,
            d.hit[1], d.hit[MOST], MOST);
    bench_threads(&d, model, 1);
    bench_threads(&d, model, 2);
    di_model_close(model);
    return 0;
}
