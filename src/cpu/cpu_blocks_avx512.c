/* cpu_blocks_avx512.c - attention of one query with few heads: its logits with blocks of a row in the lanes.
 *
 * A logit is a sum over the partial sums of sixteen channels (ops/ref.h). Those partial sums do not depend on one
 * another, so a lane takes one each: rows are decoded in block order, where each 256 channels are turned like a matrix
 * of 16 x 16 (16 i + b holds channel 16 b + i), and step i of the inner loop multiplies channel i of sixteen blocks.
 * Four heads and four rows have their sixteen vectors of partial sums side by side; these are turned, and then added
 * in ascending order with a logit in each lane. No lane is ever empty, however few heads there are.
 *
 * Weighted sums treat all channels alike, so that they take rows in block order as they are. */
#include "cpu/cpu_int.h"
#include "cpu/cpu_vector_avx512.inc"

#include <math.h>

#define SIDE 16
#define CHUNK (SIDE * SIDE) /* channels that are turned together */
#define FOUR 4              /* heads and rows at a time */

/* Sixteen vectors turned: four rounds, each interleaving vectors whose numbers differ in one bit. */
CPU_INLINE void turn(vf row[SIDE])
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    CPU_UNROLL
    for (int round = 0; round < 4; round++) {
        vf next[SIDE];
        CPU_UNROLL
        for (int i = 0; i < SIDE / 2; i++) {
            next[2 * i] = _mm512_permutex2var_ps(row[i], low, row[i + SIDE / 2]);
            next[2 * i + 1] = _mm512_permutex2var_ps(row[i], high, row[i + SIDE / 2]);
        }
        CPU_UNROLL
        for (int i = 0; i < SIDE; i++) {
            row[i] = next[i];
        }
    }
}

static void turn_row(float *x, size_t n)
{
    for (size_t c = 0; c < n; c += CHUNK) {
        vf row[SIDE];
        for (size_t i = 0; i < SIDE; i++) {
            row[i] = vf_load(x + c + i * SIDE);
        }
        turn(row);
        for (size_t i = 0; i < SIDE; i++) {
            vf_store(x + c + i * SIDE, row[i]);
        }
    }
}

/* --- Decoding ---------------------------------------------------------------------------------------------------- */

enum { BIAS = 8 }; /* vf_fp8 gives values / 2^8 */

/* Whether a row has a NaN, or a scale whose product with 2^8 is no normal number. */
static bool is_special(const uint8_t *row, size_t n)
{
    const __m512i magnitude = _mm512_set1_epi8(0x7F);
    __mmask64 found = 0;
    for (size_t i = 0; i < n; i += 64) {
        const __m512i x = _mm512_and_si512(_mm512_loadu_si512(row + i), magnitude);
        found |= _mm512_cmpeq_epi8_mask(x, magnitude);
    }
    for (size_t i = 0; i < n / 32; i += CHUNK / 32) {
        const __m128i scale = _mm_loadl_epi64((const __m128i *)(const void *)(row + n + i));
        found |= _mm_cmpge_epu8_mask(scale, _mm_set1_epi8((char)(0xFF - BIAS)));
    }
    return found != 0;
}

/* The scales of sixteen blocks, two of which share one, times 2^8. Exact for all that is not special, zero too. */
CPU_INLINE vf scales_of(const uint8_t *codes)
{
    const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)codes));
    const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(BIAS)), 23);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi32(pairs, power));
}

/* The bytes of sixteen blocks turned: out[w] holds byte 4 w of all blocks, then byte 4 w + 1, 4 w + 2, 4 w + 3. */
CPU_INLINE void turn_codes(const uint8_t *codes, __m512i out[4])
{
    const __m512i words01 = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i words23 = _mm512_add_epi32(words01, _mm512_set1_epi32(2));
    const __m512i bytes =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i z[4];
    for (size_t i = 0; i < 4; i++) {
        z[i] = _mm512_loadu_si512(codes + 64 * i);
    }
    const __m512i a01 = _mm512_permutex2var_epi32(z[0], words01, z[1]);
    const __m512i a23 = _mm512_permutex2var_epi32(z[0], words23, z[1]);
    const __m512i b01 = _mm512_permutex2var_epi32(z[2], words01, z[3]);
    const __m512i b23 = _mm512_permutex2var_epi32(z[2], words23, z[3]);
    out[0] = _mm512_shuffle_i64x2(a01, b01, 0x44);
    out[1] = _mm512_shuffle_i64x2(a01, b01, 0xEE);
    out[2] = _mm512_shuffle_i64x2(a23, b23, 0x44);
    out[3] = _mm512_shuffle_i64x2(a23, b23, 0xEE);
    for (size_t i = 0; i < 4; i++) {
        out[i] = _mm512_permutexvar_epi32(places, _mm512_shuffle_epi8(out[i], bytes));
    }
}

