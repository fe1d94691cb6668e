/* gram_arr_search.c - finds ways to complete an array, as gram_obj_search.c does for objects.
 *
 * The walk decides which layers hold or fail, how many items satisfy each `contains`, and how many there are. A leaf then lays
 * out the items still to be written, place by place: each may count for some of the contains and break some of the layers that
 * are to fail. From the steady index on all places are alike, so fillers up to the least number of items are laid at once. Where
 * items must differ, there must be enough different values: places with few are matched with their values, one each (Kuhn's
 * augmenting paths). */
#include "grammar/gram_json.h"
#include "grammar/gram_walk.h"

#define MAX_DEMANDS 512
#define MAX_TASKS 12       /* contains and broken layers that an item may serve at once */
#define MAX_VALUES 64      /* of a place that are matched one by one */

/* The last: of a demand that leaves values to others, and so covers none. */
enum { UNDECIDED = GRAM_UNDECIDED, HOLDS = GRAM_HOLDS, FAILS = GRAM_FAILS, NARROWED };

typedef struct need { /* of one contains, at a leaf */
    uint32_t min;     /* items that must still satisfy it */
    uint32_t max;     /* items that still may; GRAM_INF = any number */
} need;

typedef struct place { /* items to be written later */
    gram_form form;
    uint32_t n;
} place;

