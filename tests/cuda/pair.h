/* pair.h - what the GPU stage tests share: both devices, random weights and rows of a released model's statistics, comparison
 * with the reference. Owner of everything here: the test program; one thread. */
#ifndef CUDA_PAIR_H
#define CUDA_PAIR_H

#include "support/unit.h"

#include "cuda/cuda.h"
#include "ops/ref.h"

typedef struct gpu_pair {
    ops_device *ref; /* 0 threads: all processors */
    ops_device *gpu;
} gpu_pair;

/* Opens both. False, with a line on standard output, where no GPU is. */
bool gpu_pair_open(gpu_pair *pair);
void gpu_pair_close(gpu_pair *pair);

/* Bell-shaped values of variance about 1, from a counter: the same for the same seed. */
float gpu_normal(uint64_t *seed);
bf16 *gpu_rows(size_t n, uint64_t *seed);
/* A token's list: the experts that are taken, ascending, with weights about a quarter. */
void gpu_list(const bool *taken, int32_t n_experts, int32_t *ids, float *weights, uint64_t *seed);
float *gpu_floats(size_t n, float mean, float spread, uint64_t *seed);

/* A random matrix in checkpoint form, rows of about unit gain, loaded on the GPU. The caller frees it. */
ops_matrix gpu_matrix(gpu_pair *pair, ops_format format, int64_t n_out, int64_t n_in, uint64_t *seed);
void gpu_matrix_free(gpu_pair *pair, ops_matrix *w);

/* Device copy of host memory; NULL gives cleared memory. */
void *gpu_upload(gpu_pair *pair, const void *host, size_t bytes);
/* Host copy; the caller frees. Fails the test when the GPU has reported an error. */
void *gpu_download(gpu_pair *pair, const void *device, size_t bytes);

/* How n values in rows of `row` differ from the reference. `flips`: other bits; `worst`: in units of the last place of the wanted value
 * (of 2^-16 of the row's largest where that is more: what is left of a sum that nearly cancels has no better last place than the
 * sum's terms), or, for fp32, of the row's largest value. */
typedef struct gpu_difference {
    size_t n;
    size_t flips;
    double worst;
} gpu_difference;

gpu_difference gpu_compare16(const bf16 *got, const bf16 *want, size_t n, size_t row);
gpu_difference gpu_compare32(const float *got, const float *want, size_t n, size_t row);

/* Prints a JSON line, and fails unless at most `share` of the values differ and none by more than `worst`. */
void gpu_expect(const char *stage, int32_t n_rows, gpu_difference d, double share, double worst);

#endif
