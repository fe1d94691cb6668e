/* chat_completions.c - bodies of POST /v1/completions: fields, prompts, and the call that comes of them.
 *
 * The fields of OpenAI's API, and of vLLM's additions those that sampling here knows. Unknown fields are ignored, known ones are strict:
 * a wrong type or value is an error that begins with the field's name. Nothing of the body is kept but copies. */
#include "chat/chat_completions.h"
#include "chat/chat_fields.h"

#include <errno.h>
#include <stdio.h>

#define DEFAULT_MAX_TOKENS 16
#define MAX_LOGPROBS 5
#define MAX_STOP_IDS 128
#define MAX_BIAS 100.0

/* What sampling borrows from; one block, freed with the call. */
typedef struct parameters {
    di_logit_bias *bias; /* [n_bias] */
    int32_t stop_ids[MAX_STOP_IDS + 1];
} parameters;

typedef struct reading {
    di_call *call;
    const js_value *body;
    int32_t vocabulary;
    chat_completion_options writer;
    const char *stops[DI_MAX_STOP_STRINGS];
    size_t stop_sizes[DI_MAX_STOP_STRINGS];
    int64_t max_tokens;
    int64_t n;
    parameters *parameters;
} reading;

/* --- Fields ------------------------------------------------------------------------------------------------------------------------ */

static di_status read_model(reading *r, di_error *err)
{
    const char *name = NULL;
    size_t n = 0;
    const di_status status = chat_get_string(r->body, "model", &name, &n, err);
    if (status != DI_OK) {
        return status;
    }
    return name != NULL ? chat_check_model(r->call->service, name, n, err) : err_set(err, DI_E_ARGUMENT, "model: missing field");
}

static di_status read_counts(reading *r, di_error *err)
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

static di_status read_stream(reading *r, di_error *err)
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

static di_status read_flags(reading *r, di_error *err)
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

static di_status add_stop(reading *r, const js_value *value, size_t i, di_error *err)
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

static di_status read_stops(reading *r, di_error *err)
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

/* --- Sampling ------------------------------------------------------------------------------------------------------------------------ */

static di_status read_bias(const js_value *value, const char *key, int32_t vocabulary, di_logit_bias *out, di_error *err)
{
    char *end;
    size_t size;
    js_key(value, &size);
    errno = 0;
    const long id = strtol(key, &end, 10);
    if (size == 0 || end != key + size || key[0] < '0' || key[0] > '9' || errno != 0 || id >= vocabulary) {
        return err_set(err, DI_E_ARGUMENT, "logit_bias: \"%.40s\" is no token id of this model", key);
    }
    const bool is_number = js_kind_of(value) == JS_INT || js_kind_of(value) == JS_NUMBER;
    const double bias = js_number(value);
    if (!is_number || !(bias >= -MAX_BIAS && bias <= MAX_BIAS)) {
        return err_set(err, DI_E_ARGUMENT, "logit_bias: the bias of token %ld must be a number in -100..100", id);
    }
    *out = (di_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    return DI_OK;
}

static di_status read_biases(reading *r, di_sampling *o, di_error *err)
{
    const js_value *const map = js_get(r->body, "logit_bias");
    const size_t n = js_length(map);
    if (js_kind_of(map) != JS_NULL && js_kind_of(map) != JS_OBJECT) {
        return err_set(err, DI_E_ARGUMENT, "logit_bias: expected an object, not %s", js_kind_name(js_kind_of(map)));
    }
    size_t size;
    if (!ar_mul(n, sizeof(di_logit_bias), &size) || !ar_add(size, sizeof(parameters), &size)) {
        return err_set(err, DI_E_LIMIT, "logit_bias: too many entries");
    }
    r->parameters = ar_calloc(1, size);
    if (r->parameters == NULL) {
        return err_memory(err, "parameters of a completion", size);
    }
    r->call->parameters = r->parameters;
    r->parameters->bias = (di_logit_bias *)(r->parameters + 1);
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        const char *key;
        const js_value *const value = js_member(map, i, &key);
        status = read_bias(value, key, r->vocabulary, &r->parameters->bias[i], err);
    }
    o->bias = r->parameters->bias;
    o->n_bias = n;
    return status;
}

static di_status read_stop_ids(reading *r, di_sampling *o, di_error *err)
{
    const js_value *const list = js_get(r->body, "stop_token_ids");
    const size_t n = js_length(list);
    int32_t *const ids = r->parameters->stop_ids;
    bool ignore_eos = false;
    di_status status = chat_get_bool(r->body, "ignore_eos", &ignore_eos, err);
    if (status == DI_OK && js_kind_of(list) != JS_NULL && js_kind_of(list) != JS_ARRAY) {
        return err_set(err, DI_E_ARGUMENT, "stop_token_ids: expected an array, not %s", js_kind_name(js_kind_of(list)));
    }
    if (status == DI_OK && n > MAX_STOP_IDS) {
        return err_set(err, DI_E_ARGUMENT, "stop_token_ids: at most %d, not %zu", MAX_STOP_IDS, n);
    }
    if (status == DI_OK) {
        status = chat_read_ids(list, "stop_token_ids", r->vocabulary, ids, err);
    }
    o->stop_ids = ids;
    o->n_stop_ids = n;
    if (!ignore_eos) {
        ids[o->n_stop_ids++] = r->call->service->eos;
    }
    return status;
}

