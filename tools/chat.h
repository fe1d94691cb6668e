/* chat.h - the parts of `deepinfer chat` put together: one question to its answer, and the dialogue at the terminal. */
#ifndef TOOLS_CHAT_H
#define TOOLS_CHAT_H

#include "chat_engine.h"
#include "chat_input.h"
#include "chat_talk.h"
#include "chat_view.h"

#define CHAT_MAX_ROUNDS 32 /* answers to one question, when tools are called again and again */

typedef struct chat {
    chat_engine engine;
    chat_talk talk;
    chat_view view;
    chat_input *input;       /* NULL: one question, nobody to ask */
    cli_list tool_commands;
    buf body;                /* of the request, kept for its memory */
} chat;

typedef enum chat_outcome {
    CHAT_ANSWERED,
    CHAT_STOPPED,      /* Ctrl-C */
    CHAT_NEEDS_RESULT  /* a tool was called that nobody here runs */
} chat_outcome;

/* Asks, and lets the model answer; calls of tools are run or put to the user, and their results go back to the model. A question
 * that got no answer at all leaves no trace in the conversation, nor does one that ends in an error. */
di_status chat_ask(chat *c, const char *text, size_t n, chat_outcome *outcome, di_error *err);

/* Whether the present settings make a request that is accepted. */
di_status chat_check(chat *c, di_error *err);

/* Questions and commands from the terminal until the user leaves. Errors: DI_E_IO when standard output takes no more. */
di_status chat_dialogue(chat *c, di_error *err);

#endif
