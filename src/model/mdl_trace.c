/* mdl_trace.c - intermediate values under the names of the golden files, for verification, so that a comparison can name
 * the first stage that differs. Nothing here runs unless the runner has a trace function. Traced passes hold one sequence. */
#include "core/core.h"
#include "model/model_int.h"
#include "ops/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t dtype_bytes(di_dtype dtype) { return dtype == DI_BF16 ? 2 : 4; }

/* Sends host memory. */
static void send_host(const mdl_runner *r, int32_t layer, const char *name, di_dtype dtype, const void *data, int32_t n_dims, int64_t d0,
                      int64_t d1, int64_t d2)
{
    char full[64];
    if (layer >= 0) {
        snprintf(full, sizeof full, "L%d.%s", layer, name);
    } else {
        snprintf(full, sizeof full, "%s", name);
    }
    r->trace(r->trace_user,
             &(di_trace){.name = full, .dtype = dtype, .n_dims = n_dims, .dims = {d0, d1, d2, 0}, .data = data});
}

void mdl_trace_send(mdl_runner *r, int32_t layer, const char *name, di_dtype dtype, const void *data, int32_t n_dims, int64_t d0,
                    int64_t d1, int64_t d2)
{
    if (r->trace == NULL) {
        return;
    }
    size_t n = (size_t)d0 * (size_t)(n_dims > 1 ? d1 : 1) * (size_t)(n_dims > 2 ? d2 : 1);
    void *host = ar_calloc(n, dtype_bytes(dtype));
    if (host == NULL) {
        r->failed = true;
        return;
    }
    r->ops->download(r->dev, host, data, n * dtype_bytes(dtype));
    send_host(r, layer, name, dtype, host, n_dims, d0, d1, d2);
    free(host);
}

/* "embed" [rows, hidden]: stream 0 of X; "engram_ids" [rows, engram layers, columns]. */
void mdl_trace_embed(mdl_runner *r, int32_t rows)
{
    if (r->trace == NULL) {
        return;
    }
    size_t hidden = (size_t)r->c->hidden;
    size_t hc = (size_t)r->c->hc;
    size_t columns = (size_t)r->model->engram.n_columns;
    size_t layers = (size_t)r->model->engram.n_layers;
    bf16 *x = ar_calloc((size_t)rows * hc * hidden, sizeof *x);
    int32_t *ids = ar_calloc((size_t)rows * layers * columns, sizeof *ids);
    if (x != NULL && ids != NULL) {
        r->ops->download(r->dev, x, r->b.x, (size_t)rows * hc * hidden * sizeof *x);
        for (size_t t = 1; t < (size_t)rows; t++) {
            memcpy(x + t * hidden, x + t * hc * hidden, hidden * sizeof *x);
        }
        send_host(r, -1, "embed", DI_BF16, x, 2, rows, r->c->hidden, 0);
        for (size_t t = 0; t < (size_t)rows; t++) {
            for (size_t i = 0; i < layers * columns; i++) {
                size_t at = (i / columns * (size_t)r->max_rows + t) * columns + i % columns;
                ids[t * layers * columns + i] = (int32_t)r->host_hash[at];
            }
        }
        send_host(r, -1, "engram_ids", DI_I32, ids, 3, rows, (int64_t)layers, (int64_t)columns);
    }
    r->failed = r->failed || x == NULL || ids == NULL;
    free(x);
    free(ids);
}

/* [rows, pre hc, post hc, comb hc x hc]. */
void mdl_trace_hc(mdl_runner *r, int32_t layer, const char *name, int32_t rows, const float *pre)
{
    if (r->trace == NULL) {
        return;
    }
    size_t hc = (size_t)r->c->hc;
    size_t width = (2 + hc) * hc;
    size_t n = (size_t)rows;
    float *out = ar_calloc(n * width, sizeof *out);
    float *part = ar_calloc(n * hc * hc, sizeof *part);
    const float *sources[] = {pre, r->b.post, r->b.comb};
    size_t widths[] = {hc, hc, hc * hc};
    size_t at = 0;
    for (size_t s = 0; s < 3 && out != NULL && part != NULL; s++) {
        r->ops->download(r->dev, part, sources[s], n * widths[s] * sizeof *part);
        for (size_t t = 0; t < n; t++) {
            memcpy(out + t * width + at, part + t * widths[s], widths[s] * sizeof *out);
        }
        at += widths[s];
    }
    if (at == width) {
        send_host(r, layer, name, DI_F32, out, 2, rows, (int64_t)width, 0);
    }
    r->failed = r->failed || at != width;
    free(out);
    free(part);
}

