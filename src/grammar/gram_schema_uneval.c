/* gram_schema_uneval.c - unevaluatedProperties and unevaluatedItems as plain formulas.
 *
 * A member is evaluated when a subschema in place (through $ref, allOf, anyOf ...) that speaks about it holds. Whether it speaks about it
 * is seen from the name (or index) alone, whether it holds is a formula. So the names fall into classes with the same evaluators, and for
 * each class:  all members of the class satisfy the unevaluated schema, or one of the evaluators holds. */
#include "grammar/gram_schema_int.h"

#define MAX_PATTERNS 6 /* distinct ones; their combinations are enumerated */
#define MAX_CONTAINS 4

typedef enum ev_kind { EV_NAME, EV_PATTERN, EV_ALL, EV_PREFIX, EV_CONTAINS } ev_kind;

typedef struct evaluator {
    ev_kind kind;
    uint32_t what; /* name, expression, or length of the prefix; formula of contains */
    gram_form when; /* it holds */
} evaluator;

typedef struct collector {
    schema_compiler *c;
    bool items; /* else properties */
    const js_value *root; /* the schema with the keyword */
    evaluator *list;
    uint32_t n;
    uint32_t capacity;
} collector;

static void add(collector *k, ev_kind kind, uint32_t what, gram_form when)
{
    evaluator *list = gram_grow(k->c->mem, k->list, k->n, &k->capacity, sizeof *list);
    if (list != NULL) {
        k->list = list;
        list[k->n++] = (evaluator){kind, what, when};
    }
}

static void add_properties(collector *k, const schema_node *node, schema_place at, gram_form when)
{
    schema_compiler *c = k->c;
    for (size_t i = 0; i < js_length(node->kw[KW_PROPERTIES]); i++) {
        const char *key;
        size_t n;
        key = js_key(js_member(node->kw[KW_PROPERTIES], i, &key), &n);
        add(k, EV_NAME, gram_form_name(c->forms, key, n), when);
    }
    for (size_t i = 0; i < js_length(node->kw[KW_PATTERN_PROPERTIES]); i++) {
        const char *key;
        size_t n;
        key = js_key(js_member(node->kw[KW_PATTERN_PROPERTIES], i, &key), &n);
        add(k, EV_PATTERN, gram_schema_pattern(c, key, n, at, KW_PATTERN_PROPERTIES), when);
    }
    if (node->kw[KW_ADDITIONAL_PROPERTIES] != NULL) {
        add(k, EV_ALL, 0, when);
    }
}

static void add_items(collector *k, const schema_node *node, schema_place at, gram_form when)
{
    const bool old = js_kind_of(node->kw[KW_ITEMS]) == JS_ARRAY;
    const js_value *prefix = old ? node->kw[KW_ITEMS] : node->kw[KW_PREFIX_ITEMS];
    if (prefix != NULL) {
        add(k, EV_PREFIX, (uint32_t)js_length(prefix), when);
    }
    if (node->kw[old ? KW_ADDITIONAL_ITEMS : KW_ITEMS] != NULL) {
        add(k, EV_ALL, 0, when);
    }
    if (node->kw[KW_CONTAINS] != NULL && k->c->resources[at.resource].draft >= DRAFT_2020) {
        add(k, EV_CONTAINS, gram_schema_under(k->c, node, KW_CONTAINS, at), when);
    }
}

static void collect(collector *k, const js_value *schema, schema_place at, gram_form when);

static void collect_branches(collector *k, const schema_node *node, schema_kw kw, schema_place at, gram_form when)
{
    schema_compiler *c = k->c;
    for (size_t i = 0; i < js_length(node->kw[kw]) && !gram_failed(c->mem); i++) {
        gram_form both = when;
        if (kw != KW_ALL_OF) {
            both = gram_form_and2(c->forms, when, gram_schema_index(c, node->kw[kw], i, kw, at));
        }
        collect(k, js_at(node->kw[kw], i), at, both);
    }
}

