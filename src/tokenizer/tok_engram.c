/* tok_engram.c - the compressed vocabulary of the Engram tables (tokenizer.md 10.1).
 *
 * Ids whose texts agree after normalisation share a compressed id; compressed ids are numbered in order of first appearance.
 * A token whose text is not whole characters, or really holds U+FFFD, is keyed by its spelling in the vocabulary, in the
 * same key space. All marks go, not only Mn; both points change thousands of entries (tokenizer.md 10.1). utf8proc does the
 * normalisation forms, categories and lower-casing. Its lower-casing is the simple mapping, which equals the full one here:
 * they differ only for U+0130, which NFD has taken apart. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

#define LONE_SPACE 0xE000 /* stands for a text that is one space while ends are stripped */

/* Keys seen so far: open addressing over their positions in one growing text. */
typedef struct key_set {
    uint32_t *slots; /* compressed id + 1, 0 = empty */
    size_t mask;
    uint8_t *text;
    size_t text_size;
    size_t text_capacity;
    size_t *offset; /* [n + 1] into text */
    int32_t n;
} key_set;

static bool key_set_init(key_set *set, size_t max_keys)
{
    size_t n_slots = 16;
    while (n_slots < 2 * max_keys) {
        n_slots *= 2;
    }
    memset(set, 0, sizeof *set);
    set->mask = n_slots - 1;
    set->slots = ar_calloc(n_slots, sizeof *set->slots);
    set->offset = ar_calloc(max_keys + 1, sizeof *set->offset);
    return set->slots != NULL && set->offset != NULL;
}

static void key_set_fini(key_set *set)
{
    free(set->slots);
    free(set->text);
    free(set->offset);
}

/* The number of the key, a new one when it was not seen. TOK_NONE: out of memory. */
static int32_t key_set_number(key_set *set, const uint8_t *key, size_t n)
{
    size_t i = (size_t)(tok_hash(key, n) >> 20) & set->mask;
    for (; set->slots[i] != 0; i = (i + 1) & set->mask) {
        const uint32_t k = set->slots[i] - 1;
        if (set->offset[k + 1] - set->offset[k] == n && memcmp(set->text + set->offset[k], key, n) == 0) {
            return (int32_t)k;
        }
    }
    if (set->text_capacity - set->text_size < n) {
        const size_t capacity = 2 * set->text_capacity + n + 4096;
        uint8_t *text = realloc(set->text, capacity);
        if (text == NULL) {
            return TOK_NONE;
        }
        set->text = text;
        set->text_capacity = capacity;
    }
    memcpy(set->text + set->text_size, key, n);
    set->text_size += n;
    set->slots[i] = (uint32_t)set->n + 1;
    set->offset[set->n + 1] = set->text_size;
    return set->n++;
}

/* NFKC, then NFD. malloc'ed. NULL: out of memory (the text is valid and short). */
static uint8_t *decompose(const uint8_t *s, size_t n, size_t *n_out)
{
    uint8_t *composed = NULL;
    uint8_t *decomposed = NULL;
    const utf8proc_option_t nfkc = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    const utf8proc_option_t nfd = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    const utf8proc_ssize_t n_composed = utf8proc_map(s, (utf8proc_ssize_t)n, &composed, nfkc);
    if (n_composed < 0) {
        return NULL;
    }
    const utf8proc_ssize_t n_decomposed = utf8proc_map(composed, n_composed, &decomposed, nfd);
    free(composed);
    if (n_decomposed < 0) {
        return NULL;
    }
    *n_out = (size_t)n_decomposed;
    return decomposed;
}

static bool is_mark(uint32_t cp)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

/* Removes marks, lower-cases, and makes one space of each run of space, TAB, CR and LF. `out` has room for 2n: lower-casing
 * lengthens a character by at most one byte, and only those of two bytes or more. */
static size_t fold(const uint8_t *s, size_t n, uint8_t *out)
{
    size_t written = 0;
    bool in_space = false;
    for (size_t i = 0; i < n;) {
        uint32_t cp = s[i];
        i += cp < 0x80 ? 1 : (size_t)utf8_decode(s + i, n - i, &cp);
        if (cp >= 0x80 && is_mark(cp)) {
            continue;
        }
        const bool space = cp == ' ' || cp == '\t' || cp == '\r' || cp == '\n';
        if (!(space && in_space)) {
            written += (size_t)utf8_encode(space ? ' ' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), out + written);
        }
        in_space = space;
    }
    return written;
}

