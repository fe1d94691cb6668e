/* Requests over tiers with room for little and a real folder that outlives three engines give the tokens that they give without any cache;
 * tests/engine/slow_eng_tier.c is the same with 5,000 requests to the demo model.
 * ctest: timeout=600 */
#include "engine/eng_model.h"
#include "engine/tier_requests.h"
#include "support/unit.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { REQUESTS = 60, DEMO_REQUESTS = 0 };
#else
enum { REQUESTS = 300, DEMO_REQUESTS = 80 };
#endif

static void run(const char *dir, size_t n, size_t most)
{
    di_model *const model = eng_model_open(dir);
    di_model_info info;
    di_model_get_info(model, &info);
    const tier_report r = tier_requests(&(tier_plan){.model = model,
                                                     .n_requests = n,
                                                     .n_restarts = 2,
                                                     .n_scripts = 12,
                                                     .most = most,
                                                     .dir_bytes = (int64_t)24 << 20,
                                                     .ram_bytes = 4 * info.state_bytes,
                                                     .n_states = 5});
    assert_true(r.cached_tokens > 0);
    assert_true(r.restored_units[DI_CACHE_MEMORY] + r.restored_units[DI_CACHE_DIR] > 0);
    assert_true(r.restored_units[DI_CACHE_DIR] > 0);
    assert_true(r.restored_snapshots[DI_CACHE_DIR] > 0);
    assert_int_equal(r.corrupt, 0);
    di_model_close(model);
}

static void t6(void **state)
{
    (void)state;
    run("tests/data/model/t6", REQUESTS, 240);
}

static void demo(void **state)
{
    (void)state;
    if (DEMO_REQUESTS == 0) {
        skip(); /* minutes */
    }
    run("models/demo", DEMO_REQUESTS, 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(t6),
        cmocka_unit_test(demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
