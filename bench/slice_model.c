/* slice_model.c - see slice_model.h. Every tensor of a kind has the same random values: what they are costs nothing, and writing is as
 * fast as the disk. */
#include "slice_model.h"

#include "core/buf.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "cpu_bench.h"
#include "model/mdl_inventory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char CONFIG[] =
    "{\"model_type\":\"deepseek_v41\",\"dtype\":\"bfloat16\",\"bos_token_id\":0,\"eos_token_id\":1,\"pad_token_id\":2,"
    "\"image_token_id\":4080,\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\","
    "\"weight_block_size\":[32,32],\"scale_fmt\":\"ue8m0\",\"expert_dtype\":\"fp4\"},\"text_config\":{\"vocab_size\":"
    "4096,"
    "\"hidden_size\":5120,\"moe_intermediate_size\":2304,\"num_hidden_layers\":2,\"num_attention_heads\":64,\"head_"
    "dim\":512,"
    "\"qk_rope_head_dim\":64,\"q_lora_rank\":1280,\"o_lora_rank\":1024,\"o_groups\":8,\"swiglu_limit\":10.0,"
    "\"rms_norm_eps\":1e-20,\"max_position_embeddings\":8192,\"rope_theta\":10000,\"rope_scaling\":{\"rope_type\":"
    "\"yarn\","
    "\"factor\":16,\"beta_fast\":32,\"beta_slow\":1,\"original_max_position_embeddings\":65536},\"compress_rope_"
    "theta\":160000,"
    "\"n_routed_experts\":%d,\"num_experts_per_tok\":6,\"routed_scaling_factor\":1.5,\"sliding_window\":128,"
    "\"compress_ratios\":[2,1],\"kv_source_layer_ids\":[0,1],\"index_source_layer_ids\":[0,1],\"index_n_heads\":32,"
    "\"index_head_dim\":128,\"index_topk\":512,\"candidate_source_layer_id\":1,\"candidate_topk_blocks\":2048,"
    "\"candidate_block_size\":8,\"hc_mult\":4,\"hc_sinkhorn_iters\":20,\"hc_eps\":1e-6,\"num_nextn_predict_layers\":0}}"
    "\n";

/* Values of every kind, as long as the largest tensor. */
typedef struct writing {
    st_writer *writer;
    buf index;
    uint8_t *fp8;
    uint8_t *fp4;
    uint8_t *floats; /* BF16, small; as fp32 the same */
    uint8_t *scales;
    uint8_t *zeros; /* the gate's bias, so that no expert is preferred */
} writing;

static di_status add_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    writing *s = arg;
    const uint8_t *data = t->format == OPS_FP4 ? s->fp4 : s->fp8;
    if (strstr(t->name, "gate.bias") != NULL) {
        data = s->zeros;
    } else if (t->role == MDL_SCALE) {
        data = s->scales;
    } else if (t->dtype == ST_BF16 || t->dtype == ST_F32) {
        data = s->floats;
    }
    buf_puts(&s->index, s->index.size > 16 ? "," : "");
    buf_json_string(&s->index, t->name, strlen(t->name));
    buf_puts(&s->index, ":\"model.safetensors\"");
    return st_writer_add(s->writer, t->name, t->dtype, t->n_dims, t->dims, data, err);
}

static di_status count_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    slice_model *s = arg;
    size_t bytes = st_dtype_bytes(t->dtype);
    (void)err;
    for (int i = 0; i < t->n_dims; i++) {
        bytes *= (size_t)t->dims[i];
    }
    const size_t values = t->role == MDL_MATRIX ? (size_t)(t->n_out * t->n_in) : 0;
    if (t->scope == MDL_IN_LAYER_EXPERT) {
        s->expert_bytes += t->layer == 0 && t->expert == 0 ? bytes : 0;
        s->expert_values += t->layer == 0 && t->expert == 0 ? values : 0;
    } else if (t->scope == MDL_IN_LAYER) {
        s->dense_bytes += bytes;
        s->dense_values += values;
    } else if (strcmp(t->name, "head.weight") == 0) {
        s->head_bytes = bytes;
    }
    return DI_OK;
}

static void write_text(const char *dir, const char *name, const char *text, size_t n)
{
    di_error err;
    char *path = bench_need(file_path_join(dir, name));
    bench_must(file_write(path, text, n, &err), &err);
    free(path);
}

static void write_checkpoint(const mdl_config *config, const char *dir)
{
    writing all = {0};
    writing *const s = &all;
    const size_t n = (size_t)SLICE_VOCAB * 5120 * 2; /* as much as embed.weight; wq_b has 32768 x 1280 bytes */
    uint64_t seed = 1;
    di_error err;
    s->fp8 = bench_need(malloc(n));
    s->fp4 = bench_need(malloc(n));
    s->floats = bench_need(malloc(n));
    s->scales = bench_need(malloc(n));
    s->zeros = bench_need(calloc(n, 1));
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t bits = bench_random(&seed);
        const uint64_t floats = (bits & 0x80FF80FF80FF80FFu) | 0x3C003C003C003C00u;
        memcpy(s->floats + i, &floats, 8);
    }
    bench_fill_fp8(s->fp8, n, &seed);
    bench_fill_fp4(s->fp4, n / 2, &seed); /* an expert's matrix has 5.9 MB */
    memset(s->scales, 112, n);
    fprintf(stderr, "writing %s\n", dir);
    (void)mkdir(dir, 0777);
    buf_init(&s->index, (size_t)64 << 20);
    buf_puts(&s->index, "{\"weight_map\":{");
    bench_must(st_writer_new(&s->writer, &err), &err);
    bench_must(mdl_inventory_walk(config, add_tensor, s, &err), &err);
    buf_puts(&s->index, "}}");
    char *path = bench_need(file_path_join(dir, "model.safetensors"));
    bench_must(st_write(s->writer, path, &err), &err);
    write_text(dir, "model.safetensors.index.json", s->index.data, s->index.size);
    st_writer_free(s->writer);
    buf_fini(&s->index);
    free(path);
    free(s->fp8);
    free(s->fp4);
    free(s->floats);
    free(s->scales);
    free(s->zeros);
}

void slice_model_prepare(slice_model *out, int32_t n_experts, const char *dir)
{
    char text[sizeof CONFIG + 32];
    mdl_config config;
    di_error err;
    *out = (slice_model){.n_experts = n_experts};
    snprintf(text, sizeof text, CONFIG, n_experts);
    bench_must(mdl_config_parse(text, strlen(text), &config, &err), &err);
    bench_must(mdl_inventory_walk(&config, count_tensor, out, &err), &err);
    char *path = bench_need(file_path_join(dir, "config.json"));
    if (!file_exists(path)) {
        write_checkpoint(&config, dir);
        write_text(dir, "config.json", text, strlen(text)); /* last: the folder is complete */
    }
    free(path);
}
