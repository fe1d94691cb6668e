/* gram_cfg_row.c - rows: which symbols may come at a place, and what waits for rules that begin there. See
 * gram_cfg.h. */
#include "grammar/gram_cfg.h"

#include <stdlib.h>

static int by_item(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;
    return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* Sorts the pairs words[0, n) and drops what comes twice. Returns the new n. */
static uint32_t sort_items(gram_mem *mem, uint32_t *words, uint32_t n)
{
    if (n <= 2 || !gram_spend(mem, n / 4)) {
        return n;
    }
    qsort(words, n / 2, 2 * sizeof *words, by_item);
    uint32_t kept = 2;
    for (uint32_t i = 2; i < n; i += 2) {
        if (words[i] != words[kept - 2] || words[i + 1] != words[kept - 1]) {
            words[kept] = words[i];
            words[kept + 1] = words[i + 1];
            kept += 2;
        }
    }
    return kept;
}

static void push_item(gram_cfg *g, gram_stack *s, uint32_t dot, uint32_t cont)
{
    (void)gram_push(g->mem, s, GRAM_SYM_KIND(g->syms[dot]) == SYM_END ? 0 : dot);
    (void)gram_push(g->mem, s, cont);
}

/* --- Continuations ------------------------------------------------------------------------------------------------ */

static uint32_t cont_of(gram_cfg *g, uint32_t row, uint32_t nt)
{
    bool is_new;
    const uint32_t id = gram_tuple(g->mem, &g->conts, (const uint32_t[]){row, nt}, 2, &is_new);
    if (is_new) {
        uint32_t *marks = gram_grow(g->mem, g->cont_marks, id, &g->cont_capacity, sizeof *marks);
        if (marks == NULL) {
            return 0;
        }
        g->cont_marks = marks;
        marks[id] = 0;
    }
    return id;
}

/* What waits for the rule of a continuation goes on. */
static void push_waits(gram_cfg *g, uint32_t cont)
{
    uint32_t n;
    const uint32_t *key = gram_tuple_at(&g->conts, cont, &n);
    const gram_cfg_row *row = &g->rows[key[0]];
    uint32_t from = 0;
    for (uint32_t to = row->n_nts; to - from > 1;) {
        const uint32_t middle = from + (to - from) / 2;
        if (row->nts[middle] <= key[1]) {
            from = middle;
        } else {
            to = middle;
        }
    }
    for (uint32_t i = row->firsts[from]; i < row->firsts[from + 1]; i++) {
        push_item(g, &g->raw, row->waits[i].dot, row->waits[i].cont);
    }
    (void)gram_spend(g->mem, 1 + (row->firsts[from + 1] - row->firsts[from]));
}

void gram_cfg_push_after(gram_cfg *g, uint32_t after)
{
    uint32_t n;
    const uint32_t *items = gram_tuple_at(&g->afters, after, &n);
    for (uint32_t i = 0; i < n && gram_push(g->mem, &g->raw, items[i]); i++) {
    }
}

bool gram_cfg_is_final(const gram_cfg *g, uint32_t after)
{
    uint32_t n;
    const uint32_t *items = gram_tuple_at(&g->afters, after, &n);
    return n == 2 && items[0] == 0 && items[1] == GRAM_CONT_END;
}

/* From raw items to those that wait for a symbol: ends of rules are followed, and symbols with an empty text
 * skipped. */
static bool expand(gram_cfg *g)
{
    bool accepts = false;
    g->search++;
    g->kernel.n = 0;
    while (g->raw.n > 0 && gram_spend(g->mem, 1)) {
        const uint32_t cont = g->raw.words[--g->raw.n];
        const uint32_t dot = g->raw.words[--g->raw.n];
        if (dot != 0) {
            push_item(g, &g->kernel, dot, cont);
            if (gram_sym_nullable(g, g->syms[dot])) {
                push_item(g, &g->raw, dot + 1, cont);
            }
        } else if (cont == GRAM_CONT_END) {
            accepts = true;
        } else if (g->cont_marks[cont] != g->search) {
            g->cont_marks[cont] = g->search;
            push_waits(g, cont);
        }
        if (g->kernel.n > 8 * GRAM_MAX_ITEMS) {
            g->kernel.n = sort_items(g->mem, g->kernel.words, g->kernel.n);
        }
        if (g->kernel.n > 8 * GRAM_MAX_ITEMS) {
            break;
        }
    }
    g->raw.n = 0;
    g->kernel.n = gram_failed(g->mem) ? 0 : sort_items(g->mem, g->kernel.words, g->kernel.n);
    if (g->kernel.n > 2 * GRAM_MAX_ITEMS) {
        gram_fail(g->mem, DI_E_LIMIT, "the grammar is too ambiguous: more than %u ways to go on at one place", GRAM_MAX_ITEMS);
    }
    return accepts;
}

/* --- Rows --------------------------------------------------------------------------------------------------------- */

static void add_wait(gram_cfg *g, gram_wait **list, uint32_t *n, uint32_t *capacity, gram_wait wait)
{
    gram_wait *grown = gram_grow(g->mem, *list, *n, capacity, sizeof *grown);
    if (grown != NULL) {
        *list = grown;
        grown[(*n)++] = wait;
    }
}

/* The symbol at a place waits: a rule begins here, if it has not yet. */
static void see(gram_cfg *g, uint32_t row, uint32_t dot, uint32_t source, bool local)
{
    const gram_sym sym = g->syms[dot];
    gram_wait wait = {sym, GRAM_SYM_KIND(g->syms[dot + 1]) == SYM_END ? 0 : dot + 1, source, local};
    (void)gram_spend(g->mem, 1);
    if (GRAM_SYM_KIND(sym) != SYM_RULE) {
        add_wait(g, &g->sym_waits, &g->n_sym_waits, &g->sym_wait_capacity, wait);
        return;
    }
    gram_nt *nt = &g->nts[GRAM_SYM_ID(sym)];
    if (nt->mark != row + 1) {
        nt->mark = row + 1;
        nt->local = g->local.n;
        (void)gram_push(g->mem, &g->local, GRAM_SYM_ID(sym));
    }
    wait.sym = nt->local;
    add_wait(g, &g->rule_waits, &g->n_rule_waits, &g->rule_wait_capacity, wait);
}

/* All that begins in a row: its items, and the alternatives of the rules that they wait for. */
static void begin_all(gram_cfg *g, uint32_t row)
{
    g->local.n = 0;
    g->n_rule_waits = 0;
    g->n_sym_waits = 0;
    for (uint32_t i = 0; i < g->kernel.n && !gram_failed(g->mem); i += 2) {
        see(g, row, g->kernel.words[i], g->kernel.words[i + 1], false);
    }
    for (uint32_t i = 0; i < g->local.n && !gram_failed(g->mem); i++) {
        const uint32_t nt = g->local.words[i];
        const uint32_t later = g->nts[nt].later;
        if (later != 0) {
            g->nts[nt].later = 0;
            g->unfold(g, nt, later - 1);
        }
        for (uint32_t a = g->nts[nt].first_alt; a != 0; a = g->alts[a - 1].next) {
            for (uint32_t dot = g->alts[a - 1].dot; GRAM_SYM_KIND(g->syms[dot]) != SYM_END; dot++) {
                see(g, row, dot, i, true);
                if (!gram_sym_nullable(g, g->syms[dot])) {
                    break;
                }
            }
        }
    }
}

#define OWN UINT32_MAX
#define CLASH (UINT32_MAX - 1)
#define TAIL_ROUNDS 8 /* chains of calls that are looked through; more would only save rows */

/* Which rules begun here have the continuation of their caller: targets[i] is a continuation, or OWN. */
static void find_tails(gram_cfg *g, uint32_t row)
{
    g->targets.n = 0;
    for (uint32_t i = 0; i < 2 * g->local.n; i++) {
        (void)gram_push(g->mem, &g->targets, OWN);
    }
    const uint32_t n = g->local.n;
    bool changed = !gram_failed(g->mem);
    for (int round = 0; changed && round < TAIL_ROUNDS && gram_spend(g->mem, g->n_rule_waits); round++) {
        uint32_t *target = g->targets.words;
        uint32_t *found = n > 0 ? target + n : target; /* without rules both are NULL */
        for (uint32_t i = 0; i < n; i++) {
            found[i] = OWN;
        }
        for (uint32_t i = 0; i < g->n_rule_waits; i++) {
            const gram_wait *w = &g->rule_waits[i];
            if (w->local && w->source == w->sym && w->dot == 0) {
                continue; /* it ends where it ends */
            }
            const uint32_t to = !w->local ? w->source : target[w->source];
            const bool tail = w->dot == 0 && to != OWN && (found[w->sym] == OWN || found[w->sym] == to);
            found[w->sym] = tail ? to : CLASH;
        }
        changed = false;
        for (uint32_t i = 0; i < n; i++) {
            if (target[i] == OWN && found[i] < CLASH) {
                target[i] = found[i];
                changed = true;
            }
        }
    }
    for (uint32_t i = 0; i < n && !gram_failed(g->mem); i++) {
        if (g->targets.words[i] == OWN) {
            g->targets.words[i] = cont_of(g, row, g->local.words[i]);
        }
    }
}

static int by_wait(const void *a, const void *b)
{
    const gram_wait *x = a;
    const gram_wait *y = b;
    if (x->sym != y->sym) {
        return x->sym < y->sym ? -1 : 1;
    }
    if (x->dot != y->dot) {
        return x->dot < y->dot ? -1 : 1;
    }
    return (x->source > y->source) - (x->source < y->source);
}

/* Sorts waits whose sources are continuations, and drops what comes twice. */
static uint32_t sort_waits(gram_cfg *g, gram_wait *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        list[i].source = list[i].local ? g->targets.words[list[i].source] : list[i].source;
        list[i].local = false;
    }
    if (n > 1 && gram_spend(g->mem, n)) {
        qsort(list, n, sizeof *list, by_wait);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || by_wait(&list[kept - 1], &list[i]) != 0) {
            list[kept++] = list[i];
        }
    }
    return kept;
}

