/* rec_tools.c - checks of tools and of the choice among them, and what they mean for generating and parsing (recipe.md 3.1, 3.6). */
#include "recipe/rec_read.h"

#define MAX_NAME 128

static bool name_byte(unsigned char c)
{
    const unsigned char lower = (unsigned char)(c | 0x20);
    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* Characters, as the official message counts them. */
static size_t characters(rec_str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++) {
        n += ((unsigned char)text.data[i] & 0xc0) != 0x80 ? 1 : 0;
    }
    return n;
}

di_status rec_check_tool_name(rec_str name, const char *path, di_error *err)
{
    if (name.size == 0) {
        return err_set(err, DI_E_ARGUMENT,
                       "Invalid '%s': empty string. Expected a string with minimum length 1, but got an empty string instead.", path);
    }
    const size_t length = characters(name);
    if (length > MAX_NAME) {
        return err_set(err, DI_E_ARGUMENT,
                       "Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %zu "
                       "instead.",
                       path, MAX_NAME, length);
    }
    for (size_t i = 0; i < name.size; i++) {
        if (!name_byte((unsigned char)name.data[i])) {
            return err_set(err, DI_E_ARGUMENT,
                           "Invalid '%s': string does not match pattern. Expected a string that matches the pattern "
                           "'^[a-zA-Z0-9_-]+$'.",
                           path);
        }
    }
    return DI_OK;
}

di_status rec_choose_tool(di_request *r, rec_str name, di_error *err)
{
    for (size_t i = 0; i < r->talk.n_tools; i++) {
        if (rec_str_equal(r->talk.tools[i]->name, name)) {
            r->talk.tools[0] = r->talk.tools[i];
            r->talk.n_tools = 1;
            r->talk.choice = REC_CHOICE_REQUIRED;
            return DI_OK;
        }
    }
    rec_refusal_set(&r->refusal, "tool_choice", "");
    return err_set(err, DI_E_ARGUMENT, "Invalid value for 'tool_call': no function named '%s' was specified in the 'tools' parameter.",
                   name.data);
}

di_status rec_read_allowed(di_request *r, const js_value *holder, const rec_path *at, rec_choice *choice, di_error *err)
{
    static const char *const modes[] = {"auto", "required", NULL};
    const js_value *list;
    int mode = 0;
    di_status status = rec_need_variant(holder, at, "mode", modes, &mode, err);
    if (status == DI_OK) {
        status = rec_get_array(holder, at, "tools", &list, err);
    }
    if (status == DI_OK && js_length(list) == 0) {
        return rec_bad_form(at, "tools", err, list == NULL ? "missing field" : "expected at least one tool");
    }
    *choice = mode == 1 ? REC_CHOICE_REQUIRED : REC_CHOICE_AUTO;
    r->talk.allowed = holder;
    return status;
}

static bool allow(const di_request *r, rec_str name)
{
    for (size_t i = 0; i < r->talk.n_tools; i++) {
        if (rec_str_equal(r->talk.tools[i]->name, name)) {
            r->talk.tools[i]->barred = false;
            return true;
        }
    }
    return false;
}

di_status rec_bar_tools(di_request *r, const rec_path *at, const char *const *types, const char *nested, di_error *err)
{
    const js_value *const list = js_get(r->talk.allowed, "tools");
    const rec_path tools = {at, "tools", 0};
    di_status status = DI_OK;
    for (size_t i = 0; r->talk.allowed != NULL && i < r->talk.n_tools; i++) {
        r->talk.tools[i]->barred = true;
    }
    for (size_t i = 0; status == DI_OK && i < js_length(list); i++) {
        const rec_path item = {&tools, NULL, i};
        const rec_path in = {&item, nested, 0};
        const js_value *named = js_at(list, i);
        rec_str name = REC_STR("");
        int type;
        status = rec_need_variant(named, &item, "type", types, &type, err);
        if (status == DI_OK && nested != NULL) {
            status = rec_get_object(named, &item, nested, &named, err);
        }
        if (status == DI_OK && named == NULL) {
            return rec_bad_form(&item, nested, err, "missing field");
        }
        if (status == DI_OK) {
            status = rec_need_string(named, nested != NULL ? &in : &item, "name", &name, err);
        }
        if (status == DI_OK && !allow(r, name)) {
            (void)rec_path_text(&item, r->refusal.param, sizeof r->refusal.param);
            return err_set(err, DI_E_ARGUMENT,
                           "Invalid value for 'tool_choice': no function named '%s' was specified in the 'tools' parameter.", name.data);
        }
    }
    return status;
}

di_status rec_check_choice(di_request *r, di_error *err)
{
    if (r->talk.thinking && r->talk.choice == REC_CHOICE_REQUIRED && r->talk.n_tools > 0) {
        rec_refusal_set(&r->refusal, "tool_choice", "");
        return err_set(err, DI_E_ARGUMENT, "Thinking mode does not support this tool_choice");
    }
    return DI_OK;
}

