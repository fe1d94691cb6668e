/* chat_engine.h - one request body through the recipe and the engine to an answer in pieces.
 *
 * One sequence is kept from answer to answer: as long as the ids that went through it are the beginning of the next prompt, only
 * the new ones are fed. Results are the same as with a fresh sequence, so settings that look back on what was sampled
 * (penalties) do without. Under bounded replay every prompt is a fresh sequence that uses the prefix cache. */
#ifndef TOOLS_CHAT_ENGINE_H
#define TOOLS_CHAT_ENGINE_H

#include "options.h"
#include "sampling.h"

#include "core/buf.h"

#include <deepinfer/recipe.h>

typedef struct chat_engine_options {
    cli_engine_options engine;
    int64_t max_context; /* 0 = the model's limit */
    int64_t max_tokens;  /* of an answer; 0 = what the recipe gives a request that does not say */
    cli_sampling sampling;
} chat_engine_options;

typedef struct chat_engine {
    di_model *model;       /* all owned */
    di_recipe *recipe;
    di_engine *engine;
    di_sequence *sequence; /* NULL before the first answer and after a failure */
    int32_t *ids;          /* [n_ids] what was fed to and sampled from the sequence */
    size_t n_ids;
    size_t capacity;
    int64_t context;
    int64_t max_tokens;    /* as in the options */
    int32_t stop_id;
    di_sampling sampling;
    bool may_reuse;
    bool use_cache;
} chat_engine;

typedef struct chat_call {
    int64_t number; /* set by chat_talk_add_answer */
    char *name;     /* owned */
    buf arguments;
} chat_call;

typedef struct chat_answer {
    buf reasoning;
    buf text;
    chat_call *calls; /* [n_calls] */
    size_t n_calls;
    di_finish finish; /* NONE when it was interrupted */
    di_usage usage;
} chat_answer;

/* Text of a buffer that may never have been written. */
static inline const char *chat_text(const buf *b)
{
    return b->data != NULL ? b->data : "";
}

/* Gets each piece as it comes; the answer has it already. Errors end the generation. */
typedef di_status (*chat_piece_fn)(void *user, const di_piece *piece, di_error *err);

/* Blocks SIGINT once the model is loaded (interrupt.h). `e` is to be closed after an error too. */
di_status chat_engine_open(chat_engine *e, const chat_engine_options *o, di_error *err);
void chat_engine_close(chat_engine *e);

/* A body that could be asked: what di_request_read and the context say to it. */
di_status chat_engine_check(const chat_engine *e, const char *body, size_t n, di_error *err);

/* Ctrl-C ends the answer early and is no error. *out is to be freed with chat_answer_fini, after an error too. */
di_status chat_engine_answer(chat_engine *e, const char *body, size_t n, chat_piece_fn fn, void *user, chat_answer *out, di_error *err);
void chat_answer_fini(chat_answer *answer);

#endif
