/* gram_lang.c - constructors of expressions. Each brings its result into a normal form, so that equal languages get equal ids as often
 * as is cheap: unions and intersections are sorted sets, concatenations lean to the right, repetitions of one thing are added up. */
#include "grammar/gram_lang_int.h"

#include "core/utf8.h"

static gram_ex add(gram_lang *l, const uint32_t *key, uint32_t n, const gram_node *node)
{
    bool is_new;
    const uint32_t id = gram_tuple(l->mem, &l->keys, key, n, &is_new);
    if (!is_new) {
        return id;
    }
    gram_node *nodes = gram_grow(l->mem, l->nodes, id, &l->node_capacity, sizeof *nodes);
    if (nodes == NULL) {
        return GRAM_EX_NONE;
    }
    l->nodes = nodes;
    nodes[id] = *node;
    if (node->op == EX_OR || node->op == EX_AND) {
        nodes[id].kids = l->keys.at[id] + 2; /* behind the length of the tuple and the operator */
    }
    return id;
}

gram_ex gram_ex_plain(gram_lang *l, uint8_t op, uint32_t a, uint32_t b, uint32_t c, uint32_t d, bool nullable)
{
    const uint32_t key[5] = {op, a, b, c, d};
    const gram_node node = {.op = op, .a = a, .b = b, .c = c, .d = d, .nullable = nullable};
    return add(l, key, 5, &node);
}

/* The kids lie on the work stack from `base` on, ascending; they are taken off. */
static gram_ex add_list(gram_lang *l, uint8_t op, uint32_t base)
{
    gram_stack *work = &l->work;
    const uint32_t n = work->n - base;
    if (n == 1) {
        work->n = base;
        return work->words[base];
    }
    bool nullable = op == EX_AND;
    for (uint32_t i = base; i < work->n; i++) {
        const bool one = l->nodes[work->words[i]].nullable;
        nullable = op == EX_AND ? nullable && one : nullable || one;
    }
    gram_ex id = GRAM_EX_NONE;
    if (gram_push(l->mem, work, 0)) { /* room for the operator in front */
        memmove(work->words + base + 1, work->words + base, n * sizeof *work->words);
        work->words[base] = op;
        const gram_node node = {.op = op, .a = n, .nullable = nullable};
        id = add(l, work->words + base, n + 1, &node);
    }
    work->n = base;
    return id;
}

bool gram_lang_init(gram_lang *l, gram_mem *mem)
{
    *l = (gram_lang){.mem = mem};
    if (!gram_push(mem, &l->work, 0)) { /* memory from the start: places in it are never offsets to NULL */
        return false;
    }
    l->work.n = 0;
    (void)gram_set_of(l, NULL, 0);
    (void)gram_set_not(l, GRAM_SET_EMPTY);
    (void)gram_ex_plain(l, EX_NONE, 0, 0, 0, 0, false);
    (void)gram_ex_plain(l, EX_EPS, 0, 0, 0, 0, true);
    (void)gram_ex_plain(l, EX_REP, GRAM_EX_CHAR, 0, GRAM_INF, 0, true);
    (void)gram_ex_plain(l, EX_SET, GRAM_SET_ALL, 0, 0, 0, false);
    return !gram_failed(mem);
}

gram_ex gram_ex_set(gram_lang *l, gram_set a)
{
    return a == GRAM_SET_EMPTY ? GRAM_EX_NONE : gram_ex_plain(l, EX_SET, a, 0, 0, 0, false);
}

gram_ex gram_ex_char(gram_lang *l, uint32_t c)
{
    return gram_ex_set(l, gram_set_of(l, (const uint32_t[]){c, c}, 1));
}

static uint32_t plus(uint32_t a, uint32_t b)
{
    return a > GRAM_INF - b ? GRAM_INF : a + b;
}

