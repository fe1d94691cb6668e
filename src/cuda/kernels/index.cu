/* index.cu - index scores, candidate blocks and the best entries of each row (model.md 3.7.2), with the reference's bits.
 *
 * Codes of queries and keys are small integers (twice an E2M1 value) under one power of two for 32 of them, so the dot product of a group
 * is exact in whichever way it is added; only the sum over groups is rounded, in order, as in the reference. Scores are BF16 values and are
 * kept as 16 bits that sort like them, 0 for what does not count.
 *
 * Selection: a histogram over the upper 11 bits finds the bucket of the last score that is taken, a second one over the lower 5 the score
 * itself; then every thread counts in its own run of entries what lies above and what is equal, sums over the threads give each its place,
 * and the list comes out in ascending order, equal scores going to the lower index. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/exact.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/ptx.cuh"
#include "cuda/kernels/seqs.cuh"

#include <math_constants.h>

#define KEYS 128           /* entries of a block, one a thread */
#define SELECT_THREADS 512
#define COARSE_BITS 11
#define FINE_BITS 5
#define PINNED 0xFF80u /* order of +infinity */
#define CHOSEN 1u

/* --- Queries ------------------------------------------------------------------------------------------------------------------------- */

/* grid (rows, heads), one warp: codes and scales of a head, its weight. */
static __global__ void __launch_bounds__(32) query_kernel(const __grid_constant__ cu_index_job a)
{
    __shared__ float x[CU_MAX_INDEX_DIM];
    pdl_release();
    pdl_wait();
    const int n = a.index_dim;
    const int lane = threadIdx.x;
    const size_t head = (size_t)blockIdx.x * a.n_heads + blockIdx.y;
    for (int i = lane; i < n; i += 32) {
        x[i] = bf16_widen(a.iq[head * n + i]);
    }
    __syncwarp();
    for (int i = lane; i < a.rope_dim / 2; i += 32) {
        float *pair = x + n - a.rope_dim + 2 * i;
        float lo = pair[0];
        float hi = pair[1];
        rotate_pair(lo, hi, turn_of(a.rope[i], a.pos[blockIdx.x]), 1.0f);
        pair[0] = bf16_rounded(lo);
        pair[1] = bf16_rounded(hi);
    }
    __syncwarp();
    for (int g = 0; g < n / 32; g++) {
        const float v = x[g * 32 + lane];
        const uint32_t code = q4e_scale_code(warp_max(fabsf(v)));
        const float s = e8m0_value(code);
        a.codes[head * n + g * 32 + lane] = (int8_t)__float2int_rn(2.0f * e2m1_value(e2m1_code(__fdiv_rn(v, s))));
        if (lane == 0) {
            a.scales[head * (n / 32) + g] = __fmul_rn(s, 0.25f);
        }
    }
    if (lane == 0) {
        a.weights[head] = bf16_rounded(__fmul_rn(bf16_widen(a.iw[head]), a.scale));
    }
}

extern "C" int cu_launch_index_queries(const cu_index_job *args, cu_stream stream)
{
    return cu_launch(query_kernel, dim3((unsigned)args->n_rows, (unsigned)args->n_heads), dim3(32), 0, stream, *args);
}

/* --- Scores -------------------------------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ int visible_of(const cu_index_job &a, int row)
{
    const cu_seq &seq = seq_at(a.seqs, seq_of_row(a.seqs, row));
    return (int)((seq.pos0 + (row - seq.row0) + 1) / a.ratio);
}

/* Four codes to four signed bytes, each twice its value. */
static __device__ __forceinline__ uint32_t spread_codes(uint32_t codes)
{
    const uint32_t size = __byte_perm(0x03020100u, 0x0C080604u, codes & 0x7777u);
    const uint32_t sign = __byte_perm(0x0000FF00u, 0u, codes >> 3 & 0x1111u);
    return __vsub4(size ^ sign, sign);
}

static __device__ __forceinline__ uint32_t load_half(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }

static __device__ __forceinline__ uint16_t order16(float score)
{
    return score > -CUDART_INF_F ? (uint16_t)(order_of(score) >> 16) : (uint16_t)0;
}

