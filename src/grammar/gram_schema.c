/* gram_schema.c - one schema object to a formula: the conjunction of its keywords. The nesting of schemas is that of the JSON document,
 * whose depth is limited, so recursion is bounded. What "$ref" leads to is compiled once, from a list of things to do. */
#include "grammar/gram_schema_int.h"

#include <strings.h>

static void print_path(buf *out, const schema_path *path)
{
    if (path == NULL) {
        return;
    }
    print_path(out, path->above); /* as deep as the document, at most GRAM_MAX_SCHEMA_DEPTH keywords with a key or index each */
    if (path->raw != NULL) {
        (void)buf_puts(out, path->raw);
    } else if (path->key == NULL) {
        (void)buf_printf(out, "/%zu", path->index);
    } else {
        (void)buf_puts(out, "/");
        for (size_t i = 0; i < path->n; i++) {
            const char c = path->key[i];
            (void)buf_append(out, c == '~' ? "~0" : c == '/' ? "~1" : &path->key[i], c == '~' || c == '/' ? 2 : 1);
        }
    }
}

static void print_place(buf *out, schema_place at, schema_kw kw)
{
    buf_init(out, 4096);
    print_path(out, at.path);
    if (kw != N_KW) {
        (void)buf_puts(out, "/");
        (void)buf_puts(out, gram_schema_kw_name(kw));
    }
}

void gram_schema_where(schema_compiler *c, schema_place at, schema_kw kw)
{
    if (!gram_failed(c->mem) || c->mem->where[0] != '\0') {
        return;
    }
    buf text;
    print_place(&text, at, kw);
    const size_t n = text.size < sizeof c->mem->where - 1 ? text.size : sizeof c->mem->where - 1;
    memcpy(c->mem->where, text.data != NULL ? text.data : "", n);
    c->mem->where[n] = '\0';
    buf_fini(&text);
    err_prefix(&c->mem->failure, "schema%s%s", c->mem->where[0] != '\0' ? " at " : "", c->mem->where);
}

void gram_schema_invalid(schema_compiler *c, schema_place at, schema_kw kw, const char *what)
{
    gram_fault(c->mem, DI_E_FORMAT, "invalid_schema", -1, "%s", what);
    gram_schema_where(c, at, kw);
}

void gram_schema_warn(schema_compiler *c, schema_place at, schema_kw kw, const char *what)
{
    buf text;
    print_place(&text, at, kw);
    (void)buf_printf(c->warnings, "%s: %s\n", text.size != 0 ? text.data : "schema", what);
    buf_fini(&text);
}

void gram_schema_unsupported(schema_compiler *c, schema_place at, schema_kw kw, const char *what)
{
    if (c->options->lenient) {
        gram_schema_warn(c, at, kw, what);
        return;
    }
    gram_fault(c->mem, DI_E_UNSUPPORTED, "unsupported_keyword", -1, "%s", what);
    gram_schema_where(c, at, kw);
}

gram_form gram_schema_under(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at)
{
    const char *name = gram_schema_kw_name(kw);
    const schema_path path = {.above = at.path, .key = name, .n = strlen(name)};
    return gram_schema_compile(c, node->kw[kw], (schema_place){at.resource, &path});
}

gram_form gram_schema_index(schema_compiler *c, const js_value *list, size_t i, schema_kw kw, schema_place at)
{
    const char *name = gram_schema_kw_name(kw);
    const schema_path above = {.above = at.path, .key = name, .n = strlen(name)};
    const schema_path path = {.above = &above, .index = i};
    return gram_schema_compile(c, js_at(list, i), (schema_place){at.resource, &path});
}

gram_form gram_schema_member(schema_compiler *c, const js_value *object, size_t i, schema_kw kw, schema_place at)
{
    const char *name = gram_schema_kw_name(kw);
    const schema_path above = {.above = at.path, .key = name, .n = strlen(name)};
    const char *key;
    const js_value *value = js_member(object, i, &key);
    schema_path path = {.above = &above};
    path.key = js_key(value, &path.n);
    return gram_schema_compile(c, value, (schema_place){at.resource, &path});
}

