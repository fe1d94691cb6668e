/* Tests of file.c. */
#include "support/unit.h"

#include "core/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *dir;

static int make_dir(void **state)
{
    (void)state;
    dir = unit_scratch_new();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unit_scratch_remove(dir);
    return 0;
}

static char *path_of(const char *name)
{
    char *const path = file_path_join(dir, name);
    assert_non_null(path);
    return path;
}

static void map_shows_the_bytes(void **state)
{
    (void)state;
    unit_write(dir, "f", "hello", 5);
    char *const path = path_of("f");
    file_map map;
    di_error err;
    assert_int_equal(file_map_open(path, &map, &err), DI_OK);
    assert_int_equal(map.size, 5);
    assert_memory_equal(map.data, "hello", 5);
    file_map_close(&map);
    assert_null(map.base);
    file_map_close(&map);
    file_map_close(NULL);
    free(path);
}

/* Pages that are given back are read again from the file, at any alignment. */
static void a_forgotten_part_reads_as_before(void **state)
{
    (void)state;
    enum { SIZE = 5 * 4096 + 100 };
    uint8_t *const bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (uint8_t)(i * 31 % 251);
    }
    unit_write(dir, "pages", bytes, SIZE);
    char *const path = path_of("pages");
    file_map map;
    assert_int_equal(file_map_open(path, &map, NULL), DI_OK);
    file_map_forget(map.data + 10, SIZE - 20);
    file_map_forget(map.data + 4096, 4096);
    file_map_forget(map.data + 1, 5); /* no whole page */
    file_map_forget(map.data, 0);
    assert_memory_equal(map.data, bytes, SIZE);
    file_map_close(&map);
    free(path);
    free(bytes);
}

static void an_empty_file_maps_to_nothing(void **state)
{
    (void)state;
    unit_write(dir, "empty", "", 0);
    char *const path = path_of("empty");
    file_map map;
    assert_int_equal(file_map_open(path, &map, NULL), DI_OK);
    assert_int_equal(map.size, 0);
    assert_non_null(map.data);
    file_map_close(&map);
    free(path);
}

static void what_is_not_a_regular_file_is_refused(void **state)
{
    (void)state;
    file_map map;
    di_error err;
    char *data = NULL;
    size_t size = 0;
    unit_expect_error(file_map_open(dir, &map, &err), DI_E_FORMAT, &err, dir, "not a regular file", NULL);
    unit_expect_error(file_read(dir, 10, &data, &size, &err), DI_E_FORMAT, &err, dir, NULL);
    char *const fifo = path_of("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    unit_expect_error(file_map_open(fifo, &map, &err), DI_E_FORMAT, &err, "fifo", NULL);
    char *const missing = path_of("missing");
    unit_expect_error(file_map_open(missing, &map, &err), DI_E_IO, &err, "missing", "No such file", NULL);
    unit_expect_error(file_read(missing, 10, &data, &size, &err), DI_E_IO, &err, "missing", NULL);
    assert_null(data);
    free(missing);
    free(fifo);
}

static void read_stops_at_the_limit(void **state)
{
    (void)state;
    unit_write(dir, "ten", "0123456789", 10);
    char *const path = path_of("ten");
    char *data = NULL;
    size_t size = 0;
    di_error err;
    assert_int_equal(file_read(path, 10, &data, &size, &err), DI_OK);
    assert_int_equal(size, 10);
    assert_string_equal(data, "0123456789");
    free(data);
    data = NULL;
    unit_expect_error(file_read(path, 9, &data, &size, &err), DI_E_LIMIT, &err, "ten", "9 bytes", NULL);
    assert_null(data);
    free(path);
}

static void a_stream_is_read_to_its_end(void **state)
{
    (void)state;
    enum { TOTAL = 300000 };
    char *const sent = malloc(TOTAL);
    assert_non_null(sent);
    for (size_t i = 0; i < TOTAL; i++) {
        sent[i] = (char)('a' + i % 23);
    }
    unit_write(dir, "big", sent, TOTAL);
    char *const path = path_of("big");
    char command[600];
    snprintf(command, sizeof command, "cat %s", path);
    FILE *const pipe = popen(command, "r");
    assert_non_null(pipe);
    char *data = NULL;
    size_t size = 0;
    di_error err;
    assert_int_equal(file_read_stream(fileno(pipe), "standard input", TOTAL, &data, &size, &err), DI_OK);
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(size, TOTAL);
    assert_memory_equal(data, sent, TOTAL);
    assert_int_equal(data[size], '\0');
    free(data);
    free(path);
    free(sent);
}

static void a_stream_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "abcdef", 6), 6);
    close(ends[1]);
    char *data = NULL;
    size_t size = 0;
    di_error err;
    unit_expect_error(file_read_stream(ends[0], "standard input", 5, &data, &size, &err), DI_E_LIMIT, &err, "standard input", NULL);
    close(ends[0]);
    unit_expect_error(file_read_stream(-1, "nothing", 5, &data, &size, &err), DI_E_IO, &err, "nothing", NULL);
}

static void write_replaces_whole_files(void **state)
{
    (void)state;
    char *const path = path_of("out");
    char *data;
    size_t size;
    assert_int_equal(file_write(path, "first version", 13, NULL), DI_OK);
    const file_part parts[] = {{"sec", 3}, {NULL, 0}, {"ond", 3}};
    assert_int_equal(file_write_parts(path, parts, 3, NULL), DI_OK);
    assert_int_equal(file_read(path, 100, &data, &size, NULL), DI_OK);
    assert_string_equal(data, "second");
    free(data);
    free(path);
    char *const nowhere = path_of("no/such/folder");
    di_error err;
    unit_expect_error(file_write(nowhere, "x", 1, &err), DI_E_IO, &err, "no/such/folder", NULL);
    free(nowhere);
    unit_expect_error(file_write(dir, "x", 1, &err), DI_E_IO, &err, dir, NULL);
}

static void paths_are_joined(void **state)
{
    (void)state;
    static const char *const cases[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *const path = file_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
}

static void existence_is_told(void **state)
{
    (void)state;
    assert_true(file_exists(dir));
    assert_true(file_is_dir(dir));
    unit_write(dir, "e", "", 0);
    char *const path = path_of("e");
    assert_true(file_exists(path));
    assert_false(file_is_dir(path));
    assert_false(file_exists("no/such/file"));
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_shows_the_bytes),
        cmocka_unit_test(a_forgotten_part_reads_as_before),
        cmocka_unit_test(an_empty_file_maps_to_nothing),
        cmocka_unit_test(what_is_not_a_regular_file_is_refused),
        cmocka_unit_test(read_stops_at_the_limit),
        cmocka_unit_test(a_stream_is_read_to_its_end),
        cmocka_unit_test(a_stream_beyond_the_limit_is_refused),
        cmocka_unit_test(write_replaces_whole_files),
        cmocka_unit_test(paths_are_joined),
        cmocka_unit_test(existence_is_told),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
