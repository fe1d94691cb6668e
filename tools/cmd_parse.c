/* cmd_parse.c - `deepinfer parse`: generated tokens to reasoning, text and tool calls, or to the events or the body of an API.
 *
 * Input is one JSON value a line, each taken and answered before the next is read, so that the command works inside a pipe:
 *   "text"                          a piece of text, one token
 *   [19923, 14]                     ids
 *   {"ids":[5],"logprobs":[[-0.2,[[5,-0.2],[7,-3]]]]}
 *   {"ready":[11,4]}                tokens of the prompt, and how many of them were cached; before the first piece
 *   {"finish":"stop"}               also length and content_filter; a missing one is a generation that broke off
 * A "choice" in an object says which of several answers it belongs to. With --text the input is text as it stands. */
#include "recipe_options.h"
#include "tools.h"

#include "core/core.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_BODY_BYTES ((size_t)1 << 30)
#define MAX_LINE_BYTES ((size_t)1 << 30)
#define READ_BYTES 65536

typedef struct job {
    /* options */
    cli_recipe_options options;
    di_protocol protocol;
    const char *request_file;
    bool thinking;
    bool tools;
    bool in_tools;
    bool json_answer;
    cli_list stops;
    bool stream;
    bool body;
    bool pieces;
    bool text;
    const char *id;
    int64_t created; /* -1 = now */
    /* what the run holds; all owned */
    cli_recipe recipe;
    di_request *request; /* NULL without --request */
    di_reply *reply;     /* NULL with --pieces */
    di_output *output;   /* NULL without --pieces */
    int32_t n_choices;
    bool started;
    buf line;
} job;

static const char *const finish_names[] = {
    [DI_FINISH_NONE] = "",
    [DI_FINISH_STOP] = "stop",
    [DI_FINISH_LENGTH] = "length",
    [DI_FINISH_FILTER] = "content_filter",
    [DI_FINISH_STOP_STRING] = "stop_string",
    [DI_FINISH_TOOL_CALLS] = "tool_calls",
    [DI_FINISH_CUT] = "cut",
};

/* --- Output -------------------------------------------------------------------------------------------------------------- */

static di_status write_out(const char *data, size_t size, di_error *err)
{
    if (size > 0 && (fwrite(data, 1, size, stdout) != size || fflush(stdout) != 0)) {
        return err_set_errno(err, errno, "standard output");
    }
    return DI_OK;
}

static void put_piece(buf *line, const di_output *output, const di_piece *piece)
{
    switch (piece->kind) {
    case DI_PIECE_REASONING:
    case DI_PIECE_TEXT:
        buf_printf(line, "{\"type\":\"%s\",\"text\":", piece->kind == DI_PIECE_TEXT ? "text" : "reasoning");
        buf_json_string(line, piece->text, piece->size);
        break;
    case DI_PIECE_CALL:
        buf_printf(line, "{\"type\":\"call\",\"index\":%" PRId32 ",\"name\":", piece->call);
        buf_json_string(line, piece->text, piece->size);
        break;
    case DI_PIECE_ARGUMENTS:
        buf_printf(line, "{\"type\":\"arguments\",\"index\":%" PRId32 ",\"text\":", piece->call);
        buf_json_string(line, piece->text, piece->size);
        break;
    case DI_PIECE_FINISH: {
        di_usage usage;
        di_output_usage(output, &usage);
        buf_printf(line, "{\"type\":\"finish\",\"reason\":\"%s\",\"stop\":", finish_names[piece->finish]);
        if (piece->stop != NULL) {
            buf_json_string(line, piece->stop, piece->stop_size);
        } else {
            buf_puts(line, "null");
        }
        buf_printf(line, ",\"completion_tokens\":%" PRId64 ",\"reasoning_tokens\":%" PRId64, usage.completion_tokens,
                   usage.reasoning_tokens);
        break;
    }
    }
    buf_puts(line, "}\n");
}

/* Writes what the last call gave. */
static di_status drain(job *j, di_error *err)
{
    if (j->stream) {
        const char *frames;
        size_t n;
        const di_status status = di_reply_frames(j->reply, &frames, &n, err);
        return status == DI_OK ? write_out(frames, n, err) : status;
    }
    if (!j->pieces) {
        return DI_OK;
    }
    di_piece piece;
    buf_clear(&j->line);
    while (di_output_next(j->output, &piece)) {
        put_piece(&j->line, j->output, &piece);
    }
    return j->line.failed ? err_memory(err, "output line", j->line.size) : write_out(j->line.data, j->line.size, err);
}

/* --- Input --------------------------------------------------------------------------------------------------------------- */

