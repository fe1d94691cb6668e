/* Latents, index keys and selection on the GPU against the plain C reference at the released inner sizes; any chunking and any batch give
 * the same bits. Matrices have no tiles here, so sums have the reference's order. ctest: serial timeout=300 */
#include "cuda/caches.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 1056, Q_LORA = 1312, DIM = 512, ROPE = 64, HEADS = 64, KEY = 128, TOPK = 512, BLOCK = 8, BLOCKS = 64, STRIDE = 64 };

static gpu_pair pair;
static float frequencies[ROPE / 2];

static gpu_twin twin(const void *bytes, size_t n) { return gpu_twin_new(&pair, bytes, n); }

/* --- Latents ------------------------------------------------------------------------------------------------------------------- */

typedef struct latent_world {
    gpu_caches caches;
    ops_compress_args host, gpu;
    ops_matrix wkv, wgate, wk;
    gpu_twin u, norm, key_norm, rope;
} latent_world;

static void open_latents(latent_world *w, int32_t ratio)
{
    uint64_t seed = 81;
    gpu_caches *c = &w->caches;
    *w = (latent_world){0};
    const int32_t per_page = CACHE_PAGE_TOKENS / ratio;
    const size_t keys_at = (size_t)per_page * fmt_q4n_bytes(DIM);
    c->state_bytes = OPS_OPEN_GROUPS * 2 * DIM * sizeof(float);
    c->page_bytes = keys_at + (size_t)per_page * fmt_q4e_bytes(KEY);
    gpu_caches_add(&pair, c, 150, 0, 0);
    gpu_caches_add(&pair, c, 1, 7, 0);
    gpu_caches_add(&pair, c, 9, 255, 0);
    w->wkv = gpu_matrix(&pair, OPS_BF16, DIM, HIDDEN, &seed);
    w->wgate = gpu_matrix(&pair, OPS_BF16, DIM, HIDDEN, &seed);
    w->wk = gpu_matrix(&pair, OPS_BF16, KEY, DIM, &seed);
    bf16 *u = gpu_rows((size_t)c->n_rows * HIDDEN, &seed);
    float *norm = gpu_floats(DIM, 1.0f, 0.2f, &seed);
    float *key_norm = gpu_floats(KEY, 1.0f, 0.2f, &seed);
    w->u = twin(u, (size_t)c->n_rows * HIDDEN * 2);
    w->norm = twin(norm, DIM * 4);
    w->key_norm = twin(key_norm, KEY * 4);
    w->rope = twin(frequencies, sizeof frequencies);
    w->host = (ops_compress_args){.n_rows = c->n_rows, .n_seqs = c->n, .seqs = c->host, .ratio = ratio, .hidden = HIDDEN, .head_dim = DIM,
                                  .rope_dim = ROPE, .index_dim = KEY, .norm_eps = 1e-20f, .u = (bf16 *)(void *)w->u.host,
                                  .rope = frequencies, .wkv = &w->wkv, .wgate = &w->wgate, .norm = (float *)(void *)w->norm.host,
                                  .index_wk = &w->wk, .index_k_norm = (float *)(void *)w->key_norm.host,
                                  .compressed = {.per_page = per_page, .row_bytes = (int32_t)fmt_q4n_bytes(DIM)},
                                  .index_keys = {.offset = keys_at, .per_page = per_page, .row_bytes = (int32_t)fmt_q4e_bytes(KEY)}};
    w->gpu = w->host;
    w->gpu.seqs = c->gpu;
    w->gpu.u = (bf16 *)(void *)w->u.gpu;
    w->gpu.rope = (float *)(void *)w->rope.gpu;
    w->gpu.norm = (float *)(void *)w->norm.gpu;
    w->gpu.index_k_norm = (float *)(void *)w->key_norm.gpu;
    free(u);
    free(norm);
    free(key_norm);
}

static void close_latents(latent_world *w)
{
    gpu_twin *all[] = {&w->u, &w->norm, &w->key_norm, &w->rope};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        gpu_twin_free(&pair, all[i]);
    }
    gpu_matrix_free(&pair, &w->wkv);
    gpu_matrix_free(&pair, &w->wgate);
    gpu_matrix_free(&pair, &w->wk);
    gpu_caches_free(&pair, &w->caches);
}

