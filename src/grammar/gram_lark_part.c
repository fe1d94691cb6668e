/* gram_lark_part.c - the Lark dialect: names, atoms, alternatives. See gram_lark.c. */
#include "grammar/gram_lark.h"
#include "grammar/gram_regex.h"

/* --- Text --------------------------------------------------------------------------------------------------------- */

bool gram_lark_is_word(int c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
}

/* Blanks and comments; with `lines` line ends too. */
void gram_lark_skip(gram_reader *r, bool lines)
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

size_t gram_lark_word_end(const gram_reader *r)
{
    size_t end = r->at;
    while (end < r->n && gram_lark_is_word((uint8_t)r->text[end])) {
        end++;
    }
    return end;
}

/* A line end inside of an alternative: it goes on when the next line begins with "|", or in a group. */
static void skip_inside(gram_reader *r)
{
    gram_lark_skip(r, r->depth > 0);
    gram_reader ahead = *r;
    gram_lark_skip(&ahead, true);
    if (gram_read_at(&ahead, "|")) {
        r->at = ahead.at;
    }
}

bool gram_lark_is_terminal(const gram_reader *r, size_t from, size_t to)
{
    while (from < to && (r->text[from] < 'A' || r->text[from] == '_')) {
        from++;
    }
    return from < to && r->text[from] <= 'Z';
}

/* --- Atoms -------------------------------------------------------------------------------------------------------- */

static gram_part *string(gram_larker *k)
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
    gram_lark_skip(&ahead, false);
    if (!gram_failed(r->mem) && gram_read_take(&ahead, "..")) {
        gram_lark_skip(&ahead, false);
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

static gram_part *regexp(gram_larker *k)
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
    for (int c; gram_lark_is_word(c = gram_read_peek(r)); r->at++) {
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
static gram_part *schema(gram_larker *k)
{
    gram_reader *r = &k->r;
    gram_lark_skip(r, true);
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

static gram_part *group(gram_larker *k, const char *close)
{
    gram_reader *r = &k->r;
    const size_t begin = r->at - 1;
    gram_part *inner = NULL;
    if (gram_read_enter(r)) {
        inner = gram_lark_alternatives(k);
        if (!gram_failed(r->mem) && !gram_read_take(r, close)) {
            gram_read_fault(r, begin, "a group without its end");
        }
    }
    r->depth--;
    return inner;
}

/* A terminal in a rule, with what is ignored behind it. */
static gram_part *lexeme(gram_larker *k, gram_part *t)
{
    if (k->in_terminal || t == NULL) {
        return t;
    }
    gram_part *cat = gram_part_new(k->r.cfg, PART_CAT, 0);
    gram_part_add(cat, t);
    gram_part_add(cat, gram_part_new(k->r.cfg, PART_RULE, k->ignore));
    return cat;
}

static gram_part *atom(gram_larker *k)
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
    r->at = gram_lark_word_end(r);
    if (r->at == begin) {
        gram_read_fault(r, begin, "neither a string, an expression, a group nor a name");
        return NULL;
    }
    if (gram_read_peek(r) == '{') {
        gram_read_unsupported(r, begin, "a template");
    }
    gram_part *rule = gram_part_new(r->cfg, PART_RULE, gram_read_rule(r, begin, r->at));
    return gram_lark_is_terminal(r, begin, r->at) ? lexeme(k, rule) : rule;
}

/* --- Alternatives ------------------------------------------------------------------------------------------------- */

static gram_part *repeated(gram_larker *k, gram_part *kid)
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
    gram_lark_skip(&ahead, false);
    if (!gram_read_take(&ahead, "~")) {
        return kid;
    }
    gram_lark_skip(&ahead, false);
    if (gram_read_peek(&ahead) < '0' || gram_read_peek(&ahead) > '9') {
        return kid; /* a complement follows */
    }
    const uint32_t min = gram_read_number(&ahead);
    const uint32_t max = gram_read_take(&ahead, "..") ? gram_read_number(&ahead) : min;
    r->at = ahead.at;
    return gram_read_repeated(r, kid, min, max, at);
}

static gram_part *sequence(gram_larker *k)
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
        gram_lark_skip(r, false);
        r->at = gram_lark_word_end(r);
        skip_inside(r);
    }
    return cat;
}

gram_part *gram_lark_alternatives(gram_larker *k)
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
