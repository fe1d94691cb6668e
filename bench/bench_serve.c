/* bench_serve.c - load on a running server, for bench_serve.py; one JSON line a second and one at the end.
 *
 *   bench_serve load PORT REQUESTS STREAMS SECONDS REQUESTS_AT_LEAST [KEY]
 *   bench_serve hold PORT REQUESTS STREAMS [KEY]
 *
 * REQUESTS has lines of an API's name, a tab and a body with "stream". load: every request runs alone first, and what it answers is what
 * it must always answer; then STREAMS of them run together, each followed by the next one of the list, until SECONDS have passed and so
 * many requests are done, at most four times SECONDS. hold: STREAMS requests are sent and their heads awaited; then standard input is
 * read to its end, and then the answers awaited. One thread, epoll, nothing allocated while it runs but text that grows. */
#include "serve_client.h"

#include "core/clock.h"
#include "core/file.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILE ((size_t)256 << 20)
#define MAX_GAPS ((size_t)4 << 20)
#define CONNECTING 256 /* at a time, below what the system queues for a listener */
#define SECOND 1000000000LL
#define PATIENCE (120 * SECOND)

typedef struct load {
    uint16_t port;
    int epoll;
    serve_request *requests; /* [n_requests] */
    size_t n_requests;
    serve_stream *streams; /* [n_streams] */
    size_t n_streams;
    size_t next;     /* request, counted on and on */
    size_t n_open;   /* streams with a request */
    size_t n_done;
    size_t n_failed;
    size_t n_mixed;  /* answered something else than when alone */
    bool stopping;   /* no request follows */
    float *gaps;     /* [n_gaps] µs */
    size_t n_gaps;
    float *firsts;   /* [n_firsts] µs to the first text */
    size_t n_firsts;
} load;

static void die(const char *what)
{
    fprintf(stderr, "bench_serve: %s\n", what);
    exit(1);
}

static void *must_calloc(size_t n, size_t size)
{
    void *const memory = calloc(n > 0 ? n : 1, size);
    if (memory == NULL) {
        die("out of memory");
    }
    return memory;
}

static long number(const char *text)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (*end != '\0' || value < 0 || value > 10000000) {
        die("a number is expected");
    }
    return value;
}

/* ---- what to ask ---- */

static void read_requests(load *l, const char *path, const char *key)
{
    char *text;
    size_t n;
    di_error err;
    if (file_read(path, MAX_FILE, &text, &n, &err) != DI_OK) {
        die(err.message);
    }
    size_t capacity = 0;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++) {
        capacity++;
    }
    l->requests = must_calloc(capacity, sizeof *l->requests);
    for (const char *p = text, *end; (end = strchr(p, '\n')) != NULL; p = end + 1) {
        if (!serve_request_init(&l->requests[l->n_requests++], p, (size_t)(end - p), key)) {
            die("a line of the requests is not API TAB BODY");
        }
    }
    free(text);
    if (l->n_requests == 0) {
        die("no requests");
    }
}

/* ---- running ---- */

static void watch(const load *l, serve_stream *s)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, s->fd, &event) != 0) {
        die("epoll_ctl failed");
    }
}

static void note_gap(load *l, const serve_stream *s)
{
    if (s->gap_ns >= 0 && l->n_gaps < MAX_GAPS) {
        l->gaps[l->n_gaps++] = (float)s->gap_ns / 1e3f;
    }
}

static void note_end(load *l, serve_stream *s, serve_outcome outcome)
{
    l->n_done += outcome == SERVE_DONE;
    l->n_failed += outcome == SERVE_FAILED;
    if (outcome == SERVE_FAILED && l->n_failed <= 5) {
        fprintf(stderr, "bench_serve: %s\n", s->why);
    }
    if (outcome == SERVE_DONE) {
        l->n_mixed += s->request->text != NULL && !serve_stream_is_right(s);
        if (s->first_at != 0 && l->n_firsts < MAX_GAPS) {
            l->firsts[l->n_firsts++] = (float)(s->first_at - s->started_at) / 1e3f;
        }
    }
}

