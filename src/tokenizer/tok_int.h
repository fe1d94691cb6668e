/* tok_int.h - inside of the tokenizer room.
 *
 * A di_tokenizer is built once (tok_json.c reads, tok_build.c builds) and is then only read, except for its list of idle
 * scratches, which a mutex guards. All tables are flat arrays without pointers.
 *
 * Words: a *piece* is what the pre-tokenizer cuts, a *product* is the id that a merge makes, a *base* token is one of
 * model.vocab, an *added* token one of added_tokens. */
#ifndef TOKENIZER_TOK_INT_H
#define TOKENIZER_TOK_INT_H

#include "core/file.h"
#include "tokenizer/tok_class.h"
#include "tokenizer/tok_simd.h"
#include "tokenizer/tokenizer.h"

#include <pthread.h>
#include <string.h>

#define TOK_MAX_IDS (1 << 20)               /* ids fit 20 bits, which tok_pairs relies on */
#define TOK_MAX_TOKEN_BYTES 65535u          /* spelling of one token */
#define TOK_MAX_TEXT ((size_t)1 << 30)      /* text of one encode call */
#define TOK_MAX_FILE ((size_t)256 << 20)    /* tokenizer.json */
#define TOK_NONE (-1)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "keys are built from little-endian loads");

/* Private flag beside the public DI_TOKEN_*: a base token that is spelled literally, not in the byte alphabet. */
#define TOK_LITERAL 0x80u

/* ---- tables (tok_table.c) ---- */

/* Merges: (left id, right id) -> product. Open addressing; a slot packs left:20 right:20 product:20, 0 is empty (no product
 * has id 0). Most look-ups find nothing, so a bit filter that stays in the nearest caches answers first. */
typedef struct tok_pairs {
    uint64_t *slots;
    uint64_t *filter; /* 4 bits a slot; a pair sets one */
    unsigned shift;   /* 64 - log2(number of slots) */
} tok_pairs;

#define TOK_FILTER_LOG2 2 /* bits a slot */

/* Byte string -> id of a reachable base token. A slot holds 32 bits of hash and id + 1; the bytes lie in the token table. */
typedef struct tok_pieces {
    uint64_t *slots;
    unsigned shift;
} tok_pieces;

di_status tok_pairs_init(tok_pairs *pairs, size_t n, di_error *err);
/* False when the pair is there already. */
bool tok_pairs_add(tok_pairs *pairs, int32_t left, int32_t right, int32_t product);

