/* tok_bpe.c - ids of pieces (tokenizer.md 5).
 *
 * Three tiers that give the same ids: caches of pieces, the table of whole tokens, and a merge loop. Pieces are taken in
 * batches: first all keys are made and their cache lines requested, then all are answered, so that a large cache costs little
 * more than a small one. An entry of the cache lives in one of four places side by side; a new one takes the first, one that
 * is found moves there, and the last falls out. Pieces that are longer, or give more ids than an entry holds, have a second
 * cache of larger entries, one place each. */
#include "tokenizer/tok_int.h"

#include <stdlib.h>
#include <sys/mman.h>

#define BATCH 128
#define WAYS 4
#define SHORT_SYMBOLS 64u /* up to here searching all symbols for each merge is quicker than keeping lists */
#define CACHE_BYTES (sizeof(tok_entry) << TOK_CACHE_LOG2)
#define KEPT_BYTES (sizeof(tok_kept) << TOK_KEPT_LOG2)
#define HUGE_PAGE ((size_t)2 << 20)

void *tok_alloc_huge(size_t bytes)
{
    const size_t rounded = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    void *memory = aligned_alloc(HUGE_PAGE, rounded);
    if (memory != NULL) {
        (void)madvise(memory, rounded, MADV_HUGEPAGE); /* a wish, before the first touch */
    }
    return memory;
}

tok_scratch *tok_scratch_new(void)
{
    tok_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL) {
        return NULL;
    }
    scratch->cache = tok_alloc_huge(CACHE_BYTES);
    scratch->kept = tok_alloc_huge(KEPT_BYTES);
    if (scratch->cache == NULL || scratch->kept == NULL) {
        tok_scratch_free(scratch);
        return NULL;
    }
    memset(scratch->cache, 0, CACHE_BYTES);
    memset(scratch->kept, 0, KEPT_BYTES);
    return scratch;
}

void tok_scratch_free(tok_scratch *scratch)
{
    if (scratch != NULL) {
        free(scratch->cache);
        free(scratch->kept);
        free(scratch->symbols);
        free(scratch->lists);
        free(scratch->heap);
        free(scratch);
    }
}

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

/* The token that a piece is, if it is one and that is worth a look: a long run of the CJK set hardly ever is one, and merging
 * gives the same id. */
static int32_t whole_token(const di_tokenizer *tok, const uint8_t *s, size_t n)
{
    if (n == 1) {
        return tok->byte_id[s[0]];
    }
    const bool possible = tok->whole_pieces && n <= tok->max_token_bytes && !(n > TOK_CACHED_BYTES && tok_starts_in_cjk(s, n));
    return possible ? tok_pieces_find(tok, s, n) : TOK_NONE;
}

/* Ids of a piece without the cache, into at most TOK_SHORT_BYTES places. */
static size_t short_piece(const di_tokenizer *tok, const uint8_t *s, size_t n, int32_t ids[TOK_SHORT_BYTES])
{
    ids[0] = whole_token(tok, s, n);
    return ids[0] != TOK_NONE ? 1 : tok_short_merge(tok, s, n, ids);
}

static void emit_all(tok_out *out, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tok_emit(out, ids[i]);
    }
}

static bool long_piece(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, tok_out *out)
{
    int32_t ids[TOK_SHORT_BYTES];
    if (n <= (tok_starts_in_cjk(s, n) ? TOK_SHORT_BYTES : SHORT_SYMBOLS)) {
        emit_all(out, ids, short_piece(tok, s, n, ids));
        return true;
    }
    const int32_t id = whole_token(tok, s, n);
    if (id != TOK_NONE) {
        tok_emit(out, id);
        return true;
    }
    return tok_long_merge(tok, scratch, s, n, out);
}

/* Where a piece of at most TOK_KEPT_BYTES is kept. */
static inline tok_kept *kept_place(const tok_scratch *scratch, const uint8_t *s, size_t n)
{
    return &scratch->kept[tok_hash(s, n) >> (64 - TOK_KEPT_LOG2)];
}

static void kept_piece(const di_tokenizer *tok, tok_kept *kept, const uint8_t *s, size_t n, tok_out *out)
{
    if (kept->size == n && memcmp(kept->bytes, s, n) == 0) {
        emit_all(out, kept->ids, kept->n_ids);
        return;
    }
    int32_t ids[TOK_SHORT_BYTES];
    const size_t n_ids = short_piece(tok, s, n, ids);
    emit_all(out, ids, n_ids);
    if (n_ids <= TOK_KEPT_IDS) {
        kept->size = (uint8_t)n;
        kept->n_ids = (uint8_t)n_ids;
        memcpy(kept->bytes, s, n);
        memcpy(kept->ids, ids, n_ids * sizeof *ids);
    }
}

/* A piece of at most TOK_CACHED_BYTES as two words, its length in the top byte. A longer one has only `kept`. */
typedef struct key {
    uint64_t low;
    uint64_t high;
    tok_entry *entry; /* the first of its places */
    tok_kept *kept;   /* NULL: not kept */
} key;

