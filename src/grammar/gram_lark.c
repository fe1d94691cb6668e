/* gram_lark.c - reads the Lark dialect: rules in lower case, terminals in upper case, %ignore, %import common.X,
 * %json {schema}. See gram_ebnf.h.
 *
 * In rules each terminal, string and expression may have ignored text behind it. What is only about trees of
 * syntax (aliases, ?rule) is read and has no effect; priorities and templates are refused. Terminals may also be
 * intersected (&) and complemented (~ before them). */
#include "grammar/gram_ebnf.h"
#include "grammar/gram_regex.h"

typedef struct lark {
    gram_reader r;
    gram_part *ignored;  /* alternatives */
    uint32_t ignore;     /* rule of what may stand behind a terminal */
    bool in_terminal;
} lark;

/* --- Text --------------------------------------------------------------------------------------------------------- */

static bool is_word(int c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
}

/* Blanks and comments; with `lines` line ends too. */
static void skip(gram_reader *r, bool lines)
{
    for (;; r->at++) {
        const int c = gram_read_peek(r);
        const bool comment = c == '#' || gram_read_at(r, "//");
        if (c != ' ' && c != '\t' && c != '\r' && !(lines && c == '\n') && !comment) {
            return;
        }
        while (comment && r->at + 1 < r->n && r->text[r->at + 1] != '\n') {
            r->at++;
        }
    }
}

static size_t word_end(const gram_reader *r)
{
    size_t end = r->at;
    while (end < r->n && is_word((uint8_t)r->text[end])) {
        end++;
    }
    return end;
}

/* A line end inside of an alternative: it goes on when the next line begins with "|", or in a group. */
static void skip_inside(gram_reader *r)
{
    skip(r, r->depth > 0);
    gram_reader ahead = *r;
    skip(&ahead, true);
    if (gram_read_at(&ahead, "|")) {
        r->at = ahead.at;
    }
}

static bool is_terminal(const gram_reader *r, size_t from, size_t to)
{
    while (from < to && (r->text[from] < 'A' || r->text[from] == '_')) {
        from++;
    }
    return from < to && r->text[from] <= 'Z';
}

/* --- Atoms -------------------------------------------------------------------------------------------------------- */

static gram_part *string(lark *k)
{
    gram_reader *r = &k->r;
    gram_lang *l = r->cfg->lang;
    const size_t begin = r->at++;
    gram_part *t = gram_read_string(r);
    if (!gram_failed(r->mem) && gram_read_take(r, "i")) {
        gram_ex e = GRAM_EX_EPS;
        const size_t end = r->at;
        for (r->at = begin + 1; r->at < end - 2;) {
            const uint32_t c = gram_read_char(r);
            e = gram_ex_cat(l, e, gram_ex_set(l, gram_set_fold(l, gram_set_of(l, (const uint32_t[]){c, c}, 1))));
        }
        r->at = end;
        t = gram_part_new(r->cfg, PART_TEXT, e);
    }
    gram_reader ahead = *r;
    skip(&ahead, false);
    if (!gram_failed(r->mem) && gram_read_take(&ahead, "..")) {
        skip(&ahead, false);
        r->at = begin + 1;
        const uint32_t first = gram_read_char(r);
        *r = ahead;
        const uint32_t last = gram_read_take(r, "\"") ? gram_read_char(r) : 0;
        if (!gram_read_take(r, "\"") || last < first || r->text[ahead.at - 1] == '"') {
            gram_read_fault(r, begin, "a range is written \"a\"..\"z\"");
        }
        t = gram_part_new(r->cfg, PART_TEXT, gram_ex_set(l, gram_set_of(l, (const uint32_t[]){first, last}, 1)));
    }
    return t;
}

static gram_part *regexp(lark *k)
{
    gram_reader *r = &k->r;
    const size_t begin = ++r->at;
    while (r->at < r->n && r->text[r->at] != '/' && r->text[r->at] != '\n') {
        r->at += r->text[r->at] == '\\' ? 2 : 1;
    }
    if (gram_read_peek(r) != '/') {
        gram_read_fault(r, begin - 1, "an expression without its closing slash");
        return NULL;
    }
    const size_t end = r->at++;
    unsigned flags = 0;
    for (int c; is_word(c = gram_read_peek(r)); r->at++) {
        flags |= c == 'i' ? GRAM_REGEX_FOLD : c == 's' ? GRAM_REGEX_DOT_ALL : 0;
        if (c != 'i' && c != 's' && c != 'u') {
            gram_read_unsupported(r, r->at, "this flag of an expression");
            return NULL;
        }
    }
    const gram_ex e = gram_regex(r->cfg->lang, r->text + begin, end - begin, flags);
    if (gram_failed(r->mem) && r->mem->offset >= 0) {
        r->mem->offset += (int64_t)begin; /* in the grammar */
    }
    return gram_part_new(r->cfg, PART_TEXT, e);
}

