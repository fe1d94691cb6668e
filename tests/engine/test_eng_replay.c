/* Bounded replay behind a prefix hit (dspark.md 4.2): an approximation that is a function of the hit alone. Without a hit, and with one
 * that is no longer than the window, it is exact; chunks and threads change nothing; no snapshots are kept; exact engines are not touched.
 * Of the decoder (4.3): exact for prompts of one window, else an approximation whose encoder is exact; prop_eng_halo.c has the rest. */
#include "engine/eng_model.h"
#include "engine/engine_int.h"
#include "model/model_int.h"
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 300 };

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

/* What the engine has of the first n tokens of the prompt; nothing runs. */
static int64_t cached_of(di_engine *e, size_t n)
{
    di_sequence *q;
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_use_cache(q, NULL, 0, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, prompt, n, NULL), DI_OK);
    const int64_t cached = di_sequence_cached(q);
    di_sequence_free(q);
    return cached;
}

static bool same(const float *a, const float *b) { return memcmp(a, b, (size_t)info.vocab_size * sizeof *a) == 0; }

/* Squared, of what b has. */
static double difference_of(const float *a, const float *b)
{
    double difference = 0.0;
    double size = 0.0;
    for (int32_t i = 0; i < info.vocab_size; i++) {
        difference += pow((double)(a[i] - b[i]), 2.0);
        size += pow((double)b[i], 2.0);
    }
    return difference / size;
}

static void cold_and_short_hits_are_exact(void **state)
{
    (void)state;
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 64, 1);
    di_engine *const replay = open_engine(DI_REPLAY_ENCODER, 64, 1);
    int64_t cached;
    float *const a = run(exact, 140, &cached);
    assert_int_equal(cached, 0);
    float *const b = run(replay, 140, &cached);
    assert_int_equal(cached, 0);
    assert_true(same(a, b));
    float *const c = run(replay, 140, &cached); /* a hit of 128: replayed from 0 on */
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
    static const int32_t chunks[] = {7, 64, 256};
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 256, 2);
    int64_t cached;
    float *const wanted = run(exact, 300, &cached);
    float *first = NULL;
    for (size_t i = 0; i < 3; i++) {
        di_engine *const e = open_engine(DI_REPLAY_ENCODER, chunks[i], 1 + (int32_t)(i % 2));
        free(run(e, 264, &cached));
        assert_int_equal(cached, 0);
        float *const hit = run(e, 300, &cached); /* 256 match, 128 of them run again */
        assert_int_equal(cached, 256 - 128);
        if (first == NULL) {
            first = hit;
        } else {
            assert_true(same(first, hit));
            free(hit);
        }
        di_engine_close(e);
    }
    const double difference = difference_of(first, wanted);
    assert_true(difference > 0.0); /* it is an approximation */
    assert_true(difference < 0.1); /* of the same thing */
    di_engine_close(exact);
    free(first);
    free(wanted);
}

/* ---- the decoder ---- */

static void a_prompt_of_one_window_is_exact(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 128, 129};
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 100, 1);
    di_engine *const replay = open_engine(DI_REPLAY_DECODER, 100, 1);
    for (size_t i = 0; i < 3; i++) {
        int64_t cached;
        float *const a = run(exact, lengths[i], &cached);
        float *const b = run(replay, lengths[i], &cached);
        assert_int_equal(same(a, b), lengths[i] <= 128);
        free(a);
        free(b);
    }
    di_engine_close(exact);
    di_engine_close(replay);
}

/* A sequence behind n tokens of the prompt, alone. */
static di_sequence *fed(di_engine *e, size_t n)
{
    di_sequence *q;
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, prompt, n, NULL), DI_OK);
    assert_int_equal(di_sequence_run(q, NULL), DI_OK);
    return q;
}

/* Global KV, all windows of encoder layers, and those of the first decoder layer, whose input is the encoder's output; behind it, nothing
 * is the same but what it is near to. */
