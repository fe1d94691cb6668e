/* Whole passes on the GPU over a slice of the released model: a sequence gives the same bits alone, launch by launch, and in batches of
 * 2, 7, 64 and 256 whose passes are captured and replayed as graphs, for prompts in chunks of any size.
 * ctest: serial timeout=600 */
#include "support/unit.h"

#include "cuda/cuda.h"
#include "deepinfer/engine.h"
#include "deepinfer/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, EXPERTS = 24, VOCAB = 4096, HISTORIES = 7, STEPS = 5, MOST = 256 };

static di_model *model;
static float *wanted[HISTORIES][STEPS];

static size_t prompt_of(int h) { return 5 + 67 * (size_t)h; } /* 5 .. 407 tokens: windows, lists and pages of every kind */

static int32_t id_of(int h, size_t i) { return (int32_t)((i * 2654435761u + (size_t)h * 40503u + i * i * 7u) % 4000u); }

static di_engine *engine_of(int32_t chunk, di_trace_fn trace)
{
    di_engine_options options;
    di_engine *engine = NULL;
    di_error err;
    di_engine_options_default(&options);
    options.backend = "cuda";
    options.chunk_tokens = chunk;
    options.max_tokens = 2048;
    options.kv_bytes = (int64_t)8 << 30;
    options.trace = trace;
    assert_int_equal(di_engine_open(model, &options, &engine, &err), DI_OK);
    return engine;
}

static di_sequence *sequence_of(di_engine *engine, int h)
{
    di_sequence *s = NULL;
    di_error err;
    assert_int_equal(di_sequence_new(engine, &s, &err), DI_OK);
    for (size_t i = 0; i < prompt_of(h); i++) {
        const int32_t id = id_of(h, i);
        assert_int_equal(di_sequence_feed(s, &id, 1, &err), DI_OK);
    }
    assert_int_equal(di_sequence_run(s, &err), DI_OK);
    return s;
}

static void feed_step(di_sequence *s, int h, int step)
{
    const int32_t id = id_of(h, prompt_of(h) + (size_t)step);
    di_error err;
    assert_int_equal(di_sequence_feed(s, &id, 1, &err), DI_OK);
}

static const float *logits_of(const di_sequence *s)
{
    const float *rows = NULL;
    int32_t n = 0;
    di_error err;
    assert_int_equal(di_sequence_logits(s, &rows, &n, &err), DI_OK);
    assert_int_equal(n, 1);
    return rows;
}

static void step_all(di_engine *engine)
{
    di_error err;
    for (int32_t ran = 1; ran > 0;) {
        assert_int_equal(di_engine_step(engine, &ran, &err), DI_OK);
    }
}

static void ignore(void *user, const di_trace *t)
{
    (void)user;
    (void)t;
}

/* A traced pass is launched stage by stage. */
static void make_wanted(void)
{
    di_engine *const engine = engine_of(512, ignore);
    for (int h = 0; h < HISTORIES; h++) {
        di_sequence *const s = sequence_of(engine, h);
        for (int step = 0; step < STEPS; step++) {
            feed_step(s, h, step);
            step_all(engine);
            wanted[h][step] = malloc(VOCAB * sizeof(float));
            assert_non_null(wanted[h][step]);
            memcpy(wanted[h][step], logits_of(s), VOCAB * sizeof(float));
        }
        di_sequence_free(s);
    }
    di_engine_close(engine);
}

static void batch_gives_the_bits(di_engine *engine, int n)
{
    di_sequence *seqs[MOST];
    for (int i = 0; i < n; i++) {
        seqs[i] = sequence_of(engine, i % HISTORIES);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < n; i++) {
            feed_step(seqs[i], i % HISTORIES, step);
        }
        step_all(engine);
        for (int i = 0; i < n; i++) {
            assert_memory_equal(logits_of(seqs[i]), wanted[i % HISTORIES][step], VOCAB * sizeof(float));
        }
    }
    for (int i = 0; i < n; i++) {
        di_sequence_free(seqs[i]);
    }
}

static void rows_have_the_same_bits_in_every_batch(void **state)
{
    (void)state;
    static const int SIZES[] = {1, 2, 7, 64, 256, 7, 1};
    di_engine *const engine = engine_of(512, NULL);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        batch_gives_the_bits(engine, SIZES[i]);
    }
    di_engine_close(engine);
}

static void rows_have_the_same_bits_for_every_chunk(void **state)
{
    (void)state;
    static const int32_t CHUNKS[] = {7, 64};
    for (size_t i = 0; i < sizeof CHUNKS / sizeof *CHUNKS; i++) {
        di_engine *const engine = engine_of(CHUNKS[i], NULL);
        batch_gives_the_bits(engine, HISTORIES);
        di_engine_close(engine);
    }
}

int main(void)
{
    if (!cu_available()) {
        printf("skipped: no GPU\n");
        return 0;
    }
    di_error err;
    const di_synthetic shape = {.n_layers = LAYERS, .n_experts = EXPERTS, .vocab = VOCAB};
    if (di_synthetic_open(&shape, &model, &err) != DI_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    make_wanted();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_same_bits_in_every_batch),
        cmocka_unit_test(rows_have_the_same_bits_for_every_chunk),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int h = 0; h < HISTORIES; h++) {
        for (int step = 0; step < STEPS; step++) {
            free(wanted[h][step]);
        }
    }
    di_model_close(model);
    return failed;
}