static void latents_agree(void **state)
{
    (void)state;
    for (int32_t ratio = 1; ratio <= 2; ratio++) {
        latent_world w;
        open_latents(&w, ratio);
        ref_compress(pair.ref, &w.host);
        cu_compress(pair.gpu, &w.gpu);
        for (int32_t i = 0; i < w.caches.n; i++) {
            gpu_expect_bytes(&pair, "open groups", &w.caches.state[i], 0.0);
            for (int32_t p = 0; p < CACHE_PAGES; p++) {
                gpu_expect_bytes(&pair, "page", &w.caches.page[i][p], 1e-3);
            }
        }
        close_latents(&w);
    }
}

/* The first sequence again, in chunks of 1 to 64 rows; its pages must be what they were. */
static void latents_do_not_depend_on_chunks(void **state)
{
    (void)state;
    latent_world w;
    open_latents(&w, 2);
    cu_compress(pair.gpu, &w.gpu);
    uint8_t *page[2];
    for (int p = 0; p < 2; p++) {
        page[p] = gpu_download(&pair, w.caches.page[0][p].gpu, w.caches.page_bytes);
        gpu_twin_upload(&pair, &w.caches.page[0][p]);
    }
    const int32_t chunks[] = {1, 2, 7, 64, 33, 1, 42};
    int32_t at = 0;
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        ops_seq seq = w.caches.gpu[0];
        seq.pos0 = at;
        seq.n_rows = chunks[i];
        ops_compress_args a = w.gpu;
        a.n_rows = chunks[i];
        a.n_seqs = 1;
        a.seqs = &seq;
        a.u += (size_t)at * HIDDEN;
        cu_compress(pair.gpu, &a);
        at += chunks[i];
    }
    assert_int_equal(at, 150);
    for (int p = 0; p < 2; p++) {
        uint8_t *again = gpu_download(&pair, w.caches.page[0][p].gpu, w.caches.page_bytes);
        assert_memory_equal(again, page[p], w.caches.page_bytes);
        free(again);
        free(page[p]);
    }
    close_latents(&w);
}

/* --- Selection ----------------------------------------------------------------------------------------------------------------- */

typedef struct index_world {
    gpu_caches caches;
    ops_index_args host, gpu;
    ops_matrix wq_b, proj;
    gpu_twin u, qr, pos, rope, candidates, list, score;
} index_world;

static void open_index(index_world *w)
{
    uint64_t seed = 91;
    gpu_caches *c = &w->caches;
    *w = (index_world){0};
    const size_t row = fmt_q4e_bytes(KEY);
    c->state_bytes = 64;
    c->page_bytes = CACHE_PAGE_TOKENS * row;
    gpu_caches_add(&pair, c, 1, 1999, 0);
    gpu_caches_add(&pair, c, 20, 0, 0);
    gpu_caches_add(&pair, c, 5, 1020, 0);
    const size_t rows = (size_t)c->n_rows;
    int64_t pos[64];
    for (int32_t i = 0; i < c->n; i++) {
        for (int32_t p = 0; p < CACHE_PAGES; p++) {
            gpu_pack_rows(fmt_q4e_pack, KEY, row, c->page[i][p].host, CACHE_PAGE_TOKENS, &seed);
            gpu_twin_upload(&pair, &c->page[i][p]);
        }
        for (int32_t t = 0; t < c->host[i].n_rows; t++) {
            pos[c->host[i].row0 + t] = c->host[i].pos0 + t;
        }
    }
    w->wq_b = gpu_matrix(&pair, OPS_FP8, HEADS * KEY, Q_LORA, &seed);
    w->proj = gpu_matrix(&pair, OPS_BF16, HEADS, HIDDEN, &seed);
    bf16 *u = gpu_rows(rows * HIDDEN, &seed);
    bf16 *qr = gpu_rows(rows * Q_LORA, &seed);
    w->u = twin(u, rows * HIDDEN * 2);
    w->qr = twin(qr, rows * Q_LORA * 2);
    w->pos = twin(pos, rows * sizeof pos[0]);
    w->rope = twin(frequencies, sizeof frequencies);
    w->candidates = twin(NULL, rows * STRIDE);
    w->list = twin(NULL, rows * TOPK * 4);
    w->score = twin(NULL, rows * 2000 * 4);
    w->host = (ops_index_args){.n_rows = c->n_rows, .n_seqs = c->n, .seqs = c->host, .ratio = 1, .hidden = HIDDEN, .q_lora = Q_LORA,
                               .rope_dim = ROPE, .n_heads = HEADS, .index_dim = KEY, .topk = TOPK, .n_blocks = BLOCKS, .block_size = BLOCK,
                               .cand_stride = STRIDE, .make_candidates = true, .u = (bf16 *)(void *)w->u.host,
                               .qr = (bf16 *)(void *)w->qr.host, .pos = (int64_t *)(void *)w->pos.host, .rope = frequencies,
                               .wq_b = &w->wq_b, .weights_proj = &w->proj,
                               .index_keys = {.per_page = CACHE_PAGE_TOKENS, .row_bytes = (int32_t)row}, .candidates = w->candidates.host,
                               .list = (int32_t *)(void *)w->list.host, .score = (float *)(void *)w->score.host, .score_stride = 2000};
    w->gpu = w->host;
    w->gpu.seqs = c->gpu;
    w->gpu.u = (bf16 *)(void *)w->u.gpu;
    w->gpu.qr = (bf16 *)(void *)w->qr.gpu;
    w->gpu.pos = (int64_t *)(void *)w->pos.gpu;
    w->gpu.rope = (float *)(void *)w->rope.gpu;
    w->gpu.candidates = w->candidates.gpu;
    w->gpu.list = (int32_t *)(void *)w->list.gpu;
    w->gpu.score = (float *)(void *)w->score.gpu;
    free(u);
    free(qr);
}

