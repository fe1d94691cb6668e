/* eng_noise_avx2.c - eng_noise_fractions for processors with AVX2, four ids to a register.
 *
 * Each Philox word lies in the low half of a 64-bit lane: the multiplication reads only that half and leaves the low product
 * there and the high one a shift away, so what remains in high halves never needs clearing. Other processors get a copy of the
 * plain loop that is never called. */
#include "engine/eng_noise_loop.h"

#if defined(__AVX2__)
#include <immintrin.h>

static __m256i all(uint32_t word)
{
    return _mm256_set1_epi64x((int64_t)word);
}

void eng_noise_fractions_avx2(uint64_t seed, int64_t position, uint32_t stream, const int32_t *ids, size_t n, uint64_t *out)
{
    const uint64_t p = (uint64_t)position;
    const __m256i low = all(UINT32_MAX);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint32_t key0 = (uint32_t)seed;
        uint32_t key1 = (uint32_t)(seed >> 32);
        __m256i w0 = all((uint32_t)p);
        __m256i w1 = all((uint32_t)(p >> 32));
        __m256i w2 = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(ids + i)));
        __m256i w3 = all(stream);
        for (int round = 0; round < 10; round++) {
            const __m256i p0 = _mm256_mul_epu32(w0, all(ENG_PHILOX_M0));
            const __m256i p1 = _mm256_mul_epu32(w2, all(ENG_PHILOX_M1));
            w0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(w1, all(key0)));
            w2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(w3, all(key1)));
            w1 = p1;
            w3 = p0;
            key0 += ENG_PHILOX_K0;
            key1 += ENG_PHILOX_K1;
        }
        const __m256i fraction = _mm256_or_si256(_mm256_slli_epi64(w0, 32), _mm256_and_si256(w1, low));
        _mm256_storeu_si256((__m256i *)(out + i), fraction);
    }
    noise_loop(seed, position, stream, ids + i, n - i, out + i);
}
#else
void eng_noise_fractions_avx2(uint64_t seed, int64_t position, uint32_t stream, const int32_t *ids, size_t n, uint64_t *out)
{
    noise_loop(seed, position, stream, ids, n, out);
}
#endif
