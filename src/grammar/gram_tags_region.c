/* gram_tags_region.c - structural tags: regions that a trigger begins in free text, and lists of tags. See gram_tags.c. */
#include "grammar/gram_tags.h"

typedef struct region {
    gram_ex stops;    /* what free text may not have besides triggers */
    gram_ex triggers; /* all of them */
    gram_part *one;   /* free text, a trigger and what it begins */
    gram_part *first; /* the same without text before it; NULL = a region need not come */
    bool once;
} region;

static gram_part *put_region(gram_tagger *k, const region *r)
{
    gram_part *free = gram_tag_text(k, gram_tag_texts_without(k, gram_ex_or2(k->l, r->triggers, r->stops)));
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
static gram_part *text_up_to(gram_tagger *k, gram_ex trigger, const region *r)
{
    gram_ex e = gram_ex_cat(k->l, GRAM_EX_ANY, trigger);
    e = gram_ex_and2(k->l, e, gram_ex_not(k->l, gram_tag_texts_with(k, r->triggers, false)));
    if (r->stops != GRAM_EX_NONE) {
        e = gram_ex_and2(k->l, e, gram_tag_texts_without(k, r->stops));
    }
    return gram_tag_text(k, e);
}

static bool begins_with(const js_value *tag, const js_value *trigger, size_t *n)
{
    size_t n_begin;
    const js_value *const begin = js_get(tag, "begin");
    const char *text = begin != NULL ? js_string(begin, &n_begin) : "";
    const char *head = js_string(trigger, n);
    return begin != NULL && js_kind_of(begin) == JS_STRING && n_begin >= *n && memcmp(text, head, *n) == 0;
}

gram_part *gram_tag_triggered(gram_tagger *k, const js_value *v, gram_ex stops)
{
    const js_value *const triggers = gram_tag_field(k, v, "triggers", JS_ARRAY);
    const js_value *const list = gram_tag_field(k, v, "tags", JS_ARRAY);
    region r = {.once = gram_tag_flag(k, v, "stop_after_first"), .stops = gram_ex_or2(k->l, stops, gram_tag_strings(k, v, "excludes"))};
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    r.triggers = gram_tag_strings(k, v, "triggers");
    r.one = gram_part_new(k->g, PART_ALT, 0);
    for (size_t t = 0; t < js_length(list) && gram_spend(k->g->mem, (int64_t)js_length(triggers)); t++) {
        bool any = false;
        size_t n;
        for (size_t i = 0; i < js_length(triggers); i++) {
            any = any || begins_with(js_at(list, t), js_at(triggers, i), &n);
        }
        if (!any) {
            gram_tag_fault(k, "no trigger begins a tag of", "triggered_tags");
        }
    }
    for (size_t i = 0; i < js_length(triggers) && !gram_failed(k->g->mem); i++) {
        gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
        gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
        for (size_t t = 0; t < js_length(list) && gram_spend(k->g->mem, 1); t++) {
            size_t n;
            if (begins_with(js_at(list, t), js_at(triggers, i), &n)) {
                gram_part_add(alt, gram_tag_behind(k, js_at(list, t), n));
            }
        }
        gram_part_add(cat, text_up_to(k, gram_tag_string(k, js_at(triggers, i)), &r));
        gram_part_add(cat, alt);
        gram_part_add(r.one, cat);
    }
    r.first = gram_tag_flag(k, v, "at_least_one") ? gram_tag_any(k, list) : NULL;
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}

gram_part *gram_tag_dispatch(gram_tagger *k, const js_value *v, gram_ex stops)
{
    const js_value *const rules = gram_tag_field(k, v, "rules", JS_ARRAY);
    region r = {.once = js_get(v, "loop") != NULL && !gram_tag_flag(k, v, "loop")};
    r.stops = gram_ex_or2(k->l, stops, gram_tag_strings(k, v, "excludes"));
    for (size_t i = 0; rules != NULL && i < js_length(rules) && gram_spend(k->g->mem, 1); i++) {
        const js_value *const rule = js_at(rules, i);
        const bool pair = js_kind_of(rule) == JS_ARRAY && js_length(rule) == 2;
        if (!pair || js_kind_of(js_at(rule, 0)) != JS_STRING || js_length(js_at(rule, 0)) == 0) {
            gram_tag_fault(k, "pairs of a string and a format are needed for", "rules");
            return NULL;
        }
        r.triggers = gram_ex_or2(k->l, r.triggers, gram_tag_string(k, js_at(rule, 0)));
    }
    r.one = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; rules != NULL && i < js_length(rules) && !gram_failed(k->g->mem); i++) {
        gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
        gram_part_add(cat, text_up_to(k, gram_tag_string(k, js_at(js_at(rules, i), 0)), &r));
        gram_part_add(cat, gram_tag_format(k, js_at(js_at(rules, i), 1), GRAM_EX_NONE));
        gram_part_add(r.one, cat);
    }
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}

