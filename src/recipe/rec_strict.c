/* rec_strict.c - the strict form of schemas (recipe.md 3.1): each is written anew with just the keywords that strict calling knows, in a
 * fixed order, and every property of an object is required.
 *
 * What is not written is not looked at. The new schema is text that is parsed again, so that its values live like all others of the
 * request. Descent follows the nesting of the body (REC_MAX_DEPTH); what is written is never deeper than what was read. */
#include "recipe/rec_read.h"

#include "core/utf8.h"

typedef struct writer {
    di_request *r;
    di_error *err;
    const char *what; /* the beginning of messages */
    di_error late;    /* first fault of what is said where the form is right: told when the form of all is right */
    const js_value *at;      /* the schema that is written */
    const js_value *late_at; /* the one of the late fault */
    buf out;
} writer;

/* `bare`: an object may be without properties. */
static di_status write_schema(writer *w, const js_value *schema, bool bare);

/* NULL, where nothing is written, when there was a late fault before. */
static di_error *late(writer *w)
{
    if (w->late.code != DI_OK) {
        return NULL;
    }
    w->late_at = w->at;
    return &w->late;
}

static di_status bad_schema(writer *w, const char *key, const js_value *value, const char *expected)
{
    return err_set(w->err, DI_E_ARGUMENT, "%s `%s` is of type %s, expected %s", w->what, key,
                   js_kind_name(js_kind_of(value)), expected);
}

/* Bytes of a text that fit into a message. */
static int shown(rec_str text)
{
    return (int)utf8_valid_prefix((const uint8_t *)text.data, text.size < 64 ? text.size : 64);
}

/* Numbers keep their spelling. */
static void put_value(writer *w, const js_value *value)
{
    size_t size;
    const char *const spelling = js_spelling(value, &size);
    if (spelling != NULL) {
        buf_append(&w->out, spelling, size);
    } else {
        rec_json_value(&w->out, value, REC_JSON_COMPACT);
    }
}

static void put_key(writer *w, const char *key)
{
    buf_printf(&w->out, ",\"%s\":", key);
}

/* The field when it is there; NULL when it is not or is null. */
static const js_value *field(const js_value *schema, const char *key)
{
    const js_value *const value = js_get(schema, key);
    return js_kind_of(value) != JS_NULL ? value : NULL;
}

static di_status copy_string(writer *w, const js_value *schema, const char *key)
{
    const js_value *const value = field(schema, key);
    if (value == NULL) {
        return DI_OK;
    }
    if (js_kind_of(value) != JS_STRING) {
        return bad_schema(w, key, value, "a string");
    }
    put_key(w, key);
    put_value(w, value);
    return DI_OK;
}

static di_status copy_number(writer *w, const js_value *schema, const char *key, bool whole)
{
    const js_value *const value = field(schema, key);
    const js_kind kind = js_kind_of(value);
    if (value == NULL) {
        return DI_OK;
    }
    if (kind != JS_INT && (whole || kind != JS_NUMBER)) {
        return bad_schema(w, key, value, whole ? "an integer" : "a number");
    }
    put_key(w, key);
    put_value(w, value);
    return DI_OK;
}

static di_status copy_format(writer *w, const js_value *schema)
{
    static const char *const formats[] = {"email", "hostname", "ipv4", "ipv6", "uuid", NULL};
    const js_value *const value = field(schema, "format");
    const rec_str text = rec_string(value);
    for (size_t i = 0; formats[i] != NULL; i++) {
        if (strlen(formats[i]) == text.size && memcmp(formats[i], text.data, text.size) == 0) {
            return copy_string(w, schema, "format");
        }
    }
    if (value != NULL && js_kind_of(value) == JS_STRING) {
        return err_set(w->err, DI_E_ARGUMENT,
                       "%s unknown variant `%.*s`, expected one of `email`, `hostname`, `ipv4`, `ipv6`, `uuid`", w->what,
                       shown(text), text.data);
    }
    return copy_string(w, schema, "format");
}

static di_status copy_enum(writer *w, const js_value *schema)
{
    const js_value *const list = field(schema, "enum");
    if (list == NULL) {
        return DI_OK;
    }
    if (js_kind_of(list) != JS_ARRAY) {
        return bad_schema(w, "enum", list, "an array of strings");
    }
    for (size_t i = 0; i < js_length(list); i++) {
        if (js_kind_of(js_at(list, i)) != JS_STRING) {
            return bad_schema(w, "enum", js_at(list, i), "strings");
        }
    }
    put_key(w, "enum");
    put_value(w, list);
    return DI_OK;
}

