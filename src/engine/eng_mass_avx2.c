/* eng_mass_avx2.c - eng_mass.h compiled for processors with AVX2; other processors get copies that are never called. */
#include "engine/eng_mass_loop.h"

void eng_scale_block_avx2(const float *x, int32_t n, float max, float temperature, float *z)
{
    scale_loop(x, n, max, temperature, z);
}

void eng_mass_block_avx2(const float *z, int32_t n, uint64_t *mass)
{
    mass_loop(z, n, mass);
}
