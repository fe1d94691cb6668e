/* gram_walk.h - depth-first search for ways to make a formula true.
 *
 * The walk decides atoms one after the other; what a decision means is the caller's affair. Formulas that leave no choice are taken
 * first, unions and exactly-one-ofs last, and a branch that is true already costs nothing. Everything is a continuation: `decide` calls
 * gram_walk_on for what is left once it has noted its decision, and takes it back afterwards. */
#ifndef GRAMMAR_GRAM_WALK_H
#define GRAMMAR_GRAM_WALK_H

#include "grammar/gram_form.h"

/* A list of formulas that are all to hold (or all not), from the i-th on, then `next`. Lives on the stack. */
typedef struct gram_todo {
    const gram_form *list;
    uint32_t n;
    uint32_t i;
    bool positive;
    const struct gram_todo *next;
} gram_todo;

typedef struct gram_walk {
    gram_forms *forms;
    void *user;
    gram_truth (*truth)(void *user, gram_form atom); /* as decided so far */
    /* An atom whose truth is open is to hold, or not. All functions return true to end the walk. */
    bool (*decide)(struct gram_walk *w, gram_form atom, bool positive, const gram_todo *work, const gram_todo *branches);
    bool (*leaf)(struct gram_walk *w); /* the formula holds */
} gram_walk;

bool gram_walk_start(gram_walk *w, gram_form x);
bool gram_walk_on(gram_walk *w, const gram_todo *work, const gram_todo *branches);

#endif
