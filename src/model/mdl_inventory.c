/* mdl_inventory.c - see mdl_inventory.h. Read the tables beside model.md 2.2: a row is one tensor, or a quantised matrix with
 * its scale (`X` stands for X.weight and X.scale). Shapes are named sizes, computed once from the configuration. */
#include "model/mdl_inventory.h"

#include "model/mdl_weights.h"

#include <stdio.h>
#include <string.h>

typedef enum size_name {
    NONE, /* one-dimensional */
    ONE,
    THREE,
    VOCAB,
    HIDDEN,
    HEADS,
    HEAD_DIM,
    Q_LORA,
    Q_OUT, /* heads * head_dim */
    O_IN,  /* heads * head_dim / o_groups */
    O_OUT, /* o_groups * o_lora */
    MOE_INTER,
    EXPERTS, /* of the block at hand */
    HC,
    HC_MIX, /* (2 + hc) * hc */
    HC_IN,  /* hc * hidden */
    INDEX_HEADS,
    INDEX_DIM,
    INDEX_OUT, /* index_heads * index_dim */
    ENGRAM_ROWS, /* of the layer at hand */
    ENGRAM_DIM,
    ENGRAM_IN,  /* columns * engram head_dim */
    ENGRAM_OUT, /* hidden * (hc + 1) */
    TAPS_IN,    /* n_taps * hidden */
    MARKOV,
    CONFIDENCE_IN, /* hidden + markov_rank */
    V_HIDDEN,
    V_QKV,   /* 3 * V_HIDDEN */
    V_INTER,
    V_UP,    /* 2 * V_INTER */
    V_PATCH, /* 3 * patch_size^2 */
    V_MERGED, /* V_HIDDEN * downsample_ratio^2 */
    N_SIZES
} size_name;

typedef enum row_kind { VECTOR_BF16, VECTOR_F32, MATRIX_BF16, MATRIX_F32, MATRIX_FP8, MATRIX_FP8R, MATRIX_FP4 } row_kind;

/* Which blocks have the tensor. */
typedef enum row_when { ALWAYS, IN_KV_SOURCE, IN_RATIO_2_SOURCE, IN_INDEX_SOURCE, IN_ENGRAM_LAYER, IN_FIRST_STAGE, IN_LAST_STAGE } row_when;

typedef struct row {
    const char *name;
    row_kind kind;
    size_name n_out;
    size_name n_in;
    row_when when;
    size_t offset;
} row;

#define MODEL(member) offsetof(mdl_weights, member)
#define LAYER(member) offsetof(mdl_layer_weights, member)
#define EXPERT(member) offsetof(mdl_expert_weights, member)
#define DRAFT(member) offsetof(mdl_draft_weights, member)
#define VISION(member) offsetof(mdl_vision_weights, member)
#define BLOCK(member) offsetof(mdl_vision_block_weights, member)

static const row model_rows[] = {
    {"embed.weight", MATRIX_BF16, VOCAB, HIDDEN, ALWAYS, MODEL(embed)},
    {"head.weight", MATRIX_BF16, VOCAB, HIDDEN, ALWAYS, MODEL(head)},
    {"norm.weight", VECTOR_BF16, HIDDEN, NONE, ALWAYS, MODEL(norm)},
};