static __device__ __forceinline__ bool is_candidate(const cu_index_job &a, int row, int entry)
{
    const int b = entry / a.block_size;
    return a.candidates[(size_t)row * a.cand_stride + b / 8] >> (b % 8) & 1;
}

/* grid (blocks of entries, rows of the group). GROUPS: of 32 channels. */
template <int GROUPS>
static __global__ void __launch_bounds__(KEYS) score_kernel(const __grid_constant__ cu_index_job a)
{
    extern __shared__ __align__(16) uint8_t memory[];
    const int row = a.row0 + blockIdx.y;
    const int entry = blockIdx.x * KEYS + threadIdx.x;
    const int n = GROUPS * 32;
    uint32_t *codes = (uint32_t *)memory;                        /* [heads, n / 4] */
    float *scales = (float *)(memory + (size_t)a.n_heads * n);   /* [heads, GROUPS] */
    float *weights = scales + (size_t)a.n_heads * GROUPS;        /* [heads] */
    pdl_release();
    pdl_wait();
    const int visible = visible_of(a, row);
    if ((int)blockIdx.x * KEYS >= visible) {
        return;
    }
    for (int i = threadIdx.x; i < a.n_heads * n / 4; i += KEYS) {
        codes[i] = ((const uint32_t *)(a.codes + (size_t)row * a.n_heads * n))[i];
    }
    for (int i = threadIdx.x; i < a.n_heads * GROUPS; i += KEYS) {
        scales[i] = a.scales[(size_t)row * a.n_heads * GROUPS + i];
    }
    for (int i = threadIdx.x; i < a.n_heads; i += KEYS) {
        weights[i] = a.weights[(size_t)row * a.n_heads + i];
    }
    __syncthreads();
    if (entry >= visible) {
        return;
    }
    uint16_t *out = a.order + (size_t)blockIdx.y * a.stride + entry;
    if (a.use_candidates && !is_candidate(a, row, entry)) {
        *out = 0;
        return;
    }
    const cu_seq &seq = seq_at(a.seqs, seq_of_row(a.seqs, row));
    const uint8_t *key_row = paged_row(a.seqs, seq, a.index_keys, entry);
    uint32_t key[GROUPS * 8];
    float key_scale[GROUPS];
#pragma unroll
    for (int i = 0; i < GROUPS * 8; i++) {
        key[i] = spread_codes(load_half(key_row + 2 * i));
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        key_scale[g] = e8m0_value(key_row[n / 2 + g]);
    }
    float sum = 0.0f;
    for (int h = 0; h < a.n_heads; h++) {
        float dot = 0.0f;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            int part = 0;
#pragma unroll
            for (int i = 0; i < 8; i += 4) {
                const uint4 q = *(const uint4 *)&codes[h * (n / 4) + g * 8 + i];
                part = __dp4a((int)q.x, (int)key[g * 8 + i], part);
                part = __dp4a((int)q.y, (int)key[g * 8 + i + 1], part);
                part = __dp4a((int)q.z, (int)key[g * 8 + i + 2], part);
                part = __dp4a((int)q.w, (int)key[g * 8 + i + 3], part);
            }
            dot = __fadd_rn(dot, __fmul_rn(__int2float_rn(part), __fmul_rn(scales[h * GROUPS + g], key_scale[g])));
        }
        dot = bf16_rounded(dot);
        sum = __fadd_rn(sum, bf16_rounded(__fmul_rn(dot > 0.0f ? dot : 0.0f, weights[h])));
    }
    *out = order16(bf16_rounded(sum));
}

