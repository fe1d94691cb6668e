/* rec_responses_tools.c - tools of a Responses request: those of `tools`, and those that tool searches found (recipe.md 3.4).
 *
 * Their form and their names are checked here; schemas and uniqueness only when a choice keeps them (rec_responses_choice.c). */
#include "recipe/rec_responses.h"

static bool is_type(rec_str type, const char *name)
{
    return type.size == strlen(name) && memcmp(type.data, name, type.size) == 0;
}

/* ---- counting, so that dictionaries have their size at the start ---- */

static size_t count_tools(const js_value *list)
{
    size_t n = 0;
    for (size_t i = 0; i < js_length(list); i++) {
        const js_value *const members = js_get(js_at(list, i), "tools");
        n += 1 + js_length(members);
    }
    return n;
}

static const js_value *found_tools(const js_value *item)
{
    const rec_str type = rec_string(js_get(item, "type"));
    return is_type(type, "tool_search_output") ? js_get(item, "tools") : NULL;
}

static di_status prepare(rec_responses *x, const js_value *declared, di_error *err)
{
    di_request *const r = x->r;
    const size_t n_items = js_length(x->items);
    size_t n_tools = count_tools(declared);
    if (r->talk.version != DI_V4) {
        x->found = arena_alloc(&r->memory, n_items, sizeof *x->found);
        if (x->found == NULL) {
            return rec_no_memory(r, err);
        }
        for (size_t i = 0; i < n_items; i++) {
            n_tools += count_tools(found_tools(js_at(x->items, i)));
        }
    }
    const size_t n_names = n_tools + n_items; /* every item may be a call in a namespace of its own */
    x->tools = arena_alloc(&r->memory, n_tools, sizeof(rec_tool *));
    x->by_name = arena_alloc(&r->memory, n_tools, sizeof(rec_tool *));
    x->next_number = arena_alloc(&r->memory, n_names, sizeof *x->next_number);
    x->pair_names = arena_alloc(&r->memory, n_names, sizeof *x->pair_names);
    if (x->tools == NULL || x->by_name == NULL || x->next_number == NULL || x->pair_names == NULL ||
        !rec_names_init(&x->used, r, n_names) || !rec_names_init(&x->bases, r, n_names) ||
        !rec_names_init(&x->pairs, r, n_names)) {
        return rec_no_memory(r, err);
    }
    return DI_OK;
}

/* ---- reading ---- */

static bool same_value(const js_value *a, const js_value *b)
{
    const js_kind kind = js_kind_of(a);
    if (kind != js_kind_of(b) || js_length(a) != js_length(b)) {
        return false;
    }
    size_t n;
    size_t m;
    switch (kind) {
    case JS_NULL:
        return true;
    case JS_BOOL:
        return js_bool(a) == js_bool(b);
    case JS_INT:
    case JS_NUMBER: {
        const char *const text = js_spelling(a, &n);
        const char *const other = js_spelling(b, &m);
        return n == m && memcmp(text, other, n) == 0;
    }
    case JS_STRING:
        return rec_str_equal(rec_string(a), rec_string(b));
    case JS_ARRAY:
        for (size_t i = 0; i < js_length(a); i++) {
            if (!same_value(js_at(a, i), js_at(b, i))) {
                return false;
            }
        }
        return true;
    case JS_OBJECT:
        for (size_t i = 0; i < js_length(a); i++) {
            const char *unused;
            const js_value *const value = js_member(a, i, &unused);
            const js_value *const twin = js_member(b, i, &unused);
            const char *const key = js_key(value, &n);
            const char *const other = js_key(twin, &m);
            if (n != m || memcmp(key, other, n) != 0 || !same_value(value, twin)) {
                return false;
            }
        }
        return true;
    }
    return false;
}

static bool same_tool(const rec_tool *a, const rec_tool *b)
{
    return a->custom == b->custom && a->search == b->search && a->has_description == b->has_description &&
           rec_str_equal(a->description, b->description) && a->has_strict == b->has_strict && a->strict == b->strict &&
           same_value(a->parameters, b->parameters);
}

static rec_tool *new_tool(rec_responses *x, const rec_found *found)
{
    rec_tool *const tool = arena_alloc(&x->r->memory, 1, sizeof *tool);
    if (tool != NULL) {
        tool->name = tool->description = tool->space = tool->member = REC_STR("");
        tool->deferred = found != NULL;
    }
    return tool;
}

static void keep(rec_responses *x, rec_tool *tool, rec_found *found)
{
    x->tools[x->n_tools++] = tool;
    if (found != NULL) {
        found->tools[found->n_tools++] = tool;
    }
}

