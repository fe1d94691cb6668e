/* srv_request.c - one request from its head to its end; see srv_int.h for its way. */
#include "server/srv_int.h"

#include "core/arith.h"
#include "core/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static int method_of(const char *name)
{
    static const struct {
        const char *name;
        int method;
    } methods[] = {{"GET", SRV_GET}, {"HEAD", SRV_HEAD}, {"POST", SRV_POST}, {"OPTIONS", SRV_OPTIONS}};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(name, methods[i].name) == 0) {
            return methods[i].method;
        }
    }
    return 0;
}

/* An id of the client is taken when it can stand in a header and in a log as it is. */
static bool id_is_good(const char *id)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+=@";
    const size_t n = strspn(id, allowed);
    return n > 0 && n <= SRV_MAX_ID_BYTES && id[n] == '\0';
}

static void take_ids(srv_request *r)
{
    uint8_t random[40] = {0};
    const char *const given = srv_http_header(r, "x-request-id");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        const int64_t now = clock_now_ns(); /* no system does this; ids are for telling requests apart, not secrets */
        memcpy(random, &now, sizeof now);
    }
    if (given != NULL && id_is_good(given)) {
        snprintf(r->id, sizeof r->id, "%s", given);
    } else {
        uint64_t words[2];
        memcpy(words, random + 24, sizeof words);
        snprintf(r->id, sizeof r->id, "req_%016llx%016llx", (unsigned long long)words[0], (unsigned long long)words[1]);
    }
    srv_trace_begin(&r->trace, srv_http_header(r, "traceparent"), random);
}

srv_request *srv_request_new(const srv_listener *listener, struct MHD_Connection *connection, srv_conn *conn, const char *path,
                             const char *method)
{
    srv_request *const r = ar_calloc(1, sizeof *r);
    if (r == NULL) {
        return NULL;
    }
    r->server = listener->server;
    r->listener = listener;
    r->connection = connection;
    r->conn = conn;
    r->method = method_of(method);
    r->route = srv_route_find(listener->routes, listener->n_routes, path, &r->rest);
    if (r->route == NULL) {
        r->route = &srv_no_route;
    }
    r->started_at = clock_now_ns();
    buf_init(&r->body, (size_t)r->server->options.max_body_bytes);
    pthread_mutex_init(&r->lock, NULL);
    take_ids(r);
    srv_metrics_begun(r->server->metrics, 1);
    srv_watch_begin(r);
    return r;
}

void srv_refuse(srv_request *r, int status, const char *reason, const char *format, ...)
{
    if (r->refusal != 0) {
        return;
    }
    va_list list;
    va_start(list, format);
    vsnprintf(r->why, sizeof r->why, format, list);
    va_end(list);
    r->refusal = status;
    srv_metrics_refused(r->server->metrics, reason);
}

void srv_request_head(srv_request *r, const char *path)
{
    srv_check_key(r);
    srv_check_head(r, path);
    atomic_store(&r->reading, r->has_body && !srv_request_refused_early(r));
}

bool srv_request_refused_early(const srv_request *r)
{
    return r->refusal != 0 && r->has_body && (r->must_close || srv_http_header(r, "Expect") != NULL);
}

/* --- Body ------------------------------------------------------------------------------------------------------------------- */

static void count_body(srv_request *r)
{
    const size_t held = r->body.capacity;
    atomic_fetch_add(&r->server->body_memory, (int64_t)held - (int64_t)r->body_counted);
    r->body_counted = held;
}

static void drop_body(srv_request *r)
{
    buf_fini(&r->body);
    count_body(r);
}

