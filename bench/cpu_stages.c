/* cpu_stages.c - attention and index scoring of the CPU bench at released shapes, against the compute ceiling: 64 heads
 * of 512 channels over 128 window rows and 512 entries, 32 index heads of 128 channels over 8192 entries; one query,
 * and a chunk of a prompt. */
#include "cpu/cpu.h"
#include "cpu_bench.h"
#include "ops/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADS = 64,
    DIM = 512,
    WINDOW = 128,
    TOPK = 512,
    INDEX_HEADS = 32,
    INDEX_DIM = 128,
    HIDDEN = 5120,
    Q_LORA = 1280,
    ENTRIES = 8192,
    ROPE = 64,
    CHUNK = 64
};

/* One sequence of ENTRIES tokens whose last rows are the queries. */
typedef struct stage {
    int32_t rows;
    ops_seq seq;
    ops_seq kv_seq;
    uint8_t *page;
    uint8_t *pages[1];
    uint8_t *state;
    uint8_t *kv;
    bf16 *q;
    bf16 *o;
    int32_t *list;
    float sink[HEADS];
    float rope[ROPE / 2];
    bf16 *u;
    bf16 *qr;
    int64_t *pos;
    ops_matrix wq_b;
    ops_matrix weights_proj;
    uint8_t *candidates;
} stage;

static void random_rows(uint64_t *seed, bf16 *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = bf16_from_f32((float)(int32_t)bench_random(seed) * 0x1p-30f);
    }
}

static void make_caches(stage *s, uint64_t *seed)
{
    const size_t entry = fmt_q4n_bytes(DIM);
    const size_t key = fmt_q4e_bytes(INDEX_DIM);
    const size_t q8 = fmt_q8_bytes(DIM);
    float row[DIM];
    s->page = bench_need(malloc(ENTRIES * (entry + key)));
    s->pages[0] = s->page;
    s->kv = bench_need(malloc((size_t)s->rows * q8));
    s->state = bench_need(malloc(WINDOW * q8));
    for (size_t i = 0; i < ENTRIES + WINDOW; i++) {
        for (size_t c = 0; c < DIM; c++) {
            row[c] = (float)(int32_t)bench_random(seed) * 0x1p-30f;
        }
        if (i < ENTRIES) {
            fmt_q4n_pack(row, DIM, s->page + i * entry);
            fmt_q4e_pack(row, INDEX_DIM, s->page + ENTRIES * entry + i * key);
        } else {
            fmt_q8_pack(row, DIM, s->state + (i - ENTRIES) * q8);
        }
    }
    for (size_t t = 0; t < (size_t)s->rows; t++) {
        memcpy(s->kv + t * q8, s->state + t % WINDOW * q8, q8);
    }
}

static ops_matrix make_matrix(ops_device *dev, ops_format format, int64_t n_out, int64_t n_in)
{
    const size_t n = (size_t)n_out * (size_t)n_in;
    uint8_t *data = bench_need(malloc(2 * n));
    uint8_t *scale = bench_need(malloc(n / 1024 + 1));
    memset(data, 0x39, 2 * n);
    memset(scale, 120, n / 1024 + 1);
    ops_matrix m = {.format = format, .n_out = n_out, .n_in = n_in, .data = data, .scale = scale};
    cpu_backend.weight_load(dev, &m, OPS_USE_PRODUCT, NULL);
    return m;
}

static void free_matrix(ops_device *dev, ops_matrix *m)
{
    cpu_backend.weight_free(dev, m);
    free((void *)(uintptr_t)m->data);
    free((void *)(uintptr_t)m->scale);
}

static stage *stage_new(ops_device *dev, int32_t rows)
{
    uint64_t seed = 3;
    stage *s = bench_need(calloc(1, sizeof *s));
    const size_t n = (size_t)rows;
    s->rows = rows;
    make_caches(s, &seed);
    s->q = bench_need(malloc(n * HEADS * DIM * sizeof *s->q));
    s->o = bench_need(malloc(n * HEADS * DIM * sizeof *s->o));
    s->u = bench_need(malloc(n * HIDDEN * sizeof *s->u));
    s->qr = bench_need(malloc(n * Q_LORA * sizeof *s->qr));
    s->list = bench_need(malloc(n * TOPK * sizeof *s->list));
    s->pos = bench_need(malloc(n * sizeof *s->pos));
    s->candidates = bench_need(calloc(n, ENTRIES / 8));
    random_rows(&seed, s->q, n * HEADS * DIM);
    random_rows(&seed, s->u, n * HIDDEN);
    random_rows(&seed, s->qr, n * Q_LORA);
    for (size_t t = 0; t < n; t++) {
        s->pos[t] = ENTRIES - rows + (int64_t)t;
        for (size_t i = 0; i < TOPK; i++) {
            s->list[t * TOPK + i] = (int32_t)(i * (ENTRIES / TOPK - 1) + bench_random(&seed) % (ENTRIES / TOPK - 1));
        }
    }
    for (size_t i = 0; i < ROPE / 2; i++) {
        s->rope[i] = 1.0f / (float)(i + 1);
    }
    s->seq = (ops_seq){.n_rows = rows, .pos0 = ENTRIES - rows, .state = s->state, .pages = s->pages};
    s->kv_seq = s->seq;
    s->wq_b = make_matrix(dev, OPS_FP8, INDEX_HEADS * INDEX_DIM, Q_LORA);
    s->weights_proj = make_matrix(dev, OPS_BF16, INDEX_HEADS, HIDDEN);
    return s;
}

