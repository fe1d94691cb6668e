/* bench_linears.c - one dense FP8 product at a time, as bench_linears.py asks for it.
 *
 *   bench_linears THREADS
 *
 * Reads lines "N_OUT N_IN ROWS CALLS" and answers each with microseconds a call. Weights of a shape are made when it comes first: as many
 * matrices as take 192 MiB, one after the other in turn, so that weights of few rows come from memory. */
#include "core/clock.h"
#include "cpu/cpu.h"
#include "cpu_bench.h"
#include "ops/ref.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, MOST_SHAPES = 16 };

#define WEIGHT_BYTES ((size_t)192 << 20)

typedef struct turn {
    int64_t n_out;
    int64_t n_in;
    ops_matrix *matrix; /* [n] */
    size_t n;
    size_t at;
} turn;

static void make_turn(turn *t, ops_device *dev, int64_t n_out, int64_t n_in)
{
    const size_t bytes = (size_t)n_out * (size_t)n_in;
    uint64_t seed = 1;
    uint8_t *const data = bench_need(malloc(bytes));
    uint8_t *const scale = bench_need(malloc(bytes / 1024));
    bench_fill_fp8(data, bytes, &seed);
    memset(scale, 120, bytes / 1024);
    *t = (turn){.n_out = n_out, .n_in = n_in, .n = WEIGHT_BYTES / bytes + 2};
    t->matrix = bench_need(calloc(t->n, sizeof *t->matrix));
    for (size_t i = 0; i < t->n; i++) {
        t->matrix[i] = (ops_matrix){.format = OPS_FP8, .n_out = n_out, .n_in = n_in, .data = data, .scale = scale};
        cpu_backend.weight_load(dev, &t->matrix[i], OPS_USE_PRODUCT, NULL);
        bench_need(t->matrix[i].packed);
    }
    free(data);
    free(scale);
}

static double measure(turn *t, ops_device *dev, int32_t rows, int calls)
{
    uint64_t seed = 2;
    const size_t n = (size_t)rows * (size_t)t->n_in;
    float *const x = bench_need(malloc(n * sizeof *x));
    float *const y = bench_need(calloc((size_t)rows * (size_t)t->n_out, sizeof *y));
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(int32_t)(bench_random(&seed) % 255) - 127.0f;
    }
    for (size_t r = 0; r < (size_t)rows; r++) {
        fmt_q8_round(x + r * (size_t)t->n_in, (size_t)t->n_in);
    }
    int64_t begin = 0;
    for (int c = -1; c < calls; c++) { /* the one before wakes the threads */
        begin = c == 0 ? clock_now_ns() : begin;
        ref_stage_begin(ref_of(dev));
        const ref_linear job = ref_linear_to_f32(&t->matrix[t->at], x, rows, y);
        t->at = (t->at + 1) % t->n;
        ref_of(dev)->linear(ref_of(dev), &job, 1);
    }
    const double us = (double)(clock_now_ns() - begin) * 1e-3 / calls;
    free(x);
    free(y);
    return us;
}

int main(int argc, char **argv)
{
    static turn turns[MOST_SHAPES];
    int64_t n_out;
    int64_t n_in;
    int32_t rows;
    int calls;
    ops_device *dev;
    if (argc != 2 || cpu_backend.open(&(ops_device_options){.n_threads = atoi(argv[1])}, &dev, NULL) != DI_OK) {
        bench_fail("usage: bench_linears THREADS");
    }
    while (scanf("%" SCNd64 " %" SCNd64 " %" SCNd32 " %d", &n_out, &n_in, &rows, &calls) == 4) {
        turn *t = turns;
        while (t < turns + MOST_SHAPES && t->matrix != NULL && (t->n_out != n_out || t->n_in != n_in)) {
            t++;
        }
        if (t == turns + MOST_SHAPES || n_out < 1 || n_in < 1 || rows < 1 || rows > MOST_ROWS || calls < 1) {
            bench_fail("a line is N_OUT N_IN ROWS CALLS, of few shapes");
        }
        if (t->matrix == NULL) {
            make_turn(t, dev, n_out, n_in);
        }
        printf("%.3f\n", measure(t, dev, rows, calls));
        fflush(stdout);
    }
    cpu_backend.close(dev);
    return 0;
}
