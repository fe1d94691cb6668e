/* gram_tags.c - structural tags: free text, and regions in it that follow a constraint. See gram_ebnf.h for where
 * the form comes from.
 *
 * Free text ends where a trigger comes for the first time. Both are one expression, "a text whose only trigger is
 * its end"; so while text is free nothing is parsed. Inside of a tag free text has no end of that tag in it. */
#include "grammar/gram_ebnf.h"
#include "grammar/gram_regex.h"

typedef struct tags {
    gram_source *s;
    gram_cfg *g;
    gram_lang *l;
    uint32_t depth;
} tags;

static gram_part *format(tags *k, const js_value *v, gram_ex stops);

/* --- Faults and fields -------------------------------------------------------------------------------------------- */

static void fault(tags *k, const char *what, const char *name)
{
    gram_fault(k->g->mem, DI_E_FORMAT, "invalid_grammar", -1, "structural tags: %s '%.60s'", what, name);
}

static void unsupported(tags *k, const char *what)
{
    gram_fault(k->g->mem, DI_E_UNSUPPORTED, "invalid_grammar", -1, "structural tags: %.60s is not supported", what);
}

static const js_value *field(tags *k, const js_value *v, const char *name, js_kind kind)
{
    const js_value *const value = js_get(v, name);
    if (value == NULL || js_kind_of(value) != kind) {
        const char *what = kind == JS_STRING ? "a string" : kind == JS_ARRAY ? "a list" : "a whole number";
        gram_fault(k->g->mem, DI_E_FORMAT, "invalid_grammar", -1, "structural tags: %s is needed for '%s'", what, name);
        return NULL;
    }
    return value;
}

static bool flag(tags *k, const js_value *v, const char *name)
{
    const js_value *const value = js_get(v, name);
    if (value != NULL && js_kind_of(value) != JS_BOOL) {
        fault(k, "true or false is needed for", name);
    }
    return value != NULL && js_kind_of(value) == JS_BOOL && js_bool(value);
}

/* --- Free text ---------------------------------------------------------------------------------------------------- */

static gram_ex string_ex(tags *k, const js_value *v)
{
    size_t n;
    const char *text = js_string(v, &n);
    return gram_ex_text(k->l, text, n);
}

/* Any of a list of strings; none when the list is not there. */
static gram_ex strings(tags *k, const js_value *v, const char *name)
{
    const js_value *const list = js_get(v, name);
    gram_ex any = GRAM_EX_NONE;
    if (list == NULL) {
        return any;
    }
    if (js_kind_of(list) != JS_ARRAY) {
        fault(k, "a list of strings is needed for", name);
    }
    for (size_t i = 0; js_kind_of(list) == JS_ARRAY && i < js_length(list) && gram_spend(k->g->mem, 1); i++) {
        if (js_kind_of(js_at(list, i)) != JS_STRING || js_length(js_at(list, i)) == 0) {
            fault(k, "strings that are not empty are needed in", name);
            break;
        }
        any = gram_ex_or2(k->l, any, string_ex(k, js_at(list, i)));
    }
    return any;
}

/* Texts with one of `parts` somewhere; behind it, when `end` is not, at least one character. */
static gram_ex texts_with(tags *k, gram_ex parts, bool end)
{
    const gram_ex rest = end ? GRAM_EX_ANY : gram_ex_some(k->l, GRAM_EX_ANY);
    return gram_ex_cat(k->l, GRAM_EX_ANY, gram_ex_cat(k->l, parts, rest));
}

static gram_ex texts_without(tags *k, gram_ex parts)
{
    return parts == GRAM_EX_NONE ? GRAM_EX_ANY : gram_ex_not(k->l, texts_with(k, parts, true));
}

static gram_part *text_tree(tags *k, gram_ex e) { return gram_part_new(k->g, PART_TEXT, e); }

/* --- Tags --------------------------------------------------------------------------------------------------------- */

static gram_part *token(tags *k, const js_value *v)
{
    const js_value *const name = js_get(v, "token");
    gram_token_name one = {.id = -1};
    if (name != NULL && js_kind_of(name) == JS_STRING) {
        one.spelling = js_string(name, &one.n);
    } else if (name != NULL && js_kind_of(name) == JS_INT && js_int(name) >= 0 && js_int(name) <= INT32_MAX) {
        one.id = (int32_t)js_int(name);
    } else {
        fault(k, "an id or a spelling is needed for", "token");
        return NULL;
    }
    return gram_part_new(k->g, PART_TOKEN, gram_cfg_token(k->g, one));
}

