/* Dense stages on the GPU against the plain C reference at the released inner sizes, over few and many rows; rows alone and inside batches give
 * the same bits. ctest: serial timeout=300 */
#include "cuda/pair.h"

#include "ops/rope.h"

#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 5120, Q_LORA = 1280, HEADS = 64, HEAD_DIM = 512, ROPE = 64, GROUPS = 8, O_LORA = 1024, EXPERTS = 384, VOCAB = 4096 };

static gpu_pair pair;
static const int32_t ROWS[] = {1, 2, 7, 8, 9, 16, 33};
#define N_ROWS (sizeof ROWS / sizeof ROWS[0])
#define MOST 33

/* Room for one failure of rounding in a thousand; the bar of the stage tests. */
#define SHARE 1e-3

static float frequencies[ROPE / 2];
static int64_t positions[MOST];

static void products_of_the_query_agree(void **state)
{
    (void)state;
    uint64_t seed = 1;
    ops_matrix wq_b = gpu_matrix(&pair, OPS_FP8, HEADS * HEAD_DIM, Q_LORA, &seed);
    bf16 *qr = gpu_rows(MOST * Q_LORA, &seed);
    void *d_qr = gpu_upload(&pair, qr, MOST * Q_LORA * 2);
    void *d_pos = gpu_upload(&pair, positions, sizeof positions);
    void *d_rope = gpu_upload(&pair, frequencies, sizeof frequencies);
    size_t n = (size_t)MOST * HEADS * HEAD_DIM;
    bf16 *want = malloc(n * 2);
    void *d_q = gpu_upload(&pair, NULL, n * 2);
    ops_query_args a = {.n_rows = MOST, .q_lora = Q_LORA, .n_heads = HEADS, .head_dim = HEAD_DIM, .rope_dim = ROPE, .qr = qr, .pos = positions,
                        .rope = frequencies, .wq_b = &wq_b, .q = want};
    ref_query(pair.ref, &a);
    bf16 *all = NULL;
    for (size_t i = N_ROWS; i-- > 0;) {
        ops_query_args g = a;
        g.n_rows = ROWS[i];
        g.qr = d_qr;
        g.pos = d_pos;
        g.rope = d_rope;
        g.q = d_q;
        cu_query(pair.gpu, &g);
        size_t m = (size_t)ROWS[i] * HEADS * HEAD_DIM;
        bf16 *got = gpu_download(&pair, d_q, m * 2);
        gpu_expect("query", ROWS[i], gpu_compare16(got, want, m, HEADS * HEAD_DIM), SHARE, 1.0);
        if (all == NULL) {
            all = got;
            continue;
        }
        assert_memory_equal(got, all, m * 2);
        free(got);
    }
    free(all);
    free(want);
    free(qr);
    cu_mem_free(pair.gpu, d_qr);
    cu_mem_free(pair.gpu, d_pos);
    cu_mem_free(pair.gpu, d_rope);
    cu_mem_free(pair.gpu, d_q);
    gpu_matrix_free(&pair, &wq_b);
}

