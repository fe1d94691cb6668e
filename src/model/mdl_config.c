/* mdl_config.c - reading config.json value by value; see mdl_config.h. The tables below are model.md 1.1-1.4 as far as the code
 * needs them: key, place in mdl_config, range. The upper limits are far above any real model; they exist so that no later product
 * of two of these values can overflow. What involves several values is checked in mdl_config_rules.c.
 *
 * Unknown keys are ignored, except those that would change the numbers this code computes: `fixed_*` lists them with the only
 * value supported. */
#include "model/mdl_config.h"

#include "core/err.h"
#include "core/file.h"
#include "core/json.h"
#include "model/mdl_config_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

typedef enum field_kind { INT32, FLOAT, DOUBLE } field_kind;

/* A number of the configuration. `multiple` is 0 where any value of the range will do. */
typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
    double low;
    double high;
    int32_t multiple;
    bool optional;
    double fallback;
} field;

#define AT(member) offsetof(mdl_config, member)

static const field top_fields[] = {
    {"bos_token_id", INT32, AT(bos_token_id), 0, 1 << 24, 0, false, 0},
    {"eos_token_id", INT32, AT(eos_token_id), 0, 1 << 24, 0, false, 0},
    {"pad_token_id", INT32, AT(pad_token_id), 0, 1 << 24, 0, false, 0},
    {"image_token_id", INT32, AT(image_token_id), 0, 1 << 24, 0, true, -1},
};

static const field text_fields[] = {
    {"vocab_size", INT32, AT(vocab), 1, 1 << 24, 0, false, 0},
    {"hidden_size", INT32, AT(hidden), 32, 1 << 16, 32, false, 0},
    {"moe_intermediate_size", INT32, AT(moe_inter), 32, 1 << 16, 32, false, 0},
    {"num_hidden_layers", INT32, AT(n_layers), 1, MDL_MAX_LAYERS, 0, false, 0},
    {"num_attention_heads", INT32, AT(n_heads), 1, 1024, 0, false, 0},
    {"head_dim", INT32, AT(head_dim), 32, 4096, 32, false, 0},
    {"qk_rope_head_dim", INT32, AT(rope_dim), 2, OPS_MAX_ROPE_DIM, 2, false, 0},
    {"q_lora_rank", INT32, AT(q_lora), 32, 1 << 16, 32, false, 0},
    {"o_lora_rank", INT32, AT(o_lora), 32, 1 << 16, 32, false, 0},
    {"o_groups", INT32, AT(o_groups), 1, 1024, 0, false, 0},
    {"swiglu_limit", FLOAT, AT(swiglu_limit), 1e-6, 1e30, 0, false, 0},
    {"rms_norm_eps", FLOAT, AT(norm_eps), 1e-37, 1, 0, false, 0},
    {"max_position_embeddings", INT32, AT(max_positions), 1, 1 << 27, 0, false, 0},
    {"rope_theta", DOUBLE, AT(rope.theta), 1, 1e12, 0, false, 0},
    {"compress_rope_theta", DOUBLE, AT(rope.compress_theta), 1.001, 1e12, 0, false, 0},
    {"n_routed_experts", INT32, AT(n_experts), 1, 4096, 0, false, 0},
    {"num_experts_per_tok", INT32, AT(n_active_experts), 1, 4096, 0, false, 0},
    {"routed_scaling_factor", FLOAT, AT(routed_scale), 1e-6, 1e6, 0, false, 0},
    {"sliding_window", INT32, AT(window), 1, 1 << 16, 0, false, 0},
    {"index_n_heads", INT32, AT(index_heads), 1, 1024, 0, false, 0},
    {"index_head_dim", INT32, AT(index_dim), 32, OPS_MAX_INDEX_DIM, 32, false, 0},
    {"index_topk", INT32, AT(index_topk), 1, 1 << 16, 0, false, 0},
    {"candidate_source_layer_id", INT32, AT(candidate_layer), -1, MDL_MAX_LAYERS - 1, 0, true, -1},
    {"candidate_topk_blocks", INT32, AT(candidate_blocks), 1, 1 << 20, 0, true, 2048},
    {"candidate_block_size", INT32, AT(candidate_block_size), 1, 1 << 16, 0, true, 8},
    {"hc_mult", INT32, AT(hc), 1, MDL_MAX_HC, 0, false, 0},
    {"hc_sinkhorn_iters", INT32, AT(hc_iters), 1, 1000, 0, true, 20},
    {"hc_eps", FLOAT, AT(hc_eps), 1e-30, 1, 0, true, 1e-6},
    {"num_nextn_predict_layers", INT32, AT(draft.n_stages), 0, MDL_MAX_LAYERS, 0, true, 0},
};

