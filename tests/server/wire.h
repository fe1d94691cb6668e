/* wire.h - an HTTP client that does what no library would: single bytes, broken heads, resets. Every wait ends after a minute in a
 * failed test. Blocks; one thread at a time. */
#ifndef TESTS_SERVER_WIRE_H
#define TESTS_SERVER_WIRE_H

#include "core/buf.h"

#include <stdbool.h>

typedef struct wire {
    int fd;
    buf in;    /* what came */
    size_t at; /* of it was looked at */
    bool ended;
} wire;

typedef struct wire_reply {
    int status;
    buf head; /* lines as they came */
    buf body; /* without chunks */
} wire_reply;

void wire_open(wire *w, const char *url); /* "http://127.0.0.1:8000" */
void wire_close(wire *w);
void wire_reset(wire *w); /* closes it so that the other side sees a reset */
void wire_send(wire *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void wire_send_bytes(wire *w, const void *data, size_t n);
bool wire_try_send(wire *w, const void *data, size_t n); /* false: the other side has closed */

/* POST of a JSON body, with more header lines ("a: b\r\n") or "". */
void wire_post(wire *w, const char *path, const char *headers, const char *body);

void wire_read_head(wire *w, wire_reply *out);
void wire_read_rest(wire *w, wire_reply *out, bool has_body);
void wire_read(wire *w, wire_reply *out); /* both */
void wire_read_more(wire *w, wire_reply *out, const char *until); /* chunks of a stream until its body ends so */
void wire_wait_end(wire *w); /* until the other side closes or resets */
void wire_fini(wire_reply *r);

const char *wire_header(const wire_reply *r, const char *name); /* NULL = not there; good until the next call */
void wire_expect(const wire_reply *r, int status, const char *body_part);

/* One request on a connection of its own. */
void wire_ask(const char *url, const char *request, bool has_body, wire_reply *out);
/* The value of a line of /metrics: "name{labels}". -1 when it is not there. */
double wire_metric(const char *url, const char *name);
void wire_wait_metric(const char *url, const char *name, double value);

#endif
