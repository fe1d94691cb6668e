/* tier_pair.h - two processes with an engine each over one shared folder: each finds what the other computed, every token is compared, and one
 * may be killed on the way. */
#ifndef ENGINE_TIER_PAIR_H
#define ENGINE_TIER_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pair_plan {
    const char *model; /* below DI_SOURCE_DIR */
    size_t n_requests; /* of each process */
    size_t most;       /* tokens of a prompt */
    bool live;         /* what one computes while both run must be found by the other, too */
} pair_plan;

/* First in main: true when this process is one of the two, which has then done its part. */
bool pair_is_child(int argc, char **argv, int *result);

/* Both to their end, and then `n_kills` times one that is killed after a random number of requests, while the other goes on to its end. Who
 * comes next reads what each of them, and nobody else, has written. */
void pair_run(const pair_plan *plan, int n_kills);

#endif
