/* serve_client.c - HTTP/1.1 with chunked bodies, and server-sent events, as much of them as the server sends (serve_client.h).
 *
 * Bytes go through two small machines: one takes the chunked body apart, the other cuts it at empty lines into frames. Nothing of an
 * event is decoded but the generated text, which is found by the bytes in front of it. */
#include "serve_client.h"

#include "core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_BYTES ((size_t)64 << 20)
#define MAX_HEAD ((size_t)64 << 10)

typedef struct api_words {
    const char *name;
    const char *path;
    const char *delta; /* an event with text has this ... */
    const char *text;  /* ... and behind it this, then the text up to the closing quote */
    const char *ends[2]; /* one of them is in the last event; the second may be NULL */
} api_words;

static const api_words WORDS[SERVE_N_APIS] = {
    [SERVE_CHAT] = {"chat", "/v1/chat/completions", "\"delta\":{", "\"content\":\"", {"[DONE]"}},
    [SERVE_RESPONSES] = {"responses", "/v1/responses", "response.output_text.delta", "\"delta\":\"",
                         {"\"type\":\"response.completed\"", "\"type\":\"response.incomplete\""}},
    [SERVE_MESSAGES] = {"messages", "/v1/messages", "\"text_delta\"", "\"text\":\"", {"\"message_stop\""}},
    [SERVE_COMPLETIONS] = {"completions", "/v1/completions", "\"text_completion\"", "\"text\":\"", {"[DONE]"}},
};

/* ---- requests ---- */

bool serve_request_init(serve_request *r, const char *line, size_t n, const char *key)
{
    const char *const tab = memchr(line, '\t', n);
    *r = (serve_request){.text = NULL};
    buf_init(&r->bytes, MAX_BYTES);
    for (int i = 0; tab != NULL && i < SERVE_N_APIS; i++) {
        if (strlen(WORDS[i].name) == (size_t)(tab - line) && memcmp(line, WORDS[i].name, (size_t)(tab - line)) == 0) {
            const size_t n_body = n - (size_t)(tab + 1 - line);
            r->api = (serve_api)i;
            buf_printf(&r->bytes, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n",
                       WORDS[i].path, n_body);
            if (key != NULL) {
                buf_printf(&r->bytes, "Authorization: Bearer %s\r\n", key);
            }
            buf_puts(&r->bytes, "\r\n");
            return buf_append(&r->bytes, tab + 1, n_body) && !r->bytes.failed;
        }
    }
    return false;
}

void serve_request_fini(serve_request *r)
{
    buf_fini(&r->bytes);
    free(r->text);
}

/* ---- connection ---- */

void serve_stream_init(serve_stream *s, uint16_t port)
{
    *s = (serve_stream){.fd = -1, .port = port};
    buf_init(&s->line, MAX_HEAD);
    buf_init(&s->frame, MAX_BYTES);
    buf_init(&s->text, MAX_BYTES);
}

