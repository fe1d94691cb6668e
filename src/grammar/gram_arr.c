/* gram_arr.c - plans and views of arrays. An array is simpler than an object: the next item has a known place. */
#include "grammar/gram_json.h"

typedef struct gatherer {
    gram_json *j;
    gram_tuples atoms;
    gram_stack layers;
    gram_stack contains;
    gram_form unique; /* GRAM_FALSE = none */
    uint32_t steady;
    uint32_t bound;
} gatherer;

static void raise(uint32_t *to, uint32_t value) { *to = value > *to ? value : *to; }

static void see_atom(void *user, gram_form atom)
{
    gatherer *g = user;
    gram_json *j = g->j;
    const uint32_t *w = gram_atom_words(j->forms, atom);
    bool is_new;
    (void)gram_tuple(j->mem, &g->atoms, &atom, 1, &is_new);
    if (!gram_spend(j->mem, 1) || !is_new) {
        return;
    }
    switch (gram_atom_kind(j->forms, atom)) {
    case AT_ITEMS:
        (void)gram_push(j->mem, &g->layers, atom);
        raise(&g->steady, j->forms->items[w[0]].n_prefix);
        break;
    case AT_NITEMS:
        raise(&g->bound, w[0]);
        if (w[1] != GRAM_INF) {
            raise(&g->bound, w[1] + 1);
        }
        break;
    case AT_CONTAINS:
        (void)gram_push(j->mem, &g->contains, atom);
        raise(&g->steady, w[3]);
        break;
    default:
        g->unique = atom;
        break;
    }
}

uint32_t gram_arr_plan_of(gram_json *j, gram_form goal, const gram_form *observed, uint32_t n)
{
    bool is_new;
    const uint32_t id = gram_observed_key(j, &j->arr_plan_keys, goal, observed, n, &is_new);
    if (!is_new) {
        return id;
    }
    gatherer g = {.j = j};
    gram_form_each_atom(j->forms, goal, see_atom, &g);
    for (uint32_t i = 0; i < n; i++) {
        gram_form_each_atom(j->forms, observed[i], see_atom, &g);
    }
    if (g.unique != GRAM_FALSE) {
        (void)gram_push(j->mem, &g.layers, g.unique);
    }
    raise(&g.bound, g.steady);
    gram_arr_plan *plans = gram_grow(j->mem, j->arr_plans, id, &j->arr_plan_capacity, sizeof *plans);
    if (plans == NULL) {
        return 0;
    }
    j->arr_plans = plans;
    plans[id] = (gram_arr_plan){.goal = goal, .observed = j->arr_plan_keys.at[id] + 2, .n_observed = n, .layers = g.layers.words,
                                .n_layers = g.layers.n, .contains = g.contains.words, .n_contains = g.contains.n,
                                .unique = g.unique != GRAM_FALSE, .steady = g.steady, .bound = g.bound};
    return id;
}

gram_form gram_arr_form(gram_json *j, uint32_t view, uint32_t layer, uint32_t index)
{
    const gram_arr_view *v = j->arr_views[view];
    const gram_arr_plan *plan = &j->arr_plans[v->plan];
    if (plan->unique && layer + 1 == plan->n_layers) {
        return gram_form_not(j->forms, v->used);
    }
    const gram_items *items = &j->forms->items[gram_atom_words(j->forms, plan->layers[layer])[0]];
    return index < items->n_prefix ? items->prefix[index] : items->rest;
}

/* Words of a view: plan, levels, index, used, violated, counts. */
static uint32_t view_of(gram_json *j, uint32_t base)
{
    gram_stack *work = &j->lang->work;
    bool is_new;
    const uint32_t id = gram_tuple(j->mem, &j->arr_view_keys, work->words + base, work->n - base, &is_new);
    work->n = base;
    if (!is_new) {
        return id;
    }
    gram_arr_view **views = gram_grow(j->mem, j->arr_views, id, &j->arr_view_capacity, sizeof *views);
    gram_arr_view *view = gram_alloc(j->mem, 1, sizeof *view);
    if (views == NULL || view == NULL) {
        return 0;
    }
    const uint32_t *key = j->arr_view_keys.at[id] + 1;
    *view = (gram_arr_view){.plan = key[0], .levels = key[1], .index = key[2], .used = key[3], .violated = key + 4};
    view->counts = key + 4 + gram_bit_words(j->arr_plans[key[0]].n_layers);
    j->arr_views = views;
    views[id] = view;
    return id;
}

uint32_t gram_arr_start(gram_json *j, uint32_t plan, uint32_t levels)
{
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    const uint32_t n = gram_bit_words(j->arr_plans[plan].n_layers) + j->arr_plans[plan].n_contains;
    (void)gram_push(j->mem, work, plan);
    (void)gram_push(j->mem, work, levels);
    for (uint32_t i = 0; i < n + 2; i++) {
        (void)gram_push(j->mem, work, 0); /* index, used = GRAM_FALSE, violated, counts */
    }
    return view_of(j, base);
}

