/* gram_cfg_make.c - from the trees of a grammar to rules of symbols: what is regular becomes expressions, the rest
 * is made flat; then which rules have texts at all, and which have the empty one. All of it is linear in the size
 * of the grammar. */
#include "grammar/gram_cfg.h"

typedef struct maker {
    gram_cfg *g;
    gram_mem *mem;
    uint32_t *users;       /* [n] pairs of a rule and the next entry, + 1: rules that use a rule */
    uint32_t *first_user;  /* [n_rules] entry + 1 */
    uint32_t n_users;
    uint32_t user_capacity;
    uint32_t *open;        /* [n_rules] uses of rules that are not known to be regular */
    gram_stack out;        /* symbols of the alternatives being made */
    gram_ex text;          /* that stands behind them and is not put yet: neighbours become one */
} maker;

/* --- Regular parts ------------------------------------------------------------------------------------------------ */

static bool is_text(gram_part_kind kind) { return kind != PART_JSON && kind != PART_TOKEN && kind != PART_LATER; }

/* Counts uses of rules in a tree, and whether it has parts that no expression can stand for. */
static bool scan(maker *k, const gram_part *t, uint32_t rule)
{
    bool only_texts = is_text(t->kind);
    if (t->kind == PART_RULE) {
        k->users = gram_grow(k->mem, k->users, k->n_users, &k->user_capacity, 2 * sizeof *k->users);
        if (k->users == NULL) {
            return false;
        }
        k->users[2 * k->n_users] = rule;
        k->users[2 * k->n_users + 1] = k->first_user[t->id];
        k->first_user[t->id] = ++k->n_users;
        k->open[rule]++;
    }
    for (const gram_part *kid = t->first; kid != NULL && gram_spend(k->mem, 1); kid = kid->next) {
        only_texts = scan(k, kid, rule) && only_texts;
    }
    return only_texts;
}

/* The expression of a tree whose rules are all regular and known. */
static gram_ex expression(gram_cfg *g, const gram_part *t)
{
    gram_lang *l = g->lang;
    gram_ex e = t->kind == PART_CAT ? GRAM_EX_EPS : GRAM_EX_NONE;
    const uint32_t base = l->work.n;
    (void)gram_spend(g->mem, 1);
    switch (t->kind) {
    case PART_TEXT:
        return t->id;
    case PART_RULE:
        return g->rules[t->id].ex;
    case PART_REP:
        return gram_ex_rep(l, expression(g, t->first), t->min, t->max);
    case PART_NOT:
        return gram_ex_not(l, expression(g, t->first));
    default:
        for (const gram_part *kid = t->first; kid != NULL; kid = kid->next) {
            (void)gram_push(g->mem, &l->work, expression(g, kid));
        }
        if (gram_failed(g->mem)) {
            return GRAM_EX_NONE;
        }
        if (t->kind != PART_CAT) {
            e = (t->kind == PART_ALT ? gram_ex_or : gram_ex_and)(l, l->work.words + base, l->work.n - base);
        }
        while (t->kind == PART_CAT && l->work.n > base) { /* from the right: the tails are shared */
            e = gram_ex_cat(l, l->work.words[--l->work.n], e);
        }
        l->work.n = base;
        return e;
    }
}

/* A rule is regular when its tree has only texts and regular rules. Those that lead back to themselves never get
 * there. */
static void find_regular(maker *k)
{
    gram_cfg *g = k->g;
    gram_stack ready = {0};
    for (uint32_t i = 0; i < g->n_rules; i++) {
        const bool only_texts = scan(k, g->rules[i].body, i);
        k->open[i] += !only_texts;
        if (k->open[i] == 0) {
            (void)gram_push(k->mem, &ready, i);
        }
    }
    while (ready.n > 0 && !gram_failed(k->mem)) {
        const uint32_t rule = ready.words[--ready.n];
        g->rules[rule].regular = true;
        g->rules[rule].ex = expression(g, g->rules[rule].body);
        for (uint32_t u = k->first_user[rule]; u != 0; u = k->users[2 * (u - 1) + 1]) {
            const uint32_t user = k->users[2 * (u - 1)];
            if (--k->open[user] == 0) {
                (void)gram_push(k->mem, &ready, user);
            }
        }
    }
}

static bool mark_regular(gram_cfg *g, gram_part *t)
{
    t->regular = t->kind == PART_RULE ? g->rules[t->id].regular : is_text(t->kind);
    for (gram_part *kid = t->first; kid != NULL; kid = kid->next) {
        t->regular = mark_regular(g, kid) && t->regular;
    }
    return t->regular;
}

/* --- Flat rules --------------------------------------------------------------------------------------------------- */

