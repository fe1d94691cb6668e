/* srv_route.c - the table of routes. A new one is a row here, a handler, and a path in docs/openapi.json. */
#include "server/srv_int.h"

#include <string.h>

static const srv_route api_routes[] = {
    {.path = "/v1/chat/completions", .label = "chat", .methods = SRV_POST, .call = DI_ROUTE_CHAT, .errors = DI_CHAT},
    {.path = "/v1/responses", .label = "responses", .methods = SRV_POST, .call = DI_ROUTE_RESPONSES, .errors = DI_RESPONSES},
    {.path = "/v1/messages", .label = "messages", .methods = SRV_POST, .call = DI_ROUTE_MESSAGES, .errors = DI_MESSAGES},
    {.path = "/v1/messages/count_tokens", .label = "count_tokens", .methods = SRV_POST, .call = DI_ROUTE_COUNT_TOKENS,
     .errors = DI_MESSAGES},
    {.path = "/v1/completions", .label = "completions", .methods = SRV_POST, .call = DI_ROUTE_COMPLETIONS, .errors = DI_CHAT},
    {.path = "/tokenize", .label = "tokenize", .methods = SRV_POST, .call = DI_ROUTE_TOKENIZE, .errors = DI_CHAT},
    {.path = "/detokenize", .label = "detokenize", .methods = SRV_POST, .call = DI_ROUTE_DETOKENIZE, .errors = DI_CHAT},
    {.path = "/v1/models", .label = "models", .methods = SRV_GET, .page = srv_page_models, .errors = DI_CHAT},
    {.path = "/v1/models/", .label = "model", .methods = SRV_GET, .page = srv_page_model, .errors = DI_CHAT, .rest = true},
    {.path = "/health", .label = "health", .methods = SRV_GET, .page = srv_page_health, .errors = DI_CHAT, .open = true},
    {.path = "/ready", .label = "ready", .methods = SRV_GET, .page = srv_page_ready, .errors = DI_CHAT},
    {.path = "/metrics", .label = "metrics", .methods = SRV_GET, .page = srv_page_metrics, .errors = DI_CHAT},
    {.path = "/openapi.json", .label = "openapi", .methods = SRV_GET, .page = srv_page_openapi, .errors = DI_CHAT},
    {.path = "/", .label = "console", .methods = SRV_GET, .page = srv_page_console, .errors = DI_CHAT},
};

const srv_route srv_no_route = {.path = "", .label = "none", .errors = DI_CHAT};

const srv_route *srv_api_routes(size_t *n)
{
    *n = sizeof api_routes / sizeof api_routes[0];
    return api_routes;
}

const srv_route *srv_route_find(const srv_route *routes, size_t n, const char *path, const char **rest)
{
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(routes[i].path);
        if (strncmp(path, routes[i].path, length) == 0 && (path[length] == '\0') == !routes[i].rest) {
            *rest = path + length;
            return &routes[i];
        }
    }
    *rest = "";
    return NULL;
}
