/* The sampler on hand-made logits: each field of di_sampling, extremes, errors, counting. */
#include "engine/eng_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define V 8

static const float logits_a[V] = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f, -3.0f, 0.0f, 1.5f};

static di_sampling greedy(void)
{
    di_sampling s;
    di_sampling_default(&s);
    s.temperature = 0.0f;
    return s;
}

static eng_sampler *make(const di_sampling *settings, int32_t vocab)
{
    eng_sampler *s = NULL;
    di_error err;
    assert_int_equal(eng_sampler_new(settings, vocab, &s, &err), DI_OK);
    return s;
}

static int32_t choose(eng_sampler *s, const float *logits, const uint32_t *mask)
{
    di_sample out;
    di_error err;
    assert_int_equal(eng_sampler_choose(s, logits, 0, mask, &out, &err), DI_OK);
    return out.id;
}

static int32_t choose_once(const di_sampling *settings, const float *logits, const uint32_t *mask)
{
    eng_sampler *s = make(settings, V);
    const int32_t id = choose(s, logits, mask);
    eng_sampler_free(s);
    return id;
}

/* Bit i is set when id i came up in 4,000 draws. */
static uint32_t support(const di_sampling *settings, const float *logits, const uint32_t *mask)
{
    eng_sampler *s = make(settings, V);
    uint32_t seen = 0;
    for (int64_t position = 0; position < 4000; position++) {
        di_sample out;
        assert_int_equal(eng_sampler_choose(s, logits, position, mask, &out, NULL), DI_OK);
        seen |= 1u << out.id;
    }
    eng_sampler_free(s);
    return seen;
}

static void greedy_takes_the_highest_and_of_equal_ones_the_lowest_id(void **state)
{
    (void)state;
    const di_sampling s = greedy();
    assert_int_equal(choose_once(&s, logits_a, NULL), 1);
    const float zeros[V] = {-1.0f, -0.0f, 0.0f, -1, -1, -1, -1, -1};
    assert_int_equal(choose_once(&s, zeros, NULL), 1);
}

static void mask_forbids_ids(void **state)
{
    (void)state;
    const di_sampling s = greedy();
    const uint32_t not_1 = 0xFFFFFFFFu & ~(1u << 1);
    assert_int_equal(choose_once(&s, logits_a, &not_1), 3);
    di_sampling noisy;
    di_sampling_default(&noisy);
    const uint32_t two = 1u << 2 | 1u << 6;
    assert_int_equal(support(&noisy, logits_a, &two), two);
}

static void mask_of_nothing_is_a_state_error(void **state)
{
    (void)state;
    const di_sampling settings = greedy();
    eng_sampler *s = make(&settings, V);
    const uint32_t none = 0xFFFFFF00u; /* only bits past the vocabulary */
    di_sample out;
    di_error err;
    assert_int_equal(eng_sampler_choose(s, logits_a, 0, &none, &out, &err), DI_E_STATE);
    assert_non_null(strstr(err.message, "mask"));
    eng_sampler_free(s);
}

static void bias_moves_a_choice_but_not_its_logprob(void **state)
{
    (void)state;
    di_sampling settings = greedy();
    const di_logit_bias bias[] = {{5, 4.0f}, {5, 2.0f}};
    settings.bias = bias;
    settings.n_bias = 2;
    eng_sampler *s = make(&settings, V);
    di_sample out;
    assert_int_equal(eng_sampler_choose(s, logits_a, 0, NULL, &out, NULL), DI_OK);
    assert_int_equal(out.id, 5);
    double sum = 0;
    for (int i = 0; i < V; i++) {
        sum += exp((double)logits_a[i]);
    }
    assert_true(fabs((double)out.logprob - (-3.0 - log(sum))) < 1e-6);
    eng_sampler_free(s);
}

