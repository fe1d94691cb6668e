/* ref_index.c - index scores, candidate blocks and top-k (model.md 3.7.2).
 *
 * Scores are what the official dtypes give: each dot product rounded to bf16, its product with the head weight rounded to bf16, the sum
 * over heads in fp32, ascending, rounded to bf16. Keys are decoded tile by tile for a group of rows at a time, so that memory stays
 * bounded at any context length. */
#include "ops/ref.h"
#include "ops/rope.h"
#include "ops/vector.h"

#include <stdlib.h>

#define MAX_SCORES ((size_t)16 << 20) /* floats of score memory a group of rows may use */

/* Order-preserving 32-bit image of a float, high half of the key; the low half prefers the lower index. Keys are distinct. */
static uint64_t rank_key(float score, int32_t index)
{
    uint32_t u = fmt_bits(score == 0.0f ? 0.0f : score); /* -0 ties with 0 */
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (0xFFFFFFFFu - (uint32_t)index);
}

static void swap_keys(uint64_t *a, uint64_t *b)
{
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

/* Rearranges keys so that the k largest stand first (quickselect; keys are distinct, so the set is unique). */
static void select_largest(uint64_t *keys, int32_t n, int32_t k)
{
    int32_t lo = 0;
    int32_t hi = n - 1;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (keys[mid] > keys[lo]) {
            swap_keys(&keys[mid], &keys[lo]);
        }
        if (keys[hi] > keys[lo]) {
            swap_keys(&keys[hi], &keys[lo]);
        }
        if (keys[mid] > keys[hi]) {
            swap_keys(&keys[mid], &keys[hi]);
        }
        uint64_t pivot = keys[hi]; /* median of three */
        int32_t store = lo;
        for (int32_t i = lo; i < hi; i++) {
            if (keys[i] > pivot) {
                swap_keys(&keys[i], &keys[store++]);
            }
        }
        swap_keys(&keys[store], &keys[hi]);
        if (store == k || store == k - 1) {
            return;
        }
        if (store > k) {
            hi = store - 1;
        } else {
            lo = store + 1;
        }
    }
}

static int compare_i32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a;
    int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int32_t ref_top_k(const float *score, int32_t n, int32_t k, uint64_t *keys, int32_t *out)
{
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (score[i] > -INFINITY) {
            keys[m++] = rank_key(score[i], i);
        }
    }
    if (m > k) {
        select_largest(keys, m, k);
        m = k;
    }
    for (int32_t i = 0; i < m; i++) {
        out[i] = (int32_t)(0xFFFFFFFFu - (uint32_t)keys[i]);
    }
    qsort(out, (size_t)m, sizeof *out, compare_i32);
    return m;
}

void ref_candidates(const float *score, int32_t visible, int32_t block_size, int32_t keep, float *block_score, uint64_t *keys,
                    int32_t *picked, uint8_t *bits, size_t stride)
{
    memset(bits, 0, stride);
    int32_t n_blocks = (visible + block_size - 1) / block_size;
    for (int32_t b = 0; b < n_blocks; b++) {
        float top = -INFINITY;
        for (int32_t j = b * block_size; j < (b + 1) * block_size && j < visible; j++) {
            top = score[j] > top ? score[j] : top;
        }
        block_score[b] = b == n_blocks - 1 ? INFINITY : top; /* the newest block is pinned */
    }
    int32_t m = ref_top_k(block_score, n_blocks, keep, keys, picked);
    for (int32_t i = 0; i < m; i++) {
        bits[picked[i] / 8] = (uint8_t)(bits[picked[i] / 8] | 1u << (picked[i] % 8));
    }
}

/* --- The stage -------------------------------------------------------------------------------------------------------- */

typedef struct index_run {
    const ops_index_args *a;
    const ref_device *dev;
    const ops_seq *seq;
    float *iq;       /* [n_rows, n_heads, index_dim] Q4E values */
    float *iw;       /* [n_rows, n_heads] bf16 values */
    int32_t row0;    /* first row of the group, in the sequence */
    int32_t n_group;
    int32_t n_entries; /* visible to the last row of the group */
    float *score;    /* [n_group, n_entries rounded up to tiles] */
    size_t stride;
    float *tile;     /* per thread: keys [index_dim][32], products [n_heads][32] */
    size_t tile_floats;
    float *block_score; /* per thread */
    uint64_t *keys;     /* per thread */
    int32_t *picked;    /* per thread */
} index_run;