/* layers.L. and mtp.S. */
static const row layer_rows[] = {
    {"attn_norm.weight", VECTOR_BF16, HIDDEN, NONE, ALWAYS, LAYER(attn_norm)},
    {"ffn_norm.weight", VECTOR_BF16, HIDDEN, NONE, ALWAYS, LAYER(ffn_norm)},
    {"hc_attn_fn", MATRIX_F32, HC_MIX, HC_IN, ALWAYS, LAYER(hc_attn.fn)},
    {"hc_ffn_fn", MATRIX_F32, HC_MIX, HC_IN, ALWAYS, LAYER(hc_ffn.fn)},
    {"hc_attn_base", VECTOR_F32, HC_MIX, NONE, ALWAYS, LAYER(hc_attn.base)},
    {"hc_ffn_base", VECTOR_F32, HC_MIX, NONE, ALWAYS, LAYER(hc_ffn.base)},
    {"hc_attn_scale", VECTOR_F32, THREE, NONE, ALWAYS, LAYER(hc_attn.scale)},
    {"hc_ffn_scale", VECTOR_F32, THREE, NONE, ALWAYS, LAYER(hc_ffn.scale)},
    {"attn.attn_sink", VECTOR_F32, HEADS, NONE, ALWAYS, LAYER(attn_sink)},
    {"attn.wq_a", MATRIX_FP8, Q_LORA, HIDDEN, ALWAYS, LAYER(wq_a)},
    {"attn.q_norm.weight", VECTOR_BF16, Q_LORA, NONE, ALWAYS, LAYER(q_norm)},
    {"attn.wq_b", MATRIX_FP8, Q_OUT, Q_LORA, ALWAYS, LAYER(wq_b)},
    {"attn.wkv", MATRIX_FP8, HEAD_DIM, HIDDEN, ALWAYS, LAYER(wkv)},
    {"attn.kv_norm.weight", VECTOR_BF16, HEAD_DIM, NONE, ALWAYS, LAYER(kv_norm)},
    {"attn.wo_a", MATRIX_FP8, O_OUT, O_IN, ALWAYS, LAYER(wo_a)},
    {"attn.wo_b", MATRIX_FP8, HIDDEN, O_OUT, ALWAYS, LAYER(wo_b)},
    {"ffn.gate.weight", MATRIX_BF16, EXPERTS, HIDDEN, ALWAYS, LAYER(gate)},
    {"ffn.gate.bias", VECTOR_F32, EXPERTS, NONE, ALWAYS, LAYER(gate_bias)},
    {"ffn.gate.bias_vl", VECTOR_F32, EXPERTS, NONE, ALWAYS, LAYER(gate_bias_vl)},
    {"ffn.shared_experts.w1", MATRIX_FP8, MOE_INTER, HIDDEN, ALWAYS, LAYER(shared.w1)},
    {"ffn.shared_experts.w2", MATRIX_FP8, HIDDEN, MOE_INTER, ALWAYS, LAYER(shared.w2)},
    {"ffn.shared_experts.w3", MATRIX_FP8, MOE_INTER, HIDDEN, ALWAYS, LAYER(shared.w3)},
    {"attn.compressor.wkv.weight", MATRIX_BF16, HEAD_DIM, HIDDEN, IN_KV_SOURCE, LAYER(compressor.wkv)},
    {"attn.compressor.wgate.weight", MATRIX_BF16, HEAD_DIM, HIDDEN, IN_RATIO_2_SOURCE, LAYER(compressor.wgate)},
    {"attn.compressor.norm.weight", VECTOR_BF16, HEAD_DIM, NONE, IN_KV_SOURCE, LAYER(compressor.norm)},
    {"attn.indexer.wk.weight", MATRIX_BF16, INDEX_DIM, HEAD_DIM, IN_KV_SOURCE, LAYER(compressor.index_wk)},
    {"attn.indexer.k_norm.weight", VECTOR_BF16, INDEX_DIM, NONE, IN_KV_SOURCE, LAYER(compressor.index_k_norm)},
    {"attn.indexer.wq_b", MATRIX_FP8, INDEX_OUT, Q_LORA, IN_INDEX_SOURCE, LAYER(indexer.wq_b)},
    {"attn.indexer.weights_proj.weight", MATRIX_BF16, INDEX_HEADS, HIDDEN, IN_INDEX_SOURCE, LAYER(indexer.weights_proj)},
    {"engram.embed", MATRIX_FP8R, ENGRAM_ROWS, ENGRAM_DIM, IN_ENGRAM_LAYER, LAYER(engram.table)},
    {"engram.wkv", MATRIX_FP8, ENGRAM_OUT, ENGRAM_IN, IN_ENGRAM_LAYER, LAYER(engram.wkv)},
    {"engram.q_weight", VECTOR_BF16, HC, HIDDEN, IN_ENGRAM_LAYER, LAYER(engram.q_weight)},
    {"engram.k_weight", VECTOR_BF16, HC, HIDDEN, IN_ENGRAM_LAYER, LAYER(engram.k_weight)},
};

/* layers.L.ffn.experts.E. and mtp.S.ffn.experts.E. */
static const row expert_rows[] = {
    {"w1", MATRIX_FP4, MOE_INTER, HIDDEN, ALWAYS, EXPERT(w1)},
    {"w2", MATRIX_FP4, HIDDEN, MOE_INTER, ALWAYS, EXPERT(w2)},
    {"w3", MATRIX_FP4, MOE_INTER, HIDDEN, ALWAYS, EXPERT(w3)},
};

