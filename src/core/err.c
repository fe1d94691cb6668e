/* err.c - see err.h. The message buffer has a fixed size, so reporting an error never allocates. A message is one line whatever
 * foreign text it quotes: control characters become spaces. */
#include "core/err.h"

#include "core/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One line, and no half character at the end where vsnprintf has cut the text. */
static void tidy(char *text, size_t capacity, int wanted)
{
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7F) {
            *p = ' ';
        }
    }
    if (wanted >= 0 && (size_t)wanted < capacity) {
        return;
    }
    const size_t size = strlen(text);
    size_t lead = size;
    while (lead > 0 && size - lead < 3 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) {
        lead--;
    }
    uint32_t cp;
    if (lead > 0 && utf8_decode((const uint8_t *)text + lead - 1, size - lead + 1, &cp) == 0) {
        text[lead - 1] = '\0';
    }
}

di_status err_set_at(di_error *err, di_status code, const char *file, int line, const char *format, ...)
{
    if (err == NULL) {
        return code;
    }
    err->code = code;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, format);
    const int wanted = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    tidy(err->message, sizeof err->message, wanted);
    return code;
}

di_status err_set_errno_at(di_error *err, int errno_value, const char *file, int line, const char *format, ...)
{
    if (err == NULL) {
        return DI_E_IO;
    }
    char text[sizeof err->message];
    va_list args;
    va_start(args, format);
    const int wanted = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tidy(text, sizeof text, wanted);
    char reason[128];
    return err_set_at(err, DI_E_IO, file, line, "%s: %s", text, strerror_r(errno_value, reason, sizeof reason));
}

void err_prefix(di_error *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    char text[sizeof err->message];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tidy(text, sizeof text, wanted);
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    wanted = snprintf(err->message, sizeof err->message, "%s: %s", text, old);
    tidy(err->message, sizeof err->message, wanted);
}
