/* gram_regex_ex.c - compiles the syntax tree of a regular expression from right to left; gram_regex.h tells how. */
#include "grammar/gram_regex_int.h"

#define MAX_UNROLLED 32 /* repetitions of something with assertions inside */
#define MIN_WORDS 4     /* alternatives that are texts become a list of words from here on */

/* What is left of a place. */
enum { AT_START, AFTER_LINE, AFTER_WORD, AFTER_OTHER, PLACES };

typedef struct rest { /* the language of the text behind a place, for each kind of it */
    gram_ex at[PLACES];
} rest;

typedef struct compiler {
    gram_lang *l;
    gram_set after[PLACES]; /* characters that make this kind of place behind them */
    bool no_start;          /* ^ and $ can't hold here */
    bool no_end;
} compiler;

static gram_ex plain(compiler *c, const rx_node *node);

static rest everywhere(gram_ex e) { return (rest){{e, e, e, e}}; }

static rest both(compiler *c, rest a, rest b)
{
    rest all;
    for (int i = 0; i < PLACES; i++) {
        all.at[i] = gram_ex_or2(c->l, a.at[i], b.at[i]);
    }
    return all;
}

/* A chain of single characters, as characters pushed to the work stack. */
static bool push_text(compiler *c, const rx_node *node)
{
    if (node->kind == RX_CAT) {
        for (const rx_node *kid = node->first; kid != NULL; kid = kid->next) {
            if (kid->kind != RX_SET || !push_text(c, kid)) {
                return false;
            }
        }
        return true;
    }
    uint32_t n = 0;
    const uint32_t *pair = node->kind == RX_SET ? gram_set_ranges(c->l, node->set, &n) : NULL;
    return n == 1 && pair[0] == pair[1] && gram_push(c->l->mem, &c->l->work, pair[0]);
}

/* foo|bar|baz as one list of words. GRAM_EX_NONE when it is something else. */
static gram_ex words(compiler *c, const rx_node *alt)
{
    gram_lang *l = c->l;
    uint32_t n = 0;
    for (const rx_node *kid = alt->first; kid != NULL; kid = kid->next) {
        n++;
    }
    gram_word *list = n >= MIN_WORDS ? gram_alloc(l->mem, n, sizeof *list) : NULL;
    const uint32_t base = l->work.n;
    bool all = list != NULL;
    n = 0;
    for (const rx_node *kid = alt->first; all && kid != NULL; kid = kid->next) {
        const uint32_t begin = l->work.n;
        all = push_text(c, kid);
        const uint32_t length = l->work.n - begin;
        uint32_t *chars = all ? gram_alloc(l->mem, length, sizeof *chars) : NULL;
        all = chars != NULL;
        if (all && length != 0) {
            memcpy(chars, l->work.words + begin, length * sizeof *chars);
        }
        list[n++] = (gram_word){chars, length};
        l->work.n = base;
    }
    l->work.n = base;
    return all ? gram_ex_words(l, list, n) : GRAM_EX_NONE;
}

static gram_ex plain_alt(compiler *c, const rx_node *node)
{
    const gram_ex list = words(c, node);
    if (list != GRAM_EX_NONE) {
        return list;
    }
    const uint32_t base = c->l->work.n;
    for (const rx_node *kid = node->first; kid != NULL; kid = kid->next) {
        (void)gram_push(c->l->mem, &c->l->work, plain(c, kid));
    }
    const gram_ex e = gram_ex_or(c->l, c->l->work.words + base, c->l->work.n - base);
    c->l->work.n = base;
    return e;
}

/* A tree without assertions. */
static gram_ex plain(compiler *c, const rx_node *node)
{
    gram_lang *l = c->l;
    switch (node->kind) {
    case RX_SET:
        return gram_ex_set(l, node->set);
    case RX_CAT: {
        const uint32_t base = l->work.n;
        for (const rx_node *kid = node->first; kid != NULL; kid = kid->next) {
            (void)gram_push(l->mem, &l->work, plain(c, kid));
        }
        gram_ex e = GRAM_EX_EPS;
        while (l->work.n > base) {
            e = gram_ex_cat(l, l->work.words[--l->work.n], e);
        }
        return e;
    }
    case RX_ALT:
        return plain_alt(c, node);
    case RX_REP:
        return gram_ex_rep(l, plain(c, node->first), node->min, node->max);
    default:
        return GRAM_EX_EPS;
    }
}

/* r followed by what depends on the last character of r. */
static rest append(compiler *c, gram_ex r, rest k)
{
    gram_lang *l = c->l;
    if (k.at[AFTER_LINE] == k.at[AT_START] && k.at[AFTER_WORD] == k.at[AT_START] && k.at[AFTER_OTHER] == k.at[AT_START]) {
        return everywhere(gram_ex_cat(l, r, k.at[AT_START]));
    }
    const gram_ex some = gram_ex_some(l, r);
    gram_ex e = GRAM_EX_NONE;
    if (k.at[AFTER_LINE] == k.at[AFTER_WORD] && k.at[AFTER_WORD] == k.at[AFTER_OTHER]) {
        e = gram_ex_cat(l, some, k.at[AFTER_OTHER]);
    } else {
        for (int i = AFTER_LINE; i < PLACES; i++) {
            const gram_ex ends = gram_ex_cat(l, GRAM_EX_ANY, gram_ex_set(l, c->after[i]));
            e = gram_ex_or2(l, e, gram_ex_cat(l, gram_ex_and2(l, some, ends), k.at[i]));
        }
    }
    rest all = everywhere(e);
    return gram_nullable(l, r) ? both(c, all, k) : all;
}