/* ---- the kinds of schemas ---- */

static di_status write_string(writer *w, const js_value *schema)
{
    buf_puts(&w->out, "{\"type\":\"string\"");
    di_status status = copy_string(w, schema, "description");
    if (status == DI_OK) {
        status = copy_string(w, schema, "pattern");
    }
    if (status == DI_OK) {
        status = copy_format(w, schema);
    }
    if (status == DI_OK) {
        status = copy_enum(w, schema);
    }
    buf_puts(&w->out, "}");
    return status;
}

static di_status write_number(writer *w, const js_value *schema, bool whole)
{
    static const char *const keys[] = {"const",            "default",          "minimum",    "maximum",
                                       "exclusiveMinimum", "exclusiveMaximum", "multipleOf", NULL};
    buf_printf(&w->out, "{\"type\":\"%s\"", whole ? "integer" : "number");
    di_status status = copy_string(w, schema, "description");
    for (size_t i = 0; status == DI_OK && keys[i] != NULL; i++) {
        status = copy_number(w, schema, keys[i], whole);
    }
    buf_puts(&w->out, "}");
    return status;
}

static di_status write_array(writer *w, const js_value *schema)
{
    const js_value *const items = js_get(schema, "items");
    if (items == NULL) {
        return err_set(w->err, DI_E_ARGUMENT, "%s missing field `items`", w->what);
    }
    buf_puts(&w->out, "{\"type\":\"array\",\"items\":");
    di_status status = write_schema(w, items, false);
    if (status == DI_OK) {
        status = copy_string(w, schema, "description");
    }
    buf_puts(&w->out, "}");
    return status;
}

static di_status write_plain(writer *w, const js_value *schema)
{
    buf_puts(&w->out, "{\"type\":");
    put_value(w, js_get(schema, "type"));
    const di_status status = copy_string(w, schema, "description");
    buf_puts(&w->out, "}");
    return status;
}

/* A list of types has no place for what objects and arrays need. */
static di_status write_types(writer *w, const js_value *schema)
{
    static const char *const names[] = {"string", "number", "integer", "boolean", "null"};
    const js_value *const types = js_get(schema, "type");
    for (size_t i = 0; i < js_length(types); i++) {
        const rec_str type = rec_string(js_at(types, i));
        bool known = false;
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            known = known || (strlen(names[k]) == type.size && memcmp(names[k], type.data, type.size) == 0);
        }
        if (!known) {
            return err_set(w->err, DI_E_ARGUMENT,
                           "%s field `type`: unknown variant `%.*s`, expected one of `string`, `number`, `integer`, `boolean`, `null`",
                           w->what, shown(type), type.data);
        }
    }
    return write_plain(w, schema);
}

static di_status write_any_of(writer *w, const js_value *schema)
{
    const js_value *const list = js_get(schema, "anyOf");
    if (js_kind_of(list) != JS_ARRAY) {
        return bad_schema(w, "anyOf", list, "an array of schemas");
    }
    di_status status = DI_OK;
    buf_puts(&w->out, "{\"anyOf\":[");
    for (size_t i = 0; status == DI_OK && i < js_length(list); i++) {
        buf_puts(&w->out, i > 0 ? "," : "");
        status = write_schema(w, js_at(list, i), false);
    }
    buf_puts(&w->out, "]");
    if (status == DI_OK) {
        status = copy_string(w, schema, "description");
    }
    buf_puts(&w->out, "}");
    return status;
}

static di_status write_reference(writer *w, const js_value *schema)
{
    const js_value *const reference = js_get(schema, "$ref");
    if (js_kind_of(reference) != JS_STRING) {
        return bad_schema(w, "$ref", reference, "a string");
    }
    buf_puts(&w->out, "{\"$ref\":");
    put_value(w, reference);
    buf_puts(&w->out, "}");
    return DI_OK;
}

/* ---- objects ---- */

static di_status write_map(writer *w, const js_value *map)
{
    di_status status = DI_OK;
    buf_puts(&w->out, "{");
    for (size_t i = 0; status == DI_OK && i < js_length(map); i++) {
        const char *key;
        size_t size;
        const js_value *const value = js_member(map, i, &key);
        js_key(value, &size);
        buf_puts(&w->out, i > 0 ? "," : "");
        rec_json_string(&w->out, key, size);
        buf_puts(&w->out, ":");
        status = write_schema(w, value, false);
    }
    buf_puts(&w->out, "}");
    return status;
}