static void attention_inputs_agree(void **state)
{
    (void)state;
    uint64_t seed = 2;
    const size_t packed = HEAD_DIM + HEAD_DIM / 32;
    ops_matrix wq_a = gpu_matrix(&pair, OPS_FP8, Q_LORA, HIDDEN, &seed);
    ops_matrix wkv = gpu_matrix(&pair, OPS_FP8, HEAD_DIM, HIDDEN, &seed);
    bf16 *u = gpu_rows(MOST * HIDDEN, &seed);
    float *q_norm = gpu_floats(Q_LORA, 1.0f, 0.2f, &seed);
    float *kv_norm = gpu_floats(HEAD_DIM, 1.0f, 0.2f, &seed);
    bf16 *qr = malloc(MOST * Q_LORA * 2);
    uint8_t *kv = malloc(MOST * packed);
    ops_attn_in_args a = {.n_rows = MOST, .hidden = HIDDEN, .q_lora = Q_LORA, .head_dim = HEAD_DIM, .rope_dim = ROPE, .norm_eps = 1e-20f, .u = u,
                          .pos = positions, .rope = frequencies, .wq_a = &wq_a, .q_norm = q_norm, .wkv = &wkv, .kv_norm = kv_norm, .qr = qr, .kv = kv};
    ref_attn_in(pair.ref, &a);
    ops_attn_in_args g = a;
    g.u = gpu_upload(&pair, u, MOST * HIDDEN * 2);
    g.pos = gpu_upload(&pair, positions, sizeof positions);
    g.rope = gpu_upload(&pair, frequencies, sizeof frequencies);
    g.q_norm = gpu_upload(&pair, q_norm, Q_LORA * 4);
    g.kv_norm = gpu_upload(&pair, kv_norm, HEAD_DIM * 4);
    g.qr = gpu_upload(&pair, NULL, MOST * Q_LORA * 2);
    g.kv = gpu_upload(&pair, NULL, MOST * packed);
    bf16 *all = NULL;
    uint8_t *all_kv = NULL;
    for (size_t i = N_ROWS; i-- > 0;) {
        g.n_rows = ROWS[i];
        cu_attn_in(pair.gpu, &g);
        size_t m = (size_t)ROWS[i] * Q_LORA;
        bf16 *got = gpu_download(&pair, g.qr, m * 2);
        uint8_t *got_kv = gpu_download(&pair, g.kv, (size_t)ROWS[i] * packed);
        gpu_expect("attn_in_q", ROWS[i], gpu_compare16(got, qr, m, Q_LORA), 2 * SHARE, 1.0);
        gpu_difference codes = {.n = (size_t)ROWS[i] * packed};
        for (size_t k = 0; k < codes.n; k++) {
            int off = abs((int)got_kv[k] - (int)kv[k]);
            codes.flips += off != 0;
            codes.worst = off > codes.worst ? off : codes.worst;
        }
        gpu_expect("attn_in_kv", ROWS[i], codes, 2 * SHARE, 1.0);
        if (all == NULL) {
            all = got;
            all_kv = got_kv;
            continue;
        }
        assert_memory_equal(got, all, m * 2);
        assert_memory_equal(got_kv, all_kv, (size_t)ROWS[i] * packed);
        free(got);
        free(got_kv);
    }
    void *memory[] = {(void *)g.u, (void *)g.pos, (void *)g.rope, (void *)g.q_norm, (void *)g.kv_norm, g.qr, g.kv};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        cu_mem_free(pair.gpu, memory[i]);
    }
    free(all);
    free(all_kv);
    free(u);
    free(q_norm);
    free(kv_norm);
    free(qr);
    free(kv);
    gpu_matrix_free(&pair, &wq_a);
    gpu_matrix_free(&pair, &wkv);
}

/* The reference's wo_b behind the GPU's wo_a: a flip in front of the Q8 grid moves a code, and with it a whole row. */
static void second_product(const ops_matrix *wo_b, const bf16 *low, int32_t n_rows, bf16 *y)
{
    ref_device *dev = ref_of(pair.ref);
    assert_true(ref_stage_begin(dev));
    const float *x = ref_widen(dev, low, n_rows, (size_t)wo_b->n_in, true);
    assert_non_null(x);
    ref_linear job = ref_linear_to_bf16(wo_b, x, n_rows, y);
    dev->linear(dev, &job, 1);
}