static void repetition_penalty_counts_prompt_and_output_once(void **state)
{
    (void)state;
    di_sampling settings = greedy();
    settings.repetition_penalty = 2.0f;
    const float l[V] = {4.0f, 3.9f, 1.0f, 1.0f, -1.0f, -1.5f, -9, -9};
    eng_sampler *s = make(&settings, V);
    assert_int_equal(choose(s, l, NULL), 0);
    eng_sampler_accept(s, 0, true);
    eng_sampler_accept(s, 0, true);
    assert_int_equal(choose(s, l, NULL), 1); /* 4 -> 2, not 1 */
    eng_sampler_accept(s, 1, false);
    assert_int_equal(choose(s, l, NULL), 0); /* 2 against 1.95 */
    const uint32_t negative = 1u << 4 | 1u << 5;
    assert_int_equal(choose(s, l, &negative), 4);
    eng_sampler_accept(s, 4, false);
    assert_int_equal(choose(s, l, &negative), 5); /* -1 -> -2 */
    eng_sampler_free(s);
}

static void presence_and_frequency_count_the_output_only(void **state)
{
    (void)state;
    di_sampling settings = greedy();
    settings.presence_penalty = 0.5f;
    settings.frequency_penalty = 1.0f;
    const float l[V] = {4.0f, 2.6f, 1.4f, -9, -9, -9, -9, -9};
    eng_sampler *s = make(&settings, V);
    eng_sampler_accept(s, 0, true);
    assert_int_equal(choose(s, l, NULL), 0);
    eng_sampler_accept(s, 0, false);
    assert_int_equal(choose(s, l, NULL), 1); /* 4 - 1 - 0.5 = 2.5 */
    eng_sampler_accept(s, 1, false);
    assert_int_equal(choose(s, l, NULL), 0);
    eng_sampler_accept(s, 0, false);
    assert_int_equal(choose(s, l, NULL), 0); /* 4 - 2 - 0.5 = 1.5 against 1.4 and 1.1 */
    eng_sampler_accept(s, 0, false);
    assert_int_equal(choose(s, l, NULL), 2);
    eng_sampler_retract(s, 0);
    assert_int_equal(choose(s, l, NULL), 0);
    eng_sampler_free(s);
}

static void min_tokens_forbids_stop_ids_until_enough_were_sampled(void **state)
{
    (void)state;
    di_sampling settings = greedy();
    const int32_t stop[] = {1, 3};
    settings.stop_ids = stop;
    settings.n_stop_ids = 2;
    settings.min_tokens = 2;
    eng_sampler *s = make(&settings, V);
    eng_sampler_accept(s, 7, true); /* a prompt id does not count */
    assert_int_equal(choose(s, logits_a, NULL), 7);
    eng_sampler_accept(s, 7, false);
    assert_int_equal(choose(s, logits_a, NULL), 7);
    eng_sampler_accept(s, 7, false);
    di_sample out;
    assert_int_equal(eng_sampler_choose(s, logits_a, 0, NULL, &out, NULL), DI_OK);
    assert_int_equal(out.id, 1);
    assert_true(out.is_stop);
    eng_sampler_retract(s, 7);
    assert_int_equal(eng_sampler_choose(s, logits_a, 0, NULL, &out, NULL), DI_OK);
    assert_int_equal(out.id, 7);
    assert_false(out.is_stop);
    const uint32_t only_stop = 1u << 3;
    di_error err;
    assert_int_equal(eng_sampler_choose(s, logits_a, 0, &only_stop, &out, &err), DI_E_STATE);
    assert_non_null(strstr(err.message, "min_tokens"));
    eng_sampler_free(s);
}