void serve_stream_disconnect(serve_stream *s)
{
    if (s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
}

void serve_stream_fini(serve_stream *s)
{
    serve_stream_disconnect(s);
    buf_fini(&s->line);
    buf_fini(&s->frame);
    buf_fini(&s->text);
}

static serve_outcome fail(serve_stream *s, const char *why)
{
    snprintf(s->why, sizeof s->why, "%s (status %d): %.80s", why, s->status, s->frame.size > 0 ? s->frame.data : "");
    serve_stream_disconnect(s);
    return SERVE_FAILED;
}

static bool connect_now(serve_stream *s)
{
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(s->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int one = 1;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->fd < 0) {
        return false;
    }
    (void)setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(s->fd, (const struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS) {
        serve_stream_disconnect(s);
        return false;
    }
    return true;
}

bool serve_stream_start(serve_stream *s, const serve_request *request, serve_outcome *outcome)
{
    const bool fresh = s->fd < 0;
    s->request = request;
    s->n_sent = 0;
    s->part = SERVE_HEAD;
    s->status = 0;
    s->closing = s->ended = false;
    buf_clear(&s->line);
    buf_clear(&s->frame);
    buf_clear(&s->text);
    s->started_at = clock_now_ns();
    s->first_at = s->last_at = 0;
    *outcome = SERVE_GOING;
    if (fresh && !connect_now(s)) {
        *outcome = fail(s, strerror(errno));
        return false;
    }
    return fresh;
}

bool serve_stream_wants_to_write(const serve_stream *s) { return s->request != NULL && s->n_sent < s->request->bytes.size; }

static bool send_some(serve_stream *s)
{
    while (serve_stream_wants_to_write(s)) {
        const ssize_t n = send(s->fd, s->request->bytes.data + s->n_sent, s->request->bytes.size - s->n_sent, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN || errno == ENOTCONN;
        }
        s->n_sent += (size_t)n;
    }
    return true;
}

/* ---- events ---- */

/* The frame is NUL-terminated in its place. */
static void take_frame(serve_stream *s, const char *frame)
{
    const api_words *const words = &WORDS[s->request->api];
    if (frame[0] == ':') {
        s->n_comments++;
        return;
    }
    const char *text = strstr(frame, words->delta);
    text = text != NULL ? strstr(text, words->text) : NULL;
    if (text != NULL) {
        text += strlen(words->text);
        const char *end = text;
        while (*end != '"' && *end != '\0') {
            end += *end == '\\' && end[1] != '\0' ? 2 : 1;
        }
        if (end > text) {
            buf_append(&s->text, text, (size_t)(end - text));
            s->n_events++;
        }
    } else if (strstr(frame, words->ends[0]) != NULL || (words->ends[1] != NULL && strstr(frame, words->ends[1]) != NULL)) {
        s->ended = true;
    }
}

static void take_frames(serve_stream *s)
{
    const size_t before = s->text.size;
    char *begin = s->frame.data;
    char *end;
    while ((end = strstr(begin, "\n\n")) != NULL) {
        *end = '\0';
        take_frame(s, begin);
        begin = end + 2;
    }
    const size_t rest = s->frame.size - (size_t)(begin - s->frame.data);
    memmove(s->frame.data, begin, rest + 1);
    s->frame.size = rest;
    if (s->text.size > before) {
        const int64_t now = clock_now_ns();
        s->gap_ns = s->last_at != 0 ? now - s->last_at : -1;
        s->first_at = s->first_at != 0 ? s->first_at : now;
        s->last_at = now;
    }
}

/* ---- HTTP ---- */

static bool read_head(serve_stream *s)
{
    const char *const head = s->line.data;
    const char *const length = strcasestr(head, "\r\nContent-Length:");
    if (sscanf(head, "HTTP/1.1 %d", &s->status) != 1) {
        return false;
    }
    s->closing = strcasestr(head, "\r\nConnection: close") != NULL;
    s->left = length != NULL ? strtoul(length + 17, NULL, 10) : 0;
    s->part = strcasestr(head, "\r\nTransfer-Encoding: chunked") != NULL ? SERVE_CHUNK_LINE : SERVE_BODY_PLAIN;
    buf_clear(&s->line);
    return s->part == SERVE_CHUNK_LINE || length != NULL;
}

/* Takes bytes up to and with `end` into s->line; true once it is there. */
static bool take_line(serve_stream *s, const char **p, const char *stop, const char *end)
{
    const size_t n_end = strlen(end);
    while (*p < stop) {
        buf_append(&s->line, (*p)++, 1);
        if (s->line.size >= n_end && memcmp(s->line.data + s->line.size - n_end, end, n_end) == 0) {
            return true;
        }
    }
    return false;
}

static void take_body(serve_stream *s, const char **p, const char *stop)
{
    const size_t n = s->left < (size_t)(stop - *p) ? s->left : (size_t)(stop - *p);
    buf_append(&s->frame, *p, n);
    *p += n;
    s->left -= n;
}

static serve_outcome finish(serve_stream *s)
{
    if (s->frame.size > 0 && s->status == 200) {
        take_frames(s);
    }
    if (s->status != 200 || !s->ended) {
        return fail(s, "no whole answer");
    }
    if (s->closing) {
        serve_stream_disconnect(s);
    }
    return SERVE_DONE;
}

static serve_outcome take(serve_stream *s, const char *p, const char *stop)
{
    while (p < stop) {
        switch (s->part) {
        case SERVE_HEAD:
            if (take_line(s, &p, stop, "\r\n\r\n") && !read_head(s)) {
                return fail(s, "no HTTP head");
            }
            break;
        case SERVE_BODY_PLAIN:
            take_body(s, &p, stop);
            break;
        case SERVE_CHUNK_LINE:
            if (take_line(s, &p, stop, "\r\n")) {
                s->left = strtoul(s->line.data, NULL, 16);
                s->part = s->left > 0 ? SERVE_CHUNK : SERVE_TRAILER;
                buf_clear(&s->line);
            }
            break;
        case SERVE_CHUNK:
            take_body(s, &p, stop);
            s->part = s->left == 0 ? SERVE_CHUNK_END : SERVE_CHUNK;
            break;
        case SERVE_CHUNK_END:
        case SERVE_TRAILER:
            if (take_line(s, &p, stop, "\r\n")) {
                buf_clear(&s->line);
                if (s->part == SERVE_TRAILER) {
                    return finish(s);
                }
                s->part = SERVE_CHUNK_LINE;
            }
            break;
        }
        if (s->line.failed || s->frame.failed || s->text.failed) {
            return fail(s, "an answer without end");
        }
    }
    if (s->part == SERVE_BODY_PLAIN && s->left == 0) {
        return fail(s, "refused");
    }
    return SERVE_GOING;
}

serve_outcome serve_stream_ready(serve_stream *s)
{
    char bytes[65536];
    serve_outcome outcome = SERVE_GOING;
    s->gap_ns = -1;
    if (!send_some(s)) {
        return fail(s, strerror(errno));
    }
    while (outcome == SERVE_GOING) {
        const ssize_t n = recv(s->fd, bytes, sizeof bytes, 0);
        if (n < 0) {
            return errno == EAGAIN || errno == ENOTCONN ? SERVE_GOING : fail(s, strerror(errno));
        }
        if (n == 0) {
            return fail(s, "closed by the server");
        }
        outcome = take(s, bytes, bytes + n);
        if (outcome == SERVE_GOING && s->status == 200 && s->frame.size > 0) {
            take_frames(s);
        }
        if (n < (ssize_t)sizeof bytes) {
            break;
        }
    }
    return outcome;
}

bool serve_stream_is_right(const serve_stream *s)
{
    return s->text.size == s->request->n_text && memcmp(s->text.data, s->request->text, s->text.size) == 0;
}
