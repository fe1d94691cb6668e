/* terminal.c - see terminal.h. */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool term_has_colour(FILE *stream)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *kind = getenv("TERM");
    return isatty(fileno(stream)) && (no_colour == NULL || no_colour[0] == '\0') && kind != NULL && strcmp(kind, "dumb") != 0;
}

/* Bytes of a control character at `text`, 0 when there is none: U+0000-U+001F, U+007F, and U+0080-U+009F, which are C2 80-9F. */
static size_t control_size(const unsigned char *text, size_t size)
{
    if (text[0] == '\n' || text[0] == '\t') {
        return 0;
    }
    if (text[0] < 0x20 || text[0] == 0x7F) {
        return 1;
    }
    return text[0] == 0xC2 && size > 1 && text[1] >= 0x80 && text[1] <= 0x9F ? 2 : 0;
}

bool term_put(buf *out, const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t from = 0;
    for (size_t i = 0; i < size;) {
        const size_t n = control_size(bytes + i, size - i);
        if (n > 0) {
            buf_append(out, text + from, i - from);
            buf_printf(out, n == 1 ? "^%c" : "^[%c", n == 1 ? bytes[i] ^ 0x40 : bytes[i + 1] - 0x40);
            from = i + n;
        }
        i += n > 0 ? n : 1;
    }
    return buf_append(out, text + from, size - from);
}