void mdl_trace_reserve_scores(mdl_runner *r, int32_t rows, int32_t ratio)
{
    if (r->trace == NULL) {
        return;
    }
    r->score_stride = (int32_t)((r->seqs[0].pos0 + r->seqs[0].n_rows) / ratio);
    r->ops->mem_free(r->dev, r->b.score);
    r->b.score = r->ops->mem_alloc(r->dev, (size_t)rows * (size_t)r->score_stride * sizeof(float));
    r->failed = r->failed || r->b.score == NULL;
}

/* "index_score" [rows, entries], "topk" [rows, min(topk, entries)], "candidates" [rows, entries] 0/1 at the candidate source: whole
 * blocks, entries not visible yet included. */
void mdl_trace_index(mdl_runner *r, int32_t layer, int32_t rows)
{
    if (r->trace == NULL) {
        return;
    }
    const mdl_config *c = r->c;
    size_t n = (size_t)rows;
    size_t entries = (size_t)r->score_stride;
    size_t topk = (size_t)c->index_topk;
    size_t width = topk < entries ? topk : entries;
    mdl_trace_send(r, layer, "index_score", DI_F32, r->b.score, 2, rows, r->score_stride, 0);
    int32_t *list = ar_calloc(n * topk, sizeof *list);
    uint8_t *bits = ar_calloc(n * (size_t)r->cand_stride, 1);
    int32_t *mask = ar_calloc(n * entries, sizeof *mask);
    if (list != NULL && bits != NULL && mask != NULL) {
        r->ops->download(r->dev, list, r->b.list, n * topk * sizeof *list);
        r->ops->download(r->dev, bits, r->b.candidates, n * (size_t)r->cand_stride);
        for (size_t t = 0; t < n; t++) {
            memmove(list + t * width, list + t * topk, width * sizeof *list);
            for (size_t j = 0; j < entries && layer == c->candidate_layer; j++) {
                size_t block = j / (size_t)c->candidate_block_size;
                mask[t * entries + j] = bits[t * (size_t)r->cand_stride + block / 8] >> (block % 8) & 1;
            }
        }
        send_host(r, layer, "topk", DI_I32, list, 2, rows, (int64_t)width, 0);
        if (layer == c->candidate_layer) {
            send_host(r, -1, "candidates", DI_I32, mask, 2, rows, (int64_t)entries, 0);
        }
    }
    r->failed = r->failed || list == NULL || bits == NULL || mask == NULL;
    free(list);
    free(bits);
    free(mask);
}

/* --- Caches ------------------------------------------------------------------------------------------------------------ */

typedef void (*unpack_fn)(const uint8_t *row, size_t n, float *x);

/* n packed rows -> bf16 [n, width] under a name. */
static void send_rows(mdl_runner *r, const char *name, const uint8_t *rows, size_t row_bytes, int64_t n, int32_t width, unpack_fn unpack)
{
    float *wide = ar_calloc((size_t)width, sizeof *wide);
    bf16 *out = ar_calloc((size_t)n * (size_t)width, sizeof *out);
    if (wide != NULL && out != NULL) {
        for (int64_t i = 0; i < n; i++) {
            unpack(rows + (size_t)i * row_bytes, (size_t)width, wide);
            fmt_f32_to_bf16(wide, (size_t)width, out + (size_t)i * (size_t)width);
        }
        send_host(r, -1, name, DI_BF16, out, 2, n, width, 0);
    }
    r->failed = r->failed || wide == NULL || out == NULL;
    free(wide);
    free(out);
}

