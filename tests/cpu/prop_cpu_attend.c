/* The CPU backend's attention equals the reference bit by bit: prompts and single rows, several sequences, windows that
 * wrap, short and long lists, odd numbers of heads, one to five threads; and its row kernels do for every instruction
 * set that this machine has. */
#include "support/unit.h"

#include "cpu/cpu.h"
#include "cpu/cpu_int.h"
#include "ops/ref.h"

#include <stdio.h>
#include <stdlib.h>

enum { PAGE_ROWS = 8, MAX_SEQS = 4, MAX_TOKENS = 400 };

typedef struct world {
    ops_attend_args a;
    ops_seq seqs[MAX_SEQS];
    ops_seq kv_seqs[MAX_SEQS];
    uint8_t *pages[MAX_SEQS][MAX_TOKENS / PAGE_ROWS];
    uint64_t seed;
} world;

static void *need(size_t n)
{
    void *p = calloc(1, n);
    assert_non_null(p);
    return p;
}

static float random_value(world *w) { return (float)(int32_t)unit_random(&w->seed) * 0x1p-30f; }

static void random_row(world *w, size_t n, float *row)
{
    for (size_t i = 0; i < n; i++) {
        row[i] = unit_random(&w->seed) % 9 == 0
                     ? 0.0f
                     : bf16_round(random_value(w) * (unit_random(&w->seed) % 5 == 0 ? 0x1p-12f : 1.0f));
    }
}

/* Sequence i: `rows` queries behind `before` tokens; a random ascending list for each. */
static void add_seq(world *w, int32_t rows, int32_t before)
{
    ops_attend_args *a = &w->a;
    const size_t d = (size_t)a->head_dim;
    const size_t q8 = fmt_q8_bytes(d);
    const size_t i = (size_t)a->n_seqs++;
    float *row = need(d * sizeof *row);
    ops_seq *s = &w->seqs[i];
    *s = (ops_seq){.row0 = a->n_rows,
                   .n_rows = rows,
                   .pos0 = before,
                   .state = need((size_t)a->ring_slots * q8),
                   .pages = w->pages[i]};
    for (int32_t t = 0; t < a->ring_slots; t++) {
        random_row(w, d, row);
        fmt_q8_pack(row, d, s->state + (size_t)t * q8);
    }
    for (size_t p = 0; p < MAX_TOKENS / PAGE_ROWS; p++) {
        w->pages[i][p] = need(PAGE_ROWS * fmt_q4n_bytes(d));
        for (size_t t = 0; t < PAGE_ROWS; t++) {
            random_row(w, d, row);
            fmt_q4n_pack(row, d, w->pages[i][p] + t * fmt_q4n_bytes(d));
        }
    }
    w->kv_seqs[i] = *s;
    for (int32_t t = 0; t < rows; t++) {
        random_row(w, d, row);
        fmt_q8_pack(row, d, (uint8_t *)(uintptr_t)a->kv + (size_t)(s->row0 + t) * q8);
        int32_t *list = (int32_t *)(uintptr_t)a->list + (size_t)(s->row0 + t) * (size_t)a->topk;
        const int32_t visible = a->topk > 0 ? (before + t + 1) / a->ratio : 0;
        int32_t n = 0;
        for (int32_t e = 0; e < visible && n < a->topk; e++) {
            if (visible - e <= a->topk - n || unit_random(&w->seed) % (uint64_t)visible < (uint64_t)a->topk) {
                list[n++] = e;
            }
        }
        for (; n < a->topk; n++) {
            list[n] = -1;
        }
    }
    a->n_rows += rows;
    free(row);
}

