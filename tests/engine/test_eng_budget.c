/* How many drafts a step verifies (eng_budget.h): costs between points, survival, ties by value; the choice against all choices of small
 * batches; never slower than without drafts by its own account, whatever goes in. */
#include "engine/eng_budget.h"
#include "support/unit.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MAX_SEQS = 4, MAX_DRAFTS = 4 };

static double unit_double(uint64_t *seed) { return (double)(unit_random(seed) >> 11) * 0x1p-53; }

static void close_to(double a, double b) { assert_true(fabs(a - b) <= 1e-9 * (fabs(b) + 1e-9)); }

static void costs_are_linear_between_points_and_beyond(void **state)
{
    (void)state;
    eng_cost c = {.n = 0};
    close_to(eng_cost_seconds(&c, 7), 0.0);
    assert_true(eng_cost_add(&c, 2, 0.010));
    close_to(eng_cost_seconds(&c, 1), 0.010);
    close_to(eng_cost_seconds(&c, 100), 0.010);
    assert_true(eng_cost_add(&c, 4, 0.020)); /* disturbed, as the next one shows */
    assert_true(eng_cost_add(&c, 8, 0.014));
    assert_true(eng_cost_add(&c, 16, 0.030));
    close_to(eng_cost_seconds(&c, 2), 0.010);
    close_to(eng_cost_seconds(&c, 3), 0.012);
    close_to(eng_cost_seconds(&c, 4), 0.014);
    close_to(eng_cost_seconds(&c, 6), 0.014);
    close_to(eng_cost_seconds(&c, 12), 0.022);
    close_to(eng_cost_seconds(&c, 24), 0.046);
    assert_true(eng_cost_seconds(&c, INT32_MAX) > 1e6);
}

static void points_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    eng_cost c = {.n = 0};
    assert_false(eng_cost_add(&c, 0, 1.0));
    assert_false(eng_cost_add(&c, 1, 0.0));
    assert_false(eng_cost_add(&c, 1, -1.0));
    assert_false(eng_cost_add(&c, 1, (double)NAN));
    assert_false(eng_cost_add(&c, 1, (double)INFINITY));
    assert_int_equal(c.n, 0);
    for (int32_t i = 1; i <= ENG_COST_POINTS; i++) {
        assert_true(eng_cost_add(&c, i, 1.0));
        assert_false(eng_cost_add(&c, i, 1.0));
    }
    assert_false(eng_cost_add(&c, ENG_COST_POINTS + 1, 1.0));
    assert_int_equal(c.n, ENG_COST_POINTS);
}

static void costs_follow_what_passes_take(void **state)
{
    (void)state;
    eng_cost c = {.n = 0};
    eng_cost_learn(&c, 1, 1.0);
    assert_int_equal(c.n, 0);
    assert_true(eng_cost_add(&c, 1, 1.0));
    assert_true(eng_cost_add(&c, 4, 4.0));
    assert_true(eng_cost_add(&c, 8, 4.0));
    eng_cost_learn(&c, 4, 3.6); /* a tenth less than thought */
    close_to(c.seconds[0], 1.0 - 0.004);
    close_to(c.seconds[1], 4.0 * (1.0 - 0.004) * (1.0 - 0.008));
    close_to(c.seconds[2], 4.0 * (1.0 - 0.004));
    eng_cost last = c;
    eng_cost_learn(&c, 4, 80.0); /* 20 times as long: as if it were a quarter; what is behind is not below */
    close_to(c.seconds[0], last.seconds[0] * 1.01);
    close_to(c.seconds[1], last.seconds[1] * 1.01 * 1.02);
    close_to(c.seconds[2], c.seconds[1]);
    last = c;
    eng_cost_learn(&c, 8, 0.5); /* and what is in front not above */
    close_to(c.seconds[2], last.seconds[2] * 0.99 * 0.98);
    close_to(c.seconds[1], c.seconds[2]);
    last = c;
    eng_cost_learn(&c, 6, last.seconds[1] * 0.9); /* between two points: both */
    close_to(c.seconds[1], last.seconds[1] * (1.0 - 0.004) * (1.0 - 0.008));
    close_to(c.seconds[2], last.seconds[2] * (1.0 - 0.004) * (1.0 - 0.008));
    const eng_cost before = c;
    eng_cost_learn(&c, 4, (double)NAN);
    eng_cost_learn(&c, 4, (double)INFINITY);
    eng_cost_learn(&c, 4, -1.0);
    eng_cost_learn(&c, 0, 1.0);
    assert_memory_equal(&c, &before, sizeof c);
}