static void filters_keep_a_prefix_with_ties_to_the_lower_id(void **state)
{
    (void)state;
    di_sampling s;
    di_sampling_default(&s);
    s.top_k = 1; /* ids 1 and 3 tie */
    assert_int_equal(support(&s, logits_a, NULL), 1u << 1);
    s.top_k = 3;
    assert_int_equal(support(&s, logits_a, NULL), 1u << 1 | 1u << 3 | 1u << 7);
    s.top_k = V;
    assert_int_equal(support(&s, logits_a, NULL), 0xFF);
    s.top_k = 0;
    s.top_p = 0.0f;
    assert_int_equal(support(&s, logits_a, NULL), 1u << 1);
    const float quarter[V] = {0, 0, 0, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    s.top_p = 0.5f; /* exactly two of four: the third starts at 0.5, which is not below it */
    assert_int_equal(support(&s, quarter, NULL), 3);
    s.top_p = 0.51f;
    assert_int_equal(support(&s, quarter, NULL), 7);
    s.top_k = 2; /* top-p is of what top-k kept */
    s.top_p = 0.4f;
    assert_int_equal(support(&s, quarter, NULL), 1);
    di_sampling_default(&s);
    s.min_p = 1.0f;
    assert_int_equal(support(&s, logits_a, NULL), 1u << 1 | 1u << 3);
    s.min_p = 0.5f; /* 1.5 is e^-0.5 = 0.61 of the best, 1.0 is 0.37 */
    assert_int_equal(support(&s, logits_a, NULL), 1u << 1 | 1u << 3 | 1u << 7);
    s.temperature = 2.0f; /* after temperature: e^-0.5 for 1.0, e^-0.75 = 0.47 for 0.5 */
    assert_int_equal(support(&s, logits_a, NULL), 1u << 1 | 1u << 3 | 1u << 7 | 1u << 4);
}

static void infinite_logits_are_defined(void **state)
{
    (void)state;
    const float l[V] = {0, INFINITY, 3, INFINITY, -INFINITY, 3.4e38f, 1, 2};
    di_sampling s = greedy();
    assert_int_equal(choose_once(&s, l, NULL), 1);
    di_sampling_default(&s);
    assert_int_equal(support(&s, l, NULL), 1u << 1 | 1u << 3);
    s.top_p = 0.9f;
    s.top_k = 5;
    s.min_p = 0.1f;
    s.n_top_logprobs = 4;
    assert_int_equal(support(&s, l, NULL), 1u << 1 | 1u << 3);
    eng_sampler *sampler = make(&s, V);
    di_sample out;
    assert_int_equal(eng_sampler_choose(sampler, l, 5, NULL, &out, NULL), DI_OK);
    assert_true(fabsf(out.logprob + 0.6931472f) < 1e-6f);
    assert_int_equal(out.n_top, 4);
    assert_int_equal(out.top[0].id, 1);
    assert_int_equal(out.top[1].id, 3);
    assert_int_equal(out.top[2].id, 5);
    assert_true(out.top[1].logprob == out.top[0].logprob);
    assert_true(out.top[2].logprob == -INFINITY);
    eng_sampler_free(sampler);
}

static void nan_and_all_minus_infinity_are_format_errors(void **state)
{
    (void)state;
    di_sampling settings;
    di_sampling_default(&settings);
    eng_sampler *s = make(&settings, V);
    float l[V];
    memcpy(l, logits_a, sizeof l);
    l[6] = NAN;
    const uint32_t without_6 = ~(1u << 6);
    di_sample out = {.id = 77};
    di_error err;
    assert_int_equal(eng_sampler_choose(s, l, 0, NULL, &out, &err), DI_E_FORMAT);
    assert_non_null(strstr(err.message, "id 6"));
    assert_int_equal(eng_sampler_choose(s, l, 0, &without_6, &out, NULL), DI_E_FORMAT);
    for (int i = 0; i < V; i++) {
        l[i] = -INFINITY;
    }
    assert_int_equal(eng_sampler_choose(s, l, 0, NULL, &out, &err), DI_E_FORMAT);
    assert_non_null(strstr(err.message, "-inf"));
    assert_int_equal(eng_sampler_choose(s, logits_a, -1, NULL, &out, NULL), DI_E_ARGUMENT);
    assert_int_equal(out.id, 77);
    eng_sampler_free(s);
}

static void top_logprobs_are_best_first_and_of_the_masked_raw_logits(void **state)
{
    (void)state;
    di_sampling settings = greedy();
    settings.n_top_logprobs = 5;
    settings.temperature = 0.25f;
    settings.top_k = 2;
    eng_sampler *s = make(&settings, V);
    di_sample out;
    const uint32_t mask = 0xFFu & ~(1u << 7);
    assert_int_equal(eng_sampler_choose(s, logits_a, 0, &mask, &out, NULL), DI_OK);
    static const int32_t want[] = {1, 3, 4, 0, 6};
    double sum = 0;
    for (int i = 0; i < 7; i++) {
        sum += exp((double)logits_a[i]);
    }
    assert_int_equal(out.n_top, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(out.top[i].id, want[i]);
        assert_true(fabs((double)out.top[i].logprob - ((double)logits_a[want[i]] - log(sum))) < 1e-6);
    }
    const uint32_t two = 1u << 0 | 1u << 4;
    assert_int_equal(eng_sampler_choose(s, logits_a, 0, &two, &out, NULL), DI_OK);
    assert_int_equal(out.n_top, 2);
    eng_sampler_free(s);
}

static void choosing_depends_on_seed_and_position_alone(void **state)
{
    (void)state;
    di_sampling settings;
    di_sampling_default(&settings);
    settings.seed = 5;
    eng_sampler *a = make(&settings, V);
    eng_sampler *b = make(&settings, V);
    settings.seed = eng_sampler_choice_seed(5, 1);
    eng_sampler *c = make(&settings, V);
    int differ = 0;
    for (int64_t p = 0; p < 200; p++) {
        di_sample x;
        di_sample y;
        di_sample z;
        assert_int_equal(eng_sampler_choose(a, logits_a, p, NULL, &x, NULL), DI_OK);
        assert_int_equal(eng_sampler_choose(b, logits_a, 199 - p, NULL, &y, NULL), DI_OK); /* other positions in between */
        assert_int_equal(eng_sampler_choose(b, logits_a, p, NULL, &y, NULL), DI_OK);
        assert_int_equal(eng_sampler_choose(c, logits_a, p, NULL, &z, NULL), DI_OK);
        assert_int_equal(x.id, y.id);
        differ += x.id != z.id;
    }
    assert_true(differ > 100);
    eng_sampler_free(a);
    eng_sampler_free(b);
    eng_sampler_free(c);
}

static void refuse(const di_sampling *s, const char *field)
{
    eng_sampler *out = NULL;
    di_error err;
    assert_int_equal(eng_sampler_new(s, V, &out, &err), DI_E_ARGUMENT);
    assert_null(out);
    assert_non_null(strstr(err.message, field));
    assert_non_null(strstr(err.message, "must be"));
}

static void settings_out_of_range_are_named(void **state)
{
    (void)state;
    di_sampling good;
    di_sampling_default(&good);
    di_sampling s = good;
#define REFUSE(field, value) s = good, s.field = (value), refuse(&s, #field)
    REFUSE(temperature, -0.1f);
    REFUSE(temperature, NAN);
    REFUSE(temperature, INFINITY);
    REFUSE(top_p, 1.1f);
    REFUSE(min_p, -1.0f);
    REFUSE(top_k, -1);
    REFUSE(repetition_penalty, 0.0f);
    REFUSE(presence_penalty, 2.5f);
    REFUSE(frequency_penalty, -2.5f);
    REFUSE(min_tokens, -1);
    REFUSE(n_top_logprobs, 21);
#undef REFUSE
    const di_logit_bias bias[] = {{0, 1.0f}, {V, 1.0f}};
    s = good;
    s.bias = bias;
    s.n_bias = 2;
    refuse(&s, "bias.id");
    const di_logit_bias nan_bias = {0, NAN};
    s.bias = &nan_bias;
    s.n_bias = 1;
    refuse(&s, "bias.bias");
    const int32_t stop = -1;
    s = good;
    s.stop_ids = &stop;
    s.n_stop_ids = 1;
    refuse(&s, "stop_ids");
    eng_sampler *out = NULL;
    assert_int_equal(eng_sampler_new(&good, 0, &out, NULL), DI_E_ARGUMENT);
    assert_int_equal(eng_sampler_new(&good, ENG_MAX_VOCAB + 1, &out, NULL), DI_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_highest_and_of_equal_ones_the_lowest_id),
        cmocka_unit_test(mask_forbids_ids),
        cmocka_unit_test(mask_of_nothing_is_a_state_error),
        cmocka_unit_test(bias_moves_a_choice_but_not_its_logprob),
        cmocka_unit_test(repetition_penalty_counts_prompt_and_output_once),
        cmocka_unit_test(presence_and_frequency_count_the_output_only),
        cmocka_unit_test(min_tokens_forbids_stop_ids_until_enough_were_sampled),
        cmocka_unit_test(filters_keep_a_prefix_with_ties_to_the_lower_id),
        cmocka_unit_test(infinite_logits_are_defined),
        cmocka_unit_test(nan_and_all_minus_infinity_are_format_errors),
        cmocka_unit_test(top_logprobs_are_best_first_and_of_the_masked_raw_logits),
        cmocka_unit_test(choosing_depends_on_seed_and_position_alone),
        cmocka_unit_test(settings_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
