/* kv_record.c - see kv_record.h. Everything read here is hostile: sums are checked first, then every field that a size, a place or an
 * index is made of. A sum is no proof against intent; whoever can write to the directory can put any bytes there under any key. */
#include "kv/kv_record.h"

#include <string.h>

static const uint8_t magic[8] = {'d', 'i', 'k', 'v', 'r', 'e', 'c', '\n'};

kv_head kv_head_at(const kv_where *where, uint32_t kind)
{
    kv_head head = {.version = KV_RECORD_VERSION,
                    .kind = kind,
                    .segment = where->segment,
                    .nonce = where->nonce,
                    .offset = where->offset};
    memcpy(head.magic, magic, sizeof magic);
    return head;
}

void kv_head_seal(kv_head *head, const void *payload)
{
    digest_sum(payload, (size_t)head->bytes, head->payload_sum);
    digest_sum(head, offsetof(kv_head, head_sum), head->head_sum);
}

static bool is_record(uint32_t kind)
{
    return kind < KV_DISK_KINDS;
}

static bool fields_good(const kv_head *head, uint64_t room)
{
    if (head->bytes > UINT32_MAX || kv_record_bytes(head->bytes) > room) {
        return false;
    }
    if (is_record(head->kind)) {
        return head->bytes > 0 && head->class_id < KV_DISK_CLASSES && head->pinned <= 1 && head->expiry_s >= 0;
    }
    return head->kind == KV_REC_CATALOGUE || head->kind == KV_REC_TRAILER;
}

bool kv_head_read(const uint8_t *bytes, const kv_where *where, kv_head *out)
{
    uint8_t sum[DIGEST_SUM_BYTES];
    if (memcmp(bytes, magic, sizeof magic) != 0 || where->offset > where->limit) {
        return false;
    }
    memcpy(out, bytes, sizeof *out);
    digest_sum(out, offsetof(kv_head, head_sum), sum);
    return memcmp(sum, out->head_sum, sizeof sum) == 0 && out->version == KV_RECORD_VERSION && out->segment == where->segment &&
           out->nonce == where->nonce && out->offset == where->offset && fields_good(out, where->limit - where->offset);
}

bool kv_payload_good(const kv_head *head, const void *payload)
{
    uint8_t sum[DIGEST_SUM_BYTES];
    digest_sum(payload, (size_t)head->bytes, sum);
    return memcmp(sum, head->payload_sum, sizeof sum) == 0;
}

kv_listed kv_listed_of(const kv_head *head)
{
    kv_listed listed = {.sequence = head->sequence,
                        .expiry_s = head->expiry_s,
                        .block = (uint32_t)(head->offset / KV_BLOCK),
                        .bytes = (uint32_t)head->bytes,
                        .ttl_s = head->ttl_s,
                        .tag = head->tag,
                        .kind = (uint8_t)head->kind,
                        .class_id = head->class_id,
                        .pinned = head->pinned,
                        .spared = head->spared};
    memcpy(listed.key, head->key, sizeof listed.key);
    memcpy(listed.tenant, head->tenant, sizeof listed.tenant);
    return listed;
}

void kv_head_describe(kv_head *head, const kv_listed *listed)
{
    memcpy(head->key, listed->key, sizeof head->key);
    memcpy(head->tenant, listed->tenant, sizeof head->tenant);
    head->sequence = listed->sequence;
    head->expiry_s = listed->expiry_s;
    head->bytes = listed->bytes;
    head->ttl_s = listed->ttl_s;
    head->tag = listed->tag;
    head->class_id = listed->class_id;
    head->pinned = listed->pinned;
    head->spared = listed->spared;
}

bool kv_listed_good(const kv_listed *listed, uint64_t limit)
{
    const uint64_t offset = (uint64_t)listed->block * KV_BLOCK;
    return is_record(listed->kind) && listed->bytes > 0 && listed->class_id < KV_DISK_CLASSES && listed->pinned <= 1 &&
           listed->expiry_s >= 0 && offset <= limit && kv_record_bytes(listed->bytes) <= limit - offset;
}
