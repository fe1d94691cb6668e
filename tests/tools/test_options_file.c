/* The configuration file: what it may hold, what is refused and where, which source wins, and that what --print-config prints reads back
 * as the same options. */
#include "options.h"

#include "support/unit.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
    bool flag;
    const char *text;
    int64_t number;
    int64_t unset;
    double real;
    cli_list list;
    const char *key;
    cli_parser p;
} values;

/* On the heap: a parser has room for a file. */
static values *new_values(void)
{
    values *const v = calloc(1, sizeof *v);
    assert_non_null(v);
    v->number = 7;
    v->unset = -1;
    v->real = 0.5;
    cli_parser_init(&v->p, "", 0, 0, "Test.");
    v->p.command = "deepinfer test";
    cli_add_flag(&v->p, "t-flag", &v->flag, "a flag");
    cli_add_string(&v->p, "t-text", "TEXT", &v->text, "a text");
    cli_add_int(&v->p, "t-number", "N", &v->number, 0, INT64_C(1) << 40, "a number");
    cli_add_int(&v->p, "t-unset", "N", &v->unset, 0, 5, "a number whose default is none");
    cli_add_real(&v->p, "t-real", "X", &v->real, -1e300, DBL_MAX, "a real number");
    cli_add_list(&v->p, "t-list", "TEXT", &v->list, "texts");
    cli_add_string(&v->p, "t-key", "KEY", &v->key, "a secret");
    cli_mark_secret(&v->p);
    return v;
}

static di_status read_text(values *v, const char *text, di_error *err)
{
    return cli_read_config_text(&v->p, text, strlen(text), "x.yaml", err);
}

