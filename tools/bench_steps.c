/* bench_steps.c - see bench_steps.h. */
#include "bench_steps.h"

#include "core/arith.h"
#include "core/clock.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 128, MAX_EXPERTS = 384 };

int32_t bench_random_id(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((*seed >> 33) % BENCH_ID_RANGE);
}

typedef enum text_use { EVERY_ROW, OWN_TEXT, SHARED_TEXT } text_use;

/* A sequence behind n tokens. But for EVERY_ROW only that runs which the last row depends on. */
static di_status start(di_engine *engine, size_t n, text_use use, uint64_t *seed, di_sequence **out, di_error *err)
{
    int32_t *const ids = ar_calloc(n, sizeof *ids);
    di_sequence *s = NULL;
    di_status status = ids != NULL ? di_sequence_new(engine, &s, err) : err_memory(err, "prompt", n * sizeof *ids);
    for (size_t i = 0; ids != NULL && i < n; i++) {
        ids[i] = bench_random_id(seed);
    }
    if (status == DI_OK) {
        status = di_sequence_keep_logits(s, use == EVERY_ROW, err);
    }
    if (status == DI_OK && use == SHARED_TEXT) {
        status = di_sequence_use_cache(s, NULL, 0, err);
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

di_status bench_prompt_run(di_engine *engine, size_t n, uint64_t *seed, di_sequence **out, di_error *err)
{
    return start(engine, n, EVERY_ROW, seed, out, err);
}

di_status bench_batch_start(bench_batch *b, di_engine *engine, int32_t n, int64_t context, di_error *err)
{
    const bool own = context <= BENCH_OWN_TEXT;
    di_status status = DI_OK;
    *b = (bench_batch){.engine = engine, .seed = 7};
    while (b->n < n && status == DI_OK) {
        uint64_t shared = 11;
        status = start(engine, (size_t)context, own ? OWN_TEXT : SHARED_TEXT, own ? &b->seed : &shared, &b->seqs[b->n], err);
        b->n += status == DI_OK;
    }
    return status;
}

void bench_batch_end(bench_batch *b)
{
    for (int32_t i = 0; i < b->n; i++) {
        di_sequence_free(b->seqs[i]);
    }
    b->n = 0;
}

di_status bench_batch_step(bench_batch *b, int64_t *ns, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t i = 0; i < b->n && status == DI_OK; i++) {
        const int32_t id = bench_random_id(&b->seed);
        status = di_sequence_feed(b->seqs[i], &id, 1, err);
    }
    const int64_t begin = clock_now_ns();
    for (int32_t ran = 1; ran > 0 && status == DI_OK;) {
        status = di_engine_step(b->engine, &ran, err);
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

static di_status count_batch(di_engine *engine, hit_set *set, int32_t n, int64_t context, double *out, di_error *err)
{
    enum { TRACED_STEPS = 4 };
    bench_batch batch;
    int64_t hits = 0;
    int64_t ns = 0;
    di_status status = bench_batch_start(&batch, engine, n, context, err);
    for (int i = 0; i < TRACED_STEPS && status == DI_OK; i++) {
        memset(set, 0, sizeof *set);
        status = bench_batch_step(&batch, &ns, err);
        hits += count_hits(set);
    }
    bench_batch_end(&batch);
    *out = (double)hits / TRACED_STEPS;
    return status;
}

di_status bench_count_experts(const di_model *model, const di_engine_options *options, int64_t context, const int32_t *batches, size_t n,
                              double *out, di_error *err)
{
    di_engine *engine = NULL;
    hit_set *const set = ar_calloc(1, sizeof *set);
    di_engine_options traced = *options;
    traced.trace = collect_hits;
    traced.trace_user = set;
    di_status status = set != NULL ? di_engine_open(model, &traced, &engine, err) : err_memory(err, "hits", sizeof *set);
    for (size_t i = 0; i < n && status == DI_OK; i++) {
        status = count_batch(engine, set, batches[i], context, &out[i], err);
    }
    di_engine_close(engine);
    free(set);
    return status;
}
