/* gram_lang_ask.c - questions about a language: is it empty, how many strings has it, how long are they, which is the shortest.
 *
 * Most are answered from the form of the expression. Where there is an intersection or a complement, derivatives are followed; what such a
 * search has proved is kept for every expression on its way. */
#include "grammar/gram_lang_int.h"

/* Searches keep expressions on the work stack, in entries of three words. */
enum { Q_EX, Q_PARENT, Q_CHAR, Q_WORDS };

static void mark_known(gram_lang *l, gram_ex e, bool empty)
{
    l->nodes[e].known |= KNOWN_EMPTY;
    l->nodes[e].empty = empty;
}

static bool enqueue(gram_lang *l, gram_ex e, uint32_t parent, uint32_t c)
{
    gram_stack *work = &l->work;
    const uint32_t n = work->n;
    if (gram_push(l->mem, work, e) && gram_push(l->mem, work, parent) && gram_push(l->mem, work, c)) {
        return true;
    }
    work->n = n;
    return false;
}

/* Follows derivatives, depth first, until one is known, or seen from its form, not to be empty. The third word of an entry is where in its
 * row the search is. */
static bool search_empty(gram_lang *l, gram_ex e)
{
    const uint32_t base = l->work.n;
    bool found = false;
    const uint32_t search = ++l->search; /* searches for other expressions may happen inside of this one */
    l->nodes[e].mark = search;
    (void)enqueue(l, e, GRAM_NONE, 0);
    uint32_t at = base;
    while (at != GRAM_NONE && !found && gram_spend(l->mem, 1)) {
        const gram_row *row = gram_row_of(l, l->work.words[at + Q_EX]);
        const uint32_t i = l->work.words[at + Q_CHAR]++;
        if (i == row->n) {
            at = l->work.words[at + Q_PARENT];
            continue;
        }
        const gram_ex to = row->seg[i].to;
        const gram_node *node = &l->nodes[to];
        if (node->mark == search || ((node->known & KNOWN_EMPTY) != 0 && node->empty)) {
            continue;
        }
        const bool must_follow = !node->nullable && (node->known & KNOWN_EMPTY) == 0 && (node->op == EX_AND || node->op == EX_NOT);
        if (must_follow) {
            l->nodes[to].mark = search;
            const uint32_t next = l->work.n;
            if (enqueue(l, to, at, 0)) {
                at = next;
            }
        } else {
            found = !gram_empty(l, to);
        }
    }
    if (!gram_failed(l->mem)) {
        for (uint32_t k = base; !found && k < l->work.n; k += Q_WORDS) {
            mark_known(l, l->work.words[k + Q_EX], true);
        }
        for (; found && at != GRAM_NONE; at = l->work.words[at + Q_PARENT]) {
            mark_known(l, l->work.words[at + Q_EX], false);
        }
    }
    l->work.n = base;
    return !found;
}

static bool empty_by_form(gram_lang *l, gram_ex e)
{
    const gram_node node = l->nodes[e];
    bool empty = false;
    switch (node.op) {
    case EX_NONE:
        return true;
    case EX_CAT:
        return gram_empty(l, node.a) || gram_empty(l, node.b);
    case EX_REP:
        return node.b != 0 && gram_empty(l, node.a);
    case EX_OR:
        empty = true;
        for (uint32_t i = 0; empty && i < node.a; i++) {
            empty = gram_empty(l, node.kids[i]);
        }
        return empty;
    case EX_AND:
    case EX_NOT:
        return search_empty(l, e);
    default:
        return false;
    }
}

/* A chain of concatenations may be long: it is walked, not nested. */
bool gram_empty(gram_lang *l, gram_ex e)
{
    while (l->nodes[e].op == EX_CAT && (l->nodes[l->nodes[e].a].op == EX_SET || l->nodes[l->nodes[e].a].nullable)) {
        e = l->nodes[e].b;
    }
    const gram_node *node = &l->nodes[e];
    if (node->nullable || (node->known & KNOWN_EMPTY) != 0) {
        return !node->nullable && node->empty;
    }
    if (!gram_enter(l->mem)) {
        return true;
    }
    const bool empty = empty_by_form(l, e);
    gram_leave(l->mem);
    if (!gram_failed(l->mem)) {
        mark_known(l, e, empty);
    }
    return empty;
}

/* --- Lengths ------------------------------------------------------------------------------------------------------ */

static uint32_t plus(uint32_t a, uint32_t b)
{
    return a > GRAM_INF - b ? GRAM_INF : a + b;
}

