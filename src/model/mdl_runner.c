/* mdl_runner.c - a device with the model prepared for it: weights, rotary tables, buffers of a pass. */
#include "core/core.h"
#include "model/model_int.h"
#include "ops/rope.h"

#include <stdlib.h>
#include <string.h>

/* --- Weights ---------------------------------------------------------------------------------------------------------- */

typedef di_status (*matrix_fn)(mdl_runner *r, ops_matrix *m, ops_weight_use use, di_error *err);

static di_status each_expert(mdl_runner *r, mdl_expert_weights *e, matrix_fn fn, di_error *err)
{
    ops_matrix *all[] = {&e->w1, &e->w2, &e->w3};
    di_status status = DI_OK;
    for (size_t i = 0; i < 3 && status == DI_OK; i++) {
        status = fn(r, all[i], OPS_USE_PRODUCT, err);
    }
    return status;
}

static di_status each_layer_matrix(mdl_runner *r, mdl_layer_weights *w, matrix_fn fn, di_error *err)
{
    ops_matrix *all[] = {&w->hc_attn.fn,       &w->hc_ffn.fn,        &w->wq_a,
                         &w->wq_b,             &w->wkv,              &w->wo_a,
                         &w->wo_b,             &w->gate,             &w->compressor.wkv,
                         &w->compressor.wgate, &w->compressor.index_wk, &w->indexer.wq_b,
                         &w->indexer.weights_proj, &w->engram.wkv};
    di_status status = DI_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == DI_OK; i++) {
        status = all[i]->data != NULL ? fn(r, all[i], OPS_USE_PRODUCT, err) : DI_OK;
    }
    if (status == DI_OK && w->engram.table.data != NULL) {
        status = fn(r, &w->engram.table, OPS_USE_LOOKUP, err);
    }
    for (int32_t e = 0; e < w->n_experts && status == DI_OK; e++) {
        status = each_expert(r, &w->experts[e], fn, err);
    }
    return status == DI_OK ? each_expert(r, &w->shared, fn, err) : status;
}

static di_status each_draft_matrix(mdl_runner *r, matrix_fn fn, di_error *err)
{
    mdl_draft_weights *const w = &r->w.draft;
    ops_matrix *all[] = {&w->main_proj, &w->markov_head, &w->confidence_proj};
    di_status status = fn(r, &w->markov_embed, OPS_USE_LOOKUP, err);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == DI_OK; i++) {
        status = fn(r, all[i], OPS_USE_PRODUCT, err);
    }
    for (int32_t s = 0; s < r->c->draft.n_stages && status == DI_OK; s++) {
        status = each_layer_matrix(r, &w->stages[s], fn, err);
    }
    return status;
}

/* Every matrix that is used. */
static di_status each_matrix(mdl_runner *r, matrix_fn fn, di_error *err)
{
    di_status status = fn(r, &r->w.embed, OPS_USE_LOOKUP, err);
    if (status == DI_OK) {
        status = fn(r, &r->w.head, OPS_USE_PRODUCT, err);
    }
    for (int32_t l = 0; l < r->c->n_layers && status == DI_OK; l++) {
        status = each_layer_matrix(r, &r->w.layers[l], fn, err);
    }
    return status == DI_OK && r->draft ? each_draft_matrix(r, fn, err) : status;
}

/* Bytes of a matrix in the checkpoint, without its scales. */
static size_t stored_bytes(const ops_matrix *m)
{
    const size_t n = (size_t)m->n_out * (size_t)m->n_in;
    return m->format == OPS_F32 ? 4 * n : m->format == OPS_BF16 ? 2 * n : m->format == OPS_FP4 ? n / 2 : n;
}

/* What the backend holds in a form of its own need not stay in memory twice. */
static di_status load_matrix(mdl_runner *r, ops_matrix *m, ops_weight_use use, di_error *err)
{
    const di_status status = r->ops->weight_load(r->dev, m, use, err);
    if (status == DI_OK && m->packed != NULL && r->model->values == NULL) {
        file_map_forget(m->data, stored_bytes(m));
    }
    return status;
}

static di_status drop_matrix(mdl_runner *r, ops_matrix *m, ops_weight_use use, di_error *err)
{
    (void)use;
    (void)err;
    r->ops->weight_free(r->dev, m);
    return DI_OK;
}

static ops_expert expert_of(const mdl_expert_weights *w) { return (ops_expert){.w1 = &w->w1, .w2 = &w->w2, .w3 = &w->w3}; }

/* The experts of n_layers layers, or stages, as the stages of a backend take them. */
static di_status list_experts(const mdl_layer_weights *layers, int32_t n_layers, size_t n, ops_expert ***out, di_error *err)
{
    ops_expert **const lists = ar_calloc((size_t)n_layers, sizeof *lists);
    *out = lists;
    for (int32_t l = 0; lists != NULL && l < n_layers; l++) {
        lists[l] = ar_calloc(n, sizeof **lists);
        if (lists[l] == NULL) {
            return err_memory(err, "expert list", n * sizeof **lists);
        }
        for (size_t e = 0; e < n; e++) {
            lists[l][e] = expert_of(&layers[l].experts[e]);
        }
    }
    return lists != NULL ? DI_OK : err_memory(err, "expert list", (size_t)n_layers * sizeof *lists);
}

static void free_experts(ops_expert **lists, int32_t n_layers)
{
    for (int32_t l = 0; lists != NULL && l < n_layers; l++) {
        free(lists[l]);
    }
    free(lists);
}

/* Norms, biases and sinks go to the device. */
static di_status place_vectors(mdl_runner *r, di_error *err)
{
    const size_t bytes = r->w.n_values * sizeof(float); /* exists on the host already: no overflow */
    r->values = r->ops->mem_alloc(r->dev, bytes);
    if (r->values == NULL) {
        return err_memory(err, "norms and biases on the device", bytes);
    }
    r->ops->upload(r->dev, r->values, r->w.values, bytes);
    mdl_weights_place(r->c, &r->w, r->values);
    return DI_OK;
}

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
    di_status status = r->ops->open(&options->device, &r->dev, err);
    if (status == DI_OK) {
        status = mdl_weights_bind(c, model->checkpoint, &r->w, err);
    }
    if (status == DI_OK) {
        status = place_vectors(r, err);
    }
    if (status == DI_OK) {
        status = each_matrix(r, load_matrix, err);
    }
    if (status == DI_OK) {
        status = list_experts(r->w.layers, c->n_layers, (size_t)c->n_experts, &r->experts, err);
    }
    if (status == DI_OK && r->draft) {
        status = list_experts(r->w.draft.stages, c->draft.n_stages, (size_t)c->draft.n_experts, &r->draft_experts, err);
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
                   b->head_hidden, b->previous, b->confidence, b->draft_logits, r->rope_plain, r->rope_yarn};
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
        r->ops->mem_free(r->dev, r->values);
        if (r->w.layers != NULL) {
            each_matrix(r, drop_matrix, NULL);
        }
        r->ops->close(r->dev);
    }
    free_experts(r->experts, r->c->n_layers);
    free_experts(r->draft_experts, r->c->draft.n_stages);
    mdl_weights_free(&r->w);
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
