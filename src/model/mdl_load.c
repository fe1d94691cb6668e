/* mdl_load.c - weights of a runner: all of them prepared by its backend, or, within a budget, those that every token needs, while routed
 * experts and rows of Engram tables come from the disk.
 *
 * With a budget nothing is read through the mapping once a runner is made: what a backend reads as it is stored is copied. */
#include "core/core.h"
#include "model/model_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static di_status each_expert(mdl_runner *r, mdl_expert_weights *e, mdl_matrix_kind kind, mdl_matrix_fn fn, void *arg, di_error *err)
{
    ops_matrix *all[] = {&e->w1, &e->w2, &e->w3};
    di_status status = DI_OK;
    for (size_t i = 0; i < 3 && status == DI_OK; i++) {
        status = fn(r, all[i], kind, arg, err);
    }
    return status;
}

static di_status each_layer_matrix(mdl_runner *r, mdl_layer_weights *w, mdl_matrix_fn fn, void *arg, di_error *err)
{
    ops_matrix *all[] = {&w->hc_attn.fn,       &w->hc_ffn.fn,        &w->wq_a,
                         &w->wq_b,             &w->wkv,              &w->wo_a,
                         &w->wo_b,             &w->gate,             &w->compressor.wkv,
                         &w->compressor.wgate, &w->compressor.index_wk, &w->indexer.wq_b,
                         &w->indexer.weights_proj, &w->engram.wkv};
    di_status status = DI_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == DI_OK; i++) {
        status = all[i]->data != NULL || all[i]->packed != NULL ? fn(r, all[i], MDL_DENSE, arg, err) : DI_OK;
    }
    if (status == DI_OK && w->engram.table.data != NULL) {
        status = fn(r, &w->engram.table, MDL_TABLE, arg, err);
    }
    for (int32_t e = 0; e < w->n_experts && status == DI_OK; e++) {
        status = each_expert(r, &w->experts[e], MDL_EXPERT, fn, arg, err);
    }
    return status == DI_OK ? each_expert(r, &w->shared, MDL_DENSE, fn, arg, err) : status;
}

static di_status each_draft_matrix(mdl_runner *r, mdl_matrix_fn fn, void *arg, di_error *err)
{
    mdl_draft_weights *const w = &r->w.draft;
    ops_matrix *all[] = {&w->main_proj, &w->markov_head, &w->confidence_proj};
    di_status status = fn(r, &w->markov_embed, MDL_LOOKUP, arg, err);
    for (size_t i = 0; i < sizeof all / sizeof all[0] && status == DI_OK; i++) {
        status = fn(r, all[i], MDL_DENSE, arg, err);
    }
    for (int32_t s = 0; s < r->c->draft.n_stages && status == DI_OK; s++) {
        status = each_layer_matrix(r, &w->stages[s], fn, arg, err);
    }
    return status;
}

di_status mdl_each_matrix(mdl_runner *r, mdl_matrix_fn fn, void *arg, di_error *err)
{
    di_status status = fn(r, &r->w.embed, MDL_LOOKUP, arg, err);
    if (status == DI_OK) {
        status = fn(r, &r->w.head, MDL_DENSE, arg, err);
    }
    for (int32_t l = 0; l < r->c->n_layers && status == DI_OK; l++) {
        status = each_layer_matrix(r, &r->w.layers[l], fn, arg, err);
    }
    return status == DI_OK && r->draft ? each_draft_matrix(r, fn, arg, err) : status;
}

/* --- Sizes -------------------------------------------------------------------------------------------------------------- */

/* Bytes of a matrix in the checkpoint, without its scales. */
static size_t code_bytes(const ops_matrix *m)
{
    const size_t n = (size_t)m->n_out * (size_t)m->n_in;
    return m->format == OPS_F32 ? 4 * n : m->format == OPS_BF16 ? 2 * n : m->format == OPS_FP4 ? n / 2 : n;
}

static size_t scale_bytes(const ops_matrix *m)
{
    const size_t groups = ((size_t)m->n_in + 31) / 32;
    const size_t rows = m->format == OPS_FP8 ? ((size_t)m->n_out + 31) / 32 : (size_t)m->n_out;
    return m->scale != NULL ? rows * groups : 0;
}

