/* tok_merge.c - the merge loop for short pieces (tokenizer.md 5, tier 3): each round makes the lowest product, found by looking at all
 * places. Up to some dozens of symbols that is quicker than keeping them in order, as tok_long.c does. */
#include "tokenizer/tok_int.h"

#define STEP 4u /* keys looked at between two steps of a loop */

/* The symbols that merging starts from: characters in the CJK set, bytes elsewhere. */
static size_t first_symbols(const di_tokenizer *tok, const uint8_t *s, size_t n, int32_t ids[TOK_SHORT_BYTES])
{
    if (!tok_starts_in_cjk(s, n)) {
        for (size_t i = 0; i < n; i++) {
            ids[i] = tok->byte_id[s[i]];
        }
        return n;
    }
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        const int32_t id = tok_cjk_token(tok, s + i, n - i);
        ids[count++] = id != TOK_NONE ? id : tok->byte_id[s[i]];
        i += id != TOK_NONE ? TOK_CJK_BYTES : 1;
    }
    return count;
}

/* A possible merge as one number that orders by product, then by place. */
#define PLACE_BITS 6
#define NO_MERGE UINT32_MAX

_Static_assert(TOK_SHORT_BYTES <= 1 << PLACE_BITS, "places fit their bits");
_Static_assert(TOK_MAX_IDS <= 1 << (31 - PLACE_BITS), "products fit theirs");

static inline uint32_t merge_key(int32_t product, size_t at)
{
    return product == TOK_NONE ? NO_MERGE : (uint32_t)product << PLACE_BITS | (uint32_t)at;
}

static inline uint32_t key_of(const di_tokenizer *tok, int32_t left, int32_t right, size_t at)
{
    return merge_key(tok_pairs_find(&tok->pairs, left, right), at);
}

/* The lowest key. One by one on purpose: a vector load of keys that were just stored one by one has to wait for them. The empty
 * statement keeps compilers from making one. */
static inline uint32_t lowest(const uint32_t *keys, size_t n)
{
    uint32_t even = NO_MERGE;
    uint32_t odd = NO_MERGE;
    for (size_t i = 0; i < n; i += STEP) {
        even = keys[i] < even ? keys[i] : even;
        odd = keys[i + 1] < odd ? keys[i + 1] : odd;
        even = keys[i + 2] < even ? keys[i + 2] : even;
        odd = keys[i + 3] < odd ? keys[i + 3] : odd;
        __asm__("" : "+r"(even), "+r"(odd));
    }
    return even < odd ? even : odd;
}

/* keys[i]: the merge of the symbol at i with the next one. Symbols keep their place; `alive` has a bit for each that is left. */
size_t tok_short_merge(const di_tokenizer *tok, const uint8_t *s, size_t n_bytes, int32_t ids[TOK_SHORT_BYTES])
{
    uint32_t keys[TOK_SHORT_BYTES + STEP];
    const size_t n = first_symbols(tok, s, n_bytes, ids);
    size_t n_keys = 0;
    for (; n_keys + 1 < n; n_keys++) {
        const size_t i = n_keys;
        keys[i] = n == n_bytes ? merge_key(tok->byte_pair[(size_t)s[i] << 8 | s[i + 1]], i) : key_of(tok, ids[i], ids[i + 1], i);
    }
    for (size_t i = 0; i < STEP; i++) {
        keys[n_keys + i] = NO_MERGE;
    }
    uint64_t alive = UINT64_MAX >> (TOK_SHORT_BYTES - n);
    for (uint32_t best = lowest(keys, n_keys); best != NO_MERGE; best = lowest(keys, n_keys)) {
        const size_t at = best & (TOK_SHORT_BYTES - 1);
        const int32_t id = (int32_t)(best >> PLACE_BITS);
        const uint64_t before = alive & (((uint64_t)1 << at) - 1);
        const uint64_t behind = alive & ~(uint64_t)1 << at;
        const uint64_t after = behind & (behind - 1);
        keys[__builtin_ctzll(behind)] = NO_MERGE;
        alive ^= behind ^ after;
        ids[at] = id;
        keys[at] = after == 0 ? NO_MERGE : key_of(tok, id, ids[__builtin_ctzll(after)], at);
        if (before != 0) {
            const size_t left = 63 - (size_t)__builtin_clzll(before);
            keys[left] = key_of(tok, ids[left], id, left);
        }
    }
    size_t count = 0;
    for (; alive != 0; alive &= alive - 1) {
        ids[count++] = ids[__builtin_ctzll(alive)];
    }
    return count;
}
