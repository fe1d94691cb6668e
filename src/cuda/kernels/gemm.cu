/* gemm.cu - products of many tokens with dense matrices: y = x W^T, weights FP8 or BF16, up to three matrices in one launch; and the
 * packing of the rows they read (gemm.cuh).
 *
 * An item is 128 output rows and N tokens: 256 where the inputs are one chain, fewer where they are four chunks, whose sum needs as many
 * registers again. One block a multiprocessor walks the items in a fixed stride; items go through all outputs of eight blocks of tokens
 * before the next eight, so that the tokens of those stay in the L2. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/quantise.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAVE_WGMMA 1
#else
#define HAVE_WGMMA 0
#endif

#include "cuda/kernels/gemm.cuh"

#define TOKENS_ONE_CHAIN 256
#define TOKENS_CHUNKS 160
#define TOKEN_BLOCKS 8 /* that go through the outputs together */

/* --- Packing -------------------------------------------------------------------------------------------------------------------- */

/* grid (inputs / 64, rows / 32): a warp has four rows, eight lanes each, one of 16 bytes. */
template <bool Q8>
static __global__ void __launch_bounds__(256) pack_rows_kernel(const __grid_constant__ cu_pack_rows a)
{
    pdl_release();
    pdl_wait();
    const int row = blockIdx.y * 32 + threadIdx.x / 8;
    const int c = threadIdx.x % 8;
    if (a.n_used != nullptr && blockIdx.y * 32 >= *a.n_used) {
        return;
    }
    int source = row < a.n_rows ? row : -1;
    if (a.slots != nullptr) {
        source = row < a.padded_rows ? a.slots[row] : -1;
        source = source < 0 ? -1 : source / a.per_row;
    }
    uint32_t v[4] = {};
    if (source >= 0) {
        const uint16_t *from = a.x + (size_t)source * a.ldx + (size_t)blockIdx.x * 64 + 2 * c;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            v[q] = *(const uint32_t *)(from + 16 * q);
        }
    }
    if (Q8) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = 0.0f;
#pragma unroll
            for (int q = 0; q < 2; q++) {
                top = fmaxf(top, fmaxf(fabsf(bf16_widen(v[2 * half + q] & 0xFFFF)), fabsf(bf16_widen(v[2 * half + q] >> 16))));
            }
            for (int d = 1; d < 8; d *= 2) {
                top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
            }
            const uint32_t code = q8_scale_code(top);
