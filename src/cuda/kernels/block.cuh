/* block.cuh - reductions of a warp and of a block, each in one fixed order, and orders of floats as integers. */
#ifndef CUDA_KERNELS_BLOCK_CUH
#define CUDA_KERNELS_BLOCK_CUH

#include "cuda/kernels/ptx.cuh"

__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    }
    return v;
}

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        v = __fadd_rn(v, __shfl_xor_sync(0xFFFFFFFFu, v, d));
    }
    return v;
}

/* Sum over the block, the same in all threads: within warps by halves, then over the warps in order. scratch [32]; may be called again
 * at once. */
__device__ __forceinline__ float block_sum(float v, float *scratch)
{
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = v;
    }
    __syncthreads();
    float sum = scratch[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++) {
        sum = __fadd_rn(sum, scratch[w]);
    }
    return sum;
}

/* Order-preserving image of a float; -0 ties with 0. */
__device__ __forceinline__ uint32_t order_of(float x)
{
    uint32_t u = __float_as_uint(x == 0.0f ? 0.0f : x);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

__device__ __forceinline__ uint64_t block_max_key(uint64_t key, uint64_t *scratch)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        uint64_t other = __shfl_xor_sync(0xFFFFFFFFu, key, d);
        key = other > key ? other : key;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = key;
    }
    __syncthreads();
    key = scratch[0];
    for (int w = 1; w < (int)blockDim.x / 32; w++) {
        key = scratch[w] > key ? scratch[w] : key;
    }
    return key;
}

#endif
