/* wire.c - see wire.h. */
#include "wire.h"

#include "support/unit.h"

#include "core/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

void wire_open(wire *w, const char *url)
{
    const char *const port = strrchr(url, ':');
    const int yes = 1;
    assert_non_null(port);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)strtol(port + 1, NULL, 10))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *w = (wire){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(w->fd >= 0);
    buf_init(&w->in, SIZE_MAX);
    setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(w->fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail_msg("connect: %s", strerror(errno));
    }
}

void wire_close(wire *w)
{
    close(w->fd);
    buf_fini(&w->in);
}

void wire_reset(wire *w)
{
    const struct linger at_once = {.l_onoff = 1};
    setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    wire_close(w);
}

bool wire_try_send(wire *w, const void *data, size_t n)
{
    for (size_t sent = 0; sent < n;) {
        struct pollfd writable = {.fd = w->fd, .events = POLLOUT};
        assert_int_equal(poll(&writable, 1, PATIENCE_MS), 1);
        const ssize_t k = send(w->fd, (const char *)data + sent, n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && (errno == EPIPE || errno == ECONNRESET)) {
            return false;
        }
        sent += k > 0 ? (size_t)k : 0;
    }
    return true;
}

void wire_send_bytes(wire *w, const void *data, size_t n)
{
    assert_true(wire_try_send(w, data, n));
}

void wire_send(wire *w, const char *format, ...)
{
    va_list list;
    char text[8192];
    va_start(list, format);
    const int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    assert_true(n >= 0 && (size_t)n < sizeof text);
    wire_send_bytes(w, text, (size_t)n);
}

void wire_post(wire *w, const char *path, const char *headers, const char *body)
{
    wire_send(w, "POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n", path, strlen(body),
              headers);
    wire_send_bytes(w, body, strlen(body));
}

/* --- Reading ----------------------------------------------------------------------------------------------------------------- */

/* False at the end. */
static bool receive(wire *w)
{
    char data[16384];
    struct pollfd readable = {.fd = w->fd, .events = POLLIN};
    if (poll(&readable, 1, PATIENCE_MS) != 1) {
        fail_msg("nothing came; so far: %s", w->in.data != NULL ? w->in.data : "");
    }
    const ssize_t n = recv(w->fd, data, sizeof data, 0);
    if (n <= 0) {
        w->ended = true;
        return false;
    }
    assert_true(buf_append(&w->in, data, (size_t)n));
    return true;
}

static const char *find(const wire *w, const char *text)
{
    return w->in.size > w->at ? memmem(w->in.data + w->at, w->in.size - w->at, text, strlen(text)) : NULL;
}

static void take(wire *w, size_t n, buf *out)
{
    while (w->in.size - w->at < n) {
        if (!receive(w)) {
            fail_msg("closed too early; so far: %s", w->in.data != NULL ? w->in.data : "");
        }
    }
    assert_true(buf_append(out, w->in.data + w->at, n));
    w->at += n;
}

static void take_line(wire *w, buf *out)
{
    const char *end;
    while ((end = find(w, "\r\n")) == NULL) {
        if (!receive(w)) {
            fail_msg("closed too early; so far: %s", w->in.data != NULL ? w->in.data : "");
        }
    }
    take(w, (size_t)(end + 2 - (w->in.data + w->at)), out);
}

void wire_read_head(wire *w, wire_reply *out)
{
    *out = (wire_reply){.status = 0};
    buf_init(&out->head, SIZE_MAX);
    buf_init(&out->body, SIZE_MAX);
    size_t before;
    do {
        before = out->head.size;
        take_line(w, &out->head);
    } while (out->head.size > before + 2);
    assert_int_equal(sscanf(out->head.data, "HTTP/1.%*d %d", &out->status), 1);
}

/* One chunk; false: it was the last one. */
static bool take_chunk(wire *w, buf *out)
{
    buf line;
    buf_init(&line, 64);
    take_line(w, &line);
    const size_t size = (size_t)strtoul(line.data, NULL, 16);
    take(w, size, out);
    buf_clear(&line);
    take_line(w, &line);
    assert_string_equal(line.data, "\r\n");
    buf_fini(&line);
    return size > 0;
}

void wire_read_rest(wire *w, wire_reply *out, bool has_body)
{
    const char *const length = wire_header(out, "Content-Length");
    if (!has_body) {
        return;
    }
    if (length != NULL) {
        take(w, (size_t)strtoul(length, NULL, 10), &out->body);
    } else if (wire_header(out, "Transfer-Encoding") != NULL) {
        while (take_chunk(w, &out->body)) {
        }
    } else {
        while (receive(w)) {
        }
        take(w, w->in.size - w->at, &out->body);
    }
}

void wire_read(wire *w, wire_reply *out)
{
    wire_read_head(w, out);
    wire_read_rest(w, out, out->status != 204);
}

void wire_read_more(wire *w, wire_reply *out, const char *until)
{
    const size_t n = strlen(until);
    while (out->body.size < n || memcmp(out->body.data + out->body.size - n, until, n) != 0) {
        assert_true(take_chunk(w, &out->body));
    }
}

void wire_wait_end(wire *w)
{
    while (!w->ended && receive(w)) {
    }
}

void wire_fini(wire_reply *r)
{
    buf_fini(&r->head);
    buf_fini(&r->body);
}

const char *wire_header(const wire_reply *r, const char *name)
{
    static _Thread_local char value[1024];
    const size_t n = strlen(name);
    for (const char *line = r->head.data; line != NULL && *line != '\0'; line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            const char *const text = line + n + 1 + strspn(line + n + 1, " ");
            snprintf(value, sizeof value, "%.*s", (int)strcspn(text, "\r"), text);
            return value;
        }
    }
    return NULL;
}

void wire_expect(const wire_reply *r, int status, const char *body_part)
{
    const char *const body = r->body.data != NULL ? r->body.data : "";
    if (r->status != status || strstr(body, body_part) == NULL) {
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", status, body_part, r->status, body);
    }
}

void wire_ask(const char *url, const char *request, bool has_body, wire_reply *out)
{
    wire w;
    wire_open(&w, url);
    wire_send_bytes(&w, request, strlen(request));
    wire_read_head(&w, out);
    wire_read_rest(&w, out, has_body);
    wire_close(&w);
}

double wire_metric(const char *url, const char *name)
{
    wire_reply r;
    double value = -1;
    const size_t n = strlen(name);
    wire_ask(url, "GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n", true, &r);
    assert_int_equal(r.status, 200);
    for (const char *line = r.body.data; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, n) == 0 && line[n] == ' ') {
            value = strtod(line + n, NULL);
        }
    }
    wire_fini(&r);
    return value;
}

void wire_wait_metric(const char *url, const char *name, double value)
{
    const int64_t end = clock_now_ns() + (int64_t)PATIENCE_MS * 1000000;
    while (wire_metric(url, name) != value) {
        if (clock_now_ns() > end) {
            fail_msg("%s is not %g but %g", name, value, wire_metric(url, name));
        }
        usleep(1000);
    }
}
