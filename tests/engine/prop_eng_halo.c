/* Prompt rows that no result depends on are skipped in decoder layers (model.md 4.2), and not a bit changes: logits, every cache that later
 * tokens read, the draft's context and its proposals are those of an engine that runs every row of every layer. Random lengths, chunks,
 * feeds in pieces, threads; resumed prefixes; sequences that decode in the same passes. States hold large values before their first
 * token, so what is read without having been computed shows. The same holds of bounded replay of the decoder (dspark.md 4.3): it is another
 * result, but one that the prompt alone decides.
 * ctest: timeout=900 */
#include "engine/eng_model.h"
#include "engine/engine_int.h"
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BEHIND = 12, N_SCRIPTS = 5, N_PLAYERS = 3, MAX_DRAFT = 8 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 1, MAX_DEMO = 200, N_DEMO_SCRIPTS = 2, N_DEMO_RUNS = 4 };
#else
enum { ROUNDS = 2, MAX_DEMO = 1400, N_DEMO_SCRIPTS = 4, N_DEMO_RUNS = 6 };
#endif

static di_model *model;
static di_model_info info;
static di_replay replay;

typedef struct moment { /* what is known of a sequence behind some tokens */
    uint8_t *state;     /* flat: all windows, those of the draft too */
    int32_t drafts[MAX_DRAFT];
    float confidence[MAX_DRAFT];
    int32_t n_drafts;
} moment;

typedef struct script {
    int32_t *ids; /* [n + N_BEHIND] the prompt, and what follows it */
    size_t n;
    float *logits; /* [1 + N_BEHIND, vocab] behind the prompt, and behind each that follows */
    uint8_t *pages; /* whole pages of the prompt */
    moment at_end;  /* of the prompt */
    moment behind;  /* all of it */
} script;

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

static di_engine *open_engine(int32_t chunk, int32_t threads, bool full)
{
    di_engine *e = NULL;
    di_error err;
    const di_engine_options o = {.chunk_tokens = chunk, .n_threads = threads, .draft = true, .replay = replay};
    if (di_engine_open(model, &o, &e, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    e->full = full;
    return e;
}

static moment look(di_engine *e, di_sequence *q)
{
    moment m = {.n_drafts = 0};
    const size_t bytes = mdl_flat_state_bytes(e->runner, true);
    m.state = malloc(bytes);
    assert_non_null(m.state);
    mdl_flat_state_out(e->runner, m.state, q->caches.state, q->caches.n_tokens, true);
    assert_int_equal(di_sequence_draft(q, 5, m.drafts, m.confidence, MAX_DRAFT, &m.n_drafts, NULL), DI_OK);
    return m;
}

static bool same_moment(const di_engine *e, const moment *a, const moment *b)
{
    const size_t n = (size_t)a->n_drafts;
    return a->n_drafts == b->n_drafts && memcmp(a->drafts, b->drafts, n * sizeof *a->drafts) == 0 &&
           memcmp(a->confidence, b->confidence, n * sizeof *a->confidence) == 0 &&
           memcmp(a->state, b->state, mdl_flat_state_bytes(e->runner, true)) == 0;
}

/* Runs what is fed; row i of the script's logits is behind it. */
static void run_and_take(di_sequence *q, const script *s, size_t i)
{
    const float *rows;
    int32_t n_rows;
    const size_t vocab = (size_t)info.vocab_size;
    assert_int_equal(di_sequence_run(q, NULL), DI_OK);
    assert_int_equal(di_sequence_logits(q, &rows, &n_rows, NULL), DI_OK);
    assert_int_equal(n_rows, 1);
    memcpy(s->logits + i * vocab, rows, vocab * sizeof *rows);
}

static size_t whole_pages(const script *s) { return s->n / MDL_PAGE_TOKENS; }

/* Alone, in one pass, every row through every layer that it has to enter. */
static void run_full(script *s)
{
    di_engine *const e = open_engine((int32_t)s->n + MAX_DRAFT, 1, true);
    const size_t vocab = (size_t)info.vocab_size;
    const size_t page = mdl_flat_page_bytes(e->runner);
    di_sequence *q;
    assert_int_equal(di_sequence_new(e, &q, NULL), DI_OK);
    assert_int_equal(di_sequence_feed(q, s->ids, s->n, NULL), DI_OK);
    s->logits = calloc((1 + N_BEHIND) * vocab, sizeof *s->logits);
    s->pages = calloc(whole_pages(s) + 1, page);
    assert_true(s->logits != NULL && s->pages != NULL);
    run_and_take(q, s, 0);
    for (size_t i = 0; i < whole_pages(s); i++) {
        mdl_flat_page_out(e->runner, s->pages + i * page, q->caches.pages[i]);
    }
    s->at_end = look(e, q);
    for (size_t i = 0; i < N_BEHIND; i++) {
        assert_int_equal(di_sequence_feed(q, s->ids + s->n + i, 1, NULL), DI_OK);
        run_and_take(q, s, 1 + i);
    }
    s->behind = look(e, q);
    di_engine_close(e);
}

/* Beginnings are taken from earlier scripts, so that there is something to resume. */
static void write_scripts(script *scripts, size_t n, size_t most, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        script *const s = &scripts[i];
        s->n = 1 + below(seed, most);
        s->ids = calloc(s->n + N_BEHIND, sizeof *s->ids);
        assert_non_null(s->ids);
        for (size_t t = 0; t < s->n + N_BEHIND; t++) {
            s->ids[t] = (int32_t)below(seed, (size_t)info.vocab_size);
        }
        const script *const other = &scripts[below(seed, i + 1)];
        const size_t shared = other->n < s->n ? other->n : s->n;
        if (other != s && below(seed, 4) > 0) {
            memcpy(s->ids, other->ids, shared * sizeof *s->ids);
        }
        run_full(s);
    }
}

static void free_scripts(script *scripts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(scripts[i].ids);
        free(scripts[i].logits);
        free(scripts[i].pages);
        free(scripts[i].at_end.state);
        free(scripts[i].behind.state);
        scripts[i] = (script){.n = 0};
    }
}

