/* cpu_panels_gfni.c - the panel kernel for FP8 in quads, for AVX-512 with GFNI.
 *
 * The bits of a bf16 are sums modulo two of the bits of a normal E4M3 code and ones: with exponent e3 e2 e1 e0 the
 * wider exponent is e3, four times not e3, e2 e1 e0. So one affine instruction makes the upper byte of 64 values and
 * another the lower, two interleave them, and a bf16 becomes fp32 by a shift or a mask: two instructions a vector
 * instead of four through fp16. Zeros and subnormals come out wrong; blocks that hold some are marked when a matrix is
 * packed. */
#include "cpu/cpu_int.h"
#include "cpu/cpu_vector_avx512.inc"

#include <math.h>

#define ROWS_MAX 12
#define PANELS_FEW 4
#define PANELS_MANY 2
#define PANELS_NAME cpu_panels_gfni
#define ONLY_QUADS

/* Byte 7 - i of a matrix says which bits of a code add up to bit i of the result. */
static inline __m512i upper_bytes(__m512i codes)
{
    /* sign, e3, then e3 four times (inverted by the constant), e2, e1 */
    return _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(0x1020404040404080), 0x3C);
}

static inline __m512i lower_bytes(__m512i codes)
{
    /* e0, three bits of mantissa, zeros */
    return _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(0x0000000001020408), 0);
}

/* Inputs 2 pair and 2 pair + 1 of four, from both bytes of 64 values. */
static inline void from_bytes(__m512i upper, __m512i lower, size_t pair, vf out[2][PV])
{
    const __m512i words = pair == 0 ? _mm512_unpacklo_epi8(lower, upper) : _mm512_unpackhi_epi8(lower, upper);
    out[0][0] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    out[1][0] = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32((int)0xFFFF0000u)));
}

static inline void vf_quads(const uint8_t *p, size_t pair, vf out[2][PV])
{
    const __m512i codes = _mm512_loadu_si512(p);
    from_bytes(upper_bytes(codes), lower_bytes(codes), pair, out);
}

/* With zeros and subnormals: their eight values stand in tables. */
static inline void vf_quads_exact(const uint8_t *p, size_t pair, vf out[2][PV])
{
    const __m512i upper_table =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i lower_table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 0, (char)0x80, (char)0xC0, 0, 0x20, 0x40, 0x60, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i codes = _mm512_loadu_si512(p);
    const __mmask64 small = _mm512_testn_epi8_mask(codes, _mm512_set1_epi8(0x78));
    const __m512i mantissa = _mm512_and_si512(codes, _mm512_set1_epi8(7));
    const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8((char)0x80));
    const __m512i upper = _mm512_or_si512(_mm512_shuffle_epi8(upper_table, mantissa), sign);
    const __m512i lower = _mm512_shuffle_epi8(lower_table, mantissa);
    from_bytes(_mm512_mask_mov_epi8(upper_bytes(codes), small, upper),
               _mm512_mask_mov_epi8(lower_bytes(codes), small, lower), pair, out);
}

#include "cpu/cpu_panels_body.inc"