/* Strips White_Space from both ends. The start may move, so a pointer is returned. */
static uint8_t *strip(uint8_t *s, size_t *n)
{
    size_t begin = 0;
    size_t end = 0;
    size_t length;
    while (begin < *n && tok_kind_at(s, *n, begin, &length) == TOK_W) {
        begin += length;
    }
    for (size_t i = begin; i < *n; i += length) {
        if (tok_kind_at(s, *n, i, &length) != TOK_W) {
            end = i + length;
        }
    }
    *n = end > begin ? end - begin : 0;
    return s + begin;
}

/* U+E000 becomes a space, in place. */
static void restore_space(uint8_t *s, size_t *n)
{
    size_t written = 0;
    for (size_t i = 0; i < *n;) {
        uint32_t cp;
        const size_t length = (size_t)utf8_decode(s + i, *n - i, &cp);
        if (cp == LONE_SPACE) {
            s[written++] = ' ';
        } else {
            memmove(s + written, s + i, length);
            written += length;
        }
        i += length;
    }
    *n = written;
}

/* N(s) of the specification for valid UTF-8. malloc'ed; the key starts at *key. NULL: out of memory. */
static uint8_t *normalise(const uint8_t *s, size_t n, uint8_t **key, size_t *n_key)
{
    uint8_t *decomposed = NULL;
    for (size_t i = 0; i < n; i++) {
        if (s[i] >= 0x80) {
            decomposed = decompose(s, n, &n);
            if (decomposed == NULL) {
                return NULL;
            }
            s = decomposed;
            break;
        }
    }
    uint8_t *folded = ar_calloc(n, 2);
    if (folded != NULL) {
        *n_key = fold(s, n, folded);
        *key = folded;
        if (*n_key != 1 || folded[0] != ' ') {
            *key = strip(folded, n_key);
            restore_space(*key, n_key);
        }
    }
    free(decomposed);
    return folded;
}

static bool holds_replacement(const uint8_t *s, size_t n)
{
    return memmem(s, n, "\xEF\xBF\xBD", 3) != NULL;
}

static int32_t number_of_token(key_set *set, const di_tokenizer *tok, int32_t id)
{
    size_t n;
    const uint8_t *s = tok_token(tok, id, &n);
    const unsigned flags = tok->flags[id];
    const bool by_spelling = (flags & DI_TOKEN_FRAGMENT) != 0 || holds_replacement(s, n);
    if (by_spelling && (flags & TOK_LITERAL) != 0) {
        return key_set_number(set, s, n);
    }
    uint8_t *memory;
    uint8_t *key;
    size_t n_key;
    if (by_spelling) {
        memory = ar_calloc(n, 2);
        key = memory;
        n_key = memory != NULL ? tok_alphabet_encode(s, n, memory) : 0;
    } else {
        memory = normalise(s, n, &key, &n_key);
    }
    if (memory == NULL) {
        return TOK_NONE;
    }
    const int32_t number = n_key != 0 ? key_set_number(set, key, n_key) : key_set_number(set, s, n);
    free(memory);
    return number;
}

di_status tok_engram_map(const di_tokenizer *tokenizer, int32_t *out, int32_t *n_compressed, di_error *err)
{
    key_set set;
    di_status status = DI_OK;
    if (!key_set_init(&set, (size_t)tokenizer->n_ids)) {
        status = err_memory(err, "Engram map", (size_t)tokenizer->n_ids * sizeof *out);
    }
    for (int32_t id = 0; status == DI_OK && id < tokenizer->n_ids; id++) {
        out[id] = number_of_token(&set, tokenizer, id);
        if (out[id] == TOK_NONE) {
            status = err_memory(err, "Engram map", (size_t)tokenizer->n_ids * sizeof *out);
        }
    }
    if (status == DI_OK) {
        *n_compressed = set.n;
    }
    key_set_fini(&set);
    return status;
}
