/* tier_requests.h - many requests with shared beginnings through schedulers that come and go over one folder, compared with what each gives
 * without any cache. */
#ifndef ENGINE_TIER_REQUESTS_H
#define ENGINE_TIER_REQUESTS_H

#include <deepinfer/scheduler.h>

typedef struct tier_plan {
    const di_model *model;
    size_t n_requests;
    size_t n_restarts; /* of the engine, in between */
    size_t n_scripts;  /* different requests */
    size_t most;       /* tokens of a prompt */
    int64_t dir_bytes;
    int64_t ram_bytes;
    int32_t n_states;  /* that the device has room for, and pages in the proportion of the engine */
} tier_plan;

typedef struct tier_report {
    int64_t cached_tokens; /* of prompts */
    int64_t restored_units[DI_CACHE_TIERS];
    int64_t restored_snapshots[DI_CACHE_TIERS];
    int64_t evicted[DI_CACHE_TIERS];
    int64_t pages_evicted;
    int64_t corrupt;
} tier_report;

/* Fails the test when a token differs. */
tier_report tier_requests(const tier_plan *plan);

#endif