/* Bytes in memory of a matrix for products. */
static size_t product_bytes(const mdl_runner *r, const ops_matrix *m)
{
    const size_t form = r->ops->form_bytes(r->dev, m);
    return form > 0 ? form : code_bytes(m) + scale_bytes(m);
}

typedef struct load_plan {
    size_t resident; /* dense and looked up */
    size_t experts;  /* of all, if they were in memory */
    size_t tables;
} load_plan;

static di_status plan_matrix(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err)
{
    load_plan *const plan = arg;
    (void)err;
    switch (kind) {
    case MDL_DENSE:
        plan->resident += product_bytes(r, m);
        break;
    case MDL_LOOKUP:
        plan->resident += code_bytes(m) + scale_bytes(m);
        break;
    case MDL_TABLE:
        plan->tables += code_bytes(m) + scale_bytes(m);
        break;
    case MDL_EXPERT:
        plan->experts += product_bytes(r, m);
        break;
    }
    return DI_OK;
}

/* --- All in memory ------------------------------------------------------------------------------------------------------ */

/* What the backend holds in a form of its own need not stay in memory twice. */
static di_status load_matrix(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err)
{
    const bool product = kind == MDL_DENSE || kind == MDL_EXPERT;
    di_status status = DI_OK;
    (void)arg;
    if (product) {
        status = mdl_kept_take(r->kept, r, m, err);
    }
    if (status == DI_OK && m->packed == NULL) {
        status = r->ops->weight_load(r->dev, m, product ? OPS_USE_PRODUCT : OPS_USE_LOOKUP, err);
        if (status == DI_OK && product) {
            mdl_kept_add(r->kept, r, m);
        }
    }
    if (status == DI_OK && m->packed != NULL && r->model->values == NULL) {
        file_map_forget(m->data, code_bytes(m));
    }
    return status;
}

static di_status drop_matrix(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err)
{
    (void)kind;
    (void)arg;
    (void)err;
    r->ops->weight_free(r->dev, m);
    return DI_OK;
}

static ops_expert expert_of(const mdl_expert_weights *w) { return (ops_expert){.w1 = &w->w1, .w2 = &w->w2, .w3 = &w->w3}; }

static int32_t n_blocks(const mdl_runner *r) { return r->c->n_layers + (r->draft ? r->c->draft.n_stages : 0); }

