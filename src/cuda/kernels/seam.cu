/* seam.cu - entry and exit of a site in the residual streams (model.md 3.3, 3.4), for four streams.
 *
 * Entry: a cluster of eight blocks takes up to four tokens; each block owns an eighth of the columns of all streams. First what the site
 * waits for: collapse with the previous site's `pre`, the square sum over the cluster, the norm. Then the 24 mixes, whose matrix is
 * read once for the cluster's tokens; the first block adds the parts in rank order, and one warp a token makes the coefficients.
 *
 * Every sum has an order of its own row alone: threads stride over a block's columns, warps by halves, warps and blocks in order. The
 * arithmetic of collapse, coefficients and exit is the reference's, operation by operation. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/quantise.cuh"

#define STREAMS CU_SEAM_STREAMS
#define MIXES CU_SEAM_MIXES
#define RANKS 8
#define TOKENS 4
#define THREADS 256
#define WARPS (THREADS / 32)
#define MIXES_PER_WARP (MIXES / WARPS)
#define MAX_COLUMNS (8192 / RANKS)

/* What a block tells the first one about a token. */
struct seam_part {
    float mix[MIXES];
    float squares;
};

struct seam_shared {
    uint32_t x[TOKENS][STREAMS][MAX_COLUMNS / 2]; /* pairs of BF16 */
    float u_squares[RANKS][TOKENS];               /* from every block */
    seam_part part[RANKS][TOKENS];                /* in the first block, from every block */
    seam_part own[TOKENS];
    float scratch[32];
};

static __device__ float sigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-x))); }

/* One pair of columns of one token, collapsed and rounded. */
static __device__ float2 collapse(const uint32_t (*x)[MAX_COLUMNS / 2], int pair, const float (&pre)[STREAMS])
{
    float lo = __fmul_rn(pre[0], bf16_widen(x[0][pair] & 0xFFFF));
    float hi = __fmul_rn(pre[0], bf16_widen(x[0][pair] >> 16));
#pragma unroll
    for (int k = 1; k < STREAMS; k++) {
        lo = __fadd_rn(lo, __fmul_rn(pre[k], bf16_widen(x[k][pair] & 0xFFFF)));
        hi = __fadd_rn(hi, __fmul_rn(pre[k], bf16_widen(x[k][pair] >> 16)));
    }
    return make_float2(bf16_rounded(lo), bf16_rounded(hi));
}

static __device__ void store_remote(void *local, uint32_t rank, float v)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_address(smem_address(local), rank)), "f"(v) : "memory");
}

/* One of a matrix of 16, which a half warp holds, row by row. */
static __device__ __forceinline__ float entry_of(float c, int row, int column)
{
    return __shfl_sync(0xFFFFFFFFu, c, row * STREAMS + column, STREAMS * STREAMS);
}

/* Sinkhorn and gates of one token, by a warp: a lane has the mix of its number, then an entry of the matrix (the second half the same
 * as the first). Each sum is that of one thread, in its order. */
static __device__ void coefficients(const cu_seam_open_job &a, size_t t, float mix)
{
    const int lane = threadIdx.x % 32;
    const int j = lane / STREAMS % STREAMS;
    const int k = lane % STREAMS;
    if (lane < STREAMS) {
        a.pre[t * STREAMS + k] = __fadd_rn(sigmoid(__fadd_rn(__fmul_rn(mix, a.scale[0]), a.base[lane])), a.hc_eps);
    } else if (lane < 2 * STREAMS) {
        a.post[t * STREAMS + k] = __fmul_rn(2.0f, sigmoid(__fadd_rn(__fmul_rn(mix, a.scale[1]), a.base[lane])));
    }
    const int i = 2 * STREAMS + lane % (STREAMS * STREAMS);
    float c = __fadd_rn(__fmul_rn(__shfl_sync(0xFFFFFFFFu, mix, i), a.scale[2]), a.base[i]);
    const float top = fmaxf(fmaxf(entry_of(c, j, 0), entry_of(c, j, 1)), fmaxf(entry_of(c, j, 2), entry_of(c, j, 3)));
    c = expf(__fsub_rn(c, top));
    float sum = 0.0f;
#pragma unroll
    for (int q = 0; q < STREAMS; q++) {
        sum = __fadd_rn(sum, entry_of(c, j, q));
    }
    c = __fadd_rn(__fdiv_rn(c, sum), a.hc_eps);
    for (int round = 0; round < 2 * a.iters - 1; round++) { /* columns first and last, rows between */
        const bool columns = round % 2 == 0;
        sum = 0.0f;
#pragma unroll
        for (int q = 0; q < STREAMS; q++) {
            sum = __fadd_rn(sum, columns ? entry_of(c, q, k) : entry_of(c, j, q));
        }
        c = __fdiv_rn(c, __fadd_rn(sum, a.hc_eps));
    }
    if (lane < STREAMS * STREAMS) {
        a.comb[t * STREAMS * STREAMS + lane] = c;
    }
}

