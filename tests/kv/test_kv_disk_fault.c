/* A hostile disk: flipped bits, truncated, copied and swapped files, errors of the system, a slow disk, a directory that can't be written.
 * The answer is a miss or an error, never other bytes (dfix_get compares them), and the other records stay.
 * ctest: timeout=180 */
#include "support/faulty.h"
#include "kv_disk_fixture.h"

#include "kv/kv_record.h"

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 6, SMALL = 300, RECORD = KV_BLOCK };

static kv_disk_options quick_options(const dfix_dir *d)
{
    kv_disk_options o = dfix_options(d);
    o.no_sync = true;
    o.no_direct = true; /* so that what the test writes to the files is seen at once */
    o.max_bytes = 16 << 20;
    return o;
}

static void fill(const kv_disk_options *o, size_t size)
{
    kv_disk *const disk = dfix_open(o);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(dfix_put(disk, i, KV_DISK_UNIT, size), KV_DISK_STORED);
    }
    kv_disk_close(disk);
}

static char *read_segment(const dfix_dir *d, int n, size_t *size)
{
    char path[DFIX_PATH_BYTES + 64];
    char *data;
    assert_true(dfix_segment(d, n, path));
    assert_int_equal(file_read(path, 1 << 24, &data, size, NULL), DI_OK);
    return data;
}

static void write_to(const char *path, const char *data, size_t size)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void write_segment(const dfix_dir *d, int n, const char *data, size_t size)
{
    char path[DFIX_PATH_BYTES + 64];
    assert_true(dfix_segment(d, n, path));
    write_to(path, data, size);
}

static void flip(const char *path, size_t bit)
{
    uint8_t byte;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1u << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    close(fd);
}

/* A miss or an error; true when it was read, and then the bytes were right. */
static bool expect_no_lie(kv_disk *disk, uint64_t i)
{
    const di_status status = dfix_get(disk, i, KV_DISK_UNIT, NULL);
    assert_true(status == DI_OK || status == DI_E_STATE || status == DI_E_MISMATCH || status == DI_E_IO);
    return status == DI_OK;
}

static int count_found(kv_disk *disk)
{
    int n = 0;
    for (uint64_t i = 0; i < N; i++) {
        n += expect_no_lie(disk, i) ? 1 : 0;
    }
    return n;
}

/* The same place is read again and again: what the index forgets meanwhile is leased. */
static void every_flipped_bit_of_a_record_is_noticed_by_a_read(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    fill(&o, SMALL);
    kv_disk *const disk = dfix_open(&o);
    uint8_t key[1][KV_KEY_BYTES];
    uint8_t got[SMALL];
    char path[DFIX_PATH_BYTES + 64];
    kv_disk_found found;
    bool over = false;
    kv_disk_find find = {.op = {.done = dfix_set, .user = &over}, .keys = key, .n = 1, .found = &found};
    dfix_key(2, key[0]);
    kv_disk_find_start(disk, &find);
    dfix_wait(disk, &over);
    assert_int_equal(find.n_units, 1);
    assert_true(dfix_segment(&d, 0, path));
    for (size_t bit = 0; bit < 8 * (KV_HEAD_BYTES + SMALL); bit++) {
        kv_disk_read read = {.op = {.done = dfix_set, .user = &over}, .place = found.unit, .out = got};
        memcpy(read.key, key[0], sizeof read.key);
        flip(path, 8 * 2 * RECORD + bit);
        over = false;
        kv_disk_read_start(disk, &read);
        dfix_wait(disk, &over);
        flip(path, 8 * 2 * RECORD + bit);
        assert_int_equal(read.op.status, DI_E_MISMATCH);
    }
    assert_int_equal(dfix_counters(disk).corrupt, 8 * (KV_HEAD_BYTES + SMALL));
    kv_disk_release(disk, &find);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(expect_no_lie(disk, i), i != 2 || dfix_get(disk, 2, KV_DISK_UNIT, NULL) == DI_OK);
    }
    kv_disk_close(disk);
    dfix_remove(&d);
}

