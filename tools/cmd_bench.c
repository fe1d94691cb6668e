/* cmd_bench.c - `deepinfer bench`: how fast a slice of the released model runs here, and which share of the machine that is.
 *
 * Whole layers of real shapes with random weights go through the engine: decode against the read ceiling, prefill against the peak of
 * fused multiply-adds, both measured in the same run (bench_slice.h). */
#include "bench_drafts.h"
#include "bench_slice.h"
#include "open.h"
#include "options.h"
#include "tools.h"

#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SPEC_BYTES = 4096 };

typedef struct bench_job {
    const char *spec;
    const char *batches;
    int64_t rounds;
    int64_t prompt;
    int64_t context;
    int64_t tflops;
    bool json;
    cli_engine_options engine;
    char spec_text[MAX_SPEC_BYTES]; /* the spec, cut at its commas */
    di_synthetic synthetic;
    const char *dir; /* in spec_text; NULL = memory only */
} bench_job;

static di_status set_number(const char *name, const char *text, int32_t *out, di_error *err)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > 1 << 20) {
        return err_set(err, DI_E_ARGUMENT, "--synthetic: %s=%s is not a count", name, text);
    }
    *out = (int32_t)value;
    return DI_OK;
}

static di_status set_field(bench_job *j, char *field, di_error *err)
{
    const struct {
        const char *name;
        int32_t *value;
    } numbers[] = {{"layers", &j->synthetic.n_layers}, {"experts", &j->synthetic.n_experts}, {"vocab", &j->synthetic.vocab},
                 {"drafts", &j->synthetic.n_drafts}};
    char *const value = strchr(field, '=');
    if (value != NULL) {
        *value = '\0';
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            if (strcmp(field, numbers[i].name) == 0) {
                return set_number(field, value + 1, numbers[i].value, err);
            }
        }
        if (strcmp(field, "dir") == 0 && value[1] != '\0') {
            j->dir = value + 1;
            return DI_OK;
        }
        *value = '=';
    }
    return err_set(err, DI_E_ARGUMENT, "--synthetic: '%s': must be layers=N, experts=N, vocab=N, drafts=N or dir=DIR, with commas between",
                   field);
}

static di_status read_spec(bench_job *j, di_error *err)
{
    const int n = snprintf(j->spec_text, sizeof j->spec_text, "%s", j->spec);
    if (n < 0 || (size_t)n >= sizeof j->spec_text) {
        return err_set(err, DI_E_LIMIT, "--synthetic: more than %d bytes", MAX_SPEC_BYTES - 1);
    }
    di_status status = DI_OK;
    for (char *at = j->spec_text; *at != '\0' && status == DI_OK;) {
        char *const comma = strchr(at, ',');
        char *const next = comma != NULL ? comma + 1 : at + strlen(at);
        if (comma != NULL) {
            *comma = '\0';
        }
        status = set_field(j, at, err);
        at = next;
    }
    return status;
}

/* A folder that is complete is used as it is. */
static di_status open_synthetic(const bench_job *j, di_model **out, di_error *err)
{
    if (j->dir == NULL) {
        return di_synthetic_open(&j->synthetic, out, err);
    }
    char *const config = file_path_join(j->dir, "config.json");
    di_status status = config != NULL ? DI_OK : err_memory(err, j->dir, strlen(j->dir));
    if (status == DI_OK && !file_exists(config)) {
        fprintf(stderr, "writing %s\n", j->dir);
        status = di_synthetic_write(&j->synthetic, j->dir, err);
    }
    free(config);
    return status == DI_OK ? di_model_open(j->dir, NULL, out, err) : status;
}

/* --- Report ------------------------------------------------------------------------------------------------------------- */

