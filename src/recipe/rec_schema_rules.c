/* rec_schema_rules.c - what the meta-schemas of five drafts of JSON Schema ask for, as a table of keywords.
 *
 * A keyword that the draft does not know is free to hold anything. Descent follows the nesting of the body, which is bounded by
 * REC_MAX_DEPTH, and each member is looked up once, so the whole is linear but for sorting long lists of names. */
#include "recipe/rec_schema.h"

#include "core/arith.h"

#include <math.h>

typedef enum kind {
    FREE, /* the draft does not know the keyword */
    STRING, BOOL, NUMBER, POSITIVE, COUNT, ARRAY, OBJECT,
    TYPE, NAMES, SOME_NAMES, NAMES_MAP, REGEX, ID, ANCHOR,
    BOUND_FLAG, /* draft 4: true or false beside `minimum` or `maximum` */
    SCHEMA, SCHEMA_OR_BOOL, SCHEMAS, MAP, PATTERN_MAP, ITEMS, DEPENDENCIES
} kind;

typedef struct rule {
    const char *name;
    kind kinds[REC_N_DRAFTS]; /* of drafts 4, 6, 7, 2019-09, 2020-12 */
    bool asleep;              /* schemas in it count only when something refers to them */
} rule;

/* By name, in byte order. */
static const rule rules[] = {
    {"$anchor", {FREE, FREE, FREE, ANCHOR, ANCHOR}, false},
    {"$comment", {FREE, FREE, STRING, STRING, STRING}, false},
    {"$defs", {FREE, FREE, FREE, MAP, MAP}, true},
    {"$dynamicAnchor", {FREE, FREE, FREE, FREE, ANCHOR}, false},
    {"$dynamicRef", {FREE, FREE, FREE, FREE, STRING}, false},
    {"$id", {FREE, STRING, STRING, ID, ID}, false},
    {"$recursiveAnchor", {FREE, FREE, FREE, BOOL, STRING}, false},
    {"$recursiveRef", {FREE, FREE, FREE, STRING, STRING}, false},
    {"$ref", {STRING, STRING, STRING, STRING, STRING}, false},
    {"$schema", {STRING, STRING, STRING, STRING, STRING}, false},
    {"$vocabulary", {FREE, FREE, FREE, OBJECT, OBJECT}, false},
    {"additionalItems", {SCHEMA_OR_BOOL, SCHEMA, SCHEMA, SCHEMA, FREE}, false},
    {"additionalProperties", {SCHEMA_OR_BOOL, SCHEMA, SCHEMA, SCHEMA, SCHEMA}, false},
    {"allOf", {SCHEMAS, SCHEMAS, SCHEMAS, SCHEMAS, SCHEMAS}, false},
    {"anyOf", {SCHEMAS, SCHEMAS, SCHEMAS, SCHEMAS, SCHEMAS}, false},
    {"contains", {FREE, SCHEMA, SCHEMA, SCHEMA, SCHEMA}, false},
    {"contentEncoding", {FREE, STRING, STRING, STRING, STRING}, false},
    {"contentMediaType", {FREE, STRING, STRING, STRING, STRING}, false},
    {"contentSchema", {FREE, FREE, FREE, SCHEMA, SCHEMA}, true},
    {"definitions", {MAP, MAP, MAP, MAP, MAP}, true},
    {"dependencies", {DEPENDENCIES, DEPENDENCIES, DEPENDENCIES, DEPENDENCIES, DEPENDENCIES}, false},
    {"dependentRequired", {FREE, FREE, FREE, NAMES_MAP, NAMES_MAP}, false},
    {"dependentSchemas", {FREE, FREE, FREE, MAP, MAP}, false},
    {"deprecated", {FREE, FREE, FREE, BOOL, BOOL}, false},
    {"description", {STRING, STRING, STRING, STRING, STRING}, false},
    {"else", {FREE, FREE, SCHEMA, SCHEMA, SCHEMA}, false},
    {"enum", {ARRAY, ARRAY, ARRAY, ARRAY, ARRAY}, false},
    {"examples", {FREE, ARRAY, ARRAY, ARRAY, ARRAY}, false},
    {"exclusiveMaximum", {BOUND_FLAG, NUMBER, NUMBER, NUMBER, NUMBER}, false},
    {"exclusiveMinimum", {BOUND_FLAG, NUMBER, NUMBER, NUMBER, NUMBER}, false},
    {"format", {STRING, STRING, STRING, STRING, STRING}, false},
    {"id", {STRING, FREE, FREE, FREE, FREE}, false},
    {"if", {FREE, FREE, SCHEMA, SCHEMA, SCHEMA}, false},
    {"items", {ITEMS, ITEMS, ITEMS, ITEMS, SCHEMA}, false},
    {"maxContains", {FREE, FREE, FREE, COUNT, COUNT}, false},
    {"maxItems", {COUNT, COUNT, COUNT, COUNT, COUNT}, false},
    {"maxLength", {COUNT, COUNT, COUNT, COUNT, COUNT}, false},
    {"maxProperties", {COUNT, COUNT, COUNT, COUNT, COUNT}, false},
    {"maximum", {NUMBER, NUMBER, NUMBER, NUMBER, NUMBER}, false},
    {"minContains", {FREE, FREE, FREE, COUNT, COUNT}, false},
    {"minItems", {COUNT, COUNT, COUNT, COUNT, COUNT}, false},
    {"minLength", {COUNT, COUNT, COUNT, COUNT, COUNT}, false},
    {"minProperties", {COUNT, COUNT, COUNT, COUNT, COUNT}, false},
    {"minimum", {NUMBER, NUMBER, NUMBER, NUMBER, NUMBER}, false},
    {"multipleOf", {POSITIVE, POSITIVE, POSITIVE, POSITIVE, POSITIVE}, false},
    {"not", {SCHEMA, SCHEMA, SCHEMA, SCHEMA, SCHEMA}, false},
    {"oneOf", {SCHEMAS, SCHEMAS, SCHEMAS, SCHEMAS, SCHEMAS}, false},
    {"pattern", {REGEX, REGEX, REGEX, REGEX, REGEX}, false},
    {"patternProperties", {PATTERN_MAP, PATTERN_MAP, PATTERN_MAP, PATTERN_MAP, PATTERN_MAP}, false},
    {"prefixItems", {FREE, FREE, FREE, FREE, SCHEMAS}, false},
    {"properties", {MAP, MAP, MAP, MAP, MAP}, false},
    {"propertyNames", {FREE, SCHEMA, SCHEMA, SCHEMA, SCHEMA}, false},
    {"readOnly", {FREE, FREE, BOOL, BOOL, BOOL}, false},
    {"required", {SOME_NAMES, NAMES, NAMES, NAMES, NAMES}, false},
    {"then", {FREE, FREE, SCHEMA, SCHEMA, SCHEMA}, false},
    {"title", {STRING, STRING, STRING, STRING, STRING}, false},
    {"type", {TYPE, TYPE, TYPE, TYPE, TYPE}, false},
    {"unevaluatedItems", {FREE, FREE, FREE, SCHEMA, SCHEMA}, false},
    {"unevaluatedProperties", {FREE, FREE, FREE, SCHEMA, SCHEMA}, false},
    {"uniqueItems", {BOOL, BOOL, BOOL, BOOL, BOOL}, false},
    {"writeOnly", {FREE, FREE, FREE, BOOL, BOOL}, false},
};

