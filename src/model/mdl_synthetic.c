/* mdl_synthetic.c - checkpoints of released shapes with random weights, written or in memory only. Public API: <deepinfer/model.h>.
 *
 * Speed depends on shapes, formats and on which experts are hit, not on what the weights know. Codes are normally distributed with the
 * largest of a thousand near the end of the format's range, as quantised weights are; their scales are all 2^-15, so that activations
 * keep their size; gates are random and their bias is zero, so that experts are chosen evenly. One block of values of each kind serves
 * all tensors of the kind. */
#include "core/core.h"
#include "model/mdl_inventory.h"
#include "model/model_int.h"
#include "ops/formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    DEFAULT_LAYERS = 2,
    MAX_LAYERS = 40,
    ACTIVE_EXPERTS = 6,
    DEFAULT_EXPERTS = 48,
    MAX_EXPERTS = 384,
    MAX_DRAFTS = 3,
    DRAFT_EXPERTS = 128,
    TAPS = 3,
    MIN_VOCAB = 4096,
    MAX_VOCAB = 129280,
    SCALE_CODE = 112,
    PERIOD = 1048583 /* values come again after so many bytes: a prime, so that no two rows are alike */
};

#define SHARD_NAME "model.safetensors"
#define MAX_CONFIG_BYTES ((size_t)64 << 10)
#define MAX_INDEX_BYTES ((size_t)256 << 20)

typedef struct synthetic {
    mdl_config config;
    buf text; /* config.json */
    st_writer *writer;
    buf index;
    size_t largest;  /* bytes of the largest tensor */
    uint8_t *values; /* [KINDS][largest] */
} synthetic;

enum { KIND_FP8, KIND_FP4, KIND_FLOAT, KIND_SCALE, KIND_ZERO, KINDS };

/* --- Configuration ------------------------------------------------------------------------------------------------------ */

static void put_draft(const di_synthetic *o, buf *b)
{
    buf_printf(b, "\"num_nextn_predict_layers\":%d,", o->n_drafts);
    if (o->n_drafts == 0) {
        return;
    }
    buf_printf(b, "\"dspark_block_size\":5,\"dspark_markov_rank\":256,\"dspark_num_experts_per_tok\":3,\"dspark_noise_token_id\":%d,",
               o->vocab - 17);
    buf_printf(b, "\"dspark_n_routed_experts\":%d,\"dspark_target_layer_ids\":[",
               o->n_experts < DRAFT_EXPERTS ? o->n_experts : DRAFT_EXPERTS);
    for (int32_t i = o->n_layers > TAPS ? o->n_layers - TAPS : 0; i < o->n_layers; i++) {
        buf_printf(b, "%d%s", i, i + 1 < o->n_layers ? "," : "],");
    }
}

static void put_config(const di_synthetic *o, buf *b)
{
    buf_printf(b,
               "{\"model_type\":\"deepseek_v41\",\"dtype\":\"bfloat16\",\"bos_token_id\":0,\"eos_token_id\":1,\"pad_token_id\":2,"
               "\"image_token_id\":%d,\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\","
               "\"weight_block_size\":[32,32],\"scale_fmt\":\"ue8m0\",\"expert_dtype\":\"fp4\"},\"text_config\":{\"vocab_size\":%d,",
               o->vocab - 16, o->vocab);
    buf_puts(b, "\"hidden_size\":5120,\"moe_intermediate_size\":2304,\"num_attention_heads\":64,\"head_dim\":512,"
                "\"qk_rope_head_dim\":64,\"q_lora_rank\":1280,\"o_lora_rank\":1024,\"o_groups\":8,\"swiglu_limit\":10.0,"
                "\"rms_norm_eps\":1e-20,\"max_position_embeddings\":8192,\"rope_theta\":10000,\"rope_scaling\":{\"rope_type\":"
                "\"yarn\",\"factor\":16,\"beta_fast\":32,\"beta_slow\":1,\"original_max_position_embeddings\":65536},"
                "\"compress_rope_theta\":160000,\"num_experts_per_tok\":6,\"routed_scaling_factor\":1.5,\"sliding_window\":128,"
                "\"index_n_heads\":32,\"index_head_dim\":128,\"index_topk\":512,\"candidate_topk_blocks\":2048,"
                "\"candidate_block_size\":8,\"hc_mult\":4,\"hc_sinkhorn_iters\":20,\"hc_eps\":1e-6,");
    put_draft(o, b);
    buf_printf(b, "\"num_hidden_layers\":%d,\"n_routed_experts\":%d,\"compress_ratios\":[", o->n_layers, o->n_experts);
    for (int32_t i = 0; i < o->n_layers; i++) {
        buf_puts(b, i == 0 ? "2" : ",1");
    }
    for (int32_t i = 0; i < o->n_drafts; i++) {
        buf_puts(b, ",0");
    }
    const char *const sources = o->n_layers > 1 ? "[0,1]" : "[0]";
    buf_printf(b, "],\"kv_source_layer_ids\":%s,\"index_source_layer_ids\":%s,\"candidate_source_layer_id\":%d}}\n", sources, sources,
               o->n_layers > 1 ? 1 : 0);
}