static const field yarn_fields[] = {
    {"factor", DOUBLE, AT(rope.factor), 1, 1e6, 0, false, 0},
    {"beta_fast", DOUBLE, AT(rope.beta_fast), 1e-3, 1e6, 0, false, 0},
    {"beta_slow", DOUBLE, AT(rope.beta_slow), 1e-3, 1e6, 0, false, 0},
    {"original_max_position_embeddings", INT32, AT(rope.original_positions), 1, 1 << 27, 0, false, 0},
};

/* Read only when there are Engram layers. */
static const field engram_fields[] = {
    {"engram_max_ngram_size", INT32, AT(engram.max_ngram), 2, MDL_MAX_NGRAM, 0, false, 0},
    {"engram_n_heads", INT32, AT(engram.n_heads), 1, MDL_MAX_ENGRAM_COLUMNS, 0, false, 0},
    {"engram_head_dim", INT32, AT(engram.head_dim), 32, 4096, 32, false, 0},
    {"engram_vocab_size", INT32, AT(engram.vocab_start), 2, 1 << 30, 0, false, 0},
    {"engram_pad_token_id", INT32, AT(engram.pad_token_id), 0, 1 << 24, 0, true, 2},
    {"engram_compressed_vocab_size", INT32, AT(engram.compressed_vocab), 1, 1 << 24, 0, false, 0},
};

/* Read only when there are draft stages. */
static const field draft_fields[] = {
    {"dspark_block_size", INT32, AT(draft.block_size), 1, MDL_MAX_BLOCK, 0, false, 0},
    {"dspark_noise_token_id", INT32, AT(draft.noise_token_id), 0, 1 << 24, 0, false, 0},
    {"dspark_markov_rank", INT32, AT(draft.markov_rank), 1, 1 << 16, 0, false, 0},
    {"dspark_n_routed_experts", INT32, AT(draft.n_experts), 1, 4096, 0, false, 0},
    {"dspark_num_experts_per_tok", INT32, AT(draft.n_active_experts), 1, 4096, 0, false, 0},
};

