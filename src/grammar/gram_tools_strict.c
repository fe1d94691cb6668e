/* gram_tools_strict.c - the parameters of strict tools: what their schema says, name by name. See gram_tools.c. */
#include "grammar/gram_tools.h"

#include <stdio.h>

/* --- Small texts -------------------------------------------------------------------------------------------------- */

gram_ex gram_tool_text(gram_toolbox *k, const char *bytes) { return gram_ex_text(k->l, bytes, strlen(bytes)); }

gram_ex gram_tool_cat(gram_toolbox *k, gram_ex a, gram_ex b, gram_ex c) { return gram_ex_cat(k->l, a, gram_ex_cat(k->l, b, c)); }

void gram_tool_add_text(gram_toolbox *k, gram_part *to, gram_ex e) { gram_part_add(to, gram_part_new(k->g, PART_TEXT, e)); }

/* Text, the marker, and a tag's name with what is behind it. */
void gram_tool_add_mark(gram_toolbox *k, gram_part *to, gram_ex before, const char *tag, const char *behind)
{
    gram_tool_add_text(k, to, before);
    gram_part_add(to, gram_part_new(k->g, PART_TOKEN, 0));
    gram_tool_add_text(k, to, gram_tool_cat(k, gram_tool_text(k, tag), gram_tool_text(k, behind), GRAM_EX_EPS));
}

/* --- Values ------------------------------------------------------------------------------------------------------- */

/* Behind `" string="`: both ways to write the values of a formula, up to the end of the parameter. NULL when there
 * is no value. */
gram_part *gram_tool_values(gram_toolbox *k, gram_ex name, gram_form form)
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
            const gram_ex head = gram_ex_cat(k->l, name, gram_tool_text(k, "\" string=\"true\">"));
            gram_tool_add_mark(k, one, gram_tool_cat(k, head, value, gram_tool_text(k, "</")), k->given->parameter, ">");
            gram_part_add(alt, one);
        }
    }
    if (gram_sat(&m->json, others, gram_frame_levels(&m->json, 0))) {
        gram_part *one = gram_part_new(k->g, PART_CAT, 0);
        gram_tool_add_text(k, one, gram_ex_cat(k->l, name, gram_tool_text(k, "\" string=\"false\">")));
        gram_part_add(one, gram_part_new(k->g, PART_JSON, gram_goal_of(&m->json, others, NULL, 0)));
        gram_tool_add_mark(k, one, gram_tool_text(k, "</"), k->given->parameter, ">");
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

static void take_atom(gram_toolbox *k, members *o, gram_form x)
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

static bool has_quote(const uint32_t *chars, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (chars[i] == '"') {
            return true;
        }
    }
    return false;
}

/* What all demands say of a member, or with GRAM_NONE of one that is not declared. */
static gram_form member_form(gram_toolbox *k, const members *o, uint32_t name)
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

static void unsupported(gram_toolbox *k, size_t i, const char *what)
{
    (void)snprintf(k->g->mem->where, sizeof k->g->mem->where, "/%zu", i);
    gram_fault(k->g->mem, DI_E_UNSUPPORTED, "unsupported_keyword", -1, "parameters of the strict tool '%.64s': %s",
               k->given->tools[i].name, what);
}

/* The parameters of a strict tool as rules. */
static void take_members(gram_toolbox *k, size_t i, members *o)
{
    gram_machine *m = k->g->m;
    gram_tool *t = &k->list[i];
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
        uint32_t n_chars;
        const uint32_t *chars = gram_tuple_at(&m->forms->names, name, &n_chars);
        if (!again && has_quote(chars, n_chars)) {
            unsupported(k, i, "a name with a quote in it can't be written");
        }
        gram_part *body = again ? NULL : gram_tool_values(k, spelled, member_form(k, o, name));
        if (body != NULL) {
            const bool required = holds(&o->required, name);
            n_required += required;
            t->params[t->n++] = (gram_tool_param){gram_cfg_new_rule(k->g, body), required};
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

void gram_tool_strict(gram_toolbox *k, size_t i)
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
