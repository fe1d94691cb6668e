/* gram_obj.c - states and views of objects: what is known, and the questions that need no search (gram_obj_search.c has the others).
 *
 * Most schemas ask for a conjunction: all layers, all required names, a number of members. A state is *simple* when that is what is
 * left of its formula, and then every question is a matter of bit sets. */
#include "grammar/gram_json.h"

/* --- States ------------------------------------------------------------------------------------------------------- */

typedef struct knowledge {
    const gram_json *j;
    const gram_obj_plan *plan;
    const uint32_t *violated; /* bits of layers */
    const uint32_t *seen;     /* bits of slots; NULL = unknown */
    uint32_t *relevant;       /* bits of layers that matter, or that are to hold */
    const uint32_t *required; /* bits of slots that will have been seen in the end */
} knowledge;

static uint32_t find(const gram_form *list, uint32_t n, gram_form atom)
{
    uint32_t i = 0;
    while (i < n && list[i] != atom) {
        i++;
    }
    return i;
}

static gram_truth known(void *user, gram_form atom)
{
    const knowledge *k = user;
    const gram_atom kind = gram_atom_kind(k->j->forms, atom);
    if (kind == AT_PROPS || kind == AT_NAMES) {
        return gram_has(k->violated, find(k->plan->layers, k->plan->n_layers, atom)) ? GRAM_NO_WAY : GRAM_MAYBE;
    }
    if (kind == AT_REQ && k->seen != NULL) {
        return gram_has(k->seen, k->plan->req_slots[find(k->plan->reqs, k->plan->n_reqs, atom)]) ? GRAM_SURE : GRAM_MAYBE;
    }
    return GRAM_MAYBE;
}

/* Marks the layers that can still change the truth of x. */
static void mark_relevant(knowledge *k, gram_form x)
{
    if (gram_form_truth(k->j->forms, x, known, k) != GRAM_MAYBE) {
        return;
    }
    if (gram_form_op(k->j->forms, x) == FO_ATOM) {
        const uint32_t i = find(k->plan->layers, k->plan->n_layers, x);
        if (i < k->plan->n_layers) {
            k->relevant[i / 32] |= 1u << i % 32;
        }
        return;
    }
    uint32_t n;
    const gram_form *kids = gram_form_kids(k->j->forms, x, &n);
    for (uint32_t i = 0; i < n; i++) {
        mark_relevant(k, kids[i]);
    }
}

/* Takes a formula as a conjunction of atoms that are to hold. False when it is none. */
static bool take_conjunction(knowledge *k, gram_form x, gram_obj_state *state)
{
    const gram_forms *f = k->j->forms;
    if (gram_form_truth(f, x, known, k) == GRAM_SURE) {
        return true;
    }
    const gram_op op = gram_form_op(f, x);
    if (op == FO_ATOM) {
        const uint32_t *w = gram_atom_words(f, x);
        if (gram_atom_kind(f, x) == AT_REQ) {
            const uint32_t slot = k->plan->req_slots[find(k->plan->reqs, k->plan->n_reqs, x)];
            state->n_required += !gram_has(state->required, slot);
            state->required[slot / 32] |= 1u << slot % 32;
        } else if (gram_atom_kind(f, x) == AT_NPROPS) {
            state->min = w[0] > state->min ? w[0] : state->min;
            state->max = w[1] < state->max ? w[1] : state->max;
        } else {
            const uint32_t i = find(k->plan->layers, k->plan->n_layers, x);
            k->relevant[i / 32] |= 1u << i % 32;
        }
        return true;
    }
    uint32_t n;
    const gram_form *kids = gram_form_kids(f, x, &n);
    uint32_t open = 0; /* kids that are not decided */
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        const gram_truth truth = gram_form_truth(f, kids[i], known, k);
        if (op == FO_AND && truth == GRAM_MAYBE && !take_conjunction(k, kids[i], state)) {
            return false;
        }
        if (truth == GRAM_MAYBE) {
            open++;
            last = i;
        } else if (op == FO_ONE && truth == GRAM_SURE) {
            return false; /* the others must fail */
        }
    }
    return op == FO_AND || (op != FO_NOT && open == 1 && take_conjunction(k, kids[last], state));
}

