/* bench_slice.h - inside `deepinfer bench`: a model, an engine, and what its steps are measured against. */
#ifndef TOOLS_BENCH_SLICE_H
#define TOOLS_BENCH_SLICE_H

#include "bench_steps.h"

#define BENCH_MAX_ROUNDS 31
#define BENCH_MAX_BATCHES 8

typedef struct bench_setup {
    di_engine_options engine;
    int32_t rounds;  /* 1..BENCH_MAX_ROUNDS */
    int32_t prompt;  /* tokens of a prefill */
    int64_t context; /* tokens before decoding */
    const char *file; /* a shard of the model; NULL = it is in memory only */
    int32_t batches[BENCH_MAX_BATCHES]; /* sequences of the decode cases, each 1..BENCH_MAX_BATCH */
    size_t n_batches;
    double product_tflops; /* rate of large BF16 products on the device, 2 a multiply-add; 0 = unknown */
} bench_setup;

/* Medians over the rounds. */
typedef struct bench_result {
    double ms;      /* of a step, or of the prompt */
    double tokens;  /* a second */
    double experts; /* different routed experts a layer reads; 0 = not counted */
    double bytes;   /* that a step must read */
    double ceiling; /* GB/s of the read ceiling (a device: of copies), or 10^9 multiply-adds a second; 0 = unknown */
    double share;   /* of that ceiling; 0 = unknown */
    double hits;    /* share of the needed experts that were in memory; only of bench_slice_stream */
} bench_result;

typedef struct bench_slice bench_slice;

/* Opens an engine over the model, which is borrowed, and prepares the ceilings. Errors: as di_engine_open, DI_E_MEMORY. */
di_status bench_slice_new(const di_model *model, const bench_setup *setup, bench_slice **out, di_error *err);
void bench_slice_free(bench_slice *s);

/* A batch of the setup, a token each a step, against the bytes that a step must read at the read ceiling. */
di_status bench_slice_decode(bench_slice *s, size_t which, bench_result *out, di_error *err);
/* Are weights read from the disk (--ram-budget)? */
bool bench_slice_streams(const bench_slice *s);
/* The same as decoding, against what was read in those steps at the disk's rate. */
di_status bench_slice_stream(bench_slice *s, size_t which, bench_result *out, di_error *err);
/* A prompt, every row through every layer, against its multiply-adds at the peak of fused multiply-adds. */
di_status bench_slice_prefill(bench_slice *s, bench_result *out, di_error *err);

/* Sorts them. */
double bench_median_of(double *values, int32_t n);

#endif
