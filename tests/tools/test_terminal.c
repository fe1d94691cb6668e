/* test_terminal.c - text of others on a terminal: control characters become visible, everything else stays. */
#include "support/unit.h"

#include "terminal.h"

static void check(const char *text, size_t size, const char *shown)
{
    buf out;
    buf_init(&out, 1024);
    assert_true(term_put(&out, text, size));
    assert_string_equal(out.data, shown);
    buf_fini(&out);
}

#define CHECK(literal, shown) check((literal), sizeof(literal) - 1, (shown))

static void test_text_stays_as_it_is(void **state)
{
    (void)state;
    CHECK("plain, two\nlines\tand 猫 é", "plain, two\nlines\tand 猫 é");
    CHECK("", "");
    CHECK("\xC2\xA0\xC3\x9B", "\xC2\xA0\xC3\x9B"); /* no C1: U+00A0, U+00DB */
}

static void test_control_characters_are_shown(void **state)
{
    (void)state;
    CHECK("a\033[2Jb", "a^[[2Jb");
    CHECK("\0\a\r\177", "^@^G^M^?");
    CHECK("\xC2\x9B\x31m\xC2\x80", "^[[1m^[@"); /* CSI as one character */
}

static void test_a_cut_character_is_no_control_character(void **state)
{
    (void)state;
    CHECK("a\xC2", "a\xC2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_stays_as_it_is),
        cmocka_unit_test(test_control_characters_are_shown),
        cmocka_unit_test(test_a_cut_character_is_no_control_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
