/* gram_tools.c - see gram_tools.h.
 *
 * The parameters of a strict tool come in any order, each at most once, and all that are required before the end.
 * That is a rule for each set of parameters that were there before; these rules are made when a text gets to them
 * (PART_LATER), so their number is that of the texts. */
#include "grammar/gram_tools.h"

#include <stdio.h>

typedef struct param {
    uint32_t rule; /* name, value and the end of the value */
    bool required;
} param;

typedef struct tool {
    param *params; /* [n], strict only */
    uint32_t n;
} tool;

typedef struct tools {
    gram_source *s;
    gram_cfg *g;
    gram_lang *l;
    const di_grammar_tools *given; /* while compiling only */
    tool *list;
    uint32_t n_tools;
    gram_tuples laters;  /* tool, whether names follow or another parameter may, bits of parameters that were there */
    uint32_t *later_nts; /* [laters.n] + 1 */
    uint32_t later_capacity;
    gram_sym token;      /* these: what unfolded rules are made of */
    gram_sym next;       /* line end and beginning of a parameter up to the marker */
    gram_sym name;       /* behind it, up to the name */
    gram_sym close;      /* line end and end of a call up to the marker */
    gram_sym closed;     /* behind it */
} tools;

/* --- Small texts -------------------------------------------------------------------------------------------------- */

static gram_ex text(tools *k, const char *bytes) { return gram_ex_text(k->l, bytes, strlen(bytes)); }

static gram_ex cat(tools *k, gram_ex a, gram_ex b, gram_ex c) { return gram_ex_cat(k->l, a, gram_ex_cat(k->l, b, c)); }

static void add_text(tools *k, gram_part *to, gram_ex e) { gram_part_add(to, gram_part_new(k->g, PART_TEXT, e)); }

/* Text, the marker, and a tag's name with what is behind it. */
static void add_mark(tools *k, gram_part *to, gram_ex before, const char *tag, const char *behind)
{
    add_text(k, to, before);
    gram_part_add(to, gram_part_new(k->g, PART_TOKEN, 0));
    add_text(k, to, cat(k, text(k, tag), text(k, behind), GRAM_EX_EPS));
}

/* --- Values ------------------------------------------------------------------------------------------------------- */

/* Behind `" string="`: both ways to write the values of a formula, up to the end of the parameter. NULL when there
 * is no value. */
static gram_part *values(tools *k, gram_ex name, gram_form form)
{
    gram_machine *m = k->g->m;
    gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
    const gram_form others = gram_form_and2(m->forms, form, gram_form_type(m->forms, GRAM_ALL_TYPES & ~(1u << GRAM_STRING)));
    const gram_form strings = gram_form_of(m->forms, form, GRAM_STRING);
    if (gram_failed(m->mem)) {
        return NULL;
    }
    if (strings != GRAM_FALSE) {
        const gram_ex value = gram_text_ex(&m->json.texts, strings);
        if (!gram_empty(k->l, value)) {
            gram_part *one = gram_part_new(k->g, PART_CAT, 0);
            const gram_ex head = gram_ex_cat(k->l, name, text(k, "\" string=\"true\">"));
            add_mark(k, one, cat(k, head, value, text(k, "</")), k->given->parameter, ">");
            gram_part_add(alt, one);
        }
    }
    if (gram_sat(&m->json, others, gram_frame_levels(&m->json, 0))) {
        gram_part *one = gram_part_new(k->g, PART_CAT, 0);
        add_text(k, one, gram_ex_cat(k->l, name, text(k, "\" string=\"false\">")));
        gram_part_add(one, gram_part_new(k->g, PART_JSON, gram_goal_of(&m->json, others, NULL, 0)));
        add_mark(k, one, text(k, "</"), k->given->parameter, ">");
        gram_part_add(alt, one);
    }
    return alt != NULL && alt->first != NULL && !gram_failed(m->mem) ? alt : NULL;
}

/* --- Strict tools ------------------------------------------------------------------------------------------------- */

