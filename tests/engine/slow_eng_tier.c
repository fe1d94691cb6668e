/* 5,000 requests to the demo model with random shared beginnings, over tiers with room for little: every answer is, token for token, the one
 * without any cache, every way through the tiers is taken (tier_requests.h), and what an engine has kept, the next one finds to the byte.
 * ctest: timeout=3600 wrap=time */
#include "engine/eng_model.h"
#include "engine/folder_clock.h"
#include "engine/tier_requests.h"
#include "support/unit.h"

static void five_thousand_requests(void **state)
{
    (void)state;
    di_model *const model = eng_model_open("models/demo");
    const tier_plan plan = {.crowd = {.model = model, .n_scripts = 240, .n_long = 6, .least = 1, .most = 400, .seed = 5},
                            .n_requests = 5000,
                            .n_turns = 12,
                            .most_turns = 12,
                            .dir_bytes = (int64_t)24 << 20,
                            .shared_bytes = (int64_t)40 << 20,
                            .n_states = 6,
                            .n_pages = 14,
                            .ram_states = 4,
                            .checks = true,
                            .pass = folder_clock_pass};
    const crowd_ways ways = tier_requests(&plan);
    assert_int_equal(ways.requests, 5000);
    assert_true(ways.cache.tiers[DI_CACHE_MEMORY].expired > 0);
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(five_thousand_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
