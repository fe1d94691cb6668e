/* tok_table.c - the hash tables behind encoding: merges by pair of ids, and base tokens by their bytes (once for all tokens, once
 * more for the short ones, which are most).
 *
 * All use open addressing with linear probing at a load of at most one half and small slots, so that a look-up touches
 * one cache line. They never grow: their size is known when they are made. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"

#define MULTIPLIER 0x9E3779B97F4A7C15u

/* Allocates at least 2n zeroed slots, a power of two. */
static di_status new_slots(size_t n, uint64_t **slots, unsigned *shift, di_error *err)
{
    unsigned bits = 4;
    while (((size_t)1 << bits) < 2 * n) {
        bits++;
    }
    *slots = ar_calloc((size_t)1 << bits, sizeof **slots);
    *shift = 64 - bits;
    return *slots != NULL ? DI_OK : err_memory(err, "tokenizer table", sizeof **slots << bits);
}

di_status tok_pairs_init(tok_pairs *pairs, size_t n, di_error *err)
{
    const di_status status = new_slots(n, &pairs->slots, &pairs->shift, err);
    if (status != DI_OK) {
        return status;
    }
    const size_t n_bits = (size_t)1 << (64 - pairs->shift + TOK_FILTER_LOG2);
    pairs->filter = ar_calloc(n_bits / 64, sizeof *pairs->filter);
    return pairs->filter != NULL ? DI_OK : err_memory(err, "tokenizer table", n_bits / 8);
}

bool tok_pairs_add(tok_pairs *pairs, int32_t left, int32_t right, int32_t product)
{
    if (tok_pairs_find(pairs, left, right) != TOK_NONE) {
        return false;
    }
    const uint64_t key = (uint64_t)(uint32_t)left << 20 | (uint32_t)right;
    const uint64_t hash = tok_pair_hash(key);
    const uint64_t bit = hash >> (pairs->shift - TOK_FILTER_LOG2);
    const size_t mask = SIZE_MAX >> pairs->shift;
    size_t i = (size_t)(hash >> pairs->shift);
    while (pairs->slots[i] != 0) {
        i = (i + 1) & mask;
    }
    pairs->slots[i] = key << 20 | (uint32_t)product;
    pairs->filter[bit / 64] |= (uint64_t)1 << bit % 64;
    return true;
}

di_status tok_words_init(tok_words *words, size_t n, di_error *err)
{
    unsigned bits = 4;
    while (((size_t)1 << bits) < 2 * n) {
        bits++;
    }
    words->slots = ar_calloc((size_t)1 << bits, sizeof *words->slots);
    words->shift = 64 - bits;
    return words->slots != NULL ? DI_OK : err_memory(err, "tokenizer table", sizeof *words->slots << bits);
}

void tok_words_add(tok_words *words, const uint8_t *s, size_t n, int32_t id)
{
    uint64_t bytes[2] = {0, 0};
    memcpy(bytes, s, n);
    const uint64_t rest = bytes[1] | (uint64_t)n << 32;
    const size_t mask = SIZE_MAX >> words->shift;
    size_t i = (size_t)(tok_word_hash(bytes[0], rest) >> words->shift);
    while (words->slots[i].rest != 0) {
        i = (i + 1) & mask;
    }
    words->slots[i] = (tok_word){.low = bytes[0], .rest = rest | (uint64_t)id << 40};
}

uint64_t tok_hash(const uint8_t *s, size_t n)
{
    uint64_t h = n * MULTIPLIER;
    while (n >= 8) {
        uint64_t word;
        memcpy(&word, s, sizeof word);
        h = (h ^ word) * MULTIPLIER;
        h ^= h >> 32;
        s += 8;
        n -= 8;
    }
    if (n != 0) {
        uint64_t word = 0;
        memcpy(&word, s, n);
        h = (h ^ word) * MULTIPLIER;
        h ^= h >> 32;
    }
    return h * MULTIPLIER;
}

di_status tok_pieces_init(tok_pieces *pieces, size_t n, di_error *err)
{
    return new_slots(n, &pieces->slots, &pieces->shift, err);
}

/* The slot that holds these bytes, or the empty one where they belong. The index comes from the top bits of the hash, the
 * stored part is the low half. */
static uint64_t *piece_slot(const di_tokenizer *tok, const uint8_t *s, size_t n, uint64_t hash)
{
    const tok_pieces *pieces = &tok->pieces;
    const size_t mask = SIZE_MAX >> pieces->shift;
    for (size_t i = (size_t)(hash >> pieces->shift);; i = (i + 1) & mask) {
        uint64_t *slot = &pieces->slots[i];
        if (*slot == 0) {
            return slot;
        }
        if (*slot >> 32 == (hash & 0xFFFFFFFF)) {
            size_t size;
            const uint8_t *bytes = tok_token(tok, (int32_t)(*slot & 0xFFFFFFFF) - 1, &size);
            if (size == n && memcmp(bytes, s, n) == 0) {
                return slot;
            }
        }
    }
}

bool tok_pieces_add(di_tokenizer *tok, int32_t id)
{
    size_t n;
    const uint8_t *s = tok_token(tok, id, &n);
    const uint64_t hash = tok_hash(s, n);
    uint64_t *slot = piece_slot(tok, s, n, hash);
    if (*slot != 0) {
        return false;
    }
    *slot = hash << 32 | ((uint64_t)id + 1);
    return true;
}

int32_t tok_pieces_find(const di_tokenizer *tok, const uint8_t *s, size_t n)
{
    const uint64_t slot = *piece_slot(tok, s, n, tok_hash(s, n));
    return slot == 0 ? TOK_NONE : (int32_t)(slot & 0xFFFFFFFF) - 1;
}
