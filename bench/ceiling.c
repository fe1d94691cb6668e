/* ceiling.c - see ceiling.h. The loops do nothing else, so their speed is a bound for every kernel of a thread. */
#include "ceiling.h"

#include "ops/vector.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef uint64_t words __attribute__((vector_size(64), may_alias));

/* Four lines of each stream a step. */
static inline __attribute__((always_inline)) uint64_t read_streams(const uint8_t *data, size_t n, const size_t streams,
                                                                   const size_t ahead)
{
    words sum[4] = {{0}};
    const size_t share = n / streams / 256 * 256;
    for (size_t i = 0; i < share; i += 256) {
        for (size_t s = 0; s < streams; s++) {
            const uint8_t *p = data + s * share + i;
            for (size_t l = 0; l < 4; l++) {
                if (ahead != 0) {
                    __builtin_prefetch(p + ahead + 64 * l);
                }
                words x;
                memcpy(&x, p + 64 * l, sizeof x);
                sum[l] |= x;
            }
        }
    }
    sum[0] |= sum[1] | sum[2] | sum[3];
    return sum[0][0] | sum[0][1] | sum[0][2] | sum[0][3] | sum[0][4] | sum[0][5] | sum[0][6] | sum[0][7];
}

OPS_CLONES uint64_t ceiling_read(const uint8_t *data, size_t n, int way)
{
    switch (way) {
    case 0:
        return read_streams(data, n, 1, 0);
    case 1:
        return read_streams(data, n, 1, 4096);
    case 2:
        return read_streams(data, n, 2, 1024);
    default:
        return read_streams(data, n, 4, 1024);
    }
}

#if defined(__x86_64__)
#define CHAINS 24

__attribute__((target("avx512f"))) static double fma_avx512(size_t n, float *sink)
{
    __m512 sum[CHAINS];
    const __m512 a = _mm512_set1_ps(*sink);
    const __m512 b = _mm512_set1_ps(0x1p-3f);
    for (size_t i = 0; i < CHAINS; i++) {
        sum[i] = _mm512_set1_ps((float)i);
    }
    for (size_t r = 0; r < n; r++) {
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            sum[i] = _mm512_fmadd_ps(a, b, sum[i]);
        }
    }
    for (size_t i = 0; i < CHAINS; i++) {
        *sink += _mm512_reduce_add_ps(sum[i]);
    }
    return (double)n * CHAINS * 16;
}

__attribute__((target("avx512f,avx512bf16"))) static double dot_avx512(size_t n, float *sink)
{
    __m512 sum[CHAINS];
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(*sink), _mm512_set1_ps(*sink));
    const __m512bh b = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0x1p-3f), _mm512_set1_ps(0x1p-3f));
    for (size_t i = 0; i < CHAINS; i++) {
        sum[i] = _mm512_set1_ps((float)i);
    }
    for (size_t r = 0; r < n; r++) {
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
        }
    }
    for (size_t i = 0; i < CHAINS; i++) {
        *sink += _mm512_reduce_add_ps(sum[i]);
    }
    return (double)n * CHAINS * 32;
}

__attribute__((target("avx2,fma"))) static double fma_avx2(size_t n, float *sink)
{
    __m256 sum[12];
    const __m256 a = _mm256_set1_ps(*sink);
    const __m256 b = _mm256_set1_ps(0x1p-3f);
    for (size_t i = 0; i < 12; i++) {
        sum[i] = _mm256_set1_ps((float)i);
    }
    for (size_t r = 0; r < 2 * n; r++) {
#pragma GCC unroll 12
        for (size_t i = 0; i < 12; i++) {
            sum[i] = _mm256_fmadd_ps(a, b, sum[i]);
        }
    }
    for (size_t i = 0; i < 12; i++) {
        float lane[8];
        _mm256_storeu_ps(lane, sum[i]);
        *sink += lane[0] + lane[1] + lane[2] + lane[3] + lane[4] + lane[5] + lane[6] + lane[7];
    }
    return (double)n * 2 * 12 * 8;
}

double ceiling_fma(size_t n, float *sink)
{
    if (__builtin_cpu_supports("avx512f")) {
        return fma_avx512(n, sink);
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? fma_avx2(n, sink) : 0.0;
}

double ceiling_dot(size_t n, float *sink) { return __builtin_cpu_supports("avx512bf16") ? dot_avx512(n, sink) : 0.0; }
#else
double ceiling_fma(size_t n, float *sink)
{
    (void)n;
    (void)sink;
    return 0.0;
}

double ceiling_dot(size_t n, float *sink)
{
    (void)n;
    (void)sink;
    return 0.0;
}
#endif
