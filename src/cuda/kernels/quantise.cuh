/* quantise.cuh - the formats of activations on the device, bit for bit those of ops/formats.c: BF16 rounding and the Q8 grid (E4M3
 * codes with one power of two for 32 values, model.md 3.2). Values stay in fp32 between the steps. */
#ifndef CUDA_KERNELS_QUANTISE_CUH
#define CUDA_KERNELS_QUANTISE_CUH

#include <stdint.h>

__device__ __forceinline__ float bf16_widen(uint32_t bits) { return __uint_as_float(bits << 16); }

__device__ __forceinline__ uint32_t bf16_bits(float x)
{
    uint32_t u = __float_as_uint(x);
    uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? (u >> 16) | 0x40u : rounded;
}

__device__ __forceinline__ float bf16_rounded(float x) { return __uint_as_float(bf16_bits(x) << 16); }

/* E8M0 code of the Q8 scale of a group with largest magnitude amax. */
__device__ __forceinline__ uint32_t q8_scale_code(float amax)
{
    uint32_t u = __float_as_uint(__fmul_rn(amax > 1e-4f ? amax : 1e-4f, 0x1.24924ap-9f)); /* fp32(1 / 448) */
    return (u >> 23) + ((u & 0x7FFFFFu) != 0);
}

/* x on the grid of a group with that scale: E4M3 rounding, ties to even, saturating. */
__device__ __forceinline__ float q8_rounded(float x, uint32_t code)
{
    float s = __uint_as_float(code << 23);
    float inverse = __uint_as_float((254u - code) << 23);
    float v = fminf(fmaxf(__fmul_rn(x, inverse), -448.0f), 448.0f);
    uint32_t e = __float_as_uint(v) & 0x7F800000u;
    e = e < (121u << 23) ? 121u << 23 : e;
    float magic = __fmul_rn(__uint_as_float(e + (20u << 23)), 1.5f); /* its unit is the step of the grid at v */
    float q = copysignf(__fsub_rn(__fadd_rn(v, magic), magic), v);
    return __fmul_rn(q, s);
}

/* E4M3 code of a value that lies on the grid of a group with that scale. */
__device__ __forceinline__ uint32_t e4m3_code(float on_grid, uint32_t scale_code)
{
    uint32_t u = __float_as_uint(__fmul_rn(on_grid, __uint_as_float((254u - scale_code) << 23)));
    uint32_t sign = u >> 24 & 0x80u;
    float a = __uint_as_float(u & 0x7FFFFFFFu);
    uint32_t tiny = (uint32_t)__fmul_rn(a, 512.0f);
    return sign | (a < 0x1p-6f ? tiny : (__float_as_uint(a) >> 20) - (120u << 3));
}

#endif