static world *world_new(int32_t n_heads, int32_t head_dim, int32_t window, int32_t topk, int32_t ratio, uint64_t seed)
{
    enum { ROWS = MAX_TOKENS };
    world *w = need(sizeof *w);
    const size_t q = (size_t)ROWS * (size_t)n_heads * (size_t)head_dim;
    w->seed = seed;
    w->a = (ops_attend_args){.seqs = w->seqs,
                             .kv_seqs = w->kv_seqs,
                             .n_heads = n_heads,
                             .head_dim = head_dim,
                             .rope_dim = 16,
                             .window = window,
                             .ring_slots = window + OPS_REWIND,
                             .topk = topk,
                             .ratio = ratio,
                             .scale = 0.125f};
    bf16 *query = need(q * sizeof *query);
    for (size_t i = 0; i < q; i++) {
        query[i] = bf16_from_f32(random_value(w) * 4.0f);
    }
    float *sink = need((size_t)n_heads * sizeof *sink);
    float *rope = need(8 * sizeof *rope);
    for (size_t i = 0; i < (size_t)n_heads; i++) {
        sink[i] = random_value(w);
    }
    for (size_t i = 0; i < 8; i++) {
        rope[i] = 1.0f / (float)(i + 1);
    }
    w->a.q = query;
    w->a.sink = sink;
    w->a.rope = rope;
    w->a.kv = need((size_t)ROWS * fmt_q8_bytes((size_t)head_dim));
    w->a.list = need((size_t)ROWS * (size_t)(topk > 0 ? topk : 1) * sizeof(int32_t));
    w->a.compressed = (ops_paged){.per_page = PAGE_ROWS, .row_bytes = (int32_t)fmt_q4n_bytes((size_t)head_dim)};
    return w;
}

static void world_free(world *w)
{
    for (int32_t i = 0; i < w->a.n_seqs; i++) {
        for (size_t p = 0; p < MAX_TOKENS / PAGE_ROWS; p++) {
            free(w->pages[i][p]);
        }
        free(w->seqs[i].state);
    }
    free((void *)(uintptr_t)w->a.q);
    free((void *)(uintptr_t)w->a.sink);
    free((void *)(uintptr_t)w->a.rope);
    free((void *)(uintptr_t)w->a.kv);
    free((void *)(uintptr_t)w->a.list);
    free(w);
}

static bf16 *attend(world *w, const ops_backend *ops, int32_t threads)
{
    ops_device *dev;
    bf16 *o = need((size_t)w->a.n_rows * (size_t)w->a.n_heads * (size_t)w->a.head_dim * sizeof *o);
    assert_int_equal(ops->open(&(ops_device_options){.n_threads = threads}, &dev, NULL), DI_OK);
    w->a.o = o;
    ops->attend(dev, &w->a);
    assert_int_equal(ops->sync(dev, NULL), DI_OK);
    ops->close(dev);
    return o;
}

static void compare(world *w)
{
    static const int32_t threads[] = {1, 2, 5};
    const size_t bytes = (size_t)w->a.n_rows * (size_t)w->a.n_heads * (size_t)w->a.head_dim * sizeof(bf16);
    bf16 *want = attend(w, &ref_backend, 1);
    for (size_t i = 0; i < 3; i++) {
        bf16 *got = attend(w, &cpu_backend, threads[i]);
        assert_memory_equal(got, want, bytes);
        free(got);
    }
    free(want);
    world_free(w);
}

static void prompts_have_the_references_bits(void **state)
{
    (void)state;
    static const int32_t heads[] = {1, 3, 4, 8, 20, 64};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        for (int32_t ratio = 1; ratio <= 2; ratio++) {
            world *w = world_new(heads[i], i % 2 == 0 ? 96 : 64, 24, i % 2 == 0 ? 24 : 80, ratio, 1 + i);
            add_seq(w, 50, 0);
            add_seq(w, 9, 61);
            compare(w);
        }
    }
}

static void single_rows_have_the_references_bits(void **state)
{
    (void)state;
    static const int32_t before[] = {0, 1, 15, 63, 64, 130, 390};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        world *w = world_new(4, 512, 128, 128, 1, 40 + i);
        add_seq(w, 1, before[i]);
        compare(w);
    }
}

static void batches_have_the_references_bits(void **state)
{
    (void)state;
    world *w = world_new(8, 64, 48, 32, 2, 77);
    add_seq(w, 1, 100);
    add_seq(w, 1, 0);
    add_seq(w, 40, 7);
    add_seq(w, 2, 301);
    compare(w);
}

/* Few heads: neighbours share columns; lists that have much in common are joined, others are not. */
static void neighbours_have_the_references_bits(void **state)
{
    (void)state;
    static const int32_t before[] = {0, 20, 330};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        for (int32_t heads = 3; heads <= 5; heads++) {
            world *w = world_new(heads, 64, 40, 24, 1, 90 + i);
            add_seq(w, 45, before[i]);
            compare(w);
        }
    }
}

