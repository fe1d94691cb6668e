/* bench_experts.c - one layer of FP4 experts at released shape, as a stage: seconds a call, for bench_experts.py.
 *
 *   bench_experts [THREADS [EXPERTS]]
 *
 * Hidden 5120, intermediate 2304; every token goes to six experts of EXPERTS (96) and to one that all share, also FP4.
 * Tokens 1, 6, 32 and 128; experts are drawn anew for every call, so that weights come from memory. Times are time that
 * passes: median and best of eleven. */
#include "core/clock.h"
#include "cpu/cpu.h"
#include "cpu_bench.h"
#include "ops/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 5120, INTER = 2304, ACTIVE = 6, MOST = 128, CALLS = 11 };

static ops_matrix *make_matrix(ops_device *dev, int64_t n_out, int64_t n_in, uint64_t *seed)
{
    const size_t n = (size_t)n_out * (size_t)n_in;
    ops_matrix *m = bench_need(calloc(1, sizeof *m));
    uint8_t *data = bench_need(malloc(n / 2));
    uint8_t *scale = bench_need(malloc(n / 32));
    for (size_t i = 0; i < n / 2; i += 8) {
        const uint64_t bits = bench_random(seed);
        memcpy(data + i, &bits, 8);
    }
    memset(scale, 118, n / 32);
    *m = (ops_matrix){.format = OPS_FP4, .n_out = n_out, .n_in = n_in, .data = data, .scale = scale};
    cpu_backend.weight_load(dev, m, OPS_USE_PRODUCT, NULL);
    bench_need(m->packed);
    free(data);
    free(scale);
    return m;
}

static int by_id(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* Six different experts for each token, ascending. */
static void draw(int32_t *ids, int32_t tokens, int32_t n_experts, uint64_t *seed)
{
    for (int32_t t = 0; t < tokens; t++) {
        int32_t *own = ids + t * ACTIVE;
        for (int32_t i = 0; i < ACTIVE;) {
            const int32_t e = (int32_t)(bench_random(seed) % (uint64_t)n_experts);
            bool taken = false;
            for (int32_t j = 0; j < i; j++) {
                taken = taken || own[j] == e;
            }
            own[i] = e;
            i += taken ? 0 : 1;
        }
        qsort(own, ACTIVE, sizeof *own, by_id);
    }
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const int32_t threads = argc > 1 ? atoi(argv[1]) : 1;
    const int32_t n_experts = argc > 2 ? atoi(argv[2]) : 96;
    static const int32_t tokens[] = {1, 6, 32, MOST};
    static int32_t ids[MOST * ACTIVE];
    static float weights[MOST * ACTIVE];
    static bf16 u[MOST * HIDDEN];
    static bf16 y[MOST * HIDDEN];
    ops_device *dev;
    uint64_t seed = 1;
    if (n_experts < ACTIVE || cpu_backend.open(&(ops_device_options){.n_threads = threads}, &dev, NULL) != DI_OK) {
        bench_fail("usage: bench_experts [THREADS [EXPERTS]]");
    }
    ops_expert *experts = bench_need(calloc((size_t)n_experts + 1, sizeof *experts));
    for (int32_t e = 0; e <= n_experts; e++) {
        experts[e].w1 = make_matrix(dev, INTER, HIDDEN, &seed);
        experts[e].w2 = make_matrix(dev, HIDDEN, INTER, &seed);
        experts[e].w3 = make_matrix(dev, INTER, HIDDEN, &seed);
    }
    for (size_t i = 0; i < MOST * HIDDEN; i++) {
        u[i] = bf16_from_f32((float)(int32_t)bench_random(&seed) * 0x1p-31f);
    }
    for (size_t i = 0; i < MOST * ACTIVE; i++) {
        weights[i] = 0.25f;
    }
    for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++) {
        int64_t ns[CALLS];
        for (int c = -2; c < CALLS; c++) {
            draw(ids, tokens[n], n_experts, &seed);
            const int64_t start = clock_now_ns();
            cpu_backend.experts(dev, &(ops_experts_args){.n_rows = tokens[n],
                                                         .hidden = HIDDEN,
                                                         .inter = INTER,
                                                         .n_experts = n_experts,
                                                         .n_active = ACTIVE,
                                                         .swiglu_limit = 10.0f,
                                                         .u = u,
                                                         .ids = ids,
                                                         .weights = weights,
                                                         .experts = experts,
                                                         .shared = experts[n_experts],
                                                         .y = y});
            if (c >= 0) {
                ns[c] = clock_now_ns() - start;
            }
        }
        qsort(ns, CALLS, sizeof *ns, compare);
        printf("{\"tokens\":%d,\"median_us\":%.1f,\"best_us\":%.1f}\n", (int)tokens[n], (double)ns[CALLS / 2] * 1e-3,
               (double)ns[0] * 1e-3);
    }
    cpu_backend.close(dev);
    return 0;
}
