/* gram_ebnf.c - what the readers of grammars share: characters, strings, classes, tokens, and faults with line and
 * column. */
#include "grammar/gram_ebnf.h"
#include "grammar/gram_regex.h"

#include "core/utf8.h"

#include <stdio.h>

gram_reader gram_read_begin(gram_source *s, const char *text, size_t n)
{
    gram_reader r = {.source = s, .cfg = s->cfg, .mem = s->cfg->mem, .text = text, .n = n, .scope = s->cfg->n_scopes++};
    const size_t valid = utf8_valid_prefix((const uint8_t *)text, n);
    if (valid < n) {
        gram_read_fault(&r, valid, "not valid UTF-8");
    }
    return r;
}

static void fault_at(gram_reader *r, size_t at, di_status status, const char *what, const char *behind)
{
    size_t line = 1;
    size_t begin = 0;
    for (size_t i = 0; i < at && i < r->n; i++) {
        if (r->text[i] == '\n') {
            line++;
            begin = i + 1;
        }
    }
    gram_fault(r->mem, status, "invalid_grammar", (int64_t)at, "grammar, line %zu, column %zu: %s%s", line, at - begin + 1, what, behind);
}

void gram_read_fault(gram_reader *r, size_t at, const char *what) { fault_at(r, at, DI_E_FORMAT, what, ""); }
void gram_read_unsupported(gram_reader *r, size_t at, const char *what) { fault_at(r, at, DI_E_UNSUPPORTED, what, " is not supported"); }

bool gram_read_at(const gram_reader *r, const char *text)
{
    const size_t n = strlen(text);
    return r->at <= r->n && r->n - r->at >= n && memcmp(r->text + r->at, text, n) == 0; /* a fault can leave it behind the end */
}

bool gram_read_take(gram_reader *r, const char *text)
{
    const bool there = gram_read_at(r, text);
    r->at += there ? strlen(text) : 0;
    return there;
}

bool gram_read_enter(gram_reader *r)
{
    if (++r->depth > GRAM_MAX_NESTING) {
        gram_fault(r->mem, DI_E_LIMIT, "limit_exceeded", (int64_t)r->at, "the grammar is nested more than %u levels deep",
                   GRAM_MAX_NESTING);
    }
    return !gram_failed(r->mem);
}

static uint32_t hex(gram_reader *r, int digits)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        const int c = gram_read_peek(r);
        const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
        if (digit < 0) {
            gram_read_fault(r, r->at, "an escape with too few hexadecimal digits");
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
        r->at++;
    }
    return value;
}

uint32_t gram_read_char(gram_reader *r)
{
    static const char letters[] = "nrtbfv0";
    static const char controls[] = "\n\r\t\b\f\v";
    const size_t begin = r->at;
    if (!gram_read_take(r, "\\")) {
        uint32_t c = 0;
        const int k = utf8_decode((const uint8_t *)r->text + r->at, r->n - r->at, &c);
        r->at += k > 0 ? (size_t)k : 1;
        return c;
    }
    const int c = gram_read_peek(r);
    r->at++;
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (found != NULL) {
        return (uint8_t)controls[found - letters];
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        const uint32_t value = hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8);
        if (value > GRAM_LAST_CHAR || (value >= 0xD800 && value <= 0xDFFF)) {
            gram_read_fault(r, begin, "an escape that is no character");
        }
        return value;
    }
    if (c < 0x20 || c > 0x7E || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
        gram_read_fault(r, begin, "an unknown escape");
    }
    return (uint32_t)c;
}

uint32_t gram_read_number(gram_reader *r)
{
    uint32_t value = 0;
    const size_t begin = r->at;
    for (int c; (c = gram_read_peek(r)) >= '0' && c <= '9'; r->at++) {
        value = value > GRAM_MAX_REPEAT ? value : value * 10 + (uint32_t)(c - '0');
    }
    if (r->at == begin) {
        gram_read_fault(r, begin, "a number is missing");
    } else if (value > GRAM_MAX_REPEAT) {
        gram_fault(r->mem, DI_E_LIMIT, "limit_exceeded", (int64_t)begin, "a repetition of more than %d", GRAM_MAX_REPEAT);
    }
    return value;
}

