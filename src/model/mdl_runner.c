/* mdl_runner.c - a device with the model prepared for it: rotary tables, buffers of a pass; weights are mdl_load.c's. */
#include "core/core.h"
#include "model/model_int.h"
#include "ops/rope.h"

#include <stdlib.h>
#include <string.h>

/* --- Buffers ---------------------------------------------------------------------------------------------------------- */

/* One device buffer of max_rows rows; remembers a failure so that callers check once. */
static void *rows_of(mdl_runner *r, size_t per_row, size_t element)
{
    size_t bytes;
    void *p = NULL;
    if (ar_mul((size_t)r->max_rows, per_row, &bytes) && ar_mul(bytes, element, &bytes)) {
        p = r->ops->mem_alloc(r->dev, bytes);
    }
    r->failed = r->failed || p == NULL;
    return p;
}

static void alloc_buffers(mdl_runner *r)
{
    const mdl_config *c = r->c;
    mdl_buffers *b = &r->b;
    size_t hidden = (size_t)c->hidden;
    size_t hc = (size_t)c->hc;
    size_t heads = (size_t)c->n_heads * (size_t)c->head_dim;
    size_t columns = (size_t)(c->engram.max_ngram > 1 ? (c->engram.max_ngram - 1) * c->engram.n_heads : 0);
    b->ids = rows_of(r, 1, sizeof *b->ids);
    b->pos = rows_of(r, 1, sizeof *b->pos);
    b->is_text = rows_of(r, 1, 1);
    b->row_given = rows_of(r, 1, 1);
    b->hash = rows_of(r, (size_t)c->engram.n_layers * columns, sizeof *b->hash);
    b->x = rows_of(r, hc * hidden, sizeof *b->x);
    b->pre = rows_of(r, hc, sizeof *b->pre);
    b->site_pre = rows_of(r, hc, sizeof *b->site_pre);
    b->post = rows_of(r, hc, sizeof *b->post);
    b->comb = rows_of(r, hc * hc, sizeof *b->comb);
    b->u = rows_of(r, hidden, sizeof *b->u);
    b->y = rows_of(r, hidden, sizeof *b->y);
    b->qr = rows_of(r, (size_t)c->q_lora, sizeof *b->qr);
    b->q = rows_of(r, heads, sizeof *b->q);
    b->kv = rows_of(r, r->layout.window_row_bytes, 1);
    b->o = rows_of(r, heads, sizeof *b->o);
    b->low = rows_of(r, (size_t)c->o_groups * (size_t)c->o_lora, sizeof *b->low);
    b->list = rows_of(r, (size_t)c->index_topk, sizeof *b->list);
    b->candidates = rows_of(r, (size_t)r->cand_stride, 1);
    const size_t active = (size_t)(c->n_active_experts > c->draft.n_active_experts ? c->n_active_experts : c->draft.n_active_experts);
    b->expert_ids = rows_of(r, active, sizeof *b->expert_ids);
    b->expert_weights = rows_of(r, active, sizeof *b->expert_weights);
    if (r->stream != NULL) {
        b->guess_ids = rows_of(r, active, sizeof *b->guess_ids);
        b->guess_weights = rows_of(r, active, sizeof *b->guess_weights);
    }
    if (r->draft) {
        b->taps = rows_of(r, (size_t)c->draft.n_taps * hidden, sizeof *b->taps);
        b->main_x = rows_of(r, hidden, sizeof *b->main_x);
        b->head_hidden = rows_of(r, hidden, sizeof *b->head_hidden);
        b->previous = rows_of(r, 1, sizeof *b->previous);
        b->confidence = rows_of(r, 1, sizeof *b->confidence);
    }
}

static void alloc_host(mdl_runner *r)
{
    size_t n = (size_t)r->max_rows;
    size_t columns = (size_t)r->model->engram.n_columns * (size_t)r->model->engram.n_layers;
    r->seqs = ar_calloc(n, sizeof *r->seqs);
    r->kv_seqs = ar_calloc(n, sizeof *r->kv_seqs);
    r->moves = ar_calloc(n, sizeof *r->moves);
    r->host_ids = ar_calloc(n, sizeof *r->host_ids);
    r->host_pos = ar_calloc(n, sizeof *r->host_pos);
    r->host_text = ar_calloc(n, 1);
    r->host_given = ar_calloc(n, 1);
    r->host_hash = ar_calloc(n * (columns + 1), sizeof *r->host_hash);
    r->failed = r->failed || r->seqs == NULL || r->kv_seqs == NULL || r->moves == NULL || r->host_ids == NULL || r->host_pos == NULL ||
                r->host_text == NULL || r->host_given == NULL || r->host_hash == NULL;
}

static void make_rope(mdl_runner *r)
{
    const mdl_rope_config *k = &r->c->rope;
    size_t bytes = (size_t)r->c->rope_dim / 2 * sizeof(float);
    float table[OPS_MAX_ROPE_DIM / 2];
    r->rope_plain = r->ops->mem_alloc(r->dev, bytes);
    r->rope_yarn = r->ops->mem_alloc(r->dev, bytes);
    if (r->rope_plain == NULL || r->rope_yarn == NULL) {
        r->failed = true;
        return;
    }
    rope_frequencies(k->theta, r->c->rope_dim, table);
    r->ops->upload(r->dev, r->rope_plain, table, bytes);
    rope_frequencies(k->compress_theta, r->c->rope_dim, table);
    rope_yarn(k->compress_theta, r->c->rope_dim, k->factor, k->beta_fast, k->beta_slow, k->original_positions, table);
    r->ops->upload(r->dev, r->rope_yarn, table, bytes);
}

