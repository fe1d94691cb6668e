/* Random schedules over the small golden checkpoints: prompts fed in pieces at any time, any chunk size, threads and backend, sequences
 * started and thrown away midway, image rows among the tokens. Every logit of every position has the bits that the sequence has alone.
 * prop_engine.c does the same with longer prompts on the demo model.
 * ctest: timeout=600 */
#include "support/unit.h"

#include <deepinfer/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SEQUENCES = 4, MAX_PROMPT = 70, N_NEW = 4 };

#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 6 };
#else
enum { ROUNDS = 40 };
#endif

static di_model *model;
static di_model_info info;

/* What is fed and what comes of it alone. */
typedef struct script {
    int32_t prompt[MAX_PROMPT];
    uint8_t in_image[MAX_PROMPT];
    uint16_t *embed; /* [MAX_PROMPT, hidden]; NULL = no images */
    size_t n_prompt;
    di_sampling sampling;
    bool is_victim; /* freed somewhere */
    bool keep_all;
    int32_t ids[N_NEW];
    float *rows; /* [n_prompt + N_NEW - 1, vocab] */
} script;

/* A script on its way through an engine with others. */
typedef struct player {
    const script *s;
    di_sequence *sequence;
    size_t n_fed;
    size_t n_rows; /* compared */
    size_t n_new;
} player;

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

static size_t row_bytes(void) { return (size_t)info.vocab_size * sizeof(float); }

static void write_script(script *s, uint64_t *seed)
{
    const size_t hidden = (size_t)info.hidden_size;
    memset(s, 0, sizeof *s);
    s->n_prompt = 1 + below(seed, MAX_PROMPT);
    s->keep_all = below(seed, 2) == 0;
    s->is_victim = below(seed, 4) == 0;
    di_sampling_default(&s->sampling);
    s->sampling.temperature = below(seed, 3) == 0 ? 0.0f : 1.0f;
    s->sampling.seed = unit_random(seed);
    if (below(seed, 3) == 0) {
        s->embed = calloc(MAX_PROMPT * hidden, sizeof *s->embed);
        assert_non_null(s->embed);
    }
    for (size_t i = 0; i < s->n_prompt; i++) {
        s->prompt[i] = (int32_t)below(seed, (size_t)info.vocab_size);
        s->in_image[i] = s->embed != NULL && below(seed, 3) == 0;
        for (size_t j = 0; s->in_image[i] != 0 && j < hidden; j++) {
            s->embed[i * hidden + j] = (uint16_t)(0x3E00 + below(seed, 0x180) + (below(seed, 2) << 15)); /* BF16 around 0.1 to 1 */
        }
    }
    s->rows = malloc((s->n_prompt + N_NEW) * row_bytes());
    assert_non_null(s->rows);
}

