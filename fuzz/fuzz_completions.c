/* Fuzzes the bodies that chat/ reads by itself: completions, tokenize, detokenize. The first byte of an input chooses the route and the
 * tokens that answer a completion; the rest is the body.
 *
 * What is refused has a message of UTF-8 and a status of HTTP. An answer is JSON, or a stream of JSON texts that ends with [DONE], however
 * the tokens cut characters and stop strings. */
#include "chat/chat_int.h"

#include "core/utf8.h"

#include <stdio.h>

#define MAX_BYTES 4096u

static void require(bool truth)
{
    if (!truth) {
        abort();
    }
}

/* Opened by the first input and kept; none of its threads ever has work. */
static di_service *demo(void)
{
    static di_service *service;
    static di_model *model;
    if (service == NULL) {
        const di_service_options options = {.engine = {.backend = "null", .n_threads = 1, .kv_bytes = 16 << 20}};
        const char *const source = getenv("DI_SOURCE_DIR");
        char path[4096];
        di_error err;
        (void)snprintf(path, sizeof path, "%s/models/demo", source != NULL ? source : ".");
        if (di_model_open(path, NULL, &model, &err) != DI_OK ||
            di_service_open(model, di_model_tokenizer(model), &options, &service, &err) != DI_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
    }
    return service;
}

static void require_json(const char *text, size_t n)
{
    js_doc *doc = NULL;
    require(js_parse(text, n, "answer", NULL, &doc, NULL) == DI_OK);
    js_free(doc);
}

static void require_stream(const char *text, size_t n)
{
    static const char done[] = "[DONE]";
    bool ended = false;
    while (n > 0) {
        const char *const end = memmem(text, n, "\n\n", 2);
        require(!ended && end != NULL && memcmp(text, "data: ", 6) == 0);
        const size_t size = (size_t)(end - text) - 6;
        ended = size == sizeof done - 1 && memcmp(text + 6, done, size) == 0;
        if (!ended) {
            require_json(text + 6, size);
        }
        n -= size + 8;
        text = end + 2;
    }
    require(ended);
}

/* Tokens of bytes of the input: all kinds of them, fragments of characters too. */
static void push_tokens(di_call *c, int32_t choice, unsigned seed, const uint8_t *data, size_t size, buf *stream)
{
    const char *text;
    size_t n;
    di_error err;
    const int32_t vocabulary = di_tokenizer_vocab_size(c->service->tokenizer);
    for (size_t i = 0; i < size && i < 64; i++) {
        const int32_t id = (int32_t)(data[i] * 13u * seed + data[(i + 1) % size]) % vocabulary;
        const di_token_logprob top[2] = {{.id = (id + 1) % vocabulary, .logprob = -1.0f}, {.id = id, .logprob = -2.0f}};
        const di_token_logprobs token = {.id = id, .logprob = -2.0f, .n_top = 2, .top = top};
        require(c->writer_fns->push(c->writer, choice, &token, c->logprobs, &err) == DI_OK);
        if (c->stream) {
            require(c->writer_fns->frames(c->writer, &text, &n, &err) == DI_OK && buf_append(stream, text, n));
        }
    }
    require(c->writer_fns->finish(c->writer, choice, DI_FINISH_LENGTH, &err) == DI_OK);
    if (c->stream) {
        require(c->writer_fns->frames(c->writer, &text, &n, &err) == DI_OK && buf_append(stream, text, n));
    }
}

static void check_completion(di_call *c, bool done, unsigned seed, const uint8_t *data, size_t size)
{
    const char *text = c->staged.data;
    size_t n = c->staged.size;
    di_error err;
    buf stream;
    buf_init(&stream, SIZE_MAX);
    require(c->n_tasks > 0 && c->n_choices > 0 && c->n_choices <= CHAT_MAX_CHOICES);
    for (size_t i = 0; i < c->n_tasks; i++) {
        require(c->tasks[i].prompt != NULL && c->tasks[i].n_prompt > 0);
    }
    for (int32_t i = 0; !done && i < c->n_choices; i++) {
        push_tokens(c, i, seed + (unsigned)i, data, size, &stream);
    }
    if (!done && c->stream) {
        text = stream.data;
        n = stream.size;
    } else if (!done) {
        require(c->writer_fns->body(c->writer, &text, &n, &err) == DI_OK);
    }
    if (c->stream) {
        require_stream(text, n);
    } else {
        require_json(text, n);
    }
    buf_fini(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const di_route routes[] = {DI_ROUTE_COMPLETIONS, DI_ROUTE_COMPLETIONS, DI_ROUTE_TOKENIZE, DI_ROUTE_DETOKENIZE};
    if (size < 2 || size > MAX_BYTES) {
        return 0;
    }
    const di_call_options options = {.route = routes[data[0] % 4], .body = (const char *)data + 1, .n = size - 1, .id = "cmpl-1"};
    chat_scratch scratch = {.ids = NULL};
    di_call *c = NULL;
    di_error err;
    bool done = false;
    require(chat_call_new(demo(), &options, &c, &err) == DI_OK);
    const di_status status = options.route == DI_ROUTE_COMPLETIONS ? chat_prepare_completions(c, &scratch, &done, &err)
                             : options.route == DI_ROUTE_TOKENIZE  ? chat_tokenize(c, &scratch, &err)
                                                                   : chat_detokenize(c, &scratch, &err);
    if (status != DI_OK) {
        chat_failure failure = chat_fail_status(status, &err);
        require(failure.http_status == 400 || failure.http_status == 413);
        require(utf8_valid_prefix((const uint8_t *)err.message, strlen(err.message)) == strlen(err.message));
        chat_failure_fini(&failure);
    } else if (options.route == DI_ROUTE_COMPLETIONS) {
        /* prompts by the thousand would make one input slow */
        if (c->n_choices <= 32) {
            check_completion(c, done, data[0], data, size);
        }
    } else {
        require_json(c->staged.data, c->staged.size);
    }
    free(scratch.ids);
    chat_call_discard(c);
    return 0;
}