/* One pass in ten takes ten times as long, the others a tenth more than was measured, or a tenth less: sizes that never run follow too, and
 * those that run come within a few hundredths. */
static void disturbed_passes_do_not_decide(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        eng_cost c = {.n = 0};
        for (int32_t rows = 1; rows <= 4; rows++) {
            assert_true(eng_cost_add(&c, rows, rows));
        }
        for (int i = 0; i < 2000; i++) {
            eng_cost_learn(&c, 2, 2.0 * (1.0 + 0.1 * sign) * (i % 10 == 9 ? 10.0 : 1.0));
        }
        assert_true(fabs(c.seconds[1] / (2.0 * (1.0 + 0.1 * sign)) - 1.0) < 0.05);
        assert_true(fabs(c.seconds[3] / (4.0 * (1.0 + 0.1 * sign)) - 1.0) < 0.1);
    }
}

static void survival_is_a_product_of_probabilities(void **state)
{
    (void)state;
    const float confidence[] = {0.0f, 2.0f, 0.0f, -INFINITY, 5.0f};
    const float temperature[] = {1.0f, 2.0f, 3.0f, 1.0f, 1.0f};
    float a[5];
    eng_survival(confidence, temperature, 5, a);
    const double s = 1.0 / (1.0 + exp(-1.0));
    assert_true(fabs((double)a[0] - 0.5) < 1e-6);
    assert_true(fabs((double)a[1] - 0.5 * s) < 1e-6);
    assert_true(fabs((double)a[2] - 0.25 * s) < 1e-6);
    assert_true(a[3] <= 0.0f && a[4] <= 0.0f);
    const float odd[] = {INFINITY, NAN, 3.0f};
    eng_survival(odd, NULL, 3, a);
    assert_true(a[0] >= 1.0f && a[0] <= 1.0f);
    assert_true(a[1] <= 0.0f && a[2] <= 0.0f); /* not a number counts as impossible */
}

static void equal_survivals_go_to_short_prefixes_then_to_early_sequences(void **state)
{
    (void)state;
    static const float sure[] = {1.0f, 1.0f, 1.0f};
    static const int32_t wanted[][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {2, 2, 2}, {3, 2, 2}};
    eng_cost c = {.n = 0};
    assert_true(eng_cost_add(&c, 1, 1.0));
    for (int32_t room = 0; room < 8; room++) {
        eng_claim claims[] = {{.survival = sure, .n = 3}, {.survival = sure, .n = 3}, {.survival = sure, .n = 3}};
        int32_t heap[3];
        const eng_step_cost step = {.pass = &c, .rows = 5, .room = room};
        close_to(eng_budget_choose(&step, claims, 3, heap), 3.0 + room); /* a pass takes a second, whatever it runs */
        for (int i = 0; i < 3; i++) {
            assert_int_equal(claims[i].length, wanted[room][i]);
        }
    }
}

static void equal_speed_means_fewer_drafts(void **state)
{
    (void)state;
    static const float half[] = {0.5f, 0.5f};
    eng_cost c = {.n = 0};
    eng_claim claim = {.survival = half, .n = 2};
    int32_t heap[1];
    assert_true(eng_cost_add(&c, 1, 1.0));
    assert_true(eng_cost_add(&c, 2, 1.5));
    const eng_step_cost step = {.pass = &c, .room = 2};
    close_to(eng_budget_choose(&step, &claim, 1, heap), 1.0);
    assert_int_equal(claim.length, 0);
    /* Half a second that is lost anyway makes the same drafts worth their rows. */
    const eng_step_cost slower = {.pass = &c, .seconds = 0.5, .room = 2};
    close_to(eng_budget_choose(&slower, &claim, 1, heap), 2.0 / 2.5);
    assert_int_equal(claim.length, 2);
}

