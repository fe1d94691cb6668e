/* chat_view.h - what `deepinfer chat` shows.
 *
 * For people: the answer as it comes, on standard output. Reasoning, tool calls and results are notes: dim, on the terminal; on
 * standard error when standard output is none, so that a pipe has the answer alone.
 * For machines (--json): one message a line, in the form of a Chat Completions history,
 *   {"role":"assistant","content":"...","reasoning_content":"...","tool_calls":[...],"finish_reason":"stop","usage":{...}}
 *   {"role":"tool","tool_call_id":"call_0","name":"get_time","content":"..."} */
#ifndef TOOLS_CHAT_VIEW_H
#define TOOLS_CHAT_VIEW_H

#include "chat_engine.h"

#include <stdio.h>

typedef enum chat_showing { CHAT_NOTHING, CHAT_REASONING, CHAT_TEXT, CHAT_CALL } chat_showing;

typedef struct chat_view {
    bool json;
    bool quiet; /* no notes */
    FILE *notes;
    bool notes_colour;
    bool answer_terminal;
    chat_showing showing;
    bool mid_line; /* the last byte shown was no newline */
    buf line;
} chat_view;

void chat_view_init(chat_view *view, bool json, bool quiet);
void chat_view_fini(chat_view *view);

/* All return DI_E_IO when standard output takes no more. */
di_status chat_view_piece(void *user, const di_piece *piece, di_error *err); /* a chat_piece_fn */
di_status chat_view_end(chat_view *view, const chat_answer *answer, di_error *err);
di_status chat_view_result(chat_view *view, const chat_call *call, const buf *result, di_error *err);

/* A line for people about the program itself. */
void chat_view_note(chat_view *view, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