/* Two steps of sixteen codes, times s. */
CPU_INLINE void store_e4m3(__m256i codes, vf s, float *out)
{
    vf v[2][PV];
    vf_fp8_of(codes, v);
    vf_store(out, vf_mul(v[0][0], s));
    vf_store(out + SIDE, vf_mul(v[1][0], s));
}

/* As unpack_q8 of cpu_rows_body.inc, in block order. */
static void unpack_q8(const uint8_t *row, size_t n, float *x)
{
    if (is_special(row, n)) {
        fmt_q8_unpack(row, n, x);
        turn_row(x, n);
        return;
    }
    for (size_t c = 0; c < n; c += CHUNK) {
        __m512i turned[4];
        const vf s = scales_of(row + n + c / 32);
        turn_codes(row + c, turned);
        CPU_UNROLL
        for (size_t i = 0; i < 4; i++) {
            float *out = x + c + i * 4 * SIDE;
            store_e4m3(_mm512_castsi512_si256(turned[i]), s, out);
            store_e4m3(_mm512_extracti64x4_epi64(turned[i], 1), s, out + 2 * SIDE);
        }
    }
}

/* Sixteen E4M3 codes, NaN as the table has it. */
CPU_INLINE vf values_of(__m128i codes)
{
    vf v[2][PV];
    const __m128i magnitude = _mm_set1_epi8(0x7F);
    const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(codes, magnitude), magnitude);
    vf_fp8_of(_mm256_castsi128_si256(codes), v);
    return _mm512_mask_mov_ps(vf_mul(v[0][0], vf_set1(256.0f)), nan, _mm512_set1_ps(NAN));
}

/* A block is eight bytes: the first and the second word of all blocks, whose nibbles are a step each. */
static void unpack_q4n(const uint8_t *row, size_t n, float *x)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (size_t c = 0; c < n; c += CHUNK) {
        const __m512i low = _mm512_loadu_si512(row + c / 2);
        const __m512i high = _mm512_loadu_si512(row + c / 2 + 64);
        const __m512i words[2] = {_mm512_permutex2var_epi32(low, even, high),
                                  _mm512_permutex2var_epi32(low, odd, high)};
        const vf s = values_of(_mm_loadu_si128((const __m128i *)(const void *)(row + n / 2 + c / 16)));
        CPU_UNROLL
        for (int i = 0; i < SIDE; i++) {
            vf_store(x + c + (size_t)i * SIDE, vf_mul(vf_fp4_of(words[i / 8], i % 8), s));
        }
    }
}

/* --- Logits ------------------------------------------------------------------------------------------------------ */

/* Four rows by four heads, d apart: out[4 r + h]. */
CPU_INLINE void sixteen(const float *const rows[FOUR], const float *q, size_t d, float out[SIDE])
{
    vf sum = vf_zero();
    for (size_t c = 0; c < d; c += CHUNK) {
        vf part[SIDE];
        CPU_UNROLL
        for (size_t j = 0; j < SIDE; j++) {
            part[j] = vf_zero();
        }
        for (size_t i = c; i < c + CHUNK; i += SIDE) {
            vf head[FOUR];
            CPU_UNROLL
            for (size_t h = 0; h < FOUR; h++) {
                head[h] = vf_load(q + h * d + i);
            }
            CPU_UNROLL
            for (size_t r = 0; r < FOUR; r++) {
                const vf x = vf_load(rows[r] + i);
                CPU_UNROLL
                for (size_t h = 0; h < FOUR; h++) {
                    part[FOUR * r + h] = vf_fma(x, head[h], part[FOUR * r + h]);
                }
            }
        }
        turn(part);
        CPU_UNROLL
        for (size_t b = 0; b < SIDE; b++) {
            sum = vf_add(sum, part[b]);
        }
    }
    vf_store(out, sum);
}

static void logits(const float *const *rows, size_t n_rows, const float *q, size_t n_heads, size_t d, float *out,
                   size_t ld_row, size_t ld_head)
{
    for (size_t r0 = 0; r0 < n_rows; r0 += FOUR) {
        const float *four[FOUR]; /* the last row stands in for rows that there are not */
        for (size_t r = 0; r < FOUR; r++) {
            four[r] = rows[r0 + r < n_rows ? r0 + r : n_rows - 1];
        }
        for (size_t h0 = 0; h0 < n_heads; h0 += FOUR) {
            float got[SIDE];
            sixteen(four, q + h0 * d, d, got);
            for (size_t r = r0; r < n_rows && r < r0 + FOUR; r++) {
                for (size_t h = h0; h < n_heads && h < h0 + FOUR; h++) {
                    out[r * ld_row + h * ld_head] = got[FOUR * (r - r0) + h - h0];
                }
            }
        }
    }
}

const cpu_blocks cpu_blocks_avx512 = {
    .chunk = CHUNK,
    .turn_row = turn_row,
    .unpack_q8 = unpack_q8,
    .unpack_q4n = unpack_q4n,
    .logits = logits,
};
