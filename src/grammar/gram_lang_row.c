/* gram_lang_row.c - derivatives: what may follow each first character, for all characters at once. */
#include "grammar/gram_lang_int.h"

#define FIRST_SURROGATE 0xD800u
#define LAST_SURROGATE 0xDFFFu

static const gram_row nothing = {1, {{GRAM_LAST_CHAR, GRAM_EX_NONE}}};

/* Rows are built on the work stack: pairs of last character and target. */
static void put(gram_lang *l, uint32_t base, uint32_t last, gram_ex to)
{
    gram_stack *work = &l->work;
    if (work->n > base && work->words[work->n - 1] == to) {
        work->words[work->n - 2] = last;
    } else if (gram_push(l->mem, work, last) && !gram_push(l->mem, work, to)) {
        work->n--;
    }
}

static const gram_row *take(gram_lang *l, uint32_t base)
{
    const uint32_t n = (l->work.n - base) / 2;
    gram_row *row = gram_alloc(l->mem, 1, sizeof *row + n * sizeof row->seg[0]);
    if (row != NULL) {
        row->n = n;
        for (uint32_t i = 0; i < n; i++) {
            row->seg[i] = (gram_seg){l->work.words[base + 2 * i], l->work.words[base + 2 * i + 1]};
        }
    }
    l->work.n = base;
    (void)gram_spend(l->mem, 1 + n / 4);
    return row != NULL ? row : &nothing;
}

static const gram_row *row_of_set(gram_lang *l, gram_set set)
{
    const uint32_t base = l->work.n;
    uint32_t n;
    const uint32_t *ranges = gram_set_ranges(l, set, &n);
    uint32_t next = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (ranges[2 * i] > next) {
            put(l, base, ranges[2 * i] - 1, GRAM_EX_NONE);
        }
        put(l, base, ranges[2 * i + 1], GRAM_EX_EPS);
        next = ranges[2 * i + 1] + 1;
    }
    if (next <= GRAM_LAST_CHAR) {
        put(l, base, GRAM_LAST_CHAR, GRAM_EX_NONE);
    }
    return take(l, base);
}

/* The row of a·tail from that of a. */
static const gram_row *append(gram_lang *l, const gram_row *row, gram_ex tail)
{
    const uint32_t base = l->work.n;
    for (uint32_t i = 0; i < row->n; i++) {
        put(l, base, row->seg[i].last, gram_ex_cat(l, row->seg[i].to, tail));
    }
    return take(l, base);
}

static const gram_row *join(gram_lang *l, const gram_row *x, const gram_row *y)
{
    const uint32_t base = l->work.n;
    for (uint32_t i = 0, k = 0; i < x->n && k < y->n;) {
        const uint32_t last = x->seg[i].last < y->seg[k].last ? x->seg[i].last : y->seg[k].last;
        put(l, base, last, gram_ex_or2(l, x->seg[i].to, y->seg[k].to));
        i += x->seg[i].last == last;
        k += y->seg[k].last == last;
    }
    return take(l, base);
}

/* Unions and intersections of many: one pass over all rows at once, the place in each row on the work stack. */
static const gram_row *row_of_list(gram_lang *l, gram_ex e)
{
    const gram_node node = l->nodes[e];
    const uint32_t places = l->work.n;
    for (uint32_t i = 0; i < node.a; i++) {
        (void)gram_row_of(l, node.kids[i]);
        (void)gram_push(l->mem, &l->work, 0);
    }
    const uint32_t base = l->work.n;
    uint32_t last = 0;
    while (!gram_failed(l->mem) && last != GRAM_LAST_CHAR) {
        last = GRAM_LAST_CHAR;
        for (uint32_t i = 0; i < node.a; i++) {
            const uint32_t here = l->nodes[node.kids[i]].row->seg[l->work.words[places + i]].last;
            last = here < last ? here : last;
        }
        const uint32_t kids = l->work.n;
        for (uint32_t i = 0; i < node.a; i++) {
            const gram_seg seg = l->nodes[node.kids[i]].row->seg[l->work.words[places + i]];
            if (seg.to != GRAM_EX_NONE || node.op == EX_AND) {
                (void)gram_push(l->mem, &l->work, seg.to);
            }
            l->work.words[places + i] += seg.last == last;
        }
        /* They stay on the stack during the call. If it grows, the old memory stays as it is: nothing is freed here. */
        const uint32_t n = l->work.n - kids;
        const gram_ex *list = l->work.words + kids;
        const gram_ex to = node.op == EX_OR ? gram_ex_or(l, list, n) : gram_ex_and(l, list, n);
        (void)gram_spend(l->mem, 1 + node.a / 4);
        l->work.n = kids;
        put(l, base, last, to);
    }
    const gram_row *row = take(l, base);
    l->work.n = places;
    return row;
}