/* e as a repetition in front of something. A set counts as itself once. */
typedef struct counted {
    gram_ex base; /* GRAM_EX_NONE = it is none */
    uint32_t min;
    uint32_t max;
    gram_ex tail;
} counted;

static counted split(const gram_lang *l, gram_ex e)
{
    const gram_node *node = &l->nodes[e];
    const gram_ex head = node->op == EX_CAT ? node->a : e;
    const gram_ex tail = node->op == EX_CAT ? node->b : GRAM_EX_EPS;
    const gram_node *first = &l->nodes[head];
    if (first->op == EX_REP) {
        return (counted){first->a, first->b, first->c, tail};
    }
    return first->op == EX_SET ? (counted){head, 1, 1, tail} : (counted){GRAM_EX_NONE, 0, 0, tail};
}

/* The head is no concatenation. */
static gram_ex cat_one(gram_lang *l, gram_ex a, gram_ex b)
{
    if (a == GRAM_EX_NONE || b == GRAM_EX_NONE) {
        return GRAM_EX_NONE;
    }
    if (a == GRAM_EX_EPS || b == GRAM_EX_EPS) {
        return a == GRAM_EX_EPS ? b : a;
    }
    if ((a == GRAM_EX_ANY && l->nodes[b].nullable) || (b == GRAM_EX_ANY && l->nodes[a].nullable)) {
        return GRAM_EX_ANY;
    }
    const counted x = split(l, a);
    const counted y = split(l, b);
    /* x{1}x{1} stays as it is, so that literal texts are plain chains. */
    if (x.base != GRAM_EX_NONE && x.base == y.base && (l->nodes[a].op == EX_REP || y.max != 1 || y.min != 1)) {
        return cat_one(l, gram_ex_rep(l, x.base, plus(x.min, y.min), plus(x.max, y.max)), y.tail);
    }
    return gram_ex_plain(l, EX_CAT, a, b, 0, 0, l->nodes[a].nullable && l->nodes[b].nullable);
}

gram_ex gram_ex_cat(gram_lang *l, gram_ex a, gram_ex b)
{
    const uint32_t base = l->work.n;
    for (; l->nodes[a].op == EX_CAT; a = l->nodes[a].b) {
        (void)gram_push(l->mem, &l->work, l->nodes[a].a);
        (void)gram_spend(l->mem, 1);
    }
    gram_ex e = cat_one(l, a, b);
    while (l->work.n > base) {
        e = cat_one(l, l->work.words[--l->work.n], e);
    }
    return gram_failed(l->mem) ? GRAM_EX_NONE : e;
}

gram_ex gram_ex_rep(gram_lang *l, gram_ex a, uint32_t min, uint32_t max)
{
    if (max == 0 || a == GRAM_EX_EPS) {
        return GRAM_EX_EPS;
    }
    if (a == GRAM_EX_NONE || min > max) {
        return min == 0 ? GRAM_EX_EPS : GRAM_EX_NONE;
    }
    if (l->nodes[a].nullable) {
        min = 0;
        if (l->nodes[a].op == EX_REP && l->nodes[a].b == 0 && (l->nodes[a].c == GRAM_INF || max == GRAM_INF)) {
            a = l->nodes[a].a; /* (x*){,n} and (x{,n})* are x* */
            max = GRAM_INF;
        }
    }
    return min == 1 && max == 1 ? a : gram_ex_plain(l, EX_REP, a, min, max, 0, min == 0);
}

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort_from(gram_lang *l, uint32_t base)
{
    gram_stack *work = &l->work;
    const uint32_t n = work->n - base;
    if (n > 1) {
        qsort(work->words + base, n, sizeof *work->words, ascending);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || work->words[base + kept - 1] != work->words[base + i]) {
            work->words[base + kept++] = work->words[base + i];
        }
    }
    work->n = base + kept;
}

static bool holds(const gram_lang *l, uint32_t base, gram_ex e)
{
    return l->work.n > base &&
           bsearch(&e, l->work.words + base, l->work.n - base, sizeof e, ascending) != NULL;
}

