/* eng_gumbel.h - logarithm, exponential, softmax mass and Gumbel noise with equal bits on CPU and GPU.
 *
 * Library logf/expf differ between C libraries and GPUs, so these are written out as fp32 additions, multiplications and one
 * division, each rounded to nearest and never contracted into a fused multiply-add (the build says -ffp-contract=off; device
 * code uses the _rn intrinsics). Integer steps are exact. Accuracy (dense sweeps in test_eng_noise.c): eng_log 1.97 ulp,
 * eng_exp 0.99 ulp, eng_gumbel within 1.3e-7 (1 + |g|) of the value in double precision. Compared on sm_90 with x86-64: no
 * difference in all 2,130,706,432 normal positive arguments of eng_log, all of eng_mass, and 536,870,912 noises.
 *
 * Noise (architecture.md 5, dspark.md 2.5): counter (position low, position high, id, stream), key = seed. Of the four words,
 * the first two make one 64-bit fraction v = (w0 * 2^32 + w1 | 1) * 2^-64; E = -log(1 - v) is exponential, g = -log(E) Gumbel.
 * Why 64 bits: an id is drawn through the far tail of its noise. With v cut to 24 bits no g exceeds 16.6, and an id of
 * probability 1e-8 would come up about thirty times too seldom, which a vocabulary of 129,280 mostly such ids makes visible.
 *
 * Sums of probabilities are sums of integers (units of 2^-44 of the best id's probability), hence independent of order. */
#ifndef ENGINE_ENG_GUMBEL_H
#define ENGINE_ENG_GUMBEL_H

#include "engine/eng_philox.h"

#include <string.h>

#ifdef __CUDA_ARCH__
#define ENG_ADD(a, b) __fadd_rn((a), (b))
#define ENG_MUL(a, b) __fmul_rn((a), (b))
#define ENG_DIV(a, b) __fdiv_rn((a), (b))
#else
#define ENG_ADD(a, b) ((a) + (b))
#define ENG_MUL(a, b) ((a) * (b))
#define ENG_DIV(a, b) ((a) / (b))
#endif

#define ENG_GUMBEL_MAX 44.4f    /* no noise is larger: -log(2^-64) */
#define ENG_MASS_ONE 0x1p44f    /* mass of probability 1 relative to the best id */
#define ENG_MASS_FLOOR (-31.0f) /* below this the mass is 0 (e^-31 < 2^-44) */

ENG_PURE uint32_t eng_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ENG_PURE float eng_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2 atanh(s) for |s| <= 0.1716, by its Taylor series: the first term left out is 2e-9 of the result. */
ENG_PURE float eng_atanh2(float s)
{
    const float q = ENG_MUL(s, s);
    float p = 0x1.c71c72p-4f;             /* 1/9 */
    p = ENG_ADD(ENG_MUL(p, q), 0x1.24924ap-3f); /* 1/7 */
    p = ENG_ADD(ENG_MUL(p, q), 0x1.99999ap-3f); /* 1/5 */
    p = ENG_ADD(ENG_MUL(p, q), 0x1.555556p-2f); /* 1/3 */
    const float s2 = ENG_ADD(s, s);
    return ENG_ADD(s2, ENG_MUL(s2, ENG_MUL(q, p)));
}

/* log(x) of a positive, normal, finite x. x = 2^e m with m in [0.7072, 1.4143); log m = 2 atanh((m - 1) / (m + 1)). */
ENG_PURE float eng_log(float x)
{
    const uint32_t shifted = eng_bits_of(x) - 0x3F350000u;
    const int32_t e = (int32_t)shifted >> 23;
    const float m = eng_float_of((shifted & 0x007FFFFFu) + 0x3F350000u);
    const float log_m = eng_atanh2(ENG_DIV(ENG_ADD(m, -1.0f), ENG_ADD(m, 1.0f)));
    const float n = (float)e;
    /* ln 2 in two parts: the first has 15 bits, so that n times it is exact. */
    return ENG_ADD(ENG_MUL(n, 0x1.62e4p-1f), ENG_ADD(ENG_MUL(n, 0x1.7f7d1cp-20f), log_m));
}

