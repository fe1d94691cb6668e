/* cpu_tile_avx2.c - the tile kernel for AVX2 + FMA + F16C: four vectors of eight a tile. */
#include "cpu/cpu_int.h"

#include <immintrin.h>

#define NV 4
#define FUSED_ROWS 1
#define DECODED ((ops_format)100) /* fp32 tile of exact products */
#define TILE_NAME cpu_tile_avx2

typedef __m256 vf;

static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }

static inline void from_half(__m256i h, vf out[2])
{
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}

/* seeee mmm -> fp16 s0eeee mmm0000000: the sign-extended byte moved up by seven, its copy of the sign in bit 14 cleared. */
static inline void decode_fp8(const uint8_t *p, vf out[NV])
{
    for (int half = 0; half < 2; half++) {
        __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * half)));
        from_half(_mm256_and_si256(_mm256_slli_epi16(b, 7), _mm256_set1_epi16((short)0xBF80)), out + 2 * half);
    }
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
    from_half(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(low, high)), 8), out);
    from_half(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_unpackhi_epi8(low, high)), 8), out + 2);
}

static inline void decode_bf16(const uint8_t *p, vf out[NV])
{
    for (int v = 0; v < NV; v++) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * v));
        out[v] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
    }
}

#include "cpu/cpu_tile_body.inc"