/* One bit of each byte of a head, with the catalogue and without: the record is lost, the others are found. */
static void a_rebuilt_index_has_all_but_the_damaged_record(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    fill(&o, SMALL);
    size_t size;
    char *const whole = read_segment(&d, 0, &size);
    for (size_t byte = 0; byte < KV_HEAD_BYTES; byte += 5) {
        const bool catalogue = byte % 2 == 0;
        const size_t cut = catalogue ? size : (size_t)N * RECORD;
        whole[2 * RECORD + byte] ^= (char)(1 << byte % 8);
        write_segment(&d, 0, whole, cut);
        whole[2 * RECORD + byte] ^= (char)(1 << byte % 8);
        dfix_drop_index(&d);
        kv_disk *const disk = dfix_open(&o);
        assert_true(dfix_counters(disk).rebuilt);
        assert_int_equal(dfix_counters(disk).records[KV_DISK_UNIT], catalogue ? N : N - 1);
        assert_int_equal(dfix_get(disk, 2, KV_DISK_UNIT, NULL), catalogue ? DI_E_MISMATCH : DI_E_STATE);
        assert_int_equal(count_found(disk), N - 1);
        kv_disk_close(disk);
    }
    free(whole);
    dfix_remove(&d);
}

/* Any bit of catalogue and trailer: the records are found head by head. */
static void a_damaged_catalogue_costs_nothing(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    fill(&o, SMALL);
    size_t size;
    char *const whole = read_segment(&d, 0, &size);
    const size_t tail = size - (size_t)N * RECORD;
    for (size_t i = 0; i < 60; i++) {
        const size_t byte = (size_t)N * RECORD + i * 131 % tail;
        whole[byte] ^= (char)(1 << i % 8);
        write_segment(&d, 0, whole, size);
        whole[byte] ^= (char)(1 << i % 8);
        dfix_drop_index(&d);
        kv_disk *const disk = dfix_open(&o);
        assert_int_equal(count_found(disk), N);
        kv_disk_close(disk);
    }
    free(whole);
    dfix_remove(&d);
}

static void a_truncated_segment_gives_what_is_left_of_it(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    fill(&o, 5000);
    size_t size;
    char *const whole = read_segment(&d, 0, &size);
    char path[DFIX_PATH_BYTES + 64];
    const size_t record = 2 * (size_t)KV_BLOCK;
    assert_true(dfix_segment(&d, 0, path));
    int n = 0;
    for (size_t cut = 0; cut < size; cut += 512, n++) {
        write_to(path, whole, size);
        kv_disk *disk = dfix_open(&o);
        assert_int_equal(count_found(disk), N);
        kv_disk_close(disk);
        write_to(path, whole, cut);
        if (cut % 1024 == 0) { /* else the index still has everything: reads fail */
            dfix_drop_index(&d);
        }
        disk = dfix_open(&o);
        assert_int_equal(count_found(disk), cut / record < N ? cut / record : N);
        kv_disk_close(disk);
    }
    assert_int_equal(n, 14 * KV_BLOCK / 512); /* six records, catalogue and trailer */
    free(whole);
    dfix_remove(&d);
}

/* Segments of three records, and what a clumsy copy makes of them. */
static void swapped_and_copied_segments_deceive_nobody(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    for (uint64_t round = 0; round < 2; round++) {
        kv_disk *const disk = dfix_open(&o);
        for (uint64_t i = 0; i < 3; i++) {
            assert_int_equal(dfix_put(disk, 3 * round + i, KV_DISK_UNIT, 2000), KV_DISK_STORED);
        }
        kv_disk_close(disk);
    }
    assert_int_equal(dfix_n_segments(&d), 2);
    size_t size[2];
    char *data[2];
    char paths[2][DFIX_PATH_BYTES + 64];
    for (int i = 0; i < 2; i++) {
        data[i] = read_segment(&d, i, &size[i]);
        assert_true(dfix_segment(&d, i, paths[i]));
    }
    for (int round = 0; round < 2; round++) { /* swapped: with the index as it was, then with a new one */
        write_to(paths[0], data[1], size[1]);
        write_to(paths[1], data[0], size[0]);
        kv_disk *const disk = dfix_open(&o);
        assert_int_equal(count_found(disk), 0);
        kv_disk_close(disk);
        dfix_drop_index(&d);
    }
    write_to(paths[0], data[0], size[0]); /* as they were */
    write_to(paths[1], data[1], size[1]);
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(count_found(disk), N);
    kv_disk_close(disk);
    for (int i = 0; i < 2; i++) {
        free(data[i]);
    }
    dfix_remove(&d);
}