static void report(const bench_job *j, const char *name, const bench_result *r, const char *ceiling, const char *unit)
{
    if (!j->json) {
        char experts[24] = "";
        char bytes[24] = "";
        if (r->bytes > 0.0) {
            snprintf(experts, sizeof experts, "%.1f", r->experts);
            snprintf(bytes, sizeof bytes, "%.0f", r->bytes * 1e-6);
        }
        char ceiling_text[40] = "";
        if (r->ceiling > 0.0) {
            snprintf(ceiling_text, sizeof ceiling_text, "%10.2f %-7s %6.1f %%", r->ceiling, unit, 100.0 * r->share);
        }
        printf("%-14s %10.2f %10.2f %10s %9s %s\n", name, r->ms, r->tokens, experts, bytes, ceiling_text);
    } else {
        printf("{\"bench\":\"synthetic\",\"case\":\"%s\",\"metric\":\"time\",\"value\":%.5g,\"unit\":\"ms\",\"baseline\":\"%s\","
               "\"ratio\":%.4f,\"tokens_per_second\":%.5g,\"experts_hit\":%.4g,\"step_bytes\":%.0f,\"ceiling\":%.5g,"
               "\"ceiling_unit\":\"%s\",\"hits\":%.4f}\n",
               name, r->ms, ceiling, r->share, r->tokens, r->experts, r->bytes, r->ceiling, unit, r->hits);
    }
    fflush(stdout);
}

static void report_drafts(const bench_job *j, int32_t n, const bench_drafts_result *r)
{
    const double real = r->tokens * r->off_ms / r->ms;
    const double fixed = BENCH_FIXED_TOKENS * r->off_ms / r->ms;
    if (!j->json) {
        printf("drafts x%-6d %10.2f %10.2f %10.2f %10.2f %9.2f x %9.2f x\n", n, r->ms, r->off_ms, r->propose_ms, r->tokens, real, fixed);
    } else {
        printf("{\"bench\":\"synthetic\",\"case\":\"drafts x%d\",\"metric\":\"time\",\"value\":%.5g,\"unit\":\"ms\","
               "\"baseline\":\"no drafts\",\"ratio\":%.4f,\"off_ms\":%.5g,\"propose_ms\":%.5g,\"tokens_per_step\":%.4g,"
               "\"speedup_at_3_51\":%.4f}\n",
               n, r->ms, real, r->off_ms, r->propose_ms, r->tokens, fixed);
    }
    fflush(stdout);
}

static di_status run_drafts(const bench_job *j, const di_model *model, const bench_setup *setup, di_error *err)
{
    di_status status = DI_OK;
    if (!j->json) {
        printf("%-14s %10s %10s %10s %10s %11s %11s\n", "case", "ms", "without", "propose", "tokens", "speed-up", "at 3.51");
    }
    for (size_t i = 0; i < setup->n_batches && status == DI_OK; i++) {
        bench_drafts_result result;
        status = bench_drafts_run(model, setup, setup->batches[i], &result, err);
        if (status == DI_OK) {
            report_drafts(j, setup->batches[i], &result);
        }
    }
    return status;
}

static di_status read_batches(const bench_job *j, bench_setup *setup, di_error *err)
{
    int32_t *batches = NULL;
    size_t n = 0;
    di_status status = cli_read_ids(j->batches, &batches, &n, err);
    if (status == DI_OK && n > BENCH_MAX_BATCHES) {
        status = err_set(err, DI_E_ARGUMENT, "--batch: %zu cases: at most %d", n, BENCH_MAX_BATCHES);
    }
    for (size_t i = 0; i < n && status == DI_OK; i++) {
        if (batches[i] < 1 || batches[i] > BENCH_MAX_BATCH) {
            status = err_set(err, DI_E_ARGUMENT, "--batch: %d: must be 1 to %d", batches[i], BENCH_MAX_BATCH);
        } else {
            setup->batches[setup->n_batches++] = batches[i];
        }
    }
    free(batches);
    return status;
}

static di_status run_decode(const bench_job *j, const bench_setup *setup, bench_slice *s, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; i < setup->n_batches && status == DI_OK; i++) {
        bench_result result;
        char name[32];
        const bool streams = bench_slice_streams(s);
        snprintf(name, sizeof name, "decode x%d", setup->batches[i]);
        status = streams ? bench_slice_stream(s, i, &result, err) : bench_slice_decode(s, i, &result, err);
        if (status == DI_OK) {
            report(j, name, &result, streams ? "disk" : "byte floor", "GB/s");
        }
    }
    return status;
}