static di_status check_range(const char *name, int32_t value, int32_t least, int32_t most, di_error *err)
{
    return value >= least && value <= most
               ? DI_OK
               : err_set(err, DI_E_ARGUMENT, "synthetic model: %s is %d: must be %d to %d", name, value, least, most);
}

static di_status make_config(synthetic *s, const di_synthetic *options, di_error *err)
{
    di_synthetic o = *options;
    o.n_layers = o.n_layers != 0 ? o.n_layers : DEFAULT_LAYERS;
    o.n_experts = o.n_experts != 0 ? o.n_experts : DEFAULT_EXPERTS;
    o.vocab = o.vocab != 0 ? o.vocab : MIN_VOCAB;
    di_status status = check_range("layers", o.n_layers, 1, MAX_LAYERS, err);
    if (status == DI_OK) {
        status = check_range("experts", o.n_experts, ACTIVE_EXPERTS, MAX_EXPERTS, err);
    }
    if (status == DI_OK) {
        status = check_range("vocab", o.vocab, MIN_VOCAB, MAX_VOCAB, err);
    }
    if (status == DI_OK) {
        status = check_range("drafts", o.n_drafts, 0, MAX_DRAFTS, err);
    }
    if (status != DI_OK) {
        return status;
    }
    put_config(&o, &s->text);
    if (s->text.failed) {
        return err_memory(err, "config.json", MAX_CONFIG_BYTES);
    }
    return mdl_config_parse(s->text.data, s->text.size, &s->config, err);
}

/* --- Values ------------------------------------------------------------------------------------------------------------- */

static uint64_t next_bits(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* About normal: the sum of four, each of variance 1/12. */
static float next_normal(uint64_t *state, float sigma)
{
    const uint64_t bits = next_bits(state);
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        sum += (float)(bits >> 16 * i & 0xFFFF) * 0x1p-16f - 0.5f;
    }
    return sum * sigma * 1.7320508f;
}

static uint8_t value_of(int kind, size_t i, uint64_t *state)
{
    switch (kind) {
    case KIND_FP8:
        return e4m3_from_f32(next_normal(state, 120.0f));
    case KIND_FP4: {
        const uint8_t low = e2m1_from_f32(next_normal(state, 2.5f));
        return (uint8_t)(low | e2m1_from_f32(next_normal(state, 2.5f)) << 4);
    }
    case KIND_FLOAT: /* as bf16 or as the upper half of an fp32: sign and mantissa at random, 2^-7 */
        return i % 2 == 0 ? (uint8_t)next_bits(state) : (uint8_t)(0x3C | (next_bits(state) & 0x80));
    case KIND_SCALE:
        return SCALE_CODE;
    default:
        return 0;
    }
}

static void fill(int kind, uint8_t *out, size_t n)
{
    uint64_t state = (uint64_t)kind + 1;
    const size_t period = PERIOD + (kind == KIND_FLOAT ? 1 : 0); /* floats have two bytes */
    const size_t first = n < period ? n : period;
    for (size_t i = 0; i < first; i++) {
        out[i] = value_of(kind, i, &state);
    }
    for (size_t done = first; done < n;) {
        const size_t part = n - done < done ? n - done : done;
        memcpy(out + done, out, part);
        done += part;
    }
}

static size_t tensor_bytes(const mdl_tensor *t)
{
    size_t bytes = st_dtype_bytes(t->dtype);
    for (int i = 0; i < t->n_dims; i++) {
        bytes *= (size_t)t->dims[i]; /* inside the limits of the options: no overflow */
    }
    return bytes;
}

static di_status find_largest(void *arg, const mdl_tensor *t, di_error *err)
{
    synthetic *const s = arg;
    (void)err;
    s->largest = tensor_bytes(t) > s->largest ? tensor_bytes(t) : s->largest;
    return DI_OK;
}

static int kind_of(const mdl_tensor *t)
{
    if (strstr(t->name, "gate.bias") != NULL) {
        return KIND_ZERO;
    }
    if (t->role == MDL_SCALE) {
        return KIND_SCALE;
    }
    return t->dtype == ST_BF16 || t->dtype == ST_F32 ? KIND_FLOAT : t->format == OPS_FP4 ? KIND_FP4 : KIND_FP8;
}

static di_status add_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    synthetic *const s = arg;
    buf_puts(&s->index, s->index.data[s->index.size - 1] == '{' ? "" : ",");
    buf_json_string(&s->index, t->name, strlen(t->name));
    buf_puts(&s->index, ":\"" SHARD_NAME "\"");
    return st_writer_add(s->writer, t->name, t->dtype, t->n_dims, t->dims, s->values + (size_t)kind_of(t) * s->largest, err);
}

