/* parse_input.c - see parse_input.h. */
#include "parse_input.h"

#include "core/core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINE_BYTES ((size_t)1 << 30)
#define READ_BYTES 65536

static const char *const finish_names[] = {
    [DI_FINISH_NONE] = "",
    [DI_FINISH_STOP] = "stop",
    [DI_FINISH_LENGTH] = "length",
    [DI_FINISH_FILTER] = "content_filter",
    [DI_FINISH_STOP_STRING] = "stop_string",
    [DI_FINISH_TOOL_CALLS] = "tool_calls",
    [DI_FINISH_CUT] = "cut",
};

const char *parse_finish_name(di_finish finish)
{
    return finish_names[finish];
}

/* --- Pieces -------------------------------------------------------------------------------------------------------------- */

/* The prompt's length is known when there is a request and a tokenizer; a "ready" line says it otherwise. */
static di_status start(parse_sink *s, int64_t prompt_tokens, int64_t cached_tokens, di_error *err)
{
    s->started = true;
    return s->reply != NULL ? di_reply_ready(s->reply, prompt_tokens, cached_tokens, err) : DI_OK;
}

static di_status start_unless_started(parse_sink *s, di_error *err)
{
    size_t n = 0;
    if (s->started || s->request == NULL || !s->has_tokenizer) {
        s->started = true;
        return DI_OK;
    }
    const di_status status = di_request_encode(s->request, 0, NULL, 0, &n, err);
    return status == DI_OK ? start(s, (int64_t)n, 0, err) : status;
}

static di_status push_text(parse_sink *s, int32_t choice, const char *text, size_t n, di_error *err)
{
    di_status status = start_unless_started(s, err);
    if (status != DI_OK) {
        return status;
    }
    return s->output != NULL ? di_output_push_text(s->output, text, n, 1, err) : di_reply_push_text(s->reply, choice, text, n, 1, err);
}

di_status parse_finish(parse_sink *s, int32_t choice, di_finish reason, di_error *err)
{
    di_status status = start_unless_started(s, err);
    const di_finish before = s->output != NULL ? di_output_finished(s->output) : di_reply_finished(s->reply, choice);
    if (status != DI_OK || before != DI_FINISH_NONE) {
        return status; /* a stop string has ended the answer */
    }
    return s->output != NULL ? di_output_finish(s->output, reason, err) : di_reply_finish(s->reply, choice, reason, err);
}

static di_status read_id(const js_value *value, int32_t *id, di_error *err)
{
    const int64_t number = js_int(value);
    if (js_kind_of(value) != JS_INT || number < 0 || number > INT32_MAX) {
        return err_set(err, DI_E_FORMAT, "a token id is a whole number from 0 to 2147483647");
    }
    *id = (int32_t)number;
    return DI_OK;
}

/* [[logprob, [[id, logprob], ...]], ...], one for each id. */
static di_status read_logprobs(const js_value *list, const int32_t *ids, size_t n, di_token_logprobs *out, di_token_logprob *top,
                               di_error *err)
{
    if (js_length(list) != n) {
        return err_set(err, DI_E_FORMAT, "logprobs: %zu entries for %zu ids", js_length(list), n);
    }
    for (size_t i = 0; i < n; i++) {
        const js_value *likely = js_at(js_at(list, i), 1);
        const size_t n_top = js_length(likely);
        if (n_top > DI_MAX_TOP_LOGPROBS) {
            return err_set(err, DI_E_FORMAT, "logprobs[%zu]: more than %d tokens", i, DI_MAX_TOP_LOGPROBS);
        }
        const float logprob = (float)js_number(js_at(js_at(list, i), 0));
        out[i] = (di_token_logprobs){.id = ids[i], .logprob = logprob, .n_top = (int32_t)n_top, .top = top};
        for (size_t k = 0; k < n_top; k++) {
            const di_status status = read_id(js_at(js_at(likely, k), 0), &top->id, err);
            if (status != DI_OK) {
                return status;
            }
            top->logprob = (float)js_number(js_at(js_at(likely, k), 1));
            top++;
        }
    }
    return DI_OK;
}

/* Numbers of [id, logprob] pairs of all entries together. */
static size_t count_top(const js_value *logprobs)
{
    size_t n = 0;
    for (size_t i = 0; i < js_length(logprobs); i++) {
        n += js_length(js_at(js_at(logprobs, i), 1));
    }
    return n;
}

static di_status push_with_logprobs(parse_sink *s, int32_t choice, const int32_t *ids, size_t n, const js_value *logprobs, di_error *err)
{
    di_token_logprobs *entries = ar_calloc(n + 1, sizeof *entries);
    di_token_logprob *top = ar_calloc(count_top(logprobs) + 1, sizeof *top);
    di_status status = entries != NULL && top != NULL ? DI_OK : err_memory(err, "logprobs", n * sizeof *entries);
    if (status == DI_OK) {
        status = read_logprobs(logprobs, ids, n, entries, top, err);
    }
    if (status == DI_OK) {
        status = s->output != NULL ? di_output_push_ids(s->output, ids, n, entries, err)
                                   : di_reply_push_ids(s->reply, choice, ids, n, entries, err);
    }
    free(entries);
    free(top);
    return status;
}

