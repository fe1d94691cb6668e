/* kv_ram.c - see kv_ram.h. A hash table over the first bytes of keys, which are digests, and a list in order of use. Held records stay in
 * both; eviction walks from the oldest end and passes over them, which is short because what is held was used lately. */
#include "kv/kv_ram.h"

#include "core/arith.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define MIN_RECORD_BYTES 4096 /* for the size of the table */
#define MAX_BUCKETS ((size_t)1 << 20)

struct kv_ram {
    kv_ram_record **buckets; /* [n_buckets], a power of two */
    size_t n_buckets;
    kv_ram_record *newest; /* listed records, by last use */
    kv_ram_record *oldest;
    kv_ram_counters counters;
};

di_status kv_ram_new(int64_t max_bytes, kv_ram **out, di_error *err)
{
    if (max_bytes < 0) {
        return err_set(err, DI_E_ARGUMENT, "cache memory of %lld bytes: is negative", (long long)max_bytes);
    }
    kv_ram *const ram = calloc(1, sizeof *ram);
    if (ram == NULL) {
        return err_memory(err, "cache memory", sizeof *ram);
    }
    ram->counters.max_bytes = max_bytes;
    ram->n_buckets = 64;
    while (ram->n_buckets < MAX_BUCKETS && ram->n_buckets < (size_t)(max_bytes / MIN_RECORD_BYTES)) {
        ram->n_buckets *= 2;
    }
    ram->buckets = ar_calloc(ram->n_buckets, sizeof *ram->buckets);
    if (ram->buckets == NULL) {
        const size_t bytes = ram->n_buckets * sizeof *ram->buckets;
        free(ram);
        return err_memory(err, "index of the cache memory", bytes);
    }
    *out = ram;
    return DI_OK;
}

/* ---- table and list ---- */

static kv_ram_record **bucket_of(const kv_ram *ram, const uint8_t *key)
{
    uint64_t hash;
    memcpy(&hash, key, sizeof hash);
    return &ram->buckets[hash & (ram->n_buckets - 1)];
}

static kv_ram_record *lookup(const kv_ram *ram, const uint8_t *key, kv_disk_kind kind)
{
    kv_ram_record *r = *bucket_of(ram, key);
    while (r != NULL && (r->kind != kind || memcmp(r->key, key, KV_KEY_BYTES) != 0)) {
        r = r->next_hash;
    }
    return r;
}

static void put_newest(kv_ram *ram, kv_ram_record *r)
{
    r->newer = NULL;
    r->older = ram->newest;
    *(ram->newest != NULL ? &ram->newest->newer : &ram->oldest) = r;
    ram->newest = r;
}

static void take_out(kv_ram *ram, kv_ram_record *r)
{
    *(r->newer != NULL ? &r->newer->older : &ram->newest) = r->older;
    *(r->older != NULL ? &r->older->newer : &ram->oldest) = r->newer;
}

static void release(kv_ram *ram, kv_ram_record *r)
{
    ram->counters.bytes -= r->bytes;
    free(r);
}

/* It can't be found any more; with holds it lives on until the last of them. */
static void unlist(kv_ram *ram, kv_ram_record *r)
{
    kv_ram_record **place = bucket_of(ram, r->key);
    while (*place != r) {
        place = &(*place)->next_hash;
    }
    *place = r->next_hash;
    take_out(ram, r);
    r->listed = false;
    ram->counters.records[r->kind]--;
    if (r->holds == 0) {
        release(ram, r);
    }
}

void kv_ram_free(kv_ram *ram)
{
    if (ram == NULL) {
        return;
    }
    while (ram->newest != NULL) {
        unlist(ram, ram->newest);
    }
    free(ram->buckets);
    free(ram);
}

/* ---- adding ---- */

static void make_room(kv_ram *ram, int64_t bytes)
{
    kv_ram_record *r = ram->oldest;
    while (r != NULL && ram->counters.max_bytes - ram->counters.bytes < bytes) {
        kv_ram_record *const newer = r->newer;
        if (r->holds == 0) {
            unlist(ram, r);
            ram->counters.evicted++;
        }
        r = newer;
    }
}

