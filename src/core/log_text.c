/* log_text.c - see log_text.h. Keys are ours and need no escapes. */
#include "core/log_text.h"

#include "core/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void log_time(char out[LOG_TIME_BYTES])
{
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    const size_t n = strftime(out, LOG_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + n, LOG_TIME_BYTES - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

/* --- Text --------------------------------------------------------------------------------------------------------------- */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

const char *log_level_name(log_level level)
{
    return level_names[level];
}

bool log_level_parse(const char *name, log_level *out)
{
    for (int i = LOG_LEVEL_ERROR; i <= LOG_LEVEL_DEBUG; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out = (log_level)i;
            return true;
        }
    }
    return false;
}

/* Length of the longest prefix of at most `max` bytes that ends between characters. */
static size_t cut(const char *text, size_t n, size_t max)
{
    size_t end = n < max ? n : max;
    while (end < n && end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80 && max - end < 3) {
        end--;
    }
    return end;
}

/* Control characters become blanks, and bytes that are no UTF-8 question marks; the length stays. */
static void tidy(char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        const int length = utf8_decode((const uint8_t *)text + i, n - i, &cp);
        const size_t bytes = length > 0 ? (size_t)length : length < 0 ? (size_t)-length : n - i;
        if (length <= 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            memset(text + i, length <= 0 ? '?' : ' ', bytes);
        }
        i += bytes;
    }
}

void log_text(log_sink *log, log_level level, const char *format, ...)
{
    char line[LOG_MAX_TEXT + 1];
    char time[LOG_TIME_BYTES];
    if (!log_takes(log, level)) {
        return;
    }
    log_time(time);
    const size_t start = (size_t)snprintf(line, sizeof line, "%s %-5s ", time, level_names[level]);
    va_list args;
    va_start(args, format);
    const int wanted = vsnprintf(line + start, sizeof line - start, format, args);
    va_end(args);
    const bool whole = wanted >= 0 && (size_t)wanted < sizeof line - start;
    const size_t held = whole ? (size_t)wanted : strlen(line + start);
    const size_t n = start + (whole ? held : utf8_valid_prefix((const uint8_t *)line + start, held));
    tidy(line + start, n - start);
    log_line(log, line, n);
}

/* --- JSON lines --------------------------------------------------------------------------------------------------------- */

static void put_key(buf *line, const char *key)
{
    const bool first = line->size > 0 && line->data[line->size - 1] == '{';
    buf_printf(line, "%s\"%s\":", first ? "" : ",", key);
}

void log_json_begin(buf *line)
{
    char time[LOG_TIME_BYTES];
    buf_clear(line);
    log_time(time);
    buf_printf(line, "{\"time\":\"%s\"", time);
}

void log_json_string_n(buf *line, const char *key, const char *text, size_t n)
{
    put_key(line, key);
    const size_t kept = cut(text, n, LOG_MAX_STRING);
    buf_json_string(line, text, kept);
    if (kept < n && !line->failed) {
        line->size--; /* the quote */
        buf_puts(line, "\xE2\x80\xA6\"");
    }
}

void log_json_string(buf *line, const char *key, const char *text)
{
    if (text == NULL) {
        put_key(line, key);
        buf_puts(line, "null");
    } else {
        log_json_string_n(line, key, text, strlen(text));
    }
}

void log_json_int(buf *line, const char *key, int64_t value)
{
    put_key(line, key);
    buf_printf(line, "%" PRId64, value);
}

void log_json_real(buf *line, const char *key, double value)
{
    put_key(line, key);
    if (isfinite(value)) {
        buf_real(line, value);
    } else {
        buf_puts(line, "null");
    }
}

void log_json_bool(buf *line, const char *key, bool value)
{
    put_key(line, key);
    buf_puts(line, value ? "true" : "false");
}

void log_json_ms(buf *line, const char *key, int64_t ns)
{
    put_key(line, key);
    if (ns < 0) {
        buf_puts(line, "null");
    } else {
        buf_printf(line, "%" PRId64 ".%03d", ns / 1000000, (int)(ns / 1000 % 1000));
    }
}

bool log_json_end(buf *line, log_sink *log)
{
    buf_puts(line, "}");
    return !line->failed && log_line(log, line->data, line->size);
}