static int compare_key(const void *key, const void *entry)
{
    return strcmp(key, ((const rule *)entry)->name);
}

/* NULL for a keyword without a rule. */
static const rule *find_rule(const js_value *member, const char *key, rec_draft draft)
{
    size_t size;
    js_key(member, &size);
    const rule *const found = bsearch(key, rules, sizeof rules / sizeof rules[0], sizeof rules[0], compare_key);
    return found != NULL && strlen(key) == size && found->kinds[draft] != FREE ? found : NULL;
}

/* ---- the schemas inside a schema ---- */

static bool visit_list(const js_value *list, const rec_path *at, rec_schema_visit visit, void *arg)
{
    for (size_t i = 0; i < js_length(list); i++) {
        const rec_path item = {at, NULL, i};
        if (!visit(arg, js_at(list, i), &item)) {
            return false;
        }
    }
    return true;
}

/* `mixed`: some values are lists of names, which are no schemas. */
static bool visit_map(const js_value *map, bool mixed, const rec_path *at, rec_schema_visit visit, void *arg)
{
    for (size_t i = 0; i < js_length(map); i++) {
        const char *key;
        const js_value *const value = js_member(map, i, &key);
        const rec_path item = {at, key, 0};
        if (!(mixed && js_kind_of(value) == JS_ARRAY) && !visit(arg, value, &item)) {
            return false;
        }
    }
    return true;
}