uint32_t gram_arr_add(gram_json *j, uint32_t view, uint32_t bits, gram_form value)
{
    const gram_arr_view *v = j->arr_views[view];
    const gram_arr_plan plan = j->arr_plans[v->plan];
    const gram_arr_choice *choice = gram_arr_choose(j, view);
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    (void)gram_push(j->mem, work, v->plan);
    (void)gram_push(j->mem, work, v->levels);
    (void)gram_push(j->mem, work, v->index < plan.bound ? v->index + 1 : plan.bound);
    (void)gram_push(j->mem, work, plan.unique ? gram_form_or2(j->forms, v->used, value) : GRAM_FALSE);
    for (uint32_t i = 0; choice->bit != NULL && i < plan.n_layers + plan.n_contains; i++) {
        const uint32_t told = choice->bit[i];
        const bool holds = told == GRAM_BIT_HOLDS || (told != GRAM_BIT_FAILS && gram_bit(j, bits, told));
        if (i < plan.n_layers) {
            if (i % 32 == 0) {
                (void)gram_push(j->mem, work, v->violated[i / 32]);
            }
            if (!gram_failed(j->mem)) {
                work->words[work->n - 1] |= (uint32_t)!holds << i % 32;
            }
            continue;
        }
        const uint32_t *w = gram_atom_words(j->forms, plan.contains[i - plan.n_layers]);
        const uint32_t most = w[2] != GRAM_INF ? w[2] + 1 : w[1]; /* beyond it all counts are alike */
        const uint32_t count = v->counts[i - plan.n_layers];
        (void)gram_push(j->mem, work, count + (holds && v->index >= w[3] && count < most));
    }
    if (gram_failed(j->mem) || choice->bit == NULL) {
        work->n = base;
        return view;
    }
    return view_of(j, base);
}

typedef struct finished {
    const gram_json *j;
    const gram_arr_plan *plan;
    const gram_arr_view *view;
} finished;

static gram_truth at_the_end(void *user, gram_form atom)
{
    const finished *end = user;
    const uint32_t *w = gram_atom_words(end->j->forms, atom);
    const gram_atom kind = gram_atom_kind(end->j->forms, atom);
    bool holds;
    uint32_t i = 0;
    if (kind == AT_NITEMS) {
        holds = end->view->index >= w[0] && end->view->index <= w[1];
    } else if (kind == AT_CONTAINS) {
        while (end->plan->contains[i] != atom) {
            i++;
        }
        holds = end->view->counts[i] >= w[1] && end->view->counts[i] <= w[2];
    } else {
        while (end->plan->layers[i] != atom) {
            i++;
        }
        holds = !gram_has(end->view->violated, i);
    }
    return holds ? GRAM_SURE : GRAM_NO_WAY;
}

bool gram_arr_closable(gram_json *j, uint32_t view)
{
    gram_arr_view *v = j->arr_views[view];
    if (v->closable == 0) {
        finished end = {j, &j->arr_plans[v->plan], v};
        v->closable = gram_form_truth(j->forms, end.plan->goal, at_the_end, &end) == GRAM_SURE ? 2 : 1;
    }
    return v->closable == 2;
}

uint32_t gram_arr_result(gram_json *j, uint32_t view)
{
    gram_arr_view *v = j->arr_views[view];
    if (v->result == 0) {
        finished end = {j, &j->arr_plans[v->plan], v};
        v->result = gram_bits_of(j, end.plan->observed, end.plan->n_observed, at_the_end, &end) + 1;
    }
    return v->result - 1;
}

bool gram_arr_viable(gram_json *j, uint32_t view)
{
    gram_arr_view *v = j->arr_views[view];
    if (v->viable == 0 && gram_enter(j->mem)) {
        const bool viable = gram_arr_closable(j, view) || gram_arr_search(j, view, false, NULL);
        gram_leave(j->mem);
        if (!gram_failed(j->mem)) {
            v->viable = viable ? 2 : 1;
        }
    }
    return v->viable == 2;
}

const gram_arr_choice *gram_arr_choose(gram_json *j, uint32_t view)
{
    static const gram_arr_choice none;
    gram_arr_view *v = j->arr_views[view];
    if (v->choice == NULL) {
        gram_arr_choice *choice = gram_alloc(j->mem, 1, sizeof *choice);
        if (choice == NULL || !gram_enter(j->mem)) {
            return &none;
        }
        choice->allowed = gram_arr_search(j, view, true, choice);
        gram_leave(j->mem);
        if (gram_failed(j->mem)) {
            return &none;
        }
        v->choice = choice;
    }
    return v->choice;
}

/* --- Values ------------------------------------------------------------------------------------------------------- */

