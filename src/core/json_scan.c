/* json_scan.c - see json_scan.h. A state machine over RFC 8259: `state` says what may come next, one bit a level says whether
 * the surrounding container is an object. Strings are the bulk of large files, so their plain bytes are skipped eight at a
 * time; everything else is looked at byte by byte. Line and column are counted only when an error is reported. */
#include "core/json_scan.h"

#include "core/err.h"
#include "core/utf8.h"

#include <string.h>

enum state {
    WANT_VALUE,        /* a value must follow */
    WANT_VALUE_OR_END, /* just after '[' */
    WANT_KEY,          /* after ',' in an object */
    WANT_KEY_OR_END,   /* just after '{' */
    AFTER_VALUE,       /* ',' or the container's end; at depth 0 the end of the text */
    FAILED
};

void jsc_init(jsc *s, const char *text, size_t size, const char *name, int max_depth)
{
    memset(s, 0, sizeof *s);
    s->text = text;
    s->size = size;
    s->name = name;
    s->max_depth = max_depth >= 1 && max_depth <= JSC_MAX_DEPTH ? max_depth : JSC_MAX_DEPTH;
    s->state = WANT_VALUE;
}

static jsc_event report(const jsc *s, di_error *err)
{
    size_t line = 1;
    size_t line_start = 0;
    for (size_t i = 0; i < s->pos; i++) {
        if (s->text[i] == '\n') {
            line++;
            line_start = i + 1;
        }
    }
    err_set(err, s->fault_limit ? DI_E_LIMIT : DI_E_FORMAT, "%s: line %zu, column %zu: %s", s->name, line,
            s->pos - line_start + 1, s->fault);
    return JSC_ERROR;
}

static jsc_event fail(jsc *s, const char *fault, di_error *err)
{
    s->fault = fault;
    s->state = FAILED;
    return report(s, err);
}

static void skip_space(jsc *s)
{
    while (s->pos < s->size) {
        const char c = s->text[s->pos];
        if (c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t')) {
            return;
        }
        s->pos++;
    }
}

/* How many of the eight bytes at p are plain: not below 0x20, not '"' or '\\', not above 0x7F. The classic SWAR tests: a
 * subtraction borrows only upwards, so the lowest byte that is flagged is flagged rightly. */
static size_t plain_of_eight(const char *p)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    const uint64_t quote = v ^ ones * '"';
    const uint64_t slash = v ^ ones * '\\';
    const uint64_t stop = ((v - ones * 0x20) | (quote - ones) | (slash - ones) | v) & ones * 0x80;
    return stop == 0 ? 8 : (size_t)__builtin_ctzll(stop) / 8;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

