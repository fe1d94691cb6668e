/* rec_echo.c - what a Responses object repeats of its request (recipe.md 5.2): the values as they were asked, null or the default
 * where the request says nothing. A reply without a request reports defaults only. */
#include "recipe/rec_reply_int.h"

static const js_value *field(const di_reply *r, const char *key)
{
    return r->request != NULL ? js_get(r->request->body, key) : NULL;
}

static void put_value(buf *out, const js_value *value)
{
    rec_json_value(out, value, REC_JSON_COMPACT); /* NULL is null */
}

static void put_field(buf *out, const char *key, const js_value *value)
{
    buf_printf(out, ",\"%s\":", key);
    put_value(out, value);
}

/* The value as text, or what stands for none. */
static void put_or(buf *out, const js_value *value, const char *none)
{
    if (js_kind_of(value) == JS_NULL) {
        buf_puts(out, none);
    } else {
        put_value(out, value);
    }
}

static void put_number(buf *out, const js_value *value, double none)
{
    rec_json_double(out, js_kind_of(value) == JS_NULL ? none : js_number(value), REC_JSON_COMPACT);
}

/* ---- tools ---- */

static bool is_type(const js_value *object, const char *name)
{
    return strcmp(js_string(js_get(object, "type"), NULL), name) == 0;
}

static void put_fields(buf *out, const js_value *object, const char *const *keys)
{
    buf_puts(out, "{\"type\":");
    put_value(out, js_get(object, "type"));
    for (; *keys != NULL; keys++) {
        put_field(out, *keys, js_get(object, *keys));
    }
    buf_puts(out, "}");
}

static void put_tools(buf *out, const js_value *tools);

/* A custom tool shows only what was said. */
static void put_custom(buf *out, const js_value *tool)
{
    static const char *const keys[] = {"description", "format"};
    buf_puts(out, "{\"type\":\"custom\"");
    put_field(out, "name", js_get(tool, "name"));
    for (size_t i = 0; i < 2; i++) {
        if (js_kind_of(js_get(tool, keys[i])) != JS_NULL) {
            put_field(out, keys[i], js_get(tool, keys[i]));
        }
    }
    buf_puts(out, "}");
}

static void put_namespace(buf *out, const js_value *tool)
{
    buf_puts(out, "{\"type\":\"namespace\"");
    put_field(out, "name", js_get(tool, "name"));
    put_field(out, "description", js_get(tool, "description"));
    buf_puts(out, ",\"tools\":");
    put_tools(out, js_get(tool, "tools"));
    buf_puts(out, "}");
}

/* Tools of other kinds were not looked at: they are repeated as they are. */
static void put_tool(buf *out, const js_value *tool)
{
    static const char *const function[] = {"name", "description", "parameters", "strict", NULL};
    static const char *const search[] = {"execution", "description", "parameters", NULL};
    if (is_type(tool, "function")) {
        put_fields(out, tool, function);
    } else if (is_type(tool, "tool_search")) {
        put_fields(out, tool, search);
    } else if (is_type(tool, "custom")) {
        put_custom(out, tool);
    } else if (is_type(tool, "namespace")) {
        put_namespace(out, tool);
    } else {
        put_value(out, tool);
    }
}

/* Recursion is as deep as documents are: REC_MAX_DEPTH. */
static void put_tools(buf *out, const js_value *tools)
{
    buf_puts(out, "[");
    for (size_t i = 0; i < js_length(tools); i++) {
        buf_puts(out, i != 0 ? "," : "");
        put_tool(out, js_at(tools, i));
    }
    buf_puts(out, "]");
}

/* ---- other objects ---- */

static void put_reasoning(const di_reply *r, buf *out)
{
    const js_value *const reasoning = field(r, "reasoning");
    buf_puts(out, ",\"reasoning\":{\"effort\":");
    if (r->request != NULL) {
        put_value(out, js_get(reasoning, "effort"));
    } else {
        buf_puts(out, r->thinking ? "\"high\"" : "\"none\"");
    }
    put_field(out, "summary", js_get(reasoning, "summary"));
    buf_puts(out, "}");
}

static void put_format(const js_value *format, buf *out)
{
    if (!is_type(format, "json_schema")) {
        buf_puts(out, is_type(format, "json_object") ? "{\"type\":\"json_object\"}" : "{\"type\":\"text\"}");
        return;
    }
    buf_puts(out, "{\"type\":\"json_schema\"");
    put_field(out, "name", js_get(format, "name"));
    if (js_kind_of(js_get(format, "description")) != JS_NULL) {
        put_field(out, "description", js_get(format, "description"));
    }
    put_field(out, "schema", js_get(format, "schema"));
    put_field(out, "strict", js_get(format, "strict"));
    buf_puts(out, "}");
}

void rec_echo_front(const di_reply *r, buf *out)
{
    buf_puts(out, "\"instructions\":");
    put_value(out, field(r, "instructions"));
    put_field(out, "max_output_tokens", field(r, "max_output_tokens"));
    buf_puts(out, ",\"max_tool_calls\":null,\"model\":");
    rec_put_any(out, r->model);
    buf_puts(out, ",\"moderation\":null");
}

void rec_echo_back(const di_reply *r, buf *out)
{
    buf_puts(out, "\"parallel_tool_calls\":true,\"presence_penalty\":0.0,\"previous_response_id\":null,\"prompt_cache_key\":null,"
                  "\"prompt_cache_retention\":null");
    put_reasoning(r, out);
    buf_puts(out, ",\"safety_identifier\":null,\"service_tier\":\"default\",\"store\":false,\"temperature\":");
    put_number(out, field(r, "temperature"), 1.0);
    buf_puts(out, ",\"text\":{\"format\":");
    put_format(js_get(field(r, "text"), "format"), out);
    put_field(out, "verbosity", js_get(field(r, "text"), "verbosity"));
    buf_puts(out, "},\"tool_choice\":");
    put_or(out, field(r, "tool_choice"), "\"auto\"");
    buf_puts(out, ",\"tools\":");
    put_tools(out, field(r, "tools"));
    buf_puts(out, ",\"top_logprobs\":");
    put_or(out, field(r, "top_logprobs"), "0");
    buf_puts(out, ",\"top_p\":");
    put_number(out, field(r, "top_p"), 1.0);
    buf_puts(out, ",\"truncation\":\"disabled\"");
}

void rec_echo_user(const di_reply *r, buf *out)
{
    put_value(out, field(r, "user"));
}