template <int GROUPS>
static int launch_scores(const cu_index_job *a, cu_stream stream)
{
    const size_t bytes = (size_t)a->n_heads * (GROUPS * 32 + GROUPS * 4 + 4);
    const dim3 grid((unsigned)(a->stride + KEYS - 1) / KEYS, (unsigned)a->n_group);
    const int status = (int)cudaFuncSetAttribute(score_kernel<GROUPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return status != 0 ? status : cu_launch(score_kernel<GROUPS>, grid, dim3(KEYS), bytes, stream, *a);
}

extern "C" int cu_launch_index_scores(const cu_index_job *args, cu_stream stream)
{
    switch (args->index_dim / 32) {
    case 1:
        return launch_scores<1>(args, stream);
    case 2:
        return launch_scores<2>(args, stream);
    case 3:
        return launch_scores<3>(args, stream);
    default:
        return launch_scores<4>(args, stream);
    }
}

/* --- Selection ----------------------------------------------------------------------------------------------------------------------- */

struct select_shared {
    int histogram[1 << COARSE_BITS];
    int warp_above[SELECT_THREADS / 32];
    int warp_equal[SELECT_THREADS / 32];
    int bucket;
    int above; /* entries in higher buckets */
};

/* The bucket in which the k-th largest lies, by one warp; how many lie above it. -1 when there are fewer than k in all. */
static __device__ void find_bucket(select_shared &s, int n_buckets, int k)
{
    if (threadIdx.x >= 32) {
        return;
    }
    const int lane = threadIdx.x;
    int above = 0;
    int bucket = -1;
    for (int b0 = n_buckets - 32; b0 >= 0 && bucket < 0; b0 -= 32) { /* lane 31 holds the highest */
        const int mine = s.histogram[b0 + lane];
        int sum = mine; /* of this and all higher buckets of the 32 */
        for (int d = 1; d < 32; d *= 2) {
            const int up = __shfl_down_sync(0xFFFFFFFFu, sum, d);
            sum += lane + d < 32 ? up : 0;
        }
        const uint32_t enough = __ballot_sync(0xFFFFFFFFu, above + sum >= k);
        if (enough != 0) {
            const int top = 31 - __clz((int)enough); /* the highest bucket from which on there are k */
            bucket = b0 + top;
            above += __shfl_sync(0xFFFFFFFFu, sum - mine, top);
        } else {
            above += __shfl_sync(0xFFFFFFFFu, sum, 0);
        }
    }
    if (lane == 0) {
        s.bucket = bucket;
        s.above = above;
    }
}

static __device__ void clear_histogram(select_shared &s, int n)
{
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += SELECT_THREADS) {
        s.histogram[i] = 0;
    }
    __syncthreads();
}

/* The k best of n orders: everything above *threshold, and the first *equal of those that are equal to it. All threads. */
static __device__ void find_threshold(select_shared &s, const uint16_t *order, int n, int k, int *threshold, int *equal)
{
    clear_histogram(s, 1 << COARSE_BITS);
    for (int i = threadIdx.x; i < n; i += SELECT_THREADS) {
        const uint32_t v = order[i];
        if (v != 0) {
            atomicAdd(&s.histogram[v >> FINE_BITS], 1);
        }
    }
    __syncthreads();
    find_bucket(s, 1 << COARSE_BITS, k);
    __syncthreads();
    const int coarse = s.bucket;
    const int above = s.above;
    if (coarse < 0) { /* fewer than k: all that count */
        *threshold = 0;
        *equal = 0;
        return;
    }
    clear_histogram(s, 1 << FINE_BITS);
    for (int i = threadIdx.x; i < n; i += SELECT_THREADS) {
        const int v = order[i];
        if (v != 0 && v >> FINE_BITS == coarse) {
            atomicAdd(&s.histogram[v & ((1 << FINE_BITS) - 1)], 1);
        }
    }
    __syncthreads();
    find_bucket(s, 1 << FINE_BITS, k - above);
    __syncthreads();
    *threshold = coarse << FINE_BITS | s.bucket;
    *equal = k - above - s.above;
}

/* Where a thread's own run of entries begins in the list: what earlier runs take. */
struct run_place {
    int above;
    int equal;
};

static __device__ run_place place_of(select_shared &s, int above, int equal)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    int a = above;
    int e = equal;
    for (int d = 1; d < 32; d *= 2) {
        const int a_up = __shfl_up_sync(0xFFFFFFFFu, a, d);
        const int e_up = __shfl_up_sync(0xFFFFFFFFu, e, d);
        a += lane >= d ? a_up : 0;
        e += lane >= d ? e_up : 0;
    }
    if (lane == 31) {
        s.warp_above[warp] = a;
        s.warp_equal[warp] = e;
    }
    __syncthreads();
    for (int w = 0; w < warp; w++) {
        a += s.warp_above[w];
        e += s.warp_equal[w];
    }
    return {a - above, e - equal};
}

