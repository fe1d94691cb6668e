/* eng_budget.c - see eng_budget.h. For a given number of drafts the likeliest ones are best, and survival only falls along a sequence:
 * so drafts are taken one by one from a heap of the sequences' next ones, and prefixes come of themselves (dspark.md 3.1). O(drafts x log
 * sequences), twice: once to find the number, once to take it. */
#include "engine/eng_budget.h"

#include <math.h>
#include <stddef.h>

#define LEARN_ALL 0.04   /* of what a pass is off, by every point: the clock changed */
#define LEARN_NEAR 0.08  /* and by those around it: so many rows cost other than thought */
#define LEARN_MOST 0.25  /* nothing counts as further off: one disturbed pass says little, and the middle of many is followed */

/* ---- what a pass takes ---- */

bool eng_cost_add(eng_cost *cost, int32_t rows, double seconds)
{
    const int32_t n = cost->n;
    if (n == ENG_COST_POINTS || rows < 1 || (n > 0 && rows <= cost->rows[n - 1]) || !isfinite(seconds) || !(seconds > 0.0)) {
        return false;
    }
    cost->rows[n] = rows;
    cost->seconds[n] = seconds;
    for (int32_t i = n - 1; i >= 0 && cost->seconds[i] > seconds; i--) {
        cost->seconds[i] = seconds;
    }
    cost->n = n + 1;
    return true;
}

/* The point at or behind `rows`, or the last; there is one. */
static int32_t point_at(const eng_cost *cost, int32_t rows)
{
    int32_t i = 0;
    while (i < cost->n - 1 && cost->rows[i] < rows) {
        i++;
    }
    return i;
}

double eng_cost_seconds(const eng_cost *cost, int32_t rows)
{
    if (cost->n == 0) {
        return 0.0;
    }
    const int32_t i = point_at(cost, rows);
    if (i == 0) {
        return cost->seconds[0];
    }
    const double slope = (cost->seconds[i] - cost->seconds[i - 1]) / ((double)cost->rows[i] - (double)cost->rows[i - 1]);
    return cost->seconds[i - 1] + slope * ((double)rows - (double)cost->rows[i - 1]);
}

/* Its neighbours follow, so that seconds never fall. */
static void set_point(eng_cost *cost, int32_t at, double seconds)
{
    cost->seconds[at] = seconds;
    for (int32_t i = at - 1; i >= 0 && cost->seconds[i] > cost->seconds[at]; i--) {
        cost->seconds[i] = cost->seconds[at];
    }
    for (int32_t i = at + 1; i < cost->n && cost->seconds[i] < cost->seconds[at]; i++) {
        cost->seconds[i] = cost->seconds[at];
    }
}

void eng_cost_follow(eng_cost *cost, double off)
{
    for (int32_t k = 0; k < cost->n; k++) {
        cost->seconds[k] *= 1.0 + LEARN_ALL * off;
    }
}

double eng_cost_learn(eng_cost *cost, int32_t rows, double seconds)
{
    if (cost->n == 0 || rows < 1 || !isfinite(seconds) || !(seconds > 0.0)) {
        return 0.0;
    }
    const int32_t i = point_at(cost, rows);
    const double off = seconds / eng_cost_seconds(cost, rows) - 1.0;
    const double counted = off < -LEARN_MOST ? -LEARN_MOST : off > LEARN_MOST ? LEARN_MOST : off;
    eng_cost_follow(cost, counted);
    const double factor = 1.0 + LEARN_NEAR * counted;
    const double before = i > 0 ? cost->seconds[i - 1] * factor : 0.0;
    set_point(cost, i, cost->seconds[i] * factor);
    if (i > 0 && cost->rows[i] > rows) {
        set_point(cost, i - 1, before);
    }
    return counted;
}

/* ---- survival ---- */

void eng_survival(const float *confidence, const float *temperature, int32_t n, float *survival)
{
    float product = 1.0f;
    for (int32_t i = 0; i < n; i++) {
        const float t = temperature != NULL ? temperature[i] : 1.0f;
        product *= 1.0f / (1.0f + expf(-confidence[i] / t));
        product = product > 0.0f ? product : 0.0f; /* not a number: nothing is known of what follows either */
        survival[i] = product;
    }
}

