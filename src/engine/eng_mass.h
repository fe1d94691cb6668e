/* eng_mass.h - eng_scale and eng_mass of eng_gumbel.h over blocks, written so that compilers make vector code; same bits. */
#ifndef ENGINE_ENG_MASS_H
#define ENGINE_ENG_MASS_H

#include <stdint.h>

#define ENG_BLOCK 64

/* z[i] = eng_scale(x[i], max, temperature), n <= ENG_BLOCK. */
void eng_scale_block(const float *x, int32_t n, float max, float temperature, float *z);

/* mass[i] = eng_mass(z[i]), n <= ENG_BLOCK, z <= 0. */
void eng_mass_block(const float *z, int32_t n, uint64_t *mass);

/* The same for processors with AVX2 (eng_has_avx2). */
void eng_scale_block_avx2(const float *x, int32_t n, float max, float temperature, float *z);
void eng_mass_block_avx2(const float *z, int32_t n, uint64_t *mass);

#endif
