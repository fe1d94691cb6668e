/* bench_slice.c - a slice of the released model, two layers of real shapes, through the engine: decode against the byte
 * floor, prefill against the multiply-add peak.
 *
 *   bench_slice [--json] [--experts N] [FOLDER]
 *
 * The first run writes a checkpoint of random weights into FOLDER (build/bench-slice-N) in the released layout: one
 * layer of ratio 2 and one of ratio 1, both with compressor and indexer, N routed experts a layer (48), a vocabulary of
 * 4096. Random gates choose experts evenly.
 *
 * The byte floor of a step is what it must read, at the read ceiling of the same round: all dense weights of the
 * layers, the head, the shared experts and the routed experts that are hit (batch 1: six a layer; batch 8: counted in
 * the same steps run with a trace), in checkpoint bytes. A prefill's floor is its multiply-adds in the layers at the
 * fp32 fused multiply-add peak. One thread is measured in processor time, two in time that passes; every figure is the
 * median of seven rounds, each of which measures the ceilings too. */
#include "ceiling.h"
#include "core/buf.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/pool.h"
#include "core/safetensors.h"
#include "cpu_bench.h"
#include "model/mdl_inventory.h"

#include <deepinfer/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = CPU_BENCH_ROUNDS, PROMPT = 512, BATCH = 8, VOCAB = 4096 };

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

static void must(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        bench_fail(err->message);
    }
}

/* --- The checkpoint ---------------------------------------------------------------------------------------------- */

/* Values of every kind, as long as the largest tensor; and what the model weighs. */
typedef struct slice {
    int32_t n_experts;
    mdl_config config;
    st_writer *writer;
    buf index;
    uint8_t *fp8;
    uint8_t *fp4;
    uint8_t *floats; /* BF16, small; as fp32 the same */
    uint8_t *scales;
    uint8_t *zeros;     /* the gate's bias, so that no expert is preferred */
    double hit;         /* routed experts of both layers that a step of a batch reads, on average */
    size_t dense_bytes; /* of both layers, shared experts included */
    size_t dense_values;
    size_t head_bytes;
    size_t expert_bytes; /* of one routed expert */
    size_t expert_values;
} slice;

static di_status add_tensor(void *arg, const mdl_tensor *t, di_error *err)
{
    slice *s = arg;
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
    slice *s = arg;
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
    must(file_write(path, text, n, &err), &err);
    free(path);
}

