/* eng_budget.h - how many drafts of each sequence a step verifies, as a pure function (dspark.md part 3).
 *
 * A step that runs B rows takes as long as a table of measured passes says. A sequence gives one token, and one more for each draft that
 * is right together with all before it; how likely that is ("survival") the draft model's confidence head estimates. The choice is the one
 * with the most expected tokens a second.
 *
 * The search goes over all numbers of drafts, so steps in the table can't hide what pays behind them. That is sound for drafts that
 * are coupled with their tokens: no choice changes what comes out (docs/decisions/0009). Under block verification and rejection whether a
 * draft is verified must not depend on itself or on drafts behind it; then the search runs over survivals of earlier proposals and only
 * says how many drafts there are to give, and the likeliest get them (dspark.md 3.3). */
#ifndef ENGINE_ENG_BUDGET_H
#define ENGINE_ENG_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define ENG_COST_POINTS 24

/* Seconds of a pass by its rows: rows grow from point to point, seconds never fall. All zero = empty. */
typedef struct eng_cost {
    int32_t rows[ENG_COST_POINTS];
    double seconds[ENG_COST_POINTS];
    int32_t n;
} eng_cost;

/* Adds a point behind the others. Where those took longer they were disturbed, for more rows never take less: they are lowered. False, and
 * nothing changes: the table is full, rows do not grow, or seconds are not positive and finite. */
bool eng_cost_add(eng_cost *cost, int32_t rows, double seconds);
/* A pass of so many rows took so long. All points follow by a 25th of what it is off, since the machine as a whole may be slower now, and
 * the points around it by a 12th more; more than a quarter off counts as a quarter. So points that are seldom run do not stay behind, and
 * disturbed passes, which are few but long, move little. What makes no sense, and an empty table, change nothing. Returns what it counts
 * as off, of one: -0.25 to 0.25. */
double eng_cost_learn(eng_cost *cost, int32_t rows, double seconds);
/* Another table of the same machine was so far off: all points follow as theirs do. */
void eng_cost_follow(eng_cost *cost, double off);
/* Linear between points, and beyond the last; in front of the first what the first says. 0 = the table is empty. */
double eng_cost_seconds(const eng_cost *cost, int32_t rows);

/* Survival of the first 1 .. n drafts out of the confidence head's raw values: the product of sigmoid(confidence / temperature). A value
 * that is not a number makes it 0 from there on. temperature[n] are positive; NULL = 1 each. */
void eng_survival(const float *confidence, const float *temperature, int32_t n, float *survival);

/* What one sequence may get, and gets. */
typedef struct eng_claim {
    const float *survival; /* [n]; whatever is above the one before, or above 1, counts as that; what is not above 0 ends the list */
    int32_t n;
    int32_t length;        /* out: drafts to verify, 0 .. n */
} eng_claim;

/* The rest of a step: its rows besides those of the claims, its seconds besides the pass, and how many drafts it has room for. */
typedef struct eng_step_cost {
    const eng_cost *pass;
    const eng_cost *plain; /* of passes without any draft; NULL = pass */
    double seconds;
    int32_t rows;
    int32_t room;
} eng_step_cost;

/* Sets the lengths of n claims, each of which has a row of its own anyway. Equal survivals: the shorter prefix goes first, then the
 * earlier claim; equal speed: fewer drafts. Without a table: no drafts. Scratch: heap[n]. Returns the expected tokens a second. */
double eng_budget_choose(const eng_step_cost *step, eng_claim *claims, int32_t n, int32_t *heap);

/* Gives out `most` drafts, the likeliest first, in the same order. Whether a claim gets its draft j depends on survivals up to that one. */
void eng_budget_give(eng_claim *claims, int32_t n, int32_t *heap, int32_t most);

/* Expected tokens a second when each of n sequences verifies as many drafts, at least one, of survival[most]: the best such number.
 * 0 = there is no room for any. */
double eng_budget_even(const eng_step_cost *step, int32_t n, const float *survival, int32_t most);

#endif