/* What a schema says of objects, taken apart: demands on members, and required names. */
typedef struct members {
    const gram_forms *f;
    const gram_props *props[64];
    uint32_t n_props;
    gram_stack required; /* names */
    gram_stack names;
    bool other; /* something else */
} members;

static void take_atom(tools *k, members *o, gram_form x)
{
    const gram_op op = gram_form_op(o->f, x);
    uint32_t n = 0;
    const gram_form *kids = op == FO_AND ? gram_form_kids(o->f, x, &n) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        take_atom(k, o, kids[i]);
    }
    if (op == FO_AND || op == FO_TRUE) {
        return;
    }
    if (op == FO_ATOM && gram_atom_kind(o->f, x) == AT_REQ) {
        (void)gram_push(k->g->mem, &o->required, gram_atom_words(o->f, x)[0]);
    } else if (op == FO_ATOM && gram_atom_kind(o->f, x) == AT_PROPS && o->n_props < sizeof o->props / sizeof *o->props) {
        const gram_props *props = &o->f->props[gram_atom_words(o->f, x)[0]];
        o->props[o->n_props++] = props;
        for (uint32_t i = 0; i < props->n_names; i++) {
            (void)gram_push(k->g->mem, &o->names, props->names[i]);
        }
    } else {
        o->other = true;
    }
}

static bool holds(const gram_stack *s, uint32_t word)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->words[i] == word) {
            return true;
        }
    }
    return false;
}

/* What all demands say of a member, or with GRAM_NONE of one that is not declared. */
static gram_form member_form(tools *k, const members *o, uint32_t name)
{
    gram_forms *f = k->g->m->forms;
    gram_form all = GRAM_TRUE;
    for (uint32_t i = 0; i < o->n_props; i++) {
        const gram_props *p = o->props[i];
        gram_form one = p->other;
        for (uint32_t n = 0; name != GRAM_NONE && n < p->n_names; n++) {
            one = p->names[n] == name ? p->forms[n] : one;
        }
        all = gram_form_and2(f, all, one);
    }
    return all;
}

static void unsupported(tools *k, size_t i, const char *what)
{
    (void)snprintf(k->g->mem->where, sizeof k->g->mem->where, "/%zu", i);
    gram_fault(k->g->mem, DI_E_UNSUPPORTED, "unsupported_keyword", -1, "parameters of the strict tool '%.64s': %s",
               k->given->tools[i].name, what);
}

/* The parameters of a strict tool as rules. */
static void take_members(tools *k, size_t i, members *o)
{
    gram_machine *m = k->g->m;
    tool *t = &k->list[i];
    bool open = o->n_props == 0 || gram_sat(&m->json, member_form(k, o, GRAM_NONE), gram_frame_levels(&m->json, 0));
    for (uint32_t p = 0; p < o->n_props; p++) {
        open = open || o->props[p]->n_patterns != 0;
    }
    if (o->other) {
        unsupported(k, i, "only properties, required and additionalProperties, and allOf of such, are supported");
    } else if (open && !k->s->schema.lenient) {
        unsupported(k, i, "additionalProperties has to be false, and patternProperties are not supported");
    } else if (open && !buf_puts(k->s->warnings, "a strict tool takes its declared parameters only\n")) {
        gram_fail(m->mem, DI_E_MEMORY, "out of memory for warnings");
    }
    t->params = gram_alloc(m->mem, (size_t)o->names.n + 1, sizeof *t->params);
    uint32_t n_required = 0;
    for (uint32_t n = 0; n < o->names.n && gram_spend(m->mem, 1 + o->names.n / 16); n++) {
        const uint32_t name = o->names.words[n];
        bool again = false;
        for (uint32_t b = 0; b < n && o->n_props > 1; b++) {
            again = again || o->names.words[b] == name;
        }
        const gram_ex spelled = gram_form_name_ex(m->forms, name);
        const gram_ex quoted = cat(k, GRAM_EX_ANY, text(k, "\""), GRAM_EX_ANY);
        if (!again && !gram_empty(k->l, gram_ex_and2(k->l, spelled, quoted))) {
            unsupported(k, i, "a name with a quote in it can't be written");
        }
        gram_part *body = again ? NULL : values(k, spelled, member_form(k, o, name));
        if (body != NULL) {
            const bool required = holds(&o->required, name);
            n_required += required;
            t->params[t->n++] = (param){gram_cfg_new_rule(k->g, body), required};
        }
    }
    for (uint32_t a = 0, n = o->required.n; a < n; a++) { /* each once */
        for (uint32_t b = 0; b < a; b++) {
            if (o->required.words[a] == o->required.words[b]) {
                o->required.words[a--] = o->required.words[--n];
                o->required.n = n;
                break;
            }
        }
    }
    if (!gram_failed(m->mem) && n_required < o->required.n) {
        (void)snprintf(m->mem->where, sizeof m->mem->where, "/%zu", i);
        gram_fault(m->mem, DI_E_FORMAT, "unsatisfiable_schema", -1, "tool '%.64s': a required parameter has no value, or is not declared",
                   k->given->tools[i].name);
    }
}