/* The experts of all layers and stages as the stages of a backend take them. */
static di_status list_experts(mdl_runner *r, di_error *err)
{
    r->experts = ar_calloc((size_t)n_blocks(r), sizeof *r->experts);
    for (int32_t l = 0; r->experts != NULL && l < n_blocks(r); l++) {
        const mdl_layer_weights *const w = l < r->c->n_layers ? &r->w.layers[l] : &r->w.draft.stages[l - r->c->n_layers];
        r->experts[l] = ar_calloc((size_t)w->n_experts, sizeof *r->experts[l]);
        if (r->experts[l] == NULL) {
            return err_memory(err, "expert list", (size_t)w->n_experts * sizeof *r->experts[l]);
        }
        for (int32_t e = 0; e < w->n_experts; e++) {
            r->experts[l][e] = expert_of(&w->experts[e]);
        }
    }
    return r->experts != NULL ? DI_OK : err_memory(err, "expert list", (size_t)n_blocks(r) * sizeof *r->experts);
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

/* --- Within a budget ---------------------------------------------------------------------------------------------------- */

static di_status count_copy(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err)
{
    (void)m;
    (void)arg;
    (void)err;
    r->n_copies += kind != MDL_EXPERT && kind != MDL_TABLE ? 1 : 0;
    return DI_OK;
}

/* The matrix as it is stored, in memory of the runner. */
static di_status copy_matrix(mdl_runner *r, ops_matrix *m, di_error *err)
{
    const size_t codes = code_bytes(m);
    const size_t scales = scale_bytes(m);
    uint8_t *const copy = malloc(codes + scales + 1);
    if (copy == NULL) {
        return err_memory(err, "weights", codes + scales);
    }
    r->copies[r->n_copies++] = copy;
    r->resident += codes + scales;
    memcpy(copy, m->data, codes);
    file_map_forget(m->data, codes);
    m->data = copy;
    if (scales > 0) {
        memcpy(copy + codes, m->scale, scales);
        m->scale = copy + codes;
    }
    return DI_OK;
}

static di_status keep_matrix(mdl_runner *r, ops_matrix *m, mdl_matrix_kind kind, void *arg, di_error *err)
{
    if (kind == MDL_EXPERT || kind == MDL_TABLE) {
        return DI_OK;
    }
    const size_t form = kind == MDL_DENSE ? r->ops->form_bytes(r->dev, m) : 0;
    const di_status status = load_matrix(r, m, kind, arg, err);
    if (status != DI_OK || m->packed == NULL) {
        return status == DI_OK ? copy_matrix(r, m, err) : status;
    }
    r->resident += form;
    return DI_OK;
}

/* How many Engram tables there are. */
static int32_t list_tables(const mdl_runner *r, ops_matrix tables[MDL_MAX_ENGRAM_LAYERS])
{
    for (int32_t i = 0; i < r->c->engram.n_layers; i++) {
        tables[i] = r->w.layers[r->c->engram.layers[i]].engram.table;
    }
    return r->c->engram.n_layers;
}

static size_t rows_bytes(const mdl_runner *r)
{
    ops_matrix tables[MDL_MAX_ENGRAM_LAYERS];
    const int32_t n = list_tables(r, tables);
    return mdl_rows_bytes(tables, n, r->model->engram.n_columns, r->max_rows);
}

static di_status open_rows(mdl_runner *r, di_error *err)
{
    ops_matrix tables[MDL_MAX_ENGRAM_LAYERS];
    const int32_t n = list_tables(r, tables);
    r->resident += rows_bytes(r);
    return n > 0 ? mdl_rows_new(tables, n, r->model->engram.n_columns, r->max_rows, r->reader, &r->rows, err) : DI_OK;
}

static double megabytes(size_t bytes) { return (double)bytes * 1e-6; }

/* Everything but experts and tables is in memory; the rest of the budget is for experts. */
static di_status load_part(mdl_runner *r, const load_plan *plan, di_error *err)
{
    const mdl_expert_group groups[MDL_EXPERT_GROUPS] = {
        {.layers = r->w.layers, .n_layers = r->c->n_layers, .n_experts = r->c->n_experts},
        {.layers = r->w.draft.stages, .n_layers = r->draft ? r->c->draft.n_stages : 0, .n_experts = r->c->draft.n_experts}};
    const size_t every_token = plan->resident + rows_bytes(r);
    const size_t least = MDL_STREAM_LEAST * mdl_stream_slot_bytes(r->ops, r->dev, groups);
    if (every_token + least > r->budget) {
        return err_set(err, DI_E_LIMIT,
                       "a RAM budget of %.1f MB is too small: this model needs %.1f MB, of which %.1f MB for every token and %.1f MB for "
                       "two experts at a time",
                       megabytes(r->budget), megabytes(every_token + least), megabytes(every_token), megabytes(least));
    }
    di_status status = open_rows(r, err);
    if (status == DI_OK) {
        (void)mdl_each_matrix(r, count_copy, NULL, NULL);
        r->copies = ar_calloc(r->n_copies, sizeof *r->copies);
        status = r->copies != NULL ? DI_OK : err_memory(err, "weights", r->n_copies * sizeof *r->copies);
        r->n_copies = 0;
    }
    if (status == DI_OK) {
        status = mdl_each_matrix(r, keep_matrix, NULL, err);
    }
    if (status == DI_OK) {
        const size_t left = r->budget > r->resident ? r->budget - r->resident : 0;
        status = mdl_stream_new(r->ops, r->dev, groups, r->reader, left, &r->stream, err);
    }
    return status;
}

/* Files are looked at before anything is read of them through the mapping. */
static di_status open_reader(mdl_runner *r, int64_t budget, const io_table *io, di_error *err)
{
    if (budget == 0) {
        return DI_OK;
    }
    r->budget = (size_t)budget;
    if (r->ops->form_bytes == NULL) {
        return err_set(err, DI_E_UNSUPPORTED, "backend %s has all weights on its device: no RAM budget", r->ops->name);
    }
    if (r->model->dir == NULL) {
        return err_set(err, DI_E_UNSUPPORTED,
                       "a model that is only in memory has no files to read weights from: write it to a folder first");
    }
    return mdl_reader_new(r->model->checkpoint, r->model->dir, io, &r->reader, err);
}

/* All in memory, or in a file that is mapped. */
static di_status load_all(mdl_runner *r, const mdl_runner_options *o, di_error *err)
{
    di_status status = o->weight_cache != NULL ? mdl_kept_open(r, o->weight_cache, o->io, &r->kept, err) : DI_OK;
    if (status == DI_OK) {
        status = mdl_each_matrix(r, load_matrix, NULL, err);
    }
    if (status == DI_OK) {
        mdl_kept_end(r->kept);
        status = list_experts(r, err);
    }
    return status;
}

/* Binds weights and decides what is to be in memory. */
static di_status load(mdl_runner *r, const mdl_runner_options *o, di_error *err)
{
    load_plan plan = {.resident = 0};
    di_status status = open_reader(r, o->ram_budget, o->io, err);
    if (status == DI_OK) {
        status = mdl_weights_bind(r->c, r->model->checkpoint, &r->w, err);
    }
    if (status == DI_OK) {
        status = place_vectors(r, err);
    }
    if (status != DI_OK) {
        return status;
    }
    if (o->ram_budget > 0) {
        (void)mdl_each_matrix(r, plan_matrix, &plan, NULL);
        if (plan.resident + plan.experts + plan.tables > r->budget) {
            if (o->weight_cache != NULL) {
                status = mdl_kept_without("with a RAM budget weights come from the checkpoint", &r->kept, err);
            }
            return status == DI_OK ? load_part(r, &plan, err) : status;
        }
        mdl_reader_free(r->reader); /* everything fits */
        r->reader = NULL;
    }
    return load_all(r, o, err);
}

di_status mdl_load(mdl_runner *r, const mdl_runner_options *options, di_error *err)
{
    const int64_t begin = clock_now_ns();
    const di_status status = load(r, options, err);
    r->load_ns = clock_now_ns() - begin;
    return status;
}

void mdl_unload(mdl_runner *r)
{
    mdl_reader_free(r->reader); /* waits for reads into what follows */
    mdl_stream_free(r->stream);
    mdl_rows_free(r->rows);
    r->ops->mem_free(r->dev, r->values);
    if (r->w.layers != NULL) {
        (void)mdl_each_matrix(r, drop_matrix, NULL, NULL);
    }
    mdl_kept_free(r->kept);
    for (size_t i = 0; i < r->n_copies && r->copies != NULL; i++) {
        free(r->copies[i]);
    }
    free(r->copies);
    for (int32_t l = 0; r->experts != NULL && l < n_blocks(r); l++) {
        free(r->experts[l]);
    }
    free(r->experts);
    mdl_weights_free(&r->w);
}

void mdl_runner_get_weight_stats(const mdl_runner *r, mdl_weight_stats *out)
{
    mdl_kept_get_stats(r->kept, out);
    out->load_ns = r->load_ns;
    if (r->ops->placement != NULL) {
        (void)snprintf(out->placement, sizeof out->placement, "%s", r->ops->placement(r->dev));
    }
}

void mdl_runner_get_stream_stats(const mdl_runner *r, mdl_stream_stats *out)
{
    *out = (mdl_stream_stats){.budget_bytes = 0};
    if (r->stream == NULL) {
        return;
    }
    out->budget_bytes = (int64_t)r->budget;
    out->resident_bytes = (int64_t)r->resident;
    out->engram_rows = r->rows != NULL ? mdl_rows_count(r->rows) : 0;
    out->read_bytes = mdl_reader_bytes(r->reader);
    out->wait_ns = mdl_reader_wait_ns(r->reader);
    mdl_stream_get_stats(r->stream, out);
}
