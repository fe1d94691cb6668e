/* Block forms of scale and mass give the bits of the scalar ones, plain and with AVX2. */
#include "engine/eng_mass_loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void fill(float *x, int32_t n, uint32_t round)
{
    for (int32_t i = 0; i < n; i++) {
        const eng_words r = eng_philox((eng_words){{(uint32_t)i, round, 0, 0}}, 3, 4);
        x[i] = (float)(r.w[0] >> 8) * 0x1p-24f * 40.0f - 30.0f;
        x[i] = r.w[1] % 9 == 0 ? -INFINITY : x[i];
        x[i] = r.w[1] % 9 == 1 && round % 5 == 0 ? INFINITY : x[i];
    }
}

static float highest(const float *x, int32_t n)
{
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    return max;
}

static void blocks_have_the_bits_of_single_values(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 2000; round++) {
        const int32_t n = (int32_t)(round % ENG_BLOCK) + 1;
        const float temperature = 0.05f + 0.01f * (float)(round % 300);
        float x[ENG_BLOCK];
        float plain_z[ENG_BLOCK];
        float z[ENG_BLOCK];
        uint64_t plain_mass[ENG_BLOCK];
        uint64_t mass[ENG_BLOCK];
        fill(x, n, round);
        x[0] = 1.0f;
        const float max = highest(x, n);
        scale_loop(x, n, max, temperature, plain_z);
        eng_scale_block(x, n, max, temperature, z);
        mass_loop(plain_z, n, plain_mass);
        eng_mass_block(z, n, mass);
        for (int32_t i = 0; i < n; i++) {
            const float want = eng_scale(x[i], max, temperature);
            assert_int_equal(eng_bits_of(plain_z[i]), eng_bits_of(want));
            assert_int_equal(eng_bits_of(z[i]), eng_bits_of(want));
            assert_int_equal(plain_mass[i], eng_mass(want));
            assert_int_equal(mass[i], eng_mass(want));
        }
    }
}

static void mass_ends_at_the_floor(void **state)
{
    (void)state;
    const float z[] = {0.0f, -0.0f, -1e-40f, ENG_MASS_FLOOR, nextafterf(ENG_MASS_FLOOR, -INFINITY), -1e30f, -INFINITY};
    uint64_t mass[7];
    eng_mass_block(z, 7, mass);
    assert_int_equal(mass[0], (uint64_t)1 << 44);
    assert_int_equal(mass[1], (uint64_t)1 << 44);
    assert_int_equal(mass[2], (uint64_t)1 << 44);
    assert_int_equal(mass[3], 0); /* e^-31 is 0.6 units, truncated */
    for (int i = 4; i < 7; i++) {
        assert_int_equal(mass[i], 0);
    }
    for (int i = 0; i < 7; i++) {
        assert_int_equal(mass[i], eng_mass(z[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_bits_of_single_values),
        cmocka_unit_test(mass_ends_at_the_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