static bool is_token(const js_value *v)
{
    const js_value *const type = js_get(v, "type");
    size_t n;
    return type != NULL && strcmp(js_string(type, &n), "token") == 0;
}

/* The end of a tag: a string, any of a list, or a token. *stops gets what free text before it may not have. */
static gram_part *end_of(tags *k, const js_value *tag, gram_ex *stops)
{
    const js_value *const end = js_get(tag, "end");
    *stops = GRAM_EX_NONE;
    if (end != NULL && is_token(end)) {
        return token(k, end);
    }
    if (end != NULL && js_kind_of(end) == JS_STRING) {
        *stops = js_length(end) != 0 ? string_ex(k, end) : GRAM_EX_NONE;
        return text_tree(k, string_ex(k, end));
    }
    if (end == NULL || js_kind_of(end) != JS_ARRAY || js_length(end) == 0) {
        fault(k, "a string, a list of strings or a token is needed for", "end");
        return NULL;
    }
    *stops = strings(k, tag, "end");
    return text_tree(k, *stops);
}

/* Content and end of a tag, behind the first n bytes of its beginning. */
static gram_part *tag_behind(tags *k, const js_value *tag, size_t n)
{
    const js_value *const begin = js_get(tag, "begin");
    gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
    gram_ex stops;
    if (begin != NULL && is_token(begin)) {
        gram_part_add(cat, token(k, begin));
    } else if (begin != NULL && js_kind_of(begin) == JS_STRING) {
        size_t all;
        const char *text = js_string(begin, &all);
        gram_part_add(cat, gram_part_text(k->g, text + n, all - n));
    } else {
        fault(k, "a string or a token is needed for", "begin");
        return NULL;
    }
    gram_part *end = end_of(k, tag, &stops);
    const js_value *const content = js_get(tag, "content");
    if (content == NULL) {
        fault(k, "a format is needed for", "content");
        return NULL;
    }
    gram_part_add(cat, format(k, content, stops));
    gram_part_add(cat, end);
    return cat;
}

static gram_part *any_tag(tags *k, const js_value *list)
{
    gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; list != NULL && i < js_length(list) && gram_spend(k->g->mem, 1); i++) {
        gram_part_add(alt, tag_behind(k, js_at(list, i), 0));
    }
    return alt;
}

/* --- Regions in free text ----------------------------------------------------------------------------------------- */

typedef struct region {
    gram_ex stops;    /* what free text may not have besides triggers */
    gram_ex triggers; /* all of them */
    gram_part *one;   /* free text, a trigger and what it begins */
    gram_part *first; /* the same without text before it; NULL = a region need not come */
    bool once;
} region;

static gram_part *put_region(tags *k, const region *r)
{
    gram_part *free = text_tree(k, texts_without(k, gram_ex_or2(k->l, r->triggers, r->stops)));
    gram_part *all = gram_part_new(k->g, PART_CAT, 0);
    if (r->once && r->first != NULL) {
        return r->first;
    }
    if (r->once) {
        gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
        gram_part_add(alt, free);
        gram_part_add(alt, r->one);
        return alt;
    }
    gram_part_add(all, r->first);
    gram_part_add(all, gram_part_rep(k->g, r->one, 0, GRAM_INF));
    gram_part_add(all, free);
    return all;
}

/* Free text up to the first trigger, which is `trigger`. */
static gram_part *text_up_to(tags *k, gram_ex trigger, const region *r)
{
    gram_ex e = gram_ex_cat(k->l, GRAM_EX_ANY, trigger);
    e = gram_ex_and2(k->l, e, gram_ex_not(k->l, texts_with(k, r->triggers, false)));
    if (r->stops != GRAM_EX_NONE) {
        e = gram_ex_and2(k->l, e, texts_without(k, r->stops));
    }
    return text_tree(k, e);
}

