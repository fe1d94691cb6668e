/* chat_completions.c - bodies of POST /v1/completions: fields, prompts, and the call that comes of them.
 *
 * The fields of OpenAI's API, and of vLLM's additions those that sampling here knows. Unknown fields are ignored, known ones are strict:
 * a wrong type or value is an error that begins with the field's name. Nothing of the body is kept but copies. */
#include "chat/chat_cache.h"
#include "chat/chat_completions_read.h"
#include "chat/chat_fields.h"

#include <stdio.h>

#define DEFAULT_MAX_TOKENS 16
#define MAX_LOGPROBS 5

/* --- Fields ------------------------------------------------------------------------------------------------------------------------ */

static di_status read_model(chat_reading *r, di_error *err)
{
    const char *name = NULL;
    size_t n = 0;
    const di_status status = chat_get_string(r->body, "model", &name, &n, err);
    if (status != DI_OK) {
        return status;
    }
    return name != NULL ? chat_check_model(r->call->service, name, n, err) : err_set(err, DI_E_ARGUMENT, "model: missing field");
}

static di_status read_counts(chat_reading *r, di_error *err)
{
    int64_t best_of = -1;
    int64_t logprobs = -1;
    di_status status = chat_get_int(r->body, "n", 1, DI_MAX_CHOICES, &r->n, err);
    if (status == DI_OK) {
        status = chat_get_int(r->body, "best_of", 1, DI_MAX_CHOICES, &best_of, err);
    }
    if (status == DI_OK && best_of >= 0 && best_of != r->n) {
        return err_set(err, DI_E_ARGUMENT, "best_of: must be equal to n, which is %lld", (long long)r->n);
    }
    if (status == DI_OK) {
        status = chat_get_int(r->body, "max_tokens", 0, INT32_MAX, &r->max_tokens, err);
    }
    if (status == DI_OK) {
        status = chat_get_int(r->body, "logprobs", 0, MAX_LOGPROBS, &logprobs, err);
    }
    r->writer.logprobs = (int32_t)logprobs;
    return status;
}

static di_status read_stream(chat_reading *r, di_error *err)
{
    const js_value *const options = js_get(r->body, "stream_options");
    const js_kind kind = js_kind_of(options);
    di_status status = chat_get_bool(r->body, "stream", &r->writer.stream, err);
    if (status != DI_OK || kind == JS_NULL) {
        return status;
    }
    if (kind != JS_OBJECT) {
        return err_set(err, DI_E_ARGUMENT, "stream_options: expected an object, not %s", js_kind_name(kind));
    }
    if (!r->writer.stream) {
        return err_set(err, DI_E_ARGUMENT, "stream_options: needs stream = true");
    }
    status = chat_get_bool(options, "include_usage", &r->writer.include_usage, err);
    if (status != DI_OK) {
        err_prefix(err, "stream_options");
    }
    return status;
}

static di_status read_flags(chat_reading *r, di_error *err)
{
    const char *suffix = NULL;
    const char *user;
    size_t n = 0;
    di_status status = chat_get_string(r->body, "suffix", &suffix, &n, err);
    if (status == DI_OK && n > 0) {
        return err_set(err, DI_E_UNSUPPORTED, "suffix: text in front of a given end is not supported");
    }
    if (status == DI_OK) {
        status = chat_get_string(r->body, "user", &user, &n, err);
    }
    if (status == DI_OK) {
        status = chat_get_bool(r->body, "echo", &r->writer.echo, err);
    }
    if (status == DI_OK) {
        status = chat_get_bool(r->body, "return_token_ids", &r->writer.token_ids, err);
    }
    if (status == DI_OK && r->writer.echo && r->writer.logprobs >= 0) {
        return err_set(err, DI_E_UNSUPPORTED, "logprobs: those of a prompt are not computed, so they cannot go with echo");
    }
    return status;
}

static di_status read_cache(chat_reading *r, di_error *err)
{
    chat_cache body;
    chat_cache text;
    di_status status = chat_cache_read_body(r->body, &body, err);
    if (status == DI_OK) {
        status = chat_cache_read_text(r->call->cache_text, &text, err);
    }
    if (status == DI_OK) {
        r->call->cache = chat_cache_settle(&body, &text, false);
    }
    return status;
}

static di_status add_stop(chat_reading *r, const js_value *value, size_t i, di_error *err)
{
    size_t n;
    if (js_kind_of(value) != JS_STRING) {
        return err_set(err, DI_E_ARGUMENT, "stop: expected a string or an array of strings, not %s", js_kind_name(js_kind_of(value)));
    }
    r->stops[i] = js_string(value, &n);
    if (n == 0 || n > DI_MAX_STOP_BYTES) {
        return err_set(err, DI_E_ARGUMENT, "stop: a string must have 1 to %d bytes", DI_MAX_STOP_BYTES);
    }
    r->stop_sizes[i] = n;
    r->writer.n_stops = i + 1;
    return DI_OK;
}

