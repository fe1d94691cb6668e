/* eng_noise_loop.h - the plain loop behind eng_noise_fractions; files of newer instruction sets finish with it what does not
 * fill a register. */
#ifndef ENGINE_ENG_NOISE_LOOP_H
#define ENGINE_ENG_NOISE_LOOP_H

#include "engine/eng_noise.h"
#include "engine/eng_philox.h"

static inline void noise_loop(uint64_t seed, int64_t position, uint32_t stream, const int32_t *restrict ids, size_t n,
                              uint64_t *restrict out)
{
    const uint64_t p = (uint64_t)position;
    for (size_t i = 0; i < n; i++) {
        const eng_words counter = {{(uint32_t)p, (uint32_t)(p >> 32), (uint32_t)ids[i], stream}};
        const eng_words r = eng_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
        out[i] = (uint64_t)r.w[0] << 32 | r.w[1];
    }
}

#endif