/* exp(x) for ENG_MASS_FLOOR - 1 <= x <= 0. x = n ln 2 + r, |r| <= 0.35; Taylor series to r^7. No branches, so that loops over
 * it become vector code. */
ENG_PURE float eng_exp(float x)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer in the low mantissa bits */
    const float shifted = ENG_ADD(ENG_MUL(x, 0x1.715476p+0f), magic);
    const float n = ENG_ADD(shifted, -magic);
    float r = ENG_ADD(x, ENG_MUL(n, -0x1.62e4p-1f));
    r = ENG_ADD(r, ENG_MUL(n, -0x1.7f7d1cp-20f));
    float p = 0x1.a01a02p-13f;                   /* 1/7! */
    p = ENG_ADD(ENG_MUL(p, r), 0x1.6c16c2p-10f); /* 1/6! */
    p = ENG_ADD(ENG_MUL(p, r), 0x1.111112p-7f);  /* 1/5! */
    p = ENG_ADD(ENG_MUL(p, r), 0x1.555556p-5f);  /* 1/4! */
    p = ENG_ADD(ENG_MUL(p, r), 0x1.555556p-3f);  /* 1/3! */
    p = ENG_ADD(ENG_MUL(p, r), 0.5f);
    p = ENG_ADD(r, ENG_MUL(ENG_MUL(r, r), p));
    p = ENG_ADD(p, 1.0f);
    /* Times 2^n: n sits in the low bits of `shifted`; the product is normal because n >= -46. */
    return eng_float_of(eng_bits_of(p) + (eng_bits_of(shifted) << 23));
}

/* Log-probability distance of logit l to the best logit `max`, at a temperature: 0 for the best, never NaN. Ids of +inf share
 * the best place, and with one of them there every finite l is at -inf. */
ENG_PURE float eng_scale(float l, float max, float temperature)
{
    return l == max ? 0.0f : ENG_DIV(ENG_ADD(l, -max), temperature);
}

/* Probability relative to the best id in units of 2^-44, truncated. z <= 0. */
ENG_PURE uint64_t eng_mass(float z)
{
    return z >= ENG_MASS_FLOOR ? (uint64_t)ENG_MUL(eng_exp(z), ENG_MASS_ONE) : 0;
}

/* log(sum of masses), relative to the best id. sum >= 2^44. */
ENG_PURE float eng_log_of_mass(uint64_t sum)
{
    return eng_log(ENG_MUL((float)sum, 0x1p-44f));
}

/* Gumbel noise of a 64-bit fraction. Both ends keep their relative precision: near 0 E is a series in v, elsewhere the
 * logarithm of the complement. */
ENG_PURE float eng_gumbel_of(uint64_t fraction)
{
    const float v = ENG_MUL((float)(fraction | 1u), 0x1p-64f);
    float e;
    if (v < 0.25f) {
        e = eng_atanh2(ENG_DIV(v, ENG_ADD(2.0f, -v)));
    } else {
        e = -eng_log(ENG_MUL((float)(~fraction | 1u), 0x1p-64f));
    }
    return -eng_log(e);
}

/* No noise of this fraction is larger: E >= v >= 2^-(zeros + 1), so g <= (zeros + 1) ln 2. The last digits of the factor leave
 * room for rounding. `zeros` = leading zeros of (fraction | 1). */
ENG_PURE float eng_gumbel_bound(int zeros)
{
    return ENG_MUL((float)(zeros + 1), 0.69316f);
}

ENG_PURE float eng_gumbel(uint64_t seed, int64_t position, int32_t id, uint32_t stream)
{
    const uint64_t p = (uint64_t)position;
    const eng_words counter = {{(uint32_t)p, (uint32_t)(p >> 32), (uint32_t)id, stream}};
    const eng_words r = eng_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    return eng_gumbel_of((uint64_t)r.w[0] << 32 | r.w[1]);
}

#endif