/* ---- together ---- */

typedef struct player {
    const script *s; /* NULL = free */
    di_sequence *q;
    size_t n_fed;
    bool in_pieces;  /* the prompt too */
} player;

static void feed(player *p, size_t n)
{
    assert_int_equal(di_sequence_feed(p->q, p->s->ids + p->n_fed, n, NULL), DI_OK);
    p->n_fed += n;
}

static void begin(di_engine *e, player *p, const script *s, uint64_t *seed)
{
    *p = (player){.s = s, .in_pieces = below(seed, 4) == 0 && replay == DI_REPLAY_OFF}; /* what is fed first is what is replayed */
    assert_int_equal(di_sequence_new(e, &p->q, NULL), DI_OK);
    memset(p->q->caches.state, 0x7e, mdl_runner_layout(e->runner)->state_bytes);
    if (below(seed, 4) > 0) {
        assert_int_equal(di_sequence_use_cache(p->q, "a", 1, NULL), DI_OK);
    }
    feed(p, p->in_pieces ? 1 + below(seed, s->n) : s->n);
}

static void expect_moment(di_engine *e, const player *p, const moment *wanted, const char *what)
{
    moment m = look(e, p->q);
    if (!same_moment(e, &m, wanted)) {
        fail_msg("%s: windows or drafts of a prompt of %zu tokens differ behind %zu; %lld were cached", what, p->s->n, p->n_fed,
                 (long long)di_sequence_cached(p->q));
    }
    free(m.state);
}

static void expect_pages(const di_engine *e, const player *p, const char *what)
{
    const size_t bytes = mdl_flat_page_bytes(e->runner);
    for (size_t i = 0; i < whole_pages(p->s); i++) {
        if (memcmp(p->q->caches.pages[i], p->s->pages + i * bytes, bytes) != 0) {
            fail_msg("%s: page %zu of a prompt of %zu tokens differs", what, i, p->s->n);
        }
    }
}

/* What has run is compared, and more is fed. True: there is no more. */
static bool play(di_engine *e, player *p, const char *what, uint64_t *seed)
{
    const script *const s = p->s;
    const size_t left = s->n + N_BEHIND - p->n_fed;
    const size_t vocab = (size_t)info.vocab_size;
    const float *rows;
    int32_t n_rows;
    if (!di_sequence_ready(p->q)) {
        return false;
    }
    assert_int_equal(di_sequence_logits(p->q, &rows, &n_rows, NULL), DI_OK);
    assert_int_equal(n_rows, 1);
    if (p->n_fed >= s->n && memcmp(rows, s->logits + (p->n_fed - s->n) * vocab, vocab * sizeof *rows) != 0) {
        fail_msg("%s: logits behind %zu tokens, %zu of them prompt, differ; %lld were cached", what, p->n_fed, s->n,
                 (long long)di_sequence_cached(p->q));
    }
    if (p->n_fed == s->n) {
        expect_pages(e, p, what);
        expect_moment(e, p, &s->at_end, what);
    }
    if (left == 0) {
        expect_moment(e, p, &s->behind, what);
        return true;
    }
    const size_t end = p->n_fed < s->n ? s->n - p->n_fed : left < 6 ? left : 6; /* no piece goes over the end of the prompt */
    feed(p, 1 + below(seed, end));
    return false;
}

/* Returns the tokens that were cached. */
static int64_t run_together(const script *scripts, size_t n_scripts, size_t n_runs, uint64_t *seed)
{
    char what[40];
    const int32_t chunk = (int32_t)(mdl_config_of(model)->draft.block_size + (int32_t)below(seed, 300));
    di_engine *const e = open_engine(chunk, (int32_t)(1 + below(seed, 2)), false);
    player players[N_PLAYERS] = {{.s = NULL}};
    int64_t cached = 0;
    size_t started = 0;
    size_t ended = 0;
    (void)snprintf(what, sizeof what, "chunk %d", chunk);
    while (ended < n_runs) {
        player *const free_one = &players[below(seed, N_PLAYERS)];
        int32_t n;
        if (free_one->s == NULL && started < n_runs) {
            begin(e, free_one, &scripts[below(seed, n_scripts)], seed);
            cached += di_sequence_cached(free_one->q);
            started++;
        }
        assert_int_equal(di_engine_step(e, &n, NULL), DI_OK);
        for (size_t i = 0; i < N_PLAYERS; i++) {
            if (players[i].s != NULL && play(e, &players[i], what, seed)) {
                di_sequence_free(players[i].q);
                players[i].s = NULL;
                ended++;
            }
        }
    }
    di_engine_close(e);
    return cached;
}

