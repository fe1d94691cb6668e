/* kv_quota.c - two small memories of the writing thread: what each tenant has, and how often a name has been put.
 *
 * Tenants: open addressing by the first bytes of the id, which is a digest. A tenant without bytes is no longer in the table. Sightings:
 * one slot a hash, so a name is forgotten when another one falls on its slot; that costs a later write, never an answer. */
#include "kv/kv_disk_int.h"

#include "core/arith.h"

#include <stdlib.h>
#include <string.h>

static size_t home_of(const kv_quotas *quotas, const kv_tenant *tenant)
{
    uint64_t hash;
    memcpy(&hash, tenant->id, sizeof hash);
    return (size_t)hash & (quotas->capacity - 1);
}

/* Where the tenant is, or the free place where it would be. capacity > n. */
static size_t place_of(const kv_quotas *quotas, const kv_tenant *tenant)
{
    size_t i = home_of(quotas, tenant);
    while (quotas->places[i].bytes != 0 && memcmp(&quotas->places[i].tenant, tenant, sizeof *tenant) != 0) {
        i = (i + 1) & (quotas->capacity - 1);
    }
    return i;
}

static bool grow(kv_quotas *quotas)
{
    const kv_quotas old = *quotas;
    const size_t capacity = old.capacity != 0 ? 2 * old.capacity : 64;
    kv_tenant_use *const places = ar_calloc(capacity, sizeof *places);
    if (places == NULL) {
        return false;
    }
    quotas->places = places;
    quotas->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++) {
        if (old.places[i].bytes != 0) {
            quotas->places[place_of(quotas, &old.places[i].tenant)] = old.places[i];
        }
    }
    free(old.places);
    return true;
}

/* Closes the gap at i: whoever stands behind it and could not be found any more moves up. */
static void remove_at(kv_quotas *quotas, size_t i)
{
    const size_t mask = quotas->capacity - 1;
    size_t k = i;
    quotas->places[i].bytes = 0;
    quotas->n--;
    for (;;) {
        k = (k + 1) & mask;
        if (quotas->places[k].bytes == 0) {
            return;
        }
        const size_t home = home_of(quotas, &quotas->places[k].tenant);
        if (((k - home) & mask) >= ((k - i) & mask)) {
            quotas->places[i] = quotas->places[k];
            quotas->places[k].bytes = 0;
            i = k;
        }
    }
}

int64_t kv_quota_bytes(const kv_quotas *quotas, const kv_tenant *tenant)
{
    return quotas->capacity != 0 ? quotas->places[place_of(quotas, tenant)].bytes : 0;
}

bool kv_quota_add(kv_quotas *quotas, const kv_tenant_use *change)
{
    if (change->bytes == 0) {
        return true;
    }
    if (2 * (quotas->n + 1) > quotas->capacity && !grow(quotas)) {
        return false;
    }
    const size_t i = place_of(quotas, &change->tenant);
    kv_tenant_use *const place = &quotas->places[i];
    if (place->bytes == 0) {
        if (change->bytes < 0) {
            return true; /* of a tenant that there was no memory to count */
        }
        *place = (kv_tenant_use){.tenant = change->tenant};
        quotas->n++;
    }
    place->bytes += change->bytes;
    place->pinned_bytes += change->pinned_bytes;
    for (int kind = 0; kind < KV_DISK_KINDS; kind++) {
        place->records[kind] += change->records[kind];
    }
    if (place->bytes <= 0) {
        remove_at(quotas, i);
    }
    return true;
}

size_t kv_quotas_list(const kv_quotas *quotas, kv_tenant_use *out, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0; i < quotas->capacity; i++) {
        if (quotas->places[i].bytes != 0) {
            if (n < capacity) {
                out[n] = quotas->places[i];
            }
            n++;
        }
    }
    return n;
}

void kv_quotas_fini(kv_quotas *quotas)
{
    free(quotas->places);
    *quotas = (kv_quotas){0};
}

int32_t kv_sighting(kv_sightings *sightings, const kv_name *name)
{
    uint64_t hash;
    memcpy(&hash, name->bytes, sizeof hash); /* of a SHA-256 */
    hash ^= name->bytes[KV_KEY_BYTES];
    uint32_t *const slot = &sightings->slots[hash % KV_SIGHTINGS];
    const uint32_t mark = (uint32_t)(hash >> 40);
    const uint32_t count = *slot >> 8 == mark ? *slot & 0xff : 0;
    const uint32_t now = count < 0xff ? count + 1 : count;
    *slot = mark << 8 | now;
    return (int32_t)now;
}
