/* gram_obj_plan.c - formulas about objects taken apart: layers (what all members must be), names, and classes of the other names.
 *
 * Slots: one for each name that some layer or requirement speaks of, then one for each class. What a layer demands of a slot is the
 * conjunction of what its name and its patterns say, or else its "other". */
#include "grammar/gram_json.h"

#define MAX_PATTERNS 64 /* bits of gram_class.patterns */

typedef struct gatherer {
    gram_json *j;
    gram_tuples atoms;
    gram_stack layers; /* atom, props */
    gram_stack reqs;   /* atom, name */
    gram_stack names;
    gram_tuples name_set;
    gram_stack patterns;
    uint32_t bound;
} gatherer;

static uint32_t name_slot(gatherer *g, uint32_t name)
{
    bool is_new;
    const uint32_t slot = gram_tuple(g->j->mem, &g->name_set, &name, 1, &is_new);
    if (is_new) {
        (void)gram_push(g->j->mem, &g->names, name);
    }
    return slot;
}

/* "All names satisfy a formula" as a layer: names outside of the formula's language have no value. */
static uint32_t names_as_props(gram_json *j, gram_form names)
{
    const gram_form typed = gram_form_of(j->forms, names, GRAM_STRING);
    const gram_ex outside = gram_ex_not(j->lang, gram_text_ex(&j->texts, typed));
    const gram_form none = GRAM_FALSE;
    const gram_props props = {.patterns = &outside, .pattern_forms = &none, .n_patterns = 1, .other = GRAM_TRUE};
    const gram_form atom = gram_form_props(j->forms, &props);
    return gram_failed(j->mem) ? GRAM_NONE : gram_atom_words(j->forms, atom)[0];
}

static void see_atom(void *user, gram_form atom)
{
    gatherer *g = user;
    gram_json *j = g->j;
    const gram_atom kind = gram_atom_kind(j->forms, atom);
    const uint32_t *w = gram_atom_words(j->forms, atom);
    bool is_new;
    (void)gram_tuple(j->mem, &g->atoms, &atom, 1, &is_new);
    if (!gram_spend(j->mem, 1) || !is_new) {
        return;
    }
    if (kind == AT_NPROPS) {
        g->bound = w[0] > g->bound ? w[0] : g->bound;
        g->bound = w[1] != GRAM_INF && w[1] >= g->bound ? w[1] + 1 : g->bound;
        return;
    }
    if (kind == AT_REQ) {
        const uint32_t name = w[0];
        (void)gram_push(j->mem, &g->reqs, atom);
        (void)gram_push(j->mem, &g->reqs, name_slot(g, name));
        return;
    }
    const uint32_t number = kind == AT_PROPS ? w[0] : names_as_props(j, w[0]);
    if (number == GRAM_NONE) {
        return;
    }
    (void)gram_push(j->mem, &g->layers, atom);
    (void)gram_push(j->mem, &g->layers, number);
    const gram_props props = j->forms->props[number];
    for (uint32_t i = 0; i < props.n_names; i++) {
        (void)name_slot(g, props.names[i]);
    }
    for (uint32_t i = 0; i < props.n_patterns; i++) {
        bool known = false;
        for (uint32_t k = 0; k < g->patterns.n; k++) {
            known = known || g->patterns.words[k] == props.patterns[i];
        }
        if (!known && g->patterns.n < MAX_PATTERNS) {
            (void)gram_push(j->mem, &g->patterns, props.patterns[i]);
        } else if (!known) {
            gram_fail(j->mem, DI_E_LIMIT, "the grammar is too complex: more than %d patterns for the names of one object", MAX_PATTERNS);
        }
    }
    (void)gram_spend(j->mem, 1 + props.n_names / 4);
}

/* Every second word from `offset` on, copied. */
static const uint32_t *column(gram_json *j, const gram_stack *s, uint32_t offset, uint32_t step)
{
    const uint32_t n = s->n / step;
    uint32_t *list = gram_alloc(j->mem, n, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        list[i] = s->words[i * step + offset];
    }
    return list;
}

static gram_word word_of(const gram_json *j, uint32_t name)
{
    gram_word word;
    word.chars = gram_tuple_at(&j->forms->names, name, &word.n);
    return word;
}

static gram_ex all_names(gram_json *j, const gram_obj_plan *plan, bool kept)
{
    gram_word *words = gram_alloc(j->mem, plan->n_names, sizeof *words);
    for (uint32_t i = 0; words != NULL && i < plan->n_names; i++) {
        words[i] = word_of(j, plan->names[i]);
    }
    if (words == NULL) {
        return GRAM_EX_NONE;
    }
    return kept ? gram_ex_kept_words(j->lang, words, plan->n_names) : gram_ex_words(j->lang, words, plan->n_names);
}

