/* tok_simd.c - which ways to cut text this processor can run. */
#include "tokenizer/tok_int.h"

tok_cut_fn *tok_cut_variant(size_t i)
{
    tok_cut_fn *variants[4] = {NULL};
    size_t n = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
        variants[n++] = tok_cut_avx512;
    }
    if (avx2) {
        variants[n++] = tok_cut_avx2;
    }
#endif
    variants[n] = tok_cut_plain;
    return i <= n ? variants[i] : NULL;
}