static uint32_t times(uint32_t a, uint32_t b)
{
    const uint64_t product = (uint64_t)a * b;
    return a != 0 && b != 0 && (a == GRAM_INF || b == GRAM_INF || product > GRAM_INF) ? GRAM_INF : (uint32_t)product;
}

static const gram_lengths unknown_lengths = {0, GRAM_INF, false};

static gram_lengths lengths_of_rep(gram_lengths one, uint32_t min, uint32_t max)
{
    gram_lengths all = {times(one.min, min), times(one.max, max), one.dense};
    if (min == max || one.min == 0) {
        return all;
    }
    /* k repetitions end at k·max, the next ones start at (k + 1)·min: no gap for k = min means none later. */
    const uint32_t first = min == 0 ? 0 : times(one.max, min);
    all.dense = all.dense && times(one.min, min + 1) <= plus(first, 1);
    return all;
}

static gram_lengths lengths_of_or(gram_lang *l, gram_node node)
{
    gram_lengths all = gram_lengths_of(l, node.kids[0]);
    /* Kids whose ranges touch what is there so far are taken in until nothing changes. */
    uint32_t left = node.a - 1;
    for (bool grew = true; grew && left != 0 && all.dense && node.a <= 64;) {
        grew = false;
        left = 0;
        for (uint32_t i = 0; i < node.a; i++) {
            const gram_lengths one = gram_lengths_of(l, node.kids[i]);
            if (!one.dense) {
                return unknown_lengths;
            }
            if (one.min > plus(all.max, 1) || all.min > plus(one.max, 1)) {
                left++;
            } else if (one.min < all.min || one.max > all.max) {
                all.min = one.min < all.min ? one.min : all.min;
                all.max = one.max > all.max ? one.max : all.max;
                grew = true;
            }
        }
    }
    return left == 0 && all.dense ? all : unknown_lengths;
}

static gram_lengths lengths_of_words(gram_lang *l, gram_node node)
{
    uint64_t seen = 0;
    for (uint32_t i = node.b; i < node.c; i++) {
        const uint32_t n = gram_list_word(l, node.a, i)->n - node.d;
        if (n > 63 || node.c - node.b > 256) {
            return unknown_lengths;
        }
        seen |= (uint64_t)1 << n;
    }
    const uint32_t min = (uint32_t)__builtin_ctzll(seen);
    const uint32_t max = 63 - (uint32_t)__builtin_clzll(seen);
    return (gram_lengths){min, max, seen >> min == ~(uint64_t)0 >> (63 - (max - min))};
}

static gram_lengths compute_lengths(gram_lang *l, gram_ex e)
{
    const gram_node node = l->nodes[e];
    switch (node.op) {
    case EX_EPS:
        return (gram_lengths){0, 0, true};
    case EX_SET:
        return (gram_lengths){1, 1, true};
    case EX_CAT: {
        const gram_lengths a = gram_lengths_of(l, node.a);
        const gram_lengths b = gram_lengths_of(l, node.b);
        return (gram_lengths){plus(a.min, b.min), plus(a.max, b.max), a.dense && b.dense};
    }
    case EX_REP:
        return lengths_of_rep(gram_lengths_of(l, node.a), node.b, node.c);
    case EX_OR:
        return lengths_of_or(l, node);
    case EX_WORDS:
        return lengths_of_words(l, node);
    default:
        return unknown_lengths;
    }
}

gram_lengths gram_lengths_of(gram_lang *l, gram_ex e)
{
    if ((l->nodes[e].known & KNOWN_LENGTHS) != 0) {
        return l->nodes[e].lengths;
    }
    if (!gram_enter(l->mem)) {
        return unknown_lengths;
    }
    gram_lengths lengths = compute_lengths(l, e);
    gram_leave(l->mem);
    if (!lengths.dense) {
        lengths = unknown_lengths;
    }
    l->nodes[e].lengths = lengths;
    l->nodes[e].known |= KNOWN_LENGTHS;
    return lengths;
}

/* --- Counting and witnesses --------------------------------------------------------------------------------------- */

static uint32_t width(uint32_t first, uint32_t last)
{
    uint32_t n = last - first + 1;
    if (first <= 0xDFFF && last >= 0xD800) { /* surrogates are no characters */
        n -= (last < 0xDFFF ? last : 0xDFFF) - (first > 0xD800 ? first : 0xD800) + 1;
    }
    return n;
}