static void layers_without_entries_have_the_references_bits(void **state)
{
    (void)state;
    world *w = world_new(5, 64, 16, 0, 0, 78);
    add_seq(w, 33, 0);
    add_seq(w, 1, 200);
    compare(w);
}

/* A window that begins late (ops_seq.window_from). */
static void late_windows_have_the_references_bits(void **state)
{
    (void)state;
    world *w = world_new(4, 64, 32, 0, 0, 79);
    add_seq(w, 20, 60);
    w->seqs[0].window_from = w->kv_seqs[0].window_from = 50;
    compare(w);
}

/* Every code and scale, NaN included, for all instruction sets. */
static void rows_unpack_like_the_reference(void **state)
{
    (void)state;
    enum { N = 96 };
    const bool wide =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    uint64_t seed = 3;
    for (int round = 0; round < 2000; round++) {
        uint8_t row[2 * N];
        float want[N];
        float got[N];
        for (size_t i = 0; i < sizeof row; i++) {
            row[i] = (uint8_t)unit_random(&seed);
            if (round % 2 == 0 && (row[i] & 0x7F) == 0x7F) {
                row[i] ^= 1;
            }
        }
        for (int isa = 0; isa < (wide ? 2 : 1); isa++) {
            const cpu_kernels *k = isa == 0 ? &cpu_kernels_avx2 : &cpu_kernels_avx512;
            void (*const ours[])(const uint8_t *, size_t, float *) = {k->unpack_q8, k->unpack_q4n};
            void (*const theirs[])(const uint8_t *, size_t, float *) = {fmt_q8_unpack, fmt_q4n_unpack};
            for (size_t f = 0; f < 2; f++) {
                ours[f](row, N, got);
                theirs[f](row, N, want);
                for (size_t i = 0; i < N; i++) {
                    assert_true(fmt_bits(got[i]) == fmt_bits(want[i]) || (got[i] != got[i] && want[i] != want[i]));
                }
            }
        }
    }
}

/* Kernels over rows in block order: every code and scale, and logits of any number of rows and heads. */
static void blocks_have_the_references_order(void **state)
{
    (void)state;
    enum { D = 512, ROWS = 9, HEADS = 12 };
    static float want[D], got[D], q[HEADS * D], turned[HEADS * D], rows[ROWS * D], turned_rows[ROWS * D],
        out[HEADS * ROWS];
    const cpu_blocks *k = &cpu_blocks_avx512;
    const float *pointers[ROWS];
    world w = {.seed = 5};
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
        skip();
    }
    void (*const ours[])(const uint8_t *, size_t, float *) = {k->unpack_q8, k->unpack_q4n};
    void (*const theirs[])(const uint8_t *, size_t, float *) = {fmt_q8_unpack, fmt_q4n_unpack};
    for (int round = 0; round < 500; round++) {
        uint8_t row[2 * D];
        for (size_t i = 0; i < sizeof row; i++) {
            row[i] = (uint8_t)unit_random(&w.seed);
            row[i] ^= round % 2 == 0 && (row[i] & 0x7F) == 0x7F;
        }
        for (size_t f = 0; f < 2; f++) {
            ours[f](row, D, got);
            k->turn_row(got, D);
            theirs[f](row, D, want);
            for (size_t i = 0; i < D; i++) {
                assert_true(fmt_bits(got[i]) == fmt_bits(want[i]) || (got[i] != got[i] && want[i] != want[i]));
            }
        }
    }
    random_row(&w, HEADS * D, q);
    random_row(&w, ROWS * D, rows);
    memcpy(turned_rows, rows, sizeof rows);
    k->turn_row(turned_rows, ROWS * D);
    for (size_t r = 0; r < ROWS; r++) {
        pointers[r] = turned_rows + r * D;
    }
    for (size_t heads = 1; heads <= HEADS; heads++) {
        memset(turned, 0, sizeof turned);
        memcpy(turned, q, heads * D * sizeof *q);
        k->turn_row(turned, heads * D);
        for (size_t n = 1; n <= ROWS; n++) {
            k->logits(pointers, n, turned, heads, D, out, 1, ROWS);
            for (size_t i = 0; i < n * heads; i++) {
                float sum = 0.0f;
                for (size_t b = 0; b < D; b += 16) {
                    float part = 0.0f;
                    for (size_t c = b; c < b + 16; c++) {
                        part += rows[i % n * D + c] * q[i / n * D + c];
                    }
                    sum += part;
                }
                assert_int_equal(fmt_bits(sum), fmt_bits(out[i / n * ROWS + i % n]));
            }
        }
    }
}

