/* Drafts that were wrong leave nothing behind: after any history of accepted and rejected drafts every cache of a sequence (windows, open and
 * compressed groups, index keys, Engram's history, the draft's context), the next row of logits and the next proposal are bit for bit
 * those of a sequence that got the same tokens without drafts; so are what a sampler knows of its tokens and what a grammar allows.
 * ctest: timeout=900 */
#include "engine/eng_grammar.h"
#include "engine/eng_model.h"
#include "engine/eng_sample.h"
#include "model/model.h"
#include "support/unit.h"

#include <deepinfer/grammar.h>

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { HISTORIES = 2 };
#else
enum { HISTORIES = 40 };
#endif

enum { MOST_TOKENS = 240, MOST_ROWS = 64, STEPS = 24, LOOK_EACH = 4, MOST_DRAFTS = OPS_REWIND - 1, MOST_VOCAB = 512, MOST_BLOCK = 8 };

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

/* ---- caches ---- */

static int32_t max_ngram; /* ids that Engram looks at */
static uint64_t digest;
static int n_traced;

static void add_bytes(const void *data, size_t n)
{
    const uint8_t *const bytes = data;
    for (size_t i = 0; i < n; i++) {
        digest = (digest ^ bytes[i]) * UINT64_C(0x100000001B3);
    }
}

static void on_trace(void *user, const di_trace *t)
{
    (void)user;
    if (strncmp(t->name, "cache.", 6) == 0) {
        size_t n = t->dtype == DI_BF16 ? 2 : 4;
        for (int32_t i = 0; i < t->n_dims; i++) {
            n *= (size_t)t->dims[i];
        }
        add_bytes(t->name, strlen(t->name));
        add_bytes(t->dims, sizeof t->dims);
        add_bytes(t->data, n);
        n_traced++;
    }
}

typedef struct line {
    mdl_runner *runner;
    mdl_seq seq;
} line;

/* What memory held before must not matter. */
static void begin(line *l, mdl_runner *r)
{
    const mdl_layout *const layout = mdl_runner_layout(r);
    const int32_t n_pages = (MOST_TOKENS + MOST_ROWS) / MDL_PAGE_TOKENS + 1;
    l->runner = r;
    uint8_t *const state = mdl_alloc(r, layout->state_bytes);
    assert_non_null(state);
    memset(state, 0x5A, layout->state_bytes);
    mdl_seq_init(r, &l->seq, state);
    assert_int_equal(mdl_seq_reserve(&l->seq, n_pages, NULL), DI_OK);
    for (int32_t i = 0; i < n_pages; i++) {
        uint8_t *const page = mdl_alloc(r, layout->page_bytes);
        assert_non_null(page);
        memset(page, 0x5A, layout->page_bytes);
        mdl_seq_add_page(&l->seq, page);
    }
}

static void end(line *l)
{
    for (int32_t i = 0; i < l->seq.n_pages; i++) {
        mdl_free(l->runner, l->seq.pages[i]);
    }
    mdl_free(l->runner, l->seq.state);
    mdl_seq_fini(&l->seq);
}

