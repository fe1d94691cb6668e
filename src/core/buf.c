/* buf.c - see buf.h. */
#include "core/buf.h"

#include "core/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 256

void buf_init(buf *b, size_t max_bytes)
{
    memset(b, 0, sizeof *b);
    b->max = max_bytes < SIZE_MAX ? max_bytes : SIZE_MAX - 1;
}

void buf_fini(buf *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

void buf_clear(buf *b)
{
    b->size = 0;
    b->failed = b->full = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

/* Room for `size` more bytes and a NUL; doubles, so that appends cost amortised constant time. */
static bool reserve(buf *b, size_t size)
{
    if (!b->failed && size > b->max - b->size) {
        b->failed = b->full = true;
    }
    if (b->failed) {
        return false;
    }
    const size_t needed = b->size + size + 1;
    if (needed <= b->capacity) {
        return true;
    }
    size_t capacity = b->capacity != 0 ? b->capacity : FIRST_CAPACITY;
    while (capacity < needed) {
        capacity = capacity > SIZE_MAX / 2 ? needed : 2 * capacity;
    }
    if (capacity > b->max + 1) {
        capacity = b->max + 1;
    }
    char *data = realloc(b->data, capacity);
    if (data == NULL) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

bool buf_append(buf *b, const void *data, size_t size)
{
    if (!reserve(b, size)) {
        return false;
    }
    if (size != 0) {
        memcpy(b->data + b->size, data, size);
    }
    b->size += size;
    b->data[b->size] = '\0';
    return true;
}

bool buf_puts(buf *b, const char *text)
{
    return buf_append(b, text, strlen(text));
}

bool buf_printf(buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        b->failed = true;
        return false;
    }
    if (!reserve(b, (size_t)length)) {
        return false;
    }
    va_start(args, format);
    vsnprintf(b->data + b->size, (size_t)length + 1, format, args);
    va_end(args);
    b->size += (size_t)length;
    return true;
}

bool buf_real(buf *b, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    for (char *p = text; *p != '\0'; p++) {
        *p = strchr("0123456789+-e", *p) != NULL ? *p : '.';
    }
    return buf_puts(b, text);
}

static bool append_escape(buf *b, unsigned char c)
{
    switch (c) {
    case '"':
        return buf_puts(b, "\\\"");
    case '\\':
        return buf_puts(b, "\\\\");
    case '\b':
        return buf_puts(b, "\\b");
    case '\f':
        return buf_puts(b, "\\f");
    case '\n':
        return buf_puts(b, "\\n");
    case '\r':
        return buf_puts(b, "\\r");
    case '\t':
        return buf_puts(b, "\\t");
    default:
        return buf_printf(b, "\\u%04x", c);
    }
}

bool buf_json_string(buf *b, const char *text, size_t size)
{
    const uint8_t *s = (const uint8_t *)text;
    buf_append(b, "\"", 1);
    size_t done = 0; /* everything before it has been written */
    size_t i = 0;
    while (i < size) {
        uint32_t cp;
        const int length = s[i] < 0x80 ? 1 : utf8_decode(s + i, size - i, &cp);
        if (length > 0 && s[i] >= 0x20 && s[i] != '"' && s[i] != '\\') {
            i += (size_t)length;
            continue;
        }
        buf_append(b, text + done, i - done);
        if (length > 0) {
            append_escape(b, s[i]);
            i++;
        } else {
            buf_puts(b, "\xEF\xBF\xBD");
            i += length < 0 ? (size_t)-length : size - i;
        }
        done = i;
    }
    buf_append(b, text + done, size - done);
    return buf_append(b, "\"", 1);
}
