/* cpu_tile_avx512.c - the tile kernel for AVX-512 F/BW/VL: two vectors of sixteen a tile. */
#include "cpu/cpu_int.h"

#include <immintrin.h>

#define NV 2
#define FUSED_ROWS 4
#define DECODED ((ops_format)100) /* fp32 tile of exact products */
#define TILE_NAME cpu_tile_avx512

typedef __m512 vf;

static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }

static inline void from_half(__m512i h, vf out[NV])
{
    out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(h));
    out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1));
}

/* seeee mmm -> fp16 s0eeee mmm0000000: the sign-extended byte moved up by seven, its copy of the sign in bit 14 cleared. */
static inline void decode_fp8(const uint8_t *p, vf out[NV])
{
    __m512i b = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    from_half(_mm512_and_si512(_mm512_slli_epi16(b, 7), _mm512_set1_epi16((short)0xBF80)), out);
}

/* The eight magnitudes have an fp16 whose low byte is zero: look up the high byte. Even outputs are low nibbles. */
static inline void decode_fp4(const uint8_t *p, vf out[NV])
{
    const __m128i table = _mm_setr_epi8(0, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46, (char)0x80, (char)0xB8, (char)0xBC, (char)0xBE,
                                        (char)0xC0, (char)0xC2, (char)0xC4, (char)0xC6);
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i low = _mm_shuffle_epi8(table, _mm_and_si128(b, nibble));
    __m128i high = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(b, 4), nibble));
    __m256i bytes = _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
    from_half(_mm512_slli_epi16(_mm512_cvtepu8_epi16(bytes), 8), out);
}

static inline void decode_bf16(const uint8_t *p, vf out[NV])
{
    for (int v = 0; v < NV; v++) {
        __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32 * v));
        out[v] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
    }
}

#include "cpu/cpu_tile_body.inc"
