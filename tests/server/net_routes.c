/* net_routes.c - what needs no call: pages, methods, keys, sizes, CORS, ids; each in the error shape of its API. */
#include "rig.h"
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void start(rig *g, const srv_options *options)
{
    rig_start(g, options);
    fake_answer_all(g->service);
}

static void pages_answer(void **state)
{
    (void)state;
    rig g;
    start(&g, &(srv_options){.port = 0});
    rig_ask(&g, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n", 200, "{\"status\":\"ok\"}");
    rig_ask(&g, "GET /ready HTTP/1.1\r\nHost: t\r\n\r\n", 200, "{\"status\":\"ready\"}");
    rig_ask(&g, "GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n", 200, "\"data\":[{\"id\":\"fake/model\",\"object\":\"model\",\"created\":");
    rig_ask(&g, "GET /v1/models/fake/model HTTP/1.1\r\nHost: t\r\n\r\n", 200, "\"max_model_len\":4096,\"type\":\"model\"");
    rig_ask(&g, "GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n", 200, "],\"has_more\":false,\"first_id\":\"fake/model\",\"last_id\":\"fake/model\"}");
    rig_ask(&g, "GET /v1/models/fake%2Fmodel HTTP/1.1\r\nHost: t\r\n\r\n", 200, "{\"id\":\"fake/model\"");
    rig_ask(&g, "GET /v1/models/other HTTP/1.1\r\nHost: t\r\n\r\n", 404, "\"code\":\"not_found\"");
    rig_ask(&g, "GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n", 200, "deepinfer_fake 1\n");
    rig_ask(&g, "GET /?a=b HTTP/1.1\r\nHost: t\r\n\r\n", 200, "<title>");
    rig_stop(&g);
}

static void unknown_paths_and_methods_are_told_apart(void **state)
{
    (void)state;
    rig g;
    wire_reply r;
    start(&g, &(srv_options){.port = 0});
    rig_ask(&g, "GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n", 404, "There is no /nothing here.");
    rig_ask(&g, "GET /v1/chat/completions/ HTTP/1.1\r\nHost: t\r\n\r\n", 404, "not_found_error");
    wire_ask(g.url, "DELETE /v1/models HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
    wire_expect(&r, 405, "\"code\":\"method_not_allowed\"");
    assert_string_equal(wire_header(&r, "Allow"), "GET, HEAD, OPTIONS");
    wire_fini(&r);
    wire_ask(g.url, "GET /v1/messages HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
    wire_expect(&r, 405, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"");
    assert_string_equal(wire_header(&r, "Allow"), "POST, OPTIONS");
    assert_non_null(wire_header(&r, "request-id"));
    wire_fini(&r);
    rig_stop(&g);
}

static void head_and_options_have_no_body(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    start(&g, &(srv_options){.port = 0});
    wire_open(&w, g.url);
    wire_send(&w, "HEAD /health HTTP/1.1\r\nHost: t\r\n\r\n");
    wire_read_head(&w, &r);
    assert_int_equal(r.status, 200);
    assert_string_equal(wire_header(&r, "Content-Length"), "15");
    wire_fini(&r);
    wire_send(&w, "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: t\r\nOrigin: http://a.example\r\n\r\n");
    wire_read(&w, &r);
    assert_int_equal(r.status, 204);
    assert_string_equal(wire_header(&r, "Allow"), "POST, OPTIONS");
    assert_null(wire_header(&r, "Access-Control-Allow-Origin"));
    wire_fini(&r);
    wire_send(&w, "HEAD /v1/chat/completions HTTP/1.1\r\nHost: t\r\n\r\n");
    wire_read_head(&w, &r);
    assert_int_equal(r.status, 405);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void web_pages_of_one_origin_are_let_in(void **state)
{
    (void)state;
    rig g;
    wire_reply r;
    static const char *const keys[] = {"secret"};
    start(&g, &(srv_options){.cors_origin = "http://a.example", .api_keys = keys, .n_api_keys = 1});
    wire_ask(g.url,
             "OPTIONS /v1/messages HTTP/1.1\r\nHost: t\r\nOrigin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n"
             "Access-Control-Request-Headers: x-api-key,content-type\r\n\r\n",
             false, &r);
    assert_int_equal(r.status, 204);
    assert_string_equal(wire_header(&r, "Access-Control-Allow-Origin"), "http://a.example");
    assert_string_equal(wire_header(&r, "Access-Control-Allow-Headers"), "x-api-key,content-type");
    assert_string_equal(wire_header(&r, "Access-Control-Allow-Methods"), "POST, OPTIONS");
    assert_string_equal(wire_header(&r, "Vary"), "Origin");
    wire_fini(&r);
    wire_ask(g.url, "GET /ready HTTP/1.1\r\nHost: t\r\nOrigin: http://a.example\r\nx-api-key: secret\r\n\r\n", true, &r);
    wire_expect(&r, 200, "ready");
    assert_string_equal(wire_header(&r, "Access-Control-Allow-Origin"), "http://a.example");
    wire_fini(&r);
    wire_ask(g.url, "GET /ready HTTP/1.1\r\nHost: t\r\nOrigin: http://b.example\r\nx-api-key: secret\r\n\r\n", true, &r);
    assert_null(wire_header(&r, "Access-Control-Allow-Origin"));
    wire_fini(&r);
    rig_ask(&g, "OPTIONS /v1/messages HTTP/1.1\r\nHost: t\r\n\r\n", 401, "No API key");
    rig_stop(&g);
}

static void every_route_but_health_needs_a_key(void **state)
{
    (void)state;
    rig g;
    wire_reply r;
    static const char *const keys[] = {"first", "second"};
    start(&g, &(srv_options){.api_keys = keys, .n_api_keys = 2});
    static const char *const paths[] = {"/v1/models", "/ready", "/metrics", "/openapi.json", "/v1/models/x", "/nothing"};
    rig_ask(&g, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n", 200, "ok");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: t\r\n\r\n", paths[i]);
        wire_ask(g.url, request, true, &r);
        wire_expect(&r, 401, "\"code\":\"invalid_api_key\"");
        assert_string_equal(wire_header(&r, "WWW-Authenticate"), "Bearer realm=\"deepinfer\"");
        wire_fini(&r);
    }
    rig_ask(&g, "POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 401,
        "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\"");
    rig_ask(&g, "GET /ready HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer fir\r\n\r\n", 401, "Incorrect API key");
    rig_ask(&g, "GET /ready HTTP/1.1\r\nHost: t\r\nAuthorization: bearer second\r\n\r\n", 200, "ready");
    rig_ask(&g, "GET /ready HTTP/1.1\r\nHost: t\r\nx-api-key: first\r\n\r\n", 200, "ready");
    rig_ask(&g, "GET /nothing HTTP/1.1\r\nHost: t\r\nx-api-key: first\r\n\r\n", 404, "not_found");
    wire_ask(g.url, "GET / HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
    assert_string_equal(wire_header(&r, "WWW-Authenticate"), "Basic realm=\"deepinfer\"");
    wire_fini(&r);
    rig_ask(&g, "GET / HTTP/1.1\r\nHost: t\r\nAuthorization: Basic YW55Om5vbmU=\r\n\r\n", 401, "Incorrect");    /* any:none */
    rig_ask(&g, "GET / HTTP/1.1\r\nHost: t\r\nAuthorization: Basic YW55OmZpcnN0\r\n\r\n", 200, "<title>"); /* any:first */
    rig_stop(&g);
}

static void tenants_come_from_keys_or_a_trusted_header(void **state)
{
    (void)state;
    rig g;
    char *const dir = unit_scratch_new();
    char path[512];
    static const char keys[] = "# people\nsk-a team/a rate=100 priority=7\n\n  sk-b\tteam-b concurrency=2 # two at a time\n";
    unit_write(dir, "keys", keys, sizeof keys - 1);
    snprintf(path, sizeof path, "%s/keys", dir);
    start(&g, &(srv_options){.api_keys_file = path, .queue_timeout = 1000, .call_timeout = 2000});
    rig_ask(&g, "POST /tokenize HTTP/1.1\r\nHost: t\r\nx-tenant: other\r\nx-api-key: sk-a\r\nContent-Type: application/json\r\n"
            "Content-Length: 2\r\n\r\n{}", 200, "{\"echo\":\"{}\"}");
    const fake_seen *seen = fake_seen_of(fake_call(g.service, 0));
    assert_string_equal(seen->tenant, "team/a");
    assert_int_equal(seen->priority, 7);
    assert_int_equal(seen->route, DI_ROUTE_TOKENIZE);
    assert_int_equal(seen->queue_timeout_ms, 1000);
    assert_int_equal(seen->timeout_ms, 2000);
    rig_stop(&g);
    start(&g, &(srv_options){.trust_tenant_header = true});
    rig_ask(&g, "POST /detokenize HTTP/1.1\r\nHost: t\r\nx-tenant: other\r\nContent-Type: application/json; charset=utf-8\r\n"
            "Content-Length: 2\r\n\r\n{}", 200, "echo");
    seen = fake_seen_of(fake_call(g.service, 0));
    assert_string_equal(seen->tenant, "other");
    assert_int_equal(seen->route, DI_ROUTE_DETOKENIZE);
    rig_ask(&g, "GET /ready HTTP/1.1\r\nHost: t\r\nx-tenant: a b\r\n\r\n", 400, "x-tenant is not");
    rig_stop(&g);
    start(&g, &(srv_options){.port = 0});
    rig_ask(&g, "POST /tokenize HTTP/1.1\r\nHost: t\r\nx-tenant: other\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 200,
        "echo");
    assert_string_equal(fake_seen_of(fake_call(g.service, 0))->tenant, "");
    rig_stop(&g);
    unit_scratch_remove(dir);
}

static void bodies_are_json_of_a_bounded_size(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    start(&g, &(srv_options){.max_body_bytes = 1000, .max_header_bytes = 2048});
    rig_ask(&g, "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}", 415, "unsupported_media_type");
    rig_ask(&g, "POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415,
        "application/json");
    rig_ask(&g, "POST /v1/messages HTTP/1.1\r\nHost: t\r\nContent-Type: application/jsonl\r\nContent-Length: 2\r\n\r\n{}", 415,
        "application/json");
    rig_ask(&g,
        "POST /v1/responses HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        415, "Compressed");
    rig_ask(&g,
        "POST /v1/responses HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n"
        "\r\n2\r\n{}\r\n0\r\n\r\n", 400, "is told once");
    /* On the connection goes, also behind a body that was too large. */
    wire_open(&w, g.url);
    char large[1002];
    memset(large, ' ', sizeof large - 1);
    large[1001] = '\0';
    wire_post(&w, "/v1/messages", "", large);
    wire_read(&w, &r);
    wire_expect(&r, 413, "{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\"");
    wire_fini(&r);
    wire_send(&w, "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 11; i++) {
        wire_send(&w, "64\r\n%100s\r\n", "");
    }
    wire_send(&w, "0\r\n\r\n");
    wire_read(&w, &r);
    wire_expect(&r, 413, "\"code\":\"request_too_large\"");
    wire_fini(&r);
    large[1000] = '\0';
    wire_post(&w, "/v1/chat/completions", "", large);
    wire_read(&w, &r);
    wire_expect(&r, 200, "echo");
    assert_int_equal(fake_seen_of(fake_call(g.service, 0))->n_body, 1000);
    wire_fini(&r);
    /* Nobody waits for what is far too large. */
    wire_send(&w, "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n");
    wire_read(&w, &r);
    wire_expect(&r, 413, "larger than 1000 bytes");
    wire_wait_end(&w);
    wire_fini(&r);
    wire_close(&w);
    rig_stop(&g);
}

static void heads_say_clearly_what_they_are(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    static const char *const lengths[] = {
        "Content-Length: 2\r\nContent-Length: 5\r\n",
        "Content-Length: 2\r\nContent-Length: 2\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n",
    };
    start(&g, &(srv_options){.port = 0});
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        wire_open(&w, g.url);
        wire_send(&w, "POST /tokenize HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n%s\r\n{}GET /health", lengths[i]);
        wire_read(&w, &r);
        wire_expect(&r, 400, "is told once");
        wire_fini(&r);
        wire_wait_end(&w); /* what follows might be a request of somebody else */
        wire_close(&w);
    }
    rig_ask(&g, "GET /health HTTP/1.1\r\n\r\n", 400, "one Host header");
    rig_ask(&g, "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "one Host header");
    rig_ask(&g, "GET http://t/health HTTP/1.1\r\nHost: t\r\n\r\n", 200, "ok");
    rig_ask(&g, "GET HTTPS://t HTTP/1.1\r\nHost: t\r\n\r\n", 200, "<title>");
    rig_ask(&g, "GET ftp://t/health HTTP/1.1\r\nHost: t\r\n\r\n", 404, "not_found");
    assert_int_equal(fake_n_calls(g.service), 0);
    rig_stop(&g);
}

static void heads_have_a_bounded_size(void **state)
{
    (void)state;
    rig g;
    wire w;
    wire_reply r;
    char filler[3000];
    memset(filler, 'x', sizeof filler - 1);
    filler[sizeof filler - 1] = '\0';
    start(&g, &(srv_options){.max_header_bytes = 2048});
    wire_open(&w, g.url);
    wire_send(&w, "GET /health HTTP/1.1\r\nHost: t\r\nx-filler: %s\r\n\r\n", filler);
    wire_read(&w, &r);
    wire_expect(&r, 431, "larger than 2048 bytes");
    wire_fini(&r);
    wire_close(&w);
    wire_open(&w, g.url);
    wire_send(&w, "GET /health HTTP/1.1\r\nHost: t\r\n");
    for (int i = 0; i < 100 && wire_try_send(&w, "x-filler: ", 10) && wire_try_send(&w, filler, 1000) && wire_try_send(&w, "\r\n", 2); i++) {
    }
    wire_wait_end(&w);
    if (w.in.size > 0) { /* else the reset was faster than the answer */
        assert_non_null(strstr(w.in.data, "431"));
    }
    wire_close(&w);
    wire_wait_metric(g.url, "deepinfer_http_malformed_total", 1);
    rig_stop(&g);
}

static void ids_are_taken_or_made_and_echoed(void **state)
{
    (void)state;
    rig g;
    wire_reply r;
    char first[64];
    start(&g, &(srv_options){.port = 0});
    wire_ask(g.url, "GET /health HTTP/1.1\r\nHost: t\r\nx-request-id: mine-1\r\n\r\n", true, &r);
    assert_string_equal(wire_header(&r, "x-request-id"), "mine-1");
    wire_fini(&r);
    wire_ask(g.url, "GET /health HTTP/1.1\r\nHost: t\r\nx-request-id: bad id\r\n\r\n", true, &r);
    snprintf(first, sizeof first, "%s", wire_header(&r, "x-request-id"));
    assert_int_equal(strlen(first), 36);
    assert_int_equal(strncmp(first, "req_", 4), 0);
    wire_fini(&r);
    wire_ask(g.url, "GET /health HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
    assert_string_not_equal(wire_header(&r, "x-request-id"), first);
    wire_fini(&r);
    wire_ask(g.url,
             "POST /v1/messages HTTP/1.1\r\nHost: t\r\nx-request-id: m2\r\nContent-Type: application/json\r\n"
             "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nContent-Length: 2\r\n\r\n{}", true, &r);
    assert_string_equal(wire_header(&r, "request-id"), "m2");
    assert_non_null(wire_header(&r, "openai-processing-ms"));
    assert_int_equal(strncmp(wire_header(&r, "traceparent"), "00-0af7651916cd43dd8448eb211c80319c-", 36), 0);
    wire_fini(&r);
    rig_stop(&g);
}

static void the_admin_port_has_its_own_key(void **state)
{
    (void)state;
    rig g;
    wire_reply r;
    char name[64];
    di_tenant_state tenant_state;
    static const char *const keys[] = {"user"};
    start(&g, &(srv_options){.admin = true, .admin_key = "boss", .api_keys = keys, .n_api_keys = 1});
    const char *const admin = srv_admin_url(g.server);
    assert_non_null(admin);
    wire_ask(admin, "GET /admin/tenants HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
    wire_expect(&r, 401, "admin key");
    wire_fini(&r);
    wire_ask(admin, "GET /admin/tenants HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer user\r\n\r\n", true, &r);
    wire_expect(&r, 403, "not the admin key");
    wire_fini(&r);
    wire_ask(admin, "GET /admin/tenants HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer boss\r\n\r\n", true, &r);
    wire_expect(&r, 200, "{\"tenants\":[{\"name\":\"a\"}]}");
    wire_fini(&r);
    wire_ask(admin, "POST /admin/tenants/team/a/pause HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\nAuthorization: Bearer boss\r\n\r\n", true, &r);
    wire_expect(&r, 200, "{\"name\":\"team/a\",\"action\":\"pause\"}");
    fake_last_tenant(g.service, name, sizeof name, &tenant_state);
    assert_string_equal(name, "team/a");
    assert_int_equal(tenant_state, DI_TENANT_PAUSED);
    wire_fini(&r);
    wire_ask(admin, "POST /admin/tenants/a/sing HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer boss\r\n\r\n", true, &r);
    wire_expect(&r, 404, "pause, resume, drain");
    wire_fini(&r);
    wire_ask(admin, "GET /admin/cache HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer boss\r\n\r\n", true, &r);
    wire_expect(&r, 200, "{\"tiers\":[{\"name\":\"memory\"}]}");
    wire_fini(&r);
    wire_ask(admin, "GET /admin/cache/tenants HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer boss\r\n\r\n", true, &r);
    wire_expect(&r, 200, "{\"tenants\":[{\"tier\":\"dir\",\"name\":\"alice\"}]}");
    wire_fini(&r);
    static const char *const acts[][3] = {{"/admin/tenants/team/a/pin-cache", "\"action\":\"pin-cache\"", "pin team/a"},
                                          {"/admin/tenants/team/a/unpin-cache", "\"action\":\"unpin-cache\"", "unpin team/a"},
                                          {"/admin/tenants/team/a/purge-cache", "\"action\":\"purge-cache\"", "purge team/a"},
                                          {"/admin/cache/purge", "\"action\":\"purge-cache\"", "purge (all)"}};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        char head[256];
        char last[64];
        (void)snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\nAuthorization: Bearer boss\r\n\r\n", acts[i][0]);
        wire_ask(admin, head, true, &r);
        wire_expect(&r, 200, acts[i][1]);
        wire_fini(&r);
        fake_last_cache(g.service, last, sizeof last);
        assert_string_equal(last, acts[i][2]);
    }
    wire_ask(admin, "GET /admin/stats HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer boss\r\n\r\n", true, &r);
    wire_expect(&r, 200, "{\"draining\":false,\"preparing\":0,\"waiting\":3,");
    wire_fini(&r);
    /* The admin's routes are on no other port. */
    rig_ask(&g, "GET /admin/tenants HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer user\r\n\r\n", 404, "not_found");
    rig_stop(&g);
    start(&g, &(srv_options){.admin = true});
    wire_ask(srv_admin_url(g.server), "POST /admin/drain HTTP/1.1\r\nHost: t\r\nOrigin: http://evil.example\r\n\r\n", true, &r);
    wire_expect(&r, 403, "web pages");
    wire_fini(&r);
    wire_ask(srv_admin_url(g.server), "POST /admin/drain HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
    wire_expect(&r, 200, "{\"draining\":true,\"pending\":0}");
    wire_fini(&r);
    assert_true(srv_draining(g.server));
    rig_ask(&g, "GET /ready HTTP/1.1\r\nHost: t\r\n\r\n", 503, "shutting down");
    rig_stop(&g);
}

static void options_are_checked(void **state)
{
    (void)state;
    di_service *const service = fake_new();
    srv_server *server = NULL;
    srv_server *first = NULL;
    di_error err;
    unit_expect_error(srv_open(service, &(srv_options){.host = "localhost"}, &server, &err), DI_E_ARGUMENT, &err, "localhost", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.port = 70000}, &server, &err), DI_E_ARGUMENT, &err, "port", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.tls_cert = "a"}, &server, &err), DI_E_ARGUMENT, &err, "key", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.tls_cert = "no-such-file", .tls_key = "no-such-file"}, &server, &err), DI_E_IO, &err,
                      "no-such-file", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.admin = true, .admin_host = "0.0.0.0"}, &server, &err), DI_E_ARGUMENT, &err,
                      "needs a key", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.max_connections = 1 << 30}, &server, &err), DI_E_ARGUMENT, &err, "open files", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.api_keys_file = "no-such-file"}, &server, &err), DI_E_IO, &err, "no-such-file", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.otlp_endpoint = "ftp://x"}, &server, &err), DI_E_ARGUMENT, &err, "ftp://x", NULL);
    unit_expect_error(srv_open(service, &(srv_options){.access_log = "no-such-folder/log"}, &server, &err), DI_E_IO, &err, "no-such-folder",
                      NULL);
    assert_int_equal(srv_open(service, &(srv_options){.port = 0}, &first, &err), DI_OK);
    const int32_t port = (int32_t)strtol(strrchr(srv_url(first), ':') + 1, NULL, 10);
    unit_expect_error(srv_open(service, &(srv_options){.port = port}, &server, &err), DI_E_IO, &err, "127.0.0.1 port", "in use", NULL);
    srv_close(first);
    assert_null(server);
    fake_free(service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_answer),
        cmocka_unit_test(unknown_paths_and_methods_are_told_apart),
        cmocka_unit_test(head_and_options_have_no_body),
        cmocka_unit_test(web_pages_of_one_origin_are_let_in),
        cmocka_unit_test(every_route_but_health_needs_a_key),
        cmocka_unit_test(tenants_come_from_keys_or_a_trusted_header),
        cmocka_unit_test(bodies_are_json_of_a_bounded_size),
        cmocka_unit_test(heads_say_clearly_what_they_are),
        cmocka_unit_test(heads_have_a_bounded_size),
        cmocka_unit_test(ids_are_taken_or_made_and_echoed),
        cmocka_unit_test(the_admin_port_has_its_own_key),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
