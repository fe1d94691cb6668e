/* srv_trace.h - W3C Trace Context: the header traceparent in and out (https://www.w3.org/TR/trace-context/). */
#ifndef SERVER_SRV_TRACE_H
#define SERVER_SRV_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* Ids as lower-case hexadecimal text, NUL-terminated. */
typedef struct srv_trace {
    char trace_id[33];
    char span_id[17];   /* of this request */
    char parent_id[17]; /* of who sent it; "" = nobody said */
    bool sampled;
} srv_trace;

/* Continues the caller's trace; without a valid header begins one of its own. `random` [24] are random bytes. */
void srv_trace_begin(srv_trace *trace, const char *traceparent, const uint8_t random[24]);

/* "00-<trace id>-<span id>-01", 55 characters and a NUL. */
#define SRV_TRACEPARENT_BYTES 56
void srv_trace_header(const srv_trace *trace, char out[SRV_TRACEPARENT_BYTES]);

#endif
