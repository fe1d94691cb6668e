/* Drafts of the demo model on its evaluation set: what comes out is what the reference says without drafts, and as many drafts of each
 * proposal are right as the reference counted (bars: 97 % of the prompts alike, within 2 % on average; a prompt whose output parts from the
 * reference where two tokens are about equally likely counts as not alike). Every fourth prompt; all of them with DI_ALL_PROMPTS set. With
 * as many drafts as pay, texts are the same.
 * ctest: serial timeout=1200 */
#include "engine/eng_eval.h"
#include "support/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 4096, STRIDE = 4, AUTO_STRIDE = 16 };

typedef struct talk {
    int32_t ids[MAX_OUT];
    int32_t n;
} talk;

typedef struct sums {
    int n;
    int outputs; /* equal */
    int alike;   /* drafts, too */
    int64_t accepted;
    int64_t wanted;
} sums;

static void on_events(void *user, const di_task_event *events, size_t n)
{
    talk *const t = user;
    for (size_t i = 0; i < n; i++) {
        if (events[i].sample != NULL) {
            assert_true(t->n < MAX_OUT);
            t->ids[t->n++] = events[i].sample->id;
        }
    }
}

/* Runs the prompt alone; true when each proposal had as many right drafts as `wanted` says. */
static bool run(di_scheduler *s, talk *t, const int32_t *prompt, size_t n, const js_value *wanted, sums *sum)
{
    di_step_info step = {.idle = false};
    di_scheduler_stats before;
    di_scheduler_stats after;
    size_t i = 0;
    bool alike = true;
    t->n = 0;
    eng_eval_submit(s, prompt, n);
    for (di_scheduler_get_stats(s, &before); !step.idle; before = after) {
        assert_int_equal(di_scheduler_step(s, &step, NULL), DI_OK);
        di_scheduler_get_stats(s, &after);
        if (after.n_verified > before.n_verified) {
            const int64_t accepted = after.accepted_tokens - before.accepted_tokens;
            alike = alike && i < js_length(wanted) && accepted == js_int(js_at(wanted, i));
            sum->accepted += accepted;
            sum->wanted += js_int(js_at(wanted, i++));
        }
    }
    return alike && i == js_length(wanted);
}

typedef struct evaluation {
    eng_eval_setup setup;
    talk talk;
    sums sum;
} evaluation;

static void one_line(void *user, const js_value *line)
{
    evaluation *const e = user;
    size_t n;
    size_t n_wanted;
    int32_t *const prompt = eng_eval_ids(js_get(line, "prompt_ids"), &n);
    int32_t *const wanted = eng_eval_ids(js_get(line, "reference_output_ids"), &n_wanted);
    const bool alike = run(e->setup.scheduler, &e->talk, prompt, n, js_get(line, "draft_accepted"), &e->sum);
    const bool equal = (size_t)e->talk.n == n_wanted && memcmp(e->talk.ids, wanted, n_wanted * sizeof *wanted) == 0;
    e->sum.n++;
    e->sum.outputs += equal;
    e->sum.alike += equal && alike;
    free(prompt);
    free(wanted);
}

/* Runs every stride-th line, or all. To be freed. */
static evaluation *evaluate(bool automatic, int stride, di_scheduler_stats *stats)
{
    evaluation *const e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->setup = eng_eval_open(&(di_scheduler_options){.on_events = on_events, .user = &e->talk, .draft_auto = automatic});
    eng_eval_each(&e->setup, 0, getenv("DI_ALL_PROMPTS") != NULL ? 1 : stride, one_line, e);
    di_scheduler_get_stats(e->setup.scheduler, stats);
    eng_eval_close(&e->setup);
    return e;
}

static void texts_are_the_same_with_as_many_drafts_as_pay(void **state)
{
    (void)state;
    di_scheduler_stats stats;
    evaluation *const e = evaluate(true, AUTO_STRIDE, &stats);
    const sums *const sum = &e->sum;
    print_message("outputs equal %d of %d; %lld drafts in %lld steps, %lld right\n", sum->outputs, sum->n, (long long)stats.drafted_tokens,
                  (long long)stats.n_steps, (long long)stats.accepted_tokens);
    assert_true(sum->outputs >= 0.97 * sum->n);
    assert_true(stats.drafted_tokens > 0);
    free(e);
}

static void as_many_drafts_are_right_as_the_reference_counted(void **state)
{
    (void)state;
    di_scheduler_stats stats;
    evaluation *const e = evaluate(false, STRIDE, &stats);
    const sums *const sum = &e->sum;
    print_message("outputs equal %d of %d, drafts alike %d; %.3f right of a proposal, reference %.3f\n", sum->outputs, sum->n, sum->alike,
                  (double)sum->accepted / (double)stats.n_verified, (double)sum->wanted / (double)stats.n_verified);
    printf("demo_model/eval.jsonl: %d passed, 0 skipped (%d prompts with other drafts)\n", sum->alike, sum->n - sum->alike);
    assert_true(sum->alike >= 0.97 * sum->n);
    assert_true(fabs((double)(sum->accepted - sum->wanted)) <= 0.02 * (double)sum->wanted);
    free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_the_same_with_as_many_drafts_as_pay),
        cmocka_unit_test(as_many_drafts_are_right_as_the_reference_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
