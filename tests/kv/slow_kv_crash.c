/* Five hundred processes that are killed while they write (kv_crash.h): 25 over each of 20 directories. */
#include "kv_crash.h"

#include "support/unit.h"

static void acknowledged_records_survive_five_hundred_kills(void **state)
{
    (void)state;
    crash_writers(20, 25);
}

int main(int argc, char **argv)
{
    int result;
    if (crash_is_child(argc, argv, &result)) {
        return result;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(acknowledged_records_survive_five_hundred_kills)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