static di_engine *open_engine(const char *backend, size_t threads, size_t chunk)
{
    di_engine *engine = NULL;
    di_error err;
    const di_engine_options options = {.backend = backend, .n_threads = (int32_t)threads, .chunk_tokens = (int32_t)chunk};
    if (di_engine_open(model, &options, &engine, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return engine;
}

static di_sequence *start(di_engine *engine, const script *s, bool keep_all)
{
    di_sequence *sequence = NULL;
    assert_int_equal(di_sequence_new(engine, &sequence, NULL), DI_OK);
    assert_int_equal(di_sequence_set_sampling(sequence, &s->sampling, NULL), DI_OK);
    assert_int_equal(di_sequence_keep_logits(sequence, keep_all, NULL), DI_OK);
    return sequence;
}

static void feed(di_sequence *sequence, const script *s, size_t first, size_t n)
{
    const di_input input = {.ids = s->prompt + first,
                            .n = n,
                            .in_image = s->embed != NULL ? s->in_image + first : NULL,
                            .embed = s->embed != NULL ? s->embed + first * (size_t)info.hidden_size : NULL};
    assert_int_equal(di_sequence_feed_input(sequence, &input, NULL), DI_OK);
}

static void run_alone(script *s)
{
    di_engine *engine = open_engine("ref", 1, 256);
    di_sequence *sequence = start(engine, s, true);
    size_t at = 0;
    feed(sequence, s, 0, s->n_prompt);
    for (size_t i = 0; i < N_NEW; i++) {
        const float *rows = NULL;
        int32_t n = 0;
        di_sample sample;
        assert_int_equal(di_sequence_run(sequence, NULL), DI_OK);
        assert_int_equal(di_sequence_logits(sequence, &rows, &n, NULL), DI_OK);
        assert_int_equal(n, i == 0 ? s->n_prompt : 1);
        memcpy(s->rows + at * (size_t)info.vocab_size, rows, (size_t)n * row_bytes());
        at += (size_t)n;
        assert_int_equal(di_sequence_sample(sequence, &sample, NULL), DI_OK);
        s->ids[i] = sample.id;
    }
    di_engine_close(engine);
}

/* Rows of a ready sequence against those alone. */
static void compare(player *p)
{
    const float *rows = NULL;
    int32_t n = 0;
    const size_t length = (size_t)di_sequence_length(p->sequence);
    assert_int_equal(di_sequence_logits(p->sequence, &rows, &n, NULL), DI_OK);
    assert_int_equal(n, p->s->keep_all ? length - p->n_rows : 1);
    const float *const wanted = p->s->rows + (length - (size_t)n) * (size_t)info.vocab_size;
    assert_memory_equal(rows, wanted, (size_t)n * row_bytes());
    p->n_rows = length;
}

/* One thing that may happen to a sequence between two steps. Returns true when it has nothing more to do. */
static bool act(di_engine *engine, player *p, uint64_t *seed)
{
    if (p->sequence == NULL) {
        if (p->n_fed == 0 && below(seed, 3) == 0) {
            p->sequence = start(engine, p->s, p->s->keep_all);
        }
        return p->n_fed > 0;
    }
    if (p->n_fed > 0 && p->s->is_victim && below(seed, 8) == 0) {
        di_sequence_free(p->sequence);
        p->sequence = NULL;
        return true;
    }
    if (di_sequence_ready(p->sequence) && p->n_rows < (size_t)di_sequence_length(p->sequence)) {
        compare(p);
    }
    const size_t left = p->s->n_prompt - p->n_fed;
    if (left > 0) {
        const size_t n = below(seed, left + 1);
        feed(p->sequence, p->s, p->n_fed, n);
        p->n_fed += n;
        return false;
    }
    if (p->n_new < N_NEW && di_sequence_ready(p->sequence)) {
        di_sample sample;
        assert_int_equal(di_sequence_sample(p->sequence, &sample, NULL), DI_OK);
        assert_int_equal(sample.id, p->s->ids[p->n_new++]);
    }
    if (p->n_new == N_NEW) {
        di_sequence_free(p->sequence);
        p->sequence = NULL;
        return true;
    }
    return false;
}

static void play_round(uint64_t *seed)
{
    script scripts[MAX_SEQUENCES];
    player players[MAX_SEQUENCES];
    const size_t n = 1 + below(seed, MAX_SEQUENCES);
    for (size_t i = 0; i < n; i++) {
        write_script(&scripts[i], seed);
        run_alone(&scripts[i]);
        players[i] = (player){.s = &scripts[i]};
    }
    di_engine *engine = open_engine(below(seed, 2) == 0 ? "ref" : "auto", 1 + below(seed, 2), 1 + below(seed, 24));
    for (bool busy = true; busy;) {
        int32_t n_run = 0;
        busy = false;
        for (size_t k = 0, first = below(seed, n); k < n; k++) {
            busy = !act(engine, &players[(first + k) % n], seed) || busy;
        }
        assert_int_equal(di_engine_step(engine, &n_run, NULL), DI_OK);
    }
    di_engine_close(engine);
    for (size_t i = 0; i < n; i++) {
        free(scripts[i].embed);
        free(scripts[i].rows);
    }
}

static void schedules_of(const char *name)
{
    char path[1024];
    di_error err;
    const char *const source = getenv("DI_SOURCE_DIR");
    assert_non_null(source);
    snprintf(path, sizeof path, "%s/tests/data/model/%s", source, name);
    if (access(path, R_OK) != 0) {
        print_message("%s: not there, skipped\n", name);
        skip();
    }
    if (di_model_open(path, NULL, &model, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    di_model_get_info(model, &info);
    uint64_t seed = 11;
    for (int round = 0; round < ROUNDS; round++) {
        play_round(&seed);
    }
    di_model_close(model);
}

static void t6(void **state)
{
    (void)state;
    schedules_of("t6");
}

static void t6_strict(void **state)
{
    (void)state;
    schedules_of("t6-strict");
}

static void t6_odd(void **state)
{
    (void)state;
    schedules_of("t6-odd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t6),
        cmocka_unit_test(t6_strict),
        cmocka_unit_test(t6_odd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
