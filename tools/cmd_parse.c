/* cmd_parse.c - `deepinfer parse`: generated tokens to reasoning, text and tool calls, or to the events or the body of an API.
 *
 * With --request the request says how the output is read and what the response echoes, else the options do. Input: parse_input.h. */
#include "parse_input.h"
#include "recipe_options.h"
#include "tools.h"

#include "core/core.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MAX_BODY_BYTES ((size_t)1 << 30)
#define MAX_LINE_BYTES ((size_t)1 << 30)

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
    buf line;
} job;

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
        buf_printf(line, "{\"type\":\"finish\",\"reason\":\"%s\",\"stop\":", parse_finish_name(piece->finish));
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
static di_status drain(void *user, di_error *err)
{
    job *j = user;
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
static di_status end(job *j, parse_sink *sink, di_error *err)
{
    di_status status = DI_OK;
    for (int32_t i = 0; status == DI_OK && i < sink->n_choices; i++) {
        status = parse_finish(sink, i, j->text ? DI_FINISH_STOP : DI_FINISH_CUT, err);
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
    status = open_sink(j, err);
    if (status != DI_OK) {
        return status;
    }
    parse_sink sink = {
        .request = j->request,
        .has_tokenizer = j->recipe.tokenizer != NULL,
        .reply = j->reply,
        .output = j->output,
        .n_choices = j->request != NULL && !j->pieces ? di_request_inference(j->request)->n : 1,
        .drain = drain,
        .user = j,
    };
    status = j->text ? parse_text(&sink, err) : parse_lines(&sink, err);
    return status == DI_OK ? end(j, &sink, err) : status;
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
                    "Each line of the input is a JSON value: \"text\", [ids], {\"ids\":[...],\"logprobs\":[...]}, "
                    "{\"ready\":[PROMPT,CACHED]} or {\"finish\":\"stop\"}. Without --stream, --body and --pieces the request "
                    "decides; without one it is --body.");
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