static values *read_good(const char *text)
{
    values *const v = new_values();
    di_error err;
    if (read_text(v, text, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return v;
}

static void every_kind_of_option_can_be_in_the_file(void **state)
{
    (void)state;
    values *const v = read_good("# a comment\n"
                                "t-flag: true\n"
                                "t-text: some words # and a comment\n"
                                "t-number: 1099511627776\n"
                                "\"t-real\": -2.5e-3\n"
                                "t-list:\n"
                                "  - one\n"
                                "  - \"two\\n\\u4e2d\"\n"
                                "  - 'it''s'\n");
    assert_true(v->flag);
    assert_string_equal(v->text, "some words");
    assert_true(v->number == INT64_C(1) << 40);
    assert_true(v->real == -2.5e-3);
    assert_int_equal(v->list.n, 3);
    assert_string_equal(v->list.items[0], "one");
    assert_string_equal(v->list.items[1], "two\n\xE4\xB8\xAD");
    assert_string_equal(v->list.items[2], "it's");
    assert_int_equal(v->unset, -1);
    assert_null(v->key);
    free(v);
}

static void files_without_entries_change_nothing(void **state)
{
    (void)state;
    static const char *const files[] = {"", "\n", "# only a comment\n", "---\n", "---\n...\n", "{}", "\xEF\xBB\xBF# marked\n"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        values *const v = read_good(files[i]);
        assert_int_equal(v->number, 7);
        free(v);
    }
}

static void plain_words_are_texts_as_they_are_spelt(void **state)
{
    (void)state;
    static const char *const words[] = {"off", "yes", "12", "0x1F", "1_000", "5.0e1", "true", "2026-01-01"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char file[64];
        snprintf(file, sizeof file, "t-text: %s\n", words[i]);
        values *const v = read_good(file);
        assert_string_equal(v->text, words[i]);
        free(v);
    }
    values *const v = read_good("t-text: \"\"\nt-list: [off, 1, 'null']\n");
    assert_string_equal(v->text, "");
    assert_string_equal(v->list.items[0], "off");
    assert_string_equal(v->list.items[1], "1");
    assert_string_equal(v->list.items[2], "null");
    free(v);
}

static void mistakes_are_named_by_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *message;
    } cases[] = {
        {"\nt-numbr: 1\n", "x.yaml:2: unknown option 't-numbr'; did you mean 't-number'?"},
        {"t_number: 1\n", "x.yaml:1: unknown option 't_number'; did you mean 't-number'?"},
        {"elsewhere: 1\n", "x.yaml:1: unknown option 'elsewhere'"},
        {"config: y.yaml\n", "x.yaml:1: 'config' is for the command line"},
        {"t-number: 1\nt-flag: true\nt-number: 1\n", "x.yaml:3: t-number stands in line 1 already"},
        {"t-number: 1.5\n", "x.yaml:1: t-number: '1.5' is not a whole number from 0 to 1099511627776"},
        {"t-number: -1\n", "x.yaml:1: t-number: '-1' is not a whole number"},
        {"t-number: \"1\"\n", "x.yaml:1: t-number takes a whole number, not a text in quotes"},
        {"t-number: [1]\n", "x.yaml:1: t-number takes a whole number, not a list"},
        {"t-number:\n", "x.yaml:1: t-number has no value"},
        {"t-real: fast\n", "x.yaml:1: t-real: 'fast' is not a number"},
        {"t-real: .nan\n", "x.yaml:1: t-real: '.nan' is not a number"},
        {"t-flag: yes\n", "x.yaml:1: t-flag takes true or false, not 'yes'"},
        {"t-flag: 'true'\n", "x.yaml:1: t-flag takes true or false, not a text in quotes"},
        {"t-text: ~\n", "x.yaml:1: t-text has no value; an empty text is \"\""},
        {"t-text: [a]\n", "x.yaml:1: t-text takes a text, not a list"},
        {"t-text:\n  a: b\n", "x.yaml:2: options do not nest"},
        {"t-list: a\n", "x.yaml:1: t-list takes a list: [value, ...]"},
        {"t-list: [a, ~]\n", "x.yaml:1: t-list has no value"},
        {"t-list:\n- a\n- [b]\n", "x.yaml:3: a list holds single values only"},
        {"t-list:\n- a: b\n", "x.yaml:2: a list holds single values only"},
        {"t-text: &x a\n", "x.yaml:1: anchors are not used here"},
        {"t-number: 1\nt-text: *x\n", "x.yaml:2: aliases are not used here"},
        {"t-text: !!str a\n", "x.yaml:1: tags are not used here"},
        {"!!map\nt-text: a\n", "x.yaml:1: tags are not used here"},
        {"%TAG ! tag:x,2000:\n---\nt-text: a\n", "tags are not used here"},
        {"- a\n", "x.yaml:1: expected lines of the form"},
        {"just words\n", "x.yaml:1: expected lines of the form"},
        {"? [a]\n: b\n", "x.yaml:1: a key must be the name of an option"},
        {"t-number: 1\n---\nt-flag: true\n", "x.yaml:2: a second document"},
        {"t-flag: true\n\"t-text: a\n", "x.yaml:3: not YAML: "},
        {"t-flag: true\n\tt-text: a\n", "x.yaml:2: not YAML: "},
        {"t-flag: true\nt-text: a\xFFz\n", "x.yaml:2: not UTF-8"},
        {"t-flag: true\nt-text: a\x01z\n", "x.yaml:2: not YAML: control characters"},
        {"t-text: \"a\\0z\"\n", "x.yaml:1: a text with a NUL character"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        values *const v = new_values();
        di_error err;
        const di_status status = read_text(v, cases[i].file, &err);
        unit_expect_error(status, DI_E_FORMAT, &err, cases[i].message, NULL);
        free(v);
    }
}

static void the_size_of_a_file_and_of_a_list_is_bounded(void **state)
{
    (void)state;
    di_error err;
    char *const big = calloc(1, CONFIG_MAX_BYTES + 2);
    memset(big, '#', CONFIG_MAX_BYTES + 1);
    values *v = new_values();
    unit_expect_error(read_text(v, big, &err), DI_E_LIMIT, &err, "x.yaml: 65537 bytes, at most 65536", NULL);
    big[CONFIG_MAX_BYTES] = '\0';
    assert_int_equal(read_text(v, big, &err), DI_OK);
    free(v);
    strcpy(big, "t-list:\n");
    for (int i = 0; i < CLI_MAX_LIST; i++) {
        strcat(big, "- a\n");
    }
    v = read_good(big);
    assert_int_equal(v->list.n, CLI_MAX_LIST);
    free(v);
    strcat(big, "- a\n");
    v = new_values();
    unit_expect_error(read_text(v, big, &err), DI_E_LIMIT, &err, "x.yaml:66: t-list has more than 64 values", NULL);
    free(v);
    /* Escapes that are longer once read than as they are spelt. */
    strcpy(big, "t-text: \"");
    for (size_t n = strlen(big); n + 4 < CONFIG_MAX_BYTES; n += 2) {
        memcpy(big + n, "\\L", 3);
    }
    strcat(big, "\"\n");
    v = new_values();
    unit_expect_error(read_text(v, big, &err), DI_E_LIMIT, &err, "x.yaml:1: more than 65536 bytes of text", NULL);
    free(v);
    free(big);
}

static void the_earlier_named_source_wins(void **state)
{
    (void)state;
    char why[256];
    di_error err;
    values *const v = new_values();
    assert_true(cli_store(&v->p.options[2], "1", CLI_COMMAND_LINE, why, sizeof why));
    assert_true(cli_store(&v->p.options[5], "line", CLI_COMMAND_LINE, why, sizeof why));
    setenv("DI_T_NUMBER", "2", 1);
    setenv("DI_T_TEXT", "environment", 1);
    setenv("DI_T_LIST", "environment", 1);
    assert_int_equal(cli_read_environment(&v->p, &err), DI_OK);
    unsetenv("DI_T_NUMBER");
    unsetenv("DI_T_TEXT");
    unsetenv("DI_T_LIST");
    assert_int_equal(read_text(v, "t-number: 3\nt-text: file\nt-list: [file, file]\nt-real: 0.25\n", &err), DI_OK);
    assert_int_equal(v->number, 1);
    assert_string_equal(v->text, "environment");
    assert_true(v->real == 0.25);
    assert_int_equal(v->list.n, 1);
    assert_string_equal(v->list.items[0], "line");
    free(v);
}

static void an_overruled_value_must_be_good_too(void **state)
{
    (void)state;
    char why[256];
    di_error err;
    values *const v = new_values();
    assert_true(cli_store(&v->p.options[2], "1", CLI_COMMAND_LINE, why, sizeof why));
    unit_expect_error(read_text(v, "t-number: many\n", &err), DI_E_FORMAT, &err, "x.yaml:1: t-number", NULL);
    setenv("DI_T_NUMBER", "many", 1);
    unit_expect_error(cli_read_environment(&v->p, &err), DI_E_ARGUMENT, &err, "environment variable DI_T_NUMBER", NULL);
    unsetenv("DI_T_NUMBER");
    free(v);
}

static void an_empty_list_replaces_the_default(void **state)
{
    (void)state;
    di_error err;
    values *const v = new_values();
    v->list = (cli_list){.items = {"default"}, .n = 1};
    assert_int_equal(read_text(v, "t-list: []\n", &err), DI_OK);
    assert_int_equal(v->list.n, 0);
    assert_int_equal(v->p.options[5].source, CLI_FILE);
    free(v);
}

static void the_file_is_read_by_its_path(void **state)
{
    (void)state;
    char *const dir = unit_scratch_new();
    char path[4096];
    di_error err;
    unit_write(dir, "a.yaml", "t-number: 9\n", 12);
    snprintf(path, sizeof path, "%s/a.yaml", dir);
    values *const v = new_values();
    assert_int_equal(cli_read_config(&v->p, path, &err), DI_OK);
    assert_int_equal(v->number, 9);
    unit_expect_error(cli_read_config(&v->p, "no/such.yaml", &err), DI_E_IO, &err, "no/such.yaml", NULL);
    free(v);
    unit_scratch_remove(dir);
}

static void assert_prints(const values *v, bool all, const char *expected)
{
    buf out;
    buf_init(&out, 1 << 20);
    cli_print_config(&v->p, all, &out);
    assert_false(out.failed);
    assert_string_equal(out.data, expected);
    buf_fini(&out);
}

#define HEAD "# Options of deepinfer test. Command line wins over environment, environment over file, file over default.\n"

static void what_holds_is_printed_with_its_source(void **state)
{
    (void)state;
    char why[256];
    values *const v = read_good("t-real: 0.1\n\nt-list: [a, \"b\\n\"]\nt-key: hidden\n");
    assert_true(cli_store(&v->p.options[2], "3", CLI_COMMAND_LINE, why, sizeof why));
    assert_true(cli_store(&v->p.options[0], "on", CLI_ENVIRONMENT, why, sizeof why));
    assert_prints(v, false,
                  HEAD "t-flag: true # environment variable DI_T_FLAG\n"
                       "# t-text: not set\n"
                       "t-number: 3 # command line\n"
                       "# t-unset: not set\n"
                       "t-real: 0.1 # x.yaml:1\n"
                       "t-list: [\"a\", \"b\\u000a\"] # x.yaml:3\n"
                       "# t-key: *** (a secret: --print-config=all shows it) # x.yaml:4\n");
    free(v);
}

static void defaults_and_secrets_are_printed_too(void **state)
{
    (void)state;
    values *const v = read_good("t-list: []\nt-key: k\n");
    assert_prints(v, true,
                  HEAD "t-flag: false # default\n"
                       "# t-text: not set\n"
                       "t-number: 7 # default\n"
                       "# t-unset: not set\n"
                       "t-real: 0.5 # default\n"
                       "t-list: [] # x.yaml:1\n"
                       "t-key: \"k\" # x.yaml:2\n");
    free(v);
}

static void a_text_that_is_no_utf8_is_not_printed(void **state)
{
    (void)state;
    char why[256];
    values *const v = new_values();
    assert_true(cli_store(&v->p.options[1], "a\xFF\nt-number: 1", CLI_COMMAND_LINE, why, sizeof why));
    buf out;
    buf_init(&out, 1 << 20);
    cli_print_config(&v->p, false, &out);
    assert_non_null(strstr(out.data, "\n# t-text: not UTF-8 # command line\n"));
    buf_fini(&out);
    free(v);
}

/* A text of characters that YAML treats in special ways, some plain ones between them. */
static const char *random_text(uint64_t *seed, char *out)
{
    static const char *const pieces[] = {"\"", "\\", "\n", "\r", "\t", " ", "#", ": ", "- ", "'", "%", "&", "*", "!", "{", "]", ",", "\x7F",
                                         "\x1B", "\xC2\x85", "\xC2\xA0", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xEF\xBB\xBF", "\xEF\xBF\xBF",
                                         "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xEE\x80\x80", "a", "0", "---", "..."};
    const size_t n = unit_random(seed) % 12;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        strcat(out, pieces[unit_random(seed) % (sizeof pieces / sizeof pieces[0])]);
    }
    return out;
}

