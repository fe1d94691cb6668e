/* gram_tags_part.c - structural tags: faults and fields, free text, and single tags. See gram_tags.c. */
#include "grammar/gram_tags.h"

/* --- Faults and fields -------------------------------------------------------------------------------------------- */

void gram_tag_fault(gram_tagger *k, const char *what, const char *name)
{
    gram_fault(k->g->mem, DI_E_FORMAT, "invalid_grammar", -1, "structural tags: %s '%.60s'", what, name);
}

void gram_tag_unsupported(gram_tagger *k, const char *what)
{
    gram_fault(k->g->mem, DI_E_UNSUPPORTED, "invalid_grammar", -1, "structural tags: %.60s is not supported", what);
}

const js_value *gram_tag_field(gram_tagger *k, const js_value *v, const char *name, js_kind kind)
{
    const js_value *const value = js_get(v, name);
    if (value == NULL || js_kind_of(value) != kind) {
        const char *what = kind == JS_STRING ? "a string" : kind == JS_ARRAY ? "a list" : "a whole number";
        gram_fault(k->g->mem, DI_E_FORMAT, "invalid_grammar", -1, "structural tags: %s is needed for '%s'", what, name);
        return NULL;
    }
    return value;
}

bool gram_tag_flag(gram_tagger *k, const js_value *v, const char *name)
{
    const js_value *const value = js_get(v, name);
    if (value != NULL && js_kind_of(value) != JS_BOOL) {
        gram_tag_fault(k, "true or false is needed for", name);
    }
    return value != NULL && js_kind_of(value) == JS_BOOL && js_bool(value);
}

/* --- Free text ---------------------------------------------------------------------------------------------------- */

gram_ex gram_tag_string(gram_tagger *k, const js_value *v)
{
    size_t n;
    const char *text = js_string(v, &n);
    return gram_ex_text(k->l, text, n);
}

/* Any of a list of strings; none when the list is not there. */
gram_ex gram_tag_strings(gram_tagger *k, const js_value *v, const char *name)
{
    const js_value *const list = js_get(v, name);
    gram_ex any = GRAM_EX_NONE;
    if (list == NULL) {
        return any;
    }
    if (js_kind_of(list) != JS_ARRAY) {
        gram_tag_fault(k, "a list of strings is needed for", name);
    }
    for (size_t i = 0; js_kind_of(list) == JS_ARRAY && i < js_length(list) && gram_spend(k->g->mem, 1); i++) {
        if (js_kind_of(js_at(list, i)) != JS_STRING || js_length(js_at(list, i)) == 0) {
            gram_tag_fault(k, "strings that are not empty are needed in", name);
            break;
        }
        any = gram_ex_or2(k->l, any, gram_tag_string(k, js_at(list, i)));
    }
    return any;
}

/* Texts with one of `parts` somewhere; behind it, when `end` is not, at least one character. */
gram_ex gram_tag_texts_with(gram_tagger *k, gram_ex parts, bool end)
{
    const gram_ex rest = end ? GRAM_EX_ANY : gram_ex_some(k->l, GRAM_EX_ANY);
    return gram_ex_cat(k->l, GRAM_EX_ANY, gram_ex_cat(k->l, parts, rest));
}

gram_ex gram_tag_texts_without(gram_tagger *k, gram_ex parts)
{
    return parts == GRAM_EX_NONE ? GRAM_EX_ANY : gram_ex_not(k->l, gram_tag_texts_with(k, parts, true));
}

gram_part *gram_tag_text(gram_tagger *k, gram_ex e) { return gram_part_new(k->g, PART_TEXT, e); }

/* --- Tags --------------------------------------------------------------------------------------------------------- */

gram_part *gram_tag_token(gram_tagger *k, const js_value *v)
{
    const js_value *const name = js_get(v, "token");
    gram_token_name one = {.id = -1};
    if (name != NULL && js_kind_of(name) == JS_STRING) {
        one.spelling = js_string(name, &one.n);
    } else if (name != NULL && js_kind_of(name) == JS_INT && js_int(name) >= 0 && js_int(name) <= INT32_MAX) {
        one.id = (int32_t)js_int(name);
    } else {
        gram_tag_fault(k, "an id or a spelling is needed for", "token");
        return NULL;
    }
    return gram_part_new(k->g, PART_TOKEN, gram_cfg_token(k->g, one));
}

bool gram_tag_is_token(const js_value *v)
{
    const js_value *const type = js_get(v, "type");
    size_t n;
    return type != NULL && strcmp(js_string(type, &n), "token") == 0;
}

/* The end of a tag: a string, any of a list, or a token. *stops gets what free text before it may not have. */
static gram_part *end_of(gram_tagger *k, const js_value *tag, gram_ex *stops)
{
    const js_value *const end = js_get(tag, "end");
    *stops = GRAM_EX_NONE;
    if (end != NULL && gram_tag_is_token(end)) {
        return gram_tag_token(k, end);
    }
    if (end != NULL && js_kind_of(end) == JS_STRING) {
        *stops = js_length(end) != 0 ? gram_tag_string(k, end) : GRAM_EX_NONE;
        return gram_tag_text(k, gram_tag_string(k, end));
    }
    if (end == NULL || js_kind_of(end) != JS_ARRAY || js_length(end) == 0) {
        gram_tag_fault(k, "a string, a list of strings or a token is needed for", "end");
        return NULL;
    }
    *stops = gram_tag_strings(k, tag, "end");
    return gram_tag_text(k, *stops);
}

/* Content and end of a tag, behind the first n bytes of its beginning. */
gram_part *gram_tag_behind(gram_tagger *k, const js_value *tag, size_t n)
{
    const js_value *const begin = js_get(tag, "begin");
    gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
    gram_ex stops;
    if (begin != NULL && gram_tag_is_token(begin)) {
        gram_part_add(cat, gram_tag_token(k, begin));
    } else if (begin != NULL && js_kind_of(begin) == JS_STRING) {
        size_t all;
        const char *text = js_string(begin, &all);
        gram_part_add(cat, gram_part_text(k->g, text + n, all - n));
    } else {
        gram_tag_fault(k, "a string or a token is needed for", "begin");
        return NULL;
    }
    gram_part *end = end_of(k, tag, &stops);
    const js_value *const content = js_get(tag, "content");
    if (content == NULL) {
        gram_tag_fault(k, "a format is needed for", "content");
        return NULL;
    }
    gram_part_add(cat, gram_tag_format(k, content, stops));
    gram_part_add(cat, end);
    return cat;
}

gram_part *gram_tag_any(gram_tagger *k, const js_value *list)
{
    gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; list != NULL && i < js_length(list) && gram_spend(k->g->mem, 1); i++) {
        gram_part_add(alt, gram_tag_behind(k, js_at(list, i), 0));
    }
    return alt;
}