/* One row each, as many sequences as threads and more, heads that do not fill groups of four. */
static void lone_queries_have_the_references_bits(void **state)
{
    (void)state;
    for (int32_t heads = 1; heads <= 12; heads += heads < 5 ? 1 : 7) {
        world *w = world_new(heads, 256, 48, 40, 1, 60 + (uint64_t)heads);
        add_seq(w, 1, 0);
        add_seq(w, 1, 63);
        add_seq(w, 3, 130);
        add_seq(w, 1, 390);
        compare(w);
    }
}

/* rows_times and add_rows against plain loops in the same order. */
static void row_products_have_the_references_order(void **state)
{
    (void)state;
    enum { K = 96, ROWS = 64, COLUMNS = 80, HEADS = 7 };
    static float rows[ROWS * K], columns[K * COLUMNS], p[HEADS * 64], out[ROWS * COLUMNS], o[HEADS * K],
        want_o[HEADS * K];
    const bool wide =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    const float *pointers[ROWS];
    world w = {.seed = 9};
    random_row(&w, ROWS * K, rows);
    random_row(&w, K * COLUMNS, columns);
    random_row(&w, HEADS * 64, p);
    for (size_t r = 0; r < ROWS; r++) {
        pointers[r] = rows + (ROWS - 1 - r) * K;
    }
    for (int isa = 0; isa < (wide ? 2 : 1); isa++) {
        const cpu_kernels *k = isa == 0 ? &cpu_kernels_avx2 : &cpu_kernels_avx512;
        for (size_t n = 1; n <= ROWS; n++) {
            const size_t block = n % 2 == 0 ? 16 : 32;
            const size_t n_columns = 16 * (n % 5 + 1);
            k->rows_times(pointers, n, columns, n_columns, n_columns, K, block, out, COLUMNS);
            for (size_t r = 0; r < n; r++) {
                for (size_t c = 0; c < n_columns; c++) {
                    float sum = 0.0f;
                    for (size_t b = 0; b < K; b += block) {
                        float part = 0.0f;
                        for (size_t i = b; i < b + block; i++) {
                            part += pointers[r][i] * columns[i * n_columns + c];
                        }
                        sum += part;
                    }
                    assert_int_equal(fmt_bits(sum), fmt_bits(out[r * COLUMNS + c]));
                }
            }
            memset(o, 0, sizeof o);
            memset(want_o, 0, sizeof want_o);
            k->add_rows(p, HEADS, pointers, n, K, o);
            for (size_t h = 0; h < HEADS; h++) {
                for (size_t c = 0; c < K; c++) {
                    float sum = 0.0f;
                    for (size_t b = 0; b < n; b += 32) {
                        float part = 0.0f;
                        for (size_t r = b; r < b + 32 && r < n; r++) {
                            part += p[h * 64 + r] * pointers[r][c];
                        }
                        sum += part;
                    }
                    want_o[h * K + c] += sum;
                }
            }
            assert_memory_equal(o, want_o, sizeof o);
        }
    }
}

int main(void)
{
    if (!cpu_backend.available()) {
        printf("skipped: this processor has no AVX2\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_have_the_references_bits),
        cmocka_unit_test(single_rows_have_the_references_bits),
        cmocka_unit_test(batches_have_the_references_bits),
        cmocka_unit_test(neighbours_have_the_references_bits),
        cmocka_unit_test(layers_without_entries_have_the_references_bits),
        cmocka_unit_test(late_windows_have_the_references_bits),
        cmocka_unit_test(rows_unpack_like_the_reference),
        cmocka_unit_test(row_products_have_the_references_order),
        cmocka_unit_test(blocks_have_the_references_order),
        cmocka_unit_test(lone_queries_have_the_references_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