static void compile_strict(tools *k, size_t i)
{
    const di_grammar_tool *given = &k->given->tools[i];
    gram_mem *mem = k->g->mem;
    js_doc *doc = NULL;
    di_error err;
    const js_limits limits = {.max_depth = GRAM_MAX_SCHEMA_DEPTH, .max_bytes = (size_t)64 << 20};
    const char *schema = given->parameters != NULL ? given->parameters : "{}";
    if (js_parse(schema, given->parameters != NULL ? given->n_parameters : 2, given->name, &limits, &doc, &err) != DI_OK) {
        (void)snprintf(mem->where, sizeof mem->where, "/%zu", i);
        const char *kind = err.code == DI_E_LIMIT ? "limit_exceeded" : err.code == DI_E_MEMORY ? "" : "invalid_schema";
        gram_fault(mem, err.code, kind, -1, "%s", err.message);
        return;
    }
    const gram_form root = gram_schema(k->g->m->forms, js_root(doc), &k->s->schema, k->s->warnings);
    js_free(doc);
    if (gram_failed(mem)) {
        char inner[sizeof mem->where];
        memcpy(inner, mem->where, sizeof inner);
        (void)snprintf(mem->where, sizeof mem->where, "/%zu%.200s", i, inner);
        return;
    }
    const gram_form objects = gram_form_of(k->g->m->forms, root, GRAM_OBJECT);
    members o = {.f = k->g->m->forms};
    take_atom(k, &o, objects);
    take_members(k, i, &o);
}

/* --- Rules for sets of parameters --------------------------------------------------------------------------------- */

enum { NAMES, MORE }; /* a name follows; behind a parameter */

static uint32_t later_of(tools *k, uint32_t tool_index, uint32_t what, const uint32_t *seen)
{
    const uint32_t n = gram_bit_words(k->list[tool_index].n);
    gram_stack *work = &k->l->work;
    const uint32_t base = work->n;
    bool is_new = false;
    (void)gram_push(k->g->mem, work, tool_index);
    (void)gram_push(k->g->mem, work, what);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(k->g->mem, work, seen != NULL ? seen[i] : 0);
    }
    const uint32_t id = gram_failed(k->g->mem) ? 0 : gram_tuple(k->g->mem, &k->laters, work->words + base, work->n - base, &is_new);
    work->n = base;
    if (is_new) {
        uint32_t *nts = gram_grow(k->g->mem, k->later_nts, id, &k->later_capacity, sizeof *nts);
        if (nts == NULL) {
            return 0;
        }
        k->later_nts = nts;
        nts[id] = 0;
    }
    return id;
}

