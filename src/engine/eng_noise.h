/* eng_noise.h - which id wins: argmax over (scaled logit + Gumbel noise), fed id by id in ascending order.
 *
 * Noise costs some 40 multiplications an id, so ids are collected into blocks whose random words are computed by vector code,
 * and the two logarithms are spent only on ids that can still beat the best so far. The result is that of the plain loop. */
#ifndef ENGINE_ENG_NOISE_H
#define ENGINE_ENG_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Uses of noise at one position (architecture.md 5). */
enum eng_stream {
    ENG_STREAM_TOKEN = 0,    /* token choice, also of a draft under coupling */
    ENG_STREAM_DRAFT = 1,    /* other drafts */
    ENG_STREAM_ACCEPT = 2,   /* acceptance of a draft */
    ENG_STREAM_RESIDUAL = 3, /* residual and bonus token */
};

#define ENG_NOISE_BLOCK 64

typedef struct eng_race {
    uint64_t seed;
    int64_t position;
    uint32_t stream;
    int32_t n;       /* waiting in the block */
    int32_t best_id; /* -1 = none yet */
    float best;
    int32_t ids[ENG_NOISE_BLOCK];
    float z[ENG_NOISE_BLOCK];
} eng_race;

void eng_race_start(eng_race *race, uint64_t seed, int64_t position, uint32_t stream);
void eng_race_enter_block(eng_race *race); /* runs what waits */

/* Enters an id; ids must ascend, so that of equal scores the lower id wins. z <= 0. */
static inline void eng_race_enter(eng_race *race, int32_t id, float z)
{
    race->ids[race->n] = id;
    race->z[race->n] = z;
    if (++race->n == ENG_NOISE_BLOCK) {
        eng_race_enter_block(race);
    }
}

/* Enters the ids first .. first + n - 1 (n <= ENG_NOISE_BLOCK); z may be -inf for what must not win. */
void eng_race_enter_run(eng_race *race, int32_t first, const float *z, int32_t n);

/* The winner, -1 when nothing was entered. */
int32_t eng_race_finish(eng_race *race);

/* True when functions with the suffix _avx2 may be called. */
bool eng_has_avx2(void);

/* The first two Philox words of each id as one number. `_avx2`: same bits, needs a processor with AVX2. */
void eng_noise_fractions(uint64_t seed, int64_t position, uint32_t stream, const int32_t *ids, size_t n, uint64_t *out);
void eng_noise_fractions_avx2(uint64_t seed, int64_t position, uint32_t stream, const int32_t *ids, size_t n, uint64_t *out);

#endif