static void output_projection_agrees(void **state)
{
    (void)state;
    uint64_t seed = 3;
    enum { WIDE = HEADS * HEAD_DIM, LOW = GROUPS * O_LORA };
    ops_matrix wo_a = gpu_matrix(&pair, OPS_FP8, LOW, WIDE / GROUPS, &seed);
    ops_matrix wo_b = gpu_matrix(&pair, OPS_FP8, HIDDEN, LOW, &seed);
    bf16 *o = gpu_rows((size_t)MOST * WIDE, &seed);
    bf16 *low = malloc((size_t)MOST * LOW * 2);
    bf16 *y = malloc((size_t)MOST * HIDDEN * 2);
    ops_attn_out_args a = {.n_rows = MOST, .n_groups = GROUPS, .group_in = WIDE / GROUPS, .o_lora = O_LORA, .hidden = HIDDEN, .o = o,
                           .wo_a = &wo_a, .wo_b = &wo_b, .low = low, .y = y};
    ref_attn_out(pair.ref, &a);
    ops_attn_out_args g = a;
    g.o = gpu_upload(&pair, o, (size_t)MOST * WIDE * 2);
    g.low = gpu_upload(&pair, NULL, (size_t)MOST * LOW * 2);
    g.y = gpu_upload(&pair, NULL, (size_t)MOST * HIDDEN * 2);
    bf16 *all = NULL;
    for (size_t i = N_ROWS; i-- > 0;) {
        g.n_rows = ROWS[i];
        cu_attn_out(pair.gpu, &g);
        size_t m = (size_t)ROWS[i] * HIDDEN;
        bf16 *got_low = gpu_download(&pair, g.low, (size_t)ROWS[i] * LOW * 2);
        bf16 *got = gpu_download(&pair, g.y, m * 2);
        gpu_expect("attn_out_low", ROWS[i], gpu_compare16(got_low, low, (size_t)ROWS[i] * LOW, LOW), SHARE, 1.0);
        second_product(&wo_b, got_low, ROWS[i], y);
        gpu_expect("attn_out", ROWS[i], gpu_compare16(got, y, m, HIDDEN), SHARE, 1.0);
        free(got_low);
        if (all == NULL) {
            all = got;
            continue;
        }
        assert_memory_equal(got, all, m * 2);
        free(got);
    }
    cu_mem_free(pair.gpu, (void *)g.o);
    cu_mem_free(pair.gpu, g.low);
    cu_mem_free(pair.gpu, g.y);
    free(all);
    free(o);
    free(low);
    free(y);
    gpu_matrix_free(&pair, &wo_a);
    gpu_matrix_free(&pair, &wo_b);
}

static void routes_agree(void **state)
{
    (void)state;
    uint64_t seed = 4;
    enum { ACTIVE = 6 };
    ops_matrix gate = gpu_matrix(&pair, OPS_BF16, EXPERTS, HIDDEN, &seed);
    bf16 *u = gpu_rows(MOST * HIDDEN, &seed);
    float *bias = gpu_floats(EXPERTS, 0.0f, 0.1f, &seed);
    float *bias_vl = gpu_floats(EXPERTS, 0.0f, 0.1f, &seed);
    uint8_t is_text[MOST];
    for (size_t i = 0; i < MOST; i++) {
        is_text[i] = i % 3 != 0;
    }
    int32_t ids[MOST * ACTIVE];
    float weights[MOST * ACTIVE];
    ops_router_args a = {.n_rows = MOST, .hidden = HIDDEN, .n_experts = EXPERTS, .n_active = ACTIVE, .routed_scale = 1.5f, .u = u, .is_text = is_text,
                         .gate = &gate, .bias = bias, .bias_vl = bias_vl, .ids = ids, .weights = weights};
    ref_router(pair.ref, &a);
    ops_router_args g = a;
    g.u = gpu_upload(&pair, u, MOST * HIDDEN * 2);
    g.is_text = gpu_upload(&pair, is_text, MOST);
    g.bias = gpu_upload(&pair, bias, EXPERTS * 4);
    g.bias_vl = gpu_upload(&pair, bias_vl, EXPERTS * 4);
    g.ids = gpu_upload(&pair, NULL, sizeof ids);
    g.weights = gpu_upload(&pair, NULL, sizeof weights);
    float *all = NULL;
    for (size_t i = N_ROWS; i-- > 0;) {
        g.n_rows = ROWS[i];
        cu_router(pair.gpu, &g);
        size_t m = (size_t)ROWS[i] * ACTIVE;
        int32_t *got_ids = gpu_download(&pair, g.ids, m * 4);
        float *got = gpu_download(&pair, g.weights, m * 4);
        assert_memory_equal(got_ids, ids, m * 4);
        gpu_expect("router", ROWS[i], gpu_compare32(got, weights, m, ACTIVE), 1.0, 8.0);
        free(got_ids);
        if (all == NULL) {
            all = got;
            continue;
        }
        assert_memory_equal(got, all, m * 4);
        free(got);
    }
    void *memory[] = {(void *)g.u, (void *)g.is_text, (void *)g.bias, (void *)g.bias_vl, g.ids, g.weights};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        cu_mem_free(pair.gpu, memory[i]);
    }
    free(all);
    free(u);
    free(bias);
    free(bias_vl);
    gpu_matrix_free(&pair, &gate);
}

