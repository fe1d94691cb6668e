/* mdl_config_rules.c - what several values of config.json must satisfy together (model.md 1.2, 1.5), and the source of every
 * layer: kv_source(L) and index_source(L) are the last sources at or before L, and must have the ratio of L. */
#include "core/err.h"
#include "model/mdl_config_int.h"

static di_status require_at_most(int32_t value, const char *key, int32_t limit, const char *limit_key, di_error *err)
{
    if (value <= limit) {
        return DI_OK;
    }
    return err_set(err, DI_E_FORMAT, "%s: %s is %d: must be at most %s (%d)", MDL_CONFIG_NAME, key, value, limit_key, limit);
}

static di_status require_divides(int32_t part, const char *key, int32_t whole, const char *whole_key, di_error *err)
{
    if (whole % part == 0) {
        return DI_OK;
    }
    return err_set(err, DI_E_FORMAT, "%s: %s is %d: must divide %s (%d)", MDL_CONFIG_NAME, key, part, whole_key, whole);
}

static di_status require_token(int32_t id, const char *key, const mdl_config *c, di_error *err)
{
    if (id < c->vocab) {
        return DI_OK;
    }
    return err_set(err, DI_E_FORMAT, "%s: %s is %d: must be below text_config.vocab_size (%d)", MDL_CONFIG_NAME, key, id, c->vocab);
}

static di_status check_tokens(const mdl_config *c, di_error *err)
{
    di_status status = require_token(c->bos_token_id, "bos_token_id", c, err);
    if (status == DI_OK) {
        status = require_token(c->eos_token_id, "eos_token_id", c, err);
    }
    if (status == DI_OK) {
        status = require_token(c->pad_token_id, "pad_token_id", c, err);
    }
    if (status == DI_OK) {
        status = require_token(c->image_token_id, "image_token_id", c, err);
    }
    if (status == DI_OK && c->draft.n_stages > 0) {
        status = require_token(c->draft.noise_token_id, "text_config.dspark_noise_token_id", c, err);
    }
    if (status == DI_OK && c->engram.n_layers > 0) {
        status = require_token(c->engram.pad_token_id, "text_config.engram_pad_token_id", c, err);
    }
    return status;
}

static di_status check_sizes(const mdl_config *c, di_error *err)
{
    di_status status = require_at_most(c->rope_dim, "text_config.qk_rope_head_dim", c->head_dim, "head_dim", err);
    if (status == DI_OK) {
        status = require_at_most(c->rope_dim, "text_config.qk_rope_head_dim", c->index_dim, "index_head_dim", err);
    }
    if (status == DI_OK) {
        status = require_divides(c->o_groups, "text_config.o_groups", c->n_heads, "num_attention_heads", err);
    }
    if (status == DI_OK) {
        status = require_at_most(c->n_active_experts, "text_config.num_experts_per_tok", c->n_experts, "n_routed_experts", err);
    }
    if (status == DI_OK && c->draft.n_stages > 0) {
        status = require_at_most(c->draft.n_active_experts, "text_config.dspark_num_experts_per_tok", c->draft.n_experts,
                                 "dspark_n_routed_experts", err);
    }
    if (status == DI_OK && c->engram.n_layers > 0) {
        status = require_at_most(c->engram.compressed_vocab, "text_config.engram_compressed_vocab_size", c->vocab, "vocab_size", err);
    }
    if (status == DI_OK && c->engram.n_layers > 0 && (c->engram.max_ngram - 1) * c->engram.n_heads > MDL_MAX_ENGRAM_COLUMNS) {
        status = err_set(err, DI_E_UNSUPPORTED,
                         "%s: text_config.engram_n_heads is %d: (engram_max_ngram_size - 1) * engram_n_heads must be at most %d",
                         MDL_CONFIG_NAME, c->engram.n_heads, MDL_MAX_ENGRAM_COLUMNS);
    }
    if (status == DI_OK && c->n_layers + c->draft.n_stages > MDL_MAX_LAYERS) {
        status = err_set(err, DI_E_UNSUPPORTED, "%s: %d backbone and %d draft layers: at most %d together are supported",
                         MDL_CONFIG_NAME, c->n_layers, c->draft.n_stages, MDL_MAX_LAYERS);
    }
    return status;
}

/* Largest entry of the rising list `sources` that is <= layer, or -1. */
static int32_t last_source(const int32_t *sources, int32_t n, int32_t layer)
{
    int32_t found = -1;
    for (int32_t i = 0; i < n && sources[i] <= layer; i++) {
        found = sources[i];
    }
    return found;
}

