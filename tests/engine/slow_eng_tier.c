/* 5,000 requests to the demo model with random shared beginnings, over tiers with room for little and a folder that outlives ten engines:
 * every answer is, token for token, the one without any cache. Ways that this many pages on the device leave out, units that come back out
 * of the memory tier above all, are taken in prop_eng_tier.c. */
#include "engine/eng_model.h"
#include "engine/tier_requests.h"
#include "support/unit.h"

static void five_thousand_requests(void **state)
{
    (void)state;
    di_model *const model = eng_model_open("models/demo");
    di_model_info info;
    di_model_get_info(model, &info);
    const tier_report r = tier_requests(&(tier_plan){.model = model,
                                                     .n_requests = 5000,
                                                     .n_restarts = 10,
                                                     .n_scripts = 160,
                                                     .most = 400,
                                                     .dir_bytes = (int64_t)24 << 20,
                                                     .ram_bytes = 4 * info.state_bytes,
                                                     .n_states = 5});
    assert_true(r.cached_tokens > 0);
    assert_true(r.restored_units[DI_CACHE_DIR] > 0);
    assert_true(r.evicted[DI_CACHE_MEMORY] > 0);
    assert_true(r.evicted[DI_CACHE_DIR] > 0);
    assert_int_equal(r.corrupt, 0);
    di_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(five_thousand_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
