/* cu_rows.c - embedding, Engram, taps, rows that stay, and the draft's heads (model.md 3.1, 3.5.4, 4.2; dspark.md 1.3, 1.7, 1.8). */
#include "core/arith.h"
#include "cuda/cu_int.h"

#include <cuda_runtime_api.h>

#include <stddef.h>
#include <stdlib.h>

#define MOVE_BYTES ((size_t)64 << 20) /* rows that are under way at once */

static bool has_table(cu_device *dev, const char *stage, const ops_matrix *w, ops_format format)
{
    const cu_packed *p = cu_packed_of(w);
    if (p == NULL || p->tiles || p->format != format) {
        cu_refuse(dev, stage, "a look-up table is not loaded, or not stored as in the released checkpoint");
        return false;
    }
    return true;
}

void cu_embed(ops_device *device, const ops_embed_args *a)
{
    cu_device *dev = cu_of(device);
    if (a->n_rows > 0 && cu_stage_begin(dev, 0) && has_table(dev, "embed", a->embed, OPS_BF16)) {
        const bf16 *table = (const bf16 *)(const void *)cu_packed_of(a->embed)->data;
        cu_ok(dev, cu_launch_embed(table, a->ids, a->rows, a->row_given, a->n_rows, a->hc, a->hidden, a->x, a->pre, dev->stream), "embed");
    }
}

void cu_tap(ops_device *device, const ops_tap_args *a)
{
    cu_device *dev = cu_of(device);
    if (a->n_rows > 0 && cu_stage_begin(dev, 0)) {
        cu_ok(dev, cu_launch_tap(a->x, a->n_rows, a->hc, a->hidden, a->ld, a->out, dev->stream), "tap");
    }
}

void cu_engram(ops_device *device, const ops_engram_args *a)
{
    cu_device *dev = cu_of(device);
    const int32_t width = a->n_columns * a->head_dim;
    const int32_t wide = (a->hc + 1) * a->hidden;
    const size_t z_bytes = cu_rows_bytes(a->n_rows, width, sizeof(bf16));
    const size_t kv_bytes = cu_rows_bytes(a->n_rows, wide, sizeof(bf16));
    if (a->n_rows == 0 || !cu_stage_begin(dev, z_bytes + kv_bytes) || !has_table(dev, "engram", a->table, OPS_FP8R)) {
        return;
    }
    if (a->head_dim % 32 != 0) {
        cu_refuse(dev, "engram", "a table row is no multiple of 32");
        return;
    }
    bf16 *z = cu_scratch(dev, z_bytes);
    bf16 *kv = cu_scratch(dev, kv_bytes);
    const cu_engram_job job = {.n_rows = a->n_rows, .hc = a->hc, .hidden = a->hidden, .n_columns = a->n_columns, .head_dim = a->head_dim,
                               .norm_eps = a->norm_eps, .rows = a->rows, .is_text = a->is_text, .table = cu_packed_of(a->table)->data,
                               .table_scale = cu_packed_of(a->table)->scale, .q_weight = a->q_weight, .k_weight = a->k_weight, .z = z,
                               .kv = kv, .x = a->x};
    const cu_product product = {.w = a->wkv, .x = z, .y16 = kv};
    (void)(cu_ok(dev, cu_launch_engram_lookup(&job, dev->stream), "engram") && cu_products(dev, "engram", &product, 1, a->n_rows) &&
           cu_ok(dev, cu_launch_engram_write(&job, dev->stream), "engram"));
}