/* The prompt's length is known when there is a request and a tokenizer; a "ready" line says it otherwise. */
static di_status start(job *j, int64_t prompt_tokens, int64_t cached_tokens, di_error *err)
{
    j->started = true;
    return j->reply != NULL ? di_reply_ready(j->reply, prompt_tokens, cached_tokens, err) : DI_OK;
}

static di_status start_unless_started(job *j, di_error *err)
{
    size_t n = 0;
    if (j->started || j->request == NULL || j->recipe.tokenizer == NULL) {
        j->started = true;
        return DI_OK;
    }
    const di_status status = di_request_encode(j->request, 0, NULL, 0, &n, err);
    return status == DI_OK ? start(j, (int64_t)n, 0, err) : status;
}

static di_status push_text(job *j, int32_t choice, const char *text, size_t n, di_error *err)
{
    di_status status = start_unless_started(j, err);
    if (status != DI_OK) {
        return status;
    }
    return j->pieces ? di_output_push_text(j->output, text, n, 1, err) : di_reply_push_text(j->reply, choice, text, n, 1, err);
}

static di_status finish(job *j, int32_t choice, di_finish reason, di_error *err)
{
    di_status status = start_unless_started(j, err);
    const di_finish before = j->pieces ? di_output_finished(j->output) : di_reply_finished(j->reply, choice);
    if (status != DI_OK || before != DI_FINISH_NONE) {
        return status; /* a stop string has ended the answer */
    }
    return j->pieces ? di_output_finish(j->output, reason, err) : di_reply_finish(j->reply, choice, reason, err);
}

static di_status read_id(const js_value *value, int32_t *id, di_error *err)
{
    const int64_t number = js_int(value);
    if (js_kind_of(value) != JS_INT || number < 0 || number > INT32_MAX) {
        return err_set(err, DI_E_FORMAT, "a token id is a whole number from 0 to 2147483647");
    }
    *id = (int32_t)number;
    return DI_OK;
}

/* [[logprob, [[id, logprob], ...]], ...], one for each id. */
static di_status read_logprobs(const js_value *list, const int32_t *ids, size_t n, di_token_logprobs *out, di_token_logprob *top,
                               di_error *err)
{
    if (js_length(list) != n) {
        return err_set(err, DI_E_FORMAT, "logprobs: %zu entries for %zu ids", js_length(list), n);
    }
    for (size_t i = 0; i < n; i++) {
        const js_value *likely = js_at(js_at(list, i), 1);
        const size_t n_top = js_length(likely);
        if (n_top > DI_MAX_TOP_LOGPROBS) {
            return err_set(err, DI_E_FORMAT, "logprobs[%zu]: more than %d tokens", i, DI_MAX_TOP_LOGPROBS);
        }
        out[i] = (di_token_logprobs){.id = ids[i], .logprob = (float)js_number(js_at(js_at(list, i), 0)), .n_top = (int32_t)n_top, .top = top};
        for (size_t k = 0; k < n_top; k++) {
            const di_status status = read_id(js_at(js_at(likely, k), 0), &top->id, err);
            if (status != DI_OK) {
                return status;
            }
            top->logprob = (float)js_number(js_at(js_at(likely, k), 1));
            top++;
        }
    }
    return DI_OK;
}

static di_status push_ids(job *j, int32_t choice, const js_value *list, const js_value *logprobs, di_error *err)
{
    const size_t n = js_length(list);
    int32_t *ids = ar_calloc(n + 1, sizeof *ids);
    di_token_logprobs *entries = ar_calloc(n + 1, sizeof *entries);
    di_token_logprob *top = ar_calloc(n * DI_MAX_TOP_LOGPROBS + 1, sizeof *top);
    di_status status = start_unless_started(j, err);
    if (status == DI_OK && (ids == NULL || entries == NULL || top == NULL)) {
        status = err_memory(err, "token ids", n * sizeof *ids);
    }
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        status = read_id(js_at(list, i), &ids[i], err);
    }
    const bool has_logprobs = js_kind_of(logprobs) == JS_ARRAY;
    if (status == DI_OK && has_logprobs) {
        status = read_logprobs(logprobs, ids, n, entries, top, err);
    }
    if (status == DI_OK && j->pieces) {
        status = di_output_push_ids(j->output, ids, n, has_logprobs ? entries : NULL, err);
    } else if (status == DI_OK) {
        status = di_reply_push_ids(j->reply, choice, ids, n, has_logprobs ? entries : NULL, err);
    }
    free(ids);
    free(entries);
    free(top);
    return status;
}