static int by_ex(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Pairs of expression and number of ways on the work stack from `base` on: equal expressions are added up. */
static void merge_ways(gram_lang *l, uint32_t base)
{
    uint32_t *words = l->work.words + base;
    const uint32_t n = (l->work.n - base) / 2;
    if (n > 1) {
        qsort(words, n, 2 * sizeof *words, by_ex);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept != 0 && words[2 * kept - 2] == words[2 * i]) {
            words[2 * kept - 1] = plus(words[2 * kept - 1], words[2 * i + 1]);
        } else {
            words[2 * kept] = words[2 * i];
            words[2 * kept + 1] = words[2 * i + 1];
            kept++;
        }
    }
    l->work.n = base + 2 * kept;
}

/* By length: the ways to reach each expression with one more character. An infinite language has a string of nearly every length, so
 * that the cap is met soon. */
uint32_t gram_count(gram_lang *l, gram_ex e, uint32_t cap)
{
    const uint32_t base = l->work.n;
    uint32_t found = 0;
    if (!gram_empty(l, e)) {
        (void)gram_push(l->mem, &l->work, e);
        (void)gram_push(l->mem, &l->work, 1);
    }
    while (l->work.n > base && found < cap && !gram_failed(l->mem)) {
        const uint32_t end = l->work.n;
        for (uint32_t at = base; at + 1 < end; at += 2) {
            const gram_ex from = l->work.words[at];
            const uint32_t ways = l->work.words[at + 1];
            found = l->nodes[from].nullable ? plus(found, ways) : found;
            const gram_row *row = gram_row_of(l, from);
            (void)gram_spend(l->mem, 1 + row->n / 4);
            for (uint32_t i = 0, first = 0; i < row->n; first = row->seg[i].last + 1, i++) {
                if (row->seg[i].to != GRAM_EX_NONE && !gram_empty(l, row->seg[i].to)) {
                    (void)gram_push(l->mem, &l->work, row->seg[i].to);
                    (void)gram_push(l->mem, &l->work, times(ways, width(first, row->seg[i].last)));
                }
            }
        }
        const uint32_t n = l->work.n - end;
        memmove(l->work.words + base, l->work.words + end, n * sizeof *l->work.words);
        l->work.n = base + n;
        merge_ways(l, base);
    }
    l->work.n = base;
    return found < cap ? found : cap;
}

/* Something that people would write, if the range has it. */
static uint32_t pick(uint32_t first, uint32_t last)
{
    static const char wanted[] = "a0A-_ .";
    for (size_t i = 0; i < sizeof wanted - 1; i++) {
        const uint32_t c = (uint32_t)(unsigned char)wanted[i];
        if (c >= first && c <= last) {
            return c;
        }
    }
    if (first < ' ' && last > ' ') {
        return '!' <= last ? '!' : ' ';
    }
    return first >= 0xD800 && first <= 0xDFFF ? 0xE000 : first;
}

bool gram_shortest(gram_lang *l, gram_ex e, gram_stack *out)
{
    if (gram_empty(l, e)) {
        return false;
    }
    const uint32_t base = l->work.n;
    const uint32_t start = out->n;
    uint32_t found = GRAM_NONE;
    const uint32_t visit = ++l->search;
    l->nodes[e].visit = visit;
    (void)enqueue(l, e, GRAM_NONE, 0);
    for (uint32_t at = base; at < l->work.n && !gram_failed(l->mem); at += Q_WORDS) {
        const gram_ex from = l->work.words[at + Q_EX];
        if (l->nodes[from].nullable) {
            found = at;
            break;
        }
        const gram_row *row = gram_row_of(l, from);
        (void)gram_spend(l->mem, 1 + row->n / 4);
        for (uint32_t i = 0, first = 0; i < row->n; first = row->seg[i].last + 1, i++) {
            const gram_ex to = row->seg[i].to;
            if (to == GRAM_EX_NONE || gram_empty(l, to)) {
                continue;
            }
            if (l->nodes[to].visit != visit) {
                l->nodes[to].visit = visit;
                (void)enqueue(l, to, at, pick(first, row->seg[i].last));
            }
        }
    }
    for (uint32_t at = found; at != GRAM_NONE && l->work.words[at + Q_PARENT] != GRAM_NONE; at = l->work.words[at + Q_PARENT]) {
        (void)gram_push(l->mem, out, l->work.words[at + Q_CHAR]);
    }
    for (uint32_t i = start, k = out->n; i + 1 < k; i++) { /* it was found from its end */
        const uint32_t c = out->words[i];
        out->words[i] = out->words[--k];
        out->words[k] = c;
    }
    l->work.n = base;
    return found != GRAM_NONE && !gram_failed(l->mem);
}
