/* gram_brute.c - see gram_brute.h. */
#include "gram_brute.h"

#include "support/unit.h"

#include <stdio.h>
#include <string.h>

static const char *const plain[] = {"null", "true", "false", "1", "2", "10", "\"\"", "\"a\"", "\"b\"", "\"ab\""};
static const char *const inner[] = {"null", "1", "2", "\"a\"", "\"ab\""};
enum { N_PLAIN = sizeof plain / sizeof *plain, N_INNER = sizeof inner / sizeof *inner };

/* --- The universe ------------------------------------------------------------------------------------------------- */

static void add(brute_universe *u, const char *format, const char *a, const char *b)
{
    di_error err;
    assert_true(u->n < BRUTE_MAX_VALUES);
    char *text = u->texts[u->n];
    (void)snprintf(text, sizeof u->texts[0], format, a, b);
    assert_int_equal(js_parse(text, strlen(text), "value", NULL, &u->docs[u->n], &err), DI_OK);
    u->n++;
}

void brute_universe_init(brute_universe *u)
{
    *u = (brute_universe){.n = 0};
    for (size_t i = 0; i < N_PLAIN; i++) {
        add(u, "%s%s", plain[i], "");
    }
    add(u, "[%s%s]", "", "");
    add(u, "{%s%s}", "", "");
    for (size_t i = 0; i < N_INNER; i++) {
        add(u, "[%s%s]", inner[i], "");
        add(u, "{\"a\":%s%s}", inner[i], "");
        add(u, "{\"b\":%s%s}", inner[i], "");
        for (size_t k = 0; k < N_INNER; k++) {
            add(u, "[%s,%s]", inner[i], inner[k]);
            add(u, "{\"a\":%s,\"b\":%s}", inner[i], inner[k]);
            add(u, "{\"b\":%s,\"a\":%s}", inner[i], inner[k]);
        }
    }
}

void brute_universe_fini(brute_universe *u)
{
    for (size_t i = 0; i < u->n; i++) {
        js_free(u->docs[i]);
    }
}

void brute_wrap(buf *out, const char *schema)
{
    /* Numbers are integers, so that each has one spelling. */
#define INNER "{\"anyOf\":[{\"enum\":[null,\"a\",\"ab\"]},{\"type\":\"integer\",\"enum\":[1,2]}]}"
    (void)buf_printf(out,
                     "{\"allOf\":[{\"anyOf\":[{\"enum\":[null,true,false,\"\",\"a\",\"b\",\"ab\"]},"
                     "{\"type\":\"integer\",\"enum\":[1,2,10]},"
                     "{\"type\":\"array\",\"maxItems\":2,\"items\":" INNER "},"
                     "{\"type\":\"object\",\"properties\":{\"a\":" INNER ",\"b\":" INNER "},\"additionalProperties\":false}]},%s]}",
                     schema);
#undef INNER
}

/* --- Random schemas ----------------------------------------------------------------------------------------------- */

static uint32_t below(uint64_t *random, uint32_t n) { return (uint32_t)(unit_random(random) % n); }

static const char *pick(uint64_t *random) { return plain[below(random, N_PLAIN)]; }

static void list(buf *out, uint64_t *random, int depth, uint32_t most)
{
    const uint32_t n = 1 + below(random, most);
    (void)buf_puts(out, "[");
    for (uint32_t i = 0; i < n; i++) {
        (void)buf_puts(out, i == 0 ? "" : ",");
        brute_schema(out, random, depth - 1);
    }
    (void)buf_puts(out, "]");
}

static void with_schema(buf *out, uint64_t *random, int depth, const char *before, const char *behind)
{
    (void)buf_puts(out, before);
    brute_schema(out, random, depth - 1);
    (void)buf_puts(out, behind);
}

