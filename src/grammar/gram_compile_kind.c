/* gram_compile_kind.c - what each kind of constraint becomes: a text of one expression, a value of the JSON
 * machine, or a general grammar. */
#include "grammar/gram_compile.h"
#include "grammar/gram_regex.h"
#include "grammar/gram_tools.h"

#define MAX_DOCUMENT ((size_t)256 << 20)

static bool parse_json(gram_compiler *c, const gram_constraint *from, const char *name, js_doc **doc)
{
    const js_limits limits = {.max_depth = GRAM_MAX_SCHEMA_DEPTH, .max_bytes = MAX_DOCUMENT};
    di_error err;
    if (js_parse(from->text, from->n, name, &limits, doc, &err) == DI_OK) {
        return true;
    }
    if (err.code == DI_E_MEMORY) {
        gram_fail(&c->g->mem, err.code, "%s", err.message);
    } else {
        gram_fault(&c->g->mem, err.code, err.code == DI_E_LIMIT ? "limit_exceeded" : "invalid_schema", -1, "%s", err.message);
    }
    return false;
}

/* --- Texts and values --------------------------------------------------------------------------------------------- */

static void start_text(di_grammar *g, gram_ex e)
{
    const uint32_t vec = gram_failed(&g->mem) ? 0 : gram_vec_id(&g->lexes, &e, 1, false);
    if (vec == 0) {
        gram_fault(&g->mem, DI_E_FORMAT, "invalid_regex", -1, "no text matches the expression");
    }
    g->machine.start = (gram_pos){0, gram_chars_state(&g->lexes, MODE_RAW, vec, 0), 0};
}

static gram_ex choice(gram_compiler *c, const gram_constraint *from)
{
    di_grammar *g = c->g;
    js_doc *doc = NULL;
    gram_ex any = GRAM_EX_NONE;
    if (!parse_json(c, from, "choice", &doc)) {
        return any;
    }
    const js_value *list = js_root(doc);
    bool strings = js_kind_of(list) == JS_ARRAY && js_length(list) > 0;
    for (size_t i = 0; strings && i < js_length(list); i++) {
        strings = js_kind_of(js_at(list, i)) == JS_STRING;
    }
    if (!strings) {
        gram_fault(&g->mem, DI_E_FORMAT, "invalid_grammar", -1, "a choice is a list of strings, with at least one");
    } else if (js_length(list) > GRAM_MAX_ENUM) {
        gram_fault(&g->mem, DI_E_LIMIT, "limit_exceeded", -1, "more than %d choices", GRAM_MAX_ENUM);
    } else {
        const uint32_t base = g->lang.work.n;
        for (size_t i = 0; i < js_length(list); i++) {
            size_t n;
            const char *text = js_string(js_at(list, i), &n);
            (void)gram_push(&g->mem, &g->lang.work, gram_ex_text(&g->lang, text, n));
        }
        any = gram_ex_or(&g->lang, g->lang.work.words + base, g->lang.work.n - base);
        g->lang.work.n = base;
    }
    js_free(doc);
    return any;
}

static gram_schema_options schema_options(const gram_compiler *c)
{
    return (gram_schema_options){c->options->formats, c->options->lenient, c->options->closed};
}

/* The goal of a schema, or of any object. */
static uint32_t goal(gram_compiler *c, const gram_constraint *from)
{
    di_grammar *g = c->g;
    js_doc *doc = NULL;
    if (from->kind == DI_GRAMMAR_JSON_OBJECT) {
        return gram_goal_of(&g->machine.json, gram_form_type(&g->forms, 1u << GRAM_OBJECT), NULL, 0);
    }
    if (!parse_json(c, from, "schema", &doc)) {
        return 0;
    }
    const gram_schema_options options = schema_options(c);
    const gram_form root = gram_schema(&g->forms, js_root(doc), &options, &g->warnings);
    js_free(doc);
    return gram_failed(&g->mem) ? 0 : gram_goal_of(&g->machine.json, root, NULL, 0);
}

/* --- General grammars --------------------------------------------------------------------------------------------- */

static gram_source source(gram_compiler *c)
{
    return (gram_source){gram_cfg_new(&c->g->machine), c->options, schema_options(c), &c->g->warnings};
}

/* The rule of a grammar or of tags. */
static uint32_t rule(gram_compiler *c, gram_source *s, const gram_constraint *from)
{
    js_doc *doc = NULL;
    uint32_t root = 0;
    switch (from->kind) {
    case DI_GRAMMAR_EBNF:
        return gram_ebnf(s, from->text, from->n);
    case DI_GRAMMAR_GBNF:
        return gram_gbnf(s, from->text, from->n);
    case DI_GRAMMAR_LARK:
        return gram_lark(s, from->text, from->n);
    case DI_GRAMMAR_TAGS:
        if (parse_json(c, from, "tags", &doc)) {
            root = gram_tags(s, js_root(doc));
        }
        js_free(doc);
        return root;
    default:
        gram_fail(&c->g->mem, DI_E_ARGUMENT, "this kind of grammar is not compiled from a text");
        return 0;
    }
}

static void finish(gram_compiler *c, gram_source *s, uint32_t root)
{
    if (!gram_failed(&c->g->mem)) {
        (void)gram_cfg_finish(s->cfg, root, &c->g->machine.start);
    }
}

/* A constraint as a part of a grammar. */
static gram_part *part(gram_compiler *c, gram_source *s, const gram_constraint *from)
{
    switch (from->kind) {
    case DI_GRAMMAR_REGEX:
        return gram_part_new(s->cfg, PART_TEXT, gram_regex(s->cfg->lang, from->text, from->n, 0));
    case DI_GRAMMAR_CHOICE:
        return gram_part_new(s->cfg, PART_TEXT, choice(c, from));
    case DI_GRAMMAR_SCHEMA:
    case DI_GRAMMAR_JSON_OBJECT:
        return gram_part_new(s->cfg, PART_JSON, goal(c, from));
    default:
        return gram_part_new(s->cfg, PART_RULE, rule(c, s, from));
    }
}

void gram_compile_text(gram_compiler *c, const gram_constraint *from)
{
    di_grammar *g = c->g;
    if (from->kind == DI_GRAMMAR_REGEX || from->kind == DI_GRAMMAR_CHOICE) {
        start_text(g, from->kind == DI_GRAMMAR_REGEX ? gram_regex(&g->lang, from->text, from->n, 0) : choice(c, from));
    } else if (from->kind == DI_GRAMMAR_SCHEMA || from->kind == DI_GRAMMAR_JSON_OBJECT) {
        const uint32_t root = goal(c, from);
        if (gram_failed(&g->mem) || !gram_js_start(&g->machine, root, 0, &g->machine.start)) {
            gram_fault(&g->mem, DI_E_FORMAT, "unsatisfiable_schema", -1, "no value satisfies the schema");
        }
    } else {
        gram_source s = source(c);
        if (s.cfg != NULL) {
            finish(c, &s, rule(c, &s, from));
        }
    }
}

void gram_compile_tools(gram_compiler *c, const di_grammar_tools *tools)
{
    gram_source s = source(c);
    if (s.cfg == NULL) {
        return;
    }
    const bool has_text = tools->answer != NULL;
    const gram_constraint answer = {tools->answer_kind, has_text ? tools->answer : "", has_text ? tools->n_answer : 0};
    gram_part *tree = tools->has_answer_kind ? part(c, &s, &answer) : NULL;
    if (!gram_failed(&c->g->mem)) {
        finish(c, &s, gram_tools(&s, tools, tree));
    }
}