static kv_ram_record *allocate(const uint8_t *key, kv_disk_kind kind, int64_t bytes)
{
    size_t size;
    if (!ar_add(sizeof(kv_ram_record), (size_t)bytes, &size)) {
        return NULL;
    }
    kv_ram_record *const r = malloc(size);
    if (r != NULL) {
        *r = (kv_ram_record){.kind = kind, .expires_ns = INT64_MAX, .bytes = bytes, .data = r + 1, .holds = 1};
        memcpy(r->key, key, KV_KEY_BYTES);
    }
    return r;
}

kv_ram_record *kv_ram_add(kv_ram *ram, const uint8_t key[KV_KEY_BYTES], kv_disk_kind kind, int64_t bytes)
{
    kv_ram_counters *const k = &ram->counters;
    kv_ram_record *r = NULL;
    if (bytes > 0 && bytes <= k->max_bytes - k->held_bytes) {
        make_room(ram, bytes);
        r = allocate(key, kind, bytes);
    }
    if (r == NULL) {
        k->refused++;
        return NULL;
    }
    k->bytes += bytes;
    k->held_bytes += bytes;
    return r;
}

void kv_ram_list(kv_ram *ram, kv_ram_record *r)
{
    if (r->listed || lookup(ram, r->key, r->kind) != NULL) {
        return;
    }
    kv_ram_record **const bucket = bucket_of(ram, r->key);
    r->next_hash = *bucket;
    *bucket = r;
    r->listed = true;
    put_newest(ram, r);
    ram->counters.records[r->kind]++;
}

/* ---- using ---- */

static void hold(kv_ram *ram, kv_ram_record *r)
{
    ram->counters.held_bytes += r->holds == 0 ? r->bytes : 0;
    r->holds++;
}

kv_ram_record *kv_ram_find(kv_ram *ram, const uint8_t key[KV_KEY_BYTES], kv_disk_kind kind, int64_t now_ns)
{
    kv_ram_record *const r = lookup(ram, key, kind);
    ram->counters.finds++;
    if (r == NULL) {
        return NULL;
    }
    if (r->expires_ns <= now_ns) {
        ram->counters.expired++;
        unlist(ram, r);
        return NULL;
    }
    ram->counters.found++;
    take_out(ram, r);
    put_newest(ram, r);
    hold(ram, r);
    return r;
}

void kv_ram_hold(kv_ram_record *record) { record->holds++; /* held already, so nothing else changes */ }

void kv_ram_drop(kv_ram *ram, kv_ram_record *r)
{
    if (r == NULL) {
        return;
    }
    r->holds--;
    if (r->holds == 0) {
        ram->counters.held_bytes -= r->bytes;
        if (!r->listed) {
            release(ram, r);
        }
    }
}

int64_t kv_ram_purge(kv_ram *ram, const kv_tenant *tenant)
{
    int64_t n = 0;
    for (kv_ram_record *r = ram->oldest; r != NULL;) {
        kv_ram_record *const newer = r->newer;
        if (tenant == NULL || memcmp(&r->tenant, tenant, sizeof *tenant) == 0) {
            unlist(ram, r);
            n++;
        }
        r = newer;
    }
    return n;
}

void kv_ram_get_counters(const kv_ram *ram, kv_ram_counters *out) { *out = ram->counters; }

/* ---- checking ---- */

const char *kv_ram_check(const kv_ram *ram)
{
    const kv_ram_counters *const k = &ram->counters;
    int64_t n[KV_DISK_KINDS] = {0};
    int64_t bytes = 0;
    int64_t held = 0;
    for (const kv_ram_record *r = ram->oldest; r != NULL; r = r->newer) {
        if (lookup(ram, r->key, r->kind) != r || !r->listed) {
            return "index";
        }
        if ((r->newer != NULL ? r->newer->older : ram->newest) != r) {
            return "list";
        }
        n[r->kind]++;
        bytes += r->bytes;
        held += r->holds > 0 ? r->bytes : 0;
    }
    if (memcmp(n, k->records, sizeof n) != 0) {
        return "number of records";
    }
    const int64_t unlisted = k->bytes - bytes; /* all of it is held */
    return unlisted < 0 || k->held_bytes != held + unlisted || k->bytes > k->max_bytes ? "bytes" : NULL;
}