static di_status read_stops(chat_reading *r, di_error *err)
{
    const js_value *const stop = js_get(r->body, "stop");
    if (js_kind_of(stop) == JS_NULL) {
        return DI_OK;
    }
    if (js_kind_of(stop) != JS_ARRAY) {
        return add_stop(r, stop, 0, err);
    }
    if (js_length(stop) > DI_MAX_STOP_STRINGS) {
        return err_set(err, DI_E_ARGUMENT, "stop: at most %d strings, not %zu", DI_MAX_STOP_STRINGS, js_length(stop));
    }
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < js_length(stop); i++) {
        status = add_stop(r, js_at(stop, i), i, err);
    }
    return status;
}

/* --- Prompts ------------------------------------------------------------------------------------------------------------------------- */

static di_status count_prompts(const js_value *prompt, size_t *n, di_error *err)
{
    const js_kind kind = js_kind_of(prompt);
    if (kind == JS_NULL) {
        return err_set(err, DI_E_ARGUMENT, "prompt: missing field");
    }
    if (kind != JS_STRING && kind != JS_ARRAY) {
        return err_set(err, DI_E_ARGUMENT, "prompt: expected a string or an array, not %s", js_kind_name(kind));
    }
    if (kind == JS_ARRAY && js_length(prompt) == 0) {
        return err_set(err, DI_E_ARGUMENT, "prompt: is empty");
    }
    const bool several = kind == JS_ARRAY && js_kind_of(js_at(prompt, 0)) != JS_INT;
    *n = several ? js_length(prompt) : 1;
    return DI_OK;
}

/* Prompt i of a body: the value itself, or one of its list. */
static const js_value *prompt_at(const js_value *prompt, size_t i)
{
    const bool several = js_kind_of(prompt) == JS_ARRAY && js_kind_of(js_at(prompt, 0)) != JS_INT;
    return several ? js_at(prompt, i) : prompt;
}

static di_status encode_prompt(const chat_reading *r, const js_value *value, const char *path, chat_scratch *scratch, size_t *n,
                               di_error *err)
{
    size_t size;
    if (js_kind_of(value) == JS_STRING) {
        const char *const text = js_string(value, &size);
        return chat_encode_text(r->call->service, text, size, scratch, n, err);
    }
    if (js_kind_of(value) != JS_ARRAY) {
        return err_set(err, DI_E_ARGUMENT, "%s: expected a string or an array of token ids, not %s", path,
                       js_kind_name(js_kind_of(value)));
    }
    *n = js_length(value);
    const di_status status = chat_scratch_reserve(scratch, *n, err);
    return status == DI_OK ? chat_read_ids(value, path, r->vocabulary, scratch->ids, err) : status;
}

static di_status check_length(chat_reading *r, const char *path, size_t n, di_error *err)
{
    const int64_t context = r->call->service->context;
    const int64_t asked = chat_has(r->body, "max_tokens") ? r->max_tokens : 0;
    if (n == 0) {
        return err_set(err, DI_E_ARGUMENT, "%s: is empty", path);
    }
    if (n > (size_t)context || asked > context - (int64_t)n) {
        return err_set(err, DI_E_ARGUMENT,
                       "This model's maximum context length is %lld tokens. However, you requested %llu tokens (%zu in the "
                       "prompt, %lld in the completion). Please reduce the length of the prompt or completion.",
                       (long long)context, (unsigned long long)n + (unsigned long long)asked, n, (long long)asked);
    }
    return DI_OK;
}

static di_status echo_prompt(const chat_reading *r, const js_value *value, int32_t i, const int32_t *ids, size_t n, di_error *err)
{
    char *decoded;
    size_t size;
    if (js_kind_of(value) == JS_STRING) {
        const char *const text = js_string(value, &size);
        return chat_completion_set_prompt(r->call->writer, i, text, size, err);
    }
    di_status status = chat_decode_ids(r->call->service, ids, n, &decoded, &size, err);
    if (status == DI_OK) {
        status = chat_completion_set_prompt(r->call->writer, i, decoded, size, err);
        free(decoded);
    }
    return status;
}