uint32_t gram_cfg_new_nt(gram_cfg *g)
{
    gram_nt *nts = gram_grow(g->mem, g->nts, g->n_nts, &g->nt_capacity, sizeof *nts);
    if (nts == NULL) {
        return 0;
    }
    g->nts = nts;
    nts[g->n_nts] = (gram_nt){0};
    return g->n_nts++;
}

static void put_sym(gram_cfg *g, gram_sym sym)
{
    if (g->n_syms >= GRAM_MAX_SYMBOLS) {
        gram_fault(g->mem, DI_E_LIMIT, "limit_exceeded", -1, "the grammar has more than %u symbols", GRAM_MAX_SYMBOLS);
        return;
    }
    gram_sym *syms = gram_grow(g->mem, g->syms, g->n_syms, &g->sym_capacity, sizeof *syms);
    if (syms != NULL) {
        g->syms = syms;
        syms[g->n_syms++] = sym;
    }
}

static void flush(maker *k)
{
    if (k->text != GRAM_EX_EPS) {
        (void)gram_push(k->mem, &k->out, GRAM_SYM(SYM_TEXT, k->text));
    }
    k->text = GRAM_EX_EPS;
}

static void put(maker *k, gram_sym sym)
{
    flush(k);
    (void)gram_push(k->mem, &k->out, sym);
}

static void put_text(maker *k, gram_ex e) { k->text = gram_ex_cat(k->g->lang, k->text, e); }

gram_sym gram_cfg_rule_sym(const gram_cfg *g, uint32_t rule)
{
    return g->rules[rule].regular ? GRAM_SYM(SYM_TEXT, g->rules[rule].ex) : GRAM_SYM(SYM_RULE, g->rules[rule].nt);
}

void gram_cfg_put_alt(gram_cfg *g, uint32_t nt, const gram_sym *syms, uint32_t n)
{
    gram_alt *alts = gram_grow(g->mem, g->alts, g->n_alts, &g->alt_capacity, sizeof *alts);
    if (alts == NULL) {
        return;
    }
    g->alts = alts;
    alts[g->n_alts] = (gram_alt){g->n_syms, nt, g->nts[nt].first_alt, false};
    g->nts[nt].first_alt = ++g->n_alts;
    for (uint32_t i = 0; i < n; i++) {
        put_sym(g, syms[i]);
    }
    put_sym(g, GRAM_SYM(SYM_END, 0));
}

/* The symbols out[base, n) become an alternative of a rule. */
static void add_alt(maker *k, uint32_t nt, uint32_t base)
{
    flush(k);
    gram_cfg_put_alt(k->g, nt, k->out.words + base, k->out.n - base);
    k->out.n = base;
}

static void put_tree(maker *k, const gram_part *t);
static void fill_rule(maker *k, uint32_t nt, const gram_part *t);

/* One symbol for a tree. */
static gram_sym symbol_of(maker *k, const gram_part *t)
{
    flush(k);
    const uint32_t base = k->out.n;
    put_tree(k, t);
    flush(k);
    gram_sym sym = k->out.n == base + 1 ? k->out.words[base] : 0;
    if (k->out.n != base + 1) {
        const uint32_t nt = gram_cfg_new_nt(k->g);
        add_alt(k, nt, base);
        sym = GRAM_SYM(SYM_RULE, nt);
    }
    k->out.n = base;
    return sym;
}

/* Repetitions to the left: the parser handles them in constant space. */
static void put_rep(maker *k, const gram_part *t)
{
    gram_cfg *g = k->g;
    const gram_sym sym = symbol_of(k, t->first);
    for (uint32_t i = 0; i < t->min && gram_spend(k->mem, 1) && k->out.n < GRAM_MAX_SYMBOLS; i++) {
        put(k, sym);
    }
    gram_sym more = 0;
    if (t->max == GRAM_INF) {
        more = GRAM_SYM(SYM_RULE, gram_cfg_new_nt(g));
        add_alt(k, GRAM_SYM_ID(more), k->out.n);
        const uint32_t base = k->out.n;
        put(k, more);
        put(k, sym);
        add_alt(k, GRAM_SYM_ID(more), base);
    }
    for (uint32_t i = t->min; t->max != GRAM_INF && i < t->max && gram_spend(k->mem, 4); i++) {
        const uint32_t nt = gram_cfg_new_nt(g);
        const uint32_t base = k->out.n;
        add_alt(k, nt, base);
        put(k, sym);
        if (more != 0) {
            put(k, more);
        }
        add_alt(k, nt, base);
        more = GRAM_SYM(SYM_RULE, nt);
    }
    if (more != 0) {
        put(k, more);
    }
}