static di_status check_form(writer *w, const js_value *schema)
{
    const js_value *const properties = field(schema, "properties");
    const js_value *const more = field(schema, "additionalProperties");
    const js_value *const required = field(schema, "required");
    if (properties != NULL && js_kind_of(properties) != JS_OBJECT) {
        return bad_schema(w, "properties", properties, "an object");
    }
    if (more != NULL && js_kind_of(more) != JS_BOOL) {
        return bad_schema(w, "additionalProperties", more, "true or false");
    }
    if (required != NULL && js_kind_of(required) != JS_ARRAY) {
        return bad_schema(w, "required", required, "an array of strings");
    }
    for (size_t i = 0; i < js_length(required); i++) {
        if (js_kind_of(js_at(required, i)) != JS_STRING) {
            return bad_schema(w, "required", js_at(required, i), "strings");
        }
    }
    return DI_OK;
}

/* `required`, if given, must name all properties, each once. */
static di_status check_required(writer *w, const js_value *schema, const js_value *properties)
{
    const js_value *const list = field(schema, "required");
    const size_t n = js_length(list);
    rec_names names;
    if (list == NULL || w->late.code != DI_OK) {
        return DI_OK;
    }
    if (!rec_names_init(&names, w->r, n)) {
        return rec_no_memory(w->r, w->err);
    }
    for (size_t i = 0; i < n; i++) {
        const rec_str name = rec_string(js_at(list, i));
        if (js_get(properties, name.data) == NULL) {
            (void)err_set(late(w), DI_E_ARGUMENT, "Required property '%s' not found in object", name.data);
        } else if (rec_names_add(&names, name) == SIZE_MAX) {
            (void)err_set(late(w), DI_E_ARGUMENT, "Duplicate required property '%s'", name.data);
        }
    }
    if (n != js_length(properties)) {
        (void)err_set(late(w), DI_E_ARGUMENT, "Required properties must match all properties in the object");
    }
    return DI_OK;
}

static void put_required(writer *w, const js_value *properties)
{
    put_key(w, "required");
    buf_puts(&w->out, "[");
    for (size_t i = 0; i < js_length(properties); i++) {
        const char *key;
        size_t size;
        js_key(js_member(properties, i, &key), &size);
        buf_puts(&w->out, i > 0 ? "," : "");
        rec_json_string(&w->out, key, size);
    }
    buf_puts(&w->out, "]");
}

/* Definitions stay, under the standard name too: references lead there. */
static di_status copy_definitions(writer *w, const js_value *schema, const char *key)
{
    const js_value *const map = field(schema, key);
    if (map == NULL) {
        return DI_OK;
    }
    if (js_kind_of(map) != JS_OBJECT) {
        return bad_schema(w, key, map, "an object");
    }
    put_key(w, key);
    return write_map(w, map);
}

static di_status write_object(writer *w, const js_value *schema, bool bare)
{
    const js_value *const properties = field(schema, "properties");
    di_status status = check_form(w, schema);
    if (!bare && js_length(properties) == 0) {
        (void)err_set(late(w), DI_E_ARGUMENT, "An object with no properties is not allowed.");
    }
    if (status == DI_OK) {
        buf_puts(&w->out, "{\"type\":\"object\",\"properties\":");
        status = write_map(w, properties);
    }
    if (status == DI_OK) {
        buf_puts(&w->out, ",\"additionalProperties\":false");
        put_required(w, properties);
        status = copy_string(w, schema, "description");
    }
    if (status == DI_OK) {
        status = copy_definitions(w, schema, "$def");
    }
    if (status == DI_OK) {
        status = copy_definitions(w, schema, "$defs");
    }
    if (status == DI_OK) {
        status = check_required(w, schema, properties);
    }
    if (js_bool(field(schema, "additionalProperties"))) {
        (void)err_set(late(w), DI_E_ARGUMENT, "additionalProperties should not be true");
    }
    buf_puts(&w->out, "}");
    return status;
}

/* ---- any schema ---- */

