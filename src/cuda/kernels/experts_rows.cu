/* experts_rows.cu - in front of and behind the weights of the experts stage (experts.cu): activations to the Q8 grid and assignments to
 * blocks of tokens; contributions of a token to its sum, in the order of its list, the shared expert last (model.md 3.10). */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/ptx.cuh"
#include "cuda/kernels/quantise.cuh"

/* --- prepare ------------------------------------------------------------------------------------------------------------------ */

static __device__ void quantise_row(const uint16_t *u, uint16_t *x, int n)
{
    for (int i = threadIdx.x * 2; i < n; i += blockDim.x * 2) {
        uint32_t pair = *(const uint32_t *)(u + i);
        float a = bf16_widen(pair & 0xFFFF);
        float b = bf16_widen(pair >> 16);
        float top = fmaxf(fabsf(a), fabsf(b));
        for (int d = 8; d > 0; d /= 2) {
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
        }
        uint32_t code = q8_scale_code(top);
        *(uint32_t *)(x + i) = __float_as_uint(q8_rounded(a, code)) >> 16 | (__float_as_uint(q8_rounded(b, code)) & 0xFFFF0000u);
    }
}

/* Running sums over the experts of what each needs: (assignments, blocks). Called by all 512 threads of the block. */
static __device__ void sort_assignments(const cu_experts_args &a, int n_items_first)
{
    const int per_block = a.block_rows;
    __shared__ int count[CU_MAX_EXPERTS];
    __shared__ int first_block[CU_MAX_EXPERTS];
    __shared__ int warp_sum[2][16];
    const int e = threadIdx.x;
    const int lane = e % 32;
    const int n = a.n_rows * a.n_active;
    count[e] = 0;
    __syncthreads();
    for (int i = e; i < n; i += blockDim.x) {
        atomicAdd(&count[a.ids[i]], 1);
    }
    __syncthreads();
    int mine = count[e];
    int blocks = (mine + per_block - 1) / per_block;
    int s = mine;
    int b = blocks;
    for (int d = 1; d < 32; d *= 2) {
        int s_up = __shfl_up_sync(0xFFFFFFFFu, s, d);
        int b_up = __shfl_up_sync(0xFFFFFFFFu, b, d);
        s += lane >= d ? s_up : 0;
        b += lane >= d ? b_up : 0;
    }
    if (lane == 31) {
        warp_sum[0][e / 32] = s;
        warp_sum[1][e / 32] = b;
    }
    __syncthreads();
    for (int w = 0; w < e / 32; w++) {
        s += warp_sum[0][w];
        b += warp_sum[1][w];
    }
    first_block[e] = b - blocks;
    for (int i = 0; i < blocks; i++) {
        int first = i * per_block;
        cu_token_block *block = &a.work.blocks[b - blocks + i];
        block->weights = a.experts[e];
        block->first = s - mine + first;
        block->n = mine - first < per_block ? mine - first : per_block;
    }
    count[e] = 0;
    if (e == CU_MAX_EXPERTS - 1) {
        a.work.counters[0] = (uint32_t)n_items_first;
        a.work.counters[1] = (uint32_t)b;
    }
    for (int i = e; i < n + a.n_rows; i += blockDim.x) {
        a.work.done[i] = 0;
    }
    __syncthreads();
    for (int i = e; i < n; i += blockDim.x) {
        const int expert = a.ids[i];
        const int at = atomicAdd(&count[expert], 1);
        cu_token_block *block = &a.work.blocks[first_block[expert] + at / per_block];
        block->token[at % per_block] = i / a.n_active;
        block->slot[at % per_block] = i / a.n_active * (a.n_active + 1) + i % a.n_active;
        block->weight[at % per_block] = a.weights[i];
    }
}

static __global__ void __launch_bounds__(CU_MAX_EXPERTS) prepare_kernel(const __grid_constant__ cu_experts_args a, int n_items_first)
{
    pdl_release();
    pdl_wait();
    if (blockIdx.x == 0) {
        sort_assignments(a, n_items_first);
    } else {
        size_t t = blockIdx.x - 1;
        quantise_row(a.u + t * a.hidden, a.work.x + t * a.hidden, a.hidden);
    }
}

/* --- combine ------------------------------------------------------------------------------------------------------------------ */

/* grid (pieces of the row, tokens) */
static __global__ void __launch_bounds__(256) combine_kernel(const __grid_constant__ cu_experts_args a)
{
    pdl_release();
    pdl_wait();
    const int i = (blockIdx.x * 256 + threadIdx.x) * 2;
    if (i >= a.hidden) {
        return;
    }
    const uint16_t *out = a.work.out + (size_t)blockIdx.y * (a.n_active + 1) * a.hidden + i;
    float lo = 0.0f;
    float hi = 0.0f;
    for (int s = 0; s <= a.n_active; s++) {
        uint32_t pair = *(const uint32_t *)(out + (size_t)s * a.hidden);
        lo = __fadd_rn(lo, bf16_widen(pair & 0xFFFF));
        hi = __fadd_rn(hi, bf16_widen(pair >> 16));
    }
    *(uint32_t *)(a.y + (size_t)blockIdx.y * a.hidden + i) = bf16_bits(lo) | bf16_bits(hi) << 16;
}

extern "C" int cu_launch_experts_prepare(const cu_experts_args *args, int n_items_first, cu_stream stream)
{
    return cu_launch(prepare_kernel, dim3((unsigned)args->n_rows + 1), dim3(CU_MAX_EXPERTS), 0, stream, *args, n_items_first);
}

extern "C" int cu_launch_experts_combine(const cu_experts_args *args, cu_stream stream)
{
    const unsigned pieces = (unsigned)(args->hidden + 511) / 512;
    return cu_launch(combine_kernel, dim3(pieces, (unsigned)args->n_rows), dim3(256), 0, stream, *args);
}
