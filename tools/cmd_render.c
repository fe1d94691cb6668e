/* cmd_render.c - `deepinfer render`: the prompt that a request body becomes, as text, as ids, or with everything else that was read
 * from the body (--json, in the names of the test vectors).
 *
 * A refused body ends with exit code 1 and its message; with --json standard output has the body that a server would answer. */
#include "recipe_options.h"
#include "terminal.h"
#include "tools.h"

#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_BODY_BYTES ((size_t)1 << 30)
#define MAX_OUTPUT_BYTES ((size_t)16 << 30)

typedef struct job {
    cli_recipe_options options;
    di_protocol protocol;
    bool ids;
    bool json;
    int64_t threads;
    int64_t context; /* 0 = max_tokens as asked */
    cli_recipe recipe;
    di_request *request;
    int32_t *id_list; /* NULL when there is no tokenizer */
    size_t n_ids;
    buf out;
} job;

/* --- JSON --------------------------------------------------------------------------------------------------------------- */

static void put_key(buf *out, const char *key)
{
    buf_printf(out, "%s\"%s\":", out->data[out->size - 1] == '{' ? "" : ",", key);
}

static void put_bool(buf *out, const char *key, bool value)
{
    put_key(out, key);
    buf_puts(out, value ? "true" : "false");
}

static void put_string(buf *out, const char *key, const char *text, size_t size)
{
    put_key(out, key);
    buf_json_string(out, text, size);
}

static void put_ids(buf *out, const int32_t *ids, size_t n, const char *separator)
{
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%" PRId32, i > 0 ? separator : "", ids[i]);
    }
}

static void put_images(buf *out, const di_request *request)
{
    static const char *const kinds[] = {[DI_IMAGE_URL] = "url", [DI_IMAGE_DATA_URL] = "data_url", [DI_IMAGE_BYTES] = "bytes"};
    static const char *const details[] = {
        [DI_DETAIL_HIGH] = "high", [DI_DETAIL_LOW] = "low", [DI_DETAIL_ORIGINAL] = "original", [DI_DETAIL_AUTO] = "auto"};
    size_t n;
    const di_image_ref *images = di_request_images(request, &n);
    put_key(out, "images");
    buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        const di_image_ref *image = &images[i];
        buf_printf(out, "%s{\"kind\":\"%s\",\"detail\":\"%s\"", i > 0 ? "," : "", kinds[image->kind], details[image->detail]);
        put_string(out, "path", image->path, strlen(image->path));
        put_key(out, "ref");
        if (image->kind != DI_IMAGE_BYTES) {
            buf_json_string(out, image->data, image->size);
        } else {
            buf_puts(out, "\"");
            for (size_t k = 0; k < image->size; k++) {
                static const char digits[] = "0123456789abcdef";
                const unsigned char byte = (unsigned char)image->data[k];
                const char pair[2] = {digits[byte >> 4], digits[byte & 15]};
                buf_append(out, pair, sizeof pair);
            }
            buf_puts(out, "\"");
        }
        buf_puts(out, "}");
    }
    buf_puts(out, "]");
}

static void put_constraint(buf *out, const di_inference *inference)
{
    static const char *const names[] = {
        [DI_CONSTRAINT_NONE] = "",
        [DI_CONSTRAINT_JSON] = "json",
        [DI_CONSTRAINT_REGEX] = "regex",
        [DI_CONSTRAINT_TOOL_CALL] = "tool_call",
        [DI_CONSTRAINT_TOOL_REQUIRED] = "tool_call_required",
    };
    put_key(out, "constraint");
    if (inference->constraint == DI_CONSTRAINT_NONE) {
        buf_puts(out, "null");
        return;
    }
    buf_printf(out, "[\"%s\",", names[inference->constraint]);
    buf_json_string(out, inference->constraint_text, inference->constraint_size);
    buf_puts(out, "]");
}

