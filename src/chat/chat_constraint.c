/* chat_constraint.c - see chat_constraint.h: the struct, and the fields of the three APIs. */
#include "chat/chat_constraint.h"

#include "core/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void chat_constraint_init(chat_constraint *c)
{
    memset(c, 0, sizeof *c);
    buf_init(&c->text, SIZE_MAX);
    buf_init(&c->pattern, SIZE_MAX);
    buf_init(&c->words, SIZE_MAX);
    buf_init(&c->notes, SIZE_MAX);
}

void chat_constraint_fini(chat_constraint *c)
{
    buf_fini(&c->text);
    buf_fini(&c->pattern);
    buf_fini(&c->words);
    buf_fini(&c->notes);
    free((void *)(uintptr_t)c->tools.tools);
    c->tools.tools = NULL;
}

static void move_buf(buf *from, buf *to)
{
    *to = *from;
    buf_init(from, SIZE_MAX);
}

/* Texts stay where they are, so what points to them holds. */
void chat_constraint_give(chat_constraint *from, chat_constraint *to)
{
    chat_constraint_init(to);
    to->field = from->field;
    to->kind = from->kind;
    to->options = from->options;
    to->tools = from->tools;
    move_buf(&from->text, &to->text);
    move_buf(&from->pattern, &to->pattern);
    move_buf(&from->words, &to->words);
    from->tools = (di_grammar_tools){.tools = NULL};
    from->options.whitespace_pattern = NULL;
}

/* ---- parts ---- */

di_status chat_refuse(chat_constraint *c, const char *param, const char *code, di_error *err, const char *format, ...)
{
    char text[sizeof err->message];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rec_refusal_set(&c->refusal, param, code);
    return err_set(err, DI_E_ARGUMENT, "%s: %s", param, text);
}

/* Depth is that of a parsed body, which is bounded. */
void chat_put_json(buf *out, const js_value *value)
{
    size_t n;
    const js_kind kind = js_kind_of(value);
    const char *const spelling = js_spelling(value, &n);
    if (spelling != NULL) {
        (void)buf_append(out, spelling, n);
    } else if (kind == JS_STRING) {
        const char *const text = js_string(value, &n);
        (void)buf_json_string(out, text, n);
    } else if (kind == JS_BOOL || kind == JS_NULL) {
        (void)buf_puts(out, kind == JS_NULL ? "null" : js_bool(value) ? "true" : "false");
    } else {
        (void)buf_puts(out, kind == JS_ARRAY ? "[" : "{");
        for (size_t i = 0; i < js_length(value); i++) {
            const js_value *const item = kind == JS_ARRAY ? js_at(value, i) : js_member(value, i, &(const char *){NULL});
            (void)buf_puts(out, i > 0 ? "," : "");
            if (kind == JS_OBJECT) {
                const char *const key = js_key(item, &n);
                (void)buf_json_string(out, key, n);
                (void)buf_puts(out, ":");
            }
            chat_put_json(out, item);
        }
        (void)buf_puts(out, kind == JS_ARRAY ? "]" : "}");
    }
}

di_status chat_constraint_claim(chat_constraint *c, const char *field, di_grammar_kind kind, const js_value *value, di_error *err)
{
    size_t n;
    if (c->field != NULL) {
        return chat_refuse(c, field, "conflicting_constraints", err, "conflicting constraints: %s and %s; an answer has one at most",
                           c->field, field);
    }
    c->field = field;
    c->kind = kind;
    if (js_kind_of(value) == JS_STRING) {
        const char *const text = js_string(value, &n);
        (void)buf_append(&c->text, text, n);
    } else if (value != NULL) {
        chat_put_json(&c->text, value);
    }
    return c->text.failed ? err_memory(err, "constraint", c->text.size) : DI_OK;
}

static bool says(const js_value *object, const char *key, const char *word)
{
    size_t n;
    const js_value *const value = js_get(object, key);
    const char *const text = js_string(value, &n);
    return js_kind_of(value) == JS_STRING && strcmp(text, word) == 0 && strlen(word) == n;
}

/* ---- the three APIs ---- */

/* OpenAI's rule. An absent name is fine, where the API's own reader takes it. */
static bool is_name(const js_value *value)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t n;
    const char *const text = js_string(value, &n);
    return js_kind_of(value) == JS_NULL || (n >= 1 && n <= 64 && strspn(text, letters) == n);
}

/* `holder` has name, schema and strict: the format itself, or its json_schema; `field` is that of the schema. */
static di_status claim_schema(chat_constraint *c, const char *field, const js_value *holder, bool exact, di_error *err)
{
    const js_value *const schema = js_get(holder, "schema");
    if (!exact && !is_name(js_get(holder, "name"))) {
        char param[64];
        (void)snprintf(param, sizeof param, "%.*s.name", (int)(strrchr(field, '.') - field), field);
        return chat_refuse(c, param, "invalid_value", err, "expected 1 to 64 letters, digits, `_` or `-`");
    }
    c->options.closed = c->options.closed || js_bool(js_get(holder, "strict"));
    return exact ? DI_OK : chat_constraint_claim(c, field, DI_GRAMMAR_SCHEMA, schema, err);
}

static di_status read_response_format(chat_constraint *c, const js_value *body, bool exact, di_error *err)
{
    const js_value *const format = js_get(body, "response_format");
    if (says(format, "type", "json_schema")) {
        return claim_schema(c, "response_format.json_schema.schema", js_get(format, "json_schema"), exact, err);
    }
    if (says(format, "type", "json_object") && js_kind_of(js_get(format, "schema")) != JS_NULL) {
        return claim_schema(c, "response_format.schema", format, exact, err);
    }
    if (says(format, "type", "json_object")) {
        return chat_constraint_claim(c, "response_format", DI_GRAMMAR_JSON_OBJECT, NULL, err);
    }
    if (says(format, "type", "regex")) {
        return chat_constraint_claim(c, "response_format.regex", DI_GRAMMAR_REGEX, js_get(format, "regex"), err);
    }
    return DI_OK;
}