static inline void make_key(tok_scratch *scratch, const uint8_t *s, size_t n, size_t readable, key *out)
{
    uint64_t words[2] = {0, 0};
    if (readable >= sizeof words) {
        memcpy(words, s, sizeof words);
        const unsigned bits = 8 * (unsigned)n;
        const uint64_t low_mask = n < 8 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX;
        const uint64_t high_mask = n > 8 ? ((uint64_t)1 << (bits - 64)) - 1 : 0;
        words[0] &= low_mask;
        words[1] &= high_mask;
    } else {
        memcpy(words, s, n);
    }
    out->low = words[0];
    out->high = words[1] | (uint64_t)n << 56;
    const uint64_t mixed = (out->low ^ out->low >> 32) * 0x9E3779B97F4A7C15u + out->high * 0xD6E8FEB86659FD93u;
    out->entry = &scratch->cache[(mixed ^ mixed >> 29) * 0x9E3779B97F4A7C15u >> (64 - TOK_CACHE_LOG2) & ~(uint64_t)(WAYS - 1)];
    __builtin_prefetch(out->entry);
}

static inline bool holds(const tok_entry *entry, const key *k)
{
    return entry->low == k->low && entry->high == k->high;
}

static inline void emit_entry(const tok_entry *entry, tok_out *out)
{
    if (out->n <= out->capacity && out->capacity - out->n >= TOK_CACHED_IDS) {
        /* All four are written, which is quicker than asking; the next piece overwrites what is too much. */
        memcpy(out->ids + out->n, entry->ids, sizeof entry->ids);
        out->n += 1u + (entry->ids[1] >= 0) + (entry->ids[2] >= 0) + (entry->ids[3] >= 0);
        return;
    }
    for (int i = 0; i < TOK_CACHED_IDS && entry->ids[i] != TOK_NONE; i++) {
        tok_emit(out, entry->ids[i]);
    }
}

/* Looks in the other places; what is found moves to the first, so that common pieces are met there. */
static __attribute__((noinline)) bool fetch_entry(const key *k)
{
    for (int way = 1; way < WAYS; way++) {
        if (holds(k->entry + way, k)) {
            const tok_entry found = k->entry[way];
            k->entry[way] = k->entry[0];
            k->entry[0] = found;
            return true;
        }
    }
    return false;
}

/* Ids of a piece of at most TOK_CACHED_BYTES that is not in the cache. */
static size_t uncached_piece(const di_tokenizer *tok, const uint8_t *s, size_t n, const key *k, int32_t ids[TOK_SHORT_BYTES])
{
    if (n > TOK_WORD_BYTES || !tok->whole_pieces) {
        return short_piece(tok, s, n, ids);
    }
    ids[0] = tok_words_find(&tok->words, k->low, k->high, n);
    return ids[0] != TOK_NONE ? 1 : tok_short_merge(tok, s, n, ids);
}

static void short_miss(const di_tokenizer *tok, const uint8_t *s, size_t n, const key *k, tok_out *out)
{
    int32_t ids[TOK_SHORT_BYTES];
    const size_t n_ids = uncached_piece(tok, s, n, k, ids);
    emit_all(out, ids, n_ids);
    memmove(k->entry + 1, k->entry, (WAYS - 1) * sizeof *k->entry);
    k->entry->low = k->low;
    k->entry->high = k->high;
    for (size_t i = 0; i < TOK_CACHED_IDS; i++) {
        k->entry->ids[i] = i < n_ids ? ids[i] : TOK_NONE;
    }
    if (n_ids > TOK_CACHED_IDS) {
        k->entry->ids[0] = TOK_MANY_IDS;
    }
}

static inline tok_kept *request_kept(const tok_scratch *scratch, const uint8_t *s, size_t n)
{
    if (n > TOK_KEPT_BYTES || tok_starts_in_cjk(s, n)) {
        return NULL;
    }
    tok_kept *const kept = kept_place(scratch, s, n);
    __builtin_prefetch(kept);
    __builtin_prefetch(kept->ids);
    return kept;
}

bool tok_encode_plain(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, size_t begin, size_t end,
                      tok_out *out)
{
    uint32_t ends[BATCH];
    key keys[BATCH];
    while (begin < end) {
        const size_t n_pieces = tok->cut(tok, s, end, begin, ends, BATCH);
        for (size_t i = 0, at = begin; i < n_pieces; at = ends[i++]) {
            if (ends[i] - at <= TOK_CACHED_BYTES) {
                make_key(scratch, s + at, ends[i] - at, n - at, &keys[i]);
            } else {
                keys[i].kept = request_kept(scratch, s + at, ends[i] - at);
            }
        }
        for (size_t i = 0; i < n_pieces; begin = ends[i++]) {
            const size_t size = ends[i] - begin;
            if (size > TOK_CACHED_BYTES) {
                if (keys[i].kept != NULL) {
                    kept_piece(tok, keys[i].kept, s + begin, size, out);
                } else if (!long_piece(tok, scratch, s + begin, size, out)) {
                    return false;
                }
            } else if (holds(keys[i].entry, &keys[i]) || fetch_entry(&keys[i])) {
                if (keys[i].entry->ids[0] >= 0) {
                    emit_entry(keys[i].entry, out);
                } else {
                    kept_piece(tok, kept_place(scratch, s + begin, size), s + begin, size, out);
                }
            } else {
                short_miss(tok, s + begin, size, &keys[i], out);
            }
        }
    }
    return true;
}