static const field vision_fields[] = {
    {"num_hidden_layers", INT32, AT(vision.n_layers), 1, 512, 0, false, 0},
    {"hidden_size", INT32, AT(vision.hidden), 4, 1 << 14, 4, false, 0},
    {"num_attention_heads", INT32, AT(vision.n_heads), 1, 1024, 0, false, 0},
    {"intermediate_size", INT32, AT(vision.intermediate), 1, 1 << 16, 0, false, 0},
    {"patch_size", INT32, AT(vision.patch_size), 1, 256, 0, false, 0},
    {"rope_theta", DOUBLE, AT(vision.rope_theta), 1, 1e12, 0, false, 0},
    {"downsample_ratio", INT32, AT(vision.downsample_ratio), 1, 16, 0, false, 0},
    {"max_image_tokens", INT32, AT(vision.max_image_tokens), 1, 1 << 16, 0, false, 0},
    {"min_pixels", INT32, AT(vision.min_pixels), 1, 1 << 30, 0, false, 0},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* A key that this code supports with one value only. Absent means that value. */
typedef struct fixed {
    const char *key;
    js_kind kind; /* JS_STRING, JS_BOOL or JS_INT (compared as a number) */
    const char *text;
    int number; /* or boolean */
} fixed;

static const fixed fixed_top[] = {
    {"model_type", JS_STRING, "deepseek_v41", 0},
    {"dtype", JS_STRING, "bfloat16", 0},
    {"tie_word_embeddings", JS_BOOL, NULL, 0},
};

static const fixed fixed_text[] = {
    {"model_type", JS_STRING, "deepseek_v41_text", 0},
    {"hidden_act", JS_STRING, "silu", 0},
    {"scoring_func", JS_STRING, "sqrtsoftplus", 0},
    {"topk_method", JS_STRING, "noaux_tc", 0},
    {"attention_bias", JS_BOOL, NULL, 0},
    {"mlp_bias", JS_BOOL, NULL, 0},
    {"tie_word_embeddings", JS_BOOL, NULL, 0},
    {"norm_topk_prob", JS_BOOL, NULL, 1},
    {"num_key_value_heads", JS_INT, NULL, 1},
    {"n_shared_experts", JS_INT, NULL, 1},
    {"gate_temp", JS_INT, NULL, 1},
    {"n_group", JS_INT, NULL, 1},
    {"topk_group", JS_INT, NULL, 1},
    {"first_k_dense_replace", JS_INT, NULL, 0},
    {"moe_layer_freq", JS_INT, NULL, 1},
};

static const fixed fixed_yarn[] = {
    {"rope_type", JS_STRING, "yarn", 0}, {"type", JS_STRING, "yarn", 0},        {"mscale", JS_INT, NULL, 1},
    {"mscale_all_dim", JS_INT, NULL, 1}, {"attention_factor", JS_INT, NULL, 1},
};

static const fixed fixed_quantization[] = {
    {"quant_method", JS_STRING, "fp8", 0},
    {"activation_scheme", JS_STRING, "dynamic", 0},
    {"scale_fmt", JS_STRING, "ue8m0", 0},
    {"expert_dtype", JS_STRING, "fp4", 0},
};

static const fixed fixed_vision[] = {
    {"model_type", JS_STRING, "deepseek_v41_vision", 0},
};

/* Text of a value as messages show it: the number, the string in quotes, or what kind of thing it is. */
static const char *show(const js_value *value, char *out, size_t size)
{
    switch (js_kind_of(value)) {
    case JS_INT:
    case JS_NUMBER:
        snprintf(out, size, "%s", js_spelling(value, NULL));
        break;
    case JS_STRING:
        snprintf(out, size, "\"%s\"", js_string(value, NULL));
        break;
    case JS_BOOL:
        snprintf(out, size, "%s", js_bool(value) ? "true" : "false");
        break;
    default:
        snprintf(out, size, "%s", js_kind_name(js_kind_of(value)));
        break;
    }
    return out;
}

static di_status range_error(const field *f, const char *path, const js_value *value, di_error *err)
{
    char shown[48];
    show(value, shown, sizeof shown);
    if (f->kind != INT32) {
        return err_set(err, DI_E_FORMAT, "%s: %s%s is %s: must be a number from %g to %g", MDL_CONFIG_NAME, path, f->key, shown,
                       f->low, f->high);
    }
    if (f->multiple > 1) {
        return err_set(err, DI_E_FORMAT, "%s: %s%s is %s: must be a multiple of %d from %.0f to %.0f", MDL_CONFIG_NAME, path, f->key,
                       shown, f->multiple, f->low, f->high);
    }
    return err_set(err, DI_E_FORMAT, "%s: %s%s is %s: must be an integer from %.0f to %.0f", MDL_CONFIG_NAME, path, f->key, shown,
                   f->low, f->high);
}

static void store(const field *f, double number, mdl_config *c)
{
    char *const place = (char *)c + f->offset;
    if (f->kind == INT32) {
        const int32_t value = (int32_t)number;
        memcpy(place, &value, sizeof value);
    } else if (f->kind == FLOAT) {
        const float value = (float)number;
        memcpy(place, &value, sizeof value);
    } else {
        memcpy(place, &number, sizeof number);
    }
}

static di_status read_field(const js_value *object, const char *path, const field *f, mdl_config *c, di_error *err)
{
    const js_value *const value = js_get(object, f->key);
    if (js_kind_of(value) == JS_NULL) {
        if (!f->optional) {
            return err_set(err, DI_E_FORMAT, "%s: %s%s is missing", MDL_CONFIG_NAME, path, f->key);
        }
        store(f, f->fallback, c);
        return DI_OK;
    }
    const js_kind kind = js_kind_of(value);
    const double number = js_number(value);
    if (kind != JS_INT && (kind != JS_NUMBER || f->kind == INT32)) {
        return range_error(f, path, value, err);
    }
    if (!(number >= f->low && number <= f->high) || (f->multiple > 1 && (int32_t)number % f->multiple != 0)) {
        return range_error(f, path, value, err);
    }
    store(f, number, c);
    return DI_OK;
}

static di_status read_fields(const js_value *object, const char *path, const field *fields, size_t n, mdl_config *c, di_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const di_status status = read_field(object, path, &fields[i], c, err);
        if (status != DI_OK) {
            return status;
        }
    }
    return DI_OK;
}

