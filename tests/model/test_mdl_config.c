/* Tests of mdl_config.c and mdl_config_rules.c: the released configuration, and one change at a time to it. */
#include "support/unit.h"

#include "core/file.h"
#include "model/mdl_config.h"
#include "model/mdl_inventory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *released;
static size_t released_size;

static int read_released(void **state)
{
    (void)state;
    const char *const source = getenv("DI_SOURCE_DIR");
    assert_non_null(source);
    char *const path = file_path_join(source, "tests/data/config/released.json");
    assert_non_null(path);
    di_error err;
    if (file_read(path, 1 << 20, &released, &released_size, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    free(path);
    return 0;
}

static int free_released(void **state)
{
    (void)state;
    free(released);
    return 0;
}

/* The released text with the first `find` after `anchor` replaced; malloc'ed. */
static char *edited(const char *anchor, const char *find, const char *replace)
{
    const char *const from = strstr(released, anchor);
    const char *const at = from != NULL ? strstr(from, find) : NULL;
    if (at == NULL) {
        fail_msg("no \"%s\" after \"%s\"", find, anchor);
        return NULL;
    }
    char *const text = malloc(released_size + strlen(replace) + 1);
    assert_non_null(text);
    snprintf(text, released_size + strlen(replace) + 1, "%.*s%s%s", (int)(at - released), released, replace, at + strlen(find));
    return text;
}

static void the_released_configuration_is_read(void **state)
{
    (void)state;
    mdl_config c;
    di_error err;
    if (mdl_config_parse(released, released_size, &c, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(c.bos_token_id, 0);
    assert_int_equal(c.eos_token_id, 1);
    assert_int_equal(c.pad_token_id, 2);
    assert_int_equal(c.image_token_id, 129264);
    assert_int_equal(c.vocab, 129280);
    assert_int_equal(c.hidden, 5120);
    assert_int_equal(c.n_layers, 40);
    assert_int_equal(c.n_heads, 64);
    assert_int_equal(c.head_dim, 512);
    assert_int_equal(c.rope_dim, 64);
    assert_int_equal(c.q_lora, 1280);
    assert_int_equal(c.o_lora, 1024);
    assert_int_equal(c.o_groups, 8);
    assert_int_equal(c.moe_inter, 2304);
    assert_int_equal(c.n_experts, 384);
    assert_int_equal(c.n_active_experts, 6);
    assert_true(c.routed_scale == 1.5F);
    assert_true(c.swiglu_limit == 10.0F);
    assert_true(c.norm_eps == 1e-20F);
    assert_int_equal(c.max_positions, 1048576);
    assert_int_equal(c.window, 128);
    assert_int_equal(c.hc, 4);
    assert_int_equal(c.hc_iters, 20);
    assert_true(c.hc_eps == 1e-6F);
    assert_int_equal(c.index_heads, 32);
    assert_int_equal(c.index_dim, 128);
    assert_int_equal(c.index_topk, 512);
    assert_int_equal(c.candidate_layer, 20);
    assert_int_equal(c.candidate_blocks, 2048);
    assert_int_equal(c.candidate_block_size, 8);
    assert_true(c.rope.theta == 10000.0);
    assert_true(c.rope.compress_theta == 160000.0);
    assert_true(c.rope.factor == 16.0);
    assert_true(c.rope.beta_fast == 32.0);
    assert_true(c.rope.beta_slow == 1.0);
    assert_int_equal(c.rope.original_positions, 65536);
    assert_int_equal(c.engram.n_layers, 2);
    assert_int_equal(c.engram.layers[1], 14);
    assert_true(c.engram.n_rows[0] == 384006168);
    assert_true(c.engram.n_rows[1] == 384016682);
    assert_int_equal(c.engram.max_ngram, 4);
    assert_int_equal(c.engram.n_heads, 8);
    assert_int_equal(c.engram.head_dim, 256);
    assert_int_equal(c.engram.vocab_start, 16000000);
    assert_int_equal(c.engram.pad_token_id, 2);
    assert_int_equal(c.engram.compressed_vocab, 99092);
    assert_int_equal(c.draft.n_stages, 3);
    assert_int_equal(c.draft.block_size, 5);
    assert_int_equal(c.draft.noise_token_id, 128799);
    assert_int_equal(c.draft.n_taps, 3);
    assert_int_equal(c.draft.taps[2], 39);
    assert_int_equal(c.draft.markov_rank, 256);
    assert_int_equal(c.draft.n_experts, 128);
    assert_int_equal(c.draft.n_active_experts, 3);
    assert_true(c.vision.present);
    assert_int_equal(c.vision.n_layers, 32);
    assert_int_equal(c.vision.hidden, 1024);
    assert_int_equal(c.vision.n_heads, 16);
    assert_int_equal(c.vision.intermediate, 2816);
    assert_int_equal(c.vision.patch_size, 14);
    assert_int_equal(c.vision.downsample_ratio, 3);
    assert_int_equal(c.vision.max_image_tokens, 1024);
    assert_int_equal(c.vision.min_pixels, 295936);
    assert_true(c.vision.max_wh_ratio == 0.0);
}

/* The table at the end of model.md 1.5. */
static void sources_of_the_released_layers_are_derived(void **state)
{
    (void)state;
    mdl_config c;
    assert_int_equal(mdl_config_parse(released, released_size, &c, NULL), DI_OK);
    for (int32_t layer = 0; layer < 43; layer++) {
        const int32_t ratio = layer < 2 || layer >= 40 ? 0 : layer < 20 ? 2 : 1;
        int32_t kv = -1;
        int32_t index = -1;
        if (ratio == 2) {
            kv = index = layer < 8 ? 2 : layer < 14 ? 8 : 14;
        } else if (ratio == 1) {
            kv = 20;
            index = layer / 4 * 4;
        }
        assert_int_equal(c.ratio[layer], ratio);
        assert_int_equal(c.kv_source[layer], kv);
        assert_int_equal(c.index_source[layer], index);
    }
    assert_int_equal(c.n_kv_sources, 4);
    assert_int_equal(c.n_index_sources, 8);
    assert_true(mdl_is_kv_source(&c, 14));
    assert_false(mdl_is_kv_source(&c, 24));
    assert_true(mdl_is_index_source(&c, 24));
}

/* model.md 2.1: exactly 96,085 tensors and 510,286,023,000 bytes. */
static void the_inventory_has_the_released_totals(void **state)
{
    (void)state;
    mdl_config c;
    uint64_t n_tensors;
    uint64_t n_bytes;
    assert_int_equal(mdl_config_parse(released, released_size, &c, NULL), DI_OK);
    mdl_inventory_totals(&c, &n_tensors, &n_bytes);
    assert_true(n_tensors == 96085);
    assert_true(n_bytes == 510286023000u);
    c.vision.present = false;
    mdl_inventory_totals(&c, &n_tensors, &n_bytes);
    assert_true(n_tensors == 96085 - 266);
    c.draft.n_stages = 0;
    mdl_inventory_totals(&c, &n_tensors, &n_bytes);
    assert_true(n_tensors == 93418);
    assert_true(n_bytes == 298624579008u + 202758032400u);
}

static void changes_that_are_fine_are_accepted(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{", "\"architectures\"", "\"new_key\": {\"a\": [1, 2]}, \"architectures\""},
        {"text_config", "\"hidden_act\": \"silu\",", ""},
        {"text_config", "\"attention_bias\": false", "\"attention_bias\": null"},
        {"text_config", "\"hc_eps\": 1e-06", "\"hc_eps\": 0.000001"},
        {"text_config", "\"rope_theta\": 10000", "\"rope_theta\": 10000.0"},
        {"text_config", "\"engram_pad_token_id\": 2,", ""},
        {"text_config", "[37, 38, 39]", "[39, 37, 38]"},
        {"text_config", "\"max_position_embeddings\"", "\"gate_temp\": 1.0, \"max_position_embeddings\""},
        {"vision_config", "\"max_wh_ratio\": null", "\"max_wh_ratio\": 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *const text = edited(cases[i][0], cases[i][1], cases[i][2]);
        mdl_config c;
        di_error err;
        if (mdl_config_parse(text, strlen(text), &c, &err) != DI_OK) {
            fail_msg("%s: %s", cases[i][2], err.message);
        }
        assert_int_equal(c.draft.taps[0], 37);
        assert_int_equal(c.draft.taps[2], 39);
        assert_int_equal(c.engram.pad_token_id, 2);
        free(text);
    }
}

static void wrong_values_are_named_with_the_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *anchor;
        const char *find;
        const char *replace;
        di_status code;
        const char *message;
    } cases[] = {
        {"text_config", "\"head_dim\": 512", "\"head_dim\": 100", DI_E_FORMAT,
         "text_config.head_dim is 100: must be a multiple of 32 from 32 to 4096"},
        {"text_config", "\"head_dim\": 512", "\"head_dim\": \"512\"", DI_E_FORMAT, "text_config.head_dim is \"512\": must be a multiple"},
        {"text_config", "\"head_dim\": 512", "\"head_dim\": 512.0", DI_E_FORMAT, "text_config.head_dim is 512.0"},
        {"text_config", "\"head_dim\": 512", "\"head_dim\": -512", DI_E_FORMAT, "text_config.head_dim is -512"},
        {"text_config", "\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 514", DI_E_FORMAT,
         "text_config.qk_rope_head_dim is 514: must be a multiple of 2 from 2 to 512"},
        {"text_config", "\"index_head_dim\": 128", "\"index_head_dim\": 1056", DI_E_FORMAT,
         "text_config.index_head_dim is 1056: must be a multiple of 32 from 32 to 1024"},
        {"text_config", "\"hc_mult\": 4", "\"hc_mult\": 9", DI_E_FORMAT, "text_config.hc_mult is 9"},
        {"text_config", "\"head_dim\": 512", "\"head_dim\": 9223372036854775807", DI_E_FORMAT, "9223372036854775807"},
        {"text_config", "\"head_dim\": 512", "\"head_dim\": 1e300", DI_E_FORMAT, "text_config.head_dim is 1e300"},
        {"text_config", "\"head_dim\": 512", "\"head_dim\": [512]", DI_E_FORMAT, "text_config.head_dim is array"},
        {"text_config", "\"head_dim\": 512,", "", DI_E_FORMAT, "text_config.head_dim is missing"},
        {"text_config", "\"head_dim\": 512", "\"head_dim\": 32", DI_E_FORMAT, "qk_rope_head_dim is 64: must be at most head_dim (32)"},
        {"text_config", "\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 63", DI_E_FORMAT, "multiple of 2"},
        {"text_config", "\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 256", DI_E_FORMAT, "at most index_head_dim (128)"},
        {"text_config", "\"hidden_size\": 5120", "\"hidden_size\": 5121", DI_E_FORMAT, "text_config.hidden_size is 5121: must be a multiple of 32"},
        {"text_config", "\"hidden_size\": 5120", "\"hidden_size\": 0", DI_E_FORMAT, "text_config.hidden_size is 0"},
        {"text_config", "\"hidden_size\": 5120", "\"hidden_size\": 1048576", DI_E_FORMAT, "from 32 to 65536"},
        {"text_config", "\"vocab_size\": 129280", "\"vocab_size\": 1000000000", DI_E_FORMAT, "text_config.vocab_size"},
        {"text_config", "\"vocab_size\": 129280", "\"vocab_size\": 129264", DI_E_FORMAT, "image_token_id is 129264: must be below"},
        {"text_config", "\"num_hidden_layers\": 40", "\"num_hidden_layers\": 39", DI_E_FORMAT, "compress_ratios has 43 entries: must have 42"},
        {"text_config", "\"num_hidden_layers\": 40", "\"num_hidden_layers\": 1000", DI_E_FORMAT, "from 1 to 128"},
        {"text_config", "\"num_nextn_predict_layers\": 3", "\"num_nextn_predict_layers\": 2", DI_E_FORMAT, "must have 42 (num_hidden_layers 40 +"},
        {"compress_ratios", "0, 0, 2", "0, 0, 3", DI_E_FORMAT, "compress_ratios[2] is 3: must be an integer from 0 to 2"},
        {"compress_ratios", "0, 0, 2", "0, 0, true", DI_E_FORMAT, "compress_ratios[2] is true"},
        {"compress_ratios", "0, 0, 2", "0, 0, 0", DI_E_FORMAT, "kv_source_layer_ids[0] is 2: that layer has compress_ratio 0"},
        {"compress_ratios", "0, 0, 2, 2", "0, 0, 2, 1", DI_E_FORMAT, "layer 3 has compress_ratio 1, but its source, layer 2, has 2"},
        {"compress_ratios", "0, 0, 2", "0, 1, 2", DI_E_FORMAT, "layer 1 has compress_ratio 1 but no source"},
        {"compress_ratios", "1, 0, 0, 0]", "1, 1, 0, 0]", DI_E_UNSUPPORTED, "compress_ratios[40] is 1: must be 0 for a draft layer"},
        {"kv_source_layer_ids", "[2, 8, 14, 20]", "[2, 14, 8, 20]", DI_E_FORMAT, "kv_source_layer_ids[2] is 8: must be larger"},
        {"kv_source_layer_ids", "[2, 8, 14, 20]", "[2, 8, 14, 40]", DI_E_FORMAT, "kv_source_layer_ids[3] is 40: must be an integer from 0 to 39"},
        {"kv_source_layer_ids", "[2, 8, 14, 20]", "[2, 8, 14]", DI_E_FORMAT, "layer 20 has compress_ratio 1, but its source, layer 14, has 2"},
        {"kv_source_layer_ids", "[2, 8, 14, 20]", "{}", DI_E_FORMAT, "kv_source_layer_ids must be an array"},
        {"index_source_layer_ids", "[2, 8,", "[2, 2,", DI_E_FORMAT, "index_source_layer_ids[1] is 2: must be larger"},
        {"index_source_layer_ids", "[2, 8,", "[8,", DI_E_FORMAT, "index_source_layer_ids: layer 2 has compress_ratio 2 but no source"},
        {"text_config", "\"candidate_source_layer_id\": 20", "\"candidate_source_layer_id\": 21", DI_E_FORMAT, "must be one of index_source"},
        {"text_config", "\"candidate_source_layer_id\": 20", "\"candidate_source_layer_id\": 8", DI_E_FORMAT, "reads another KV source"},
        {"text_config", "\"num_experts_per_tok\": 6", "\"num_experts_per_tok\": 385", DI_E_FORMAT, "at most n_routed_experts (384)"},
        {"text_config", "\"dspark_num_experts_per_tok\": 3", "\"dspark_num_experts_per_tok\": 129", DI_E_FORMAT, "dspark_n_routed_experts (128)"},
        {"text_config", "\"o_groups\": 8", "\"o_groups\": 7", DI_E_FORMAT, "o_groups is 7: must divide num_attention_heads (64)"},
        {"text_config", "\"hc_mult\": 4", "\"hc_mult\": 9", DI_E_FORMAT, "text_config.hc_mult is 9: must be an integer from 1 to 8"},
        {"text_config", "\"rms_norm_eps\": 1e-20", "\"rms_norm_eps\": 0", DI_E_FORMAT, "text_config.rms_norm_eps is 0"},
        {"text_config", "\"swiglu_limit\": 10.0", "\"swiglu_limit\": null", DI_E_FORMAT, "text_config.swiglu_limit is missing"},
        {"text_config", "\"factor\": 16", "\"factor\": \"a\"", DI_E_FORMAT, "text_config.rope_scaling.factor is \"a\": must be a number"},
        {"text_config", "\"rope_type\": \"yarn\"", "\"rope_type\": \"linear\"", DI_E_UNSUPPORTED, "rope_type is \"linear\": only \"yarn\""},
        {"text_config", "\"factor\": 16", "\"mscale\": 0.7, \"factor\": 16", DI_E_UNSUPPORTED, "mscale is 0.7: only 1 is supported"},
        {"text_config", "\"attention_bias\": false", "\"attention_bias\": true", DI_E_UNSUPPORTED, "attention_bias is true: only false"},
        {"text_config", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", DI_E_UNSUPPORTED, "hidden_act is \"gelu\": only \"silu\""},
        {"text_config", "sqrtsoftplus", "sigmoid", DI_E_UNSUPPORTED, "scoring_func is \"sigmoid\": only \"sqrtsoftplus\""},
        {"text_config", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false", DI_E_UNSUPPORTED, "norm_topk_prob is false: only true"},
        {"text_config", "\"n_shared_experts\": 1", "\"n_shared_experts\": 2", DI_E_UNSUPPORTED, "n_shared_experts is 2: only 1"},
        {"text_config", "\"num_key_value_heads\": 1", "\"num_key_value_heads\": 8", DI_E_UNSUPPORTED, "num_key_value_heads is 8: only 1"},
        {"{", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", DI_E_UNSUPPORTED, "config.json: tie_word_embeddings is true"},
        {"{", "\"model_type\": \"deepseek_v41\"", "\"model_type\": \"deepseek_v3\"", DI_E_UNSUPPORTED, "model_type is \"deepseek_v3\""},
        {"{", "\"eos_token_id\": 1", "\"eos_token_id\": [1]", DI_E_FORMAT, "eos_token_id is array: must be an integer"},
        {"{", "\"eos_token_id\": 1", "\"eos_token_id\": 129280", DI_E_FORMAT, "eos_token_id is 129280: must be below text_config.vocab_size"},
        {"{", "\"image_token_id\": 129264,", "", DI_E_FORMAT, "image_token_id is missing, but there is a vision_config"},
        {"{", "\"text_config\"", "\"other\"", DI_E_FORMAT, "text_config is missing"},
        {"{", "\"quantization_config\"", "\"other\"", DI_E_FORMAT, "quantization_config is missing"},
        {"quantization_config", "[32, 32]", "[128, 128]", DI_E_UNSUPPORTED, "weight_block_size: only [32, 32]"},
        {"quantization_config", "\"fp4\"", "\"fp8\"", DI_E_UNSUPPORTED, "quantization_config.expert_dtype is \"fp8\": only \"fp4\""},
        {"quantization_config", "ue8m0", "float", DI_E_UNSUPPORTED, "scale_fmt"},
        {"text_config", "[1, 14]", "[14, 1]", DI_E_FORMAT, "engram_layer_ids[1] is 1: must be larger"},
        {"text_config", "[384006168, 384016682]", "[384006168]", DI_E_FORMAT, "engram_num_embeddings has 1 entries: must have 2"},
        {"text_config", "[384006168,", "[-1,", DI_E_FORMAT, "engram_num_embeddings[0] is -1"},
        {"text_config", "\"engram_n_heads\": 8", "\"engram_n_heads\": 22", DI_E_UNSUPPORTED, "engram_n_heads is 22"},
        {"text_config", "\"engram_compressed_vocab_size\": 99092", "\"engram_compressed_vocab_size\": 129281", DI_E_FORMAT, "at most vocab_size"},
        {"text_config", "\"dspark_target_layer_ids\": [37, 38, 39]", "\"dspark_target_layer_ids\": [37, 39, 37]", DI_E_FORMAT, "names layer 37 twice"},
        {"text_config", "\"dspark_block_size\": 5", "\"dspark_confidence_temperature\": [1, 1, 1, 1], \"dspark_block_size\": 5", DI_E_FORMAT,
         "an array of 5 numbers"},
        {"text_config", "\"dspark_block_size\": 5", "\"dspark_confidence_temperature\": [1, 1, 0, 1, 1], \"dspark_block_size\": 5", DI_E_FORMAT,
         "temperature[2] is 0: must be a number from 0.01 to 100"},
        {"text_config", "\"dspark_block_size\": 5", "\"dspark_confidence_temperature\": 1, \"dspark_block_size\": 5", DI_E_FORMAT,
         "an array of 5 numbers"},
        {"text_config", "\"dspark_target_layer_ids\": [37, 38, 39]", "\"dspark_target_layer_ids\": []", DI_E_FORMAT, "missing or empty"},
        {"text_config", "\"dspark_noise_token_id\": 128799", "\"dspark_noise_token_id\": 129280", DI_E_FORMAT, "must be below"},
        {"vision_config", "\"num_attention_heads\": 16", "\"num_attention_heads\": 7", DI_E_FORMAT, "vision_config.num_attention_heads is 7"},
        {"vision_config", "\"hidden_size\": 1024", "\"hidden_size\": 0", DI_E_FORMAT, "vision_config.hidden_size is 0"},
        {"vision_config", "\"max_wh_ratio\": null", "\"max_wh_ratio\": 0", DI_E_FORMAT, "vision_config.max_wh_ratio is 0"},
        {"text_config", "\"o_groups\": 8", "\"o_groups\": 8, \"o_groups\": 8", DI_E_FORMAT, "duplicate key \"o_groups\""},
        {"{", "{", "[", DI_E_FORMAT, "config.json: line "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *const text = edited(cases[i].anchor, cases[i].find, cases[i].replace);
        mdl_config c;
        di_error err = {.message = ""};
        const di_status status = mdl_config_parse(text, strlen(text), &c, &err);
        if (status != cases[i].code) {
            fail_msg("%s: status %s, %s", cases[i].replace, di_status_name(status), err.message);
        }
        unit_expect_error(status, cases[i].code, &err, "config.json: ", cases[i].message, NULL);
        free(text);
    }
}

static void what_is_not_a_configuration_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "null", "[]", "{}", "{\"model_type\":null}", "{\"model_type\":{}}", "7",
                                        "{\"model_type\":\"deepseek_v41\",\"text_config\":[]}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        mdl_config c;
        di_error err = {.message = ""};
        assert_int_not_equal(mdl_config_parse(texts[i], strlen(texts[i]), &c, &err), DI_OK);
        assert_non_null(strstr(err.message, "config.json"));
    }
    mdl_config c;
    di_error err;
    unit_expect_error(mdl_config_read("no/such/folder", &c, &err), DI_E_IO, &err, "no/such/folder/config.json", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_released_configuration_is_read),
        cmocka_unit_test(sources_of_the_released_layers_are_derived),
        cmocka_unit_test(the_inventory_has_the_released_totals),
        cmocka_unit_test(changes_that_are_fine_are_accepted),
        cmocka_unit_test(wrong_values_are_named_with_the_remedy),
        cmocka_unit_test(what_is_not_a_configuration_is_refused),
    };
    return cmocka_run_group_tests(tests, read_released, free_released);
}