static di_status read_prompts(chat_reading *r, chat_scratch *scratch, di_error *err)
{
    const js_value *const prompt = js_get(r->body, "prompt");
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < r->call->n_tasks; i++) {
        const js_value *const value = prompt_at(prompt, i);
        char path[32] = "prompt";
        size_t n = 0;
        if (value != prompt) {
            snprintf(path, sizeof path, "prompt[%zu]", i);
        }
        status = encode_prompt(r, value, path, scratch, &n, err);
        if (status == DI_OK) {
            status = check_length(r, path, n, err);
        }
        if (status == DI_OK) {
            status = chat_call_set_prompt(r->call, i, scratch->ids, n, err);
        }
        if (status == DI_OK && r->writer.echo) {
            status = echo_prompt(r, value, (int32_t)i, scratch->ids, n, err);
        }
    }
    return status;
}

/* --- The whole ---------------------------------------------------------------------------------------------------------------------- */

static di_status open_call(chat_reading *r, di_error *err)
{
    size_t n_prompts = 0;
    di_call *const c = r->call;
    chat_completion *writer = NULL;
    di_status status = count_prompts(js_get(r->body, "prompt"), &n_prompts, err);
    if (status == DI_OK && n_prompts > CHAT_MAX_CHOICES / (size_t)r->n) {
        return err_set(err, DI_E_ARGUMENT, "prompt: prompts times n is at most %d, not %zu times %lld", CHAT_MAX_CHOICES, n_prompts,
                       (long long)r->n);
    }
    if (status == DI_OK) {
        status = chat_call_alloc(c, n_prompts, (int32_t)r->n, err);
    }
    if (status != DI_OK) {
        return status;
    }
    r->writer.tokenizer = c->service->tokenizer;
    r->writer.id = c->id;
    r->writer.model = c->service->model_name;
    r->writer.created = c->created;
    r->writer.n_prompts = (int32_t)n_prompts;
    r->writer.n = (int32_t)r->n;
    r->writer.stops = r->stops;
    r->writer.stop_sizes = r->stop_sizes;
    status = chat_completion_new(&r->writer, &writer, err);
    c->writer_fns = &chat_completion_writer;
    c->writer = writer;
    c->stream = r->writer.stream;
    c->logprobs = r->writer.logprobs >= 0;
    return status;
}

/* max_tokens of 0 asks for nothing but the prompt: answered at once. */
static di_status answer_nothing(di_call *c, di_error *err)
{
    const char *text = "";
    size_t n = 0;
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < c->n_tasks; i++) {
        status = c->writer_fns->ready(c->writer, (int64_t)c->tasks[i].n_prompt, 0, err);
    }
    for (int32_t i = 0; status == DI_OK && i < c->n_choices; i++) {
        status = c->writer_fns->finish(c->writer, i, DI_FINISH_LENGTH, err);
    }
    if (status == DI_OK) {
        status = c->stream ? c->writer_fns->frames(c->writer, &text, &n, err) : c->writer_fns->body(c->writer, &text, &n, err);
    }
    if (status == DI_OK && !buf_append(&c->staged, text, n)) {
        status = err_memory(err, "response", n);
    }
    if (status == DI_OK) {
        c->draft.stream = c->stream;
        c->draft.finish = DI_FINISH_LENGTH;
        c->writer_fns->usage(c->writer, &c->draft.usage);
    }
    return status;
}

static di_status read_body(chat_reading *r, chat_scratch *scratch, di_error *err)
{
    static di_status (*const steps[])(chat_reading *r, di_error *err) = {
        read_model, read_counts, read_stream, read_flags, read_cache, read_stops, chat_read_sampling, open_call,
    };
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < sizeof steps / sizeof steps[0]; i++) {
        status = steps[i](r, err);
    }
    return status == DI_OK ? read_prompts(r, scratch, err) : status;
}

di_status chat_prepare_completions(di_call *c, chat_scratch *scratch, bool *done, di_error *err)
{
    di_model_info info;
    js_doc *doc = NULL;
    di_status status = chat_parse_body(c->body, c->n_body, &doc, err);
    if (status != DI_OK) {
        return status;
    }
    di_model_get_info(c->service->model, &info);
    chat_reading r = {
        .call = c,
        .body = js_root(doc),
        .vocabulary = info.vocab_size,
        .writer = {.logprobs = -1},
        .max_tokens = DEFAULT_MAX_TOKENS,
        .n = 1,
    };
    status = read_body(&r, scratch, err);
    if (status == DI_OK) {
        status = chat_constraint_body(&c->constraint, r.body, err);
    }
    js_free(doc);
    c->max_tokens = r.max_tokens;
    if (status == DI_OK && r.max_tokens == 0) {
        *done = true;
        status = answer_nothing(c, err);
    }
    return status;
}
