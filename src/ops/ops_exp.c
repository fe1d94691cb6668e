/* ops_exp.c - see ops_exp.h. e^x = 2^k * 2^r with x * log2(e) = k + r, |r| <= 1/2. 2^r is a polynomial of degree 7
 * (ours: fitted with equal weights on the relative error, which is at most 2^-34, far below half an ulp of fp32).
 * Adding k to the exponent field multiplies. */
#include "ops/ops_exp.h"

#include "ops/vector.h"

#include <stdint.h>
#include <string.h>

typedef double d8 __attribute__((vector_size(64)));
typedef int64_t i8 __attribute__((vector_size(64)));
typedef float f8 __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) void exp_eight(const float *x, float *y)
{
    f8 v;
    memcpy(&v, x, sizeof v);
    const d8 zero = {0};
    const d8 rounder = zero + 0x1.8p52; /* adding it leaves an integer in the low bits */
    d8 z = __builtin_convertvector(v, d8) * 0x1.71547652b82fep+0;
    const i8 low = z < -1000.0; /* vectors have no ?: in C */
    z = (d8)((low & (i8)(zero - 1000.0)) | (~low & (i8)z));
    const i8 high = z > 1000.0;
    z = (d8)((high & (i8)(zero + 1000.0)) | (~high & (i8)z));
    const d8 shifted = z + rounder;
    const d8 r = z - (shifted - rounder);
    d8 p = zero + 0x1.fde5f8ac11195p-17;
    p = p * r + 0x1.445c844c53312p-13;
    p = p * r + 0x1.5d8a8603b6ea2p-10;
    p = p * r + 0x1.3b29f39ce1599p-7;
    p = p * r + 0x1.c6b08ac066600p-5;
    p = p * r + 0x1.ebfbe07787bbcp-3;
    p = p * r + 0x1.62e42ff0e1951p-1;
    p = p * r + 1.0;
    v = __builtin_convertvector((d8)((i8)p + ((i8)shifted << 52)), f8);
    memcpy(y, &v, sizeof v);
}

OPS_CLONES void ops_exp(const float *x, size_t n, float *y)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        exp_eight(x + i, y + i);
    }
    if (i < n) {
        float rest[8] = {0};
        memcpy(rest, x + i, (n - i) * sizeof *x);
        exp_eight(rest, rest);
        memcpy(y + i, rest, (n - i) * sizeof *x);
    }
}
