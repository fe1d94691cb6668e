/* kv_tenant.c - tenants as people see them (<deepinfer/cache.h>): ids in hexadecimal digits, lists with the largest first. */
#include "kv/kv_tenant.h"

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE = 16 }; /* tenants that may come up between counting and listing */

_Static_assert(2 * KV_TENANT_BYTES + 1 == DI_CACHE_TENANT_ID_BYTES, "two digits a byte");

static void write_id(const kv_tenant *tenant, char out[DI_CACHE_TENANT_ID_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < KV_TENANT_BYTES; i++) {
        out[2 * i] = digits[tenant->id[i] >> 4];
        out[2 * i + 1] = digits[tenant->id[i] & 15];
    }
    out[2 * KV_TENANT_BYTES] = '\0';
}

static int by_bytes(const void *a, const void *b)
{
    const kv_tenant_use *const x = a;
    const kv_tenant_use *const y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : memcmp(&x->tenant, &y->tenant, sizeof x->tenant);
}

size_t kv_tenants_list(const kv_lower *lower, di_cache_tenant *out, size_t n)
{
    const size_t capacity = lower->table->tenants(lower->store, NULL, 0) + SPARE;
    kv_tenant_use *const uses = ar_calloc(capacity, sizeof *uses);
    if (uses == NULL) {
        return 0;
    }
    const size_t all = lower->table->tenants(lower->store, uses, capacity);
    const size_t listed = all < capacity ? all : capacity;
    qsort(uses, listed, sizeof *uses, by_bytes);
    for (size_t i = 0; i < listed && i < n; i++) {
        out[i] = (di_cache_tenant){.bytes = uses[i].bytes,
                                   .units = uses[i].records[KV_DISK_UNIT],
                                   .snapshots = uses[i].records[KV_DISK_SNAPSHOT],
                                   .pinned_bytes = uses[i].pinned_bytes};
        write_id(&uses[i].tenant, out[i].id);
    }
    free(uses);
    return listed;
}

di_status di_cache_tenant_id(const void *salt, size_t n, char out[DI_CACHE_TENANT_ID_BYTES], di_error *err)
{
    kv_tenant tenant;
    if (!kv_tenant_of((kv_salt){.data = salt, .size = n}, &tenant)) {
        return err_set(err, DI_E_INTERNAL, "SHA-256 is not available in the installed OpenSSL");
    }
    write_id(&tenant, out);
    return DI_OK;
}