static void what_is_printed_reads_back(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 300; round++) {
        char texts[5][64];
        values *const v = new_values();
        v->flag = unit_random(&seed) % 2 == 0;
        v->number = (int64_t)(unit_random(&seed) % (UINT64_C(1) << 40));
        v->real = (double)(int64_t)unit_random(&seed) * 1e-9;
        v->text = random_text(&seed, texts[0]);
        v->key = random_text(&seed, texts[1]);
        v->list.n = 3;
        for (size_t i = 0; i < 3; i++) {
            v->list.items[i] = random_text(&seed, texts[2 + i]);
        }
        buf out;
        buf_init(&out, 1 << 20);
        cli_print_config(&v->p, true, &out);
        values *const back = read_good(out.data);
        assert_int_equal(back->flag, v->flag);
        assert_true(back->number == v->number);
        assert_true(back->real == v->real);
        assert_string_equal(back->text, v->text);
        assert_string_equal(back->key, v->key);
        assert_int_equal(back->list.n, 3);
        for (size_t i = 0; i < 3; i++) {
            assert_string_equal(back->list.items[i], v->list.items[i]);
        }
        buf_fini(&out);
        free(back);
        free(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_option_can_be_in_the_file),
        cmocka_unit_test(files_without_entries_change_nothing),
        cmocka_unit_test(plain_words_are_texts_as_they_are_spelt),
        cmocka_unit_test(mistakes_are_named_by_file_and_line),
        cmocka_unit_test(the_size_of_a_file_and_of_a_list_is_bounded),
        cmocka_unit_test(the_earlier_named_source_wins),
        cmocka_unit_test(an_overruled_value_must_be_good_too),
        cmocka_unit_test(an_empty_list_replaces_the_default),
        cmocka_unit_test(the_file_is_read_by_its_path),
        cmocka_unit_test(what_holds_is_printed_with_its_source),
        cmocka_unit_test(defaults_and_secrets_are_printed_too),
        cmocka_unit_test(a_text_that_is_no_utf8_is_not_printed),
        cmocka_unit_test(what_is_printed_reads_back),
    };
    return cmocka_run_group_tests_name("options_file", tests, NULL, NULL);
}
