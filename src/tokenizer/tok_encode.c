/* tok_encode.c - text to ids (tokenizer.md 2): added tokens first, then pieces, then merges. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/utf8.h"

#include <stdlib.h>

/* The pool is the one part of a tokenizer that changes; callers see it as const. */
static di_tokenizer *with_pool(const di_tokenizer *tok)
{
    return (di_tokenizer *)(uintptr_t)tok;
}

tok_scratch *tok_scratch_idle(const di_tokenizer *tok)
{
    di_tokenizer *pool = with_pool(tok);
    (void)pthread_mutex_lock(&pool->lock);
    tok_scratch *scratch = pool->idle;
    if (scratch != NULL) {
        pool->idle = scratch->next;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return scratch;
}

tok_scratch *tok_scratch_take(const di_tokenizer *tok)
{
    tok_scratch *const scratch = tok_scratch_idle(tok);
    return scratch != NULL ? scratch : tok_scratch_new();
}

void tok_scratch_give(const di_tokenizer *tok, tok_scratch *scratch)
{
    di_tokenizer *pool = with_pool(tok);
    (void)pthread_mutex_lock(&pool->lock);
    scratch->next = pool->idle;
    pool->idle = scratch;
    (void)pthread_mutex_unlock(&pool->lock);
}

/* Copies s with U+FFFD for every maximal invalid subpart; out has room for 3n bytes. Returns the length. */
static size_t replace_invalid(const uint8_t *s, size_t n, uint8_t *out)
{
    size_t written = 0;
    for (size_t i = 0; i < n;) {
        const size_t valid = utf8_valid_prefix(s + i, n - i);
        memcpy(out + written, s + i, valid);
        written += valid;
        i += valid;
        if (i == n) {
            break;
        }
        uint32_t cp;
        const int length = utf8_decode(s + i, n - i, &cp);
        memcpy(out + written, "\xEF\xBF\xBD", 3);
        written += 3;
        i += length < 0 ? (size_t)-length : n - i;
    }
    return written;
}

/* A character of three bytes whose first byte allows any continuation: all but U+0800-0FFF and the surrogates' row. */
static inline bool plain_three(const uint8_t *s)
{
    uint32_t four;
    memcpy(&four, s, sizeof four);
    return (four & 0xC0C0F0) == 0x8080E0 && s[0] != 0xE0 && s[0] != 0xED;
}

static inline bool eight_ascii(const uint8_t *s)
{
    uint64_t eight;
    memcpy(&eight, s, sizeof eight);
    return (eight & 0x8080808080808080u) == 0;
}

/* utf8_valid_prefix, quick also in text whose characters have three bytes. */
size_t tok_valid_prefix(const uint8_t *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        while (n - i >= sizeof(uint32_t) && plain_three(s + i)) {
            i += 3;
        }
        while (n - i >= sizeof(uint64_t) && eight_ascii(s + i)) {
            i += sizeof(uint64_t);
        }
        uint32_t cp;
        const int length = i < n ? utf8_decode(s + i, n - i, &cp) : 0;
        if (length <= 0) {
            break;
        }
        i += (size_t)length;
    }
    return i;
}

typedef struct encoding {
    const di_tokenizer *tok;
    tok_scratch *scratch;
    const uint8_t *s;
    size_t n;
    tok_out *out;
} encoding;

/* Encodes s[begin, end), recognising the added tokens of the passes from `pass` on. Depth is at most TOK_PASSES. */
static bool encode_added(encoding *e, int pass, size_t begin, size_t end)
{
    if (pass == TOK_PASSES) {
        return tok_encode_plain(e->tok, e->scratch, e->s, e->n, begin, end, e->out);
    }
    tok_match match;
    while (tok_added_next(&e->tok->added, pass, e->s, begin, end, &match)) {
        if (!encode_added(e, pass + 1, begin, match.begin)) {
            return false;
        }
        tok_emit(e->out, match.id);
        begin = match.end;
    }
    return encode_added(e, pass + 1, begin, end);
}

bool tok_encode_text(const di_tokenizer *tok, tok_scratch *scratch, const uint8_t *s, size_t n, size_t begin, size_t end,
                     unsigned flags, tok_out *out)
{
    encoding e = {.tok = tok, .scratch = scratch, .s = s, .n = n, .out = out};
    return encode_added(&e, (flags & DI_ENCODE_SPECIAL) != 0 ? 0 : TOK_PASSES, begin, end);
}

di_status di_tokenizer_encode(const di_tokenizer *tokenizer, const char *text, size_t n, unsigned flags, int32_t *ids,
                              size_t capacity, size_t *n_ids, di_error *err)
{
    if (n > TOK_MAX_TEXT) {
        return err_set(err, DI_E_LIMIT, "text of %zu bytes is longer than the limit of %zu", n, TOK_MAX_TEXT);
    }
    if ((flags & ~(unsigned)DI_ENCODE_SPECIAL) != 0) {
        return err_set(err, DI_E_ARGUMENT, "unknown encode flags 0x%x", flags);
    }
    const uint8_t *s = (const uint8_t *)text;
    uint8_t *clean = NULL;
    tok_out out = {.ids = ids, .capacity = capacity};
    if (tok_valid_prefix(s, n) != n) {
        clean = ar_calloc(n, 3);
        if (clean == NULL) {
            return err_memory(err, "text", 3 * n);
        }
        n = replace_invalid(s, n, clean);
        s = clean;
    }
    tok_scratch *const scratch = tok_scratch_take(tokenizer);
    const bool done = scratch != NULL && tok_encode_text(tokenizer, scratch, s, n, 0, n, flags, &out);
    if (scratch != NULL) {
        tok_scratch_give(tokenizer, scratch);
    }
    free(clean);
    if (!done) {
        return err_memory(err, "encoding of text", n);
    }
    *n_ids = out.n;
    return DI_OK;
}
