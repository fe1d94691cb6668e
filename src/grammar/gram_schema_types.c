/* gram_schema_types.c - keywords about numbers, strings, arrays and objects. Each becomes an atom, which holds for values of
 * other types. */
#include "grammar/gram_schema_int.h"

#include "grammar/gram_regex.h"

#define MAX_MULTIPLE_DIGITS 9

static void push(schema_compiler *c, gram_form form)
{
    if (form != GRAM_TRUE) {
        (void)gram_push(c->mem, &c->lang->work, form);
    }
}

/* The conjunction of what was pushed since. */
static gram_form take(schema_compiler *c, uint32_t base)
{
    gram_stack *work = &c->lang->work;
    const gram_form form = gram_form_and(c->forms, work->words + base, work->n - base);
    work->n = base;
    return form;
}

/* --- type --------------------------------------------------------------------------------------------------------- */

static bool type_bits(const char *name, uint32_t *bits, bool *integer)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } types[] = {
        {"null", 1u << GRAM_NULL},     {"boolean", 1u << GRAM_NO | 1u << GRAM_YES}, {"number", 1u << GRAM_NUMBER},
        {"integer", 1u << GRAM_NUMBER}, {"string", 1u << GRAM_STRING},              {"array", 1u << GRAM_ARRAY},
        {"object", 1u << GRAM_OBJECT},
    };
    *integer = strcmp(name, "integer") == 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(name, types[i].name) == 0) {
            *bits = types[i].bits;
            return true;
        }
    }
    return false;
}

