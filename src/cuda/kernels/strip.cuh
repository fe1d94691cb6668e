/* strip.cuh - the engine of every product with few tokens: blocks that stream packed weights once and multiply them with the rows of
 * a few tokens.
 *
 * A block has four computing warps and one that fetches. The fetching warp walks the block's work and copies, tile after tile of 256
 * inputs, the weights of all four warps and the tokens' values into a ring of stages in shared memory; it runs ahead over the borders of
 * work items, so the memory is busy while the computing warps finish one and start the next. A stage has two barriers: `full`
 * counts the bytes that arrive, `empty` the warps that are done with it.
 *
 *   stage: [weights of the four warps][tokens][TOKEN_PITCH bytes]
 *
 * A token's tile is 512 bytes of BF16 values in a pitch of 528, so that the eight rows a fragment needs lie in different banks.
 *
 * Invariant: the sum of an output runs over its inputs in ascending blocks of 64, four products of 16 each (expand.cuh), in one chain
 * from zero; chunked matrices add their chunks in order. It depends on nothing else: not on the tokens beside it, the number of
 * columns, or who computes it. Columns without a token repeat the last token; nobody looks at them. */
#ifndef CUDA_KERNELS_STRIP_CUH
#define CUDA_KERNELS_STRIP_CUH

#include "cuda/cu_kernels.h"
#include "cuda/kernels/expand.cuh"

#define STRIP_WARPS 4
#define STRIP_THREADS ((STRIP_WARPS + 1) * 32)
#define STRIP_MAX_STAGES 8
#define TOKEN_PITCH CU_TOKEN_PITCH
#define TOKEN_BYTES (CU_TILE_INPUTS * 2)

/* The ring as one warp sees it. All lanes hold the same values. */
struct strip_ring {
    uint8_t *stages; /* n_stages * stage_bytes */
    uint32_t full;   /* barriers [STRIP_MAX_STAGES] in shared memory */
    uint32_t empty;
    uint32_t stage_bytes;
    int n_stages;
    int slot;
    uint32_t parity; /* of this round */

    __device__ __forceinline__ void begin(uint8_t *memory, uint64_t *bars, uint32_t bytes, int n)
    {
        stages = memory;
        full = smem_address(bars);
        empty = full + 8 * STRIP_MAX_STAGES;
        stage_bytes = bytes;
        n_stages = n;
        slot = 0;
        parity = 0;
    }

    /* One thread of the block, before the block's first barrier. */
    __device__ __forceinline__ void init_barriers() const
    {
        for (int i = 0; i < n_stages; i++) {
            mbar_init(full + 8 * i, 1);
            mbar_init(empty + 8 * i, STRIP_WARPS);
        }
        mbar_init_fence();
    }

    __device__ __forceinline__ uint8_t *stage() const { return stages + slot * stage_bytes; }
    __device__ __forceinline__ uint32_t full_bar() const { return full + 8 * slot; }

    __device__ __forceinline__ void next()
    {
        slot++;
        if (slot == n_stages) {
            slot = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ void wait_full() const { mbar_wait(full + 8 * slot, parity); }
    __device__ __forceinline__ void wait_empty() const { mbar_wait(empty + 8 * slot, parity ^ 1); }
    __device__ __forceinline__ bool is_empty() const { return mbar_test(empty + 8 * slot, parity ^ 1); }

    /* A computing warp is done with the stage. */
    __device__ __forceinline__ void release(int lane)
    {
        __syncwarp();
        if (lane == 0) {
            mbar_arrive(empty + 8 * slot);
        }
        next();
    }
};

/* One tile of MT m-tiles with octets lo[m] and hi[m], and NT groups of eight tokens whose rows, moved to the lane's inputs, begin at
 * token[t]. acc[m][t] += W x. */
template <int FORMAT, int MT, int NT>
__device__ __forceinline__ void strip_tile(float (&acc)[MT][NT][4], const uint8_t *const (&lo)[MT], const uint8_t *const (&hi)[MT],
                                           const uint8_t *const (&token)[NT], int lane)
{
    expander<FORMAT> e[MT];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        e[m].tile(lo[m], hi[m], lane);
    }
#pragma unroll
    for (int b = 0; b < 4; b++) {
        uint4 x[NT][2];
#pragma unroll
        for (int t = 0; t < NT; t++) {
            x[t][0] = *(const uint4 *)(token[t] + b * 128);
            x[t][1] = *(const uint4 *)(token[t] + b * 128 + 16);
        }
#pragma unroll
        for (int m = 0; m < MT; m++) {
            uint32_t a[4][4];
            e[m].block(lo[m], hi[m], lane, b, a);
#pragma unroll
            for (int t = 0; t < NT; t++) {
                mma_bf16(acc[m][t], a[0], x[t][0].x, x[t][0].y);
                mma_bf16(acc[m][t], a[1], x[t][0].z, x[t][0].w);
                mma_bf16(acc[m][t], a[2], x[t][1].x, x[t][1].y);
                mma_bf16(acc[m][t], a[3], x[t][1].z, x[t][1].w);
            }
        }
    }
}

/* Offset in a stage's tokens of the row that this lane reads for column 8 t + lane / 4, of n. */
__device__ __forceinline__ uint32_t token_offset(int t, int n, int lane)
{
    int row = t * 8 + lane / 4;
    return (uint32_t)((row < n ? row : n - 1) * TOKEN_PITCH + lane % 4 * 32);
}

/* The computing warps among themselves. */
__device__ __forceinline__ void strip_sync() { asm volatile("bar.sync 1, %0;" ::"n"(STRIP_WARPS * 32) : "memory"); }

#endif