/* This block's part of the mixes of its tokens: a warp takes three of them for all tokens. */
static __device__ void mix_columns(const cu_seam_open_job &a, seam_shared &s, int n, int column0, int columns)
{
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    float sum[MIXES_PER_WARP][TOKENS] = {};
    for (int k = 0; k < STREAMS; k++) {
        const float *fn = a.fn + ((size_t)warp * MIXES_PER_WARP * STREAMS + k) * a.hidden + column0;
        for (int i = lane; i < columns / 2; i += 32) {
            float2 w[MIXES_PER_WARP];
#pragma unroll
            for (int m = 0; m < MIXES_PER_WARP; m++) {
                w[m] = *(const float2 *)(fn + (size_t)m * STREAMS * a.hidden + 2 * i);
            }
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                const uint32_t x = s.x[t][k][i];
#pragma unroll
                for (int m = 0; m < MIXES_PER_WARP; m++) {
                    sum[m][t] = __fmaf_rn(w[m].x, bf16_widen(x & 0xFFFF), sum[m][t]);
                    sum[m][t] = __fmaf_rn(w[m].y, bf16_widen(x >> 16), sum[m][t]);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < MIXES_PER_WARP; m++) {
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            float v = warp_sum(sum[m][t]);
            if (lane == 0 && t < n) {
                s.own[t].mix[warp * MIXES_PER_WARP + m] = v;
            }
        }
    }
}

static __global__ void __launch_bounds__(THREADS) open_kernel(const __grid_constant__ cu_seam_open_job a)
{
    extern __shared__ __align__(16) uint8_t memory[];
    seam_shared &s = *(seam_shared *)memory;
    const uint32_t rank = cluster_rank();
    const int token0 = (int)(blockIdx.x / RANKS) * TOKENS;
    const int n = a.n_rows - token0 < TOKENS ? a.n_rows - token0 : TOKENS;
    const int columns = a.hidden / RANKS;
    const int column0 = (int)rank * columns;
    pdl_release();
    cluster_barrier_arrive(); /* every block of the cluster has started before others write into it */
    pdl_wait();
    for (int i = threadIdx.x; i < TOKENS * STREAMS * columns / 2; i += THREADS) {
        const int row = i / (columns / 2); /* token, stream */
        const int pair = i % (columns / 2);
        const size_t at = ((size_t)token0 * STREAMS + row) * a.hidden + column0 + 2 * pair;
        s.x[row / STREAMS][row % STREAMS][pair] = row / STREAMS < n ? *(const uint32_t *)(a.x + at) : 0;
    }
    __syncthreads();
    cluster_barrier_wait();
    float pre[TOKENS][STREAMS];
    for (int t = 0; t < n; t++) {
        float squares = 0.0f;
#pragma unroll
        for (int k = 0; k < STREAMS; k++) {
            pre[t][k] = a.pre_in[(size_t)(token0 + t) * STREAMS + k];
        }
        for (int i = threadIdx.x; i < columns / 2; i += THREADS) {
            const float2 u = collapse(s.x[t], i, pre[t]);
            squares = __fadd_rn(__fadd_rn(squares, __fmul_rn(u.x, u.x)), __fmul_rn(u.y, u.y));
        }
        squares = block_sum(squares, s.scratch);
        if (threadIdx.x < RANKS) {
            store_remote(&s.u_squares[rank][t], threadIdx.x, squares);
        }
    }
    cluster_barrier_arrive();
    cluster_barrier_wait();
    for (int t = 0; t < n; t++) {
        float squares = s.u_squares[0][t];
        for (int r = 1; r < RANKS; r++) {
            squares = __fadd_rn(squares, s.u_squares[r][t]);
        }
        const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, (float)a.hidden), a.norm_eps)));
        for (int i = threadIdx.x; i < columns / 2; i += THREADS) {
            const float2 u = collapse(s.x[t], i, pre[t]);
            uint32_t lo = bf16_bits(u.x);
            uint32_t hi = bf16_bits(u.y);
            if (a.norm != nullptr) {
                const float2 w = *(const float2 *)(a.norm + column0 + 2 * i);
                lo = bf16_bits(__fmul_rn(w.x, __fmul_rn(u.x, factor)));
                hi = bf16_bits(__fmul_rn(w.y, __fmul_rn(u.y, factor)));
            }
            *(uint32_t *)(a.u + (size_t)(token0 + t) * a.hidden + column0 + 2 * i) = lo | hi << 16;
        }
    }
    if (a.fn == nullptr) {
        return;
    }
    mix_columns(a, s, n, column0, columns);
    for (int t = 0; t < n; t++) {
        float squares = 0.0f;
        for (int i = threadIdx.x; i < STREAMS * columns / 2; i += THREADS) {
            const uint32_t x = s.x[t][i / (columns / 2)][i % (columns / 2)];
            const float lo = bf16_widen(x & 0xFFFF);
            const float hi = bf16_widen(x >> 16);
            squares = __fadd_rn(__fadd_rn(squares, __fmul_rn(lo, lo)), __fmul_rn(hi, hi));
        }
        squares = block_sum(squares, s.scratch);
        if (threadIdx.x == 0) {
            s.own[t].squares = squares;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n * (MIXES + 1); i += THREADS) {
        const int t = i / (MIXES + 1);
        const int m = i % (MIXES + 1);
        store_remote(&((float *)&s.part[rank][t])[m], 0, ((const float *)&s.own[t])[m]);
    }
    cluster_barrier_arrive();
    cluster_barrier_wait();
    const int t = threadIdx.x / 32;
    if (rank == 0 && t < n) {
        const int lane = threadIdx.x % 32;
        const int i = lane < MIXES ? lane : MIXES;
        float v = ((const float *)&s.part[0][t])[i];
        for (int r = 1; r < RANKS; r++) {
            v = __fadd_rn(v, ((const float *)&s.part[r][t])[i]);
        }
        const float squares = __shfl_sync(0xFFFFFFFFu, v, MIXES);
        const float wide = (float)(STREAMS * a.hidden);
        const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, wide), a.norm_eps)));
        coefficients(a, (size_t)(token0 + t), __fmul_rn(v, factor));
    }
}

