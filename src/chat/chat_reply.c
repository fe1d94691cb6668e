/* chat_reply.c - the writer of the three conversation APIs: a thin layer over di_reply (src/recipe). */
#include "chat/chat_int.h"

#include <time.h>

static di_status ready(void *writer, int64_t prompt_tokens, int64_t cached_tokens, di_error *err)
{
    return di_reply_ready(writer, prompt_tokens, cached_tokens, err);
}

/* Only tokens that are shown with their log-probabilities pay for them. */
static di_status push(void *writer, int32_t choice, const di_token_logprobs *token, bool logprobs, di_error *err)
{
    return di_reply_push_ids(writer, choice, &token->id, 1, logprobs ? token : NULL, err);
}

static di_status finish(void *writer, int32_t choice, di_finish reason, di_error *err)
{
    di_reply_set_time(writer, (int64_t)time(NULL));
    return di_reply_finish(writer, choice, reason, err);
}

static di_finish finished(const void *writer, int32_t choice)
{
    return di_reply_finished(writer, choice);
}

static di_status fail(void *writer, int http_status, const char *message, di_error *err)
{
    di_reply_set_time(writer, (int64_t)time(NULL));
    return di_reply_fail(writer, http_status, message, err);
}

static di_status frames(void *writer, const char **out, size_t *n, di_error *err)
{
    return di_reply_frames(writer, out, n, err);
}

static di_status body(void *writer, const char **out, size_t *n, di_error *err)
{
    return di_reply_body(writer, out, n, err);
}

static void usage(const void *writer, di_usage *out)
{
    di_reply_usage(writer, out);
}

static void free_reply(void *writer)
{
    di_reply_free(writer);
}

const chat_writer chat_reply_writer = {
    .ready = ready,
    .push = push,
    .finish = finish,
    .finished = finished,
    .fail = fail,
    .frames = frames,
    .body = body,
    .usage = usage,
    .free = free_reply,
};
