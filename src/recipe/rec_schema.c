/* rec_schema.c - JSON schemas of requests against their meta-schema (recipe.md 3.1).
 *
 * A schema that is refused here could not constrain anything later, and the official service refuses it too. `$schema` chooses the
 * draft: 4, 6, 7, 2019-09 or 2020-12, which is also the one of schemas that do not say. Only the beginning of a message is given;
 * the reason behind it is in our words. */
#include "recipe/rec_schema.h"

#include "core/utf8.h"

#include <stdarg.h>
#include <stdio.h>

bool rec_schema_fault(rec_check *c, const rec_path *at, const char *key, const char *format, ...)
{
    char where[128];
    char what[120];
    const rec_path field = {at, key, 0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    rec_path_text(key != NULL ? &field : at, where, sizeof where);
    where[utf8_valid_prefix((const uint8_t *)where, strlen(where))] = '\0';
    what[utf8_valid_prefix((const uint8_t *)what, strlen(what))] = '\0';
    snprintf(c->reason, sizeof c->reason, "%s%s%s", where, where[0] != '\0' ? ": " : "", what);
    rec_path_pointer(key != NULL ? &field : at, c->where, sizeof c->where);
    return false;
}

/* False for a dialect that is none of the known ones. */
static bool find_draft(const js_value *schema, rec_draft *out)
{
    static const struct {
        const char *uri;
        rec_draft draft;
    } dialects[] = {
        {"http://json-schema.org/draft-04/schema", REC_DRAFT4},
        {"http://json-schema.org/draft-06/schema", REC_DRAFT6},
        {"http://json-schema.org/draft-07/schema", REC_DRAFT7},
        {"https://json-schema.org/draft/2019-09/schema", REC_DRAFT2019},
        {"https://json-schema.org/draft/2020-12/schema", REC_DRAFT2020},
        {"http://json-schema.org/schema", REC_DRAFT2020},
        {"", REC_DRAFT2020},
    };
    const rec_str uri = rec_string(js_get(schema, "$schema"));
    const size_t n = uri.size > 0 && uri.data[uri.size - 1] == '#' ? uri.size - 1 : uri.size;
    *out = REC_DRAFT2020;
    for (size_t i = 0; i < sizeof dialects / sizeof dialects[0]; i++) {
        if (strlen(dialects[i].uri) == n && memcmp(dialects[i].uri, uri.data, n) == 0) {
            *out = dialects[i].draft;
            return true;
        }
    }
    return false;
}

static bool check(rec_check *c, const js_value *schema)
{
    const bool known = find_draft(schema, &c->draft);
    if (!rec_schema_valid(c, schema, NULL)) {
        return false;
    }
    if (!known) {
        return rec_schema_fault(c, NULL, "$schema", "unknown meta-schema '%s'", rec_string(js_get(schema, "$schema")).data);
    }
    return rec_schema_refs(c, schema);
}

/* A tool's schema must say that it is an object, in just these words. */
static di_status check_type(rec_str name, const js_value *schema, di_error *err)
{
    const js_value *const type = js_get(schema, "type");
    if (js_kind_of(type) == JS_STRING && rec_str_equal(rec_string(type), REC_STR("object"))) {
        return DI_OK;
    }
    buf text;
    buf_init(&text, sizeof err->message); /* what is longer does not go into a message */
    if (type == NULL || !rec_json_value(&text, type, REC_JSON_COMPACT)) {
        buf_clear(&text);
        buf_puts(&text, type == NULL ? "null" : "...");
    }
    const di_status status = err_set(err, DI_E_ARGUMENT,
                                     "Invalid schema for function '%s': schema must be a JSON Schema of 'type: \"object\"', got "
                                     "'type: %s'.",
                                     name.data, text.data != NULL ? text.data : "null");
    buf_fini(&text);
    return status;
}

di_status rec_check_tool_schema(rec_str name, const js_value *schema, char *where, size_t capacity, di_error *err)
{
    rec_check c = {.reason = ""};
    if (check(&c, schema)) {
        return check_type(name, schema, err);
    }
    (void)snprintf(where, capacity, "%s", c.where);
    return c.no_memory ? err_memory(err, "schema check", 0)
                       : err_set(err, DI_E_ARGUMENT, "Invalid schema for function '%s': %s", name.data, c.reason);
}

di_status rec_check_response_schema(const js_value *schema, char *where, size_t capacity, di_error *err)
{
    rec_check c = {.reason = ""};
    if (check(&c, schema)) {
        return DI_OK;
    }
    (void)snprintf(where, capacity, "%s", c.where);
    return c.no_memory ? err_memory(err, "schema check", 0) : err_set(err, DI_E_ARGUMENT, "Invalid json schema: %s", c.reason);
}