/* mtp.S., first or last stage only. */
static const row draft_rows[] = {
    {"main_proj", MATRIX_FP8, HIDDEN, TAPS_IN, IN_FIRST_STAGE, DRAFT(main_proj)},
    {"main_norm.weight", VECTOR_BF16, HIDDEN, NONE, IN_FIRST_STAGE, DRAFT(main_norm)},
    {"norm.weight", VECTOR_BF16, HIDDEN, NONE, IN_LAST_STAGE, DRAFT(norm)},
    {"markov_head.embed.weight", MATRIX_BF16, VOCAB, MARKOV, IN_LAST_STAGE, DRAFT(markov_embed)},
    {"markov_head.head.weight", MATRIX_BF16, VOCAB, MARKOV, IN_LAST_STAGE, DRAFT(markov_head)},
    {"confidence_head.proj.weight", MATRIX_BF16, ONE, CONFIDENCE_IN, IN_LAST_STAGE, DRAFT(confidence_proj)},
};

static const row vision_rows[] = {
    {"vision.patch_embed.proj.weight", MATRIX_BF16, V_HIDDEN, V_PATCH, ALWAYS, VISION(patch_proj)},
    {"vision.patch_embed.proj.bias", VECTOR_BF16, V_HIDDEN, NONE, ALWAYS, VISION(patch_bias)},
    {"vision.norm.weight", VECTOR_BF16, V_HIDDEN, NONE, ALWAYS, VISION(norm)},
    {"aligner.w1.weight", MATRIX_BF16, HIDDEN, V_MERGED, ALWAYS, VISION(aligner_w1)},
    {"aligner.w1.bias", VECTOR_BF16, HIDDEN, NONE, ALWAYS, VISION(aligner_w1_bias)},
    {"aligner.w2.weight", MATRIX_BF16, HIDDEN, HIDDEN, ALWAYS, VISION(aligner_w2)},
    {"aligner.w2.bias", VECTOR_BF16, HIDDEN, NONE, ALWAYS, VISION(aligner_w2_bias)},
    {"image_start", VECTOR_BF16, HIDDEN, NONE, ALWAYS, VISION(image_start)},
    {"image_end", VECTOR_BF16, HIDDEN, NONE, ALWAYS, VISION(image_end)},
    {"image_newline", VECTOR_BF16, HIDDEN, NONE, ALWAYS, VISION(image_newline)},
};

