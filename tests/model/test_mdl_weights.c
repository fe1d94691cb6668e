/* Tests of mdl_weights.c and mdl_inventory.c on the tiny checkpoint: what is bound, and how each misfit is reported. */
#include "support/unit.h"

#include "model/mdl_inventory.h"
#include "model/mdl_weights.h"
#include "model/tiny.h"

#include <string.h>

static char *dir;

static int make_dir(void **state)
{
    (void)state;
    dir = unit_scratch_new();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unit_scratch_remove(dir);
    return 0;
}

static mdl_checkpoint *open_tiny(const tiny_edit *edit)
{
    mdl_checkpoint *c = NULL;
    di_error err;
    tiny_write(dir, edit);
    if (mdl_checkpoint_open(dir, &c, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return c;
}

static void expect(const tiny_edit *edit, const char *text1, const char *text2)
{
    mdl_checkpoint *const c = open_tiny(edit);
    mdl_config config;
    mdl_weights w;
    di_error err = {.message = ""};
    tiny_config(&config);
    unit_expect_error(mdl_weights_bind(&config, c, &w, &err), DI_E_FORMAT, &err, text1, text2, NULL);
    mdl_checkpoint_close(c);
}

static void expect_vector(const mdl_checkpoint *c, const char *name, const float *values, size_t n)
{
    const st_tensor *const t = mdl_checkpoint_find(c, name);
    assert_non_null(t);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        if (t->dtype == ST_BF16) {
            memcpy((uint8_t *)&bits + 2, t->data + 2 * i, 2); /* little-endian: the upper half */
        } else {
            memcpy(&bits, t->data + 4 * i, 4);
        }
        assert_memory_equal(&values[i], &bits, sizeof bits);
    }
}

static void expect_matrix(const mdl_checkpoint *c, const char *name, const char *scale, const ops_matrix *m, ops_format format,
                          int64_t n_out, int64_t n_in)
{
    const st_tensor *const data = mdl_checkpoint_find(c, name);
    assert_non_null(data);
    assert_int_equal(m->format, format);
    assert_int_equal(m->n_out, n_out);
    assert_int_equal(m->n_in, n_in);
    assert_ptr_equal(m->data, data->data);
    assert_null(m->packed);
    if (scale == NULL) {
        assert_null(m->scale);
    } else {
        assert_ptr_equal(m->scale, mdl_checkpoint_find(c, scale)->data);
    }
}

static void every_kind_of_tensor_is_bound(void **state)
{
    (void)state;
    mdl_checkpoint *const c = open_tiny(NULL);
    mdl_config config;
    mdl_weights w;
    di_error err;
    tiny_config(&config);
    if (mdl_weights_bind(&config, c, &w, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    expect_matrix(c, "embed.weight", NULL, &w.embed, OPS_BF16, 64, 32);
    expect_vector(c, "norm.weight", w.norm, 32);
    const mdl_layer_weights *const l = w.layers;
    expect_vector(c, "layers.0.attn_norm.weight", l[0].attn_norm, 32);
    expect_matrix(c, "layers.2.hc_ffn_fn", NULL, &l[2].hc_ffn.fn, OPS_F32, 8, 64);
    expect_vector(c, "layers.2.hc_ffn_base", l[2].hc_ffn.base, 8);
    expect_vector(c, "layers.2.hc_ffn_scale", l[2].hc_ffn.scale, 3);
    expect_vector(c, "layers.1.attn.attn_sink", l[1].attn_sink, 2);
    expect_matrix(c, "layers.0.attn.wq_b.weight", "layers.0.attn.wq_b.scale", &l[0].wq_b, OPS_FP8, 64, 32);
    expect_matrix(c, "layers.0.attn.wo_a.weight", "layers.0.attn.wo_a.scale", &l[0].wo_a, OPS_FP8, 64, 32);
    expect_matrix(c, "layers.1.ffn.experts.2.w2.weight", "layers.1.ffn.experts.2.w2.scale", &l[1].experts[2].w2, OPS_FP4, 32, 32);
    expect_matrix(c, "layers.2.ffn.shared_experts.w3.weight", "layers.2.ffn.shared_experts.w3.scale", &l[2].shared.w3, OPS_FP8, 32, 32);
    expect_vector(c, "layers.2.ffn.gate.bias_vl", l[2].gate_bias_vl, 3);
    assert_int_equal(l[2].n_experts, 3);

    assert_null(l[0].compressor.wkv.data);
    assert_null(l[0].indexer.wq_b.data);
    assert_null(l[0].engram.table.data);
    expect_matrix(c, "layers.1.attn.compressor.wgate.weight", NULL, &l[1].compressor.wgate, OPS_BF16, 32, 32);
    assert_null(l[2].compressor.wgate.data); /* ratio 1 */
    expect_matrix(c, "layers.2.attn.compressor.wkv.weight", NULL, &l[2].compressor.wkv, OPS_BF16, 32, 32);
    expect_vector(c, "layers.2.attn.indexer.k_norm.weight", l[2].compressor.index_k_norm, 32);
    expect_matrix(c, "layers.2.attn.indexer.wq_b.weight", "layers.2.attn.indexer.wq_b.scale", &l[2].indexer.wq_b, OPS_FP8, 64, 32);
    expect_matrix(c, "layers.1.engram.embed.weight", "layers.1.engram.embed.scale", &l[1].engram.table, OPS_FP8R, 70, 32);
    expect_matrix(c, "layers.1.engram.wkv.weight", "layers.1.engram.wkv.scale", &l[1].engram.wkv, OPS_FP8, 96, 64);
    expect_vector(c, "layers.1.engram.q_weight", l[1].engram.q_weight, 64);

    expect_matrix(c, "mtp.0.main_proj.weight", "mtp.0.main_proj.scale", &w.draft.main_proj, OPS_FP8, 32, 64);
    expect_vector(c, "mtp.0.norm.weight", w.draft.norm, 32);
    expect_matrix(c, "mtp.0.confidence_head.proj.weight", NULL, &w.draft.confidence_proj, OPS_BF16, 1, 48);
    expect_matrix(c, "mtp.0.ffn.experts.1.w3.weight", "mtp.0.ffn.experts.1.w3.scale", &w.draft.stages[0].experts[1].w3, OPS_FP4, 32, 32);
    assert_int_equal(w.draft.stages[0].n_experts, 2);

    expect_matrix(c, "vision.patch_embed.proj.weight", NULL, &w.vision.patch_proj, OPS_BF16, 8, 12);
    expect_matrix(c, "vision.blocks.0.mlp.w1.weight", NULL, &w.vision.blocks[0].w1, OPS_BF16, 24, 8);
    expect_vector(c, "vision.blocks.0.attn.wqkv.bias", w.vision.blocks[0].wqkv_bias, 24);
    expect_matrix(c, "aligner.w1.weight", NULL, &w.vision.aligner_w1, OPS_BF16, 32, 32);
    expect_vector(c, "image_newline", w.vision.image_newline, 32);
    mdl_weights_free(&w);
    assert_null(w.layers);
    mdl_weights_free(NULL);
    mdl_checkpoint_close(c);
}

static void a_wrong_dtype_names_tensor_and_shard(void **state)
{
    (void)state;
    const tiny_edit edit = {.tensor = "layers.0.attn.wq_a.weight", .use_dtype = true, .dtype = ST_I8};
    expect(&edit, "layers.0.attn.wq_a.weight (model-0000", "expected F8_E4M3 [32, 32], found I8 [32, 32]");
}

static void a_wrong_shape_names_tensor_and_shard(void **state)
{
    (void)state;
    const tiny_edit swapped = {.tensor = "embed.weight", .n_dims = 2, .dims = {32, 64}};
    expect(&swapped, "embed.weight (model-00001-of-00002.safetensors): expected BF16 [64, 32], found BF16 [32, 64]", "");
    const tiny_edit flat = {.tensor = "embed.weight", .n_dims = 1, .dims = {2048}};
    expect(&flat, "found BF16 [2048]", "");
    const tiny_edit deep = {.tensor = "layers.1.attn.q_norm.weight", .n_dims = 3, .dims = {1, 1, 32}};
    expect(&deep, "layers.1.attn.q_norm.weight (", "expected BF16 [32], found BF16 [1, 1, 32]");
}

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    const tiny_edit edit = {.tensor = "layers.2.ffn.experts.1.w2.scale", .name = ""};
    expect(&edit, "model.safetensors.index.json lacks 1 tensor that", "layers.2.ffn.experts.1.w2.scale");
    const tiny_edit renamed = {.tensor = "mtp.0.main_norm.weight", .name = "mtp.0.main_nrm.weight"};
    expect(&renamed, "model.safetensors.index.json lacks 1 tensor that", "mtp.0.main_norm.weight");
}

static void an_extra_tensor_is_named(void **state)
{
    (void)state;
    const tiny_edit edit = {.extra = "layers.3.attn_norm.weight"};
    expect(&edit, "model.safetensors.index.json has 1 tensor that config.json does not know", "layers.3.attn_norm.weight");
}

static void image_pad_is_tolerated(void **state)
{
    (void)state;
    const tiny_edit edit = {.extra = "image_pad"};
    mdl_checkpoint *const c = open_tiny(&edit);
    mdl_config config;
    mdl_weights w;
    tiny_config(&config);
    assert_int_equal(mdl_weights_bind(&config, c, &w, NULL), DI_OK);
    mdl_weights_free(&w);
    mdl_checkpoint_close(c);
}

static void many_misfits_are_counted(void **state)
{
    (void)state;
    mdl_checkpoint *const c = open_tiny(NULL);
    mdl_config config;
    mdl_weights w;
    di_error err;
    tiny_config(&config);
    config.n_experts = 5;
    unit_expect_error(mdl_weights_bind(&config, c, &w, &err), DI_E_FORMAT, &err, "layers.0.ffn.gate.weight", "expected BF16 [5, 32]", NULL);
    tiny_config(&config);
    config.draft.n_experts = 2;
    config.vision.present = false;
    config.vision.n_layers = 0;
    unit_expect_error(mdl_weights_bind(&config, c, &w, &err), DI_E_FORMAT, &err, "18 tensors that config.json does not know",
                      ", ...", NULL);
    tiny_config(&config);
    config.vision.n_layers = 3;
    unit_expect_error(mdl_weights_bind(&config, c, &w, &err), DI_E_FORMAT, &err, "lacks 16 tensors", "vision.blocks.1.norm1.weight", ", ...",
                      NULL);
    mdl_checkpoint_close(c);
}

static void shapes_are_shown_in_full_or_cut(void **state)
{
    (void)state;
    char text[64];
    mdl_shape_text(ST_F8_E4M3, 2, (const int64_t[]){2048, 128}, text, sizeof text);
    assert_string_equal(text, "F8_E4M3 [2048, 128]");
    mdl_shape_text(ST_F32, 0, NULL, text, sizeof text);
    assert_string_equal(text, "F32 []");
    mdl_shape_text(ST_F32, 3, (const int64_t[]){1234567, 1234567, 3}, text, 12);
    assert_string_equal(text, "F32 [123456");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_tensor_is_bound),        cmocka_unit_test(a_wrong_dtype_names_tensor_and_shard),
        cmocka_unit_test(a_wrong_shape_names_tensor_and_shard), cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(an_extra_tensor_is_named),             cmocka_unit_test(image_pad_is_tolerated),
        cmocka_unit_test(many_misfits_are_counted),             cmocka_unit_test(shapes_are_shown_in_full_or_cut),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
