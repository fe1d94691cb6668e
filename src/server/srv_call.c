/* srv_call.c - a request that the service answers: admitted, handed over, and its output read into the connection.
 *
 * Nothing is lost between looking and sleeping: r->signalled is cleared before the call is looked at, and srv_http_sleep does not sleep
 * if it was set since. A stream reads what is there in one go, so that tokens that come together share a write. */
#include "server/srv_int.h"

#include "core/clock.h"

#include <string.h>

static const char ping_comment[] = ": keep-alive\n\n";
static const char ping_event[] = "event: ping\ndata: {\"type\": \"ping\"}\n\n"; /* as Anthropic's API says that it is alive */

/* --- Admission ------------------------------------------------------------------------------------------------------------- */

static bool admit(srv_request *r)
{
    if (atomic_load(&r->server->draining)) {
        srv_refuse(r, 503, "draining", "The server is shutting down; send the request to another one.");
        return false;
    }
    switch (srv_limit_enter(r->limit, r->body_at, &r->retry_after_s)) {
    case SRV_ADMITTED:
        return true;
    case SRV_TOO_MANY:
        srv_refuse(r, 429, "concurrency", "Too many requests at a time: at most %d.", r->limit->concurrency);
        return false;
    case SRV_TOO_FAST:
        srv_refuse(r, 429, "rate", "Too many requests: at most %d a minute.", r->limit->rate);
        return false;
    }
    return false;
}

static void on_wake(void *user)
{
    srv_request *const r = user;
    srv_http_wake(r);
}

static void refuse_submit(srv_request *r, di_status status, const di_error *err)
{
    switch (status) {
    case DI_E_LIMIT:
        srv_refuse(r, 429, "calls", "Too many requests are in the server; try again later.");
        break;
    case DI_E_STATE:
        srv_refuse(r, 503, "draining", "The server is shutting down; send the request to another one.");
        break;
    case DI_E_MEMORY:
        srv_refuse(r, 503, "memory", "The server is out of memory; try again later.");
        break;
    case DI_E_ARGUMENT: /* of what the server hands over only a header can be wrong */
        srv_refuse(r, 400, "bad_header", "x-deepinfer-%s", err->message);
        break;
    default:
        srv_refuse(r, 500, "service", "%s", err->message);
        break;
    }
}

static void count_active(srv_server *server, int64_t change)
{
    pthread_mutex_lock(&server->active_lock);
    server->n_active += change;
    pthread_cond_broadcast(&server->active_changed);
    pthread_mutex_unlock(&server->active_lock);
}

bool srv_call_start(srv_request *r)
{
    srv_server *const server = r->server;
    if (!admit(r)) {
        return true;
    }
    const di_call_options options = {
        .route = r->route->call,
        .body = r->body.size > 0 ? r->body.data : "",
        .n = r->body.size,
        .tenant = r->tenant,
        .priority = r->priority,
        .queue_timeout_ms = server->options.queue_timeout,
        .timeout_ms = server->options.call_timeout,
        .wake = on_wake,
        .user = r,
        .cache = srv_http_header(r, "x-deepinfer-cache"),
    };
    di_call *call = NULL;
    di_error err;
    const di_status status = di_service_submit(server->service, &options, &call, &err);
    if (status != DI_OK) {
        srv_limit_leave(r->limit);
        r->limit = NULL;
        refuse_submit(r, status, &err);
        return true;
    }
    count_active(server, 1);
    srv_watch_call(r, call);
    return srv_call_look(r);
}

/* --- Answer ------------------------------------------------------------------------------------------------------------------ */

static void forget_signals(srv_request *r)
{
    pthread_mutex_lock(&r->lock);
    r->signalled = false;
    pthread_mutex_unlock(&r->lock);
}

static bool answer(srv_request *r, const di_call_info *info)
{
    r->answered_at = clock_now_ns();
    r->retry_after_s = info->retry_after_s;
    if (!info->stream) {
        return srv_http_answer_call(r, info->http_status, "application/json", info->unread);
    }
    atomic_store(&r->last_sent, r->answered_at);
    atomic_store(&r->streaming, true);
    return srv_http_answer_call(r, info->http_status, "text/event-stream; charset=utf-8", SRV_UNKNOWN);
}

bool srv_call_look(srv_request *r)
{
    for (;;) {
        di_call_info info;
        forget_signals(r);
        if (srv_request_gone(r)) {
            return false;
        }
        di_call_get(r->call, &info);
        if (info.http_status != 0 && (info.stream || info.phase == DI_CALL_ENDED)) {
            return answer(r, &info);
        }
        if (srv_http_sleep(r)) {
            return true;
        }
    }
}

/* A sign of life, when one is due and nothing else goes out. */
static size_t write_ping(srv_request *r, char *out, size_t capacity)
{
    pthread_mutex_lock(&r->lock);
    const bool due = r->sign_of_life;
    r->sign_of_life = false;
    pthread_mutex_unlock(&r->lock);
    const bool is_event = r->route->errors == DI_MESSAGES;
    const char *const text = is_event ? ping_event : ping_comment;
    const size_t n = is_event ? sizeof ping_event - 1 : sizeof ping_comment - 1;
    if (!due || n > capacity) {
        return 0;
    }
    memcpy(out, text, n);
    srv_metrics_event(r->server->metrics, SRV_E_SIGN_OF_LIFE);
    return n;
}

/* Whoever has got the end of an answer may send the next request at once: it is not the one too many. */
static void leave_limit_at_end(srv_request *r)
{
    di_call_info info;
    if (r->limit == NULL || r->limit->concurrency == 0) {
        return;
    }
    di_call_get(r->call, &info);
    if (info.phase == DI_CALL_ENDED && info.unread == 0) {
        srv_limit_leave(r->limit);
        r->limit = NULL;
    }
}

ptrdiff_t srv_call_read(srv_request *r, char *out, size_t capacity)
{
    for (;;) {
        forget_signals(r);
        if (srv_request_gone(r)) {
            return SRV_READ_CUT;
        }
        size_t n = di_call_read(r->call, out, capacity);
        if (n == 0) {
            di_call_info info;
            di_call_get(r->call, &info);
            if (info.phase == DI_CALL_ENDED && info.unread == 0) {
                r->complete = true;
                return SRV_READ_END;
            }
            n = info.unread == 0 ? write_ping(r, out, capacity) : 0;
        }
        if (n > 0) {
            r->n_sent += n;
            leave_limit_at_end(r);
            atomic_store_explicit(&r->last_sent, clock_now_ns(), memory_order_relaxed);
            return (ptrdiff_t)n;
        }
        if (srv_http_sleep(r)) {
            return SRV_READ_ASLEEP;
        }
    }
}
