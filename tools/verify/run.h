/* run.h - drives the engine through a golden case.
 *
 * A runner is a model with one traced engine. A case is: feed the prompt (in its chunks), then the golden tokens one by one, so
 * that one different argmax does not spoil the rest; after each phase its values are compared and forgotten. */
#ifndef VERIFY_RUN_H
#define VERIFY_RUN_H

#include "compare.h"

#include <deepinfer/engine.h>

typedef struct vf_settings {
    const char *backend;
    const char *cpu_isa;
    int32_t n_threads;
    int32_t chunk_tokens;
    int64_t ram_budget;
    int32_t ram_percent;
    const char *weight_cache;
    const char *cpu_pin;
} vf_settings;

typedef struct vf_runner {
    di_engine *engine;
    int32_t vocab;
    vf_trace trace;
    vf_trace logits; /* "logits" of the phase */
    vf_trace decode; /* "decode_logits" of the case */
} vf_runner;

/* `traced`: every layer runs for every token and values are recorded. The runner must stay where it is while it is open. */
di_status vf_runner_open(const di_model *model, const vf_settings *settings, bool traced, vf_runner *out, di_error *err);
void vf_runner_close(vf_runner *r);

/* Feeds the prompt of a case, and keeps all its logits if told so. */
di_status vf_feed_prompt(const vf_case *c, bool keep_logits, di_sequence *sequence, di_error *err);

di_status vf_run_case(vf_runner *r, const vf_case *c, vf_difference_fn listener, vf_result *out, di_error *err);

#endif
