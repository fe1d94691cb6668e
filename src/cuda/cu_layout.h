/* cu_layout.h - sizes of packed weights, for C and CUDA alike. The layout itself is described in kernels/expand.cuh. */
#ifndef CUDA_CU_LAYOUT_H
#define CUDA_CU_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

typedef enum cu_format {
    CU_FP4,
    CU_FP8,
    CU_BF16
} cu_format;

#define CU_GROUP_ROWS 64
#define CU_STRIP_ROWS 16
#define CU_TILE_INPUTS 256

/* Bytes of an octet's tile: 8 rows, 256 inputs. */
#define CU_TILE_BYTES_FP4 1088
#define CU_TILE_BYTES_FP8 2064
#define CU_TILE_BYTES_BF16 4096

static inline size_t cu_tile_bytes(cu_format format)
{
    return format == CU_FP4 ? CU_TILE_BYTES_FP4 : format == CU_FP8 ? CU_TILE_BYTES_FP8 : CU_TILE_BYTES_BF16;
}

/* The scale byte s of a checkpoint is stored as the exponent field of the multiplier, s + bias; larger ones than 254 - bias can't be
 * packed (2^1 for FP4, 2^7 for FP8, far above what a trained model holds). */
#define CU_SCALE_BIAS_FP4 126
#define CU_SCALE_BIAS_FP8 120

#endif
