/* lab_tiles.cuh - packed matrices of random codes, made on the device, and the form of products. */
#ifndef BENCH_CUDA_LAB_TILES_CUH
#define BENCH_CUDA_LAB_TILES_CUH

#include "lab.cuh"

#include "cuda/cu_layout.h"

/* Random tiles: codes anything, scale bytes in a narrow range, as trained models have them. */
static __global__ void lab_tiles_kernel(uint8_t *p, size_t n, int tile, int codes, int base, uint64_t seed)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t r = (uint32_t)lab_mix(seed + i);
        int at = (int)(i * 4 % tile);
        if (at >= codes) {
            r = (r & 0x03030303u) + base * 0x01010101u;
        } else if (tile == CU_TILE_BYTES_BF16) {
            r = (r & 0x807F807Fu) | 0x3C003C00u;
        }
        ((uint32_t *)p)[i] = r;
    }
}

static inline uint8_t *lab_tiles(cu_format format, size_t n_out, size_t n_in, uint64_t seed)
{
    const int tile = (int)cu_tile_bytes(format);
    const int codes = format == CU_FP4 ? 1024 : format == CU_FP8 ? 2048 : 4096;
    size_t n = n_out / 8 * (n_in / CU_TILE_INPUTS) * (size_t)tile;
    uint8_t *p;
    LAB_CHECK(cudaMalloc(&p, n));
    lab_tiles_kernel<<<2048, 256>>>(p, n, tile, codes, format == CU_FP4 ? 117 + CU_SCALE_BIAS_FP4 : 108 + CU_SCALE_BIAS_FP8, seed);
    LAB_CHECK(cudaGetLastError());
    return p;
}

/* A product of the released model. */
struct lab_shape {
    const char *name;
    cu_format format;
    int n_out[2]; /* one or two matrices */
    int n_in;
    int split;
    int groups;
    bool wide; /* fp32 results */
};

#endif