#pragma unroll
            for (int q = 0; q < 2; q++) {
                const uint32_t pair = v[2 * half + q];
                v[2 * half + q] = __float_as_uint(q8_rounded(bf16_widen(pair & 0xFFFF), code)) >> 16 |
                                  (__float_as_uint(q8_rounded(bf16_widen(pair >> 16), code)) & 0xFFFF0000u);
            }
        }
    }
    if (row < a.padded_rows) {
        uint8_t *to = a.out + ((size_t)blockIdx.x * (a.padded_rows / 8) + row / 8) * GEMM_ATOM;
        *(uint4 *)(to + packed_piece(row % 8, c)) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

extern "C" int cu_launch_pack_rows(const cu_pack_rows *a, cu_stream stream)
{
    const dim3 grid((unsigned)(a->n / 64), (unsigned)(a->padded_rows + 31) / 32);
    return cu_launch(a->q8 ? pack_rows_kernel<true> : pack_rows_kernel<false>, grid, dim3(256), 0, stream, *a);
}

/* --- Products --------------------------------------------------------------------------------------------------------------------- */

struct gemm_item {
    int job;
    int row0;
    int token0;
    int n_tokens;
};

static __host__ __device__ int row_blocks(const cu_linear_set &set)
{
    int n = 0;
    for (int j = 0; j < set.n_jobs; j++) {
        n += (set.jobs[j].n_out + GEMM_ROWS - 1) / GEMM_ROWS;
    }
    return n;
}

#if HAVE_WGMMA
static __device__ gemm_item find_item(const cu_linear_set &set, int rows, int i)
{
    const int blocks = (set.n_rows + set.block_rows - 1) / set.block_rows;
    const int band = i / (rows * TOKEN_BLOCKS);
    const int wide = blocks - band * TOKEN_BLOCKS < TOKEN_BLOCKS ? blocks - band * TOKEN_BLOCKS : TOKEN_BLOCKS;
    i -= band * rows * TOKEN_BLOCKS;
    gemm_item item;
    item.token0 = (band * TOKEN_BLOCKS + i % wide) * set.block_rows;
    item.n_tokens = set.n_rows - item.token0 < set.block_rows ? set.n_rows - item.token0 : set.block_rows;
    item.job = 0;
    i /= wide;
    for (; item.job + 1 < set.n_jobs && i >= (set.jobs[item.job].n_out + GEMM_ROWS - 1) / GEMM_ROWS; item.job++) {
        i -= (set.jobs[item.job].n_out + GEMM_ROWS - 1) / GEMM_ROWS;
    }
    item.row0 = i * GEMM_ROWS;
    return item;
}

template <int FORMAT, int N>
static __device__ void fetch(const cu_linear_set &set, gemm_rings ring, uint8_t *memory)
{
    const int rows = row_blocks(set);
    pdl_wait();
    proxy_fence();
    for (int i = blockIdx.x; i < set.n_items; i += gridDim.x) {
        const gemm_item item = find_item(set, rows, i);
        const cu_linear &job = set.jobs[item.job];
        const size_t group = (size_t)job.n_in / CU_TILE_INPUTS * gemm_sizes<FORMAT, N>::GROUP;
        const int first = item.row0 / CU_GROUP_ROWS;
        const int diagonal = job.group_rows > 0 ? item.row0 / job.group_rows * (job.n_in / 64) : 0;
        gemm_copies c;
#pragma unroll
        for (int g = 0; g < GEMM_GROUPS; g++) { /* a matrix with half an item at its end: the first half again, for nobody */
            c.weights[g] = job.packed + (first + g < job.n_out / CU_GROUP_ROWS ? first + g : first) * group;
        }
        c.token_stride = (size_t)set.padded_rows / 8 * GEMM_ATOM;
        c.tokens = set.packed_rows + diagonal * c.token_stride + (size_t)item.token0 / 8 * GEMM_ATOM;
        c.token_bytes = gemm_sizes<FORMAT, N>::TOKENS;
        c.n_tiles = job.n_in / CU_TILE_INPUTS;
        gemm_fetch<FORMAT, gemm_sizes<FORMAT, N>>(c, ring, memory);
    }
}

template <int N>
static __device__ __forceinline__ void store(const cu_linear &job, const gemm_item &item, int row0, const float (&sum)[N / 2],
                                             uint8_t *turn, int group)
{
    if (job.y16 != nullptr) {
        uint16_t *y = job.y16 + (size_t)item.token0 * job.ldy + row0;
        gemm_store16<N>(sum, item.n_tokens, turn, group,
                        [&](int token, int c, uint4 v) { *(uint4 *)(y + (size_t)token * job.ldy + 8 * c) = v; });
        return;
    }
    const int lane = threadIdx.x % 32;
    float *y = job.y32 + (size_t)item.token0 * job.ldy + row0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (token < item.n_tokens) {
            y[(size_t)token * job.ldy + i % 4 / 2 * 8] = sum[i];
        }
    }
}

