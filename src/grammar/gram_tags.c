/* gram_tags.c - structural tags: free text, and regions in it that follow a constraint. See gram_ebnf.h for where
 * the form comes from.
 *
 * Free text ends where a trigger comes for the first time. Both are one expression, "a text whose only trigger is
 * its end"; so while text is free nothing is parsed. Inside of a tag free text has no end of that tag in it. */
#include "grammar/gram_regex.h"
#include "grammar/gram_tags.h"

static gram_part *elements(gram_tagger *k, const js_value *v, gram_part_kind kind, gram_ex stops)
{
    const js_value *const list = gram_tag_field(k, v, "elements", JS_ARRAY);
    gram_part *all = gram_part_new(k->g, kind, 0);
    if (list != NULL && kind == PART_ALT && js_length(list) == 0) {
        gram_tag_fault(k, "at least one format is needed for", "elements");
    }
    for (size_t i = 0; list != NULL && i < js_length(list) && gram_spend(k->g->mem, 1); i++) {
        const bool last = kind == PART_ALT || i + 1 == js_length(list);
        gram_part_add(all, gram_tag_format(k, js_at(list, i), last ? stops : GRAM_EX_NONE));
    }
    return all;
}

static gram_part *repeated(gram_tagger *k, const js_value *v, uint32_t min, uint32_t max)
{
    const js_value *const content = js_get(v, "content");
    if (content == NULL) {
        gram_tag_fault(k, "a format is needed for", "content");
        return NULL;
    }
    return gram_part_rep(k->g, gram_tag_format(k, content, GRAM_EX_NONE), min, max);
}

static gram_part *repeat(gram_tagger *k, const js_value *v)
{
    const js_value *const min = gram_tag_field(k, v, "min", JS_INT);
    const js_value *const max = gram_tag_field(k, v, "max", JS_INT);
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    const int64_t a = js_int(min);
    const int64_t b = js_int(max);
    if (a < 0 || a > GRAM_MAX_REPEAT || b < -1 || b > GRAM_MAX_REPEAT || (b >= 0 && b < a)) {
        gram_tag_fault(k, "bounds that make no sense in", "repeat");
        return NULL;
    }
    return repeated(k, v, (uint32_t)a, b < 0 ? GRAM_INF : (uint32_t)b);
}

static gram_part *schema_format(gram_tagger *k, const js_value *v)
{
    const js_value *const schema = js_get(v, "json_schema");
    const js_value *const style = js_get(v, "style");
    size_t n;
    if (style != NULL && strcmp(js_string(style, &n), "json") != 0) {
        gram_tag_unsupported(k, "a style of json_schema other than json");
        return NULL;
    }
    if (schema == NULL) {
        gram_tag_fault(k, "a schema is needed for", "json_schema");
        return NULL;
    }
    return gram_source_json(k->s, schema);
}

static gram_part *grammar_format(gram_tagger *k, const js_value *v)
{
    const js_value *const text = gram_tag_field(k, v, "grammar", JS_STRING);
    size_t n;
    const char *bytes = text != NULL ? js_string(text, &n) : NULL;
    return bytes == NULL ? NULL : gram_part_new(k->g, PART_RULE, gram_ebnf(k->s, bytes, n));
}

static gram_part *regex_format(gram_tagger *k, const js_value *v)
{
    const js_value *const pattern = gram_tag_field(k, v, "pattern", JS_STRING);
    size_t n;
    const char *bytes = pattern != NULL ? js_string(pattern, &n) : NULL;
    return bytes == NULL ? NULL : gram_tag_text(k, gram_regex(k->l, bytes, n, 0));
}

static gram_part *any_tokens(gram_tagger *k, const js_value *v, gram_ex stops)
{
    const js_value *const excluded = js_get(v, "exclude_tokens");
    if (excluded != NULL && js_length(excluded) != 0) {
        gram_tag_unsupported(k, "exclude_tokens");
    }
    return gram_tag_text(k, gram_tag_texts_without(k, stops));
}

static gram_part *format_of_type(gram_tagger *k, const js_value *v, const char *type, gram_ex stops)
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
        const js_value *const value = gram_tag_field(k, v, "value", JS_STRING);
        return value != NULL ? gram_tag_text(k, gram_tag_string(k, value)) : NULL;
    }
    case 1:
        return schema_format(k, v);
    case 2:
        return grammar_format(k, v);
    case 3:
        return regex_format(k, v);
    case 4:
        return gram_tag_text(k, gram_tag_texts_without(k, gram_ex_or2(k->l, stops, gram_tag_strings(k, v, "excludes"))));
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
        return gram_tag_behind(k, v, 0);
    case 12:
        return gram_tag_triggered(k, v, stops);
    case 13:
        return gram_tag_separated(k, v);
    case 14:
        return gram_tag_dispatch(k, v, stops);
    case 15:
        return gram_tag_token(k, v);
    case 16:
        return any_tokens(k, v, stops);
    case 17:
        return gram_tag_token_triggered(k, v, stops);
    default:
        gram_tag_unsupported(k, type);
        return NULL;
    }
}

gram_part *gram_tag_format(gram_tagger *k, const js_value *v, gram_ex stops)
{
    size_t n;
    const js_value *const type = js_get(v, "type");
    gram_part *t = NULL;
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    if (type == NULL || js_kind_of(type) != JS_STRING) {
        gram_tag_fault(k, "a format needs", "type");
    } else if (++k->depth > GRAM_MAX_NESTING / 4) { /* a format is several trees deep */
        gram_fault(k->g->mem, DI_E_LIMIT, "limit_exceeded", -1, "structural tags are nested more than %u levels deep",
                   GRAM_MAX_NESTING / 4);
    } else {
        t = format_of_type(k, v, js_string(type, &n), stops);
        k->depth--;
    }
    return t;
}

uint32_t gram_tags(gram_source *s, const js_value *root)
{
    gram_tagger k = {.s = s, .g = s->cfg, .l = s->cfg->lang};
    const js_value *const inner = js_get(root, "format");
    gram_part *body;
    if (js_get(root, "structures") != NULL) {
        body = gram_tag_old_form(&k, root);
    } else {
        body = gram_tag_format(&k, inner != NULL ? inner : root, GRAM_EX_NONE);
    }
    return gram_cfg_new_rule(k.g, body);
}