static void put_inference(buf *out, const di_inference *inference, int64_t max_tokens)
{
    put_key(out, "inference");
    buf_puts(out, "{");
    put_key(out, "max_tokens");
    buf_printf(out, max_tokens >= 0 ? "%" PRId64 : "null", max_tokens);
    put_key(out, "temperature");
    buf_printf(out, "%.9g", (double)inference->temperature);
    put_key(out, "top_p");
    buf_printf(out, "%.9g", (double)inference->top_p);
    put_bool(out, "logprobs", inference->logprobs);
    put_key(out, "top_logprobs");
    buf_printf(out, inference->top_logprobs >= 0 ? "%" PRId32 : "null", inference->top_logprobs);
    put_key(out, "seed");
    buf_printf(out, inference->has_seed ? "%" PRIu64 : "null", inference->seed);
    put_key(out, "n");
    buf_printf(out, "%" PRId32, inference->n);
    put_key(out, "presence_penalty");
    buf_printf(out, "%.9g", (double)inference->presence_penalty);
    put_key(out, "frequency_penalty");
    buf_printf(out, "%.9g", (double)inference->frequency_penalty);
    put_key(out, "logit_bias");
    buf_puts(out, "{");
    for (size_t i = 0; i < inference->n_bias; i++) {
        buf_printf(out, "%s\"%" PRId32 "\":%.9g", i > 0 ? "," : "", inference->bias[i].id, (double)inference->bias[i].bias);
    }
    buf_puts(out, "}");
    put_constraint(out, inference);
    buf_puts(out, "}");
}

static void put_parsing(buf *out, const di_output_options *options)
{
    static const char *const stages[] = {
        [DI_STAGE_NONE] = "null",
        [DI_STAGE_REASONING_START] = "\"reasoning_start\"",
        [DI_STAGE_REASONING] = "\"reasoning\"",
        [DI_STAGE_CONTENT] = "\"content\"",
    };
    put_key(out, "parsing");
    buf_puts(out, "{");
    put_bool(out, "tools", options->tools);
    put_bool(out, "in_tools", options->in_tools);
    put_bool(out, "json", options->json);
    put_key(out, "stage");
    buf_puts(out, stages[options->stage]);
    put_key(out, "stop");
    buf_puts(out, "[");
    for (size_t i = 0; i < options->n_stops; i++) {
        const char *stop = options->stops[i];
        buf_puts(out, i > 0 ? "," : "");
        buf_json_string(out, stop, options->stop_sizes != NULL ? options->stop_sizes[i] : strlen(stop));
    }
    buf_puts(out, "]}");
}

static void put_object(job *j, int64_t max_tokens)
{
    const di_request *request = j->request;
    buf *out = &j->out;
    size_t n;
    const char *prompt = di_request_prompt(request, &n);
    buf_puts(out, "{");
    put_string(out, "model", di_request_model(request), strlen(di_request_model(request)));
    put_string(out, "version", di_request_version(request) == DI_V4 ? "v4" : "v41", di_request_version(request) == DI_V4 ? 2 : 3);
    put_bool(out, "stream", di_request_stream(request));
    put_bool(out, "thinking", di_request_thinking(request));
    put_string(out, "prompt", prompt, n);
    const di_range *ranges = di_request_control_ranges(request, &n);
    put_key(out, "special");
    buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s[%zu,%zu]", i > 0 ? "," : "", ranges[i].begin, ranges[i].end);
    }
    buf_puts(out, "]");
    put_key(out, "ids");
    buf_puts(out, j->id_list != NULL ? "[" : "null");
    put_ids(out, j->id_list, j->id_list != NULL ? j->n_ids : 0, ",");
    buf_puts(out, j->id_list != NULL ? "]" : "");
    put_images(out, request);
    put_inference(out, di_request_inference(request), max_tokens);
    put_parsing(out, di_request_output(request));
    buf_puts(out, "}\n");
}

/* --- Text ------------------------------------------------------------------------------------------------------------------ */

/* The prompt as it is; on a terminal with control tokens in colour, and nothing in it that drives the terminal. */
static void put_prompt(job *j)
{
    size_t n;
    size_t n_ranges;
    size_t at = 0;
    const char *prompt = di_request_prompt(j->request, &n);
    const di_range *ranges = di_request_control_ranges(j->request, &n_ranges);
    if (!isatty(STDOUT_FILENO)) {
        buf_append(&j->out, prompt, n);
        return;
    }
    const bool colour = term_has_colour(stdout);
    for (size_t i = 0; i < n_ranges; i++) {
        term_put(&j->out, prompt + at, ranges[i].begin - at);
        buf_puts(&j->out, colour ? TERM_MARK : "");
        term_put(&j->out, prompt + ranges[i].begin, ranges[i].end - ranges[i].begin);
        buf_puts(&j->out, colour ? TERM_RESET : "");
        at = ranges[i].end;
    }
    term_put(&j->out, prompt + at, n - at);
    buf_puts(&j->out, "\n");
}

