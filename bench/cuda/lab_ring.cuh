/* lab_ring.cuh - the laboratory's own way of bringing weights: each warp has a ring of its own and fetches for itself, tokens come through
 * the first-level cache. The product's engine (src/cuda/kernels/stage_ring.cuh) has a fetching warp a block instead. */
#ifndef BENCH_CUDA_LAB_RING_CUH
#define BENCH_CUDA_LAB_RING_CUH

#include "cuda/kernels/expand.cuh"

/* What one warp streams: up to two sources a stage (gate and up rows of an expert), one tile after the other. */
struct strip_source {
    const uint8_t *at[2];
    uint32_t bytes;  /* of one copy; 0 = nothing to stream */
    uint32_t stride; /* from a tile to the next */
    int n_copies;    /* 1 or 2 */
    int n_tiles;
};

/* A warp's ring. STAGES slots of SLOT bytes at `slots`, a barrier each at `bars`. All lanes hold the same values. */
template <int STAGES, int SLOT>
struct strip_ring {
    uint32_t slots;
    uint32_t bars;
    uint8_t *memory;
    uint32_t issued;
    uint32_t used;
    uint64_t policy;

    /* `memory` has STAGES * SLOT bytes, aligned to 16; the barriers are initialised here by one lane. */
    __device__ __forceinline__ void init(uint8_t *memory_of_warp, uint64_t *barriers, int lane)
    {
        memory = memory_of_warp;
        slots = smem_address(memory_of_warp);
        bars = smem_address(barriers);
        issued = 0;
        used = 0;
        policy = policy_evict_first();
        if (lane == 0) {
            for (int i = 0; i < STAGES; i++) {
                mbar_init(bars + 8 * i, 1);
            }
            mbar_init_fence();
        }
        __syncwarp();
    }

    __device__ __forceinline__ bool has_room() const { return issued - used < STAGES; }

    /* Starts the copies of one tile. */
    __device__ __forceinline__ void issue(const strip_source &s, int tile, int lane)
    {
        uint32_t slot = issued % STAGES;
        if (lane == 0) {
            uint32_t bar = bars + 8 * slot;
            uint32_t dst = slots + slot * SLOT;
            mbar_expect(bar, s.bytes * s.n_copies);
            bulk_load_once(dst, s.at[0] + (size_t)tile * s.stride, s.bytes, bar, policy);
            if (s.n_copies > 1) { /* not a loop: a run-time index would put the source into local memory */
                bulk_load_once(dst + s.bytes, s.at[1] + (size_t)tile * s.stride, s.bytes, bar, policy);
            }
        }
        issued++;
    }

    /* Waits for the oldest tile. */
    __device__ __forceinline__ const uint8_t *wait() const
    {
        mbar_wait(bars + 8 * (used % STAGES), used / STAGES & 1);
        return memory + used % STAGES * SLOT;
    }

    /* The oldest tile has been read by the whole warp. */
    __device__ __forceinline__ void free_slot()
    {
        __syncwarp();
        used++;
    }
};

/* B-fragments of NT groups of eight tokens, loaded ahead. Lane (g, q) holds inputs 16 q .. + 15 of a block of token g of each group. */
template <int NT, int DEPTH>
struct strip_tokens {
    const uint8_t *row[NT]; /* bytes of this lane's token, moved to its inputs; NULL = no such token */
    uint4 b[DEPTH][NT][2];
    int n_blocks;

    __device__ __forceinline__ void load(int i_block, int slot)
    {
#pragma unroll
        for (int t = 0; t < NT; t++) {
            if (row[t] != nullptr && i_block < n_blocks) {
                const uint4 *p = (const uint4 *)(row[t] + (size_t)i_block * 128);
                b[slot][t][0] = p[0];
                b[slot][t][1] = p[1];
            }
        }
    }

    /* rows[t] of lane group g is the start of a row of BF16 values. */
    __device__ __forceinline__ void begin(int blocks)
    {
        n_blocks = blocks;
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
#pragma unroll
            for (int t = 0; t < NT; t++) {
                b[d][t][0] = b[d][t][1] = make_uint4(0, 0, 0, 0);
            }
        }
#pragma unroll
        for (int d = 0; d < DEPTH - 1; d++) {
            load(d, d);
        }
    }
};

/* One tile of MT m-tiles: octets lo[m] and hi[m]. acc[m][t] += W x. `tile` counts from the start of the rows. */
template <int FORMAT, int MT, int NT, int DEPTH>
__device__ __forceinline__ void strip_tile(float (&acc)[MT][NT][4], const uint8_t *const (&lo)[MT], const uint8_t *const (&hi)[MT],
                                           strip_tokens<NT, DEPTH> &tokens, int tile, int lane)
{
    expander<FORMAT> e[MT];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        e[m].tile(lo[m], hi[m], lane);
    }
#pragma unroll
    for (int b = 0; b < 4; b++) {
        tokens.load(tile * 4 + b + DEPTH - 1, (b + DEPTH - 1) % DEPTH);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            uint32_t a[4][4];
            e[m].block(lo[m], hi[m], lane, b, a);
#pragma unroll
            for (int t = 0; t < NT; t++) {
                const uint4 b0 = tokens.b[b % DEPTH][t][0];
                const uint4 b1 = tokens.b[b % DEPTH][t][1];
                mma_bf16(acc[m][t], a[0], b0.x, b0.y);
                mma_bf16(acc[m][t], a[1], b0.z, b0.w);
                mma_bf16(acc[m][t], a[2], b1.x, b1.y);
                mma_bf16(acc[m][t], a[3], b1.z, b1.w);
            }
        }
    }
}

#endif
