/* rec_read_chat.c - Chat Completions requests: everything but tools and messages (recipe.md 3.3).
 *
 * The order of steps decides which of several faults is reported. It is the one of the official package as measured: names of tools,
 * messages, the word "json", tools and their choice, prefix, stop strings, stream options, response schema, numbers. */
#include "recipe/rec_chat.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MAX_CHOICES 128
#define MAX_BIAS 100.0

/* ---- numbers ---- */

static di_status read_penalty(di_request *r, const char *key, float *out, di_error *err)
{
    double value = 0.0;
    const di_status status = rec_get_number(r->body, NULL, key, &value, NULL, err);
    if (status == DI_OK && !rec_in_range(value, -2.0f, 2.0f)) {
        return err_set(err, DI_E_ARGUMENT, "Invalid %s value, the valid range of %s is [-2, 2]", key, key);
    }
    *out = (float)value;
    return status;
}

static di_status read_penalties(di_request *r, di_error *err)
{
    const di_status status = read_penalty(r, "presence_penalty", &r->inference.presence_penalty, err);
    return status == DI_OK ? read_penalty(r, "frequency_penalty", &r->inference.frequency_penalty, err) : status;
}

static di_status read_n(di_request *r, di_error *err)
{
    int64_t n = 1;
    const di_status status = rec_get_int(r->body, NULL, "n", &n, NULL, err);
    if (status == DI_OK && (n < 1 || n > MAX_CHOICES)) {
        return err_set(err, DI_E_ARGUMENT, "Invalid n value, the valid range of n is [1, %d]", MAX_CHOICES);
    }
    r->inference.n = (int32_t)n;
    return status;
}

/* An integer of 64 bits without sign is well-formed; half of them are refused. */
static di_status read_seed(di_request *r, di_error *err)
{
    const js_value *const value = js_get(r->body, "seed");
    int64_t seed = 0;
    size_t size;
    const char *const digits = js_spelling(value, &size);
    if (js_kind_of(value) == JS_NUMBER && size <= 20 && strspn(digits, "0123456789") == size) {
        errno = 0;
        const unsigned long long large = strtoull(digits, NULL, 10);
        if (errno == 0 && large > INT64_MAX) {
            return err_set(err, DI_E_ARGUMENT, "Invalid seed value, the valid range of seed is [0, 2^63)");
        }
    }
    const di_status status = rec_get_int(r->body, NULL, "seed", &seed, &r->inference.has_seed, err);
    if (status == DI_OK && seed < 0) {
        return rec_bad_form(NULL, "seed", err, "invalid value: %lld, expected an integer without sign", (long long)seed);
    }
    r->inference.seed = (uint64_t)seed;
    return status;
}

static di_status read_limit(di_request *r, di_error *err)
{
    const di_status status = rec_read_max_tokens(r, "max_completion_tokens", false, err);
    return status == DI_OK ? rec_read_max_tokens(r, "max_tokens", false, err) : status; /* which wins */
}

static di_status read_logprobs(di_request *r, di_error *err)
{
    int64_t top = -1;
    bool present;
    di_status status = rec_get_bool(r->body, NULL, "logprobs", &r->inference.logprobs, NULL, err);
    if (status == DI_OK) {
        status = rec_get_int(r->body, NULL, "top_logprobs", &top, &present, err);
    }
    if (status != DI_OK || !present) {
        return status;
    }
    if (!r->inference.logprobs) {
        return err_set(err, DI_E_ARGUMENT,
                       "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used.");
    }
    if (top < 0 || top > DI_MAX_TOP_LOGPROBS) {
        return err_set(err, DI_E_ARGUMENT, "Invalid top_logprobs value, the valid range of top_logprobs is [0, %d].", DI_MAX_TOP_LOGPROBS);
    }
    r->inference.top_logprobs = (int32_t)top;
    return DI_OK;
}

