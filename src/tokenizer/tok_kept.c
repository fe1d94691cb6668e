/* tok_kept.c - the cache of longer pieces, and of short ones that give more ids than a tok_entry holds.
 *
 * Records of any size lie one behind the other; sets of eight heads, a cache line each, name them by half of a hash. What is found
 * is compared in full. When the room for records is used up all are forgotten, which costs little beside merging as many. */
#include "tokenizer/tok_int.h"

#define SET 8u
#define ALIGN 8u /* a head counts records' offsets in these */

/* What lies at a head's offset: this, the ids, the bytes. */
typedef struct record {
    uint16_t n_bytes;
    uint16_t n_ids;
} record;

_Static_assert(TOK_KEPT_BYTES <= UINT16_MAX, "sizes of a record fit");
_Static_assert((TOK_KEPT_ROOM / ALIGN) < UINT32_MAX, "offsets fit a head");

static uint64_t *set_of(const tok_scratch *scratch, uint64_t hash)
{
    return scratch->kept + (hash >> (64 - TOK_KEPT_LOG2)) * SET;
}

void tok_kept_request(const tok_scratch *scratch, uint64_t hash)
{
    __builtin_prefetch(set_of(scratch, hash));
}

/* A head: the lower half of the hash above, offset + 1 below; 0 = empty. */
static uint64_t head_of(uint64_t hash, size_t offset)
{
    return hash << 32 | (offset / ALIGN + 1);
}

bool tok_kept_emit(const tok_scratch *scratch, uint64_t hash, const uint8_t *s, size_t n, tok_out *out)
{
    const uint64_t *const set = set_of(scratch, hash);
    for (size_t i = 0; i < SET && set[i] != 0; i++) {
        if (set[i] >> 32 != (hash & UINT32_MAX)) {
            continue;
        }
        const uint8_t *const place = scratch->records + ((set[i] & UINT32_MAX) - 1) * ALIGN;
        record head;
        memcpy(&head, place, sizeof head);
        const uint8_t *const ids = place + sizeof head;
        if (head.n_bytes == n && memcmp(ids + head.n_ids * sizeof *out->ids, s, n) == 0) {
            if (out->n < out->capacity) { /* else there may be no memory at all */
                const size_t room = out->capacity - out->n;
                memcpy(out->ids + out->n, ids, (head.n_ids < room ? head.n_ids : room) * sizeof *out->ids);
            }
            out->n += head.n_ids;
            return true;
        }
    }
    return false;
}

void tok_kept_add(tok_scratch *scratch, uint64_t hash, const uint8_t *s, size_t n, const int32_t *ids, size_t n_ids)
{
    const record head = {.n_bytes = (uint16_t)n, .n_ids = (uint16_t)n_ids};
    const size_t size = sizeof head + n_ids * sizeof *ids + n;
    if (TOK_KEPT_ROOM - scratch->n_records < size + ALIGN) {
        memset(scratch->kept, 0, (SET * sizeof *scratch->kept) << TOK_KEPT_LOG2);
        scratch->n_records = 0;
    }
    uint8_t *const place = scratch->records + scratch->n_records;
    memcpy(place, &head, sizeof head);
    memcpy(place + sizeof head, ids, n_ids * sizeof *ids);
    memcpy(place + sizeof head + n_ids * sizeof *ids, s, n);
    uint64_t *const set = set_of(scratch, hash);
    memmove(set + 1, set, (SET - 1) * sizeof *set);
    set[0] = head_of(hash, scratch->n_records);
    scratch->n_records += (size + ALIGN - 1) / ALIGN * ALIGN;
}
