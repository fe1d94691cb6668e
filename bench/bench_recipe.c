/* bench_recipe.c - speed of the conversation layer, one JSON line a figure.
 *
 *   bench_recipe [prompt REQUESTS.jsonl | events REQUEST.json OUTPUT.txt]
 *
 * prompt: every line of the file is a Chat body; the first one warms up, and each other is read, rendered and encoded once, so that
 * no text is seen twice. events: the text is encoded with its control tokens, and the ids are pushed one at a time into a reply
 * whose events are taken at once. Without arguments the files in build/bench-recipe are taken, which bench_recipe.py makes; it also
 * runs the official package on them and fills in the ratios. The tokenizer is DI_TOKENIZERS/v41_recipe.json, else the one in
 * build/tokenizers, else the demo model's. Times are processor time of the process, all on one thread. */
#include "core/file.h"
#include "order.h"
#include "recipe/rec_int.h"

#include <deepinfer/recipe.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_BYTES ((size_t)1 << 30)
#define FOLDER "build/bench-recipe/"
#define REPEATS 5

typedef struct bench {
    di_tokenizer *tokenizer;
    di_recipe *recipe;
} bench;

static void report(const char *name, const char *metric, double value, const char *unit)
{
    printf("{\"bench\":\"recipe\",\"case\":\"%s\",\"metric\":\"%s\",\"value\":%.9g,\"unit\":\"%s\",\"baseline\":null,\"ratio\":null}\n",
           name, metric, value, unit);
    fflush(stdout);
}

static int64_t cpu_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void need(di_status status, const di_error *err)
{
    if (status != DI_OK) {
        fprintf(stderr, "bench_recipe: %s\n", err->message);
        exit(1);
    }
}

static char *read_all(const char *path, size_t *n)
{
    char *text = NULL;
    di_error err;
    need(file_read(path, MAX_BYTES, &text, n, &err), &err);
    return text;
}

/* ---- prompts ---- */

typedef struct prompt_times {
    int64_t request_ns; /* body to ids */
    int64_t render_ns;  /* conversation to ids: what the official package calls encoding */
    size_t bytes;       /* of the prompts */
    size_t ids;
} prompt_times;

static void render_again(di_request *r)
{
    buf_fini(&r->prompt);
    free(r->ranges);
    free(r->markers);
    r->ranges = NULL;
    r->markers = NULL;
    r->n_ranges = 0;
    r->n_images = 0;
    di_error err;
    need(rec_render(r, &err), &err);
}

/* Each path gets a tokenizer of its own, because a tokenizer is faster on text that it has met. */
static void time_prompt(const bench *whole, const bench *part, const char *body, size_t size, int32_t *ids, size_t capacity,
                        prompt_times *times)
{
    di_request *request = NULL;
    size_t n_ids;
    size_t bytes;
    di_error err;
    int64_t start = cpu_now_ns();
    need(di_request_read(whole->recipe, DI_CHAT, body, size, &request, &err), &err);
    need(di_request_encode(request, 1, ids, capacity, &n_ids, &err), &err);
    times->request_ns += cpu_now_ns() - start;
    (void)di_request_prompt(request, &bytes);
    times->bytes += bytes;
    times->ids += n_ids;
    di_request_free(request);
    need(di_request_read(part->recipe, DI_CHAT, body, size, &request, &err), &err);
    start = cpu_now_ns();
    render_again(request);
    need(di_request_encode(request, 1, ids, capacity, &n_ids, &err), &err);
    times->render_ns += cpu_now_ns() - start;
    di_request_free(request);
}

static double mb_per_s(size_t bytes, int64_t ns)
{
    return (double)bytes * 1e3 / (double)(ns > 0 ? ns : 1);
}

static void bench_prompts(const bench *whole, const bench *part, const char *path, const char *name)
{
    size_t n;
    char *const text = read_all(path, &n);
    int32_t *const ids = calloc(n + 1, sizeof *ids);
    prompt_times times = {.bytes = 0};
    int line = 0;
    if (ids == NULL) {
        exit(1);
    }
    memset(ids, 0, (n + 1) * sizeof *ids); /* the pages of the output are not what is measured */
    for (const char *p = text; p < text + n; line++) {
        const char *const end = memchr(p, '\n', (size_t)(text + n - p));
        const size_t size = end != NULL ? (size_t)(end - p) : (size_t)(text + n - p);
        prompt_times warm_up = {.bytes = 0};
        time_prompt(whole, part, p, size, ids, n, line == 0 ? &warm_up : &times);
        p += size + 1;
    }
    report(name, "request_to_ids", mb_per_s(times.bytes, times.request_ns), "MB/s");
    report(name, "render_encode", mb_per_s(times.bytes, times.render_ns), "MB/s");
    report(name, "ids", (double)times.ids, "ids");
    report(name, "bytes", (double)times.bytes, "bytes");
    free(ids);
    free(text);
}

