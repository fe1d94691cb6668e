/* gram_cfg_alive.c - which rules of a flat grammar have texts at all, and which have the empty one. Linear in its size. */
#include "grammar/gram_cfg.h"

bool gram_sym_productive(gram_cfg *g, gram_sym sym)
{
    switch (GRAM_SYM_KIND(sym)) {
    case SYM_RULE:
        return g->nts[GRAM_SYM_ID(sym)].productive;
    case SYM_TEXT:
        return !gram_empty(g->lang, GRAM_SYM_ID(sym));
    case SYM_JSON: {
        gram_json *j = &g->m->json;
        return gram_sat(j, j->goals[GRAM_SYM_ID(sym)].form, gram_frame_levels(j, 0));
    }
    default:
        return true;
    }
}

/* Closes a property of rules over all alternatives: a rule has it when all symbols of one of its alternatives
 * have. Each pass over the symbols of an alternative stops at the first that has not, and goes on there when that
 * rule has got it. */
static void close_over(gram_cfg *g, bool nullable)
{
    uint32_t *waiting = gram_alloc(g->mem, (size_t)g->n_nts + 1, sizeof *waiting); /* first alternative that waits for a rule, + 1 */
    uint32_t *next = gram_alloc(g->mem, (size_t)g->n_alts + 1, sizeof *next);
    uint32_t *at = gram_alloc(g->mem, (size_t)g->n_alts + 1, sizeof *at);
    gram_stack todo = {0};
    for (uint32_t i = 0; i < g->n_alts && !gram_failed(g->mem); i++) {
        at[i] = g->alts[i].dot;
        (void)gram_push(g->mem, &todo, i);
    }
    while (todo.n > 0 && gram_spend(g->mem, 1)) {
        const uint32_t i = todo.words[--todo.n];
        gram_alt *alt = &g->alts[i];
        gram_sym sym;
        while ((sym = g->syms[at[i]]) != GRAM_SYM(SYM_END, 0) && (nullable ? gram_sym_nullable(g, sym) : gram_sym_productive(g, sym))) {
            at[i]++;
        }
        if (sym != GRAM_SYM(SYM_END, 0)) {
            if (GRAM_SYM_KIND(sym) == SYM_RULE) {
                next[i] = waiting[GRAM_SYM_ID(sym)];
                waiting[GRAM_SYM_ID(sym)] = i + 1;
            }
            continue;
        }
        gram_nt *nt = &g->nts[alt->lhs];
        alt->productive = alt->productive || !nullable;
        if (!(nullable ? nt->nullable : nt->productive)) {
            *(nullable ? &nt->nullable : &nt->productive) = true;
            for (uint32_t w = waiting[alt->lhs]; w != 0; w = next[w - 1]) {
                (void)gram_push(g->mem, &todo, w - 1);
            }
        }
    }
}

/* Alternatives without texts are taken out, so that nothing leads to a dead end. */
static void drop_dead(gram_cfg *g)
{
    for (uint32_t i = 0; i < g->n_nts; i++) {
        uint32_t *link = &g->nts[i].first_alt;
        while (*link != 0) {
            gram_alt *alt = &g->alts[*link - 1];
            if (alt->productive) {
                link = &alt->next;
            } else {
                *link = alt->next;
            }
        }
    }
}

void gram_cfg_drop_dead(gram_cfg *g)
{
    if (!gram_failed(g->mem)) {
        close_over(g, false);
    }
    if (!gram_failed(g->mem)) {
        close_over(g, true);
        drop_dead(g);
    }
}
