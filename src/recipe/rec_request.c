/* rec_request.c - one request from its body to its prompt (the way is in rec_int.h), and what callers read of it afterwards.
 *
 * Everything that can be refused is refused here, so that what follows di_request_read fails only for want of memory or of a
 * tokenizer. Errors and their bodies: recipe.md 3.1. */
#include "recipe/rec_int.h"
#include "recipe/rec_read.h"

#include "core/arith.h"
#include "image/image.h"

#define MAX_TTL_S INT64_C(315360000) /* ten years */
#define COMPLETION_PLAIN 8192
#define COMPLETION_THINKING 65536
#define COMPLETION_MAX_EFFORT 131072

static void set_defaults(di_request *r, const di_recipe *recipe, di_protocol protocol)
{
    r->recipe = recipe;
    r->protocol = protocol;
    r->model = "";
    r->inference = (di_inference){
        .max_tokens = -1, .temperature = 1.0f, .top_p = 1.0f, .top_logprobs = -1, .n = 1, .cache_class = -1, .verify = -1,
        .constraint_text = "",
    };
    r->talk.pattern = REC_STR("");
    arena_init(&r->memory, recipe->options.max_request_bytes);
    buf_init(&r->prompt, 0);
}

/* Only the number: what they are is for the protocol's reader. */
static di_status check_messages(const di_request *r, di_error *err)
{
    const char *const field = r->protocol == DI_RESPONSES ? "input" : "messages";
    const js_value *const list = js_get(r->body, field);
    const size_t n = js_kind_of(list) == JS_ARRAY ? js_length(list) : 0;
    const uint32_t most = r->recipe->options.max_messages;
    return n <= most ? DI_OK : err_set(err, DI_E_ARGUMENT, "%s: %zu are too many, at most %u are taken", field, n, most);
}

static di_status read_body(di_request *r, di_error *err)
{
    if (js_kind_of(r->body) != JS_OBJECT) {
        return err_set(err, DI_E_FORMAT, "invalid request body: expected an object, not %s", js_kind_name(js_kind_of(r->body)));
    }
    const di_status status = check_messages(r, err);
    if (status != DI_OK) {
        return status;
    }
    switch (r->protocol) {
    case DI_CHAT:
        return rec_read_chat(r, err);
    case DI_RESPONSES:
        return rec_read_responses(r, err);
    case DI_MESSAGES:
        return rec_read_messages(r, err);
    }
    return err_set(err, DI_E_ARGUMENT, "unknown protocol %d", (int)r->protocol);
}

/* Extensions of ours, alike in all protocols, so they come behind everything that those say themselves. */
static di_status read_verify(di_request *r, di_error *err)
{
    static const char *const rules[] = {"coupled", "block", "rejection", NULL}; /* di_verify */
    return rec_get_variant(r->body, NULL, "verify", rules, &r->inference.verify, NULL, err);
}

static di_status read_cache(di_request *r, di_error *err)
{
    static const char *const classes[] = {"chat", "agent", NULL};
    const rec_path at = {NULL, "cache", 0};
    const js_value *cache;
    bool said = false;
    int class_id = 0;
    r->inference.has_tools = r->n_declared > 0;
    di_status status = rec_get_object(r->body, NULL, "cache", &cache, err);
    if (status != DI_OK || cache == NULL) {
        return status;
    }
    status = rec_get_variant(cache, &at, "class", classes, &class_id, &said, err);
    r->inference.cache_class = said ? class_id : -1;
    if (status == DI_OK) {
        status = rec_get_int(cache, &at, "ttl", &r->inference.cache_ttl_s, &said, err);
    }
    if (status == DI_OK && said && (r->inference.cache_ttl_s < 1 || r->inference.cache_ttl_s > MAX_TTL_S)) {
        return err_set(err, DI_E_ARGUMENT, "Invalid cache.ttl value, the valid range is 1 to %lld seconds", (long long)MAX_TTL_S);
    }
    return status == DI_OK ? rec_get_bool(cache, &at, "pin", &r->inference.cache_pinned, NULL, err) : status;
}

/* A body of a wrong form names its field in the message. */
static void give_refusal(const di_request *r, di_status status, const di_error *err, rec_refusal *out)
{
    *out = r->refusal;
    if (status == DI_E_FORMAT && err != NULL && out->param[0] == '\0') {
        rec_bad_form_field(err->message, out->param, sizeof out->param);
    }
}

