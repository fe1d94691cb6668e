/* buf.h - a growable byte buffer with a maximum given at the start (curl's dynbuf). Always NUL-terminated after a write.
 * After a failed append the buffer keeps what it had and `failed` stays set, so that callers may check once at the end. */
#ifndef CORE_BUF_H
#define CORE_BUF_H

#include <deepinfer/base.h>

typedef struct buf {
    char *data; /* NULL while empty and never written */
    size_t size;
    size_t capacity;
    size_t max; /* bytes, NUL not counted */
    bool failed;
    bool full; /* it failed because of max, not for the system's memory */
} buf;

void buf_init(buf *b, size_t max_bytes);
void buf_fini(buf *b);
void buf_clear(buf *b); /* keeps the memory, clears `failed` and `full` */
bool buf_append(buf *b, const void *data, size_t size);
bool buf_puts(buf *b, const char *text);
bool buf_printf(buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends a finite number in the shortest spelling that reads back as the same double, with a point whatever the locale is. */
bool buf_real(buf *b, double value);

/* Appends text as a JSON string with quotes; escapes controls, quote and backslash; invalid UTF-8 becomes U+FFFD. */
bool buf_json_string(buf *b, const char *text, size_t size);

#endif
