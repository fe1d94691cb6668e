/* Stop strings: what goes out when, which string wins, errors. */
#include "engine/eng_stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static eng_stop *make(size_t n, const char *const *strings)
{
    size_t sizes[ENG_STOP_MAX_STRINGS];
    for (size_t i = 0; i < n; i++) {
        sizes[i] = strlen(strings[i]);
    }
    eng_stop *stop = NULL;
    assert_int_equal(eng_stop_new(strings, sizes, n, &stop, NULL), DI_OK);
    return stop;
}

static void push(eng_stop *stop, const char *text, const char *want_out)
{
    buf out;
    buf_init(&out, 4096);
    assert_int_equal(eng_stop_push(stop, text, strlen(text), &out, NULL), DI_OK);
    assert_string_equal(out.data != NULL ? out.data : "", want_out);
    buf_fini(&out);
}

static void text_goes_out_as_soon_as_it_is_free(void **state)
{
    (void)state;
    eng_stop *s = make(1, (const char *const[]){"\n\nUser:"});
    push(s, "Hi\n", "Hi");
    assert_int_equal(eng_stop_held_bytes(s), 1);
    push(s, "\n", "");
    push(s, "\n", "\n");
    push(s, "Us", "");
    push(s, "e!", "\n\nUse!");
    push(s, "x\n\nUser: y", "x");
    assert_int_equal(eng_stop_matched(s), 0);
    push(s, "more", "");
    eng_stop_free(s);
}

static void first_to_end_wins_then_the_longest_then_the_first_given(void **state)
{
    (void)state;
    eng_stop *s = make(4, (const char *const[]){"abcd", "c", "bc", "bc"});
    push(s, "xab", "x");
    push(s, "cd", "a");
    assert_int_equal(eng_stop_matched(s), 2);
    eng_stop_reset(s);
    assert_int_equal(eng_stop_matched(s), -1);
    push(s, "ac", "a");
    assert_int_equal(eng_stop_matched(s), 1);
    eng_stop_free(s);
}

static void flush_gives_what_was_held(void **state)
{
    (void)state;
    eng_stop *s = make(2, (const char *const[]){"aab", "ab!"});
    push(s, "xaaa", "xa");
    buf out;
    buf_init(&out, 100);
    assert_int_equal(eng_stop_flush(s, &out, NULL), DI_OK);
    assert_string_equal(out.data, "aa");
    assert_int_equal(eng_stop_held_bytes(s), 0);
    buf_fini(&out);
    eng_stop_free(s);
}

static void without_strings_everything_goes_through(void **state)
{
    (void)state;
    eng_stop *s = make(0, NULL);
    push(s, "abc", "abc");
    push(s, "", "");
    buf out;
    buf_init(&out, 100);
    assert_int_equal(eng_stop_flush(s, &out, NULL), DI_OK);
    assert_int_equal(out.size, 0);
    buf_fini(&out);
    eng_stop_free(s);
}

static void bad_strings_are_refused_and_a_full_buffer_reported(void **state)
{
    (void)state;
    const char *strings[ENG_STOP_MAX_STRINGS + 1];
    size_t sizes[ENG_STOP_MAX_STRINGS + 1];
    for (int i = 0; i <= ENG_STOP_MAX_STRINGS; i++) {
        strings[i] = "ab";
        sizes[i] = 2;
    }
    eng_stop *s = NULL;
    di_error err;
    assert_int_equal(eng_stop_new(strings, sizes, ENG_STOP_MAX_STRINGS + 1, &s, &err), DI_E_ARGUMENT);
    sizes[1] = 0;
    assert_int_equal(eng_stop_new(strings, sizes, 2, &s, &err), DI_E_ARGUMENT);
    assert_non_null(strstr(err.message, "stop string 1"));
    sizes[1] = ENG_STOP_MAX_BYTES + 1;
    assert_int_equal(eng_stop_new(strings, sizes, 2, &s, &err), DI_E_ARGUMENT);
    assert_null(s);
    sizes[1] = 2;
    assert_int_equal(eng_stop_new(strings, sizes, 2, &s, &err), DI_OK);
    buf out;
    buf_init(&out, 4);
    assert_int_equal(eng_stop_push(s, "cccccccc", 8, &out, &err), DI_E_LIMIT);
    buf_fini(&out);
    eng_stop_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_goes_out_as_soon_as_it_is_free),
        cmocka_unit_test(first_to_end_wins_then_the_longest_then_the_first_given),
        cmocka_unit_test(flush_gives_what_was_held),
        cmocka_unit_test(without_strings_everything_goes_through),
        cmocka_unit_test(bad_strings_are_refused_and_a_full_buffer_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
