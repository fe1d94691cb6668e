/* srv_pages.c - answers that need no call: models, health, readiness, metrics, the API's description, the console. */
#include "server/srv_int.h"

#include <string.h>
#include <time.h>

/* Fields of both APIs: each client finds its own and passes over the rest. */
static void write_model(srv_request *r, buf *out)
{
    const char *const name = di_service_model_name(r->server->service);
    const time_t created = (time_t)r->server->started_at;
    struct tm utc;
    char text[32];
    gmtime_r(&created, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    buf_puts(out, "{\"id\":");
    buf_json_string(out, name, strlen(name));
    buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"deepinfer\",\"max_model_len\":%lld,",
               (long long)created, (long long)di_service_context(r->server->service));
    buf_printf(out, "\"type\":\"model\",\"created_at\":\"%s\",\"display_name\":", text);
    buf_json_string(out, name, strlen(name));
    buf_puts(out, "}");
}

bool srv_page_models(srv_request *r)
{
    const char *const name = di_service_model_name(r->server->service);
    buf json;
    buf_init(&json, SIZE_MAX);
    buf_puts(&json, "{\"object\":\"list\",\"data\":[");
    write_model(r, &json);
    buf_puts(&json, "],\"has_more\":false,\"first_id\":");
    buf_json_string(&json, name, strlen(name));
    buf_puts(&json, ",\"last_id\":");
    buf_json_string(&json, name, strlen(name));
    buf_puts(&json, "}");
    return srv_reply_json(r, &json);
}

bool srv_page_model(srv_request *r)
{
    if (strcmp(r->rest, di_service_model_name(r->server->service)) != 0) {
        srv_refuse(r, 404, "no_model", "There is no model \"%.100s\" here.", r->rest);
        return srv_reply_error(r, r->refusal, r->why);
    }
    buf json;
    buf_init(&json, SIZE_MAX);
    write_model(r, &json);
    return srv_reply_json(r, &json);
}

bool srv_page_health(srv_request *r)
{
    static const char alive[] = "{\"status\":\"ok\"}";
    return srv_http_answer(r, 200, "application/json", alive, sizeof alive - 1, SRV_STATIC);
}

bool srv_page_ready(srv_request *r)
{
    static const char ready[] = "{\"status\":\"ready\"}";
    if (atomic_load(&r->server->draining)) {
        r->retry_after_s = SRV_RETRY_AFTER_S;
        return srv_reply_error(r, 503, "The server is shutting down.");
    }
    return srv_http_answer(r, 200, "application/json", ready, sizeof ready - 1, SRV_STATIC);
}

bool srv_page_metrics(srv_request *r)
{
    buf page;
    buf_init(&page, SIZE_MAX);
    srv_metrics_write(r->server, &page);
    if (page.failed) {
        buf_fini(&page);
        return srv_http_out_of_memory(r);
    }
    return srv_http_answer(r, 200, "text/plain; version=0.0.4; charset=utf-8", page.data, page.size, SRV_OWNED);
}

bool srv_page_openapi(srv_request *r)
{
    return srv_http_answer(r, 200, "application/json", srv_openapi_text, srv_openapi_size, SRV_STATIC);
}

bool srv_page_console(srv_request *r)
{
    static const char none[] = "<!doctype html><title>deepinfer</title><p>This build has no console. The API is described at "
                               "<a href=\"/openapi.json\">/openapi.json</a>.";
    if (srv_console_size == 0) {
        return srv_http_answer(r, 200, "text/html; charset=utf-8", none, sizeof none - 1, SRV_STATIC);
    }
    return srv_http_answer(r, 200, "text/html; charset=utf-8", srv_console_text, srv_console_size, SRV_STATIC);
}
