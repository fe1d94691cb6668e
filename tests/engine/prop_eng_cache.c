/* The prefix cache changes no bit: prompts that share beginnings, run through one engine in random order and together, give the logits and
 * the tokens that each gives alone without a cache. Small budgets make snapshots and pages go, so that the dependency halo is
 * recomputed and misses happen too.
 * ctest: timeout=900 */
#include "engine/eng_model.h"
#include "support/unit.h"

#include <deepinfer/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 2800, N_NEW = 5, MAX_SCRIPTS = 12 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 3, DEMO_PROMPT = 300, DEMO_SCRIPTS = 3 };
#else
enum { ROUNDS = 10, DEMO_PROMPT = 1500, DEMO_SCRIPTS = 6 };
#endif

static di_model *model;
static di_model_info info;

typedef struct script {
    int32_t prompt[MAX_PROMPT];
    size_t n;
    char salt;
    di_sampling sampling;
    int32_t ids[N_NEW]; /* what it gives alone */
    float *logits;      /* behind the prompt, alone */
} script;

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

static void open_model(const char *dir)
{
    model = eng_model_open(dir);
    di_model_get_info(model, &info);
}

static di_engine *open_engine(int32_t chunk, int64_t kv_bytes, int32_t threads)
{
    di_engine *e = NULL;
    di_error err;
    const di_engine_options o = {.chunk_tokens = chunk, .kv_bytes = kv_bytes, .n_threads = threads};
    if (di_engine_open(model, &o, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

static di_status start(di_engine *e, const script *s, bool cache, di_sequence **out)
{
    di_status status = di_sequence_new(e, out, NULL);
    if (status == DI_OK && cache) {
        status = di_sequence_use_cache(*out, &s->salt, 1, NULL);
    }
    if (status == DI_OK) {
        status = di_sequence_set_sampling(*out, &s->sampling, NULL);
    }
    return status == DI_OK ? di_sequence_feed(*out, s->prompt, s->n, NULL) : status;
}

static void expect_logits(const di_sequence *q, const script *s, const char *what)
{
    const float *rows;
    int32_t n;
    assert_int_equal(di_sequence_logits(q, &rows, &n, NULL), DI_OK);
    assert_int_equal(n, 1);
    if (memcmp(rows, s->logits, (size_t)info.vocab_size * sizeof *rows) != 0) {
        fail_msg("%s: logits of a prompt of %zu tokens differ, %lld were cached", what, s->n, (long long)di_sequence_cached(q));
    }
}

static void run_alone(script *s)
{
    di_engine *e = open_engine(256, 0, 1);
    di_sequence *q;
    const float *rows;
    int32_t n;
    assert_int_equal(start(e, s, false, &q), DI_OK);
    assert_int_equal(di_sequence_run(q, NULL), DI_OK);
    assert_int_equal(di_sequence_logits(q, &rows, &n, NULL), DI_OK);
    s->logits = malloc((size_t)info.vocab_size * sizeof *rows);
    assert_non_null(s->logits);
    memcpy(s->logits, rows, (size_t)info.vocab_size * sizeof *rows);
    for (int i = 0; i < N_NEW; i++) {
        di_sample sample;
        assert_int_equal(di_sequence_sample(q, &sample, NULL), DI_OK);
        assert_int_equal(di_sequence_run(q, NULL), DI_OK);
        s->ids[i] = sample.id;
    }
    di_engine_close(e);
}

/* Lengths around unit ends, beginnings taken from earlier scripts. */
static void write_scripts(script *scripts, size_t n, size_t most, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        script *const s = &scripts[i];
        memset(s, 0, sizeof *s);
        s->n = 1 + below(seed, most);
        if (below(seed, 3) == 0) {
            s->n = s->n / 128 * 128 + below(seed, 3);
            s->n = s->n < 1 ? 1 : s->n > most ? most : s->n;
        }
        for (size_t t = 0; t < s->n; t++) {
            s->prompt[t] = (int32_t)below(seed, (size_t)info.vocab_size);
        }
        const script *const other = &scripts[below(seed, i + 1)];
        const size_t shared = below(seed, 4) > 0 ? (other->n < s->n ? other->n : s->n) : 0;
        memcpy(s->prompt, other->prompt, shared * sizeof *s->prompt);
        s->salt = below(seed, 5) == 0 ? 'b' : 'a';
        di_sampling_default(&s->sampling);
        s->sampling.temperature = below(seed, 2) == 0 ? 0.0f : 1.0f;
        s->sampling.repetition_penalty = 1.25f;
        s->sampling.seed = unit_random(seed);
        run_alone(s);
    }
}

typedef struct player {
    const script *s;
    di_sequence *q;
    int n_new;
} player;

/* Samples when it is ready; true when it has everything. */
static bool play(player *p, const char *what)
{
    di_sample sample;
    if (!di_sequence_ready(p->q)) {
        return false;
    }
    if (p->n_new == 0) {
        expect_logits(p->q, p->s, what);
    }
    if (p->n_new == N_NEW) {
        return true;
    }
    assert_int_equal(di_sequence_sample(p->q, &sample, NULL), DI_OK);
    if (sample.id != p->s->ids[p->n_new]) {
        fail_msg("%s: token %d of a prompt of %zu tokens differs, %lld were cached", what, p->n_new, p->s->n,
                 (long long)di_sequence_cached(p->q));
    }
    p->n_new++;
    return false;
}

/* n_runs sequences of random scripts through one engine, up to three at once. Returns the tokens that were cached. */
static int64_t run_mixed(const script *scripts, size_t n_scripts, size_t n_runs, int64_t kv_bytes, uint64_t *seed)
{
    char what[80];
    const int32_t chunk = (int32_t)(1 + below(seed, 300));
    di_engine *const e = open_engine(chunk, kv_bytes, (int32_t)(1 + below(seed, 2)));
    player players[3] = {{NULL, NULL, 0}};
    int64_t cached = 0;
    size_t started = 0;
    size_t ended = 0;
    (void)snprintf(what, sizeof what, "chunk %d, %lld bytes", chunk, (long long)kv_bytes);
    while (ended < n_runs) {
        player *const p = &players[below(seed, 3)];
        if (p->q == NULL && started < n_runs) {
            *p = (player){.s = &scripts[below(seed, n_scripts)]};
            if (start(e, p->s, true, &p->q) == DI_OK) {
                started++;
                cached += di_sequence_cached(p->q);
            } else { /* no room while others run */
                di_sequence_free(p->q);
                p->q = NULL;
            }
        }
        int32_t n;
        assert_int_equal(di_engine_step(e, &n, NULL), DI_OK);
        for (size_t i = 0; i < 3; i++) {
            const bool leave = players[i].q != NULL && below(seed, 40) == 0; /* cancelled */
            if (players[i].q != NULL && (play(&players[i], what) || leave)) {
                di_sequence_free(players[i].q);
                players[i].q = NULL;
                ended++;
            }
        }
    }
    di_engine_close(e);
    return cached;
}

static void free_scripts(script *scripts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(scripts[i].logits);
    }
}

static void golden(const char *dir)
{
    script *const scripts = calloc(MAX_SCRIPTS, sizeof *scripts);
    assert_non_null(scripts);
    open_model(dir);
    int64_t cached = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t seed = 77 * round + 5;
        write_scripts(scripts, 6, 240, &seed);
        const int64_t small = 12 * ((int64_t)info.state_bytes + 1) * 8; /* about a dozen states */
        cached += run_mixed(scripts, 6, 20, round % 3 == 0 ? small / 3 : round % 3 == 1 ? small : 0, &seed);
        free_scripts(scripts, 6);
    }
    assert_true(cached > 0);
    di_model_close(model);
    free(scripts);
}

