/* rec_messages_tools.c - tools and tool_choice of a Messages request (recipe.md 3.5).
 *
 * Deferred tools stay out of the tool block until the conversation names them (V4.1; V4 lists all). */
#include "recipe/rec_messages.h"

static bool begins_with(rec_str text, const char *prefix)
{
    const size_t n = strlen(prefix);
    return text.size >= n && memcmp(text.data, prefix, n) == 0;
}

/* A tool with a type is the server's, but for "custom", which is the word for the client's own. */
static di_status server_tool(rec_messages *x, const js_value *value, const rec_path *at, rec_str type, di_error *err)
{
    rec_str name = REC_STR("");
    if (!begins_with(type, "web_search") || !x->r->recipe->options.drop_messages_web_search) {
        return err_set(err, DI_E_ARGUMENT, "tools[%zu]: server tools are not supported", at->index);
    }
    const di_status status = rec_get_string(value, at, "name", &name, NULL, err);
    if (status == DI_OK) {
        rec_names_add(&x->dropped, name); /* a second time changes nothing */
    }
    return status;
}

static di_status read_fields(rec_messages *x, const js_value *value, const rec_path *at, rec_tool *tool, di_error *err)
{
    char text[64];
    const rec_path place = {at, "name", 0};
    di_status status = rec_need_string(value, at, "name", &tool->name, err);
    if (status == DI_OK) {
        status = rec_get_string(value, at, "description", &tool->description, &tool->has_description, err);
    }
    if (status == DI_OK) {
        status = rec_get_bool(value, at, "defer_loading", &tool->deferred, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_get_bool(value, at, "strict", &tool->held, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_check_tool_name(tool->name, rec_path_text(&place, text, sizeof text), err);
    }
    const js_value *const schema = js_get(value, "input_schema");
    tool->parameters = js_kind_of(schema) == JS_NULL ? NULL : schema;
    if (x->r->talk.version == DI_V4) {
        tool->deferred = false;
    }
    return status;
}

static di_status read_tool(rec_messages *x, const js_value *value, const rec_path *at, di_error *err)
{
    rec_str type = REC_STR("custom");
    di_status status = rec_get_string(value, at, "type", &type, NULL, err);
    if (status != DI_OK) {
        return status;
    }
    if (!rec_str_equal(type, REC_STR("custom"))) {
        return server_tool(x, value, at, type, err);
    }
    rec_tool *const tool = arena_alloc(&x->r->memory, 1, sizeof *tool);
    if (tool == NULL) {
        return rec_no_memory(x->r, err);
    }
    tool->name = tool->description = tool->space = tool->member = REC_STR("");
    status = read_fields(x, value, at, tool, err);
    const size_t index = status == DI_OK ? rec_names_add(&x->names, tool->name) : SIZE_MAX;
    if (index != SIZE_MAX) {
        x->by_name[index] = tool;
    }
    x->tools[x->n_tools++] = tool;
    return status;
}

di_status rec_messages_tools(rec_messages *x, di_error *err)
{
    di_request *const r = x->r;
    const rec_path list_at = {NULL, "tools", 0};
    const js_value *list;
    di_status status = rec_get_array(r->body, NULL, "tools", &list, err);
    if (status != DI_OK) {
        return status;
    }
    const size_t n = js_length(list);
    x->tools = arena_alloc(&r->memory, n, sizeof(rec_tool *));
    x->by_name = arena_alloc(&r->memory, n, sizeof(rec_tool *));
    if (x->tools == NULL || x->by_name == NULL || !rec_names_init(&x->names, r, n) || !rec_names_init(&x->dropped, r, n)) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        const rec_path at = {&list_at, NULL, i};
        status = read_tool(x, js_at(list, i), &at, err);
    }
    r->declared = x->tools;
    r->n_declared = x->n_tools;
    size_t n_deferred = 0;
    for (size_t i = 0; i < x->n_tools; i++) {
        n_deferred += x->tools[i]->deferred ? 1 : 0;
    }
    if (status == DI_OK && n_deferred > 0 && n_deferred == x->n_tools) {
        status = err_set(err, DI_E_ARGUMENT,
                         "tools: at least one tool must have defer_loading=false. All tools cannot be deferred.");
    }
    return status;
}

rec_tool *rec_messages_find(const rec_messages *x, rec_str name)
{
    const size_t index = rec_names_find(&x->names, name);
    return index != SIZE_MAX ? x->by_name[index] : NULL;
}

/* *name is set for the choice of one tool. */
static di_status read_choice(const rec_messages *x, rec_choice *out, rec_str *name, bool *named, di_error *err)
{
    static const char *const kinds[] = {"auto", "any", "none", "tool", NULL};
    const di_request *const r = x->r;
    const rec_path at = {NULL, "tool_choice", 0};
    const js_value *value;
    int kind = 0;
    bool unused;
    di_status status = rec_get_object(r->body, NULL, "tool_choice", &value, err);
    *named = false;
    *out = REC_CHOICE_AUTO;
    if (status != DI_OK || value == NULL) {
        return status;
    }
    status = rec_need_variant(value, &at, "type", kinds, &kind, err);
    if (status == DI_OK) {
        status = rec_get_bool(value, &at, "disable_parallel_tool_use", &unused, NULL, err);
    }
    if (status == DI_OK && kind == 3) {
        status = rec_need_string(value, &at, "name", name, err);
        *named = status == DI_OK && rec_names_find(&x->dropped, *name) == SIZE_MAX;
    }
    if (kind == 2) {
        *out = REC_CHOICE_NONE;
    } else if (*named || (kind == 1 && r->recipe->options.messages_any_forces_call)) {
        *out = REC_CHOICE_REQUIRED;
    }
    return status;
}

static di_status check_tools(const rec_messages *x, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < x->n_tools; i++) {
        const rec_tool *const tool = x->tools[i];
        rec_refusal *const refusal = &x->r->refusal;
        if (rec_messages_find(x, tool->name) != tool) {
            return err_set(err, DI_E_ARGUMENT, "Tool names must be unique.");
        }
        status = tool->parameters != NULL
                     ? rec_check_tool_schema(tool->name, tool->parameters, refusal->where, sizeof refusal->where, err)
                     : err_set(err, DI_E_ARGUMENT,
                               "Invalid schema for function '%s': null is not of types \"boolean\", \"object\"", tool->name.data);
        if (status == DI_E_ARGUMENT) {
            rec_refuse_schema(x->r, tool->parameters, "tools");
        }
    }
    return status;
}

di_status rec_messages_choice(rec_messages *x, di_error *err)
{
    di_request *const r = x->r;
    rec_choice choice;
    rec_str name = REC_STR("");
    bool named;
    di_status status = read_choice(x, &choice, &name, &named, err);
    if (status == DI_OK && choice == REC_CHOICE_NONE) {
        r->talk.choice = REC_CHOICE_NONE;
    } else if (status == DI_OK && (x->n_tools > 0 || (named && x->dropped.n > 0))) {
        r->talk.tools = arena_alloc(&r->memory, x->n_tools, sizeof(rec_tool *));
        if (r->talk.tools == NULL) {
            return rec_no_memory(r, err);
        }
        memcpy(r->talk.tools, x->tools, x->n_tools * sizeof(rec_tool *));
        r->talk.n_tools = x->n_tools;
        r->talk.choice = choice;
        status = check_tools(x, err);
        if (status == DI_OK && named) {
            status = rec_choose_tool(r, name, err);
        }
        if (status == DI_OK) {
            status = rec_check_choice(r, err);
        }
    }
    if (status == DI_OK) {
        rec_settle_announced(r);
    }
    return status;
}
