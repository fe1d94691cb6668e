/* bench_steps.h - inside `deepinfer bench`: sequences behind random text, and steps of them; which experts such steps read. */
#ifndef TOOLS_BENCH_STEPS_H
#define TOOLS_BENCH_STEPS_H

#include <deepinfer/engine.h>

#define BENCH_MAX_BATCH 256
#define BENCH_ID_RANGE 4000 /* random ids are below: every slice has so many */
#define BENCH_OWN_TEXT 512  /* longest context of which every sequence has its own; longer ones are computed once and shared */

int32_t bench_random_id(uint64_t *seed); /* 0 .. BENCH_ID_RANGE - 1 */

typedef struct bench_batch { /* owner and thread: who started it */
    di_engine *engine;
    di_sequence *seqs[BENCH_MAX_BATCH];
    int32_t n;
    uint64_t seed;
} bench_batch;

/* n sequences behind `context` random tokens each. Errors: as di_sequence_run; end it in any case. */
di_status bench_batch_start(bench_batch *b, di_engine *engine, int32_t n, int64_t context, di_error *err);
void bench_batch_end(bench_batch *b);
/* One token for each sequence; adds the nanoseconds of the passes to *ns. */
di_status bench_batch_step(bench_batch *b, int64_t *ns, di_error *err);

/* A sequence behind n tokens, every row of which went through every layer. */
di_status bench_prompt_run(di_engine *engine, size_t n, uint64_t *seed, di_sequence **out, di_error *err);

/* Experts of all layers that a step reads for each of n batch sizes, on average over a few steps; in an engine of its own. */
di_status bench_count_experts(const di_model *model, const di_engine_options *options, int64_t context, const int32_t *batches, size_t n,
                              double *out, di_error *err);

#endif
