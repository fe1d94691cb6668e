/* chat_completions_reply.c - tokens to the texts, chunks and bodies of POST /v1/completions (chat_completions.h).
 *
 * ids -> di_detokenizer (holds back incomplete characters) -> di_stop (holds back what may become a stop string) -> text given out.
 * The frame around a text is made once; only index, text and log-probabilities are written for each token. */
#include "chat/chat_completions.h"

#include <stdio.h>

typedef struct completion_choice {
    di_detokenizer *decoder;
    di_stop *stop;       /* NULL: there are no stop strings */
    buf text;            /* of an answer in one piece: all of it */
    buf ids;             /* JSON, with a comma in front of each; with token_ids */
    int64_t n_decoded;   /* characters that came out of the decoder */
    int64_t n_given;     /* characters given out, without an echo */
    bool begun;          /* the echo has been given */
    di_finish finish;
    chat_logprobs logprobs;
} completion_choice;

struct chat_completion {
    chat_completion_options options; /* stops are not kept */
    completion_choice *choices;      /* [n_choices] */
    int32_t n_choices;
    int32_t n_finished;
    buf *prompts;  /* [n_prompts] with echo */
    di_usage usage;
    bool failed;
    bool broken;   /* memory has ended in a buffer */
    buf head;      /* of a frame, up to the index of its choice */
    buf frames;    /* what nobody has taken */
    buf body;
};

/* --- Making ---------------------------------------------------------------------------------------------------------------------- */

static void free_writer(void *writer)
{
    chat_completion *const w = writer;
    for (int32_t i = 0; i < w->n_choices; i++) {
        completion_choice *const c = &w->choices[i];
        di_detokenizer_free(c->decoder);
        di_stop_free(c->stop);
        buf_fini(&c->text);
        buf_fini(&c->ids);
        chat_logprobs_fini(&c->logprobs);
    }
    for (int32_t i = 0; w->prompts != NULL && i < w->options.n_prompts; i++) {
        buf_fini(&w->prompts[i]);
    }
    free(w->choices);
    free(w->prompts);
    buf_fini(&w->head);
    buf_fini(&w->frames);
    buf_fini(&w->body);
    free(w);
}

static void put_head(const chat_completion *w, buf *out)
{
    const chat_completion_options *const o = &w->options;
    buf_puts(out, "{\"id\":");
    buf_json_string(out, o->id, strlen(o->id));
    buf_printf(out, ",\"object\":\"text_completion\",\"created\":%lld,\"model\":", (long long)o->created);
    buf_json_string(out, o->model, strlen(o->model));
    buf_puts(out, ",\"choices\":[");
}

static di_status open_choice(const chat_completion_options *o, completion_choice *c, di_error *err)
{
    buf_init(&c->text, SIZE_MAX);
    buf_init(&c->ids, SIZE_MAX);
    chat_logprobs_init(&c->logprobs);
    const di_status status = di_detokenizer_new(o->tokenizer, DI_DECODE_SKIP_SPECIAL, &c->decoder, err);
    if (status != DI_OK || o->n_stops == 0) {
        return status;
    }
    return di_stop_new(o->stops, o->stop_sizes, o->n_stops, &c->stop, err);
}

static di_status open_writer(chat_completion *w, di_error *err)
{
    const int32_t n = w->options.n_prompts * w->options.n; /* at most CHAT_MAX_CHOICES */
    w->choices = ar_calloc((size_t)n, sizeof *w->choices);
    w->prompts = w->options.echo ? ar_calloc((size_t)w->options.n_prompts, sizeof *w->prompts) : NULL;
    if (w->choices == NULL || (w->options.echo && w->prompts == NULL)) {
        return err_memory(err, "choices of a completion", (size_t)n * sizeof *w->choices);
    }
    di_status status = DI_OK;
    for (; w->n_choices < n && status == DI_OK; w->n_choices++) {
        status = open_choice(&w->options, &w->choices[w->n_choices], err);
    }
    put_head(w, &w->head);
    if (status == DI_OK && w->head.failed) {
        status = err_memory(err, "frame of a completion", w->head.capacity);
    }
    return status;
}

di_status chat_completion_new(const chat_completion_options *options, chat_completion **out, di_error *err)
{
    chat_completion *const w = ar_calloc(1, sizeof *w);
    if (w == NULL) {
        return err_memory(err, "completion", sizeof *w);
    }
    w->options = *options;
    buf_init(&w->head, SIZE_MAX);
    buf_init(&w->frames, SIZE_MAX);
    buf_init(&w->body, SIZE_MAX);
    const di_status status = open_writer(w, err);
    w->options.stops = NULL;
    if (status != DI_OK) {
        free_writer(w);
        return status;
    }
    *out = w;
    return DI_OK;
}

