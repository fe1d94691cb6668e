/* serve_client.h - one streaming request after another over one connection: the cheapest client that still checks everything.
 *
 * It knows the event streams of the server by the few bytes that matter: where the generated text stands in an event, and which event
 * ends an answer. Texts stay as they are spelled in JSON; two answers are equal when their spellings are. A stream belongs to one
 * thread, whoever initialised it; the caller waits for its socket (epoll) and calls serve_stream_ready. */
#ifndef BENCH_SERVE_CLIENT_H
#define BENCH_SERVE_CLIENT_H

#include "core/buf.h"

#include <stdint.h>

typedef enum serve_api { SERVE_CHAT, SERVE_RESPONSES, SERVE_MESSAGES, SERVE_COMPLETIONS, SERVE_N_APIS } serve_api;

typedef struct serve_request {
    serve_api api;
    buf bytes;   /* head and body, ready to be sent */
    char *text;  /* [n_text] what it is known to answer; NULL = not known yet */
    size_t n_text;
} serve_request;

/* From "API TAB JSON BODY" (chat, responses, messages, completions); `key` may be NULL. False for another line, or without memory. */
bool serve_request_init(serve_request *r, const char *line, size_t n, const char *key);
void serve_request_fini(serve_request *r);

typedef enum serve_outcome { SERVE_GOING, SERVE_DONE, SERVE_FAILED } serve_outcome;
typedef enum serve_part { SERVE_HEAD, SERVE_BODY_PLAIN, SERVE_CHUNK_LINE, SERVE_CHUNK, SERVE_CHUNK_END, SERVE_TRAILER } serve_part;

typedef struct serve_stream {
    int fd; /* -1 = not connected */
    uint16_t port;
    const serve_request *request; /* borrowed until it has ended */
    size_t n_sent;
    serve_part part;
    int status;
    size_t left;  /* of the chunk, or of a plain body */
    buf line;     /* head, or the size line of a chunk */
    buf frame;    /* what has come of frames that are not complete */
    buf text;     /* of the answer so far */
    bool closing; /* the server said that it will close */
    bool ended;   /* the last event has come */
    char why[128]; /* of SERVE_FAILED */
    int64_t started_at; /* CLOCK_MONOTONIC ns */
    int64_t first_at;   /* first piece of text; 0 = none yet */
    int64_t last_at;
    int64_t gap_ns;     /* between the last two reads that had text; -1 = none in this call */
    int64_t n_events;   /* that had text; sum over requests */
    int64_t n_comments;
} serve_stream;

void serve_stream_init(serve_stream *s, uint16_t port);
void serve_stream_fini(serve_stream *s);
void serve_stream_disconnect(serve_stream *s); /* between requests, or to leave one */

/* Connects if need be and begins to send. True when s->fd is new, so that the caller must watch it. SERVE_FAILED in *outcome when there
 * is no connection to be had. */
bool serve_stream_start(serve_stream *s, const serve_request *request, serve_outcome *outcome);

/* Reads and writes what can be without waiting. */
serve_outcome serve_stream_ready(serve_stream *s);

bool serve_stream_wants_to_write(const serve_stream *s);

/* The text is what it is known to be. */
bool serve_stream_is_right(const serve_stream *s);

#endif
