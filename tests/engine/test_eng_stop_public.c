/* Stop strings as a user of the library meets them: <deepinfer/engine.h>. How matching works is in test_eng_stop.c. */
#include "support/unit.h"

#include <deepinfer/engine.h>

#include <stdlib.h>
#include <string.h>

static di_stop *make(const char *const *strings, const size_t *sizes, size_t n)
{
    di_stop *s = NULL;
    assert_int_equal(di_stop_new(strings, sizes, n, &s, NULL), DI_OK);
    assert_non_null(s);
    return s;
}

static void expect(const char *out, size_t n_out, const char *want)
{
    assert_int_equal(n_out, strlen(want));
    assert_memory_equal(out, want, n_out);
}

static void push(di_stop *s, const char *text, const char *want)
{
    const char *out = NULL;
    size_t n_out = 99;
    assert_int_equal(di_stop_push(s, text, strlen(text), &out, &n_out, NULL), DI_OK);
    expect(out, n_out, want);
}

static void finish(di_stop *s, const char *want)
{
    const char *out = NULL;
    size_t n_out = 99;
    assert_int_equal(di_stop_finish(s, &out, &n_out, NULL), DI_OK);
    expect(out, n_out, want);
}

static void a_string_across_pieces_ends_the_text(void **state)
{
    (void)state;
    di_stop *s = make((const char *const[]){"END", "</a>"}, NULL, 2);
    push(s, "One E", "One ");
    push(s, "N", "");
    assert_int_equal(di_stop_matched(s), -1);
    push(s, "E<", "ENE");
    push(s, "/a", "");
    push(s, "> behind", "");
    assert_int_equal(di_stop_matched(s), 1);
    push(s, "more", "");
    finish(s, "");
    assert_int_equal(di_stop_matched(s), 1);
    di_stop_reset(s);
    assert_int_equal(di_stop_matched(s), -1);
    push(s, "again EN", "again ");
    finish(s, "EN");
    assert_int_equal(di_stop_matched(s), -1);
    di_stop_free(s);
}

static void sizes_allow_zero_bytes(void **state)
{
    (void)state;
    di_stop *s = make((const char *const[]){"a\0b"}, (const size_t[]){3}, 1);
    const char *out = NULL;
    size_t n_out = 0;
    assert_int_equal(di_stop_push(s, "xa\0c", 4, &out, &n_out, NULL), DI_OK);
    assert_int_equal(n_out, 4);
    assert_memory_equal(out, "xa\0c", 4);
    assert_int_equal(di_stop_push(s, "a\0b", 3, &out, &n_out, NULL), DI_OK);
    assert_int_equal(n_out, 0);
    assert_int_equal(di_stop_matched(s), 0);
    di_stop_free(s);
}

static void without_strings_everything_passes(void **state)
{
    (void)state;
    di_stop *s = make(NULL, NULL, 0);
    push(s, "", "");
    push(s, "text", "text");
    finish(s, "");
    assert_int_equal(di_stop_matched(s), -1);
    di_stop_free(s);
    di_stop_free(NULL);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    di_error err;
    di_stop *s = NULL;
    const char *many[DI_MAX_STOP_STRINGS + 1];
    static char longest[DI_MAX_STOP_BYTES + 2];
    for (size_t i = 0; i <= DI_MAX_STOP_STRINGS; i++) {
        many[i] = "x";
    }
    memset(longest, 'a', DI_MAX_STOP_BYTES + 1);
    unit_expect_error(di_stop_new(many, NULL, DI_MAX_STOP_STRINGS + 1, &s, &err), DI_E_ARGUMENT, &err, "17 stop strings", "16", NULL);
    unit_expect_error(di_stop_new((const char *const[]){"x", ""}, NULL, 2, &s, &err), DI_E_ARGUMENT, &err, "stop string 1", NULL);
    unit_expect_error(di_stop_new((const char *const[]){longest}, NULL, 1, &s, &err), DI_E_ARGUMENT, &err, "1025 bytes", NULL);
    assert_null(s);
    longest[DI_MAX_STOP_BYTES] = '\0';
    s = make((const char *const[]){longest}, NULL, 1);
    di_stop_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_string_across_pieces_ends_the_text),
        cmocka_unit_test(sizes_allow_zero_bytes),
        cmocka_unit_test(without_strings_everything_passes),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