/* Splits the names that are not declared by the patterns they match. */
static void make_classes(gram_json *j, gram_obj_plan *plan)
{
    gram_class *list = gram_alloc(j->mem, GRAM_MAX_CLASSES, sizeof *list);
    if (list == NULL) {
        return;
    }
    list[0] = (gram_class){.ex = gram_ex_not(j->lang, all_names(j, plan, false))};
    uint32_t n = 1;
    for (uint32_t p = 0; p < plan->n_patterns && !gram_failed(j->mem); p++) {
        const uint32_t before = n;
        for (uint32_t i = 0; i < before; i++) {
            const gram_ex in = gram_ex_and2(j->lang, list[i].ex, plan->patterns[p]);
            if (gram_empty(j->lang, in)) {
                continue;
            }
            const gram_ex out = gram_ex_and2(j->lang, list[i].ex, gram_ex_not(j->lang, plan->patterns[p]));
            if (gram_empty(j->lang, out)) {
                list[i].patterns |= (uint64_t)1 << p;
                continue;
            }
            if (n == GRAM_MAX_CLASSES) {
                gram_fail(j->mem, DI_E_LIMIT, "the grammar is too complex: more than %u kinds of names in one object", GRAM_MAX_CLASSES);
                return;
            }
            list[n++] = (gram_class){.ex = in, .patterns = list[i].patterns | (uint64_t)1 << p};
            list[i].ex = out;
        }
    }
    plan->classes = list;
    plan->n_classes = n;
}

/* Adds the strings of e, of which there are few, to the names. `text` is the beginning that leads to e. */
static void spell(gatherer *g, gram_ex e, gram_stack *text)
{
    gram_json *j = g->j;
    if (gram_empty(j->lang, e) || !gram_enter(j->mem)) {
        return;
    }
    if (gram_nullable(j->lang, e)) {
        (void)name_slot(g, gram_tuple(j->mem, &j->forms->names, text->words, text->n, NULL));
    }
    const gram_row *row = gram_row_of(j->lang, e);
    for (uint32_t i = 0, c = 0; i < row->n; c = row->seg[i].last + 1, i++) {
        if (row->seg[i].to == GRAM_EX_NONE) {
            continue;
        }
        for (; c <= row->seg[i].last && gram_spend(j->mem, 1); c++) {
            if ((c < 0xD800 || c > 0xDFFF) && gram_push(j->mem, text, c)) {
                spell(g, row->seg[i].to, text);
                text->n--;
            }
        }
    }
    gram_leave(j->mem);
}

/* Small classes become names, so that a class never runs out. */
static void spell_small_classes(gatherer *g, gram_obj_plan *plan)
{
    gram_json *j = g->j;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < plan->n_classes && !gram_failed(j->mem); i++) {
        const uint32_t names = g->names.n;
        if (gram_count(j->lang, plan->classes[i].ex, GRAM_LEAST_CLASS) < GRAM_LEAST_CLASS) {
            gram_stack text = {NULL, 0, 0};
            spell(g, plan->classes[i].ex, &text);
        } else {
            plan->classes[kept++] = plan->classes[i];
        }
        (void)gram_spend(j->mem, 1 + (g->names.n - names));
    }
    plan->n_classes = kept;
    plan->names = g->names.words;
    plan->n_names = g->names.n;
}

uint32_t gram_obj_plan_of(gram_json *j, gram_form goal, const gram_form *observed, uint32_t n)
{
    bool is_new;
    const uint32_t id = gram_observed_key(j, &j->obj_plan_keys, goal, observed, n, &is_new);
    if (!is_new) {
        return id;
    }
    gatherer g = {.j = j};
    gram_form_each_atom(j->forms, goal, see_atom, &g);
    for (uint32_t i = 0; i < n; i++) {
        gram_form_each_atom(j->forms, observed[i], see_atom, &g);
    }
    gram_obj_plan plan = {.goal = goal, .observed = j->obj_plan_keys.at[id] + 2, .n_observed = n, .bound = g.bound};
    plan.layers = column(j, &g.layers, 0, 2);
    plan.props = column(j, &g.layers, 1, 2);
    plan.n_layers = g.layers.n / 2;
    plan.reqs = column(j, &g.reqs, 0, 2);
    plan.req_slots = column(j, &g.reqs, 1, 2);
    plan.n_reqs = g.reqs.n / 2;
    plan.names = g.names.words;
    plan.n_names = g.names.n;
    plan.patterns = g.patterns.words;
    plan.n_patterns = g.patterns.n;
    if (!gram_failed(j->mem)) {
        make_classes(j, &plan);
        spell_small_classes(&g, &plan);
    }
    plan.forms = gram_alloc(j->mem, (size_t)plan.n_layers * gram_obj_slots(&plan), sizeof *plan.forms);
    gram_obj_plan *plans = gram_grow(j->mem, j->obj_plans, id, &j->obj_plan_capacity, sizeof *plans);
    if (plans == NULL || gram_failed(j->mem)) {
        return 0;
    }
    j->obj_plans = plans;
    plans[id] = plan;
    return id;
}

static bool matches(gram_json *j, const gram_obj_plan *plan, uint32_t slot, gram_ex pattern)
{
    if (slot < plan->n_names) {
        const gram_word word = word_of(j, plan->names[slot]);
        return gram_ex_has(j->lang, pattern, word.chars, word.n);
    }
    uint32_t i = 0;
    while (plan->patterns[i] != pattern) {
        i++;
    }
    return (plan->classes[slot - plan->n_names].patterns >> i & 1) != 0;
}

