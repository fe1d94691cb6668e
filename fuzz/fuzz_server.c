/* Fuzzes the texts that the server reads by itself: files of keys, traceparent, names of tenants, paths. The first byte says which.
 *
 * fuzz: tools (which carry the server) */
#include "server/srv_auth.h"
#include "server/srv_int.h"

#include <stdlib.h>
#include <string.h>

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

static void keys(char *text, size_t n)
{
    srv_keys all = {.n = 0};
    di_error err = {.message = ""};
    if (srv_keys_add_text(&all, text, n, "keys", (srv_key_defaults){.rate = 1}, &err) == DI_OK) {
        for (size_t i = 0; i < all.n; i++) {
            require(srv_tenant_valid(all.items[i].tenant) && all.items[i].limit.rate >= 0 && all.items[i].limit.concurrency >= 0);
        }
    } else {
        require(strncmp(err.message, "keys: line ", 11) == 0 && strchr(err.message, '\n') == NULL);
    }
    srv_keys_fini(&all);
}

static void trace(const char *text)
{
    static const uint8_t random[24] = {1, [16] = 1};
    srv_trace first;
    srv_trace second;
    char header[SRV_TRACEPARENT_BYTES];
    srv_trace_begin(&first, text, random);
    srv_trace_header(&first, header);
    srv_trace_begin(&second, header, random); /* what goes out is valid */
    require(strcmp(first.trace_id, second.trace_id) == 0 && strcmp(first.span_id, second.parent_id) == 0 &&
            first.sampled == second.sampled);
}

static void path(const char *text)
{
    size_t n;
    const char *rest;
    const srv_route *const routes = srv_api_routes(&n);
    const srv_route *const route = srv_route_find(routes, n, text, &rest);
    require(route == NULL || (strncmp(text, route->path, strlen(route->path)) == 0 && (route->rest ? *rest != '\0' : *rest == '\0')));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    char *const text = malloc(size);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        keys(text, size - 1);
        break;
    case 1:
        trace(text);
        break;
    case 2:
        require(!srv_tenant_valid(text) || strlen(text) <= SRV_MAX_TENANT_BYTES);
        break;
    default:
        path(text);
        break;
    }
    free(text);
    return 0;
}
