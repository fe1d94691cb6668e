/* gram_goal.c - goals: their plans by type, whether they can be satisfied, and what a finished scalar says. */
#include "grammar/gram_json.h"

bool gram_json_init(gram_json *j, gram_mem *mem, gram_forms *forms, gram_lexes *lexes)
{
    *j = (gram_json){.mem = mem, .forms = forms, .lang = forms->lang, .lexes = lexes};
    gram_nums_init(&j->nums, mem, forms);
    gram_texts_init(&j->texts, mem, forms, lexes);
    (void)gram_tuple(mem, &j->bits, NULL, 0, NULL); /* 0: nothing was observed */
    return gram_used_init(&j->used, mem) && !gram_failed(mem);
}

uint32_t gram_observed_key(gram_json *j, gram_tuples *keys, gram_form form, const gram_form *observed, uint32_t n, bool *is_new)
{
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    (void)gram_push(j->mem, work, form);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(j->mem, work, observed[i]);
    }
    const uint32_t id = gram_tuple(j->mem, keys, work->words + base, work->n - base, is_new);
    work->n = base;
    return id;
}

uint32_t gram_goal_of(gram_json *j, gram_form form, const gram_form *observed, uint32_t n)
{
    bool is_new;
    const uint32_t id = gram_observed_key(j, &j->goal_keys, form, observed, n, &is_new);
    if (is_new) {
        gram_goal *goals = gram_grow(j->mem, j->goals, id, &j->goal_capacity, sizeof *goals);
        if (goals == NULL) {
            return 0;
        }
        j->goals = goals;
        goals[id] = (gram_goal){.form = form, .observed = j->goal_keys.at[id] + 2, .n = n};
    }
    return id;
}

uint32_t gram_goal_plan(gram_json *j, uint32_t goal, gram_type type)
{
    if (j->goals[goal].plan[type] != 0) {
        return j->goals[goal].plan[type] - 1;
    }
    const gram_goal g = j->goals[goal];
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    for (uint32_t i = 0; i < g.n; i++) {
        (void)gram_push(j->mem, work, gram_form_of(j->forms, g.observed[i], type));
    }
    const gram_form form = gram_form_of(j->forms, g.form, type);
    /* They stay on the stack during the call; if it grows, the old memory stays as it is. */
    const gram_form *observed = work->words + base;
    uint32_t plan = 0;
    if (gram_failed(j->mem)) {
        return 0;
    }
    switch (type) {
    case GRAM_NUMBER:
        plan = gram_num_plan_of(&j->nums, form, observed, g.n);
        break;
    case GRAM_STRING:
        plan = gram_text_plan_of(&j->texts, form, observed, g.n);
        break;
    case GRAM_ARRAY:
        plan = gram_arr_plan_of(j, form, observed, g.n);
        break;
    default:
        plan = gram_obj_plan_of(j, form, observed, g.n);
        break;
    }
    work->n = base;
    j->goals[goal].plan[type] = plan + 1;
    return plan;
}

/* --- Satisfiability ----------------------------------------------------------------------------------------------- */

static bool type_sat(gram_json *j, gram_form form, gram_type type, uint32_t levels)
{
    const gram_form typed = gram_form_of(j->forms, form, type);
    if (typed == GRAM_FALSE || typed == GRAM_TRUE) {
        return typed == GRAM_TRUE && (type < GRAM_ARRAY || levels > 0);
    }
    uint32_t plan;
    switch (type) {
    case GRAM_NUMBER:
        return gram_num_start(&j->nums, gram_num_plan_of(&j->nums, typed, NULL, 0)) != GRAM_NONE;
    case GRAM_STRING:
        plan = gram_text_plan_of(&j->texts, typed, NULL, 0);
        return !gram_failed(j->mem) && j->texts.plans[plan].vec != 0;
    case GRAM_ARRAY:
        return levels > 0 && gram_arr_viable(j, gram_arr_start(j, gram_arr_plan_of(j, typed, NULL, 0), levels - 1));
    case GRAM_OBJECT:
        return levels > 0 && gram_obj_viable(j, gram_obj_start(j, gram_obj_plan_of(j, typed, NULL, 0), levels - 1));
    default:
        return false; /* a formula without atoms is true or false */
    }
}

bool gram_goal_sat(gram_json *j, uint32_t goal, gram_type type, uint32_t levels)
{
    return type_sat(j, j->goals[goal].form, type, levels) && !gram_failed(j->mem);
}

