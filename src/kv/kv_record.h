/* kv_record.h - what stands in a segment, byte for byte.
 *
 * A segment is a file of blocks of KV_BLOCK bytes. A record begins at a block: a head of KV_HEAD_BYTES, its payload, zeros up to the
 * next block. A full segment ends with its catalogue (a record that lists the others) and a trailer, the last block, which says where
 * the catalogue begins; one that was cut short has neither and is read head by head.
 *
 * A head names its segment, the segment's nonce and its own offset, so that a head in a copied, renamed or shifted file, or inside
 * somebody's payload, is none. Numbers are little-endian. Pure functions, any thread. */
#ifndef KV_KV_RECORD_H
#define KV_KV_RECORD_H

#include "kv/kv_disk.h"

#include "core/digest.h"

#define KV_BLOCK 4096
#define KV_HEAD_BYTES 256
#define KV_RECORD_VERSION 1

enum { KV_REC_CATALOGUE = 16, KV_REC_TRAILER = 17 }; /* kinds beside those of kv_disk_kind */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "heads are written as they lie in memory");

typedef struct kv_head {
    uint8_t magic[8];
    uint32_t version;
    uint32_t kind;
    uint8_t key[KV_KEY_BYTES];
    uint8_t tenant[KV_TENANT_BYTES];
    uint64_t segment;
    uint64_t nonce;
    uint64_t offset;
    uint64_t sequence; /* of two records of one name the higher one counts */
    uint64_t bytes;    /* payload */
    uint64_t aux;      /* trailer: where the catalogue begins */
    int64_t expiry_s;  /* of the real-time clock; 0 = never */
    uint32_t ttl_s;
    uint32_t tag;
    uint8_t class_id;
    uint8_t pinned;
    uint8_t spared; /* times that it was written again unused */
    uint8_t zero[93];
    uint8_t payload_sum[DIGEST_SUM_BYTES];
    uint8_t head_sum[DIGEST_SUM_BYTES]; /* of all bytes before it */
} kv_head;

_Static_assert(sizeof(kv_head) == KV_HEAD_BYTES, "a head is 256 bytes");

/* A record as catalogue and index know it. */
typedef struct kv_listed {
    uint8_t key[KV_KEY_BYTES];
    uint8_t tenant[KV_TENANT_BYTES];
    uint64_t sequence;
    int64_t expiry_s;
    uint32_t block; /* offset / KV_BLOCK */
    uint32_t bytes;
    uint32_t ttl_s;
    uint32_t tag;
    uint8_t kind;
    uint8_t class_id;
    uint8_t pinned;
    uint8_t spared;
    uint8_t zero[4];
} kv_listed;

_Static_assert(sizeof(kv_listed) == 88, "no padding that is not named");

/* Where a head must be. */
typedef struct kv_where {
    uint64_t segment;
    uint64_t nonce;
    uint64_t offset;
    uint64_t limit; /* bytes of the file: the record ends at or before them */
} kv_where;

static inline uint64_t kv_padded(uint64_t bytes) { return (bytes + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK; }
static inline uint64_t kv_record_bytes(uint64_t payload) { return kv_padded(KV_HEAD_BYTES + payload); } /* payload < 2^63 */

/* Head of a record with magic, version and place; the rest is zero. */
kv_head kv_head_at(const kv_where *where, uint32_t kind);

/* Sets both sums: of the payload, which the head must count, and of the head. */
void kv_head_seal(kv_head *head, const void *payload);

/* Whether `bytes` (KV_HEAD_BYTES of them) are the head of a record at this place; copied to *out. */
bool kv_head_read(const uint8_t *bytes, const kv_where *where, kv_head *out);
bool kv_payload_good(const kv_head *head, const void *payload);

kv_listed kv_listed_of(const kv_head *head);
void kv_head_describe(kv_head *head, const kv_listed *listed); /* everything but the place and the sums */

/* Whether an entry of a catalogue can be: kinds, sizes, a place inside the segment. */
bool kv_listed_good(const kv_listed *listed, uint64_t limit);

#endif
