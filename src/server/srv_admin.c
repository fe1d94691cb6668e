/* srv_admin.c - the admin API, on a port of its own: tenants are listed, paused, resumed and drained, what the cache has of them is pinned
 * and purged; the server is drained. */
#include "server/srv_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reply_text(srv_request *r, size_t (*get)(const di_service *service, char *out, size_t capacity))
{
    size_t capacity = 16384;
    for (;;) {
        char *const text = malloc(capacity);
        if (text == NULL) {
            return srv_http_out_of_memory(r);
        }
        const size_t n = get(r->server->service, text, capacity);
        if (n < capacity) {
            return srv_http_answer(r, 200, "application/json", text, n, SRV_OWNED);
        }
        free(text);
        capacity = n + n / 4 + 1;
    }
}

static bool reply_tenants(srv_request *r) { return reply_text(r, di_service_tenants); }
static bool reply_cache(srv_request *r) { return reply_text(r, di_service_cache); }
static bool reply_cache_tenants(srv_request *r) { return reply_text(r, di_service_cache_tenants); }

static di_status pause(di_service *s, const char *name, di_error *err) { return di_service_set_tenant(s, name, DI_TENANT_PAUSED, err); }
static di_status resume(di_service *s, const char *name, di_error *err) { return di_service_set_tenant(s, name, DI_TENANT_OPEN, err); }
static di_status drain(di_service *s, const char *name, di_error *err) { return di_service_set_tenant(s, name, DI_TENANT_DRAINING, err); }
static di_status pin(di_service *s, const char *name, di_error *err) { return di_service_pin_cache(s, name, true, err); }
static di_status unpin(di_service *s, const char *name, di_error *err) { return di_service_pin_cache(s, name, false, err); }

static int status_of(di_status status) { return status == DI_E_ARGUMENT ? 400 : status == DI_E_MEMORY ? 503 : 500; }

/* `{name}/{action}`; the name may hold slashes, the action is the last part. */
static bool change_tenant(srv_request *r)
{
    static const struct {
        const char *name;
        di_status (*act)(di_service *s, const char *name, di_error *err);
    } actions[] = {{"pause", pause},   {"resume", resume},      {"drain", drain},
                   {"pin-cache", pin}, {"unpin-cache", unpin}, {"purge-cache", di_service_purge_cache}};
    const char *const slash = strrchr(r->rest, '/');
    char name[DI_MAX_TENANT_BYTES + 1];
    if (slash == NULL || (size_t)(slash - r->rest) >= sizeof name) {
        return srv_reply_error(r, 404, "The path is /admin/tenants/{name}/{pause|resume|drain|pin-cache|unpin-cache|purge-cache}.");
    }
    memcpy(name, r->rest, (size_t)(slash - r->rest));
    name[slash - r->rest] = '\0';
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(slash + 1, actions[i].name) == 0) {
            di_error err;
            const di_status status = actions[i].act(r->server->service, name, &err);
            if (status != DI_OK) {
                return srv_reply_error(r, status_of(status), err.message);
            }
            buf json;
            buf_init(&json, SIZE_MAX);
            buf_puts(&json, "{\"name\":");
            buf_json_string(&json, name, strlen(name));
            buf_printf(&json, ",\"action\":\"%s\"}", actions[i].name);
            return srv_reply_json(r, &json);
        }
    }
    return srv_reply_error(r, 404, "A tenant takes pause, resume, drain, pin-cache, unpin-cache or purge-cache.");
}

static bool purge_all(srv_request *r)
{
    di_error err;
    buf json;
    const di_status status = di_service_purge_cache(r->server->service, NULL, &err);
    if (status != DI_OK) {
        return srv_reply_error(r, status_of(status), err.message);
    }
    buf_init(&json, SIZE_MAX);
    buf_puts(&json, "{\"action\":\"purge-cache\"}");
    return srv_reply_json(r, &json);
}

static bool drain_all(srv_request *r)
{
    srv_drain(r->server);
    buf json;
    buf_init(&json, SIZE_MAX);
    buf_printf(&json, "{\"draining\":true,\"pending\":%lld}", (long long)di_service_pending(r->server->service));
    return srv_reply_json(r, &json);
}

static bool reply_stats(srv_request *r)
{
    di_service_stats s;
    di_service_get_stats(r->server->service, &s);
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {
        {"preparing", s.n_preparing},
        {"waiting", s.n_waiting},
        {"running", s.n_running},
        {"output", s.n_output},
        {"pending", di_service_pending(r->server->service)},
        {"choices_running", s.scheduler.n_choices},
        {"preempted", s.scheduler.n_preempted},
        {"steps", s.scheduler.n_steps},
        {"prefill_tokens", s.scheduler.prefill_tokens},
        {"decode_tokens", s.scheduler.decode_tokens},
        {"execute_ns", s.scheduler.execute_ns},
        {"schedule_ns", s.scheduler.schedule_ns},
        {"plan_ns", s.scheduler.plan_ns},
        {"kv_pages", s.kv.pages},
        {"kv_pages_used", s.kv.pages_used},
        {"kv_pages_cached", s.kv.pages_cached},
        {"kv_states", s.kv.states},
        {"kv_states_used", s.kv.states_used},
        {"kv_states_cached", s.kv.states_cached},
    };
    buf json;
    buf_init(&json, SIZE_MAX);
    buf_printf(&json, "{\"draining\":%s", atomic_load(&r->server->draining) ? "true" : "false");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        buf_printf(&json, ",\"%s\":%lld", fields[i].name, (long long)fields[i].value);
    }
    buf_puts(&json, "}");
    return srv_reply_json(r, &json);
}

static const srv_route admin_routes[] = {
    {.path = "/admin/tenants", .label = "admin_tenants", .methods = SRV_GET, .page = reply_tenants, .errors = DI_CHAT},
    {.path = "/admin/tenants/", .label = "admin_tenant", .methods = SRV_POST, .page = change_tenant, .errors = DI_CHAT, .rest = true},
    {.path = "/admin/cache", .label = "admin_cache", .methods = SRV_GET, .page = reply_cache, .errors = DI_CHAT},
    {.path = "/admin/cache/tenants", .label = "admin_cache_tenants", .methods = SRV_GET, .page = reply_cache_tenants, .errors = DI_CHAT},
    {.path = "/admin/cache/purge", .label = "admin_cache_purge", .methods = SRV_POST, .page = purge_all, .errors = DI_CHAT},
    {.path = "/admin/drain", .label = "admin_drain", .methods = SRV_POST, .page = drain_all, .errors = DI_CHAT},
    {.path = "/admin/stats", .label = "admin_stats", .methods = SRV_GET, .page = reply_stats, .errors = DI_CHAT},
    {.path = "/health", .label = "admin_health", .methods = SRV_GET, .page = srv_page_health, .errors = DI_CHAT, .open = true},
    {.path = "/metrics", .label = "admin_metrics", .methods = SRV_GET, .page = srv_page_metrics, .errors = DI_CHAT},
};

const srv_route *srv_admin_routes(size_t *n)
{
    *n = sizeof admin_routes / sizeof admin_routes[0];
    return admin_routes;
}
