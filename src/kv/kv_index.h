/* kv_index.h - which records can be found, and where: names -> entries, and the records of each tenant by age (LMDB).
 *
 * The index is only a fast way to what the segments say. It is believed after a clean close alone: then a checksum of the whole file was
 * written beside it, which goes when the index is opened. Whatever else is found there is thrown away and made anew from the segments.
 * So a flipped bit in it can't be followed anywhere, and it need not be synced while it is in use.
 *
 * One thread changes the index, inside a batch; another one looks up at the same time. */
#ifndef KV_KV_INDEX_H
#define KV_KV_INDEX_H

#include "kv/kv_record.h"

#define KV_NAME_BYTES (KV_KEY_BYTES + 1)

typedef struct kv_name { /* key, then kind */
    uint8_t bytes[KV_NAME_BYTES];
} kv_name;

typedef struct kv_entry { /* as it lies in the index */
    uint64_t segment;
    uint64_t sequence;
    int64_t expiry_s; /* 0 = never */
    uint32_t block;
    uint32_t bytes;
    uint32_t ttl_s;
    uint32_t used_s;  /* real-time clock, of the last use that was noted; 0 = none */
    uint32_t tag;
    uint8_t tenant[KV_TENANT_BYTES];
    uint8_t class_id;
    uint8_t pinned;
    uint8_t spared;
    uint8_t uses; /* since it was written or spared, at most 255 */
} kv_entry;

/* What is known of a segment when the index is closed. */
typedef struct kv_scanned {
    uint64_t bytes;      /* of the file, all of it listed */
    uint64_t data_bytes; /* of its records, padded */
} kv_scanned;

typedef struct kv_indexed { /* a record as it comes from a segment */
    kv_name name;
    kv_entry entry;
} kv_indexed;

typedef struct kv_index kv_index;
struct kv_ranked; /* kv_rank.h */

static inline kv_name kv_name_of(const uint8_t *key, kv_disk_kind kind)
{
    kv_name name;
    for (int i = 0; i < KV_KEY_BYTES; i++) {
        name.bytes[i] = key[i];
    }
    name.bytes[KV_KEY_BYTES] = (uint8_t)kind;
    return name;
}

kv_entry kv_entry_of(const kv_listed *listed, uint64_t segment);
static inline int64_t kv_entry_space(const kv_entry *entry) { return (int64_t)kv_record_bytes(entry->bytes); }

/* The index in folder `path`, made when it is not there; max_bytes is the most that it may take. *fresh: it is empty, because there was
 * none to be believed. Errors: DI_E_IO, DI_E_MEMORY, DI_E_UNSUPPORTED (built without LMDB). */
di_status kv_index_open(const char *path, uint64_t max_bytes, kv_index **out, bool *fresh, di_error *err);
void kv_index_close(kv_index *index, bool keep); /* keep: to be believed next time */
uint64_t kv_index_bytes(const kv_index *index);

/* ---- looking up; one thread beside the one that changes ---- */

bool kv_index_look(kv_index *index); /* begins a look at one moment of the index; false: not possible */
void kv_index_look_end(kv_index *index);
bool kv_index_find(kv_index *index, const kv_name *name, kv_entry *out); /* during a look */

/* ---- changing; one thread. Errors inside a batch stay with it: kv_index_commit then returns false and nothing has changed ---- */

bool kv_index_begin(kv_index *index);
bool kv_index_commit(kv_index *index);
void kv_index_abort(kv_index *index);

bool kv_index_get(kv_index *index, const kv_name *name, kv_entry *out);
void kv_index_put(kv_index *index, const kv_name *name, const kv_entry *entry, const kv_entry *before); /* before: what was there, NULL */
void kv_index_remove(kv_index *index, const kv_name *name, const kv_entry *entry);

/* Fills an index that has no record yet. Items are in the order of their names, each name once (kv_rank.h); they are put into another
 * order. */
void kv_index_fill(kv_index *index, struct kv_ranked *items, size_t n);

/* The first record whose name is > *name (with start: >= ); false at the end. */
bool kv_index_next(kv_index *index, bool start, kv_name *name, kv_entry *entry);
/* The tenant's record with the least sequence >= *sequence, which becomes its sequence; false: none. */
bool kv_index_oldest(kv_index *index, const uint8_t *tenant, uint64_t *sequence, kv_name *name, kv_entry *entry);

bool kv_index_get_scanned(kv_index *index, uint64_t segment, kv_scanned *out);
void kv_index_put_scanned(kv_index *index, uint64_t segment, const kv_scanned *scanned);
void kv_index_clear_scanned(kv_index *index);

#endif