/* A head of n_out outputs in any batch: at most `share` of the logits differ from the reference, none by more than `worst`. */
static void compare_head(const char *name, ops_format format, size_t n_out, double share, double worst)
{
    uint64_t seed = 5;
    ops_matrix head = gpu_matrix(&pair, format, (int64_t)n_out, HIDDEN, &seed);
    bf16 *h = gpu_rows(MOST * HIDDEN, &seed);
    float *want = malloc((size_t)MOST * n_out * 4);
    ops_head_args a = {.n_rows = MOST, .hidden = HIDDEN, .head = &head, .h = h, .logits = want};
    ref_head(pair.ref, &a);
    ops_head_args g = a;
    g.h = gpu_upload(&pair, h, MOST * HIDDEN * 2);
    g.logits = gpu_upload(&pair, NULL, (size_t)MOST * n_out * 4);
    float *all = NULL;
    for (size_t i = N_ROWS; i-- > 0;) {
        g.n_rows = ROWS[i];
        cu_head(pair.gpu, &g);
        size_t m = (size_t)ROWS[i] * n_out;
        float *got = gpu_download(&pair, g.logits, m * 4);
        gpu_expect(name, ROWS[i], gpu_compare32(got, want, m, n_out), share, worst);
        if (all == NULL) {
            all = got;
            continue;
        }
        assert_memory_equal(got, all, m * 4);
        free(got);
    }
    cu_mem_free(pair.gpu, (void *)g.h);
    cu_mem_free(pair.gpu, g.logits);
    free(all);
    free(h);
    free(want);
    gpu_matrix_free(&pair, &head);
}

static void logits_agree(void **state)
{
    (void)state;
    compare_head("head", OPS_BF16, VOCAB, 1.0, 24.0);
}

/* Forms that have no tiles: few outputs, and more of them than the kernel for few takes. */
static void matrices_without_tiles_have_the_references_bits(void **state)
{
    (void)state;
    compare_head("plain_bf16_32", OPS_BF16, 32, 0.0, 0.0);
    compare_head("plain_bf16_39", OPS_BF16, 39, 0.0, 0.0);
    compare_head("plain_fp8_96", OPS_FP8, 96, 0.0, 0.0);
    compare_head("plain_bf16_4120", OPS_BF16, 4120, 0.0, 0.0);
}

static void a_matrix_with_nan_codes_is_refused(void **state)
{
    (void)state;
    static uint8_t data[64 * 256];
    static const uint8_t scale[16] = {120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120, 120};
    data[1000] = 0x7F;
    ops_matrix w = {.format = OPS_FP8, .n_out = 64, .n_in = 256, .data = data, .scale = scale};
    di_error err;
    unit_expect_error(cu_weight_load(pair.gpu, &w, OPS_USE_PRODUCT, &err), DI_E_UNSUPPORTED, &err, "[64, 256]", "NaN", NULL);
    assert_null(w.packed);
    data[1000] = 0;
    w.n_in = 240;
    unit_expect_error(cu_weight_load(pair.gpu, &w, OPS_USE_PRODUCT, &err), DI_E_UNSUPPORTED, &err, "multiples of 32", NULL);
}

int main(void)
{
    if (!gpu_pair_open(&pair)) {
        return 0;
    }
    rope_frequencies(160000.0, ROPE, frequencies);
    for (int64_t i = 0; i < MOST; i++) {
        positions[i] = i < 8 ? i : i * i * 700;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_the_query_agree), cmocka_unit_test(attention_inputs_agree), cmocka_unit_test(output_projection_agrees),
        cmocka_unit_test(routes_agree),                cmocka_unit_test(logits_agree),
        cmocka_unit_test(matrices_without_tiles_have_the_references_bits),
        cmocka_unit_test(a_matrix_with_nan_codes_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_pair_close(&pair);
    return failed;
}
