/* e^x of the stages: within 0.501 ulp of the true value, the special values, and the same bits whatever stands beside a
 * value. */
#include "support/unit.h"

#include "ops/formats.h"
#include "ops/ops_exp.h"

static void values_are_within_half_an_ulp(void **state)
{
    (void)state;
    static float x[4096], y[4096];
    for (uint64_t base = 0; base < (uint64_t)1 << 32; base += 4096 * 4099u) {
        for (size_t i = 0; i < 4096; i++) {
            x[i] = fmt_float((uint32_t)(base + i * 4099));
        }
        ops_exp(x, 4096, y);
        for (size_t i = 0; i < 4096; i++) {
            const double want = exp((double)x[i]);
            if (x[i] != x[i]) {
                assert_true(y[i] != y[i]);
            } else if ((float)want > 1.2e-38f && (float)want < INFINITY) {
                assert_true(fabs((double)y[i] - want) <= 0.501 * ldexp(1.0, ilogb(want) - 23));
            } else {
                assert_true(fabs((double)y[i] - want) <= 0x1p-149 || y[i] == (float)want);
            }
        }
    }
}

static void special_values_are_exact(void **state)
{
    (void)state;
    float x[] = {0.0f, -0.0f, INFINITY, -INFINITY, 1e30f, -1e30f, 89.0f, -104.0f};
    const float want[] = {1.0f, 1.0f, INFINITY, 0.0f, INFINITY, 0.0f, INFINITY, 0.0f};
    ops_exp(x, 8, x);
    assert_memory_equal(x, want, sizeof want);
}

static void neighbours_do_not_matter(void **state)
{
    (void)state;
    float x[23], all[23], one;
    uint64_t seed = 1;
    for (size_t i = 0; i < 23; i++) {
        x[i] = (float)(int32_t)unit_random(&seed) * 0x1p-26f;
    }
    for (size_t n = 1; n <= 23; n++) {
        ops_exp(x, n, all);
        for (size_t i = 0; i < n; i++) {
            ops_exp(x + i, 1, &one);
            assert_memory_equal(&one, &all[i], sizeof one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_within_half_an_ulp),
        cmocka_unit_test(special_values_are_exact),
        cmocka_unit_test(neighbours_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