/* Calls take(index, number) for each of the k best in ascending order; returns how many there are (to all threads). */
template <typename TAKE>
static __device__ int select_best(select_shared &s, const uint16_t *order, int n, int k, TAKE take)
{
    int threshold;
    int equal;
    find_threshold(s, order, n, k, &threshold, &equal);
    const int run = (n + SELECT_THREADS - 1) / SELECT_THREADS;
    const int begin = threadIdx.x * run < n ? threadIdx.x * run : n;
    const int end = begin + run < n ? begin + run : n;
    int n_above = 0;
    int n_equal = 0;
    for (int i = begin; i < end; i++) {
        n_above += order[i] > threshold;
        n_equal += order[i] == threshold;
    }
    const run_place at = place_of(s, n_above, n_equal);
    int above = at.above;
    int same = at.equal;
    for (int i = begin; i < end; i++) {
        const int v = order[i];
        if (v > threshold) {
            take(i, above + (same < equal ? same : equal));
            above++;
        } else if (v == threshold) {
            if (same < equal) {
                take(i, above + same);
            }
            same++;
        }
    }
    __syncthreads();
    int total = 0;
    int all_equal = 0;
    for (int w = 0; w < SELECT_THREADS / 32; w++) {
        total += s.warp_above[w];
        all_equal += s.warp_equal[w];
    }
    return total + (all_equal < equal ? all_equal : equal);
}

/* Blocks of entries: the best `n_blocks` of them, the newest one in any case, as bits. */
static __device__ void make_candidates(select_shared &s, const cu_index_job &a, int row, const uint16_t *order, uint16_t *block_order,
                                       int visible)
{
    const int n = (visible + a.block_size - 1) / a.block_size;
    uint8_t *bits = a.candidates + (size_t)row * a.cand_stride;
    for (int b = threadIdx.x; b < n; b += SELECT_THREADS) {
        uint32_t top = 0;
        const int end = (b + 1) * a.block_size < visible ? (b + 1) * a.block_size : visible;
        for (int j = b * a.block_size; j < end; j++) {
            top = order[j] > top ? order[j] : top;
        }
        block_order[b] = (uint16_t)(b == n - 1 ? PINNED : top);
    }
    __syncthreads();
    /* What is chosen is marked by an order that no score has; then a thread puts eight blocks together. */
    select_best(s, block_order, n, a.n_blocks, [&](int i, int) { block_order[i] = CHOSEN; });
    __syncthreads();
    for (int j = threadIdx.x; j < a.cand_stride; j += SELECT_THREADS) {
        uint32_t byte = 0;
        for (int b = 8 * j; b < 8 * j + 8 && b < n; b++) {
            byte |= (uint32_t)(block_order[b] == CHOSEN) << (b - 8 * j);
        }
        bits[j] = (uint8_t)byte;
    }
}

/* grid (rows of the group) */
static __global__ void __launch_bounds__(SELECT_THREADS) select_kernel(const __grid_constant__ cu_index_job a)
{
    __shared__ select_shared s;
    pdl_release();
    pdl_wait();
    const int row = a.row0 + blockIdx.x;
    const int visible = visible_of(a, row);
    const uint16_t *order = a.order + (size_t)blockIdx.x * a.stride;
    int32_t *list = a.list + (size_t)row * a.topk;
    if (a.make_candidates) {
        make_candidates(s, a, row, order, a.block_order + (size_t)blockIdx.x * a.block_stride, visible);
        __syncthreads();
    }
    const int n = select_best(s, order, visible, a.topk, [&](int i, int at) { list[at] = i; });
    for (int i = n + threadIdx.x; i < a.topk; i += SELECT_THREADS) {
        list[i] = -1;
    }
    for (int j = threadIdx.x; a.score != nullptr && j < a.score_stride; j += SELECT_THREADS) {
        const uint32_t v = j < visible ? (uint32_t)order[j] << 16 : 0;
        float x = -CUDART_INF_F;
        if (v != 0) {
            x = __uint_as_float(v & 0x80000000u ? v & 0x7FFFFFFFu : ~v & 0xFFFF0000u);
        }
        a.score[(size_t)row * a.score_stride + j] = x;
    }
}

extern "C" int cu_launch_index_select(const cu_index_job *args, cu_stream stream)
{
    return cu_launch(select_kernel, dim3((unsigned)args->n_group), dim3(SELECT_THREADS), 0, stream, *args);
}
