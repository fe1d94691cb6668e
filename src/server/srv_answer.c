/* srv_answer.c - answers into libmicrohttpd: headers, a body at once, a body as the call gives it. With srv_http.c the only file that
 * knows the library. What can't be made for lack of memory becomes the answer that was made at the start. */
#include "server/srv_int.h"

#include <microhttpd.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct header_list {
    struct MHD_Response *response;
    bool failed;
} header_list;

static void add_header(header_list *list, const char *name, const char *value)
{
    if (MHD_add_response_header(list->response, name, value) != MHD_YES) {
        list->failed = true;
    }
}

static void add_number(header_list *list, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    add_header(list, name, text);
}

static void add_cors_headers(header_list *list, const srv_request *r)
{
    const char *const allowed = r->server->options.cors_origin;
    const char *const origin = allowed != NULL ? srv_http_header(r, "Origin") : NULL;
    if (allowed != NULL && strcmp(allowed, "*") != 0) {
        add_header(list, "Vary", "Origin");
    }
    if (origin == NULL || r->listener->is_admin || (strcmp(allowed, "*") != 0 && strcmp(allowed, origin) != 0)) {
        return;
    }
    add_header(list, "Access-Control-Allow-Origin", allowed);
    if (r->method != SRV_OPTIONS) {
        add_header(list, "Access-Control-Expose-Headers",
                   "x-request-id, request-id, openai-processing-ms, retry-after, x-constraint-warnings");
        return;
    }
    const char *const headers = srv_http_header(r, "Access-Control-Request-Headers");
    char methods[64];
    srv_methods_text(r->route->methods, methods, sizeof methods);
    add_header(list, "Access-Control-Allow-Methods", methods);
    if (headers != NULL) {
        add_header(list, "Access-Control-Allow-Headers", headers);
    }
    add_header(list, "Access-Control-Max-Age", "600");
}

static void add_status_headers(header_list *list, const srv_request *r, int status)
{
    if (status == MHD_HTTP_UNAUTHORIZED) {
        const bool for_people = r->route->page == srv_page_console;
        add_header(list, "WWW-Authenticate", for_people ? "Basic realm=\"deepinfer\"" : "Bearer realm=\"deepinfer\"");
    }
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED || r->method == SRV_OPTIONS) {
        char methods[64];
        srv_methods_text(r->route->methods, methods, sizeof methods);
        add_header(list, "Allow", methods);
    }
    if (r->call != NULL && di_call_warnings(r->call) != NULL) {
        add_header(list, "X-Constraint-Warnings", di_call_warnings(r->call));
    }
    if (r->retry_after_s > 0 && (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)) {
        add_number(list, "Retry-After", r->retry_after_s);
    }
    if (atomic_load(&r->server->draining) && !r->listener->is_admin) {
        add_header(list, "Connection", "close");
    }
}

static bool add_headers(struct MHD_Response *response, const srv_request *r, int status, const char *type)
{
    header_list list = {.response = response};
    char traceparent[SRV_TRACEPARENT_BYTES];
    if (type != NULL) {
        add_header(&list, "Content-Type", type);
    }
    add_header(&list, "x-request-id", r->id);
    if (r->route->errors == DI_MESSAGES) {
        add_header(&list, "request-id", r->id);
    }
    if (r->call != NULL) {
        srv_trace_header(&r->trace, traceparent);
        add_header(&list, "traceparent", traceparent);
        add_number(&list, "openai-processing-ms", (r->answered_at - r->started_at) / 1000000);
        add_header(&list, "Cache-Control", atomic_load(&r->streaming) ? "no-cache" : "no-store");
        if (atomic_load(&r->streaming)) {
            add_header(&list, "X-Accel-Buffering", "no");
        }
    } else if (r->route->page != NULL) {
        add_header(&list, "Cache-Control", "no-store");
    }
    add_header(&list, "X-Content-Type-Options", "nosniff");
    if (r->route->page == srv_page_console) {
        add_header(&list, "Content-Security-Policy",
                   "default-src 'self' 'unsafe-inline' data: blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'");
    }
    add_cors_headers(&list, r);
    add_status_headers(&list, r, status);
    return !list.failed;
}

static bool send_response(srv_request *r, int status, const char *type, struct MHD_Response *response)
{
    bool sent = false;
    if (response != NULL && add_headers(response, r, status, type)) {
        sent = MHD_queue_response(r->connection, (unsigned int)status, response) == MHD_YES;
        r->status = status;
    } else {
        sent = srv_http_out_of_memory(r);
    }
    if (response != NULL) {
        MHD_destroy_response(response);
    }
    return sent;
}

bool srv_http_out_of_memory(srv_request *r)
{
    r->status = MHD_HTTP_SERVICE_UNAVAILABLE;
    srv_metrics_refused(r->server->metrics, "memory");
    return MHD_queue_response(r->connection, MHD_HTTP_SERVICE_UNAVAILABLE, r->server->out_of_memory) == MHD_YES;
}

bool srv_http_answer(srv_request *r, int status, const char *type, const char *body, size_t n, srv_storage storage)
{
    struct MHD_Response *response = NULL;
    void *const data = (void *)(uintptr_t)body; /* the library only reads it */
    if (storage == SRV_OWNED) {
        response = MHD_create_response_from_buffer_with_free_callback(n, data, free);
        if (response == NULL) {
            free(data);
        }
    } else {
        response = MHD_create_response_from_buffer(n, data, storage == SRV_STATIC ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY);
    }
    r->n_sent = n;
    return send_response(r, status, type, response);
}

static ssize_t on_read(void *cls, uint64_t position, char *out, size_t capacity)
{
    (void)position;
    const ptrdiff_t n = srv_call_read(cls, out, capacity);
    switch (n) {
    case SRV_READ_END:
        return MHD_CONTENT_READER_END_OF_STREAM;
    case SRV_READ_CUT:
        return MHD_CONTENT_READER_END_WITH_ERROR;
    default:
        return n;
    }
}

bool srv_http_answer_call(srv_request *r, int status, const char *type, uint64_t n)
{
    /* Pieces of a body of known length, and of a stream to a client of HTTP/1.0; chunks have a buffer of the connection. */
    enum { MOST_BYTES = 16384, STREAM_BYTES = 1024 };
    const bool known = n != SRV_UNKNOWN;
    const size_t block = !known ? STREAM_BYTES : n < MOST_BYTES && n > 0 ? (size_t)n : MOST_BYTES;
    return send_response(r, status, type, MHD_create_response_from_callback(known ? n : MHD_SIZE_UNKNOWN, block, on_read, r, NULL));
}

struct MHD_Response *srv_answer_out_of_memory(void)
{
    char body[256];
    const size_t n = di_recipe_error_body(DI_CHAT, MHD_HTTP_SERVICE_UNAVAILABLE, "The server is out of memory; try again later.", body,
                                          sizeof body);
    struct MHD_Response *const response = MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_COPY);
    if (response == NULL || n >= sizeof body || MHD_add_response_header(response, "Content-Type", "application/json") != MHD_YES ||
        MHD_add_response_header(response, "Retry-After", "1") != MHD_YES) {
        srv_answer_free(response);
        return NULL;
    }
    return response;
}

void srv_answer_free(struct MHD_Response *response)
{
    if (response != NULL) {
        MHD_destroy_response(response);
    }
}
