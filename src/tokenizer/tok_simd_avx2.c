/* tok_simd_avx2.c - cutting with AVX2: a window is two vectors. */
#include "tokenizer/tok_int.h"

#include <immintrin.h>

#define CUT_NAME tok_cut_avx2
#include "tokenizer/tok_simd_body.inc"

typedef struct window {
    __m256i low;
    __m256i high;
} window;

static inline uint64_t mask_of(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

static inline uint64_t equal(window w, char c)
{
    const __m256i all = _mm256_set1_epi8(c);
    return mask_of(_mm256_cmpeq_epi8(w.low, all), _mm256_cmpeq_epi8(w.high, all));
}

/* Bytes in [low, low + n), each as 0xFF. */
static inline __m256i half_between(__m256i bytes, char low, char n)
{
    const __m256i from_low = _mm256_sub_epi8(bytes, _mm256_set1_epi8(low));
    return _mm256_cmpeq_epi8(_mm256_min_epu8(from_low, _mm256_set1_epi8((char)(n - 1))), from_low);
}

static inline uint64_t between(window w, char low, char n)
{
    return mask_of(half_between(w.low, low, n), half_between(w.high, low, n));
}

static inline masks classify(const uint8_t *s)
{
    const __m256i fold = _mm256_set1_epi8(0x20);
    const window w = {
        .low = _mm256_loadu_si256((const __m256i *)(const void *)s),
        .high = _mm256_loadu_si256((const __m256i *)(const void *)(s + 32)),
    };
    const window folded = {.low = _mm256_or_si256(w.low, fold), .high = _mm256_or_si256(w.high, fold)};
    masks m;
    m.letters = between(folded, 'a', 26);
    m.digits = between(w, '0', 10);
    m.signs = between(w, '!', 0x7F - '!') & ~(m.letters | m.digits);
    m.spaces = equal(w, ' ');
    m.newlines = equal(w, '\n') | equal(w, '\r');
    m.blanks = (between(w, '\t', 5) & ~m.newlines) | m.spaces;
    return m;
}