static void write_checkpoint(slice *s, const char *dir)
{
    const size_t n = (size_t)VOCAB * 5120 * 2; /* as much as embed.weight; wq_b has 32768 x 1280 bytes */
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
    must(st_writer_new(&s->writer, &err), &err);
    must(mdl_inventory_walk(&s->config, add_tensor, s, &err), &err);
    buf_puts(&s->index, "}}");
    char *path = bench_need(file_path_join(dir, "model.safetensors"));
    must(st_write(s->writer, path, &err), &err);
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

static void prepare(slice *s, const char *dir)
{
    char text[sizeof CONFIG + 32];
    di_error err;
    snprintf(text, sizeof text, CONFIG, s->n_experts);
    must(mdl_config_parse(text, strlen(text), &s->config, &err), &err);
    must(mdl_inventory_walk(&s->config, count_tensor, s, &err), &err);
    char *path = bench_need(file_path_join(dir, "config.json"));
    if (!file_exists(path)) {
        write_checkpoint(s, dir);
        write_text(dir, "config.json", text, strlen(text)); /* last: the folder is complete */
    }
    free(path);
}

/* --- Measuring --------------------------------------------------------------------------------------------------- */

typedef struct ceilings {
    pool *pool;
    int threads;
    int way;
    const uint8_t *data;
    size_t n_data;
    size_t at;
    double fma[64];
    float sink[64];
} ceilings;

static int64_t now_ns(int threads)
{
    if (threads > 1) {
        return clock_now_ns();
    }
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void read_share(void *arg, size_t begin, size_t end, int thread)
{
    ceilings *c = arg;
    const size_t share = c->n_data / ROUNDS / (size_t)c->threads;
    for (size_t i = begin; i < end; i++) {
        c->sink[thread] += (float)(ceiling_read(c->data + c->at * (c->n_data / ROUNDS) + i * share, share, c->way) & 1);
    }
}

/* Bytes a nanosecond. */
static double read_rate(ceilings *c)
{
    const int64_t start = now_ns(c->threads);
    pool_run(c->pool, (size_t)c->threads, read_share, c);
    c->at = (c->at + 1) % ROUNDS;
    return (double)(c->n_data / ROUNDS) / (double)(now_ns(c->threads) - start);
}

static void fma_share(void *arg, size_t begin, size_t end, int thread)
{
    ceilings *c = arg;
    for (size_t i = begin; i < end; i++) {
        c->fma[i] = ceiling_fma(400000, &c->sink[thread]);
    }
}

/* Multiply-adds a nanosecond. */
static double fma_rate(ceilings *c)
{
    double done = 0.0;
    const int64_t start = now_ns(c->threads);
    pool_run(c->pool, (size_t)c->threads, fma_share, c);
    const int64_t ns = now_ns(c->threads) - start;
    for (int i = 0; i < c->threads; i++) {
        done += c->fma[i];
    }
    return done / (double)ns;
}

static void report(bool json, const char *name, int threads, double value, const char *unit, const char *baseline,
                   double ratio)
{
    if (json) {
        printf("{\"bench\":\"slice\",\"case\":\"%s/"
               "%d\",\"metric\":\"speed\",\"value\":%.4g,\"unit\":\"%s\",\"baseline\":\"%s\","
               "\"ratio\":%.3f}\n",
               name, threads, value, unit, baseline, ratio);
    } else {
        printf("%-16s %d thread%s %9.2f %-6s %5.1f %% of %s\n", name, threads, threads > 1 ? "s" : " ", value, unit,
               100.0 * ratio, baseline);
    }
    fflush(stdout);
}

/* A sequence behind n tokens; with `all` every row goes through every layer, else only what the last one depends on. */
static di_sequence *start(di_engine *engine, uint64_t *seed, size_t n, bool all)
{
    int32_t ids[PROMPT];
    di_error err;
    di_sequence *s;
    must(di_sequence_new(engine, &s, &err), &err);
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(bench_random(seed) % 4000);
    }
    must(di_sequence_keep_logits(s, all, &err), &err);
    must(di_sequence_feed(s, ids, n, &err), &err);
    must(di_sequence_run(s, &err), &err);
    return s;
}

/* One token for each sequence; nanoseconds of the pass. */
static int64_t step(di_engine *engine, di_sequence **s, size_t n, int threads, uint64_t *seed)
{
    di_error err;
    int32_t ran;
    for (size_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)(bench_random(seed) % 4000);
        must(di_sequence_feed(s[i], &id, 1, &err), &err);
    }
    const int64_t begin = now_ns(threads);
    must(di_engine_step(engine, &ran, &err), &err);
    return now_ns(threads) - begin;
}

/* Bytes that a step of n sequences reads. */
static double floor_bytes(const slice *s, int32_t n)
{
    const double hit = n == 1 ? 2.0 * 6.0 : s->hit;
    return (double)s->dense_bytes + (double)s->head_bytes + hit * (double)s->expert_bytes;
}

/* Experts that the tokens of a step chose (trace of router_ids), by layer. */
typedef struct hit_set {
    uint8_t hit[2][384];
} hit_set;

static void collect_hits(void *user, const di_trace *t)
{
    hit_set *set = user;
    if (strstr(t->name, "router_ids") == NULL) {
        return;
    }
    const int32_t *ids = t->data;
    for (int64_t i = 0; i < t->dims[0] * t->dims[1]; i++) {
        set->hit[t->name[1] - '0'][ids[i]] = 1;
    }
}

static void start_batch(di_engine *engine, di_sequence **seqs, int32_t n, uint64_t *seed)
{
    for (int32_t i = 0; i < n; i++) {
        seqs[i] = start(engine, seed, 200, false);
    }
}

/* The steps that bench_decode measures, once with a trace; there each pass may run a part of the batch. */
static void measure_hits(slice *s, const di_model *model)
{
    hit_set set;
    di_error err;
    di_engine *engine;
    di_sequence *seqs[BATCH];
    uint64_t seed = 7;
    const int steps = 2 * (ROUNDS + 1);
    const di_engine_options options = {.chunk_tokens = PROMPT, .trace = collect_hits, .trace_user = &set};
    must(di_engine_open(model, &options, &engine, &err), &err);
    start_batch(engine, seqs, BATCH, &seed);
    for (int i = 0; i < steps; i++) {
        memset(&set, 0, sizeof set);
        step(engine, seqs, BATCH, 1, &seed);
        for (int b = 0; b < BATCH; b++) {
            must(di_sequence_run(seqs[b], &err), &err);
        }
        for (int e = 0; e < s->n_experts; e++) {
            s->hit += (double)(set.hit[0][e] + set.hit[1][e]) / steps;
        }
    }
    di_engine_close(engine);
}