static void a_copy_under_another_name_adds_nothing(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    char path[DFIX_PATH_BYTES + 64];
    size_t size;
    fill(&o, 2000);
    char *const data = read_segment(&d, 0, &size);
    snprintf(path, sizeof path, "%s/00-00000000000001-0000000000000002.kvs", d.path);
    assert_int_equal(file_write(path, data, size, NULL), DI_OK);
    snprintf(path, sizeof path, "%s/05-00000000000001-0000000000000002.kvs", d.path);
    assert_int_equal(file_write(path, data, size, NULL), DI_OK);
    snprintf(path, sizeof path, "%s/zz-00000000000001-0000000000000002.kvs", d.path);
    assert_int_equal(file_write(path, data, size, NULL), DI_OK);
    dfix_drop_index(&d);
    kv_disk *const disk = dfix_open(&o);
    assert_int_equal(dfix_counters(disk).records[KV_DISK_UNIT], N);
    assert_int_equal(count_found(disk), N);
    kv_disk_close(disk);
    free(data);
    dfix_remove(&d);
}

static void a_damaged_index_is_made_anew(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    const kv_disk_options o = quick_options(&d);
    char path[DFIX_PATH_BYTES + 64];
    fill(&o, 2000);
    snprintf(path, sizeof path, "%s/index-00/data.mdb", d.path);
    for (size_t i = 0; i < 20; i++) {
        flip(path, 8 * 797 * i + i % 8);
        kv_disk *const disk = dfix_open(&o);
        assert_true(dfix_counters(disk).rebuilt);
        assert_int_equal(count_found(disk), N);
        kv_disk_close(disk);
    }
    dfix_remove(&d);
}

/* ---- errors of the system ---- */