static void compare(const char *dir, di_replay mode, size_t most, uint64_t rounds, size_t n_scripts, size_t n_runs)
{
    script scripts[N_SCRIPTS] = {{.n = 0}};
    int64_t cached = 0;
    replay = mode;
    model = eng_model_open(dir);
    di_model_get_info(model, &info);
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t seed = 31 * round + 11;
        write_scripts(scripts, n_scripts, most, &seed);
        cached += run_together(scripts, n_scripts, n_runs, &seed);
        free_scripts(scripts, n_scripts);
    }
    assert_true(cached > 0 || n_runs < 5); /* a few short prompts may share too little */
    di_model_close(model);
}

static void tiny_models_exact(void **state)
{
    (void)state;
    compare("tests/data/model/t6", DI_REPLAY_OFF, 240, ROUNDS, N_SCRIPTS, 20);
    compare("tests/data/model/t6-strict", DI_REPLAY_OFF, 240, ROUNDS, N_SCRIPTS, 20);
    compare("tests/data/model/t6-odd", DI_REPLAY_OFF, 240, ROUNDS, N_SCRIPTS, 20);
}

static void tiny_models_replayed(void **state)
{
    (void)state;
    compare("tests/data/model/t6", DI_REPLAY_DECODER, 240, ROUNDS, N_SCRIPTS, 20);
    compare("tests/data/model/t6-odd", DI_REPLAY_DECODER, 240, ROUNDS, N_SCRIPTS, 20);
}

static void demo_exact(void **state)
{
    (void)state;
    compare("models/demo", DI_REPLAY_OFF, MAX_DEMO, 1, N_DEMO_SCRIPTS, N_DEMO_RUNS);
}

static void demo_replayed(void **state)
{
    (void)state;
    compare("models/demo", DI_REPLAY_DECODER, MAX_DEMO, 1, N_DEMO_SCRIPTS, N_DEMO_RUNS);
}

/* ---- a snapshot without decoder windows, and one behind it ---- */

static int64_t run_cached(di_engine *e, const script *s, const char *what)
{
    uint64_t seed = 1;
    player p = {.s = s};
    int64_t cached;
    assert_int_equal(di_sequence_new(e, &p.q, NULL), DI_OK);
    memset(p.q->caches.state, 0x7e, mdl_runner_layout(e->runner)->state_bytes);
    assert_int_equal(di_sequence_use_cache(p.q, "a", 1, NULL), DI_OK);
    feed(&p, s->n);
    cached = di_sequence_cached(p.q);
    assert_int_equal(di_sequence_run(p.q, NULL), DI_OK);
    if (s->logits != NULL) {
        (void)play(e, &p, what, &seed);
    }
    di_sequence_free(p.q);
    return cached;
}

/* The first prompt leaves a snapshot without decoder windows behind 2,048 tokens. It would do for the logits of the second, but not for the
 * windows of the snapshot that the second one leaves behind 2,432, which the third one resumes from. The first one is not compared. */
static void what_resumes_from_a_partial_snapshot_leaves_whole_ones(void **state)
{
    static const size_t lengths[] = {2700, 2558, 2600};
    static const size_t shared[] = {0, 2060, 2500};
    static const int64_t cached[] = {0, 2048 - 1018, 2432};
    script scripts[3] = {{.n = 0}};
    uint64_t seed = 9;
    (void)state;
    if (MAX_DEMO < 1000) {
        skip(); /* minutes under a sanitizer */
    }
    replay = DI_REPLAY_OFF;
    model = eng_model_open("models/demo");
    di_model_get_info(model, &info);
    di_engine *const e = open_engine(200, 2, false);
    for (size_t i = 0; i < 3; i++) {
        script *const s = &scripts[i];
        s->n = lengths[i];
        s->ids = calloc(s->n + N_BEHIND, sizeof *s->ids);
        assert_non_null(s->ids);
        for (size_t t = 0; t < s->n + N_BEHIND; t++) {
            s->ids[t] = (int32_t)below(&seed, (size_t)info.vocab_size);
        }
        memcpy(s->ids, scripts[i > 0 ? i - 1 : 0].ids, shared[i] * sizeof *s->ids);
        if (i > 0) {
            run_full(s);
        }
        assert_int_equal(run_cached(e, s, "partial"), cached[i]);
    }
    di_engine_close(e);
    free_scripts(scripts, 3);
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_models_exact),
        cmocka_unit_test(tiny_models_replayed),
        cmocka_unit_test(demo_exact),
        cmocka_unit_test(demo_replayed),
        cmocka_unit_test(what_resumes_from_a_partial_snapshot_leaves_whole_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
