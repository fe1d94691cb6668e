/* gram_regex.c - reads a regular expression into a tree. Groups nest at most GRAM_MAX_GROUPS deep, so the recursion is bounded. */
#include "grammar/gram_regex_int.h"

#include "core/utf8.h"

#define END_OF_TEXT UINT32_MAX

typedef struct parser {
    gram_lang *l;
    const uint8_t *text;
    size_t n;
    size_t at;
    unsigned depth;
    bool fold;
    bool dot_all;
    bool lines;  /* (?m) */
    bool spaced; /* (?x) */
    rx_node none; /* stands for a node when there is no memory */
} parser;

static void fault(parser *p, size_t offset, const char *what)
{
    gram_fault(p->l->mem, DI_E_FORMAT, "invalid_regex", (int64_t)offset,
               "regular expression, byte %zu: %s", offset, what);
}

static void unsupported(parser *p, size_t offset, const char *what)
{
    gram_fault(p->l->mem, DI_E_UNSUPPORTED, "unsupported_regex", (int64_t)offset,
               "regular expression, byte %zu: %s is not supported", offset, what);
}

static bool failed(const parser *p) { return gram_failed(p->l->mem); }

/* The character at p->at and its length; END_OF_TEXT behind the end. */
static uint32_t peek(const parser *p, size_t *length)
{
    uint32_t c = END_OF_TEXT;
    *length = 0;
    if (p->at < p->n) {
        const int k = utf8_decode(p->text + p->at, p->n - p->at, &c);
        *length = k > 0 ? (size_t)k : 1;
        c = k > 0 ? c : 0xFFFD;
    }
    return c;
}

static uint32_t next(parser *p)
{
    size_t length;
    const uint32_t c = peek(p, &length);
    p->at += length;
    return c;
}

static bool at_text(const parser *p, const char *text)
{
    const size_t n = strlen(text);
    return p->n - p->at >= n && memcmp(p->text + p->at, text, n) == 0;
}

static bool take(parser *p, const char *text)
{
    const bool here = at_text(p, text);
    p->at += here ? strlen(text) : 0;
    return here;
}

static rx_node *new_node(parser *p, rx_kind kind)
{
    rx_node *node = gram_alloc(p->l->mem, 1, sizeof *node);
    if (node == NULL) {
        return &p->none;
    }
    (void)gram_spend(p->l->mem, 1);
    const bool is_anchor = kind == RX_START || kind == RX_END;
    *node = (rx_node){.kind = kind, .plain = kind <= RX_REP, .anchors = kind <= RX_REP || is_anchor};
    return node;
}

static void add_kid(parser *p, rx_node *parent, rx_node *kid)
{
    if (failed(p)) {
        return;
    }
    if (parent->last != NULL) {
        parent->last->next = kid;
    } else {
        parent->first = kid;
    }
    parent->last = kid;
    parent->plain = parent->plain && kid->plain;
    parent->anchors = parent->anchors && kid->anchors;
}

static rx_node *set_node(parser *p, gram_set set)
{
    rx_node *node = new_node(p, RX_SET);
    if (!failed(p)) {
        node->set = p->fold ? gram_set_fold(p->l, set) : set;
    }
    return node;
}

/* --- Classes ------------------------------------------------------------------------------------------------------ */

static gram_set ranges(parser *p, const uint32_t *pairs, uint32_t n) { return gram_set_of(p->l, pairs, n); }

gram_set gram_rx_words(gram_lang *l)
{
    return gram_set_of(l, (const uint32_t[]){'a', 'z', 'A', 'Z', '0', '9', '_', '_'}, 4);
}

gram_set gram_rx_lines(gram_lang *l)
{
    return gram_set_of(l, (const uint32_t[]){'\n', '\n', '\r', '\r', 0x2028, 0x2029}, 3);
}

static gram_set spaces(parser *p)
{
    static const uint32_t pairs[] = {0x09, 0x0D, 0x20, 0x20, 0xA0, 0xA0, 0x1680, 0x1680, 0x2000, 0x200A,
                                     0x2028, 0x2029, 0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000, 0xFEFF, 0xFEFF};
    return ranges(p, pairs, sizeof pairs / sizeof *pairs / 2);
}

