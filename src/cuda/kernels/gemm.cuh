/* gemm.cuh - the engine of products with many tokens: tiles of 128 outputs and N tokens, weights expanded into the registers of wgmma.
 *
 * A block has two computing warpgroups, 64 outputs each, and one whose first thread fetches. Weights come as they are packed (expand.cuh),
 * a tile of 256 inputs of both groups at once; tokens come in packed rows, 64 inputs at a time, each piece one copy of contiguous bytes.
 * While the tensor cores work on 64 inputs a warpgroup expands the next 64 of its weights, and the other warpgroup's products fill what
 * is left open.
 *
 *   packed rows  [inputs / 64][rows / 8][8 rows][128 bytes]: the 64 inputs of a row in the order in which the four products of a block
 *                take them (expand.cuh), so that product j has positions 16 j .. + 15; swizzled as wgmma.cuh says
 *
 * Invariant: an output's sum runs over the same products in the same order as in strip.cuh, and the instruction gives the same bits for
 * every N: who multiplied a row never shows. */
#ifndef CUDA_KERNELS_GEMM_CUH
#define CUDA_KERNELS_GEMM_CUH

#include "cuda/kernels/expand.cuh"
#include "cuda/kernels/wgmma.cuh"

#define GEMM_GROUPS 2 /* computing warpgroups */
#define GEMM_THREADS ((GEMM_GROUPS + 1) * 128)
#define GEMM_WEIGHT_STAGES 2
#define GEMM_TOKEN_STAGES 4
#define GEMM_ROWS (GEMM_GROUPS * CU_GROUP_ROWS)
#define GEMM_ATOM 1024          /* bytes of eight packed rows, 64 inputs */
#define GEMM_PIECE 32           /* tokens that the epilogue turns around at once */
#define GEMM_TURN_BYTES (GEMM_PIECE * 128)

/* Byte of the eight bytes' pieces: where inputs 4 j + 2 h + {0, 1} of all four sixteens of a block lie in row r of an atom. */
__device__ __forceinline__ uint32_t packed_piece(int r, int c) { return (uint32_t)(r * 128 + ((c ^ r) * 16)); }

template <int FORMAT, int N>
struct gemm_sizes {
    static const uint32_t TILE = FORMAT == CU_FP4 ? CU_TILE_BYTES_FP4 : FORMAT == CU_FP8 ? CU_TILE_BYTES_FP8 : CU_TILE_BYTES_BF16;
    static const uint32_t GROUP = 8 * TILE;                        /* weights of a warpgroup in a stage */
    static const uint32_t TOKENS = N / 8 * GEMM_ATOM;              /* a stage of tokens */
    static const uint32_t AT_WEIGHTS = GEMM_TOKEN_STAGES * TOKENS; /* behind the tokens, whose atoms are aligned */
    static const uint32_t AT_TURN = AT_WEIGHTS + GEMM_WEIGHT_STAGES * GEMM_GROUPS * GROUP;
    static const uint32_t ALL = AT_TURN + GEMM_GROUPS * 2 * GEMM_TURN_BYTES;
};

/* Barriers and positions; all threads hold the same values. */
struct gemm_rings {
    uint32_t weights_full, weights_empty, tokens_full, tokens_empty;
    int weight_slot, token_slot;
    uint32_t weight_parity, token_parity;

    __device__ __forceinline__ void begin(uint64_t *bars)
    {
        weights_full = smem_address(bars);
        weights_empty = weights_full + 8 * GEMM_WEIGHT_STAGES;
        tokens_full = weights_empty + 8 * GEMM_WEIGHT_STAGES;
        tokens_empty = tokens_full + 8 * GEMM_TOKEN_STAGES;
        weight_slot = token_slot = 0;
        weight_parity = token_parity = 0;
    }

    /* One thread of the block, before the block's first barrier. */
    __device__ __forceinline__ void init_barriers() const
    {
        for (int i = 0; i < GEMM_WEIGHT_STAGES; i++) {
            mbar_init(weights_full + 8 * i, 1);
            mbar_init(weights_empty + 8 * i, GEMM_GROUPS * 4);
        }
        for (int i = 0; i < GEMM_TOKEN_STAGES; i++) {
            mbar_init(tokens_full + 8 * i, 1);
            mbar_init(tokens_empty + 8 * i, GEMM_GROUPS * 4);
        }
        mbar_init_fence();
    }

    __device__ __forceinline__ void next_weights()
    {
        weight_parity ^= weight_slot == GEMM_WEIGHT_STAGES - 1;
        weight_slot = weight_slot == GEMM_WEIGHT_STAGES - 1 ? 0 : weight_slot + 1;
    }

    __device__ __forceinline__ void next_tokens()
    {
        token_parity ^= token_slot == GEMM_TOKEN_STAGES - 1;
        token_slot = token_slot == GEMM_TOKEN_STAGES - 1 ? 0 : token_slot + 1;
    }
};

#define GEMM_BARS (2 * (GEMM_WEIGHT_STAGES + GEMM_TOKEN_STAGES))

/* What the fetching thread copies for an item. */
struct gemm_copies {
    const uint8_t *weights[GEMM_GROUPS]; /* first tile of each warpgroup's rows */
    const uint8_t *tokens;               /* first packed rows of the first 64 inputs */
    size_t token_stride;                 /* bytes from 64 inputs to the next */
    uint32_t token_bytes;
    int n_tiles; /* of 256 inputs */
};

