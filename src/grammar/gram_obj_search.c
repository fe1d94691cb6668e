/* gram_obj_search.c - finds ways to complete an object whose formula is more than a conjunction.
 *
 * The formula is walked (gram_walk.h); the walk decides which layers hold for all members, which fail, which names are there and how many
 * members. At a leaf that must come together (a plan of members still to be written): required names have values, each layer
 * that is to fail has a member that breaks it, and the number fits. Without a next member the first leaf that does is the answer.
 *
 * With a next member each layer also has a say about its value. Leaves then are demands on the value, conjunctions of what layers say or
 * of its negation; the goal of the member is their union. Demands that are implied by weaker ones found before are cut off, and since
 * a break of a layer is first looked for among later members, the weakest come first. So a union of alternatives costs one leaf for
 * each alternative, not the product of all. */
#include "grammar/gram_json.h"
#include "grammar/gram_walk.h"

#define MAX_DEMANDS 512

enum { UNDECIDED = GRAM_UNDECIDED, HOLDS = GRAM_HOLDS, FAILS = GRAM_FAILS };

typedef struct member { /* to be written later */
    uint32_t slot;
    gram_form form;
} member;

typedef struct search {
    gram_json *j;
    const gram_obj_view *view;
    uint32_t state;
    uint32_t plan_id;
    const gram_obj_plan *plan;
    uint32_t slot;    /* of the next member, GRAM_NONE = none */
    bool ordered;
    uint32_t last;    /* where the order matters: the last slot written, GRAM_NONE = none */
    uint8_t *layer;   /* [n_layers] UNDECIDED ... */
    uint8_t *req;     /* [n_reqs] */
    uint8_t *now;     /* [n_layers] what the next member must do */
    uint32_t min;
    uint32_t max;
    gram_form value;  /* of the next member */
    member *later;    /* [n_later] */
    uint32_t n_later;
    uint32_t later_capacity;
    const uint32_t *broken; /* [n_broken] layers that are to fail, at a leaf */
    uint32_t n_broken;
    uint8_t *demands; /* [n_demands * n_layers] `now` of the leaves found */
    gram_form *values; /* [n_demands] */
    uint32_t n_demands;
    uint32_t demand_capacity;
    uint32_t value_capacity;
} search;

static uint32_t find(const gram_form *list, uint32_t n, gram_form atom)
{
    uint32_t i = 0;
    while (i < n && list[i] != atom) {
        i++;
    }
    return i;
}

static bool is_violated(const search *s, uint32_t layer)
{
    return gram_has(s->j->obj_states[s->state].violated, layer);
}

/* --- What is decided ---------------------------------------------------------------------------------------------- */

static bool is_there(const search *s, uint32_t slot)
{
    return gram_has(s->view->seen, slot) || slot == s->slot;
}

static gram_truth truth_of(void *user, gram_form atom)
{
    const search *s = user;
    const gram_atom kind = gram_atom_kind(s->j->forms, atom);
    const uint32_t *w = gram_atom_words(s->j->forms, atom);
    if (kind == AT_NPROPS) {
        const uint32_t least = s->view->count + (s->slot != GRAM_NONE);
        const uint32_t min = s->min > least ? s->min : least;
        if (min > w[1] || s->max < w[0]) {
            return GRAM_NO_WAY;
        }
        return min >= w[0] && s->max <= w[1] ? GRAM_SURE : GRAM_MAYBE;
    }
    uint8_t decided;
    if (kind == AT_REQ) {
        const uint32_t i = find(s->plan->reqs, s->plan->n_reqs, atom);
        const uint32_t slot = s->plan->req_slots[i];
        if (is_there(s, slot)) {
            return GRAM_SURE;
        }
        decided = s->req[i];
        if (decided == UNDECIDED && s->ordered && s->last != GRAM_NONE && slot < s->last) {
            return GRAM_NO_WAY;
        }
    } else {
        const uint32_t i = find(s->plan->layers, s->plan->n_layers, atom);
        decided = is_violated(s, i) ? FAILS : s->layer[i];
    }
    return decided == UNDECIDED ? GRAM_MAYBE : decided == HOLDS ? GRAM_SURE : GRAM_NO_WAY;
}

static gram_form demand_on_next(search *s, uint32_t layer)
{
    return gram_obj_form(s->j, s->plan_id, layer, s->slot);
}

