/* tok_bpe.c - ids of pieces (tokenizer.md 5).
 *
 * Three tiers that give the same ids: caches of pieces, the table of whole tokens, and a merge loop. Short pieces, which nearly all are,
 * are taken in batches, step by step: all are cut, all keys made and their cache lines requested, all looked up and
 * the lines of the next tier requested for those not found, those merged, and all ids written. So memory is waited for by many
 * pieces at once, and the step that all go through has hardly a branch that could be mispredicted.
 *
 * An entry of the cache lives in one of four places side by side: at home, or in the first place behind its home (round the set) that
 * was empty; when none is, one at random goes. What is found elsewhere changes places with what is at its home, so that frequent
 * pieces come to be where the first look finds them. Pieces that are longer, or give more ids than an entry holds, have a cache
 * of their own (tok_kept.c). */
#include "tokenizer/tok_int.h"

#include <stdlib.h>
#include <sys/mman.h>

#define BATCH 192
#define WAYS 4u
#define HUGE_PAGE ((size_t)2 << 20)
#define LONG_PIECE 0 /* as length in a key */

/* What is known of the pieces of a batch. */
typedef struct batch {
    const uint8_t *s;
    size_t begin; /* of the first piece */
    size_t n;
    size_t n_behind;
    size_t n_missed;
    uint32_t ends[BATCH];
    uint32_t homes[BATCH];         /* places of short pieces */
    const tok_entry *found[BATCH]; /* in the cache, or own */
    tok_entry own[BATCH];          /* the key, and the ids where they were not found; of a long piece its hash and TOK_MANY_IDS */
    uint8_t behind[BATCH];         /* indices of the short pieces that were found, but not at home */
    uint8_t missed[BATCH];         /* of those that were not found */
} batch;

_Static_assert(BATCH <= UINT8_MAX + 1, "indices fit batch.behind and batch.missed");

/* The token that a piece is, or TOK_NONE. */
static int32_t whole_token(const di_tokenizer *tok, const uint8_t *s, size_t n)
{
    if (n == 1) {
        return tok->byte_id[s[0]];
    }
    return tok->whole_pieces && n <= tok->max_token_bytes ? tok_pieces_find(tok, s, n) : TOK_NONE;
}

static void emit_all(tok_out *out, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tok_emit(out, ids[i]);
    }
}

/* Ids of a piece that is in no cache. */
static bool uncached_piece(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, tok_out *out)
{
    const int32_t id = whole_token(tok, s, n);
    if (id != TOK_NONE) {
        tok_emit(out, id);
        return true;
    }
    if (n <= TOK_SHORT_BYTES) {
        int32_t ids[TOK_SHORT_BYTES];
        emit_all(out, ids, tok_short_merge(tok, s, n, ids));
        return true;
    }
    return tok_long_merge(tok, scratch, s, n, out);
}

/* Ids of a piece that has no entry, out of the cache of longer pieces or into it. */
static bool other_piece(const di_tokenizer *tok, tok_scratch *scratch, uint64_t hash, const uint8_t *s, size_t n, tok_out *out)
{
    if (n > TOK_KEPT_BYTES) {
        return uncached_piece(tok, scratch, s, n, out);
    }
    if (tok_kept_emit(scratch, hash, s, n, out)) {
        return true;
    }
    const size_t first = out->n;
    if (!uncached_piece(tok, scratch, s, n, out)) {
        return false;
    }
    if (out->n <= out->capacity) {
        tok_kept_add(scratch, hash, s, n, out->ids + first, out->n - first);
    }
    return true;
}

/* ---- the steps of a batch ---- */

/* The bytes of a key that belong to a piece, by its length. Tables, because a branch for each piece would often be mispredicted. */
static const uint64_t low_mask[TOK_CACHED_BYTES + 1] = {
    0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF,
    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
};
static const uint64_t high_mask[TOK_CACHED_BYTES + 1] = {
    0, 0, 0, 0, 0, 0, 0, 0,
    0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF,
};

