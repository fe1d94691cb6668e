/* eng_philox.h - Philox4x32-10, a random function of a counter: the same 128-bit counter and 64-bit key give the same four
 * words on any machine, in any order, so noise needs no state and does not depend on batching or threads.
 *
 * Idea and constants: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC11), checked against the
 * known answers of its Random123 release in tests/engine/test_eng_noise.c. Plain C17 that CUDA C++ compiles too. */
#ifndef ENGINE_ENG_PHILOX_H
#define ENGINE_ENG_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define ENG_PURE static __host__ __device__ __forceinline__
#else
#define ENG_PURE static inline
#endif

#define ENG_PHILOX_M0 0xD2511F53u
#define ENG_PHILOX_M1 0xCD9E8D57u
#define ENG_PHILOX_K0 0x9E3779B9u
#define ENG_PHILOX_K1 0xBB67AE85u

typedef struct eng_words {
    uint32_t w[4];
} eng_words;

ENG_PURE eng_words eng_philox(eng_words counter, uint32_t key0, uint32_t key1)
{
    eng_words c = counter;
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)ENG_PHILOX_M0 * c.w[0];
        const uint64_t p1 = (uint64_t)ENG_PHILOX_M1 * c.w[2];
        const uint32_t a = (uint32_t)(p1 >> 32) ^ c.w[1] ^ key0;
        const uint32_t b = (uint32_t)(p0 >> 32) ^ c.w[3] ^ key1;
        c.w[0] = a;
        c.w[1] = (uint32_t)p1;
        c.w[2] = b;
        c.w[3] = (uint32_t)p0;
        key0 += ENG_PHILOX_K0;
        key1 += ENG_PHILOX_K1;
    }
    return c;
}

#endif