static bool sat_within(gram_json *j, gram_form form, uint32_t levels)
{
    const gram_form_info *info = &j->forms->info[form];
    if (levels >= info->sat || levels < info->unsat) {
        return levels >= info->sat;
    }
    if (!gram_spend(j->mem, 4) || !gram_enter(j->mem)) {
        return false;
    }
    uint32_t needed = GRAM_NONE;
    for (gram_type type = GRAM_NULL; type < GRAM_TYPES && needed == GRAM_NONE; type++) {
        if (type_sat(j, form, type, levels)) {
            needed = type < GRAM_ARRAY ? 0 : levels;
        }
    }
    gram_leave(j->mem);
    if (gram_failed(j->mem)) {
        return false;
    }
    gram_form_info *known = &j->forms->info[form]; /* it may have moved */
    if (needed != GRAM_NONE) {
        known->sat = needed < known->sat ? (uint16_t)needed : known->sat;
    } else {
        known->unsat = levels + 1 > known->unsat ? (uint16_t)(levels + 1) : known->unsat;
    }
    return needed != GRAM_NONE;
}

/* Few levels are tried first: where a formula is recursive, the value that ends it soon is found without going down to the last level. */
bool gram_sat(gram_json *j, gram_form form, uint32_t levels)
{
    static const uint32_t steps[] = {0, 2, 6, 20};
    if (form == GRAM_FALSE || form == GRAM_TRUE) {
        return form == GRAM_TRUE;
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps && steps[i] < levels; i++) {
        if (sat_within(j, form, steps[i])) {
            return true;
        }
    }
    return sat_within(j, form, levels);
}

/* --- Bits --------------------------------------------------------------------------------------------------------- */

static uint32_t intern_bits(gram_json *j, uint32_t base)
{
    gram_stack *work = &j->lang->work;
    const uint32_t id = gram_tuple(j->mem, &j->bits, work->words + base, work->n - base, NULL);
    work->n = base;
    return id;
}

static void push_bit(gram_json *j, uint32_t base, uint32_t i, bool bit)
{
    gram_stack *work = &j->lang->work;
    if (i % 32 == 0 && !gram_push(j->mem, work, 0)) {
        return;
    }
    work->words[base + i / 32] |= (uint32_t)bit << i % 32;
}

bool gram_bit(const gram_json *j, uint32_t bits, uint32_t i)
{
    uint32_t n;
    return gram_has(gram_tuple_at(&j->bits, bits, &n), i);
}

uint32_t gram_bits_of(gram_json *j, const gram_form *observed, uint32_t n, gram_truth (*atom)(void *user, gram_form atom), void *user)
{
    const uint32_t base = j->lang->work.n;
    for (uint32_t i = 0; i < n; i++) {
        push_bit(j, base, i, gram_form_truth(j->forms, observed[i], atom, user) == GRAM_SURE);
    }
    return intern_bits(j, base);
}

uint32_t gram_goal_bits(gram_json *j, uint32_t goal, gram_type type, uint32_t lex, uint32_t n)
{
    const gram_goal g = j->goals[goal];
    const uint32_t base = j->lang->work.n;
    for (uint32_t i = 0; i < g.n && !gram_failed(j->mem); i++) {
        bool bit;
        if (type == GRAM_NUMBER) {
            bit = gram_num_observe(&j->nums, gram_lex_at(j->lexes, lex)->words[1], i);
        } else if (type == GRAM_STRING) {
            bit = gram_text_observe(&j->texts, gram_goal_plan(j, goal, type), lex, n, i);
        } else {
            bit = gram_form_of(j->forms, g.observed[i], type) == GRAM_TRUE;
        }
        push_bit(j, base, i, bit);
    }
    return intern_bits(j, base);
}

/* --- How many values ---------------------------------------------------------------------------------------------- */

