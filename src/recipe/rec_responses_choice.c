/* rec_responses_choice.c - tool_choice of a Responses request, the checks of its tools, and what a tool search found as text
 * (recipe.md 3.4, 3.1). */
#include "recipe/rec_responses.h"

typedef struct choice {
    rec_choice kind;
    rec_str name; /* of REQUIRED, when `named` */
    bool named;
} choice;

static di_status read_object(rec_responses *x, const js_value *value, choice *out, di_error *err)
{
    static const char *const kinds[] = {"function", "custom", "web_search", "web_search_2025_08_26", "allowed_tools", NULL};
    const rec_path at = {NULL, "tool_choice", 0};
    int kind = 0;
    const di_status status = rec_need_variant(value, &at, "type", kinds, &kind, err);
    if (status != DI_OK) {
        return status;
    }
    if (kind == 4) {
        return rec_read_allowed(x->r, value, &at, &out->kind, err);
    }
    if (kind >= 2) {
        return x->r->recipe->options.reject_responses_web_search
                   ? err_set(err, DI_E_ARGUMENT, "Server tools are not supported")
                   : DI_OK;
    }
    out->kind = REC_CHOICE_REQUIRED;
    out->named = true;
    return rec_need_string(value, &at, "name", &out->name, err);
}

static di_status read_choice(rec_responses *x, choice *out, di_error *err)
{
    static const char *const words[] = {"auto", "none", "required", NULL};
    static const rec_choice kinds[] = {REC_CHOICE_AUTO, REC_CHOICE_NONE, REC_CHOICE_REQUIRED};
    const js_value *const value = js_get(x->r->body, "tool_choice");
    int word = 0;
    if (js_kind_of(value) == JS_OBJECT) {
        return read_object(x, value, out, err);
    }
    const di_status status = rec_get_variant(x->r->body, NULL, "tool_choice", words, &word, NULL, err);
    out->kind = kinds[word];
    return status;
}

static di_status bar_tools(rec_responses *x, di_error *err)
{
    static const char *const types[] = {"function", "custom", NULL};
    const rec_path at = {NULL, "tool_choice", 0};
    return rec_bar_tools(x->r, &at, types, NULL, err);
}

static di_status check_tools(rec_responses *x, di_error *err)
{
    di_request *const r = x->r;
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < x->n_tools; i++) {
        rec_tool *const tool = x->tools[i];
        if (!rec_responses_first(x, tool)) {
            return err_set(err, DI_E_ARGUMENT, "Tool names must be unique.");
        }
        status = rec_settle_parameters(r, tool, err);
    }
    return status;
}

di_status rec_responses_choice(rec_responses *x, di_error *err)
{
    di_request *const r = x->r;
    choice asked = {.kind = REC_CHOICE_AUTO};
    di_status status = read_choice(x, &asked, err);
    if (status == DI_OK && asked.kind == REC_CHOICE_NONE) {
        r->talk.choice = REC_CHOICE_NONE;
    } else if (status == DI_OK && x->n_tools > 0) {
        r->talk.tools = arena_alloc(&r->memory, x->n_tools, sizeof(rec_tool *));
        if (r->talk.tools == NULL) {
            return rec_no_memory(r, err);
        }
        memcpy(r->talk.tools, x->tools, x->n_tools * sizeof(rec_tool *));
        r->talk.n_tools = x->n_tools;
        r->talk.choice = asked.kind;
        status = check_tools(x, err);
        if (status == DI_OK && asked.named) {
            status = rec_choose_tool(r, asked.name, err);
        }
        if (status == DI_OK) {
            status = bar_tools(x, err);
        }
        if (status == DI_OK) {
            status = rec_check_choice(r, err);
        }
    } else if (status == DI_OK) {
        status = bar_tools(x, err);
    }
    if (status == DI_OK) {
        rec_settle_announced(r);
    }
    return status;
}

/* ---- what a search found, as its result ---- */

static void put_field(buf *b, const char *key, const js_value *value)
{
    buf_printf(b, ",\"%s\":", key);
    if (value == NULL) {
        buf_puts(b, "null");
    } else {
        rec_json_value(b, value, REC_JSON_COMPACT);
    }
}

/* `space` NULL outside namespaces. */
static void put_function(buf *b, const js_value *tool, const js_value *space)
{
    buf_puts(b, "{\"type\":\"function\"");
    put_field(b, "name", js_get(tool, "name"));
    put_field(b, "description", js_get(tool, "description"));
    put_field(b, "parameters", js_get(tool, "parameters"));
    put_field(b, "strict", js_get(tool, "strict"));
    if (space != NULL) {
        const rec_str name = rec_string(js_get(space, "name"));
        const rec_str description = rec_string(js_get(space, "description"));
        buf_puts(b, ",\"namespace\":{\"name\":");
        rec_json_string(b, name.data, name.size);
        buf_puts(b, ",\"description\":");
        rec_json_string(b, description.data, description.size);
        buf_puts(b, "}");
    }
    buf_puts(b, "}");
}

static void put_namespace(buf *b, const js_value *space)
{
    const js_value *const members = js_get(space, "tools");
    for (size_t i = 0; i < js_length(members); i++) {
        buf_puts(b, i > 0 ? "," : "");
        put_function(b, js_at(members, i), space);
    }
}

static bool is_type(const js_value *tool, const char *name)
{
    const rec_str type = rec_string(js_get(tool, "type"));
    return type.size == strlen(name) && memcmp(type.data, name, type.size) == 0;
}

static void put_tool(buf *b, const js_value *tool)
{
    if (is_type(tool, "function")) {
        put_function(b, tool, NULL);
    } else if (is_type(tool, "namespace")) {
        put_namespace(b, tool);
    } else if (is_type(tool, "custom")) {
        buf_puts(b, "{\"type\":\"custom\"");
        put_field(b, "name", js_get(tool, "name"));
        buf_puts(b, "}");
    } else if (is_type(tool, "tool_search")) {
        buf_puts(b, "{\"type\":\"tool_search\"");
        put_field(b, "execution", js_get(tool, "execution"));
        put_field(b, "description", js_get(tool, "description"));
        put_field(b, "parameters", js_get(tool, "parameters"));
        buf_puts(b, "}");
    } else if (is_type(tool, "web_search") || is_type(tool, "web_search_2025_08_26")) {
        buf_puts(b, "{\"type\":");
        rec_json_value(b, js_get(tool, "type"), REC_JSON_COMPACT);
        put_field(b, "search_context_size", js_get(tool, "search_context_size"));
        put_field(b, "user_location", js_get(tool, "user_location"));
        buf_puts(b, "}");
    } else {
        rec_json_value(b, tool, REC_JSON_COMPACT);
    }
}

di_status rec_responses_found_text(rec_responses *x, const js_value *tools, rec_str *out, di_error *err)
{
    buf b;
    buf_init(&b, rec_memory_left(x->r));
    buf_puts(&b, "[");
    bool first = true;
    for (size_t i = 0; i < js_length(tools); i++) {
        const js_value *const tool = js_at(tools, i);
        if (is_type(tool, "namespace") && js_length(js_get(tool, "tools")) == 0) {
            continue; /* nothing to list */
        }
        buf_puts(&b, first ? "" : ",");
        put_tool(&b, tool);
        first = false;
    }
    buf_puts(&b, "]");
    *out = rec_from_buf(x->r, &b);
    return out->data != NULL ? DI_OK : rec_no_memory(x->r, err);
}
