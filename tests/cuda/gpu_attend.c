/* Attention on the GPU against the plain C reference at the released inner sizes: windows from the batch and from rings, lists short and
 * long, truncated windows, blocks of drafts, rings that are written; a row alone gives the bits that it has in a batch.
 * ctest: serial timeout=300 */
#include "cuda/caches.h"

#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 64, DIM = 512, ROPE = 64, WINDOW = 128, RING = WINDOW + OPS_REWIND, TOPK = 512, RATIO = 2, WIDE = HEADS * DIM };

static gpu_pair pair;

typedef struct world {
    gpu_caches caches;
    ops_attend_args host;
    ops_attend_args gpu;
    gpu_twin q, kv, list, sink, rope, o;
} world;

static gpu_twin twin(const void *bytes, size_t n) { return gpu_twin_new(&pair, bytes, n); }

/* Ascending entries that the row sees, as many as there are up to TOPK, some left out. */
static void fill_list(int32_t *list, int32_t visible, uint64_t *seed)
{
    int32_t n = 0;
    for (int32_t e = 0; e < visible && n < TOPK; e++) {
        if (visible - e <= TOPK - n || unit_random(seed) % 3 != 0) {
            list[n++] = e;
        }
    }
    for (; n < TOPK; n++) {
        list[n] = -1;
    }
}

static void fill_caches(world *w, uint64_t *seed)
{
    gpu_caches *c = &w->caches;
    for (int32_t i = 0; i < c->n; i++) {
        gpu_pack_rows(fmt_q8_pack, DIM, fmt_q8_bytes(DIM), c->state[i].host, RING, seed);
        gpu_twin_upload(&pair, &c->state[i]);
        for (int32_t p = 0; p < CACHE_PAGES; p++) {
            gpu_pack_rows(fmt_q4n_pack, DIM, fmt_q4n_bytes(DIM), c->page[i][p].host, CACHE_PAGE_TOKENS / RATIO, seed);
            gpu_twin_upload(&pair, &c->page[i][p]);
        }
    }
}

static void open_world(world *w, bool lists)
{
    uint64_t seed = 71;
    gpu_caches *c = &w->caches;
    *w = (world){0};
    c->state_bytes = RING * fmt_q8_bytes(DIM);
    c->page_bytes = CACHE_PAGE_TOKENS / RATIO * fmt_q4n_bytes(DIM);
    gpu_caches_add(&pair, c, 1, 1531, 0);
    gpu_caches_add(&pair, c, 70, 0, 0);
    gpu_caches_add(&pair, c, 3, 200, 150);
    gpu_caches_add(&pair, c, 30, 63, 0);
    fill_caches(w, &seed);
    const size_t rows = (size_t)c->n_rows;
    bf16 *q = gpu_rows(rows * WIDE, &seed);
    uint8_t *kv = malloc(rows * fmt_q8_bytes(DIM));
    int32_t *list = malloc(rows * TOPK * sizeof *list);
    float *sink = gpu_floats(HEADS, 0.0f, 1.0f, &seed);
    float rope[ROPE / 2];
    assert_true(kv != NULL && list != NULL);
    gpu_pack_rows(fmt_q8_pack, DIM, fmt_q8_bytes(DIM), kv, rows, &seed);
    for (int32_t i = 0; i < c->n; i++) {
        for (int32_t t = 0; t < c->host[i].n_rows; t++) {
            fill_list(list + (size_t)(c->host[i].row0 + t) * TOPK, (int32_t)(c->host[i].pos0 + t + 1) / RATIO, &seed);
        }
    }
    gpu_frequencies(rope, ROPE);
    w->q = twin(q, rows * WIDE * 2);
    w->kv = twin(kv, rows * fmt_q8_bytes(DIM));
    w->list = twin(list, rows * TOPK * 4);
    w->sink = twin(sink, HEADS * 4);
    w->rope = twin(rope, sizeof rope);
    w->o = twin(NULL, rows * WIDE * 2);
    w->host = (ops_attend_args){.n_rows = c->n_rows, .n_seqs = c->n, .seqs = c->host, .kv_seqs = c->host, .n_heads = HEADS, .head_dim = DIM,
                                .rope_dim = ROPE, .window = WINDOW, .topk = lists ? TOPK : 0, .ratio = RATIO, .scale = 0.04419417f,
                                .q = (bf16 *)(void *)w->q.host, .kv = w->kv.host, .ring_slots = RING,
                                .compressed = {.per_page = CACHE_PAGE_TOKENS / RATIO, .row_bytes = (int32_t)fmt_q4n_bytes(DIM)},
                                .list = (int32_t *)(void *)w->list.host, .sink = (float *)(void *)w->sink.host,
                                .rope = (float *)(void *)w->rope.host, .o = (bf16 *)(void *)w->o.host};
    w->gpu = w->host;
    w->gpu.seqs = c->gpu;
    w->gpu.kv_seqs = c->gpu;
    w->gpu.q = (bf16 *)(void *)w->q.gpu;
    w->gpu.kv = w->kv.gpu;
    w->gpu.list = (int32_t *)(void *)w->list.gpu;
    w->gpu.sink = (float *)(void *)w->sink.gpu;
    w->gpu.rope = (float *)(void *)w->rope.gpu;
    w->gpu.o = (bf16 *)(void *)w->o.gpu;
    free(q);
    free(kv);
    free(list);
    free(sink);
}