/* The rule of a set, as a symbol. */
static gram_sym sym_of(tools *k, uint32_t tool_index, uint32_t what, const uint32_t *seen)
{
    const uint32_t later = later_of(k, tool_index, what, seen);
    if (gram_failed(k->g->mem)) {
        return GRAM_SYM(SYM_END, 0);
    }
    if (k->later_nts[later] == 0) {
        const uint32_t nt = gram_cfg_new_nt(k->g);
        if (gram_failed(k->g->mem)) {
            return GRAM_SYM(SYM_END, 0);
        }
        k->g->nts[nt].later = later + 1;
        k->g->nts[nt].productive = true;
        k->later_nts[later] = nt + 1;
    }
    return GRAM_SYM(SYM_RULE, k->later_nts[later] - 1);
}

static void unfold(gram_cfg *g, uint32_t nt, uint32_t later)
{
    tools *k = g->user;
    uint32_t n;
    const uint32_t *key = gram_tuple_at(&k->laters, later, &n);
    const uint32_t index = key[0];
    const tool *t = &k->list[index];
    uint32_t *seen = gram_alloc(g->mem, (size_t)n - 1, sizeof *seen); /* what is known is kept, so this is small beside it */
    if (seen == NULL) {
        return;
    }
    memcpy(seen, key + 2, (n - 2) * sizeof *seen);
    bool complete = true;
    bool any = false;
    for (uint32_t i = 0; i < t->n && gram_spend(g->mem, 1); i++) {
        if (gram_has(seen, i)) {
            continue;
        }
        any = true;
        complete = complete && !t->params[i].required;
        if (key[1] == NAMES) {
            seen[i / 32] |= 1u << i % 32;
            const gram_sym syms[] = {gram_cfg_rule_sym(g, t->params[i].rule), sym_of(k, index, MORE, seen)};
            gram_cfg_put_alt(g, nt, syms, 2);
            seen[i / 32] &= ~(1u << i % 32);
        }
    }
    if (key[1] == NAMES) {
        return;
    }
    if (any) {
        const gram_sym syms[] = {k->next, k->token, k->name, sym_of(k, index, NAMES, seen)};
        gram_cfg_put_alt(g, nt, syms, 4);
    }
    if (complete) {
        const gram_sym syms[] = {k->close, k->token, k->closed};
        gram_cfg_put_alt(g, nt, syms, 3);
    }
}

/* --- Calls -------------------------------------------------------------------------------------------------------- */

/* Behind the line of a call's beginning: parameters and its end. */
static gram_part *parameters(tools *k, size_t i)
{
    const di_grammar_tools *given = k->given;
    const bool strict = given->tools[i].strict;
    gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
    bool optional = true;
    for (uint32_t p = 0; p < k->list[i].n; p++) {
        optional = optional && !k->list[i].params[p].required;
    }
    if (optional) {
        gram_part *none = gram_part_new(k->g, PART_CAT, 0);
        add_mark(k, none, text(k, given->old_empty ? "</" : "\n</"), given->call, ">");
        gram_part_add(alt, none);
    }
    gram_part *some = gram_part_new(k->g, PART_CAT, 0);
    add_mark(k, some, text(k, "<"), given->parameter, " name=\"");
    if (strict && k->list[i].n != 0) {
        gram_part_add(some, gram_part_new(k->g, PART_LATER, later_of(k, (uint32_t)i, NAMES, NULL)));
        gram_part_add(alt, some);
    } else if (!strict) {
        const uint32_t quotes[] = {'"', '"'};
        const gram_ex name = gram_ex_rep(k->l, gram_ex_set(k->l, gram_set_not(k->l, gram_set_of(k->l, quotes, 1))), 1, GRAM_INF);
        const uint32_t one = gram_cfg_new_rule(k->g, values(k, name, GRAM_TRUE));
        gram_part *more = gram_part_new(k->g, PART_CAT, 0);
        add_mark(k, more, text(k, "\n<"), given->parameter, " name=\"");
        gram_part_add(more, gram_part_new(k->g, PART_RULE, one));
        gram_part_add(some, gram_part_new(k->g, PART_RULE, one));
        gram_part_add(some, gram_part_rep(k->g, more, 0, GRAM_INF));
        add_mark(k, some, text(k, "\n</"), given->call, ">");
        gram_part_add(alt, some);
    }
    return alt;
}

