/* The CPU backend's attention inside draft blocks equals the reference bit by bit: rings that are empty, short, full and wrapped, windows
 * that begin late, one block and several, few heads and more than a part has, one to five threads,
 * AVX2 and what is widest. */
#include "support/unit.h"

#include "cpu/cpu.h"
#include "cpu/cpu_int.h"
#include "ops/ref.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 5, BLOCK = 5, WINDOW = 72, RING = WINDOW + OPS_REWIND, ROPE = 16 };

typedef struct world {
    ops_draft_attend_args a;
    ops_seq seqs[MOST];
    size_t n_values; /* of q and o */
    uint64_t seed;
} world;

static void *need(size_t n)
{
    void *const p = calloc(1, n);
    assert_non_null(p);
    return p;
}

static float random_value(world *w) { return (float)(int32_t)unit_random(&w->seed) * 0x1p-30f; }

static uint8_t *packed_rows(world *w, size_t n)
{
    const size_t d = (size_t)w->a.head_dim;
    uint8_t *const rows = need(n * fmt_q8_bytes(d));
    float *const row = need(d * sizeof *row);
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < d; c++) {
            row[c] = bf16_round(random_value(w) * (unit_random(&w->seed) % 5 == 0 ? 0x1p-12f : 1.0f));
        }
        fmt_q8_pack(row, d, rows + i * fmt_q8_bytes(d));
    }
    free(row);
    return rows;
}

/* A block behind each of the given numbers of tokens, the last of which has a window that begins `late` rows before it, if it is not 0. */
static world *world_new(int32_t n_heads, int32_t head_dim, const int32_t *before, int32_t n, int32_t late)
{
    world *const w = need(sizeof *w);
    w->seed = 1 + (uint64_t)n_heads;
    w->a = (ops_draft_attend_args){.n_seqs = n,
                                   .seqs = w->seqs,
                                   .n_heads = n_heads,
                                   .head_dim = head_dim,
                                   .rope_dim = ROPE,
                                   .window = WINDOW,
                                   .ring_slots = RING,
                                   .scale = 0.125f};
    w->n_values = (size_t)(n * BLOCK) * (size_t)n_heads * (size_t)head_dim;
    bf16 *const q = need(w->n_values * sizeof *q);
    float *const sink = need((size_t)n_heads * sizeof *sink);
    float *const rope = need(ROPE / 2 * sizeof *rope);
    for (size_t i = 0; i < w->n_values; i++) {
        q[i] = bf16_from_f32(random_value(w) * 4.0f);
    }
    for (size_t i = 0; i < (size_t)n_heads; i++) {
        sink[i] = random_value(w);
    }
    for (size_t i = 0; i < ROPE / 2; i++) {
        rope[i] = 1.0f / (float)(i + 1);
    }
    for (int32_t i = 0; i < n; i++) {
        w->seqs[i] = (ops_seq){.row0 = i * BLOCK, .n_rows = BLOCK, .pos0 = before[i], .state = packed_rows(w, RING)};
    }
    w->seqs[n - 1].window_from = late > 0 ? before[n - 1] - late : 0;
    w->a.q = q;
    w->a.sink = sink;
    w->a.rope = rope;
    w->a.kv = packed_rows(w, (size_t)(n * BLOCK));
    return w;
}

static bf16 *attend(world *w, const ops_backend *ops, int32_t threads, const char *isa)
{
    ops_device *dev;
    bf16 *const o = need(w->n_values * sizeof *o);
    assert_int_equal(ops->open(&(ops_device_options){.n_threads = threads, .isa = isa}, &dev, NULL), DI_OK);
    w->a.o = o;
    ops->draft_attend(dev, &w->a);
    assert_int_equal(ops->sync(dev, NULL), DI_OK);
    ops->close(dev);
    return o;
}

static void compare(world *w)
{
    static const int32_t threads[] = {1, 2, 5, 2};
    bf16 *const want = attend(w, &ref_backend, 1, NULL);
    for (size_t i = 0; i < 4; i++) {
        bf16 *const got = attend(w, &cpu_backend, threads[i], i == 3 ? "avx2" : NULL);
        assert_memory_equal(got, want, w->n_values * sizeof *want);
        free(got);
    }
    for (int32_t i = 0; i < w->a.n_seqs; i++) {
        free(w->seqs[i].state);
    }
    free(want);
    free((void *)(uintptr_t)w->a.q);
    free((void *)(uintptr_t)w->a.sink);
    free((void *)(uintptr_t)w->a.rope);
    free((void *)(uintptr_t)w->a.kv);
    free(w);
}

static void lone_blocks_have_the_references_bits(void **state)
{
    (void)state;
    static const int32_t before[] = {1, 7, WINDOW - 6, WINDOW - 5, WINDOW, WINDOW + 1, 500};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        compare(world_new(4, 96, &before[i], 1, 0));
    }
}

static void several_blocks_have_the_references_bits(void **state)
{
    (void)state;
    static const int32_t before[MOST] = {3, 300, WINDOW, 71, 145};
    for (int32_t n = 2; n <= MOST; n++) {
        compare(world_new(3, 64, before, n, 0));
    }
}

/* Parts end inside a query's heads, and a block has more heads than one part takes. */
static void any_number_of_heads_has_the_references_bits(void **state)
{
    (void)state;
    static const int32_t heads[] = {1, 2, 7, 16, 31};
    const int32_t before = 100;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        compare(world_new(heads[i], 32, &before, 1, 0));
    }
}

static void late_windows_have_the_references_bits(void **state)
{
    (void)state;
    static const int32_t before[2] = {90, 100};
    for (int32_t late = 1; late < WINDOW + 2; late += 24) {
        compare(world_new(4, 64, before, 2, late));
    }
}

int main(void)
{
    if (!cpu_backend.available()) {
        printf("skipped: this processor has no AVX2\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lone_blocks_have_the_references_bits),
        cmocka_unit_test(several_blocks_have_the_references_bits),
        cmocka_unit_test(any_number_of_heads_has_the_references_bits),
        cmocka_unit_test(late_windows_have_the_references_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
