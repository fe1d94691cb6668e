/* Two processes over one shared folder, 1,000 requests each, and six times one that is killed (tier_pair.h). The small model: the bar is about
 * records and processes, and the demo model takes half an hour for it. */
#include "engine/tier_pair.h"

#include "support/unit.h"

static void two_processes_share_a_folder(void **state)
{
    (void)state;
    pair_run(&(pair_plan){.model = "tests/data/model/t6", .n_requests = 1000, .most = 250, .live = true}, 6);
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
