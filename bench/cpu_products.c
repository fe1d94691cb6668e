/* cpu_products.c - matrix products of the CPU bench: FP4 experts, FP8 dense matrices and a part of the head, few rows
 * against the read ceiling, many against the compute ceiling. */
#include "cpu/cpu.h"
#include "cpu/cpu_int.h"
#include "cpu_bench.h"
#include "ops/ref.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FEW_ROWS 5 /* fewer are bound by memory */

typedef struct shape {
    const char *name;
    ops_format format;
    int64_t n_out;
    int64_t n_in;
} shape;

static const shape SHAPES[] = {{"fp4_w1", OPS_FP4, 2304, 5120},
                               {"fp4_w2", OPS_FP4, 5120, 2304},
                               {"fp8_wq_b", OPS_FP8, 32768, 1280},
                               {"fp8_wo_b", OPS_FP8, 5120, 8192},
                               {"bf16_head", OPS_BF16, 16160, 5120}}; /* an eighth of its rows */

/* Copies of one matrix; all cases take the next ones. */
typedef struct copies {
    const shape *shape;
    ops_matrix *matrix;
    size_t n;
    size_t at;
    size_t round_bytes; /* in one measurement */
} copies;

/* Products of copies with so many rows. */
typedef struct product {
    copies *of;
    int32_t rows;
    float *x;
    float *y;
} product;

/* Bytes in the checkpoint. */
static size_t weight_bytes(const shape *s)
{
    const size_t n = (size_t)s->n_out * (size_t)s->n_in;
    return s->format == OPS_BF16 ? 2 * n : s->format == OPS_FP8 ? n + n / 1024 : n / 2 + n / 32;
}

static ops_matrix random_matrix(const shape *s, uint64_t *seed)
{
    const size_t n = (size_t)s->n_out * (size_t)s->n_in;
    const size_t bytes = s->format == OPS_BF16 ? 2 * n : s->format == OPS_FP8 ? n : n / 2;
    const size_t scales = s->format == OPS_FP8 ? n / 1024 : n / 32;
    uint8_t *data = bench_need(malloc(bytes));
    uint8_t *scale = bench_need(malloc(scales));
    if (s->format == OPS_FP8) {
        bench_fill_fp8(data, bytes, seed);
    } else if (s->format == OPS_FP4) {
        bench_fill_fp4(data, bytes, seed);
    }
    for (size_t i = 0; s->format == OPS_BF16 && i < bytes; i += 8) {
        const uint64_t bits = (bench_random(seed) & 0x8FFF8FFF8FFF8FFFu) | 0x3000300030003000u;
        memcpy(data + i, &bits, 8);
    }
    memset(scale, 120, scales);
    return (ops_matrix){.format = s->format, .n_out = s->n_out, .n_in = s->n_in, .data = data, .scale = scale};
}

static void make_copies(copies *c, ops_device *dev, const shape *s, size_t n_bytes)
{
    uint64_t seed = 1;
    const ops_matrix source = random_matrix(s, &seed);
    *c = (copies){.shape = s, .n = n_bytes / weight_bytes(s) + 1, .round_bytes = n_bytes / CPU_BENCH_ROUNDS};
    c->matrix = bench_need(calloc(c->n, sizeof *c->matrix));
    for (size_t i = 0; i < c->n; i++) {
        c->matrix[i] = source;
        cpu_backend.weight_load(dev, &c->matrix[i], OPS_USE_PRODUCT, NULL);
        bench_need(c->matrix[i].packed);
    }
    free((void *)(uintptr_t)source.data);
    free((void *)(uintptr_t)source.scale);
}

static void free_copies(copies *c, ops_device *dev)
{
    for (size_t i = 0; i < c->n; i++) {
        cpu_backend.weight_free(dev, &c->matrix[i]);
    }
    free(c->matrix);
}

static void make_rows(product *p, copies *of, int32_t rows)
{
    uint64_t seed = 2;
    const size_t n = (size_t)rows * (size_t)of->shape->n_in;
    *p = (product){.of = of, .rows = rows};
    p->x = bench_need(malloc(n * sizeof *p->x));
    p->y = bench_need(calloc((size_t)rows * (size_t)of->shape->n_out, sizeof *p->y));
    for (size_t i = 0; i < n; i++) {
        p->x[i] = (float)(int32_t)(bench_random(&seed) % 255) - 127.0f;
    }
    for (size_t r = 0; r < (size_t)rows && of->shape->format != OPS_BF16; r++) {
        fmt_q8_round(p->x + r * (size_t)of->shape->n_in, (size_t)of->shape->n_in);
    }
}

/* Few rows: several matrices a call, as a stage gives them, until a share of the copies is read. Many: one. */
static double work_product(cpu_bench *b, const bench_lane *lane, const void *what)
{
    const product *p = what;
    copies *of = p->of;
    ref_device *dev = ref_of(lane->dev);
    const size_t n = p->rows < FEW_ROWS ? 6 : 1;
    double bytes = 0.0;
    (void)b;
    do {
        ref_linear jobs[6];
        ref_stage_begin(dev);
        for (size_t i = 0; i < n; i++) {
            jobs[i] = ref_linear_to_f32(&of->matrix[of->at], p->x, p->rows, p->y);
            of->at = (of->at + 1) % of->n;
        }
        dev->linear(dev, jobs, n);
        bytes += (double)(n * weight_bytes(of->shape));
    } while (p->rows < FEW_ROWS && bytes < (double)of->round_bytes);
    return p->rows < FEW_ROWS ? bytes : (double)of->shape->n_out * (double)of->shape->n_in * (double)p->rows;
}

static void bench_shape(cpu_bench *b, const shape *s)
{
    static const int32_t rows[] = {1, 2, 3, 4, 8, 32, 128};
    enum { N_ROWS = sizeof rows / sizeof *rows };
    product p[N_ROWS] = {{0}};
    copies of = {0};
    for (size_t r = 0; r < N_ROWS; r++) {
        char name[48];
        snprintf(name, sizeof name, "%s_x%d", s->name, (int)rows[r]);
        if (!bench_wanted(b->words, b->n_words, name)) {
            continue;
        }
        if (of.matrix == NULL) {
            make_copies(&of, b->lanes[1].dev, s, b->n_data / 2);
        }
        make_rows(&p[r], &of, rows[r]);
        for (int i = 0; i < CPU_BENCH_LANES; i++) {
            bench_lane *lane = &b->lanes[i];
            const bool few = rows[r] < FEW_ROWS;
            bench_add(b, lane, name, work_product, &p[r], few ? lane->read : lane->compute, !few);
        }
    }
    bench_run(b, b->n_fixed);
    if (of.matrix != NULL) {
        free_copies(&of, b->lanes[1].dev);
    }
    for (size_t r = 0; r < N_ROWS; r++) {
        free(p[r].x);
        free(p[r].y);
    }
}

void bench_products(cpu_bench *b)
{
    for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++) {
        bench_shape(b, &SHAPES[s]);
    }
}