/* The demands found so far that are no stronger than the present ones make these superfluous. */
static bool is_covered(const search *s)
{
    for (uint32_t d = 0; d < s->n_demands; d++) {
        const uint8_t *known = s->demands + (size_t)d * s->plan->n_layers;
        bool weaker = true;
        for (uint32_t i = 0; weaker && i < s->plan->n_layers; i++) {
            weaker = known[i] == UNDECIDED || known[i] == s->now[i];
        }
        if (weaker) {
            return true;
        }
    }
    return false;
}

/* Adds a demand on the next value. False when there would be no such value. */
static bool narrow(search *s, gram_form form)
{
    s->value = gram_form_and2(s->j->forms, s->value, form);
    return gram_sat(s->j, s->value, s->view->levels);
}

static bool decide_layer(gram_walk *w, uint32_t i, bool positive, const gram_todo *work, const gram_todo *branches)
{
    search *s = w->user;
    const gram_form value = s->value;
    bool done = false;
    s->layer[i] = positive ? HOLDS : FAILS;
    if (positive && s->slot != GRAM_NONE) {
        const gram_form form = demand_on_next(s, i);
        s->now[i] = form == GRAM_TRUE ? UNDECIDED : HOLDS;
        done = narrow(s, form) && !is_covered(s) && gram_walk_on(w, work, branches);
        s->now[i] = UNDECIDED;
    } else {
        done = gram_walk_on(w, work, branches);
    }
    s->layer[i] = UNDECIDED;
    s->value = value;
    return done;
}

static bool decide_count(gram_walk *w, uint32_t min, uint32_t max, const gram_todo *work, const gram_todo *branches)
{
    search *s = w->user;
    const uint32_t old_min = s->min;
    const uint32_t old_max = s->max;
    s->min = min > s->min ? min : s->min;
    s->max = max < s->max ? max : s->max;
    const bool done = s->min <= s->max && gram_walk_on(w, work, branches);
    s->min = old_min;
    s->max = old_max;
    return done;
}

static bool decide(gram_walk *w, gram_form atom, bool positive, const gram_todo *work, const gram_todo *branches)
{
    search *s = w->user;
    const gram_atom kind = gram_atom_kind(s->j->forms, atom);
    const uint32_t *words = gram_atom_words(s->j->forms, atom);
    if (is_covered(s)) {
        return false; /* whatever follows asks no less of the next value */
    }
    if (kind == AT_NPROPS) {
        if (positive) {
            return decide_count(w, words[0], words[1], work, branches);
        }
        return (words[0] > 0 && decide_count(w, 0, words[0] - 1, work, branches)) ||
               (words[1] != GRAM_INF && decide_count(w, words[1] + 1, GRAM_INF, work, branches));
    }
    if (kind == AT_REQ) {
        const uint32_t i = find(s->plan->reqs, s->plan->n_reqs, atom);
        s->req[i] = positive ? HOLDS : FAILS;
        const bool done = gram_walk_on(w, work, branches);
        s->req[i] = UNDECIDED;
        return done;
    }
    return decide_layer(w, find(s->plan->layers, s->plan->n_layers, atom), positive, work, branches);
}

/* --- Leaves ------------------------------------------------------------------------------------------------------- */

/* What all layers that are to hold demand of a slot. */
static gram_form demand(search *s, uint32_t slot)
{
    gram_form form = GRAM_TRUE;
    for (uint32_t i = 0; i < s->plan->n_layers; i++) {
        if (s->layer[i] == HOLDS) {
            form = gram_form_and2(s->j->forms, form, gram_obj_form(s->j, s->plan_id, i, slot));
        }
    }
    return form;
}

static bool is_forbidden(const search *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->plan->n_reqs; i++) {
        if (s->req[i] == FAILS && s->plan->req_slots[i] == slot) {
            return true;
        }
    }
    return false;
}

/* A member of this slot may be written later, besides those that are to be. */
static bool may_come(const search *s, uint32_t slot)
{
    if (slot >= s->plan->n_names) {
        return true;
    }
    if (is_there(s, slot) || is_forbidden(s, slot) || (s->ordered && s->last != GRAM_NONE && slot < s->last)) {
        return false;
    }
    for (uint32_t i = 0; i < s->n_later; i++) {
        if (s->later[i].slot == slot) {
            return false;
        }
    }
    return true;
}

