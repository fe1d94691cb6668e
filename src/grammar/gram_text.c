/* gram_text.c - see gram_text.h. */
#include "grammar/gram_text.h"

#define MAX_EXPLORED 200 /* states of an expression that are looked at for gaps between lengths */

void gram_texts_init(gram_texts *t, gram_mem *mem, gram_forms *forms, gram_lexes *lexes)
{
    *t = (gram_texts){.mem = mem, .forms = forms, .lexes = lexes};
}

/* --- Formulas to expressions -------------------------------------------------------------------------------------- */

/* Exactly one of the kids: the union over i of kid i without all others. */
static gram_ex exactly_one(gram_texts *t, const gram_form *kids, uint32_t n)
{
    gram_lang *l = t->forms->lang;
    gram_ex once = GRAM_EX_NONE;  /* in one of the kids so far */
    gram_ex twice = GRAM_EX_NONE; /* in two or more */
    for (uint32_t i = 0; i < n && !gram_failed(t->mem); i++) {
        const gram_ex e = gram_text_ex(t, kids[i]);
        twice = gram_ex_or2(l, twice, gram_ex_and2(l, gram_ex_or2(l, once, twice), e));
        once = gram_ex_or2(l, once, e);
    }
    return gram_ex_and2(l, once, gram_ex_not(l, twice));
}

static gram_ex compute_ex(gram_texts *t, gram_form x)
{
    gram_forms *f = t->forms;
    gram_lang *l = f->lang;
    const gram_op op = gram_form_op(f, x);
    if (op == FO_FALSE || op == FO_TRUE) {
        return op == FO_TRUE ? GRAM_EX_ANY : GRAM_EX_NONE;
    }
    if (op == FO_ATOM) {
        const uint32_t *w = gram_atom_words(f, x);
        return gram_atom_kind(f, x) == AT_RE ? w[0] : gram_ex_rep(l, GRAM_EX_CHAR, w[0], w[1]);
    }
    uint32_t n;
    const gram_form *kids = gram_form_kids(f, x, &n);
    if (op == FO_ONE) {
        return exactly_one(t, kids, n);
    }
    if (op == FO_NOT) {
        return gram_ex_not(l, gram_text_ex(t, kids[0]));
    }
    const uint32_t base = l->work.n;
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(t->mem, &l->work, gram_text_ex(t, kids[i]));
    }
    /* The list stays on the stack during the call; if that grows, the old memory stays as it is. */
    const gram_ex *list = l->work.words + base;
    const gram_ex e = op == FO_AND ? gram_ex_and(l, list, l->work.n - base) : gram_ex_or(l, list, l->work.n - base);
    l->work.n = base;
    return e;
}

gram_ex gram_text_ex(gram_texts *t, gram_form form)
{
    const uint32_t known = gram_tuple_find(t->mem, &t->exs, &form, 1);
    if (known != GRAM_NONE) {
        return t->ex_values[known];
    }
    if (!gram_enter(t->mem)) {
        return GRAM_EX_NONE;
    }
    const gram_ex e = compute_ex(t, form);
    gram_leave(t->mem);
    const uint32_t id = gram_tuple(t->mem, &t->exs, &form, 1, NULL);
    gram_ex *values = gram_grow(t->mem, t->ex_values, id, &t->ex_capacity, sizeof *values);
    if (values == NULL || gram_failed(t->mem)) {
        return GRAM_EX_NONE;
    }
    t->ex_values = values;
    values[id] = e;
    return e;
}

/* --- Plans -------------------------------------------------------------------------------------------------------- */

typedef struct kinds {
    const gram_forms *forms;
    bool expressions;
    bool lengths;
    uint32_t bound; /* largest finite one of the lengths */
} kinds;

static void see_atom(void *user, gram_form atom)
{
    kinds *seen = user;
    const uint32_t *w = gram_atom_words(seen->forms, atom);
    if (gram_atom_kind(seen->forms, atom) == AT_RE) {
        seen->expressions = true;
        return;
    }
    seen->lengths = true;
    seen->bound = w[0] > seen->bound ? w[0] : seen->bound;
    seen->bound = w[1] != GRAM_INF && w[1] > seen->bound ? w[1] : seen->bound;
}

typedef struct length {
    const gram_forms *forms;
    uint32_t n;
} length;

