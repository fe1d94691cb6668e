/* tier_script.h - a request of a crowd (tier_crowd.h) and its answer. */
#ifndef ENGINE_TIER_SCRIPT_H
#define ENGINE_TIER_SCRIPT_H

#include "engine/tier_crowd.h"

typedef struct script {
    int32_t *prompt; /* [n], malloc'ed */
    size_t n;
    di_sampling sampling;
    const char *tenant;
    int32_t ids[CROWD_NEW]; /* [n_ids] the answer */
    int32_t n_ids;
} script;

/* A prompt of n random ids. */
void script_fill(script *s, size_t n, int32_t vocab_size, uint64_t *seed);
/* Script i of a plan; those before it are written. */
void script_write(script *scripts, const crowd_plan *plan, size_t i, int32_t vocab_size, uint64_t *seed);

#endif