static di_status finish_by_name(job *j, int32_t choice, const js_value *name, di_error *err)
{
    static const di_finish reasons[] = {DI_FINISH_STOP, DI_FINISH_LENGTH, DI_FINISH_FILTER};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (strcmp(js_string(name, NULL), finish_names[reasons[i]]) == 0) {
            return finish(j, choice, reasons[i], err);
        }
    }
    return err_set(err, DI_E_FORMAT, "finish is \"stop\", \"length\" or \"content_filter\"");
}

static di_status take_object(job *j, const js_value *object, di_error *err)
{
    const js_value *ready = js_get(object, "ready");
    const int64_t choice = js_int(js_get(object, "choice"));
    size_t n;
    if (choice < 0 || choice >= j->n_choices) {
        return err_set(err, DI_E_FORMAT, "choice %" PRId64 ": there are %" PRId32, choice, j->n_choices);
    }
    if (ready != NULL) {
        return start(j, js_int(js_at(ready, 0)), js_int(js_at(ready, 1)), err);
    }
    if (js_get(object, "finish") != NULL) {
        return finish_by_name(j, (int32_t)choice, js_get(object, "finish"), err);
    }
    if (js_kind_of(js_get(object, "ids")) == JS_ARRAY) {
        return push_ids(j, (int32_t)choice, js_get(object, "ids"), js_get(object, "logprobs"), err);
    }
    if (js_kind_of(js_get(object, "text")) == JS_STRING) {
        const char *text = js_string(js_get(object, "text"), &n);
        return push_text(j, (int32_t)choice, text, n, err);
    }
    return err_set(err, DI_E_FORMAT, "an object has \"text\", \"ids\", \"ready\" or \"finish\"");
}

static di_status take_line(job *j, const char *line, size_t size, di_error *err)
{
    js_doc *doc = NULL;
    di_status status = js_parse(line, size, "input", NULL, &doc, err);
    if (status != DI_OK) {
        return status;
    }
    const js_value *value = js_root(doc);
    size_t n;
    switch (js_kind_of(value)) {
    case JS_STRING: {
        const char *text = js_string(value, &n);
        status = push_text(j, 0, text, n, err);
        break;
    }
    case JS_ARRAY:
        status = push_ids(j, 0, value, NULL, err);
        break;
    case JS_OBJECT:
        status = take_object(j, value, err);
        break;
    default:
        status = err_set(err, DI_E_FORMAT, "expected a string, an array of ids or an object");
        break;
    }
    js_free(doc);
    return status == DI_OK ? drain(j, err) : status;
}

static di_status run_lines(job *j, di_error *err)
{
    char *line = NULL;
    size_t capacity = 0;
    di_status status = DI_OK;
    for (size_t number = 1; status == DI_OK; number++) {
        const ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0) {
            status = ferror(stdin) ? err_set(err, DI_E_IO, "standard input: read failed") : DI_OK;
            break;
        }
        if (strspn(line, " \t\r\n") == (size_t)n) {
            continue;
        }
        status = (size_t)n > MAX_LINE_BYTES ? err_set(err, DI_E_LIMIT, "over 1 GiB") : take_line(j, line, (size_t)n, err);
        if (status != DI_OK) {
            err_prefix(err, "line %zu", number);
        }
    }
    free(line);
    return status;
}

static di_status run_text(job *j, di_error *err)
{
    char text[READ_BYTES];
    for (;;) {
        const ssize_t n = read(STDIN_FILENO, text, sizeof text);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? err_set_errno(err, errno, "standard input") : DI_OK;
        }
        di_status status = push_text(j, 0, text, (size_t)n, err);
        if (status == DI_OK) {
            status = drain(j, err);
        }
        if (status != DI_OK) {
            return status;
        }
    }
}

/* --- Running ------------------------------------------------------------------------------------------------------------- */

static di_status read_request(job *j, di_error *err)
{
    char *text = NULL;
    size_t n;
    if (j->request_file == NULL) {
        return DI_OK;
    }
    di_status status = file_read(j->request_file, MAX_BODY_BYTES, &text, &n, err);
    if (status == DI_OK) {
        status = di_request_read(j->recipe.recipe, j->protocol, text, n, &j->request, err);
    }
    free(text);
    return status;
}

static di_status open_sink(job *j, di_error *err)
{
    const di_output_options output = {
        .tools = j->tools || j->in_tools,
        .in_tools = j->in_tools,
        .json = j->json_answer,
        .stage = j->thinking ? DI_STAGE_REASONING_START : DI_STAGE_NONE,
        .stops = j->stops.items,
        .n_stops = j->stops.n,
    };
    if (j->pieces) {
        return di_output_new(j->recipe.recipe, j->request != NULL ? di_request_output(j->request) : &output, &j->output, err);
    }
    const int64_t now = j->created >= 0 ? j->created : (int64_t)time(NULL);
    const di_reply_options options = {
        .id = j->id,
        .created = now,
        .model = j->request == NULL ? "DeepSeek-V4.1-Flash" : NULL,
        .protocol = j->protocol,
        .output = output,
    };
    const di_status status = di_reply_new(j->recipe.recipe, j->request, &options, &j->reply, err);
    if (status == DI_OK) {
        di_reply_set_time(j->reply, now);
    }
    return status;
}