/* What the observed formulas would be when everything asked for holds. */
static gram_truth when_complete(void *user, gram_form atom)
{
    const knowledge *k = user;
    const uint32_t i = find(k->plan->layers, k->plan->n_layers, atom);
    if (i < k->plan->n_layers) {
        return gram_has(k->violated, i) ? GRAM_NO_WAY : GRAM_SURE;
    }
    const bool asked = gram_atom_kind(k->j->forms, atom) == AT_REQ &&
                       gram_has(k->required, k->plan->req_slots[find(k->plan->reqs, k->plan->n_reqs, atom)]);
    return asked ? GRAM_SURE : GRAM_MAYBE;
}

static void analyse(gram_json *j, gram_obj_state *state)
{
    const gram_obj_plan *plan = &j->obj_plans[state->plan];
    uint32_t *asked = gram_alloc(j->mem, gram_bit_words(plan->n_layers), sizeof *asked);
    knowledge k = {.j = j, .plan = plan, .violated = state->violated, .relevant = asked};
    if (asked == NULL) {
        return;
    }
    state->max = GRAM_INF;
    state->dead = gram_form_truth(j->forms, plan->goal, known, &k) == GRAM_NO_WAY;
    state->simple = !state->dead && take_conjunction(&k, plan->goal, state);
    k.required = state->required;
    for (uint32_t i = 0; state->simple && i < plan->n_observed; i++) {
        state->simple = gram_form_truth(j->forms, plan->observed[i], when_complete, &k) != GRAM_MAYBE;
    }
    for (uint32_t i = 0; i < plan->n_layers; i++) {
        if (!gram_has(state->violated, i)) {
            state->active[state->n_active++] = i;
            state->simple = state->simple && gram_has(asked, i); /* others are only observed */
        }
    }
}

uint32_t gram_obj_state_of(gram_json *j, uint32_t plan, const uint32_t *violated, const uint32_t *seen)
{
    const gram_obj_plan *p = &j->obj_plans[plan];
    const uint32_t n = gram_bit_words(p->n_layers);
    uint32_t *relevant = gram_alloc(j->mem, n, sizeof *relevant);
    uint32_t *key = gram_alloc(j->mem, n + 1, sizeof *key);
    if (relevant == NULL || key == NULL) {
        return 0;
    }
    knowledge k = {.j = j, .plan = p, .violated = violated, .seen = seen, .relevant = relevant};
    mark_relevant(&k, p->goal);
    for (uint32_t i = 0; i < p->n_observed; i++) {
        mark_relevant(&k, p->observed[i]);
    }
    (void)gram_spend(j->mem, 1 + p->n_layers / 4 + p->n_observed);
    key[0] = plan;
    for (uint32_t i = 0; i < n; i++) {
        key[1 + i] = violated[i] | ~relevant[i];
    }
    bool is_new;
    const uint32_t id = gram_tuple(j->mem, &j->obj_state_keys, key, n + 1, &is_new);
    if (!is_new) {
        return id;
    }
    gram_obj_state *states = gram_grow(j->mem, j->obj_states, id, &j->obj_state_capacity, sizeof *states);
    const uint32_t slots = gram_obj_slots(p);
    gram_obj_state state = {.plan = plan, .violated = j->obj_state_keys.at[id] + 2};
    state.active = gram_alloc(j->mem, p->n_layers, sizeof *state.active);
    state.required = gram_alloc(j->mem, gram_obj_words(p), sizeof *state.required);
    state.forms = gram_alloc(j->mem, slots, sizeof *state.forms);
    if (states == NULL || gram_failed(j->mem)) {
        return 0;
    }
    analyse(j, &state);
    j->obj_states = states;
    states[id] = state;
    return id;
}