gram_form gram_schema_type(schema_compiler *c, const schema_node *node, schema_place at)
{
    const js_value *type = node->kw[KW_TYPE];
    const bool list = js_kind_of(type) == JS_ARRAY;
    uint32_t all = 0;
    bool integer = false;
    bool number = false;
    for (size_t i = 0; i < (list ? js_length(type) : 1); i++) {
        const js_value *one = list ? js_at(type, i) : type;
        uint32_t bits = 0;
        bool is_integer;
        if (js_kind_of(one) != JS_STRING || !type_bits(js_string(one, NULL), &bits, &is_integer)) {
            gram_schema_invalid(c, at, KW_TYPE, "unknown type: null, boolean, number, integer, string, array and object are there");
            return GRAM_FALSE;
        }
        all |= bits;
        integer = integer || is_integer;
        number = number || (bits == 1u << GRAM_NUMBER && !is_integer);
    }
    const gram_form form = gram_form_type(c->forms, all);
    return integer && !number ? gram_form_and2(c->forms, form, gram_form_atom(c->forms, AT_INT, 0, 0, 0, 0)) : form;
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static bool is_number(const js_value *value)
{
    return js_kind_of(value) == JS_INT || js_kind_of(value) == JS_NUMBER;
}

static uint32_t decimal(schema_compiler *c, const js_value *value, schema_place at, schema_kw kw)
{
    size_t n;
    if (!is_number(value)) {
        gram_schema_invalid(c, at, kw, "a number was expected");
        return GRAM_NONE;
    }
    const char *text = js_spelling(value, &n);
    const uint32_t dec = gram_form_dec(c->forms, text, n);
    if (dec == GRAM_NONE) {
        gram_schema_unsupported(c, at, kw, "a number with so many digits is not supported");
    }
    return dec;
}

static void push_bound(schema_compiler *c, const schema_node *node, schema_kw kw, uint32_t how, schema_place at)
{
    const uint32_t dec = decimal(c, node->kw[kw], at, kw);
    if (dec != GRAM_NONE) {
        push(c, gram_form_atom(c->forms, AT_CMP, how, dec, 0, 0));
    }
}

static void push_multiple(schema_compiler *c, const schema_node *node, schema_place at)
{
    const uint32_t dec = decimal(c, node->kw[KW_MULTIPLE_OF], at, KW_MULTIPLE_OF);
    if (dec == GRAM_NONE) {
        return;
    }
    const gram_dec d = c->forms->dec[dec];
    if (d.n == 0 || d.negative) {
        gram_schema_invalid(c, at, KW_MULTIPLE_OF, "a number greater than zero was expected");
    } else if (d.n > MAX_MULTIPLE_DIGITS) {
        gram_schema_unsupported(c, at, KW_MULTIPLE_OF, "more than 9 significant digits are not supported");
    } else {
        push(c, gram_form_atom(c->forms, AT_MULT, dec, 0, 0, 0));
    }
}

gram_form gram_schema_numbers(schema_compiler *c, const schema_node *node, schema_place at)
{
    const uint32_t base = c->lang->work.n;
    const bool draft_4 = js_kind_of(node->kw[KW_EXCLUSIVE_MINIMUM]) == JS_BOOL || js_kind_of(node->kw[KW_EXCLUSIVE_MAXIMUM]) == JS_BOOL ||
                         c->resources[at.resource].draft == DRAFT_4;
    if (node->kw[KW_MINIMUM] != NULL) {
        push_bound(c, node, KW_MINIMUM, draft_4 && js_bool(node->kw[KW_EXCLUSIVE_MINIMUM]) ? GRAM_MORE : GRAM_AT_LEAST, at);
    }
    if (node->kw[KW_MAXIMUM] != NULL) {
        push_bound(c, node, KW_MAXIMUM, draft_4 && js_bool(node->kw[KW_EXCLUSIVE_MAXIMUM]) ? GRAM_LESS : GRAM_AT_MOST, at);
    }
    if (node->kw[KW_EXCLUSIVE_MINIMUM] != NULL && js_kind_of(node->kw[KW_EXCLUSIVE_MINIMUM]) != JS_BOOL) {
        push_bound(c, node, KW_EXCLUSIVE_MINIMUM, GRAM_MORE, at);
    }
    if (node->kw[KW_EXCLUSIVE_MAXIMUM] != NULL && js_kind_of(node->kw[KW_EXCLUSIVE_MAXIMUM]) != JS_BOOL) {
        push_bound(c, node, KW_EXCLUSIVE_MAXIMUM, GRAM_LESS, at);
    }
    if (node->kw[KW_MULTIPLE_OF] != NULL) {
        push_multiple(c, node, at);
    }
    return take(c, base);
}

/* --- strings ------------------------------------------------------------------------------------------------------ */

uint32_t gram_schema_whole(schema_compiler *c, const schema_node *node, schema_kw kw, uint32_t otherwise, schema_place at)
{
    const js_value *value = node->kw[kw];
    if (value == NULL) {
        return otherwise;
    }
    const double number = js_number(value); /* 2.0 is whole too */
    if (!is_number(value) || number < 0 || (number < 1e15 && number != (double)(int64_t)number)) {
        gram_schema_invalid(c, at, kw, "a whole number that is not negative was expected");
        return otherwise;
    }
    return number >= (double)(GRAM_INF - 1) ? GRAM_INF - 1 : (uint32_t)number;
}

/* A pair of bounds as an atom; `max` of GRAM_INF - 1 and more is none. */
static void push_range(schema_compiler *c, gram_atom kind, uint32_t min, uint32_t max)
{
    max = max == GRAM_INF - 1 ? GRAM_INF : max;
    if (min != 0 || max != GRAM_INF) {
        push(c, gram_form_atom(c->forms, kind, min, max, 0, 0));
    }
}

gram_ex gram_schema_pattern(schema_compiler *c, const char *text, size_t n, schema_place at, schema_kw kw)
{
    if (gram_failed(c->mem)) {
        return GRAM_EX_ANY;
    }
    const gram_ex e = gram_regex(c->lang, text, n, GRAM_REGEX_SEARCH);
    if (c->options->lenient && c->mem->failure.code == DI_E_UNSUPPORTED) {
        gram_schema_warn(c, at, kw, c->mem->failure.message);
        c->mem->failure.code = DI_OK;
        c->mem->fault = "";
        c->mem->offset = -1;
        return GRAM_EX_ANY;
    }
    gram_schema_where(c, at, kw);
    return e;
}

static void push_format(schema_compiler *c, const schema_node *node, schema_place at)
{
    const js_value *name = node->kw[KW_FORMAT];
    if (js_kind_of(name) != JS_STRING || c->options->formats == DI_FORMATS_ANNOTATE) {
        return;
    }
    gram_ex e;
    if (gram_format(c->lang, js_string(name, NULL), &e)) {
        push(c, gram_form_atom(c->forms, AT_RE, e, 0, 0, 0));
    } else if (c->options->formats == DI_FORMATS_STRICT) {
        gram_schema_unsupported(c, at, KW_FORMAT, "this format can't be enforced");
    } else {
        gram_schema_warn(c, at, KW_FORMAT, "this format is not enforced");
    }
}

gram_form gram_schema_strings(schema_compiler *c, const schema_node *node, schema_place at)
{
    const uint32_t base = c->lang->work.n;
    if (node->kw[KW_MIN_LENGTH] != NULL || node->kw[KW_MAX_LENGTH] != NULL) {
        push_range(c, AT_LEN, gram_schema_whole(c, node, KW_MIN_LENGTH, 0, at), gram_schema_whole(c, node, KW_MAX_LENGTH, GRAM_INF, at));
    }
    if (node->kw[KW_PATTERN] != NULL) {
        size_t n;
        const char *text = js_string(node->kw[KW_PATTERN], &n);
        if (js_kind_of(node->kw[KW_PATTERN]) != JS_STRING) {
            gram_schema_invalid(c, at, KW_PATTERN, "a string was expected");
        }
        push(c, gram_form_atom(c->forms, AT_RE, gram_schema_pattern(c, text, n, at, KW_PATTERN), 0, 0, 0));
    }
    if (node->kw[KW_FORMAT] != NULL) {
        push_format(c, node, at);
    }
    return take(c, base);
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static void push_items(schema_compiler *c, const schema_node *node, schema_place at)
{
    const bool old = node->kw[KW_PREFIX_ITEMS] == NULL && js_kind_of(node->kw[KW_ITEMS]) == JS_ARRAY;
    const schema_kw list_kw = old ? KW_ITEMS : KW_PREFIX_ITEMS;
    const schema_kw rest_kw = old ? KW_ADDITIONAL_ITEMS : KW_ITEMS;
    const js_value *list = node->kw[list_kw];
    if (list != NULL && js_kind_of(list) != JS_ARRAY) {
        gram_schema_invalid(c, at, list_kw, "a list of schemas was expected");
        return;
    }
    gram_stack *work = &c->lang->work;
    const uint32_t base = work->n;
    for (size_t i = 0; i < js_length(list) && !gram_failed(c->mem); i++) {
        (void)gram_push(c->mem, work, gram_schema_index(c, list, i, list_kw, at));
    }
    const gram_form rest = node->kw[rest_kw] != NULL ? gram_schema_under(c, node, rest_kw, at) : GRAM_TRUE;
    const gram_items items = {work->words + base, work->n - base, rest};
    const gram_form form = gram_failed(c->mem) ? GRAM_FALSE : gram_form_items(c->forms, &items);
    work->n = base;
    push(c, form);
}

gram_form gram_schema_arrays(schema_compiler *c, const schema_node *node, schema_place at)
{
    const uint32_t base = c->lang->work.n;
    if (node->kw[KW_ITEMS] != NULL || node->kw[KW_PREFIX_ITEMS] != NULL) {
        push_items(c, node, at);
    }
    if (node->kw[KW_MIN_ITEMS] != NULL || node->kw[KW_MAX_ITEMS] != NULL) {
        push_range(c, AT_NITEMS, gram_schema_whole(c, node, KW_MIN_ITEMS, 0, at), gram_schema_whole(c, node, KW_MAX_ITEMS, GRAM_INF, at));
    }
    if (node->kw[KW_CONTAINS] != NULL) {
        const uint32_t min = gram_schema_whole(c, node, KW_MIN_CONTAINS, 1, at);
        const uint32_t max = gram_schema_whole(c, node, KW_MAX_CONTAINS, GRAM_INF, at);
        const gram_form one = gram_schema_under(c, node, KW_CONTAINS, at);
        if (min != 0 || max < GRAM_INF - 1) {
            push(c, gram_form_atom(c->forms, AT_CONTAINS, one, min, max >= GRAM_INF - 1 ? GRAM_INF : max, 0));
        }
    }
    if (js_bool(node->kw[KW_UNIQUE_ITEMS])) {
        push(c, gram_form_atom(c->forms, AT_UNIQUE, 0, 0, 0, 0));
    }
    return take(c, base);
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

static bool is_map(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at)
{
    if (node->kw[kw] != NULL && js_kind_of(node->kw[kw]) != JS_OBJECT) {
        gram_schema_invalid(c, at, kw, "an object was expected");
    }
    return js_kind_of(node->kw[kw]) == JS_OBJECT;
}

static uint32_t *words(schema_compiler *c, size_t n)
{
    c->n_properties += (uint32_t)n;
    if (c->n_properties > GRAM_MAX_PROPERTIES) {
        gram_fault(c->mem, DI_E_LIMIT, "limit_exceeded", -1, "more than %d properties", GRAM_MAX_PROPERTIES);
    }
    return gram_alloc(c->mem, n, sizeof(uint32_t));
}

static uint32_t name_of(schema_compiler *c, const js_value *member)
{
    size_t n;
    const char *key = js_key(member, &n);
    return gram_form_name(c->forms, key, n);
}

static void push_properties(schema_compiler *c, const schema_node *node, schema_place at)
{
    const js_value *named = is_map(c, node, KW_PROPERTIES, at) ? node->kw[KW_PROPERTIES] : NULL;
    const js_value *patterns = is_map(c, node, KW_PATTERN_PROPERTIES, at) ? node->kw[KW_PATTERN_PROPERTIES] : NULL;
    const size_t n = js_length(named);
    const size_t m = js_length(patterns);
    uint32_t *names = words(c, n);
    uint32_t *forms = words(c, n);
    uint32_t *exs = words(c, m);
    uint32_t *pattern_forms = words(c, m);
    for (size_t i = 0; i < n && !gram_failed(c->mem); i++) {
        const char *key;
        names[i] = name_of(c, js_member(named, i, &key));
        forms[i] = gram_schema_member(c, named, i, KW_PROPERTIES, at);
    }
    for (size_t i = 0; i < m && !gram_failed(c->mem); i++) {
        const char *key;
        size_t length;
        key = js_key(js_member(patterns, i, &key), &length);
        exs[i] = gram_schema_pattern(c, key, length, at, KW_PATTERN_PROPERTIES);
        pattern_forms[i] = gram_schema_member(c, patterns, i, KW_PATTERN_PROPERTIES, at);
    }
    gram_form other = c->options->closed && node->kw[KW_UNEVALUATED_PROPERTIES] == NULL ? GRAM_FALSE : GRAM_TRUE;
    if (node->kw[KW_ADDITIONAL_PROPERTIES] != NULL) {
        other = gram_schema_under(c, node, KW_ADDITIONAL_PROPERTIES, at);
    }
    if (!gram_failed(c->mem)) {
        push(c, gram_form_props(c->forms, &(const gram_props){names, forms, (uint32_t)n, exs, pattern_forms, (uint32_t)m, other}));
    }
}

static gram_form required(schema_compiler *c, const js_value *name, schema_kw kw, schema_place at)
{
    size_t n;
    const char *text = js_string(name, &n);
    if (js_kind_of(name) != JS_STRING) {
        gram_schema_invalid(c, at, kw, "a list of names was expected");
        return GRAM_FALSE;
    }
    return gram_form_atom(c->forms, AT_REQ, gram_form_name(c->forms, text, n), 0, 0, 0);
}

static gram_form all_required(schema_compiler *c, const js_value *list, schema_kw kw, schema_place at)
{
    if (js_kind_of(list) != JS_ARRAY) {
        gram_schema_invalid(c, at, kw, "a list of names was expected");
        return GRAM_FALSE;
    }
    const uint32_t base = c->lang->work.n;
    for (size_t i = 0; i < js_length(list) && !gram_failed(c->mem); i++) {
        push(c, required(c, js_at(list, i), kw, at));
    }
    return take(c, base);
}

/* A name that is there asks for other names or for a schema; objects only. */
static void push_dependencies(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at)
{
    const js_value *map = is_map(c, node, kw, at) ? node->kw[kw] : NULL;
    for (size_t i = 0; i < js_length(map) && !gram_failed(c->mem); i++) {
        const char *key;
        const js_value *value = js_member(map, i, &key);
        gram_form form;
        if (kw == KW_DEPENDENT_REQUIRED || (kw == KW_DEPENDENCIES && js_kind_of(value) == JS_ARRAY)) {
            form = all_required(c, value, kw, at);
        } else if (kw == KW_DEPENDENCIES && js_kind_of(value) == JS_STRING) { /* draft 3 */
            form = required(c, value, kw, at);
        } else {
            form = gram_schema_member(c, map, i, kw, at);
        }
        const gram_form absent = gram_form_not(c->forms, gram_form_atom(c->forms, AT_REQ, name_of(c, value), 0, 0, 0));
        const gram_form kids[] = {gram_form_type(c->forms, ~(1u << GRAM_OBJECT)), absent, form};
        push(c, gram_form_or(c->forms, kids, 3));
    }
}

gram_form gram_schema_objects(schema_compiler *c, const schema_node *node, schema_place at)
{
    const uint32_t base = c->lang->work.n;
    if (node->kw[KW_PROPERTIES] != NULL || node->kw[KW_PATTERN_PROPERTIES] != NULL || node->kw[KW_ADDITIONAL_PROPERTIES] != NULL) {
        push_properties(c, node, at);
    }
    if (node->kw[KW_REQUIRED] != NULL && js_kind_of(node->kw[KW_REQUIRED]) == JS_BOOL && c->resources[at.resource].draft == DRAFT_ANY) {
        gram_schema_invalid(c, at, KW_REQUIRED, "a list of names was expected, beside \"properties\" and not inside of them");
    } else if (node->kw[KW_REQUIRED] != NULL) {
        push(c, all_required(c, node->kw[KW_REQUIRED], KW_REQUIRED, at));
    }
    if (node->kw[KW_MIN_PROPERTIES] != NULL || node->kw[KW_MAX_PROPERTIES] != NULL) {
        push_range(c, AT_NPROPS, gram_schema_whole(c, node, KW_MIN_PROPERTIES, 0, at),
                   gram_schema_whole(c, node, KW_MAX_PROPERTIES, GRAM_INF, at));
    }
    if (node->kw[KW_PROPERTY_NAMES] != NULL) {
        const gram_form names = gram_schema_under(c, node, KW_PROPERTY_NAMES, at);
        push(c, names == GRAM_TRUE ? GRAM_TRUE : gram_form_atom(c->forms, AT_NAMES, names, 0, 0, 0));
    }
    for (int i = 0; i < 3; i++) {
        const schema_kw kw = (const schema_kw[]){KW_DEPENDENT_REQUIRED, KW_DEPENDENT_SCHEMAS, KW_DEPENDENCIES}[i];
        if (node->kw[kw] != NULL && !gram_failed(c->mem)) {
            push_dependencies(c, node, kw, at);
        }
    }
    return take(c, base);
}
