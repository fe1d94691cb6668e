/* Tests of utf8.c: every scalar value both ways, and the ill-formed sequences of the Unicode standard, table 3-7. */
#include "support/unit.h"

#include "core/utf8.h"

#include <string.h>

static void every_scalar_value_round_trips(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            continue;
        }
        uint8_t bytes[4];
        uint32_t back = 0xFFFFFFFF;
        const int length = utf8_encode(cp, bytes);
        if (utf8_decode(bytes, (size_t)length, &back) != length || back != cp) {
            fail_msg("U+%04X", cp);
        }
        for (int cut = 1; cut < length; cut++) {
            if (utf8_decode(bytes, (size_t)cut, &back) != 0) {
                fail_msg("U+%04X cut to %d bytes", cp, cut);
            }
        }
    }
}

static void invalid_sequences_give_the_length_of_the_bad_part(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        int result;
    } cases[] = {
        {"\x80", 1, -1},         {"\xBF", 1, -1},         {"\xC0\x80", 2, -1},         {"\xC1\xBF", 2, -1},
        {"\xC2\x20", 2, -1},     {"\xE0\x80\x80", 3, -1}, {"\xE0\x9F\xBF", 3, -1},     {"\xED\xA0\x80", 3, -1},
        {"\xED\xBF\xBF", 3, -1}, {"\xE2\x82\x41", 3, -2}, {"\xF0\x80\x80\x80", 4, -1}, {"\xF0\x8F\xBF\xBF", 4, -1},
        {"\xF4\x90\x80\x80", 4, -1}, {"\xF5\x80\x80\x80", 4, -1}, {"\xFF", 1, -1},     {"\xF1\x80\x80\x41", 4, -3},
        {"\xF1\x80\x41\x41", 4, -2}, {"\xE0\xA0", 2, 0},  {"\xF4\x8F\xBF", 3, 0},      {"\xED\xA0", 2, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t cp;
        const int result = utf8_decode((const uint8_t *)cases[i].bytes, cases[i].size, &cp);
        if (result != cases[i].result) {
            fail_msg("case %zu: %d, expected %d", i, result, cases[i].result);
        }
    }
}

static void valid_prefix_stops_at_the_first_fault(void **state)
{
    (void)state;
    const char *const text = "0123456789abcdef\xE2\x82\xAC tail 0123456\xFFrest";
    const size_t bad = (size_t)(strchr(text, '\xFF') - text);
    assert_int_equal(utf8_valid_prefix((const uint8_t *)text, strlen(text)), bad);
    assert_int_equal(utf8_valid_prefix((const uint8_t *)text, bad), bad);
    assert_int_equal(utf8_valid_prefix((const uint8_t *)text, 18), 16); /* the euro sign is cut off */
    assert_int_equal(utf8_valid_prefix((const uint8_t *)text, 0), 0);
    for (size_t n = 0; n <= 16; n++) {
        assert_int_equal(utf8_valid_prefix((const uint8_t *)text, n), n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_value_round_trips),
        cmocka_unit_test(invalid_sequences_give_the_length_of_the_bad_part),
        cmocka_unit_test(valid_prefix_stops_at_the_first_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
