/* Which experts stay in memory: slots and experts always agree, what is needed or being read is never given up, what is asked for most often
 * stays, and a new favourite takes over in time. */
#include "model/mdl_slots.h"
#include "support/unit.h"

static mdl_slots s;

static void open_slots(int32_t n_slots, int32_t n_experts)
{
    assert_int_equal(mdl_slots_init(&s, n_slots, n_experts, NULL), DI_OK);
}

static void check(void)
{
    int32_t there = 0;
    for (int32_t e = 0; e < s.n_experts; e++) {
        there += s.where[e] >= 0 ? 1 : 0;
        assert_true(s.where[e] < 0 || s.slots[s.where[e]].expert == e);
    }
    for (int32_t i = 0; i < s.n_slots; i++) {
        there -= s.slots[i].state != MDL_SLOT_FREE ? 1 : 0;
        assert_true(s.slots[i].expert < 0 || s.where[s.slots[i].expert] == i);
    }
    assert_int_equal(there, 0);
}

/* The expert is used; true when it was there. */
static bool use(int32_t expert)
{
    int32_t at = s.where[expert];
    const bool hit = at >= 0;
    if (!hit) {
        at = mdl_slots_take(&s, expert, false);
        assert_true(at >= 0);
        s.slots[at].state = MDL_SLOT_FORMED;
    }
    mdl_slots_use(&s, at);
    return hit;
}

static void everything_fits_in_enough_slots(void **state)
{
    (void)state;
    open_slots(8, 8);
    for (int round = 0; round < 3; round++) {
        for (int32_t e = 0; e < 8; e++) {
            assert_int_equal(use(e), round > 0);
        }
    }
    check();
    mdl_slots_fini(&s);
}

static void what_is_needed_or_read_stays(void **state)
{
    (void)state;
    open_slots(3, 10);
    const int32_t reading = mdl_slots_take(&s, 0, false);
    use(1);
    use(2);
    s.slots[s.where[1]].needed = true;
    for (int32_t e = 3; e < 10; e++) {
        use(e);
        assert_int_equal(s.where[0], reading);
        assert_true(s.where[1] >= 0);
        check();
    }
    s.slots[s.where[9]].needed = true;
    assert_int_equal(mdl_slots_take(&s, 2, false), -1);
    mdl_slots_drop(&s, reading);
    assert_int_equal(mdl_slots_take(&s, 2, false), reading);
    check();
    mdl_slots_fini(&s);
}

/* Two experts of which every round has one use, among many that come once a round: recency alone would always have lost them. */
static void favourites_survive_a_pass_over_everything(void **state)
{
    (void)state;
    int hits = 0;
    open_slots(8, 64);
    for (int round = 0; round < 40; round++) {
        for (int32_t e = 2; e < 64; e++) {
            use(e);
            if (e % 16 == 0) {
                hits += (use(0) ? 1 : 0) + (use(1) ? 1 : 0);
            }
        }
    }
    assert_true(mdl_slots_is_hot(&s, 0) && mdl_slots_is_hot(&s, 1));
    assert_true(hits >= 216); /* of 240; before there is a hot set all are lost */
    for (int i = 0; i < 64 * 64; i++) { /* others are in favour now */
        use(2 + i % 4);
    }
    for (int i = 0; i < 8 * 64; i++) {
        use(10 + i % 40);
    }
    for (int32_t e = 2; e < 6; e++) {
        assert_true(mdl_slots_is_hot(&s, e) && use(e));
    }
    check();
    mdl_slots_fini(&s);
}

static void a_guess_pushes_nothing_out_that_was_just_used(void **state)
{
    (void)state;
    open_slots(4, 10);
    for (int32_t e = 0; e < 4; e++) {
        use(e);
    }
    assert_int_equal(mdl_slots_take(&s, 5, true), -1);
    use(4); /* the hand passes, and chances are gone */
    const int32_t at = mdl_slots_take(&s, 5, true);
    assert_true(at >= 0 && s.slots[at].guessed && s.where[4] >= 0);
    check();
    mdl_slots_fini(&s);
}

static void random_use_keeps_the_tables_in_order(void **state)
{
    (void)state;
    uint64_t seed = 3;
    open_slots(7, 40);
    for (int i = 0; i < 20000; i++) {
        const int32_t e = (int32_t)(unit_random(&seed) % 40);
        if (unit_random(&seed) % 8 == 0 && s.where[e] >= 0) {
            mdl_slots_drop(&s, s.where[e]);
        } else {
            use(e);
        }
        if (i % 50 == 0) {
            check();
        }
    }
    mdl_slots_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_fits_in_enough_slots),
        cmocka_unit_test(what_is_needed_or_read_stays),
        cmocka_unit_test(favourites_survive_a_pass_over_everything),
        cmocka_unit_test(a_guess_pushes_nothing_out_that_was_just_used),
        cmocka_unit_test(random_use_keeps_the_tables_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
