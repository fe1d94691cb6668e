/* rec_read_messages.c - a Messages body (POST /v1/messages) to a conversation (recipe.md 3.5).
 *
 * The order of steps decides which of several faults is reported, and follows the official package: tools and their names,
 * messages, choice and checks of tools, stop sequences, sampling, max_tokens. Unknown fields are ignored. */
#include "recipe/rec_messages.h"

static di_status read_thinking(di_request *r, di_error *err)
{
    const rec_path at = {NULL, "output_config", 0};
    const js_value *config;
    bool on = false;
    bool said = false;
    bool off = false;
    bool effort_said = false;
    di_status status = rec_read_thinking(r->body, "thinking", &on, &said, err);
    if (status == DI_OK) {
        status = rec_get_object(r->body, NULL, "output_config", &config, err);
    }
    if (status == DI_OK) {
        status = rec_read_effort(config, &at, "effort", &r->talk.effort, &off, &effort_said, err);
    }
    r->talk.thinking = said ? on : effort_said ? !off : !r->recipe->options.thinking_off;
    if (!r->talk.thinking) {
        r->talk.effort = REC_EFFORT_ABSENT;
    } else if (r->talk.effort == REC_EFFORT_ABSENT) {
        r->talk.effort = REC_EFFORT_HIGH;
    }
    return status;
}

static di_status read_system_text(di_request *r, const js_value *block, const rec_path *at, rec_content *out, di_error *err)
{
    static const char *const kinds[] = {"text", NULL};
    rec_str text;
    int unused;
    di_status status = rec_need_variant(block, at, "type", kinds, &unused, err);
    if (status == DI_OK) {
        status = rec_need_string(block, at, "text", &text, err);
    }
    if (status == DI_OK && rec_add_text(r, out, text) == NULL) {
        status = rec_no_memory(r, err);
    }
    return status;
}

/* A System message whenever the field is there, also for an empty text. */
static di_status read_system(di_request *r, di_error *err)
{
    const js_value *const system = js_get(r->body, "system");
    const js_kind kind = js_kind_of(system);
    const rec_path list = {NULL, "system", 0};
    if (kind == JS_NULL) {
        return DI_OK;
    }
    if (kind != JS_STRING && kind != JS_ARRAY) {
        return rec_bad_form(NULL, "system", err, "expected a string or an array of blocks, not %s", js_kind_name(kind));
    }
    rec_message *const message = rec_add_message(r, REC_SYSTEM);
    if (message == NULL) {
        return rec_no_memory(r, err);
    }
    if (kind == JS_STRING || js_length(system) == 0) {
        return rec_add_text(r, &message->content, rec_string(system)) != NULL ? DI_OK : rec_no_memory(r, err);
    }
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < js_length(system); i++) {
        const rec_path at = {&list, NULL, i};
        status = read_system_text(r, js_at(system, i), &at, &message->content, err);
    }
    return status;
}

static di_status read_other(di_request *r, di_error *err)
{
    const rec_path at = {NULL, "metadata", 0};
    const js_value *metadata;
    rec_str unused;
    di_status status = rec_get_bool(r->body, NULL, "stream", &r->stream, NULL, err);
    if (status == DI_OK) {
        status = rec_get_object(r->body, NULL, "metadata", &metadata, err);
    }
    if (status == DI_OK) {
        status = rec_get_string(metadata, &at, "user_id", &unused, NULL, err);
    }
    return status;
}

static di_status read_sampling(di_request *r, di_error *err)
{
    di_status status = rec_read_stops(r, "stop_sequences", false, err);
    if (status == DI_OK) {
        status = rec_read_sampling(r, err);
    }
    if (status == DI_OK) {
        status = rec_read_max_tokens(r, "max_tokens", true, err);
    }
    if (status == DI_OK) {
        rec_settle_sampling(r);
    }
    return status;
}

di_status rec_read_messages(di_request *r, di_error *err)
{
    rec_messages x = {.r = r};
    di_status status = rec_read_model(r, err);
    if (status == DI_OK) {
        status = read_other(r, err);
    }
    if (status == DI_OK) {
        status = read_thinking(r, err);
    }
    if (status == DI_OK) {
        status = rec_messages_tools(&x, err);
    }
    if (status == DI_OK) {
        status = read_system(r, err);
    }
    if (status == DI_OK) {
        status = rec_messages_turns(&x, err);
    }
    if (status == DI_OK) {
        status = rec_check_reasoning(r, "content[].thinking", err);
    }
    if (status == DI_OK) {
        status = rec_messages_choice(&x, err);
    }
    if (status == DI_OK) {
        status = read_sampling(r, err);
    }
    return status == DI_OK ? rec_settle_output(r, err) : status;
}
