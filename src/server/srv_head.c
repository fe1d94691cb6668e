/* srv_head.c - what is checked once the head of a request is there: who sends it, and whether its body is worth reading.
 *
 * With keys every route but /health is closed to who has none, unknown paths included: nothing is told to strangers. The one exception is
 * a browser's preflight, which carries no key by design and learns nothing but which methods there are. */
#include "server/srv_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* --- Who ------------------------------------------------------------------------------------------------------------------- */

/* The secret of `Authorization: Bearer`, of x-api-key, or the password of a browser's prompt; NULL when there is none. */
static const char *presented_key(const srv_request *r, char *storage, size_t capacity)
{
    const char *const authorization = srv_http_header(r, "Authorization");
    if (authorization != NULL && strncasecmp(authorization, "Bearer ", 7) == 0) {
        return authorization + 7 + strspn(authorization + 7, " ");
    }
    const char *const plain = srv_http_header(r, "x-api-key");
    if (plain != NULL) {
        return plain;
    }
    if (authorization != NULL && srv_http_basic_password(r, storage, capacity)) {
        return storage;
    }
    return NULL;
}

static bool is_preflight(const srv_request *r)
{
    return r->method == SRV_OPTIONS && r->server->options.cors_origin != NULL && !r->listener->is_admin &&
           srv_http_header(r, "Origin") != NULL && srv_http_header(r, "Access-Control-Request-Method") != NULL;
}

static void check_admin(srv_request *r, const char *secret)
{
    srv_server *const server = r->server;
    if (server->admin_keys.n == 0) {
        /* Nobody but a browser sends these, and no page has business here. */
        const char *const site = srv_http_header(r, "Sec-Fetch-Site");
        if (srv_http_header(r, "Origin") != NULL || (site != NULL && strcmp(site, "none") != 0)) {
            srv_refuse(r, 403, "forbidden", "Without --admin-key the admin API takes no requests of web pages.");
        }
    } else if (secret == NULL) {
        srv_refuse(r, 401, "no_key", "No key: send the admin key as `Authorization: Bearer KEY`.");
    } else if (srv_keys_find(&server->admin_keys, secret) == NULL) {
        if (srv_keys_find(&server->keys, secret) != NULL) {
            srv_refuse(r, 403, "forbidden", "This is an API key, not the admin key.");
        } else {
            srv_refuse(r, 401, "bad_key", "Incorrect admin key.");
        }
    }
}

static void check_tenant_header(srv_request *r)
{
    const char *const tenant = r->server->options.trust_tenant_header ? srv_http_header(r, "x-tenant") : NULL;
    if (tenant == NULL) {
        return;
    }
    if (!srv_tenant_valid(tenant)) {
        srv_refuse(r, 400, "bad_header", "x-tenant is not 1 to %d letters, digits and -_.:@/+", SRV_MAX_TENANT_BYTES);
        return;
    }
    snprintf(r->tenant, sizeof r->tenant, "%s", tenant);
}

void srv_check_key(srv_request *r)
{
    srv_server *const server = r->server;
    char password[SRV_MAX_KEY_BYTES + 2];
    if (r->route->open || is_preflight(r)) {
        return;
    }
    const char *const secret = presented_key(r, password, sizeof password);
    if (r->listener->is_admin) {
        check_admin(r, secret);
    } else if (server->keys.n == 0) {
        check_tenant_header(r);
        r->limit = &server->everybody;
    } else if (secret == NULL) {
        srv_refuse(r, 401, "no_key", "No API key: send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`.");
    } else {
        srv_key *const key = srv_keys_find(&server->keys, secret);
        if (key == NULL) {
            srv_refuse(r, 401, "bad_key", "Incorrect API key.");
        } else {
            snprintf(r->tenant, sizeof r->tenant, "%s", key->tenant);
            r->priority = key->priority;
            r->limit = &key->limit;
        }
    }
    explicit_bzero(password, sizeof password);
}

/* --- What ------------------------------------------------------------------------------------------------------------------ */

static void check_route(srv_request *r, const char *path)
{
    char methods[64];
    if (r->route == &srv_no_route) {
        srv_refuse(r, 404, "no_route", "There is no %.100s here.", path);
        return;
    }
    const int wanted = r->method == SRV_HEAD ? SRV_GET : r->method;
    if (r->method != SRV_OPTIONS && (r->route->methods & wanted) == 0) {
        srv_methods_text(r->route->methods, methods, sizeof methods);
        srv_refuse(r, 405, "method", "This path takes %s only.", methods);
    }
}

/* Two lengths, or a coding that is not chunked: a proxy in front might see another end of the request than we do. */
static void check_framing(srv_request *r)
{
    const char *const coding = srv_http_header(r, "Transfer-Encoding");
    const char *const length = srv_http_header(r, "Content-Length");
    r->has_body = coding != NULL || (length != NULL && strspn(length, "0") != strlen(length));
    if (srv_http_count_header(r, "Content-Length") + srv_http_count_header(r, "Transfer-Encoding") > 1 ||
        (coding != NULL && strcasecmp(coding, "chunked") != 0)) {
        r->has_body = true;
        r->must_close = true;
        srv_refuse(r, 400, "framing", "The length of a body is told once: by Content-Length, or by Transfer-Encoding: chunked.");
    } else if (r->needs_host && srv_http_count_header(r, "Host") != 1) {
        srv_refuse(r, 400, "bad_header", "HTTP/1.1 takes one Host header.");
    }
}

static bool is_json_type(const char *type)
{
    static const char json[] = "application/json";
    return type != NULL && strncasecmp(type, json, sizeof json - 1) == 0 && strchr("; \t", type[sizeof json - 1]) != NULL;
}

static void check_body(srv_request *r)
{
    const char *const coding = srv_http_header(r, "Content-Encoding");
    const char *const length = srv_http_header(r, "Content-Length");
    const int64_t most = r->server->options.max_body_bytes;
    if (!is_json_type(srv_http_header(r, "Content-Type"))) {
        srv_refuse(r, 415, "content_type", "The body must be JSON and say so: `Content-Type: application/json`.");
    } else if (coding != NULL && strcasecmp(coding, "identity") != 0) {
        srv_refuse(r, 415, "content_encoding", "Compressed bodies are not taken: leave Content-Encoding away.");
    }
    /* The library has checked that it is a number of at most 64 bits. */
    if (length != NULL && strtoumax(length, NULL, 10) > (uintmax_t)most) {
        r->must_close = strtoumax(length, NULL, 10) > (uintmax_t)SRV_MAX_SKIPPED_BYTES;
        srv_refuse(r, 413, "body_size", "The body is larger than %" PRId64 " bytes.", most);
    }
}

void srv_check_head(srv_request *r, const char *path)
{
    if (srv_http_head_bytes(r) > (size_t)r->server->options.max_header_bytes) {
        r->must_close = true;
        srv_refuse(r, 431, "header_size", "The head of the request is larger than %d bytes.", r->server->options.max_header_bytes);
    }
    check_framing(r);
    check_route(r, path);
    if (r->method == SRV_POST && r->route->page == NULL) {
        check_body(r);
    }
}
