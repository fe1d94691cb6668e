/* chat_tenants.c - what tenants have in the cache's folders, as JSON.
 *
 * A folder names tenants by a digest. The names that the service has seen are digested as well, when somebody asks, and looked up. */
#include "chat/chat_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct named {
    char id[DI_CACHE_TENANT_ID_BYTES];
    const char *name;
} named;

static int by_id(const void *a, const void *b) { return strcmp(((const named *)a)->id, ((const named *)b)->id); }

/* A copy of the names, each with its NUL; NULL = none, or no memory. */
static char *copy_names(chat_engine *e, size_t *bytes)
{
    pthread_mutex_lock(&e->shown);
    char *const names = e->n_names > 0 ? malloc(e->n_names) : NULL;
    *bytes = names != NULL ? e->n_names : 0;
    if (names != NULL) {
        memcpy(names, e->names, *bytes);
    }
    pthread_mutex_unlock(&e->shown);
    return names;
}

/* Sorted by id; malloc'ed. */
static named *name_all(const char *names, size_t bytes, size_t *n)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += names[i] == '\0';
    }
    named *const all = ar_calloc(count, sizeof *all);
    *n = 0;
    for (const char *name = names; all != NULL && *n < count; name += strlen(name) + 1) {
        all[*n].name = name;
        if (di_cache_tenant_id(name, strlen(name), all[*n].id, NULL) != DI_OK) {
            break;
        }
        ++*n;
    }
    if (*n > 0) {
        qsort(all, *n, sizeof *all, by_id);
    }
    return all;
}

static void write_tenant(const char *tier, const di_cache_tenant *t, const named *all, size_t n, buf *out)
{
    named wanted = {.name = NULL};
    memcpy(wanted.id, t->id, sizeof wanted.id);
    const named *const found = n > 0 ? bsearch(&wanted, all, n, sizeof wanted, by_id) : NULL;
    buf_printf(out, "{\"tier\":\"%s\",\"id\":\"%s\",\"name\":", tier, t->id);
    if (found != NULL) {
        buf_json_string(out, found->name, strlen(found->name));
    } else {
        buf_puts(out, "null");
    }
    buf_printf(out, ",\"bytes\":%lld,\"units\":%lld,\"snapshots\":%lld,\"pinned_bytes\":%lld}", (long long)t->bytes, (long long)t->units,
               (long long)t->snapshots, (long long)t->pinned_bytes);
}

size_t di_service_cache_tenants(const di_service *service, char *out, size_t capacity)
{
    static const struct {
        di_cache_tier tier;
        const char *name;
    } folders[] = {{DI_CACHE_DIR, "dir"}, {DI_CACHE_SHARED, "shared"}};
    di_service *const s = (di_service *)(uintptr_t)service;
    di_cache_tenant *const tenants = ar_calloc(DI_SERVICE_CACHE_TENANTS, sizeof *tenants);
    size_t n_bytes;
    size_t n_names;
    bool first = true;
    buf text;
    char *const names = copy_names(&s->engine_thread, &n_bytes);
    named *const all = name_all(names, n_bytes, &n_names);
    buf_init(&text, SIZE_MAX);
    buf_puts(&text, "{\"tenants\":[");
    for (size_t f = 0; tenants != NULL && f < sizeof folders / sizeof *folders; f++) {
        const size_t n = di_engine_get_cache_tenants(s->engine, folders[f].tier, tenants, DI_SERVICE_CACHE_TENANTS);
        for (size_t i = 0; i < n && i < DI_SERVICE_CACHE_TENANTS; i++) {
            buf_puts(&text, first ? "" : ",");
            write_tenant(folders[f].name, &tenants[i], all, n_names, &text);
            first = false;
        }
    }
    buf_puts(&text, "]}");
    const size_t length = chat_give(text.data, text.failed ? 0 : text.size, out, capacity);
    buf_fini(&text);
    free(all);
    free(names);
    free(tenants);
    return length;
}