static di_status push_ids(parse_sink *s, int32_t choice, const js_value *list, const js_value *logprobs, di_error *err)
{
    const size_t n = js_length(list);
    int32_t *ids = ar_calloc(n + 1, sizeof *ids);
    di_status status = ids != NULL ? start_unless_started(s, err) : err_memory(err, "token ids", n * sizeof *ids);
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        status = read_id(js_at(list, i), &ids[i], err);
    }
    if (status == DI_OK && js_kind_of(logprobs) == JS_ARRAY) {
        status = push_with_logprobs(s, choice, ids, n, logprobs, err);
    } else if (status == DI_OK) {
        status = s->output != NULL ? di_output_push_ids(s->output, ids, n, NULL, err)
                                   : di_reply_push_ids(s->reply, choice, ids, n, NULL, err);
    }
    free(ids);
    return status;
}

static di_status finish_by_name(parse_sink *s, int32_t choice, const js_value *name, di_error *err)
{
    static const di_finish reasons[] = {DI_FINISH_STOP, DI_FINISH_LENGTH, DI_FINISH_FILTER};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (strcmp(js_string(name, NULL), finish_names[reasons[i]]) == 0) {
            return parse_finish(s, choice, reasons[i], err);
        }
    }
    return err_set(err, DI_E_FORMAT, "finish is \"stop\", \"length\" or \"content_filter\"");
}

static di_status take_object(parse_sink *s, const js_value *object, di_error *err)
{
    const js_value *ready = js_get(object, "ready");
    const int64_t choice = js_int(js_get(object, "choice"));
    size_t n;
    if (choice < 0 || choice >= s->n_choices) {
        return err_set(err, DI_E_FORMAT, "choice %" PRId64 ": there are %" PRId32, choice, s->n_choices);
    }
    if (ready != NULL) {
        return start(s, js_int(js_at(ready, 0)), js_int(js_at(ready, 1)), err);
    }
    if (js_get(object, "finish") != NULL) {
        return finish_by_name(s, (int32_t)choice, js_get(object, "finish"), err);
    }
    if (js_kind_of(js_get(object, "ids")) == JS_ARRAY) {
        return push_ids(s, (int32_t)choice, js_get(object, "ids"), js_get(object, "logprobs"), err);
    }
    if (js_kind_of(js_get(object, "text")) == JS_STRING) {
        const char *text = js_string(js_get(object, "text"), &n);
        return push_text(s, (int32_t)choice, text, n, err);
    }
    return err_set(err, DI_E_FORMAT, "an object has \"text\", \"ids\", \"ready\" or \"finish\"");
}

static di_status take_line(parse_sink *s, const char *line, size_t size, di_error *err)
{
    js_doc *doc = NULL;
    di_status status = js_parse(line, size, "input", NULL, &doc, err);
    if (status != DI_OK) {
        return status;
    }
    const js_value *value = js_root(doc);
    size_t n;
    switch (js_kind_of(value)) {
    case JS_STRING: {
        const char *text = js_string(value, &n);
        status = push_text(s, 0, text, n, err);
        break;
    }
    case JS_ARRAY:
        status = push_ids(s, 0, value, NULL, err);
        break;
    case JS_OBJECT:
        status = take_object(s, value, err);
        break;
    default:
        status = err_set(err, DI_E_FORMAT, "expected a string, an array of ids or an object");
        break;
    }
    js_free(doc);
    return status == DI_OK ? s->drain(s->user, err) : status;
}

di_status parse_lines(parse_sink *s, di_error *err)
{
    char *line = NULL;
    size_t capacity = 0;
    di_status status = DI_OK;
    for (size_t number = 1; status == DI_OK; number++) {
        const ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0) {
            status = ferror(stdin) ? err_set(err, DI_E_IO, "standard input: read failed") : DI_OK;
            break;
        }
        if (strspn(line, " \t\r\n") == (size_t)n) {
            continue;
        }
        status = (size_t)n > MAX_LINE_BYTES ? err_set(err, DI_E_LIMIT, "over 1 GiB") : take_line(s, line, (size_t)n, err);
        if (status != DI_OK) {
            err_prefix(err, "line %zu", number);
        }
    }
    free(line);
    return status;
}

di_status parse_text(parse_sink *s, di_error *err)
{
    char text[READ_BYTES];
    for (;;) {
        const ssize_t n = read(STDIN_FILENO, text, sizeof text);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? err_set_errno(err, errno, "standard input") : DI_OK;
        }
        di_status status = push_text(s, 0, text, (size_t)n, err);
        if (status == DI_OK) {
            status = s->drain(s->user, err);
        }
        if (status != DI_OK) {
            return status;
        }
    }
}