static serve_outcome start_one(load *l, serve_stream *s)
{
    serve_outcome outcome;
    if (serve_stream_start(s, &l->requests[l->next++ % l->n_requests], &outcome)) {
        watch(l, s);
    }
    if (outcome == SERVE_GOING) {
        outcome = serve_stream_ready(s);
    }
    if (outcome == SERVE_GOING) {
        l->n_open++;
    } else {
        note_end(l, s, outcome);
    }
    return outcome;
}

/* Starts the next request on a stream, and those after it while they end at once. After a failure nothing: see revive. */
static void go_on(load *l, serve_stream *s)
{
    while (!l->stopping && start_one(l, s) == SERVE_DONE) {
    }
}

static void handle(load *l, serve_stream *s)
{
    if (s->fd < 0) {
        return; /* failed within the same batch of events */
    }
    const serve_outcome outcome = serve_stream_ready(s);
    note_gap(l, s);
    if (outcome != SERVE_GOING) {
        note_end(l, s, outcome);
        l->n_open--;
        if (l->stopping) {
            serve_stream_disconnect(s);
        } else if (outcome == SERVE_DONE) {
            go_on(l, s);
        }
    }
}

static void poll_once(load *l)
{
    struct epoll_event events[256];
    const int n = epoll_wait(l->epoll, events, 256, 100);
    for (int i = 0; i < n; i++) {
        handle(l, events[i].data.ptr);
    }
}

static void revive(load *l)
{
    for (size_t i = 0; i < l->n_streams && !l->stopping; i++) {
        if (l->streams[i].fd < 0) {
            go_on(l, &l->streams[i]);
        }
    }
}

static void open_streams(load *l, size_t n)
{
    l->streams = must_calloc(n, sizeof *l->streams);
    l->n_streams = n;
    for (size_t i = 0; i < n; i++) {
        serve_stream_init(&l->streams[i], l->port);
    }
}

/* Every request alone, in order. */
static void learn(load *l)
{
    serve_stream *const s = &l->streams[0];
    for (size_t i = 0; i < l->n_requests; i++) {
        serve_request *const r = &l->requests[i];
        serve_outcome outcome;
        if (serve_stream_start(s, r, &outcome) && outcome == SERVE_GOING) {
            watch(l, s);
        }
        const int64_t end = clock_now_ns() + PATIENCE;
        while (outcome == SERVE_GOING && (outcome = serve_stream_ready(s)) == SERVE_GOING && clock_now_ns() < end) {
            struct epoll_event event;
            (void)epoll_wait(l->epoll, &event, 1, 100);
        }
        if (outcome != SERVE_DONE) {
            fprintf(stderr, "bench_serve: request %zu alone: %s\n", i + 1, s->why);
            exit(1);
        }
        r->n_text = s->text.size;
        r->text = must_calloc(r->n_text + 1, 1);
        memcpy(r->text, s->text.data != NULL ? s->text.data : "", r->n_text);
    }
    serve_stream_fini(s);
    serve_stream_init(s, l->port);
}

/* ---- reports ---- */

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a;
    const float y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(float *values, size_t n, double share)
{
    if (n == 0) {
        return 0;
    }
    qsort(values, n, sizeof *values, compare);
    return (double)values[(size_t)((double)(n - 1) * share)];
}

static int64_t sum_events(const load *l)
{
    int64_t n = 0;
    for (size_t i = 0; i < l->n_streams; i++) {
        n += l->streams[i].n_events;
    }
    return n;
}

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void report(load *l, const char *what, int64_t start, int64_t events_before, double cpu)
{
    const double seconds = (double)(clock_now_ns() - start) / 1e9;
    printf("{\"%s\": true, \"seconds\": %.3f, \"requests\": %zu, \"failed\": %zu, \"mixed\": %zu, \"open\": %zu", what, seconds, l->n_done,
           l->n_failed, l->n_mixed, l->n_open);
    printf(", \"events\": %lld, \"cpu\": %.3f", (long long)(sum_events(l) - events_before), cpu);
    if (strcmp(what, "end") == 0) {
        printf(", \"gap_p50\": %.1f, \"gap_p99\": %.1f, \"gaps\": %zu", quantile(l->gaps, l->n_gaps, 0.5),
               quantile(l->gaps, l->n_gaps, 0.99), l->n_gaps);
        printf(", \"first_p50\": %.1f, \"first_p99\": %.1f", quantile(l->firsts, l->n_firsts, 0.5), quantile(l->firsts, l->n_firsts, 0.99));
    }
    puts("}");
    fflush(stdout);
}