/* Joins x{a,b}t and x{c,d}t to one where the ranges touch. Sets l->work from base on in order again. */
static void join_counted(gram_lang *l, uint32_t base)
{
    for (uint32_t i = base; i < l->work.n; i++) {
        const counted x = split(l, l->work.words[i]);
        if (x.base == GRAM_EX_NONE) {
            continue;
        }
        for (uint32_t k = i + 1; k < l->work.n; k++) {
            const counted y = split(l, l->work.words[k]);
            if (y.base != x.base || y.tail != x.tail || y.min > plus(x.max, 1) || x.min > plus(y.max, 1)) {
                continue;
            }
            const gram_ex rep = gram_ex_rep(l, x.base, x.min < y.min ? x.min : y.min, x.max > y.max ? x.max : y.max);
            const gram_ex joined = gram_ex_cat(l, rep, x.tail);
            l->work.words[k] = l->work.words[l->work.n - 1];
            l->work.words[i] = joined;
            l->work.n--;
            sort_from(l, base);
            i = base - 1; /* from the start: the order has changed */
            break;
        }
        (void)gram_spend(l->mem, 1);
    }
}

/* Puts the kids of one operator on the work stack: those of nested ones in their place, sets joined to one. */
static gram_set flatten(gram_lang *l, uint8_t op, const gram_ex *kids, uint32_t n, bool *has_set)
{
    gram_set set = op == EX_OR ? GRAM_SET_EMPTY : GRAM_SET_ALL;
    *has_set = false;
    for (uint32_t i = 0; i < n; i++) {
        const gram_node *node = &l->nodes[kids[i]];
        const bool nested = node->op == op;
        const gram_ex *inner = nested ? node->kids : &kids[i];
        const uint32_t m = nested ? node->a : 1;
        for (uint32_t k = 0; k < m; k++) {
            const gram_node *kid = &l->nodes[inner[k]];
            if (kid->op == EX_SET) {
                set = op == EX_OR ? gram_set_or(l, set, kid->a) : gram_set_and(l, set, kid->a);
                *has_set = true;
            } else if (inner[k] != (op == EX_OR ? GRAM_EX_NONE : GRAM_EX_ANY)) {
                (void)gram_push(l->mem, &l->work, inner[k]);
            }
        }
    }
    (void)gram_spend(l->mem, 1 + n / 8);
    return set;
}

static gram_ex give_up(gram_lang *l, uint32_t base, gram_ex result)
{
    l->work.n = base;
    return gram_failed(l->mem) ? GRAM_EX_NONE : result;
}

gram_ex gram_ex_or(gram_lang *l, const gram_ex *kids, uint32_t n)
{
    const uint32_t base = l->work.n;
    bool has_set;
    const gram_set set = flatten(l, EX_OR, kids, n, &has_set);
    if (has_set) {
        (void)gram_push(l->mem, &l->work, gram_ex_set(l, set));
    }
    sort_from(l, base);
    if (gram_failed(l->mem) || l->work.n == base) {
        return give_up(l, base, GRAM_EX_NONE);
    }
    if (holds(l, base, GRAM_EX_ANY)) {
        return give_up(l, base, GRAM_EX_ANY);
    }
    if (l->work.n - base > 1) {
        join_counted(l, base);
    }
    bool nullable = false;
    for (uint32_t i = base; i < l->work.n; i++) {
        const gram_node *node = &l->nodes[l->work.words[i]];
        nullable = nullable || (node->nullable && l->work.words[i] != GRAM_EX_EPS);
        if (node->op == EX_NOT && holds(l, base, node->a)) {
            return give_up(l, base, GRAM_EX_ANY);
        }
    }
    if (nullable && holds(l, base, GRAM_EX_EPS)) {
        uint32_t *words = l->work.words + base; /* sorted: nothing but EPS can be first */
        memmove(words, words + 1, (l->work.n - base - 1) * sizeof *words);
        l->work.n--;
    }
    return gram_failed(l->mem) || l->work.n == base ? give_up(l, base, GRAM_EX_NONE) : add_list(l, EX_OR, base);
}

