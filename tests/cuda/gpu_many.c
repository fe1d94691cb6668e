/* Products and experts with many tokens give the bits of the same rows in small batches: full and broken blocks of tokens, outputs that end
 * in half an item, experts with few, many and no tokens. ctest: serial timeout=300 */
#include "cuda/pair.h"

#include "ops/rope.h"

#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 5120, Q_LORA = 1280, HEADS = 8, HEAD_DIM = 512, ROPE = 64, GROUPS = 8, O_LORA = 256, EXPERTS = 384, VOCAB = 1088 };
enum { MOST = 1100, SMALL = 44, INTER = 512, WIDE = 256 * GROUPS };

static gpu_pair pair;
static float frequencies[ROPE / 2];
static int64_t positions[MOST];
static const int32_t ROWS[] = {MOST, 512, 321, 130};

/* A stage over rows first .. first + n - 1 of x, on the GPU; y has `out` bytes a row. */
typedef struct stage {
    const char *name;
    size_t in;
    size_t out;
    void (*run)(const struct stage *s, const uint8_t *x, int32_t first, int32_t n, uint8_t *y);
    const ops_matrix *w[2];
    const int64_t *d_pos;
    const float *d_rope;
    void *low;
} stage;

static void run_query(const stage *s, const uint8_t *x, int32_t first, int32_t n, uint8_t *y)
{
    ops_query_args a = {.n_rows = n, .q_lora = Q_LORA, .n_heads = HEADS, .head_dim = HEAD_DIM, .rope_dim = ROPE, .qr = (const bf16 *)(const void *)x,
                        .pos = s->d_pos + first, .rope = s->d_rope, .wq_b = s->w[0], .q = (bf16 *)(void *)y};
    cu_query(pair.gpu, &a);
}

static void run_attn_out(const stage *s, const uint8_t *x, int32_t first, int32_t n, uint8_t *y)
{
    (void)first;
    ops_attn_out_args a = {.n_rows = n, .n_groups = GROUPS, .group_in = WIDE / GROUPS, .o_lora = O_LORA, .hidden = HIDDEN,
                           .o = (const bf16 *)(const void *)x, .wo_a = s->w[0], .wo_b = s->w[1], .low = s->low, .y = (bf16 *)(void *)y};
    cu_attn_out(pair.gpu, &a);
}

static void run_head(const stage *s, const uint8_t *x, int32_t first, int32_t n, uint8_t *y)
{
    (void)first;
    ops_head_args a = {.n_rows = n, .hidden = HIDDEN, .head = s->w[0], .h = (const bf16 *)(const void *)x, .logits = (float *)(void *)y};
    cu_head(pair.gpu, &a);
}

/* All rows in batches of SMALL, then in large ones. */
static void expect_the_same_bits(const stage *s)
{
    uint64_t seed = 7;
    bf16 *x = gpu_rows(MOST * s->in / 2, &seed);
    uint8_t *d_x = gpu_upload(&pair, x, MOST * s->in);
    uint8_t *d_y = gpu_upload(&pair, NULL, MOST * s->out);
    for (int32_t i = 0; i < MOST; i += SMALL) {
        s->run(s, d_x + (size_t)i * s->in, i, SMALL, d_y + (size_t)i * s->out);
    }
    uint8_t *want = gpu_download(&pair, d_y, MOST * s->out);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const size_t n = (size_t)ROWS[i] * s->out;
        uint8_t *d_got = gpu_upload(&pair, NULL, n + 16); /* and nothing behind the last row */
        s->run(s, d_x, 0, ROWS[i], d_got);
        uint8_t *got = gpu_download(&pair, d_got, n + 16);
        static const uint8_t clear[16];
        assert_memory_equal(got, want, n);
        assert_memory_equal(got + n, clear, sizeof clear);
        cu_mem_free(pair.gpu, d_got);
        free(got);
    }
    free(want);
    free(x);
    cu_mem_free(pair.gpu, d_x);
    cu_mem_free(pair.gpu, d_y);
}

static void products_of_many_rows(void **state)
{
    (void)state;
    uint64_t seed = 31;
    ops_matrix wq_b = gpu_matrix(&pair, OPS_FP8, HEADS * HEAD_DIM, Q_LORA, &seed);
    ops_matrix wo_a = gpu_matrix(&pair, OPS_FP8, GROUPS * O_LORA, WIDE / GROUPS, &seed);
    ops_matrix wo_b = gpu_matrix(&pair, OPS_FP8, HIDDEN, GROUPS * O_LORA, &seed);
    ops_matrix head = gpu_matrix(&pair, OPS_BF16, VOCAB, HIDDEN, &seed);
    int64_t *d_pos = gpu_upload(&pair, positions, sizeof positions);
    float *d_rope = gpu_upload(&pair, frequencies, sizeof frequencies);
    void *low = gpu_upload(&pair, NULL, (size_t)MOST * GROUPS * O_LORA * 2);
    const stage stages[] = {
        {.name = "query", .in = Q_LORA * 2, .out = HEADS * HEAD_DIM * 2, .run = run_query, .w = {&wq_b}, .d_pos = d_pos, .d_rope = d_rope},
        {.name = "attn_out", .in = WIDE * 2, .out = HIDDEN * 2, .run = run_attn_out, .w = {&wo_a, &wo_b}, .low = low},
        {.name = "head", .in = HIDDEN * 2, .out = VOCAB * 4, .run = run_head, .w = {&head}},
    };
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        expect_the_same_bits(&stages[i]);
    }
    cu_mem_free(pair.gpu, d_pos);
    cu_mem_free(pair.gpu, d_rope);
    cu_mem_free(pair.gpu, low);
    gpu_matrix_free(&pair, &wq_b);
    gpu_matrix_free(&pair, &wo_a);
    gpu_matrix_free(&pair, &wo_b);
    gpu_matrix_free(&pair, &head);
}

