/* Whether there is a disk tier is decided when building, and said when opening. */
#include "kv_disk_fixture.h"

#include <string.h>

static void a_build_without_lmdb_says_so(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = dfix_options(&d);
    kv_disk *disk = NULL;
    di_error err;
    const di_status status = kv_disk_open(&o, &disk, &err);
#if DI_LMDB
    assert_int_equal(status, DI_OK);
#else
    assert_int_equal(status, DI_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "liblmdb-dev"));
#endif
    kv_disk_close(disk);
    dfix_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_build_without_lmdb_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