bool srv_request_body(srv_request *r, const char *data, size_t n)
{
    r->n_received += n;
    if (r->refusal == 0 && r->route->page == NULL) {
        if (!buf_append(&r->body, data, n)) {
            if (r->body.full) {
                srv_refuse(r, 413, "body_size", "The body is larger than %lld bytes.", (long long)r->server->options.max_body_bytes);
            } else {
                srv_refuse(r, 503, "memory", "The server is out of memory; try again later.");
            }
        }
        count_body(r);
        if (atomic_load(&r->server->body_memory) > r->server->options.max_body_memory) {
            srv_refuse(r, 503, "body_memory", "Too many large requests are being read; try again later.");
        }
    }
    if (r->refusal != 0) {
        drop_body(r);
    }
    return r->n_received <= (uint64_t)SRV_MAX_SKIPPED_BYTES;
}

/* --- Answer ------------------------------------------------------------------------------------------------------------------- */

bool srv_request_gone(const srv_request *r)
{
    return atomic_load(&r->gone) || atomic_load(&r->server->stopping);
}

static void leave_flight(srv_request *r)
{
    if (!r->out_of_flight) {
        r->out_of_flight = true;
        srv_metrics_begun(r->server->metrics, -1);
    }
}

bool srv_request_run(srv_request *r)
{
    if (r->call != NULL) {
        return srv_call_look(r);
    }
    if (r->has_body && !srv_request_refused_early(r) && !atomic_exchange(&r->reading, false)) {
        return false; /* the watch has timed it out */
    }
    r->body_at = clock_now_ns();
    if (r->refusal == 0 && r->method == SRV_OPTIONS) {
        return srv_reply_options(r);
    }
    if (r->refusal == 0 && r->route->page != NULL) {
        const bool goes_on = r->route->page(r);
        leave_flight(r); /* whoever has read a page of figures is not in the next one */
        return goes_on;
    }
    if (r->refusal == 0) {
        const bool goes_on = srv_call_start(r);
        drop_body(r); /* the service has a copy */
        if (r->refusal == 0) {
            return goes_on;
        }
    }
    if (r->refusal == 429 || r->refusal == 503) {
        r->retry_after_s = r->retry_after_s > 0 ? r->retry_after_s : SRV_RETRY_AFTER_S;
    }
    return srv_reply_error(r, r->refusal, r->why);
}

/* --- End ---------------------------------------------------------------------------------------------------------------------- */

/* Where a client was when it left; NULL when it has got everything. */
static const char *left_in(const srv_request *r, const di_call_info *info, bool cut)
{
    if (r->call == NULL) {
        return !cut ? NULL : r->status == 0 ? "reading" : "flush";
    }
    if (r->status != 0 && !atomic_load(&r->streaming)) {
        return cut ? "flush" : NULL;
    }
    if (r->complete || (!cut && !srv_request_gone(r))) {
        return NULL;
    }
    switch (r->has_left ? r->left_in : info->phase) {
    case DI_CALL_PREPARING:
        return "preparing";
    case DI_CALL_QUEUED:
        return "queued";
    case DI_CALL_PREFILL:
        return "prefill";
    case DI_CALL_DECODE:
        return "decode";
    case DI_CALL_ENDED:
        return "flush";
    }
    return "flush";
}

void srv_request_end(srv_request *r, bool cut)
{
    srv_server *const server = r->server;
    di_call_info info = {.phase = DI_CALL_ENDED};
    srv_watch_end(r);
    if (r->call != NULL) {
        di_call_get(r->call, &info);
    }
    const int64_t now = clock_now_ns();
    const char *const left = left_in(r, &info, cut);
    if (left != NULL) {
        srv_metrics_left(server->metrics, left);
    }
    leave_flight(r);
    srv_metrics_ended(server->metrics, r, now);
    srv_log_request(r, &info, left, now);
    srv_otlp_request(server->otlp, r, &info, now);
    if (r->call != NULL) {
        if (r->limit != NULL) {
            srv_limit_leave(r->limit);
        }
        di_call_free(r->call);
        pthread_mutex_lock(&server->active_lock);
        server->n_active--;
        pthread_cond_broadcast(&server->active_changed);
        pthread_mutex_unlock(&server->active_lock);
    }
    drop_body(r);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