static void close_world(world *w)
{
    gpu_twin *all[] = {&w->q, &w->kv, &w->list, &w->sink, &w->rope, &w->o};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        gpu_twin_free(&pair, all[i]);
    }
    gpu_caches_free(&pair, &w->caches);
}

static void attention_agrees(void **state)
{
    (void)state;
    for (int lists = 0; lists < 2; lists++) {
        world w;
        open_world(&w, lists != 0);
        const size_t n = (size_t)w.host.n_rows * WIDE;
        ref_attend(pair.ref, &w.host);
        cu_attend(pair.gpu, &w.gpu);
        bf16 *got = gpu_download(&pair, w.o.gpu, n * 2);
        gpu_expect(lists ? "attend" : "attend_window", w.host.n_rows, gpu_compare16(got, w.host.o, n, WIDE), 1e-3, 1.0);
        free(got);
        close_world(&w);
    }
}

/* A query of row t on alone: it has the bits that it has among `all`. The rows before it come with the batch. */
static void expect_alone(const world *w, int32_t i, int32_t t, int32_t rows, const bf16 *all)
{
    const size_t row = (size_t)(w->caches.gpu[i].row0 + t);
    ops_seq query = w->caches.gpu[i];
    query.pos0 += t;
    query.row0 = 0;
    query.n_rows = rows;
    ops_seq kv = w->caches.gpu[i];
    kv.n_rows = t + rows;
    kv.row0 = 0;
    ops_attend_args a = w->gpu;
    a.n_rows = rows;
    a.n_seqs = 1;
    a.seqs = &query;
    a.kv_seqs = &kv;
    a.q += row * WIDE;
    a.list += row * TOPK;
    a.kv += (row - (size_t)t) * fmt_q8_bytes(DIM);
    cu_attend(pair.gpu, &a);
    bf16 *got = gpu_download(&pair, a.o, (size_t)rows * WIDE * 2);
    assert_memory_equal(got, all + row * WIDE, (size_t)rows * WIDE * 2);
    free(got);
}

/* All together, each sequence as a batch of its own, and each of its rows: that is few, some and many of them, which blocks share in ways
 * of their own. */
static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    world w;
    open_world(&w, true);
    const size_t n = (size_t)w.host.n_rows * WIDE;
    cu_attend(pair.gpu, &w.gpu);
    bf16 *all = gpu_download(&pair, w.o.gpu, n * 2);
    for (int32_t i = 0; i < w.caches.n; i++) {
        expect_alone(&w, i, 0, w.caches.gpu[i].n_rows, all);
        for (int32_t t = 0; t < w.caches.gpu[i].n_rows; t += 3) {
            expect_alone(&w, i, t, 1, all);
        }
    }
    free(all);
    close_world(&w);
}

static void blocks_of_drafts_agree(void **state)
{
    (void)state;
    world w;
    open_world(&w, false);
    const size_t n = (size_t)w.host.n_rows * WIDE;
    ops_draft_attend_args a = {.n_seqs = w.caches.n, .seqs = w.caches.host, .n_heads = HEADS, .head_dim = DIM, .rope_dim = ROPE, .window = WINDOW,
                               .ring_slots = RING, .scale = w.host.scale, .q = w.host.q, .kv = w.host.kv, .sink = w.host.sink,
                               .rope = w.host.rope, .o = w.host.o};
    ref_draft_attend(pair.ref, &a);
    a.seqs = w.caches.gpu;
    a.q = w.gpu.q;
    a.kv = w.gpu.kv;
    a.sink = w.gpu.sink;
    a.rope = w.gpu.rope;
    a.o = w.gpu.o;
    cu_draft_attend(pair.gpu, &a);
    bf16 *got = gpu_download(&pair, w.o.gpu, n * 2);
    gpu_expect("draft_attend", w.host.n_rows, gpu_compare16(got, w.host.o, n, WIDE), 1e-3, 1.0);
    free(got);
    close_world(&w);
}

static void rings_are_written_alike(void **state)
{
    (void)state;
    world w;
    open_world(&w, false);
    ops_window_store_args a = {.n_seqs = w.caches.n, .seqs = w.caches.host, .ring_slots = RING, .row_bytes = (int32_t)fmt_q8_bytes(DIM),
                               .kv = w.host.kv};
    ref_window_store(pair.ref, &a);
    a.seqs = w.caches.gpu;
    a.kv = w.gpu.kv;
    cu_window_store(pair.gpu, &a);
    for (int32_t i = 0; i < w.caches.n; i++) {
        gpu_expect_bytes(&pair, "ring", &w.caches.state[i], 0.0);
    }
    close_world(&w);
}

int main(void)
{
    if (!gpu_pair_open(&pair)) {
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(blocks_of_drafts_agree),
        cmocka_unit_test(rings_are_written_alike),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_pair_close(&pair);
    return failed;
}