/* One entry of logit_bias: the key is a token id in decimal. */
static di_status read_bias(const js_value *value, const char *key, const rec_path *at, di_logit_bias *out, di_error *err)
{
    char *end;
    size_t size;
    js_key(value, &size);
    errno = 0;
    const long id = strtol(key, &end, 10);
    if (size == 0 || end != key + size || key[0] < '0' || key[0] > '9' || errno != 0 || id > INT32_MAX) {
        return rec_bad_form(at, NULL, err, "`%.40s` is not a token id", key);
    }
    const double bias = js_number(value);
    if ((js_kind_of(value) != JS_INT && js_kind_of(value) != JS_NUMBER) || fabs(bias) > MAX_BIAS) {
        return err_set(err, DI_E_ARGUMENT, "Invalid logit_bias value of token %ld, the valid range is [-100, 100]", id);
    }
    *out = (di_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    return DI_OK;
}

static di_status read_biases(di_request *r, di_error *err)
{
    const rec_path at = {NULL, "logit_bias", 0};
    const js_value *map;
    di_status status = rec_get_object(r->body, NULL, "logit_bias", &map, err);
    const size_t n = js_length(map);
    if (status != DI_OK || n == 0) {
        return status;
    }
    di_logit_bias *const bias = arena_alloc(&r->memory, n, sizeof *bias);
    if (bias == NULL) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        const char *key;
        const js_value *const value = js_member(map, i, &key);
        status = read_bias(value, key, &at, &bias[i], err);
    }
    r->inference.bias = bias;
    r->inference.n_bias = n;
    return status;
}

static di_status read_stream(di_request *r, di_error *err)
{
    const rec_path at = {NULL, "stream_options", 0};
    const js_value *options;
    di_status status = rec_get_bool(r->body, NULL, "stream", &r->stream, NULL, err);
    if (status == DI_OK) {
        status = rec_get_object(r->body, NULL, "stream_options", &options, err);
    }
    if (status == DI_OK && options != NULL) {
        if (!r->stream) {
            return err_set(err, DI_E_ARGUMENT, "stream_options should be set along with stream = true");
        }
        status = rec_get_bool(options, &at, "include_usage", &r->include_usage, NULL, err);
    }
    r->include_usage = r->include_usage || !r->stream;
    return status;
}

/* ---- thinking ---- */

/* An explicit `thinking` wins, then the effort, then the option. */
static di_status read_thinking(di_request *r, di_error *err)
{
    rec_effort effort = REC_EFFORT_ABSENT;
    bool on = false;
    bool said = false;
    bool off = false;
    bool has_effort = false;
    di_status status = rec_read_thinking(r->body, "thinking", &on, &said, err);
    if (status == DI_OK) {
        status = rec_read_effort(r->body, NULL, "reasoning_effort", &effort, &off, &has_effort, err);
    }
    if (!said) {
        on = has_effort ? !off : !r->recipe->options.thinking_off;
    }
    r->talk.thinking = on;
    if (on) {
        r->talk.effort = has_effort && !off ? effort : REC_EFFORT_HIGH;
    }
    return status;
}

/* ---- response format ---- */

