/* eng_noise.c - see eng_noise.h. */
#include "engine/eng_noise.h"

#include "engine/eng_gumbel.h"
#include "engine/eng_noise_loop.h"

#include <math.h>
#include <string.h>

/* What _avx2 files are compiled for (cmake/flags.cmake). clang 14 has no name for LZCNT and F16C; every processor with AVX2 and
 * BMI2 has them. */
bool eng_has_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#else
    return false;
#endif
}

void eng_noise_fractions(uint64_t seed, int64_t position, uint32_t stream, const int32_t *ids, size_t n, uint64_t *out)
{
    noise_loop(seed, position, stream, ids, n, out);
}

void eng_race_start(eng_race *race, uint64_t seed, int64_t position, uint32_t stream)
{
    race->seed = seed;
    race->position = position;
    race->stream = stream;
    race->n = 0;
    race->best_id = -1;
    race->best = -INFINITY;
}

void eng_race_enter_block(eng_race *race)
{
    uint64_t fractions[ENG_NOISE_BLOCK];
    const size_t n = (size_t)race->n;
    if (eng_has_avx2()) {
        eng_noise_fractions_avx2(race->seed, race->position, race->stream, race->ids, n, fractions);
    } else {
        eng_noise_fractions(race->seed, race->position, race->stream, race->ids, n, fractions);
    }
    for (size_t i = 0; i < n; i++) {
        if (race->best_id >= 0 && race->z[i] + eng_gumbel_bound(__builtin_clzll(fractions[i] | 1u)) <= race->best) {
            continue;
        }
        const float score = race->z[i] + eng_gumbel_of(fractions[i]);
        if (race->best_id < 0 || score > race->best) {
            race->best = score;
            race->best_id = race->ids[i];
        }
    }
    race->n = 0;
}

void eng_race_enter_run(eng_race *race, int32_t first, const float *z, int32_t n)
{
    eng_race_enter_block(race);
    for (int32_t i = 0; i < n; i++) {
        race->ids[i] = first + i;
    }
    memcpy(race->z, z, (size_t)n * sizeof *z);
    race->n = n;
    eng_race_enter_block(race);
}

int32_t eng_race_finish(eng_race *race)
{
    eng_race_enter_block(race);
    return race->best_id;
}
