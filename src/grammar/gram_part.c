/* gram_part.c - the trees of a grammar's rules, and names. */
#include "grammar/gram_cfg.h"

gram_cfg *gram_cfg_new(gram_machine *m)
{
    gram_cfg *g = gram_alloc(m->mem, 1, sizeof *g);
    if (g != NULL) {
        *g = (gram_cfg){.m = m, .mem = m->mem, .lang = m->lang};
        m->cfg = g;
        (void)gram_tuple(g->mem, &g->conts, NULL, 0, NULL);
        g->cont_marks = gram_grow(g->mem, NULL, 0, &g->cont_capacity, sizeof *g->cont_marks);
        (void)gram_tuple(g->mem, &g->ctxs, NULL, 0, NULL);
    }
    return gram_failed(m->mem) ? NULL : g;
}

gram_part *gram_part_new(gram_cfg *g, gram_part_kind kind, uint32_t id)
{
    gram_part *t = gram_alloc(g->mem, 1, sizeof *t);
    if (t != NULL) {
        t->kind = kind;
        t->id = id;
        (void)gram_spend(g->mem, 1);
    }
    return t;
}

gram_part *gram_part_text(gram_cfg *g, const char *utf8, size_t n)
{
    return gram_part_new(g, PART_TEXT, gram_ex_text(g->lang, utf8, n));
}

gram_part *gram_part_rep(gram_cfg *g, gram_part *kid, uint32_t min, uint32_t max)
{
    gram_part *t = gram_part_new(g, PART_REP, 0);
    if (t != NULL) {
        t->min = min;
        t->max = max;
        gram_part_add(t, kid);
    }
    return t;
}

void gram_part_add(gram_part *parent, gram_part *kid)
{
    if (parent == NULL || kid == NULL) {
        return;
    }
    if (parent->last != NULL) {
        parent->last->next = kid;
    } else {
        parent->first = kid;
    }
    parent->last = kid;
}

static uint32_t add_rule(gram_cfg *g, gram_rule rule)
{
    if (g->n_rules >= GRAM_MAX_RULES) {
        gram_fault(g->mem, DI_E_LIMIT, "limit_exceeded", rule.offset, "the grammar has more than %u rules", GRAM_MAX_RULES);
        return 0;
    }
    gram_rule *rules = gram_grow(g->mem, g->rules, g->n_rules, &g->rule_capacity, sizeof *rules);
    if (rules == NULL) {
        return 0;
    }
    g->rules = rules;
    rules[g->n_rules] = rule;
    return g->n_rules++;
}

uint32_t gram_cfg_rule(gram_cfg *g, const char *name, size_t n, int64_t offset)
{
    uint32_t *key = gram_alloc(g->mem, n + 1, sizeof *key);
    if (key == NULL) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        key[i] = (uint8_t)name[i];
    }
    bool is_new;
    const uint32_t id = gram_tuple(g->mem, &g->rule_names, key, (uint32_t)n, &is_new);
    if (is_new) {
        (void)add_rule(g, (gram_rule){.offset = offset});
    }
    return id;
}

uint32_t gram_cfg_new_rule(gram_cfg *g, gram_part *body)
{
    const uint32_t key[] = {256, g->n_rules}; /* no byte, so no name */
    if (gram_tuple(g->mem, &g->rule_names, key, 2, NULL) != g->n_rules) {
        return 0;
    }
    return add_rule(g, (gram_rule){.body = body, .offset = -1});
}

uint32_t gram_cfg_token(gram_cfg *g, gram_token_name name)
{
    for (uint32_t i = 0; i < g->n_tokens; i++) {
        const gram_token_name *one = &g->tokens[i];
        if (name.spelling == NULL ? one->spelling == NULL && one->id == name.id
                                  : one->spelling != NULL && one->n == name.n && memcmp(one->spelling, name.spelling, name.n) == 0) {
            return i;
        }
    }
    if (g->n_tokens >= GRAM_MAX_TOKENS || !gram_spend(g->mem, g->n_tokens)) {
        gram_fault(g->mem, DI_E_LIMIT, "limit_exceeded", -1, "the grammar names more than %u tokens", GRAM_MAX_TOKENS);
        return 0;
    }
    char *copy = name.spelling != NULL ? gram_alloc(g->mem, name.n + 1, 1) : NULL;
    gram_token_name *tokens = gram_grow(g->mem, g->tokens, g->n_tokens, &g->token_capacity, sizeof *tokens);
    if (tokens == NULL || (name.spelling != NULL && copy == NULL)) {
        return 0;
    }
    g->tokens = tokens;
    if (copy != NULL) {
        memcpy(copy, name.spelling, name.n);
        name.spelling = copy;
    }
    tokens[g->n_tokens] = name;
    return g->n_tokens++;
}
