/* When a scheduler proposes drafts and how many it leaves in a pass (eng_sched_auto.c), over costs that the test sets: a pass that takes as
 * long for six rows as for one, and one whose rows each take as long as the first. */
#include "engine/eng_sched.h"
#include "support/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 3, STEP = 64, TRIAL = 512, WINDOW = 128 };

typedef struct fake {
    mdl_config config;
    di_engine engine;
    di_scheduler s;
    di_task *tasks[CHOICES];
    eng_part parts[CHOICES + 1];
    eng_pass pass;
    eng_claim claims[CHOICES];
    int32_t heap[CHOICES];
} fake;

/* What each choice's drafts are said to be worth is known to the scheduler from here on. */
static void hear(fake *f)
{
    for (int i = 0; i < CHOICES; i++) {
        eng_auto_learn(&f->s, &f->tasks[i]->choices[0]);
    }
}

/* n proposals of as many drafts each. */
static void learn(fake *f, const float *confidence, int32_t n_drafts, int n)
{
    eng_choice c = {.n_drafts = n_drafts};
    memcpy(c.confidence, confidence, (size_t)n_drafts * sizeof *confidence);
    for (int i = 0; i < n; i++) {
        eng_auto_learn(&f->s, &c);
    }
}

/* A row costs `row` seconds beside a first one of a second; a proposal costs `proposal`. */
static fake *fake_new(double row, double proposal)
{
    fake *const f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->engine.c = &f->config;
    f->config.window = WINDOW;
    f->s.engine = &f->engine;
    f->s.step_tokens = STEP;
    f->s.draft_length = 5;
    f->s.draft_group = 2;
    f->s.automatic = (eng_auto){.on = true, .claims = f->claims, .heap = f->heap};
    assert_true(eng_cost_add(&f->s.automatic.pass, 1, 1.0));
    assert_true(eng_cost_add(&f->s.automatic.pass, 101, 1.0 + 100.0 * row));
    f->s.automatic.plain = f->s.automatic.pass;
    assert_true(eng_cost_add(&f->s.automatic.proposal, 1, proposal));
    assert_true(eng_cost_add(&f->s.automatic.proposal, 2, proposal * 1.5));
    f->pass.parts = f->parts;
    f->pass.n_parts = CHOICES;
    for (int i = 0; i < ENG_MAX_DRAFT; i++) {
        f->config.draft.temperature[i] = 1.0f;
    }
    for (int i = 0; i < CHOICES; i++) {
        f->tasks[i] = calloc(1, sizeof *f->tasks[i] + sizeof f->tasks[i]->choices[0]);
        assert_non_null(f->tasks[i]);
        f->tasks[i]->max_tokens = 100;
        eng_choice *const c = &f->tasks[i]->choices[0];
        c->task = f->tasks[i];
        c->phase = ENG_DECODE;
        c->n_out = 10;
        c->n_drafts = 5;
        f->parts[i] = (eng_part){.choice = c, .n = 6};
        for (int j = 0; j < 5; j++) {
            c->confidence[j] = 2.0f; /* 0.88 each */
        }
        for (int j = 0; j < ENG_MAX_DRAFT; j++) {
            c->survival[j] = 1.0f;
        }
    }
    hear(f);
    for (int j = 0; j < ENG_MAX_DRAFT; j++) {
        f->s.automatic.mean[j] = 1.0f;
    }
    return f;
}

static void fake_free(fake *f)
{
    for (int i = 0; i < CHOICES; i++) {
        free(f->tasks[i]);
    }
    free(f);
}

static void expect_lengths(const fake *f, int32_t a, int32_t b, int32_t c)
{
    assert_int_equal(f->tasks[0]->choices[0].n_drafts, a);
    assert_int_equal(f->tasks[1]->choices[0].n_drafts, b);
    assert_int_equal(f->tasks[2]->choices[0].n_drafts, c);
}

static void rows_for_nothing_leave_all_drafts(void **state)
{
    (void)state;
    fake *const f = fake_new(1e-6, 0.1);
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 5, 5, 5);
    fake_free(f);
}

static void dear_rows_leave_none(void **state)
{
    (void)state;
    fake *const f = fake_new(1.0, 0.1);
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 0, 0, 0);
    fake_free(f);
}