static bool begins_with(const js_value *tag, const js_value *trigger, size_t *n)
{
    size_t n_begin;
    const js_value *const begin = js_get(tag, "begin");
    const char *text = begin != NULL ? js_string(begin, &n_begin) : "";
    const char *head = js_string(trigger, n);
    return begin != NULL && js_kind_of(begin) == JS_STRING && n_begin >= *n && memcmp(text, head, *n) == 0;
}

static gram_part *triggered_tags(tags *k, const js_value *v, gram_ex stops)
{
    const js_value *const triggers = field(k, v, "triggers", JS_ARRAY);
    const js_value *const list = field(k, v, "tags", JS_ARRAY);
    region r = {.once = flag(k, v, "stop_after_first"), .stops = gram_ex_or2(k->l, stops, strings(k, v, "excludes"))};
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    r.triggers = strings(k, v, "triggers");
    r.one = gram_part_new(k->g, PART_ALT, 0);
    for (size_t t = 0; t < js_length(list) && gram_spend(k->g->mem, (int64_t)js_length(triggers)); t++) {
        bool any = false;
        size_t n;
        for (size_t i = 0; i < js_length(triggers); i++) {
            any = any || begins_with(js_at(list, t), js_at(triggers, i), &n);
        }
        if (!any) {
            fault(k, "no trigger begins a tag of", "triggered_tags");
        }
    }
    for (size_t i = 0; i < js_length(triggers) && !gram_failed(k->g->mem); i++) {
        gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
        gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
        for (size_t t = 0; t < js_length(list) && gram_spend(k->g->mem, 1); t++) {
            size_t n;
            if (begins_with(js_at(list, t), js_at(triggers, i), &n)) {
                gram_part_add(alt, tag_behind(k, js_at(list, t), n));
            }
        }
        gram_part_add(cat, text_up_to(k, string_ex(k, js_at(triggers, i)), &r));
        gram_part_add(cat, alt);
        gram_part_add(r.one, cat);
    }
    r.first = flag(k, v, "at_least_one") ? any_tag(k, list) : NULL;
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}

static gram_part *dispatch(tags *k, const js_value *v, gram_ex stops)
{
    const js_value *const rules = field(k, v, "rules", JS_ARRAY);
    region r = {.once = js_get(v, "loop") != NULL && !flag(k, v, "loop")};
    r.stops = gram_ex_or2(k->l, stops, strings(k, v, "excludes"));
    for (size_t i = 0; rules != NULL && i < js_length(rules) && gram_spend(k->g->mem, 1); i++) {
        const js_value *const rule = js_at(rules, i);
        const bool pair = js_kind_of(rule) == JS_ARRAY && js_length(rule) == 2;
        if (!pair || js_kind_of(js_at(rule, 0)) != JS_STRING || js_length(js_at(rule, 0)) == 0) {
            fault(k, "pairs of a string and a format are needed for", "rules");
            return NULL;
        }
        r.triggers = gram_ex_or2(k->l, r.triggers, string_ex(k, js_at(rule, 0)));
    }
    r.one = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; rules != NULL && i < js_length(rules) && !gram_failed(k->g->mem); i++) {
        gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
        gram_part_add(cat, text_up_to(k, string_ex(k, js_at(js_at(rules, i), 0)), &r));
        gram_part_add(cat, format(k, js_at(js_at(rules, i), 1), GRAM_EX_NONE));
        gram_part_add(r.one, cat);
    }
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}

/* Tags that a token begins. No added token is in free text anyway, so nothing has to be kept out of it. */
static gram_part *token_triggered_tags(tags *k, const js_value *v, gram_ex stops)
{
    const js_value *const list = field(k, v, "tags", JS_ARRAY);
    region r = {.once = flag(k, v, "stop_after_first"), .stops = stops};
    for (size_t i = 0; list != NULL && i < js_length(list); i++) {
        const js_value *const begin = js_get(js_at(list, i), "begin");
        if (begin == NULL || !is_token(begin)) {
            fault(k, "a token is needed for", "begin");
            return NULL;
        }
    }
    r.one = gram_part_new(k->g, PART_CAT, 0);
    gram_part_add(r.one, text_tree(k, texts_without(k, stops)));
    gram_part_add(r.one, any_tag(k, list));
    r.first = flag(k, v, "at_least_one") ? any_tag(k, list) : NULL;
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}