/* A jump in the table stops a search that goes on only while it gets better. */
static void what_pays_behind_a_step_of_the_table_is_found(void **state)
{
    (void)state;
    static const float likely[] = {0.9f, 0.9f, 0.9f, 0.9f};
    eng_cost c = {.n = 0};
    eng_claim claim = {.survival = likely, .n = 4};
    int32_t heap[1];
    assert_true(eng_cost_add(&c, 1, 1.0));
    assert_true(eng_cost_add(&c, 2, 2.0));
    assert_true(eng_cost_add(&c, 8, 2.0));
    const eng_step_cost step = {.pass = &c, .room = 4};
    close_to(eng_budget_choose(&step, &claim, 1, heap), (1.0 + 4.0 * (double)0.9f) / 2.0);
    assert_int_equal(claim.length, 4);
}

static void without_a_table_or_claims_nothing_is_chosen(void **state)
{
    (void)state;
    static const float sure[] = {1.0f};
    eng_cost c = {.n = 0};
    eng_claim claim = {.survival = sure, .n = 1, .length = 1};
    int32_t heap[1];
    const eng_step_cost step = {.pass = &c, .seconds = 1.0, .room = 9};
    close_to(eng_budget_choose(&step, &claim, 1, heap), 0.0);
    assert_int_equal(claim.length, 0);
    assert_true(eng_cost_add(&c, 1, 1.0));
    close_to(eng_budget_choose(&step, NULL, 0, NULL), 0.0);
}

static void random_cost(eng_cost *c, uint64_t *seed)
{
    int32_t rows = 0;
    double seconds = 0.0;
    *c = (eng_cost){.n = 0};
    for (int32_t n = (int32_t)(1 + unit_random(seed) % 6); n > 0; n--) {
        rows += (int32_t)(1 + unit_random(seed) % 6);
        seconds += unit_double(seed) < 0.4 ? 0.0 : unit_double(seed);
        (void)eng_cost_add(c, rows, seconds > 0.0 ? seconds : 0.1);
    }
}

typedef struct batch {
    eng_cost cost;
    eng_step_cost step;
    float survival[MAX_SEQS][MAX_DRAFTS];
    eng_claim claims[MAX_SEQS];
    int32_t n;
} batch;

static void random_batch(batch *b, uint64_t *seed)
{
    random_cost(&b->cost, seed);
    b->n = (int32_t)(1 + unit_random(seed) % MAX_SEQS);
    b->step = (eng_step_cost){.pass = &b->cost,
                              .seconds = unit_double(seed) < 0.5 ? 0.0 : unit_double(seed),
                              .rows = (int32_t)(unit_random(seed) % 8),
                              .room = (int32_t)(unit_random(seed) % (MAX_SEQS * MAX_DRAFTS + 2))};
    for (int32_t i = 0; i < b->n; i++) {
        float a = 1.0f;
        for (int32_t j = 0; j < MAX_DRAFTS; j++) {
            a *= unit_double(seed) < 0.2 ? 1.0f : (float)unit_double(seed);
            b->survival[i][j] = a;
        }
        b->claims[i] = (eng_claim){.survival = b->survival[i], .n = (int32_t)(unit_random(seed) % (MAX_DRAFTS + 1))};
    }
}

/* Tokens a second of given lengths, straight from the definition. */
static double value_of(const batch *b, const int32_t *length)
{
    double tokens = b->n;
    int32_t rows = b->step.rows + b->n;
    for (int32_t i = 0; i < b->n; i++) {
        for (int32_t j = 0; j < length[i]; j++) {
            tokens += (double)b->survival[i][j];
        }
        rows += length[i];
    }
    return tokens / (eng_cost_seconds(&b->cost, rows) + b->step.seconds);
}

static double best_of_all(const batch *b)
{
    double best = 0.0;
    for (int32_t code = 0; code < 625; code++) {
        int32_t length[MAX_SEQS];
        int32_t sum = 0;
        bool possible = true;
        for (int32_t i = 0, rest = code; i < MAX_SEQS; i++, rest /= MAX_DRAFTS + 1) {
            length[i] = rest % (MAX_DRAFTS + 1);
            possible = possible && (i < b->n ? length[i] <= b->claims[i].n : length[i] == 0);
            sum += length[i];
        }
        if (possible && sum <= b->step.room) {
            const double value = value_of(b, length);
            best = value > best ? value : best;
        }
    }
    return best;
}