/* grid (pieces of the row, tokens) */
static __global__ void __launch_bounds__(THREADS) close_kernel(const __grid_constant__ cu_seam_close_job a)
{
    pdl_release();
    pdl_wait();
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x) * 2;
    const size_t t = blockIdx.y;
    if (i >= a.hidden) {
        return;
    }
    const uint32_t y = *(const uint32_t *)(a.y + t * a.hidden + i);
    uint16_t *x = a.x + t * STREAMS * a.hidden + i;
    float lo[STREAMS];
    float hi[STREAMS];
#pragma unroll
    for (int j = 0; j < STREAMS; j++) {
        const uint32_t pair = *(const uint32_t *)(x + (size_t)j * a.hidden);
        lo[j] = bf16_widen(pair & 0xFFFF);
        hi[j] = bf16_widen(pair >> 16);
    }
#pragma unroll
    for (int k = 0; k < STREAMS; k++) {
        const float *comb = a.comb + t * STREAMS * STREAMS + k;
        float mixed_lo = __fmul_rn(comb[0], lo[0]);
        float mixed_hi = __fmul_rn(comb[0], hi[0]);
#pragma unroll
        for (int j = 1; j < STREAMS; j++) {
            mixed_lo = __fadd_rn(mixed_lo, __fmul_rn(comb[j * STREAMS], lo[j]));
            mixed_hi = __fadd_rn(mixed_hi, __fmul_rn(comb[j * STREAMS], hi[j]));
        }
        const float post = a.post[t * STREAMS + k];
        const uint32_t out_lo = bf16_bits(__fadd_rn(__fmul_rn(post, bf16_widen(y & 0xFFFF)), mixed_lo));
        const uint32_t out_hi = bf16_bits(__fadd_rn(__fmul_rn(post, bf16_widen(y >> 16)), mixed_hi));
        *(uint32_t *)(x + (size_t)k * a.hidden) = out_lo | out_hi << 16;
    }
}

extern "C" int cu_launch_seam_open(const cu_seam_open_job *args, cu_stream stream)
{
    const unsigned groups = (unsigned)(args->n_rows + TOKENS - 1) / TOKENS;
    int status = (int)cudaFuncSetAttribute(open_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(seam_shared));
    if (status == 0) {
        status = cu_launch_clusters(open_kernel, RANKS, dim3(groups * RANKS), dim3(THREADS), sizeof(seam_shared), stream, *args);
    }
    return status;
}

extern "C" int cu_launch_seam_close(const cu_seam_close_job *args, cu_stream stream)
{
    const unsigned pieces = (unsigned)(args->hidden + 2 * THREADS - 1) / (2 * THREADS);
    return cu_launch(close_kernel, dim3(pieces, (unsigned)args->n_rows), dim3(THREADS), 0, stream, *args);
}