static di_status check_fixed(const js_value *object, const char *path, const fixed *all, size_t n, di_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const fixed *const f = &all[i];
        const js_value *const value = js_get(object, f->key);
        const js_kind kind = js_kind_of(value);
        if (kind == JS_NULL) {
            continue;
        }
        char shown[64];
        show(value, shown, sizeof shown);
        if (f->kind == JS_STRING && (kind != JS_STRING || strcmp(js_string(value, NULL), f->text) != 0)) {
            return err_set(err, DI_E_UNSUPPORTED, "%s: %s%s is %s: only \"%s\" is supported", MDL_CONFIG_NAME, path, f->key, shown,
                           f->text);
        }
        if (f->kind == JS_BOOL && (kind != JS_BOOL || js_bool(value) != (f->number != 0))) {
            return err_set(err, DI_E_UNSUPPORTED, "%s: %s%s is %s: only %s is supported", MDL_CONFIG_NAME, path, f->key, shown,
                           f->number != 0 ? "true" : "false");
        }
        const bool number = kind == JS_INT || kind == JS_NUMBER;
        if (f->kind == JS_INT && (!number || js_number(value) < f->number || js_number(value) > f->number)) {
            return err_set(err, DI_E_UNSUPPORTED, "%s: %s%s is %s: only %d is supported", MDL_CONFIG_NAME, path, f->key, shown,
                           f->number);
        }
    }
    return DI_OK;
}

/* An array of integers low..high, strictly rising where `rising`. An absent key is an empty array. */
static di_status read_integers(const js_value *object, const char *key, size_t capacity, int64_t low, int64_t high, bool rising,
                               int64_t *values, int32_t *n, di_error *err)
{
    const js_value *const array = js_get(object, key);
    const js_kind kind = js_kind_of(array);
    if (kind != JS_ARRAY && kind != JS_NULL) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.%s must be an array of integers", MDL_CONFIG_NAME, key);
    }
    const size_t length = js_length(array);
    if (length > capacity) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.%s has %zu entries: at most %zu are supported", MDL_CONFIG_NAME, key,
                       length, capacity);
    }
    for (size_t i = 0; i < length; i++) {
        const js_value *const value = js_at(array, i);
        const int64_t number = js_int(value);
        char shown[48];
        if (js_kind_of(value) != JS_INT || number < low || number > high) {
            return err_set(err, DI_E_FORMAT, "%s: text_config.%s[%zu] is %s: must be an integer from %lld to %lld", MDL_CONFIG_NAME,
                           key, i, show(value, shown, sizeof shown), (long long)low, (long long)high);
        }
        if (rising && i > 0 && number <= values[i - 1]) {
            return err_set(err, DI_E_FORMAT, "%s: text_config.%s[%zu] is %lld: must be larger than the entry before it (%lld)",
                           MDL_CONFIG_NAME, key, i, (long long)number, (long long)values[i - 1]);
        }
        values[i] = number;
    }
    *n = (int32_t)length;
    return DI_OK;
}

/* Layer numbers, rising. */
static di_status read_layers(const js_value *text, const char *key, const mdl_config *c, int32_t *layers, size_t capacity,
                             int32_t *n, di_error *err)
{
    int64_t values[MDL_MAX_LAYERS];
    const di_status status = read_integers(text, key, capacity, 0, c->n_layers - 1, true, values, n, err);
    for (int32_t i = 0; status == DI_OK && i < *n; i++) {
        layers[i] = (int32_t)values[i];
    }
    return status;
}

static di_status read_ratios(const js_value *text, mdl_config *c, di_error *err)
{
    int64_t values[MDL_MAX_LAYERS];
    int32_t n;
    const di_status status = read_integers(text, "compress_ratios", MDL_MAX_LAYERS, 0, 2, false, values, &n, err);
    if (status != DI_OK) {
        return status;
    }
    if (n != c->n_layers + c->draft.n_stages) {
        return err_set(err, DI_E_FORMAT,
                       "%s: text_config.compress_ratios has %d entries: must have %d (num_hidden_layers %d + num_nextn_predict_layers %d)",
                       MDL_CONFIG_NAME, n, c->n_layers + c->draft.n_stages, c->n_layers, c->draft.n_stages);
    }
    for (int32_t i = 0; i < n; i++) {
        c->ratio[i] = (int32_t)values[i];
    }
    return DI_OK;
}

