/* bench_drafts.h - inside `deepinfer bench`: steps with drafts beside steps without. */
#ifndef TOOLS_BENCH_DRAFTS_H
#define TOOLS_BENCH_DRAFTS_H

#include "bench_slice.h"

/* Tokens a step that a sequence is taken to get, when random weights are right about nothing: the length that public comparisons of
 * serving use for this model's drafts. */
#define BENCH_FIXED_TOKENS 3.51

/* Medians over the rounds. */
typedef struct bench_drafts_result {
    double off_ms;     /* of a step without drafts */
    double ms;         /* of a step that verifies all drafts of each sequence and proposes the next ones */
    double propose_ms; /* of it, for proposals */
    double tokens;     /* of a sequence in such a step, as they really came */
} bench_drafts_result;

/* n sequences of `context` random tokens, greedy, through a scheduler. The model has a draft model. Errors: as
 * di_engine_open and di_scheduler_new. */
di_status bench_drafts_run(const di_model *model, const bench_setup *setup, int32_t n, bench_drafts_result *out, di_error *err);

#endif
