/* tiny.c - see tiny.h. */
#include "model/tiny.h"

#include "support/unit.h"

#include "core/buf.h"
#include "core/file.h"
#include "model/mdl_inventory.h"

#include <stdlib.h>
#include <string.h>

static const char config_text[] =
    "{\"model_type\":\"deepseek_v41\",\"dtype\":\"bfloat16\",\"bos_token_id\":0,\"eos_token_id\":1,\"pad_token_id\":2,"
    "\"image_token_id\":60,\n"
    "\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"weight_block_size\":[32,32],"
    "\"scale_fmt\":\"ue8m0\",\"expert_dtype\":\"fp4\"},\n"
    "\"text_config\":{\"vocab_size\":64,\"hidden_size\":32,\"moe_intermediate_size\":32,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":2,\"head_dim\":32,\"qk_rope_head_dim\":16,\"q_lora_rank\":32,\"o_lora_rank\":32,\"o_groups\":2,"
    "\"swiglu_limit\":10.0,\"rms_norm_eps\":1e-20,\"max_position_embeddings\":256,\"rope_theta\":10000,"
    "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":32,\"beta_slow\":1,\"original_max_position_embeddings\":32},"
    "\"compress_rope_theta\":160000,\"n_routed_experts\":3,\"num_experts_per_tok\":2,\"routed_scaling_factor\":1.5,"
    "\"sliding_window\":16,\"compress_ratios\":[0,2,1,0],\"kv_source_layer_ids\":[1,2],\"index_source_layer_ids\":[1,2],"
    "\"index_n_heads\":2,\"index_head_dim\":32,\"index_topk\":8,\"candidate_source_layer_id\":-1,\"hc_mult\":2,"
    "\"engram_layer_ids\":[1],\"engram_num_embeddings\":[70],\"engram_max_ngram_size\":3,\"engram_vocab_size\":20,"
    "\"engram_n_heads\":1,\"engram_head_dim\":32,\"engram_compressed_vocab_size\":32,\"num_nextn_predict_layers\":1,"
    "\"dspark_block_size\":4,\"dspark_noise_token_id\":61,\"dspark_target_layer_ids\":[2,1],\"dspark_markov_rank\":16,"
    "\"dspark_n_routed_experts\":2,\"dspark_num_experts_per_tok\":1},\n"
    "\"vision_config\":{\"num_hidden_layers\":1,\"hidden_size\":8,\"num_attention_heads\":2,\"intermediate_size\":12,"
    "\"patch_size\":2,\"rope_theta\":10000,\"downsample_ratio\":2,\"max_image_tokens\":24,\"min_pixels\":100,\"max_wh_ratio\":null}}\n";

/* Larger than the largest tensor of the configuration above. */
enum { PATTERN_BYTES = 1 << 16 };

typedef struct tiny_writer {
    st_writer *shards[2];
    buf index;
    const tiny_edit *edit;
    const uint8_t *pattern;
    size_t count;
} tiny_writer;

const char *tiny_config_text(void)
{
    return config_text;
}

void tiny_config(mdl_config *config)
{
    di_error err;
    if (mdl_config_parse(config_text, strlen(config_text), config, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
}

static void add(tiny_writer *w, const char *name, st_dtype dtype, int n_dims, const int64_t *dims)
{
    const size_t shard = w->count % 2;
    const uint8_t *const data = w->pattern + w->count % 50; /* tensors differ from each other */
    assert_int_equal(st_writer_add(w->shards[shard], name, dtype, n_dims, dims, data, NULL), DI_OK);
    buf_puts(&w->index, w->count > 0 ? "," : "");
    buf_json_string(&w->index, name, strlen(name));
    buf_printf(&w->index, ":\"%s\"", shard == 0 ? TINY_SHARD_1 : TINY_SHARD_2);
    w->count++;
}

static di_status add_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    (void)err;
    tiny_writer *const w = arg;
    const tiny_edit *const e = w->edit;
    if (e == NULL || e->tensor == NULL || strcmp(e->tensor, t->name) != 0) {
        add(w, t->name, t->dtype, t->n_dims, t->dims);
    } else if (e->name == NULL || e->name[0] != '\0') {
        const bool shaped = e->n_dims != 0;
        add(w, e->name != NULL ? e->name : t->name, e->use_dtype ? e->dtype : t->dtype, shaped ? e->n_dims : t->n_dims,
            shaped ? e->dims : t->dims);
    }
    return DI_OK;
}

void tiny_write(const char *dir, const tiny_edit *edit)
{
    mdl_config config;
    tiny_config(&config);
    uint8_t *const pattern = malloc(PATTERN_BYTES + 50);
    assert_non_null(pattern);
    for (size_t i = 0; i < PATTERN_BYTES + 50; i++) {
        pattern[i] = (uint8_t)(i * 7 % 61);
    }
    tiny_writer w = {.edit = edit, .pattern = pattern};
    buf_init(&w.index, 1 << 20);
    buf_puts(&w.index, "{\"metadata\":{},\"weight_map\":{");
    assert_int_equal(st_writer_new(&w.shards[0], NULL), DI_OK);
    assert_int_equal(st_writer_new(&w.shards[1], NULL), DI_OK);
    assert_int_equal(mdl_inventory_walk(&config, add_tensor, &w, NULL), DI_OK);
    if (edit != NULL && edit->extra != NULL) {
        add(&w, edit->extra, ST_U8, 1, (const int64_t[]){3});
    }
    buf_puts(&w.index, "}}");
    assert_false(w.index.failed);
    static const char *const names[] = {TINY_SHARD_1, TINY_SHARD_2};
    for (size_t i = 0; i < 2; i++) {
        char *const path = file_path_join(dir, names[i]);
        assert_non_null(path);
        assert_int_equal(st_write(w.shards[i], path, NULL), DI_OK);
        st_writer_free(w.shards[i]);
        free(path);
    }
    unit_write(dir, TINY_INDEX, w.index.data, w.index.size);
    unit_write(dir, "config.json", config_text, strlen(config_text));
    buf_fini(&w.index);
    free(pattern);
}
