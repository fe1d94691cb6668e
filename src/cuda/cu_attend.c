/* cu_attend.c - the stages around the caches: attention, window rings, latents, selection (model.md 3.7, 3.8). */
#include "cuda/cu_int.h"

#include <math.h>
#include <stddef.h>

#define MOST_DIM 512 /* of kernels/attend.cu and compress.cu */

/* Score memory of a group of rows. */
#define MOST_SCORES ((size_t)128 << 20)

static int32_t page_tokens(const ops_paged *p, int32_t ratio) { return p->per_page * ratio; }

static bool has_head(cu_device *dev, const char *stage, int32_t head_dim, int32_t rope_dim)
{
    if (head_dim % 32 != 0 || head_dim > MOST_DIM || rope_dim > head_dim) {
        cu_refuse(dev, stage, "the head's size is no multiple of 32, or above 512");
        return false;
    }
    return true;
}

void cu_attend(ops_device *device, const ops_attend_args *a)
{
    cu_device *dev = cu_of(device);
    if (a->n_rows == 0 || !cu_stage_begin(dev, 0) || !has_head(dev, "attend", a->head_dim, a->rope_dim)) {
        return;
    }
    cu_attend_job job = {.n_rows = a->n_rows, .n_heads = a->n_heads, .head_dim = a->head_dim, .rope_dim = a->rope_dim, .window = a->window,
                         .topk = a->topk, .ring_slots = a->ring_slots, .scale = a->scale, .ring_offset = (int64_t)a->ring_offset,
                         .compressed = cu_paged_of(&a->compressed), .q = a->q, .kv = a->kv, .list = a->list, .sink = a->sink,
                             .rope = a->rope,
                         .o = a->o};
    const int32_t tokens = a->topk > 0 ? page_tokens(&a->compressed, a->ratio) : 0;
    if (cu_seqs_of(dev, a->seqs, a->n_seqs, tokens, &job.seqs) && cu_seqs_of(dev, a->kv_seqs, a->n_seqs, 0, &job.kv_seqs)) {
        cu_ok(dev, cu_launch_attend(&job, dev->n_sms, dev->stream), "attend");
    }
}

void cu_draft_attend(ops_device *device, const ops_draft_attend_args *a)
{
    cu_device *dev = cu_of(device);
    if (!cu_stage_begin(dev, 0) || !has_head(dev, "draft_attend", a->head_dim, a->rope_dim)) {
        return;
    }
    cu_attend_job job = {.n_heads = a->n_heads, .head_dim = a->head_dim, .rope_dim = a->rope_dim, .window = a->window,
                         .ring_slots = a->ring_slots, .scale = a->scale, .ring_offset = (int64_t)a->ring_offset, .q = a->q, .kv = a->kv,
                         .sink = a->sink, .rope = a->rope, .o = a->o};
    for (int32_t i = 0; i < a->n_seqs; i++) {
        job.n_rows += a->seqs[i].n_rows;
    }
    if (job.n_rows > 0 && cu_seqs_of(dev, a->seqs, a->n_seqs, 0, &job.seqs)) {
        cu_ok(dev, cu_launch_draft_attend(&job, dev->stream), "draft_attend");
    }
}

void cu_window_store(ops_device *device, const ops_window_store_args *a)
{
    cu_device *dev = cu_of(device);
    cu_seqs seqs;
    int32_t rows = 0;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        rows += a->seqs[i].n_rows;
    }
    if (rows > 0 && cu_stage_begin(dev, 0) && cu_seqs_of(dev, a->seqs, a->n_seqs, 0, &seqs)) {
        cu_ok(dev, cu_launch_window_store(&seqs, rows, a->ring_slots, a->row_bytes, (int64_t)a->ring_offset, a->kv, dev->stream),
              "window_store");
    }
}

/* --- Latents ----------------------------------------------------------------------------------------------------------------------- */

/* The latents of completed groups without the rows between them, for tests. */
static void copy_latents(cu_device *dev, const ops_compress_args *a, const bf16 *lat)
{
    size_t n = 0;
    const size_t row = (size_t)a->head_dim;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        for (int32_t t = 0; t < a->seqs[i].n_rows; t++) {
            if ((a->seqs[i].pos0 + t + 1) % a->ratio == 0) {
                cu_copy((ops_device *)(void *)dev, a->latents + n++ * row, lat + (size_t)(a->seqs[i].row0 + t) * row, row * sizeof(bf16));
            }
        }
    }
}

void cu_compress(ops_device *device, const ops_compress_args *a)
{
    cu_device *dev = cu_of(device);
    const size_t wide = cu_rows_bytes(a->n_rows, a->head_dim, sizeof(float));
    const size_t half = cu_rows_bytes(a->n_rows, a->head_dim, sizeof(bf16));
    const size_t keys = cu_rows_bytes(a->n_rows, a->index_dim, sizeof(bf16));
    if (a->n_rows == 0 || !cu_stage_begin(dev, 2 * wide + half + keys) || !has_head(dev, "compress", a->head_dim, a->rope_dim) ||
        !has_head(dev, "compress", a->index_dim, a->rope_dim)) {
        return;
    }
    float *kv = cu_scratch(dev, wide);
    float *gate = cu_scratch(dev, wide);
    bf16 *lat = cu_scratch(dev, half);
    bf16 *key = cu_scratch(dev, keys);
    cu_compress_job job = {.n_rows = a->n_rows, .ratio = a->ratio, .head_dim = a->head_dim, .rope_dim = a->rope_dim,
                           .index_dim = a->index_dim,
                           .open_groups = OPS_OPEN_GROUPS, .norm_eps = a->norm_eps, .open_offset = (int64_t)a->open_offset,
                           .compressed = cu_paged_of(&a->compressed), .index_keys = cu_paged_of(&a->index_keys), .kv = kv, .gate = gate,
                           .rope = a->rope, .norm = a->norm, .index_k_norm = a->index_k_norm, .lat = lat, .key = key};
    const cu_product in[] = {{.w = a->wkv, .x = a->u, .y32 = kv}, {.w = a->wgate, .x = a->u, .y32 = gate}};
    const cu_product out = {.w = a->index_wk, .x = lat, .y16 = key};
    const bool done = cu_products(dev, "compress", in, a->ratio == 2 ? 2 : 1, a->n_rows) &&
                      cu_seqs_of(dev, a->seqs, a->n_seqs, page_tokens(&a->compressed, a->ratio), &job.seqs) &&
                      cu_ok(dev, cu_launch_compress_latents(&job, dev->stream), "compress") &&
                      cu_products(dev, "compress", &out, 1, a->n_rows) &&
                      cu_ok(dev, cu_launch_compress_store(&job, dev->stream), "compress");
    if (done && a->latents != NULL) {
        copy_latents(dev, a, lat);
    }
}

