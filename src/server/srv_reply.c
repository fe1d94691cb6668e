/* srv_reply.c - the shapes of answers: errors in the words of the route's API, JSON, what a route can do. */
#include "server/srv_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_TYPE "application/json"

bool srv_reply_error(srv_request *r, int status, const char *message)
{
    const size_t n = di_recipe_error_body(r->route->errors, status, message, NULL, 0);
    char *const body = n > 0 ? malloc(n + 1) : NULL;
    if (body == NULL || di_recipe_error_body(r->route->errors, status, message, body, n + 1) != n) {
        free(body);
        return srv_http_out_of_memory(r);
    }
    return srv_http_answer(r, status, JSON_TYPE, body, n, SRV_OWNED);
}

bool srv_reply_json(srv_request *r, buf *json)
{
    if (json->failed) {
        buf_fini(json);
        return srv_http_out_of_memory(r);
    }
    char *const body = json->data;
    const size_t n = json->size;
    *json = (buf){.data = NULL};
    return srv_http_answer(r, 200, JSON_TYPE, body, n, SRV_OWNED);
}

size_t srv_methods_text(int methods, char *out, size_t capacity)
{
    return (size_t)snprintf(out, capacity, "%s%sOPTIONS", (methods & SRV_GET) != 0 ? "GET, HEAD, " : "",
                            (methods & SRV_POST) != 0 ? "POST, " : "");
}

bool srv_reply_options(srv_request *r)
{
    return srv_http_answer(r, 204, NULL, "", 0, SRV_STATIC);
}