static void close_index(index_world *w)
{
    gpu_twin *all[] = {&w->u, &w->qr, &w->pos, &w->rope, &w->candidates, &w->list, &w->score};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        gpu_twin_free(&pair, all[i]);
    }
    gpu_matrix_free(&pair, &w->wq_b);
    gpu_matrix_free(&pair, &w->proj);
    gpu_caches_free(&pair, &w->caches);
}

static void selections_agree(void **state)
{
    (void)state;
    index_world w;
    open_index(&w);
    for (int later = 0; later < 2; later++) { /* the candidate source, then a layer that only looks at candidates */
        w.host.make_candidates = w.gpu.make_candidates = later == 0;
        w.host.use_candidates = w.gpu.use_candidates = later != 0;
        ref_index(pair.ref, &w.host);
        cu_index(pair.gpu, &w.gpu);
        gpu_expect_bytes(&pair, "scores", &w.score, 1e-3);
        gpu_expect_bytes(&pair, "candidates", &w.candidates, 0.0);
        gpu_expect_bytes(&pair, "lists", &w.list, 1e-3);
    }
    close_index(&w);
}

static void a_row_alone_selects_the_same(void **state)
{
    (void)state;
    index_world w;
    open_index(&w);
    w.gpu.score = NULL;
    cu_index(pair.gpu, &w.gpu);
    int32_t *all = gpu_download(&pair, w.list.gpu, w.list.bytes);
    for (int32_t i = 0; i < w.caches.n; i++) {
        for (int32_t t = 0; t < w.caches.gpu[i].n_rows; t += 4) {
            const size_t row = (size_t)(w.caches.gpu[i].row0 + t);
            ops_seq seq = w.caches.gpu[i];
            seq.pos0 += t;
            seq.row0 = 0;
            seq.n_rows = 1;
            ops_index_args a = w.gpu;
            a.n_rows = 1;
            a.n_seqs = 1;
            a.seqs = &seq;
            a.u += row * HIDDEN;
            a.qr += row * Q_LORA;
            a.pos += row;
            cu_index(pair.gpu, &a);
            int32_t *got = gpu_download(&pair, a.list, TOPK * 4);
            assert_memory_equal(got, all + row * TOPK, TOPK * 4);
            free(got);
        }
    }
    free(all);
    close_index(&w);
}

int main(void)
{
    if (!gpu_pair_open(&pair)) {
        return 0;
    }
    gpu_frequencies(frequencies, ROPE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latents_agree),
        cmocka_unit_test(latents_do_not_depend_on_chunks),
        cmocka_unit_test(selections_agree),
        cmocka_unit_test(a_row_alone_selects_the_same),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_pair_close(&pair);
    return failed;
}