/* ---- what follows from the conversation ---- */

static void write_tool(buf *out, const rec_tool *tool)
{
    buf_puts(out, "{\"type\":\"function\",\"function\":{\"name\":");
    rec_json_string(out, tool->name.data, tool->name.size);
    buf_puts(out, ",\"description\":");
    if (tool->has_description) {
        rec_json_string(out, tool->description.data, tool->description.size);
    } else {
        buf_puts(out, "null");
    }
    buf_puts(out, ",\"parameters\":");
    if (tool->parameters != NULL) {
        rec_json_value(out, tool->parameters, REC_JSON_COMPACT);
    } else {
        buf_puts(out, "{}");
    }
    const char *const strict = !tool->has_strict ? "null" : tool->strict ? "true" : "false";
    buf_printf(out, ",\"strict\":%s}%s}", strict, tool->deferred ? ",\"defer_loading\":true" : "");
}

static di_status set_constraint(di_request *r, di_constraint_kind kind, buf *text, di_error *err)
{
    const rec_str kept = rec_from_buf(r, text);
    if (kept.data == NULL) {
        return rec_no_memory(r, err);
    }
    r->inference.constraint = kind;
    r->inference.constraint_text = kept.data;
    r->inference.constraint_size = kept.size;
    return DI_OK;
}

/* Tools win over a response format. */
static di_status settle_constraint(di_request *r, bool tools, di_error *err)
{
    const rec_conversation *const talk = &r->talk;
    buf text;
    buf_init(&text, rec_memory_left(r));
    if (tools) {
        bool any = false;
        buf_puts(&text, "[");
        for (size_t i = 0; i < talk->n_tools; i++) {
            if (!talk->tools[i]->barred) {
                buf_puts(&text, any ? "," : "");
                write_tool(&text, talk->tools[i]);
                any = true;
            }
        }
        buf_puts(&text, "]");
        return set_constraint(r, talk->choice == REC_CHOICE_REQUIRED ? DI_CONSTRAINT_TOOL_REQUIRED : DI_CONSTRAINT_TOOL_CALL, &text, err);
    }
    switch (talk->format) {
    case REC_FORMAT_TEXT:
        break;
    case REC_FORMAT_JSON_OBJECT:
        r->inference.constraint = DI_CONSTRAINT_JSON;
        break;
    case REC_FORMAT_JSON_SCHEMA:
        rec_json_value(&text, talk->enforced, REC_JSON_COMPACT);
        return set_constraint(r, DI_CONSTRAINT_JSON, &text, err);
    case REC_FORMAT_REGEX:
        buf_append(&text, talk->pattern.data, talk->pattern.size);
        return set_constraint(r, DI_CONSTRAINT_REGEX, &text, err);
    }
    return DI_OK;
}

/* Where the prompt leaves the model (2.10, 3.6). */
static di_output_stage first_stage(const rec_conversation *talk)
{
    const rec_message *const last = talk->last;
    if (last == NULL || !last->prefix) {
        return talk->thinking ? DI_STAGE_REASONING_START : DI_STAGE_NONE;
    }
    if (!rec_content_empty(&last->content)) {
        return DI_STAGE_CONTENT;
    }
    if (!talk->thinking) {
        return DI_STAGE_NONE;
    }
    return last->reasoning.size > 0 ? DI_STAGE_REASONING : DI_STAGE_REASONING_START;
}

di_status rec_settle_output(di_request *r, di_error *err)
{
    const bool tools = r->talk.n_tools > 0 && r->talk.choice != REC_CHOICE_NONE;
    r->output.tools = tools;
    r->output.in_tools = tools && r->talk.choice == REC_CHOICE_REQUIRED;
    r->output.json = r->talk.format == REC_FORMAT_JSON_OBJECT;
    r->output.stage = first_stage(&r->talk);
    return settle_constraint(r, tools, err);
}

/* ---- what other rooms ask ---- */

size_t rec_request_offers(const di_request *r, rec_offer *out, size_t capacity, rec_offering *how)
{
    const rec_conversation *const talk = &r->talk;
    const size_t n_tools = r->output.tools ? talk->n_tools : 0;
    size_t n = 0;
    *how = (rec_offering){.required = r->output.in_tools, .refused = talk->choice == REC_CHOICE_NONE && r->n_declared > 0};
    for (size_t i = 0; i < n_tools; i++) {
        const rec_tool *const tool = talk->tools[i];
        how->narrowed = how->narrowed || tool->barred;
        if (!tool->barred && n++ < capacity) {
            out[n - 1] = (rec_offer){.name = tool->name.data,
                                     .n_name = tool->name.size,
                                     .parameters = tool->given != NULL ? tool->given : tool->parameters,
                                     .strict = tool->strict || tool->held};
        }
    }
    return n;
}