static bool push_later(search *s, uint32_t slot, gram_form form)
{
    member *later = gram_grow(s->j->mem, s->later, s->n_later, &s->later_capacity, sizeof *later);
    if (later == NULL) {
        return false;
    }
    s->later = later;
    later[s->n_later++] = (member){slot, form};
    return true;
}

static bool has_spare(search *s, uint32_t wanted)
{
    const uint32_t slots = gram_obj_slots(s->plan);
    for (uint32_t slot = slots; wanted != 0 && slot-- > 0;) {
        if (may_come(s, slot) && gram_sat(s->j, demand(s, slot), s->view->levels)) {
            wanted = slot >= s->plan->n_names ? 0 : wanted - 1;
        }
        if (!gram_spend(s->j->mem, 1)) {
            return false;
        }
    }
    return wanted == 0;
}

/* All that is to be broken is: does the number of members fit? */
static bool finish(search *s)
{
    if (is_covered(s)) {
        return false;
    }
    const uint32_t n = s->view->count + (s->slot != GRAM_NONE) + s->n_later;
    if (n > s->max || (n < s->min && !has_spare(s, s->min - n))) {
        return false;
    }
    if (s->slot == GRAM_NONE) {
        return true;
    }
    if (s->n_demands == MAX_DEMANDS) {
        gram_fail(s->j->mem, DI_E_LIMIT, "the grammar is too complex: more than %d alternatives for one member", MAX_DEMANDS);
        return true;
    }
    const uint32_t n_layers = s->plan->n_layers != 0 ? s->plan->n_layers : 1;
    uint8_t *demands = gram_grow(s->j->mem, s->demands, s->n_demands, &s->demand_capacity, n_layers);
    gram_form *values = gram_grow(s->j->mem, s->values, s->n_demands, &s->value_capacity, sizeof *values);
    if (demands == NULL || values == NULL) {
        return true;
    }
    s->demands = demands;
    s->values = values;
    memcpy(demands + (size_t)s->n_demands * n_layers, s->now, s->plan->n_layers);
    values[s->n_demands++] = s->value;
    return s->value == GRAM_TRUE; /* nothing is weaker */
}

static bool break_layers(search *s, uint32_t k);

/* Layer `layer` is broken by a member that is written later. */
static bool break_later(search *s, uint32_t k, uint32_t layer)
{
    gram_json *j = s->j;
    for (uint32_t i = 0; i < s->n_later; i++) {
        const gram_form form = s->later[i].form;
        const gram_form with = gram_form_and2(
            j->forms, form, gram_form_not(j->forms, gram_obj_form(j, s->plan_id, layer, s->later[i].slot)));
        if (gram_sat(j, with, s->view->levels)) {
            s->later[i].form = with;
            const bool done = break_layers(s, k + 1);
            s->later[i].form = form;
            if (done) {
                return true;
            }
        }
    }
    if (s->view->count + (s->slot != GRAM_NONE) + s->n_later >= s->max) {
        return false;
    }
    const uint32_t slots = gram_obj_slots(s->plan);
    for (uint32_t slot = slots; slot-- > 0 && gram_spend(j->mem, 1);) {
        const gram_form against = gram_obj_form(j, s->plan_id, layer, slot);
        if (against == GRAM_TRUE || !may_come(s, slot)) {
            continue;
        }
        const gram_form with = gram_form_and2(j->forms, demand(s, slot), gram_form_not(j->forms, against));
        if (gram_sat(j, with, s->view->levels) && push_later(s, slot, with)) {
            const bool done = break_layers(s, k + 1);
            s->n_later--;
            if (done) {
                return true;
            }
        }
    }
    return false;
}

/* The layers broken[k..] are to be broken, each by some member. */
static bool break_layers(search *s, uint32_t k)
{
    gram_json *j = s->j;
    if (k == s->n_broken) {
        return finish(s);
    }
    if (is_covered(s)) {
        return false;
    }
    if (!gram_spend(j->mem, 2) || !gram_enter(j->mem)) {
        return true;
    }
    const uint32_t layer = s->broken[k];
    const gram_form here = s->slot != GRAM_NONE ? demand_on_next(s, layer) : GRAM_TRUE;
    bool done;
    if (s->slot != GRAM_NONE && !gram_sat(j, gram_form_and2(j->forms, s->value, here), s->view->levels)) {
        done = break_layers(s, k + 1); /* the next member breaks it in any case */
    } else {
        done = break_later(s, k, layer);
        if (!done && here != GRAM_TRUE) {
            const gram_form value = s->value;
            s->now[layer] = FAILS;
            done = narrow(s, gram_form_not(j->forms, here)) && !is_covered(s) && break_layers(s, k + 1);
            s->now[layer] = UNDECIDED;
            s->value = value;
        }
    }
    gram_leave(j->mem);
    return done;
}