static void no_choice_of_a_small_batch_is_faster(void **state)
{
    (void)state;
    uint64_t seed = 17;
    int64_t drafts = 0;
    for (int round = 0; round < 3000; round++) {
        batch b;
        int32_t heap[MAX_SEQS];
        int32_t length[MAX_SEQS];
        int32_t sum = 0;
        random_batch(&b, &seed);
        const double value = eng_budget_choose(&b.step, b.claims, b.n, heap);
        for (int32_t i = 0; i < b.n; i++) {
            assert_in_range(b.claims[i].length, 0, b.claims[i].n);
            length[i] = b.claims[i].length;
            sum += length[i];
        }
        assert_true(sum <= b.step.room);
        close_to(value, value_of(&b, length));
        close_to(value, best_of_all(&b));
        drafts += sum;
    }
    assert_true(drafts > 3000);
}

static void even_lengths_are_the_best_of_their_kind(void **state)
{
    (void)state;
    uint64_t seed = 23;
    for (int round = 0; round < 1000; round++) {
        batch b;
        double best = 0.0;
        random_batch(&b, &seed);
        for (int32_t i = 0; i < b.n; i++) {
            memcpy(b.survival[i], b.survival[0], sizeof b.survival[0]);
        }
        for (int32_t j = 1; j <= MAX_DRAFTS && j * b.n <= b.step.room; j++) {
            const int32_t length[MAX_SEQS] = {j, j, j, j};
            const double value = value_of(&b, length);
            best = value > best ? value : best;
        }
        close_to(eng_budget_even(&b.step, b.n, b.survival[0], MAX_DRAFTS), best);
    }
}

static float any_float(uint64_t *seed)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, -1.0f, 2.0f, 0.0f, -0.0f, FLT_MIN / 4, FLT_MAX};
    const uint64_t r = unit_random(seed) % 20;
    return r < sizeof odd / sizeof odd[0] ? odd[r] : (float)unit_double(seed);
}

static void nothing_makes_it_slower_than_no_drafts(void **state)
{
    (void)state;
    uint64_t seed = 29;
    for (int round = 0; round < 3000; round++) {
        batch b;
        int32_t heap[MAX_SEQS];
        random_batch(&b, &seed);
        for (int32_t i = 0; i < b.n; i++) {
            for (int32_t j = 0; j < MAX_DRAFTS; j++) {
                b.survival[i][j] = any_float(&seed);
            }
        }
        const double none = (double)b.n / (eng_cost_seconds(&b.cost, b.step.rows + b.n) + b.step.seconds);
        const double value = eng_budget_choose(&b.step, b.claims, b.n, heap);
        assert_true(isfinite(value) && value >= none);
        for (int32_t i = 0; i < b.n; i++) {
            assert_in_range(b.claims[i].length, 0, b.claims[i].n);
            for (int32_t j = 0; j < b.claims[i].length; j++) {
                assert_true(b.survival[i][j] > 0.0f);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_are_linear_between_points_and_beyond),
        cmocka_unit_test(points_that_make_no_sense_are_refused),
        cmocka_unit_test(costs_follow_what_passes_take),
        cmocka_unit_test(disturbed_passes_do_not_decide),
        cmocka_unit_test(survival_is_a_product_of_probabilities),
        cmocka_unit_test(equal_survivals_go_to_short_prefixes_then_to_early_sequences),
        cmocka_unit_test(equal_speed_means_fewer_drafts),
        cmocka_unit_test(what_pays_behind_a_step_of_the_table_is_found),
        cmocka_unit_test(without_a_table_or_claims_nothing_is_chosen),
        cmocka_unit_test(no_choice_of_a_small_batch_is_faster),
        cmocka_unit_test(even_lengths_are_the_best_of_their_kind),
        cmocka_unit_test(nothing_makes_it_slower_than_no_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