static bool visit_member(kind k, const js_value *value, const rec_path *at, rec_schema_visit visit, void *arg)
{
    switch (k) {
    case SCHEMA:
        return visit(arg, value, at);
    case SCHEMA_OR_BOOL:
        return js_kind_of(value) == JS_BOOL || visit(arg, value, at);
    case SCHEMAS:
        return visit_list(value, at, visit, arg);
    case MAP:
    case PATTERN_MAP:
    case DEPENDENCIES:
        return js_kind_of(value) != JS_OBJECT || visit_map(value, k == DEPENDENCIES, at, visit, arg);
    case ITEMS:
        return js_kind_of(value) == JS_ARRAY ? visit_list(value, at, visit, arg) : visit(arg, value, at);
    default:
        return true;
    }
}

bool rec_schema_inside(rec_draft draft, const js_value *schema, const rec_path *at, bool live, rec_schema_visit visit, void *arg)
{
    const bool branches = js_get(schema, "if") != NULL; /* without it `then` and `else` mean nothing */
    for (size_t i = 0; js_kind_of(schema) == JS_OBJECT && i < js_length(schema); i++) {
        const char *key;
        const js_value *const value = js_member(schema, i, &key);
        const rule *const found = find_rule(value, key, draft);
        if (found == NULL || (live && found->asleep)) {
            continue;
        }
        if (live && !branches && (strcmp(key, "then") == 0 || strcmp(key, "else") == 0)) {
            continue;
        }
        const rec_path place = {at, key, 0};
        if (!visit_member(found->kinds[draft], value, &place, visit, arg)) {
            return false;
        }
    }
    return true;
}

/* ---- values of keywords ---- */

static int compare_text(const void *a, const void *b)
{
    const rec_str *const x = a;
    const rec_str *const y = b;
    const int order = memcmp(x->data, y->data, x->size < y->size ? x->size : y->size);
    return order != 0 ? order : (x->size > y->size) - (x->size < y->size);
}

/* Strings, each once. */
static bool check_names(rec_check *c, const js_value *list, const rec_path *at)
{
    const size_t n = js_length(list);
    if (js_kind_of(list) != JS_ARRAY) {
        return rec_schema_fault(c, at, NULL, "not an array of strings");
    }
    rec_str *const names = ar_calloc(n, sizeof *names);
    if (names == NULL) {
        c->no_memory = true;
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < n && good; i++) {
        names[i] = rec_string(js_at(list, i));
        good = js_kind_of(js_at(list, i)) == JS_STRING || rec_schema_fault(c, at, NULL, "not an array of strings");
    }
    if (good) {
        qsort(names, n, sizeof *names, compare_text);
    }
    for (size_t i = 1; i < n && good; i++) {
        good = !rec_str_equal(names[i - 1], names[i]) || rec_schema_fault(c, at, NULL, "`%.64s` is there twice", names[i].data);
    }
    free(names);
    return good;
}