gram_form gram_obj_state_form(gram_json *j, uint32_t state, uint32_t slot)
{
    const gram_obj_state st = j->obj_states[state];
    if (st.forms[slot] == 0) {
        gram_form form = GRAM_TRUE;
        for (uint32_t i = 0; i < st.n_active; i++) {
            form = gram_form_and2(j->forms, form, gram_obj_form(j, st.plan, st.active[i], slot));
        }
        if (gram_failed(j->mem)) {
            return GRAM_FALSE;
        }
        st.forms[slot] = form + 1;
    }
    return st.forms[slot] - 1;
}

/* --- Views -------------------------------------------------------------------------------------------------------- */

uint32_t gram_obj_view_of(gram_json *j, uint32_t state, uint32_t levels, uint32_t count, const uint32_t *seen)
{
    const gram_obj_plan *plan = &j->obj_plans[j->obj_states[state].plan];
    const uint32_t slots = gram_obj_slots(plan);
    const uint32_t n = gram_obj_words(plan);
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    (void)gram_push(j->mem, work, state);
    (void)gram_push(j->mem, work, levels);
    (void)gram_push(j->mem, work, count < plan->bound ? count : plan->bound);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(j->mem, work, seen[i]);
    }
    bool is_new;
    const uint32_t id = gram_tuple(j->mem, &j->obj_view_keys, work->words + base, work->n - base, &is_new);
    work->n = base;
    if (!is_new) {
        return id;
    }
    gram_obj_view **views = gram_grow(j->mem, j->obj_views, id, &j->obj_view_capacity, sizeof *views);
    gram_obj_view *view = gram_alloc(j->mem, 1, sizeof *view);
    uint8_t *allowed = gram_alloc(j->mem, slots, sizeof *allowed);
    if (views == NULL || view == NULL || allowed == NULL) {
        return 0;
    }
    const uint32_t *key = j->obj_view_keys.at[id] + 1;
    *view = (gram_obj_view){.state = key[0], .levels = key[1], .count = key[2], .seen = key + 3, .allowed = allowed};
    j->obj_views = views;
    views[id] = view;
    return id;
}

uint32_t gram_obj_start(gram_json *j, uint32_t plan, uint32_t levels)
{
    const gram_obj_plan *p = &j->obj_plans[plan];
    const uint32_t layers = gram_bit_words(p->n_layers);
    const uint32_t words = gram_obj_words(p);
    uint32_t *nothing = gram_alloc(j->mem, layers > words ? layers : words, sizeof *nothing);
    return nothing != NULL ? gram_obj_view_of(j, gram_obj_state_of(j, plan, nothing, nothing), levels, 0, nothing) : 0;
}

/* Bits of slots: the last one seen and the first required one that is missing. Both GRAM_NONE when there is none. */
typedef struct order_limits {
    uint32_t last;
    uint32_t missing;
} order_limits;

static order_limits limits_of(const gram_obj_view *view, const gram_obj_state *state, uint32_t words)
{
    order_limits limits = {GRAM_NONE, GRAM_NONE};
    for (uint32_t i = 0; i < words; i++) {
        const uint32_t missing = state->required[i] & ~view->seen[i];
        if (view->seen[i] != 0) {
            limits.last = i * 32 + 31 - (uint32_t)__builtin_clz(view->seen[i]);
        }
        if (missing != 0 && limits.missing == GRAM_NONE) {
            limits.missing = i * 32 + (uint32_t)__builtin_ctz(missing);
        }
    }
    return limits;
}

static uint32_t n_missing(const gram_obj_view *view, const gram_obj_state *state, uint32_t words)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < words; i++) {
        n += (uint32_t)__builtin_popcount(state->required[i] & ~view->seen[i]);
    }
    return n;
}