/* Surrogates are no characters: the complement does not hold them either. */
static const gram_row *row_of_not(gram_lang *l, const gram_row *row)
{
    const uint32_t base = l->work.n;
    uint32_t first = 0;
    for (uint32_t i = 0; i < row->n; i++) {
        const uint32_t last = row->seg[i].last;
        const gram_ex to = gram_ex_not(l, row->seg[i].to);
        if (first < FIRST_SURROGATE) {
            put(l, base, last < FIRST_SURROGATE ? last : FIRST_SURROGATE - 1, to);
        }
        if (first <= LAST_SURROGATE && last >= FIRST_SURROGATE) {
            put(l, base, last < LAST_SURROGATE ? last : LAST_SURROGATE, GRAM_EX_NONE);
        }
        if (last > LAST_SURROGATE) {
            put(l, base, last, to);
        }
        first = last + 1;
    }
    return take(l, base);
}

static const gram_row *row_of_words(gram_lang *l, gram_ex e)
{
    const gram_node node = l->nodes[e];
    const uint32_t base = l->work.n;
    uint32_t next = 0;
    uint32_t i = node.b;
    i += gram_list_word(l, node.a, i)->n == node.d; /* the one that ends here */
    while (i < node.c && !gram_failed(l->mem)) {
        const uint32_t c = gram_list_word(l, node.a, i)->chars[node.d];
        uint32_t from = i;
        uint32_t to = node.c;
        for (uint32_t step = 1; from + step < to && gram_list_word(l, node.a, from + step)->chars[node.d] == c; step *= 2) {
            from += step;
        }
        while (from + 1 < to) { /* the last word with this character is in [from, to) */
            const uint32_t middle = from + (to - from) / 2;
            if (gram_list_word(l, node.a, middle)->chars[node.d] == c) {
                from = middle;
            } else {
                to = middle;
            }
        }
        if (c > next) {
            put(l, base, c - 1, GRAM_EX_NONE);
        }
        put(l, base, c, gram_ex_words_rest(l, node.a, i, to, node.d + 1));
        next = c + 1;
        i = to;
    }
    if (next <= GRAM_LAST_CHAR) {
        put(l, base, GRAM_LAST_CHAR, GRAM_EX_NONE);
    }
    return take(l, base);
}

static const gram_row *compute(gram_lang *l, gram_ex e)
{
    const gram_node node = l->nodes[e];
    switch (node.op) {
    case EX_SET:
        return row_of_set(l, node.a);
    case EX_CAT: {
        const gram_row *row = append(l, gram_row_of(l, node.a), node.b);
        return l->nodes[node.a].nullable ? join(l, row, gram_row_of(l, node.b)) : row;
    }
    case EX_REP: {
        const uint32_t less = node.b == 0 ? 0 : node.b - 1;
        const uint32_t more = node.c == GRAM_INF ? GRAM_INF : node.c - 1;
        return append(l, gram_row_of(l, node.a), gram_ex_rep(l, node.a, less, more));
    }
    case EX_OR:
    case EX_AND:
        return row_of_list(l, e);
    case EX_NOT:
        return row_of_not(l, gram_row_of(l, node.a));
    case EX_WORDS:
        return row_of_words(l, e);
    default:
        return &nothing;
    }
}

const gram_row *gram_row_of(gram_lang *l, gram_ex e)
{
    if (l->nodes[e].row != NULL) {
        return l->nodes[e].row;
    }
    if (!gram_enter(l->mem)) {
        return &nothing;
    }
    const gram_row *row = compute(l, e);
    gram_leave(l->mem);
    if (gram_failed(l->mem)) {
        return &nothing;
    }
    l->nodes[e].row = row;
    return row;
}

gram_ex gram_step(gram_lang *l, gram_ex e, uint32_t c)
{
    const gram_row *row = gram_row_of(l, e);
    uint32_t from = 0;
    uint32_t to = row->n;
    while (from + 1 < to) { /* the first range that ends at c or later is in [from, to) */
        const uint32_t middle = from + (to - from) / 2;
        if (row->seg[middle - 1].last < c) {
            from = middle;
        } else {
            to = middle;
        }
    }
    return row->seg[from].to;
}

bool gram_ex_has(gram_lang *l, gram_ex e, const uint32_t *chars, uint32_t n)
{
    for (uint32_t i = 0; i < n && e != GRAM_EX_NONE; i++) {
        if (!gram_spend(l->mem, 1)) {
            return false;
        }
        e = gram_step(l, e, chars[i]);
    }
    return l->nodes[e].nullable;
}
