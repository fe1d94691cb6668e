/* gram_schema_value.c - enum and const: values by what they are, in any of their spellings. All strings of an enumeration are one atom. */
#include "grammar/gram_schema_int.h"

#include "core/utf8.h"

static void push(gram_forms *f, gram_form form) { (void)gram_push(f->mem, &f->lang->work, form); }

static gram_form typed(gram_forms *f, gram_type type, gram_form form)
{
    return gram_form_and2(f, gram_form_type(f, 1u << type), form);
}

static gram_form const_number(gram_forms *f, const js_value *value)
{
    size_t n;
    const char *text = js_spelling(value, &n);
    const uint32_t dec = gram_form_dec(f, text, n);
    if (dec == GRAM_NONE) {
        gram_fault(f->mem, DI_E_UNSUPPORTED, "unsupported_keyword", -1, "a number with so many digits is not supported");
        return GRAM_FALSE;
    }
    return typed(f, GRAM_NUMBER, gram_form_atom(f, AT_CMP, GRAM_EQUAL, dec, 0, 0));
}

static gram_form const_array(gram_forms *f, const js_value *value)
{
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    const uint32_t n = (uint32_t)js_length(value);
    for (size_t i = 0; i < n; i++) {
        push(f, gram_schema_const(f, js_at(value, i)));
    }
    const gram_form items = gram_failed(f->mem) ? GRAM_FALSE : gram_form_items(f, &(const gram_items){work->words + base, n, GRAM_FALSE});
    work->n = base;
    return typed(f, GRAM_ARRAY, gram_form_and2(f, items, gram_form_atom(f, AT_NITEMS, n, n, 0, 0)));
}

static gram_form const_object(gram_forms *f, const js_value *value)
{
    const size_t n = js_length(value);
    uint32_t *names = gram_alloc(f->mem, n, sizeof *names);
    gram_form *forms = gram_alloc(f->mem, n, sizeof *forms);
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    for (size_t i = 0; i < n && !gram_failed(f->mem); i++) {
        const char *key;
        size_t length;
        const js_value *member = js_member(value, i, &key);
        key = js_key(member, &length);
        names[i] = gram_form_name(f, key, length);
        forms[i] = gram_schema_const(f, member);
        push(f, gram_form_atom(f, AT_REQ, names[i], 0, 0, 0));
    }
    if (!gram_failed(f->mem)) {
        push(f, gram_form_props(f, &(const gram_props){.names = names, .forms = forms, .n_names = (uint32_t)n, .other = GRAM_FALSE}));
    }
    const gram_form form = gram_form_and(f, work->words + base, work->n - base);
    work->n = base;
    return typed(f, GRAM_OBJECT, form);
}

/* Characters of a string, in memory of the grammar. */
static gram_word word_of(gram_forms *f, const js_value *value)
{
    size_t n;
    const char *text = js_string(value, &n);
    uint32_t *chars = gram_alloc(f->mem, n, sizeof *chars);
    gram_word word = {chars, 0};
    for (size_t i = 0; chars != NULL && i < n;) {
        const int length = utf8_decode((const uint8_t *)text + i, n - i, &chars[word.n]);
        word.n += length > 0;
        i += length > 0 ? (size_t)length : 1;
    }
    return word;
}

gram_form gram_schema_const(gram_forms *f, const js_value *value)
{
    if (!gram_spend(f->mem, 2) || !gram_enter(f->mem)) {
        return GRAM_FALSE;
    }
    gram_form form = GRAM_FALSE;
    switch (js_kind_of(value)) {
    case JS_NULL:
        form = gram_form_type(f, 1u << GRAM_NULL);
        break;
    case JS_BOOL:
        form = gram_form_type(f, 1u << (js_bool(value) ? GRAM_YES : GRAM_NO));
        break;
    case JS_INT:
    case JS_NUMBER:
        form = const_number(f, value);
        break;
    case JS_STRING: {
        const gram_word word = word_of(f, value);
        form = typed(f, GRAM_STRING, gram_form_atom(f, AT_RE, gram_ex_words(f->lang, &word, 1), 0, 0, 0));
        break;
    }
    case JS_ARRAY:
        form = const_array(f, value);
        break;
    case JS_OBJECT:
        form = const_object(f, value);
        break;
    }
    gram_leave(f->mem);
    return form;
}

static gram_form all_strings(gram_forms *f, const js_value *list, size_t n_strings)
{
    gram_word *words = gram_alloc(f->mem, n_strings, sizeof *words);
    uint32_t n = 0;
    for (size_t i = 0; words != NULL && i < js_length(list); i++) {
        if (js_kind_of(js_at(list, i)) == JS_STRING) {
            words[n++] = word_of(f, js_at(list, i));
        }
    }
    return gram_failed(f->mem) ? GRAM_FALSE
                               : typed(f, GRAM_STRING, gram_form_atom(f, AT_RE, gram_ex_words(f->lang, words, n), 0, 0, 0));
}

gram_form gram_schema_enum(schema_compiler *c, const schema_node *node, schema_place at)
{
    gram_forms *f = c->forms;
    gram_form form = GRAM_TRUE;
    if (node->kw[KW_CONST] != NULL) {
        form = gram_schema_const(f, node->kw[KW_CONST]);
        gram_schema_where(c, at, KW_CONST);
    }
    const js_value *list = node->kw[KW_ENUM];
    if (list == NULL) {
        return form;
    }
    if (js_kind_of(list) != JS_ARRAY) {
        gram_schema_invalid(c, at, KW_ENUM, "a list of values was expected");
        return GRAM_FALSE;
    }
    c->n_enum += (uint32_t)js_length(list);
    if (js_length(list) > GRAM_MAX_ENUM || c->n_enum > GRAM_MAX_ENUM) {
        gram_fault(c->mem, DI_E_LIMIT, "limit_exceeded", -1, "more than %d values of enumerations", GRAM_MAX_ENUM);
    }
    const uint32_t base = c->lang->work.n;
    size_t n_strings = 0;
    for (size_t i = 0; i < js_length(list) && !gram_failed(c->mem); i++) {
        if (js_kind_of(js_at(list, i)) == JS_STRING) {
            n_strings++;
        } else {
            push(f, gram_schema_const(f, js_at(list, i)));
        }
    }
    if (n_strings != 0 && !gram_failed(c->mem)) {
        push(f, all_strings(f, list, n_strings));
    }
    gram_schema_where(c, at, KW_ENUM);
    const gram_form any = gram_form_or(f, c->lang->work.words + base, c->lang->work.n - base);
    c->lang->work.n = base;
    return gram_form_and2(f, form, any);
}