static gram_form compute_form(gram_json *j, const gram_obj_plan *plan, const gram_props *props, uint32_t slot)
{
    gram_form form = GRAM_TRUE;
    bool spoken_of = false;
    /* A layer alone has its names at their slots. */
    const bool at_once = slot < props->n_names && slot < plan->n_names && props->names[slot] == plan->names[slot];
    for (uint32_t i = at_once ? slot : 0; slot < plan->n_names && i < props->n_names; i++) {
        if (props->names[i] == plan->names[slot]) {
            form = props->forms[i];
            spoken_of = true;
            break;
        }
    }
    (void)gram_spend(j->mem, 1 + (at_once ? 0 : props->n_names / 8));
    for (uint32_t i = 0; i < props->n_patterns; i++) {
        if (matches(j, plan, slot, props->patterns[i])) {
            form = gram_form_and2(j->forms, form, props->pattern_forms[i]);
            spoken_of = true;
        }
    }
    return spoken_of ? form : props->other;
}

gram_form gram_obj_form(gram_json *j, uint32_t plan, uint32_t layer, uint32_t slot)
{
    const gram_obj_plan p = j->obj_plans[plan];
    gram_form *known = &p.forms[(size_t)layer * gram_obj_slots(&p) + slot];
    if (*known == 0) {
        const gram_props props = j->forms->props[p.props[layer]];
        const gram_form form = compute_form(j, &p, &props, slot);
        if (gram_failed(j->mem)) {
            return GRAM_FALSE;
        }
        *known = form + 1;
    }
    return *known - 1;
}

/* What can't come in the empty object can't come later either, unless others have to come first. */
static bool can_ever_come(gram_json *j, uint32_t plan, uint32_t slot)
{
    return j->order == DI_ORDER_SCHEMA || gram_obj_allows(j, gram_obj_start(j, plan, GRAM_MAX_LOOK), slot);
}

bool gram_obj_ordered(gram_json *j, uint32_t plan)
{
    if (j->obj_plans[plan].ordered == 0) {
        bool ordered = j->order == DI_ORDER_SCHEMA;
        if (j->order == DI_ORDER_AUTO) {
            /* While it is asked whether anything but declared names can come, the order makes no difference to the answer. */
            j->obj_plans[plan].ordered = 1;
            ordered = true;
            for (uint32_t i = 0; ordered && i < j->obj_plans[plan].n_classes; i++) {
                ordered = !can_ever_come(j, plan, j->obj_plans[plan].n_names + i);
            }
        }
        j->obj_plans[plan].ordered = ordered ? 2 : 1;
    }
    return j->obj_plans[plan].ordered == 2;
}

/* Slots of the names in the order of their characters, as the list of words has them. */
static const uint32_t *sort_slots(gram_json *j, const gram_obj_plan *plan, gram_ex words)
{
    uint32_t *slots = gram_alloc(j->mem, plan->n_names, sizeof *slots);
    uint32_t list;
    uint32_t from;
    uint32_t to;
    if (slots == NULL || plan->n_names == 0 || !gram_ex_is_words(j->lang, words, &list, &from, &to)) {
        return slots;
    }
    for (uint32_t slot = 0; slot < plan->n_names; slot++) {
        const gram_word name = word_of(j, plan->names[slot]);
        gram_ex rest = words;
        for (uint32_t i = 0; i < name.n; i++) {
            rest = gram_step(j->lang, rest, name.chars[i]);
        }
        if (gram_ex_is_words(j->lang, rest, &list, &from, &to)) { /* the word that ends first comes first */
            slots[from] = slot;
        }
        (void)gram_spend(j->mem, 1 + name.n);
    }
    return slots;
}

uint32_t gram_obj_key_vec(gram_json *j, uint32_t plan)
{
    if (j->obj_plans[plan].key_vec == 0) {
        const gram_ex words = all_names(j, &j->obj_plans[plan], true);
        const uint32_t *slots = sort_slots(j, &j->obj_plans[plan], words);
        gram_stack *work = &j->lang->work;
        const uint32_t base = work->n;
        uint64_t classes = 0;
        (void)gram_push(j->mem, work, words);
        for (uint32_t i = 0; i < j->obj_plans[plan].n_classes; i++) {
            if (can_ever_come(j, plan, j->obj_plans[plan].n_names + i)) {
                (void)gram_push(j->mem, work, j->obj_plans[plan].classes[i].ex);
                classes |= (uint64_t)1 << i;
            }
        }
        const uint32_t vec = gram_failed(j->mem) ? 0 : gram_vec_id(j->lexes, work->words + base, work->n - base, true);
        work->n = base;
        gram_obj_plan *p = &j->obj_plans[plan];
        p->word_slot = slots;
        p->key_classes = classes;
        p->key_vec = vec + 1;
    }
    return j->obj_plans[plan].key_vec - 1;
}
