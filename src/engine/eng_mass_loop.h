/* eng_mass_loop.h - the loops behind eng_mass.h, included by one file per instruction set. Additions, multiplications and
 * divisions are the same in each and never contracted, so every copy gives the same bits.
 *
 * Selections are made on bits, as integers: compilers don't turn floating-point comparisons into vector selections without
 * leave to change what traps. */
#ifndef ENGINE_ENG_MASS_LOOP_H
#define ENGINE_ENG_MASS_LOOP_H

#include "engine/eng_gumbel.h"
#include "engine/eng_mass.h"

#include <math.h>

static inline void scale_loop(const float *x, int32_t n, float max, float temperature, float *z)
{
    if (max == INFINITY) {
        for (int32_t i = 0; i < n; i++) {
            z[i] = eng_scale(x[i], max, temperature);
        }
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        z[i] = (x[i] - max) / temperature; /* 0 for x = max without asking */
    }
}

static inline void mass_loop(const float *z, int32_t n, uint64_t *mass)
{
    const int32_t floor_size = (int32_t)eng_bits_of(-ENG_MASS_FLOOR);
    float e[ENG_BLOCK];
    for (int32_t i = 0; i < n; i++) {
        const int32_t size = (int32_t)(eng_bits_of(z[i]) & 0x7FFFFFFFu); /* of z <= 0, in a form that keeps order */
        const int32_t has_mass = size <= floor_size ? -1 : 0;
        const uint32_t bits = eng_bits_of(eng_exp(-eng_float_of((uint32_t)(size & has_mass))));
        e[i] = eng_float_of(bits & (uint32_t)has_mass) * ENG_MASS_ONE;
    }
    for (int32_t i = 0; i < n; i++) {
        mass[i] = (uint64_t)(int64_t)e[i]; /* at most 2^44, and signed is the cheaper conversion */
    }
}

#endif
