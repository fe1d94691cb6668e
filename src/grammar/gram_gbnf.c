/* gram_gbnf.c - reads GBNF: name ::= "text" [class] . (group) other-rule <token>, with | * + ? {m,n} and #
 * comments. A rule goes on over line ends up to the next name that has "::=" behind it. */
#include "grammar/gram_ebnf.h"

static bool is_name(int c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c == '-' || c == '.';
}

static void skip(gram_reader *r)
{
    for (int c; (c = gram_read_peek(r)) == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '#'; r->at++) {
        while (c == '#' && r->at + 1 < r->n && r->text[r->at + 1] != '\n') {
            r->at++;
        }
    }
}

/* The end of the name at r->at. "." is any character where no name can go on, so a name does not begin with it. */
static size_t name_end(const gram_reader *r)
{
    size_t end = r->at;
    while (end < r->n && is_name((uint8_t)r->text[end]) && (end > r->at || r->text[end] != '.')) {
        end++;
    }
    return end;
}

/* A name here begins the next rule. */
static bool at_rule(const gram_reader *r)
{
    gram_reader ahead = *r;
    ahead.at = name_end(r);
    if (ahead.at == r->at) {
        return false;
    }
    skip(&ahead);
    return gram_read_at(&ahead, "::=");
}

static gram_part *alternatives(gram_reader *r);

static gram_part *group(gram_reader *r)
{
    const size_t begin = r->at - 1;
    gram_part *inner = NULL;
    if (gram_read_enter(r)) {
        inner = alternatives(r);
        if (!gram_failed(r->mem) && !gram_read_take(r, ")")) {
            gram_read_fault(r, begin, "a group without its closing parenthesis");
        }
    }
    r->depth--;
    return inner;
}

static gram_part *any_char(gram_reader *r) { return gram_part_new(r->cfg, PART_TEXT, GRAM_EX_CHAR); }

static gram_part *element(gram_reader *r)
{
    const int c = gram_read_peek(r);
    if (c == '"' || c == '[' || c == '(' || c == '.') {
        r->at++;
        return c == '"' ? gram_read_string(r) : c == '[' ? gram_read_class(r) : c == '(' ? group(r) : any_char(r);
    }
    if (c == '<') {
        return gram_read_token(r);
    }
    if (c == '!') {
        gram_read_unsupported(r, r->at, "a token that is not one");
        return NULL;
    }
    const size_t begin = r->at;
    r->at = name_end(r);
    if (r->at == begin) {
        gram_read_fault(r, begin, "neither a string, a class, a group nor the name of a rule");
        return NULL;
    }
    return gram_part_new(r->cfg, PART_RULE, gram_read_rule(r, begin, r->at));
}

/* What stands behind an element: * + ? {m} {m,} {m,n} {,n}, any number of them. */
static gram_part *repeated(gram_reader *r, gram_part *kid)
{
    for (uint32_t levels = 0; !gram_failed(r->mem); levels++) {
        const size_t at = r->at;
        uint32_t min = 0;
        uint32_t max = GRAM_INF;
        if (gram_read_take(r, "?")) {
            max = 1;
        } else if (gram_read_take(r, "+")) {
            min = 1;
        } else if (gram_read_take(r, "{")) {
            min = gram_read_at(r, ",") ? 0 : gram_read_number(r);
            max = min;
            if (gram_read_take(r, ",")) {
                max = gram_read_at(r, "}") ? GRAM_INF : gram_read_number(r);
            }
            if (!gram_failed(r->mem) && !gram_read_take(r, "}")) {
                gram_read_fault(r, at, "a repetition without its closing brace");
            }
        } else if (!gram_read_take(r, "*")) {
            return kid;
        }
        if (levels >= GRAM_MAX_NESTING) {
            gram_read_fault(r, at, "too many repetitions of repetitions");
        }
        kid = gram_read_repeated(r, kid, min, max, at);
    }
    return kid;
}

static gram_part *sequence(gram_reader *r)
{
    gram_part *cat = gram_part_new(r->cfg, PART_CAT, 0);
    for (skip(r); !gram_failed(r->mem); skip(r)) {
        const int c = gram_read_peek(r);
        if (c < 0 || c == '|' || c == ')' || at_rule(r)) {
            break;
        }
        gram_part_add(cat, repeated(r, element(r)));
    }
    return cat;
}

static gram_part *alternatives(gram_reader *r)
{
    gram_part *alt = gram_part_new(r->cfg, PART_ALT, 0);
    do {
        gram_part_add(alt, sequence(r));
    } while (!gram_failed(r->mem) && gram_read_take(r, "|"));
    return alt;
}

uint32_t gram_gbnf(gram_source *s, const char *text, size_t n)
{
    gram_reader r = gram_read_begin(s, text, n);
    for (skip(&r); !gram_failed(r.mem) && r.at < n; skip(&r)) {
        const size_t begin = r.at;
        if (!at_rule(&r)) {
            gram_read_fault(&r, begin, "a rule is written: name ::= ...");
            break;
        }
        r.at = name_end(&r);
        const uint32_t rule = gram_read_rule(&r, begin, r.at);
        skip(&r);
        (void)gram_read_take(&r, "::=");
        gram_part *body = alternatives(&r);
        if (gram_failed(r.mem)) {
            break;
        }
        if (r.cfg->rules[rule].body != NULL) {
            gram_read_fault(&r, begin, "a rule that is defined twice");
        }
        r.cfg->rules[rule].body = body;
    }
    const char *root = s->options->root != NULL ? s->options->root : "root";
    gram_reader name = {.source = s, .cfg = s->cfg, .mem = s->cfg->mem, .text = root, .n = strlen(root), .scope = r.scope};
    return gram_read_rule(&name, 0, name.n);
}