gram_ex gram_ex_or2(gram_lang *l, gram_ex a, gram_ex b)
{
    if (a == b || b == GRAM_EX_NONE || a == GRAM_EX_ANY) {
        return a;
    }
    return a == GRAM_EX_NONE || b == GRAM_EX_ANY ? b : gram_ex_or(l, (const gram_ex[]){a, b}, 2);
}

/* Takes the complements off and puts the complement of their union on; joins repetitions of single characters. */
static void join_and(gram_lang *l, uint32_t base)
{
    gram_set set = GRAM_SET_ALL;
    uint32_t min = 0;
    uint32_t max = GRAM_INF;
    bool counts = false;
    uint32_t kept = base;
    const uint32_t end = l->work.n;
    for (uint32_t i = base; i < end; i++) {
        const gram_ex e = l->work.words[i];
        const gram_node *node = &l->nodes[e];
        if (node->op == EX_NOT) {
            (void)gram_push(l->mem, &l->work, node->a);
        } else if (node->op == EX_SET || (node->op == EX_REP && l->nodes[node->a].op == EX_SET)) {
            const bool one = node->op == EX_SET;
            const uint32_t from = one ? 1 : node->b;
            const uint32_t to = one ? 1 : node->c;
            set = gram_set_and(l, set, one ? node->a : l->nodes[node->a].a);
            min = from > min ? from : min;
            max = to < max ? to : max;
            counts = true;
        } else {
            l->work.words[kept++] = e;
        }
    }
    /* One union of all, because there may be hundreds. They stay on the stack during the call; if it grows, the old memory stays. */
    const gram_ex outside = gram_ex_or(l, l->work.words + end, l->work.n - end);
    l->work.n = kept;
    if (counts) {
        (void)gram_push(l->mem, &l->work, gram_ex_rep(l, gram_ex_set(l, set), min, max));
    }
    if (outside != GRAM_EX_NONE) {
        (void)gram_push(l->mem, &l->work, gram_ex_not(l, outside));
    }
}

gram_ex gram_ex_and(gram_lang *l, const gram_ex *kids, uint32_t n)
{
    const uint32_t base = l->work.n;
    bool has_set;
    const gram_set set = flatten(l, EX_AND, kids, n, &has_set);
    if (has_set) {
        (void)gram_push(l->mem, &l->work, gram_ex_set(l, set));
    }
    join_and(l, base);
    sort_from(l, base);
    if (gram_failed(l->mem) || holds(l, base, GRAM_EX_NONE)) {
        return give_up(l, base, GRAM_EX_NONE);
    }
    if (l->work.n == base || (l->work.n == base + 1 && l->work.words[base] == GRAM_EX_ANY)) {
        return give_up(l, base, GRAM_EX_ANY);
    }
    bool nullable = true;
    for (uint32_t i = base; i < l->work.n; i++) {
        const gram_node *node = &l->nodes[l->work.words[i]];
        nullable = nullable && node->nullable;
        if (node->op != EX_NOT) {
            continue;
        }
        const gram_node *inner = &l->nodes[node->a];
        bool clash = holds(l, base, node->a);
        for (uint32_t k = 0; inner->op == EX_OR && !clash && k < inner->a; k++) {
            clash = holds(l, base, inner->kids[k]);
        }
        if (clash) {
            return give_up(l, base, GRAM_EX_NONE);
        }
    }
    if (holds(l, base, GRAM_EX_EPS)) {
        return give_up(l, base, nullable ? GRAM_EX_EPS : GRAM_EX_NONE);
    }
    for (uint32_t i = base; l->work.n - base > 1 && i < l->work.n; i++) {
        if (l->nodes[l->work.words[i]].op == EX_WORDS) {
            return gram_ex_filter_words(l, base, i);
        }
    }
    return add_list(l, EX_AND, base);
}