static void query_rows(void *arg, size_t begin, size_t end, int thread)
{
    const index_run *run = arg;
    const ops_index_args *a = run->a;
    size_t d = (size_t)a->index_dim;
    size_t r = (size_t)a->rope_dim;
    size_t heads = (size_t)a->n_heads;
    float c[OPS_MAX_ROPE_DIM / 2];
    float s[OPS_MAX_ROPE_DIM / 2];
    uint8_t packed[OPS_MAX_INDEX_DIM]; /* more than its packed row */
    float scale = (float)(1.0 / sqrt((double)a->index_dim) * (1.0 / sqrt((double)a->n_heads)));
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        rope_row(a->rope, r / 2, a->pos[t], c, s);
        for (size_t h = 0; h < heads; h++) {
            float *q = run->iq + (t * heads + h) * d;
            for (size_t i = 0; i < d; i++) {
                q[i] = bf16_round(q[i]);
            }
            rope_apply(q + d - r, r / 2, c, s, 0);
            for (size_t i = d - r; i < d; i++) {
                q[i] = bf16_round(q[i]);
            }
            fmt_q4e_pack(q, d, packed);
            fmt_q4e_unpack(packed, d, q);
            float *w = &run->iw[t * heads + h];
            *w = bf16_round(bf16_round(*w) * scale);
        }
    }
}

static int32_t visible_of(const index_run *run, int32_t row)
{
    return (int32_t)((run->seq->pos0 + row + 1) / run->a->ratio);
}

void ref_unpack_keys(const uint8_t *const rows[REF_TILE], size_t n, float *keys)
{
    float row[OPS_MAX_INDEX_DIM];
    for (size_t j = 0; j < REF_TILE; j++) {
        memset(row, 0, n * sizeof *row);
        if (rows[j] != NULL) {
            fmt_q4e_unpack(rows[j], n, row);
        }
        for (size_t i = 0; i < n; i++) {
            keys[i * REF_TILE + j] = row[i];
        }
    }
}

void ref_products(const float *a, size_t m, const float *keys, size_t k, float *c)
{
    ref_mm32(c, REF_TILE, a, k, m, keys, REF_TILE, k, REF_K_BLOCK);
}

/* Scores of one query row against 32 entries. product [n_heads][32], w [n_heads] */
OPS_CLONES static void score_tile(const float *product, const float *w, size_t n_heads, float *out)
{
    float sum[REF_TILE] = {0};
    for (size_t h = 0; h < n_heads; h++) {
        for (size_t j = 0; j < REF_TILE; j++) {
            float dot = bf16_round(product[h * REF_TILE + j]);
            sum[j] += bf16_round((dot > 0.0f ? dot : 0.0f) * w[h]);
        }
    }
    for (size_t j = 0; j < REF_TILE; j++) {
        out[j] = bf16_round(sum[j]);
    }
}

static void score_tiles(void *arg, size_t begin, size_t end, int thread)
{
    const index_run *run = arg;
    const ops_index_args *a = run->a;
    size_t d = (size_t)a->index_dim;
    size_t heads = (size_t)a->n_heads;
    float *keys = run->tile + (size_t)thread * run->tile_floats;
    float *product = keys + d * REF_TILE;
    for (size_t tile = begin; tile < end; tile++) {
        const int32_t e0 = (int32_t)tile * REF_TILE;
        const uint8_t *rows[REF_TILE];
        for (int32_t j = 0; j < REF_TILE; j++) {
            rows[j] = e0 + j < run->n_entries ? ref_paged_row(run->seq, &a->index_keys, e0 + j) : NULL;
        }
        run->dev->unpack_keys(rows, d, keys);
        for (int32_t r = 0; r < run->n_group; r++) {
            if (visible_of(run, run->row0 + r) <= e0) {
                continue;
            }
            size_t t = (size_t)(run->seq->row0 + run->row0 + r);
            run->dev->products(run->iq + t * heads * d, heads, keys, d, product);
            score_tile(product, run->iw + t * heads, heads, run->score + (size_t)r * run->stride + (size_t)e0);
        }
    }
}

static void mask_candidates(const uint8_t *bits, int32_t block_size, float *score, int32_t visible)
{
    for (int32_t j = 0; j < visible; j++) {
        int32_t b = j / block_size;
        if (!(bits[b / 8] >> (b % 8) & 1)) {
            score[j] = -INFINITY;
        }
    }
}

static void select_rows(void *arg, size_t begin, size_t end, int thread)
{
    const index_run *run = arg;
    const ops_index_args *a = run->a;
    size_t slot = (size_t)thread * run->stride;
    for (size_t r = begin; r < end; r++) {
        size_t t = (size_t)(run->seq->row0 + run->row0) + r;
        int32_t visible = visible_of(run, run->row0 + (int32_t)r);
        float *score = run->score + r * run->stride;
        int32_t *list = a->list + t * (size_t)a->topk;
        uint8_t *bits = a->candidates + t * (size_t)a->cand_stride;
        if (a->make_candidates) {
            ref_candidates(score, visible, a->block_size, a->n_blocks, run->block_score + slot, run->keys + slot, run->picked + slot,
                           bits, (size_t)a->cand_stride);
        } else if (a->use_candidates) {
            mask_candidates(bits, a->block_size, score, visible);
        }
        int32_t n = ref_top_k(score, visible, a->topk, run->keys + slot, list);
        for (int32_t i = n; i < a->topk; i++) {
            list[i] = -1;
        }
        for (int32_t j = 0; a->score != NULL && j < a->score_stride; j++) {
            a->score[t * (size_t)a->score_stride + (size_t)j] = j < visible ? score[j] : -INFINITY;
        }
    }
}

