/* kv_lower.c - a disk as a lower tier; see kv_lower.h. */
#include "kv/kv_lower.h"

static void disk_find(void *store, kv_disk_find *find) { kv_disk_find_start(store, find); }
static void disk_release(void *store, kv_disk_find *find) { kv_disk_release(store, find); }
static void disk_read(void *store, kv_disk_read *read) { kv_disk_read_start(store, read); }
static bool disk_put(void *store, kv_disk_put *put) { return kv_disk_put_start(store, put); }
static void disk_care(void *store, kv_disk_care *care) { kv_disk_care_start(store, care); }
static int disk_poll(void *store) { return kv_disk_poll(store); }
static void disk_counters(const void *store, kv_disk_counters *out) { kv_disk_get_counters(store, out); }
static size_t disk_tenants(const void *store, kv_tenant_use *out, size_t capacity) { return kv_disk_get_tenants(store, out, capacity); }
static void disk_close(void *store) { kv_disk_close(store); }

static const kv_lower_table disk_table = {
    .find = disk_find,
    .release = disk_release,
    .read = disk_read,
    .put = disk_put,
    .care = disk_care,
    .poll = disk_poll,
    .counters = disk_counters,
    .tenants = disk_tenants,
    .close = disk_close,
};

kv_lower kv_lower_of_disk(kv_disk *disk) { return (kv_lower){.table = &disk_table, .store = disk}; }