/* Behind "<" and the marker of a call. */
static uint32_t calls(tools *k)
{
    const di_grammar_tools *given = k->given;
    gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; i < given->n_tools && !gram_failed(k->g->mem); i++) {
        if (given->tools[i].strict) {
            compile_strict(k, i);
        }
        gram_part *one = gram_part_new(k->g, PART_CAT, 0);
        const gram_ex name = gram_ex_cat(k->l, text(k, given->tools[i].name), text(k, "\">\n"));
        add_text(k, one, cat(k, text(k, given->call), text(k, " name=\""), name));
        gram_part_add(one, gram_failed(k->g->mem) ? NULL : parameters(k, i));
        gram_part_add(alt, one);
    }
    return gram_cfg_new_rule(k->g, alt);
}

/* Calls up to the end of the block. */
static gram_part *block(tools *k)
{
    const di_grammar_tools *given = k->given;
    const uint32_t call = calls(k);
    gram_part *all = gram_part_new(k->g, PART_CAT, 0);
    add_mark(k, all, text(k, "<"), "", "");
    gram_part_add(all, gram_part_new(k->g, PART_RULE, call));
    if (!given->single) {
        gram_part *more = gram_part_new(k->g, PART_CAT, 0);
        add_mark(k, more, text(k, "\n<"), "", "");
        gram_part_add(more, gram_part_new(k->g, PART_RULE, call));
        gram_part_add(all, gram_part_rep(k->g, more, 0, GRAM_INF));
    }
    add_mark(k, all, text(k, "\n</"), given->block, ">");
    return all;
}

static gram_sym text_sym(tools *k, const char *a, const char *b)
{
    return GRAM_SYM(SYM_TEXT, gram_ex_cat(k->l, text(k, a), text(k, b)));
}

uint32_t gram_tools(gram_source *s, const di_grammar_tools *given, gram_part *answer)
{
    gram_cfg *g = s->cfg;
    tools *k = gram_alloc(g->mem, 1, sizeof *k);
    gram_part *all = gram_part_new(g, PART_ALT, 0);
    if (given->choice == DI_TOOL_CHOICE_NONE) {
        gram_part_add(all, answer != NULL ? answer : gram_part_new(g, PART_TEXT, GRAM_EX_ANY));
        return gram_cfg_new_rule(g, all);
    }
    (void)gram_cfg_token(g, (gram_token_name){.id = -1, .spelling = given->marker, .n = strlen(given->marker)});
    tool *list = gram_alloc(g->mem, given->n_tools, sizeof *list);
    if (k == NULL || list == NULL) {
        return 0;
    }
    *k = (tools){.s = s, .g = g, .l = g->lang, .given = given, .list = list, .n_tools = (uint32_t)given->n_tools};
    k->token = GRAM_SYM(SYM_TOKEN, 0);
    k->next = text_sym(k, "\n<", "");
    k->name = text_sym(k, given->parameter, " name=\"");
    k->close = text_sym(k, "\n</", "");
    k->closed = text_sym(k, given->call, ">");
    g->unfold = unfold;
    g->user = k;
    gram_part *one = gram_part_new(g, PART_CAT, 0);
    const bool free = given->choice == DI_TOOL_CHOICE_AUTO && answer == NULL;
    if (given->choice == DI_TOOL_CHOICE_AUTO) {
        gram_part_add(all, answer != NULL ? answer : gram_part_new(g, PART_TEXT, GRAM_EX_ANY));
    }
    if (given->choice == DI_TOOL_CHOICE_AUTO || !given->opened) {
        add_mark(k, one, gram_ex_cat(k->l, free ? GRAM_EX_ANY : GRAM_EX_EPS, text(k, "\n\n<")), given->block, ">\n");
    }
    gram_part_add(one, block(k));
    gram_part_add(all, one);
    k->given = NULL;
    return gram_cfg_new_rule(g, all);
}
