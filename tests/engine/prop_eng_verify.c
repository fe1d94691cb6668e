/* Drafts that are verified leave the distribution of the text as it is: pairs of tokens that come out of blocks of random length, drawn
 * from a draft model that is often wrong, against the exact distribution of the target, for coupling, rejection and block verification
 * under temperature, truncation, penalties, bias and masks. Chi-square over 100,000 pairs a setting, fixed seeds, each p-value above
 * 0.001 / number of settings. Block verification keeps more than rejection. Noise that is used twice, and a length that depends on the draft
 * itself, must be seen.
 * ctest: timeout=900 */
#include "engine/eng_exact.h"
#include "engine/eng_noise.h"
#include "engine/eng_sample.h"
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PAIRS = 4000, FAULTY_PAIRS = 2000 };
#else
enum { PAIRS = 100000, FAULTY_PAIRS = 25000 };
#endif

enum { V = 6, MOST = 4, PROMPT = 2, ROOM = 16 };

/* Logits behind a token: of the target, and of the draft model. */
static float target[V][V];
static float drafter[V][V];

/* Noise of drafts that residuals use too; of a position that is the same in each proposal; a length that depends on the draft itself. */
typedef enum fault { NONE, SHARED_NOISE, OLD_NOISE, OWN_LENGTH } fault;

typedef struct setting {
    const char *name;
    di_sampling s;
    bool masked;
} setting;

static const di_logit_bias bias[] = {{0, 1.0f}, {3, -0.75f}};
static const uint32_t masks[V] = {0x3F, 0x2F, 0x1E, 0x33, 0x0D, 0x3B}; /* behind a token */
static const int32_t stop_ids[] = {5};