static inline uint64_t tok_pair_hash(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15u;
    return (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
}

static inline int32_t tok_pairs_find(const tok_pairs *pairs, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 20 | (uint32_t)right;
    const uint64_t hash = tok_pair_hash(key);
    const uint64_t bit = hash >> (pairs->shift - TOK_FILTER_LOG2);
    if ((pairs->filter[bit / 64] >> bit % 64 & 1) == 0) {
        return TOK_NONE;
    }
    const size_t mask = SIZE_MAX >> pairs->shift;
    for (size_t i = (size_t)(hash >> pairs->shift);; i = (i + 1) & mask) {
        const uint64_t slot = pairs->slots[i];
        if (slot >> 20 == key && slot != 0) {
            return (int32_t)(slot & 0xFFFFF);
        }
        if (slot == 0) {
            return TOK_NONE;
        }
    }
}

/* Base tokens of at most TOK_WORD_BYTES again, with their bytes in the slot, so that a look-up touches one cache line. */
#define TOK_WORD_BYTES 12u

typedef struct tok_word {
    uint64_t low;  /* first eight bytes */
    uint64_t rest; /* bytes 8-11: 32 bits, length: 8, id: 24; 0 = empty */
} tok_word;

typedef struct tok_words {
    tok_word *slots;
    unsigned shift;
} tok_words;

/* Bytes of a piece as tok_word keeps them: n <= TOK_WORD_BYTES, `high` the bytes from the ninth on. */
static inline uint64_t tok_word_hash(uint64_t low, uint64_t rest)
{
    const uint64_t mixed = (low ^ low >> 32) * 0x9E3779B97F4A7C15u + rest * 0xD6E8FEB86659FD93u;
    return (mixed ^ mixed >> 29) * 0x9E3779B97F4A7C15u;
}

/* Before tok_words_find, to have the memory near by then. */
static inline void tok_words_request(const tok_words *words, uint64_t low, uint64_t high)
{
    const uint64_t rest = (high & 0xFFFFFFFF) | high >> 56 << 32;
    __builtin_prefetch(&words->slots[tok_word_hash(low, rest) >> words->shift]);
}

static inline int32_t tok_words_find(const tok_words *words, uint64_t low, uint64_t high, size_t n)
{
    const uint64_t rest = (high & 0xFFFFFFFF) | (uint64_t)n << 32;
    const size_t mask = SIZE_MAX >> words->shift;
    for (size_t i = (size_t)(tok_word_hash(low, rest) >> words->shift);; i = (i + 1) & mask) {
        const tok_word *slot = &words->slots[i];
        if (slot->low == low && (slot->rest & 0xFFFFFFFFFF) == rest) {
            return (int32_t)(slot->rest >> 40);
        }
        if (slot->rest == 0) {
            return TOK_NONE;
        }
    }
}

di_status tok_words_init(tok_words *words, size_t n, di_error *err);
void tok_words_add(tok_words *words, const uint8_t *s, size_t n, int32_t id);

di_status tok_pieces_init(tok_pieces *pieces, size_t n, di_error *err);
/* False when a token with these bytes is there already. */
bool tok_pieces_add(di_tokenizer *tok, int32_t id);
int32_t tok_pieces_find(const di_tokenizer *tok, const uint8_t *s, size_t n);

uint64_t tok_hash(const uint8_t *s, size_t n);

/* ---- added tokens (tok_added.c) ---- */

/* A byte trie over all spellings. Children of a node form a list. HF searches the tokens with normalized = false first and the
 * others in what remains, so a node has one id for each pass. */
#define TOK_PASSES 2

typedef struct tok_node {
    uint32_t child;   /* first child, 0 = none (the root is nobody's child) */
    uint32_t sibling; /* next child of the same parent, 0 = none */
    int32_t id[TOK_PASSES];
    uint8_t byte;
} tok_node;

typedef struct tok_added {
    tok_node *nodes; /* nodes[0] is the root */
    uint32_t n_nodes;
    uint32_t capacity;
    uint32_t first[TOK_PASSES][256]; /* child of the root by byte where this pass has a token under it, else 0 */
    uint8_t lead[TOK_PASSES][2];     /* the bytes a spelling can start with, when there are at most two (n_lead) */
    int n_lead[TOK_PASSES];
} tok_added;

typedef struct tok_match {
    size_t begin;
    size_t end;
    int32_t id;
} tok_match;

di_status tok_added_init(tok_added *added, di_error *err);
void tok_added_fini(tok_added *added);
di_status tok_added_add(tok_added *added, const uint8_t *s, size_t n, int32_t id, int pass, di_error *err);
int32_t tok_added_find(const tok_added *added, const uint8_t *s, size_t n);
/* Leftmost-longest match of the pass in s[begin, end). False when there is none. */
bool tok_added_next(const tok_added *added, int pass, const uint8_t *s, size_t begin, size_t end, tok_match *out);

/* ---- pre-tokenizer (tok_pre.c, tok_cut.c) ---- */

/* End of the piece that starts at s[i], i < n. Stateless: i must be a piece boundary. */
size_t tok_piece_end(const uint8_t *s, size_t n, size_t i);

/* Stores the end of the piece at s[begin], after the closed seams inside of it (tok_cjk.c). Returns their number: 1 to `max`, and the
 * last is no end of a piece when there were more. */
size_t tok_cut_one(const di_tokenizer *tok, const uint8_t *s, size_t n, size_t begin, uint32_t *ends, size_t max);

/* True when plain text may be encoded in two parts, s[0, i) and s[i, n), whatever else it holds (tokenizer.md 8). Valid UTF-8
 * and a character boundary at i assumed; true at both ends. */
bool tok_is_cut(const uint8_t *s, size_t n, size_t i);

/* A cut in [from, to), or `to` when there is none: a line start where one is near, else the first of any kind unless `lines_only`. No
 * added token without a line feed lies across a line start. */
size_t tok_cut_after(const uint8_t *s, size_t n, size_t from, size_t to, bool lines_only);

/* ---- merging (tok_bpe.c, tok_kept.c, tok_merge.c, tok_cjk.c, tok_long.c) ---- */

/* Where ids go; n counts on past capacity. */
typedef struct tok_out {
    int32_t *ids;
    size_t capacity;
    size_t n;
} tok_out;

static inline void tok_emit(tok_out *out, int32_t id)
{
    if (out->n < out->capacity) {
        out->ids[out->n] = id;
    }
    out->n++;
}

/* 32 bytes: the bytes of a piece of at most TOK_CACHED_BYTES and its length, and the ids it gives. */
#define TOK_CACHED_BYTES 15u
#define TOK_CACHED_IDS 4

typedef struct tok_entry {
    uint64_t low;
    uint64_t high; /* the length is the top byte; 0 = empty */
    int32_t ids[TOK_CACHED_IDS]; /* TOK_NONE after the last */
} tok_entry;

#define TOK_CACHE_LOG2 19
#define TOK_CACHE_SIZE (sizeof(tok_entry) << TOK_CACHE_LOG2)
#define TOK_MANY_IDS (-2) /* in ids[0]: more than TOK_CACHED_IDS, see tok_kept.c */

/* Longer pieces, and those that give more ids (tok_kept.c). */
#define TOK_KEPT_BYTES 255u
#define TOK_KEPT_LOG2 14 /* sets of eight heads */
#define TOK_KEPT_SIZE ((size_t)64 << TOK_KEPT_LOG2)
#define TOK_KEPT_ROOM ((size_t)8 << 20)

/* What one encode call needs beside the tables. Owner: the call that took it; idle ones wait at the tokenizer. */
typedef struct tok_scratch {
    struct tok_scratch *next;
    tok_entry *cache; /* [1 << TOK_CACHE_LOG2] */
    uint64_t *kept;   /* heads, TOK_KEPT_SIZE bytes */
    uint8_t *records; /* TOK_KEPT_ROOM bytes, the first n_records in use */
    size_t n_records;
    unsigned turn; /* which place of the cache to empty next */
    struct tok_block *blocks;   /* memory for ids, which belongs to tok_parallel.c */
    struct tok_symbol *symbols; /* this and the rest belong to tok_long.c, which makes them when they are needed */
    size_t n_symbols; /* capacity */
    struct tok_places *lists;
    int32_t *heap;
} tok_scratch;

/* Memory in huge pages where the system gives them; free() returns it. NULL: out of memory. */
void *tok_alloc_huge(size_t bytes);

tok_scratch *tok_scratch_new(void); /* NULL: out of memory */
void tok_scratch_free(tok_scratch *scratch);
void tok_blocks_free(struct tok_block *blocks);

/* `hash` is the tok_hash of a piece of at most TOK_KEPT_BYTES. tok_kept_emit gives its ids, false when it isn't kept; tok_kept_add
 * keeps one, which may be there already. */
void tok_kept_request(const tok_scratch *scratch, uint64_t hash);
bool tok_kept_emit(const tok_scratch *scratch, uint64_t hash, const uint8_t *s, size_t n, tok_out *out);
void tok_kept_add(tok_scratch *scratch, uint64_t hash, const uint8_t *s, size_t n, const int32_t *ids, size_t n_ids);

/* Encodes s[begin, end), plain text that is part of a buffer of n bytes. False when memory is short. */
bool tok_encode_plain(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, size_t begin, size_t end,
                      tok_out *out);

/* The merge loop for pieces of any length, without the shortcut through the piece table. */
bool tok_long_merge(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, tok_out *out);

/* The merge loop for pieces up to TOK_SHORT_BYTES, likewise. Returns the number of ids. */
#define TOK_SHORT_BYTES 64u
size_t tok_short_merge(const di_tokenizer *tok, const uint8_t *s, size_t n, int32_t ids[TOK_SHORT_BYTES]);

/* The code points that tok_cjk.c covers: U+3040 to U+9FA5, three bytes each. */
#define TOK_FIRST_CJK 0x3040u
#define TOK_N_CJK (0x9FA5u - TOK_FIRST_CJK + 1)
#define TOK_CJK_BYTES 3u

/* Bits of the filter of seams. */
#define TOK_SEAMS_LOG2 20

di_status tok_cjk_init(di_tokenizer *tok, di_error *err); /* all TOK_NONE, no seam open */
void tok_cjk_fill(di_tokenizer *tok, const uint8_t *reachable);

/* ---- the tokenizer ---- */

struct di_tokenizer {
    int32_t n_ids;
    int32_t n_base; /* entries of model.vocab; base ids need not be contiguous, n_base is for messages and tests */
    bool whole_pieces; /* every product encodes to itself, so that a piece that is a token is that token */
    int32_t byte_id[256];
    uint32_t *offset; /* [n_ids + 1] into bytes */
    uint8_t *bytes;   /* spellings in order of id, then TOK_PAD bytes of padding */
    uint8_t *flags;   /* [n_ids] DI_TOKEN_* and TOK_LITERAL */
    tok_pairs pairs;
    tok_pieces pieces;
    tok_words words;
    tok_added added;
    size_t max_token_bytes;
    int32_t *cjk;          /* [TOK_N_CJK] token that stands for the character from the start, else TOK_NONE */
    uint64_t *seams;       /* 1 << TOK_SEAMS_LOG2 bits by pair of characters: clear where no token holds them side by side */
    int32_t *byte_pair;    /* [256 * 256] product of two single bytes, else TOK_NONE */
    file_map mapped;       /* the cache file that all tables lie in; empty when they were built and are malloc'ed each */
    tok_cut_fn *cut;       /* the best variant */
    pthread_mutex_t lock;  /* guards idle */
    tok_scratch *idle;
};

#define TOK_PAD 64u

static inline const uint8_t *tok_token(const di_tokenizer *tok, int32_t id, size_t *n)
{
    *n = tok->offset[id + 1] - tok->offset[id];
    return tok->bytes + tok->offset[id];
}

/* Bit of the seam between two characters, which are given as indices into `cjk`. */
static inline uint32_t tok_seam(uint32_t left, uint32_t right)
{
    return (left << 15 | right) * 0x9E3779B1u >> (32 - TOK_SEAMS_LOG2);
}

/* True when nothing is merged across the seam. */
static inline bool tok_seam_closed(const di_tokenizer *tok, uint32_t left, uint32_t right)
{
    const uint32_t bit = tok_seam(left, right);
    return ((tok->seams[bit / 64] >> bit % 64 & 1) == 0) & (tok->cjk[left] != TOK_NONE) & (tok->cjk[right] != TOK_NONE);
}

/* True when the character at s is in the CJK set, and so every character of its piece is. */
static inline bool tok_starts_in_cjk(const uint8_t *s, size_t n)
{
    size_t length;
    return s[0] >= 0xE3 && s[0] <= 0xE9 && (tok_kind_at(s, n, 0, &length) & TOK_CJK) != 0;
}

/* Index into `cjk` of the character of three bytes at s; TOK_N_CJK or more when it is none of them. */
static inline uint32_t tok_cjk_index(const uint8_t *s)
{
    const uint32_t i = ((s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u)) - TOK_FIRST_CJK;
    return s[0] >= 0xE3 && s[0] <= 0xE9 ? i : TOK_N_CJK;
}

/* The token that may stand for the character at s, inside a piece of the CJK set, or TOK_NONE; also when s is not the beginning
 * of a character. */
static inline int32_t tok_cjk_token(const di_tokenizer *tok, const uint8_t *s, size_t n)
{
    const uint32_t i = n >= TOK_CJK_BYTES ? tok_cjk_index(s) : TOK_N_CJK;
    return i < TOK_N_CJK ? tok->cjk[i] : TOK_NONE;
}

/* Length of the longest prefix that is valid UTF-8. */
size_t tok_valid_prefix(const uint8_t *s, size_t n);

/* Encodes s[begin, end), which is part of a buffer of n bytes, valid UTF-8, between two cuts; with DI_ENCODE_SPECIAL in `flags`
 * added tokens too (tok_encode.c). False when memory is short. */
bool tok_encode_text(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, size_t begin, size_t end,
                     unsigned flags, tok_out *out);

/* An idle scratch: the one given last; NULL when there is none. */
tok_scratch *tok_scratch_idle(const di_tokenizer *tok);
tok_scratch *tok_scratch_take(const di_tokenizer *tok); /* an idle or a new one; NULL: out of memory */
void tok_scratch_give(const di_tokenizer *tok, tok_scratch *scratch);

/* ---- byte alphabet (tok_alphabet.c): GPT-2's printable stand-ins for the 256 bytes ---- */

/* Decodes a spelling in the alphabet into out (at most n bytes). False when a character is outside it. */
bool tok_alphabet_decode(const uint8_t *s, size_t n, uint8_t *out, size_t *n_out);
/* Spells n bytes in the alphabet; out has room for 2n. Returns the length. */
size_t tok_alphabet_encode(const uint8_t *s, size_t n, uint8_t *out);

/* ---- loading ---- */

typedef struct tok_slice {
    uint32_t offset; /* into tok_source.text */
    uint32_t size;
} tok_slice;

typedef struct tok_source_entry {
    tok_slice spelling;
    int32_t id;
    bool normalized; /* added tokens only, and so is the next */
    bool special;
} tok_source_entry;

typedef struct tok_source_merge {
    tok_slice left;
    tok_slice right;
} tok_source_merge;

/* What tokenizer.json says, unescaped, before it means anything. */
typedef struct tok_source {
    char *text;
    size_t text_size;
    tok_source_entry *vocab;
    size_t n_vocab;
    size_t vocab_capacity;
    tok_source_merge *merges;
    size_t n_merges;
    size_t merges_capacity;
    tok_source_entry *added;
    size_t n_added;
    size_t added_capacity;
} tok_source;

/* Reads the text of a tokenizer.json; `name` is for messages. Refuses every pipeline but the one implemented. */
di_status tok_source_read(const char *json, size_t size, const char *name, tok_source *out, di_error *err);
void tok_source_fini(tok_source *source);

di_status tok_build(const tok_source *source, di_tokenizer **out, di_error *err);

#endif
