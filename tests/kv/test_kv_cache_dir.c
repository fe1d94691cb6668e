/* The public functions over a directory of the disk tier: figures, checking, compaction, purging. */
#include "kv_disk_fixture.h"

#include "core/core.h"

#include <deepinfer/cache.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 10, BYTES = 6000 };

static void fill(const dfix_dir *d)
{
    const kv_disk_options o = dfix_options(d);
    kv_disk *const disk = dfix_open(&o);
    kv_tenant tenant;
    assert_true(kv_tenant_of((kv_salt){"blue", 4}, &tenant));
    for (uint64_t i = 0; i < N; i++) {
        const kv_disk_put like = {.bytes = BYTES, .tenant = i < 4 ? tenant : (kv_tenant){{0}}, .pinned = i == 9};
        assert_int_equal(dfix_put_as(disk, i, &like), KV_DISK_STORED);
    }
    assert_int_equal(dfix_put(disk, 0, KV_DISK_SNAPSHOT, BYTES), KV_DISK_STORED);
    kv_disk_close(disk);
}

static void stats_and_verify_count_what_is_there(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    di_cache_dir_stats s;
    di_cache_report r;
    fill(&d);
    assert_int_equal(di_cache_read_stats(d.path, &s, NULL), DI_OK);
    assert_int_equal(s.units, N);
    assert_int_equal(s.snapshots, 1);
    assert_int_equal(s.record_bytes, (N + 1) * BYTES);
    assert_int_equal(s.pinned_bytes, 8192);
    assert_int_equal(s.segments, 1);
    assert_int_equal(s.expired, 0);
    assert_int_equal(di_cache_verify(d.path, &r, NULL), DI_OK);
    assert_int_equal(r.records, N + 1);
    assert_int_equal(r.record_bytes, (N + 1) * BYTES);
    assert_int_equal(r.records_damaged, 0);
    assert_int_equal(r.segments_damaged, 0);
    dfix_remove(&d);
}

static void tenants_are_listed_with_what_they_have(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    di_cache_tenant t[3];
    char id[DI_CACHE_TENANT_ID_BYTES];
    size_t n = 0;
    fill(&d);
    assert_int_equal(di_cache_tenant_id("blue", 4, id, NULL), DI_OK);
    assert_int_equal(strlen(id), DI_CACHE_TENANT_ID_BYTES - 1);
    assert_int_equal(di_cache_read_tenants(d.path, t, 3, &n, NULL), DI_OK);
    assert_int_equal(n, 2);
    assert_string_equal(t[0].id, "00000000000000000000000000000000"); /* dfix_put's, and the largest */
    assert_int_equal(t[0].units, N - 4);
    assert_int_equal(t[0].snapshots, 1);
    assert_int_equal(t[0].bytes, (N - 4 + 1) * 8192);
    assert_int_equal(t[0].pinned_bytes, 8192);
    assert_string_equal(t[1].id, id);
    assert_int_equal(t[1].units, 4);
    assert_int_equal(t[1].snapshots, 0);
    assert_int_equal(t[1].bytes, 4 * 8192);
    assert_int_equal(t[1].pinned_bytes, 0);
    int64_t purged;
    assert_int_equal(di_cache_purge(d.path, NULL, "blue", &purged, NULL), DI_OK);
    assert_int_equal(di_cache_read_tenants(d.path, t, 1, &n, NULL), DI_OK);
    assert_int_equal(n, 1);
    assert_int_equal(t[0].units, N - 4);
    dfix_remove(&d);
}

static void verify_names_the_damage(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    char path[DFIX_PATH_BYTES + 64];
    di_cache_report r;
    fill(&d);
    assert_true(dfix_segment(&d, 0, path));
    FILE *const file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 3 * 8192 + 1000, SEEK_SET), 0);
    assert_int_equal(fputs("damage", file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(di_cache_verify(d.path, &r, NULL), DI_OK);
    assert_int_equal(r.records, N + 1);
    assert_int_equal(r.records_damaged, 1);
    dfix_remove(&d);
}

static void purge_takes_one_tenant_or_all(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    di_cache_dir_stats s;
    int64_t n = -1;
    fill(&d);
    assert_int_equal(di_cache_purge(d.path, NULL, "blue", &n, NULL), DI_OK);
    assert_int_equal(n, 4);
    assert_int_equal(di_cache_read_stats(d.path, &s, NULL), DI_OK);
    assert_int_equal(s.units, N - 4);
    assert_int_equal(di_cache_compact(d.path, NULL, &n, NULL), DI_OK);
    assert_int_equal(di_cache_purge(d.path, NULL, NULL, &n, NULL), DI_OK);
    assert_int_equal(n, N - 4 + 1);
    assert_int_equal(di_cache_read_stats(d.path, &s, NULL), DI_OK);
    assert_int_equal(s.units + s.snapshots + s.segments, 0);
    dfix_remove(&d);
}

static void who_uses_the_directory_alone_is_not_disturbed(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = dfix_options(&d);
    di_cache_dir_stats s;
    int64_t n;
    di_error err;
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_put(disk, 1, KV_DISK_UNIT, 100), KV_DISK_STORED);
    assert_int_equal(di_cache_compact(d.path, NULL, &n, &err), DI_E_STATE);
    assert_int_equal(di_cache_purge(d.path, NULL, NULL, &n, &err), DI_E_STATE);
    assert_int_equal(di_cache_read_stats(d.path, &s, &err), DI_OK);
    assert_int_equal(s.units, 1); /* of the segment that is being written, up to where it is on the disk */
    assert_int_equal(dfix_get(disk, 1, KV_DISK_UNIT, NULL), DI_OK);
    kv_disk_close(disk);
    dfix_remove(&d);
    assert_int_equal(di_cache_read_stats(d.path, &s, &err), DI_E_IO);
    assert_non_null(strstr(err.message, d.path));
}

static void a_purge_reaches_a_process_that_shares(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = dfix_options(&d);
    int64_t n = 0;
    o.shared = true;
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_put(disk, 1, KV_DISK_UNIT, 100), KV_DISK_STORED);
    assert_int_equal(di_cache_purge(d.path, &(di_cache_dir_options){.shared = true}, NULL, &n, NULL), DI_OK);
    assert_int_equal(n, 1);
    const int64_t end = clock_now_ns() + (int64_t)60 * 1000000000;
    while (dfix_get(disk, 1, KV_DISK_UNIT, NULL) != DI_E_STATE) {
        assert_true(clock_now_ns() < end);
    }
    assert_int_equal(dfix_put(disk, 1, KV_DISK_UNIT, 100), KV_DISK_STORED); /* what comes later is not purged */
    assert_int_equal(dfix_get(disk, 1, KV_DISK_UNIT, NULL), DI_OK);
    kv_disk_close(disk);
    dfix_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_and_verify_count_what_is_there),
        cmocka_unit_test(tenants_are_listed_with_what_they_have),
        cmocka_unit_test(verify_names_the_damage),
        cmocka_unit_test(purge_takes_one_tenant_or_all),
        cmocka_unit_test(who_uses_the_directory_alone_is_not_disturbed),
        cmocka_unit_test(a_purge_reaches_a_process_that_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