/* Pushes the symbols of a tree. */
static void put_tree(maker *k, const gram_part *t)
{
    if (gram_failed(k->mem)) {
        return;
    }
    if (t->regular) {
        put_text(k, expression(k->g, t));
        return;
    }
    switch (t->kind) {
    case PART_RULE:
        put(k, gram_cfg_rule_sym(k->g, t->id));
        break;
    case PART_JSON:
        put(k, GRAM_SYM(SYM_JSON, t->id));
        break;
    case PART_TOKEN:
        put(k, GRAM_SYM(SYM_TOKEN, t->id));
        break;
    case PART_LATER: {
        const uint32_t nt = gram_cfg_new_nt(k->g);
        if (!gram_failed(k->mem)) {
            k->g->nts[nt].later = t->id + 1;
            k->g->nts[nt].productive = true;
            put(k, GRAM_SYM(SYM_RULE, nt));
        }
        break;
    }
    case PART_AND:
    case PART_NOT:
        gram_fault(k->mem, DI_E_UNSUPPORTED, "invalid_grammar", -1,
                   "intersections and complements of rules that are recursive, or have JSON or tokens in them, are not supported");
        break;
    case PART_CAT:
        for (const gram_part *kid = t->first; kid != NULL; kid = kid->next) {
            put_tree(k, kid);
        }
        break;
    case PART_REP:
        put_rep(k, t);
        break;
    default: {
        const uint32_t nt = gram_cfg_new_nt(k->g);
        flush(k);
        fill_rule(k, nt, t);
        put(k, GRAM_SYM(SYM_RULE, nt));
        break;
    }
    }
}

/* The alternatives of a rule. Those that are texts become one. */
static void fill_rule(maker *k, uint32_t nt, const gram_part *t)
{
    const uint32_t base = k->out.n;
    gram_ex texts = GRAM_EX_NONE;
    for (const gram_part *kid = t->kind == PART_ALT ? t->first : t; kid != NULL && gram_spend(k->mem, 1); kid = kid->next) {
        if (kid->regular) {
            texts = gram_ex_or2(k->g->lang, texts, expression(k->g, kid));
        } else {
            put_tree(k, kid);
            add_alt(k, nt, base);
        }
        if (t->kind != PART_ALT) {
            break;
        }
    }
    if (texts != GRAM_EX_NONE) {
        put_text(k, texts);
        add_alt(k, nt, base);
    }
}

/* --- All ----------------------------------------------------------------------------------------------------------- */

static void make_flat(maker *k)
{
    gram_cfg *g = k->g;
    put_sym(g, GRAM_SYM(SYM_END, 0));
    for (uint32_t i = 0; i < g->n_rules; i++) {
        if (!g->rules[i].regular) {
            g->rules[i].nt = gram_cfg_new_nt(g);
        }
    }
    for (uint32_t i = 0; i < g->n_rules && !gram_failed(k->mem); i++) {
        if (!g->rules[i].regular) {
            (void)mark_regular(g, g->rules[i].body);
            fill_rule(k, g->rules[i].nt, g->rules[i].body);
        }
    }
}

static bool is_defined(const gram_cfg *g)
{
    for (uint32_t i = 0; i < g->n_rules; i++) {
        if (g->rules[i].body == NULL) {
            uint32_t n;
            const uint32_t *name = gram_tuple_at(&g->rule_names, i, &n);
            while (n > 0 && *name++ != (uint32_t)':' && n-- > 0) { /* behind the scope */
            }
            n -= n > 0;
            char text[64];
            n = n < sizeof text - 1 ? n : sizeof text - 1;
            for (uint32_t b = 0; b < n; b++) {
                text[b] = (char)name[b];
            }
            text[n] = '\0';
            gram_fault(g->mem, DI_E_FORMAT, "undefined_rule", g->rules[i].offset, "rule '%s' is used and not defined", text);
            return false;
        }
    }
    return true;
}

bool gram_cfg_finish(gram_cfg *g, uint32_t root, gram_pos *out)
{
    maker k = {.g = g, .mem = g->mem, .text = GRAM_EX_EPS};
    k.first_user = gram_alloc(g->mem, (size_t)g->n_rules + 1, sizeof *k.first_user);
    k.open = gram_alloc(g->mem, (size_t)g->n_rules + 1, sizeof *k.open);
    if (gram_failed(g->mem) || !is_defined(g)) {
        return false;
    }
    find_regular(&k);
    if (gram_failed(g->mem)) {
        return false;
    }
    make_flat(&k);
    if (!gram_failed(g->mem)) {
        gram_cfg_drop_dead(g);
    }
    const gram_sym start = gram_cfg_rule_sym(g, root);
    if (gram_failed(g->mem)) {
        return false;
    }
    if (!gram_sym_productive(g, start)) {
        gram_fault(g->mem, DI_E_FORMAT, "invalid_grammar", -1, "no text satisfies the grammar");
        return false;
    }
    const uint32_t dot = g->n_syms;
    put_sym(g, start);
    put_sym(g, GRAM_SYM(SYM_END, 0));
    return gram_cfg_start(g, dot, out);
}
