/* gram_tools.c - see gram_tools.h.
 *
 * The parameters of a strict tool come in any order, each at most once, and all that are required before the end.
 * That is a rule for each set of parameters that were there before; these rules are made when a text gets to them
 * (PART_LATER), so their number is that of the texts. */
#include "grammar/gram_tools.h"

/* --- Rules for sets of parameters --------------------------------------------------------------------------------- */

enum { NAMES, MORE }; /* a name follows; behind a parameter */

static uint32_t later_of(gram_toolbox *k, uint32_t tool_index, uint32_t what, const uint32_t *seen)
{
    const uint32_t n = gram_bit_words(k->list[tool_index].n);
    gram_stack *work = &k->l->work;
    const uint32_t base = work->n;
    bool is_new = false;
    (void)gram_push(k->g->mem, work, tool_index);
    (void)gram_push(k->g->mem, work, what);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(k->g->mem, work, seen != NULL ? seen[i] : 0);
    }
    const uint32_t id = gram_failed(k->g->mem) ? 0 : gram_tuple(k->g->mem, &k->laters, work->words + base, work->n - base, &is_new);
    work->n = base;
    if (is_new) {
        uint32_t *nts = gram_grow(k->g->mem, k->later_nts, id, &k->later_capacity, sizeof *nts);
        if (nts == NULL) {
            return 0;
        }
        k->later_nts = nts;
        nts[id] = 0;
    }
    return id;
}

/* The rule of a set, as a symbol. */
static gram_sym sym_of(gram_toolbox *k, uint32_t tool_index, uint32_t what, const uint32_t *seen)
{
    const uint32_t later = later_of(k, tool_index, what, seen);
    if (gram_failed(k->g->mem)) {
        return GRAM_SYM(SYM_END, 0);
    }
    if (k->later_nts[later] == 0) {
        const uint32_t nt = gram_cfg_new_nt(k->g);
        if (gram_failed(k->g->mem)) {
            return GRAM_SYM(SYM_END, 0);
        }
        k->g->nts[nt].later = later + 1;
        k->g->nts[nt].productive = true;
        k->later_nts[later] = nt + 1;
    }
    return GRAM_SYM(SYM_RULE, k->later_nts[later] - 1);
}

static void unfold(gram_cfg *g, uint32_t nt, uint32_t later)
{
    gram_toolbox *k = g->user;
    uint32_t n;
    const uint32_t *key = gram_tuple_at(&k->laters, later, &n);
    const uint32_t index = key[0];
    const gram_tool *t = &k->list[index];
    uint32_t *seen = gram_alloc(g->mem, (size_t)n - 1, sizeof *seen); /* what is known is kept, so this is small beside it */
    if (seen == NULL) {
        return;
    }
    memcpy(seen, key + 2, (n - 2) * sizeof *seen);
    bool complete = true;
    bool any = false;
    for (uint32_t i = 0; i < t->n && gram_spend(g->mem, 1); i++) {
        if (gram_has(seen, i)) {
            continue;
        }
        any = true;
        complete = complete && !t->params[i].required;
        if (key[1] == NAMES) {
            seen[i / 32] |= 1u << i % 32;
            const gram_sym syms[] = {gram_cfg_rule_sym(g, t->params[i].rule), sym_of(k, index, MORE, seen)};
            gram_cfg_put_alt(g, nt, syms, 2);
            seen[i / 32] &= ~(1u << i % 32);
        }
    }
    if (key[1] == NAMES) {
        return;
    }
    if (any) {
        const gram_sym syms[] = {k->next, k->token, k->name, sym_of(k, index, NAMES, seen)};
        gram_cfg_put_alt(g, nt, syms, 4);
    }
    if (complete) {
        const gram_sym syms[] = {k->close, k->token, k->closed};
        gram_cfg_put_alt(g, nt, syms, 3);
    }
}

/* --- Calls -------------------------------------------------------------------------------------------------------- */

/* Behind the line of a call's beginning: parameters and its end. */
static gram_part *parameters(gram_toolbox *k, size_t i)
{
    const di_grammar_tools *given = k->given;
    const bool strict = given->tools[i].strict;
    gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
    bool optional = true;
    for (uint32_t p = 0; p < k->list[i].n; p++) {
        optional = optional && !k->list[i].params[p].required;
    }
    if (optional) {
        gram_part *none = gram_part_new(k->g, PART_CAT, 0);
        gram_tool_add_mark(k, none, gram_tool_text(k, given->old_empty ? "</" : "\n</"), given->call, ">");
        gram_part_add(alt, none);
    }
    gram_part *some = gram_part_new(k->g, PART_CAT, 0);
    gram_tool_add_mark(k, some, gram_tool_text(k, "<"), given->parameter, " name=\"");
    if (strict && k->list[i].n != 0) {
        gram_part_add(some, gram_part_new(k->g, PART_LATER, later_of(k, (uint32_t)i, NAMES, NULL)));
        gram_part_add(alt, some);
    } else if (!strict) {
        const uint32_t quotes[] = {'"', '"'};
        const gram_ex name = gram_ex_rep(k->l, gram_ex_set(k->l, gram_set_not(k->l, gram_set_of(k->l, quotes, 1))), 1, GRAM_INF);
        const uint32_t one = gram_cfg_new_rule(k->g, gram_tool_values(k, name, GRAM_TRUE));
        gram_part *more = gram_part_new(k->g, PART_CAT, 0);
        gram_tool_add_mark(k, more, gram_tool_text(k, "\n<"), given->parameter, " name=\"");
        gram_part_add(more, gram_part_new(k->g, PART_RULE, one));
        gram_part_add(some, gram_part_new(k->g, PART_RULE, one));
        gram_part_add(some, gram_part_rep(k->g, more, 0, GRAM_INF));
        gram_tool_add_mark(k, some, gram_tool_text(k, "\n</"), given->call, ">");
        gram_part_add(alt, some);
    }
    return alt;
}

