/* vector.h - sixteen floats at once, in the compiler's own vector type: the same element-wise arithmetic on every machine, whatever
 * registers it has. OPS_CLONES compiles a function for several instruction sets and picks one at start; since contraction to fused
 * multiply-add is off, all give the same bits. Sanitizers do not survive the loader hook behind it, so they get one version. */
#ifndef OPS_VECTOR_H
#define OPS_VECTOR_H

#include <stdint.h>
#include <string.h>

typedef float v16 __attribute__((vector_size(64)));
/* The same with the alignment of a float, for loads and stores anywhere. */
typedef float v16u __attribute__((vector_size(64), aligned(4), may_alias));

typedef uint16_t v16_half __attribute__((vector_size(32)));
typedef uint32_t v16_bits __attribute__((vector_size(64)));

/* Sixteen bf16 widened, and rounded to nearest even as bf16_from_f32 does. Through pointers, because a vector as a value would have another
 * calling convention on every machine. */
static inline __attribute__((always_inline)) void v16_from_bf16(const uint16_t *p, v16 *out)
{
    v16_half h;
    memcpy(&h, p, sizeof h);
    *out = (v16)(__builtin_convertvector(h, v16_bits) << 16);
}

static inline __attribute__((always_inline)) void v16_to_bf16(const v16 *x, uint16_t *p)
{
    const v16_bits u = (v16_bits)*x;
    const v16_bits rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
    const v16_bits nan = (v16_bits)((u & 0x7FFFFFFFu) > 0x7F800000u);
    const v16_bits bits = (nan & ((u >> 16) | 0x40u)) | (~nan & rounded);
    const v16_half h = __builtin_convertvector(bits, v16_half);
    memcpy(p, &h, sizeof h);
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define OPS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OPS_CLONES
#endif

#endif
