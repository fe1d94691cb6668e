/* kv_ram.h - the tier in host memory between the device and disks: records under a byte budget, the least recently used go first.
 *
 * It is three things at once: the cache that device pages fall back to, the buffer that writes to disk come from (a held record stays
 * until the disk has it, nobody waits for that), and where prefetched records land. A record is found only once it is complete.
 *
 * One thread at a time, nothing waits. Memory is taken record by record, up to the budget. */
#ifndef KV_KV_RAM_H
#define KV_KV_RAM_H

#include "kv/kv_disk.h"

typedef struct kv_ram kv_ram;

typedef struct kv_ram_record { /* owner: its kv_ram; borrowed while held */
    uint8_t key[KV_KEY_BYTES];
    kv_disk_kind kind;
    uint32_t tag;
    kv_tenant tenant;
    int64_t expires_ns; /* on the clock of clock_now_ns; INT64_MAX = never */
    int64_t bytes;
    void *data;
    /* private */
    struct kv_ram_record *next_hash;
    struct kv_ram_record *newer;
    struct kv_ram_record *older;
    int32_t holds;
    bool listed; /* can be found */
} kv_ram_record;

/* Errors: DI_E_ARGUMENT, DI_E_MEMORY. */
di_status kv_ram_new(int64_t max_bytes, kv_ram **out, di_error *err);
void kv_ram_free(kv_ram *ram); /* no record may be held; NULL is ignored */

/* A record of `bytes` bytes to be filled, held once and not to be found yet. NULL: what is held leaves no room, or there is no memory. */
kv_ram_record *kv_ram_add(kv_ram *ram, const uint8_t key[KV_KEY_BYTES], kv_disk_kind kind, int64_t bytes);
/* It is complete: found from now on, unless its like is there already; then it goes with its last hold. Still held. */
void kv_ram_list(kv_ram *ram, kv_ram_record *record);
/* The record, held once more; NULL = not there, or expired. Counts as a use. */
kv_ram_record *kv_ram_find(kv_ram *ram, const uint8_t key[KV_KEY_BYTES], kv_disk_kind kind, int64_t now_ns);
void kv_ram_hold(kv_ram_record *record);
void kv_ram_drop(kv_ram *ram, kv_ram_record *record); /* one hold less; NULL is ignored */

/* Records of a tenant, or of all with NULL, are not found any more. Returns how many. */
int64_t kv_ram_purge(kv_ram *ram, const kv_tenant *tenant);

typedef struct kv_ram_counters {
    int64_t max_bytes;
    int64_t bytes;      /* now */
    int64_t held_bytes; /* of them, what can't go */
    int64_t records[KV_DISK_KINDS];
    int64_t finds; /* sums from here on */
    int64_t found;
    int64_t evicted;
    int64_t expired;
    int64_t refused; /* kv_ram_add without room */
} kv_ram_counters;

void kv_ram_get_counters(const kv_ram *ram, kv_ram_counters *out);

/* Checks every invariant (tests). The name of the first broken one, or NULL. */
const char *kv_ram_check(const kv_ram *ram);

#endif
