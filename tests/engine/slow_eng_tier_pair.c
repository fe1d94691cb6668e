/* Two processes over one shared folder, 1,000 requests to the demo model each, and twice one that is killed (tier_pair.h). */
#include "engine/tier_pair.h"

#include "support/unit.h"

static void two_processes_share_a_folder(void **state)
{
    (void)state;
    pair_run(&(pair_plan){.model = "models/demo", .n_requests = 1000, .most = 280, .live = true}, 2);
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
