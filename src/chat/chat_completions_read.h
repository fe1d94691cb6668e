/* chat_completions_read.h - a body of POST /v1/completions while it is read. Lives on the stack of a preparation thread. */
#ifndef CHAT_CHAT_COMPLETIONS_READ_H
#define CHAT_CHAT_COMPLETIONS_READ_H

#include "chat/chat_completions.h"

#define CHAT_MAX_STOP_IDS 128

/* What sampling borrows from; one block, freed with the call. */
typedef struct chat_parameters {
    di_logit_bias *bias; /* [n_bias] */
    int32_t stop_ids[CHAT_MAX_STOP_IDS + 1];
} chat_parameters;

typedef struct chat_reading {
    di_call *call;
    const js_value *body;
    int32_t vocabulary;
    chat_completion_options writer;
    const char *stops[DI_MAX_STOP_STRINGS];
    size_t stop_sizes[DI_MAX_STOP_STRINGS];
    int64_t max_tokens;
    int64_t n;
    chat_parameters *parameters;
} chat_reading;

/* Fills call->sampling; needs n, max_tokens and logprobs. */
di_status chat_read_sampling(chat_reading *r, di_error *err);

#endif
