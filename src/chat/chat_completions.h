/* chat_completions.h - the writer of POST /v1/completions, the API before conversations: text goes on where a prompt ends.
 *
 * As the recipe's replies, but without any structure: text, maybe its log-probabilities in the old shape, a finish reason. */
#ifndef CHAT_CHAT_COMPLETIONS_H
#define CHAT_CHAT_COMPLETIONS_H

#include "chat/chat_int.h"

typedef struct chat_completion chat_completion;

typedef struct chat_completion_options {
    const di_tokenizer *tokenizer;
    const char *id;    /* borrowed, as is the model */
    const char *model;
    int64_t created;
    bool stream;
    bool include_usage; /* of a stream */
    bool echo;
    bool token_ids;    /* show them, as vLLM does */
    int32_t logprobs;  /* -1 = none, else how many of the likeliest tokens */
    int32_t n_prompts;
    int32_t n;         /* choices of each */
    const char *const *stops; /* [n_stops] copied */
    const size_t *stop_sizes;
    size_t n_stops;
} chat_completion_options;

di_status chat_completion_new(const chat_completion_options *options, chat_completion **out, di_error *err);
/* With echo, once for each prompt, before anything else. Copied. */
di_status chat_completion_set_prompt(chat_completion *w, int32_t prompt, const char *text, size_t n, di_error *err);
extern const chat_writer chat_completion_writer;

/* --- Log-probabilities in the old shape (chat_legacy_logprobs.c) ------------------------------------------------------------------ */

/* Entries wait until their text is given out, so that a stop string takes along those of its own tokens. */
typedef struct chat_entry {
    int64_t offset;    /* characters before the token's own */
    size_t end[3];     /* of its parts in `waiting` */
} chat_entry;

typedef struct chat_logprobs {
    buf waiting[3];    /* tokens, log-probabilities, likeliest tokens: JSON with commas in front */
    chat_entry *entries; /* [n] */
    size_t n;
    size_t capacity;
    buf given[4];      /* the same parts, and text offsets; each with a comma in front of every item */
} chat_logprobs;

void chat_logprobs_init(chat_logprobs *l);
void chat_logprobs_fini(chat_logprobs *l);
bool chat_logprobs_add(chat_logprobs *l, const di_tokenizer *tokenizer, const di_token_logprobs *token, int64_t offset);
/* Moves entries that begin before character n_chars behind those given. */
bool chat_logprobs_release(chat_logprobs *l, int64_t n_chars);
/* The JSON object of what was given since the last clear. */
void chat_logprobs_write(const chat_logprobs *l, buf *out);
void chat_logprobs_clear(chat_logprobs *l);

#endif