void cu_markov(ops_device *device, const ops_markov_args *a)
{
    cu_device *dev = cu_of(device);
    const int32_t joined_width = a->hidden + a->rank;
    const size_t e_bytes = cu_rows_bytes(a->n_rows, a->rank, sizeof(bf16));
    const size_t joined_bytes = cu_rows_bytes(a->n_rows, joined_width, sizeof(bf16));
    if (a->n_rows == 0 || !cu_stage_begin(dev, e_bytes + joined_bytes) || !has_table(dev, "markov", a->embed, OPS_BF16)) {
        return;
    }
    bf16 *e = cu_scratch(dev, e_bytes);
    bf16 *joined = cu_scratch(dev, joined_bytes);
    const bf16 *table = (const bf16 *)(const void *)cu_packed_of(a->embed)->data;
    const cu_product products[] = {{.w = a->head, .x = e, .y32 = a->logits}, {.w = a->proj, .x = joined, .y32 = a->confidence}};
    (void)(cu_ok(dev,
                 cu_launch_markov_rows(table, a->previous, a->h, a->ld_base * a->hidden, a->n_rows, a->hidden, a->rank, e, joined,
                                       dev->stream),
                 "markov") &&
           cu_products(dev, "markov", products, 2, a->n_rows) &&
           cu_ok(dev, cu_launch_add_base(a->logits, a->base, a->ld_base, a->n_rows, a->vocab, dev->stream), "markov"));
}

/* --- Rows that stay ------------------------------------------------------------------------------------------------------------------ */

/* Number of a target row in front of the moves, for every one of them; NULL after a failure. The caller frees. */
static int32_t *sources_of(cu_device *dev, const ops_keep_rows_args *a, size_t *n)
{
    *n = 0;
    for (int32_t i = 0; i < a->n_moves; i++) {
        *n += (size_t)a->moves[i].n_rows;
    }
    int32_t *from = ar_calloc(*n + 1, sizeof *from);
    if (from == NULL) {
        cu_ok(dev, (int)cudaErrorMemoryAllocation, "moves");
        return NULL;
    }
    size_t at = 0;
    for (int32_t i = 0; i < a->n_moves; i++) {
        for (int32_t t = 0; t < a->moves[i].n_rows; t++) {
            from[at++] = a->moves[i].src + t;
        }
    }
    return from;
}

/* Targets are consecutive from the first move's on, as they are where rows leave a batch. */
static bool is_dense(const ops_keep_rows_args *a)
{
    int32_t at = 0;
    for (int32_t i = 0; i < a->n_moves; i++) {
        if (a->moves[i].n_rows > 0 && a->moves[i].dst != at) {
            return false;
        }
        at += a->moves[i].n_rows;
    }
    return true;
}

/* A part of the rows goes to scratch memory and from there to its place. Rows of later parts lie behind the places of earlier ones. */
static bool move_rows(cu_device *dev, uint8_t *buffer, size_t row_bytes, const int32_t *from, size_t n, size_t part, uint8_t *scratch)
{
    for (size_t i = 0; i < n; i += part) {
        const size_t m = n - i < part ? n - i : part;
        if (!cu_ok(dev, cu_launch_gather_rows(buffer, (int64_t)row_bytes, from + i, (int32_t)m, scratch, dev->stream), "keep_rows") ||
            !cu_ok(dev, (int)cudaMemcpyAsync(buffer + i * row_bytes, scratch, m * row_bytes, cudaMemcpyDeviceToDevice, dev->stream),
                   "keep_rows")) {
            return false;
        }
    }
    return true;
}

void cu_keep_rows(ops_device *device, const ops_keep_rows_args *a)
{
    cu_device *dev = cu_of(device);
    size_t n = 0;
    size_t most = 1;
    for (int32_t b = 0; b < a->n_buffers; b++) {
        most = a->row_bytes[b] > most ? a->row_bytes[b] : most;
    }
    int32_t *from = sources_of(dev, a, &n);
    if (from == NULL || n == 0) {
        free(from);
        return;
    }
    const size_t fit = MOVE_BYTES / most;
    const size_t part = fit < 1 ? 1 : fit < n ? fit : n;
    if (cu_stage_begin(dev, cu_scratch_bytes(part * most))) {
        if (!is_dense(a)) {
            cu_refuse(dev, "keep_rows", "targets have gaps");
        } else {
            const int32_t *on_device = cu_table_of(dev, from, n * sizeof *from);
            uint8_t *scratch = cu_scratch(dev, part * most);
            bool good = on_device != NULL;
            for (int32_t b = 0; good && b < a->n_buffers; b++) {
                good = a->buffers[b] == NULL || a->row_bytes[b] == 0 ||
                       move_rows(dev, a->buffers[b], a->row_bytes[b], on_device, n, part, scratch);
            }
        }
    }
    free(from);
}