/* Survival of the draft behind the first `length`, or 0. Earlier ones cap it, so that the heap sees a list that only falls. */
static float next_of(const eng_claim *c)
{
    float least = 1.0f;
    if (c->length >= c->n) {
        return 0.0f;
    }
    for (int32_t i = 0; i <= c->length; i++) {
        const float a = c->survival[i];
        if (!(a > 0.0f)) {
            return 0.0f;
        }
        least = a < least ? a : least;
    }
    return least;
}

/* ---- a heap of claims by their next draft ---- */

static bool goes_first(const eng_claim *claims, int32_t a, int32_t b)
{
    const float x = next_of(&claims[a]);
    const float y = next_of(&claims[b]);
    if (x > y || x < y) {
        return x > y;
    }
    return claims[a].length != claims[b].length ? claims[a].length < claims[b].length : a < b;
}

static void sink(const eng_claim *claims, int32_t *heap, int32_t n, int32_t at)
{
    for (int32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && goes_first(claims, heap[child + 1], heap[child])) {
            child++;
        }
        if (!goes_first(claims, heap[child], heap[at])) {
            return;
        }
        const int32_t moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static double speed_by(const eng_cost *pass, const eng_step_cost *step, double tokens, int64_t rows)
{
    const double seconds = eng_cost_seconds(pass, rows < INT32_MAX ? (int32_t)rows : INT32_MAX) + step->seconds;
    return pass->n > 0 && seconds > 0.0 ? tokens / seconds : 0.0;
}

static double speed(const eng_step_cost *step, double tokens, int64_t rows) { return speed_by(step->pass, step, tokens, rows); }

/* Gives out up to `most` drafts, the likeliest first. *best = the speed that is highest on the way; returns at how many. */
static int32_t take(const eng_step_cost *step, eng_claim *claims, int32_t n, int32_t *heap, int32_t most, double *best)
{
    const int64_t rows = (int64_t)step->rows + n;
    double tokens = n;
    int32_t best_at = 0;
    for (int32_t i = 0; i < n; i++) {
        claims[i].length = 0;
        heap[i] = i;
    }
    for (int32_t i = n / 2 - 1; i >= 0; i--) {
        sink(claims, heap, n, i);
    }
    *best = speed_by(step->plain != NULL ? step->plain : step->pass, step, tokens, rows);
    for (int32_t k = 1; k <= most && n > 0; k++) {
        eng_claim *const c = &claims[heap[0]];
        const float a = next_of(c);
        if (!(a > 0.0f)) {
            break;
        }
        c->length++;
        sink(claims, heap, n, 0);
        tokens += (double)a;
        const double now = speed(step, tokens, rows + k);
        if (now > *best) {
            *best = now;
            best_at = k;
        }
    }
    return best_at;
}

double eng_budget_choose(const eng_step_cost *step, eng_claim *claims, int32_t n, int32_t *heap)
{
    double best;
    double again;
    const int32_t k = take(step, claims, n, heap, step->room, &best);
    (void)take(step, claims, n, heap, k, &again);
    return best;
}

void eng_budget_give(eng_claim *claims, int32_t n, int32_t *heap, int32_t most)
{
    const eng_cost none = {.n = 0};
    const eng_step_cost step = {.pass = &none};
    double best;
    (void)take(&step, claims, n, heap, most, &best);
}

double eng_budget_even(const eng_step_cost *step, int32_t n, const float *survival, int32_t most)
{
    const eng_claim all = {.survival = survival, .n = most};
    double tokens = n;
    double best = 0.0;
    for (int32_t j = 1; j <= most && (int64_t)j * n <= step->room; j++) {
        eng_claim one = all;
        one.length = j - 1;
        tokens += (double)n * (double)next_of(&one);
        const double now = speed(step, tokens, (int64_t)step->rows + (int64_t)n * (1 + j));
        best = now > best ? now : best;
    }
    return best;
}
