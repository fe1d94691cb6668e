/* tier_crowd.h - a crowd of requests with shared beginnings, whose answers are known from runs without any cache, put through schedulers over
 * tiers; every token is compared, and the ways by which prefixes came back are counted. One thread. */
#ifndef ENGINE_TIER_CROWD_H
#define ENGINE_TIER_CROWD_H

#include <deepinfer/scheduler.h>

enum { CROWD_NEW = 4 }; /* tokens of an answer */

typedef struct crowd_plan {
    const di_model *model;
    size_t n_scripts; /* different requests */
    size_t n_long;    /* of them, the first ones, longer than the model's dependency halo, with one beginning */
    size_t least;     /* tokens of the prompts of others */
    size_t most;
    uint64_t seed;
    size_t group;     /* scripts that share beginnings with each other alone; 0 = all of them */
} crowd_plan;

typedef struct crowd crowd;

crowd *crowd_new(const crowd_plan *plan); /* runs every script once without a cache */
void crowd_free(crowd *c);

typedef struct crowd_turn { /* requests through one engine */
    const di_engine_options *options;
    size_t n_requests;
    size_t first;      /* script; drawn are n_scripts from there on */
    size_t n_scripts;
    bool in_order;     /* else at random */
    size_t (*pick)(void *user, size_t n); /* instead: the script of request n; NULL = none */
    int64_t n_pages;   /* that the device has for them; 0 = all */
    bool slow;         /* lower tiers count as much slower than computing */
    bool care;         /* folders are compacted, and a tenant is purged, now and then */
    bool settle;       /* in the end, until all is written */
    void (*ended)(void *user, size_t script, int64_t cached); /* a request; NULL = none */
    void *user;
} crowd_turn;

/* Sums. A way counts the steps in which at least one request was admitted that took it. */
typedef struct crowd_ways {
    size_t requests;
    int64_t cached_tokens;
    int64_t device;          /* hits without a restore */
    int64_t units;           /* restores of units alone */
    int64_t snapshots;       /* of a snapshot alone */
    int64_t both;
    int64_t pages_evicted;
    int64_t states_evicted;
    int64_t rewritten_bytes; /* by compaction and for room */
    int64_t purged;
    int64_t compacted_bytes;
    int64_t rebuilt;         /* folders whose index was made anew */
    di_cache_stats cache;    /* sums only */
} crowd_ways;

/* Fails the test when a token differs. Adds to *ways. */
void crowd_run(crowd *c, const crowd_turn *turn, crowd_ways *ways);

/* A prompt of 300 tokens that nobody has asked before, kept by an engine with `options`, is found by the next one to the byte: in the folder,
 * then, forgotten by the device, in memory, then in the shared folder by an engine that has no other. Both folders must be named. */
void crowd_check_persistence(crowd *c, const di_engine_options *options);

#endif
