/* Requests over tiers with room for little and two real folders that outlive six engines give the tokens that they give without any cache,
 * and every way through the tiers is taken (tier_requests.h); tests/engine/slow_eng_tier.c is the same with 5,000 requests.
 * ctest: timeout=600 wrap=time */
#include "engine/eng_model.h"
#include "engine/engine_int.h"
#include "engine/folder_clock.h"
#include "engine/tier_requests.h"
#include "support/unit.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { REQUESTS = 60, DEMO_REQUESTS = 0 };
#else
enum { REQUESTS = 300, DEMO_REQUESTS = 144 };
#endif

/* Segments follow from the budget, and records from segments: budgets of 40 MiB or so once left no room for the demo model's snapshots. */
static void every_budget_has_room_for_a_snapshot(void **state)
{
    (void)state;
    char *const dir = unit_scratch_new();
    di_model *const model = eng_model_open("models/demo");
    for (int64_t bytes = (int64_t)24 << 20; bytes < (int64_t)64 << 20; bytes += 2 << 20) {
        const di_engine_options o = {.n_threads = 1, .cache = {.dir = dir, .dir_bytes = bytes, .ram_bytes = 1 << 20}};
        di_engine *e = NULL;
        assert_int_equal(di_engine_open(model, &o, &e, NULL), DI_OK);
        assert_true(kv_disk_max_payload(e->tier->lowers[0].store) >= (int64_t)mdl_flat_state_bytes(e->runner, true));
        di_engine_close(e);
    }
    di_model_close(model);
    unit_scratch_remove(dir);
}

static void t6(void **state)
{
    (void)state;
    di_model *const model = eng_model_open("tests/data/model/t6");
    const tier_plan plan = {.crowd = {.model = model, .n_scripts = 30, .least = 1, .most = 250, .seed = 5},
                            .n_requests = REQUESTS,
                            .n_turns = 6,
                            .dir_bytes = (int64_t)24 << 20,
                            .shared_bytes = (int64_t)24 << 20,
                            .n_states = 5,
                            .n_pages = 12,
                            .ram_states = 12,
                            .pass = folder_clock_pass};
    const crowd_ways ways = tier_requests(&plan);
    assert_true(ways.device > 0);
    assert_true(ways.cache.tiers[DI_CACHE_DIR].restored_units > 0);
    assert_true(ways.cache.tiers[DI_CACHE_DIR].restored_snapshots > 0);
    di_model_close(model);
}

static void demo(void **state)
{
    (void)state;
    if (DEMO_REQUESTS == 0) {
        skip(); /* minutes */
    }
    di_model *const model = eng_model_open("models/demo");
    const tier_plan plan = {.crowd = {.model = model, .n_scripts = 36, .least = 130, .most = 280, .seed = 5},
                            .n_requests = DEMO_REQUESTS,
                            .n_turns = 6,
                            .most_turns = 30,
                            .dir_bytes = (int64_t)24 << 20,
                            .shared_bytes = (int64_t)24 << 20,
                            .n_states = 6,
                            .n_pages = 9,
                            .ram_states = 4,
                            .checks = true,
                            .pass = folder_clock_pass};
    (void)tier_requests(&plan);
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_budget_has_room_for_a_snapshot),
        cmocka_unit_test(t6),
        cmocka_unit_test(demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
