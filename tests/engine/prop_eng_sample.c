/* What the sampler draws against the exact distribution, computed in double precision by sorting: chi-square over 120,000 draws
 * a setting, fixed seeds, each p-value above 0.001 / number of settings. Likewise pairs of draws at neighbouring positions and
 * of neighbouring choices, which must be independent.
 * ctest: timeout=300 */
#include "engine/eng_exact.h"
#include "engine/eng_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define V 40
#define DRAWS 120000

typedef struct setting {
    const char *name;
    di_sampling s;
    bool tied;         /* logits on a grid of 1/2 */
    const uint32_t *mask;
    bool by_seed;      /* draws differ in seed instead of position */
} setting;

static const di_logit_bias bias[] = {{0, 3.0f}, {1, -100.0f}, {17, 1.25f}};
static const uint32_t mask[2] = {0x5A5AF00Fu, 0xFFFFFFFFu};
static const int32_t prompt[] = {2, 3, 4, 4, 39};
static const int32_t sampled[] = {4, 5, 5, 5, 6, 39};
static const int32_t stop_ids[] = {7, 8};

static setting settings[] = {
    {.name = "plain"},
    {.name = "plain by seed", .by_seed = true},
    {.name = "hot", .s.temperature = 3.0f},
    {.name = "cold", .s.temperature = 0.4f, .tied = true},
    {.name = "masked", .mask = mask},
    {.name = "bias", .s.bias = bias, .s.n_bias = 3},
    {.name = "repetition", .s.repetition_penalty = 1.7f},
    {.name = "presence and frequency", .s.presence_penalty = 0.75f, .s.frequency_penalty = -0.5f},
    {.name = "min_tokens", .s.min_tokens = 100, .s.stop_ids = stop_ids, .s.n_stop_ids = 2},
    {.name = "min-p", .s.min_p = 0.05f, .s.temperature = 1.5f},
    {.name = "top-k with ties", .s.top_k = 9, .tied = true},
    {.name = "top-p with ties", .s.top_p = 0.83f, .tied = true},
    {.name = "top-p 0.999", .s.top_p = 0.999f},
    {.name = "all", .s.top_p = 0.9f, .s.top_k = 15, .s.min_p = 0.01f, .s.temperature = 1.3f, .s.bias = bias, .s.n_bias = 3,
     .s.repetition_penalty = 1.2f, .s.presence_penalty = 0.3f, .s.frequency_penalty = 0.2f, .mask = mask, .tied = true},
};
#define N_SETTINGS (sizeof settings / sizeof settings[0])

static void complete(di_sampling *s)
{
    s->temperature = s->temperature != 0.0f ? s->temperature : 1.0f;
    s->top_p = s->top_p != 0.0f ? s->top_p : 1.0f;
    s->repetition_penalty = s->repetition_penalty != 0.0f ? s->repetition_penalty : 1.0f;
    s->seed = 20240607;
}

static void make_logits(bool tied, float logits[V])
{
    uint32_t x = 12345;
    for (int i = 0; i < V; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            x = x * 1664525u + 1013904223u;
            sum += (float)(x >> 8) * 0x1p-24f - 0.5f;
        }
        logits[i] = tied ? roundf(sum * 4.0f) * 0.5f : sum * 3.0f;
    }
}

static eng_sampler *make(const setting *c, uint64_t seed)
{
    di_sampling s = c->s;
    s.seed = seed;
    eng_sampler *sampler = NULL;
    assert_int_equal(eng_sampler_new(&s, V, &sampler, NULL), DI_OK);
    for (size_t i = 0; i < sizeof prompt / sizeof prompt[0]; i++) {
        eng_sampler_accept(sampler, prompt[i], true);
    }
    for (size_t i = 0; i < sizeof sampled / sizeof sampled[0]; i++) {
        eng_sampler_accept(sampler, sampled[i], false);
    }
    return sampler;
}

static void count_draws(const setting *c, const float *logits, int seen[V])
{
    eng_sampler *sampler = make(c, c->s.seed);
    for (int i = 0; i < DRAWS; i++) {
        if (c->by_seed) {
            eng_sampler_free(sampler);
            sampler = make(c, eng_sampler_choice_seed(c->s.seed, (uint32_t)i));
        }
        di_sample out;
        assert_int_equal(eng_sampler_choose(sampler, logits, c->by_seed ? 3 : i, c->mask, &out, NULL), DI_OK);
        seen[out.id]++;
    }
    eng_sampler_free(sampler);
}

static void draws_follow_the_exact_distribution(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        complete(&settings[i].s);
        float logits[V];
        double p[V];
        int seen[V] = {0};
        make_logits(settings[i].tied, logits);
        const exact_text text = {.prompt = prompt, .n_prompt = sizeof prompt / sizeof prompt[0], .sampled = sampled,
                                 .n_sampled = sizeof sampled / sizeof sampled[0]};
        exact_law(&settings[i].s, &text, settings[i].mask, logits, V, p);
        count_draws(&settings[i], logits, seen);
        const double value = exact_p_value(seen, p, V, DRAWS);
        print_message("%-24s p = %.4f\n", settings[i].name, value);
        assert_true(value > 0.001 / (double)N_SETTINGS);
    }
}

#define SMALL 8

/* Pairs (a, b) of draws: at positions i and i + 1 of one choice, or of two choices at position i. */
static double pair_value(const float *logits, bool choices)
{
    di_sampling s;
    di_sampling_default(&s);
    s.seed = 99;
    eng_sampler *a = NULL;
    eng_sampler *b = NULL;
    assert_int_equal(eng_sampler_new(&s, SMALL, &a, NULL), DI_OK);
    s.seed = choices ? eng_sampler_choice_seed(99, 1) : 99;
    assert_int_equal(eng_sampler_new(&s, SMALL, &b, NULL), DI_OK);
    int seen[SMALL * SMALL] = {0};
    for (int64_t i = 0; i < DRAWS; i++) {
        di_sample x;
        di_sample y;
        assert_int_equal(eng_sampler_choose(a, logits, 2 * i, NULL, &x, NULL), DI_OK);
        assert_int_equal(eng_sampler_choose(b, logits, 2 * i + (choices ? 0 : 1), NULL, &y, NULL), DI_OK);
        seen[x.id * SMALL + y.id]++;
    }
    eng_sampler_free(a);
    eng_sampler_free(b);
    double p[SMALL * SMALL];
    double sum = 0;
    for (int i = 0; i < SMALL; i++) {
        sum += exp((double)logits[i]);
    }
    for (int i = 0; i < SMALL * SMALL; i++) {
        p[i] = exp((double)logits[i / SMALL] + (double)logits[i % SMALL]) / (sum * sum);
    }
    return exact_p_value(seen, p, SMALL * SMALL, DRAWS);
}

static void neighbouring_draws_are_independent(void **state)
{
    (void)state;
    const float logits[SMALL] = {0.0f, 0.5f, -0.5f, 1.0f, 0.25f, -1.0f, 0.0f, 0.75f};
    for (int choices = 0; choices < 2; choices++) {
        const double value = pair_value(logits, choices != 0);
        print_message("%-24s p = %.4f\n", choices != 0 ? "pairs of choices" : "pairs of positions", value);
        assert_true(value > 0.001 / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_exact_distribution),
        cmocka_unit_test(neighbouring_draws_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
