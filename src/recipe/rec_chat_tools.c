/* rec_chat_tools.c - tools and tool_choice of a Chat request (recipe.md 3.3). */
#include "recipe/rec_chat.h"

#include <stdio.h>

static di_status read_tool(const js_value *value, const rec_path *at, rec_tool *tool, di_error *err)
{
    static const char *const types[] = {"function", NULL};
    const rec_path in = {at, "function", 0};
    const js_value *function;
    int type;
    tool->name = tool->description = tool->space = tool->member = REC_STR("");
    if (js_kind_of(value) != JS_OBJECT) {
        return rec_bad_form(at, NULL, err, "invalid type: %s, expected an object", js_kind_name(js_kind_of(value)));
    }
    di_status status = rec_need_variant(value, at, "type", types, &type, err);
    if (status == DI_OK) {
        status = rec_get_object(value, at, "function", &function, err);
    }
    if (status == DI_OK && function == NULL) {
        return rec_bad_form(at, "function", err, "missing field");
    }
    if (status == DI_OK) {
        status = rec_need_string(function, &in, "name", &tool->name, err);
    }
    if (status == DI_OK) {
        status = rec_get_string(function, &in, "description", &tool->description, &tool->has_description, err);
    }
    if (status == DI_OK) {
        status = rec_get_bool(function, &in, "strict", &tool->strict, &tool->has_strict, err);
    }
    const js_value *const parameters = status == DI_OK ? js_get(function, "parameters") : NULL;
    tool->parameters = js_kind_of(parameters) != JS_NULL ? parameters : NULL;
    return status;
}

static di_status check_names(const di_request *r, di_error *err)
{
    char place[64];
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < r->n_declared; i++) {
        snprintf(place, sizeof place, "tools[%zu].function.name", i);
        status = rec_check_tool_name(r->declared[i]->name, place, err);
    }
    return status;
}

di_status rec_chat_tools(di_request *r, di_error *err)
{
    const rec_path at = {NULL, "tools", 0};
    const js_value *list;
    di_status status = rec_get_array(r->body, NULL, "tools", &list, err);
    const size_t n = js_length(list);
    if (status != DI_OK || n == 0) {
        return status;
    }
    rec_tool *const tools = arena_alloc(&r->memory, n, sizeof *tools);
    r->declared = arena_alloc(&r->memory, n, sizeof *r->declared);
    if (tools == NULL || r->declared == NULL) {
        return rec_no_memory(r, err);
    }
    for (size_t i = 0; status == DI_OK && i < n; i++) {
        const rec_path item = {&at, NULL, i};
        status = read_tool(js_at(list, i), &item, &tools[i], err);
        r->declared[i] = &tools[i];
    }
    r->n_declared = n;
    return status == DI_OK ? check_names(r, err) : status;
}

di_status rec_chat_choice(di_request *r, rec_choice *choice, rec_str *name, di_error *err)
{
    static const char *const words[] = {"auto", "none", "required", NULL};
    static const char *const types[] = {"function", "allowed_tools", NULL};
    const rec_path at = {NULL, "tool_choice", 0};
    const js_value *const value = js_get(r->body, "tool_choice");
    const js_value *inner;
    int word = 0;
    *choice = REC_CHOICE_AUTO;
    *name = (rec_str){NULL, 0};
    if (js_kind_of(value) != JS_OBJECT) {
        const di_status status = rec_get_variant(r->body, NULL, "tool_choice", words, &word, NULL, err);
        *choice = (rec_choice)word;
        return status;
    }
    di_status status = rec_need_variant(value, &at, "type", types, &word, err);
    const rec_path in = {&at, types[word], 0};
    if (status == DI_OK) {
        status = rec_get_object(value, &at, types[word], &inner, err);
    }
    if (status == DI_OK && inner == NULL) {
        return rec_bad_form(&at, types[word], err, "missing field");
    }
    if (status == DI_OK && word == 1) {
        return rec_read_allowed(r, inner, &in, choice, err);
    }
    return status == DI_OK ? rec_need_string(inner, &in, "name", name, err) : status;
}

static di_status bar_tools(di_request *r, di_error *err)
{
    static const char *const types[] = {"function", NULL};
    const rec_path at = {NULL, "tool_choice", 0};
    const rec_path in = {&at, "allowed_tools", 0};
    return rec_bar_tools(r, &in, types, "function", err);
}

/* One tool after the other: its name is new, its parameters are fit. */
static di_status check_tools(di_request *r, di_error *err)
{
    rec_names names;
    di_status status = rec_names_init(&names, r, r->talk.n_tools) ? DI_OK : rec_no_memory(r, err);
    for (size_t i = 0; status == DI_OK && i < r->talk.n_tools; i++) {
        rec_tool *const tool = r->talk.tools[i];
        if (rec_names_add(&names, tool->name) == SIZE_MAX) {
            return err_set(err, DI_E_ARGUMENT, "Tool names must be unique.");
        }
        status = rec_settle_parameters(r, tool, err);
    }
    return status;
}

di_status rec_chat_settle_tools(di_request *r, rec_choice choice, rec_str name, di_error *err)
{
    if (choice == REC_CHOICE_NONE) {
        r->talk.choice = REC_CHOICE_NONE;
        return DI_OK;
    }
    if (r->n_declared == 0) {
        return bar_tools(r, err);
    }
    r->talk.tools = arena_alloc(&r->memory, r->n_declared, sizeof *r->talk.tools);
    if (r->talk.tools == NULL) {
        return rec_no_memory(r, err);
    }
    memcpy(r->talk.tools, r->declared, r->n_declared * sizeof *r->declared);
    r->talk.n_tools = r->n_declared;
    r->talk.choice = choice;
    di_status status = check_tools(r, err);
    if (status == DI_OK && name.data != NULL) {
        status = rec_choose_tool(r, name, err);
    }
    if (status == DI_OK) {
        status = bar_tools(r, err);
    }
    return status == DI_OK ? rec_check_choice(r, err) : status;
}
