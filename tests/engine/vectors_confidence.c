/* How likely the confidence head's survival comes true, on the demo model's evaluation set with greedy output: on odd ids the expected
 * calibration error over ten bins is at most 2 % with the temperatures of the model's configuration. With DI_ALL_PROMPTS
 * set, even ids run too, and temperatures are fitted on them (sequential temperature scaling, dspark.md 1.8) and printed,
 * which is where the configuration has them from.
 * ctest: serial timeout=1200 */
#include "core/core.h"
#include "engine/eng_budget.h"
#include "engine/eng_eval.h"
#include "engine/eng_sched.h"
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 5, BINS = 10, GRID = 49, MAX_PROPOSALS = 1 << 15 };

typedef struct proposal {
    float confidence[BLOCK];
    int32_t n;
    int32_t right;
} proposal;

typedef struct proposals {
    proposal *all; /* [MAX_PROPOSALS] */
    size_t n;
} proposals;

/* ---- expected calibration error ---- */

typedef struct bins {
    double sum[BINS]; /* of what was said */
    double right[BINS];
    double n[BINS];
} bins;

static void count(bins *b, float survival, bool right)
{
    const int at = survival < 1.0f ? (int)(survival * BINS) : BINS - 1;
    b->sum[at] += (double)survival;
    b->right[at] += right ? 1.0 : 0.0;
    b->n[at] += 1.0;
}

static double error_of(const bins *b)
{
    double n = 0.0;
    double sum = 0.0;
    for (int i = 0; i < BINS; i++) {
        n += b->n[i];
        sum += fabs(b->sum[i] - b->right[i]);
    }
    return n > 0.0 ? sum / n : 0.0;
}

/* Of prefixes of first .. last drafts (from 0). */
static double error_between(const proposals *p, const float *temperature, int32_t first, int32_t last)
{
    bins b = {.n = {0.0}};
    for (size_t i = 0; i < p->n; i++) {
        const proposal *const one = &p->all[i];
        float survival[BLOCK];
        eng_survival(one->confidence, temperature, one->n, survival);
        for (int32_t j = first; j <= last && j < one->n; j++) {
            count(&b, survival[j], one->right > j);
        }
    }
    return error_of(&b);
}

/* From left to right, each so that the error of its prefixes is least; 49 steps from 1/8 to 8. */
static void fit(const proposals *p, float *temperature)
{
    for (int32_t j = 0; j < BLOCK; j++) {
        double least = 2.0;
        float best = 1.0f;
        for (int i = 0; i < GRID; i++) {
            temperature[j] = powf(2.0f, (float)(i - GRID / 2) / 8.0f);
            const double e = error_between(p, temperature, j, j);
            if (e < least) {
                least = e;
                best = temperature[j];
            }
        }
        temperature[j] = best;
    }
}

/* ---- proposals ---- */

static void on_events(void *user, const di_task_event *events, size_t n)
{
    (void)user;
    (void)events;
    (void)n;
}

/* The pass that a step has just taken in is the one that will be planned next. */
static void collect(const di_scheduler *s, proposals *p)
{
    const eng_pass *const done = s->plan;
    for (int32_t i = 0; i < done->n_parts; i++) {
        const eng_part *const part = &done->parts[i];
        if (!part->prefill && part->n > 1) {
            assert_true(p->n < MAX_PROPOSALS);
            assert_in_range(part->n - 1, 1, BLOCK);
            proposal *const one = &p->all[p->n++];
            *one = (proposal){.n = part->n - 1, .right = part->n_right};
            memcpy(one->confidence, part->confidence, (size_t)one->n * sizeof *one->confidence);
        }
    }
}

typedef struct evaluation {
    eng_eval_setup setup;
    proposals sides[2]; /* even ids, odd ids */
} evaluation;

static void one_line(void *user, const js_value *line)
{
    evaluation *const e = user;
    di_scheduler *const s = e->setup.scheduler;
    di_step_info step = {.idle = false};
    size_t n;
    int32_t *const prompt = eng_eval_ids(js_get(line, "prompt_ids"), &n);
    const char *const id = js_string(js_get(line, "id"), NULL);
    proposals *const side = &e->sides[atoi(id + strlen("eval-")) % 2];
    eng_eval_submit(s, prompt, n);
    while (!step.idle) {
        assert_int_equal(di_scheduler_step(s, &step, NULL), DI_OK);
        if (step.n_tokens > 0) {
            collect(s, side);
        }
    }
    free(prompt);
}

static void check_error(const proposals *odd, const float *stored)
{
    for (int32_t j = 0; j < BLOCK; j++) {
        print_message("draft %d: error %.4f, without temperatures %.4f\n", j, error_between(odd, stored, j, j),
                      error_between(odd, NULL, j, j));
    }
    const double error = error_between(odd, stored, 0, BLOCK - 1);
    const double without = error_between(odd, NULL, 0, BLOCK - 1);
    print_message("%zu proposals: error %.4f, without temperatures %.4f\n", odd->n, error, without);
    assert_true(error <= 0.02);
    assert_true(error < without);
}

static void check_fit(const proposals *even, const float *stored)
{
    float fitted[BLOCK];
    fit(even, fitted);
    for (int32_t j = 0; j < BLOCK; j++) {
        print_message("draft %d: fitted %.6f, stored %.6f\n", j, (double)fitted[j], (double)stored[j]);
        assert_true(fabsf(log2f(fitted[j] / stored[j])) <= 0.25f); /* rounding may move the fit a step or two */
    }
}

static void survival_comes_true(void **state)
{
    (void)state;
    evaluation e = {.setup = eng_eval_open(&(di_scheduler_options){.on_events = on_events})};
    const float *const stored = mdl_config_of(e.setup.model)->draft.temperature;
    const bool all = getenv("DI_ALL_PROMPTS") != NULL;
    for (int i = 0; i < 2; i++) {
        e.sides[i].all = ar_calloc(MAX_PROPOSALS, sizeof(proposal));
        assert_non_null(e.sides[i].all);
    }
    eng_eval_each(&e.setup, all ? 0 : 1, all ? 1 : 2, one_line, &e);
    check_error(&e.sides[1], stored);
    if (all) {
        check_fit(&e.sides[0], stored);
    }
    printf("demo_model/eval.jsonl: %zu passed, 0 skipped\n", e.sides[0].n + e.sides[1].n);
    eng_eval_close(&e.setup);
    free(e.sides[0].all);
    free(e.sides[1].all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survival_comes_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