static const setting settings[] = {
    {.name = "plain"},
    {.name = "cold", .s.temperature = 0.5f},
    {.name = "hot", .s.temperature = 2.5f},
    {.name = "top-p", .s.top_p = 0.8f},
    {.name = "top-k", .s.top_k = 3},
    {.name = "min-p", .s.min_p = 0.2f, .s.temperature = 1.3f},
    {.name = "penalties", .s.repetition_penalty = 1.4f, .s.presence_penalty = 0.6f, .s.frequency_penalty = 0.5f},
    {.name = "bias", .s.bias = bias, .s.n_bias = 2},
    {.name = "masks", .masked = true},
    {.name = "min_tokens", .s.min_tokens = 1, .s.stop_ids = stop_ids, .s.n_stop_ids = 1},
    {.name = "all", .s.temperature = 1.2f, .s.top_p = 0.9f, .s.top_k = 5, .s.min_p = 0.05f, .s.repetition_penalty = 1.2f,
     .s.presence_penalty = 0.3f, .s.frequency_penalty = 0.2f, .s.bias = bias, .s.n_bias = 2, .masked = true},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static const di_verify rules[] = {DI_VERIFY_COUPLED, DI_VERIFY_BLOCK, DI_VERIFY_REJECTION};
static const char *const rule_names[] = {"coupled", "block", "rejection"};
enum { N_RULES = 3, N_TESTS = N_SETTINGS * N_RULES };

static di_sampling complete(const setting *c)
{
    di_sampling s = c->s;
    s.temperature = s.temperature != 0.0f ? s.temperature : 1.0f;
    s.top_p = s.top_p != 0.0f ? s.top_p : 1.0f;
    s.repetition_penalty = s.repetition_penalty != 0.0f ? s.repetition_penalty : 1.0f;
    s.seed = 4711;
    return s;
}

static void make_models(void)
{
    uint64_t random = 8;
    for (int i = 0; i < V; i++) {
        for (int k = 0; k < V; k++) {
            target[i][k] = (float)(unit_random(&random) % 1000) * 0.003f;
            drafter[i][k] = target[i][k] + (float)(unit_random(&random) % 1000) * 0.002f - 1.0f;
        }
    }
}

/* One text: ids[0, n), of which the first is the prompt. */
typedef struct text {
    const setting *c;
    eng_sampler *sampler;
    di_verify rule;
    fault fault;
    int64_t base; /* position of ids[0] */
    int32_t ids[PROMPT + ROOM];
    int32_t n;
    eng_law laws[MOST]; /* of drafts */
    eng_law law;
    int64_t n_drafts; /* verified, over all texts */
    int64_t n_right;
} text;

static const uint32_t *mask_behind(const text *t, int32_t id) { return t->c->masked ? &masks[id] : NULL; }

/* Whether a proposal goes on behind `last`. How many drafts are verified follows from what stands before each, as after a look at a
 * scheduler, or at an id that ends its proposal; noise knows places alone, so drafts that nobody looks at need not be drawn. */
static bool goes_on(const text *t, int32_t last, int32_t kept)
{
    return (uint32_t)(last * 7 + kept + (int32_t)(t->base & 3)) % 5u != 0;
}

/* Up to `most` drafts behind the text. */
static int32_t propose(text *t, int32_t most, int32_t *drafts)
{
    int32_t n = 0;
    for (int32_t last = t->ids[t->n - 1]; n < most && goes_on(t, last, n); last = drafts[n++]) {
        const int64_t position = t->base + t->n + n;
        const uint32_t *const mask = mask_behind(t, last);
        if (t->rule == DI_VERIFY_COUPLED) {
            di_sample sample;
            assert_int_equal(eng_sampler_choose(t->sampler, drafter[last], position, mask, &sample, NULL), DI_OK);
            drafts[n] = sample.id;
        } else {
            const int32_t place = t->fault == SHARED_NOISE || t->fault == OLD_NOISE ? 0 : 1 + n;
            const uint32_t stream = t->fault == SHARED_NOISE ? ENG_STREAM_RESIDUAL : ENG_STREAM_DRAFT;
            assert_int_equal(eng_sampler_law(t->sampler, drafter[last], mask, &t->laws[n], NULL), DI_OK);
            drafts[n] = eng_law_draw(&t->laws[n], eng_verify_noise(4711, position, stream, place));
        }
        if (t->fault == OWN_LENGTH && drafts[n] % 2 == 0) {
            break; /* before it, not behind it */
        }
        eng_sampler_accept(t->sampler, drafts[n], false);
    }
    for (int32_t i = 0; i < n; i++) {
        eng_sampler_retract(t->sampler, drafts[i]);
    }
    return n;
}

static void add(text *t, int32_t id)
{
    eng_sampler_accept(t->sampler, id, false);
    t->ids[t->n++] = id;
}

static void verify_coupled(text *t, const int32_t *drafts, int32_t n)
{
    for (int32_t i = 0; i <= n; i++) {
        const int32_t last = t->ids[t->n - 1];
        di_sample sample;
        assert_int_equal(eng_sampler_choose(t->sampler, target[last], t->base + t->n, mask_behind(t, last), &sample, NULL), DI_OK);
        add(t, sample.id);
        if (i < n && sample.id != drafts[i]) {
            return;
        }
        t->n_right += i < n;
    }
}

static void verify_judged(text *t, const int32_t *drafts, int32_t n)
{
    eng_block b;
    int32_t last = t->ids[t->n - 1];
    int32_t counted = 0;
    eng_block_start(&b, t->rule, 4711, t->base + t->n, n);
    for (;;) {
        const int32_t i = b.row;
        assert_int_equal(eng_sampler_law(t->sampler, target[last], mask_behind(t, last), &t->law, NULL), DI_OK);
        if (!eng_block_row(&b, &t->law, i < n ? &t->laws[i] : NULL, i < n ? drafts[i] : -1)) {
            break;
        }
        last = drafts[counted++];
        eng_sampler_accept(t->sampler, last, false);
    }
    while (counted > 0) {
        eng_sampler_retract(t->sampler, drafts[--counted]);
    }
    for (int32_t i = 0; i < b.n_right; i++) {
        add(t, drafts[i]);
    }
    add(t, b.next);
    t->n_right += b.n_right;
}

/* The first three tokens behind the prompt. */
static void write_text(text *t, int64_t base)
{
    t->base = base;
    t->n = PROMPT;
    while (t->n < PROMPT + 3) {
        int32_t drafts[MOST];
        const int32_t n = propose(t, MOST, drafts);
        t->n_drafts += n;
        if (t->rule == DI_VERIFY_COUPLED) {
            verify_coupled(t, drafts, n);
        } else {
            verify_judged(t, drafts, n);
        }
    }
    for (int32_t i = PROMPT; i < t->n; i++) {
        eng_sampler_retract(t->sampler, t->ids[i]);
    }
}

/* Of the three, two by two: `first` of all pairs, `second` of the pairs behind. */
static void exact_pairs(const setting *c, const int32_t *prompt, double first[V * V], double second[V * V])
{
    const di_sampling s = complete(c);
    int32_t ids[2];
    memset(first, 0, V * V * sizeof *first);
    memset(second, 0, V * V * sizeof *second);
    for (int i = 0; i < V * V; i++) {
        double p[3][V];
        const int32_t behind[] = {prompt[PROMPT - 1], i / V, i % V};
        for (size_t k = 0; k < 3; k++) {
            const exact_text before = {.prompt = prompt, .n_prompt = PROMPT, .sampled = ids, .n_sampled = k};
            exact_law(&s, &before, c->masked ? &masks[behind[k]] : NULL, target[behind[k]], V, p[k]);
            if (k < 2) {
                ids[k] = behind[k + 1];
            }
        }
        first[i] = p[0][i / V] * p[1][i % V];
        for (int k = 0; k < V; k++) {
            second[i % V * V + k] += first[i] * p[2][k];
        }
    }
}

/* The smaller p-value of both kinds of pairs. */
static double value_of(const setting *c, di_verify rule, fault wrong, int pairs, double *kept)
{
    const di_sampling s = complete(c);
    text t = {.c = c, .rule = rule, .fault = wrong, .ids = {4, 2}};
    int seen[2][V * V] = {{0}};
    double p[2][V * V];
    assert_int_equal(eng_sampler_new(&s, V, &t.sampler, NULL), DI_OK);
    for (int i = 0; i < PROMPT; i++) {
        eng_sampler_accept(t.sampler, t.ids[i], true);
    }
    for (int64_t i = 0; i < pairs; i++) {
        write_text(&t, i * (PROMPT + ROOM));
        for (int k = 0; k < 2; k++) {
            seen[k][t.ids[PROMPT + k] * V + t.ids[PROMPT + k + 1]]++;
        }
    }
    exact_pairs(c, t.ids, p[0], p[1]);
    *kept = (double)t.n_right / (double)t.n_drafts;
    eng_sampler_free(t.sampler);
    eng_law_fini(&t.law);
    for (int i = 0; i < MOST; i++) {
        eng_law_fini(&t.laws[i]);
    }
    const double first = exact_p_value(seen[0], p[0], V * V, pairs);
    return fmin(first, exact_p_value(seen[1], p[1], V * V, pairs));
}

static void texts_follow_the_target_and_blocks_keep_more(void **state)
{
    (void)state;
    make_models();
    for (int i = 0; i < N_SETTINGS; i++) {
        double kept[N_RULES];
        for (int k = 0; k < N_RULES; k++) {
            const double value = value_of(&settings[i], rules[k], NONE, PAIRS, &kept[k]);
            print_message("%-12s %-10s p = %.4f, %.3f of drafts kept\n", settings[i].name, rule_names[k], value, kept[k]);
            assert_true(value > 0.001 / (2 * N_TESTS));
        }
        assert_true(PAIRS < 100000 || kept[1] > kept[2]);
    }
}

static void faults_are_seen(void **state)
{
    (void)state;
    make_models();
    for (int i = 1; i < N_RULES; i++) {
        for (fault wrong = SHARED_NOISE; wrong <= OWN_LENGTH; wrong++) {
            double kept;
            const double value = value_of(&settings[0], rules[i], wrong, FAULTY_PAIRS, &kept);
            print_message("%-10s fault %d p = %.2g\n", rule_names[i], (int)wrong, value);
            /* Rejection never looks at drafts behind the first wrong one, so their noise is as good as new. */
            assert_true(PAIRS < 100000 || value < 1e-6 || (rules[i] == DI_VERIFY_REJECTION && wrong == OLD_NOISE));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_follow_the_target_and_blocks_keep_more),
        cmocka_unit_test(faults_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
