/* Bounded replay behind a prefix hit (dspark.md 4.2): an approximation that is a function of the hit alone. Without a hit, and with one
 * that is no longer than the window, it is exact; chunks and threads change nothing; no snapshots are kept; exact engines are not touched. */
#include "engine/eng_model.h"
#include "support/unit.h"

#include <deepinfer/engine.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 600 };

static di_model *model;
static di_model_info info;
static int32_t prompt[MAX_PROMPT];

static di_engine *open_engine(di_replay replay, int32_t chunk, int32_t threads)
{
    di_engine *e = NULL;
    di_error err;
    if (di_engine_open(model, &(di_engine_options){.chunk_tokens = chunk, .n_threads = threads, .replay = replay}, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* Logits behind the first n tokens of the prompt, malloc'ed; *cached tokens did not run. */
static float *run(di_engine *e, size_t n, int64_t *cached)
{
    di_sequence *q;
    const float *rows;
    int32_t n_rows;
    float *const out = malloc((size_t)info.vocab_size * sizeof *out);
    assert_non_null(out);
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_use_cache(q, NULL, 0, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, prompt, n, NULL), DI_OK);
    *cached = di_sequence_cached(q);
    assert_int_equal(di_sequence_run(q, NULL), DI_OK);
    assert_int_equal(di_sequence_logits(q, &rows, &n_rows, NULL), DI_OK);
    memcpy(out, rows, (size_t)info.vocab_size * sizeof *out);
    di_sequence_free(q);
    return out;
}

static bool same(const float *a, const float *b) { return memcmp(a, b, (size_t)info.vocab_size * sizeof *a) == 0; }

static void cold_and_short_hits_are_exact(void **state)
{
    (void)state;
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 64, 1);
    di_engine *const replay = open_engine(DI_REPLAY_ENCODER, 64, 1);
    int64_t cached;
    float *const a = run(exact, 200, &cached);
    assert_int_equal(cached, 0);
    float *const b = run(replay, 200, &cached);
    assert_int_equal(cached, 0);
    assert_true(same(a, b));
    float *const c = run(replay, 200, &cached); /* a hit of 128: replayed from 0 on */
    assert_int_equal(cached, 0);
    assert_true(same(a, c));
    di_kv_stats kv;
    di_engine_get_kv_stats(replay, &kv);
    assert_int_equal(kv.matched_tokens, 128);
    assert_int_equal(kv.states_cached, 0);
    di_engine_get_kv_stats(exact, &kv);
    assert_int_equal(kv.states_cached, 1);
    di_engine_close(exact);
    di_engine_close(replay);
    free(a);
    free(b);
    free(c);
}

static void a_hit_depends_on_its_length_alone(void **state)
{
    (void)state;
    static const int32_t chunks[] = {7, 17, 64, 256};
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 256, 2);
    int64_t cached;
    float *const wanted = run(exact, 500, &cached);
    float *first = NULL;
    for (size_t i = 0; i < 4; i++) {
        di_engine *const e = open_engine(DI_REPLAY_ENCODER, chunks[i], 1 + (int32_t)(i % 2));
        free(run(e, 400, &cached));
        assert_int_equal(cached, 0);
        float *const hit = run(e, 500, &cached); /* 384 match, 128 of them run again */
        assert_int_equal(cached, 384 - 128);
        if (first == NULL) {
            first = hit;
        } else {
            assert_true(same(first, hit));
            free(hit);
        }
        di_engine_close(e);
    }
    double difference = 0.0;
    double size = 0.0;
    for (int32_t i = 0; i < info.vocab_size; i++) {
        difference += pow((double)(first[i] - wanted[i]), 2.0);
        size += pow((double)wanted[i], 2.0);
    }
    assert_true(difference > 0.0);        /* it is an approximation */
    assert_true(difference < 0.1 * size); /* of the same thing */
    di_engine_close(exact);
    free(first);
    free(wanted);
}

static void other_values_are_refused(void **state)
{
    (void)state;
    di_engine *e = NULL;
    di_error err;
    unit_expect_error(di_engine_open(model, &(di_engine_options){.replay = (di_replay)7}, &e, &err), DI_E_ARGUMENT, &err, "replay is 7", NULL);
}

static int open_model(void **state)
{
    uint64_t seed = 4;
    (void)state;
    model = eng_model_open("models/demo");
    di_model_get_info(model, &info);
    for (size_t i = 0; i < MAX_PROMPT; i++) {
        prompt[i] = (int32_t)(3 + unit_random(&seed) % (uint64_t)(info.vocab_size - 3));
    }
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    di_model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cold_and_short_hits_are_exact),
        cmocka_unit_test(a_hit_depends_on_its_length_alone),
        cmocka_unit_test(other_values_are_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