di_status rec_request_read(const di_recipe *recipe, di_protocol protocol, const char *json, size_t n, rec_refusal *refusal,
                           di_request **out, di_error *err)
{
    di_request *const r = ar_calloc(1, sizeof *r);
    if (r == NULL) {
        return err_memory(err, "request", sizeof *r);
    }
    set_defaults(r, recipe, protocol);
    di_status status = rec_parse_json(r, json, n, "invalid JSON request", &r->body, err);
    if (status == DI_OK) {
        status = read_body(r, err);
    }
    if (status == DI_OK) {
        status = read_cache(r, err);
    }
    if (status == DI_OK) {
        status = read_verify(r, err);
    }
    if (status == DI_OK) {
        status = rec_normalise(r, err);
    }
    if (status == DI_OK) {
        status = rec_render(r, err);
    }
    if (status != DI_OK) {
        if (refusal != NULL) {
            give_refusal(r, status, err, refusal);
        }
        di_request_free(r);
        return status;
    }
    *out = r;
    return DI_OK;
}

di_status di_request_read(const di_recipe *recipe, di_protocol protocol, const char *json, size_t n, di_request **out, di_error *err)
{
    return rec_request_read(recipe, protocol, json, n, NULL, out, err);
}

void di_request_free(di_request *request)
{
    if (request == NULL) {
        return;
    }
    for (const rec_docs *node = request->docs; node != NULL; node = node->next) {
        js_free(node->doc);
    }
    free(request->ranges);
    free(request->markers);
    buf_fini(&request->prompt);
    arena_fini(&request->memory);
    free(request);
}

di_protocol di_request_protocol(const di_request *request)
{
    return request->protocol;
}

di_prompt_version di_request_version(const di_request *request)
{
    return request->talk.version;
}

const char *di_request_model(const di_request *request)
{
    return request->model;
}

const js_value *rec_request_body(const di_request *request)
{
    return request->body;
}

bool di_request_stream(const di_request *request)
{
    return request->stream;
}

bool di_request_thinking(const di_request *request)
{
    return request->talk.thinking;
}

const char *di_request_prompt(const di_request *request, size_t *n)
{
    if (n != NULL) {
        *n = request->prompt.size;
    }
    return request->prompt.data;
}

const di_range *di_request_control_ranges(const di_request *request, size_t *n)
{
    *n = request->n_ranges;
    return request->ranges;
}

const di_image_ref *di_request_images(const di_request *request, size_t *n)
{
    *n = request->n_images;
    return request->images;
}

const di_inference *di_request_inference(const di_request *request)
{
    return &request->inference;
}

const di_output_options *di_request_output(const di_request *request)
{
    return &request->output;
}

int32_t di_image_tokens(int32_t width, int32_t height)
{
    img_plan plan;
    return img_plan_size(width, height, &plan) ? plan.tokens : 0;
}

static int64_t usual_completion(const rec_conversation *talk)
{
    if (!talk->thinking) {
        return COMPLETION_PLAIN;
    }
    return talk->effort == REC_EFFORT_MAX ? COMPLETION_MAX_EFFORT : COMPLETION_THINKING;
}

di_status di_request_max_tokens(const di_request *request, int64_t prompt_tokens, int64_t context, int64_t *out, di_error *err)
{
    const int64_t asked = request->inference.max_tokens;
    const int64_t room = context > prompt_tokens ? context - prompt_tokens : 0;
    if (prompt_tokens < 0 || context < 0) {
        return err_set(err, DI_E_ARGUMENT, "a negative number of tokens");
    }
    if (asked > room || prompt_tokens > context) {
        const int64_t completion = asked > 0 ? asked : 0;
        return err_set(err, DI_E_ARGUMENT,
                       "This model's maximum context length is %lld tokens. However, you requested %llu tokens (%lld in the "
                       "messages, %lld in the completion). Please reduce the length of the messages or completion.",
                       (long long)context, (unsigned long long)prompt_tokens + (unsigned long long)completion,
                       (long long)prompt_tokens, (long long)completion);
    }
    const int64_t usual = asked >= 0 ? asked : usual_completion(&request->talk);
    *out = usual < room ? usual : room > 0 ? room : 1;
    return DI_OK;
}

int di_recipe_http_status(di_status status)
{
    switch (status) {
    case DI_OK:
        return 200;
    case DI_E_FORMAT:
    case DI_E_ARGUMENT:
        return 400;
    case DI_E_LIMIT:
        return 413;
    default:
        return 500;
    }
}