static di_status read_seed(reading *r, di_sampling *o, di_error *err)
{
    int64_t seed = 0;
    if (!chat_has(r->body, "seed")) {
        return chat_random(&o->seed, sizeof o->seed, err);
    }
    const di_status status = chat_get_int(r->body, "seed", INT64_MIN, INT64_MAX, &seed, err);
    o->seed = (uint64_t)seed;
    return status;
}

/* vLLM spells "off" -1 or 0. */
static di_status read_top_k(reading *r, di_sampling *o, di_error *err)
{
    int64_t top_k = 0;
    const di_status status = chat_get_int(r->body, "top_k", -1, INT32_MAX, &top_k, err);
    o->top_k = top_k > 0 ? (int32_t)top_k : 0;
    return status;
}

static di_status read_sampling(reading *r, di_error *err)
{
    di_sampling *const o = &r->call->sampling;
    int64_t min_tokens = 0;
    di_sampling_default(o);
    const struct {
        const char *key;
        double low;
        double high;
        float *value;
    } numbers[] = {
        {"temperature", 0.0, 2.0, &o->temperature},
        {"top_p", 0.0, 1.0, &o->top_p},
        {"min_p", 0.0, 1.0, &o->min_p},
        {"presence_penalty", -2.0, 2.0, &o->presence_penalty},
        {"frequency_penalty", -2.0, 2.0, &o->frequency_penalty},
        {"repetition_penalty", 0.01, 100.0, &o->repetition_penalty},
    };
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < sizeof numbers / sizeof numbers[0]; i++) {
        status = chat_get_float(r->body, numbers[i].key, numbers[i].low, numbers[i].high, numbers[i].value, err);
    }
    if (status == DI_OK) {
        status = read_top_k(r, o, err);
    }
    if (status == DI_OK) {
        status = chat_get_int(r->body, "min_tokens", 0, INT32_MAX, &min_tokens, err);
    }
    o->min_tokens = (int32_t)min_tokens;
    if (status == DI_OK && min_tokens > r->max_tokens) {
        return err_set(err, DI_E_ARGUMENT, "min_tokens: must be at most max_tokens, which is %lld", (long long)r->max_tokens);
    }
    if (status == DI_OK) {
        status = read_biases(r, o, err);
    }
    if (status == DI_OK) {
        status = read_stop_ids(r, o, err);
    }
    o->n_top_logprobs = r->writer.logprobs > 0 ? r->writer.logprobs : 0;
    return status == DI_OK ? read_seed(r, o, err) : status;
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

static di_status encode_prompt(const reading *r, const js_value *value, const char *path, chat_scratch *scratch, size_t *n, di_error *err)
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

static di_status check_length(reading *r, const char *path, size_t n, di_error *err)
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

static di_status echo_prompt(const reading *r, const js_value *value, int32_t i, const int32_t *ids, size_t n, di_error *err)
{
    const di_tokenizer *const tokenizer = r->call->service->tokenizer;
    size_t size;
    if (js_kind_of(value) == JS_STRING) {
        const char *const text = js_string(value, &size);
        return chat_completion_set_prompt(r->call->writer, i, text, size, err);
    }
    di_status status = di_tokenizer_decode(tokenizer, ids, n, 0, NULL, 0, &size, err);
    char *const text = status == DI_OK ? malloc(size + 1) : NULL;
    if (status == DI_OK && text == NULL) {
        status = err_memory(err, "echo of a prompt", size);
    }
    if (status == DI_OK) {
        status = di_tokenizer_decode(tokenizer, ids, n, 0, text, size, &size, err);
    }
    if (status == DI_OK) {
        status = chat_completion_set_prompt(r->call->writer, i, text, size, err);
    }
    free(text);
    return status;
}

static di_status read_prompts(reading *r, chat_scratch *scratch, di_error *err)
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

static di_status open_call(reading *r, di_error *err)
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

static di_status read_body(reading *r, chat_scratch *scratch, di_error *err)
{
    static di_status (*const steps[])(reading *r, di_error *err) = {
        read_model, read_counts, read_stream, read_flags, read_stops, read_sampling, open_call,
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
    reading r = {
        .call = c,
        .body = js_root(doc),
        .vocabulary = info.vocab_size,
        .writer = {.logprobs = -1},
        .max_tokens = DEFAULT_MAX_TOKENS,
        .n = 1,
    };
    status = read_body(&r, scratch, err);
    js_free(doc);
    c->max_tokens = r.max_tokens;
    if (status == DI_OK && r.max_tokens == 0) {
        *done = true;
        status = answer_nothing(c, err);
    }
    return status;
}
