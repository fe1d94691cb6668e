/* Philox against the published known answers; logarithm, exponential and Gumbel noise against double precision. */
#include "engine/eng_gumbel.h"
#include "engine/eng_noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

/* Random123, kat_vectors, philox4x32 with 10 rounds. */
static void philox_gives_the_published_words(void **state)
{
    (void)state;
    static const struct {
        eng_words counter;
        uint32_t key[2];
        uint32_t want[4];
    } cases[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const eng_words got = eng_philox(cases[i].counter, cases[i].key[0], cases[i].key[1]);
        assert_memory_equal(got.w, cases[i].want, sizeof got.w);
    }
}

/* The same words through the counter layout: id and stream are words 2 and 3. */
static void noise_reads_position_id_stream_and_seed(void **state)
{
    (void)state;
    const uint64_t seed = 0x299f31d0a4093822u;
    const int64_t position = 0x05a308d3243f6a88;
    const int32_t id = 0x13198a2e;
    const eng_words counter = {{0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}};
    const eng_words want = eng_philox(counter, 0xa4093822, 0x299f31d0);
    uint64_t fraction;
    eng_noise_fractions(seed, position, 0x03707344, &id, 1, &fraction);
    assert_int_equal(fraction, (uint64_t)want.w[0] << 32 | want.w[1]);
    const float g = eng_gumbel(seed, position, id, 0x03707344);
    assert_true(g == eng_gumbel_of(fraction));
}

static void vector_code_gives_the_same_words(void **state)
{
    (void)state;
    int32_t ids[100];
    uint64_t plain[100];
    uint64_t wide[100];
    for (int i = 0; i < 100; i++) {
        ids[i] = i * 1297 + 5;
    }
    eng_noise_fractions(77, (int64_t)1 << 40, 2, ids, 100, plain);
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2")) {
        skip();
    }
#endif
    eng_noise_fractions_avx2(77, (int64_t)1 << 40, 2, ids, 100, wide);
    assert_memory_equal(plain, wide, sizeof plain);
}

/* Distance in units of the last place of the fp32 result. */
static double ulps(float got, double want)
{
    int e;
    (void)frexp(want, &e);
    return fabs((double)got - want) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static void log_is_within_two_ulp(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t bits = 0x00800000u; bits < 0x7F800000u; bits += 1009) {
        const float x = eng_float_of(bits);
        worst = fmax(worst, ulps(eng_log(x), log((double)x)));
    }
    for (uint32_t bits = 0x3F7F0000u; bits < 0x3F810000u; bits++) { /* around 1, where log vanishes */
        const float x = eng_float_of(bits);
        worst = bits == 0x3F800000u ? worst : fmax(worst, ulps(eng_log(x), log((double)x)));
    }
    print_message("eng_log: %.3f ulp\n", worst);
    assert_true(worst < 2.0);
    assert_true(eng_log(1.0f) == 0.0f);
}

static void exp_is_within_two_ulp(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = 0.0f; x >= -32.0f; x -= 0x1.1p-15f) {
        worst = fmax(worst, ulps(eng_exp(x), exp((double)x)));
    }
    print_message("eng_exp: %.3f ulp\n", worst);
    assert_true(worst < 2.0);
    assert_true(eng_exp(0.0f) == 1.0f);
}

static double gumbel_in_double(uint64_t fraction)
{
    const long double v = (long double)(fraction | 1u) * 0x1p-64L;
    return (double)-logl(-log1pl(-v));
}

static void gumbel_follows_double_precision_to_both_ends(void **state)
{
    (void)state;
    double worst = 0;
    for (int shift = 0; shift < 64; shift++) {
        for (uint32_t i = 0; i < 4096; i++) {
            const eng_words r = eng_philox((eng_words){{i, (uint32_t)shift, 0, 0}}, 1, 2);
            const uint64_t f = ((uint64_t)r.w[0] << 32 | r.w[1]) >> shift;
            const uint64_t both[2] = {f, ~f};
            for (int k = 0; k < 2; k++) {
                const double want = gumbel_in_double(both[k]);
                worst = fmax(worst, fabs((double)eng_gumbel_of(both[k]) - want) / (1.0 + fabs(want)));
            }
        }
    }
    print_message("eng_gumbel: %.3g (1 + |g|)\n", worst);
    assert_true(worst < 3e-7);
    assert_true(isfinite(eng_gumbel_of(0)));
    assert_true(isfinite(eng_gumbel_of(UINT64_MAX)));
    assert_true(eng_gumbel_of(0) <= ENG_GUMBEL_MAX);
}