static void bench_decode(const slice *s, di_engine *engine, ceilings *c, int32_t n, bool json)
{
    di_sequence *seqs[BATCH];
    double ms[ROUNDS];
    double ratio[ROUNDS];
    uint64_t seed = 7;
    char name[32];
    start_batch(engine, seqs, n, &seed);
    for (int r = -1; r < ROUNDS; r++) {
        const double rate = read_rate(c);
        int64_t ns = 0;
        const int steps = n == 1 ? 4 : 2;
        for (int i = 0; i < steps; i++) {
            ns += step(engine, seqs, (size_t)n, c->threads, &seed);
        }
        if (r >= 0) {
            ms[r] = (double)ns / steps * 1e-6;
            ratio[r] = floor_bytes(s, n) / rate / ((double)ns / steps);
        }
    }
    snprintf(name, sizeof name, "decode_x%d", (int)n);
    report(json, name, c->threads, bench_median(ms), "ms", "byte floor", bench_median(ratio));
    for (int32_t i = 0; i < n; i++) {
        di_sequence_free(seqs[i]);
    }
}

static void bench_prefill(const slice *s, di_engine *engine, ceilings *c, bool json)
{
    double speed[ROUNDS];
    double ratio[ROUNDS];
    uint64_t seed = 9;
    const double attention = 2.0 * 2.0 * 64.0 * 512.0 * (128.0 + PROMPT / 2.0); /* both layers, about */
    const double head = (double)s->head_bytes / 2.0;
    const double work = PROMPT * ((double)s->dense_values + 2.0 * 6.0 * (double)s->expert_values + attention + head);
    for (int r = 0; r < ROUNDS; r++) {
        const double rate = fma_rate(c);
        const int64_t begin = now_ns(c->threads);
        di_sequence *seq = start(engine, &seed, PROMPT, true);
        const int64_t ns = now_ns(c->threads) - begin;
        speed[r] = PROMPT * 1e9 / (double)ns;
        ratio[r] = work / rate / (double)ns;
        di_sequence_free(seq);
    }
    report(json, "prefill_512", c->threads, bench_median(speed), "tok/s", "fma", bench_median(ratio));
}

static void bench_threads(const slice *s, const di_model *model, int threads, const uint8_t *data, size_t n_data,
                          bool json)
{
    di_error err;
    di_engine *engine;
    ceilings c = {.threads = threads, .data = data, .n_data = n_data};
    must(pool_new(threads, &c.pool, &err), &err);
    must(di_engine_open(model, &(di_engine_options){.n_threads = threads, .chunk_tokens = PROMPT}, &engine, &err),
         &err);
    double best = 0.0;
    for (int i = 0; i < 2 * CEILING_READ_WAYS; i++) {
        ceilings tried = c;
        tried.way = i % CEILING_READ_WAYS;
        const double rate = read_rate(&tried);
        c.way = rate > best ? tried.way : c.way;
        best = rate > best ? rate : best;
    }
    bench_decode(s, engine, &c, 1, json);
    bench_decode(s, engine, &c, BATCH, json);
    bench_prefill(s, engine, &c, json);
    di_engine_close(engine);
    pool_free(c.pool);
}

int main(int argc, char **argv)
{
    slice s = {.n_experts = 48};
    bool json = false;
    char dir[4096] = "";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--experts") == 0 && i + 1 < argc) {
            s.n_experts = atoi(argv[++i]);
        } else {
            snprintf(dir, sizeof dir, "%s", argv[i]);
        }
    }
    if (s.n_experts < 6 || s.n_experts > 384) {
        bench_fail("--experts: 6 to 384");
    }
    if (dir[0] == '\0') {
        snprintf(dir, sizeof dir, "build/bench-slice-%d", (int)s.n_experts);
    }
    prepare(&s, dir);
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t n_data = (cache > 0 ? (size_t)cache : (size_t)64 << 20) * 8;
    uint8_t *data = mmap(NULL, n_data, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        bench_fail("out of memory");
    }
    (void)madvise(data, n_data, MADV_HUGEPAGE);
    memset(data, 1, n_data);
    di_error err;
    di_model *model;
    must(di_model_open(dir, NULL, &model, &err), &err);
    measure_hits(&s, model);
    fprintf(
        stderr,
        "%d experts, 12 hit by one token, %.1f by a batch; a step of one token reads %.0f MB, of %d about %.0f MB\n",
        (int)s.n_experts, s.hit, floor_bytes(&s, 1) * 1e-6, BATCH, floor_bytes(&s, BATCH) * 1e-6);
    bench_threads(&s, model, 1, data, n_data, json);
    bench_threads(&s, model, 2, data, n_data, json);
    di_model_close(model);
    munmap(data, n_data);
    return 0;
}