static void collect_in_place(collector *k, const schema_node *node, schema_place at, gram_form when)
{
    schema_compiler *c = k->c;
    gram_forms *f = c->forms;
    for (int i = 0; i < 3; i++) {
        const schema_kw kw = (const schema_kw[]){KW_REF, KW_DYNAMIC_REF, KW_RECURSIVE_REF}[i];
        uint32_t resource;
        const js_value *target = node->kw[kw] != NULL ? gram_schema_resolve(c, node, kw, at, &resource) : NULL;
        if (target != NULL) {
            collect(k, target, (schema_place){resource, at.path}, when);
        }
    }
    collect_branches(k, node, KW_ALL_OF, at, when);
    collect_branches(k, node, KW_ANY_OF, at, when);
    collect_branches(k, node, KW_ONE_OF, at, when);
    if (node->kw[KW_IF] != NULL) {
        const gram_form test = gram_schema_under(c, node, KW_IF, at);
        const gram_form yes = gram_form_and2(f, when, test);
        collect(k, node->kw[KW_IF], at, yes);
        collect(k, node->kw[KW_THEN], at, yes);
        collect(k, node->kw[KW_ELSE], at, gram_form_and2(f, when, gram_form_not(f, test)));
    }
    const js_value *map = node->kw[KW_DEPENDENT_SCHEMAS];
    for (size_t i = 0; i < js_length(map); i++) {
        const char *key;
        size_t n;
        const js_value *value = js_member(map, i, &key);
        key = js_key(value, &n);
        const gram_form there = gram_form_atom(f, AT_REQ, gram_form_name(f, key, n), 0, 0, 0);
        collect(k, value, at, gram_form_and2(f, when, there));
    }
}

/* What `schema` and the schemas in its place evaluate, when they hold under `when`. */
static void collect(collector *k, const js_value *schema, schema_place at, gram_form when)
{
    schema_compiler *c = k->c;
    if (js_kind_of(schema) != JS_OBJECT || !gram_spend(c->mem, 8) || !gram_enter(c->mem)) {
        return;
    }
    schema_node node;
    gram_schema_sort(schema, &node);
    at.resource = gram_schema_resource(c, schema, at.resource);
    if (node.kw[k->items ? KW_UNEVALUATED_ITEMS : KW_UNEVALUATED_PROPERTIES] != NULL && schema != k->root) {
        add(k, EV_ALL, 0, when);
    }
    if (k->items) {
        add_items(k, &node, at, when);
    } else {
        add_properties(k, &node, at, when);
    }
    collect_in_place(k, &node, at, when);
    gram_leave(c->mem);
}

/* --- Properties --------------------------------------------------------------------------------------------------- */

/* Classes that need one of the same formulas to hold, or U: the names and patterns of one layer. */
typedef struct layer {
    gram_form or_else;
    gram_stack names;
    gram_stack patterns;
} layer;

typedef struct layers {
    layer *list;
    uint32_t n;
    uint32_t capacity;
} layers;

static layer *layer_of(schema_compiler *c, layers *all, gram_form or_else)
{
    for (uint32_t i = 0; i < all->n; i++) {
        if (all->list[i].or_else == or_else) {
            return &all->list[i];
        }
    }
    layer *list = gram_grow(c->mem, all->list, all->n, &all->capacity, sizeof *list);
    if (list == NULL) {
        return NULL;
    }
    all->list = list;
    list[all->n] = (layer){.or_else = or_else};
    return &list[all->n++];
}

static bool matches(gram_forms *f, gram_ex pattern, uint32_t name)
{
    uint32_t n;
    const uint32_t *chars = gram_tuple_at(&f->names, name, &n);
    return gram_ex_has(f->lang, pattern, chars, n);
}

/* One of the evaluators that speak about `name` holds. */
static gram_form evaluated(const collector *k, uint32_t name)
{
    gram_forms *f = k->c->forms;
    gram_form any = GRAM_FALSE;
    for (uint32_t i = 0; i < k->n; i++) {
        const evaluator *e = &k->list[i];
        const bool speaks = e->kind == EV_ALL || (e->kind == EV_NAME ? e->what == name : matches(f, e->what, name));
        any = speaks ? gram_form_or2(f, any, e->when) : any;
    }
    return any;
}