/* In a simple state: how many more members could come besides, at most `enough`. */
static uint32_t spare_members(gram_json *j, uint32_t view_id, uint32_t enough)
{
    const gram_obj_view *view = j->obj_views[view_id];
    const gram_obj_state state = j->obj_states[view->state];
    const gram_obj_plan plan = j->obj_plans[state.plan];
    const uint32_t slots = gram_obj_slots(&plan);
    const order_limits limits = limits_of(view, &state, gram_obj_words(&plan));
    const bool ordered = gram_obj_ordered(j, state.plan);
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < slots && n < enough; slot++) {
        const bool is_class = slot >= plan.n_names;
        if (!is_class && (gram_has(view->seen, slot) || gram_has(state.required, slot))) {
            continue;
        }
        if (!is_class && ordered && limits.last != GRAM_NONE && slot < limits.last) {
            continue;
        }
        if (!gram_sat(j, gram_obj_state_form(j, view->state, slot), view->levels)) {
            continue;
        }
        n += is_class ? enough : 1; /* classes have no end */
    }
    return n < enough ? n : enough;
}

static bool simple_viable(gram_json *j, uint32_t view_id)
{
    const gram_obj_view *view = j->obj_views[view_id];
    const gram_obj_state state = j->obj_states[view->state];
    const uint32_t words = gram_obj_words(&j->obj_plans[state.plan]);
    const order_limits limits = limits_of(view, &state, words);
    if (limits.missing != GRAM_NONE && limits.last != GRAM_NONE && limits.last > limits.missing && gram_obj_ordered(j, state.plan)) {
        return false;
    }
    for (uint32_t i = 0; i < words; i++) {
        for (uint32_t missing = state.required[i] & ~view->seen[i]; missing != 0; missing &= missing - 1) {
            const uint32_t slot = i * 32 + (uint32_t)__builtin_ctz(missing);
            if (!gram_sat(j, gram_obj_state_form(j, view->state, slot), view->levels)) {
                return false;
            }
        }
    }
    const uint32_t least = view->count + n_missing(view, &state, words);
    if (least > state.max || state.min > state.max) {
        return false;
    }
    return least >= state.min || least + spare_members(j, view_id, state.min - least) >= state.min;
}

bool gram_obj_viable(gram_json *j, uint32_t view)
{
    gram_obj_view *v = j->obj_views[view];
    if (v->viable == 0 && gram_enter(j->mem)) {
        const gram_obj_state state = j->obj_states[v->state];
        const bool viable = !state.dead && (state.simple ? simple_viable(j, view) : gram_obj_search(j, view, GRAM_NONE, NULL));
        gram_leave(j->mem);
        if (!gram_failed(j->mem)) {
            v->viable = viable ? 2 : 1;
        }
    }
    return v->viable == 2;
}

typedef struct finished {
    const gram_json *j;
    const gram_obj_plan *plan;
    const gram_obj_view *view;
} finished;

static gram_truth at_the_end(void *user, gram_form atom)
{
    const finished *end = user;
    const gram_forms *f = end->j->forms;
    const gram_atom kind = gram_atom_kind(f, atom);
    const uint32_t *w = gram_atom_words(f, atom);
    bool holds;
    if (kind == AT_NPROPS) {
        holds = end->view->count >= w[0] && end->view->count <= w[1];
    } else if (kind == AT_REQ) {
        holds = gram_has(end->view->seen, end->plan->req_slots[find(end->plan->reqs, end->plan->n_reqs, atom)]);
    } else {
        holds = !gram_has(end->j->obj_states[end->view->state].violated, find(end->plan->layers, end->plan->n_layers, atom));
    }
    return holds ? GRAM_SURE : GRAM_NO_WAY;
}

bool gram_obj_closable(gram_json *j, uint32_t view)
{
    gram_obj_view *v = j->obj_views[view];
    if (v->closable == 0) {
        const gram_obj_plan *plan = &j->obj_plans[j->obj_states[v->state].plan];
        finished end = {j, plan, v};
        v->closable = gram_form_truth(j->forms, plan->goal, at_the_end, &end) == GRAM_SURE ? 2 : 1;
    }
    return v->closable == 2;
}