gram_ex gram_ex_and2(gram_lang *l, gram_ex a, gram_ex b)
{
    if (a == b || b == GRAM_EX_ANY || a == GRAM_EX_NONE) {
        return a;
    }
    return a == GRAM_EX_ANY || b == GRAM_EX_NONE ? b : gram_ex_and(l, (const gram_ex[]){a, b}, 2);
}

gram_ex gram_ex_not(gram_lang *l, gram_ex a)
{
    const gram_node node = l->nodes[a];
    if (a == GRAM_EX_NONE || a == GRAM_EX_ANY) {
        return a == GRAM_EX_NONE ? GRAM_EX_ANY : GRAM_EX_NONE;
    }
    if (a == GRAM_EX_EPS) {
        return gram_ex_rep(l, GRAM_EX_CHAR, 1, GRAM_INF);
    }
    if (node.op == EX_NOT) {
        return node.a;
    }
    if (node.op == EX_REP && node.a == GRAM_EX_CHAR) {
        const gram_ex less = node.b == 0 ? GRAM_EX_NONE : gram_ex_rep(l, GRAM_EX_CHAR, 0, node.b - 1);
        const gram_ex more = node.c == GRAM_INF ? GRAM_EX_NONE : gram_ex_rep(l, GRAM_EX_CHAR, node.c + 1, GRAM_INF);
        return gram_ex_or2(l, less, more);
    }
    return gram_ex_plain(l, EX_NOT, a, 0, 0, 0, !node.nullable);
}

gram_ex gram_ex_some(gram_lang *l, gram_ex a)
{
    const gram_node node = l->nodes[a];
    if (!node.nullable || !gram_enter(l->mem)) {
        return a;
    }
    gram_ex e = GRAM_EX_NONE;
    if (node.op == EX_REP && !l->nodes[node.a].nullable) {
        e = gram_ex_rep(l, node.a, 1, node.c);
    } else if (node.op == EX_CAT) {
        e = gram_ex_or2(l, gram_ex_cat(l, gram_ex_some(l, node.a), node.b), gram_ex_some(l, node.b));
    } else if (node.op == EX_OR) {
        for (uint32_t i = 0; i < node.a; i++) {
            e = gram_ex_or2(l, e, gram_ex_some(l, node.kids[i]));
        }
    } else if (node.op == EX_WORDS) { /* the empty rest is the first */
        e = node.b + 1 < node.c ? gram_ex_plain(l, EX_WORDS, node.a, node.b + 1, node.c, node.d, false) : GRAM_EX_NONE;
    } else if (node.op != EX_EPS) {
        e = gram_ex_and2(l, a, gram_ex_rep(l, GRAM_EX_CHAR, 1, GRAM_INF));
    }
    gram_leave(l->mem);
    return e;
}

/* --- Texts ------------------------------------------------------------------------------------------------------- */

gram_ex gram_ex_text(gram_lang *l, const char *utf8, size_t n)
{
    const uint32_t base = l->work.n;
    const uint8_t *s = (const uint8_t *)utf8;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        const int length = utf8_decode(s + i, n - i, &c);
        if (length > 0) {
            (void)gram_push(l->mem, &l->work, c);
        }
        i += length > 0 ? (size_t)length : 1;
    }
    gram_ex e = GRAM_EX_EPS;
    while (l->work.n > base) {
        e = gram_ex_cat(l, gram_ex_char(l, l->work.words[--l->work.n]), e);
    }
    return e;
}

bool gram_ex_is_open(const gram_lang *l, gram_ex e)
{
    const gram_node *node = &l->nodes[e];
    const bool long_ones = node->op == EX_REP && node->a == GRAM_EX_CHAR && node->c == GRAM_INF;
    return long_ones || (node->op == EX_NOT && gram_ex_is_listed(l, node->a));
}