/* The same for the names that match exactly those of the patterns whose bits are set. */
static gram_form evaluated_class(const collector *k, const gram_stack *patterns, uint32_t bits)
{
    gram_form any = GRAM_FALSE;
    for (uint32_t i = 0; i < k->n; i++) {
        const evaluator *e = &k->list[i];
        bool speaks = e->kind == EV_ALL;
        for (uint32_t p = 0; p < patterns->n; p++) {
            speaks = speaks || (e->kind == EV_PATTERN && e->what == patterns->words[p] && (bits >> p & 1) != 0);
        }
        any = speaks ? gram_form_or2(k->c->forms, any, e->when) : any;
    }
    return any;
}

static bool has_word(const gram_stack *s, uint32_t word)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->words[i] == word) {
            return true;
        }
    }
    return false;
}

static void add_names(const collector *k, layers *all, gram_stack *names)
{
    schema_compiler *c = k->c;
    for (uint32_t i = 0; i < k->n; i++) {
        if (k->list[i].kind != EV_NAME || has_word(names, k->list[i].what)) {
            continue;
        }
        (void)gram_push(c->mem, names, k->list[i].what);
        const gram_form or_else = evaluated(k, k->list[i].what);
        layer *one = or_else != GRAM_TRUE ? layer_of(c, all, or_else) : NULL;
        if (one != NULL) {
            (void)gram_push(c->mem, &one->names, k->list[i].what);
        }
        (void)gram_spend(c->mem, names->n);
    }
}

static void add_classes(const collector *k, layers *all, const gram_stack *names, schema_place at)
{
    schema_compiler *c = k->c;
    gram_stack patterns = {NULL, 0, 0};
    for (uint32_t i = 0; i < k->n; i++) {
        if (k->list[i].kind == EV_PATTERN && !has_word(&patterns, k->list[i].what)) {
            (void)gram_push(c->mem, &patterns, k->list[i].what);
        }
    }
    if (patterns.n > MAX_PATTERNS) {
        gram_schema_unsupported(c, at, KW_UNEVALUATED_PROPERTIES, "more than 6 patterns with unevaluatedProperties are not supported");
        return;
    }
    gram_ex named = GRAM_EX_NONE;
    for (uint32_t i = 0; i < names->n; i++) {
        named = gram_ex_or2(c->lang, named, gram_form_name_ex(c->forms, names->words[i]));
    }
    for (uint32_t bits = 0; bits < 1u << patterns.n && !gram_failed(c->mem); bits++) {
        gram_ex class = gram_ex_not(c->lang, named);
        for (uint32_t p = 0; p < patterns.n; p++) {
            const gram_ex in = patterns.words[p];
            class = gram_ex_and2(c->lang, class, (bits >> p & 1) != 0 ? in : gram_ex_not(c->lang, in));
        }
        const gram_form or_else = evaluated_class(k, &patterns, bits);
        layer *one = or_else != GRAM_TRUE && !gram_empty(c->lang, class) ? layer_of(c, all, or_else) : NULL;
        if (one != NULL) {
            (void)gram_push(c->mem, &one->patterns, class);
        }
    }
}

static gram_form properties(collector *k, const schema_node *node, schema_place at)
{
    schema_compiler *c = k->c;
    const gram_form otherwise = gram_schema_under(c, node, KW_UNEVALUATED_PROPERTIES, at);
    layers all = {NULL, 0, 0};
    gram_stack names = {NULL, 0, 0};
    add_names(k, &all, &names);
    add_classes(k, &all, &names, at);
    gram_form form = GRAM_TRUE;
    for (uint32_t i = 0; i < all.n && !gram_failed(c->mem); i++) {
        const layer *one = &all.list[i];
        const uint32_t n = one->names.n > one->patterns.n ? one->names.n : one->patterns.n;
        gram_form *same = gram_alloc(c->mem, n, sizeof *same);
        for (uint32_t m = 0; same != NULL && m < n; m++) {
            same[m] = otherwise;
        }
        const gram_props props = {one->names.words, same, one->names.n, one->patterns.words, same, one->patterns.n, GRAM_TRUE};
        const gram_form must = same != NULL ? gram_form_props(c->forms, &props) : GRAM_FALSE;
        form = gram_form_and2(c->forms, form, gram_form_or2(c->forms, must, one->or_else));
    }
    return form;
}

