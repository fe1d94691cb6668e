/* exact.cuh - arithmetic of the plain C reference on the device, operation by operation: exponentials, decoded codes, rotations, norms.
 *
 * What the C library computes (expf, sinf, cosf) is rounded from double here: the same bits but for the library's own last half unit. */
#ifndef CUDA_KERNELS_EXACT_CUH
#define CUDA_KERNELS_EXACT_CUH

#include "cuda/kernels/quantise.cuh"

#include <stdint.h>

/* ops_exp (ops/ops_exp.c), bit for bit. */
__device__ __forceinline__ float exact_exp(float x)
{
    const double rounder = 0x1.8p52;
    double z = __dmul_rn((double)x, 0x1.71547652b82fep+0);
    z = z < -1000.0 ? -1000.0 : z > 1000.0 ? 1000.0 : z;
    const double shifted = __dadd_rn(z, rounder);
    const double r = __dsub_rn(z, __dsub_rn(shifted, rounder));
    double p = 0x1.fde5f8ac11195p-17;
    p = __dadd_rn(__dmul_rn(p, r), 0x1.445c844c53312p-13);
    p = __dadd_rn(__dmul_rn(p, r), 0x1.5d8a8603b6ea2p-10);
    p = __dadd_rn(__dmul_rn(p, r), 0x1.3b29f39ce1599p-7);
    p = __dadd_rn(__dmul_rn(p, r), 0x1.c6b08ac066600p-5);
    p = __dadd_rn(__dmul_rn(p, r), 0x1.ebfbe07787bbcp-3);
    p = __dadd_rn(__dmul_rn(p, r), 0x1.62e42ff0e1951p-1);
    p = __dadd_rn(__dmul_rn(p, r), 1.0);
    return (float)__longlong_as_double(__double_as_longlong(p) + (long long)((unsigned long long)__double_as_longlong(shifted) << 52));
}

/* expf as good C libraries have it. */
__device__ __forceinline__ float rounded_exp(float x) { return (float)exp((double)x); }

__device__ __forceinline__ float rounded_sigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, rounded_exp(-x))); }

/* --- Codes -------------------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ float e4m3_value(uint32_t code)
{
    return __uint_as_float((code & 0x80u) << 24 | __float_as_uint(__fmul_rn(__uint_as_float((code & 0x7Fu) << 20), 0x1p120f)));
}

__device__ __forceinline__ float e2m1_value(uint32_t code)
{
    return __uint_as_float((code & 8u) << 28 | __float_as_uint(__fmul_rn(__uint_as_float((code & 7u) << 22), 0x1p126f)));
}

__device__ __forceinline__ float e8m0_value(uint32_t code) { return __uint_as_float(code != 0 ? code << 23 : 0x400000u); }

/* E2M1 code of x, |x| > 6 saturates (ops/formats.c). */
__device__ __forceinline__ uint32_t e2m1_code(float x)
{
    const uint32_t u = __float_as_uint(x);
    float a = __uint_as_float(u & 0x7FFFFFFFu);
    a = a < 6.0f ? a : 6.0f;
    const float code = a < 2.0f ? rintf(__fmul_rn(a, 2.0f)) : a < 4.0f ? rintf(a) + 2.0f : rintf(__fmul_rn(a, 0.5f)) + 4.0f;
    return (uint32_t)code | (u >> 28 & 8u);
}

/* E4M3 code of 0 <= a <= 448. */
__device__ __forceinline__ uint32_t e4m3_code_of(float a)
{
    const uint32_t b = __float_as_uint(a);
    const uint32_t normal = ((b + 0x7FFFFu + (b >> 20 & 1u)) >> 20) - (120u << 3);
    return a < 0x1p-6f ? (uint32_t)rintf(__fmul_rn(a, 512.0f)) : normal;
}

/* Scale code of a Q4E group of 32. */
__device__ __forceinline__ uint32_t q4e_scale_code(float amax)
{
    const float least = 6.0f * 0x1p-126f;
    const uint32_t u = __float_as_uint(__fmul_rn(amax > least ? amax : least, 0x1.555556p-3f)); /* fp32(1 / 6) */
    return (u >> 23) + ((u & 0x7FFFFFu) != 0);
}

/* Scale code of a Q4N group of 16. */
__device__ __forceinline__ uint32_t q4n_scale_code(float amax)
{
    const float least = 6.0f * 0x1p-9f;
    const float a = __fdiv_rn(amax > least ? amax : least, 6.0f);
    return e4m3_code_of(a > 448.0f ? 448.0f : a);
}

/* --- Rotation ------------------------------------------------------------------------------------------------------------------ */

struct turn {
    float c;
    float s;
};

__device__ __forceinline__ turn turn_of(float frequency, int64_t pos)
{
    const double angle = (double)__fmul_rn((float)pos, frequency);
    double s;
    double c;
    sincos(angle, &s, &c);
    return {(float)c, (float)s};
}

/* sign -1: the inverse. */
__device__ __forceinline__ void rotate_pair(float &a, float &b, turn t, float sign)
{
    const float s = sign * t.s;
    const float x = a;
    a = __fsub_rn(__fmul_rn(x, t.c), __fmul_rn(b, s));
    b = __fadd_rn(__fmul_rn(x, s), __fmul_rn(b, t.c));
}

/* --- Norms --------------------------------------------------------------------------------------------------------------------- */

/* 1 / sqrt(mean(x^2) + eps) of n values in shared memory, in the reference's sixteen interleaved sums. Called by all threads; the same
 * for all. lanes [16] */
__device__ __forceinline__ float exact_rms_factor(const float *x, int n, float eps, float *lanes)
{
    __syncthreads();
    if (threadIdx.x < 16) {
        float sum = 0.0f;
        for (int i = threadIdx.x; i < n; i += 16) {
            sum = __fadd_rn(sum, __fmul_rn(x[i], x[i]));
        }
        lanes[threadIdx.x] = sum;
    }
    __syncthreads();
    float sum[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        sum[i] = lanes[i];
    }
#pragma unroll
    for (int half = 8; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (i < half) {
                sum[i] = __fadd_rn(sum[i], sum[i + half]);
            }
        }
    }
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum[0], (float)n), eps)));
}

#endif
