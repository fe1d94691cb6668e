/* The experts stage on the GPU against the plain C reference at the released inner sizes; a row alone, in small batches and in large ones gives
 * the same bits, and so does running again. ctest: serial timeout=300 */
#include "cuda/pair.h"

#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 5120, INTER = 2304, EXPERTS = 12, ACTIVE = 6, MOST = 256 };

static gpu_pair pair;
static ops_matrix matrices[(EXPERTS + 1) * 3];
static ops_expert experts[EXPERTS];
static ops_expert shared;
static bf16 *u;
static int32_t ids[MOST * ACTIVE];
static float weights[MOST * ACTIVE];

static void make_experts(void)
{
    uint64_t seed = 21;
    for (size_t e = 0; e <= EXPERTS; e++) {
        ops_format format = e < EXPERTS ? OPS_FP4 : OPS_FP8;
        ops_matrix *w = &matrices[3 * e];
        w[0] = gpu_matrix(&pair, format, INTER, HIDDEN, &seed);
        w[1] = gpu_matrix(&pair, format, HIDDEN, INTER, &seed);
        w[2] = gpu_matrix(&pair, format, INTER, HIDDEN, &seed);
        ops_expert x = {.w1 = &w[0], .w2 = &w[1], .w3 = &w[2]};
        if (e < EXPERTS) {
            experts[e] = x;
        } else {
            shared = x;
        }
    }
}

/* Six of twelve, ascending; expert 3 is in every list, so that it has many tokens. */
static void make_rows(void)
{
    uint64_t seed = 22;
    u = gpu_rows((size_t)MOST * HIDDEN, &seed);
    for (size_t t = 0; t < MOST; t++) {
        bool taken[EXPERTS] = {[3] = true};
        for (int n = 1; n < ACTIVE;) {
            size_t e = unit_random(&seed) % EXPERTS;
            n += !taken[e];
            taken[e] = true;
        }
        gpu_list(taken, EXPERTS, ids + t * ACTIVE, weights + t * ACTIVE, &seed);
    }
}

static ops_experts_args args_of(int32_t n_rows)
{
    return (ops_experts_args){.n_rows = n_rows, .hidden = HIDDEN, .inter = INTER, .n_experts = EXPERTS, .n_active = ACTIVE, .swiglu_limit = 10.0f,
                              .experts = experts, .shared = shared};
}

/* Rows first .. first + n - 1 as a batch of their own; the caller frees. */
static bf16 *run_gpu(int32_t first, int32_t n)
{
    ops_experts_args a = args_of(n);
    a.u = gpu_upload(&pair, u + (size_t)first * HIDDEN, (size_t)n * HIDDEN * 2);
    a.ids = gpu_upload(&pair, ids + first * ACTIVE, (size_t)n * ACTIVE * 4);
    a.weights = gpu_upload(&pair, weights + first * ACTIVE, (size_t)n * ACTIVE * 4);
    a.y = gpu_upload(&pair, NULL, (size_t)n * HIDDEN * 2);
    cu_experts(pair.gpu, &a);
    bf16 *y = gpu_download(&pair, a.y, (size_t)n * HIDDEN * 2);
    cu_mem_free(pair.gpu, (void *)a.u);
    cu_mem_free(pair.gpu, (void *)a.ids);
    cu_mem_free(pair.gpu, (void *)a.weights);
    cu_mem_free(pair.gpu, a.y);
    return y;
}

static void contributions_agree(void **state)
{
    (void)state;
    const int32_t rows[] = {1, 3, 24};
    for (size_t i = 0; i < 3; i++) {
        ops_experts_args a = args_of(rows[i]);
        size_t n = (size_t)rows[i] * HIDDEN;
        bf16 *want = malloc(n * 2);
        a.u = u;
        a.ids = ids;
        a.weights = weights;
        a.y = want;
        ref_experts(pair.ref, &a);
        bf16 *got = run_gpu(0, rows[i]);
        gpu_expect("experts", rows[i], gpu_compare16(got, want, n, HIDDEN), 0.02, 2.0);
        free(want);
        free(got);
    }
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    bf16 *all = run_gpu(0, MOST);
    const struct { int32_t first, n; } parts[] = {{0, 1}, {100, 1}, {255, 1}, {17, 2}, {40, 7}, {60, 9}, {3, 20}, {100, 64}, {0, 256}, {0, 256}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        bf16 *got = run_gpu(parts[i].first, parts[i].n);
        assert_memory_equal(got, all + (size_t)parts[i].first * HIDDEN, (size_t)parts[i].n * HIDDEN * 2);
        free(got);
    }
    free(all);
}

int main(void)
{
    if (!gpu_pair_open(&pair)) {
        return 0;
    }
    make_experts();
    make_rows();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contributions_agree),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < (EXPERTS + 1) * 3; i++) {
        gpu_matrix_free(&pair, &matrices[i]);
    }
    free(u);
    gpu_pair_close(&pair);
    return failed;
}