static void t6(void **state)
{
    (void)state;
    golden("tests/data/model/t6");
}

static void t6_odd(void **state)
{
    (void)state;
    golden("tests/data/model/t6-odd");
}

static void demo(void **state)
{
    (void)state;
    script *const scripts = calloc(DEMO_SCRIPTS, sizeof *scripts);
    assert_non_null(scripts);
    open_model("models/demo");
    uint64_t seed = 11;
    write_scripts(scripts, DEMO_SCRIPTS, DEMO_PROMPT, &seed);
    const int64_t few = 5 * (int64_t)info.state_bytes * 8; /* pages enough, five states */
    assert_true(run_mixed(scripts, DEMO_SCRIPTS, 2 * DEMO_SCRIPTS, 0, &seed) > 0);
    (void)run_mixed(scripts, DEMO_SCRIPTS, 2 * DEMO_SCRIPTS, few, &seed);
    free_scripts(scripts, DEMO_SCRIPTS);
    di_model_close(model);
    free(scripts);
}

/* The second time a prompt comes, everything up to its last unit end is there. */
static void a_repeated_prompt_runs_its_tail_only(void **state)
{
    (void)state;
    script *const s = calloc(1, sizeof *s);
    assert_non_null(s);
    open_model("models/demo");
    uint64_t seed = 3;
    write_scripts(s, 1, 1, &seed);
    free(s->logits);
    s->n = 300;
    for (size_t i = 0; i < s->n; i++) {
        s->prompt[i] = (int32_t)below(&seed, (size_t)info.vocab_size);
    }
    run_alone(s);
    di_engine *const e = open_engine(64, 0, 1);
    for (int i = 0; i < 3; i++) {
        di_sequence *q;
        assert_int_equal(start(e, s, true, &q), DI_OK);
        assert_int_equal(di_sequence_cached(q), i == 0 ? 0 : 256);
        assert_int_equal(di_sequence_length(q), 300);
        assert_int_equal(di_sequence_run(q, NULL), DI_OK);
        expect_logits(q, s, "repeated");
        di_sequence_free(q);
    }
    s->salt = 'x'; /* another tenant has nothing of it */
    di_sequence *q;
    assert_int_equal(start(e, s, true, &q), DI_OK);
    assert_int_equal(di_sequence_cached(q), 0);
    di_sequence_free(q);
    di_kv_stats kv;
    di_engine_get_kv_stats(e, &kv);
    assert_int_equal(kv.lookup_tokens, 1200);
    assert_int_equal(kv.matched_tokens, 512);
    assert_int_equal(kv.resumed_tokens, 512);
    assert_int_equal(kv.pages_used, 0);
    assert_int_equal(kv.states_used, 0);
    di_engine_close(e);
    free(s->logits);
    free(s);
    di_model_close(model);
}