static gram_part *tags_with_separator(tags *k, const js_value *v)
{
    const js_value *const list = field(k, v, "tags", JS_ARRAY);
    const js_value *const separator = field(k, v, "separator", JS_STRING);
    const bool once = flag(k, v, "stop_after_first");
    const bool at_least_one = flag(k, v, "at_least_one");
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    gram_part *all = any_tag(k, list);
    if (!once) {
        gram_part *more = gram_part_new(k->g, PART_CAT, 0);
        gram_part_add(more, text_tree(k, string_ex(k, separator)));
        gram_part_add(more, any_tag(k, list));
        gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
        gram_part_add(cat, all);
        gram_part_add(cat, gram_part_rep(k->g, more, 0, GRAM_INF));
        all = cat;
    }
    return at_least_one ? all : gram_part_rep(k->g, all, 0, 1);
}

/* --- Formats ------------------------------------------------------------------------------------------------------ */

static gram_part *elements(tags *k, const js_value *v, gram_part_kind kind, gram_ex stops)
{
    const js_value *const list = field(k, v, "elements", JS_ARRAY);
    gram_part *all = gram_part_new(k->g, kind, 0);
    if (list != NULL && kind == PART_ALT && js_length(list) == 0) {
        fault(k, "at least one format is needed for", "elements");
    }
    for (size_t i = 0; list != NULL && i < js_length(list) && gram_spend(k->g->mem, 1); i++) {
        const bool last = kind == PART_ALT || i + 1 == js_length(list);
        gram_part_add(all, format(k, js_at(list, i), last ? stops : GRAM_EX_NONE));
    }
    return all;
}

static gram_part *repeated(tags *k, const js_value *v, uint32_t min, uint32_t max)
{
    const js_value *const content = js_get(v, "content");
    if (content == NULL) {
        fault(k, "a format is needed for", "content");
        return NULL;
    }
    return gram_part_rep(k->g, format(k, content, GRAM_EX_NONE), min, max);
}

static gram_part *repeat(tags *k, const js_value *v)
{
    const js_value *const min = field(k, v, "min", JS_INT);
    const js_value *const max = field(k, v, "max", JS_INT);
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    const int64_t a = js_int(min);
    const int64_t b = js_int(max);
    if (a < 0 || a > GRAM_MAX_REPEAT || b < -1 || b > GRAM_MAX_REPEAT || (b >= 0 && b < a)) {
        fault(k, "bounds that make no sense in", "repeat");
        return NULL;
    }
    return repeated(k, v, (uint32_t)a, b < 0 ? GRAM_INF : (uint32_t)b);
}

static gram_part *schema_format(tags *k, const js_value *v)
{
    const js_value *const schema = js_get(v, "json_schema");
    const js_value *const style = js_get(v, "style");
    size_t n;
    if (style != NULL && strcmp(js_string(style, &n), "json") != 0) {
        unsupported(k, "a style of json_schema other than json");
        return NULL;
    }
    if (schema == NULL) {
        fault(k, "a schema is needed for", "json_schema");
        return NULL;
    }
    return gram_source_json(k->s, schema);
}

static gram_part *grammar_format(tags *k, const js_value *v)
{
    const js_value *const text = field(k, v, "grammar", JS_STRING);
    size_t n;
    const char *bytes = text != NULL ? js_string(text, &n) : NULL;
    return bytes == NULL ? NULL : gram_part_new(k->g, PART_RULE, gram_ebnf(k->s, bytes, n));
}

static gram_part *regex_format(tags *k, const js_value *v)
{
    const js_value *const pattern = field(k, v, "pattern", JS_STRING);
    size_t n;
    const char *bytes = pattern != NULL ? js_string(pattern, &n) : NULL;
    return bytes == NULL ? NULL : text_tree(k, gram_regex(k->l, bytes, n, 0));
}

static gram_part *any_tokens(tags *k, const js_value *v, gram_ex stops)
{
    const js_value *const excluded = js_get(v, "exclude_tokens");
    if (excluded != NULL && js_length(excluded) != 0) {
        unsupported(k, "exclude_tokens");
    }
    return text_tree(k, texts_without(k, stops));
}