template <int FORMAT, int N, int SPLIT>
static __device__ __forceinline__ void compute(const cu_linear_set &set, gemm_rings ring, uint8_t *memory)
{
    typedef gemm_sizes<FORMAT, N> sizes;
    const int rows = row_blocks(set);
    const int group = threadIdx.x / 128;
    const int lane = threadIdx.x % 32;
    const uint32_t lo = group * sizes::GROUP + threadIdx.x % 128 / 32 * 2 * sizes::TILE;
    uint8_t *turn = memory + sizes::AT_TURN + group * 2 * GEMM_TURN_BYTES;
    for (int i = blockIdx.x; i < set.n_items; i += gridDim.x) {
        const gemm_item item = find_item(set, rows, i);
        const cu_linear &job = set.jobs[item.job];
        const int n_tiles = job.n_in / CU_TILE_INPUTS / SPLIT;
        float acc[N / 2];
        float sum[SPLIT > 1 ? N / 2 : 1];
#pragma unroll
        for (int k = 0; k < N / 2; k++) {
            acc[k] = 0.0f;
        }
        gemm_chain<FORMAT, N, sizes>(acc, ring, memory, lo, lo + sizes::TILE, n_tiles, lane);
        if constexpr (SPLIT > 1) {
#pragma unroll
            for (int k = 0; k < N / 2; k++) {
                sum[k] = acc[k];
            }
#pragma unroll 1
            for (int chunk = 1; chunk < SPLIT; chunk++) {
#pragma unroll
                for (int k = 0; k < N / 2; k++) {
                    acc[k] = 0.0f;
                }
                gemm_chain<FORMAT, N, sizes>(acc, ring, memory, lo, lo + sizes::TILE, n_tiles, lane);
#pragma unroll
                for (int k = 0; k < N / 2; k++) {
                    sum[k] += acc[k];
                }
            }
        }
        const int row0 = item.row0 + group * CU_GROUP_ROWS;
        if (row0 < job.n_out) {
            if constexpr (SPLIT > 1) {
                store<N>(job, item, row0, sum, turn, group);
            } else {
                store<N>(job, item, row0, acc, turn, group);
            }
        }
    }
}
#endif

template <int FORMAT, int N, int SPLIT>
static __global__ void __launch_bounds__(GEMM_THREADS, 1) gemm_kernel(const __grid_constant__ cu_linear_set set)
{
#if HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t bars[GEMM_BARS];
    pdl_release();
    gemm_rings ring;
    ring.begin(bars);
    if (threadIdx.x == 0) {
        ring.init_barriers();
    }
    __syncthreads();
    if (threadIdx.x / 128 == GEMM_GROUPS) {
        registers_shrink<24>();
        if (threadIdx.x % 128 == 0) {
            fetch<FORMAT, N>(set, ring, memory);
        }
    } else {
        registers_grow<240>();
        compute<FORMAT, N, SPLIT>(set, ring, memory);
    }
#endif
}

template <int FORMAT, int N, int SPLIT>
static int launch(cu_linear_set set, int n_sms, cu_stream stream)
{
    const int bytes = (int)gemm_sizes<FORMAT, N>::ALL;
    set.block_rows = N;
    set.n_items = row_blocks(set) * ((set.n_rows + N - 1) / N);
    int status = (int)cudaFuncSetAttribute(gemm_kernel<FORMAT, N, SPLIT>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status == 0) {
        status = cu_launch(gemm_kernel<FORMAT, N, SPLIT>, dim3((unsigned)(set.n_items < n_sms ? set.n_items : n_sms)), dim3(GEMM_THREADS),
                           (size_t)bytes, stream, set);
    }
    return status;
}

extern "C" int cu_launch_gemm(const cu_linear_set *set, int n_sms, cu_stream stream)
{
    if (set->format == CU_BF16) {
        return set->jobs[0].split == 1 ? launch<CU_BF16, 128, 1>(*set, n_sms, stream) : launch<CU_BF16, 128, 4>(*set, n_sms, stream);
    }
    return set->jobs[0].split == 1 ? launch<CU_FP8, TOKENS_ONE_CHAIN, 1>(*set, n_sms, stream)
                                   : launch<CU_FP8, TOKENS_CHUNKS, 4>(*set, n_sms, stream);
}
