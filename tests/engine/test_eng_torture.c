/* Fails each allocation of opening an engine and generating in turn (support/torture.h): a clean DI_E_MEMORY, no leak, no crash. And
 * when memory comes back, the failed call can be repeated, or the sequence says that it can't go on; other sequences do.
 * ctest: timeout=240 wrap=malloc,calloc,realloc,strdup,aligned_alloc,free */
#include "engine/eng_model.h"
#include "support/torture.h"

#include <deepinfer/engine.h>

#include <limits.h>

enum { N_PROMPT = 40, N_CACHED = 130, N_NEW = 6, HIDDEN_MAX = 4096 };

static di_model *model;
static di_model_info info;

typedef struct setting {
    const char *backend;
    int32_t n_threads;
    int32_t chunk;
    bool images; /* some tokens of the prompt have given embedding rows */
    bool cache;  /* the prefix cache is used: a unit fills and is published */
} setting;

static di_status start_sequence(di_engine *engine, const setting *how, di_sequence **out, di_error *err)
{
    static uint16_t rows[N_PROMPT * HIDDEN_MAX]; /* zero: any value will do */
    static const di_logit_bias bias[] = {{5, 1.0f}, {6, -1.0f}};
    int32_t ids[N_CACHED];
    uint8_t in_image[N_CACHED] = {0};
    const size_t n = how->cache ? N_CACHED : N_PROMPT;
    for (int32_t i = 0; i < N_CACHED; i++) {
        ids[i] = (i * 37 + 11) % info.vocab_size;
        in_image[i] = i >= 10 && i < 20;
    }
    di_sampling sampling;
    di_sampling_default(&sampling);
    sampling.seed = 3;
    sampling.top_k = 50;
    sampling.top_p = 0.9f;
    sampling.repetition_penalty = 1.1f;
    sampling.presence_penalty = 0.5f;
    sampling.bias = bias;
    sampling.n_bias = 2;
    sampling.stop_ids = ids;
    sampling.n_stop_ids = 1;
    sampling.min_tokens = N_NEW;
    sampling.n_top_logprobs = 3;
    di_status status = di_sequence_new(engine, out, err);
    if (status == DI_OK) {
        status = di_sequence_set_sampling(*out, &sampling, err);
    }
    if (status == DI_OK) {
        status = how->cache ? di_sequence_use_cache(*out, "salt", 4, err) : di_sequence_keep_logits(*out, true, err);
    }
    if (status == DI_OK && how->images) {
        const di_input input = {.ids = ids, .n = N_PROMPT, .in_image = in_image, .embed = rows};
        return di_sequence_feed_input(*out, &input, err);
    }
    return status == DI_OK ? di_sequence_feed(*out, ids, n, err) : status;
}

static di_status open_engine(const setting *how, di_engine **out, di_error *err)
{
    const di_engine_options options = {
        .backend = how->backend, .n_threads = how->n_threads, .chunk_tokens = how->chunk, .max_tokens = 256};
    return di_engine_open(model, &options, out, err);
}

static di_status generate(const void *arg, di_error *err)
{
    const setting *const how = arg;
    di_engine *engine = NULL;
    di_sequence *sequence = NULL;
    di_status status = open_engine(how, &engine, err);
    if (status == DI_OK) {
        status = start_sequence(engine, how, &sequence, err);
    }
    for (int i = 0; status == DI_OK && i < N_NEW; i++) {
        di_sample sample;
        status = di_sequence_run(sequence, err);
        if (status == DI_OK) {
            status = di_sequence_sample(sequence, &sample, err);
        }
    }
    di_engine_close(engine);
    return status;
}