static di_status read_schema(di_request *r, const js_value *format, const rec_path *at, di_error *err)
{
    const rec_path in = {at, "json_schema", 0};
    const js_value *holder;
    rec_str name;
    di_status status = rec_get_object(format, at, "json_schema", &holder, err);
    if (status == DI_OK && holder == NULL) {
        return rec_bad_form(at, "json_schema", err, "missing field");
    }
    if (status == DI_OK) {
        status = rec_get_string(holder, &in, "name", &name, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_get_bool(holder, &in, "strict", &r->talk.strict, NULL, err);
    }
    r->talk.schema = js_get(holder, "schema");
    return status == DI_OK && r->talk.schema == NULL ? rec_bad_form(&in, "schema", err, "missing field") : status;
}

/* The form of response_format; its rules are checked when messages and tools are known. */
static di_status read_format(di_request *r, di_error *err)
{
    static const char *const types[] = {"text", "json_object", "json_schema", "regex", NULL};
    const rec_path at = {NULL, "response_format", 0};
    const js_value *format;
    int type = 0;
    di_status status = rec_get_object(r->body, NULL, "response_format", &format, err);
    if (status != DI_OK || format == NULL) {
        return status;
    }
    status = rec_need_variant(format, &at, "type", types, &type, err);
    r->talk.format = (rec_format)type;
    if (status == DI_OK && r->talk.format == REC_FORMAT_REGEX) {
        status = rec_need_string(format, &at, "regex", &r->talk.pattern, err);
    }
    return status == DI_OK && r->talk.format == REC_FORMAT_JSON_SCHEMA ? read_schema(r, format, &at, err) : status;
}

/* Whether the conversation says "json" is asked for early: before the tools are looked at. */
static di_status check_mention(di_request *r, di_error *err)
{
    if (r->talk.format == REC_FORMAT_JSON_OBJECT && !rec_mentions_json(r)) {
        rec_refusal_set(&r->refusal, "response_format", "");
        return err_set(err, DI_E_ARGUMENT,
                       "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.");
    }
    return DI_OK;
}

/* Tools declared, or called before. */
static bool knows_calls(const di_request *r)
{
    bool found = r->n_declared > 0;
    for (const rec_message *m = r->talk.first; m != NULL && !found; m = m->next) {
        found = m->n_calls > 0;
    }
    return found;
}

static di_status check_prefix(di_request *r, di_error *err)
{
    if (r->talk.last == NULL || !r->talk.last->prefix) {
        return DI_OK;
    }
    if (r->talk.format == REC_FORMAT_JSON_OBJECT) {
        rec_refusal_set(&r->refusal, "response_format", "");
        return err_set(err, DI_E_ARGUMENT, "response_format json_object should not be used with prefix");
    }
    return knows_calls(r) ? err_set(err, DI_E_ARGUMENT, "Function call should not be used with prefix") : DI_OK;
}

static di_status check_schema(di_request *r, di_error *err)
{
    return r->talk.format == REC_FORMAT_JSON_SCHEMA ? rec_settle_format(r, err) : DI_OK;
}

/* ---- the whole ---- */

typedef di_status (*step)(di_request *r, di_error *err);

static di_status take_steps(di_request *r, const step *steps, size_t n, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        status = steps[i](r, err);
    }
    return status;
}

/* Taken, though nothing depends on it. */
static di_status read_parallel(di_request *r, di_error *err)
{
    bool unused;
    return rec_get_bool(r->body, NULL, "parallel_tool_calls", &unused, NULL, err);
}

static di_status read_stops(di_request *r, di_error *err)
{
    return rec_read_stops(r, "stop", true, err);
}

di_status rec_read_chat(di_request *r, di_error *err)
{
    static const step first[] = {rec_read_model, read_thinking,  read_parallel,    read_format,
                                 rec_chat_tools, rec_chat_messages, check_mention};
    static const step last[] = {check_prefix,      read_stops,    read_stream, check_schema, read_n,     read_penalties,
                                rec_read_sampling, read_logprobs, read_limit,  read_seed,    read_biases};
    rec_choice choice;
    rec_str name;
    di_status status = take_steps(r, first, sizeof first / sizeof first[0], err);
    if (status == DI_OK) {
        status = rec_chat_choice(r, &choice, &name, err);
    }
    if (status == DI_OK) {
        status = rec_chat_settle_tools(r, choice, name, err);
    }
    if (status == DI_OK) {
        status = take_steps(r, last, sizeof last / sizeof last[0], err);
    }
    if (status == DI_OK) {
        rec_settle_sampling(r);
        status = rec_settle_output(r, err);
    }
    return status;
}