static void the_encoder_of_a_replayed_prompt_is_exact(void **state)
{
    (void)state;
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 256, 1);
    di_engine *const replay = open_engine(DI_REPLAY_DECODER, 256, 1);
    di_sequence *const a = fed(exact, 300);
    di_sequence *const b = fed(replay, 300);
    const size_t page = mdl_flat_page_bytes(exact->runner);
    const size_t bytes = mdl_flat_state_bytes(exact->runner, true);
    const size_t ring = bytes / (size_t)info.n_layers;
    const size_t first = mdl_flat_state_bytes(exact->runner, false); /* of the decoder */
    uint8_t *const of_a = malloc(bytes);
    uint8_t *const of_b = malloc(bytes);
    assert_true(of_a != NULL && of_b != NULL);
    for (size_t i = 0; i < 2; i++) {
        assert_memory_equal(a->caches.pages[i], b->caches.pages[i], page);
    }
    mdl_flat_state_out(exact->runner, of_a, a->caches.state, 300, true);
    mdl_flat_state_out(replay->runner, of_b, b->caches.state, 300, true);
    assert_memory_equal(of_a, of_b, first + ring);
    for (size_t at = first + ring; at < bytes; at += ring) {
        assert_memory_not_equal(of_a + at, of_b + at, ring);
    }
    const double difference = difference_of(b->logits, a->logits);
    assert_true(difference > 0.0 && difference < 0.1);
    free(of_a);
    free(of_b);
    di_engine_close(exact);
    di_engine_close(replay);
}

typedef struct row_count {
    int32_t first_decoder; /* layer */
    int64_t before;        /* rows that leave it */
    int64_t rows;          /* that leave the decoder's layers, summed over passes, of its first layer */
    int64_t last;
} row_count;

static void count_rows(void *user, const di_trace *t)
{
    row_count *const c = user;
    char encoder[24];
    char decoder[24];
    char last[24];
    (void)snprintf(encoder, sizeof encoder, "L%d.x_out", c->first_decoder - 1);
    (void)snprintf(decoder, sizeof decoder, "L%d.x_out", c->first_decoder);
    (void)snprintf(last, sizeof last, "L%d.x_out", info.n_layers - 1);
    c->before += strcmp(t->name, encoder) == 0 ? t->dims[0] : 0;
    c->rows += strcmp(t->name, decoder) == 0 ? t->dims[0] : 0;
    c->last += strcmp(t->name, last) == 0 ? t->dims[0] : 0;
}

/* A trace shows every row there is: of a decoder layer those of the last window, in however many passes. */
static void a_decoder_layer_runs_one_window(void **state)
{
    (void)state;
    for (int32_t chunk = 60; chunk <= 330; chunk += 270) {
        row_count count = {.first_decoder = 4};
        di_engine *e = NULL;
        const di_engine_options o = {
            .chunk_tokens = chunk, .n_threads = 1, .replay = DI_REPLAY_DECODER, .trace = count_rows, .trace_user = &count};
        assert_int_equal(di_engine_open(model, &o, &e, NULL), DI_OK);
        assert_int_equal(e->runner->decoder_start, 4);
        di_sequence *const q = fed(e, 300);
        assert_int_equal(count.before, 300);
        assert_int_equal(count.rows, 128);
        assert_int_equal(count.last, 128);
        assert_int_equal(di_sequence_feed(q, prompt, 3, NULL), DI_OK); /* what follows runs in full */
        assert_int_equal(di_sequence_run(q, NULL), DI_OK);
        assert_int_equal(count.last, 131);
        di_engine_close(e);
    }
}

/* Its last snapshot lies before the last window, and is without decoder windows: the same prompt resumes there, one that ends sooner does
 * not. */
static void a_replayed_prompt_resumes_before_its_last_window(void **state)
{
    (void)state;
    di_engine *const e = open_engine(DI_REPLAY_DECODER, 100, 1);
    int64_t cached;
    float *const first = run(e, 264, &cached);
    assert_int_equal(cached, 0);
    float *const again = run(e, 264, &cached);
    assert_int_equal(cached, 128);
    assert_true(same(first, again));
    float *const longer = run(e, 300, &cached);
    assert_int_equal(cached, 128);
    assert_int_equal(cached_of(e, 255), 0); /* the halo of the encoder: 508 tokens before 127 */
    di_engine *const fresh = open_engine(DI_REPLAY_DECODER, 256, 2);
    float *const alone = run(fresh, 300, &cached);
    assert_true(same(longer, alone));
    di_engine_close(e);
    di_engine_close(fresh);
    free(first);
    free(again);
    free(longer);
    free(alone);
}