/* --- Items -------------------------------------------------------------------------------------------------------- */

/* The items in [from, to) satisfy x; to = GRAM_NONE: all from `from` on. */
static gram_form range(schema_compiler *c, uint32_t from, uint32_t to, gram_form x)
{
    const uint32_t n = to == GRAM_NONE ? from : to;
    gram_form *prefix = gram_alloc(c->mem, n, sizeof *prefix);
    for (uint32_t i = 0; prefix != NULL && i < n; i++) {
        prefix[i] = i < from ? GRAM_TRUE : x;
    }
    (void)gram_spend(c->mem, n);
    return prefix != NULL ? gram_form_items(c->forms, &(const gram_items){prefix, n, to == GRAM_NONE ? x : GRAM_TRUE}) : GRAM_FALSE;
}

/* `contains` evaluates the items that satisfy it. Those that may fail as a whole are tried in all combinations. */
static gram_form range_with_contains(const collector *k, uint32_t from, uint32_t to, gram_form otherwise, schema_place at)
{
    schema_compiler *c = k->c;
    gram_forms *f = c->forms;
    const evaluator *sometimes[MAX_CONTAINS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        if (k->list[i].kind == EV_CONTAINS && k->list[i].when == GRAM_TRUE) {
            otherwise = gram_form_or2(f, otherwise, k->list[i].what);
        } else if (k->list[i].kind == EV_CONTAINS && n == MAX_CONTAINS) {
            gram_schema_unsupported(c, at, KW_UNEVALUATED_ITEMS, "so many contains with unevaluatedItems are not supported");
            return GRAM_TRUE;
        } else if (k->list[i].kind == EV_CONTAINS) {
            sometimes[n++] = &k->list[i];
        }
    }
    gram_form form = GRAM_FALSE;
    for (uint32_t bits = 0; bits < 1u << n; bits++) {
        gram_form one = otherwise;
        gram_form when = GRAM_TRUE;
        for (uint32_t i = 0; i < n; i++) {
            if ((bits >> i & 1) != 0) {
                one = gram_form_or2(f, one, sometimes[i]->what);
                when = gram_form_and2(f, when, sometimes[i]->when);
            }
        }
        form = gram_form_or2(f, form, gram_form_and2(f, when, range(c, from, to, one)));
    }
    return form;
}

static gram_form items(collector *k, const schema_node *node, schema_place at)
{
    schema_compiler *c = k->c;
    gram_forms *f = c->forms;
    const gram_form otherwise = gram_schema_under(c, node, KW_UNEVALUATED_ITEMS, at);
    gram_form form = GRAM_TRUE;
    for (uint32_t from = 0; from != GRAM_NONE && !gram_failed(c->mem);) {
        uint32_t to = GRAM_NONE; /* end of the range of indices with the same evaluators */
        gram_form any = GRAM_FALSE;
        for (uint32_t i = 0; i < k->n; i++) {
            const evaluator *e = &k->list[i];
            const bool speaks = e->kind == EV_ALL || (e->kind == EV_PREFIX && e->what > from);
            any = speaks ? gram_form_or2(f, any, e->when) : any;
            to = e->kind == EV_PREFIX && e->what > from && e->what < to ? e->what : to;
        }
        if (any != GRAM_TRUE) {
            form = gram_form_and2(f, form, gram_form_or2(f, any, range_with_contains(k, from, to, otherwise, at)));
        }
        from = to;
    }
    return form;
}

gram_form gram_schema_unevaluated(schema_compiler *c, const schema_node *node, schema_place at)
{
    gram_form form = GRAM_TRUE;
    for (int i = 0; i < 2; i++) {
        collector k = {.c = c, .items = i == 1, .root = node->value};
        if (node->kw[i == 1 ? KW_UNEVALUATED_ITEMS : KW_UNEVALUATED_PROPERTIES] == NULL || gram_failed(c->mem)) {
            continue;
        }
        collect(&k, node->value, at, GRAM_TRUE);
        form = gram_form_and2(c->forms, form, i == 1 ? items(&k, node, at) : properties(&k, node, at));
    }
    return form;
}