/* Fixed values, so that another compiler, processor or a GPU is held to the same bits. */
static void gumbel_has_the_recorded_bits(void **state)
{
    (void)state;
    uint32_t sum = 2166136261u; /* FNV-1a over the bits */
    for (int32_t id = 0; id < 100000; id++) {
        const uint32_t bits = eng_bits_of(eng_gumbel(42, 1000 + id % 7, id, (uint32_t)id % 4));
        sum = (sum ^ bits) * 16777619u;
    }
    print_message("digest of 100,000 noises: %08x\n", sum);
    assert_int_equal(sum, 0x3c0f4e2fu);
}

static void race_is_the_plain_argmax(void **state)
{
    (void)state;
    for (int64_t position = 0; position < 300; position++) {
        const int32_t n = (int32_t)(position * 7 % 500 + 1);
        eng_race race;
        eng_race_start(&race, 9, position, ENG_STREAM_TOKEN);
        int32_t want = -1;
        float best = -INFINITY;
        for (int32_t id = 0; id < n; id++) {
            const float z = -(float)(id * 37 % 101) * 0.1f;
            const float score = z + eng_gumbel(9, position, id, ENG_STREAM_TOKEN);
            if (score > best) {
                best = score;
                want = id;
            }
            eng_race_enter(&race, id, z);
        }
        assert_int_equal(eng_race_finish(&race), want);
    }
}

static void bound_is_above_every_noise(void **state)
{
    (void)state;
    for (int zeros = 0; zeros < 64; zeros++) {
        const uint64_t least = (uint64_t)1 << (63 - zeros); /* the least fraction has the largest noise */
        const float g = eng_gumbel_of(least);
        assert_true(g <= eng_gumbel_bound(zeros));
        assert_true(zeros < 4 || g > eng_gumbel_bound(zeros - 1));
        assert_true(g <= ENG_GUMBEL_MAX);
    }
}

/* At z = -1e9 fp32 swallows the noise, so all scores are the same. */
static void equal_scores_go_to_the_lowest_id(void **state)
{
    (void)state;
    eng_race race;
    eng_race_start(&race, 1, 2, ENG_STREAM_TOKEN);
    for (int32_t id = 5; id < 500; id++) {
        eng_race_enter(&race, id, -1e9f);
    }
    assert_int_equal(eng_race_finish(&race), 5);
}

static void runs_and_single_ids_may_be_mixed(void **state)
{
    (void)state;
    for (int64_t position = 0; position < 200; position++) {
        float z[200];
        eng_race single;
        eng_race mixed;
        eng_race_start(&single, 3, position, ENG_STREAM_DRAFT);
        eng_race_start(&mixed, 3, position, ENG_STREAM_DRAFT);
        for (int32_t id = 0; id < 200; id++) {
            z[id] = id % 3 == 0 ? -INFINITY : -(float)(id % 7);
            eng_race_enter(&single, id, z[id]);
        }
        for (int32_t id = 0; id < 10; id++) {
            eng_race_enter(&mixed, id, z[id]);
        }
        eng_race_enter_run(&mixed, 10, z + 10, ENG_NOISE_BLOCK);
        eng_race_enter_run(&mixed, 10 + ENG_NOISE_BLOCK, z + 10 + ENG_NOISE_BLOCK, 26);
        for (int32_t id = 100; id < 200; id++) {
            eng_race_enter(&mixed, id, z[id]);
        }
        const int32_t want = eng_race_finish(&single);
        assert_true(want % 3 != 0);
        assert_int_equal(eng_race_finish(&mixed), want);
    }
    eng_race none;
    eng_race_start(&none, 1, 1, 0);
    assert_int_equal(eng_race_finish(&none), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(noise_reads_position_id_stream_and_seed),
        cmocka_unit_test(vector_code_gives_the_same_words),
        cmocka_unit_test(log_is_within_two_ulp),
        cmocka_unit_test(exp_is_within_two_ulp),
        cmocka_unit_test(gumbel_follows_double_precision_to_both_ends),
        cmocka_unit_test(gumbel_has_the_recorded_bits),
        cmocka_unit_test(race_is_the_plain_argmax),
        cmocka_unit_test(bound_is_above_every_noise),
        cmocka_unit_test(equal_scores_go_to_the_lowest_id),
        cmocka_unit_test(runs_and_single_ids_may_be_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
