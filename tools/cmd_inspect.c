/* cmd_inspect.c - `deepinfer inspect`: layers, parameters, bytes and formats of a checkpoint, and what it needs to run here.
 *
 * Reads config.json and the shards' headers, so the size of the checkpoint does not matter. The needs are an estimate: weights are
 * mapped, so memory short of them means reading from disk again and again, not failure. */
#include "options.h"
#include "tools.h"

#include "core/core.h"

#include <deepinfer/model.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_JSON_BYTES ((size_t)16 << 20)

/* Contexts for which the memory of a sequence is shown; the model's longest is added. */
static const int64_t contexts[] = {4096, 32768, 131072};
enum { N_CONTEXTS = sizeof contexts / sizeof contexts[0] };

typedef struct machine {
    int64_t memory_bytes; /* 0 = unknown */
    int64_t available_bytes;
    int64_t n_processors;
} machine;

static machine this_machine(void)
{
    machine m = {.n_processors = sysconf(_SC_NPROCESSORS_ONLN)};
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int64_t kib;
        if (sscanf(line, "MemTotal: %" SCNd64, &kib) == 1) {
            m.memory_bytes = kib * 1024;
        } else if (sscanf(line, "MemAvailable: %" SCNd64, &kib) == 1) {
            m.available_bytes = kib * 1024;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return m;
}

static int64_t sequence_bytes(const di_model_info *info, int64_t n_tokens)
{
    return info->state_bytes + info->kv_bytes_per_token * n_tokens;
}

/* Parameters a token passes through: table look-ups and idle experts are left out, as are draft model and image encoder. */
static int64_t active_parameters(const di_inspection *inspection)
{
    static const char *const idle[] = {"embedding", "Engram tables", "draft model", "image encoder"};
    const di_model_info *info = di_inspection_info(inspection);
    const di_part *parts;
    const size_t n = di_inspection_parts(inspection, &parts);
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        bool counts = true;
        for (size_t k = 0; k < sizeof idle / sizeof idle[0]; k++) {
            counts = counts && strcmp(parts[i].name, idle[k]) != 0;
        }
        const bool routed = strcmp(parts[i].name, "routed experts") == 0;
        sum += !counts ? 0 : routed ? parts[i].n_parameters / info->n_experts * info->n_active_experts : parts[i].n_parameters;
    }
    return sum;
}

/* "31.6 MB", in powers of ten as file sizes are given. */
static const char *in_units(double value, const char *unit, char *out, size_t capacity)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    size_t p = 0;
    while (value >= 999.95 && p + 1 < sizeof prefixes / sizeof prefixes[0]) {
        value /= 1000;
        p++;
    }
    snprintf(out, capacity, p == 0 ? "%.0f %s%s" : "%.1f %s%s", value, prefixes[p], unit);
    return out;
}

/* --- Table ------------------------------------------------------------------------------------------------------------ */

static void print_parts(const char *title, const di_part *parts, size_t n, int64_t total_bytes)
{
    printf("\n%-20s %9s %12s %12s %7s\n", title, "tensors", "parameters", "bytes", "share");
    for (size_t i = 0; i < n; i++) {
        char parameters[32];
        char bytes[32];
        printf("%-20s %9" PRId64 " %12s %12s %6.2f%%\n", parts[i].name, parts[i].n_tensors,
               in_units((double)parts[i].n_parameters, "", parameters, sizeof parameters),
               in_units((double)parts[i].n_bytes, "B", bytes, sizeof bytes),
               100.0 * (double)parts[i].n_bytes / (double)total_bytes);
    }
}