/* Tags that a token begins. No added token is in free text anyway, so nothing has to be kept out of it. */
gram_part *gram_tag_token_triggered(gram_tagger *k, const js_value *v, gram_ex stops)
{
    const js_value *const list = gram_tag_field(k, v, "tags", JS_ARRAY);
    region r = {.once = gram_tag_flag(k, v, "stop_after_first"), .stops = stops};
    for (size_t i = 0; list != NULL && i < js_length(list); i++) {
        const js_value *const begin = js_get(js_at(list, i), "begin");
        if (begin == NULL || !gram_tag_is_token(begin)) {
            gram_tag_fault(k, "a token is needed for", "begin");
            return NULL;
        }
    }
    r.one = gram_part_new(k->g, PART_CAT, 0);
    gram_part_add(r.one, gram_tag_text(k, gram_tag_texts_without(k, stops)));
    gram_part_add(r.one, gram_tag_any(k, list));
    r.first = gram_tag_flag(k, v, "at_least_one") ? gram_tag_any(k, list) : NULL;
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}

gram_part *gram_tag_separated(gram_tagger *k, const js_value *v)
{
    const js_value *const list = gram_tag_field(k, v, "tags", JS_ARRAY);
    const js_value *const separator = gram_tag_field(k, v, "separator", JS_STRING);
    const bool once = gram_tag_flag(k, v, "stop_after_first");
    const bool at_least_one = gram_tag_flag(k, v, "at_least_one");
    if (gram_failed(k->g->mem)) {
        return NULL;
    }
    gram_part *all = gram_tag_any(k, list);
    if (!once) {
        gram_part *more = gram_part_new(k->g, PART_CAT, 0);
        gram_part_add(more, gram_tag_text(k, gram_tag_string(k, separator)));
        gram_part_add(more, gram_tag_any(k, list));
        gram_part *cat = gram_part_new(k->g, PART_CAT, 0);
        gram_part_add(cat, all);
        gram_part_add(cat, gram_part_rep(k->g, more, 0, GRAM_INF));
        all = cat;
    }
    return at_least_one ? all : gram_part_rep(k->g, all, 0, 1);
}


/* The older form: {"structures": [{"begin", "schema", "end"}], "triggers": [...]}. */
gram_part *gram_tag_old_form(gram_tagger *k, const js_value *root)
{
    const js_value *const list = gram_tag_field(k, root, "structures", JS_ARRAY);
    const js_value *const triggers = gram_tag_field(k, root, "triggers", JS_ARRAY);
    region r = {.triggers = gram_tag_strings(k, root, "triggers")};
    r.one = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; list != NULL && triggers != NULL && i < js_length(list) && !gram_failed(k->g->mem); i++) {
        const js_value *const one = js_at(list, i);
        const js_value *const schema = js_get(one, "schema");
        const js_value *const end = gram_tag_field(k, one, "end", JS_STRING);
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
            gram_part_add(cat, text_up_to(k, gram_tag_string(k, js_at(triggers, t)), &r));
            gram_part_add(cat, gram_part_text(k->g, begin + n, all - n));
            gram_part_add(cat, gram_source_json(k->s, schema));
            gram_part_add(cat, gram_tag_text(k, gram_tag_string(k, end)));
            gram_part_add(r.one, cat);
        }
        if (!any) {
            gram_tag_fault(k, "a schema, and a trigger that begins it, are needed for each of", "structures");
        }
    }
    return gram_failed(k->g->mem) ? NULL : put_region(k, &r);
}