static void stage_free(ops_device *dev, stage *s)
{
    free_matrix(dev, &s->wq_b);
    free_matrix(dev, &s->weights_proj);
    free(s->page);
    free(s->state);
    free(s->kv);
    free(s->q);
    free(s->o);
    free(s->u);
    free(s->qr);
    free(s->list);
    free(s->pos);
    free(s->candidates);
    free(s);
}

static double work_attend(cpu_bench *b, const bench_lane *lane, const void *what)
{
    const stage *s = what;
    const int32_t repeats = s->rows == 1 ? 8 : 1;
    (void)b;
    for (int32_t i = 0; i < repeats; i++) {
        cpu_backend.attend(
            lane->dev, &(ops_attend_args){.n_rows = s->rows,
                                          .n_seqs = 1,
                                          .seqs = &s->seq,
                                          .kv_seqs = &s->kv_seq,
                                          .n_heads = HEADS,
                                          .head_dim = DIM,
                                          .rope_dim = ROPE,
                                          .window = WINDOW,
                                          .ring_slots = WINDOW,
                                          .topk = TOPK,
                                          .ratio = 1,
                                          .scale = 0.044194174f,
                                          .q = s->q,
                                          .kv = s->kv,
                                          .compressed = {.per_page = ENTRIES, .row_bytes = (int32_t)fmt_q4n_bytes(DIM)},
                                          .list = s->list,
                                          .sink = s->sink,
                                          .rope = s->rope,
                                          .o = s->o});
    }
    return 2.0 * HEADS * DIM * (WINDOW + TOPK) * (double)s->rows * (double)repeats;
}

/* Products with wq_b and weights_proj are part of the stage, and of what is counted. */
static double work_index(cpu_bench *b, const bench_lane *lane, const void *what)
{
    const stage *s = what;
    const int32_t repeats = s->rows == 1 ? 8 : 1;
    (void)b;
    for (int32_t i = 0; i < repeats; i++) {
        cpu_backend.index(lane->dev, &(ops_index_args){.n_rows = s->rows,
                                                       .n_seqs = 1,
                                                       .seqs = &s->seq,
                                                       .ratio = 1,
                                                       .hidden = HIDDEN,
                                                       .q_lora = Q_LORA,
                                                       .rope_dim = ROPE,
                                                       .n_heads = INDEX_HEADS,
                                                       .index_dim = INDEX_DIM,
                                                       .topk = TOPK,
                                                       .block_size = 8,
                                                       .cand_stride = ENTRIES / 8,
                                                       .u = s->u,
                                                       .qr = s->qr,
                                                       .pos = s->pos,
                                                       .rope = s->rope,
                                                       .wq_b = &s->wq_b,
                                                       .weights_proj = &s->weights_proj,
                                                       .index_keys = {.offset = ENTRIES * fmt_q4n_bytes(DIM),
                                                                      .per_page = ENTRIES,
                                                                      .row_bytes = (int32_t)fmt_q4e_bytes(INDEX_DIM)},
                                                       .candidates = s->candidates,
                                                       .list = s->list});
    }
    const double scores = (double)INDEX_HEADS * INDEX_DIM * ENTRIES;
    const double queries = (double)INDEX_HEADS * INDEX_DIM * Q_LORA + (double)INDEX_HEADS * HIDDEN;
    return (scores + queries) * (double)s->rows * (double)repeats;
}

void bench_stages(cpu_bench *b)
{
    static const int32_t rows[] = {1, CHUNK};
    stage *s[2] = {NULL};
    for (size_t r = 0; r < 2; r++) {
        for (int i = 0; i < CPU_BENCH_LANES; i++) {
            bench_lane *lane = &b->lanes[i];
            char attend[32];
            char index[32];
            snprintf(attend, sizeof attend, "attend_x%d", (int)rows[r]);
            snprintf(index, sizeof index, "index_x%d", (int)rows[r]);
            if (s[r] == NULL && (bench_wanted(b->words, b->n_words, attend) || bench_wanted(b->words, b->n_words, index))) {
                s[r] = stage_new(b->lanes[1].dev, rows[r]);
            }
            if (bench_wanted(b->words, b->n_words, attend)) {
                bench_add(b, lane, attend, work_attend, s[r], lane->compute, true);
            }
            if (bench_wanted(b->words, b->n_words, index)) {
                bench_add(b, lane, index, work_index, s[r], lane->compute, true);
            }
        }
    }
    bench_run(b, b->n_fixed);
    for (size_t r = 0; r < 2; r++) {
        if (s[r] != NULL) {
            stage_free(b->lanes[1].dev, s[r]);
        }
    }
}