uint32_t gram_obj_result(gram_json *j, uint32_t view)
{
    gram_obj_view *v = j->obj_views[view];
    if (v->result == 0) {
        const gram_obj_plan *plan = &j->obj_plans[j->obj_states[v->state].plan];
        finished end = {j, plan, v};
        v->result = gram_bits_of(j, plan->observed, plan->n_observed, at_the_end, &end) + 1;
    }
    return v->result - 1;
}

/* --- Members ------------------------------------------------------------------------------------------------------ */

static bool simple_allows(gram_json *j, uint32_t view_id, uint32_t slot)
{
    const gram_obj_view *view = j->obj_views[view_id];
    const gram_obj_state state = j->obj_states[view->state];
    const gram_obj_plan *plan = &j->obj_plans[state.plan];
    const uint32_t words = gram_obj_words(plan);
    const bool is_class = slot >= plan->n_names;
    const bool required = !is_class && gram_has(state.required, slot);
    const uint32_t missing = n_missing(view, &state, words) - required;
    if (state.max != GRAM_INF && view->count + 1 + missing > state.max) {
        return false;
    }
    if (gram_obj_ordered(j, state.plan)) {
        const order_limits limits = limits_of(view, &state, words);
        const bool too_late = !is_class && limits.last != GRAM_NONE && slot < limits.last;
        if (too_late || (limits.missing != GRAM_NONE && limits.missing < slot)) {
            return false;
        }
    }
    if (!gram_sat(j, gram_obj_state_form(j, view->state, slot), view->levels)) {
        return false;
    }
    /* The least number of members must stay within reach. */
    return state.min <= view->count + 1 + missing || gram_obj_viable(j, gram_obj_add(j, view_id, slot, 0));
}

bool gram_obj_allows(gram_json *j, uint32_t view, uint32_t slot)
{
    gram_obj_view *v = j->obj_views[view];
    if (v->allowed[slot] == 0 && gram_enter(j->mem)) {
        const gram_obj_state *state = &j->obj_states[v->state];
        const bool is_name = slot < j->obj_plans[state->plan].n_names;
        bool allowed = !state->dead && !(is_name && gram_has(v->seen, slot));
        if (allowed) {
            allowed = state->simple ? simple_allows(j, view, slot) : gram_obj_choose(j, view, slot)->allowed;
        }
        gram_leave(j->mem);
        if (!gram_failed(j->mem)) {
            v->allowed[slot] = allowed ? 2 : 1;
        }
    }
    return v->allowed[slot] == 2;
}

static void simple_choice(gram_json *j, uint32_t view, uint32_t slot, gram_obj_choice *out)
{
    const gram_obj_view *v = j->obj_views[view];
    const gram_obj_plan *plan = &j->obj_plans[j->obj_states[v->state].plan];
    uint32_t *bit = gram_alloc(j->mem, plan->n_layers, sizeof *bit);
    for (uint32_t i = 0; bit != NULL && i < plan->n_layers; i++) {
        bit[i] = GRAM_BIT_HOLDS;
    }
    *out = (gram_obj_choice){true, gram_goal_of(j, gram_obj_state_form(j, v->state, slot), NULL, 0), bit};
}

const gram_obj_choice *gram_obj_choose(gram_json *j, uint32_t view, uint32_t slot)
{
    static const gram_obj_choice none;
    gram_obj_view *v = j->obj_views[view];
    const gram_obj_state state = j->obj_states[v->state];
    if (v->choices == NULL) {
        v->choices = gram_alloc(j->mem, gram_obj_slots(&j->obj_plans[state.plan]), sizeof(gram_obj_choice *));
    }
    if (v->choices == NULL) {
        return &none;
    }
    if (v->choices[slot] == NULL) {
        gram_obj_choice *choice = gram_alloc(j->mem, 1, sizeof *choice);
        if (choice == NULL || !gram_enter(j->mem)) {
            return &none;
        }
        if (state.simple) {
            simple_choice(j, view, slot, choice);
        } else {
            choice->allowed = gram_obj_search(j, view, slot, choice);
        }
        gram_leave(j->mem);
        if (gram_failed(j->mem)) {
            return &none;
        }
        v->choices[slot] = choice;
    }
    return v->choices[slot];
}

