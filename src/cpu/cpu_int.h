/* cpu_int.h - inside the CPU backend: packed weights and the kernels that read them.
 *
 * A packed matrix holds the same codes as the checkpoint in tiles of 32 outputs, input by input, so that one load gives one input's
 * codes for 32 outputs. Kernels decode in registers. Sums run in the reference's order, and every product that is not exact in fp32
 * is rounded before it is added, so results equal the reference bit by bit. */
#ifndef CPU_CPU_INT_H
#define CPU_CPU_INT_H

#include "ops/ops_types.h"

#include <stddef.h>

#define CPU_TILE 32 /* outputs; equals REF_TILE */

/* Tile t starts at codes + t * tile_bytes:
 *   FP8  [n_in][32] E4M3 bytes             scale [n_in / 32] fp32, one a 32 x 32 block, times 2^8 (see decode)
 *   FP4  [n_in][16] bytes, output 2j low    scale [n_in / 32][32] fp32
 *   BF16 [n_in][32] uint16                  no scale
 *   F32  [n_in][32] fp32                    no scale
 * Outputs past n_out have zero codes. */
typedef struct cpu_packed {
    ops_format format;
    int64_t n_out;
    int64_t n_in;
    size_t tile_bytes;
    size_t tile_scales; /* floats of scale a tile */
    const uint8_t *codes;
    const float *scale;
    size_t bytes; /* of the whole allocation */
} cpu_packed;

/* NULL when the matrix has a shape or value that the kernels do not take (n_in no multiple of 32, a NaN code) or memory is short; the
 * reference path then serves it. */
cpu_packed *cpu_pack(const ops_matrix *w);
void cpu_packed_free(cpu_packed *p);

/* c[m][32] = x[m] times tile t of p. scratch: n_in * 32 floats. */
typedef void (*cpu_tile_fn)(const cpu_packed *p, size_t t, const float *x, size_t ldx, size_t m, float *c, float *scratch);

void cpu_tile_avx2(const cpu_packed *p, size_t t, const float *x, size_t ldx, size_t m, float *c, float *scratch);
void cpu_tile_avx512(const cpu_packed *p, size_t t, const float *x, size_t ldx, size_t m, float *c, float *scratch);

#endif