static inline void make_key(const uint8_t *s, size_t n, size_t readable, tok_entry *key)
{
    uint64_t words[2] = {0, 0};
    if (readable >= sizeof words) {
        memcpy(words, s, sizeof words);
        words[0] &= low_mask[n];
        words[1] &= high_mask[n];
    } else {
        memcpy(words, s, n);
    }
    key->low = words[0];
    key->high = words[1] | (uint64_t)n << 56;
}

static inline uint32_t home_of(const tok_entry *key)
{
    const uint64_t mixed = (key->low ^ key->low >> 32) * 0x9E3779B97F4A7C15u + key->high * 0xD6E8FEB86659FD93u;
    return (uint32_t)((mixed ^ mixed >> 29) * 0x9E3779B97F4A7C15u >> (64 - TOK_CACHE_LOG2));
}

/* `readable`: where the buffer ends. */
static void request(batch *b, const tok_scratch *scratch, size_t readable)
{
    for (size_t i = 0, at = b->begin; i < b->n; at = b->ends[i++]) {
        const size_t size = b->ends[i] - at;
        tok_entry *const own = &b->own[i];
        if (size > TOK_CACHED_BYTES) {
            own->high = LONG_PIECE;
            own->low = size <= TOK_KEPT_BYTES ? tok_hash(b->s + at, size) : 0;
            tok_kept_request(scratch, own->low);
            continue;
        }
        make_key(b->s + at, size, readable - at, own);
        b->homes[i] = home_of(own);
        __builtin_prefetch(&scratch->cache[b->homes[i]]);
    }
}

static inline bool same(const tok_entry *a, const tok_entry *b)
{
    return ((a->low ^ b->low) | (a->high ^ b->high)) == 0;
}

/* The places of a piece: its home and those behind it, round the set. No place behind an empty one is in use. */
static inline tok_entry *place_of(const tok_scratch *scratch, uint32_t home, uint32_t way)
{
    return &scratch->cache[(home & ~(WAYS - 1)) | ((home + way) & (WAYS - 1))];
}

/* A piece that is not at home. Not inlined, because it would only be in the way of those that are. */
static __attribute__((noinline)) void find_behind(batch *b, size_t i, const di_tokenizer *tok, const tok_scratch *scratch)
{
    const tok_entry *const own = &b->own[i];
    const tok_entry *entry = place_of(scratch, b->homes[i], 0);
    for (uint32_t way = 1; way < WAYS && entry->high != 0; way++) {
        entry = place_of(scratch, b->homes[i], way);
        if (same(entry, own)) {
            b->found[i] = entry;
            b->behind[b->n_behind++] = (uint8_t)i;
            return;
        }
    }
    b->found[i] = own;
    b->missed[b->n_missed++] = (uint8_t)i;
    tok_words_request(&tok->words, own->low, own->high);
}

static void find(batch *b, const di_tokenizer *tok, const tok_scratch *scratch)
{
    b->n_behind = 0;
    b->n_missed = 0;
    for (size_t i = 0; i < b->n; i++) {
        tok_entry *const own = &b->own[i];
        b->found[i] = &scratch->cache[b->homes[i]];
        if (own->high == LONG_PIECE) {
            own->ids[0] = TOK_MANY_IDS;
            b->found[i] = own;
        } else if (!same(b->found[i], own)) {
            find_behind(b, i, tok, scratch);
        }
    }
}

/* Ids of the short pieces that were not found. */
static void merge_missed(batch *b, const di_tokenizer *tok, tok_scratch *scratch)
{
    for (size_t k = 0; k < b->n_missed; k++) {
        const size_t i = b->missed[k];
        const uint8_t *const s = b->s + (i == 0 ? b->begin : b->ends[i - 1]);
        tok_entry *const own = &b->own[i];
        const size_t n = own->high >> 56;
        int32_t ids[TOK_SHORT_BYTES];
        ids[0] = n <= TOK_WORD_BYTES && tok->whole_pieces ? tok_words_find(&tok->words, own->low, own->high, n) : whole_token(tok, s, n);
        const size_t n_ids = ids[0] != TOK_NONE ? 1 : tok_short_merge(tok, s, n, ids);
        for (size_t j = 0; j < TOK_CACHED_IDS; j++) {
            own->ids[j] = j < n_ids ? ids[j] : TOK_NONE;
        }
        if (n_ids > TOK_CACHED_IDS) {
            own->ids[0] = TOK_MANY_IDS;
            tok_kept_add(scratch, tok_hash(s, n), s, n, ids, n_ids);
        }
    }
}