/* Where only integers are asked for each value has one spelling, but for -0. */
static uint32_t count_integers(gram_json *j, uint32_t plan, uint32_t cap)
{
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    const uint32_t start = gram_num_start(&j->nums, plan);
    uint32_t found = 0;
    if (start != GRAM_NONE) {
        (void)gram_push(j->mem, work, start);
    }
    for (uint32_t at = base; at < work->n && found < cap && gram_spend(j->mem, 8); at++) {
        const uint32_t state = work->words[at];
        found += gram_num_complete(&j->nums, state);
        for (const char *byte = "0123456789-"; *byte != '\0'; byte++) {
            const uint32_t next = gram_num_step(&j->nums, state, (uint8_t)*byte);
            if (next != GRAM_NONE) {
                (void)gram_push(j->mem, work, next);
            }
        }
    }
    const uint32_t minus = start != GRAM_NONE ? gram_num_step(&j->nums, start, '-') : GRAM_NONE;
    const uint32_t zero = minus != GRAM_NONE ? gram_num_step(&j->nums, minus, '0') : GRAM_NONE;
    const bool both = zero != GRAM_NONE && gram_num_complete(&j->nums, zero);
    work->n = base;
    return found >= cap ? cap : found - both;
}

typedef struct constants {
    gram_json *j;
    gram_form form;
    gram_form others; /* the form without the constants */
    uint32_t found;
} constants;

static void see_constant(void *user, gram_form atom)
{
    constants *all = user;
    gram_json *j = all->j;
    if (gram_atom_kind(j->forms, atom) != AT_CMP) {
        return;
    }
    const gram_form equal = gram_form_atom(j->forms, AT_CMP, GRAM_EQUAL, gram_atom_words(j->forms, atom)[1], 0, 0);
    const gram_form others = gram_form_and2(j->forms, all->others, gram_form_not(j->forms, equal));
    if (others != all->others) { /* not met before */
        all->found += type_sat(j, gram_form_and2(j->forms, all->form, equal), GRAM_NUMBER, 0);
        all->others = others;
    }
}

static uint32_t count_numbers(gram_json *j, gram_form typed, uint32_t cap)
{
    const uint32_t plan = gram_num_plan_of(&j->nums, typed, NULL, 0);
    if (gram_num_only_ints(&j->nums, plan)) {
        return count_integers(j, plan, cap);
    }
    constants all = {j, typed, typed, 0};
    gram_form_each_atom(j->forms, typed, see_constant, &all);
    if (all.found >= cap) {
        return cap;
    }
    if (!type_sat(j, all.others, GRAM_NUMBER, 0)) {
        return all.found;
    }
    return gram_num_has_multiples(&j->nums, plan) ? GRAM_NONE : cap; /* an interval */
}

static uint32_t count_type(gram_json *j, gram_form form, gram_type type, uint32_t cap)
{
    const gram_form typed = gram_form_of(j->forms, form, type);
    if (typed == GRAM_FALSE) {
        return 0;
    }
    if (type < GRAM_NUMBER) {
        return 1;
    }
    if (typed == GRAM_TRUE) {
        return cap;
    }
    if (type == GRAM_NUMBER) {
        return count_numbers(j, typed, cap);
    }
    if (type == GRAM_STRING) {
        return gram_count(j->lang, gram_text_ex(&j->texts, typed), cap);
    }
    if (!type_sat(j, form, type, GRAM_MAX_LOOK)) {
        return 0;
    }
    return cap <= 1 ? cap : gram_container_values(j, typed, type, cap);
}

uint32_t gram_values(gram_json *j, gram_form form, uint32_t cap)
{
    uint32_t all = 0;
    bool known = true;
    if (!gram_enter(j->mem)) {
        return 0;
    }
    for (gram_type type = GRAM_NULL; type < GRAM_TYPES && all < cap; type++) {
        const uint32_t n = count_type(j, form, type, cap - all);
        known = known && n != GRAM_NONE;
        all += n == GRAM_NONE ? 1 : n;
    }
    gram_leave(j->mem);
    return all >= cap ? cap : known ? all : GRAM_NONE;
}

uint32_t gram_demand_bit(gram_json *j, const gram_demands *d, uint32_t which, gram_form form, uint32_t base)
{
    bool holds = true;
    bool fails = true;
    for (uint32_t i = 0; i < d->n; i++) {
        const uint8_t says = d->says[(size_t)i * d->stride + which];
        holds = holds && (says == GRAM_HOLDS || form == GRAM_TRUE);
        fails = fails && (says == GRAM_FAILS || !gram_sat(j, gram_form_and2(j->forms, d->values[i], form), d->levels));
    }
    if (holds || fails) {
        return holds ? GRAM_BIT_HOLDS : GRAM_BIT_FAILS;
    }
    gram_stack *work = &j->lang->work;
    uint32_t at = base;
    while (at < work->n && work->words[at] != form) {
        at++;
    }
    if (at == work->n) {
        (void)gram_push(j->mem, work, form);
    }
    return at - base;
}
