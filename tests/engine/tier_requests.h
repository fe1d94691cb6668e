/* tier_requests.h - many requests with shared beginnings through engines that come and go over two folders, compared with what each gives
 * without any cache. */
#ifndef ENGINE_TIER_REQUESTS_H
#define ENGINE_TIER_REQUESTS_H

#include "engine/tier_crowd.h"

typedef struct tier_plan {
    crowd_plan crowd;
    size_t n_requests;
    size_t n_turns;    /* engines, one after the other, of six kinds in turns */
    size_t most_turns; /* it goes on until every way was taken, or fails behind so many; 0 = whatever was taken */
    int64_t dir_bytes;
    int64_t shared_bytes;
    int32_t n_states;  /* that the device has room for */
    int64_t n_pages;   /* likewise */
    int32_t ram_states; /* and the memory tier, or what fits in their place */
    bool checks;       /* of persistence, behind each turn */
    void (*pass)(int64_t seconds); /* lets time pass for the folders */
} tier_plan;

/* Fails the test when a token differs. The ways: device, memory, folder, shared folder; units alone (of long prompts), snapshots alone, both;
 * eviction from each into the next, recomputation by policy, compaction, purges, expired and corrupt records, a lost index. */
crowd_ways tier_requests(const tier_plan *plan);

#endif
