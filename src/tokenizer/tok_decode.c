/* tok_decode.c - ids to text, at once and as a stream (tokenizer.md 6).
 *
 * Token bytes are joined and read as UTF-8 with one U+FFFD for each maximal invalid subpart. The state between two tokens is
 * the beginning of one character, at most three bytes; decoding at once is the same machine with a larger sink, so that both
 * give the same text by construction. */
#include "tokenizer/tok_int.h"

#include "core/arith.h"
#include "core/err.h"
#include "core/utf8.h"

#include <stdlib.h>

/* Text goes here; size counts on past capacity. */
typedef struct sink {
    char *text;
    size_t capacity;
    size_t size;
} sink;

typedef struct pending {
    uint8_t bytes[4];
    size_t n;
} pending;

static inline void put(sink *out, const void *text, size_t n)
{
    if (out->size < out->capacity) {
        const size_t room = out->capacity - out->size;
        memcpy(out->text + out->size, text, n < room ? n : room);
    }
    out->size += n;
}

/* A whole token: its bytes have TOK_PAD bytes behind them, so that a short one is one copy of a fixed size. What is copied too
 * much lies before the end of the sink and is overwritten by the next token. */
static inline void put_token(sink *out, const uint8_t *s, size_t n)
{
    if (n <= TOK_PAD / 4 && out->size <= out->capacity && out->capacity - out->size >= TOK_PAD / 4) {
        memcpy(out->text + out->size, s, TOK_PAD / 4);
        out->size += n;
    } else {
        put(out, s, n);
    }
}

static void put_replacement(sink *out)
{
    put(out, "\xEF\xBF\xBD", 3);
}

/* Adds the byte to the incomplete character. Returns false when the byte does not continue it and must be read again. */
static bool complete(pending *p, uint8_t byte, sink *out)
{
    uint32_t cp;
    p->bytes[p->n] = byte;
    const int length = utf8_decode(p->bytes, p->n + 1, &cp);
    if (length == 0) {
        p->n++;
        return true;
    }
    if (length > 0) {
        put(out, p->bytes, (size_t)length);
    } else {
        put_replacement(out);
    }
    p->n = 0;
    return length > 0;
}

static void feed(pending *p, const uint8_t *s, size_t n, sink *out)
{
    size_t i = 0;
    while (i < n) {
        if (p->n != 0) {
            i += complete(p, s[i], out) ? 1 : 0;
            continue;
        }
        const size_t valid = utf8_valid_prefix(s + i, n - i);
        put(out, s + i, valid);
        i += valid;
        if (i == n) {
            break;
        }
        uint32_t cp;
        const int length = utf8_decode(s + i, n - i, &cp);
        if (length < 0) {
            put_replacement(out);
            i += (size_t)-length;
        } else {
            p->n = n - i;
            memcpy(p->bytes, s + i, p->n);
            i = n;
        }
    }
}

static inline void feed_token(const di_tokenizer *tok, unsigned flags, int32_t id, pending *p, sink *out)
{
    if (id < 0 || id >= tok->n_ids) {
        return;
    }
    const unsigned token_flags = tok->flags[id];
    if ((flags & DI_DECODE_SKIP_SPECIAL) != 0 && (token_flags & DI_TOKEN_SPECIAL) != 0) {
        return;
    }
    size_t n;
    const uint8_t *s = tok_token(tok, id, &n);
    if (p->n == 0 && (token_flags & DI_TOKEN_FRAGMENT) == 0) {
        put_token(out, s, n);
    } else {
        feed(p, s, n, out);
    }
}

static void flush(pending *p, sink *out)
{
    if (p->n != 0) {
        put_replacement(out);
        p->n = 0;
    }
}

di_status di_tokenizer_decode(const di_tokenizer *tokenizer, const int32_t *ids, size_t n, unsigned flags, char *text,
                              size_t capacity, size_t *n_text, di_error *err)
{
    if ((flags & ~(unsigned)DI_DECODE_SKIP_SPECIAL) != 0) {
        return err_set(err, DI_E_ARGUMENT, "unknown decode flags 0x%x", flags);
    }
    pending p = {.n = 0};
    sink out = {.text = text, .capacity = capacity};
    for (size_t i = 0; i < n; i++) {
        feed_token(tokenizer, flags, ids[i], &p, &out);
    }
    flush(&p, &out);
    *n_text = out.size;
    return DI_OK;
}

struct di_detokenizer {
    const di_tokenizer *tok;
    unsigned flags;
    pending pending;
    size_t capacity;
    char text[];
};

di_status di_detokenizer_new(const di_tokenizer *tokenizer, unsigned flags, di_detokenizer **out, di_error *err)
{
    if ((flags & ~(unsigned)DI_DECODE_SKIP_SPECIAL) != 0) {
        return err_set(err, DI_E_ARGUMENT, "unknown decode flags 0x%x", flags);
    }
    /* At most every byte of a token becomes U+FFFD, and so may the pending ones. */
    const size_t capacity = 3 * tokenizer->max_token_bytes + 3;
    di_detokenizer *stream = ar_calloc(1, sizeof *stream + capacity);
    if (stream == NULL) {
        return err_memory(err, "detokenizer", sizeof *stream + capacity);
    }
    stream->tok = tokenizer;
    stream->flags = flags;
    stream->capacity = capacity;
    *out = stream;
    return DI_OK;
}

void di_detokenizer_free(di_detokenizer *stream)
{
    free(stream);
}

di_status di_detokenizer_push(di_detokenizer *stream, int32_t id, const char **text, size_t *n, di_error *err)
{
    (void)err;
    sink out = {.text = stream->text, .capacity = stream->capacity};
    feed_token(stream->tok, stream->flags, id, &stream->pending, &out);
    *text = stream->text;
    *n = out.size;
    return DI_OK;
}

di_status di_detokenizer_finish(di_detokenizer *stream, const char **text, size_t *n, di_error *err)
{
    (void)err;
    sink out = {.text = stream->text, .capacity = stream->capacity};
    flush(&stream->pending, &out);
    *text = stream->text;
    *n = out.size;
    return DI_OK;
}