static rest compile(compiler *c, const rx_node *node, rest k);

static gram_ex starts_with(compiler *c, gram_set set)
{
    return gram_ex_cat(c->l, gram_ex_set(c->l, set), GRAM_EX_ANY);
}

static rest assertion(compiler *c, const rx_node *node, rest k)
{
    gram_lang *l = c->l;
    const rest ahead = node->kind == RX_AHEAD ? compile(c, node->first, everywhere(GRAM_EX_ANY)) : k;
    for (int i = 0; i < PLACES; i++) {
        gram_ex must = GRAM_EX_ANY; /* be what follows */
        switch (node->kind) {
        case RX_START:
            must = i == AT_START && !c->no_start ? GRAM_EX_ANY : GRAM_EX_NONE;
            break;
        case RX_LINE_START:
            must = i == AT_START || i == AFTER_LINE ? GRAM_EX_ANY : GRAM_EX_NONE;
            break;
        case RX_END:
            must = c->no_end ? GRAM_EX_NONE : GRAM_EX_EPS;
            break;
        case RX_LINE_END:
            must = gram_ex_or2(l, GRAM_EX_EPS, starts_with(c, c->after[AFTER_LINE]));
            break;
        case RX_BOUNDARY:
            must = starts_with(c, c->after[AFTER_WORD]);
            must = (i == AFTER_WORD) != node->negated ? gram_ex_not(l, must) : must;
            break;
        default:
            must = node->negated ? gram_ex_not(l, ahead.at[i]) : ahead.at[i];
            break;
        }
        k.at[i] = gram_ex_and2(l, k.at[i], must);
    }
    return k;
}

/* A loop around ^ or $: only its first round can begin at the start, only its last one end at the end. */
static rest anchored_loop(compiler *c, const rx_node *body, rest k)
{
    const compiler saved = *c;
    const rest once = compile(c, body, k);
    c->no_start = true;
    const rest last = compile(c, body, k);
    c->no_end = true;
    const gram_ex middle = compile(c, body, everywhere(GRAM_EX_EPS)).at[AFTER_OTHER];
    *c = saved;
    c->no_end = true;
    const rest first = compile(c, body, append(c, gram_ex_rep(c->l, middle, 0, GRAM_INF), last));
    *c = saved;
    return both(c, k, both(c, once, first));
}

static rest loop(compiler *c, const rx_node *node, rest k)
{
    const rx_node *body = node->first;
    const bool bounded = node->max != GRAM_INF;
    if (node->min > MAX_UNROLLED || (bounded && node->max > MAX_UNROLLED) || (!bounded && !body->anchors)) {
        gram_fault(c->l->mem, DI_E_UNSUPPORTED, "unsupported_regex", -1,
                   "regular expression: an assertion inside of a long repetition is not supported");
        return everywhere(GRAM_EX_NONE);
    }
    rest all = k;
    if (!bounded) {
        all = anchored_loop(c, body, k);
    }
    for (uint32_t i = node->min; bounded && i < node->max; i++) {
        all = both(c, k, compile(c, body, all));
    }
    for (uint32_t i = 0; i < node->min; i++) {
        all = compile(c, body, all);
    }
    return all;
}

/* The text that `node` matches, followed by k. */
static rest compile(compiler *c, const rx_node *node, rest k)
{
    if (node->plain) {
        return append(c, plain(c, node), k);
    }
    if (!gram_enter(c->l->mem)) {
        return everywhere(GRAM_EX_NONE);
    }
    rest all = everywhere(GRAM_EX_NONE);
    if (node->kind == RX_CAT) {
        uint32_t n = 0;
        for (const rx_node *kid = node->first; kid != NULL; kid = kid->next) {
            n++;
        }
        const rx_node **kids = gram_alloc(c->l->mem, n, sizeof *kids);
        n = 0;
        for (const rx_node *kid = node->first; kids != NULL && kid != NULL; kid = kid->next) {
            kids[n++] = kid;
        }
        all = k;
        while (n > 0) {
            all = compile(c, kids[--n], all);
        }
    } else if (node->kind == RX_ALT) {
        for (const rx_node *kid = node->first; kid != NULL; kid = kid->next) {
            all = both(c, all, compile(c, kid, k));
        }
    } else if (node->kind == RX_REP) {
        all = loop(c, node, k);
    } else {
        all = assertion(c, node, k);
    }
    gram_leave(c->l->mem);
    return all;
}

gram_ex gram_rx_compile(gram_lang *l, const rx_node *root, unsigned flags)
{
    compiler c = {.l = l};
    const gram_set ends[PLACES] = {GRAM_SET_EMPTY, gram_rx_lines(l), gram_rx_words(l), GRAM_SET_EMPTY};
    memcpy(c.after, ends, sizeof ends);
    c.after[AFTER_OTHER] = gram_set_not(l, gram_set_or(l, c.after[AFTER_LINE], c.after[AFTER_WORD]));
    const bool search = (flags & GRAM_REGEX_SEARCH) != 0;
    rest all = compile(&c, root, everywhere(search ? GRAM_EX_ANY : GRAM_EX_EPS));
    if (search) {
        all = append(&c, GRAM_EX_ANY, all);
    }
    return gram_failed(l->mem) ? GRAM_EX_NONE : all.at[AT_START];
}