static bool write_ids(const batch *b, const di_tokenizer *tok, tok_scratch *scratch, tok_out *out)
{
    for (size_t i = 0; i < b->n; i++) {
        const int32_t *const ids = b->found[i]->ids;
        const size_t n = out->n;
        if (ids[0] >= 0 && n <= out->capacity && out->capacity - n >= TOK_CACHED_IDS) {
            /* All four are written, which is quicker than asking; the next piece overwrites what is too much. */
            memcpy(out->ids + n, ids, TOK_CACHED_IDS * sizeof *ids);
            out->n = n + 1u + (ids[1] >= 0) + (ids[2] >= 0) + (ids[3] >= 0);
        } else if (ids[0] >= 0) {
            for (int k = 0; k < TOK_CACHED_IDS && ids[k] != TOK_NONE; k++) {
                tok_emit(out, ids[k]);
            }
        } else {
            const size_t at = i == 0 ? b->begin : b->ends[i - 1];
            const size_t size = b->ends[i] - at;
            const uint64_t hash = b->own[i].high == LONG_PIECE ? b->own[i].low : tok_hash(b->s + at, size);
            if (!other_piece(tok, scratch, hash, b->s + at, size, out)) {
                return false;
            }
        }
    }
    return true;
}

/* Entries that were found behind their home change places with what is there; one that has moved since, stays. Like what follows this is
 * done last, because other pieces of the batch may have found the same entries. */
static void move_home(const batch *b, tok_scratch *scratch)
{
    for (size_t k = 0; k < b->n_behind; k++) {
        const size_t i = b->behind[k];
        tok_entry *const home = &scratch->cache[b->homes[i]];
        tok_entry *const place = &scratch->cache[b->found[i] - scratch->cache];
        if (same(place, &b->own[i])) {
            const tok_entry other = *home;
            *home = *place;
            *place = other;
        }
    }
}

static void add_missed(const batch *b, tok_scratch *scratch)
{
    for (size_t k = 0; k < b->n_missed; k++) {
        const tok_entry *const own = &b->own[b->missed[k]];
        const uint32_t home = b->homes[b->missed[k]];
        uint32_t way = 0;
        while (way < WAYS && place_of(scratch, home, way)->high != 0 && !same(place_of(scratch, home, way), own)) {
            way++;
        }
        *place_of(scratch, home, way < WAYS ? way : scratch->turn++) = *own;
    }
}

bool tok_encode_plain(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, size_t begin, size_t end,
                      tok_out *out)
{
    batch b = {.s = s, .begin = begin};
    while (b.begin < end) {
        b.n = tok->cut(tok, s, end, b.begin, b.ends, BATCH);
        request(&b, scratch, n);
        find(&b, tok, scratch);
        merge_missed(&b, tok, scratch);
        if (!write_ids(&b, tok, scratch, out)) {
            return false;
        }
        move_home(&b, scratch);
        add_missed(&b, scratch);
        b.begin = b.ends[b.n - 1];
    }
    return true;
}

/* ---- scratches ---- */

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
    scratch->cache = tok_alloc_huge(TOK_CACHE_SIZE);
    scratch->kept = tok_alloc_huge(TOK_KEPT_SIZE);
    scratch->records = malloc(TOK_KEPT_ROOM);
    if (scratch->cache == NULL || scratch->kept == NULL || scratch->records == NULL) {
        tok_scratch_free(scratch);
        return NULL;
    }
    memset(scratch->cache, 0, TOK_CACHE_SIZE);
    memset(scratch->kept, 0, TOK_KEPT_SIZE);
    return scratch;
}

void tok_scratch_free(tok_scratch *scratch)
{
    if (scratch != NULL) {
        free(scratch->cache);
        free(scratch->kept);
        free(scratch->records);
        tok_blocks_free(scratch->blocks);
        free(scratch->symbols);
        free(scratch->lists);
        free(scratch->heap);
        free(scratch);
    }
}