/* At least as many as there are values of some member or item; without end when members or items can be added without end. */
uint32_t gram_container_values(gram_json *j, gram_form typed, gram_type type, uint32_t cap)
{
    uint32_t most = 1;
    if (!gram_enter(j->mem)) {
        return GRAM_NONE;
    }
    if (type == GRAM_ARRAY) {
        const uint32_t view = gram_arr_start(j, gram_arr_plan_of(j, typed, NULL, 0), GRAM_MAX_LOOK);
        const gram_arr_choice *choice = gram_arr_choose(j, view);
        if (choice->allowed) {
            const uint32_t n = gram_values(j, j->goals[choice->goal].form, cap);
            most = n != GRAM_NONE && n > most ? n : most;
        }
        /* From some length on another item may always come: then there is no end. */
        const gram_form more = gram_form_atom(j->forms, AT_NITEMS, 1u << 20, GRAM_INF, 0, 0);
        most = gram_sat(j, gram_form_and2(j->forms, typed, more), GRAM_MAX_LOOK) ? cap : most;
    } else {
        const uint32_t plan = gram_obj_plan_of(j, typed, NULL, 0);
        const uint32_t view = gram_obj_start(j, plan, GRAM_MAX_LOOK);
        const uint32_t slots = gram_obj_slots(&j->obj_plans[plan]);
        for (uint32_t slot = slots; most < cap && slot-- > 0 && !gram_failed(j->mem);) {
            if (!gram_obj_allows(j, view, slot)) {
                continue;
            }
            if (slot >= j->obj_plans[plan].n_names) {
                most = cap;
                break;
            }
            const uint32_t n = gram_values(j, j->goals[gram_obj_choose(j, view, slot)->goal].form, cap);
            most = n != GRAM_NONE && n > most ? n : most;
        }
    }
    gram_leave(j->mem);
    return most >= cap ? cap : GRAM_NONE;
}

static void push_word(gram_json *j, const gram_stack *text, gram_stack *out)
{
    const gram_ex one = gram_ex_words(j->lang, &(const gram_word){text->words, text->n}, 1);
    const gram_form form = gram_form_atom(j->forms, AT_RE, one, 0, 0, 0);
    (void)gram_push(j->mem, out, gram_form_and2(j->forms, gram_form_type(j->forms, 1u << GRAM_STRING), form));
}

static void list_strings(gram_json *j, gram_ex e, gram_stack *text, gram_stack *out)
{
    if (gram_empty(j->lang, e) || !gram_enter(j->mem)) {
        return;
    }
    if (gram_nullable(j->lang, e)) {
        push_word(j, text, out);
    }
    const gram_row *row = gram_row_of(j->lang, e);
    for (uint32_t i = 0, c = 0; i < row->n; c = row->seg[i].last + 1, i++) {
        for (; row->seg[i].to != GRAM_EX_NONE && c <= row->seg[i].last && gram_spend(j->mem, 1); c++) {
            if ((c < 0xD800 || c > 0xDFFF) && gram_push(j->mem, text, c)) {
                list_strings(j, row->seg[i].to, text, out);
                text->n--;
            }
        }
    }
    gram_leave(j->mem);
}

static void list_integers(gram_json *j, uint32_t state, char *text, uint32_t n, gram_stack *out)
{
    if (gram_num_complete(&j->nums, state) && !(n == 2 && text[0] == '-' && text[1] == '0')) {
        const gram_form equal = gram_form_atom(j->forms, AT_CMP, GRAM_EQUAL, gram_form_dec(j->forms, text, n), 0, 0);
        (void)gram_push(j->mem, out, gram_form_and2(j->forms, gram_form_type(j->forms, 1u << GRAM_NUMBER), equal));
    }
    for (const char *byte = "-0123456789"; *byte != '\0' && n < GRAM_MAX_DIGITS && gram_spend(j->mem, 1); byte++) {
        const uint32_t next = gram_num_step(&j->nums, state, (uint8_t)*byte);
        if (next != GRAM_NONE) {
            text[n] = *byte;
            list_integers(j, next, text, n + 1, out);
        }
    }
}

bool gram_list_values(gram_json *j, gram_form form, uint32_t cap, gram_stack *out)
{
    if (gram_values(j, form, cap + 1) > cap) {
        return false;
    }
    for (gram_type type = GRAM_NULL; type < GRAM_TYPES; type++) {
        const gram_form typed = gram_form_of(j->forms, form, type);
        if (typed == GRAM_FALSE || !gram_sat(j, gram_form_and2(j->forms, form, gram_form_type(j->forms, 1u << type)), GRAM_MAX_LOOK)) {
            continue;
        }
        if (type < GRAM_NUMBER) {
            (void)gram_push(j->mem, out, gram_form_type(j->forms, 1u << type));
        } else if (type == GRAM_STRING) {
            gram_stack text = {NULL, 0, 0};
            list_strings(j, gram_text_ex(&j->texts, typed), &text, out);
        } else if (type == GRAM_NUMBER && gram_num_only_ints(&j->nums, gram_num_plan_of(&j->nums, typed, NULL, 0))) {
            char text[GRAM_MAX_DIGITS];
            const uint32_t start = gram_num_start(&j->nums, gram_num_plan_of(&j->nums, typed, NULL, 0));
            if (start != GRAM_NONE) {
                list_integers(j, start, text, 0, out);
            }
        } else {
            return false;
        }
    }
    return !gram_failed(j->mem);
}