/* A ring as the official code has it: window slots, slot = position mod window; those without a position are zero. */
static void send_ring(mdl_seq *seq, const char *name, const uint8_t *ring)
{
    mdl_runner *r = seq->runner;
    const int64_t window = r->c->window;
    const size_t bytes = r->layout.window_row_bytes;
    uint8_t *rows = ar_calloc((size_t)window, bytes);
    for (int64_t t = seq->n_tokens > window ? seq->n_tokens - window : 0; rows != NULL && t < seq->n_tokens; t++) {
        memcpy(rows + (size_t)(t % window) * bytes, ring + (size_t)(t % r->layout.ring_slots) * bytes, bytes);
    }
    if (rows != NULL) {
        send_rows(r, name, rows, bytes, window, r->c->head_dim, fmt_q8_unpack);
    }
    r->failed = r->failed || rows == NULL;
    free(rows);
}

void mdl_trace_draft(mdl_seq *seq, const uint8_t *state)
{
    const mdl_runner *r = seq->runner;
    char name[48];
    for (int32_t s = 0; r->draft && s < r->c->draft.n_stages; s++) {
        snprintf(name, sizeof name, "window%d", s);
        send_ring(seq, name, state + r->layout.draft_ring_offset[s]);
    }
}

static void send_paged(mdl_seq *seq, int32_t layer, const char *name, const ops_paged *p, int64_t n, int32_t width, unpack_fn unpack)
{
    mdl_runner *r = seq->runner;
    size_t bytes = (size_t)p->row_bytes;
    uint8_t *rows = ar_calloc((size_t)n, bytes);
    for (int64_t i = 0; rows != NULL && i < n; i += p->per_page) {
        int64_t m = n - i < p->per_page ? n - i : p->per_page;
        r->ops->download(r->dev, rows + (size_t)i * bytes, seq->pages[i / p->per_page] + p->offset, (size_t)m * bytes);
    }
    if (rows != NULL) {
        char full[48];
        snprintf(full, sizeof full, "cache.L%d.%s", layer, name);
        send_rows(r, full, rows, bytes, n, width, unpack);
    }
    r->failed = r->failed || rows == NULL;
    free(rows);
}

static void send_state(mdl_seq *seq, const uint8_t *state, int32_t layer)
{
    mdl_runner *r = seq->runner;
    const mdl_config *c = r->c;
    char name[48];
    snprintf(name, sizeof name, "cache.L%d.window", layer);
    send_ring(seq, name, state + r->layout.ring_offset[layer]);
    if (mdl_is_kv_source(c, layer) && c->ratio[layer] == 2 && seq->n_tokens % 2 == 1) {
        const int64_t group = seq->n_tokens / 2 % OPS_OPEN_GROUPS;
        const float *open = (const float *)(const void *)(state + r->layout.open_offset[layer]) + group * 2 * c->head_dim;
        char full[48];
        snprintf(full, sizeof full, "cache.L%d.open_kv", layer);
        send_host(r, -1, full, DI_F32, open, 1, c->head_dim, 0, 0);
        snprintf(full, sizeof full, "cache.L%d.open_score", layer);
        send_host(r, -1, full, DI_F32, open + c->head_dim, 1, c->head_dim, 0, 0);
    }
}

di_status mdl_seq_trace(mdl_seq *seq, di_error *err)
{
    mdl_runner *r = seq->runner;
    const mdl_config *c = r->c;
    if (r->trace == NULL) {
        return err_set(err, DI_E_STATE, "the engine was opened without a trace function");
    }
    uint8_t *state = ar_calloc(r->layout.state_bytes, 1);
    if (state == NULL) {
        return err_memory(err, "trace of the caches", r->layout.state_bytes);
    }
    r->failed = false;
    r->ops->download(r->dev, state, seq->state, r->layout.state_bytes);
    mdl_trace_draft(seq, state);
    for (int32_t l = 0; l < c->n_layers; l++) {
        send_state(seq, state, l);
        if (mdl_is_kv_source(c, l)) {
            int64_t n = seq->n_tokens / c->ratio[l];
            send_paged(seq, l, "compressed", &r->layout.compressed[l], n, c->head_dim, fmt_q4n_unpack);
            send_paged(seq, l, "index_keys", &r->layout.index_keys[l], n, c->index_dim, fmt_q4e_unpack);
        }
    }
    free(state);
    return r->failed ? err_set(err, DI_E_MEMORY, "out of memory: trace of the caches") : DI_OK;
}