static int32_t max_blocks(const mdl_config *c, int64_t max_tokens)
{
    return (int32_t)((max_tokens + c->candidate_block_size - 1) / c->candidate_block_size);
}

static di_status check_sizes(const mdl_config *c, const ops_backend *ops, di_error *err)
{
    const bool many = c->draft.n_stages > 0 && c->draft.n_experts > c->n_experts;
    const ops_sizes sizes = {.hidden = c->hidden,
                             .hc = c->hc,
                             .head_dim = c->head_dim,
                             .rope_dim = c->rope_dim,
                             .o_lora = c->o_lora,
                             .index_heads = c->n_index_sources > 0 ? c->index_heads : 0,
                             .index_dim = c->n_index_sources > 0 ? c->index_dim : 0,
                             .moe_inter = c->moe_inter,
                             .n_experts = many ? c->draft.n_experts : c->n_experts,
                             .n_active = c->n_active_experts,
                             .engram_dim = c->engram.n_layers > 0 ? c->engram.head_dim : 0};
    return ops->suits != NULL ? ops->suits(&sizes, err) : DI_OK;
}

di_status mdl_runner_new(const di_model *model, const mdl_runner_options *options, mdl_runner **out, di_error *err)
{
    mdl_runner *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_memory(err, "runner", sizeof *r);
    }
    const mdl_config *c = &model->config;
    r->model = model;
    r->c = c;
    r->ops = options->backend;
    r->max_rows = options->max_rows;
    r->max_tokens = options->max_tokens;
    r->trace = options->trace;
    r->trace_user = options->trace_user;
    r->cand_stride = c->candidate_layer >= 0 ? (max_blocks(c, r->max_tokens) + 7) / 8 : 0;
    r->decoder_start = c->n_kv_sources > 0 ? c->kv_sources[c->n_kv_sources - 1] : c->n_layers;
    r->draft = options->draft && c->draft.n_stages > 0;
    mdl_layout_init(c, r->draft, &r->layout);
    di_status status = check_sizes(c, r->ops, err);
    if (status == DI_OK) {
        status = r->ops->open(&options->device, &r->dev, err);
    }
    if (status == DI_OK) {
        status = mdl_load(r, options, err);
    }
    if (status == DI_OK) {
        alloc_buffers(r);
        alloc_host(r);
        make_rope(r);
        if (r->failed) {
            status = err_set(err, DI_E_MEMORY,
                             "out of memory: buffers for passes of %d tokens (use a smaller chunk or context)", r->max_rows);
        }
    }
    if (status == DI_OK) {
        mdl_plan_pass(r);
        status = r->ops->sync(r->dev, err);
    }
    if (status != DI_OK) {
        mdl_runner_free(r);
        return status;
    }
    *out = r;
    return DI_OK;
}

static void free_buffers(mdl_runner *r)
{
    mdl_buffers *b = &r->b;
    void *all[] = {b->ids, b->pos, b->is_text, b->row_given, b->given, b->hash,  b->x,          b->pre,        b->site_pre,
                   b->post, b->comb, b->u,     b->y,         b->qr,    b->q,     b->kv,         b->o,          b->low,
                   b->list, b->candidates, b->score, b->expert_ids, b->expert_weights, b->logits, b->taps, b->main_x,
                   b->head_hidden, b->previous, b->confidence, b->draft_logits, b->guess_ids, b->guess_weights,
                   r->rope_plain, r->rope_yarn};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        r->ops->mem_free(r->dev, all[i]);
    }
}

void mdl_runner_free(mdl_runner *r)
{
    if (r == NULL) {
        return;
    }
    free(r->scratch_pages);
    if (r->dev != NULL) {
        free_buffers(r);
        r->ops->mem_free(r->dev, r->scratch_page);
        mdl_unload(r);
        r->ops->close(r->dev);
    }
    free(r->seqs);
    free(r->kv_seqs);
    free(r->moves);
    free(r->host_ids);
    free(r->host_pos);
    free(r->host_text);
    free(r->host_given);
    free(r->host_hash);
    free(r);
}

const mdl_layout *mdl_runner_layout(const mdl_runner *r) { return &r->layout; }
int32_t mdl_runner_threads(const mdl_runner *r) { return r->ops->n_threads(r->dev); }

di_status mdl_runner_measure_copy(mdl_runner *r, size_t bytes, double *rate, di_error *err)
{
    enum { COPIES = 8 };
    void *const from = r->ops->mem_alloc(r->dev, bytes);
    void *const to = r->ops->mem_alloc(r->dev, bytes);
    di_status status = from != NULL && to != NULL ? r->ops->sync(r->dev, err) : err_memory(err, "two buffers to copy on the device", bytes);
    if (status == DI_OK) {
        const int64_t begin = clock_now_ns();
        for (int i = 0; i < COPIES; i++) {
            r->ops->copy(r->dev, to, from, bytes);
        }
        status = r->ops->sync(r->dev, err);
        *rate = 2e9 * COPIES * (double)bytes / (double)(clock_now_ns() - begin + 1);
    }
    r->ops->mem_free(r->dev, from);
    r->ops->mem_free(r->dev, to);
    return status;
}