/* Every 2,048 tokens a prompt leaves a snapshot without decoder windows: it serves a prompt that goes on long enough behind it, another
 * one recomputes the halo (demo model: 4 decoder layers, 1,017 tokens). */
static void a_snapshot_inside_a_prompt_serves_long_ones(void **state)
{
    (void)state;
    static const size_t lengths[] = {2300, 2150, 2700};
    static const int64_t cached[] = {0, 2048 - 1018, 2048};
    if (DEMO_PROMPT < 1000) {
        skip(); /* minutes under a sanitizer */
    }
    open_model("models/demo");
    di_engine *const e = open_engine(200, 0, 2);
    script *const s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (int i = 0; i < 3; i++) {
        uint64_t seed = 21;
        write_scripts(s, 1, 1, &seed);
        free(s->logits);
        s->n = lengths[i];
        for (size_t t = 0; t < s->n; t++) {
            s->prompt[t] = (int32_t)below(&seed, (size_t)info.vocab_size);
            seed += t == 2100 ? (uint64_t)i * 1000 : 0;
        }
        run_alone(s);
        di_sequence *q;
        assert_int_equal(start(e, s, true, &q), DI_OK);
        assert_int_equal(di_sequence_cached(q), cached[i]);
        assert_int_equal(di_sequence_run(q, NULL), DI_OK);
        expect_logits(q, s, "inside");
        di_sequence_free(q);
        free(s->logits);
    }
    di_engine_close(e);
    free(s);
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_prompt_runs_its_tail_only),
        cmocka_unit_test(a_snapshot_inside_a_prompt_serves_long_ones),
        cmocka_unit_test(t6),
        cmocka_unit_test(t6_odd),
        cmocka_unit_test(demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
