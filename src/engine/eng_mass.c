/* eng_mass.c - see eng_mass.h. */
#include "engine/eng_mass.h"

#include "engine/eng_mass_loop.h"
#include "engine/eng_noise.h"

void eng_scale_block(const float *x, int32_t n, float max, float temperature, float *z)
{
    if (eng_has_avx2()) {
        eng_scale_block_avx2(x, n, max, temperature, z);
    } else {
        scale_loop(x, n, max, temperature, z);
    }
}

void eng_mass_block(const float *z, int32_t n, uint64_t *mass)
{
    if (eng_has_avx2()) {
        eng_mass_block_avx2(z, n, mass);
    } else {
        mass_loop(z, n, mass);
    }
}
