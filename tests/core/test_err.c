/* Tests of err.c and base.c. */
#include "support/unit.h"

#include "core/err.h"

#include <errno.h>
#include <string.h>

static void set_stores_code_text_and_origin(void **state)
{
    (void)state;
    di_error err;
    assert_int_equal(err_set(&err, DI_E_FORMAT, "layer %d: %s", 7, "bad"), DI_E_FORMAT);
    assert_int_equal(err.code, DI_E_FORMAT);
    assert_string_equal(err.message, "layer 7: bad");
    assert_non_null(strstr(err.file, "test_err.c"));
    assert_true(err.line > 0);
}

static void null_error_is_accepted(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, DI_E_LIMIT, "x"), DI_E_LIMIT);
    assert_int_equal(err_set_errno(NULL, ENOENT, "x"), DI_E_IO);
    assert_int_equal(err_memory(NULL, "x", 3), DI_E_MEMORY);
    err_prefix(NULL, "x");
}

static void errno_text_is_appended(void **state)
{
    (void)state;
    di_error err;
    assert_int_equal(err_set_errno(&err, ENOENT, "cannot open %s", "a"), DI_E_IO);
    assert_string_equal(err.message, "cannot open a: No such file or directory");
}

static void memory_error_names_what_and_size(void **state)
{
    (void)state;
    di_error err;
    assert_int_equal(err_memory(&err, "weights", 12), DI_E_MEMORY);
    assert_string_equal(err.message, "out of memory: weights (12 bytes)");
}

static void prefix_keeps_code_and_origin(void **state)
{
    (void)state;
    di_error err;
    err_set(&err, DI_E_IO, "inner");
    const int line = err.line;
    err_prefix(&err, "outer %d", 1);
    assert_string_equal(err.message, "outer 1: inner");
    assert_int_equal(err.code, DI_E_IO);
    assert_int_equal(err.line, line);
}

static void long_messages_are_cut_at_a_character(void **state)
{
    (void)state;
    di_error err;
    char text[700];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 3) {
            memcpy(text + i, "\xE2\x82\xAC", 4); /* the euro sign */
        }
        err_set(&err, DI_E_FORMAT, "%s", text);
        const size_t size = strlen(err.message);
        assert_true(size > sizeof err.message - 4);
        assert_int_equal((size - shift) % 3, 0);
    }
    memset(text, 'b', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    err_set(&err, DI_E_FORMAT, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    err_prefix(&err, "p");
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_memory_equal(err.message, "p: bb", 5);
}

static void a_message_is_one_line(void **state)
{
    (void)state;
    di_error err;
    err_set(&err, DI_E_FORMAT, "a\nb\tc\x7F");
    assert_string_equal(err.message, "a b c ");
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(di_status_name(DI_OK), "ok");
    assert_string_equal(di_status_name(DI_E_INTERNAL), "internal");
    for (int i = DI_E_INTERNAL; i <= DI_OK; i++) {
        assert_string_not_equal(di_status_name((di_status)i), "unknown");
    }
    assert_string_equal(di_status_name((di_status)-99), "unknown");
    assert_string_equal(di_version(), "0.1.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_stores_code_text_and_origin), cmocka_unit_test(null_error_is_accepted),
        cmocka_unit_test(errno_text_is_appended),          cmocka_unit_test(memory_error_names_what_and_size),
        cmocka_unit_test(prefix_keeps_code_and_origin),    cmocka_unit_test(long_messages_are_cut_at_a_character),
        cmocka_unit_test(a_message_is_one_line),           cmocka_unit_test(every_status_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