/* A tool outside namespaces. A search may bring a tool along that is declared already: then it is that one. */
static void keep_top(rec_responses *x, rec_tool *tool, rec_found *found)
{
    const size_t index = rec_names_add(&x->used, tool->name);
    if (index != SIZE_MAX) {
        x->by_name[index] = tool;
    } else if (found != NULL) {
        rec_tool *const known = x->by_name[rec_names_find(&x->used, tool->name)];
        if (same_tool(known, tool)) {
            found->tools[found->n_tools++] = known;
            return;
        }
    }
    keep(x, tool, found);
}

bool rec_responses_first(const rec_responses *x, const rec_tool *tool)
{
    return tool->space.size > 0 || x->by_name[rec_names_find(&x->used, tool->name)] == tool;
}

static di_status check_name(rec_str name, const rec_path *at, di_error *err)
{
    char text[128];
    const rec_path place = {at, "name", 0};
    return rec_check_tool_name(name, rec_path_text(&place, text, sizeof text), err);
}

static di_status read_function(const js_value *value, const rec_path *at, rec_tool *tool, di_error *err)
{
    di_status status = rec_need_string(value, at, "name", &tool->name, err);
    if (status == DI_OK) {
        status = rec_get_string(value, at, "description", &tool->description, &tool->has_description, err);
    }
    if (status == DI_OK) {
        status = rec_get_bool(value, at, "strict", &tool->strict, &tool->has_strict, err);
    }
    if (status == DI_OK) {
        const js_value *const parameters = js_get(value, "parameters");
        tool->parameters = js_kind_of(parameters) == JS_NULL ? NULL : parameters;
        status = check_name(tool->name, at, err);
    }
    return status;
}

/* The one custom tool that there is, made once. */
static di_status know_patch(rec_responses *x, di_error *err)
{
    if (x->patch_schema != NULL) {
        return DI_OK;
    }
    const rec_str opening = {rec_apply_patch_opening, strlen(rec_apply_patch_opening)};
    const rec_str rest = {rec_apply_patch_rest, strlen(rec_apply_patch_rest)};
    x->patch_description = rec_join(x->r, opening, x->r->talk.version == DI_V4 ? "" : "\n", rest);
    if (x->patch_description.data == NULL) {
        return rec_no_memory(x->r, err);
    }
    return rec_parse_json(x->r, rec_apply_patch_schema, strlen(rec_apply_patch_schema), "apply_patch", &x->patch_schema, err);
}

static di_status read_custom(rec_responses *x, const js_value *value, const rec_path *at, rec_tool *tool, di_error *err)
{
    di_status status = rec_need_string(value, at, "name", &tool->name, err);
    if (status != DI_OK) {
        return status;
    }
    if (!rec_str_equal(tool->name, REC_STR("apply_patch"))) {
        return err_set(err, DI_E_ARGUMENT, "Unsupported custom tool: '%s'. Only 'apply_patch' is supported.", tool->name.data);
    }
    status = know_patch(x, err);
    tool->custom = true;
    tool->has_description = true;
    tool->description = x->patch_description;
    tool->parameters = x->patch_schema;
    return status;
}

/* Left out (*client false) unless the client does the searching. */
static di_status read_search(di_prompt_version version, const js_value *value, const rec_path *at, rec_tool *tool, bool *client,
                             di_error *err)
{
    static const char *const executions[] = {"client", "server", NULL};
    int execution = 1;
    di_status status = rec_get_variant(value, at, "execution", executions, &execution, NULL, err);
    if (status == DI_OK) {
        status = rec_get_string(value, at, "description", &tool->description, &tool->has_description, err);
    }
    const js_value *const parameters = js_get(value, "parameters");
    tool->parameters = js_kind_of(parameters) == JS_NULL ? NULL : parameters;
    tool->name = REC_STR("tool_search");
    tool->search = true;
    *client = execution == 0 && version != DI_V4; /* V4 knows no search of tools */
    return status;
}

/* The description of a member begins with that of its namespace; in V4 it stands alone. */
static bool describe_member(di_request *r, rec_str space_description, rec_tool *tool)
{
    if (space_description.size > 0 && r->talk.version != DI_V4) {
        tool->description = rec_join(r, space_description, "\n", tool->description);
        tool->has_description = true;
    }
    return tool->description.data != NULL;
}

static di_status read_member(rec_responses *x, const js_value *value, const rec_path *at, rec_str description, rec_tool *tool,
                             di_error *err)
{
    static const char *const kinds[] = {"function", "custom", NULL};
    int kind = 0;
    di_status status = rec_need_variant(value, at, "type", kinds, &kind, err);
    if (status == DI_OK && kind == 1) {
        rec_str name;
        char text[128];
        status = rec_need_string(value, at, "name", &name, err);
        if (status == DI_OK) {
            status = err_set(err, DI_E_ARGUMENT,
                             "Currently custom tools are not allowed inside a namespace. Found custom tool '%s' in %s.", name.data,
                             rec_path_text(at, text, sizeof text));
        }
    } else if (status == DI_OK) {
        status = read_function(value, at, tool, err);
    }
    if (status == DI_OK) {
        tool->member = tool->name;
        status = describe_member(x->r, description, tool) ? DI_OK : rec_no_memory(x->r, err);
    }
    return status;
}