static bool leaf(gram_walk *w)
{
    search *s = w->user;
    gram_json *j = s->j;
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    const uint32_t n_later = s->n_later;
    bool possible = !is_covered(s);
    for (uint32_t i = 0; possible && i < s->plan->n_reqs; i++) {
        const uint32_t slot = s->plan->req_slots[i];
        if (s->req[i] == HOLDS && !is_there(s, slot)) {
            const gram_form form = demand(s, slot);
            possible = may_come(s, slot) && gram_sat(j, form, s->view->levels) && push_later(s, slot, form);
        }
    }
    for (uint32_t i = 0; i < s->plan->n_layers; i++) {
        if (s->layer[i] == FAILS && !is_violated(s, i)) {
            (void)gram_push(j->mem, work, i);
        }
    }
    s->broken = work->words + base; /* if the stack grows, the old memory stays as it is */
    s->n_broken = work->n - base;
    const bool done = possible && !gram_failed(j->mem) && break_layers(s, 0);
    work->n = base;
    s->n_later = n_later;
    return done;
}

/* --- The goal of the next member ---------------------------------------------------------------------------------- */

static void choose(search *s, gram_obj_choice *out)
{
    gram_json *j = s->j;
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    const gram_demands found = {s->values, s->demands, s->n_demands, s->plan->n_layers, s->view->levels};
    uint32_t *bit = gram_alloc(j->mem, s->plan->n_layers, sizeof *bit);
    for (uint32_t i = 0; bit != NULL && i < s->plan->n_layers; i++) {
        bit[i] = is_violated(s, i) ? GRAM_BIT_FAILS : gram_demand_bit(j, &found, i, demand_on_next(s, i), base);
    }
    const gram_form any = gram_form_or(j->forms, s->values, s->n_demands);
    out->bit = bit;
    out->goal = gram_failed(j->mem) ? 0 : gram_goal_of(j, any, work->words + base, work->n - base);
    work->n = base;
}

static uint32_t last_written(const search *s)
{
    uint32_t last = s->slot == GRAM_NONE || s->slot < s->plan->n_names ? s->slot : gram_obj_slots(s->plan);
    for (uint32_t i = 0; i <= gram_obj_slots(s->plan); i++) {
        if (gram_has(s->view->seen, i) && (last == GRAM_NONE || i > last)) {
            last = i;
        }
    }
    return last;
}

bool gram_obj_search(gram_json *j, uint32_t view, uint32_t slot, gram_obj_choice *out)
{
    const gram_obj_view *v = j->obj_views[view];
    const gram_obj_plan plan = j->obj_plans[j->obj_states[v->state].plan];
    search s = {.j = j, .view = v, .state = v->state, .plan_id = j->obj_states[v->state].plan, .plan = &plan, .slot = slot, .max = GRAM_INF,
                .value = GRAM_TRUE};
    s.ordered = gram_obj_ordered(j, s.plan_id);
    s.last = s.ordered ? last_written(&s) : GRAM_NONE;
    if (s.ordered && slot != GRAM_NONE && slot < plan.n_names && s.last != slot) {
        return false; /* it comes too late */
    }
    s.layer = gram_alloc(j->mem, plan.n_layers, 1);
    s.req = gram_alloc(j->mem, plan.n_reqs, 1);
    s.now = gram_alloc(j->mem, plan.n_layers, 1);
    if (gram_failed(j->mem)) {
        return false;
    }
    gram_walk walk = {.forms = j->forms, .user = &s, .truth = truth_of, .decide = decide, .leaf = leaf};
    const bool found = gram_walk_start(&walk, plan.goal);
    if (gram_failed(j->mem)) {
        return false;
    }
    if (slot == GRAM_NONE) {
        return found;
    }
    if (s.n_demands != 0) {
        choose(&s, out);
    }
    return s.n_demands != 0;
}