/* Bit of a type name; 0 for what is none. */
static unsigned type_bit(const js_value *value)
{
    static const char *const names[] = {"array", "boolean", "integer", "null", "number", "object", "string"};
    const rec_str text = rec_string(value);
    for (unsigned i = 0; js_kind_of(value) == JS_STRING && i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == text.size && memcmp(names[i], text.data, text.size) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

static bool check_type(rec_check *c, const js_value *value, const rec_path *at)
{
    unsigned seen = 0;
    const bool list = js_kind_of(value) == JS_ARRAY && js_length(value) > 0;
    for (size_t i = 0; list && i < js_length(value); i++) {
        const unsigned bit = type_bit(js_at(value, i));
        if (bit == 0 || (seen & bit) != 0) {
            return rec_schema_fault(c, at, NULL, "not a list of type names, each once");
        }
        seen |= bit;
    }
    return list || type_bit(value) != 0 || rec_schema_fault(c, at, NULL, "not a type name");
}

static bool is_number(const js_value *value)
{
    return js_kind_of(value) == JS_INT || js_kind_of(value) == JS_NUMBER;
}

/* 2.0 counts as a whole number but in draft 4. */
static bool is_count(const rec_check *c, const js_value *value)
{
    const double number = js_number(value);
    const bool whole = js_kind_of(value) == JS_INT || (is_number(value) && c->draft != REC_DRAFT4 && floor(number) == number);
    return whole && number >= 0.0;
}

static bool is_word(char letter)
{
    const char lower = (char)(letter | 0x20);
    return (lower >= 'a' && lower <= 'z') || letter == '_';
}

static bool is_anchor(const rec_check *c, rec_str name)
{
    if (name.size == 0 || !is_word(name.data[0]) || (c->draft == REC_DRAFT2019 && name.data[0] == '_')) {
        return false;
    }
    for (size_t i = 1; i < name.size; i++) {
        const char letter = name.data[i];
        const bool mark = letter == '-' || letter == '.' || (letter == ':' && c->draft == REC_DRAFT2019);
        if (!is_word(letter) && !(letter >= '0' && letter <= '9') && !mark) {
            return false;
        }
    }
    return true;
}

static bool is_id(rec_str text)
{
    const char *const hash = memchr(text.data, '#', text.size);
    return hash == NULL || hash == text.data + text.size - 1;
}

static bool check_bound_flag(rec_check *c, const js_value *schema, const js_value *value, const rec_path *at)
{
    const char *const bound = strcmp(at->key, "exclusiveMinimum") == 0 ? "minimum" : "maximum";
    if (js_kind_of(value) != JS_BOOL) {
        return rec_schema_fault(c, at, NULL, "not true or false");
    }
    return js_get(schema, bound) != NULL || rec_schema_fault(c, at, NULL, "without `%s`", bound);
}

static bool check_map(rec_check *c, kind k, const js_value *map, const rec_path *at)
{
    if (js_kind_of(map) != JS_OBJECT) {
        return rec_schema_fault(c, at, NULL, "not an object");
    }
    for (size_t i = 0; i < js_length(map); i++) {
        const char *key;
        const js_value *const value = js_member(map, i, &key);
        const rec_path item = {at, key, 0};
        rec_str pattern = {key, 0};
        js_key(value, &pattern.size);
        if (k == PATTERN_MAP && !rec_pattern_valid(pattern)) {
            return rec_schema_fault(c, at, NULL, "`%.64s` is not a regular expression", key);
        }
        const bool names = k == NAMES_MAP || (k == DEPENDENCIES && js_kind_of(value) == JS_ARRAY);
        if (names && !check_names(c, value, &item)) {
            return false;
        }
        if (names && k == DEPENDENCIES && c->draft == REC_DRAFT4 && js_length(value) == 0) {
            return rec_schema_fault(c, &item, NULL, "an empty array");
        }
    }
    return true;
}

static bool check_list(rec_check *c, const js_value *value, const rec_path *at)
{
    if (js_kind_of(value) != JS_ARRAY || js_length(value) == 0) {
        return rec_schema_fault(c, at, NULL, "not an array of at least one schema");
    }
    return true;
}

static bool check_text(rec_check *c, kind k, const js_value *value, const rec_path *at)
{
    const rec_str text = rec_string(value);
    if (js_kind_of(value) != JS_STRING) {
        return rec_schema_fault(c, at, NULL, "not a string");
    }
    if (k == REGEX && !rec_pattern_valid(text)) {
        return rec_schema_fault(c, at, NULL, "`%.64s` is not a regular expression", text.data);
    }
    if ((k == ID && !is_id(text)) || (k == ANCHOR && !is_anchor(c, text))) {
        return rec_schema_fault(c, at, NULL, "`%.64s` is not a name for this", text.data);
    }
    return true;
}

/* The value of one keyword, without the schemas in it. */
static bool check_value(rec_check *c, kind k, const js_value *schema, const js_value *value, const rec_path *at)
{
    switch (k) {
    case FREE:
        return true;
    case STRING:
    case REGEX:
    case ID:
    case ANCHOR:
        return check_text(c, k, value, at);
    case BOOL:
        return js_kind_of(value) == JS_BOOL || rec_schema_fault(c, at, NULL, "not true or false");
    case NUMBER:
        return is_number(value) || rec_schema_fault(c, at, NULL, "not a number");
    case POSITIVE:
        return (is_number(value) && js_number(value) > 0.0) || rec_schema_fault(c, at, NULL, "not a number above 0");
    case COUNT:
        return is_count(c, value) || rec_schema_fault(c, at, NULL, "not a whole number from 0");
    case ARRAY:
        return js_kind_of(value) == JS_ARRAY || rec_schema_fault(c, at, NULL, "not an array");
    case OBJECT:
        return js_kind_of(value) == JS_OBJECT || rec_schema_fault(c, at, NULL, "not an object");
    case TYPE:
        return check_type(c, value, at);
    case SOME_NAMES:
        return (js_length(value) > 0 || rec_schema_fault(c, at, NULL, "an empty array")) && check_names(c, value, at);
    case NAMES:
        return check_names(c, value, at);
    case BOUND_FLAG:
        return check_bound_flag(c, schema, value, at);
    case SCHEMA:
    case SCHEMA_OR_BOOL:
        return true;
    case SCHEMAS:
        return check_list(c, value, at);
    case NAMES_MAP:
    case MAP:
    case PATTERN_MAP:
    case DEPENDENCIES:
        return check_map(c, k, value, at);
    case ITEMS:
        return js_kind_of(value) != JS_ARRAY || check_list(c, value, at);
    }
    return true;
}

bool rec_schema_keywords(rec_check *c, const js_value *schema, const rec_path *at)
{
    if (js_kind_of(schema) == JS_BOOL && c->draft != REC_DRAFT4) {
        return true;
    }
    if (js_kind_of(schema) != JS_OBJECT) {
        return rec_schema_fault(c, at, NULL, "a schema is an object%s", c->draft != REC_DRAFT4 ? ", true or false" : "");
    }
    for (size_t i = 0; i < js_length(schema); i++) {
        const char *key;
        const js_value *const value = js_member(schema, i, &key);
        const rule *const found = find_rule(value, key, c->draft);
        const rec_path place = {at, key, 0};
        if (found != NULL && !check_value(c, found->kinds[c->draft], schema, value, &place)) {
            return false;
        }
    }
    return true;
}

static bool visit_valid(void *arg, const js_value *schema, const rec_path *at)
{
    return rec_schema_valid(arg, schema, at);
}

bool rec_schema_valid(rec_check *c, const js_value *schema, const rec_path *at)
{
    return rec_schema_keywords(c, schema, at) && rec_schema_inside(c->draft, schema, at, false, visit_valid, c);
}