/* Value of the four hexadecimal digits at p, or -1. */
static int32_t hex4(const char *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(p[i]);
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

/* Steps over the escape at s->pos (a backslash). Returns what is wrong with it, or NULL. */
static const char *scan_escape(jsc *s)
{
    const char *p = s->text + s->pos;
    const size_t left = s->size - s->pos;
    if (left < 2) {
        return "unterminated string";
    }
    if (p[1] != 'u') {
        if (memchr("\"\\/bfnrt", p[1], 8) == NULL) {
            return "unknown escape in a string";
        }
        s->pos += 2;
        return NULL;
    }
    const int32_t unit = left < 6 ? -1 : hex4(p + 2);
    if (unit < 0) {
        return "\\u needs four hexadecimal digits";
    }
    if (unit < 0xD800 || unit > 0xDFFF) {
        s->pos += 6;
        return NULL;
    }
    const int32_t second = unit > 0xDBFF || left < 12 || p[6] != '\\' || p[7] != 'u' ? -1 : hex4(p + 8);
    if (second < 0xDC00 || second > 0xDFFF) {
        return "lone surrogate in a string";
    }
    s->pos += 12;
    return NULL;
}

/* Steps over a run of characters above 0x7F; false at invalid UTF-8. Two-byte characters are taken here, because the vocabularies of
 * byte-level tokenizers are full of them. */
static bool skip_non_ascii(jsc *s)
{
    const uint8_t *const text = (const uint8_t *)s->text;
    do {
        const uint8_t c = text[s->pos];
        if (c >= 0xC2 && c <= 0xDF && s->size - s->pos >= 2 && text[s->pos + 1] >> 6 == 2) {
            s->pos += 2;
            continue;
        }
        uint32_t cp;
        const int length = utf8_decode(text + s->pos, s->size - s->pos, &cp);
        if (length <= 0) {
            return false;
        }
        s->pos += (size_t)length;
    } while (s->pos < s->size && text[s->pos] >= 0x80);
    return true;
}

/* Scans a string whose opening quote is at s->pos into token; s->pos ends behind the closing quote. */
static jsc_event scan_string(jsc *s, jsc_event event, di_error *err)
{
    const size_t start = ++s->pos;
    s->token_escaped = false;
    for (;;) {
        while (s->size - s->pos >= 8) {
            const size_t plain = plain_of_eight(s->text + s->pos);
            s->pos += plain;
            if (plain < 8) {
                break;
            }
        }
        if (s->pos >= s->size) {
            return fail(s, "unterminated string", err);
        }
        const unsigned char c = (unsigned char)s->text[s->pos];
        if (c == '"') {
            s->token = s->text + start;
            s->token_size = s->pos - start;
            s->pos++;
            return event;
        }
        if (c == '\\') {
            s->token_escaped = true;
            const char *fault = scan_escape(s);
            if (fault != NULL) {
                return fail(s, fault, err);
            }
        } else if (c < 0x20) {
            return fail(s, "control character in a string", err);
        } else if (c < 0x80) {
            s->pos++;
        } else if (!skip_non_ascii(s)) {
            return fail(s, "invalid UTF-8 in a string", err);
        }
    }
}

static size_t digits_from(const jsc *s, size_t pos)
{
    size_t end = pos;
    while (end < s->size && s->text[end] >= '0' && s->text[end] <= '9') {
        end++;
    }
    return end - pos;
}

static jsc_event scan_number(jsc *s, di_error *err)
{
    const size_t start = s->pos;
    size_t pos = start + (s->text[start] == '-' ? 1 : 0);
    size_t n = digits_from(s, pos);
    if (n == 0) {
        return fail(s, "malformed number", err);
    }
    if (n > 1 && s->text[pos] == '0') {
        return fail(s, "number with a leading zero", err);
    }
    pos += n;
    if (pos < s->size && s->text[pos] == '.') {
        n = digits_from(s, pos + 1);
        if (n == 0) {
            return fail(s, "number without digits after the point", err);
        }
        pos += 1 + n;
    }
    if (pos < s->size && (s->text[pos] == 'e' || s->text[pos] == 'E')) {
        pos++;
        if (pos < s->size && (s->text[pos] == '+' || s->text[pos] == '-')) {
            pos++;
        }
        n = digits_from(s, pos);
        if (n == 0) {
            return fail(s, "number without digits in the exponent", err);
        }
        pos += n;
    }
    s->token = s->text + start;
    s->token_size = pos - start;
    s->token_escaped = false;
    s->pos = pos;
    s->state = AFTER_VALUE;
    return JSC_NUMBER;
}

static jsc_event scan_word(jsc *s, const char *word, jsc_event event, di_error *err)
{
    const size_t length = strlen(word);
    if (s->size - s->pos < length || memcmp(s->text + s->pos, word, length) != 0) {
        return fail(s, "unexpected character", err);
    }
    s->token = s->text + s->pos;
    s->token_size = length;
    s->token_escaped = false;
    s->pos += length;
    s->state = AFTER_VALUE;
    return event;
}

static bool in_object(const jsc *s)
{
    const unsigned level = (unsigned)s->depth - 1;
    return (s->stack[level / 8] >> level % 8 & 1) != 0;
}

static jsc_event open_container(jsc *s, bool object, di_error *err)
{
    if (s->depth == s->max_depth) {
        s->fault_limit = true;
        return fail(s, "containers are nested too deeply", err);
    }
    const unsigned level = (unsigned)s->depth++;
    const uint8_t bit = (uint8_t)(1u << level % 8);
    s->stack[level / 8] = (uint8_t)(object ? s->stack[level / 8] | bit : s->stack[level / 8] & ~bit);
    s->pos++;
    s->state = object ? WANT_KEY_OR_END : WANT_VALUE_OR_END;
    return object ? JSC_OBJECT_BEGIN : JSC_ARRAY_BEGIN;
}

static jsc_event close_container(jsc *s)
{
    const bool object = in_object(s);
    s->depth--;
    s->pos++;
    s->state = AFTER_VALUE;
    return object ? JSC_OBJECT_END : JSC_ARRAY_END;
}

static jsc_event scan_value(jsc *s, di_error *err)
{
    const char c = s->text[s->pos];
    switch (c) {
    case '"':
        s->state = AFTER_VALUE;
        return scan_string(s, JSC_STRING, err);
    case '{':
        return open_container(s, true, err);
    case '[':
        return open_container(s, false, err);
    case 't':
        return scan_word(s, "true", JSC_TRUE, err);
    case 'f':
        return scan_word(s, "false", JSC_FALSE, err);
    case 'n':
        return scan_word(s, "null", JSC_NULL, err);
    default:
        if (c == '-' || (c >= '0' && c <= '9')) {
            return scan_number(s, err);
        }
        return fail(s, "unexpected character where a value should be", err);
    }
}

static jsc_event scan_key(jsc *s, di_error *err)
{
    if (s->text[s->pos] != '"') {
        return fail(s, "unexpected character where a key should be", err);
    }
    if (scan_string(s, JSC_KEY, err) == JSC_ERROR) {
        return JSC_ERROR;
    }
    skip_space(s);
    if (s->pos == s->size || s->text[s->pos] != ':') {
        return fail(s, "a colon must follow a key", err);
    }
    s->pos++;
    s->state = WANT_VALUE;
    return JSC_KEY;
}

jsc_event jsc_next(jsc *s, di_error *err)
{
    if (s->state == FAILED) {
        return report(s, err);
    }
    skip_space(s);
    if (s->state == AFTER_VALUE) {
        if (s->depth == 0) {
            return s->pos == s->size ? JSC_END : fail(s, "text after the document", err);
        }
        if (s->pos == s->size) {
            return fail(s, "unexpected end of the text", err);
        }
        const char c = s->text[s->pos];
        if (c == (in_object(s) ? '}' : ']')) {
            return close_container(s);
        }
        if (c != ',') {
            return fail(s, in_object(s) ? "expected ',' or '}'" : "expected ',' or ']'", err);
        }
        s->pos++;
        s->state = in_object(s) ? WANT_KEY : WANT_VALUE;
        skip_space(s);
    }
    if (s->pos == s->size) {
        return fail(s, "unexpected end of the text", err);
    }
    const char c = s->text[s->pos];
    if ((s->state == WANT_VALUE_OR_END && c == ']') || (s->state == WANT_KEY_OR_END && c == '}')) {
        return close_container(s);
    }
    return s->state == WANT_KEY || s->state == WANT_KEY_OR_END ? scan_key(s, err) : scan_value(s, err);
}

bool jsc_skip(jsc *s, jsc_event begin, di_error *err)
{
    if (begin == JSC_ERROR) {
        return false;
    }
    if (begin != JSC_OBJECT_BEGIN && begin != JSC_ARRAY_BEGIN) {
        return true;
    }
    const int outside = s->depth - 1;
    while (s->depth > outside) {
        if (jsc_next(s, err) == JSC_ERROR) {
            return false;
        }
    }
    return true;
}

static char simple_escape(char c)
{
    switch (c) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return c; /* quote, backslash, solidus */
    }
}

size_t jsc_unescape(const jsc *s, char *out)
{
    if (!s->token_escaped) {
        memcpy(out, s->token, s->token_size);
        return s->token_size;
    }
    const char *p = s->token;
    const char *const end = p + s->token_size;
    char *o = out;
    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        const size_t plain = (size_t)((slash != NULL ? slash : end) - p);
        memcpy(o, p, plain);
        o += plain;
        p += plain;
        if (p == end) {
            break;
        }
        if (p[1] != 'u') {
            *o++ = simple_escape(p[1]);
            p += 2;
            continue;
        }
        uint32_t cp = (uint32_t)hex4(p + 2);
        p += 6;
        if (cp >= 0xD800 && cp <= 0xDBFF) {
            cp = 0x10000 + ((cp - 0xD800) << 10) + ((uint32_t)hex4(p + 2) - 0xDC00);
            p += 6;
        }
        o += utf8_encode(cp, (uint8_t *)o);
    }
    return (size_t)(o - out);
}
