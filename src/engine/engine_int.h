/* engine_int.h - inside the engine room: engine and sequences. All of it belongs to the thread that uses the engine. */
#ifndef ENGINE_ENGINE_INT_H
#define ENGINE_ENGINE_INT_H

#include "engine/eng_cache.h"
#include "engine/eng_sample.h"
#include "engine/engine.h"
#include "model/model.h"

/* Tokens fed but not yet run. */
typedef struct eng_queue {
    int32_t *ids;
    uint8_t *in_image; /* allocated with the first image token */
    bf16 *embed;       /* [capacity, hidden]; allocated with the first given row */
    size_t begin;      /* next token to run */
    size_t end;
    size_t capacity;
} eng_queue;

struct di_sequence {
    di_engine *engine;
    di_sequence *next; /* in the engine's list, oldest first */
    di_sequence *previous;
    mdl_seq caches;
    eng_cache cache;      /* the memory of `caches`, and its way through the prefix tree */
    eng_queue queue;
    eng_sampler *sampler; /* NULL until sampling is first used */
    bool keep_all;        /* logits of every token, not only the last */
    bool failed;          /* a pass with this sequence failed: its caches cannot be trusted */
    float *logits;        /* [n_logits, vocab] */
    int32_t n_logits;
    int32_t logits_capacity; /* rows */
};

struct di_engine {
    const di_model *model;
    const mdl_config *c;
    const ops_backend *backend;
    mdl_runner *runner;
    kv_store *kv;
    eng_tier *tier; /* below kv; NULL = nothing is */
    di_sequence *first;
    di_sequence *last;
    int32_t chunk;
    int64_t max_tokens;
    int32_t n_threads;
    di_replay replay;
    bool traced;
    bool full;              /* skip no row in any layer of sequences: what tests and measurements compare with */
    bool scheduled;         /* a scheduler has it (scheduler.h) */
    bool has_dir;           /* the first lower tier is this engine's own folder */
    mdl_item *items;        /* [chunk] of the running step */
    di_sequence **in_step;  /* [chunk] */
    float *logits;          /* rows of the running step */
    int32_t logits_capacity;
    int64_t n_steps;
    int64_t n_tokens;
    int64_t resumed_tokens; /* that prefix hits saved */
};

/* Tiers below e->kv as the options say, if at all (eng_tier_open.c). The name space that keys are made with is found before. Errors: those
 * of mdl_fingerprint and kv_disk_open. */
di_status eng_tier_name_space(const di_engine *e, const di_cache_options *o, uint8_t out[KV_KEY_BYTES], di_error *err);
di_status eng_tier_open(di_engine *e, const di_cache_options *o, const uint8_t name_space[KV_KEY_BYTES], di_error *err);

/* Number of queued tokens. */
static inline size_t eng_queued(const di_sequence *s) { return s->queue.end - s->queue.begin; }

#endif
