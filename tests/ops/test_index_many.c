/* Index of many sequences at once (ops_index_args): each gets the list, the candidates and the scores that it gets alone,
 * whatever the number of threads; sequences of one row and of a few, some that see nothing yet. */
#include "ops/formats.h"
#include "ops/ops.h"
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEQS = 13,
    MOST_ROWS = 3,
    ROWS = SEQS * MOST_ROWS,
    HEADS = 3,
    DIM = 64,
    KEY = DIM / 2 + DIM / 32,
    ROPE = 16,
    INPUT = 32, /* hidden and q_lora */
    TOPK = 8,
    STRIDE = 4,
    SCORES = 96,
    PER_PAGE = 16,
    PAGES = 8
};

/* What a run leaves behind. */
typedef struct outcome {
    int32_t list[ROWS * TOPK];
    uint8_t candidates[ROWS * STRIDE];
    float score[ROWS * SCORES];
} outcome;

typedef struct world {
    ops_seq seqs[SEQS];
    uint8_t keys[SEQS][PAGES][PER_PAGE * KEY];
    uint8_t *pages[SEQS][PAGES];
    bf16 u[ROWS * INPUT];
    bf16 qr[ROWS * INPUT];
    int64_t pos[ROWS];
    bf16 wq_b[HEADS * DIM * INPUT];
    bf16 weights[HEADS * INPUT];
    float rope[ROPE / 2];
    int32_t n_rows;
} world;

static void random_values(bf16 *x, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = bf16_from_f32((float)((int64_t)(unit_random(seed) % 2001) - 1000) / 500.0f);
    }
}

static void fill(world *w)
{
    uint64_t seed = 11;
    float key[DIM];
    for (int32_t i = 0; i < SEQS; i++) {
        ops_seq *s = &w->seqs[i];
        *s = (ops_seq){.row0 = w->n_rows, .n_rows = 1 + i % MOST_ROWS, .pos0 = i * i, .pages = w->pages[i]};
        for (int32_t r = 0; r < s->n_rows; r++) {
            w->pos[w->n_rows++] = s->pos0 + r;
        }
        for (int32_t p = 0; p < PAGES; p++) {
            w->pages[i][p] = w->keys[i][p];
            for (int32_t t = 0; t < PER_PAGE; t++) {
                for (int32_t c = 0; c < DIM; c++) {
                    key[c] = (float)((int64_t)(unit_random(&seed) % 2001) - 1000) / 300.0f;
                }
                fmt_q4e_pack(key, DIM, w->keys[i][p] + t * KEY);
            }
        }
    }
    random_values(w->u, ROWS * INPUT, &seed);
    random_values(w->qr, ROWS * INPUT, &seed);
    random_values(w->wq_b, HEADS * DIM * INPUT, &seed);
    random_values(w->weights, HEADS * INPUT, &seed);
    for (int32_t i = 0; i < ROPE / 2; i++) {
        w->rope[i] = 1.0f / (float)(i + 1);
    }
}

/* Sequences i .. i + n - 1, their rows where they stand in the batch of all. */
static void run(const world *w, int32_t i, int32_t n, int32_t threads, outcome *out)
{
    const ops_backend *ops;
    const ops_matrix wq_b = {
        .format = OPS_BF16, .n_out = HEADS * DIM, .n_in = INPUT, .data = (const uint8_t *)w->wq_b};
    const ops_matrix weights = {.format = OPS_BF16, .n_out = HEADS, .n_in = INPUT, .data = (const uint8_t *)w->weights};
    ops_device *dev;
    di_error err;
    assert_int_equal(ops_backend_find("ref", &ops, &err), DI_OK);
    assert_int_equal(ops->open(&(ops_device_options){.n_threads = threads}, &dev, &err), DI_OK);
    ops->index(dev, &(ops_index_args){.n_rows = w->n_rows,
                                      .n_seqs = n,
                                      .seqs = w->seqs + i,
                                      .ratio = 2,
                                      .hidden = INPUT,
                                      .q_lora = INPUT,
                                      .rope_dim = ROPE,
                                      .n_heads = HEADS,
                                      .index_dim = DIM,
                                      .topk = TOPK,
                                      .n_blocks = 3,
                                      .block_size = 4,
                                      .cand_stride = STRIDE,
                                      .make_candidates = true,
                                      .u = w->u,
                                      .qr = w->qr,
                                      .pos = w->pos,
                                      .rope = w->rope,
                                      .wq_b = &wq_b,
                                      .weights_proj = &weights,
                                      .index_keys = {.per_page = PER_PAGE, .row_bytes = KEY},
                                      .candidates = out->candidates,
                                      .list = out->list,
                                      .score = out->score,
                                      .score_stride = SCORES});
    assert_int_equal(ops->sync(dev, &err), DI_OK);
    ops->close(dev);
}

static void many_sequences_get_what_each_gets_alone(void **state)
{
    (void)state;
    static world w;
    static outcome want;
    static outcome got;
    fill(&w);
    memset(&want, 0xAB, sizeof want);
    for (int32_t i = 0; i < SEQS; i++) {
        run(&w, i, 1, 1, &want);
    }
    assert_int_equal(want.list[0], -1);                    /* position 0 sees no entry, */
    assert_true(want.list[w.seqs[SEQS - 1].row0 * TOPK + TOPK - 1] >= 0); /* the last one more than a list holds */
    for (int32_t threads = 1; threads <= 7; threads++) {
        memset(&got, 0xAB, sizeof got);
        run(&w, 0, SEQS, threads, &got);
        assert_memory_equal(&got, &want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_sequences_get_what_each_gets_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
