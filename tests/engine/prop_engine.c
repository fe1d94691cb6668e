/* The engine's promise: how tokens are fed, chunked, batched and threaded changes no bit of a result. Random schedules over the demo
 * model are compared with each sequence run alone.
 * ctest: timeout=600 */
#include "support/unit.h"

#include <deepinfer/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_SEQUENCES = 3, MAX_PROMPT = 40, N_NEW = 3 }; /* ten times slower there */
#else
enum { N_SEQUENCES = 5, MAX_PROMPT = 300, N_NEW = 6 };
#endif

static di_model *model;
static int32_t vocab;

typedef struct script {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt;
    di_sampling sampling;
    int32_t ids[N_NEW]; /* what it gives alone */
    float *logits;      /* of the last step alone */
} script;

static di_engine *open_engine(const char *backend, int32_t threads, int32_t chunk)
{
    di_engine *e = NULL;
    di_error err = {0};
    const di_engine_options o = {.backend = backend, .n_threads = threads, .chunk_tokens = chunk, .max_tokens = 1024};
    if (di_engine_open(model, &o, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

static di_sequence *start(di_engine *e, const script *s)
{
    di_sequence *q = NULL;
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_set_sampling(q, &s->sampling, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, s->prompt, s->n_prompt, NULL), DI_OK);
    return q;
}

static const float *last_logits(const di_sequence *q)
{
    const float *rows = NULL;
    int32_t n = 0;
    assert_int_equal(di_sequence_logits(q, &rows, &n, NULL), DI_OK);
    assert_int_equal(n, 1);
    return rows;
}

static void run_alone(script *s, const char *backend, int32_t threads, int32_t chunk, bool first)
{
    di_engine *e = open_engine(backend, threads, chunk);
    di_sequence *q = start(e, s);
    for (size_t i = 0; i < N_NEW; i++) {
        di_sample sample;
        assert_int_equal(di_sequence_run(q, NULL), DI_OK);
        if (i == N_NEW - 1) {
            if (first) {
                memcpy(s->logits, last_logits(q), (size_t)vocab * sizeof(float));
            }
            assert_memory_equal(s->logits, last_logits(q), (size_t)vocab * sizeof(float));
        }
        assert_int_equal(di_sequence_sample(q, &sample, NULL), DI_OK);
        s->ids[i] = first ? sample.id : s->ids[i];
        assert_int_equal(s->ids[i], sample.id);
    }
    di_engine_close(e);
}

/* All scripts in one engine, started at random steps; one more sequence is thrown away in the middle of its prompt. */
static void run_together(const script *scripts, int32_t threads, int32_t chunk, uint64_t *seed)
{
    di_engine *e = open_engine("auto", threads, chunk);
    di_sequence *q[N_SEQUENCES] = {NULL};
    size_t done[N_SEQUENCES] = {0};
    di_sequence *victim = start(e, &scripts[0]);
    size_t n_finished = 0;
    while (n_finished < N_SEQUENCES) {
        int32_t n = 0;
        size_t i = (size_t)(unit_random(seed) % N_SEQUENCES);
        if (q[i] == NULL && done[i] == 0) {
            q[i] = start(e, &scripts[i]);
        }
        assert_int_equal(di_engine_step(e, &n, NULL), DI_OK);
        if (victim != NULL && unit_random(seed) % 4 == 0) {
            di_sequence_free(victim);
            victim = NULL;
        }
        for (i = 0; i < N_SEQUENCES; i++) {
            di_sample sample;
            if (q[i] == NULL || !di_sequence_ready(q[i])) {
                continue;
            }
            if (done[i] == N_NEW - 1) {
                assert_memory_equal(scripts[i].logits, last_logits(q[i]), (size_t)vocab * sizeof(float));
            }
            assert_int_equal(di_sequence_sample(q[i], &sample, NULL), DI_OK);
            assert_int_equal(sample.id, scripts[i].ids[done[i]]);
            if (++done[i] == N_NEW) {
                di_sequence_free(q[i]);
                q[i] = NULL;
                n_finished++;
            }
        }
    }
    di_engine_close(e);
}

static void schedules_change_nothing(void **state)
{
    (void)state;
    static script scripts[N_SEQUENCES];
    uint64_t seed = 2026;
    for (size_t i = 0; i < N_SEQUENCES; i++) {
        script *s = &scripts[i];
        s->n_prompt = i == 0 ? MAX_PROMPT : 1 + (size_t)(unit_random(&seed) % (MAX_PROMPT / 2));
        for (size_t t = 0; t < s->n_prompt; t++) {
            s->prompt[t] = (int32_t)(unit_random(&seed) % (uint64_t)vocab);
        }
        di_sampling_default(&s->sampling);
        s->sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
        s->sampling.seed = i;
        s->logits = malloc((size_t)vocab * sizeof(float));
        assert_non_null(s->logits);
        run_alone(s, "auto", 1, 0, true);
        run_alone(s, "auto", 2, 0, false);
        run_alone(s, "ref", 2, 64, false);
    }
    run_alone(&scripts[0], "auto", 2, 7, false);
    run_alone(&scripts[1], "auto", 1, 1, false);
    const int32_t chunks[] = {256, 40, 9};
    for (size_t i = 0; i < 3; i++) {
        run_together(scripts, 1 + (int32_t)i % 2, chunks[i], &seed);
    }
    for (size_t i = 0; i < N_SEQUENCES; i++) {
        free(scripts[i].logits);
    }
}

static void misuse_is_refused_by_name(void **state)
{
    (void)state;
    di_error err = {0};
    di_engine *e = open_engine("auto", 1, 16);
    di_sequence *q = NULL;
    const float *rows = NULL;
    int32_t n = 0;
    int32_t bad[] = {1, vocab};
    static int32_t many[1025];
    assert_int_equal(di_sequence_new(e, &q, &err), DI_OK);
    unit_expect_error(di_sequence_logits(q, &rows, &n, &err), DI_E_STATE, &err, "no result yet", NULL);
    unit_expect_error(di_sequence_feed(q, bad, 2, &err), DI_E_ARGUMENT, &err, "token 1", "vocabulary", NULL);
    assert_int_equal(di_sequence_length(q), 0);
    unit_expect_error(di_sequence_feed(q, many, 1025, &err), DI_E_LIMIT, &err, "1025 tokens", "1024", NULL);
    assert_int_equal(di_sequence_length(q), 0);
    assert_int_equal(di_sequence_feed(q, many, 1024, &err), DI_OK);
    unit_expect_error(di_sequence_set_sampling(q, &(di_sampling){.temperature = 1.0f}, &err), DI_E_STATE, &err, "before the first token", NULL);
    unit_expect_error(di_sequence_feed(q, many, 1, &err), DI_E_LIMIT, &err, "context", NULL);
    di_engine_close(e);
    const di_engine_options o = {.backend = "abacus"};
    unit_expect_error(di_engine_open(model, &o, &e, &err), DI_E_ARGUMENT, &err, "abacus", "ref", NULL);
    const di_engine_options isa = {.backend = "cpu", .cpu_isa = "mmx"};
    unit_expect_error(di_engine_open(model, &isa, &e, &err), DI_E_ARGUMENT, &err, "cpu_isa is 'mmx'", "avx512bf16", NULL);
}

int main(void)
{
    char path[1024];
    di_error err = {0};
    const char *source = getenv("DI_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/models/demo", source != NULL ? source : ".");
    if (di_model_open(path, NULL, &model, &err) != DI_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    di_model_info info;
    di_model_get_info(model, &info);
    vocab = info.vocab_size;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_change_nothing),
        cmocka_unit_test(misuse_is_refused_by_name),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    di_model_close(model);
    return failed;
}