static di_status read_text_format(chat_constraint *c, const js_value *body, bool exact, di_error *err)
{
    const js_value *const format = js_get(js_get(body, "text"), "format");
    if (says(format, "type", "json_schema")) {
        return claim_schema(c, "text.format.schema", format, exact, err);
    }
    return says(format, "type", "json_object") ? chat_constraint_claim(c, "text.format", DI_GRAMMAR_JSON_OBJECT, NULL, err) : DI_OK;
}

/* Anthropic's two spellings. The recipe doesn't know them: their form is checked here. */
static di_status read_output_format(chat_constraint *c, const js_value *body, bool exact, di_error *err)
{
    const js_value *const forms[] = {js_get(body, "output_format"), js_get(js_get(body, "output_config"), "format")};
    static const char *const names[] = {"output_format", "output_config.format"};
    static const char *const fields[] = {"output_format.schema", "output_config.format.schema"};
    di_status status = DI_OK;
    for (size_t i = 0; status == DI_OK && i < sizeof forms / sizeof forms[0]; i++) {
        if (js_kind_of(forms[i]) == JS_NULL) {
            continue;
        }
        if (!says(forms[i], "type", "json_schema") || js_get(forms[i], "schema") == NULL) {
            return chat_refuse(c, names[i], "invalid_value", err, "expected {\"type\": \"json_schema\", \"schema\": ...}");
        }
        status = claim_schema(c, fields[i], forms[i], exact, err);
    }
    return status;
}

di_status chat_constraint_body(chat_constraint *c, const js_value *body, di_error *err)
{
    const di_status status = chat_constraint_fields(c, body, err);
    if (status == DI_OK && (c->pattern.failed || c->notes.failed)) {
        return err_memory(err, "constraint", c->pattern.size);
    }
    return status;
}

di_status chat_constraint_request(chat_constraint *c, const di_request *request, bool exact, di_error *err)
{
    const js_value *const body = rec_request_body(request);
    const di_output_stage stage = di_request_output(request)->stage;
    di_status status = DI_OK;
    switch (di_request_protocol(request)) {
    case DI_CHAT:
        status = read_response_format(c, body, exact, err);
        break;
    case DI_RESPONSES:
        status = read_text_format(c, body, exact, err);
        break;
    case DI_MESSAGES:
        status = read_output_format(c, body, exact, err);
        break;
    }
    if (status == DI_OK) {
        status = chat_constraint_body(c, body, err);
    }
    if (status == DI_OK && c->field != NULL && stage == DI_STAGE_CONTENT) {
        return chat_refuse(c, c->field, "unsupported_value", err, "an answer whose beginning is given can't be held to a form");
    }
    c->waits = stage == DI_STAGE_REASONING_START || stage == DI_STAGE_REASONING;
    return status == DI_OK ? chat_constraint_offers(c, request, err) : status;
}

/* ---- the key ---- */

static void put_text(buf *out, const char *text, size_t n)
{
    (void)buf_printf(out, "%zu:", n);
    (void)buf_append(out, text, n);
}

static void put_tools(buf *out, const di_grammar_tools *t)
{
    (void)buf_printf(out, "tools %d %d %d %d %d %d ", (int)t->choice, t->single, t->opened, t->old_empty, t->has_answer_kind,
                     (int)t->answer_kind);
    for (size_t i = 0; i < t->n_tools; i++) {
        put_text(out, t->tools[i].name, strlen(t->tools[i].name));
        put_text(out, t->tools[i].parameters != NULL ? t->tools[i].parameters : "", t->tools[i].n_parameters);
        (void)buf_puts(out, t->tools[i].strict ? "!" : ".");
    }
    put_text(out, t->block, strlen(t->block));
}

bool chat_constraint_key(const chat_constraint *c, buf *out)
{
    const di_grammar_options *const o = &c->options;
    (void)buf_printf(out, "%d %d %d %d %d %d %d %d %zu %lld %lld %d ", (int)c->kind, (int)o->order, (int)o->whitespace, (int)o->formats,
                     o->integers_any, o->escapes_all, o->lenient, o->closed, o->limits.max_memory_bytes, (long long)o->limits.compile_work,
                     (long long)o->limits.compile_ms, (int)o->limits.max_depth);
    put_text(out, c->pattern.data != NULL ? c->pattern.data : "", c->pattern.size);
    put_text(out, c->text.data != NULL ? c->text.data : "", c->text.size);
    if (c->kind == DI_GRAMMAR_TOOLS) {
        put_tools(out, &c->tools);
    }
    return !out->failed;
}

/* ---- refusals ---- */

/* Places in tools begin with the tool's number, "/0/properties/x". */
void chat_constraint_refused(chat_constraint *c, const di_request *request, const di_grammar_fault *fault, di_error *err)
{
    rec_refusal *const refusal = &c->refusal;
    const char *where = fault->where;
    if (c->kind == DI_GRAMMAR_TOOLS && where[0] == '/' && where[1] >= '0' && where[1] <= '9' && request != NULL) {
        char *end;
        const unsigned long i = strtoul(where + 1, &end, 10);
        if (chat_constraint_tool_field(request, i, refusal->param, sizeof refusal->param)) {
            where = end;
        }
    }
    rec_refusal_set(refusal, c->field, fault->kind);
    (void)snprintf(refusal->where, sizeof refusal->where, "%s", where);
    err_prefix(err, "%s", refusal->param);
}