di_status chat_completion_set_prompt(chat_completion *w, int32_t prompt, const char *text, size_t n, di_error *err)
{
    buf_init(&w->prompts[prompt], SIZE_MAX);
    return buf_append(&w->prompts[prompt], text, n) ? DI_OK : err_memory(err, "echo of a prompt", n);
}

/* --- Chunks ---------------------------------------------------------------------------------------------------------------------- */

static int64_t count_chars(const char *text, size_t n)
{
    int64_t chars = 0;
    for (size_t i = 0; i < n; i++) {
        chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    return chars;
}

static const char *reason_name(di_finish finish)
{
    return finish == DI_FINISH_NONE ? "null" : finish == DI_FINISH_LENGTH ? "\"length\"" : "\"stop\"";
}

static void put_usage(const chat_completion *w, buf *out)
{
    const di_usage *const u = &w->usage;
    buf_printf(out,
               "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
               (long long)u->prompt_tokens, (long long)u->completion_tokens, (long long)(u->prompt_tokens + u->completion_tokens),
               (long long)u->cached_tokens);
}

/* Behind the text of a choice. */
static void put_rest(const chat_completion *w, completion_choice *c, buf *out)
{
    buf_puts(out, ",\"logprobs\":");
    if (w->options.logprobs < 0) {
        buf_puts(out, "null");
    } else {
        chat_logprobs_write(&c->logprobs, out);
        chat_logprobs_clear(&c->logprobs);
    }
    buf_puts(out, ",\"finish_reason\":");
    buf_puts(out, reason_name(c->finish));
    if (w->options.token_ids) {
        buf_puts(out, ",\"token_ids\":[");
        if (c->ids.size > 0) {
            buf_append(out, c->ids.data + 1, c->ids.size - 1);
        }
        buf_puts(out, "]");
        buf_clear(&c->ids);
    }
    buf_puts(out, "}");
}

static void put_chunk(chat_completion *w, completion_choice *c, const char *text, size_t n)
{
    buf *const out = &w->frames;
    char index[32];
    const int length = snprintf(index, sizeof index, "{\"index\":%d,\"text\":", (int)(c - w->choices));
    buf_append(out, "data: ", 6);
    buf_append(out, w->head.data, w->head.size);
    buf_append(out, index, (size_t)length);
    buf_json_string(out, text, n);
    put_rest(w, c, out);
    buf_puts(out, w->options.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static void put_end(chat_completion *w)
{
    buf *const out = &w->frames;
    if (w->options.include_usage) {
        buf_append(out, "data: ", 6);
        buf_append(out, w->head.data, w->head.size);
        buf_puts(out, "],");
        put_usage(w, out);
        buf_puts(out, "}\n\n");
    }
    buf_puts(out, "data: [DONE]\n\n");
}

/* --- Text ------------------------------------------------------------------------------------------------------------------------- */

static void begin(chat_completion *w, completion_choice *c)
{
    if (c->begun) {
        return;
    }
    c->begun = true;
    if (w->options.echo) {
        const buf *const prompt = &w->prompts[(c - w->choices) / w->options.n];
        if (w->options.stream) {
            put_chunk(w, c, prompt->data, prompt->size);
        } else {
            buf_append(&c->text, prompt->data, prompt->size);
        }
    }
}

/* Text that is final. A chunk that shows something of its token is written even without text. */
static void give(chat_completion *w, completion_choice *c, const char *text, size_t n)
{
    c->n_given += count_chars(text, n);
    if (w->options.logprobs >= 0 && !chat_logprobs_release(&c->logprobs, c->n_given)) {
        w->broken = true;
    }
    if (!w->options.stream) {
        buf_append(&c->text, text, n);
    } else if (n > 0 || c->finish != DI_FINISH_NONE || w->options.token_ids || c->logprobs.given[0].size > 0) {
        put_chunk(w, c, text, n);
    }
}

/* Ends a choice with its last text. */
static void end_choice(chat_completion *w, completion_choice *c, di_finish reason, const char *text, size_t n)
{
    c->finish = reason;
    give(w, c, text, n);
    w->n_finished++;
    if (w->n_finished == w->n_choices && w->options.stream) {
        put_end(w);
    }
}

static di_status settle(chat_completion *w, const completion_choice *c, di_status status, di_error *err)
{
    if (status == DI_OK && (w->broken || w->frames.failed || c->text.failed || c->ids.failed)) {
        status = err_memory(err, "text of a completion", w->frames.capacity);
    }
    w->broken |= status != DI_OK;
    return status;
}

/* Through the stop strings. */
static di_status take_text(chat_completion *w, completion_choice *c, const char *text, size_t n, di_error *err)
{
    if (c->stop == NULL) {
        give(w, c, text, n);
        return DI_OK;
    }
    const char *out;
    size_t n_out;
    const di_status status = di_stop_push(c->stop, text, n, &out, &n_out, err);
    if (status == DI_OK && di_stop_matched(c->stop) >= 0) {
        end_choice(w, c, DI_FINISH_STOP_STRING, out, n_out);
    } else if (status == DI_OK) {
        give(w, c, out, n_out);
    }
    return status;
}

static bool is_over(const chat_completion *w, const completion_choice *c)
{
    return w->failed || w->broken || c->finish != DI_FINISH_NONE;
}

static di_status push(void *writer, int32_t choice, const di_token_logprobs *token, bool logprobs, di_error *err)
{
    chat_completion *const w = writer;
    completion_choice *const c = &w->choices[choice];
    const char *text;
    size_t n;
    if (is_over(w, c)) {
        return DI_OK;
    }
    begin(w, c);
    w->usage.completion_tokens++;
    if (logprobs && !chat_logprobs_add(&c->logprobs, w->options.tokenizer, token, c->n_decoded)) {
        w->broken = true;
    }
    if (w->options.token_ids) {
        buf_printf(&c->ids, ",%d", (int)token->id);
    }
    di_status status = di_detokenizer_push(c->decoder, token->id, &text, &n, err);
    if (status == DI_OK) {
        c->n_decoded += count_chars(text, n);
        status = take_text(w, c, text, n, err);
    }
    return settle(w, c, status, err);
}

static di_status finish(void *writer, int32_t choice, di_finish reason, di_error *err)
{
    chat_completion *const w = writer;
    completion_choice *const c = &w->choices[choice];
    const char *text;
    const char *held = "";
    size_t n;
    size_t n_held = 0;
    if (is_over(w, c)) {
        return DI_OK;
    }
    begin(w, c);
    di_status status = di_detokenizer_finish(c->decoder, &text, &n, err);
    if (status == DI_OK && n > 0) {
        c->n_decoded += count_chars(text, n);
        status = take_text(w, c, text, n, err);
    }
    if (status == DI_OK && c->stop != NULL && c->finish == DI_FINISH_NONE) {
        status = di_stop_finish(c->stop, &held, &n_held, err);
    }
    if (status == DI_OK && c->finish == DI_FINISH_NONE) {
        end_choice(w, c, reason, held, n_held);
    }
    return settle(w, c, status, err);
}

/* --- The rest of the writer ---------------------------------------------------------------------------------------------------------- */

static di_status ready(void *writer, int64_t prompt_tokens, int64_t cached_tokens, di_error *err)
{
    chat_completion *const w = writer;
    (void)err;
    w->usage.prompt_tokens += prompt_tokens;
    w->usage.cached_tokens += cached_tokens;
    return DI_OK;
}

static di_finish finished(const void *writer, int32_t choice)
{
    const chat_completion *const w = writer;
    return w->failed ? DI_FINISH_CUT : w->choices[choice].finish;
}

/* No [DONE] behind it. */
static di_status fail(void *writer, int http_status, const char *message, di_error *err)
{
    chat_completion *const w = writer;
    w->failed = true;
    buf_clear(&w->frames);
    buf_puts(&w->frames, "data: ");
    chat_error_body(DI_ROUTE_COMPLETIONS, http_status, message, NULL, &w->frames);
    buf_puts(&w->frames, "\n\n");
    w->broken = w->frames.failed;
    return w->broken ? err_memory(err, "error of a completion", w->frames.capacity) : DI_OK;
}

static di_status frames(void *writer, const char **out, size_t *n, di_error *err)
{
    chat_completion *const w = writer;
    if (w->broken) {
        return err_set(err, DI_E_MEMORY, "the completion ran out of memory");
    }
    *out = w->frames.data;
    *n = w->frames.size;
    w->frames.size = 0; /* the bytes stay until the next call */
    return DI_OK;
}

static di_status body(void *writer, const char **out, size_t *n, di_error *err)
{
    chat_completion *const w = writer;
    buf *const b = &w->body;
    buf_clear(b);
    buf_append(b, w->head.data, w->head.size);
    for (int32_t i = 0; i < w->n_choices; i++) {
        completion_choice *const c = &w->choices[i];
        buf_printf(b, "%s{\"index\":%d,\"text\":", i > 0 ? "," : "", (int)i);
        buf_json_string(b, c->text.size > 0 ? c->text.data : "", c->text.size);
        put_rest(w, c, b);
    }
    buf_puts(b, "],");
    put_usage(w, b);
    buf_puts(b, "}");
    *out = b->data;
    *n = b->size;
    return b->failed ? err_memory(err, "response", b->capacity) : DI_OK;
}

static void usage(const void *writer, di_usage *out)
{
    *out = ((const chat_completion *)writer)->usage;
}

const chat_writer chat_completion_writer = {
    .ready = ready,
    .push = push,
    .finish = finish,
    .finished = finished,
    .fail = fail,
    .frames = frames,
    .body = body,
    .usage = usage,
    .free = free_writer,
};