static void keep_waits(gram_cfg *g, gram_cfg_row *row)
{
    for (uint32_t i = 0; i < g->n_rule_waits; i++) {
        g->rule_waits[i].sym = g->local.words[g->rule_waits[i].sym];
    }
    const uint32_t n = sort_waits(g, g->rule_waits, g->n_rule_waits);
    gram_item *items = gram_alloc(g->mem, (size_t)n + 1, sizeof *items);
    uint32_t *nts = gram_alloc(g->mem, (size_t)g->local.n + 1, sizeof *nts);
    uint32_t *firsts = gram_alloc(g->mem, (size_t)g->local.n + 1, sizeof *firsts);
    if (firsts == NULL || nts == NULL || items == NULL) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        const gram_wait *w = &g->rule_waits[i];
        if (i == 0 || w->sym != w[-1].sym) {
            nts[row->n_nts] = w->sym;
            firsts[row->n_nts++] = i;
        }
        items[i] = (gram_item){w->dot, w->source};
    }
    firsts[row->n_nts] = n;
    row->waits = items;
    row->nts = nts;
    row->firsts = firsts;
}

static void keep_starts(gram_cfg *g, gram_cfg_row *row)
{
    const uint32_t n = sort_waits(g, g->sym_waits, g->n_sym_waits);
    gram_start *starts = gram_alloc(g->mem, (size_t)n + 1, sizeof *starts);
    for (uint32_t i = 0, to = 0; starts != NULL && i < n && !gram_failed(g->mem); i = to) {
        g->kernel.n = 0;
        for (to = i; to < n && g->sym_waits[to].sym == g->sym_waits[i].sym; to++) {
            (void)gram_push(g->mem, &g->kernel, g->sym_waits[to].dot);
            (void)gram_push(g->mem, &g->kernel, g->sym_waits[to].source);
        }
        if (!gram_failed(g->mem)) {
            starts[row->n_starts++] = (gram_start){g->sym_waits[i].sym, gram_tuple(g->mem, &g->afters, g->kernel.words, g->kernel.n, NULL)};
        }
    }
    row->starts = starts;
}

uint32_t gram_cfg_row_of(gram_cfg *g)
{
    gram_stack *kernel = &g->kernel;
    const bool accepts = expand(g);
    (void)gram_push(g->mem, kernel, accepts);
    if (gram_failed(g->mem)) {
        return 0;
    }
    bool is_new;
    const uint32_t id = gram_tuple(g->mem, &g->row_keys, kernel->words, kernel->n, &is_new);
    kernel->n--;
    if (!is_new) {
        return id;
    }
    gram_cfg_row *rows = gram_grow(g->mem, g->rows, id, &g->row_capacity, sizeof *rows);
    if (rows == NULL) {
        return 0;
    }
    g->rows = rows;
    gram_cfg_row row = {.accepts = accepts};
    begin_all(g, id);
    find_tails(g, id);
    if (!gram_failed(g->mem)) {
        keep_waits(g, &row);
        keep_starts(g, &row);
    }
    g->rows[id] = row;
    return id;
}