static di_engine *open_on(const char *dir, di_replay replay)
{
    di_engine *e = NULL;
    di_error err;
    const di_engine_options o = {
        .chunk_tokens = 100, .n_threads = 1, .replay = replay, .cache = {.dir = dir, .load = DI_CACHE_LOAD_ALWAYS}};
    const di_status status = di_engine_open(model, &o, &e, &err);
    if (status == DI_E_UNSUPPORTED) {
        skip(); /* a build without disks */
    }
    if (status != DI_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* A folder gives the snapshot back, to engines with the same setting alone. */
static void a_replayed_prompt_is_there_after_a_restart(void **state)
{
    (void)state;
    char *const dir = unit_scratch_new();
    int64_t cached;
    di_engine *e = open_on(dir, DI_REPLAY_DECODER);
    float *const before = run(e, 264, &cached);
    di_engine_close(e);
    e = open_on(dir, DI_REPLAY_DECODER);
    float *const after = run(e, 264, &cached);
    assert_int_equal(cached, 128);
    assert_true(same(before, after));
    di_engine_close(e);
    static const di_replay others[] = {DI_REPLAY_OFF, DI_REPLAY_ENCODER, DI_REPLAY_BOTH};
    for (size_t i = 0; i < 3; i++) {
        e = open_on(dir, others[i]);
        assert_int_equal(cached_of(e, 264), 0);
        di_engine_close(e);
    }
    unit_scratch_remove(dir);
    free(before);
    free(after);
}

static void logits_of_every_row_are_exact(void **state)
{
    (void)state;
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 100, 1);
    di_engine *const replay = open_engine(DI_REPLAY_BOTH, 100, 1);
    di_sequence *q;
    int64_t cached;
    float *const wanted = run(exact, 200, &cached);
    assert_int_equal(di_sequence_new(replay, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_keep_logits(q, true, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, prompt, 200, NULL), DI_OK);
    assert_int_equal(di_sequence_run(q, NULL), DI_OK);
    assert_int_equal(q->n_logits, 200);
    assert_true(same(q->logits + (size_t)199 * (size_t)info.vocab_size, wanted));
    di_engine_close(exact);
    di_engine_close(replay);
    free(wanted);
}

/* With both, a hit resumes one window before its end, and the decoder runs for the prompt's last window. */
static void both_replay_a_hit_and_the_decoder(void **state)
{
    (void)state;
    static const int32_t chunks[] = {17, 256};
    float *rows[2];
    di_engine *const exact = open_engine(DI_REPLAY_OFF, 256, 1);
    int64_t cached;
    float *const wanted = run(exact, 300, &cached);
    for (size_t i = 0; i < 2; i++) {
        di_engine *const e = open_engine(DI_REPLAY_BOTH, chunks[i], 1);
        free(run(e, 264, &cached));
        rows[i] = run(e, 300, &cached);
        assert_int_equal(cached, 256 - 128);
        di_engine_close(e);
    }
    assert_true(same(rows[0], rows[1]));
    const double difference = difference_of(rows[0], wanted);
    assert_true(difference > 0.0 && difference < 0.1);
    di_engine_close(exact);
    free(wanted);
    free(rows[0]);
    free(rows[1]);
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
        cmocka_unit_test(a_prompt_of_one_window_is_exact),
        cmocka_unit_test(the_encoder_of_a_replayed_prompt_is_exact),
        cmocka_unit_test(a_decoder_layer_runs_one_window),
        cmocka_unit_test(a_replayed_prompt_resumes_before_its_last_window),
        cmocka_unit_test(a_replayed_prompt_is_there_after_a_restart),
        cmocka_unit_test(logits_of_every_row_are_exact),
        cmocka_unit_test(both_replay_a_hit_and_the_decoder),
        cmocka_unit_test(other_values_are_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