/* \d \D \w \W \s \S; false for any other letter. */
static bool class_letter(parser *p, uint32_t c, gram_set *out)
{
    switch (c) {
    case 'd':
    case 'D':
        *out = ranges(p, (const uint32_t[]){'0', '9'}, 1);
        break;
    case 'w':
    case 'W':
        *out = gram_rx_words(p->l);
        break;
    case 's':
    case 'S':
        *out = spaces(p);
        break;
    default:
        return false;
    }
    if (c < 'a') {
        *out = gram_set_not(p->l, *out);
    }
    return true;
}

static uint32_t hex(parser *p, unsigned digits)
{
    const size_t begin = p->at;
    uint32_t value = 0;
    for (unsigned i = 0; i < digits; i++) {
        const uint32_t c = next(p);
        const bool digit = c >= '0' && c <= '9';
        const uint32_t low = c | 0x20;
        if (!digit && !(low >= 'a' && low <= 'f')) {
            fault(p, begin, "a hexadecimal number was expected");
            return 0;
        }
        value = value << 4 | (digit ? c - '0' : low - 'a' + 10);
    }
    return value;
}

/* Behind "\u". */
static uint32_t unicode_escape(parser *p)
{
    const size_t begin = p->at;
    if (!take(p, "{")) {
        const uint32_t c = hex(p, 4);
        if (c < 0xD800 || c > 0xDBFF || !take(p, "\\u")) {
            return c;
        }
        const size_t second = p->at;
        const uint32_t low = hex(p, 4);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            return 0x10000 + ((c - 0xD800) << 10 | (low - 0xDC00));
        }
        p->at = second - 2;
        return c;
    }
    uint32_t value = 0;
    unsigned digits = 0;
    while (!at_text(p, "}") && !failed(p)) {
        value = value << 4 | hex(p, 1);
        if (++digits > 6 || value > GRAM_LAST_CHAR) {
            fault(p, begin, "a character number in braces was expected");
        }
    }
    if (!take(p, "}") || digits == 0) {
        fault(p, begin, "a character number in braces was expected");
    }
    return value;
}

/* Behind "\p" or "\P". */
static gram_set property(parser *p, bool negated)
{
    const size_t begin = p->at;
    gram_set set = GRAM_SET_EMPTY;
    size_t from = p->at;
    size_t to = p->at;
    if (take(p, "{")) {
        from = p->at;
        while (p->at < p->n && p->text[p->at] != '}') {
            p->at++;
        }
        to = p->at;
        if (!take(p, "}")) {
            fault(p, begin, "the name of a property was expected in braces");
        }
        for (size_t i = from; i < to; i++) { /* General_Category=Letter */
            from = p->text[i] == '=' ? i + 1 : from;
        }
    } else if (p->at < p->n) { /* \pL */
        p->at++;
        to = p->at;
    }
    if (!failed(p) && !gram_set_category(p->l, (const char *)p->text + from, to - from, &set)) {
        unsupported(p, begin, "a property other than a general category");
    }
    return negated ? gram_set_not(p->l, set) : set;
}