static di_status write_typed(writer *w, const js_value *schema, bool bare)
{
    static const char *const names[] = {"object", "string", "number", "integer", "array", "boolean", "null"};
    const js_value *const type = js_get(schema, "type");
    const rec_str text = rec_string(type);
    size_t i = 0;
    while (i < 7 && (strlen(names[i]) != text.size || memcmp(names[i], text.data, text.size) != 0)) {
        i++;
    }
    switch (js_kind_of(type) == JS_STRING ? i : 7) {
    case 0:
        return write_object(w, schema, bare);
    case 1:
        return write_string(w, schema);
    case 2:
    case 3:
        return write_number(w, schema, i == 3);
    case 4:
        return write_array(w, schema);
    case 5:
    case 6:
        return write_plain(w, schema);
    default:
        return bad_schema(w, "type", type, "one of `object`, `string`, `number`, `integer`, `boolean`, `array`, `null`");
    }
}

/* A type wins over anyOf, and that over a reference. */
static di_status write_any(writer *w, const js_value *schema, bool bare)
{
    const js_value *const type = js_get(schema, "type");
    if (type != NULL) {
        return js_kind_of(type) == JS_ARRAY ? write_types(w, schema) : write_typed(w, schema, bare);
    }
    if (field(schema, "anyOf") != NULL) {
        return write_any_of(w, schema);
    }
    if (field(schema, "$ref") != NULL) {
        return write_reference(w, schema);
    }
    return err_set(w->err, DI_E_ARGUMENT, "%s one of `type`, `anyOf`, `$ref` field is required", w->what);
}

static di_status write_schema(writer *w, const js_value *schema, bool bare)
{
    const js_value *const outer = w->at;
    w->at = schema;
    const di_status status = write_any(w, schema, bare);
    w->at = status == DI_OK ? outer : w->at;
    return status;
}

static di_status strict_form(di_request *r, const js_value *schema, bool parameters, const js_value **out, di_error *err)
{
    writer w = {.r = r, .err = err, .what = parameters ? "Invalid tool parameters schema :" : "Invalid json schema:"};
    const js_kind kind = js_kind_of(js_get(schema, "type"));
    buf_init(&w.out, rec_memory_left(r));
    di_status status = write_schema(&w, schema, parameters);
    const js_value *const refused = w.at;
    w.at = schema;
    if (!(kind == JS_STRING && rec_str_equal(rec_string(js_get(schema, "type")), REC_STR("object")))) {
        (void)err_set(late(&w), DI_E_ARGUMENT, "The top level of the %s must be an object.",
                      parameters ? "function parameters schema" : "json schema");
    }
    if (status == DI_OK && w.late.code != DI_OK) {
        status = err_set(err, w.late.code, "%s", w.late.message);
        (void)rec_find_pointer(schema, w.late_at, r->refusal.where, sizeof r->refusal.where);
    } else if (status != DI_OK) {
        (void)rec_find_pointer(schema, refused, r->refusal.where, sizeof r->refusal.where);
    }
    if (status == DI_OK && w.out.failed) {
        r->memory.over_budget = r->memory.over_budget || w.out.full;
        status = rec_no_memory(r, err);
    }
    if (status == DI_OK) {
        status = rec_parse_json(r, w.out.data, w.out.size, "strict schema", out, err);
    }
    buf_fini(&w.out);
    return status;
}

di_status rec_settle_parameters(di_request *r, rec_tool *tool, di_error *err)
{
    static const char nothing[] = "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false,\"required\":[]}";
    rec_refusal *const refusal = &r->refusal;
    tool->given = tool->parameters;
    if (tool->given == NULL) {
        return tool->strict ? rec_parse_json(r, nothing, sizeof nothing - 1, "strict schema", &tool->parameters, err) : DI_OK;
    }
    const di_status status = tool->strict
                                 ? strict_form(r, tool->given, true, &tool->parameters, err)
                                 : rec_check_tool_schema(tool->name, tool->given, refusal->where, sizeof refusal->where, err);
    if (status == DI_E_ARGUMENT) {
        rec_refuse_schema(r, tool->given, "tools");
    }
    return status;
}

di_status rec_settle_format(di_request *r, di_error *err)
{
    rec_refusal *const refusal = &r->refusal;
    r->talk.enforced = r->talk.schema;
    const di_status status = r->talk.strict
                                 ? strict_form(r, r->talk.schema, false, &r->talk.enforced, err)
                                 : rec_check_response_schema(r->talk.schema, refusal->where, sizeof refusal->where, err);
    if (status == DI_E_ARGUMENT) {
        rec_refuse_schema(r, r->talk.schema, "response_format.json_schema.schema");
    }
    return status;
}
