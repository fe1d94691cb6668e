/* chat_legacy_logprobs.c - log-probabilities as POST /v1/completions shows them: four lists of equal length.
 *
 *   {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{token: logprob, ...}, ...], "text_offset": [...]}
 *
 * A token whose bytes are no text of their own is spelled bytes:\xe2\x82. Offsets count characters of the text, where the token begins or,
 * inside a character, where that begins. */
#include "chat/chat_completions.h"

#include "core/utf8.h"

#include <math.h>

enum { TOKENS, LOGPROBS, TOPS, OFFSETS };

#define LOWEST (-9999.0) /* JSON has no infinity */

void chat_logprobs_init(chat_logprobs *l)
{
    memset(l, 0, sizeof *l);
    for (int i = 0; i < 4; i++) {
        buf_init(&l->given[i], SIZE_MAX);
    }
    for (int i = 0; i < 3; i++) {
        buf_init(&l->waiting[i], SIZE_MAX);
    }
}

void chat_logprobs_fini(chat_logprobs *l)
{
    for (int i = 0; i < 4; i++) {
        buf_fini(&l->given[i]);
    }
    for (int i = 0; i < 3; i++) {
        buf_fini(&l->waiting[i]);
    }
    free(l->entries);
}

static void put_token(buf *out, const di_tokenizer *tokenizer, int32_t id)
{
    size_t n;
    const uint8_t *const bytes = di_tokenizer_bytes(tokenizer, id, &n);
    if (bytes == NULL || utf8_valid_prefix(bytes, n) == n) {
        buf_json_string(out, bytes != NULL ? (const char *)bytes : "", n);
        return;
    }
    buf_puts(out, "\"bytes:");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "\\\\x%02x", bytes[i]);
    }
    buf_puts(out, "\"");
}

static void put_logprob(buf *out, float logprob)
{
    buf_printf(out, "%.6g", isfinite(logprob) ? (double)logprob : LOWEST);
}

/* Two tokens with the same text make one key: the likelier one, which comes first, holds it. */
static bool is_spelled_before(const di_tokenizer *tokenizer, const di_token_logprobs *token, int32_t before, int32_t id)
{
    size_t n;
    const uint8_t *const bytes = di_tokenizer_bytes(tokenizer, id, &n);
    for (int32_t i = 0; i < before; i++) {
        size_t m;
        const uint8_t *const other = di_tokenizer_bytes(tokenizer, token->top[i].id, &m);
        if (token->top[i].id == id || (n == m && n > 0 && memcmp(bytes, other, n) == 0)) {
            return true;
        }
    }
    return false;
}

/* The likeliest ones, and the chosen one when it is not among them. */
static void put_tops(buf *out, const di_tokenizer *tokenizer, const di_token_logprobs *token)
{
    bool first = true;
    buf_puts(out, ",{");
    for (int32_t i = 0; i <= token->n_top; i++) {
        const int32_t id = i < token->n_top ? token->top[i].id : token->id;
        if (is_spelled_before(tokenizer, token, i, id)) {
            continue;
        }
        buf_puts(out, first ? "" : ",");
        put_token(out, tokenizer, id);
        buf_puts(out, ":");
        put_logprob(out, i < token->n_top ? token->top[i].logprob : token->logprob);
        first = false;
    }
    buf_puts(out, "}");
}

static bool has_failed(const chat_logprobs *l)
{
    bool failed = false;
    for (int i = 0; i < 4; i++) {
        failed |= l->given[i].failed || (i < 3 && l->waiting[i].failed);
    }
    return failed;
}

bool chat_logprobs_add(chat_logprobs *l, const di_tokenizer *tokenizer, const di_token_logprobs *token, int64_t offset)
{
    if (l->n == l->capacity) {
        const size_t larger = l->capacity != 0 ? 2 * l->capacity : 16;
        chat_entry *const entries = larger <= SIZE_MAX / sizeof *entries ? realloc(l->entries, larger * sizeof *entries) : NULL;
        if (entries == NULL) {
            return false;
        }
        l->entries = entries;
        l->capacity = larger;
    }
    buf_puts(&l->waiting[TOKENS], ",");
    put_token(&l->waiting[TOKENS], tokenizer, token->id);
    buf_puts(&l->waiting[LOGPROBS], ",");
    put_logprob(&l->waiting[LOGPROBS], token->logprob);
    put_tops(&l->waiting[TOPS], tokenizer, token);
    l->entries[l->n++] = (chat_entry){
        .offset = offset,
        .end = {l->waiting[TOKENS].size, l->waiting[LOGPROBS].size, l->waiting[TOPS].size},
    };
    return !has_failed(l);
}

static void drop_front(buf *b, size_t n)
{
    if (n > 0) {
        memmove(b->data, b->data + n, b->size - n);
        b->size -= n;
    }
}

bool chat_logprobs_release(chat_logprobs *l, int64_t n_chars)
{
    size_t k = 0;
    while (k < l->n && l->entries[k].offset < n_chars) {
        buf_printf(&l->given[OFFSETS], ",%lld", (long long)l->entries[k].offset);
        k++;
    }
    if (k == 0) {
        return !has_failed(l);
    }
    const chat_entry last = l->entries[k - 1];
    for (int i = 0; i < 3; i++) {
        buf_append(&l->given[i], l->waiting[i].data, last.end[i]);
        drop_front(&l->waiting[i], last.end[i]);
    }
    l->n -= k;
    for (size_t j = 0; j < l->n; j++) {
        l->entries[j] = l->entries[j + k];
        for (int i = 0; i < 3; i++) {
            l->entries[j].end[i] -= last.end[i];
        }
    }
    return !has_failed(l);
}

void chat_logprobs_write(const chat_logprobs *l, buf *out)
{
    static const char *const names[] = {"{\"tokens\":[", "],\"token_logprobs\":[", "],\"top_logprobs\":[", "],\"text_offset\":["};
    for (int i = 0; i < 4; i++) {
        buf_puts(out, names[i]);
        if (l->given[i].size > 0) {
            buf_append(out, l->given[i].data + 1, l->given[i].size - 1); /* without the first comma */
        }
    }
    buf_puts(out, "]}");
}

void chat_logprobs_clear(chat_logprobs *l)
{
    for (int i = 0; i < 4; i++) {
        buf_clear(&l->given[i]);
    }
}