typedef struct search {
    gram_json *j;
    uint32_t view_id;
    const gram_arr_view *view;
    const gram_arr_plan *plan;
    bool next;
    uint8_t *layer; /* [n_layers] UNDECIDED ... */
    uint8_t *now;   /* [n_layers + n_contains] what the next item must do */
    need *contains; /* [n_contains] of all items of the array */
    uint32_t min;   /* items */
    uint32_t max;
    gram_form value; /* of the next item */
    need *needs;     /* [n_contains] of the items to come, at a leaf */
    uint8_t *broken; /* [n_layers] still to be broken, at a leaf */
    place *later;
    uint32_t n_later;
    uint32_t later_capacity;
    bool spared;     /* one of them is there for nothing but to be repeated */
    uint8_t *demands; /* [n_demands * (n_layers + n_contains)] */
    gram_form *values;
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

static const uint32_t *contains_words(const search *s, uint32_t i) { return gram_atom_words(s->j->forms, s->plan->contains[i]); }

static gram_form layer_form(const search *s, uint32_t layer, uint32_t index)
{
    return gram_arr_form(s->j, s->view_id, layer, index);
}

/* --- The walk ----------------------------------------------------------------------------------------------------- */

static gram_truth truth_of(void *user, gram_form atom)
{
    const search *s = user;
    const gram_atom kind = gram_atom_kind(s->j->forms, atom);
    const uint32_t *w = gram_atom_words(s->j->forms, atom);
    uint32_t min;
    uint32_t max;
    uint32_t low;
    uint32_t high;
    if (kind == AT_NITEMS) {
        const uint32_t least = s->view->index + s->next;
        min = s->min > least ? s->min : least;
        max = s->max;
        low = w[0];
        high = w[1];
    } else if (kind == AT_CONTAINS) {
        const uint32_t i = find(s->plan->contains, s->plan->n_contains, atom);
        min = s->contains[i].min > s->view->counts[i] ? s->contains[i].min : s->view->counts[i];
        max = s->contains[i].max;
        low = w[1];
        high = w[2];
    } else {
        const uint32_t i = find(s->plan->layers, s->plan->n_layers, atom);
        const uint8_t decided = gram_has(s->view->violated, i) ? FAILS : s->layer[i];
        return decided == UNDECIDED ? GRAM_MAYBE : decided == HOLDS ? GRAM_SURE : GRAM_NO_WAY;
    }
    if (min > high || max < low || min > max) {
        return GRAM_NO_WAY;
    }
    return min >= low && max <= high ? GRAM_SURE : GRAM_MAYBE;
}

static uint32_t n_demanding(const search *s) { return s->plan->n_layers + s->plan->n_contains; }

static bool is_covered(const search *s)
{
    const uint32_t n = n_demanding(s);
    for (uint32_t d = 0; d < s->n_demands; d++) {
        const uint8_t *known = s->demands + (size_t)d * n;
        bool weaker = true;
        for (uint32_t i = 0; weaker && i < n; i++) {
            weaker = known[i] == UNDECIDED || known[i] == s->now[i];
        }
        if (weaker) {
            return true;
        }
    }
    return false;
}

static bool narrow(search *s, gram_form form)
{
    s->value = gram_form_and2(s->j->forms, s->value, form);
    return gram_sat(s->j, s->value, s->view->levels);
}

static bool decide_range(gram_walk *w, need *range, uint32_t min, uint32_t max, const gram_todo *work, const gram_todo *branches)
{
    const need old = *range;
    range->min = min > old.min ? min : old.min;
    range->max = max < old.max ? max : old.max;
    const bool done = range->min <= range->max && gram_walk_on(w, work, branches);
    *range = old;
    return done;
}

static bool decide_items(gram_walk *w, uint32_t min, uint32_t max, const gram_todo *work, const gram_todo *branches)
{
    search *s = w->user;
    const need old = {s->min, s->max};
    s->min = min > old.min ? min : old.min;
    s->max = max < old.max ? max : old.max;
    const bool done = s->min <= s->max && gram_walk_on(w, work, branches);
    s->min = old.min;
    s->max = old.max;
    return done;
}

static bool decide_layer(gram_walk *w, uint32_t i, bool positive, const gram_todo *work, const gram_todo *branches)
{
    search *s = w->user;
    const gram_form value = s->value;
    bool done = false;
    s->layer[i] = positive ? HOLDS : FAILS;
    if (positive && s->next) {
        const gram_form form = layer_form(s, i, s->view->index);
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

static bool decide(gram_walk *w, gram_form atom, bool positive, const gram_todo *work, const gram_todo *branches)
{
    search *s = w->user;
    const gram_atom kind = gram_atom_kind(s->j->forms, atom);
    const uint32_t *words = gram_atom_words(s->j->forms, atom);
    if (is_covered(s)) {
        return false; /* whatever follows asks no less of the next value */
    }
    if (kind == AT_NITEMS) {
        return positive ? decide_items(w, words[0], words[1], work, branches)
                        : (words[0] > 0 && decide_items(w, 0, words[0] - 1, work, branches)) ||
                              (words[1] != GRAM_INF && decide_items(w, words[1] + 1, GRAM_INF, work, branches));
    }
    if (kind == AT_CONTAINS) {
        need *range = &s->contains[find(s->plan->contains, s->plan->n_contains, atom)];
        return positive ? decide_range(w, range, words[1], words[2], work, branches)
                        : (words[1] > 0 && decide_range(w, range, 0, words[1] - 1, work, branches)) ||
                              (words[2] != GRAM_INF && decide_range(w, range, words[2] + 1, GRAM_INF, work, branches));
    }
    return decide_layer(w, find(s->plan->layers, s->plan->n_layers, atom), positive, work, branches);
}

/* --- Different values --------------------------------------------------------------------------------------------- */

typedef struct matching {
    gram_stack values;      /* all values of the places that have few */
    uint32_t *first;        /* [n + 1] where the values of place i begin */
    uint32_t *owner;        /* [values.n] first index of an equal value; then its place + 1 */
    uint8_t *visited;
    uint32_t *taken;        /* [values.n] place + 1 at the first index of a value */
    uint32_t n;
} matching;

/* Finds a value for place i, moving others to other values where it must. `without` is a value that nobody may take. */
static bool augment(matching *m, uint32_t i, uint32_t without)
{
    for (uint32_t k = m->first[i]; k < m->first[i + 1]; k++) {
        const uint32_t value = m->owner[k];
        if (m->visited[value] || value == without) {
            continue;
        }
        m->visited[value] = 1;
        if (m->taken[value] == 0 || augment(m, m->taken[value] - 1, without)) {
            m->taken[value] = i + 1;
            return true;
        }
    }
    return false;
}

static bool all_matched(matching *m, uint32_t without)
{
    memset(m->taken, 0, m->values.n * sizeof *m->taken);
    for (uint32_t i = 0; i < m->n; i++) {
        memset(m->visited, 0, m->values.n);
        if (!augment(m, i, without)) {
            return false;
        }
    }
    return true;
}

/* Lists the values of every place that has fewer than `enough`. False when that can't be done, or there are too few in any case. */
static bool list_places(search *s, uint32_t enough, matching *m)
{
    gram_json *j = s->j;
    gram_stack first = {NULL, 0, 0};
    for (uint32_t i = 0; i < s->n_later; i++) {
        const uint32_t n = gram_values(j, s->later[i].form, enough);
        if (n == GRAM_NONE) {
            gram_fail(j->mem, DI_E_UNSUPPORTED, "uniqueItems with so many items over this schema of items is not supported");
            return false;
        }
        if (n >= enough) {
            continue;
        }
        if (s->later[i].n > n) {
            return false;
        }
        for (uint32_t k = 0; k < s->later[i].n; k++) {
            (void)gram_push(j->mem, &first, m->values.n);
            if (n > MAX_VALUES || !gram_list_values(j, s->later[i].form, MAX_VALUES, &m->values)) {
                gram_fail(j->mem, DI_E_UNSUPPORTED, "uniqueItems over this schema of items is not supported");
                return false;
            }
            m->n++;
        }
    }
    (void)gram_push(j->mem, &first, m->values.n);
    m->first = first.words;
    m->owner = gram_alloc(j->mem, m->values.n, sizeof *m->owner);
    m->taken = gram_alloc(j->mem, m->values.n, sizeof *m->taken);
    m->visited = gram_alloc(j->mem, m->values.n, 1);
    for (uint32_t i = 0; !gram_failed(j->mem) && i < m->values.n; i++) {
        m->owner[i] = find(m->values.words, i, m->values.words[i]);
    }
    return !gram_failed(j->mem);
}

/* The items to come can all differ, from each other and from those before. Values that the next item must leave to them are excluded. */
static bool can_differ(search *s)
{
    uint32_t n = s->next;
    for (uint32_t i = 0; i < s->n_later; i++) {
        n += s->later[i].n;
    }
    matching m = {.n = 0};
    if (n <= 1 && s->n_later == 0) {
        return true;
    }
    if (!list_places(s, n, &m) || !all_matched(&m, GRAM_NONE)) {
        return false;
    }
    for (uint32_t i = 0; s->next && i < m.values.n; i++) {
        if (m.owner[i] == i && !all_matched(&m, i) && !narrow(s, gram_form_not(s->j->forms, m.values.words[i]))) {
            return false;
        }
    }
    return true;
}

/* --- Leaves ------------------------------------------------------------------------------------------------------- */

static bool is_unique(const search *s)
{
    return s->plan->unique && s->layer[s->plan->n_layers - 1] == HOLDS;
}

static bool finish(search *s)
{
    const gram_form value = s->value;
    if (is_unique(s) && !can_differ(s)) {
        s->value = value;
        return gram_failed(s->j->mem);
    }
    if (!s->next) {
        return true;
    }
    if (s->n_demands == MAX_DEMANDS) {
        gram_fail(s->j->mem, DI_E_LIMIT, "the grammar is too complex: more than %d alternatives for one item", MAX_DEMANDS);
        return true;
    }
    const uint32_t n = n_demanding(s) != 0 ? n_demanding(s) : 1;
    uint8_t *demands = gram_grow(s->j->mem, s->demands, s->n_demands, &s->demand_capacity, n);
    gram_form *values = gram_grow(s->j->mem, s->values, s->n_demands, &s->value_capacity, sizeof *values);
    if (demands == NULL || values == NULL) {
        return true;
    }
    s->demands = demands;
    s->values = values;
    memcpy(demands + (size_t)s->n_demands * n, s->now, n_demanding(s));
    if (s->value != value) {
        demands[(size_t)s->n_demands * n] = NARROWED;
    }
    values[s->n_demands++] = s->value;
    const bool all = s->value == GRAM_TRUE;
    s->value = value;
    return all;
}

static bool push_later(search *s, gram_form form, uint32_t n)
{
    place *later = gram_grow(s->j->mem, s->later, s->n_later, &s->later_capacity, sizeof *later);
    if (later == NULL) {
        return false;
    }
    s->later = later;
    later[s->n_later++] = (place){form, n};
    return true;
}

/* What the layers that hold demand of the item at an index. */
static gram_form demand(const search *s, uint32_t index)
{
    gram_form form = GRAM_TRUE;
    for (uint32_t i = 0; i < s->plan->n_layers; i++) {
        if (s->layer[i] == HOLDS) {
            form = gram_form_and2(s->j->forms, form, layer_form(s, i, index));
        }
    }
    return form;
}

/* A thing that an item can do: count for a contains, or break a layer. */
typedef struct task {
    uint32_t i;
    bool is_layer;
    bool wanted;
} task;

static uint32_t list_tasks(const search *s, uint32_t index, task tasks[MAX_TASKS + 1], bool *wanted)
{
    uint32_t n = 0;
    *wanted = false;
    for (uint32_t i = 0; i < s->plan->n_contains && n <= MAX_TASKS; i++) {
        const bool pending = s->needs[i].min > 0;
        if ((pending || s->needs[i].max != GRAM_INF) && s->needs[i].max > 0 && index >= contains_words(s, i)[3]) {
            tasks[n++] = (task){i, false, pending};
        }
        *wanted = *wanted || pending;
    }
    for (uint32_t i = 0; i < s->plan->n_layers && n <= MAX_TASKS; i++) {
        if (s->broken[i] != 0) {
            tasks[n++] = (task){i, true, true};
            *wanted = true;
        }
    }
    return n;
}

static bool lay_out(search *s, uint32_t index);

/* The form of an item at `index` that does the tasks whose bits are set. */
static gram_form form_of(const search *s, uint32_t index, const task *tasks, uint32_t n, uint32_t bits)
{
    gram_forms *f = s->j->forms;
    gram_form form = demand(s, index);
    for (uint32_t i = 0; i < s->plan->n_contains; i++) {
        bool counts = false;
        for (uint32_t t = 0; t < n; t++) {
            counts = counts || (!tasks[t].is_layer && tasks[t].i == i && (bits >> t & 1) != 0);
        }
        const gram_form one = contains_words(s, i)[0];
        if (counts) {
            form = gram_form_and2(f, form, one);
        } else if (s->needs[i].max != GRAM_INF && index >= contains_words(s, i)[3]) {
            form = gram_form_and2(f, form, gram_form_not(f, one));
        }
    }
    for (uint32_t t = 0; t < n; t++) {
        if (tasks[t].is_layer && (bits >> t & 1) != 0) {
            form = gram_form_and2(f, form, gram_form_not(f, layer_form(s, tasks[t].i, index)));
        }
    }
    return form;
}

static void note_tasks(search *s, const task *tasks, uint32_t n, uint32_t bits, bool done)
{
    for (uint32_t t = 0; t < n; t++) {
        if ((bits >> t & 1) == 0) {
            continue;
        }
        if (tasks[t].is_layer) {
            s->broken[tasks[t].i] = !done;
            continue;
        }
        need *one = &s->needs[tasks[t].i];
        if (done) {
            one->min -= tasks[t].wanted;
            one->max -= one->max != GRAM_INF;
        } else {
            one->min += tasks[t].wanted;
            one->max += one->max != GRAM_INF;
        }
    }
}

static bool must_repeat(const search *s) { return s->plan->unique && s->broken[s->plan->n_layers - 1] != 0; }

/* An item that is equal to one laid out before, or to the next one, breaks uniqueness. */
static bool repeat(search *s, uint32_t index, gram_form form)
{
    const uint32_t unique = s->plan->n_layers - 1;
    bool done = false;
    s->broken[unique] = 0;
    for (uint32_t i = 0; !done && i < s->n_later; i++) {
        const gram_form old = s->later[i].form;
        const gram_form both = gram_form_and2(s->j->forms, old, form);
        if (gram_sat(s->j, both, s->view->levels) && push_later(s, both, 1)) {
            s->later[i].form = both;
            done = lay_out(s, index + 1);
            s->later[i].form = old;
            s->n_later--;
        }
    }
    const gram_form value = s->value;
    if (!done && s->next && narrow(s, form) && push_later(s, s->value, 1)) {
        done = lay_out(s, index + 1);
        s->n_later--;
    }
    s->value = value;
    s->broken[unique] = 1;
    return done;
}

/* An item that does the tasks whose bits are set, and those behind it. */
static bool lay_item(search *s, uint32_t index, const task *tasks, uint32_t n, uint32_t bits, bool wanted)
{
    const gram_form form = form_of(s, index, tasks, n, bits);
    const bool spare = bits == 0 && wanted && index >= s->plan->steady; /* one may be there to be repeated */
    bool done = false;
    if (!gram_sat(s->j, form, s->view->levels)) {
        return false;
    }
    note_tasks(s, tasks, n, bits, true);
    if ((!spare || (must_repeat(s) && !s->spared)) && push_later(s, form, 1)) {
        const bool spared = s->spared;
        s->spared = spared || spare;
        done = lay_out(s, index + 1);
        s->spared = spared;
        s->n_later--;
    }
    if (!done && must_repeat(s)) {
        done = repeat(s, index, form);
    }
    note_tasks(s, tasks, n, bits, false);
    return done;
}

/* Places the items from `index` on. */
static bool lay_out(search *s, uint32_t index)
{
    gram_json *j = s->j;
    task tasks[MAX_TASKS + 1];
    if (is_covered(s)) {
        return false;
    }
    bool wanted;
    const uint32_t n = list_tasks(s, index, tasks, &wanted);
    const bool steady = index >= s->plan->steady;
    if (!wanted && index >= s->min) {
        return finish(s);
    }
    if (index >= s->max || !gram_spend(j->mem, 4) || !gram_enter(j->mem)) {
        return gram_failed(j->mem);
    }
    bool done = false;
    const gram_form neutral = form_of(s, index, tasks, n, 0);
    if (n > MAX_TASKS) {
        gram_fail(j->mem, DI_E_LIMIT, "the grammar is too complex: more than %d demands on one item", MAX_TASKS);
        done = true;
    } else if (!wanted && steady && gram_sat(j, neutral, s->view->levels)) {
        if (push_later(s, neutral, s->min - index)) { /* fillers */
            done = finish(s);
            s->n_later--;
        }
    } else {
        for (uint32_t bits = 1u << n; !done && bits-- > 0;) {
            done = lay_item(s, index, tasks, n, bits, wanted);
        }
    }
    gram_leave(j->mem);
    return done;
}

/* Whether the next item counts for each contains from the i-th on; what asks least of it first. */
static bool choose_contains(search *s, uint32_t i)
{
    gram_forms *f = s->j->forms;
    const uint32_t index = s->view->index;
    if (i == s->plan->n_contains || !s->next) {
        return lay_out(s, index + s->next);
    }
    const uint32_t *w = contains_words(s, i);
    const need old = s->needs[i];
    if (index < w[3] || (old.min == 0 && old.max == GRAM_INF)) {
        return choose_contains(s, i + 1);
    }
    const gram_form value = s->value;
    bool done = false;
    if (old.max == GRAM_INF) {
        done = choose_contains(s, i + 1);
    } else {
        s->now[s->plan->n_layers + i] = FAILS;
        done = narrow(s, gram_form_not(f, w[0])) && !is_covered(s) && choose_contains(s, i + 1);
        s->value = value;
    }
    if (!done && old.max > 0) {
        s->now[s->plan->n_layers + i] = HOLDS;
        s->needs[i] = (need){old.min - (old.min > 0), old.max - (old.max != GRAM_INF)};
        done = narrow(s, w[0]) && !is_covered(s) && choose_contains(s, i + 1);
        s->needs[i] = old;
        s->value = value;
    }
    s->now[s->plan->n_layers + i] = UNDECIDED;
    return done;
}

/* Whether the next item breaks each layer that is to fail, from the i-th on. */
static bool choose_broken(search *s, uint32_t i)
{
    while (i < s->plan->n_layers && s->broken[i] == 0) {
        i++;
    }
    if (i == s->plan->n_layers || !s->next) {
        return choose_contains(s, 0);
    }
    gram_forms *f = s->j->forms;
    const gram_form form = layer_form(s, i, s->view->index);
    if (!gram_sat(s->j, gram_form_and2(f, s->value, form), s->view->levels)) { /* it does in any case */
        s->broken[i] = 0;
        const bool done = choose_broken(s, i + 1);
        s->broken[i] = 1;
        return done;
    }
    if (choose_broken(s, i + 1)) {
        return true;
    }
    const gram_form value = s->value;
    s->now[i] = FAILS;
    s->broken[i] = 0;
    const bool done = form != GRAM_TRUE && narrow(s, gram_form_not(f, form)) && !is_covered(s) && choose_broken(s, i + 1);
    s->broken[i] = 1;
    s->now[i] = UNDECIDED;
    s->value = value;
    return done;
}

static bool leaf(gram_walk *w)
{
    search *s = w->user;
    for (uint32_t i = 0; i < s->plan->n_layers; i++) {
        s->broken[i] = s->layer[i] == FAILS && !gram_has(s->view->violated, i);
    }
    for (uint32_t i = 0; i < s->plan->n_contains; i++) {
        const uint32_t have = s->view->counts[i];
        const need all = s->contains[i];
        if (have > all.max) {
            return false;
        }
        s->needs[i] = (need){all.min > have ? all.min - have : 0, all.max == GRAM_INF ? GRAM_INF : all.max - have};
    }
    s->n_later = 0;
    return !is_covered(s) && choose_broken(s, 0);
}

/* --- The goal of the next item ------------------------------------------------------------------------------------ */

static void choose(search *s, gram_arr_choice *out)
{
    gram_json *j = s->j;
    gram_stack *work = &j->lang->work;
    const uint32_t base = work->n;
    const uint32_t n = n_demanding(s);
    const gram_demands found = {s->values, s->demands, s->n_demands, n, s->view->levels};
    uint32_t *bit = gram_alloc(j->mem, n, sizeof *bit);
    for (uint32_t i = 0; bit != NULL && i < n; i++) {
        if (i >= s->plan->n_layers) {
            bit[i] = gram_demand_bit(j, &found, i, contains_words(s, i - s->plan->n_layers)[0], base);
        } else {
            bit[i] = gram_has(s->view->violated, i) ? GRAM_BIT_FAILS
                                                    : gram_demand_bit(j, &found, i, layer_form(s, i, s->view->index), base);
        }
    }
    const gram_form any = gram_form_or(j->forms, s->values, s->n_demands);
    out->bit = bit;
    out->goal = gram_failed(j->mem) ? 0 : gram_goal_of(j, any, work->words + base, work->n - base);
    work->n = base;
}

bool gram_arr_search(gram_json *j, uint32_t view, bool next, gram_arr_choice *out)
{
    const gram_arr_view *v = j->arr_views[view];
    const gram_arr_plan plan = j->arr_plans[v->plan];
    search s = {.j = j, .view_id = view, .view = v, .plan = &plan, .next = next, .max = GRAM_INF, .value = GRAM_TRUE};
    s.layer = gram_alloc(j->mem, plan.n_layers, 1);
    s.broken = gram_alloc(j->mem, plan.n_layers, 1);
    s.now = gram_alloc(j->mem, n_demanding(&s), 1);
    s.contains = gram_alloc(j->mem, plan.n_contains, sizeof *s.contains);
    s.needs = gram_alloc(j->mem, plan.n_contains, sizeof *s.needs);
    if (gram_failed(j->mem)) {
        return false;
    }
    for (uint32_t i = 0; i < plan.n_contains; i++) {
        s.contains[i].max = GRAM_INF;
    }
    gram_walk walk = {.forms = j->forms, .user = &s, .truth = truth_of, .decide = decide, .leaf = leaf};
    const bool found = gram_walk_start(&walk, plan.goal);
    if (gram_failed(j->mem) || !next) {
        return found && !gram_failed(j->mem);
    }
    if (s.n_demands != 0) {
        choose(&s, out);
    }
    return s.n_demands != 0;
}