/* What a backslash (already taken) stands for, where it is one character or a class. */
static gram_set escape(parser *p, bool in_class)
{
    const size_t begin = p->at - 1;
    const uint32_t c = next(p);
    gram_set set = GRAM_SET_EMPTY;
    if (class_letter(p, c, &set)) {
        return set;
    }
    static const char letters[] = "tnrfv";
    static const char controls[] = "\t\n\r\f\v";
    const char *found = c < 0x80 && c != 0 ? strchr(letters, (int)c) : NULL;
    uint32_t value = c;
    if (found != NULL) {
        value = (uint32_t)controls[found - letters];
    } else if (c == 'p' || c == 'P') {
        return property(p, c == 'P');
    } else if (c == 'x') {
        value = hex(p, 2);
    } else if (c == 'u') {
        value = unicode_escape(p);
    } else if (c == 'c') {
        const uint32_t letter = next(p);
        value = letter & 31;
        if (letter >= 0x80 || !((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z')) {
            fault(p, begin, "a letter was expected behind \\c");
        }
    } else if (c == 'b' && in_class) {
        value = '\b';
    } else if (c == '0' && !(p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9')) {
        value = 0;
    } else if (c >= '0' && c <= '9') {
        unsupported(p, begin, "a back-reference");
    } else if (c == 'k') {
        unsupported(p, begin, "a back-reference");
    } else if (c == END_OF_TEXT) {
        fault(p, begin, "a lone backslash at the end");
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 0x80) {
        fault(p, begin, "an escape of this letter has no meaning");
    }
    if (value >= 0xD800 && value <= 0xDFFF && !in_class) {
        unsupported(p, begin, "half of a surrogate pair");
    }
    return ranges(p, (const uint32_t[]){value, value}, 1);
}

/* One element of a class: a set, and whether it is a single character that may begin or end a range. */
static gram_set class_atom(parser *p, bool *single, uint32_t *c)
{
    const size_t begin = p->at;
    *c = next(p);
    *single = true;
    if (*c != '\\') {
        return ranges(p, (const uint32_t[]){*c, *c}, 1);
    }
    const uint8_t letter = p->at < p->n ? p->text[p->at] : 0;
    *single = letter == 0 || strchr("dDwWsSpP", letter) == NULL;
    const gram_set set = escape(p, true);
    if (*single) {
        uint32_t n;
        const uint32_t *pair = gram_set_ranges(p->l, set, &n);
        if (n == 1) {
            *c = pair[0];
        } else if (!failed(p)) { /* a surrogate, which belongs to no set: spelled again for ranges that begin or end with it */
            const size_t end = p->at;
            p->at = begin + 2;
            *c = unicode_escape(p);
            p->at = end;
        }
    }
    return set;
}

/* Behind "[". */
static rx_node *class_node(parser *p)
{
    const size_t begin = p->at - 1;
    const bool negated = take(p, "^");
    gram_set all = GRAM_SET_EMPTY;
    while (!failed(p) && !at_text(p, "]")) {
        if (p->at == p->n) {
            fault(p, begin, "a class without its closing bracket");
            break;
        }
        bool single;
        uint32_t first;
        gram_set set = class_atom(p, &single, &first);
        const size_t dash = p->at;
        if (!failed(p) && take(p, "-")) {
            if (at_text(p, "]") || p->at == p->n) {
                p->at = dash;
            } else {
                bool single_end;
                uint32_t last;
                const gram_set end = class_atom(p, &single_end, &last);
                if (!single || !single_end) { /* [\w-.]: then the dash is itself */
                    const uint32_t minus[] = {'-', '-'};
                    set = gram_set_or(p->l, gram_set_or(p->l, set, end), ranges(p, minus, 1));
                } else if (first > last) {
                    fault(p, dash, "a range that ends before it begins");
                } else {
                    set = ranges(p, (const uint32_t[]){first, last}, 1);
                }
            }
        }
        all = gram_set_or(p->l, all, set);
    }
    (void)take(p, "]");
    if (p->fold) {
        all = gram_set_fold(p->l, all);
    }
    rx_node *node = set_node(p, GRAM_SET_EMPTY);
    if (!failed(p)) {
        node->set = negated ? gram_set_not(p->l, all) : all;
    }
    return node;
}

/* --- Groups and quantifiers --------------------------------------------------------------------------------------- */

static rx_node *alternatives(parser *p);

/* Flags behind "(?", up to ':' or ')'. */
static void read_flags(parser *p)
{
    bool on = true;
    while (!failed(p) && !at_text(p, ":") && !at_text(p, ")")) {
        const size_t begin = p->at;
        switch (next(p)) {
        case 'i': p->fold = on; break;
        case 's': p->dot_all = on; break;
        case 'm': p->lines = on; break;
        case 'x': p->spaced = on; break;
        case 'u': break;
        case '-': on = false; break;
        default: fault(p, begin, "an unknown kind of group");
        }
    }
}

/* Behind "(?<" or "(?P<": the name of a group. */
static void skip_name(parser *p)
{
    const size_t begin = p->at;
    while (p->at < p->n && p->text[p->at] != '>') {
        p->at++;
    }
    if (!take(p, ">") || p->at == begin + 1) {
        fault(p, begin, "the name of a group was expected");
    }
}

/* Behind "(". NULL: it only set flags. */
static rx_node *group(parser *p)
{
    const size_t begin = p->at - 1;
    const parser outside = *p;
    rx_node *look = NULL;
    if (take(p, "?=") || take(p, "?!")) {
        look = new_node(p, RX_AHEAD);
        if (!failed(p)) {
            look->negated = p->text[p->at - 1] == '!';
        }
    } else if (take(p, "?<=") || take(p, "?<!")) {
        unsupported(p, begin, "look-behind");
    } else if (take(p, "?>")) {
        unsupported(p, begin, "an atomic group");
    } else if (take(p, "?#")) {
        while (p->at < p->n && p->text[p->at] != ')') {
            p->at++;
        }
        (void)take(p, ")");
        return NULL;
    } else if (take(p, "?P<") || take(p, "?<")) {
        skip_name(p);
    } else if (take(p, "?P")) {
        unsupported(p, begin, "a back-reference");
    } else if (take(p, "?")) {
        read_flags(p);
        if (take(p, ")")) {
            return NULL; /* they hold to the end of the group around */
        }
        (void)take(p, ":");
    }
    if (++p->depth > GRAM_MAX_GROUPS) {
        gram_fault(p->l->mem, DI_E_LIMIT, "limit_exceeded", (int64_t)begin, "regular expression: groups nested more than %d deep",
                   GRAM_MAX_GROUPS);
    }
    rx_node *inner = failed(p) ? new_node(p, RX_EMPTY) : alternatives(p);
    if (!failed(p) && !take(p, ")")) {
        fault(p, begin, "a group without its closing parenthesis");
    }
    *p = (parser){.l = p->l, .text = p->text, .n = p->n, .at = p->at, .depth = outside.depth, .fold = outside.fold,
                  .dot_all = outside.dot_all, .lines = outside.lines, .spaced = outside.spaced};
    if (look != NULL) {
        add_kid(p, look, inner);
        return look;
    }
    return inner;
}

static uint32_t number(parser *p)
{
    const size_t begin = p->at;
    uint64_t value = 0;
    while (p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9') {
        value = value <= GRAM_MAX_REPEAT ? value * 10 + (uint64_t)(p->text[p->at] - '0') : value;
        p->at++;
    }
    if (value > GRAM_MAX_REPEAT) {
        gram_fault(p->l->mem, DI_E_LIMIT, "limit_exceeded", (int64_t)begin,
                   "regular expression: more than %d repetitions", GRAM_MAX_REPEAT);
    }
    return (uint32_t)value;
}

static bool digit_at(const parser *p, size_t at) { return at < p->n && p->text[at] >= '0' && p->text[at] <= '9'; }

/* {m}, {m,} or {m,n}; false and nothing taken when the brace is only a brace. */
static bool braces(parser *p, uint32_t *min, uint32_t *max)
{
    const size_t begin = p->at;
    if (!at_text(p, "{") || !digit_at(p, p->at + 1)) {
        return false;
    }
    p->at++;
    *min = number(p);
    *max = *min;
    if (take(p, ",")) {
        *max = digit_at(p, p->at) ? number(p) : GRAM_INF;
    }
    if (!take(p, "}")) {
        p->at = begin;
        return false;
    }
    if (*min > *max) {
        fault(p, begin, "a repetition whose bounds are the wrong way round");
    }
    return true;
}

static rx_node *quantified(parser *p, rx_node *atom)
{
    for (;;) {
        const size_t begin = p->at;
        uint32_t min = 0;
        uint32_t max = GRAM_INF;
        if (take(p, "+")) {
            min = 1;
        } else if (take(p, "?")) {
            max = 1;
        } else if (!take(p, "*") && !braces(p, &min, &max)) {
            return atom;
        }
        if (failed(p)) {
            return atom;
        }
        if (atom->kind >= RX_START) {
            fault(p, begin, "there is nothing to repeat");
        }
        if (!take(p, "?") && at_text(p, "+")) { /* lazy ones match the same texts */
            unsupported(p, begin, "a possessive repetition");
        }
        rx_node *rep = new_node(p, RX_REP);
        if (!failed(p)) {
            rep->min = min;
            rep->max = max;
        }
        add_kid(p, rep, atom);
        if (at_text(p, "*") || at_text(p, "?")) {
            fault(p, p->at, "there is nothing to repeat");
        }
        atom = rep;
    }
}

static rx_node *boundary(parser *p, bool negated)
{
    rx_node *node = new_node(p, RX_BOUNDARY);
    if (!failed(p)) {
        node->negated = negated;
    }
    return node;
}

/* NULL: nothing that matches (a comment, flags). */
static rx_node *atom(parser *p)
{
    const size_t begin = p->at;
    if (take(p, "(")) {
        return group(p);
    }
    if (take(p, "[")) {
        return class_node(p);
    }
    if (take(p, "^") || take(p, "\\A")) {
        return new_node(p, p->lines && p->text[begin] == '^' ? RX_LINE_START : RX_START);
    }
    if (take(p, "$") || take(p, "\\z")) {
        return new_node(p, p->lines && p->text[begin] == '$' ? RX_LINE_END : RX_END);
    }
    if (take(p, "\\b") || take(p, "\\B")) {
        return boundary(p, p->text[begin + 1] == 'B');
    }
    if (take(p, "\\")) {
        return set_node(p, escape(p, false));
    }
    if (take(p, ".")) {
        return set_node(p, p->dot_all ? GRAM_SET_ALL : gram_set_not(p->l, gram_rx_lines(p->l)));
    }
    uint32_t min;
    uint32_t max;
    if (at_text(p, "*") || at_text(p, "+") || at_text(p, "?") || braces(p, &min, &max)) {
        fault(p, begin, "there is nothing to repeat");
        return NULL;
    }
    const uint32_t c = next(p);
    return set_node(p, ranges(p, (const uint32_t[]){c, c}, 1));
}

/* Under (?x): blanks and comments between atoms. */
static void skip_spaces(parser *p)
{
    while (p->spaced && p->at < p->n) {
        if (p->text[p->at] == '#') {
            while (p->at < p->n && p->text[p->at] != '\n') {
                p->at++;
            }
        } else if (strchr(" \t\n\r\f\v", p->text[p->at]) != NULL) {
            p->at++;
        } else {
            return;
        }
    }
}

static rx_node *sequence(parser *p)
{
    rx_node *cat = new_node(p, RX_CAT);
    for (skip_spaces(p); !failed(p) && p->at < p->n && !at_text(p, "|") && !at_text(p, ")"); skip_spaces(p)) {
        rx_node *one = atom(p);
        if (one != NULL && !failed(p)) {
            skip_spaces(p);
            add_kid(p, cat, quantified(p, one));
        }
    }
    return !failed(p) && cat->first != NULL && cat->first->next == NULL ? cat->first : cat;
}

static rx_node *alternatives(parser *p)
{
    rx_node *first = sequence(p);
    if (failed(p) || !at_text(p, "|")) {
        return first;
    }
    rx_node *alt = new_node(p, RX_ALT);
    add_kid(p, alt, first);
    while (!failed(p) && take(p, "|")) {
        add_kid(p, alt, sequence(p));
    }
    return alt;
}

gram_ex gram_regex(gram_lang *l, const char *text, size_t n, unsigned flags)
{
    parser p = {.l = l, .text = (const uint8_t *)text, .n = n, .fold = (flags & GRAM_REGEX_FOLD) != 0,
                .dot_all = (flags & GRAM_REGEX_DOT_ALL) != 0};
    if (n > GRAM_MAX_REGEX) {
        gram_fault(l->mem, DI_E_LIMIT, "limit_exceeded", -1, "regular expression of %zu bytes, at most %u", n, GRAM_MAX_REGEX);
    }
    const size_t valid = utf8_valid_prefix(p.text, n);
    if (valid < n) {
        fault(&p, valid, "not valid UTF-8");
    }
    const rx_node *root = failed(&p) ? NULL : alternatives(&p);
    if (!failed(&p) && p.at < n) {
        fault(&p, p.at, "a closing parenthesis without its group");
    }
    return failed(&p) ? GRAM_EX_NONE : gram_rx_compile(l, root, flags);
}