/* What is never run would never be seen to be cheap. */
static void one_of_many_cuts_is_left_out(void **state)
{
    (void)state;
    fake *const f = fake_new(1.0, 0.1);
    int n_whole = 0;
    for (int pass = 0; pass < 256; pass++) {
        for (int i = 0; i < CHOICES; i++) {
            f->tasks[i]->choices[0].n_drafts = 5;
        }
        eng_auto_cut(&f->s, &f->pass);
        const int32_t left = f->tasks[0]->choices[0].n_drafts;
        expect_lengths(f, left, left, left);
        assert_true(left == 0 || left == 5);
        n_whole += left == 5;
    }
    assert_int_equal(n_whole, 4);
    fake_free(f);
}

/* A row costs 0.3 of what a pass of three, 1.6 s and a proposal, gives three tokens for: about a token's 0.55. */
static void likely_drafts_are_kept_and_unlikely_ones_cut(void **state)
{
    (void)state;
    fake *const f = fake_new(0.3, 0.1);
    for (int j = 0; j < 5; j++) {
        f->tasks[0]->choices[0].confidence[j] = 8.0f;
        f->tasks[1]->choices[0].confidence[j] = j == 2 ? -1.0f : 8.0f;
        f->tasks[2]->choices[0].confidence[j] = -1.0f;
    }
    hear(f);
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 5, 2, 0);
    fake_free(f);
}

static void temperatures_are_applied(void **state)
{
    (void)state;
    fake *const f = fake_new(0.3, 0.1);
    for (int j = 0; j < 5; j++) {
        f->tasks[0]->choices[0].confidence[j] = 1.0f;
        f->tasks[1]->choices[0].confidence[j] = 1.0f;
        f->tasks[2]->choices[0].confidence[j] = 1.0f;
        f->config.draft.temperature[j] = j < 3 ? 0.1f : 10.0f;
    }
    hear(f);
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 3, 3, 3);
    fake_free(f);
}

/* The second choice is judged by block verification: how many drafts a pass has follows from the proposals before these, and the likeliest
 * of these get them. */
static void judged_drafts_have_no_say_in_their_number(void **state)
{
    (void)state;
    fake *const f = fake_new(0.3, 0.1);
    eng_law laws[6] = {{.n = 0}};
    f->tasks[1]->choices[0].laws = laws;
    for (int i = 0; i < CHOICES; i++) {
        for (int j = 0; j < 5; j++) {
            f->tasks[i]->choices[0].confidence[j] = i == 0 && j < 4 ? 8.0f : -1.0f; /* four that pay */
        }
    }
    hear(f);
    for (int i = 0; i < CHOICES; i++) {
        for (int j = 0; j < 5; j++) {
            f->tasks[i]->choices[0].confidence[j] = i == 0 ? -8.0f : (float)(3 - i);
        }
    }
    hear(f);
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 0, 3, 1); /* 0.88, 0.78, 0.73, and 0.69 before the next one's 0.53 */
    f->tasks[1]->choices[0].laws = NULL;
    fake_free(f);
}

/* An early end of a proposal says what its last draft is: it must not free a place for others that the draft itself needs. */
static void a_short_proposal_takes_no_part_of_the_budget_away(void **state)
{
    (void)state;
    fake *const f = fake_new(0.3, 0.1);
    eng_law laws[6] = {{.n = 0}};
    f->tasks[0]->choices[0].laws = laws;
    f->tasks[0]->choices[0].n_drafts = 1;
    for (int j = 0; j < 5; j++) {
        f->tasks[0]->choices[0].confidence[j] = 8.0f;
        f->tasks[0]->choices[0].stale[j] = 1.0f;
        f->tasks[0]->choices[0].survival[j] = 1.0f;
    }
    hear(f);
    eng_auto_cut(&f->s, &f->pass);
    const eng_choice *const one = &f->tasks[1]->choices[0];
    const eng_choice *const two = &f->tasks[2]->choices[0];
    assert_int_equal(f->tasks[0]->choices[0].n_drafts, 1);
    assert_true(one->n_drafts + two->n_drafts >= 4); /* what the first did not use of at least five */
    f->tasks[0]->choices[0].laws = NULL;
    fake_free(f);
}

/* Rows that were not planned, output that ends, choices that ended and prompts. */
static void what_cannot_be_verified_is_not_counted_on(void **state)
{
    (void)state;
    fake *const f = fake_new(1e-6, 0.1);
    f->parts[0].n = 3;
    f->tasks[1]->max_tokens = 12; /* one more token, and one that a draft could add */
    f->tasks[2]->choices[0].phase = ENG_ENDED;
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 2, 1, 5);
    f->tasks[2]->choices[0].phase = ENG_PREFILL;
    f->parts[2].prefill = true;
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 2, 1, 5);
    fake_free(f);
}

