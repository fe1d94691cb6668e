/* srv_otlp.c - spans to a trace collector: OTLP over HTTP in JSON (https://opentelemetry.io/docs/specs/otlp/), one span a call.
 *
 * A request that ends leaves its span as JSON text in a bounded queue and goes; a thread sends what has gathered, about once a second,
 * through libcurl, of which this file is the wrapper. What finds the queue full or the collector unwilling is dropped and counted: traces
 * are never worth a request. */
#include "server/srv_int.h"

#include "core/arith.h"
#include "core/err.h"

#include <curl/curl.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_QUEUED = 4096, MAX_BATCH = 512, GATHER_MS = 1000, SEND_TIMEOUT_MS = 10000, LAST_SEND_MS = 2000 };

struct srv_otlp {
    pthread_t thread;
    CURLM *multi; /* the thread's, but for curl_multi_wakeup */
    CURL *easy;
    struct curl_slist *headers;
    _Atomic uint64_t sent;
    _Atomic uint64_t dropped;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    char *spans[MAX_QUEUED]; /* a ring; owned */
    size_t first;
    size_t n;
    bool stop;
};

uint64_t srv_otlp_sent(const srv_otlp *otlp)
{
    return otlp != NULL ? atomic_load(&otlp->sent) : 0;
}

uint64_t srv_otlp_dropped(const srv_otlp *otlp)
{
    return otlp != NULL ? atomic_load(&otlp->dropped) : 0;
}

/* --- Spans -------------------------------------------------------------------------------------------------------------------- */

static void add_text(buf *b, const char *key, const char *value)
{
    buf_printf(b, "{\"key\":\"%s\",\"value\":{\"stringValue\":", key);
    buf_json_string(b, value, strlen(value));
    buf_puts(b, "}},");
}

static void add_int(buf *b, const char *key, int64_t value)
{
    buf_printf(b, "{\"key\":\"%s\",\"value\":{\"intValue\":\"%lld\"}},", key, (long long)value);
}

static void write_span(buf *b, const srv_request *r, const di_call_info *info, int64_t now)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    const int64_t ended = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    const char *const path = r->route->path;
    buf_printf(b, "{\"traceId\":\"%s\",\"spanId\":\"%s\",", r->trace.trace_id, r->trace.span_id);
    if (r->trace.parent_id[0] != '\0') {
        buf_printf(b, "\"parentSpanId\":\"%s\",", r->trace.parent_id);
    }
    buf_printf(b, "\"name\":\"POST %s\",\"kind\":2,\"startTimeUnixNano\":\"%lld\",\"endTimeUnixNano\":\"%lld\",\"attributes\":[", path,
               (long long)(ended - (now - r->started_at)), (long long)ended);
    add_text(b, "http.request.method", "POST");
    add_text(b, "http.route", path);
    add_text(b, "gen_ai.provider.name", "deepseek");
    add_text(b, "gen_ai.request.model", di_service_model_name(r->server->service));
    add_text(b, "gen_ai.response.id", di_call_id(r->call));
    add_text(b, "deepinfer.request_id", r->id);
    add_text(b, "deepinfer.tenant", r->tenant);
    add_int(b, "gen_ai.usage.input_tokens", info->usage.prompt_tokens);
    add_int(b, "gen_ai.usage.output_tokens", info->usage.completion_tokens);
    add_int(b, "deepinfer.cached_tokens", info->usage.cached_tokens);
    add_int(b, "http.response.status_code", r->status);
    b->size--; /* the comma */
    buf_puts(b, "],\"events\":[");
    const struct {
        const char *name;
        int64_t at;
    } events[] = {{"queued", info->queued_at}, {"admitted", info->admitted_at}, {"first_token", info->first_token_at}};
    bool first = true;
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (events[i].at > 0) {
            buf_printf(b, "%s{\"timeUnixNano\":\"%lld\",\"name\":\"%s\"}", first ? "" : ",", (long long)(ended - (now - events[i].at)),
                       events[i].name);
            first = false;
        }
    }
    buf_printf(b, "],\"status\":{\"code\":%d}}", r->status >= 500 || info->error != DI_OK ? 2 : 0);
}