/* ---- events ---- */

static size_t take_events(di_reply *reply, int *n_events)
{
    di_event event;
    size_t bytes = 0;
    while (di_reply_next_event(reply, &event)) {
        bytes += event.size;
        (*n_events)++;
    }
    return bytes;
}

static int64_t time_reply(const bench *b, const di_request *request, const int32_t *ids, size_t n, size_t *bytes, int *n_events)
{
    const di_reply_options options = {.id = "R", .fingerprint = "fp"};
    di_reply *reply = NULL;
    di_error err;
    const int64_t start = cpu_now_ns();
    need(di_reply_new(b->recipe, request, &options, &reply, &err), &err);
    need(di_reply_ready(reply, 4, 0, &err), &err);
    for (size_t i = 0; i < n; i++) {
        need(di_reply_push_ids(reply, 0, ids + i, 1, NULL, &err), &err);
        *bytes += take_events(reply, n_events);
    }
    need(di_reply_finish(reply, 0, DI_FINISH_STOP, &err), &err);
    *bytes += take_events(reply, n_events);
    di_reply_free(reply);
    return cpu_now_ns() - start;
}

static void bench_events(const bench *b, const char *request_path, const char *output_path)
{
    size_t n_body;
    size_t n_text;
    size_t n_ids;
    char *const body = read_all(request_path, &n_body);
    char *const text = read_all(output_path, &n_text);
    int32_t *const ids = calloc(n_text + 1, sizeof *ids);
    di_request *request = NULL;
    di_error err;
    int64_t times[REPEATS];
    if (ids == NULL) {
        exit(1);
    }
    need(di_request_read(b->recipe, DI_CHAT, body, n_body, &request, &err), &err);
    need(di_tokenizer_encode(b->tokenizer, text, n_text, DI_ENCODE_SPECIAL, ids, n_text, &n_ids, &err), &err);
    size_t bytes = 0;
    int n_events = 0;
    for (int i = 0; i < REPEATS; i++) {
        bytes = 0;
        n_events = 0;
        times[i] = time_reply(b, request, ids, n_ids, &bytes, &n_events);
    }
    qsort(times, REPEATS, sizeof *times, bench_by_int64);
    report("stream", "token_to_events", (double)times[REPEATS / 2] / 1e3 / (double)n_ids, "\xC2\xB5s");
    report("stream", "ids", (double)n_ids, "ids");
    report("stream", "events", (double)n_events, "events");
    report("stream", "event_bytes", (double)bytes, "bytes");
    di_request_free(request);
    free(ids);
    free(text);
    free(body);
}

static bench open_bench(void)
{
    const char *const folder = getenv("DI_TOKENIZERS");
    char *path = file_path_join(folder != NULL ? folder : "build/tokenizers", "v41_recipe.json");
    if (path == NULL || !file_exists(path)) {
        free(path);
        path = file_path_join("models/demo", "tokenizer.json");
    }
    bench b = {.recipe = NULL};
    di_error err;
    need(di_tokenizer_open(path, &b.tokenizer, &err), &err);
    need(di_recipe_open(b.tokenizer, NULL, &b.recipe, &err), &err);
    free(path);
    return b;
}

static void close_bench(bench *b)
{
    di_recipe_close(b->recipe);
    di_tokenizer_close(b->tokenizer);
}

static void bench_prompt_file(const char *path, const char *name)
{
    bench whole = open_bench();
    bench part = open_bench();
    bench_prompts(&whole, &part, path, name);
    close_bench(&whole);
    close_bench(&part);
}

int main(int argc, char **argv)
{
    static const char *const cases[] = {"english_code", "chinese"};
    if (argc == 3 && strcmp(argv[1], "prompt") == 0) {
        bench_prompt_file(argv[2], "prompt");
    } else if (argc == 4 && strcmp(argv[1], "events") == 0) {
        bench b = open_bench();
        bench_events(&b, argv[2], argv[3]);
        close_bench(&b);
    } else if (argc == 1) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            char path[128];
            (void)snprintf(path, sizeof path, FOLDER "%s.jsonl", cases[i]);
            if (file_exists(path)) {
                bench_prompt_file(path, cases[i]);
            }
        }
    } else {
        fprintf(stderr, "usage: bench_recipe [prompt REQUESTS.jsonl | events REQUEST.json OUTPUT.txt]\n");
        return 2;
    }
    return 0;
}
