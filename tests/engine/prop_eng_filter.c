/* The cut of min-p, top-k and top-p, and the best few, against a full sort over random vocabularies: flat, peaked, full of
 * ties, with infinities; the cut must be the same id, not nearly the same. */
#include "engine/eng_filter.h"

#include "engine/eng_gumbel.h"
#include "engine/eng_logprob.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define MAX_VOCAB 3000
#define ROUNDS 3000

static uint32_t random_word(uint32_t *n)
{
    return eng_philox((eng_words){{(*n)++, 0, 0, 0}}, 4242, 0).w[0];
}

static float random_unit(uint32_t *n)
{
    return (float)(random_word(n) >> 8) * 0x1p-24f;
}

static int falling(const void *pa, const void *pb)
{
    const uint64_t a = *(const uint64_t *)pa;
    const uint64_t b = *(const uint64_t *)pb;
    return a < b ? 1 : -(a > b);
}

static void fill(float *logits, int32_t vocab, uint32_t *n)
{
    const float width = exp2f(random_unit(n) * 10.0f - 3.0f); /* 1/8 to 128 */
    const uint32_t kind = random_word(n) % 4;
    for (int32_t i = 0; i < vocab; i++) {
        const float x = (random_unit(n) + random_unit(n) + random_unit(n) - 1.5f) * width;
        logits[i] = kind == 0 ? roundf(x) : x;
        if (kind == 1 && random_word(n) % 8 == 0) {
            logits[i] = random_word(n) % 64 == 0 ? INFINITY : -INFINITY;
        }
    }
    logits[random_word(n) % (uint32_t)vocab] = 0.5f; /* never all -inf */
}

/* How many of the sorted keys stay. */
static size_t naive_kept(const di_sampling *s, const uint64_t *keys, size_t n, float max)
{
    const float z_min = s->min_p > 0.0f ? eng_log(s->min_p) : -INFINITY;
    size_t kept = 0;
    while (kept < n && eng_scale(eng_order_logit(keys[kept]), max, s->temperature) >= z_min) {
        kept++;
    }
    if (s->top_k > 0 && kept > (size_t)s->top_k) {
        kept = (size_t)s->top_k;
    }
    if (s->top_p == 1.0f) {
        return kept;
    }
    uint64_t total = 0;
    for (size_t i = 0; i < kept; i++) {
        total += eng_mass(eng_scale(eng_order_logit(keys[i]), max, s->temperature));
    }
    const double limit = floor((double)s->top_p * (double)total);
    uint64_t before = 0;
    for (size_t i = 0; i < kept; i++) {
        if (i > 0 && (double)before >= limit) {
            return i;
        }
        before += eng_mass(eng_scale(eng_order_logit(keys[i]), max, s->temperature));
    }
    return kept;
}

static void draw_settings(di_sampling *s, int32_t vocab, uint32_t *n)
{
    di_sampling_default(s);
    s->temperature = 0.1f + 2.0f * random_unit(n);
    const uint32_t on = random_word(n);
    s->min_p = (on & 1) != 0 ? powf(random_unit(n), 3.0f) : 0.0f;
    s->top_k = (on & 2) != 0 ? (int32_t)(random_word(n) % (uint32_t)(vocab + 5)) + 1 : 0;
    s->top_k = (on & 4) != 0 && s->top_k > 60 ? 60 : s->top_k;
    s->top_p = (on & 8) != 0 ? random_unit(n) : (on & 16) != 0 ? 1.0f - random_unit(n) * 0.01f : 1.0f;
}

static void cut_is_that_of_a_full_sort(void **state)
{
    (void)state;
    static float logits[MAX_VOCAB];
    static uint64_t keys[MAX_VOCAB];
    uint32_t n = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const int32_t vocab = (int32_t)(random_word(&n) % (round % 3 == 0 ? MAX_VOCAB : 50)) + 1;
        di_sampling s;
        draw_settings(&s, vocab, &n);
        fill(logits, vocab, &n);
        size_t n_keys = 0;
        for (int32_t i = 0; i < vocab; i++) {
            if (logits[i] > -INFINITY) {
                keys[n_keys++] = eng_order_key(logits[i], i);
            }
        }
        qsort(keys, n_keys, sizeof keys[0], falling);
        const float max = eng_highest(logits, vocab);
        assert_true(max == eng_order_logit(keys[0]));
        const size_t want = naive_kept(&s, keys, n_keys, max);
        eng_filter f;
        assert_int_equal(eng_filter_init(&f, &s, vocab, NULL), DI_OK);
        const eng_cut cut = eng_filter_cut(&f, logits, max);
        eng_filter_fini(&f);
        assert_true(want >= 1);
        for (size_t i = 0; i < n_keys; i++) {
            const float z = eng_scale(eng_order_logit(keys[i]), max, s.temperature);
            assert_int_equal(keys[i] >= cut.key && z >= cut.z_min, i < want);
        }
    }
}

static void best_few_are_those_of_a_full_sort(void **state)
{
    (void)state;
    static float logits[MAX_VOCAB];
    static uint64_t keys[MAX_VOCAB];
    uint32_t n = 1u << 30;
    for (int round = 0; round < 500; round++) {
        const int32_t vocab = (int32_t)(random_word(&n) % (round % 3 == 0 ? MAX_VOCAB : 30)) + 1;
        const int32_t n_top = (int32_t)(random_word(&n) % (DI_MAX_TOP_LOGPROBS + 1));
        fill(logits, vocab, &n);
        int32_t n_keys = 0;
        for (int32_t i = 0; i < vocab; i++) {
            if (logits[i] > -INFINITY) {
                keys[n_keys++] = eng_order_key(logits[i], i);
            }
        }
        qsort(keys, (size_t)n_keys, sizeof keys[0], falling);
        uint64_t best[DI_MAX_TOP_LOGPROBS];
        const int32_t got = eng_best(logits, vocab, n_top, best);
        assert_int_equal(got, n_keys < n_top ? n_keys : n_top);
        assert_memory_equal(best, keys, (size_t)got * sizeof best[0]);
    }
}

static void order_key_is_reversible_and_ordered(void **state)
{
    (void)state;
    const float rising[] = {-INFINITY, -3e38f, -1.5f, -1e-44f, 0.0f, 1e-44f, 2.0f, 3e38f, INFINITY};
    for (size_t i = 0; i < sizeof rising / sizeof rising[0]; i++) {
        const uint64_t key = eng_order_key(rising[i], 129279);
        assert_true(eng_order_logit(key) == rising[i]);
        assert_int_equal(eng_order_id(key), 129279);
        assert_true(eng_order_key(rising[i], 129278) > key);
        assert_true(i == 0 || key > eng_order_key(rising[i - 1], 0));
    }
    assert_int_equal(eng_order_key(-0.0f, 3), eng_order_key(0.0f, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_is_that_of_a_full_sort),
        cmocka_unit_test(best_few_are_those_of_a_full_sort),
        cmocka_unit_test(order_key_is_reversible_and_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
