/* srv_trace.c - see srv_trace.h. */
#include "server/srv_trace.h"

#include <stdio.h>
#include <string.h>

enum { VERSION_AT = 0, TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

static bool is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f'))) {
            return false;
        }
    }
    return true;
}

static bool all_zero(const char *text, size_t n)
{
    return strspn(text, "0") >= n;
}

/* Version 00 has exactly these fields; a later one may go on behind a dash. ff is no version. */
static bool is_valid(const char *text)
{
    const size_t n = strnlen(text, 512);
    return n >= LENGTH && (n == LENGTH || (strncmp(text, "00", 2) != 0 && text[LENGTH] == '-')) && text[2] == '-' &&
           text[PARENT_AT - 1] == '-' && text[FLAGS_AT - 1] == '-' && is_hex(text + VERSION_AT, 2) && strncmp(text, "ff", 2) != 0 &&
           is_hex(text + TRACE_AT, 32) && !all_zero(text + TRACE_AT, 32) && is_hex(text + PARENT_AT, 16) &&
           !all_zero(text + PARENT_AT, 16) && is_hex(text + FLAGS_AT, 2);
}

static void write_hex(char *out, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

void srv_trace_begin(srv_trace *trace, const char *traceparent, const uint8_t random[24])
{
    write_hex(trace->span_id, random + 16, 8);
    if (traceparent != NULL && is_valid(traceparent)) {
        snprintf(trace->trace_id, sizeof trace->trace_id, "%.32s", traceparent + TRACE_AT);
        snprintf(trace->parent_id, sizeof trace->parent_id, "%.16s", traceparent + PARENT_AT);
        const char low = traceparent[FLAGS_AT + 1];
        trace->sampled = ((low >= 'a' ? low - 'a' + 10 : low - '0') & 1) != 0;
        return;
    }
    write_hex(trace->trace_id, random, 16);
    trace->parent_id[0] = '\0';
    trace->sampled = true;
}

void srv_trace_header(const srv_trace *trace, char out[SRV_TRACEPARENT_BYTES])
{
    snprintf(out, SRV_TRACEPARENT_BYTES, "00-%s-%s-%s", trace->trace_id, trace->span_id, trace->sampled ? "01" : "00");
}
