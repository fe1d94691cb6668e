/* expand.cuh - packed weights: how a matrix lies in device memory, and how its codes become BF16 pairs in registers.
 *
 * Tiles. A group is 64 rows, eight octets; a strip is 16 rows, two octets. Along the inputs a group is a row of tiles of 256, octet after
 * octet, so that a block of four warps reads contiguous bytes in one copy and any octet can be fetched alone. Inside an octet's tile thread
 * (g = lane / 4, q = lane % 4) owns inputs 64 b + 16 q .. + 15 of row g, for the four blocks b of 64:
 *
 *   FP4   [2][32 lanes][16 bytes]: blocks 2 i and 2 i + 1, 8 bytes each; then scales [8 rows][2][4 blocks]     1,088 bytes
 *   FP8   [4][32 lanes][16 bytes]; then scales [2][4 blocks], 8 bytes of rest                                  2,064 bytes
 *   BF16  [4][2][32 lanes][16 bytes]                                                                           4,096 bytes
 *
 * (the scale of the thread's 16 inputs is number q / 2 of its block). The j-th m16n8k16 product of a block takes inputs 16 q + 4 j
 * .. + 3 of every q: for the activations that is 32 contiguous bytes a thread, and no result depends on anything but this order.
 *
 * Bits. A code becomes the top bits of a BF16 exponent and mantissa, subnormals included, and one exact multiplication by a power of
 * two puts it right (2^126 for E2M1, 2^120 for E4M3, times the scale). Words are stored with their bits already spread so that one
 * rotation and one mask make a pair. The idea of interleaving offline is that of Triton's Hopper layouts; the placing, which needs nine
 * operations for eight codes, was found by looking for rotations of {15, 8, 7, 6} that don't overlap. */
#ifndef CUDA_KERNELS_EXPAND_CUH
#define CUDA_KERNELS_EXPAND_CUH

#include "cuda/cu_layout.h"
#include "cuda/kernels/ptx.cuh"

__device__ __forceinline__ uint32_t rotr32(uint32_t w, int n) { return __funnelshift_r(w, w, n); }

/* Eight E2M1 codes to four pairs, each value times 2^-126. */
__device__ __forceinline__ void expand_fp4(uint32_t w, uint32_t (&pair)[4])
{
    pair[0] = w & 0x81C081C0u;
    pair[1] = (w << 4) & 0x81C081C0u;
    pair[2] = rotr32(w, 6) & 0x81C081C0u;
    pair[3] = (rotr32(w, 2) & 0x81808180u) | ((w << 6) & 0x00400040u);
}

/* Four E4M3 codes to two pairs, each value times 2^-120. */
__device__ __forceinline__ void expand_fp8(uint32_t w, uint32_t (&pair)[2])
{
    pair[0] = w & 0x87F087F0u;
    pair[1] = ((w << 4) & 0x80F080F0u) | ((w >> 4) & 0x07000700u);
}

/* The power of two of block b as a BF16 pair; its exponent field lies in byte b. */
__device__ __forceinline__ uint32_t scale_pair(uint32_t scales, int b)
{
    return __byte_perm(scales, 0, 0x4040 | b | b << 8) << 7;
}

/* A-fragments of a block of 64 for one m-tile of 16 rows: lo is its first octet, hi its second, in shared memory. */
template <int FORMAT>
struct expander;

template <>
struct expander<CU_FP4> {
    uint32_t lo_scale, hi_scale;
    uint4 lo, hi;

    __device__ __forceinline__ void tile(const uint8_t *lo_tile, const uint8_t *hi_tile, int lane)
    {
        int at = CU_TILE_BYTES_FP4 - 64 + ((lane >> 2) * 2 + ((lane >> 1) & 1)) * 4;
        lo_scale = *(const uint32_t *)(lo_tile + at);
        hi_scale = *(const uint32_t *)(hi_tile + at);
    }

    __device__ __forceinline__ void block(const uint8_t *lo_tile, const uint8_t *hi_tile, int lane, int b, uint32_t (&a)[4][4])
    {
        if (b % 2 == 0) {
            lo = *(const uint4 *)(lo_tile + b * 256 + lane * 16);
            hi = *(const uint4 *)(hi_tile + b * 256 + lane * 16);
        }
        row(b % 2 == 0 ? lo.x : lo.z, b % 2 == 0 ? lo.y : lo.w, scale_pair(lo_scale, b), a, 0);
        row(b % 2 == 0 ? hi.x : hi.z, b % 2 == 0 ? hi.y : hi.w, scale_pair(hi_scale, b), a, 1);
    }

    static __device__ __forceinline__ void row(uint32_t w0, uint32_t w1, uint32_t scale, uint32_t (&a)[4][4], int r)
    {
        uint32_t p[4];
        expand_fp4(w0, p);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i / 2][r + i % 2 * 2] = mul_bf16x2(p[i], scale);
        }
        expand_fp4(w1, p);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[2 + i / 2][r + i % 2 * 2] = mul_bf16x2(p[i], scale);
        }
    }
};

template <>
struct expander<CU_FP8> {
    uint32_t lo_scale, hi_scale;

    __device__ __forceinline__ void tile(const uint8_t *lo_tile, const uint8_t *hi_tile, int lane)
    {
        int at = CU_TILE_BYTES_FP8 - 16 + ((lane >> 1) & 1) * 4;
        lo_scale = *(const uint32_t *)(lo_tile + at);
        hi_scale = *(const uint32_t *)(hi_tile + at);
    }

    __device__ __forceinline__ void block(const uint8_t *lo_tile, const uint8_t *hi_tile, int lane, int b, uint32_t (&a)[4][4])
    {
        row(*(const uint4 *)(lo_tile + b * 512 + lane * 16), scale_pair(lo_scale, b), a, 0);
        row(*(const uint4 *)(hi_tile + b * 512 + lane * 16), scale_pair(hi_scale, b), a, 1);
    }

    static __device__ __forceinline__ void row(uint4 w, uint32_t scale, uint32_t (&a)[4][4], int r)
    {
        const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t p[2];
            expand_fp8(words[j], p);
            a[j][r] = mul_bf16x2(p[0], scale);
            a[j][r + 2] = mul_bf16x2(p[1], scale);
        }
    }
};

template <>
struct expander<CU_BF16> {
    __device__ __forceinline__ void tile(const uint8_t *, const uint8_t *, int) {}

    __device__ __forceinline__ void block(const uint8_t *lo_tile, const uint8_t *hi_tile, int lane, int b, uint32_t (&a)[4][4])
    {
        row(*(const uint4 *)(lo_tile + b * 1024 + lane * 16), *(const uint4 *)(lo_tile + b * 1024 + 512 + lane * 16), a, 0);
        row(*(const uint4 *)(hi_tile + b * 1024 + lane * 16), *(const uint4 *)(hi_tile + b * 1024 + 512 + lane * 16), a, 1);
    }

    static __device__ __forceinline__ void row(uint4 u, uint4 v, uint32_t (&a)[4][4], int r)
    {
        const uint32_t words[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            a[j][r] = words[2 * j];
            a[j][r + 2] = words[2 * j + 1];
        }
    }
};

#endif
