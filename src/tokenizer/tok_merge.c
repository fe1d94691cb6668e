/* tok_merge.c - the merge loop for short pieces (tokenizer.md 5, tier 3): each round makes the lowest product, found by looking at all
 * places. Up to some dozens of symbols that is quicker than keeping them in order, as tok_long.c does. */
#include "tokenizer/tok_int.h"

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
#define PLACE_BITS 7
#define NO_MERGE UINT32_MAX

_Static_assert(TOK_SHORT_BYTES <= 1 << PLACE_BITS, "places fit their bits");
_Static_assert(TOK_MAX_IDS <= 1 << (31 - PLACE_BITS), "products fit theirs");

static inline uint32_t merge_key(int32_t product, size_t at)
{
    return product == TOK_NONE ? NO_MERGE : (uint32_t)product << PLACE_BITS | (uint32_t)at;
}

/* keys[i]: the merge of the symbol at i with the next one. Symbols keep their place; `next` and `previous` skip the merged ones. */
size_t tok_short_merge(const di_tokenizer *tok, const uint8_t *s, size_t n_bytes, int32_t ids[TOK_SHORT_BYTES])
{
    uint32_t keys[TOK_SHORT_BYTES];
    uint8_t next[TOK_SHORT_BYTES];
    uint8_t previous[TOK_SHORT_BYTES + 1];
    const size_t n = first_symbols(tok, s, n_bytes, ids);
    for (size_t i = 0; i + 1 < n; i++) {
        const int32_t product = n == n_bytes ? tok->byte_pair[(size_t)s[i] << 8 | s[i + 1]]
                                             : tok_pairs_find(&tok->pairs, ids[i], ids[i + 1]);
        keys[i] = merge_key(product, i);
    }
    for (size_t i = 0; i < n; i++) {
        next[i] = (uint8_t)(i + 1);
        previous[i + 1] = (uint8_t)i;
    }
    keys[n - 1] = NO_MERGE;
    for (;;) {
        uint32_t best = keys[0];
        for (size_t i = 1; i < n; i++) {
            best = keys[i] < best ? keys[i] : best;
        }
        if (best == NO_MERGE) {
            break;
        }
        const size_t at = best & ((1u << PLACE_BITS) - 1);
        const size_t right = next[at];
        const size_t after = next[right];
        ids[at] = (int32_t)(best >> PLACE_BITS);
        keys[right] = NO_MERGE;
        next[at] = (uint8_t)after;
        previous[after] = (uint8_t)at;
        keys[at] = after == n ? NO_MERGE : merge_key(tok_pairs_find(&tok->pairs, ids[at], ids[after]), at);
        if (at != 0) {
            const size_t before = previous[at];
            keys[before] = merge_key(tok_pairs_find(&tok->pairs, ids[before], ids[at]), before);
        }
    }
    size_t count = 0;
    for (size_t i = 0; i < n; i = next[i]) {
        ids[count++] = ids[i];
    }
    return count;
}