/* Behind "<" and the marker of a call. */
static uint32_t calls(gram_toolbox *k)
{
    const di_grammar_tools *given = k->given;
    gram_part *alt = gram_part_new(k->g, PART_ALT, 0);
    for (size_t i = 0; i < given->n_tools && !gram_failed(k->g->mem); i++) {
        if (given->tools[i].strict) {
            gram_tool_strict(k, i);
        }
        gram_part *one = gram_part_new(k->g, PART_CAT, 0);
        const gram_ex name = gram_ex_cat(k->l, gram_tool_text(k, given->tools[i].name), gram_tool_text(k, "\">\n"));
        gram_tool_add_text(k, one, gram_tool_cat(k, gram_tool_text(k, given->call), gram_tool_text(k, " name=\""), name));
        gram_part_add(one, gram_failed(k->g->mem) ? NULL : parameters(k, i));
        gram_part_add(alt, one);
    }
    return gram_cfg_new_rule(k->g, alt);
}

/* Calls up to the end of the block. */
static gram_part *block(gram_toolbox *k)
{
    const di_grammar_tools *given = k->given;
    const uint32_t call = calls(k);
    gram_part *all = gram_part_new(k->g, PART_CAT, 0);
    gram_tool_add_mark(k, all, gram_tool_text(k, "<"), "", "");
    gram_part_add(all, gram_part_new(k->g, PART_RULE, call));
    if (!given->single) {
        gram_part *more = gram_part_new(k->g, PART_CAT, 0);
        gram_tool_add_mark(k, more, gram_tool_text(k, "\n<"), "", "");
        gram_part_add(more, gram_part_new(k->g, PART_RULE, call));
        gram_part_add(all, gram_part_rep(k->g, more, 0, GRAM_INF));
    }
    gram_tool_add_mark(k, all, gram_tool_text(k, "\n</"), given->block, ">");
    return all;
}

static gram_sym text_sym(gram_toolbox *k, const char *a, const char *b)
{
    return GRAM_SYM(SYM_TEXT, gram_ex_cat(k->l, gram_tool_text(k, a), gram_tool_text(k, b)));
}

uint32_t gram_tools(gram_source *s, const di_grammar_tools *given, gram_part *answer)
{
    gram_cfg *g = s->cfg;
    gram_toolbox *k = gram_alloc(g->mem, 1, sizeof *k);
    gram_part *all = gram_part_new(g, PART_ALT, 0);
    if (given->choice == DI_TOOL_CHOICE_NONE) {
        gram_part_add(all, answer != NULL ? answer : gram_part_new(g, PART_TEXT, GRAM_EX_ANY));
        return gram_cfg_new_rule(g, all);
    }
    (void)gram_cfg_token(g, (gram_token_name){.id = -1, .spelling = given->marker, .n = strlen(given->marker)});
    gram_tool *list = gram_alloc(g->mem, given->n_tools, sizeof *list);
    if (k == NULL || list == NULL) {
        return 0;
    }
    *k = (gram_toolbox){.s = s, .g = g, .l = g->lang, .given = given, .list = list, .n_tools = (uint32_t)given->n_tools};
    k->token = GRAM_SYM(SYM_TOKEN, 0);
    k->next = text_sym(k, "\n<", "");
    k->name = text_sym(k, given->parameter, " name=\"");
    k->close = text_sym(k, "\n</", "");
    k->closed = text_sym(k, given->call, ">");
    g->unfold = unfold;
    g->user = k;
    gram_part *one = gram_part_new(g, PART_CAT, 0);
    const bool free = given->choice == DI_TOOL_CHOICE_AUTO && answer == NULL;
    if (given->choice == DI_TOOL_CHOICE_AUTO) {
        gram_part_add(all, answer != NULL ? answer : gram_part_new(g, PART_TEXT, GRAM_EX_ANY));
    }
    if (given->choice == DI_TOOL_CHOICE_AUTO || !given->opened) {
        gram_tool_add_mark(k, one, gram_ex_cat(k->l, free ? GRAM_EX_ANY : GRAM_EX_EPS, gram_tool_text(k, "\n\n<")), given->block, ">\n");
    }
    gram_part_add(one, block(k));
    gram_part_add(all, one);
    k->given = NULL;
    return gram_cfg_new_rule(g, all);
}