static di_status read_engram(const js_value *text, mdl_config *c, di_error *err)
{
    mdl_engram_config *const e = &c->engram;
    di_status status = read_layers(text, "engram_layer_ids", c, e->layers, MDL_MAX_ENGRAM_LAYERS, &e->n_layers, err);
    if (status != DI_OK || e->n_layers == 0) {
        return status;
    }
    int32_t n_rows;
    status = read_integers(text, "engram_num_embeddings", MDL_MAX_ENGRAM_LAYERS, 1, (int64_t)1 << 36, false, e->n_rows, &n_rows, err);
    if (status != DI_OK) {
        return status;
    }
    if (n_rows != e->n_layers) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.engram_num_embeddings has %d entries: must have %d, one for each entry of "
                       "engram_layer_ids", MDL_CONFIG_NAME, n_rows, e->n_layers);
    }
    return read_fields(text, "text_config.", engram_fields, COUNT(engram_fields), c, err);
}

/* The taps are concatenated in the order of layers, whatever their order in the file (dspark.md 1.3). */
static di_status read_taps(const js_value *text, mdl_config *c, di_error *err)
{
    int64_t values[MDL_MAX_TAPS];
    mdl_draft_config *const d = &c->draft;
    const di_status status =
        read_integers(text, "dspark_target_layer_ids", MDL_MAX_TAPS, 0, c->n_layers - 1, false, values, &d->n_taps, err);
    if (status != DI_OK) {
        return status;
    }
    if (d->n_taps == 0) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.dspark_target_layer_ids is missing or empty", MDL_CONFIG_NAME);
    }
    for (int32_t i = 0; i < d->n_taps; i++) {
        int32_t at = i;
        for (; at > 0 && d->taps[at - 1] >= values[i]; at--) {
            if (d->taps[at - 1] == values[i]) {
                return err_set(err, DI_E_FORMAT, "%s: text_config.dspark_target_layer_ids names layer %d twice", MDL_CONFIG_NAME,
                               d->taps[at - 1]);
            }
            d->taps[at] = d->taps[at - 1];
        }
        d->taps[at] = (int32_t)values[i];
    }
    return DI_OK;
}

/* Temperatures that were fitted for this head, one for each draft: those of another block say nothing about this one. */
static di_status read_temperatures(const js_value *text, mdl_config *c, di_error *err)
{
    static const char key[] = "dspark_confidence_temperature";
    const js_value *const array = js_get(text, key);
    const js_kind kind = js_kind_of(array);
    if (kind != JS_NULL && (kind != JS_ARRAY || js_length(array) != (size_t)c->draft.block_size)) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.%s must be an array of %d numbers, one for each draft", MDL_CONFIG_NAME, key,
                       c->draft.block_size);
    }
    for (int32_t i = 0; i < c->draft.block_size; i++) {
        const js_value *const value = js_at(array, (size_t)i);
        const double number = kind == JS_NULL ? 1.0 : js_number(value);
        char shown[48];
        if (!(number >= 0.01 && number <= 100.0)) {
            return err_set(err, DI_E_FORMAT, "%s: text_config.%s[%d] is %s: must be a number from 0.01 to 100", MDL_CONFIG_NAME, key, i,
                           show(value, shown, sizeof shown));
        }
        c->draft.temperature[i] = (float)number;
    }
    return DI_OK;
}

static di_status read_text(const js_value *text, mdl_config *c, di_error *err)
{
    di_status status = check_fixed(text, "text_config.", fixed_text, COUNT(fixed_text), err);
    if (status == DI_OK) {
        status = read_fields(text, "text_config.", text_fields, COUNT(text_fields), c, err);
    }
    if (status == DI_OK) {
        status = read_ratios(text, c, err);
    }
    if (status == DI_OK) {
        status = read_layers(text, "kv_source_layer_ids", c, c->kv_sources, MDL_MAX_LAYERS, &c->n_kv_sources, err);
    }
    if (status == DI_OK) {
        status = read_layers(text, "index_source_layer_ids", c, c->index_sources, MDL_MAX_LAYERS, &c->n_index_sources, err);
    }
    if (status == DI_OK) {
        status = read_engram(text, c, err);
    }
    if (status == DI_OK && c->draft.n_stages > 0) {
        status = read_fields(text, "text_config.", draft_fields, COUNT(draft_fields), c, err);
        if (status == DI_OK) {
            status = read_taps(text, c, err);
        }
        if (status == DI_OK) {
            status = read_temperatures(text, c, err);
        }
    }
    if (status != DI_OK) {
        return status;
    }
    const js_value *const yarn = js_get(text, "rope_scaling");
    if (js_kind_of(yarn) != JS_OBJECT) {
        return err_set(err, DI_E_FORMAT, "%s: text_config.rope_scaling must be an object", MDL_CONFIG_NAME);
    }
    status = check_fixed(yarn, "text_config.rope_scaling.", fixed_yarn, COUNT(fixed_yarn), err);
    return status != DI_OK ? status : read_fields(yarn, "text_config.rope_scaling.", yarn_fields, COUNT(yarn_fields), c, err);
}

