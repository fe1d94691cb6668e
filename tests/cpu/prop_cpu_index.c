/* The CPU backend's index scoring equals the reference bit by bit: keys of every code and scale, missing keys, odd
 * numbers of heads, for every instruction set that this machine has. */
#include "support/unit.h"

#include "cpu/cpu.h"
#include "cpu/cpu_int.h"
#include "ops/ref.h"

#include <stdio.h>

enum { N = 160, HEADS = 70, ROW = N / 2 + N / 32 };

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fmt_bits(a[i]) != fmt_bits(b[i]) && !(a[i] != a[i] && b[i] != b[i])) {
            return false;
        }
    }
    return true;
}

static const cpu_kernels *isa(int i)
{
    const bool wide =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    return i == 0 ? &cpu_kernels_avx2 : i == 1 && wide ? &cpu_kernels_avx512 : NULL;
}

static void keys_unpack_like_the_reference(void **state)
{
    (void)state;
    static uint8_t packed[REF_TILE][ROW];
    static float want[N * REF_TILE], got[N * REF_TILE];
    uint64_t seed = 4;
    for (int round = 0; round < 200; round++) {
        const uint8_t *rows[REF_TILE];
        for (size_t j = 0; j < REF_TILE; j++) {
            for (size_t i = 0; i < ROW; i++) {
                packed[j][i] = (uint8_t)unit_random(&seed);
            }
            rows[j] = unit_random(&seed) % 8 == 0 ? NULL : packed[j];
        }
        ref_unpack_keys(rows, N, want);
        for (int i = 0; isa(i) != NULL; i++) {
            isa(i)->unpack_keys(rows, N, got);
            assert_true(same(got, want, N * REF_TILE));
        }
    }
}

static void products_have_the_references_order(void **state)
{
    (void)state;
    static float a[HEADS * N], keys[N * REF_TILE], want[HEADS * REF_TILE], got[HEADS * REF_TILE];
    uint64_t seed = 6;
    for (size_t i = 0; i < HEADS * N; i++) {
        a[i] = bf16_round((float)(int32_t)unit_random(&seed) * 0x1p-30f);
    }
    for (size_t i = 0; i < N * REF_TILE; i++) {
        keys[i] = bf16_round((float)(int32_t)unit_random(&seed) * 0x1p-30f);
    }
    for (size_t m = 1; m <= HEADS; m++) {
        ref_products(a, m, keys, N, want);
        for (int i = 0; isa(i) != NULL; i++) {
            isa(i)->products(a, m, keys, N, got);
            assert_memory_equal(got, want, m * REF_TILE * sizeof *want);
        }
    }
}

int main(void)
{
    if (!cpu_backend.available()) {
        printf("skipped: this processor has no AVX2\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_unpack_like_the_reference),
        cmocka_unit_test(products_have_the_references_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
