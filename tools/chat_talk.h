/* chat_talk.h - the conversation of `deepinfer chat`, kept as the messages of a Chat Completions body. */
#ifndef TOOLS_CHAT_TALK_H
#define TOOLS_CHAT_TALK_H

#include "chat_engine.h"

#include "core/buf.h"

typedef struct chat_talk {
    /* settings; strings are owned */
    char *system; /* NULL = none */
    char *tools;  /* JSON array; NULL = none */
    bool think;
    const char *effort; /* static string; NULL = the default */
    const char *const *stops; /* [n_stops] borrowed */
    size_t n_stops;
    /* messages as JSON objects, owned */
    char **messages;
    size_t n_messages;
    size_t capacity;
    int64_t n_calls; /* calls so far, for their ids */
} chat_talk;

void chat_talk_fini(chat_talk *talk);

/* NULL or "" takes the setting away. Errors: DI_E_MEMORY. */
di_status chat_talk_set_system(chat_talk *talk, const char *text, di_error *err);

/* The file is a JSON array of tools as in a Chat body; di_request_read checks the rest. Errors: those of file_read, DI_E_FORMAT. */
di_status chat_talk_set_tools(chat_talk *talk, const char *file, di_error *err);

/* "on", "off", or an effort (then also on); false for another word. */
bool chat_talk_set_thinking(chat_talk *talk, const char *word);

di_status chat_talk_add_user(chat_talk *talk, const char *text, size_t n, di_error *err);

/* The calls of the answer get their ids here. Errors: DI_E_MEMORY. */
di_status chat_talk_add_answer(chat_talk *talk, chat_answer *answer, di_error *err);
di_status chat_talk_add_result(chat_talk *talk, const chat_call *call, const char *text, size_t n, di_error *err);

void chat_talk_cut(chat_talk *talk, size_t n_messages); /* forgets what came after the first n */

/* The whole body. `out` is cleared first. Errors: DI_E_MEMORY. */
di_status chat_talk_body(const chat_talk *talk, buf *out, di_error *err);

/* One assistant message, as it goes into the body and onto --json: {"role":"assistant",...} without the closing brace. */
void chat_put_answer(buf *out, const chat_answer *answer);

#endif