void srv_otlp_request(srv_otlp *otlp, const srv_request *r, const di_call_info *info, int64_t now)
{
    if (otlp == NULL || r->call == NULL || !r->trace.sampled) {
        return;
    }
    buf span;
    buf_init(&span, 16384);
    write_span(&span, r, info, now);
    pthread_mutex_lock(&otlp->lock);
    const bool kept = !span.failed && otlp->n < MAX_QUEUED;
    if (kept) {
        otlp->spans[(otlp->first + otlp->n++) % MAX_QUEUED] = span.data;
        if (otlp->n == 1 || otlp->n == MAX_BATCH) {
            pthread_cond_signal(&otlp->changed);
        }
    }
    pthread_mutex_unlock(&otlp->lock);
    if (!kept) {
        atomic_fetch_add(&otlp->dropped, 1);
        buf_fini(&span);
    }
}

/* --- Sending ------------------------------------------------------------------------------------------------------------------ */

static struct timespec in_ms(int64_t milliseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(milliseconds / 1000);
    t.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

/* Waits for spans, then a while for more of them. True: go on. */
static bool gather(srv_otlp *otlp, buf *body, size_t *n, bool *stop)
{
    pthread_mutex_lock(&otlp->lock);
    while (otlp->n == 0 && !otlp->stop) {
        pthread_cond_wait(&otlp->changed, &otlp->lock);
    }
    const struct timespec until = in_ms(GATHER_MS);
    int waited = 0;
    while (otlp->n < MAX_BATCH && !otlp->stop && waited != ETIMEDOUT) {
        waited = pthread_cond_timedwait(&otlp->changed, &otlp->lock, &until);
    }
    buf_clear(body);
    buf_printf(body,
               "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\",\"value\":{\"stringValue\":\"deepinfer\"}},"
               "{\"key\":\"service.version\",\"value\":{\"stringValue\":\"%s\"}}]},\"scopeSpans\":[{\"scope\":{\"name\":"
               "\"deepinfer.server\"},\"spans\":[",
               di_version());
    for (*n = 0; *n < MAX_BATCH && otlp->n > 0; (*n)++) {
        char *const span = otlp->spans[otlp->first];
        buf_puts(body, *n > 0 ? "," : "");
        buf_puts(body, span);
        free(span);
        otlp->first = (otlp->first + 1) % MAX_QUEUED;
        otlp->n--;
    }
    buf_puts(body, "]}]}]}");
    *stop = otlp->stop;
    pthread_mutex_unlock(&otlp->lock);
    return *n > 0;
}

static bool is_stopping(srv_otlp *otlp)
{
    pthread_mutex_lock(&otlp->lock);
    const bool stop = otlp->stop;
    pthread_mutex_unlock(&otlp->lock);
    return stop;
}

static size_t ignore_reply(char *data, size_t size, size_t n, void *user)
{
    (void)data;
    (void)user;
    return size * n;
}

/* True when the collector took it. After a stop it has LAST_SEND_MS in all. */
static bool send_body(srv_otlp *otlp, const buf *body)
{
    int running = 1;
    int64_t waited = 0;
    long code = 0;
    bool done = false;
    curl_easy_setopt(otlp->easy, CURLOPT_POSTFIELDS, body->data);
    curl_easy_setopt(otlp->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    if (curl_multi_add_handle(otlp->multi, otlp->easy) != CURLM_OK) {
        return false;
    }
    while (running > 0 && curl_multi_perform(otlp->multi, &running) == CURLM_OK && running > 0) {
        const int slice = 100;
        if (is_stopping(otlp) && (waited += slice) > LAST_SEND_MS) {
            break;
        }
        curl_multi_poll(otlp->multi, NULL, 0, slice, NULL);
    }
    for (CURLMsg *message; (message = curl_multi_info_read(otlp->multi, &running)) != NULL;) {
        done = message->msg == CURLMSG_DONE && message->data.result == CURLE_OK;
    }
    curl_easy_getinfo(otlp->easy, CURLINFO_RESPONSE_CODE, &code);
    curl_multi_remove_handle(otlp->multi, otlp->easy);
    return done && code >= 200 && code < 300;
}

static void *run(void *arg)
{
    srv_otlp *const otlp = arg;
    bool stop = false;
    buf body;
    buf_init(&body, 64u << 20);
    while (!stop) {
        size_t n;
        if (gather(otlp, &body, &n, &stop)) {
            const bool sent = !body.failed && send_body(otlp, &body);
            atomic_fetch_add(sent ? &otlp->sent : &otlp->dropped, n);
            stop = stop && !sent; /* the last ones go batch by batch while the collector takes them */
        }
    }
    buf_fini(&body);
    return NULL;
}

/* --- Life --------------------------------------------------------------------------------------------------------------------- */

static bool set_up(srv_otlp *otlp, const char *endpoint)
{
    otlp->headers = curl_slist_append(NULL, "Content-Type: application/json");
    otlp->multi = curl_multi_init();
    otlp->easy = curl_easy_init();
    return otlp->headers != NULL && otlp->multi != NULL && otlp->easy != NULL &&
           curl_easy_setopt(otlp->easy, CURLOPT_URL, endpoint) == CURLE_OK &&
           curl_easy_setopt(otlp->easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(otlp->easy, CURLOPT_POST, 1L) == CURLE_OK &&
           curl_easy_setopt(otlp->easy, CURLOPT_HTTPHEADER, otlp->headers) == CURLE_OK &&
           curl_easy_setopt(otlp->easy, CURLOPT_WRITEFUNCTION, ignore_reply) == CURLE_OK &&
           curl_easy_setopt(otlp->easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(otlp->easy, CURLOPT_TIMEOUT_MS, (long)SEND_TIMEOUT_MS) == CURLE_OK;
}

di_status srv_otlp_open(const char *endpoint, srv_otlp **out, di_error *err)
{
    if (strncmp(endpoint, "http://", 7) != 0 && strncmp(endpoint, "https://", 8) != 0) {
        return err_set(err, DI_E_ARGUMENT, "the trace collector \"%s\" is no http:// or https:// URL", endpoint);
    }
    srv_otlp *const otlp = ar_calloc(1, sizeof *otlp);
    if (otlp == NULL) {
        return err_memory(err, "traces", sizeof *otlp);
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&otlp->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&otlp->lock, NULL);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !set_up(otlp, endpoint)) {
        srv_otlp_close(otlp);
        return err_set(err, DI_E_MEMORY, "out of memory: the client of the trace collector");
    }
    const int failed = pthread_create(&otlp->thread, NULL, run, otlp);
    if (failed != 0) {
        srv_otlp_close(otlp);
        return err_set_errno(err, failed, "a thread for traces");
    }
    otlp->running = true;
    *out = otlp;
    return DI_OK;
}

void srv_otlp_close(srv_otlp *otlp)
{
    if (otlp == NULL) {
        return;
    }
    if (otlp->running) {
        pthread_mutex_lock(&otlp->lock);
        otlp->stop = true;
        pthread_cond_signal(&otlp->changed);
        pthread_mutex_unlock(&otlp->lock);
        curl_multi_wakeup(otlp->multi);
        pthread_join(otlp->thread, NULL);
    }
    while (otlp->n > 0) {
        free(otlp->spans[otlp->first]);
        otlp->first = (otlp->first + 1) % MAX_QUEUED;
        otlp->n--;
    }
    if (otlp->easy != NULL) {
        curl_easy_cleanup(otlp->easy);
    }
    if (otlp->multi != NULL) {
        curl_multi_cleanup(otlp->multi);
    }
    curl_slist_free_all(otlp->headers);
    pthread_mutex_destroy(&otlp->lock);
    pthread_cond_destroy(&otlp->changed);
    free(otlp);
}
