/* tok_bpe.c - ids of one piece (tokenizer.md 5).
 *
 * Three tiers that give the same ids: a cache of short pieces, the table of whole tokens, and the merge loop. The cache is
 * two-way: an entry lives in a slot or in its neighbour, which share a cache line. */
#include "tokenizer/tok_int.h"

#include <stdlib.h>

tok_scratch *tok_scratch_new(void)
{
    tok_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL) {
        return NULL;
    }
    scratch->cache = aligned_alloc(64, sizeof *scratch->cache << TOK_CACHE_LOG2);
    if (scratch->cache == NULL) {
        free(scratch);
        return NULL;
    }
    memset(scratch->cache, 0, sizeof *scratch->cache << TOK_CACHE_LOG2);
    return scratch;
}

void tok_scratch_free(tok_scratch *scratch)
{
    if (scratch != NULL) {
        free(scratch->cache);
        free(scratch->symbols);
        free(scratch->heap);
        free(scratch);
    }
}

size_t tok_short_merge(const di_tokenizer *tok, const uint8_t *s, size_t n, int32_t ids[TOK_SHORT_BYTES])
{
    /* merged[i]: product of ids[i] and ids[i + 1]; as unsigned, so that TOK_NONE is larger than every product. */
    uint32_t merged[TOK_SHORT_BYTES];
    for (size_t i = 0; i < n; i++) {
        ids[i] = tok->byte_id[s[i]];
    }
    for (size_t i = 0; i + 1 < n; i++) {
        merged[i] = (uint32_t)tok_pairs_find(&tok->pairs, ids[i], ids[i + 1]);
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            best = merged[i] < merged[best] ? i : best;
        }
        if (merged[best] == (uint32_t)TOK_NONE) {
            break;
        }
        ids[best] = (int32_t)merged[best];
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        memmove(merged + best, merged + best + 1, (n - best - 1) * sizeof *merged);
        if (best + 1 < n) {
            merged[best] = (uint32_t)tok_pairs_find(&tok->pairs, ids[best], ids[best + 1]);
        }
        if (best != 0) {
            merged[best - 1] = (uint32_t)tok_pairs_find(&tok->pairs, ids[best - 1], ids[best]);
        }
    }
    return n;
}

static int32_t whole_token(const di_tokenizer *tok, const uint8_t *s, size_t n)
{
    if (n == 1) {
        return tok->byte_id[s[0]];
    }
    return tok->whole_pieces && n <= tok->max_token_bytes ? tok_pieces_find(tok, s, n) : TOK_NONE;
}

/* Ids of a piece without the cache, into at most TOK_SHORT_BYTES places. */
static size_t short_piece(const di_tokenizer *tok, const uint8_t *s, size_t n, int32_t ids[TOK_SHORT_BYTES])
{
    ids[0] = whole_token(tok, s, n);
    return ids[0] != TOK_NONE ? 1 : tok_short_merge(tok, s, n, ids);
}

/* The piece as two words with its length in the top byte. n <= TOK_CACHED_BYTES. */
static void load_key(const uint8_t *s, size_t n, size_t readable, uint64_t *low, uint64_t *high)
{
    uint64_t words[2] = {0, 0};
    if (readable >= sizeof words) {
        memcpy(words, s, sizeof words);
        if (n < 8) {
            words[0] &= ((uint64_t)1 << 8 * n) - 1;
            words[1] = 0;
        } else {
            words[1] &= ((uint64_t)1 << 8 * (n - 8)) - 1;
        }
    } else {
        memcpy(words, s, n);
    }
    *low = words[0];
    *high = words[1] | (uint64_t)n << 56;
}

static inline bool emit_entry(const tok_entry *entry, uint64_t low, uint64_t high, tok_out *out)
{
    if (entry->low != low || entry->high != high) {
        return false;
    }
    for (int i = 0; i < TOK_CACHED_IDS && entry->ids[i] != TOK_NONE; i++) {
        tok_emit(out, entry->ids[i]);
    }
    return true;
}

static void cached_piece(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, size_t readable,
                         tok_out *out)
{
    uint64_t low;
    uint64_t high;
    load_key(s, n, readable, &low, &high);
    const uint64_t mixed = (low ^ low >> 32) * 0x9E3779B97F4A7C15u + high * 0xD6E8FEB86659FD93u;
    const size_t at = (size_t)((mixed ^ mixed >> 29) * 0x9E3779B97F4A7C15u >> (64 - TOK_CACHE_LOG2));
    tok_entry *first = &scratch->cache[at];
    tok_entry *second = &scratch->cache[at ^ 1];
    if (emit_entry(first, low, high, out) || emit_entry(second, low, high, out)) {
        return;
    }
    int32_t ids[TOK_SHORT_BYTES];
    const size_t n_ids = short_piece(tok, s, n, ids);
    for (size_t i = 0; i < n_ids; i++) {
        tok_emit(out, ids[i]);
    }
    if (n_ids <= TOK_CACHED_IDS) {
        *second = *first;
        first->low = low;
        first->high = high;
        for (size_t i = 0; i < TOK_CACHED_IDS; i++) {
            first->ids[i] = i < n_ids ? ids[i] : TOK_NONE;
        }
    }
}

bool tok_bpe(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, size_t readable, tok_out *out)
{
    if (n <= TOK_CACHED_BYTES) {
        cached_piece(tok, scratch, s, n, readable, out);
        return true;
    }
    if (n <= TOK_SHORT_BYTES) {
        int32_t ids[TOK_SHORT_BYTES];
        const size_t n_ids = short_piece(tok, s, n, ids);
        for (size_t i = 0; i < n_ids; i++) {
            tok_emit(out, ids[i]);
        }
        return true;
    }
    const int32_t id = whole_token(tok, s, n);
    if (id != TOK_NONE) {
        tok_emit(out, id);
        return true;
    }
    return tok_heap_merge(tok, scratch, s, n, out);
}
