/* rec_calls.c - tool calls of earlier turns, in the markup in which the model writes them (recipe.md 2.6).
 *
 * Arguments that are no JSON object are shown as one parameter `arguments` with the raw text. Nothing is escaped; markup that
 * a value spells stays plain text, because only the template's own occurrences are control tokens. */
#include "recipe/rec_render.h"

static void put_parameter(rec_writer *w, rec_str name, const js_value *value, rec_str raw)
{
    const char *const tag = rec_tags_of(w->talk->version)->parameter;
    const bool text = value == NULL || js_kind_of(value) == JS_STRING;
    rec_put_tag(w, false, tag);
    rec_put_text(w, " name=\"");
    rec_put(w, name);
    rec_put_text(w, text ? "\" string=\"true\">" : "\" string=\"false\">");
    if (value == NULL) {
        rec_put(w, raw);
    } else if (text) {
        rec_put(w, rec_string(value));
    } else {
        rec_json_value(w->out, value, w->style);
    }
    rec_put_tag(w, true, tag);
    rec_put_text(w, ">");
}

static void put_parameters(rec_writer *w, const js_value *object)
{
    for (size_t i = 0; i < js_length(object); i++) {
        const js_value *const member = js_member(object, i, NULL);
        rec_str name;
        name.data = js_key(member, &name.size);
        rec_put_text(w, i > 0 ? "\n" : "");
        put_parameter(w, name, member, REC_STR(""));
    }
}

/* An empty list of parameters leaves an empty line in V4.1, none in V4. */
static di_status put_arguments(rec_writer *w, rec_str arguments, di_error *err)
{
    const size_t used = w->out->size + w->capacity * (sizeof *w->r->ranges + sizeof *w->r->markers);
    const size_t left = rec_memory_left(w->r);
    const js_limits limits = {
        .max_depth = REC_MAX_DEPTH,
        .last_duplicate_wins = true,
        .deep_is_malformed = true,
        .max_bytes = used < left ? left - used : 1,
    };
    js_doc *doc = NULL;
    const di_status status = js_parse(arguments.data, arguments.size, "tool call arguments", &limits, &doc, err);
    if (status != DI_OK && status != DI_E_FORMAT) {
        return status;
    }
    const js_value *const root = status == DI_OK ? js_root(doc) : NULL;
    if (js_kind_of(root) != JS_OBJECT) {
        put_parameter(w, REC_STR("arguments"), NULL, arguments);
    } else {
        put_parameters(w, root);
    }
    if (js_kind_of(root) != JS_OBJECT || js_length(root) > 0 || w->talk->version == DI_V41) {
        rec_put_text(w, "\n");
    }
    js_free(doc);
    return DI_OK;
}

static di_status put_call(rec_writer *w, const rec_call *call, di_error *err)
{
    const char *const tag = rec_tags_of(w->talk->version)->call;
    rec_put_tag(w, false, tag);
    rec_put_text(w, " name=\"");
    rec_put(w, call->name);
    rec_put_text(w, "\">\n");
    const di_status status = put_arguments(w, call->arguments, err);
    rec_put_tag(w, true, tag);
    rec_put_text(w, ">");
    return status;
}

di_status rec_put_calls(rec_writer *w, const rec_message *message, di_error *err)
{
    const char *const tag = rec_tags_of(w->talk->version)->block;
    di_status status = DI_OK;
    rec_put_text(w, "\n\n");
    rec_put_tag(w, false, tag);
    rec_put_text(w, ">");
    for (size_t i = 0; i < message->n_calls && status == DI_OK; i++) {
        rec_put_text(w, "\n");
        status = put_call(w, &message->calls[i], err);
    }
    rec_put_text(w, "\n");
    rec_put_tag(w, true, tag);
    rec_put_text(w, ">");
    return status;
}