static void push(schema_compiler *c, gram_form form)
{
    if (form != GRAM_TRUE) {
        (void)gram_push(c->mem, &c->lang->work, form);
    }
}

/* The subschemas of allOf, anyOf or oneOf, joined. */
static gram_form combine(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at)
{
    const js_value *list = node->kw[kw];
    const size_t n = js_length(list);
    if (js_kind_of(list) != JS_ARRAY || n == 0) {
        gram_schema_invalid(c, at, kw, "a list of schemas was expected, with at least one");
        return GRAM_FALSE;
    }
    gram_stack *work = &c->lang->work;
    const uint32_t base = work->n;
    for (size_t i = 0; i < n && !gram_failed(c->mem); i++) {
        (void)gram_push(c->mem, work, gram_schema_index(c, list, i, kw, at));
    }
    const gram_form *kids = work->words + base;
    const uint32_t n_kids = work->n - base;
    const gram_form form = kw == KW_ALL_OF ? gram_form_and(c->forms, kids, n_kids)
                         : kw == KW_ANY_OF ? gram_form_or(c->forms, kids, n_kids)
                                           : gram_form_one(c->forms, kids, n_kids);
    work->n = base;
    return form;
}

static gram_form condition(schema_compiler *c, const schema_node *node, schema_place at)
{
    gram_forms *f = c->forms;
    const gram_form test = gram_schema_under(c, node, KW_IF, at);
    const gram_form yes = node->kw[KW_THEN] != NULL ? gram_schema_under(c, node, KW_THEN, at) : GRAM_TRUE;
    const gram_form no = node->kw[KW_ELSE] != NULL ? gram_schema_under(c, node, KW_ELSE, at) : GRAM_TRUE;
    return gram_form_and2(f, gram_form_or2(f, gram_form_not(f, test), yes), gram_form_or2(f, test, no));
}

/* "$ref" and its relatives. */
static gram_form reference(schema_compiler *c, const schema_node *node, schema_kw kw, schema_place at)
{
    uint32_t resource;
    const js_value *target = gram_schema_resolve(c, node, kw, at, &resource);
    if (target == NULL) {
        return GRAM_TRUE; /* a failure, or left out */
    }
    const char *text = js_string(node->kw[kw], NULL);
    return gram_schema_defer(c, target, resource, text[0] == '#' ? text + 1 : "");
}

/* A keyword spelled in another case is more likely a slip than an annotation. */
static void warn_of_slips(schema_compiler *c, const schema_node *node, schema_place at)
{
    for (size_t i = 0; i < js_length(node->value); i++) {
        const char *key;
        schema_kw kw;
        (void)js_member(node->value, i, &key);
        if (gram_schema_kw_find(key, strlen(key), &kw) || strchr("tdexrw", key[0]) == NULL) {
            continue;
        }
        for (int k = 0; k < N_KW; k++) {
            if (strcasecmp(key, gram_schema_kw_name((schema_kw)k)) == 0) {
                gram_schema_warn(c, at, (schema_kw)k, "a keyword like this one is spelled in another case and ignored");
            }
        }
    }
}

static void push_keywords(schema_compiler *c, const schema_node *node, schema_place at)
{
    if (node->kw[KW_TYPE] != NULL) {
        push(c, gram_schema_type(c, node, at));
    }
    if (node->kw[KW_ENUM] != NULL || node->kw[KW_CONST] != NULL) {
        push(c, gram_schema_enum(c, node, at));
    }
    push(c, gram_schema_numbers(c, node, at));
    push(c, gram_schema_strings(c, node, at));
    push(c, gram_schema_arrays(c, node, at));
    push(c, gram_schema_objects(c, node, at));
    for (int i = 0; i < 3; i++) {
        const schema_kw kw = (const schema_kw[]){KW_ALL_OF, KW_ANY_OF, KW_ONE_OF}[i];
        if (node->kw[kw] != NULL && !gram_failed(c->mem)) {
            push(c, combine(c, node, kw, at));
        }
    }
    if (node->kw[KW_NOT] != NULL) {
        push(c, gram_form_not(c->forms, gram_schema_under(c, node, KW_NOT, at)));
    }
    if (node->kw[KW_IF] != NULL) {
        push(c, condition(c, node, at));
    }
    push(c, gram_schema_unevaluated(c, node, at));
}