/* Six ascending experts a row. Expert 3 is in every list, 4 to 10 in most, and beyond 300 nobody asks. */
static void make_lists(int32_t *ids, float *weights)
{
    uint64_t seed = 33;
    enum { ACTIVE = 6 };
    for (size_t t = 0; t < MOST; t++) {
        bool taken[EXPERTS] = {[3] = true};
        for (int n = 1; n < ACTIVE;) {
            size_t e = unit_random(&seed) % 3 > 0 ? 4 + unit_random(&seed) % 7 : unit_random(&seed) % 300;
            n += !taken[e];
            taken[e] = true;
        }
        gpu_list(taken, EXPERTS, ids + t * ACTIVE, weights + t * ACTIVE, &seed);
    }
}

static void experts_of_many_rows(void **state)
{
    (void)state;
    enum { ACTIVE = 6, KINDS = 4 };
    static ops_expert experts[EXPERTS];
    static int32_t ids[MOST * ACTIVE];
    static float weights[MOST * ACTIVE];
    uint64_t seed = 32;
    ops_matrix w[(KINDS + 1) * 3];
    for (size_t k = 0; k < sizeof w / sizeof w[0]; k++) {
        w[k] = gpu_matrix(&pair, k < KINDS * 3 ? OPS_FP4 : OPS_FP8, k % 3 == 1 ? HIDDEN : INTER, k % 3 == 1 ? INTER : HIDDEN, &seed);
    }
    for (size_t e = 0; e < EXPERTS; e++) {
        const ops_matrix *m = &w[e % KINDS * 3];
        experts[e] = (ops_expert){.w1 = &m[0], .w2 = &m[1], .w3 = &m[2]};
    }
    make_lists(ids, weights);
    bf16 *u = gpu_rows((size_t)MOST * HIDDEN, &seed);
    bf16 *d_u = gpu_upload(&pair, u, (size_t)MOST * HIDDEN * 2);
    int32_t *d_ids = gpu_upload(&pair, ids, sizeof ids);
    float *d_weights = gpu_upload(&pair, weights, sizeof weights);
    bf16 *d_y = gpu_upload(&pair, NULL, (size_t)MOST * HIDDEN * 2);
    ops_experts_args a = {.hidden = HIDDEN, .inter = INTER, .n_experts = EXPERTS, .n_active = ACTIVE, .swiglu_limit = 10.0f, .experts = experts,
                          .shared = {.w1 = &w[KINDS * 3], .w2 = &w[KINDS * 3 + 1], .w3 = &w[KINDS * 3 + 2]}};
    for (int32_t i = 0; i < MOST; i += SMALL) {
        a.n_rows = SMALL;
        a.u = d_u + (size_t)i * HIDDEN;
        a.ids = d_ids + i * ACTIVE;
        a.weights = d_weights + i * ACTIVE;
        a.y = d_y + (size_t)i * HIDDEN;
        cu_experts(pair.gpu, &a);
    }
    bf16 *want = gpu_download(&pair, d_y, (size_t)MOST * HIDDEN * 2);
    for (size_t i = 0; i < 2; i++) {
        bf16 *d_got = gpu_upload(&pair, NULL, (size_t)ROWS[i] * HIDDEN * 2);
        a.n_rows = ROWS[i];
        a.u = d_u;
        a.ids = d_ids;
        a.weights = d_weights;
        a.y = d_got;
        cu_experts(pair.gpu, &a);
        bf16 *got = gpu_download(&pair, d_got, (size_t)ROWS[i] * HIDDEN * 2);
        assert_memory_equal(got, want, (size_t)ROWS[i] * HIDDEN * 2);
        cu_mem_free(pair.gpu, d_got);
        free(got);
    }
    void *memory[] = {d_u, d_ids, d_weights, d_y};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        cu_mem_free(pair.gpu, memory[i]);
    }
    free(want);
    free(u);
    for (size_t k = 0; k < sizeof w / sizeof w[0]; k++) {
        gpu_matrix_free(&pair, &w[k]);
    }
}

int main(void)
{
    if (!gpu_pair_open(&pair)) {
        return 0;
    }
    rope_frequencies(160000.0, ROPE, frequencies);
    for (int64_t i = 0; i < MOST; i++) {
        positions[i] = i * i * 7;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_many_rows),
        cmocka_unit_test(experts_of_many_rows),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_pair_close(&pair);
    return failed;
}