static void print_layers(const di_layer *layers, size_t n)
{
    printf("\n%-6s %-30s %-8s %-10s %-7s %12s %12s\n", "layer", "attention", "KV of", "index of", "Engram", "parameters", "bytes");
    for (size_t i = 0; i < n; i++) {
        const di_layer *l = &layers[i];
        char kind[40] = "window";
        char kv[16] = "-";
        char list[16] = "-";
        char parameters[32];
        char bytes[32];
        if (l->ratio > 0) {
            snprintf(kind, sizeof kind, "window + 1 entry per %d token%s", l->ratio, l->ratio == 1 ? "" : "s");
            snprintf(kv, sizeof kv, "%d", l->kv_source);
            snprintf(list, sizeof list, "%d", l->index_source);
        }
        printf("%-6zu %-30s %-8s %-10s %-7s %12s %12s\n", i, kind, kv, list, l->has_engram ? "yes" : "-",
               in_units((double)l->n_parameters, "", parameters, sizeof parameters),
               in_units((double)l->n_bytes, "B", bytes, sizeof bytes));
    }
}

static void print_needs(const di_model_info *info, const machine *m)
{
    char a[32];
    char b[32];
    printf("\nmemory of a sequence: %s fixed + %" PRId64 " B a token\n", in_units((double)info->state_bytes, "B", a, sizeof a),
           info->kv_bytes_per_token);
    for (size_t i = 0; i <= N_CONTEXTS; i++) {
        const int64_t n = i < N_CONTEXTS ? contexts[i] : info->max_tokens;
        if (n <= info->max_tokens && (i == N_CONTEXTS || n < info->max_tokens)) {
            printf("  %9" PRId64 " tokens %12s\n", n, in_units((double)sequence_bytes(info, n), "B", a, sizeof a));
        }
    }
    if (m->memory_bytes == 0) {
        return;
    }
    printf("this machine: %" PRId64 " processors, %s of memory, %s available\n", m->n_processors,
           in_units((double)m->memory_bytes, "B", a, sizeof a), in_units((double)m->available_bytes, "B", b, sizeof b));
    printf("weights need %s: %s\n", in_units((double)info->weight_bytes, "B", a, sizeof a),
           info->weight_bytes <= m->available_bytes ? "they fit" : "they do NOT fit, and would be read from disk over and over");
}

static void print_table(const char *dir, const di_inspection *inspection, const machine *m)
{
    const di_model_info *info = di_inspection_info(inspection);
    const di_part *parts;
    const di_part *formats;
    const di_layer *layers;
    const size_t n_parts = di_inspection_parts(inspection, &parts);
    const size_t n_formats = di_inspection_formats(inspection, &formats);
    const size_t n_layers = di_inspection_layers(inspection, &layers);
    int64_t total = 0;
    char a[32];
    char b[32];
    char c[32];
    for (size_t i = 0; i < n_parts; i++) {
        total += parts[i].n_parameters;
    }
    printf("%s\n", dir);
    printf("%s parameters, %s active per token, in %" PRId64 " tensors of %s\n", in_units((double)total, "", a, sizeof a),
           in_units((double)active_parameters(inspection), "", b, sizeof b), info->n_tensors,
           in_units((double)info->weight_bytes, "B", c, sizeof c));
    printf("%d layers, hidden size %d, vocabulary %d, %d experts of which %d run, context %" PRId64 "\n", info->n_layers,
           info->hidden_size, info->vocab_size, info->n_experts, info->n_active_experts, info->max_tokens);
    printf("draft model: %d layers; image encoder: %d layers\n", info->n_draft_layers, info->n_vision_layers);
    print_parts("part", parts, n_parts, info->weight_bytes);
    print_parts("format", formats, n_formats, info->weight_bytes);
    print_layers(layers, n_layers);
    print_needs(info, m);
}

/* --- JSON ------------------------------------------------------------------------------------------------------------- */

static void put_parts(buf *out, const char *key, const di_part *parts, size_t n)
{
    buf_printf(out, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s{\"name\":\"%s\",\"tensors\":%" PRId64 ",\"parameters\":%" PRId64 ",\"bytes\":%" PRId64 "}",
                   i > 0 ? "," : "", parts[i].name, parts[i].n_tensors, parts[i].n_parameters, parts[i].n_bytes);
    }
    buf_puts(out, "]");
}

