/* formats.h - the number formats of the checkpoint and of the caches, exact both ways (model.md 2.3 and 3.2).
 *
 *   bf16   upper half of an fp32
 *   E4M3   FP8, bias 7, largest 448, no infinity, NaN = 0x7F / 0xFF
 *   E2M1   FP4: 0 0.5 1 1.5 2 3 4 6 with a sign bit; two a byte, even column in the low nibble
 *   E8M0   a power of two: 2^(byte - 127); 255 = NaN
 *
 * Rounding is to nearest, ties to even, saturating. The three quantisers work on contiguous groups of the last dimension and
 * produce the packed row that the caches hold: codes first, then scales. */
#ifndef OPS_FORMATS_H
#define OPS_FORMATS_H

#include "ops/ops_types.h"

#include <math.h>
#include <string.h>

static inline uint32_t fmt_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float fmt_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float bf16_to_f32(bf16 x) { return fmt_float((uint32_t)x << 16); }

static inline bf16 bf16_from_f32(float x)
{
    uint32_t u = fmt_bits(x);
    uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u;
    return (bf16)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

/* Rounds to bf16 and widens again. */
static inline float bf16_round(float x) { return bf16_to_f32(bf16_from_f32(x)); }

float e4m3_to_f32(uint8_t code);
uint8_t e4m3_from_f32(float x);
float e2m1_to_f32(uint8_t code); /* code 0..15 */
uint8_t e2m1_from_f32(float x);  /* |x| > 6 saturates; NaN gives 6 with its sign */
float e8m0_to_f32(uint8_t code);

/* The 256 values of E4M3 (NaN included) and the 16 of E2M1. Static. */
const float *fmt_e4m3_table(void);
const float *fmt_e2m1_table(void);

/* Bytes of a packed row of `n` values. n is a multiple of 32. */
static inline size_t fmt_q8_bytes(size_t n) { return n + n / 32; }
static inline size_t fmt_q4e_bytes(size_t n) { return n / 2 + n / 32; }
static inline size_t fmt_q4n_bytes(size_t n) { return n / 2 + n / 16; }

/* Q8: E4M3 codes [n], E8M0 scales [n/32]. Window KV, and the activations of quantised matrix products. */
void fmt_q8_pack(const float *x, size_t n, uint8_t *row);
void fmt_q8_unpack(const uint8_t *row, size_t n, float *x);
/* Pack then unpack in place: the activation side of a quantised product. */
void fmt_q8_round(float *x, size_t n);

/* Q4E: E2M1 codes [n/2 bytes], E8M0 scales [n/32]. Index queries and keys. */
void fmt_q4e_pack(const float *x, size_t n, uint8_t *row);
void fmt_q4e_unpack(const uint8_t *row, size_t n, float *x);

/* Q4N: E2M1 codes [n/2 bytes], E4M3 scales [n/16]. Compressed KV. */
void fmt_q4n_pack(const float *x, size_t n, uint8_t *row);
void fmt_q4n_unpack(const uint8_t *row, size_t n, float *x);

static inline void fmt_bf16_to_f32(const bf16 *x, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = bf16_to_f32(x[i]);
    }
}

static inline void fmt_f32_to_bf16(const float *x, size_t n, bf16 *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = bf16_from_f32(x[i]);
    }
}

#endif
