/* log_text.h - what lines of a log look like: text for people, JSON lines for programs.
 *
 * Whatever foreign text they quote, both are one line of valid UTF-8 without control characters, and bounded. The builder of JSON lines
 * keeps no state but the buffer: begin, fields, end; a buffer can be used again for the next line. */
#ifndef CORE_LOG_TEXT_H
#define CORE_LOG_TEXT_H

#include "core/buf.h"
#include "core/log.h"

#define LOG_TIME_BYTES 32
#define LOG_MAX_TEXT 2048   /* bytes of a line of text; cut at a character behind that */
#define LOG_MAX_STRING 1024 /* bytes of a string in a JSON line, before escapes; cut likewise, with an ellipsis */

/* The clock on the wall: "2026-03-01T12:00:00.000Z". */
void log_time(char out[LOG_TIME_BYTES]);

const char *log_level_name(log_level level); /* "error", "warn", "info", "debug" */
bool log_level_parse(const char *name, log_level *out);

/* "TIME LEVEL message" to the log when it takes that level. Never waits; log may be NULL. */
void log_text(log_sink *log, log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

void log_json_begin(buf *line); /* clears it, and writes "time" */
void log_json_string(buf *line, const char *key, const char *text); /* NULL = null */
void log_json_string_n(buf *line, const char *key, const char *text, size_t n);
void log_json_int(buf *line, const char *key, int64_t value);
void log_json_real(buf *line, const char *key, double value); /* not finite = null */
void log_json_bool(buf *line, const char *key, bool value);
void log_json_ms(buf *line, const char *key, int64_t ns); /* as milliseconds with three decimals; negative = null */

/* Ends the object and hands it over. False: it was dropped, because the log or the buffer is full. */
bool log_json_end(buf *line, log_sink *log);

#endif
