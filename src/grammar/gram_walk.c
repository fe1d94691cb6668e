/* gram_walk.c - see gram_walk.h. */
#include "grammar/gram_walk.h"

static bool walk_with(gram_walk *w, gram_form x, bool positive, const gram_todo *work, const gram_todo *branches)
{
    const gram_todo first = {&x, 1, 0, positive, work};
    return gram_walk_on(w, &first, branches);
}

/* Kid i is to hold and no other one. */
static bool only_one(gram_walk *w, const gram_form *kids, uint32_t n, uint32_t i, const gram_todo *branches)
{
    const gram_todo behind = {kids, n, i + 1, false, NULL};
    const gram_todo before = {kids, i, 0, false, &behind};
    return walk_with(w, kids[i], true, &before, branches);
}

/* Two of the kids are to hold, or none. */
static bool not_one(gram_walk *w, const gram_form *kids, uint32_t n, const gram_todo *branches)
{
    const gram_todo none = {kids, n, 0, false, NULL};
    if (gram_walk_on(w, &none, branches)) {
        return true;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n; k++) {
            const gram_todo second = {&kids[k], 1, 0, true, NULL};
            if (walk_with(w, kids[i], true, &second, branches)) {
                return true;
            }
        }
    }
    return false;
}

static bool branch(gram_walk *w, const gram_todo *branches)
{
    const gram_form x = branches->list[branches->i];
    const bool positive = branches->positive;
    const gram_truth truth = gram_form_truth(w->forms, x, w->truth, w->user);
    if (truth != GRAM_MAYBE) {
        return (truth == GRAM_SURE) == positive && gram_walk_on(w, NULL, branches->next);
    }
    uint32_t n;
    const gram_form *kids = gram_form_kids(w->forms, x, &n);
    const bool one = gram_form_op(w->forms, x) == FO_ONE;
    if (one && !positive) {
        return not_one(w, kids, n, branches->next);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (gram_form_truth(w->forms, kids[i], w->truth, w->user) == (positive ? GRAM_NO_WAY : GRAM_SURE)) {
            continue;
        }
        if (one ? only_one(w, kids, n, i, branches->next) : walk_with(w, kids[i], positive, NULL, branches->next)) {
            return true;
        }
    }
    return false;
}

static bool step(gram_walk *w, const gram_todo *work, const gram_todo *branches)
{
    const gram_form x = work->list[work->i];
    const gram_todo rest = {work->list, work->n, work->i + 1, work->positive, work->next};
    const gram_truth truth = gram_form_truth(w->forms, x, w->truth, w->user);
    const gram_op op = gram_form_op(w->forms, x);
    uint32_t n;
    if (truth != GRAM_MAYBE) {
        return (truth == GRAM_SURE) == work->positive && gram_walk_on(w, &rest, branches);
    }
    if (op == FO_ATOM) {
        return w->decide(w, x, work->positive, &rest, branches);
    }
    const gram_form *kids = gram_form_kids(w->forms, x, &n);
    if (op == FO_NOT) {
        return walk_with(w, kids[0], !work->positive, &rest, branches);
    }
    if (op != FO_ONE && (op == FO_AND) == work->positive) { /* all kids alike */
        const gram_todo all = {kids, n, 0, work->positive, &rest};
        return gram_walk_on(w, &all, branches);
    }
    const gram_todo later = {work->list, work->n, work->i, work->positive, branches};
    return gram_walk_on(w, &rest, &later);
}

bool gram_walk_on(gram_walk *w, const gram_todo *work, const gram_todo *branches)
{
    while (work != NULL && work->i == work->n) {
        work = work->next;
    }
    if (work == NULL && branches == NULL) {
        return w->leaf(w);
    }
    if (!gram_spend(w->forms->mem, 1) || !gram_enter(w->forms->mem)) {
        return true;
    }
    const bool done = work != NULL ? step(w, work, branches) : branch(w, branches);
    gram_leave(w->forms->mem);
    return done;
}

bool gram_walk_start(gram_walk *w, gram_form x) { return walk_with(w, x, true, NULL, NULL); }