/* --- Running --------------------------------------------------------------------------------------------------------------- */

static di_status show(job *j, di_error *err)
{
    int64_t max_tokens = di_request_inference(j->request)->max_tokens;
    di_status status = DI_OK;
    if (j->ids || j->context > 0 || (j->json && j->recipe.tokenizer != NULL)) {
        status = cli_request_ids(j->request, (int)j->threads, &j->id_list, &j->n_ids, err);
    }
    if (status == DI_OK && j->context > 0) {
        status = di_request_max_tokens(j->request, (int64_t)j->n_ids, j->context, &max_tokens, err);
    }
    if (status != DI_OK) {
        return status;
    }
    if (j->json) {
        put_object(j, max_tokens);
    } else if (j->ids) {
        put_ids(&j->out, j->id_list, j->n_ids, " ");
        buf_puts(&j->out, "\n");
    } else {
        put_prompt(j);
    }
    return DI_OK;
}

static di_status put_refusal(job *j, di_status status, const di_error *err)
{
    char body[1024];
    const size_t n = di_recipe_error_body(j->protocol, di_recipe_http_status(status), err->message, body, sizeof body);
    buf_clear(&j->out);
    buf_append(&j->out, body, n < sizeof body ? n : sizeof body - 1);
    buf_puts(&j->out, "\n");
    return status;
}

static di_status flush(job *j, di_error *err)
{
    if (j->out.failed) {
        return err_memory(err, "output", j->out.size);
    }
    if (j->out.size > 0 && (fwrite(j->out.data, 1, j->out.size, stdout) != j->out.size || fflush(stdout) != 0)) {
        return err_set(err, DI_E_IO, "standard output: write failed");
    }
    return DI_OK;
}

static di_status run(job *j, const char *path, di_error *err)
{
    char *text = NULL;
    size_t n = 0;
    di_status status = cli_open_recipe(&j->options, &j->recipe, err);
    if (status == DI_OK && path != NULL) {
        status = file_read(path, MAX_BODY_BYTES, &text, &n, err);
    } else if (status == DI_OK) {
        status = file_read_stream(STDIN_FILENO, "standard input", MAX_BODY_BYTES, &text, &n, err);
    }
    if (status != DI_OK) {
        return status;
    }
    status = di_request_read(j->recipe.recipe, j->protocol, text, n, &j->request, err);
    free(text);
    if (status == DI_OK) {
        status = show(j, err);
    }
    if (status != DI_OK && j->json) {
        status = put_refusal(j, status, err);
    }
    if (status == DI_OK || j->json) {
        const di_status written = flush(j, status == DI_OK ? err : NULL);
        status = status == DI_OK ? written : status;
    }
    return status;
}

int cmd_render(int argc, char **argv)
{
    job j = {.threads = 0};
    cli_parser parser;
    cli_parser_init(&parser, "[FILE]", 0, 1,
                    "Print the prompt that a request body (FILE or standard input) becomes.\v"
                    "On a terminal control tokens are coloured; elsewhere the prompt comes byte for byte. --json prints everything "
                    "that was read from the body, or, when it is refused, the error body that a server would answer; the exit code is "
                    "1 then.");
    cli_add_recipe(&parser, &j.options);
    cli_add_flag(&parser, "ids", &j.ids, "token ids instead of text");
    cli_add_flag(&parser, "json", &j.json, "one JSON object with the prompt, its control tokens, ids, images and parameters");
    cli_add_int(&parser, "context", "N", &j.context, 0, INT64_C(1) << 40, "with --json: max_tokens for a context of N tokens");
    cli_add_int(&parser, "threads", "N", &j.threads, 0, 1024, "threads for long prompts; 0 = all processors");
    char **args;
    size_t n_args;
    cli_parse(&parser, argc, argv, &args, &n_args);
    int code = cli_check_recipe(&parser, &j.options, &j.protocol);
    if (code != CLI_OK) {
        return code;
    }
    if (j.context > 0 && !j.json) {
        return cli_usage(&parser, "--context needs --json");
    }
    buf_init(&j.out, MAX_OUTPUT_BYTES);
    di_error err;
    if (run(&j, n_args > 0 ? args[0] : NULL, &err) != DI_OK) {
        code = cli_fail(&err);
    }
    di_request_free(j.request);
    free(j.id_list);
    cli_close_recipe(&j.recipe);
    buf_fini(&j.out);
    return code;
}