/* One keyword of those that say something by themselves. */
static void keyword(buf *out, uint64_t *random)
{
    static const char *const types[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    static const char *const patterns[] = {"a", "^a", "b$", "^[ab]?$"};
    static const char *const words[] = {
        "\"required\":[\"a\"]", "\"required\":[\"b\"]", "\"dependentRequired\":{\"a\":[\"b\"]}", "\"uniqueItems\":true",
        "\"propertyNames\":{\"pattern\":\"^a\"}",
    };
    static const char *const numbers[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    static const char *const sizes[] = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"};
    switch (below(random, 8)) {
    case 0:
        (void)buf_printf(out, "\"type\":\"%s\"", types[below(random, 7)]);
        break;
    case 1:
        (void)buf_printf(out, "\"type\":[\"%s\",\"%s\"]", types[below(random, 3)], types[3 + below(random, 4)]);
        break;
    case 2:
        (void)buf_printf(out, "\"enum\":[%s,%s]", plain[below(random, 5)], plain[5 + below(random, 5)]);
        break;
    case 3:
        (void)buf_printf(out, "\"const\":%s", pick(random));
        break;
    case 4:
        (void)buf_printf(out, "\"%s\":%u", numbers[below(random, 4)], below(random, 12));
        break;
    case 5:
        (void)buf_printf(out, "\"pattern\":\"%s\"", patterns[below(random, 4)]);
        break;
    case 6:
        (void)buf_printf(out, "\"%s\":%u", sizes[below(random, 6)], below(random, 3));
        break;
    default:
        (void)buf_puts(out, words[below(random, 5)]);
        break;
    }
}

/* One keyword with schemas inside. */
static void combination(buf *out, uint64_t *random, int depth)
{
    static const char *const lists[] = {"\"anyOf\":", "\"oneOf\":", "\"allOf\":", "\"prefixItems\":"};
    static const char *const single[] = {"\"not\":", "\"items\":", "\"contains\":", "\"additionalProperties\":"};
    const uint32_t kind = below(random, 11);
    if (kind < 4) {
        (void)buf_puts(out, lists[kind]);
        list(out, random, depth, 3);
    } else if (kind < 8) {
        with_schema(out, random, depth, single[kind - 4], "");
    } else if (kind == 8) {
        with_schema(out, random, depth, "\"properties\":{\"a\":", "}");
    } else if (kind == 9) {
        with_schema(out, random, depth, "\"patternProperties\":{\"b\":", "}");
    } else {
        with_schema(out, random, depth, "\"if\":", ",\"then\":");
        with_schema(out, random, depth, "", ",\"else\":");
        brute_schema(out, random, depth - 1);
    }
}

void brute_schema(buf *out, uint64_t *random, int depth)
{
    const uint32_t form = below(random, 12);
    if (form == 0 || depth < 0) {
        (void)buf_puts(out, below(random, 3) == 0 ? "false" : "true");
        return;
    }
    (void)buf_puts(out, "{");
    if (form < 8 || depth == 0) {
        keyword(out, random);
        (void)buf_puts(out, depth > 0 && form % 2 == 0 ? "," : "");
    }
    if (depth > 0 && (form >= 8 || form % 2 == 0)) {
        combination(out, random, depth);
    }
    (void)buf_puts(out, "}");
}

/* --- The validator ------------------------------------------------------------------------------------------------ */

static bool equal(const js_value *a, const js_value *b)
{
    size_t n;
    size_t m;
    if (js_kind_of(a) != js_kind_of(b) || js_length(a) != js_length(b)) {
        return false;
    }
    switch (js_kind_of(a)) {
    case JS_BOOL:
        return js_bool(a) == js_bool(b);
    case JS_INT:
        return js_int(a) == js_int(b);
    case JS_STRING: {
        const char *x = js_string(a, &n);
        const char *y = js_string(b, &m);
        return n == m && memcmp(x, y, n) == 0;
    }
    case JS_ARRAY:
        for (size_t i = 0; i < js_length(a); i++) {
            if (!equal(js_at(a, i), js_at(b, i))) {
                return false;
            }
        }
        return true;
    case JS_OBJECT:
        for (size_t i = 0; i < js_length(a); i++) {
            const char *key;
            const js_value *x = js_member(a, i, &key);
            const js_value *y = js_get(b, key);
            if (y == NULL || !equal(x, y)) {
                return false;
            }
        }
        return true;
    default:
        return true;
    }
}

static bool among(const js_value *options, const js_value *value)
{
    bool found = false;
    for (size_t i = 0; i < js_length(options); i++) {
        found = found || equal(js_at(options, i), value);
    }
    return found;
}

static bool is_type(const char *type, const js_value *value)
{
    static const char *const names[] = {[JS_NULL] = "null", [JS_BOOL] = "boolean", [JS_INT] = "integer", [JS_NUMBER] = "number",
                                        [JS_STRING] = "string", [JS_ARRAY] = "array", [JS_OBJECT] = "object"};
    return strcmp(type, names[js_kind_of(value)]) == 0 || (strcmp(type, "number") == 0 && js_kind_of(value) == JS_INT);
}

static bool matches(const char *pattern, const char *text)
{
    const size_t n = strlen(text);
    if (strcmp(pattern, "^[ab]?$") == 0) {
        return n == 0 || (n == 1 && (text[0] == 'a' || text[0] == 'b'));
    }
    return strcmp(pattern, "^a") == 0 ? text[0] == 'a' : strcmp(pattern, "b$") == 0 ? n != 0 && text[n - 1] == 'b'
                                                                                    : strstr(text, pattern) != NULL;
}

static int count_valid(const js_value *list, const js_value *value)
{
    int n = 0;
    for (size_t i = 0; i < js_length(list); i++) {
        n += brute_valid(js_at(list, i), value);
    }
    return n;
}

static bool bounds_hold(const js_value *s, const char *least, const char *most, size_t size)
{
    const js_value *min = js_get(s, least);
    const js_value *max = js_get(s, most);
    return (min == NULL || (int64_t)size >= js_int(min)) && (max == NULL || (int64_t)size <= js_int(max));
}

static bool number_valid(const js_value *s, int64_t x)
{
    const js_value *min = js_get(s, "minimum");
    const js_value *max = js_get(s, "maximum");
    const js_value *above = js_get(s, "exclusiveMinimum");
    const js_value *under = js_get(s, "exclusiveMaximum");
    return (min == NULL || x >= js_int(min)) && (max == NULL || x <= js_int(max)) && (above == NULL || x > js_int(above)) &&
           (under == NULL || x < js_int(under));
}

static bool array_valid(const js_value *s, const js_value *value)
{
    const js_value *prefix = js_get(s, "prefixItems");
    const js_value *items = js_get(s, "items");
    const js_value *contains = js_get(s, "contains");
    bool contained = contains == NULL;
    bool valid = bounds_hold(s, "minItems", "maxItems", js_length(value));
    for (size_t i = 0; i < js_length(value); i++) {
        const js_value *item = js_at(value, i);
        const js_value *rule = i < js_length(prefix) ? js_at(prefix, i) : items;
        valid = valid && (rule == NULL || brute_valid(rule, item));
        contained = contained || brute_valid(contains, item);
        for (size_t k = 0; k < i && js_bool(js_get(s, "uniqueItems")); k++) {
            valid = valid && !equal(item, js_at(value, k));
        }
    }
    return valid && contained;
}

static bool member_valid(const js_value *s, const char *name, const js_value *member)
{
    size_t n;
    const js_value *rule = js_get(js_get(s, "properties"), name);
    const js_value *names = js_get(s, "propertyNames");
    const js_value *pattern_rule = js_get(js_get(s, "patternProperties"), "b");
    const js_value *others = js_get(s, "additionalProperties");
    const bool matched = pattern_rule != NULL && matches("b", name);
    bool valid = (rule == NULL || brute_valid(rule, member)) && (!matched || brute_valid(pattern_rule, member));
    valid = valid && (rule != NULL || matched || others == NULL || brute_valid(others, member));
    return valid && (names == NULL || matches(js_string(js_get(names, "pattern"), &n), name));
}

static bool object_valid(const js_value *s, const js_value *value)
{
    size_t n;
    const js_value *required = js_get(s, "required");
    bool valid = bounds_hold(s, "minProperties", "maxProperties", js_length(value));
    for (size_t i = 0; i < js_length(required); i++) {
        valid = valid && js_get(value, js_string(js_at(required, i), &n)) != NULL;
    }
    if (js_get(s, "dependentRequired") != NULL && js_get(value, "a") != NULL) {
        valid = valid && js_get(value, "b") != NULL;
    }
    for (size_t i = 0; i < js_length(value); i++) {
        const char *name;
        const js_value *member = js_member(value, i, &name);
        valid = valid && member_valid(s, name, member);
    }
    return valid;
}

static bool scalar_valid(const js_value *s, const js_value *value)
{
    size_t n;
    const js_value *pattern = js_get(s, "pattern");
    if (js_kind_of(value) == JS_INT) {
        return number_valid(s, js_int(value));
    }
    if (js_kind_of(value) != JS_STRING) {
        return true;
    }
    return bounds_hold(s, "minLength", "maxLength", js_length(value)) &&
           (pattern == NULL || matches(js_string(pattern, &n), js_string(value, &n)));
}

static bool type_valid(const js_value *type, const js_value *value)
{
    size_t n;
    bool valid = type == NULL || (js_kind_of(type) == JS_STRING && is_type(js_string(type, &n), value));
    for (size_t i = 0; js_kind_of(type) == JS_ARRAY && i < js_length(type); i++) {
        valid = valid || is_type(js_string(js_at(type, i), &n), value);
    }
    return valid;
}

static bool combinations_valid(const js_value *s, const js_value *value)
{
    const js_value *any = js_get(s, "anyOf");
    const js_value *one = js_get(s, "oneOf");
    const js_value *all = js_get(s, "allOf");
    const js_value *not = js_get(s, "not");
    const js_value *condition = js_get(s, "if");
    bool valid = (any == NULL || count_valid(any, value) > 0) && (one == NULL || count_valid(one, value) == 1);
    valid = valid && (all == NULL || (size_t)count_valid(all, value) == js_length(all));
    valid = valid && (not == NULL || !brute_valid(not, value));
    return valid && (condition == NULL || brute_valid(js_get(s, brute_valid(condition, value) ? "then" : "else"), value));
}

bool brute_valid(const js_value *s, const js_value *value)
{
    if (js_kind_of(s) == JS_BOOL) {
        return js_bool(s);
    }
    const js_value *constant = js_get(s, "const");
    const js_value *options = js_get(s, "enum");
    const bool here = (options == NULL || among(options, value)) && (constant == NULL || equal(constant, value)) &&
                      type_valid(js_get(s, "type"), value) && scalar_valid(s, value) && combinations_valid(s, value);
    return here && (js_kind_of(value) != JS_ARRAY || array_valid(s, value)) && (js_kind_of(value) != JS_OBJECT || object_valid(s, value));
}
