/* gram_lark.c - reads the Lark dialect: rules in lower case, terminals in upper case, %ignore, %import common.X,
 * %json {schema}. See gram_ebnf.h.
 *
 * In rules each terminal, string and expression may have ignored text behind it. What is only about trees of
 * syntax (aliases, ?rule) is read and has no effect; priorities and templates are refused. Terminals may also be
 * intersected (&) and complemented (~ before them). */
#include "grammar/gram_lark.h"
#include "grammar/gram_regex.h"

/* --- Statements --------------------------------------------------------------------------------------------------- */

static void define(gram_larker *k, size_t from, size_t to, gram_part *body)
{
    const uint32_t rule = gram_read_rule(&k->r, from, to);
    if (gram_failed(k->r.mem)) {
        return;
    }
    if (k->r.cfg->rules[rule].body != NULL) {
        gram_read_fault(&k->r, from, "a name that is defined twice");
    }
    k->r.cfg->rules[rule].body = body;
}

/* Terminals that %import common knows. */
static const struct {
    const char *name;
    const char *regex;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"NUMBER", "[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/* The terminal text[from, to) of the library, under the name text[as, as_end). */
static void import_one(gram_larker *k, size_t from, size_t to, size_t as, size_t as_end)
{
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        const size_t n = strlen(common[i].name);
        if (n == to - from && memcmp(common[i].name, k->r.text + from, n) == 0) {
            const gram_ex e = gram_regex(k->r.cfg->lang, common[i].regex, strlen(common[i].regex), 0);
            define(k, as, as_end, gram_part_new(k->r.cfg, PART_TEXT, e));
            return;
        }
    }
    gram_read_unsupported(&k->r, from, "this name of the library");
}

static void import(gram_larker *k)
{
    gram_reader *r = &k->r;
    gram_lark_skip(r, false);
    const size_t begin = r->at;
    if (!gram_read_take(r, "common")) {
        gram_read_unsupported(r, begin, "a library other than common");
        return;
    }
    if (gram_read_take(r, ".")) {
        const size_t from = r->at;
        const size_t to = r->at = gram_lark_word_end(r);
        gram_lark_skip(r, false);
        const bool renamed = gram_read_take(r, "->");
        gram_lark_skip(r, false);
        const size_t as = renamed ? r->at : from;
        r->at = renamed ? gram_lark_word_end(r) : r->at;
        import_one(k, from, to, as, renamed ? r->at : to);
        return;
    }
    gram_lark_skip(r, false);
    bool more = gram_read_take(r, "(");
    while (more && !gram_failed(r->mem)) {
        gram_lark_skip(r, true);
        const size_t from = r->at;
        r->at = gram_lark_word_end(r);
        import_one(k, from, r->at, from, r->at);
        gram_lark_skip(r, true);
        more = gram_read_take(r, ",");
    }
    if (!gram_read_take(r, ")")) {
        gram_read_fault(r, begin, "an import is written: %import common.NAME or %import common (A, B)");
    }
}

static void directive(gram_larker *k)
{
    gram_reader *r = &k->r;
    const size_t begin = r->at;
    if (gram_read_take(r, "%import")) {
        import(k);
    } else if (gram_read_take(r, "%ignore")) {
        k->in_terminal = true;
        gram_part_add(k->ignored, gram_lark_alternatives(k));
        k->in_terminal = false;
    } else {
        gram_read_unsupported(r, begin, "this directive");
    }
}

/* Behind a name: [lazy], the one attribute that means something here. */
static bool lazy(gram_reader *r)
{
    const size_t begin = r->at;
    if (!gram_read_take(r, "[")) {
        return false;
    }
    const bool is_lazy = gram_read_take(r, "lazy");
    if (!(is_lazy || gram_read_take(r, "capture")) || !gram_read_take(r, "]")) {
        gram_read_unsupported(r, begin, "an attribute other than [lazy] and [capture]");
    }
    return is_lazy;
}

/* Those texts that have no shorter one of the language at their beginning. */
static gram_part *shortest(gram_larker *k, gram_part *body)
{
    gram_cfg *g = k->r.cfg;
    gram_part *longer = gram_part_new(g, PART_CAT, 0);
    gram_part *copy = gram_part_new(g, PART_CAT, 0);
    gram_part_add(copy, body);
    const uint32_t rule = gram_cfg_new_rule(g, copy);
    gram_part_add(longer, gram_part_new(g, PART_RULE, rule));
    gram_part_add(longer, gram_part_new(g, PART_TEXT, gram_ex_some(g->lang, GRAM_EX_ANY)));
    gram_part *not = gram_part_new(g, PART_NOT, 0);
    gram_part_add(not, longer);
    gram_part *and = gram_part_new(g, PART_AND, 0);
    gram_part_add(and, gram_part_new(g, PART_RULE, rule));
    gram_part_add(and, not);
    return and;
}

static void statement(gram_larker *k)
{
    gram_reader *r = &k->r;
    const size_t begin = r->at;
    while (gram_read_take(r, "?") || gram_read_take(r, "!")) {
    }
    const size_t from = r->at;
    const size_t to = r->at = gram_lark_word_end(r);
    const bool is_lazy = lazy(r);
    gram_lark_skip(r, false);
    if (gram_read_peek(r) == '.' || gram_read_peek(r) == '{') {
        gram_read_unsupported(r, r->at, gram_read_peek(r) == '.' ? "a priority" : "a template");
    } else if (from == to || !gram_read_take(r, ":")) {
        gram_read_fault(r, begin, "a rule is written: name: ...");
    }
    k->in_terminal = gram_lark_is_terminal(r, from, to) || is_lazy;
    gram_part *body = gram_failed(r->mem) ? NULL : gram_lark_alternatives(k);
    k->in_terminal = false;
    if (!gram_failed(r->mem)) {
        define(k, from, to, is_lazy ? shortest(k, body) : body);
    }
}

uint32_t gram_lark(gram_source *s, const char *text, size_t n)
{
    gram_larker k = {.r = gram_read_begin(s, text, n)};
    gram_cfg *g = s->cfg;
    k.ignored = gram_part_new(g, PART_ALT, 0);
    k.ignore = gram_cfg_new_rule(g, gram_part_rep(g, k.ignored, 0, GRAM_INF));
    for (gram_lark_skip(&k.r, true); !gram_failed(g->mem) && k.r.at < n; gram_lark_skip(&k.r, true)) {
        if (gram_read_at(&k.r, "%")) {
            directive(&k);
        } else {
            statement(&k);
        }
        gram_lark_skip(&k.r, false);
        if (!gram_failed(g->mem) && k.r.at < n && k.r.text[k.r.at] != '\n') {
            gram_read_fault(&k.r, k.r.at, "the line does not end here");
        }
    }
    const char *name = s->options->root != NULL ? s->options->root : "start";
    gram_reader start = {.source = s, .cfg = g, .mem = g->mem, .text = name, .n = strlen(name), .scope = k.r.scope};
    gram_part *all = gram_part_new(g, PART_CAT, 0);
    gram_part_add(all, gram_part_new(g, PART_RULE, k.ignore));
    gram_part_add(all, gram_part_new(g, PART_RULE, gram_read_rule(&start, 0, start.n)));
    return gram_cfg_new_rule(g, all);
}