static gram_form compile_object(schema_compiler *c, const js_value *schema, schema_place at)
{
    schema_node node;
    gram_schema_sort(schema, &node);
    at.resource = gram_schema_resource(c, schema, at.resource);
    const schema_draft draft = c->resources[at.resource].draft;
    for (int kw = 0; kw < N_KW; kw++) {
        if (node.kw[kw] != NULL && !gram_schema_kw_known((schema_kw)kw, draft)) {
            node.kw[kw] = NULL;
        }
    }
    if (node.kw[KW_REF] != NULL && draft <= DRAFT_7) { /* there it hides its neighbours */
        return reference(c, &node, KW_REF, at);
    }
    const uint32_t base = c->lang->work.n;
    for (int i = 0; i < 3; i++) {
        const schema_kw kw = (const schema_kw[]){KW_REF, KW_DYNAMIC_REF, KW_RECURSIVE_REF}[i];
        if (node.kw[kw] != NULL) {
            push(c, reference(c, &node, kw, at));
        }
    }
    push_keywords(c, &node, at);
    if (draft == DRAFT_ANY) {
        warn_of_slips(c, &node, at);
    }
    gram_form form = gram_form_and(c->forms, c->lang->work.words + base, c->lang->work.n - base);
    c->lang->work.n = base;
    if (js_bool(node.kw[KW_NULLABLE])) {
        gram_schema_warn(c, at, KW_NULLABLE, "taken as OpenAPI has it: null is allowed too");
        form = gram_form_or2(c->forms, form, gram_form_type(c->forms, 1u << GRAM_NULL));
    }
    return form;
}

gram_form gram_schema_compile(schema_compiler *c, const js_value *schema, schema_place at)
{
    if (js_kind_of(schema) == JS_BOOL) {
        return js_bool(schema) ? GRAM_TRUE : GRAM_FALSE;
    }
    if (js_kind_of(schema) != JS_OBJECT) {
        gram_schema_invalid(c, at, N_KW, "a schema was expected: an object, true or false");
        return GRAM_FALSE;
    }
    if (!gram_spend(c->mem, 4) || !gram_enter(c->mem)) {
        return GRAM_FALSE;
    }
    const gram_form form = compile_object(c, schema, at);
    gram_leave(c->mem);
    return form;
}

gram_form gram_schema(gram_forms *forms, const js_value *root, const gram_schema_options *options, buf *warnings)
{
    schema_compiler c = {.forms = forms, .lang = forms->lang, .mem = forms->mem, .options = options, .warnings = warnings, .root = root};
    schema_draft draft = DRAFT_ANY;
    const js_value *said = js_get(root, "$schema");
    if (said != NULL && !gram_schema_draft(js_string(said, NULL), &draft)) {
        if (strstr(js_string(said, NULL), "json-schema.org/") != NULL) {
            gram_schema_warn(&c, (schema_place){0, NULL}, KW_SCHEMA, "not a draft that is known here; read as 2020-12");
        } else {
            gram_schema_unsupported(&c, (schema_place){0, NULL}, KW_SCHEMA,
                                    "a dialect other than the drafts of JSON Schema is not supported");
        }
    }
    if (!gram_schema_refs_init(&c, root, draft)) {
        return GRAM_FALSE;
    }
    const gram_form form = gram_schema_compile(&c, root, (schema_place){0, NULL});
    while (c.todo.n >= 2 && !gram_failed(c.mem)) {
        const uint32_t resource = c.todo.words[--c.todo.n];
        const uint32_t target = c.todo.words[--c.todo.n];
        uint32_t n;
        uintptr_t address;
        memcpy(&address, gram_tuple_at(&c.targets, target, &n), sizeof address);
        const schema_path path = {.raw = c.raw[target]};
        const gram_form definition = gram_schema_compile(&c, (const js_value *)address, (schema_place){resource, &path});
        forms->refs[c.target_refs[target]] = definition;
    }
    return gram_failed(c.mem) ? GRAM_FALSE : form;
}
