/* chat_failure.c - why a call has no answer: HTTP status, message, and when to try again (docs/serving.md has the table).
 *
 * A failure must be possible when memory is what failed, so its message may be missing; then a general sentence stands for it. */
#include "chat/chat_int.h"

#define RETRY_MEMORY_S 1
#define RETRY_LATE_S 1

chat_failure chat_fail(int http_status, di_status code, int32_t retry_after_s, const char *message)
{
    return (chat_failure){
        .http_status = http_status,
        .code = code,
        .retry_after_s = retry_after_s,
        .message = message != NULL ? strdup(message) : NULL,
    };
}

/* Short memory is a matter of load: clients may try again. */
chat_failure chat_fail_status(di_status status, const di_error *err)
{
    switch (status) {
    case DI_E_MEMORY:
        return chat_fail(503, status, RETRY_MEMORY_S, NULL);
    case DI_E_ARGUMENT:
    case DI_E_FORMAT:
    case DI_E_UNSUPPORTED:
        return chat_fail(400, status, 0, err->message);
    case DI_E_LIMIT:
        return chat_fail(413, status, 0, err->message);
    default:
        return chat_fail(500, status, 0, err->message);
    }
}

const char *chat_failure_text(const chat_failure *failure)
{
    if (failure->message != NULL) {
        return failure->message;
    }
    return failure->code == DI_E_MEMORY ? "The server is short of memory. Please try again later." : "The request failed.";
}

chat_failure chat_late_failure(void)
{
    return chat_fail(503, DI_E_LIMIT, RETRY_LATE_S, "The server is overloaded: the request waited too long for its turn.");
}

void chat_failure_fini(chat_failure *failure)
{
    free(failure->message);
    *failure = (chat_failure){.http_status = 0};
}

static di_protocol protocol_of(di_route route)
{
    return route == DI_ROUTE_MESSAGES || route == DI_ROUTE_COUNT_TOKENS ? DI_MESSAGES : DI_CHAT;
}

bool chat_error_body(di_route route, int http_status, const char *message, const rec_refusal *refusal, buf *out)
{
    return rec_error_body(protocol_of(route), http_status, message, refusal, out);
}
