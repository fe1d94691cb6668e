/* The seams on the GPU against the plain C reference at the released sizes; rows alone and inside batches give the same bits.
 * ctest: serial timeout=300 */
#include "cuda/pair.h"

#include <stdio.h>
#include <stdlib.h>

enum { HC = 4, HIDDEN = 5120, MIXES = 24, MOST = 33 };

static gpu_pair pair;
static const int32_t ROWS[] = {1, 2, 4, 5, 7, 33};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])

static void an_entry_agrees(void **state)
{
    (void)state;
    uint64_t seed = 31;
    ops_matrix fn = gpu_matrix(&pair, OPS_F32, MIXES, HC * HIDDEN, &seed);
    bf16 *x = gpu_rows((size_t)MOST * HC * HIDDEN, &seed);
    float *pre_in = gpu_floats(MOST * HC, 0.5f, 0.2f, &seed);
    float *base = gpu_floats(MIXES, 0.0f, 1.0f, &seed);
    float *norm = gpu_floats(HIDDEN, 1.0f, 0.2f, &seed);
    const float scale[3] = {0.5f, 0.7f, 0.9f};
    float pre[MOST * HC];
    float post[MOST * HC];
    float comb[MOST * HC * HC];
    bf16 *u = malloc((size_t)MOST * HIDDEN * 2);
    ops_seam_open_args a = {.n_rows = MOST, .hc = HC, .hidden = HIDDEN, .iters = 20, .hc_eps = 1e-6f, .norm_eps = 1e-20f, .x = x, .pre_in = pre_in,
                            .fn = &fn, .base = base, .scale = scale, .norm = norm, .pre = pre, .post = post, .comb = comb, .u = u};
    ref_seam_open(pair.ref, &a);
    ops_seam_open_args g = a;
    g.x = gpu_upload(&pair, x, (size_t)MOST * HC * HIDDEN * 2);
    g.pre_in = gpu_upload(&pair, pre_in, MOST * HC * 4);
    g.base = gpu_upload(&pair, base, MIXES * 4);
    g.scale = gpu_upload(&pair, scale, sizeof scale);
    g.norm = gpu_upload(&pair, norm, HIDDEN * 4);
    g.pre = gpu_upload(&pair, NULL, sizeof pre);
    g.post = gpu_upload(&pair, NULL, sizeof post);
    g.comb = gpu_upload(&pair, NULL, sizeof comb);
    g.u = gpu_upload(&pair, NULL, (size_t)MOST * HIDDEN * 2);
    bf16 *all_u = NULL;
    float *all_comb = NULL;
    for (size_t i = N_ROWS; i-- > 0;) {
        size_t n = (size_t)ROWS[i];
        g.n_rows = ROWS[i];
        cu_seam_open(pair.gpu, &g);
        bf16 *got_u = gpu_download(&pair, g.u, n * HIDDEN * 2);
        float *got_pre = gpu_download(&pair, g.pre, n * HC * 4);
        float *got_post = gpu_download(&pair, g.post, n * HC * 4);
        float *got_comb = gpu_download(&pair, g.comb, n * HC * HC * 4);
        gpu_expect("seam_u", ROWS[i], gpu_compare16(got_u, u, n * HIDDEN, HIDDEN), 1e-3, 1.0);
        gpu_expect("seam_pre", ROWS[i], gpu_compare32(got_pre, pre, n * HC, HC), 1.0, 16.0);
        gpu_expect("seam_post", ROWS[i], gpu_compare32(got_post, post, n * HC, HC), 1.0, 16.0);
        gpu_expect("seam_comb", ROWS[i], gpu_compare32(got_comb, comb, n * HC * HC, HC * HC), 1.0, 16.0);
        free(got_pre);
        free(got_post);
        if (all_u == NULL) {
            all_u = got_u;
            all_comb = got_comb;
            continue;
        }
        assert_memory_equal(got_u, all_u, n * HIDDEN * 2);
        assert_memory_equal(got_comb, all_comb, n * HC * HC * 4);
        free(got_u);
        free(got_comb);
    }
    void *memory[] = {(void *)g.x, (void *)g.pre_in, (void *)g.base, (void *)g.scale, (void *)g.norm, g.pre, g.post, g.comb, g.u};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        cu_mem_free(pair.gpu, memory[i]);
    }
    free(all_u);
    free(all_comb);
    free(x);
    free(pre_in);
    free(base);
    free(norm);
    free(u);
    gpu_matrix_free(&pair, &fn);
}

static void an_exit_has_the_references_bits(void **state)
{
    (void)state;
    uint64_t seed = 32;
    size_t n = (size_t)MOST * HC * HIDDEN;
    bf16 *x = gpu_rows(n, &seed);
    bf16 *y = gpu_rows((size_t)MOST * HIDDEN, &seed);
    float *post = gpu_floats(MOST * HC, 1.0f, 0.3f, &seed);
    float *comb = gpu_floats(MOST * HC * HC, 0.25f, 0.1f, &seed);
    ops_seam_close_args a = {.n_rows = MOST, .hc = HC, .hidden = HIDDEN, .post = gpu_upload(&pair, post, MOST * HC * 4),
                             .comb = gpu_upload(&pair, comb, MOST * HC * HC * 4), .y = gpu_upload(&pair, y, (size_t)MOST * HIDDEN * 2),
                             .x = gpu_upload(&pair, x, n * 2)};
    cu_seam_close(pair.gpu, &a);
    bf16 *got = gpu_download(&pair, a.x, n * 2);
    ops_seam_close_args r = {.n_rows = MOST, .hc = HC, .hidden = HIDDEN, .post = post, .comb = comb, .y = y, .x = x};
    ref_seam_close(pair.ref, &r);
    assert_memory_equal(got, x, n * 2);
    cu_mem_free(pair.gpu, (void *)a.post);
    cu_mem_free(pair.gpu, (void *)a.comb);
    cu_mem_free(pair.gpu, (void *)a.y);
    cu_mem_free(pair.gpu, a.x);
    free(got);
    free(x);
    free(y);
    free(post);
    free(comb);
}

int main(void)
{
    if (!gpu_pair_open(&pair)) {
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_agrees),
        cmocka_unit_test(an_exit_has_the_references_bits),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_pair_close(&pair);
    return failed;
}