static bool index_queries(ref_device *dev, index_run *run)
{
    const ops_index_args *a = run->a;
    size_t rows = (size_t)a->n_rows;
    const float *qr = ref_widen(dev, a->qr, a->n_rows, (size_t)a->q_lora, true);
    const float *u = ref_widen(dev, a->u, a->n_rows, (size_t)a->hidden, false);
    run->iq = ref_scratch(dev, rows * (size_t)a->n_heads * (size_t)a->index_dim, sizeof(float));
    run->iw = ref_scratch(dev, rows * (size_t)a->n_heads, sizeof(float));
    if (qr == NULL || u == NULL || run->iq == NULL || run->iw == NULL) {
        return false;
    }
    ref_linear jobs[2] = {ref_linear_to_f32(a->wq_b, qr, a->n_rows, run->iq),
                          ref_linear_to_f32(a->weights_proj, u, a->n_rows, run->iw)};
    dev->linear(dev, jobs, 2);
    pool_run(dev->pool, rows, query_rows, run);
    return true;
}

/* Sequences begin .. end - 1, each by one thread. */
static void index_sequences(void *arg, size_t begin, size_t end, int thread)
{
    for (size_t i = begin; i < end; i++) {
        index_run one = *(const index_run *)arg;
        one.seq = &one.a->seqs[i];
        one.n_group = one.seq->n_rows;
        one.n_entries = visible_of(&one, one.n_group - 1);
        one.score += (size_t)one.seq->row0 * one.stride;
        score_tiles(&one, 0, ((size_t)one.n_entries + REF_TILE - 1) / REF_TILE, thread);
        select_rows(&one, 0, (size_t)one.n_group, thread);
    }
}

/* Many sequences of a row or a few: what a sequence alone could share out is less than what sharing costs. */
static bool are_many(const ops_index_args *a, size_t threads)
{
    enum { FEW_ROWS = 8 };
    if ((size_t)a->n_seqs < 2 * threads) {
        return false;
    }
    for (int32_t i = 0; i < a->n_seqs; i++) {
        if (a->seqs[i].n_rows > FEW_ROWS) {
            return false;
        }
    }
    return true;
}

void ref_index(ops_device *device, const ops_index_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    index_run run = {.a = a, .dev = dev};
    if (!index_queries(dev, &run)) {
        return;
    }
    size_t threads = (size_t)dev->n_threads;
    run.tile_floats = ((size_t)a->index_dim + (size_t)a->n_heads) * REF_TILE;
    run.tile = ref_scratch(dev, threads * run.tile_floats, sizeof(float));
    size_t most = 0;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        size_t n = (size_t)((a->seqs[i].pos0 + a->seqs[i].n_rows) / a->ratio);
        most = n > most ? n : most;
    }
    size_t widest = (most + REF_TILE) / REF_TILE * REF_TILE;
    size_t group_floats = MAX_SCORES > widest ? MAX_SCORES : widest;
    size_t need = widest * (size_t)a->n_rows;
    run.score = ref_scratch(dev, need < group_floats ? need : group_floats, sizeof(float));
    run.block_score = ref_scratch(dev, threads * widest, sizeof(float));
    run.keys = ref_scratch(dev, threads * widest, sizeof(uint64_t));
    run.picked = ref_scratch(dev, threads * widest, sizeof(int32_t));
    if (run.tile == NULL || run.score == NULL || run.block_score == NULL || run.keys == NULL || run.picked == NULL) {
        return;
    }
    run.stride = widest;
    if (need <= group_floats && are_many(a, threads)) {
        pool_run(dev->pool, (size_t)a->n_seqs, index_sequences, &run);
        return;
    }
    int32_t group = (int32_t)(group_floats / widest);
    for (int32_t i = 0; i < a->n_seqs; i++) {
        run.seq = &a->seqs[i];
        for (run.row0 = 0; run.row0 < run.seq->n_rows; run.row0 += group) {
            int32_t left = run.seq->n_rows - run.row0;
            run.n_group = left < group ? left : group;
            run.n_entries = visible_of(&run, run.row0 + run.n_group - 1);
            pool_run(dev->pool, ((size_t)run.n_entries + REF_TILE - 1) / REF_TILE, score_tiles, &run);
            pool_run(dev->pool, (size_t)run.n_group, select_rows, &run);
        }
    }
}
