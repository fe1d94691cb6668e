/* rows.cu - the small work on rows between products: Q8 grid, norms, rotation, packing, routing. One block a row; every reduction
 * has one fixed order, so a row's bits do not depend on the batch. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/exact.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/quantise.cuh"

#include <math_constants.h>

/* --- Q8 grid ---------------------------------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(256) quantise_kernel(const uint16_t *x, uint16_t *out, int n)
{
    pdl_release();
    pdl_wait();
    size_t row = (size_t)blockIdx.y * n;
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = i < n ? bf16_widen(x[row + i]) : 0.0f;
    uint32_t code = q8_scale_code(warp_max(fabsf(v)));
    if (i < n) {
        out[row + i] = (uint16_t)(__float_as_uint(q8_rounded(v, code)) >> 16);
    }
}

extern "C" int cu_launch_quantise(const uint16_t *x, uint16_t *out, int32_t n_rows, int32_t n, cu_stream stream)
{
    return cu_launch(quantise_kernel, dim3((unsigned)(n + 255) / 256, (unsigned)n_rows), dim3(256), 0, stream, x, out, n);
}

/* --- Rotation --------------------------------------------------------------------------------------------------------------------- */

#define MOST_TURNS 256

/* grid (rows), one warp a head in turn */
static __global__ void __launch_bounds__(256) rotate_kernel(const __grid_constant__ cu_rotate a)
{
    __shared__ turn turns[MOST_TURNS];
    pdl_release();
    pdl_wait();
    for (int i = threadIdx.x; i < a.rope_dim / 2; i += blockDim.x) {
        turns[i] = turn_of(a.rope[i], a.pos[blockIdx.x]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < a.n_heads * a.rope_dim / 2; i += blockDim.x) {
        int head = i / (a.rope_dim / 2);
        int pair = i % (a.rope_dim / 2);
        uint32_t *p = (uint32_t *)(a.q + ((size_t)blockIdx.x * a.n_heads + head) * a.head_dim + a.head_dim - a.rope_dim) + pair;
        float x = bf16_widen(*p & 0xFFFF);
        float y = bf16_widen(*p >> 16);
        rotate_pair(x, y, turns[pair], 1.0f);
        *p = bf16_bits(x) | bf16_bits(y) << 16;
    }
}

extern "C" int cu_launch_rotate(const cu_rotate *args, cu_stream stream)
{
    return cu_launch(rotate_kernel, dim3((unsigned)args->n_rows), dim3(256), 0, stream, *args);
}

/* --- Low-rank query and window row -------------------------------------------------------------------------------------------------- */

/* 1 / sqrt(mean(x^2) + eps) of n BF16 values; all threads. */
static __device__ float rms_factor(const uint16_t *x, int n, float eps, float *scratch)
{
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float v = bf16_widen(x[i]);
        sum = __fadd_rn(sum, __fmul_rn(v, v));
    }
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(block_sum(sum, scratch), (float)n), eps)));
}