/* Input has ended: whatever has not been finished was cut, but plain text is complete. */
static di_status end(job *j, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t i = 0; status == DI_OK && i < j->n_choices; i++) {
        status = finish(j, i, j->text ? DI_FINISH_STOP : DI_FINISH_CUT, err);
    }
    if (status == DI_OK) {
        status = drain(j, err);
    }
    if (status != DI_OK || !j->body) {
        return status;
    }
    const char *body;
    size_t n;
    status = di_reply_body(j->reply, &body, &n, err);
    if (status == DI_OK) {
        status = write_out(body, n, err);
    }
    return status == DI_OK ? write_out("\n", 1, err) : status;
}

static di_status run(job *j, di_error *err)
{
    di_status status = cli_open_recipe(&j->options, &j->recipe, err);
    if (status == DI_OK) {
        status = read_request(j, err);
    }
    if (status != DI_OK) {
        return status;
    }
    if (!j->pieces && !j->body && !j->stream) {
        j->stream = j->request != NULL && di_request_stream(j->request);
        j->body = !j->stream;
    }
    j->n_choices = j->request != NULL && !j->pieces ? di_request_inference(j->request)->n : 1;
    status = open_sink(j, err);
    if (status == DI_OK) {
        status = j->text ? run_text(j, err) : run_lines(j, err);
    }
    return status == DI_OK ? end(j, err) : status;
}

static void release(job *j)
{
    di_reply_free(j->reply);
    di_output_free(j->output);
    di_request_free(j->request);
    cli_close_recipe(&j->recipe);
    buf_fini(&j->line);
}

static int check_options(const cli_parser *p, const job *j)
{
    if (j->stream + j->body + j->pieces > 1) {
        return cli_usage(p, "give one of --stream, --body and --pieces");
    }
    if (j->request_file != NULL && (j->thinking || j->tools || j->in_tools || j->json_answer || j->stops.n > 0)) {
        return cli_usage(p, "--request says it all: leave --thinking, --tools, --in-tools, --json-answer and --stop away");
    }
    return CLI_OK;
}

int cmd_parse(int argc, char **argv)
{
    job j = {.id = "response-0", .created = -1};
    cli_parser parser;
    cli_parser_init(&parser, "", 0, 0,
                    "Parse generated tokens from standard input: reasoning, text and tool calls, as an API returns them.\v"
                    "Each line of the input is a JSON value: \"text\", [ids], {\"ids\":[...],\"logprobs\":[...]}, {\"ready\":[PROMPT,CACHED]} "
                    "or {\"finish\":\"stop\"}. Without --stream, --body and --pieces the request decides; without one it is --body.");
    cli_add_recipe(&parser, &j.options);
    cli_add_string(&parser, "request", "FILE", &j.request_file, "the body that was asked; it decides how the output is read and echoed");
    cli_add_flag(&parser, "thinking", &j.thinking, "the output begins with reasoning");
    cli_add_flag(&parser, "tools", &j.tools, "look for tool calls");
    cli_add_flag(&parser, "in-tools", &j.in_tools, "the output begins inside a block of tool calls");
    cli_add_flag(&parser, "json-answer", &j.json_answer, "the answer is one JSON text");
    cli_add_list(&parser, "stop", "STRING", &j.stops, "text that ends the answer and is no part of it; may be repeated");
    cli_add_flag(&parser, "stream", &j.stream, "print server-sent events");
    cli_add_flag(&parser, "body", &j.body, "print the whole response");
    cli_add_flag(&parser, "pieces", &j.pieces, "print pieces as JSON lines");
    cli_add_flag(&parser, "text", &j.text, "the input is the text itself");
    cli_add_string(&parser, "id", "ID", &j.id, "id of the response");
    cli_add_int(&parser, "created", "SECONDS", &j.created, 0, INT64_C(1) << 40, "time of the response (now)");
    char **args;
    size_t n_args;
    cli_parse(&parser, argc, argv, &args, &n_args);
    int code = cli_check_recipe(&parser, &j.options, &j.protocol);
    if (code == CLI_OK) {
        code = check_options(&parser, &j);
    }
    if (code != CLI_OK) {
        return code;
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the next write */
    buf_init(&j.line, MAX_LINE_BYTES);
    di_error err;
    if (run(&j, &err) != DI_OK) {
        code = cli_fail(&err);
    }
    release(&j);
    return code;
}
