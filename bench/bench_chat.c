/* bench_chat.c - what a service costs around the model, one JSON line a figure.
 *
 *   bench_chat [CALLS [TOKENS]]
 *
 * Backend "null" over the demo model: so many streams at once (256), so many tokens each (256), for each of four routes. One thread
 * reads all of them as a server would: woken by a callback, it reads what is there. Figures are processor time a streamed token, of
 * the whole process, and of the output thread and the engine thread (without its executor) alone. */
#include "chat/chat_int.h"

#include <stdio.h>
#include <time.h>

#define DEFAULT_CALLS 256
#define DEFAULT_TOKENS 256
#define ROUNDS 4

typedef struct stream {
    struct bench *owner;
    struct stream *next;
    bool changed;
    di_call *call;
} stream;

typedef struct bench {
    di_model *model;
    di_service *service;
    stream *streams; /* [n] */
    size_t n;
    pthread_mutex_t mutex;
    pthread_cond_t wakes;
    stream *changed;
} bench;

static void need(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        fprintf(stderr, "bench_chat: %s\n", err->message);
        exit(1);
    }
}

static int64_t cpu_of(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t cpu_of_thread(pthread_t thread)
{
    clockid_t clock;
    return pthread_getcpuclockid(thread, &clock) == 0 ? cpu_of(clock) : 0;
}

static void report(const char *name, const char *metric, double value)
{
    printf("{\"bench\":\"chat\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"us\",\"baseline\":null,\"ratio\":null}\n", name,
           metric, value);
    fflush(stdout);
}

static void wake(void *user)
{
    stream *const s = user;
    bench *const b = s->owner;
    pthread_mutex_lock(&b->mutex);
    if (!s->changed) {
        s->changed = true;
        s->next = b->changed;
        b->changed = s;
        pthread_cond_signal(&b->wakes);
    }
    pthread_mutex_unlock(&b->mutex);
}

static stream *next_changed(bench *b)
{
    pthread_mutex_lock(&b->mutex);
    while (b->changed == NULL) {
        pthread_cond_wait(&b->wakes, &b->mutex);
    }
    stream *const s = b->changed;
    b->changed = s->next;
    s->changed = false;
    pthread_mutex_unlock(&b->mutex);
    return s;
}

/* All streams of one round to their ends; returns the tokens. */
static int64_t run_round(bench *b, di_route route, const char *body)
{
    static char part[1 << 16];
    int64_t tokens = 0;
    size_t n_open = b->n;
    di_error err;
    for (size_t i = 0; i < b->n; i++) {
        const di_call_options o = {.route = route, .body = body, .n = strlen(body), .wake = wake, .user = &b->streams[i]};
        di_call *call = NULL;
        need(di_service_submit(b->service, &o, &call, &err), &err);
        pthread_mutex_lock(&b->mutex);
        b->streams[i].call = call;
        pthread_mutex_unlock(&b->mutex);
    }
    while (n_open > 0) {
        stream *const s = next_changed(b);
        di_call_info info;
        if (s->call == NULL) {
            continue;
        }
        di_call_get(s->call, &info);
        while (di_call_read(s->call, part, sizeof part) > 0) {
        }
        if (info.phase == DI_CALL_ENDED) {
            if (info.http_status != 200 || info.error != DI_OK) {
                fprintf(stderr, "bench_chat: status %d: %.200s\n", info.http_status, part);
                exit(1);
            }
            tokens += info.usage.completion_tokens;
            di_call_free(s->call);
            s->call = NULL;
            n_open--;
        }
    }
    return tokens;
}

static void run_route(bench *b, const char *name, di_route route, const char *body)
{
    double best[3] = {1e9, 1e9, 1e9};
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t process = cpu_of(CLOCK_PROCESS_CPUTIME_ID);
        const int64_t output = cpu_of_thread(b->service->output.thread);
        const int64_t engine = cpu_of_thread(b->service->engine_thread.thread);
        const double tokens = (double)run_round(b, route, body);
        const double costs[3] = {(double)(cpu_of(CLOCK_PROCESS_CPUTIME_ID) - process) / 1e3 / tokens,
                                 (double)(cpu_of_thread(b->service->output.thread) - output) / 1e3 / tokens,
                                 (double)(cpu_of_thread(b->service->engine_thread.thread) - engine) / 1e3 / tokens};
        for (int k = 0; k < 3; k++) {
            best[k] = costs[k] < best[k] ? costs[k] : best[k];
        }
    }
    report(name, "cpu_per_token", best[0]);
    report(name, "output_thread_per_token", best[1]);
    report(name, "engine_thread_per_token", best[2]);
}

int main(int argc, char **argv)
{
    bench b = {.n = argc > 1 ? strtoul(argv[1], NULL, 10) : DEFAULT_CALLS};
    const long tokens = argc > 2 ? strtol(argv[2], NULL, 10) : DEFAULT_TOKENS;
    char path[1024];
    char body[512];
    di_error err;
    const di_service_options options = {.engine = {.backend = "null", .kv_bytes = (int64_t)1 << 30}};
    need(di_model_default_path(path, sizeof path, &err), &err);
    need(di_model_open(path, NULL, &b.model, &err), &err);
    need(di_service_open(b.model, di_model_tokenizer(b.model), &options, &b.service, &err), &err);
    b.streams = ar_calloc(b.n, sizeof *b.streams);
    for (size_t i = 0; b.streams != NULL && i < b.n; i++) {
        b.streams[i].owner = &b;
    }
    pthread_mutex_init(&b.mutex, NULL);
    pthread_cond_init(&b.wakes, NULL);

    snprintf(body, sizeof body,
             "{\"model\":\"DeepSeek-V4.1-Flash\",\"stream\":true,\"thinking\":{\"type\":\"disabled\"},\"max_tokens\":%ld,"
             "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}", tokens);
    run_route(&b, "chat", DI_ROUTE_CHAT, body);
    run_route(&b, "messages", DI_ROUTE_MESSAGES, body);
    snprintf(body, sizeof body,
             "{\"model\":\"DeepSeek-V4.1-Flash\",\"stream\":true,\"reasoning\":{\"effort\":\"none\"},"
             "\"max_output_tokens\":%ld,\"input\":\"Hello\"}", tokens);
    run_route(&b, "responses", DI_ROUTE_RESPONSES, body);
    snprintf(body, sizeof body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"stream\":true,\"max_tokens\":%ld,\"prompt\":\"Hello\"}", tokens);
    run_route(&b, "completions", DI_ROUTE_COMPLETIONS, body);

    di_service_close(b.service);
    di_model_close(b.model);
    free(b.streams);
    pthread_cond_destroy(&b.wakes);
    pthread_mutex_destroy(&b.mutex);
    return 0;
}