/* %json and the schema behind it. */
static gram_part *schema(lark *k)
{
    gram_reader *r = &k->r;
    skip(r, true);
    const size_t begin = r->at;
    size_t depth = 0;
    bool quoted = false;
    for (; r->at < r->n; r->at++) {
        const char c = r->text[r->at];
        if (quoted) {
            r->at += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && (depth == 0 || --depth == 0)) {
            break;
        }
    }
    const size_t end = r->at < r->n ? ++r->at : r->n;
    js_doc *doc = NULL;
    di_error err;
    gram_part *t = NULL;
    const js_limits limits = {.max_depth = GRAM_MAX_SCHEMA_DEPTH, .max_bytes = (size_t)64 << 20};
    const di_status status = js_parse(r->text + begin, end - begin, "schema", &limits, &doc, &err);
    if (status == DI_OK) {
        t = gram_source_json(r->source, js_root(doc));
    } else if (status == DI_E_MEMORY) {
        gram_fail(r->mem, status, "%s", err.message);
    } else {
        gram_fault(r->mem, status, "invalid_schema", (int64_t)begin, "%s", err.message);
    }
    js_free(doc);
    return t;
}

static gram_part *alternatives(lark *k);

static gram_part *group(lark *k, const char *close)
{
    gram_reader *r = &k->r;
    const size_t begin = r->at - 1;
    gram_part *inner = NULL;
    if (gram_read_enter(r)) {
        inner = alternatives(k);
        if (!gram_failed(r->mem) && !gram_read_take(r, close)) {
            gram_read_fault(r, begin, "a group without its end");
        }
    }
    r->depth--;
    return inner;
}

/* A terminal in a rule, with what is ignored behind it. */
static gram_part *lexeme(lark *k, gram_part *t)
{
    if (k->in_terminal || t == NULL) {
        return t;
    }
    gram_part *cat = gram_part_new(k->r.cfg, PART_CAT, 0);
    gram_part_add(cat, t);
    gram_part_add(cat, gram_part_new(k->r.cfg, PART_RULE, k->ignore));
    return cat;
}

static gram_part *atom(lark *k)
{
    gram_reader *r = &k->r;
    const size_t begin = r->at;
    switch (gram_read_peek(r)) {
    case '(':
        r->at++;
        return group(k, ")");
    case '[':
        r->at++;
        return gram_read_repeated(r, group(k, "]"), 0, 1, begin);
    case '"':
        return lexeme(k, string(k));
    case '/':
        return lexeme(k, regexp(k));
    case '<':
        return lexeme(k, gram_read_token(r));
    case '~': {
        r->at++;
        skip_inside(r);
        gram_part *not = NULL;
        if (gram_read_enter(r)) {
            not = gram_part_new(r->cfg, PART_NOT, 0);
            gram_part_add(not, atom(k));
        }
        r->depth--;
        return not;
    }
    case '%':
        if (gram_read_take(r, "%json")) {
            return lexeme(k, schema(k));
        }
        gram_read_unsupported(r, begin, "this directive");
        return NULL;
    default:
        break;
    }
    r->at = word_end(r);
    if (r->at == begin) {
        gram_read_fault(r, begin, "neither a string, an expression, a group nor a name");
        return NULL;
    }
    if (gram_read_peek(r) == '{') {
        gram_read_unsupported(r, begin, "a template");
    }
    gram_part *rule = gram_part_new(r->cfg, PART_RULE, gram_read_rule(r, begin, r->at));
    return is_terminal(r, begin, r->at) ? lexeme(k, rule) : rule;
}

/* --- Alternatives ------------------------------------------------------------------------------------------------- */

static gram_part *repeated(lark *k, gram_part *kid)
{
    gram_reader *r = &k->r;
    const size_t at = r->at;
    if (gram_read_take(r, "?")) {
        return gram_read_repeated(r, kid, 0, 1, at);
    }
    if (gram_read_take(r, "*")) {
        return gram_read_repeated(r, kid, 0, GRAM_INF, at);
    }
    if (gram_read_take(r, "+")) {
        return gram_read_repeated(r, kid, 1, GRAM_INF, at);
    }
    gram_reader ahead = *r;
    skip(&ahead, false);
    if (!gram_read_take(&ahead, "~")) {
        return kid;
    }
    skip(&ahead, false);
    if (gram_read_peek(&ahead) < '0' || gram_read_peek(&ahead) > '9') {
        return kid; /* a complement follows */
    }
    const uint32_t min = gram_read_number(&ahead);
    const uint32_t max = gram_read_take(&ahead, "..") ? gram_read_number(&ahead) : min;
    r->at = ahead.at;
    return gram_read_repeated(r, kid, min, max, at);
}

