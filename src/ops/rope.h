/* rope.h - rotary position embedding: frequencies and rotation (model.md 3.6). */
#ifndef OPS_ROPE_H
#define OPS_ROPE_H

#include <stddef.h>
#include <stdint.h>

/* f_i = theta^(-2i / rope_dim), i < rope_dim / 2, as the official code has them in fp32. */
void rope_frequencies(double theta, int32_t rope_dim, float *out);

/* Applies YaRN to frequencies of the same theta and rope_dim, in place. */
void rope_yarn(double theta, int32_t rope_dim, double factor, double beta_fast, double beta_slow, int32_t original_positions,
               float *frequencies);

/* cos and sin [n] of fp32(pos) * f_i, the product rounded to fp32. */
void rope_row(const float *frequencies, size_t n, int64_t pos, float *cos_out, float *sin_out);

/* Rotates the pairs (x[0], x[1]), (x[2], x[3]) ... of 2n channels by (cos, sin), or back when inverse. fp32, no rounding. */
void rope_apply(float *x, size_t n, const float *cos_in, const float *sin_in, int inverse);

#endif
