/* caches.c - see caches.h. */
#include "cuda/caches.h"

#include "ops/rope.h"

#include <stdio.h>
#include <stdlib.h>

gpu_twin gpu_twin_new(gpu_pair *pair, const void *bytes, size_t n)
{
    gpu_twin t = {.host = calloc(1, n), .bytes = n};
    assert_non_null(t.host);
    if (bytes != NULL) {
        memcpy(t.host, bytes, n);
    }
    t.gpu = gpu_upload(pair, t.host, n);
    return t;
}

void gpu_twin_free(gpu_pair *pair, gpu_twin *t)
{
    cu_mem_free(pair->gpu, t->gpu);
    free(t->host);
    *t = (gpu_twin){0};
}

void gpu_twin_upload(gpu_pair *pair, gpu_twin *t) { cu_upload(pair->gpu, t->gpu, t->host, t->bytes); }

void gpu_caches_add(gpu_pair *pair, gpu_caches *c, int32_t rows, int64_t before, int64_t window_from)
{
    const int32_t i = c->n++;
    assert_true(c->n <= CACHE_SEQS && before + rows <= (int64_t)CACHE_PAGES * CACHE_PAGE_TOKENS);
    c->state[i] = gpu_twin_new(pair, NULL, c->state_bytes);
    for (int32_t p = 0; p < CACHE_PAGES; p++) {
        c->page[i][p] = gpu_twin_new(pair, NULL, c->page_bytes);
        c->host_pages[i][p] = c->page[i][p].host;
        c->gpu_pages[i][p] = c->page[i][p].gpu;
    }
    c->host[i] = (ops_seq){.row0 = c->n_rows, .n_rows = rows, .pos0 = before, .window_from = window_from, .state = c->state[i].host,
                           .pages = c->host_pages[i]};
    c->gpu[i] = c->host[i];
    c->gpu[i].state = c->state[i].gpu;
    c->gpu[i].pages = c->gpu_pages[i];
    c->n_rows += rows;
}

void gpu_caches_free(gpu_pair *pair, gpu_caches *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        gpu_twin_free(pair, &c->state[i]);
        for (int32_t p = 0; p < CACHE_PAGES; p++) {
            gpu_twin_free(pair, &c->page[i][p]);
        }
    }
    c->n = 0;
}

void gpu_pack_rows(void (*pack)(const float *x, size_t n, uint8_t *row), size_t width, size_t row_bytes, uint8_t *out, size_t n, uint64_t *seed)
{
    float *x = malloc(width * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < width; k++) {
            x[k] = bf16_round(gpu_normal(seed));
        }
        pack(x, width, out + i * row_bytes);
    }
    free(x);
}

void gpu_expect_bytes(gpu_pair *pair, const char *what, const gpu_twin *t, double share)
{
    uint8_t *got = gpu_download(pair, t->gpu, t->bytes);
    size_t differ = 0;
    for (size_t i = 0; i < t->bytes; i++) {
        differ += got[i] != t->host[i];
    }
    free(got);
    if ((double)differ > share * (double)t->bytes) {
        fail_msg("%s: %zu of %zu bytes differ", what, differ, t->bytes);
    }
}

void gpu_frequencies(float *out, int32_t rope_dim) { rope_frequencies(160000.0, rope_dim, out); }