static di_status run_all(const bench_job *j, const di_model *model, di_error *err)
{
    char *const file = j->dir != NULL ? file_path_join(j->dir, "model.safetensors") : NULL;
    bench_setup setup = {
        .file = file,
        .rounds = (int32_t)j->rounds,
        .prompt = (int32_t)j->prompt,
        .context = j->context,
        .product_tflops = (double)j->tflops,
    };
    bench_slice *s = NULL;
    cli_get_engine(&j->engine, &setup.engine);
    setup.engine.chunk_tokens = (int32_t)(j->engine.chunk_tokens > 0 ? j->engine.chunk_tokens : j->prompt);
    di_status status = read_batches(j, &setup, err);
    if (status == DI_OK) {
        status = bench_slice_new(model, &setup, &s, err);
    }
    if (status != DI_OK) {
        free(file);
        return status;
    }
    if (!j->json) {
        printf("%-14s %10s %10s %10s %9s %18s %8s\n", "case", "ms", "tokens/s", "experts", "MB", "ceiling", "share");
    }
    status = run_decode(j, &setup, s, err);
    if (status == DI_OK && j->prompt > 0) {
        bench_result result;
        char name[32];
        snprintf(name, sizeof name, "prefill %d", (int)j->prompt);
        status = bench_slice_prefill(s, &result, err);
        if (status == DI_OK) {
            report(j, name, &result, "fma", "GMAC/s");
        }
    }
    bench_slice_free(s);
    if (status == DI_OK && j->synthetic.n_drafts > 0) {
        status = run_drafts(j, model, &setup, err);
    }
    free(file);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    bench_job j = {.batches = "1,8", .rounds = 7, .prompt = 512, .context = 200};
    cli_parser p;
    char **args;
    size_t n_args;
    di_error err;
    cli_parser_init(&p, "", 0, 0,
                    "Measure a slice of the released model against what this machine can do.\v"
                    "SPEC is layers=N,experts=N[,vocab=N][,drafts=N][,dir=DIR]: whole layers of released shapes with random weights, in "
                    "memory, or in DIR, which is written when it is not there. experts: different routed experts a layer reads in a step. "
                    "MB: what a step must read. share: of the time that the ceiling alone would need. A context above 512 tokens is "
                    "computed once, and all sequences share it. On a GPU the ceiling is what its memory copies, bytes read and written "
                    "together, and for prefill what --tflops says a large BF16 product reaches there (cuBLAS, 8192^3). With --ram-budget, "
                    "which takes dir=DIR, the ceiling is the disk's rate, and MB what steps read from it. drafts: layers of a "
                    "draft model (3 as "
                    "released); then steps that verify five drafts a sequence and propose the next ones stand beside steps without. "
                    "tokens: what a sequence gets in such a step; as random weights say nothing of that, the speed-up is also given for "
                    "3.51 of them.");
    cli_add_string(&p, "synthetic", "SPEC", &j.spec, "what to measure, as layers=2,experts=48");
    cli_add_string(&p, "batch", "N,N", &j.batches, "sequences of the decode cases (default 1,8)");
    cli_add_int(&p, "prompt-tokens", "N", &j.prompt, 0, 65536, "tokens of the prefill case; 0 = none (default 512)");
    cli_add_int(&p, "context", "N", &j.context, 1, 1 << 20, "tokens before decoding (default 200)");
    cli_add_int(&p, "tflops", "N", &j.tflops, 0, 100000, "GPU: BF16 ceiling that prefill is measured against");
    cli_add_int(&p, "rounds", "N", &j.rounds, 1, BENCH_MAX_ROUNDS, "rounds that medians are taken of (default 7)");
    cli_add_flag(&p, "json", &j.json, "JSON lines");
    cli_add_engine(&p, &j.engine);
    cli_parse(&p, argc, argv, &args, &n_args);
    if (j.spec == NULL) {
        return cli_usage(&p, "--synthetic SPEC is missing");
    }
    di_model *model = NULL;
    di_status status = read_spec(&j, &err);
    if (status != DI_OK) {
        return cli_usage(&p, "%s", err.message);
    }
    status = open_synthetic(&j, &model, &err);
    if (status == DI_OK) {
        status = run_all(&j, model, &err);
    }
    di_model_close(model);
    return status == DI_OK ? CLI_OK : cli_fail(&err);
}