static di_status check_source(const mdl_config *c, int32_t layer, int32_t source, const char *key, di_error *err)
{
    if (source < 0) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.%s: layer %d has compress_ratio %d but no source at or before it",
                       MDL_CONFIG_NAME, key, layer, c->ratio[layer]);
    }
    if (c->ratio[source] != c->ratio[layer]) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.%s: layer %d has compress_ratio %d, but its source, layer %d, has %d",
                       MDL_CONFIG_NAME, key, layer, c->ratio[layer], source, c->ratio[source]);
    }
    return DI_OK;
}

static di_status check_sources_compress(const mdl_config *c, const int32_t *sources, int32_t n, const char *key, di_error *err)
{
    for (int32_t i = 0; i < n; i++) {
        if (c->ratio[sources[i]] == 0) {
            return err_set(err, DI_E_FORMAT, "%s: text_config.%s[%d] is %d: that layer has compress_ratio 0 and cannot be a source",
                           MDL_CONFIG_NAME, key, i, sources[i]);
        }
    }
    return DI_OK;
}

static di_status derive_sources(mdl_config *c, di_error *err)
{
    di_status status = check_sources_compress(c, c->kv_sources, c->n_kv_sources, "kv_source_layer_ids", err);
    if (status == DI_OK) {
        status = check_sources_compress(c, c->index_sources, c->n_index_sources, "index_source_layer_ids", err);
    }
    const int32_t n = c->n_layers + c->draft.n_stages;
    for (int32_t layer = 0; status == DI_OK && layer < n; layer++) {
        c->kv_source[layer] = -1;
        c->index_source[layer] = -1;
        if (c->ratio[layer] == 0) {
            continue;
        }
        if (layer >= c->n_layers) {
            return err_set(err, DI_E_UNSUPPORTED, "%s: text_config.compress_ratios[%d] is %d: must be 0 for a draft layer",
                           MDL_CONFIG_NAME, layer, c->ratio[layer]);
        }
        c->kv_source[layer] = last_source(c->kv_sources, c->n_kv_sources, layer);
        c->index_source[layer] = last_source(c->index_sources, c->n_index_sources, layer);
        status = check_source(c, layer, c->kv_source[layer], "kv_source_layer_ids", err);
        if (status == DI_OK) {
            status = check_source(c, layer, c->index_source[layer], "index_source_layer_ids", err);
        }
    }
    return status;
}

/* The candidate layer chooses blocks of its own entries; later index sources filter with them, so they must see the same ones. */
static di_status check_candidates(const mdl_config *c, di_error *err)
{
    const int32_t layer = c->candidate_layer;
    if (layer < 0) {
        return DI_OK;
    }
    if (layer >= c->n_layers || c->index_source[layer] != layer) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.candidate_source_layer_id is %d: must be one of index_source_layer_ids",
                       MDL_CONFIG_NAME, layer);
    }
    for (int32_t i = 0; i < c->n_index_sources; i++) {
        const int32_t later = c->index_sources[i];
        if (later > layer && c->kv_source[later] != c->kv_source[layer]) {
            return err_set(err, DI_E_FORMAT,
                           "%s: text_config.candidate_source_layer_id is %d: index source %d after it reads another KV source (%d, not %d)",
                           MDL_CONFIG_NAME, layer, later, c->kv_source[later], c->kv_source[layer]);
        }
    }
    return DI_OK;
}

static di_status check_vision(const mdl_config *c, di_error *err)
{
    const mdl_vision_config *const v = &c->vision;
    if (!v->present) {
        return DI_OK;
    }
    if (c->image_token_id < 0) {
        return err_set(err, DI_E_FORMAT, "%s: image_token_id is missing, but there is a vision_config", MDL_CONFIG_NAME);
    }
    /* Half of a head rotates with the row, half with the column, in pairs (vision.md 3). */
    if (v->hidden % v->n_heads != 0 || v->hidden / v->n_heads % 4 != 0) {
        return err_set(err, DI_E_FORMAT,
                       "%s: vision_config.num_attention_heads is %d: hidden_size (%d) divided by it must be a multiple of 4",
                       MDL_CONFIG_NAME, v->n_heads, v->hidden);
    }
    return DI_OK;
}

di_status mdl_config_relate(mdl_config *c, di_error *err)
{
    di_status status = check_tokens(c, err);
    if (status == DI_OK) {
        status = check_sizes(c, err);
    }
    if (status == DI_OK) {
        status = derive_sources(c, err);
    }
    if (status == DI_OK) {
        status = check_candidates(c, err);
    }
    if (status == DI_OK) {
        status = check_vision(c, err);
    }
    return status;
}
