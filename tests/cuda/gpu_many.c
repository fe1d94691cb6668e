/* Products with many tokens give the bits of the same rows in small batches: full and broken blocks of tokens, outputs that end in half an
 * item. ctest: serial timeout=300 */
#include "cuda/pair.h"

#include "ops/rope.h"

#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 5120, Q_LORA = 1280, HEADS = 8, HEAD_DIM = 512, ROPE = 64, GROUPS = 8, O_LORA = 256, VOCAB = 1088 };
enum { MOST = 1100, SMALL = 44, WIDE = 256 * GROUPS };

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
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_pair_close(&pair);
    return failed;
}
