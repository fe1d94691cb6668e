/* kv_tenant.h - what tenants have in a lower tier, for those who look after it. */
#ifndef KV_KV_TENANT_H
#define KV_KV_TENANT_H

#include "kv/kv_lower.h"

#include <deepinfer/cache.h>

/* Those with the most bytes first; at most n are written, how many there are is returned. Without memory: none. Any thread. */
size_t kv_tenants_list(const kv_lower *lower, di_cache_tenant *out, size_t n);

#endif