static di_status read_namespace(rec_responses *x, const js_value *value, const rec_path *at, rec_found *found, di_error *err)
{
    rec_str space;
    rec_str description = REC_STR("");
    const js_value *members = NULL;
    rec_names names;
    di_status status = rec_need_string(value, at, "name", &space, err);
    if (status == DI_OK) {
        status = rec_get_string(value, at, "description", &description, NULL, err);
    }
    if (status == DI_OK) {
        status = rec_get_array(value, at, "tools", &members, err);
    }
    if (status == DI_OK && members == NULL) {
        status = rec_bad_form(at, "tools", err, "missing field");
    }
    if (status == DI_OK) {
        status = check_name(space, at, err);
    }
    if (status == DI_OK && !rec_names_init(&names, x->r, js_length(members))) {
        status = rec_no_memory(x->r, err);
    }
    const rec_path list = {at, "tools", 0};
    for (size_t i = 0; status == DI_OK && i < js_length(members); i++) {
        const rec_path place = {&list, NULL, i};
        rec_tool *const tool = new_tool(x, found);
        if (tool == NULL) {
            return rec_no_memory(x->r, err);
        }
        tool->space = space;
        status = read_member(x, js_at(members, i), &place, description, tool, err);
        if (status == DI_OK && rec_names_add(&names, tool->name) == SIZE_MAX) {
            status = err_set(err, DI_E_ARGUMENT, "Tool names within a namespace must be unique.");
        }
        keep(x, tool, found);
    }
    return status;
}

static di_status read_tool(rec_responses *x, const js_value *value, const rec_path *at, rec_found *found, di_error *err)
{
    rec_str type;
    bool wanted = true;
    di_status status = rec_need_string(value, at, "type", &type, err);
    if (status != DI_OK) {
        return status;
    }
    if (is_type(type, "namespace")) {
        return read_namespace(x, value, at, found, err);
    }
    if (is_type(type, "web_search") || is_type(type, "web_search_2025_08_26")) {
        return x->r->recipe->options.reject_responses_web_search
                   ? err_set(err, DI_E_ARGUMENT, "Server tools are not supported")
                   : DI_OK;
    }
    rec_tool *const tool = new_tool(x, found);
    if (tool == NULL) {
        return rec_no_memory(x->r, err);
    }
    if (is_type(type, "function")) {
        status = read_function(value, at, tool, err);
    } else if (is_type(type, "custom")) {
        status = read_custom(x, value, at, tool, err);
    } else if (is_type(type, "tool_search")) {
        status = read_search(x->r->talk.version, value, at, tool, &wanted, err);
    } else {
        wanted = false;
    }
    if (status == DI_OK && wanted) {
        keep_top(x, tool, found);
    }
    return status;
}

static di_status read_list(rec_responses *x, const js_value *list, const rec_path *at, rec_found *found, di_error *err)
{
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < js_length(list); i++) {
        const rec_path place = {at, NULL, i};
        status = read_tool(x, js_at(list, i), &place, found, err);
    }
    return status;
}

static di_status read_found(rec_responses *x, di_error *err)
{
    const rec_path input = {NULL, "input", 0};
    di_status status = DI_OK;
    for (size_t i = 0; x->found != NULL && status == DI_OK && i < js_length(x->items); i++) {
        const js_value *const item = js_at(x->items, i);
        const js_value *const list = found_tools(item);
        const rec_path place = {&input, NULL, i};
        const rec_path tools = {&place, "tools", 0};
        if (list == NULL) {
            continue; /* another item; its own form is checked where it is read */
        }
        if (js_kind_of(list) != JS_ARRAY) {
            return rec_bad_form(&place, "tools", err, "expected an array, not %s", js_kind_name(js_kind_of(list)));
        }
        x->found[i].tools = arena_alloc(&x->r->memory, count_tools(list), sizeof(rec_tool *));
        if (x->found[i].tools == NULL) {
            return rec_no_memory(x->r, err);
        }
        status = read_list(x, list, &tools, &x->found[i], err);
    }
    return status;
}

di_status rec_responses_tools(rec_responses *x, di_error *err)
{
    const rec_path at = {NULL, "tools", 0};
    const js_value *declared;
    di_status status = rec_get_array(x->r->body, NULL, "tools", &declared, err);
    if (status == DI_OK) {
        status = prepare(x, declared, err);
    }
    if (status == DI_OK) {
        status = read_list(x, declared, &at, NULL, err);
    }
    if (status == DI_OK) {
        status = read_found(x, err);
    }
    if (status == DI_OK) {
        status = rec_responses_name_members(x, err);
    }
    x->r->declared = x->tools;
    x->r->n_declared = x->n_tools;
    return status;
}
