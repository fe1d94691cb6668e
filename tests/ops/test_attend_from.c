/* Windows that begin late (ops_seq.window_from, dspark.md 4.1): a row whose window is truncated at s gives what a window of the length
 * that is left gives, with rows in the batch, in the ring, and in both; rows before s are never read. */
#include "ops/formats.h"
#include "ops/ops.h"
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, DIM = 64, ROPE = 16, WINDOW = 16, ROWS = 40 };

typedef struct bench {
    ops_device *dev;
    const ops_backend *ops;
    bf16 q[ROWS * HEADS * DIM];
    uint8_t kv[ROWS * (DIM + DIM / 32)];
    uint8_t ring[WINDOW * (DIM + DIM / 32)];
    float sink[HEADS];
    float rope[ROPE / 2];
    bf16 o[ROWS * HEADS * DIM];
} bench;

static void fill(bench *b)
{
    uint64_t seed = 5;
    float row[DIM];
    for (size_t i = 0; i < ROWS * HEADS * DIM; i++) {
        const float x = (float)((int64_t)(unit_random(&seed) % 2001) - 1000) / 500.0f;
        fmt_f32_to_bf16(&x, 1, &b->q[i]);
    }
    for (size_t t = 0; t < ROWS; t++) {
        for (size_t i = 0; i < DIM; i++) {
            row[i] = (float)((int64_t)(unit_random(&seed) % 2001) - 1000) / 300.0f;
        }
        fmt_q8_pack(row, DIM, b->kv + t * fmt_q8_bytes(DIM));
    }
    for (size_t i = 0; i < ROPE / 2; i++) {
        b->rope[i] = 1.0f / (float)(i + 1);
    }
}

/* Row `pos` alone, `n_batch` of its KV rows in the batch and the rest in the ring. */
static void attend(bench *b, int32_t pos, int32_t window, int64_t from, int32_t n_batch, bf16 *out)
{
    const size_t bytes = fmt_q8_bytes(DIM);
    const int32_t pos0 = pos + 1 - n_batch;
    memset(b->ring, 0xFF, sizeof b->ring); /* NaN where nothing was stored */
    for (int64_t t = from; t < pos0; t++) {
        if (t > pos - window) {
            memcpy(b->ring + (size_t)(t % window) * bytes, b->kv + (size_t)t * bytes, bytes);
        }
    }
    const ops_seq query = {.row0 = 0, .n_rows = 1, .pos0 = pos, .window_from = from, .state = b->ring};
    const ops_seq kv = {.row0 = 0, .n_rows = n_batch, .pos0 = pos0, .window_from = from, .state = b->ring};
    b->ops->attend(b->dev, &(ops_attend_args){.n_rows = 1,
                                             .n_seqs = 1,
                                             .seqs = &query,
                                             .kv_seqs = &kv,
                                             .n_heads = HEADS,
                                             .head_dim = DIM,
                                             .rope_dim = ROPE,
                                             .window = window,
                                             .ring_slots = window,
                                             .scale = 0.125f,
                                             .q = b->q + (size_t)pos * HEADS * DIM,
                                             .kv = b->kv + (size_t)pos0 * bytes,
                                             .sink = b->sink,
                                             .rope = b->rope,
                                             .o = out});
    assert_int_equal(b->ops->sync(b->dev, NULL), DI_OK);
}

static void a_truncated_window_is_a_shorter_one(void **state)
{
    (void)state;
    bench *const b = calloc(1, sizeof *b);
    assert_non_null(b);
    fill(b);
    assert_int_equal(ops_backend_find("cpu", &b->ops, NULL), DI_OK);
    assert_int_equal(b->ops->open(&(ops_device_options){.n_threads = 2}, &b->dev, NULL), DI_OK);
    bf16 cut[HEADS * DIM];
    bf16 shorter[HEADS * DIM];
    for (int32_t pos = 0; pos < ROWS; pos++) {
        for (int32_t from = pos > WINDOW ? pos - WINDOW : 0; from <= pos; from++) {
            const int32_t left = pos + 1 - from < WINDOW ? pos + 1 - from : WINDOW;
            attend(b, pos, left, 0, left, shorter);
            for (int32_t n_batch = 1; n_batch <= left; n_batch++) {
                attend(b, pos, WINDOW, from, n_batch, cut);
                assert_memory_equal(cut, shorter, sizeof cut);
            }
        }
    }
    b->ops->close(b->dev);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_truncated_window_is_a_shorter_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