/* --- Selection --------------------------------------------------------------------------------------------------------------------- */

/* Entries that the last row of any sequence sees, in whole vectors of 8. */
static int32_t widest(const cu_device *dev, const ops_index_args *a)
{
    int64_t most = 0;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        const int64_t n = cu_reach(dev, a->seqs[i].pos0 + a->seqs[i].n_rows) / a->ratio;
        most = n > most ? n : most;
    }
    return (int32_t)((most + 8) / 8 * 8);
}

static bool index_fits(cu_device *dev, const ops_index_args *a)
{
    if (a->index_dim % 32 != 0 || a->index_dim > CU_MAX_INDEX_DIM || a->n_heads > 256) {
        cu_refuse(dev, "index", "index heads are no multiple of 32 wide, wider than 128, or more than 256");
        return false;
    }
    return true;
}

void cu_index(ops_device *device, const ops_index_args *a)
{
    cu_device *dev = cu_of(device);
    const int32_t stride = widest(dev, a);
    const int32_t block_stride = a->make_candidates ? (stride / a->block_size + 8) / 8 * 8 : 0;
    const size_t row_scores = ((size_t)stride + (size_t)block_stride) * sizeof(uint16_t);
    const size_t fit = MOST_SCORES / row_scores;
    const int32_t group = fit < 1 ? 1 : fit < (size_t)a->n_rows ? (int32_t)fit : a->n_rows;
    const int32_t width = a->n_heads * a->index_dim;
    const size_t sizes[] = {cu_rows_bytes(a->n_rows, a->q_lora, 2),    cu_rows_bytes(a->n_rows, width, 2),
                            cu_rows_bytes(a->n_rows, a->n_heads, 2),   cu_rows_bytes(a->n_rows, width, 1),
                            cu_rows_bytes(a->n_rows, width / 32, 4),   cu_rows_bytes(a->n_rows, a->n_heads, 4),
                            cu_rows_bytes(group, stride, 2),           cu_rows_bytes(group, block_stride, 2)};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bytes += sizes[i];
    }
    if (a->n_rows == 0 || !cu_stage_begin(dev, bytes) || !index_fits(dev, a)) {
        return;
    }
    bf16 *qr = cu_scratch(dev, sizes[0]);
    bf16 *iq = cu_scratch(dev, sizes[1]);
    bf16 *iw = cu_scratch(dev, sizes[2]);
    cu_index_job job = {.n_rows = a->n_rows, .ratio = a->ratio, .rope_dim = a->rope_dim, .n_heads = a->n_heads, .index_dim = a->index_dim,
                        .topk = a->topk, .n_blocks = a->n_blocks, .block_size = a->block_size, .cand_stride = a->cand_stride,
                        .make_candidates = a->make_candidates, .use_candidates = a->use_candidates && !a->make_candidates,
                        .scale = (float)(1.0 / sqrt((double)a->index_dim) * (1.0 / sqrt((double)a->n_heads))),
                        .index_keys = cu_paged_of(&a->index_keys), .pos = a->pos, .rope = a->rope, .iq = iq, .iw = iw,
                        .stride = stride, .block_stride = block_stride, .candidates = a->candidates, .list = a->list, .score = a->score,
                        .score_stride = a->score_stride};
    job.codes = cu_scratch(dev, sizes[3]);
    job.scales = cu_scratch(dev, sizes[4]);
    job.weights = cu_scratch(dev, sizes[5]);
    job.order = cu_scratch(dev, sizes[6]);
    job.block_order = cu_scratch(dev, sizes[7]);
    const cu_product products[] = {{.w = a->wq_b, .x = qr, .y16 = iq}, {.w = a->weights_proj, .x = a->u, .y16 = iw}};
    bool good = cu_ok(dev, cu_launch_quantise(a->qr, qr, a->n_rows, a->q_lora, dev->stream), "index") &&
                cu_products(dev, "index", products, 2, a->n_rows) &&
                cu_seqs_of(dev, a->seqs, a->n_seqs, page_tokens(&a->index_keys, a->ratio), &job.seqs) &&
                cu_ok(dev, cu_launch_index_queries(&job, dev->stream), "index");
    for (job.row0 = 0; good && job.row0 < a->n_rows; job.row0 += group) {
        job.n_group = a->n_rows - job.row0 < group ? a->n_rows - job.row0 : group;
        good = cu_ok(dev, cu_launch_index_scores(&job, dev->stream), "index") && cu_ok(dev, cu_launch_index_select(&job, dev->stream),
                                                                                       "index");
    }
}