/* Logits of all n rows. */
static void run(line *l, const int32_t *ids, int32_t n, float *logits)
{
    int32_t n_rows = 0;
    di_error err;
    const mdl_item item = {.seq = &l->seq, .ids = ids, .n = n, .n_logits = n};
    if (mdl_forward(l->runner, &item, 1, logits, &n_rows, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(n_rows, n);
}

typedef struct look {
    uint64_t caches;
    int n_caches;
    int32_t recent[MDL_MAX_NGRAM];
    float drafts[MOST_BLOCK][MOST_VOCAB];
    float confidence[MOST_BLOCK];
} look;

/* Everything that what follows may depend on; a proposal behind `anchor` sees the draft's context. */
static void look_at(line *l, int32_t anchor, int32_t vocab, look *out)
{
    const mdl_seq *const seq = &l->seq;
    memset(out, 0, sizeof *out);
    digest = UINT64_C(0xCBF29CE484222325);
    n_traced = 0;
    assert_int_equal(mdl_seq_trace(&l->seq, NULL), DI_OK);
    out->caches = digest;
    out->n_caches = n_traced;
    const int32_t n_recent = l->seq.n_recent < max_ngram ? l->seq.n_recent : max_ngram;
    memcpy(out->recent, l->seq.recent, (size_t)n_recent * sizeof *out->recent);
    assert_int_equal(mdl_draft_begin(l->runner, &seq, &anchor, 1, NULL), DI_OK);
    for (int32_t i = 0, previous = anchor; i < mdl_draft_block(l->runner); i++) {
        assert_int_equal(mdl_draft_step(l->runner, i, &previous, out->drafts[i], &out->confidence[i], NULL), DI_OK);
        previous = (previous * 31 + 7) % vocab;
    }
}

static void expect_fresh(line *l, const int32_t *ids, int32_t n, int32_t anchor, const float *row, int32_t vocab)
{
    static look here;
    static look there;
    static float logits[MOST_ROWS * MOST_VOCAB];
    line fresh;
    begin(&fresh, l->runner);
    int32_t rows = 0;
    for (int32_t at = 0; at < n; at += rows) {
        rows = n - at < MOST_ROWS ? n - at : MOST_ROWS;
        run(&fresh, ids + at, rows, logits);
    }
    assert_int_equal(l->seq.n_tokens, n);
    assert_memory_equal(logits + (size_t)(rows - 1) * (size_t)vocab, row, (size_t)vocab * sizeof *row);
    look_at(l, anchor, vocab, &here);
    look_at(&fresh, anchor, vocab, &there);
    assert_true(here.n_caches > 0);
    assert_int_equal(here.n_caches, there.n_caches);
    assert_true(here.caches == there.caches);
    assert_memory_equal(&here, &there, sizeof here);
    end(&fresh);
}

/* Passes as the scheduler makes them: an anchor and drafts, of which the first few are right. */
static void write_history(mdl_runner *r, int32_t vocab, uint64_t *seed)
{
    static float logits[MOST_ROWS * MOST_VOCAB];
    int32_t ids[MOST_TOKENS + MOST_ROWS];
    line l;
    begin(&l, r);
    int32_t n = (int32_t)(1 + below(seed, MOST_ROWS));
    for (int32_t i = 0; i < n; i++) {
        ids[i] = (int32_t)below(seed, (size_t)vocab);
    }
    run(&l, ids, n, logits);
    for (int step = 0; step < STEPS && n + 1 + MOST_DRAFTS < MOST_TOKENS; step++) {
        const int32_t n_drafts = (int32_t)below(seed, MOST_DRAFTS + 1);
        const int32_t n_right = (int32_t)below(seed, (size_t)n_drafts + 1);
        for (int32_t i = 0; i <= n_drafts; i++) {
            ids[n + i] = (int32_t)below(seed, (size_t)vocab);
        }
        run(&l, ids + n, 1 + n_drafts, logits);
        mdl_seq_rewind(&l.seq, n_drafts - n_right);
        n += 1 + n_right;
        if (step % LOOK_EACH == LOOK_EACH - 1) {
            expect_fresh(&l, ids, n, (int32_t)below(seed, (size_t)vocab), logits + (size_t)n_right * (size_t)vocab, vocab);
        }
    }
    end(&l);
}

static void caches_of(const char *dir)
{
    di_model *const model = eng_model_open(dir);
    di_model_info info;
    mdl_runner *r = NULL;
    di_error err;
    di_model_get_info(model, &info);
    assert_true(info.vocab_size <= MOST_VOCAB);
    max_ngram = mdl_config_of(model)->engram.max_ngram;
    mdl_runner_options o = {.device = {.n_threads = 1}, .max_rows = MOST_ROWS, .max_tokens = MOST_TOKENS + MOST_ROWS, .draft = true, .trace = on_trace};
    o.max_tokens = o.max_tokens < info.max_tokens ? o.max_tokens : info.max_tokens;
    assert_int_equal(ops_backend_find(NULL, &o.backend, NULL), DI_OK);
    if (mdl_runner_new(model, &o, &r, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_in_range(mdl_draft_block(r), 1, MOST_BLOCK);
    for (uint64_t i = 0; i < HISTORIES; i++) {
        uint64_t seed = 77 * i + 3;
        write_history(r, info.vocab_size, &seed);
    }
    mdl_runner_free(r);
    di_model_close(model);
}

static void caches(void **state)
{
    (void)state;
    caches_of("tests/data/model/t6");
}

static void caches_of_odd_shapes(void **state)
{
    (void)state;
    caches_of("tests/data/model/t6-odd");
}

/* ---- what a sampler counts ---- */

enum { IDS = 40 };

static void expect_same_law(eng_sampler *a, eng_sampler *b, const float *logits)
{
    eng_law x = {.n = 0};
    eng_law y = {.n = 0};
    assert_int_equal(eng_sampler_law(a, logits, NULL, &x, NULL), DI_OK);
    assert_int_equal(eng_sampler_law(b, logits, NULL, &y, NULL), DI_OK);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.ids, y.ids, (size_t)x.n * sizeof *x.ids);
    assert_memory_equal(x.mass, y.mass, (size_t)x.n * sizeof *x.mass);
    eng_law_fini(&x);
    eng_law_fini(&y);
}

static void counts_of_a_sampler(void **state)
{
    (void)state;
    static const int32_t stop_ids[] = {3};
    uint64_t seed = 5;
    float logits[IDS];
    for (int i = 0; i < IDS; i++) {
        logits[i] = (float)below(&seed, 100) * 0.05f - 2.0f;
    }
    di_sampling s;
    di_sampling_default(&s);
    s.repetition_penalty = 1.3f;
    s.presence_penalty = 0.5f;
    s.frequency_penalty = 0.25f;
    s.min_tokens = 30;
    s.stop_ids = stop_ids;
    s.n_stop_ids = 1;
    eng_sampler *a = NULL;
    assert_int_equal(eng_sampler_new(&s, IDS, &a, NULL), DI_OK);
    int32_t kept[400];
    int n = 0;
    for (int step = 0; step < 60; step++) {
        int32_t drafts[MOST_DRAFTS];
        const int n_drafts = (int)below(&seed, MOST_DRAFTS + 1);
        const int n_right = (int)below(&seed, (size_t)n_drafts + 1);
        for (int i = 0; i < n_drafts; i++) {
            drafts[i] = (int32_t)below(&seed, IDS);
            eng_sampler_accept(a, drafts[i], false);
        }
        for (int i = 0; i < n_drafts; i++) {
            eng_sampler_retract(a, drafts[i]);
        }
        for (int i = 0; i < n_right; i++) {
            kept[n++] = drafts[i];
            eng_sampler_accept(a, drafts[i], false);
        }
        eng_sampler *b = NULL;
        assert_int_equal(eng_sampler_new(&s, IDS, &b, NULL), DI_OK);
        for (int i = 0; i < n; i++) {
            eng_sampler_accept(b, kept[i], false);
        }
        expect_same_law(a, b, logits);
        eng_sampler_free(b);
    }
    eng_sampler_free(a);
}

/* ---- where a grammar stands ---- */

static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":9}},"
                             "\"b\":{\"type\":\"integer\"}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}";

static int32_t any_of(const uint32_t *mask, int32_t vocab, uint64_t *seed)
{
    int32_t id = (int32_t)below(seed, (size_t)vocab);
    for (int32_t i = 0; i < vocab && (mask[id / 32] >> id % 32 & 1) == 0; i++) {
        id = (id + 1) % vocab;
    }
    return id;
}

/* Drafts are tried, taken back and verified along other tokens. False: the text has ended. */
static bool grammar_step(eng_constraint *c, const eng_constraint_options *o, int32_t vocab, int32_t *kept, int *n, uint64_t *seed)
{
    int32_t drafts[MOST_DRAFTS];
    int32_t n_drafts = 0;
    for (bool goes_on = true; goes_on && n_drafts < o->n_drafts; n_drafts++) {
        const uint32_t *const mask = eng_constraint_try_mask(c);
        if (mask == NULL) {
            break;
        }
        drafts[n_drafts] = any_of(mask, vocab, seed);
        goes_on = eng_constraint_try(c, drafts[n_drafts]);
    }
    eng_constraint_take_back(c);
    n_drafts = (int32_t)below(seed, (size_t)n_drafts + 1);
    (void)eng_constraint_prepare(c, drafts, n_drafts);
    const int32_t n_right = (int32_t)below(seed, (size_t)n_drafts + 1);
    bool ended = false;
    for (int32_t i = 0; i <= n_right && !ended; i++) {
        const uint32_t *const mask = eng_constraint_mask(c);
        assert_non_null(mask);
        kept[*n] = i < n_right ? drafts[i] : any_of(mask, vocab, seed);
        assert_true(eng_constraint_accept(c, kept[(*n)++], &ended));
    }
    return !ended;
}

static void places_in_a_grammar(void **state)
{
    (void)state;
    di_model *const model = eng_model_open("models/demo");
    di_model_info info;
    di_vocabulary *vocabulary = NULL;
    di_grammar *grammar = NULL;
    di_model_get_info(model, &info);
    assert_int_equal(di_vocabulary_new(di_model_tokenizer(model), &info.eos_token_id, 1, &vocabulary, NULL), DI_OK);
    assert_int_equal(di_grammar_compile(DI_GRAMMAR_SCHEMA, schema, sizeof schema - 1, NULL, &grammar, NULL, NULL), DI_OK);
    const eng_constraint_options o = {.grammar = grammar, .vocabulary = vocabulary, .n_drafts = MOST_DRAFTS, .max_tokens = 60};
    for (uint64_t round = 0; round < HISTORIES; round++) {
        uint64_t seed = round;
        eng_constraint *c = NULL;
        int32_t kept[512];
        int n = 0;
        assert_int_equal(eng_constraint_new(&o, &c, NULL), DI_OK);
        while (n < 60 && grammar_step(c, &o, info.vocab_size, kept, &n, &seed)) {
            eng_constraint *fresh = NULL;
            bool ended = false;
            assert_int_equal(eng_constraint_new(&o, &fresh, NULL), DI_OK);
            for (int i = 0; i < n; i++) {
                assert_true(eng_constraint_accept(fresh, kept[i], &ended));
            }
            (void)eng_constraint_prepare(c, NULL, 0);
            (void)eng_constraint_prepare(fresh, NULL, 0);
            const uint32_t *const mask = eng_constraint_mask(c);
            assert_non_null(mask);
            assert_memory_equal(mask, eng_constraint_mask(fresh), ((size_t)info.vocab_size + 31) / 32 * sizeof *mask);
            eng_constraint_free(fresh);
        }
        assert_true(n > 5);
        eng_constraint_free(c);
    }
    di_grammar_free(grammar);
    di_vocabulary_free(vocabulary);
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches),
        cmocka_unit_test(caches_of_odd_shapes),
        cmocka_unit_test(counts_of_a_sampler),
        cmocka_unit_test(places_in_a_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