static gram_part *format_of_type(tags *k, const js_value *v, const char *type, gram_ex stops)
{
    static const char *const names[] = {"const_string", "json_schema", "grammar", "regex", "any_text", "sequence", "or", "optional", "plus",
                                        "star", "repeat", "tag", "triggered_tags", "tags_with_separator", "dispatch", "token", "any_tokens",
                                        "token_triggered_tags"};
    size_t which = 0;
    while (which < sizeof names / sizeof *names && strcmp(names[which], type) != 0) {
        which++;
    }
    switch (which) {
    case 0: {
        const js_value *const value = field(k, v, "value", JS_STRING);
        return value != NULL ? text_tree(k, string_ex(k, value)) : NULL;
    }
    case 1:
        return schema_format(k, v);
    case 2:
        return grammar_format(k, v);
    case 3:
        return regex_format(k, v);
    case 4:
        return text_tree(k, texts_without(k, gram_ex_or2(k->l, stops, strings(k, v, "excludes"))));
    case 5:
    case 6:
        return elements(k, v, which == 5 ? PART_CAT : PART_ALT, stops);
    case 7:
        return repeated(k, v, 0, 1);
    case 8:
        return repeated(k, v, 1, GRAM_INF);
    case 9:
        return repeated(k, v, 0, GRAM_INF);
    case 10:
        return repeat(k, v);
    case 11:
        return tag_behind(k, v, 0);
    case 12:
        return triggered_tags(k, v, stops);
    case 13:
        return tags_with_separator(k, v);
    case 14:
        return dispatch(k, v, stops);
    case 15:
        return token(k, v);
    case 16:
        return any_tokens(k, v, stops);
    case 17:
        return token_triggered_tags(k, v, stops);
    default:
        unsupported(k, type);
        return NULL;
    }
}

static gram_part *format(tags *k, const js_value *v, gram_ex stops)
{
    size_t n;
    const js_value *const type = js_get(v, "type");
    gram_part *t = NULL;
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    if (type == NULL || js_kind_of(type) != JS_STRING) {
        fault(k, "a format needs", "type");
    } else if (++k->depth > GRAM_MAX_NESTING / 4) { /* a format is several trees deep */
        gram_fault(k->g->mem, DI_E_LIMIT, "limit_exceeded", -1, "structural tags are nested more than %u levels deep", GRAM_MAX_NESTING / 4);
    } else {
        t = format_of_type(k, v, js_string(type, &n), stops);
        k->depth--;
    }
    return t;
}

/* The older form: {"structures": [{"begin", "schema", "end"}], "triggers": [...]}. */
static gram_part *old_form(tags *k, const js_value *root)
{
    const js_value *const list = field(k, root, "structures", JS_ARRAY);
    const js_value *const triggers = field(k, root, "triggers", JS_ARRAY);
    region r = {.triggers = strings(k, root, "triggers")};
    r.one = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; list != NULL && triggers != NULL && i < js_length(list) && !gram_failed(k->g->mem); i++) {
        const js_value *const one = js_at(list, i);
        const js_value *const schema = js_get(one, "schema");
        const js_value *const end = field(k, one, "end", JS_STRING);
        bool any = false;
        for (size_t t = 0; t < js_length(triggers) && end != NULL && gram_spend(k->g->mem, 1); t++) {
            size_t n;
            size_t all;
            if (schema == NULL || !begins_with(one, js_at(triggers, t), &n)) {
                continue;
            }
            any = true;
            const char *begin = js_string(js_get(one, "begin"), &all);
            gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
            gram_part_add(cat, text_up_to(k, string_ex(k, js_at(triggers, t)), &r));
            gram_part_add(cat, gram_part_text(k->g, begin + n, all - n));
            gram_part_add(cat, gram_source_json(k->s, schema));
            gram_part_add(cat, text_tree(k, string_ex(k, end)));
            gram_part_add(r.one, cat);
        }
        if (!any) {
            fault(k, "a schema, and a trigger that begins it, are needed for each of", "structures");
        }
    }
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}

uint32_t gram_tags(gram_source *s, const js_value *root)
{
    tags k = {.s = s, .g = s->cfg, .l = s->cfg->lang};
    const js_value *const inner = js_get(root, "format");
    gram_part *body;
    if (js_get(root, "structures") != NULL) {
        body = old_form(&k, root);
    } else {
        body = format(&k, inner != NULL ? inner : root, GRAM_EX_NONE);
    }
    return gram_cfg_new_rule(k.g, body);
}
