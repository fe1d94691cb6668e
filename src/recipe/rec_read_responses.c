/* rec_read_responses.c - a Responses body (POST /v1/responses) to a conversation (recipe.md 3.4).
 *
 * The order of steps decides which of several faults is reported, and follows the official package: tools and their names, input,
 * choice and checks of tools, text.format, sampling. Unknown fields, and those of stored responses, are ignored. */
#include "recipe/rec_responses.h"

#define MAX_TOP_LOGPROBS 20

static di_status read_reasoning(di_request *r, di_error *err)
{
    static const char *const summaries[] = {"auto", "concise", "detailed", NULL};
    const rec_path at = {NULL, "reasoning", 0};
    const js_value *reasoning;
    bool off = false;
    bool said = false;
    int unused;
    di_status status = rec_get_object(r->body, NULL, "reasoning", &reasoning, err);
    if (status == DI_OK) {
        status = rec_read_effort(reasoning, &at, "effort", &r->talk.effort, &off, &said, err);
    }
    if (status == DI_OK) {
        status = rec_get_variant(reasoning, &at, "summary", summaries, &unused, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_get_variant(reasoning, &at, "generate_summary", summaries, &unused, NULL, err);
    }
    r->talk.thinking = said ? !off : !r->recipe->options.thinking_off;
    if (!r->talk.thinking) {
        r->talk.effort = REC_EFFORT_ABSENT;
    } else if (r->talk.effort == REC_EFFORT_ABSENT) {
        r->talk.effort = REC_EFFORT_HIGH;
    }
    return status;
}

static di_status find_items(rec_responses *x, di_error *err)
{
    const js_value *const input = js_get(x->r->body, "input");
    switch (js_kind_of(input)) {
    case JS_ARRAY:
        x->items = input;
        return DI_OK;
    case JS_NULL:
    case JS_STRING:
        return DI_OK;
    default:
        return rec_bad_form(NULL, "input", err, "expected a string or an array of items, not %s",
                            js_kind_name(js_kind_of(input)));
    }
}

static di_status read_schema(di_request *r, const js_value *format, const rec_path *at, di_error *err)
{
    rec_str unused;
    r->talk.schema = js_get(format, "schema");
    di_status status = rec_need_string(format, at, "name", &unused, err);
    if (status == DI_OK) {
        status = rec_get_string(format, at, "description", &unused, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_get_bool(format, at, "strict", &r->talk.strict, NULL, err);
    }
    if (status == DI_OK && r->talk.schema == NULL) {
        status = rec_bad_form(at, "schema", err, "missing field");
    }
    return status == DI_OK ? rec_settle_format(r, err) : status;
}

static di_status read_text(di_request *r, di_error *err)
{
    static const char *const levels[] = {"low", "medium", "high", NULL};
    static const char *const kinds[] = {"text", "json_object", "json_schema", NULL};
    static const rec_format formats[] = {REC_FORMAT_TEXT, REC_FORMAT_JSON_OBJECT, REC_FORMAT_JSON_SCHEMA};
    const rec_path at = {NULL, "text", 0};
    const rec_path format_at = {&at, "format", 0};
    const js_value *text;
    const js_value *format = NULL;
    int kind = 0;
    int unused;
    di_status status = rec_get_object(r->body, NULL, "text", &text, err);
    if (status == DI_OK) {
        status = rec_get_variant(text, &at, "verbosity", levels, &unused, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_get_object(text, &at, "format", &format, err);
    }
    if (status == DI_OK && format != NULL) {
        status = rec_need_variant(format, &format_at, "type", kinds, &kind, err);
    }
    r->talk.format = formats[kind];
    if (status == DI_OK && r->talk.format == REC_FORMAT_JSON_SCHEMA) {
        status = read_schema(r, format, &format_at, err);
    }
    if (status == DI_OK && r->talk.format == REC_FORMAT_JSON_OBJECT && !rec_mentions_json(r)) {
        rec_refusal_set(&r->refusal, "text.format", "");
        status = err_set(err, DI_E_ARGUMENT,
                         "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
                         "'json_object'.");
    }
    return status;
}

static di_status read_logprobs(di_request *r, di_error *err)
{
    int64_t n = 0;
    bool given;
    const di_status status = rec_get_int(r->body, NULL, "top_logprobs", &n, &given, err);
    if (status != DI_OK || !given) {
        return status;
    }
    if (n < 0 || n > MAX_TOP_LOGPROBS) {
        return err_set(err, DI_E_ARGUMENT, "Invalid top_logprobs value, the valid range of top_logprobs is [0, %d].",
                       MAX_TOP_LOGPROBS);
    }
    r->inference.top_logprobs = (int32_t)n;
    r->inference.logprobs = n > 0;
    return DI_OK;
}

static di_status read_sampling(di_request *r, di_error *err)
{
    di_status status = rec_read_sampling(r, err);
    if (status == DI_OK) {
        status = read_logprobs(r, err);
    }
    if (status == DI_OK) {
        status = rec_read_max_tokens(r, "max_output_tokens", false, err);
    }
    if (status == DI_OK) {
        rec_settle_sampling(r);
    }
    return status;
}

di_status rec_read_responses(di_request *r, di_error *err)
{
    rec_responses x = {.r = r};
    rec_str user;
    di_status status = rec_read_model(r, err);
    if (status == DI_OK) {
        status = rec_get_bool(r->body, NULL, "stream", &r->stream, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_get_string(r->body, NULL, "user", &user, NULL, err);
    }
    if (status == DI_OK) {
        status = read_reasoning(r, err);
    }
    if (status == DI_OK) {
        status = find_items(&x, err);
    }
    if (status == DI_OK) {
        status = rec_responses_tools(&x, err);
    }
    if (status == DI_OK) {
        status = rec_responses_input(&x, err);
    }
    if (status == DI_OK) {
        status = rec_check_reasoning(r, "reasoning_text", err);
    }
    if (status == DI_OK) {
        status = rec_responses_choice(&x, err);
    }
    if (status == DI_OK) {
        status = read_text(r, err);
    }
    if (status == DI_OK) {
        status = read_sampling(r, err);
    }
    return status == DI_OK ? rec_settle_output(r, err) : status;
}