static void proposals_stop_while_none_pays_but_for_one_now_and_then(void **state)
{
    (void)state;
    fake *const f = fake_new(0.01, 0.5);
    static const float unlikely[] = {-4.0f, -4.0f, -4.0f, -4.0f, -4.0f};
    static const float likely[] = {4.0f, 4.0f, 4.0f, 4.0f, 4.0f};
    int n = 0;
    assert_int_equal(eng_auto_proposes(&f->s, &f->pass, CHOICES), CHOICES);
    while (n < 100 && eng_auto_proposes(&f->s, &f->pass, CHOICES)) {
        learn(f, unlikely, 5, 1);
        n++;
    }
    assert_in_range(n, 5, 40);
    int idle = 1;
    while (idle < 2000 && !eng_auto_proposes(&f->s, &f->pass, CHOICES)) {
        idle++;
    }
    assert_int_equal(idle, TRIAL - 1); /* the next one proposes, and nothing is cut of it */
    f->s.automatic.pass.seconds[1] = 1e6;
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 5, 5, 5);
    eng_auto_cut(&f->s, &f->pass);
    expect_lengths(f, 0, 0, 0);
    f->s.automatic.pass.seconds[1] = 2.0;
    learn(f, likely, 5, 30);
    assert_int_equal(eng_auto_proposes(&f->s, &f->pass, CHOICES), CHOICES);
    fake_free(f);
}

/* A trial of all would cost as much as several passes: it is one sequence in sixteen, and at least one. */
static void a_trial_is_of_few_sequences(void **state)
{
    (void)state;
    static const int32_t n[] = {1, 3, 16, 17, 33};
    static const int32_t tried[] = {1, 1, 1, 2, 3};
    fake *const f = fake_new(1e-6, 1e3);
    for (int k = 0; k < 5; k++) {
        for (int i = 1; i < TRIAL; i++) {
            assert_int_equal(eng_auto_proposes(&f->s, &f->pass, n[k]), 0);
        }
        assert_int_equal(eng_auto_proposes(&f->s, &f->pass, n[k]), tried[k]);
        assert_true(f->s.automatic.probing);
    }
    fake_free(f);
}

/* While drafts pay, a text that ends changes nothing: the first drafts of the next one have rows. */
static void rows_stay_planned_from_text_to_text(void **state)
{
    (void)state;
    fake *const f = fake_new(1e-6, 0.1);
    assert_true(eng_auto_wants_rows(&f->s));
    assert_int_equal(eng_auto_proposes(&f->s, &f->pass, CHOICES), CHOICES);
    f->pass.proposed = false;
    assert_true(eng_auto_wants_rows(&f->s));
    fake_free(f);
}

/* Not at once, not for prompts, and not in the window before a trial, which shall see what a text that always had drafts would. */
static void context_rests_between_trials(void **state)
{
    (void)state;
    fake *const f = fake_new(1e-6, 1e3);
    for (int i = 1; i < TRIAL; i++) {
        assert_int_equal(eng_auto_proposes(&f->s, &f->pass, CHOICES), 0);
        assert_int_equal(eng_auto_rests(&f->s, &f->pass), i >= 8 && i < TRIAL - WINDOW);
        f->pass.n_prefill = 1;
        assert_false(eng_auto_rests(&f->s, &f->pass));
        f->pass.n_prefill = 0;
    }
    assert_int_equal(eng_auto_proposes(&f->s, &f->pass, CHOICES), 1);
    assert_false(eng_auto_rests(&f->s, &f->pass));
    f->s.automatic.n_idle = 100;
    f->s.automatic.on = false;
    assert_false(eng_auto_rests(&f->s, &f->pass));
    fake_free(f);
}

/* Passes without drafts have costs of their own: dear ones make drafts pay that would not at the others' price. */
static void plain_passes_have_their_own_price(void **state)
{
    (void)state;
    fake *const f = fake_new(1.0, 0.1);
    f->s.automatic.plain.seconds[0] = 9.0;
    f->s.automatic.plain.seconds[1] = 900.0;
    assert_int_equal(eng_auto_proposes(&f->s, &f->pass, CHOICES), CHOICES);
    eng_auto_cut(&f->s, &f->pass);
    assert_true(f->tasks[0]->choices[0].n_drafts > 0);
    fake_free(f);
}