static gram_part *sequence(lark *k)
{
    gram_reader *r = &k->r;
    gram_part *cat = gram_part_new(r->cfg, PART_CAT, 0);
    for (skip_inside(r); !gram_failed(r->mem); skip_inside(r)) {
        const int c = gram_read_peek(r);
        if (c < 0 || c == '\n' || c == '|' || c == ')' || c == ']' || c == '&' || gram_read_at(r, "->")) {
            break;
        }
        gram_part_add(cat, repeated(k, atom(k)));
    }
    if (gram_read_take(r, "->")) {
        skip(r, false);
        r->at = word_end(r);
        skip_inside(r);
    }
    return cat;
}

static gram_part *alternatives(lark *k)
{
    gram_reader *r = &k->r;
    gram_part *alt = gram_part_new(r->cfg, PART_ALT, 0);
    do {
        gram_part *one = sequence(k);
        if (gram_read_at(r, "&")) {
            gram_part *and = gram_part_new(r->cfg, PART_AND, 0);
            gram_part_add(and, one);
            while (!gram_failed(r->mem) && gram_read_take(r, "&")) {
                gram_part_add(and, sequence(k));
            }
            one = and;
        }
        gram_part_add(alt, one);
    } while (!gram_failed(r->mem) && gram_read_take(r, "|"));
    return alt;
}

/* --- Statements --------------------------------------------------------------------------------------------------- */

static void define(lark *k, size_t from, size_t to, gram_part *body)
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
static void import_one(lark *k, size_t from, size_t to, size_t as, size_t as_end)
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

static void import(lark *k)
{
    gram_reader *r = &k->r;
    skip(r, false);
    const size_t begin = r->at;
    if (!gram_read_take(r, "common")) {
        gram_read_unsupported(r, begin, "a library other than common");
        return;
    }
    if (gram_read_take(r, ".")) {
        const size_t from = r->at;
        const size_t to = r->at = word_end(r);
        skip(r, false);
        const bool renamed = gram_read_take(r, "->");
        skip(r, false);
        const size_t as = renamed ? r->at : from;
        r->at = renamed ? word_end(r) : r->at;
        import_one(k, from, to, as, renamed ? r->at : to);
        return;
    }
    skip(r, false);
    bool more = gram_read_take(r, "(");
    while (more && !gram_failed(r->mem)) {
        skip(r, true);
        const size_t from = r->at;
        r->at = word_end(r);
        import_one(k, from, r->at, from, r->at);
        skip(r, true);
        more = gram_read_take(r, ",");
    }
    if (!gram_read_take(r, ")")) {
        gram_read_fault(r, begin, "an import is written: %import common.NAME or %import common (A, B)");
    }
}

static void directive(lark *k)
{
    gram_reader *r = &k->r;
    const size_t begin = r->at;
    if (gram_read_take(r, "%import")) {
        import(k);
    } else if (gram_read_take(r, "%ignore")) {
        k->in_terminal = true;
        gram_part_add(k->ignored, alternatives(k));
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
static gram_part *shortest(lark *k, gram_part *body)
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

static void statement(lark *k)
{
    gram_reader *r = &k->r;
    const size_t begin = r->at;
    while (gram_read_take(r, "?") || gram_read_take(r, "!")) {
    }
    const size_t from = r->at;
    const size_t to = r->at = word_end(r);
    const bool is_lazy = lazy(r);
    skip(r, false);
    if (gram_read_peek(r) == '.' || gram_read_peek(r) == '{') {
        gram_read_unsupported(r, r->at, gram_read_peek(r) == '.' ? "a priority" : "a template");
    } else if (from == to || !gram_read_take(r, ":")) {
        gram_read_fault(r, begin, "a rule is written: name: ...");
    }
    k->in_terminal = is_terminal(r, from, to) || is_lazy;
    gram_part *body = gram_failed(r->mem) ? NULL : alternatives(k);
    k->in_terminal = false;
    if (!gram_failed(r->mem)) {
        define(k, from, to, is_lazy ? shortest(k, body) : body);
    }
}

uint32_t gram_lark(gram_source *s, const char *text, size_t n)
{
    lark k = {.r = gram_read_begin(s, text, n)};
    gram_cfg *g = s->cfg;
    k.ignored = gram_part_new(g, PART_ALT, 0);
    k.ignore = gram_cfg_new_rule(g, gram_part_rep(g, k.ignored, 0, GRAM_INF));
    for (skip(&k.r, true); !gram_failed(g->mem) && k.r.at < n; skip(&k.r, true)) {
        if (gram_read_at(&k.r, "%")) {
            directive(&k);
        } else {
            statement(&k);
        }
        skip(&k.r, false);
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