/* --- The checkpoint ----------------------------------------------------------------------------------------------------- */

static void synthetic_fini(synthetic *s)
{
    st_writer_free(s->writer);
    buf_fini(&s->index);
    buf_fini(&s->text);
    free(s->values);
}

/* Everything but the file: configuration, values, the list of tensors. The caller ends it with synthetic_fini in any case. */
static di_status synthetic_init(synthetic *s, const di_synthetic *options, di_error *err)
{
    *s = (synthetic){.largest = 0};
    buf_init(&s->text, MAX_CONFIG_BYTES);
    buf_init(&s->index, MAX_INDEX_BYTES);
    di_status status = make_config(s, options, err);
    if (status == DI_OK) {
        status = mdl_inventory_walk(&s->config, find_largest, s, err);
    }
    if (status != DI_OK) {
        return status;
    }
    s->largest = (s->largest + 63) / 64 * 64;
    s->values = malloc(KINDS * s->largest);
    if (s->values == NULL || !buf_puts(&s->index, "{\"weight_map\":{")) {
        return err_memory(err, "values of a synthetic model", KINDS * s->largest);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        fill(kind, s->values + (size_t)kind * s->largest, s->largest);
    }
    status = st_writer_new(&s->writer, err);
    if (status == DI_OK) {
        status = mdl_inventory_walk(&s->config, add_tensor, s, err);
    }
    buf_puts(&s->index, "}}\n");
    return status == DI_OK && s->index.failed ? err_memory(err, "index of a synthetic model", s->index.size) : status;
}

static di_status write_text(const char *dir, const char *name, const buf *text, di_error *err)
{
    char *const path = file_path_join(dir, name);
    const di_status status = path != NULL ? file_write(path, text->data, text->size, err) : err_memory(err, name, strlen(dir));
    free(path);
    return status;
}

di_status di_synthetic_write(const di_synthetic *options, const char *dir, di_error *err)
{
    synthetic s;
    char *const shard = file_path_join(dir, SHARD_NAME);
    di_status status = synthetic_init(&s, options, err);
    if (status == DI_OK && shard == NULL) {
        status = err_memory(err, dir, strlen(dir));
    }
    if (status == DI_OK && mkdir(dir, 0777) != 0 && errno != EEXIST) {
        status = err_set_errno(err, errno, "cannot make %s", dir);
    }
    if (status == DI_OK) {
        status = st_write(s.writer, shard, err);
    }
    if (status == DI_OK) {
        status = write_text(dir, "model.safetensors.index.json", &s.index, err);
    }
    if (status == DI_OK) {
        status = write_text(dir, "config.json", &s.text, err);
    }
    free(shard);
    synthetic_fini(&s);
    return status;
}

di_status di_synthetic_open(const di_synthetic *options, di_model **out, di_error *err)
{
    synthetic s;
    st_file *file = NULL;
    di_model *const m = calloc(1, sizeof *m);
    di_status status = synthetic_init(&s, options, err);
    if (status == DI_OK && m == NULL) {
        status = err_memory(err, "model", sizeof *m);
    }
    if (status == DI_OK) {
        status = st_writer_open(s.writer, SHARD_NAME, &file, err);
    }
    if (status == DI_OK) {
        m->config = s.config;
        m->values = s.values;
        s.values = NULL;
        status = mdl_checkpoint_of_file(file, &m->checkpoint, err);
        file = status == DI_OK ? NULL : file;
    }
    if (status == DI_OK) {
        status = mdl_weights_bind(&m->config, m->checkpoint, &m->weights, err);
    }
    st_close(file);
    synthetic_fini(&s);
    if (status != DI_OK) {
        di_model_close(m);
        return status;
    }
    *out = m;
    return DI_OK;
}

/* --- What a step reads -------------------------------------------------------------------------------------------------- */

static di_status count_step(void *arg, const mdl_tensor *t, di_error *err)
{
    di_step_bytes *const o = arg;
    const int64_t bytes = (int64_t)tensor_bytes(t);
    const int64_t values = t->role == MDL_MATRIX ? t->n_out * t->n_in : 0;
    (void)err;
    if (t->scope == MDL_IN_LAYER_EXPERT && t->layer == 0 && t->expert == 0) {
        o->expert += bytes;
        o->expert_values += values;
    } else if (t->scope == MDL_IN_LAYER && strstr(t->name, ".engram.embed.") == NULL) {
        o->dense += bytes;
        o->dense_values += values;
    } else if (strcmp(t->name, "head.weight") == 0) {
        o->head = bytes;
        o->head_values = values;
    }
    return DI_OK;
}

void di_model_get_step_bytes(const di_model *model, di_step_bytes *out)
{
    *out = (di_step_bytes){.dense = 0};
    (void)mdl_inventory_walk(&model->config, count_step, out, NULL);
}