static int run_load(load *l, long n_streams, long seconds, long at_least)
{
    open_streams(l, (size_t)n_streams);
    learn(l);
    const int64_t start = clock_now_ns();
    const int64_t events = sum_events(l);
    const double cpu = cpu_seconds();
    int64_t tick = start;
    for (int64_t now = start; !l->stopping; now = clock_now_ns()) {
        if (now >= tick) {
            revive(l); /* the first time: all of them */
            report(l, "going", start, events, cpu_seconds() - cpu);
            tick += SECOND;
        }
        poll_once(l);
        l->stopping = (now - start >= seconds * SECOND && l->n_done >= (size_t)at_least) || now - start >= 4 * seconds * SECOND;
    }
    const int64_t end = clock_now_ns() + PATIENCE;
    while (l->n_open > 0 && clock_now_ns() < end) {
        poll_once(l);
    }
    report(l, "end", start, events, cpu_seconds() - cpu);
    return l->n_failed == 0 && l->n_mixed == 0 && l->n_open == 0 ? 0 : 1;
}

/* ---- hold ---- */

static size_t count_answered(const load *l, size_t n_started)
{
    size_t n = 0;
    for (size_t i = 0; i < n_started; i++) {
        n += l->streams[i].status != 0 || l->streams[i].fd < 0;
    }
    return n;
}

static bool input_ended(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char bytes[64];
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0;
}

static int64_t sum_comments(const load *l)
{
    int64_t n = 0;
    for (size_t i = 0; i < l->n_streams; i++) {
        n += l->streams[i].n_comments;
    }
    return n;
}

static int run_hold(load *l, long n_streams)
{
    const int64_t start = clock_now_ns();
    open_streams(l, (size_t)n_streams);
    l->stopping = true; /* one request a stream */
    size_t started = 0;
    size_t answered = 0;
    while (answered < l->n_streams && clock_now_ns() - start < PATIENCE) {
        for (; started < l->n_streams && started < answered + CONNECTING; started++) {
            (void)start_one(l, &l->streams[started]);
        }
        poll_once(l);
        answered = count_answered(l, started);
    }
    report(l, "held", start, 0, cpu_seconds());
    while (!input_ended()) {
        poll_once(l);
    }
    const int64_t comments = sum_comments(l);
    for (const int64_t end = clock_now_ns() + PATIENCE; l->n_open > 0 && clock_now_ns() < end;) {
        poll_once(l);
    }
    printf("{\"comments\": %lld}\n", (long long)comments);
    report(l, "end", start, 0, cpu_seconds());
    return l->n_failed == 0 && l->n_open == 0 ? 0 : 1;
}

/* As many files as the system lets this process have. */
static void raise_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv)
{
    const bool holds = argc > 1 && strcmp(argv[1], "hold") == 0;
    const int n_fixed = holds ? 5 : 7;
    if (argc < n_fixed || argc > n_fixed + 1) {
        die("load PORT REQUESTS STREAMS SECONDS REQUESTS_AT_LEAST [KEY] | hold PORT REQUESTS STREAMS [KEY]");
    }
    raise_files();
    load l = {.port = (uint16_t)number(argv[2]), .epoll = epoll_create1(EPOLL_CLOEXEC)};
    l.gaps = must_calloc(MAX_GAPS, sizeof *l.gaps);
    l.firsts = must_calloc(MAX_GAPS, sizeof *l.firsts);
    read_requests(&l, argv[3], argc > n_fixed ? argv[n_fixed] : NULL);
    const int code = holds ? run_hold(&l, number(argv[4])) : run_load(&l, number(argv[4]), number(argv[5]), number(argv[6]));
    for (size_t i = 0; i < l.n_streams; i++) {
        serve_stream_fini(&l.streams[i]);
    }
    for (size_t i = 0; i < l.n_requests; i++) {
        serve_request_fini(&l.requests[i]);
    }
    free(l.streams);
    free(l.requests);
    free(l.gaps);
    free(l.firsts);
    close(l.epoll);
    return code;
}
