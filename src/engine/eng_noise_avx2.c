/* eng_noise_avx2.c - eng_noise_fractions for processors with AVX2; other processors get a copy that is never called. */
#include "engine/eng_noise_loop.h"

void eng_noise_fractions_avx2(uint64_t seed, int64_t position, uint32_t stream, const int32_t *ids, size_t n, uint64_t *out)
{
    noise_loop(seed, position, stream, ids, n, out);
}
