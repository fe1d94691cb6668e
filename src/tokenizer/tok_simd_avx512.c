/* tok_simd_avx512.c - cutting with AVX-512BW: a window is one vector, a comparison gives its mask. */
#include "tokenizer/tok_int.h"

#include <immintrin.h>

#define CUT_NAME tok_cut_avx512
#include "tokenizer/tok_simd_body.inc"

/* Bytes in [low, low + n). */
static inline uint64_t between(__m512i bytes, char low, char n)
{
    return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8(low)), _mm512_set1_epi8(n));
}

static inline masks classify(const uint8_t *s)
{
    const __m512i bytes = _mm512_loadu_si512(s);
    masks m;
    m.letters = between(_mm512_or_si512(bytes, _mm512_set1_epi8(0x20)), 'a', 26);
    m.digits = between(bytes, '0', 10);
    m.signs = between(bytes, '!', 0x7F - '!') & ~(m.letters | m.digits);
    m.spaces = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(' '));
    m.newlines = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\n')) | _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8('\r'));
    m.blanks = (between(bytes, '\t', 5) & ~m.newlines) | m.spaces;
    return m;
}