static void put_json(buf *out, const char *dir, const di_inspection *inspection, const machine *m)
{
    const di_model_info *info = di_inspection_info(inspection);
    const di_part *parts;
    const di_layer *layers;
    buf_puts(out, "{\"checkpoint\":");
    buf_json_string(out, dir, strlen(dir));
    buf_printf(out, ",\"tensors\":%" PRId64 ",\"bytes\":%" PRId64 ",\"active_parameters\":%" PRId64, info->n_tensors,
               info->weight_bytes, active_parameters(inspection));
    buf_printf(out, ",\"layers\":%d,\"draft_layers\":%d,\"vision_layers\":%d,\"hidden_size\":%d,\"vocab_size\":%d",
               info->n_layers, info->n_draft_layers, info->n_vision_layers, info->hidden_size, info->vocab_size);
    buf_printf(out, ",\"experts\":%d,\"active_experts\":%d,\"max_tokens\":%" PRId64, info->n_experts, info->n_active_experts,
               info->max_tokens);
    buf_printf(out, ",\"kv_bytes_per_token\":%" PRId64 ",\"state_bytes\":%" PRId64, info->kv_bytes_per_token, info->state_bytes);
    size_t n = di_inspection_parts(inspection, &parts);
    put_parts(out, "parts", parts, n);
    n = di_inspection_formats(inspection, &parts);
    put_parts(out, "formats", parts, n);
    n = di_inspection_layers(inspection, &layers);
    buf_puts(out, ",\"layer\":[");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s{\"ratio\":%d,\"kv_source\":%d,\"index_source\":%d,\"engram\":%s,\"parameters\":%" PRId64
                        ",\"bytes\":%" PRId64 "}",
                   i > 0 ? "," : "", layers[i].ratio, layers[i].kv_source, layers[i].index_source,
                   layers[i].has_engram ? "true" : "false", layers[i].n_parameters, layers[i].n_bytes);
    }
    buf_printf(out, "],\"machine\":{\"processors\":%" PRId64 ",\"memory_bytes\":%" PRId64 ",\"available_bytes\":%" PRId64
                    "},\"weights_fit\":%s}\n",
               m->n_processors, m->memory_bytes, m->available_bytes, info->weight_bytes <= m->available_bytes ? "true" : "false");
}

static di_status print_json(const char *dir, const di_inspection *inspection, const machine *m, di_error *err)
{
    buf out;
    buf_init(&out, MAX_JSON_BYTES);
    put_json(&out, dir, inspection, m);
    const di_status status = out.failed ? err_memory(err, "output", out.size) : DI_OK;
    if (status == DI_OK) {
        fwrite(out.data, 1, out.size, stdout);
    }
    buf_fini(&out);
    return status;
}

int cmd_inspect(int argc, char **argv)
{
    bool json = false;
    char path[4096];
    cli_parser p;
    char **args;
    size_t n_args;
    di_error err;
    di_inspection *inspection = NULL;
    cli_parser_init(&p, "[DIR]", 0, 1, "Show what a checkpoint consists of and what it needs to run here.\v"
                                       "Only config.json and the headers of the shards are read. Without DIR: the demo model.");
    cli_add_flag(&p, "json", &json, "one JSON object");
    cli_parse(&p, argc, argv, &args, &n_args);
    const char *dir = n_args > 0 ? args[0] : path;
    di_status status = n_args > 0 ? DI_OK : di_model_default_path(path, sizeof path, &err);
    if (status == DI_OK) {
        status = di_inspection_new(dir, &inspection, &err);
    }
    const machine m = this_machine();
    if (status == DI_OK && json) {
        status = print_json(dir, inspection, &m, &err);
    } else if (status == DI_OK) {
        print_table(dir, inspection, &m);
    }
    di_inspection_free(inspection);
    if (status == DI_OK && fflush(stdout) != 0) {
        status = err_set(&err, DI_E_IO, "standard output: write failed");
    }
    return status == DI_OK ? CLI_OK : cli_fail(&err);
}
