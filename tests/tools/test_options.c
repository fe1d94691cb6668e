/* The table of options: command line over environment over default; lists of ids. What ends the program (bad values, --help) is in
 * e2e_generate.py, the file in test_options_file.c. */
#include "options.h"

#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
    bool flag;
    const char *text;
    int64_t number;
    double real;
    cli_list list;
} values;

static void parse(values *v, int argc, const char *const *words, size_t *n_args)
{
    cli_parser p;
    char *argv[8] = {NULL};
    char **args;
    for (int i = 0; i < argc; i++) {
        argv[i] = strdup(words[i]);
    }
    cli_parser_init(&p, "ARG...", 0, 8, "Test.");
    cli_add_flag(&p, "t-flag", &v->flag, "a flag");
    cli_add_string(&p, "t-text", "TEXT", &v->text, "a text");
    cli_add_int(&p, "t-number", "N", &v->number, -5, 5000000000, "a number");
    cli_add_real(&p, "t-real", "X", &v->real, 0, 1, "a real number");
    cli_add_list(&p, "t-list", "TEXT", &v->list, "texts");
    cli_parse(&p, argc, argv, &args, n_args);
    if (v->text != NULL) {
        v->text = strdup(v->text);
    }
    for (int i = 0; i < argc; i++) {
        free(argv[i]);
    }
}

static void defaults_stay_when_nothing_is_given(void **state)
{
    (void)state;
    const char *const words[] = {"deepinfer test"};
    values v = {.number = 7, .real = 0.5};
    size_t n_args;
    parse(&v, 1, words, &n_args);
    assert_false(v.flag);
    assert_null(v.text);
    assert_int_equal(v.number, 7);
    assert_true(v.real == 0.5);
    assert_int_equal(n_args, 0);
}

static void options_and_arguments_mix(void **state)
{
    (void)state;
    const char *const words[] = {"deepinfer test", "one", "--t-flag", "--t-number=-5", "two", "--t-real", "1", "--t-text=a=b"};
    values v = {.number = 7};
    size_t n_args;
    parse(&v, 8, words, &n_args);
    assert_true(v.flag);
    assert_int_equal(v.number, -5);
    assert_true(v.real == 1);
    assert_string_equal(v.text, "a=b");
    assert_int_equal(n_args, 2);
    free((char *)(uintptr_t)v.text);
}

static void a_list_takes_each_value_and_the_command_line_replaces_the_environment(void **state)
{
    (void)state;
    const char *const words[] = {"deepinfer test", "--t-list", "a", "--t-list=b"};
    values v = {.flag = false};
    size_t n_args;
    setenv("DI_T_LIST", "from outside", 1);
    parse(&v, 1, words, &n_args);
    assert_int_equal(v.list.n, 1);
    assert_string_equal(v.list.items[0], "from outside");
    v = (values){.flag = false};
    parse(&v, 4, words, &n_args);
    assert_int_equal(v.list.n, 2);
    unsetenv("DI_T_LIST");
    v = (values){.flag = false};
    parse(&v, 1, words, &n_args);
    assert_int_equal(v.list.n, 0);
}

static void environment_counts_unless_the_command_line_speaks(void **state)
{
    (void)state;
    const char *const words[] = {"deepinfer test", "--t-number", "5000000000"};
    values v = {.flag = true};
    size_t n_args;
    setenv("DI_T_FLAG", "off", 1);
    setenv("DI_T_NUMBER", "3", 1);
    setenv("DI_T_REAL", "0.25", 1);
    setenv("DI_T_TEXT", "", 1);
    parse(&v, 3, words, &n_args);
    unsetenv("DI_T_FLAG");
    unsetenv("DI_T_NUMBER");
    unsetenv("DI_T_REAL");
    unsetenv("DI_T_TEXT");
    assert_false(v.flag);
    assert_int_equal(v.number, 5000000000);
    assert_true(v.real == 0.25);
    assert_null(v.text);
}

static void lists_of_ids_take_commas_blanks_and_brackets(void **state)
{
    (void)state;
    static const char *const lists[] = {"0,17,2147483647", "0 17 2147483647", "[0, 17,\n2147483647]\n", ",0,,17, 2147483647,"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        int32_t *ids;
        size_t n;
        di_error err;
        assert_int_equal(cli_read_ids(lists[i], &ids, &n, &err), DI_OK);
        assert_int_equal(n, 3);
        assert_int_equal(ids[0], 0);
        assert_int_equal(ids[1], 17);
        assert_int_equal(ids[2], 2147483647);
        free(ids);
    }
}

static void lists_of_ids_come_from_files_and_may_be_empty(void **state)
{
    (void)state;
    char *const dir = unit_scratch_new();
    char path[4096];
    int32_t *ids;
    size_t n;
    di_error err;
    unit_write(dir, "ids", "5\n6\n", 4);
    snprintf(path, sizeof path, "@%s/ids", dir);
    assert_int_equal(cli_read_ids(path, &ids, &n, &err), DI_OK);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], 6);
    free(ids);
    assert_int_equal(cli_read_ids("", &ids, &n, &err), DI_OK);
    assert_int_equal(n, 0);
    free(ids);
    snprintf(path, sizeof path, "@%s/none", dir);
    unit_expect_error(cli_read_ids(path, &ids, &n, &err), DI_E_IO, &err, "none", NULL);
    unit_scratch_remove(dir);
}

static void what_is_no_id_is_named_by_its_place(void **state)
{
    (void)state;
    static const char *const lists[] = {"1,x", "1,-2", "1,2147483648", "1,99999999999999999999", "1,2x", "1,2.5"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        int32_t *ids;
        size_t n;
        di_error err;
        unit_expect_error(cli_read_ids(lists[i], &ids, &n, &err), DI_E_ARGUMENT, &err, "token id 2", NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_stay_when_nothing_is_given),
        cmocka_unit_test(options_and_arguments_mix),
        cmocka_unit_test(a_list_takes_each_value_and_the_command_line_replaces_the_environment),
        cmocka_unit_test(environment_counts_unless_the_command_line_speaks),
        cmocka_unit_test(lists_of_ids_take_commas_blanks_and_brackets),
        cmocka_unit_test(lists_of_ids_come_from_files_and_may_be_empty),
        cmocka_unit_test(what_is_no_id_is_named_by_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