/* grid (rows, 2): query rows, then window rows; either may be missing. Each thread of a window row's block holds one pair of channels. */
static __global__ void __launch_bounds__(256) attn_rows_kernel(const __grid_constant__ cu_attn_rows a)
{
    __shared__ float scratch[32];
    pdl_release();
    pdl_wait();
    const size_t row = blockIdx.x;
    if (blockIdx.y == 0) {
        if (a.q == nullptr) {
            return;
        }
        const uint16_t *q = a.q + row * a.q_lora;
        float r = rms_factor(q, a.q_lora, a.eps, scratch);
        for (int i = threadIdx.x; i < a.q_lora; i += 256) {
            a.qr[row * a.q_lora + i] = (uint16_t)bf16_bits(__fmul_rn(a.q_norm[i], __fmul_rn(bf16_widen(q[i]), r)));
        }
        return;
    }
    if (a.kv == nullptr) {
        return;
    }
    const uint16_t *kv = a.kv + row * a.head_dim;
    const int n = a.head_dim;
    float r = rms_factor(kv, n, a.eps, scratch);
    uint8_t *out = a.packed + row * (size_t)(n + n / 32);
    for (int i = threadIdx.x * 2; i < n; i += 512) { /* sixteen threads share a scale */
        float x = bf16_rounded(__fmul_rn(a.kv_norm[i], __fmul_rn(bf16_widen(kv[i]), r)));
        float y = bf16_rounded(__fmul_rn(a.kv_norm[i + 1], __fmul_rn(bf16_widen(kv[i + 1]), r)));
        if (i >= n - a.rope_dim) {
            rotate_pair(x, y, turn_of(a.rope[(i - (n - a.rope_dim)) / 2], a.pos[row]), 1.0f);
            x = bf16_rounded(x);
            y = bf16_rounded(y);
        }
        float top = fmaxf(fabsf(x), fabsf(y));
        for (int d = 8; d > 0; d /= 2) {
            top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
        }
        uint32_t code = q8_scale_code(top);
        out[i] = (uint8_t)e4m3_code(q8_rounded(x, code), code);
        out[i + 1] = (uint8_t)e4m3_code(q8_rounded(y, code), code);
        if (i % 32 == 0) {
            out[n + i / 32] = (uint8_t)code;
        }
    }
}

extern "C" int cu_launch_attn_rows(const cu_attn_rows *args, cu_stream stream)
{
    return cu_launch(attn_rows_kernel, dim3((unsigned)args->n_rows, 2), dim3(256), 0, stream, *args);
}

/* --- Routing ---------------------------------------------------------------------------------------------------------------------- */

static __device__ float softplus(float z) { return z > 20.0f ? z : log1pf(expf(z)); }

/* One block a row, one thread an expert. The best are taken one after the other, lower ids first on ties, then put in ascending
 * order. */
static __global__ void __launch_bounds__(CU_MAX_EXPERTS) route_kernel(const __grid_constant__ cu_route a)
{
    __shared__ uint64_t scratch[32];
    __shared__ int chosen[32];
    __shared__ float chosen_score[32];
    const int e = threadIdx.x;
    const size_t t = blockIdx.x;
    pdl_release();
    pdl_wait();
    const float *bias = a.is_text[t] ? a.bias : a.bias_vl;
    float score = e < a.n_experts ? __fsqrt_rn(softplus(a.logits[t * a.n_experts + e])) : 0.0f;
    float biased = e < a.n_experts ? __fadd_rn(score, bias[e]) : -CUDART_INF_F;
    uint64_t key = biased > -CUDART_INF_F ? (uint64_t)order_of(biased) << 32 | (0xFFFFFFFFu - (uint32_t)e) : 0;
    for (int k = 0; k < a.n_active; k++) {
        uint64_t best = block_max_key(key, scratch);
        if (key == best) {
            chosen[k] = e;
            chosen_score[k] = score;
            key = 0;
        }
    }
    __syncthreads();
    if (e != 0) {
        return;
    }
    for (int i = 1; i < a.n_active; i++) {
        for (int j = i; j > 0 && chosen[j] < chosen[j - 1]; j--) {
            int id = chosen[j];
            float s = chosen_score[j];
            chosen[j] = chosen[j - 1];
            chosen_score[j] = chosen_score[j - 1];
            chosen[j - 1] = id;
            chosen_score[j - 1] = s;
        }
    }
    float sum = 0.0f;
    for (int k = 0; k < a.n_active; k++) {
        sum = __fadd_rn(sum, chosen_score[k]);
    }
    for (int k = 0; k < a.n_active; k++) {
        float w = a.n_active == 1 ? chosen_score[k] : __fdiv_rn(chosen_score[k], __fadd_rn(sum, 1e-20f));
        a.ids[t * a.n_active + k] = chosen[k];
        a.weights[t * a.n_active + k] = __fmul_rn(w, a.scale);
    }
}

extern "C" int cu_launch_route(const cu_route *args, cu_stream stream)
{
    return cu_launch(route_kernel, dim3((unsigned)args->n_rows), dim3(CU_MAX_EXPERTS), 0, stream, *args);
}