gram_part *gram_read_string(gram_reader *r)
{
    const size_t begin = r->at - 1;
    const char quote = r->text[begin];
    gram_lang *l = r->cfg->lang;
    const uint32_t base = l->work.n;
    while (!gram_failed(r->mem) && gram_read_peek(r) != quote) {
        if (gram_read_peek(r) < 0 || gram_read_peek(r) == '\n') {
            gram_read_fault(r, begin, "a string without its closing quote");
            break;
        }
        (void)gram_push(r->mem, &l->work, gram_read_char(r));
        (void)gram_spend(r->mem, 1);
    }
    r->at++;
    const gram_word word = {l->work.words + base, l->work.n - base};
    const gram_ex e = gram_failed(r->mem) ? GRAM_EX_NONE : word.n == 0 ? GRAM_EX_EPS : gram_ex_words(l, &word, 1);
    l->work.n = base;
    return gram_part_new(r->cfg, PART_TEXT, e);
}

gram_part *gram_read_class(gram_reader *r)
{
    const size_t begin = r->at - 1;
    gram_lang *l = r->cfg->lang;
    const uint32_t base = l->work.n;
    const bool negated = gram_read_take(r, "^");
    while (!gram_failed(r->mem) && !gram_read_at(r, "]")) {
        if (r->at >= r->n || gram_read_peek(r) == '\n') {
            gram_read_fault(r, begin, "a class without its closing bracket");
            break;
        }
        const size_t at = r->at;
        const uint32_t first = gram_read_char(r);
        uint32_t last = first;
        if (gram_read_at(r, "-") && r->at + 1 < r->n && r->text[r->at + 1] != ']') {
            r->at++;
            last = gram_read_char(r);
        }
        if (last < first) {
            gram_read_fault(r, at, "a range that ends before it begins");
        }
        (void)gram_push(r->mem, &l->work, first);
        (void)gram_push(r->mem, &l->work, last);
        (void)gram_spend(r->mem, 1);
    }
    r->at++;
    gram_set set = gram_failed(r->mem) ? GRAM_SET_EMPTY : gram_set_of(l, l->work.words + base, (l->work.n - base) / 2);
    l->work.n = base;
    if (negated && !gram_failed(r->mem)) {
        set = gram_set_not(l, set);
    }
    return gram_part_new(r->cfg, PART_TEXT, gram_failed(r->mem) ? GRAM_EX_NONE : gram_ex_set(l, set));
}

gram_part *gram_read_token(gram_reader *r)
{
    const size_t begin = r->at++;
    if (gram_read_take(r, "[")) {
        const uint32_t id = gram_read_number(r);
        if (!gram_failed(r->mem) && !gram_read_take(r, "]>")) {
            gram_read_fault(r, begin, "a token by its id is written <[id]>");
        }
        return gram_part_new(r->cfg, PART_TOKEN, gram_cfg_token(r->cfg, (gram_token_name){.id = (int32_t)id}));
    }
    while (r->at < r->n && r->text[r->at] != '>' && r->text[r->at] != '\n') {
        r->at++;
    }
    if (!gram_read_take(r, ">")) {
        gram_read_fault(r, begin, "a token without its closing >");
        return NULL;
    }
    const gram_token_name name = {.spelling = r->text + begin, .n = r->at - begin};
    return gram_part_new(r->cfg, PART_TOKEN, gram_cfg_token(r->cfg, name));
}

gram_part *gram_read_repeated(gram_reader *r, gram_part *kid, uint32_t min, uint32_t max, size_t at)
{
    if (max < min) {
        gram_read_fault(r, at, "a repetition whose bounds are the wrong way round");
    }
    return gram_failed(r->mem) ? NULL : gram_part_rep(r->cfg, kid, min, max);
}

uint32_t gram_read_rule(gram_reader *r, size_t from, size_t to)
{
    char prefix[16];
    const int n_prefix = snprintf(prefix, sizeof prefix, "%u:", r->scope);
    char *name = gram_alloc(r->mem, to - from + sizeof prefix, 1);
    if (name == NULL) {
        return 0;
    }
    memcpy(name, prefix, (size_t)n_prefix);
    memcpy(name + n_prefix, r->text + from, to - from);
    return gram_cfg_rule(r->cfg, name, (size_t)n_prefix + (to - from), (int64_t)from);
}

gram_part *gram_source_json(gram_source *s, const js_value *schema)
{
    gram_machine *m = s->cfg->m;
    const gram_form form = gram_schema(m->forms, schema, &s->schema, s->warnings);
    const uint32_t goal = gram_failed(m->mem) ? 0 : gram_goal_of(&m->json, form, NULL, 0);
    return gram_part_new(s->cfg, PART_JSON, goal);
}

uint32_t gram_ebnf(gram_source *s, const char *text, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i++) {
        if (memcmp(text + i, "::=", 3) == 0) {
            return gram_gbnf(s, text, n);
        }
    }
    return gram_lark(s, text, n);
}
