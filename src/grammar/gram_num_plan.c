/* gram_num_plan.c - a formula for numbers taken apart: its constants, sorted by their digits, and its moduli. */
#include "grammar/gram_num_int.h"

static void add_constant(gram_nums *nums, gram_num_plan *plan, uint32_t dec, uint32_t *list)
{
    const gram_dec *d = &nums->forms->dec[dec];
    if (d->n == 0) {
        plan->signs = true;
        return;
    }
    const int32_t fraction = (int32_t)d->n - d->place;
    if (d->place > (int32_t)plan->max_whole && d->place <= GRAM_MAX_DIGITS) {
        plan->max_whole = (uint32_t)d->place;
    }
    if (fraction > (int32_t)plan->max_fraction && fraction <= GRAM_MAX_DIGITS) {
        plan->max_fraction = (uint32_t)fraction;
    }
    uint32_t place = 0;
    while (place < plan->n_places && plan->places[place] != d->place) {
        place++;
    }
    if (place == plan->n_places) {
        plan->places[plan->n_places++] = d->place;
    }
    const uint32_t at = gram_num_find_digits(nums->forms, list, plan->n_decs, dec);
    if (at < plan->n_decs && gram_num_by_digits(nums->forms, list[at], dec) == 0) {
        return;
    }
    memmove(list + at + 1, list + at, (plan->n_decs - at) * sizeof *list);
    list[at] = dec;
    plan->n_decs++;
    (void)gram_spend(nums->mem, 1 + plan->n_decs / 16);
}

static void count_atom(void *user, gram_form atom)
{
    (void)atom;
    ++*(uint32_t *)user;
}

typedef struct gatherer {
    gram_nums *nums;
    gram_num_plan *plan;
    uint32_t *list;
} gatherer;

static void add_atom(void *user, gram_form atom)
{
    const gatherer *g = user;
    gram_nums *nums = g->nums;
    gram_num_plan *plan = g->plan;
    const gram_forms *f = nums->forms;
    const gram_atom kind = gram_atom_kind(f, atom);
    if (kind == AT_CMP) {
        add_constant(nums, plan, gram_atom_words(f, atom)[1], g->list);
        return;
    }
    plan->plain = plan->plain || (kind == AT_INT && !nums->integers_any);
    if (gram_num_modulus_index(nums, plan, atom) < plan->n_moduli) {
        return;
    }
    if (plan->n_moduli == GRAM_MAX_MODULI) {
        gram_fail(nums->mem, DI_E_LIMIT, "the grammar is too complex: more than %d multiples for one number", GRAM_MAX_MODULI);
        return;
    }
    plan->moduli[plan->n_moduli++] = gram_num_modulus_of(f, atom);
}

static gram_truth int_is_false(void *user, gram_form atom)
{
    return gram_atom_kind(user, atom) == AT_INT ? GRAM_NO_WAY : GRAM_MAYBE;
}

uint32_t gram_num_plan_of(gram_nums *nums, gram_form goal, const gram_form *observed, uint32_t n)
{
    gram_forms *f = nums->forms;
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    (void)gram_push(nums->mem, work, goal);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(nums->mem, work, observed[i]);
    }
    bool is_new;
    const uint32_t id = gram_tuple(nums->mem, &nums->plan_keys, work->words + base, work->n - base, &is_new);
    work->n = base;
    if (!is_new) {
        return id;
    }
    gram_num_plan *plans = gram_grow(nums->mem, nums->plans, id, &nums->plan_capacity, sizeof *plans);
    uint32_t n_atoms = 0;
    gram_form_each_atom(f, goal, count_atom, &n_atoms);
    for (uint32_t i = 0; i < n; i++) {
        gram_form_each_atom(f, observed[i], count_atom, &n_atoms);
    }
    uint32_t *list = gram_alloc(nums->mem, n_atoms, sizeof *list);
    int32_t *places = gram_alloc(nums->mem, n_atoms, sizeof *places);
    if (plans == NULL || list == NULL || places == NULL) {
        return 0;
    }
    nums->plans = plans;
    gram_num_plan *plan = &plans[id];
    *plan = (gram_num_plan){.goal = goal, .observed = nums->plan_keys.at[id] + 2, .decs = list, .places = places, .max_whole = MAX_WHOLE,
                            .max_fraction = MAX_FRACTION};
    gatherer all = {nums, plan, list};
    gram_form_each_atom(f, goal, add_atom, &all);
    for (uint32_t i = 0; i < n; i++) {
        gram_form_each_atom(f, observed[i], add_atom, &all);
    }
    plan->only_ints = plan->plain && gram_form_truth(f, goal, int_is_false, f) == GRAM_NO_WAY;
    for (uint32_t i = 0; i < plan->n_moduli; i++) {
        plan->zeros = plan->zeros || !plan->only_ints || plan->moduli[i].c != 1 || plan->moduli[i].s != 0;
    }
    plan->zeros = plan->zeros || (plan->plain && !plan->only_ints);
    return id;
}

bool gram_num_only_ints(const gram_nums *nums, uint32_t plan) { return nums->plans[plan].only_ints; }
bool gram_num_has_multiples(const gram_nums *nums, uint32_t plan) { return nums->plans[plan].n_moduli != 0; }