static di_status check_quantization(const js_value *root, di_error *err)
{
    const js_value *const q = js_get(root, "quantization_config");
    if (js_kind_of(q) != JS_OBJECT) {
        return err_set(err, DI_E_FORMAT, "%s: quantization_config is missing: only FP8 checkpoints with FP4 experts are supported",
                       MDL_CONFIG_NAME);
    }
    const js_value *const block = js_get(q, "weight_block_size");
    if (js_kind_of(block) != JS_NULL &&
        (js_length(block) != 2 || js_int(js_at(block, 0)) != 32 || js_int(js_at(block, 1)) != 32)) {
        return err_set(err, DI_E_UNSUPPORTED, "%s: quantization_config.weight_block_size: only [32, 32] is supported",
                       MDL_CONFIG_NAME);
    }
    return check_fixed(q, "quantization_config.", fixed_quantization, COUNT(fixed_quantization), err);
}

static di_status read_vision(const js_value *root, mdl_config *c, di_error *err)
{
    const js_value *const vision = js_get(root, "vision_config");
    if (js_kind_of(vision) == JS_NULL) {
        return DI_OK;
    }
    if (js_kind_of(vision) != JS_OBJECT) {
        return err_set(err, DI_E_FORMAT, "%s: vision_config must be an object", MDL_CONFIG_NAME);
    }
    c->vision.present = true;
    const di_status status = check_fixed(vision, "vision_config.", fixed_vision, COUNT(fixed_vision), err);
    if (status != DI_OK) {
        return status;
    }
    static const field ratio = {"max_wh_ratio", DOUBLE, AT(vision.max_wh_ratio), 1, 1e6, 0, true, 0};
    const di_status ratio_status = read_field(vision, "vision_config.", &ratio, c, err);
    return ratio_status != DI_OK ? ratio_status
                                 : read_fields(vision, "vision_config.", vision_fields, COUNT(vision_fields), c, err);
}

static di_status read_root(const js_value *root, mdl_config *c, di_error *err)
{
    const js_value *const text = js_get(root, "text_config");
    if (js_kind_of(root) != JS_OBJECT || js_kind_of(js_get(root, "model_type")) == JS_NULL) {
        return err_set(err, DI_E_FORMAT, "%s: must be an object with model_type \"deepseek_v41\"", MDL_CONFIG_NAME);
    }
    di_status status = check_fixed(root, "", fixed_top, COUNT(fixed_top), err);
    if (status != DI_OK) {
        return status;
    }
    if (js_kind_of(text) != JS_OBJECT) {
        return err_set(err, DI_E_FORMAT, "%s: text_config is missing", MDL_CONFIG_NAME);
    }
    status = read_fields(root, "", top_fields, COUNT(top_fields), c, err);
    if (status == DI_OK) {
        status = check_quantization(root, err);
    }
    if (status == DI_OK) {
        status = read_text(text, c, err);
    }
    if (status == DI_OK) {
        status = read_vision(root, c, err);
    }
    return status == DI_OK ? mdl_config_relate(c, err) : status;
}

di_status mdl_config_parse(const char *text, size_t size, mdl_config *out, di_error *err)
{
    js_doc *doc;
    di_status status = js_parse(text, size, MDL_CONFIG_NAME, NULL, &doc, err);
    if (status != DI_OK) {
        return status;
    }
    mdl_config config;
    memset(&config, 0, sizeof config);
    status = read_root(js_root(doc), &config, err);
    if (status == DI_OK) {
        *out = config;
    }
    js_free(doc);
    return status;
}

di_status mdl_config_read(const char *dir, mdl_config *out, di_error *err)
{
    char *const path = file_path_join(dir, MDL_CONFIG_NAME);
    if (path == NULL) {
        return err_memory(err, MDL_CONFIG_NAME, strlen(dir));
    }
    char *text = NULL;
    size_t size;
    di_status status = file_read(path, MAX_CONFIG_BYTES, &text, &size, err);
    if (status == DI_OK) {
        status = mdl_config_parse(text, size, out, err);
    }
    free(text);
    free(path);
    return status;
}