/* RING: the sizes that the stages are cut for, at least those of the item. */
template <int FORMAT, typename RING>
__device__ __forceinline__ void gemm_fetch(const gemm_copies &c, gemm_rings &ring, uint8_t *memory)
{
    const uint32_t group = gemm_sizes<FORMAT, 8>::GROUP;
    const uint8_t *tokens = c.tokens;
    for (int tile = 0; tile < c.n_tiles; tile++) {
        const uint32_t full = ring.weights_full + 8 * ring.weight_slot;
        mbar_wait(ring.weights_empty + 8 * ring.weight_slot, ring.weight_parity ^ 1);
        mbar_expect(full, GEMM_GROUPS * group);
#pragma unroll
        for (int g = 0; g < GEMM_GROUPS; g++) {
            bulk_load(smem_address(memory) + RING::AT_WEIGHTS + ring.weight_slot * GEMM_GROUPS * RING::GROUP + g * group,
                      c.weights[g] + (size_t)tile * group, group, full);
        }
        ring.next_weights();
#pragma unroll 1
        for (int b = 0; b < 4; b++, tokens += c.token_stride) {
            const uint32_t bar = ring.tokens_full + 8 * ring.token_slot;
            mbar_wait(ring.tokens_empty + 8 * ring.token_slot, ring.token_parity ^ 1);
            mbar_expect(bar, c.token_bytes);
            bulk_load(smem_address(memory) + ring.token_slot * RING::TOKENS, tokens, c.token_bytes, bar);
            ring.next_tokens();
        }
    }
}

__device__ __forceinline__ void gemm_release(uint32_t bar, int lane)
{
    __syncwarp();
    if (lane == 0) {
        mbar_arrive(bar);
    }
}

/* acc += W x over n_tiles tiles of 256 inputs, one chain. lo and hi: this warp's octets within a stage of weights. */
template <int FORMAT, int N, typename RING>
__device__ __forceinline__ void gemm_chain(float (&acc)[N / 2], gemm_rings &ring, uint8_t *memory, uint32_t lo_at, uint32_t hi_at,
                                           int n_tiles, int lane)
{
    expander<FORMAT> e;
    uint32_t a[2][4][4];
    uint32_t last = 0; /* barrier of the stage whose products are under way */
#pragma unroll 1
    for (int tile = 0; tile < n_tiles; tile++) {
        const uint32_t weights_done = ring.weights_empty + 8 * ring.weight_slot;
        mbar_wait(ring.weights_full + 8 * ring.weight_slot, ring.weight_parity);
        const uint8_t *weights = memory + RING::AT_WEIGHTS + ring.weight_slot * GEMM_GROUPS * RING::GROUP;
        const uint8_t *lo = weights + lo_at;
        const uint8_t *hi = weights + hi_at;
        e.tile(lo, hi, lane);
        ring.next_weights();
#pragma unroll
        for (int b = 0; b < 4; b++) {
            e.block(lo, hi, lane, b, a[b % 2]);
            if (b == 3) {
                gemm_release(weights_done, lane);
            }
            mbar_wait(ring.tokens_full + 8 * ring.token_slot, ring.token_parity);
            const uint64_t x = wgmma_descriptor(smem_address(memory) + ring.token_slot * RING::TOKENS);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                wgmma<N>::add(acc, a[b % 2][j], x + 2 * j);
            }
            wgmma_commit();
            wgmma_wait<1>();
            if (last != 0) {
                gemm_release(last, lane);
            }
            last = ring.tokens_empty + 8 * ring.token_slot;
            ring.next_tokens();
        }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int k = 0; k < N / 2; k++) { /* the compiler does not know that the sums were written until now, and would read them earlier */
        asm volatile("" : "+f"(acc[k])::"memory");
    }
    gemm_release(last, lane);
}

__device__ __forceinline__ void group_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

/* Two fp32 as a BF16 pair, the first in the lower half; as bf16_bits but for the bits of what is no number. */
__device__ __forceinline__ uint32_t bf16_pair(float lo, float hi)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

/* Sixteen outputs of sixteen tokens, transposed: each token's eight outputs in 16 bytes at its lane's address. */
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1), "r"(r2),
                 "r"(r3)
                 : "memory");
}

/* Hands the warpgroup's 64 outputs of n tokens to put(token, piece, 8 BF16 values), piece c being outputs 8 c .. + 7. turn: two buffers
 * of GEMM_TURN_BYTES of this warpgroup. All its threads. */
template <int N, typename PUT>
__device__ __forceinline__ void gemm_store16(const float (&acc)[N / 2], int n, uint8_t *turn, int group, PUT put)
{
    const int thread = threadIdx.x % 128;
    const int lane = thread % 32;
    const int warp = thread / 32;
#pragma unroll
    for (int p = 0; p < N / GEMM_PIECE; p++) {
        uint8_t *piece = turn + p % 2 * GEMM_TURN_BYTES;
        if (p * GEMM_PIECE < n) {
#pragma unroll
            for (int t = 0; t < GEMM_PIECE / 8; t += 2) {
                const float *v = acc + (p * (GEMM_PIECE / 8) + t) * 4;
                const int token = (t + lane / 16) * 8 + lane % 8;
                const int c = warp * 2 + lane / 8 % 2;
                store_transposed(smem_address(piece) + packed_piece(token % 8, c) + token / 8 * 1024, bf16_pair(v[0], v[1]),
                                 bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7]));
            }
            group_sync(group);
#pragma unroll
            for (int i = 0; i < GEMM_PIECE * 8 / 128; i++) {
                const int token = (thread + 128 * i) / 8;
                const int c = thread % 8;
                if (p * GEMM_PIECE + token < n) {
                    put(p * GEMM_PIECE + token, c, *(const uint4 *)(piece + packed_piece(token % 8, c) + token / 8 * 1024));
                }
            }
        }
    }
    group_sync(group);
}

#endif