/* vision.blocks.B. */
static const row block_rows[] = {
    {"norm1.weight", VECTOR_BF16, V_HIDDEN, NONE, ALWAYS, BLOCK(norm1)},
    {"attn.wqkv.weight", MATRIX_BF16, V_QKV, V_HIDDEN, ALWAYS, BLOCK(wqkv)},
    {"attn.wqkv.bias", VECTOR_BF16, V_QKV, NONE, ALWAYS, BLOCK(wqkv_bias)},
    {"attn.wo.weight", MATRIX_BF16, V_HIDDEN, V_HIDDEN, ALWAYS, BLOCK(wo)},
    {"attn.wo.bias", VECTOR_BF16, V_HIDDEN, NONE, ALWAYS, BLOCK(wo_bias)},
    {"norm2.weight", VECTOR_BF16, V_HIDDEN, NONE, ALWAYS, BLOCK(norm2)},
    {"mlp.w1.weight", MATRIX_BF16, V_UP, V_HIDDEN, ALWAYS, BLOCK(w1)},
    {"mlp.w2.weight", MATRIX_BF16, V_HIDDEN, V_INTER, ALWAYS, BLOCK(w2)},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef struct walk {
    const mdl_config *config;
    mdl_tensor_fn fn;
    void *arg;
    int64_t sizes[N_SIZES];
    mdl_scope scope;
    int32_t layer;
    int32_t expert;
    char prefix[48];
} walk;

static void set_sizes(const mdl_config *c, int64_t *s)
{
    const mdl_vision_config *const v = &c->vision;
    const int64_t columns = (int64_t)(c->engram.max_ngram - 1) * c->engram.n_heads;
    s[NONE] = 1;
    s[ONE] = 1;
    s[THREE] = 3;
    s[VOCAB] = c->vocab;
    s[HIDDEN] = c->hidden;
    s[HEADS] = c->n_heads;
    s[HEAD_DIM] = c->head_dim;
    s[Q_LORA] = c->q_lora;
    s[Q_OUT] = (int64_t)c->n_heads * c->head_dim;
    s[O_IN] = (int64_t)c->n_heads * c->head_dim / c->o_groups;
    s[O_OUT] = (int64_t)c->o_groups * c->o_lora;
    s[MOE_INTER] = c->moe_inter;
    s[EXPERTS] = c->n_experts;
    s[HC] = c->hc;
    s[HC_MIX] = (int64_t)(2 + c->hc) * c->hc;
    s[HC_IN] = (int64_t)c->hc * c->hidden;
    s[INDEX_HEADS] = c->index_heads;
    s[INDEX_DIM] = c->index_dim;
    s[INDEX_OUT] = (int64_t)c->index_heads * c->index_dim;
    s[ENGRAM_ROWS] = 0;
    s[ENGRAM_DIM] = c->engram.head_dim;
    s[ENGRAM_IN] = columns * c->engram.head_dim;
    s[ENGRAM_OUT] = (int64_t)c->hidden * (c->hc + 1);
    s[TAPS_IN] = (int64_t)c->draft.n_taps * c->hidden;
    s[MARKOV] = c->draft.markov_rank;
    s[CONFIDENCE_IN] = (int64_t)c->hidden + c->draft.markov_rank;
    s[V_HIDDEN] = v->hidden;
    s[V_QKV] = 3 * (int64_t)v->hidden;
    s[V_INTER] = v->intermediate;
    s[V_UP] = 2 * (int64_t)v->intermediate;
    s[V_PATCH] = 3 * (int64_t)v->patch_size * v->patch_size;
    s[V_MERGED] = (int64_t)v->hidden * v->downsample_ratio * v->downsample_ratio;
}

static const int64_t *engram_rows_of(const mdl_config *c, int32_t layer)
{
    for (int32_t i = 0; i < c->engram.n_layers; i++) {
        if (c->engram.layers[i] == layer) {
            return &c->engram.n_rows[i];
        }
    }
    return NULL;
}

static bool row_applies(const walk *w, row_when when)
{
    const mdl_config *const c = w->config;
    const bool backbone = w->scope == MDL_IN_LAYER;
    switch (when) {
    case IN_KV_SOURCE:
        return backbone && mdl_is_kv_source(c, w->layer);
    case IN_RATIO_2_SOURCE:
        return backbone && mdl_is_kv_source(c, w->layer) && c->ratio[w->layer] == 2;
    case IN_INDEX_SOURCE:
        return backbone && mdl_is_index_source(c, w->layer);
    case IN_ENGRAM_LAYER:
        return backbone && engram_rows_of(c, w->layer) != NULL;
    case IN_FIRST_STAGE:
        return w->layer == 0;
    case IN_LAST_STAGE:
        return w->layer == c->draft.n_stages - 1;
    default:
        return true;
    }
}

static di_status emit(walk *w, mdl_tensor *t, const char *name, const char *suffix, di_error *err)
{
    snprintf(t->name, sizeof t->name, "%s%s%s", w->prefix, name, suffix);
    return w->fn(w->arg, t, err);
}

static int64_t blocks_of_32(int64_t n)
{
    return (n + 31) / 32;
}

/* A quantised matrix: model.md 2.3. */
static di_status emit_quantised(walk *w, mdl_tensor *t, const row *r, di_error *err)
{
    const bool fp4 = r->kind == MATRIX_FP4;
    t->format = fp4 ? OPS_FP4 : r->kind == MATRIX_FP8R ? OPS_FP8R : OPS_FP8;
    t->dtype = fp4 ? ST_I8 : ST_F8_E4M3;
    t->dims[1] = fp4 ? t->n_in / 2 : t->n_in;
    const di_status status = emit(w, t, r->name, ".weight", err);
    if (status != DI_OK) {
        return status;
    }
    t->role = MDL_SCALE;
    t->dtype = ST_F8_E8M0;
    t->dims[0] = r->kind == MATRIX_FP8 ? blocks_of_32(t->n_out) : t->n_out;
    t->dims[1] = blocks_of_32(t->n_in);
    return emit(w, t, r->name, ".scale", err);
}

static di_status emit_row(walk *w, const row *r, di_error *err)
{
    mdl_tensor t = {.scope = w->scope, .layer = w->layer, .expert = w->expert, .offset = r->offset};
    t.n_out = w->sizes[r->n_out];
    t.n_in = w->sizes[r->n_in];
    t.n_dims = r->n_in == NONE ? 1 : 2;
    t.dims[0] = t.n_out;
    t.dims[1] = t.n_in;
    t.role = r->kind == VECTOR_BF16 || r->kind == VECTOR_F32 ? MDL_VECTOR : MDL_MATRIX;
    if (r->kind == MATRIX_FP8 || r->kind == MATRIX_FP8R || r->kind == MATRIX_FP4) {
        return emit_quantised(w, &t, r, err);
    }
    const bool f32 = r->kind == VECTOR_F32 || r->kind == MATRIX_F32;
    t.dtype = f32 ? ST_F32 : ST_BF16;
    t.format = f32 ? OPS_F32 : OPS_BF16;
    return emit(w, &t, r->name, "", err);
}

static di_status emit_rows(walk *w, const row *rows, size_t n, di_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (row_applies(w, rows[i].when)) {
            const di_status status = emit_row(w, &rows[i], err);
            if (status != DI_OK) {
                return status;
            }
        }
    }
    return DI_OK;
}

