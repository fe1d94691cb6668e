/* Sixty processes that are killed while they write, and two that share a directory until one is killed (kv_crash.h). */
#include "kv_crash.h"

#include "support/unit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DIRECTORIES = 2 }; /* the child starts ten times slower */
#else
enum { DIRECTORIES = 6 };
#endif

static void acknowledged_records_survive_kills(void **state)
{
    (void)state;
    crash_writers(DIRECTORIES, 10);
}

static void two_processes_share_and_one_survives_the_other(void **state)
{
    (void)state;
    crash_sharers();
}

int main(int argc, char **argv)
{
    int result;
    if (crash_is_child(argc, argv, &result)) {
        return result;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acknowledged_records_survive_kills),
        cmocka_unit_test(two_processes_share_and_one_survives_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
