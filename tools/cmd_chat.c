/* cmd_chat.c - `deepinfer chat`: a conversation with a model, at the terminal or one question at a time.
 *
 * The way of a question: a Chat Completions body (chat_talk.h) -> recipe, engine, output parser (chat_engine.h) -> what is shown
 * (chat_view.h). Tools are run by commands (chat_tool.h) or by the user (chat_ask.c). At a terminal lines come from chat_input.h
 * and commands from chat_dialogue.c. */
#include "chat.h"
#include "options.h"
#include "tools.h"

#include "core/core.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_QUESTION_BYTES ((size_t)1 << 30)
#define MAX_BODY_BYTES ((size_t)4 << 30)

typedef struct job {
    chat_engine_options engine;
    const char *prompt;
    const char *system;
    const char *tools;
    const char *effort;
    cli_list tool_commands;
    cli_list stops;
    bool think;
    bool json;
    bool quiet;
    bool no_history;
} job;

static const char help[] =
    "Talk with a model.\v"
    "At a terminal this is a conversation; /help lists its commands. With --prompt, or when standard input is no terminal, one question is "
    "answered. Standard output has the answer; reasoning, tool calls and results stand beside it on a terminal and go to standard error "
    "otherwise. A tool call is answered by --tool-command, which gets the arguments as JSON on standard input and the tool's name in "
    "DI_TOOL, or by the user. --json prints messages as JSON lines.";

static void add_options(cli_parser *p, job *j)
{
    chat_engine_options *e = &j->engine;
    cli_add_model(p, &e->engine);
    cli_add_string(p, "prompt", "TEXT", &j->prompt, "one question");
    cli_add_string(p, "system", "TEXT", &j->system, "system prompt");
    cli_add_string(p, "tools", "FILE", &j->tools, "tools that may be called: a JSON array as in a Chat request");
    cli_add_list(p, "tool-command", "[NAME=]COMMAND", &j->tool_commands, "runs calls of the tool NAME, or of every tool; may be repeated");
    cli_add_flag(p, "think", &j->think, "reasoning before the answer");
    cli_add_string(p, "effort", "NAME", &j->effort, "how much reasoning: low, high or max; turns it on");
    cli_add_int(p, "max-tokens", "N", &e->max_tokens, 0, INT64_C(1) << 40, "most tokens of an answer; 0 = what the service allows");
    cli_add_sampling(p, &e->sampling);
    cli_add_list(p, "stop", "STRING", &j->stops, "text that ends an answer and is no part of it; may be repeated");
    cli_add_flag(p, "json", &j->json, "one question: messages as JSON lines, with finish reason and token counts");
    cli_add_flag(p, "quiet", &j->quiet, "the answer alone");
    cli_add_flag(p, "no-history", &j->no_history, "do not keep what is typed");
    cli_add_engine(p, &e->engine);
    cli_add_replay(p, &e->engine);
    cli_add_int(p, "max-context", "N", &e->max_context, 0, INT64_C(1) << 40, "longest conversation in tokens; 0 = the model's limit");
}

static di_status set_up(const job *j, chat *c, di_error *err)
{
    c->tool_commands = j->tool_commands;
    c->talk.stops = j->stops.items;
    c->talk.n_stops = j->stops.n;
    (void)chat_talk_set_thinking(&c->talk, j->effort != NULL ? j->effort : j->think ? "on" : "off"); /* check_options saw it */
    di_status status = chat_talk_set_system(&c->talk, j->system, err);
    if (status == DI_OK) {
        status = chat_talk_set_tools(&c->talk, j->tools, err);
    }
    if (status == DI_OK) {
        status = chat_engine_open(&c->engine, &j->engine, err);
    }
    return status == DI_OK ? chat_check(c, err) : status;
}

/* The one question; *typed is what the caller frees. Before SIGINT is blocked: Ctrl-C may end the waiting for a pipe. */
static di_status read_question(const job *j, const char **text, size_t *n, char **typed, di_error *err)
{
    di_status status = DI_OK;
    *text = j->prompt;
    if (j->prompt != NULL) {
        *n = strlen(j->prompt);
    } else {
        status = file_read_stream(STDIN_FILENO, "standard input", MAX_QUESTION_BYTES, typed, n, err);
        *text = *typed;
        *n -= status == DI_OK && *n > 0 && (*typed)[*n - 1] == '\n'; /* of the last line, which nobody meant */
    }
    return status == DI_OK && *n == 0 ? err_set(err, DI_E_ARGUMENT, "the question is empty") : status;
}

static di_status answer_one(const job *j, chat *c, int *code, di_error *err)
{
    char *typed = NULL;
    const char *text;
    size_t n = 0;
    chat_outcome outcome = CHAT_ANSWERED;
    di_status status = read_question(j, &text, &n, &typed, err);
    if (status == DI_OK) {
        status = set_up(j, c, err);
    }
    if (status == DI_OK) {
        status = chat_ask(c, text, n, &outcome, err);
    }
    if (status == DI_OK && outcome == CHAT_STOPPED) {
        *code = CLI_INTERRUPTED;
    }
    free(typed);
    return status;
}

static di_status talk(const job *j, chat *c, di_error *err)
{
    di_status status = set_up(j, c, err);
    if (status == DI_OK) {
        status = chat_input_open(!j->no_history, &c->input, err);
    }
    if (status == DI_OK) {
        chat_view_note(&c->view, "/help lists the commands, Ctrl-D leaves.");
        status = chat_dialogue(c, err);
    }
    chat_input_close(c->input);
    return status;
}

static int check_options(const cli_parser *p, job *j, bool interactive)
{
    if (j->effort != NULL && strcmp(j->effort, "low") != 0 && strcmp(j->effort, "high") != 0 && strcmp(j->effort, "max") != 0) {
        return cli_usage(p, "--effort: '%s' is none of low, high, max", j->effort);
    }
    if (j->json && interactive) {
        return cli_usage(p, "--json is for one question: give --prompt TEXT, or pipe it in");
    }
    const int code = cli_check_replay(p, &j->engine.engine);
    return code == CLI_OK ? cli_check_sampling(p, &j->engine.sampling) : code;
}

int cmd_chat(int argc, char **argv)
{
    job j = {.engine = {.sampling = CLI_SAMPLING_DEFAULT}};
    chat c = {.input = NULL};
    cli_parser p;
    char **args;
    size_t n_args;
    cli_parser_init(&p, "", 0, 0, help);
    add_options(&p, &j);
    cli_parse(&p, argc, argv, &args, &n_args);
    const bool interactive = j.prompt == NULL && isatty(STDIN_FILENO);
    int code = check_options(&p, &j, interactive);
    if (code != CLI_OK) {
        return code;
    }
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of the next write */
    buf_init(&c.body, MAX_BODY_BYTES);
    chat_view_init(&c.view, j.json, j.quiet);
    di_error err;
    const di_status status = interactive ? talk(&j, &c, &err) : answer_one(&j, &c, &code, &err);
    if (status != DI_OK) {
        code = cli_fail(&err);
    }
    chat_engine_close(&c.engine);
    chat_talk_fini(&c.talk);
    chat_view_fini(&c.view);
    buf_fini(&c.body);
    return code;
}