/* Two passes ahead, because one is planned while another runs. */
static void rows_are_planned_for_a_trial(void **state)
{
    (void)state;
    fake *const f = fake_new(1e-6, 1e3);
    for (int i = 1; i < TRIAL; i++) {
        assert_int_equal(eng_auto_proposes(&f->s, &f->pass, CHOICES), 0);
        assert_int_equal(eng_auto_wants_rows(&f->s), i == TRIAL - 1);
    }
    assert_true(eng_auto_proposes(&f->s, &f->pass, CHOICES));
    assert_true(eng_auto_wants_rows(&f->s));
    fake_free(f);
}

/* A pass with rows of prompts says nothing of decoding; a proposal in several groups nothing of one. */
static void what_passes_take_corrects_the_tables(void **state)
{
    (void)state;
    fake *const f = fake_new(0.01, 0.5);
    eng_auto *const a = &f->s.automatic;
    f->pass.n_rows = 1;
    f->pass.n_prefill = 3;
    eng_auto_timed(&f->s, &f->pass, 0.5, 3, 0.1);
    assert_true(fabs(a->pass.seconds[0] - 1.0) < 1e-9);
    assert_true(fabs(a->proposal.seconds[1] - 0.75) < 1e-9);
    f->pass.n_prefill = 0;
    eng_auto_timed(&f->s, &f->pass, 0.9, 2, 0.75 * 0.9); /* a tenth off, both */
    assert_true(fabs(a->plain.seconds[0] - 0.996 * 0.992) < 1e-9);
    assert_true(fabs(a->pass.seconds[0] - 0.996) < 1e-9); /* the machine as a whole, not passes with drafts */
    f->pass.n_rows = CHOICES + 98;
    eng_auto_timed(&f->s, &f->pass, a->pass.seconds[1] * 0.9, 0, 0.0);
    assert_true(fabs(a->pass.seconds[1] - 2.0 * 0.996 * 0.996 * 0.992) < 1e-9);
    assert_true(fabs(a->plain.seconds[0] - 0.996 * 0.992 * 0.996) < 1e-9);
    assert_true(fabs(a->proposal.seconds[1] - 0.75 * 0.996 * 0.992) < 1e-9);
    fake_free(f);
}

static void the_mean_follows_late_proposals(void **state)
{
    (void)state;
    fake *const f = fake_new(0.01, 0.5);
    const float half[] = {0.0f, 0.0f};
    learn(f, half, 2, 1);
    const float *const mean = f->s.automatic.mean;
    assert_true(fabs((double)mean[0] - 0.95) < 1e-6);
    assert_true(fabs((double)mean[1] - 0.925) < 1e-6);
    assert_true(mean[2] >= 1.0f);
    learn(f, half, 2, 200);
    assert_true(fabs((double)mean[0] - 0.5) < 1e-4);
    assert_true(fabs((double)mean[1] - 0.25) < 1e-4);
    fake_free(f);
}

/* The cost of the model itself counts, by groups: with dear proposals nothing pays. */
static void dear_proposals_are_not_made(void **state)
{
    (void)state;
    fake *const f = fake_new(1e-6, 1e3);
    assert_false(eng_auto_proposes(&f->s, &f->pass, CHOICES));
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_for_nothing_leave_all_drafts),
        cmocka_unit_test(dear_rows_leave_none),
        cmocka_unit_test(one_of_many_cuts_is_left_out),
        cmocka_unit_test(likely_drafts_are_kept_and_unlikely_ones_cut),
        cmocka_unit_test(temperatures_are_applied),
        cmocka_unit_test(judged_drafts_have_no_say_in_their_number),
        cmocka_unit_test(a_short_proposal_takes_no_part_of_the_budget_away),
        cmocka_unit_test(what_cannot_be_verified_is_not_counted_on),
        cmocka_unit_test(proposals_stop_while_none_pays_but_for_one_now_and_then),
        cmocka_unit_test(a_trial_is_of_few_sequences),
        cmocka_unit_test(rows_stay_planned_from_text_to_text),
        cmocka_unit_test(context_rests_between_trials),
        cmocka_unit_test(plain_passes_have_their_own_price),
        cmocka_unit_test(rows_are_planned_for_a_trial),
        cmocka_unit_test(what_passes_take_corrects_the_tables),
        cmocka_unit_test(the_mean_follows_late_proposals),
        cmocka_unit_test(dear_proposals_are_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