static gram_truth fits(void *user, gram_form atom)
{
    const length *of = user;
    const uint32_t *w = gram_atom_words(of->forms, atom);
    return of->n >= w[0] && of->n <= w[1] ? GRAM_SURE : GRAM_NO_WAY;
}

static bool holds(const gram_texts *t, gram_form x, uint32_t n)
{
    length of = {t->forms, n};
    return gram_form_truth(t->forms, x, fits, &of) == GRAM_SURE;
}

typedef struct last_fit {
    gram_texts *t;
    gram_form goal;
    uint32_t found; /* + 1; 0 = none */
} last_fit;

static void try_length(last_fit *best, uint32_t n)
{
    if (n + 1 > best->found && holds(best->t, best->goal, n)) {
        best->found = n + 1;
    }
}

/* The truth changes at the bounds of atoms only. */
static void try_bounds(void *user, gram_form atom)
{
    last_fit *best = user;
    const uint32_t *w = gram_atom_words(best->t->forms, atom);
    try_length(best, w[0]);
    if (w[0] > 0) {
        try_length(best, w[0] - 1);
    }
    if (w[1] != GRAM_INF) {
        try_length(best, w[1]);
        try_length(best, w[1] + 1);
    }
}

/* The least length when lengths from there to the greatest all fit, and no shorter one does; GRAM_INF when that is not plain to see. */
static uint32_t least_length(const gram_texts *t, const gram_text_plan *plan)
{
    const gram_forms *f = t->forms;
    const bool many = gram_form_op(f, plan->goal) == FO_AND;
    uint32_t n = 1;
    const gram_form *kids = many ? gram_form_kids(f, plan->goal, &n) : &plan->goal;
    uint32_t least = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (plan->n != 0 || gram_form_op(f, kids[i]) != FO_ATOM) {
            return GRAM_INF;
        }
        const uint32_t min = gram_atom_words(f, kids[i])[0];
        least = min > least ? min : least;
    }
    return least;
}

static void plan_lengths(gram_texts *t, gram_text_plan *plan, uint32_t bound)
{
    last_fit best = {t, plan->goal, 0};
    plan->lengths_only = true;
    if (holds(t, plan->goal, bound + 1)) {
        plan->span.max = GRAM_INF;
    } else {
        try_length(&best, 0);
        gram_form_each_atom(t->forms, plan->goal, try_bounds, &best);
        if (best.found == 0) {
            return;
        }
        plan->span = (gram_span){0, best.found - 1};
    }
    plan->span.min = least_length(t, plan);
    plan->span_id = gram_span_id(t->lexes, plan->span);
    plan->vec = gram_vec_id(t->lexes, &(const gram_ex){GRAM_EX_ANY}, 1, false);
}

/* Whether e, and whatever is left of it behind any beginning, has texts of all lengths between its shortest and its longest, and either
 * there is no longest one or no least length is asked for. */
static bool is_dense(gram_texts *t, gram_ex e, gram_span span)
{
    gram_lang *l = t->forms->lang;
    const uint32_t base = l->work.n;
    (void)gram_push(t->mem, &l->work, e);
    bool dense = true;
    for (uint32_t at = base; dense && at < l->work.n; at++) {
        const gram_lengths lengths = gram_lengths_of(l, l->work.words[at]);
        dense = lengths.dense && (lengths.max == GRAM_INF || span.min == 0) && l->work.n - base <= MAX_EXPLORED;
        const gram_row *row = gram_row_of(l, l->work.words[at]);
        for (uint32_t i = 0; dense && i < row->n; i++) {
            bool seen = row->seg[i].to == GRAM_EX_NONE;
            for (uint32_t k = base; !seen && k < l->work.n; k++) {
                seen = l->work.words[k] == row->seg[i].to;
            }
            if (!seen) {
                (void)gram_push(t->mem, &l->work, row->seg[i].to);
            }
        }
        dense = dense && gram_spend(t->mem, 1 + row->n);
    }
    l->work.n = base;
    return dense;
}

