/* tier_fake.h - a lower tier in memory, for tests of what is above: it outlives engines as a disk does, and can be told to forget, to
 * fail, to refuse and to dawdle. One thread. */
#ifndef ENGINE_TIER_FAKE_H
#define ENGINE_TIER_FAKE_H

#include "engine/engine_int.h"

typedef struct tier_record {
    uint8_t key[KV_KEY_BYTES];
    kv_disk_kind kind;
    uint32_t tag;
    kv_tenant tenant;
    int32_t class_id;
    int64_t ttl_s;
    bool pinned;
    int64_t bytes;
    uint8_t *payload;
} tier_record;

typedef struct tier_fake {
    tier_record *records; /* [n] */
    size_t n;
    size_t capacity;
    kv_disk_op *queue; /* oldest first */
    int64_t n_leases;
    /* Faults, each with a chance in 100. */
    uint64_t seed;
    uint32_t forgets; /* a record is not found */
    uint32_t fails;   /* a read is corrupt, or an I/O error */
    uint32_t late;    /* a read ends as one whose deadline passed */
    uint32_t refuses; /* a put is not taken, or not written */
    uint32_t lies_about_size; /* a place has another size than the record */
    uint32_t dawdles; /* an operation stays in the queue for another poll */
    uint32_t stalls;  /* likewise, and nobody is told that there is something to poll */
    bool hangs;       /* nothing is ever done before the close */
    bool care_waits;  /* care stays in the queue, all else passes it */
    void (*wake)(void *user);
    void *wake_user;
    kv_disk_counters counters;
} tier_fake;

void tier_fake_init(tier_fake *f, uint64_t seed);
void tier_fake_fini(tier_fake *f);
/* As a lower tier of one engine at a time; closing it keeps the records. */
kv_lower tier_fake_lower(tier_fake *f);
/* Gives an engine a memory tier that always loads, above up to two of these (NULL = none). */
void tier_fake_attach(di_engine *e, int64_t ram_bytes, tier_fake *disk, tier_fake *shared);
/* Some faults or none, by round. */
void tier_fake_set_faults(tier_fake *f, uint64_t round);
int64_t tier_fake_bytes(const tier_fake *f, kv_disk_kind kind);

#endif
