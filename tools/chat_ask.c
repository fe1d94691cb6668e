/* chat_ask.c - see chat.h: one question, and as many rounds of tool calls as the answer takes. */
#include "chat.h"

#include "chat_tool.h"

#include "core/core.h"

#include <stdio.h>

#define MAX_RESULT_BYTES ((size_t)64 << 20)

/* What the model said is kept as far as it came; unfinished calls are not, for they can't be answered. */
static void drop_unfinished_calls(chat_answer *answer)
{
    if (answer->finish != DI_FINISH_TOOL_CALLS) {
        while (answer->n_calls > 0) {
            answer->n_calls--;
            free(answer->calls[answer->n_calls].name);
            buf_fini(&answer->calls[answer->n_calls].arguments);
        }
    }
}

/* Asks the user for the result. */
static chat_outcome type_result(chat *c, const chat_call *call, buf *result)
{
    char prompt[128];
    if (c->input == NULL) {
        return CHAT_NEEDS_RESULT;
    }
    snprintf(prompt, sizeof prompt, "result of %.100s> ", call->name);
    return chat_input_read(c->input, prompt, result) == CHAT_TYPED ? CHAT_ANSWERED : CHAT_STOPPED;
}

static di_status answer_call(chat *c, const chat_call *call, buf *result, chat_outcome *outcome, di_error *err)
{
    const char *command = chat_tool_command(&c->tool_commands, call->name);
    di_status status = DI_OK;
    *outcome = CHAT_ANSWERED;
    if (command == NULL) {
        *outcome = type_result(c, call, result);
    } else {
        bool interrupted = false;
        status = chat_tool_run(command, call->name, &call->arguments, result, &interrupted, err);
        *outcome = interrupted ? CHAT_STOPPED : CHAT_ANSWERED;
        if (interrupted) {
            chat_view_note(&c->view, "\n[stopped]"); /* behind the ^C that the terminal has shown */
        }
    }
    if (status == DI_OK && *outcome == CHAT_ANSWERED && (command != NULL || c->view.json)) {
        status = chat_view_result(&c->view, call, result, err); /* what was typed stands there already */
    }
    if (status == DI_OK && *outcome == CHAT_ANSWERED) {
        status = chat_talk_add_result(&c->talk, call, chat_text(result), result->size, err);
    }
    return status;
}

static di_status answer_calls(chat *c, const chat_answer *answer, chat_outcome *outcome, di_error *err)
{
    buf result;
    di_status status = DI_OK;
    buf_init(&result, MAX_RESULT_BYTES);
    *outcome = CHAT_ANSWERED;
    for (size_t i = 0; status == DI_OK && *outcome == CHAT_ANSWERED && i < answer->n_calls; i++) {
        status = answer_call(c, &answer->calls[i], &result, outcome, err);
    }
    buf_fini(&result);
    return status;
}

/* One answer and what it asks for. *more: the model is to go on with results. *kept: the conversation has grown by the answer. */
static di_status run_round(chat *c, bool *more, bool *kept, chat_outcome *outcome, di_error *err)
{
    chat_answer answer;
    *more = false;
    *kept = false;
    *outcome = CHAT_ANSWERED;
    di_status status = chat_talk_body(&c->talk, &c->body, err);
    if (status != DI_OK) {
        return status;
    }
    status = chat_engine_answer(&c->engine, c->body.data, c->body.size, chat_view_piece, &c->view, &answer, err);
    if (status == DI_OK) {
        drop_unfinished_calls(&answer);
        *kept = answer.finish != DI_FINISH_NONE || answer.text.size > 0;
        *outcome = answer.finish == DI_FINISH_NONE ? CHAT_STOPPED : CHAT_ANSWERED;
    }
    if (status == DI_OK && *kept) {
        status = chat_talk_add_answer(&c->talk, &answer, err);
    }
    if (status == DI_OK) {
        status = chat_view_end(&c->view, &answer, err);
    }
    if (status == DI_OK && answer.n_calls > 0) {
        status = answer_calls(c, &answer, outcome, err);
        *more = *outcome == CHAT_ANSWERED;
        *kept = *more; /* a call without its result can't stay */
    }
    chat_answer_fini(&answer);
    return status;
}

di_status chat_ask(chat *c, const char *text, size_t n, chat_outcome *outcome, di_error *err)
{
    const size_t before = c->talk.n_messages;
    bool more = true;
    bool kept = false;
    *outcome = CHAT_ANSWERED;
    di_status status = chat_talk_add_user(&c->talk, text, n, err);
    for (int round = 0; status == DI_OK && more; round++) {
        if (round == CHAT_MAX_ROUNDS) {
            status = err_set(err, DI_E_LIMIT, "the model called tools in %d answers in a row", CHAT_MAX_ROUNDS);
            break;
        }
        status = run_round(c, &more, &kept, outcome, err);
    }
    if (status != DI_OK || !kept) {
        chat_talk_cut(&c->talk, before);
    }
    return status;
}

di_status chat_check(chat *c, di_error *err)
{
    const size_t before = c->talk.n_messages;
    di_status status = chat_talk_add_user(&c->talk, "?", 1, err);
    if (status == DI_OK) {
        status = chat_talk_body(&c->talk, &c->body, err);
    }
    if (status == DI_OK) {
        status = chat_engine_check(&c->engine, c->body.data, c->body.size, err);
    }
    chat_talk_cut(&c->talk, before);
    return status;
}