/* A conjunction of expressions and lengths, when the expression is dense. */
static bool plan_both(gram_texts *t, gram_text_plan *plan)
{
    gram_forms *f = t->forms;
    if (gram_form_op(f, plan->goal) != FO_AND || plan->n != 0) {
        return false;
    }
    uint32_t n;
    const gram_form *kids = gram_form_kids(f, plan->goal, &n);
    gram_span span = {0, GRAM_INF};
    gram_ex e = GRAM_EX_ANY;
    for (uint32_t i = 0; i < n; i++) {
        kinds seen = {.forms = f};
        gram_form_each_atom(f, kids[i], see_atom, &seen);
        if (gram_form_op(f, kids[i]) == FO_ATOM && gram_atom_kind(f, kids[i]) == AT_LEN) {
            const uint32_t *w = gram_atom_words(f, kids[i]);
            span.min = w[0] > span.min ? w[0] : span.min;
            span.max = w[1] < span.max ? w[1] : span.max;
        } else if (seen.lengths) {
            return false;
        } else {
            e = gram_ex_and2(f->lang, e, gram_text_ex(t, kids[i]));
        }
    }
    if (span.min > span.max || gram_empty(f->lang, e) || !is_dense(t, e, span)) {
        return false;
    }
    const gram_lengths lengths = gram_lengths_of(f->lang, e);
    if (lengths.min > span.max || lengths.max < span.min) {
        return true; /* nothing fits: the vector stays dead */
    }
    plan->span = span;
    plan->span_id = gram_span_id(t->lexes, span);
    plan->vec = gram_vec_id(t->lexes, &e, 1, false);
    return true;
}

static void plan_expressions(gram_texts *t, gram_text_plan *plan)
{
    gram_lang *l = t->forms->lang;
    const uint32_t base = l->work.n;
    const gram_ex goal = gram_text_ex(t, plan->goal);
    for (uint32_t i = 0; i < plan->n; i++) {
        (void)gram_push(t->mem, &l->work, gram_text_ex(t, plan->observed[i]));
    }
    if (gram_push(t->mem, &l->work, 0)) { /* room for the goal in front */
        gram_ex *list = l->work.words + base;
        memmove(list + 1, list, plan->n * sizeof *list);
        list[0] = goal;
        plan->vec = gram_vec_id(t->lexes, list, plan->n + 1, false);
    }
    l->work.n = base;
}

uint32_t gram_text_plan_of(gram_texts *t, gram_form goal, const gram_form *observed, uint32_t n)
{
    gram_stack *work = &t->forms->lang->work;
    const uint32_t base = work->n;
    (void)gram_push(t->mem, work, goal);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(t->mem, work, observed[i]);
    }
    bool is_new;
    const uint32_t id = gram_tuple(t->mem, &t->plan_keys, work->words + base, work->n - base, &is_new);
    work->n = base;
    if (!is_new) {
        return id;
    }
    gram_text_plan *plans = gram_grow(t->mem, t->plans, id, &t->plan_capacity, sizeof *plans);
    if (plans == NULL) {
        return 0;
    }
    t->plans = plans;
    plans[id] = (gram_text_plan){.goal = goal, .observed = t->plan_keys.at[id] + 2, .n = n, .span = {0, GRAM_INF}};
    kinds seen = {.forms = t->forms};
    gram_form_each_atom(t->forms, goal, see_atom, &seen);
    for (uint32_t i = 0; i < n; i++) {
        gram_form_each_atom(t->forms, observed[i], see_atom, &seen);
    }
    if (!seen.expressions && seen.lengths) {
        plan_lengths(t, &plans[id], seen.bound);
    } else if (!seen.lengths || !plan_both(t, &plans[id])) {
        plan_expressions(t, &plans[id]);
    }
    return id;
}

uint32_t gram_text_start(gram_texts *t, uint32_t plan, gram_mode mode)
{
    const gram_text_plan *p = &t->plans[plan];
    return gram_chars_state(t->lexes, mode, p->vec, p->span_id);
}

static const gram_ex *rests(const gram_texts *t, uint32_t lex)
{
    return t->lexes->vecs[gram_lex_at(t->lexes, lex)->words[1]].ex;
}

bool gram_text_complete(gram_texts *t, uint32_t plan, uint32_t lex, uint32_t n)
{
    const gram_text_plan *p = &t->plans[plan];
    if (p->lengths_only) {
        return holds(t, p->goal, n);
    }
    return gram_nullable(t->forms->lang, rests(t, lex)[0]) && n >= p->span.min && n <= p->span.max;
}

bool gram_text_observe(gram_texts *t, uint32_t plan, uint32_t lex, uint32_t n, uint32_t i)
{
    const gram_text_plan *p = &t->plans[plan];
    return p->lengths_only ? holds(t, p->observed[i], n) : gram_nullable(t->forms->lang, rests(t, lex)[1 + i]);
}
