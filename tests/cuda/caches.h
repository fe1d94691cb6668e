/* caches.h - sequences with random caches on both devices, for the tests of stages that read or write them. Owner: the test program. */
#ifndef CUDA_CACHES_H
#define CUDA_CACHES_H

#include "cuda/pair.h"

enum { CACHE_SEQS = 4, CACHE_PAGES = 16, CACHE_PAGE_TOKENS = 128 };

/* The same bytes twice: host and device. */
typedef struct gpu_twin {
    uint8_t *host;
    uint8_t *gpu;
    size_t bytes;
} gpu_twin;

typedef struct gpu_caches {
    int32_t n;
    int32_t n_rows;
    size_t state_bytes;
    size_t page_bytes;
    gpu_twin state[CACHE_SEQS];
    gpu_twin page[CACHE_SEQS][CACHE_PAGES];
    uint8_t *host_pages[CACHE_SEQS][CACHE_PAGES];
    uint8_t *gpu_pages[CACHE_SEQS][CACHE_PAGES];
    ops_seq host[CACHE_SEQS];
    ops_seq gpu[CACHE_SEQS];
} gpu_caches;

/* NULL bytes = zeros. */
gpu_twin gpu_twin_new(gpu_pair *pair, const void *bytes, size_t n);
void gpu_twin_free(gpu_pair *pair, gpu_twin *t);
void gpu_twin_upload(gpu_pair *pair, gpu_twin *t);

/* One more sequence: `rows` rows of the batch behind `before` tokens. */
void gpu_caches_add(gpu_pair *pair, gpu_caches *c, int32_t rows, int64_t before, int64_t window_from);
void gpu_caches_free(gpu_pair *pair, gpu_caches *c);

/* Fills packed rows [n] with random values in the format `pack` makes. */
void gpu_pack_rows(void (*pack)(const float *x, size_t n, uint8_t *row), size_t width, size_t row_bytes, uint8_t *out, size_t n, uint64_t *seed);

/* Fails unless both sides hold the same bytes but for a share of them. */
void gpu_expect_bytes(gpu_pair *pair, const char *what, const gpu_twin *t, double share);

/* Rotary frequencies as released. */
void gpu_frequencies(float *out, int32_t rope_dim);

#endif