/* One block with its experts: layers.L. or mtp.S. */
static di_status emit_block(walk *w, const char *family, mdl_scope scope, mdl_scope expert_scope, int32_t layer, int32_t n_experts,
                            di_error *err)
{
    w->scope = scope;
    w->layer = layer;
    w->sizes[EXPERTS] = n_experts;
    const int64_t *const engram_rows = engram_rows_of(w->config, layer);
    w->sizes[ENGRAM_ROWS] = engram_rows != NULL ? *engram_rows : 0;
    snprintf(w->prefix, sizeof w->prefix, "%s.%d.", family, layer);
    di_status status = emit_rows(w, layer_rows, COUNT(layer_rows), err);
    w->scope = expert_scope;
    for (int32_t e = 0; status == DI_OK && e < n_experts; e++) {
        w->expert = e;
        snprintf(w->prefix, sizeof w->prefix, "%s.%d.ffn.experts.%d.", family, layer, e);
        status = emit_rows(w, expert_rows, COUNT(expert_rows), err);
    }
    w->expert = 0;
    return status;
}

static di_status emit_draft(walk *w, di_error *err)
{
    const mdl_draft_config *const d = &w->config->draft;
    di_status status = DI_OK;
    for (int32_t stage = 0; status == DI_OK && stage < d->n_stages; stage++) {
        status = emit_block(w, "mtp", MDL_IN_STAGE, MDL_IN_STAGE_EXPERT, stage, d->n_experts, err);
        if (status == DI_OK) {
            w->scope = MDL_IN_DRAFT;
            snprintf(w->prefix, sizeof w->prefix, "mtp.%d.", stage);
            status = emit_rows(w, draft_rows, COUNT(draft_rows), err);
        }
    }
    return status;
}

static di_status emit_vision(walk *w, di_error *err)
{
    w->scope = MDL_IN_VISION;
    w->layer = 0;
    w->prefix[0] = '\0';
    di_status status = emit_rows(w, vision_rows, COUNT(vision_rows), err);
    w->scope = MDL_IN_VISION_BLOCK;
    for (int32_t block = 0; status == DI_OK && block < w->config->vision.n_layers; block++) {
        w->layer = block;
        snprintf(w->prefix, sizeof w->prefix, "vision.blocks.%d.", block);
        status = emit_rows(w, block_rows, COUNT(block_rows), err);
    }
    return status;
}

di_status mdl_inventory_walk(const mdl_config *config, mdl_tensor_fn fn, void *arg, di_error *err)
{
    walk w = {.config = config, .fn = fn, .arg = arg, .scope = MDL_IN_MODEL};
    set_sizes(config, w.sizes);
    di_status status = emit_rows(&w, model_rows, COUNT(model_rows), err);
    for (int32_t layer = 0; status == DI_OK && layer < config->n_layers; layer++) {
        status = emit_block(&w, "layers", MDL_IN_LAYER, MDL_IN_LAYER_EXPERT, layer, config->n_experts, err);
    }
    if (status == DI_OK) {
        status = emit_draft(&w, err);
    }
    return status == DI_OK && config->vision.present ? emit_vision(&w, err) : status;
}

static di_status add_up(void *arg, const mdl_tensor *t, di_error *err)
{
    (void)err;
    uint64_t *const totals = arg;
    totals[0]++;
    totals[1] += (uint64_t)t->dims[0] * (t->n_dims == 2 ? (uint64_t)t->dims[1] : 1) * st_dtype_bytes(t->dtype);
    return DI_OK;
}

void mdl_inventory_totals(const mdl_config *config, uint64_t *n_tensors, uint64_t *n_bytes)
{
    uint64_t totals[2] = {0, 0};
    mdl_inventory_walk(config, add_up, totals, NULL);
    *n_tensors = totals[0];
    *n_bytes = totals[1];
}

void mdl_shape_text(st_dtype dtype, int n_dims, const int64_t *dims, char *out, size_t size)
{
    int used = snprintf(out, size, "%s [", st_dtype_name(dtype));
    for (int i = 0; i < n_dims && used >= 0 && (size_t)used < size; i++) {
        used += snprintf(out + used, size - (size_t)used, "%s%lld", i > 0 ? ", " : "", (long long)dims[i]);
    }
    if (used >= 0 && (size_t)used < size) {
        snprintf(out + used, size - (size_t)used, "]");
    }
}
