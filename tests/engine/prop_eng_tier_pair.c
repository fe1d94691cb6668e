/* Two processes over one shared folder find what the other computed, and one goes on when the other is killed (tier_pair.h); slow_eng_tier_pair.c
 * is the same with 1,000 requests each and more kills.
 * ctest: timeout=300 */
#include "engine/tier_pair.h"

#include "support/unit.h"

static void two_processes_share_a_folder(void **state)
{
    (void)state;
    pair_run(&(pair_plan){.model = "tests/data/model/t6", .n_requests = 60, .most = 250}, 2);
}

int main(int argc, char **argv)
{
    int result;
    if (pair_is_child(argc, argv, &result)) {
        return result;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_processes_share_a_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