static void reads_that_fail_are_errors_and_later_ones_succeed(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = quick_options(&d);
    faulty f;
    faulty_init(&f);
    o.io = &f.table;
    fill(&o, 20000);
    kv_disk *const disk = dfix_open(&o);
    atomic_store(&f.read_error, EIO);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(dfix_get(disk, i, KV_DISK_UNIT, NULL), DI_E_IO);
    }
    assert_int_equal(dfix_counters(disk).reads_failed, N);
    atomic_store(&f.read_error, 0);
    atomic_store(&f.is_short, true);
    assert_int_equal(count_found(disk), N);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void an_unreadable_segment_is_no_reason_not_to_start(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = quick_options(&d);
    faulty f;
    faulty_init(&f);
    o.io = &f.table;
    fill(&o, 20000);
    dfix_drop_index(&d);
    atomic_store(&f.read_error, EIO);
    kv_disk *disk = dfix_open(&o);
    assert_int_equal(count_found(disk), 0);
    kv_disk_close(disk);
    atomic_store(&f.read_error, 0);
    disk = dfix_open(&o); /* nothing was thrown away for it */
    assert_int_equal(count_found(disk), N);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void expect_failing_puts(int write_error, int sync_error, int allocate_error, int create_error)
{
    const dfix_dir d = dfix_make();
    kv_disk_options o = quick_options(&d);
    faulty f;
    faulty_init(&f);
    o.io = &f.table;
    o.no_sync = false;
    fill(&o, 20000);
    kv_disk *disk = dfix_open(&o);
    atomic_store(&f.write_error, write_error);
    atomic_store(&f.sync_error, sync_error);
    atomic_store(&f.allocate_error, allocate_error);
    atomic_store(&f.create_error, create_error);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(dfix_put(disk, 100 + i, KV_DISK_UNIT, 20000), KV_DISK_FAILED);
        assert_int_equal(dfix_get(disk, 100 + i, KV_DISK_UNIT, NULL), DI_E_STATE);
    }
    assert_int_equal(count_found(disk), N);
    atomic_store(&f.write_error, 0);
    atomic_store(&f.sync_error, 0);
    atomic_store(&f.allocate_error, 0);
    atomic_store(&f.create_error, 0);
    const int64_t end = clock_now_ns() + (int64_t)60 * 1000000000;
    while (dfix_put(disk, 200, KV_DISK_UNIT, 20000) != KV_DISK_STORED) { /* writing rests for a while after an error */
        assert_true(clock_now_ns() < end);
    }
    assert_int_equal(dfix_get(disk, 200, KV_DISK_UNIT, NULL), DI_OK);
    kv_disk_close(disk);
    disk = dfix_open(&o);
    assert_int_equal(count_found(disk), N);
    assert_int_equal(dfix_get(disk, 200, KV_DISK_UNIT, NULL), DI_OK);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void writes_that_fail_lose_their_record_only(void **state)
{
    (void)state;
    expect_failing_puts(EIO, 0, 0, 0);
    expect_failing_puts(ENOSPC, 0, 0, 0);
    expect_failing_puts(0, EIO, 0, 0);
    expect_failing_puts(0, 0, ENOSPC, 0);
    expect_failing_puts(0, 0, 0, EROFS);
}

static void a_disk_that_fails_in_the_middle_of_a_batch_keeps_the_batches_before(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = quick_options(&d);
    faulty f;
    faulty_init(&f);
    o.io = &f.table;
    kv_disk *disk = dfix_open(&o);
    atomic_store(&f.writes_left, 4);
    atomic_store(&f.write_error, ENOSPC);
    int n = 0;
    while (dfix_put(disk, (uint64_t)n, KV_DISK_UNIT, 1000) == KV_DISK_STORED) {
        n++;
    }
    assert_int_equal(n, 4);
    kv_disk_close(disk);
    atomic_store(&f.write_error, 0);
    dfix_drop_index(&d);
    disk = dfix_open(&o);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(dfix_get(disk, i, KV_DISK_UNIT, NULL), DI_OK);
    }
    assert_int_equal(dfix_get(disk, 4, KV_DISK_UNIT, NULL), DI_E_STATE);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_slow_disk_is_waited_for_no_longer_than_the_deadline(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = quick_options(&d);
    faulty f;
    faulty_init(&f);
    o.io = &f.table;
    fill(&o, 20000);
    kv_disk *const disk = dfix_open(&o);
    atomic_store(&f.delay_ms, 10);
    assert_int_equal(count_found(disk), N); /* slow is no error */
    atomic_store(&f.delay_ms, 100000);
    uint8_t key[1][KV_KEY_BYTES];
    static uint8_t got[20000];
    kv_disk_found found;
    bool over = false;
    kv_disk_find find = {.op = {.done = dfix_set, .user = &over}, .keys = key, .n = 1, .found = &found};
    dfix_key(0, key[0]);
    kv_disk_find_start(disk, &find);
    dfix_wait(disk, &over);
    kv_disk_read read = {.op = {.done = dfix_set, .user = &over}, .place = found.unit, .out = got};
    memcpy(read.key, key[0], sizeof read.key);
    read.deadline_ns = clock_now_ns() + 20000000;
    over = false;
    kv_disk_read_start(disk, &read);
    dfix_wait(disk, &over);
    assert_int_equal(read.op.status, DI_E_CANCELLED);
    assert_int_equal(dfix_counters(disk).reads_late, 1);
    kv_disk_release(disk, &find);
    atomic_store(&f.delay_ms, 0);
    kv_disk_close(disk);
    dfix_remove(&d);
}

static void a_directory_that_cannot_be_written_is_read_when_asked_to(void **state)
{
    (void)state;
    const dfix_dir d = dfix_make();
    kv_disk_options o = quick_options(&d);
    faulty f;
    faulty_init(&f);
    o.io = &f.table;
    fill(&o, 20000);
    atomic_store(&f.create_error, EROFS);
    kv_disk *disk = NULL;
    di_error err;
    assert_int_equal(kv_disk_open(&o, &disk, &err), DI_E_IO);
    assert_non_null(strstr(err.message, "can't be written"));
    o.read_only = true;
    disk = dfix_open(&o);
    assert_int_equal(count_found(disk), N);
    assert_int_equal(dfix_put(disk, 100, KV_DISK_UNIT, 100), KV_DISK_FAILED);
    kv_disk_close(disk);
    dfix_remove(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flipped_bit_of_a_record_is_noticed_by_a_read),
        cmocka_unit_test(a_rebuilt_index_has_all_but_the_damaged_record),
        cmocka_unit_test(a_damaged_catalogue_costs_nothing),
        cmocka_unit_test(a_truncated_segment_gives_what_is_left_of_it),
        cmocka_unit_test(swapped_and_copied_segments_deceive_nobody),
        cmocka_unit_test(a_copy_under_another_name_adds_nothing),
        cmocka_unit_test(a_damaged_index_is_made_anew),
        cmocka_unit_test(reads_that_fail_are_errors_and_later_ones_succeed),
        cmocka_unit_test(an_unreadable_segment_is_no_reason_not_to_start),
        cmocka_unit_test(writes_that_fail_lose_their_record_only),
        cmocka_unit_test(a_disk_that_fails_in_the_middle_of_a_batch_keeps_the_batches_before),
        cmocka_unit_test(a_slow_disk_is_waited_for_no_longer_than_the_deadline),
        cmocka_unit_test(a_directory_that_cannot_be_written_is_read_when_asked_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