uint32_t gram_obj_add(gram_json *j, uint32_t view, uint32_t slot, uint32_t bits)
{
    const gram_obj_view *v = j->obj_views[view];
    const gram_obj_state state = j->obj_states[v->state];
    const gram_obj_plan plan = j->obj_plans[state.plan];
    const uint32_t slots = gram_obj_slots(&plan);
    uint32_t *seen = gram_alloc(j->mem, gram_obj_words(&plan), sizeof *seen);
    uint32_t *violated = gram_alloc(j->mem, gram_bit_words(plan.n_layers), sizeof *violated);
    if (seen == NULL || violated == NULL) {
        return view;
    }
    memcpy(seen, v->seen, gram_obj_words(&plan) * sizeof *seen);
    const uint32_t bit = slot < plan.n_names ? slot : slots;
    if (slot < plan.n_names || gram_obj_ordered(j, state.plan)) {
        seen[bit / 32] |= 1u << bit % 32;
    }
    uint32_t next = v->state;
    if (!state.simple) {
        const gram_obj_choice *choice = gram_obj_choose(j, view, slot);
        for (uint32_t i = 0; choice->bit != NULL && i < plan.n_layers; i++) {
            const uint32_t told = choice->bit[i];
            const bool holds = told == GRAM_BIT_HOLDS || (told != GRAM_BIT_FAILS && gram_bit(j, bits, told));
            violated[i / 32] |= (uint32_t)(gram_has(state.violated, i) || !holds) << i % 32;
        }
        next = gram_obj_state_of(j, state.plan, violated, seen);
    }
    return gram_obj_view_of(j, next, v->levels, v->count + 1, seen);
}

bool gram_obj_more(gram_json *j, uint32_t view)
{
    gram_obj_view *v = j->obj_views[view];
    if (v->more == 0) {
        const uint32_t slots = gram_obj_slots(&j->obj_plans[j->obj_states[v->state].plan]);
        bool more = false;
        for (uint32_t slot = slots; !more && slot-- > 0;) { /* classes first: they answer for nearly all open objects */
            more = gram_obj_allows(j, view, slot);
        }
        if (!gram_failed(j->mem)) {
            v->more = more ? 2 : 1;
        }
    }
    return v->more == 2;
}

void gram_obj_prepare_keys(gram_json *j, uint32_t view)
{
    gram_obj_view *v = j->obj_views[view];
    const uint32_t plan_id = j->obj_states[v->state].plan;
    if (v->words != NULL) {
        return;
    }
    (void)gram_obj_key_vec(j, plan_id);
    const gram_obj_plan plan = j->obj_plans[plan_id];
    uint32_t *words = gram_alloc(j->mem, gram_bit_words(plan.n_names) + 1, sizeof *words);
    for (uint32_t i = 0; words != NULL && i < plan.n_names; i++) {
        words[i / 32] |= (uint32_t)gram_obj_allows(j, view, plan.word_slot[i]) << i % 32;
    }
    for (uint32_t i = 0; i < plan.n_classes && !gram_failed(j->mem); i++) {
        if ((plan.key_classes >> i & 1) != 0 && gram_obj_allows(j, view, plan.n_names + i)) {
            v->classes |= (uint64_t)1 << i;
            v->open = v->open || gram_ex_is_open(j->lang, plan.classes[i].ex);
        }
    }
    if (!gram_failed(j->mem)) {
        v->words = words;
    }
}