static void generating(void **state)
{
    (void)state;
    const setting all[] = {
        {"ref", 1, 7, false, false},
        {"ref", 2, 64, true, false},
        {"auto", 1, 64, false, false},
        {"auto", 2, 7, true, false},
        {"auto", 1, 64, false, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        torture_all(all[i].backend, generate, &all[i], 40);
    }
}

static di_status stop_strings(const void *arg, di_error *err)
{
    (void)arg;
    const char *out;
    size_t n;
    di_stop *stop = NULL;
    di_status status = di_stop_new((const char *const[]){"end", "stop"}, NULL, 2, &stop, err);
    for (int i = 0; status == DI_OK && i < 20; i++) {
        static const char text[] = "A longer piece of text that stretches the buffer, and then s";
        status = di_stop_push(stop, text, sizeof text - 1, &out, &n, err);
    }
    if (status == DI_OK) {
        status = di_stop_finish(stop, &out, &n, err);
    }
    di_stop_free(stop);
    return status;
}

static void stopping(void **state)
{
    (void)state;
    torture_all("stop strings", stop_strings, NULL, 1000);
}

/* The rest of a generation whose k-th allocation fails once `sequence` stands. Writes ids; false when the sequence is lost. */
static bool persevere(di_sequence *sequence, long k, int32_t *ids)
{
    di_error err;
    torture.left = k;
    torture.failed = false;
    torture.on = true;
    for (int i = 0; i < N_NEW; i++) {
        di_sample sample;
        const int64_t length = di_sequence_length(sequence);
        di_status status = di_sequence_run(sequence, &err);
        if (status == DI_E_MEMORY) {
            torture.on = false;
            status = di_sequence_run(sequence, &err);
        }
        if (status == DI_E_STATE) {
            unit_expect_error(di_sequence_sample(sequence, &sample, &err), DI_E_STATE, &err, "free it", NULL);
            unit_expect_error(di_sequence_feed(sequence, ids, 1, &err), DI_E_STATE, &err, "free it", NULL);
            return false;
        }
        assert_int_equal(status, DI_OK);
        status = di_sequence_sample(sequence, &sample, &err);
        if (status == DI_E_MEMORY) {
            torture.on = false;
            assert_int_equal(di_sequence_length(sequence), length);
            status = di_sequence_sample(sequence, &sample, &err);
        }
        assert_int_equal(status, DI_OK);
        assert_int_equal(di_sequence_length(sequence), length + 1);
        ids[i] = sample.id;
    }
    torture.on = false;
    return true;
}

/* The failure of a pass stayed noted in the device once, and failed the next pass of another sequence. */
static void what_failed_can_be_repeated(void **state)
{
    (void)state;
    const setting how = {"auto", 2, 16, false, false};
    int32_t wanted[N_NEW] = {-1};
    di_error err;
    memset(live, 0, sizeof live);
    for (long k = -1;; k++) {
        di_engine *engine = NULL;
        di_sequence *sequence = NULL;
        di_sequence *other = NULL;
        int32_t ids[N_NEW];
        assert_int_equal(open_engine(&how, &engine, &err), DI_OK);
        assert_int_equal(start_sequence(engine, &how, &sequence, &err), DI_OK);
        const bool kept = persevere(sequence, k < 0 ? LONG_MAX : k, ids);
        torture.on = false;
        const bool was_hit = torture.failed;
        if (kept) {
            assert_memory_equal(k < 0 ? memcpy(wanted, ids, sizeof ids) : ids, wanted, sizeof ids);
        } else {
            di_sequence_free(sequence);
        }
        assert_int_equal(start_sequence(engine, &how, &other, &err), DI_OK);
        assert_true(persevere(other, LONG_MAX, ids));
        assert_memory_equal(ids, wanted, sizeof ids);
        di_engine_close(engine);
        if (k >= 0 && !was_hit) {
            break;
        }
    }
}

static int open_model(void **state)
{
    (void)state;
    model = eng_model_open("tests/data/model/t6-strict");
    di_model_get_info(model, &info);
    assert_true(info.hidden_size <= HIDDEN_MAX);
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
        cmocka_unit_test(generating),
        cmocka_unit_test(stopping),
        cmocka_unit_test(what_failed_can_be_repeated),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
