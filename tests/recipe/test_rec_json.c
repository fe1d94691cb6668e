/* JSON text in the three styles (recipe.md 2.7): numbers, strings, nesting. */
#include "support/unit.h"

#include "recipe/rec_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Asserts that the JSON text is written as `expected`. */
static void expect(const char *json, size_t size, rec_json_style style, const char *expected)
{
    js_doc *doc;
    di_error err;
    const js_limits limits = {.max_depth = REC_MAX_DEPTH, .last_duplicate_wins = true};
    if (js_parse(json, size, "test", &limits, &doc, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    buf out;
    buf_init(&out, SIZE_MAX);
    assert_true(rec_json_value(&out, js_root(doc), style));
    assert_string_equal(out.data, expected);
    buf_fini(&out);
    js_free(doc);
}

static void numbers_have_the_digits_of_each_style(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *python;
        const char *compact;
    } cases[] = {
        {"0", "0", "0"},
        {"-1", "-1", "-1"},
        {"1e5", "100000.0", "100000.0"},
        {"1.50", "1.5", "1.5"},
        {"0.1e1", "1.0", "1.0"},
        {"1e15", "1000000000000000.0", "1000000000000000.0"},
        {"1e16", "1e+16", "1e+16"},
        {"12345678901234567.0", "1.2345678901234568e+16", "1.2345678901234568e+16"},
        {"1.5e-7", "1.5e-07", "1.5e-7"},
        {"1e-9", "1e-09", "1e-9"},
        {"0.0001", "0.0001", "0.0001"},
        {"0.00001", "1e-05", "0.00001"},
        {"0.000012", "1.2e-05", "0.000012"},
        {"0.000001", "1e-06", "1e-6"},
        {"-0.0", "-0.0", "-0.0"},
        {"-0", "-0.0", "-0.0"},
        {"0e10", "0.0", "0.0"},
        {"123456789012345678901234567890", "1.2345678901234568e+29", "1.2345678901234568e+29"},
        {"2.5e300", "2.5e+300", "2.5e+300"},
        {"18446744073709551615", "18446744073709551615", "18446744073709551615"},
        {"18446744073709551616", "1.8446744073709552e+19", "1.8446744073709552e+19"},
        {"-9223372036854775808", "-9223372036854775808", "-9223372036854775808"},
        {"-9223372036854775809", "-9.223372036854776e+18", "-9.223372036854776e+18"},
        {"9007199254740993", "9007199254740993", "9007199254740993"},
        {"5e-324", "5e-324", "5e-324"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"1.7976931348623157e308", "1.7976931348623157e+308", "1.7976931348623157e+308"},
        {"1e22", "1e+22", "1e+22"},
        {"0.30000000000000004", "0.30000000000000004", "0.30000000000000004"},
        {"0.1000000000000000055511151231257827", "0.1", "0.1"},
        {"5.684341886080802e-14", "5.684341886080802e-14", "5.684341886080802e-14"}, /* 2^-44: the upper neighbour is shorter */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect(cases[i].json, strlen(cases[i].json), REC_JSON_PYTHON, cases[i].python);
        expect(cases[i].json, strlen(cases[i].json), REC_JSON_PYTHON_V4, cases[i].compact);
        expect(cases[i].json, strlen(cases[i].json), REC_JSON_COMPACT, cases[i].compact);
    }
}

/* A spelling of many zeros is read digit by digit, not by what fits a buffer. */
static void long_spellings_are_numbers_like_others(void **state)
{
    (void)state;
    char json[2048];
    json[0] = '1';
    memset(json + 1, '0', 200);
    expect(json, 201, REC_JSON_PYTHON, "1e+200");
    memset(json, '0', sizeof json);
    memcpy(json, "0.", 2);
    json[1500] = '1';
    expect(json, 1501, REC_JSON_PYTHON, "0.0");
    json[100] = '1';
    expect(json, 1500, REC_JSON_PYTHON, "1e-99");
    memcpy(json + 1000, "e+00099", 7);
    expect(json, 1007, REC_JSON_PYTHON, "1.0");
}

static int digits_of(double value, int n, char *out, size_t capacity)
{
    snprintf(out, capacity, "%.*e", n - 1, value);
    return strtod(out, NULL) == value;
}

static void random_doubles_read_back_from_the_fewest_digits(void **state)
{
    (void)state;
    uint64_t seed = 5;
    buf out;
    buf_init(&out, SIZE_MAX);
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = i < 2046 ? (uint64_t)(i + 1) << 52 : unit_random(&seed);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) {
            continue;
        }
        buf_clear(&out);
        assert_true(rec_json_double(&out, value, i % 2 != 0 ? REC_JSON_PYTHON : REC_JSON_COMPACT));
        if (strtod(out.data, NULL) != value) {
            fail_msg("%.17g is written as %s", value, out.data);
        }
        int fewest = 1;
        char text[64];
        while (!digits_of(value, fewest, text, sizeof text)) {
            fewest++;
        }
        int n = 0;
        int zeros = 0; /* behind the last other digit */
        for (const char *p = out.data; *p != '\0' && *p != 'e'; p++) {
            zeros = *p == '0' ? zeros + 1 : *p == '.' ? zeros : 0;
            n += *p >= '0' && *p <= '9' && (n > 0 || *p != '0') ? 1 : 0;
        }
        assert_in_range(n - zeros, 0, fewest);
    }
    buf_fini(&out);
}

static void strings_escape_what_json_must_escape_and_nothing_else(void **state)
{
    (void)state;
    const char *const json = "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\"\\\\\\/\x7F\\u00e9\xE6\x9D\xB1\\u2028\\ud83e\\udd80 plain text\"";
    const char *const expected =
        "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\"\\\\/\x7F\xC3\xA9\xE6\x9D\xB1\xE2\x80\xA8\xF0\x9F\xA6\x80 plain text\"";
    expect(json, strlen(json), REC_JSON_PYTHON, expected);
    expect(json, strlen(json), REC_JSON_PYTHON_V4, expected);
    expect(json, strlen(json), REC_JSON_COMPACT, expected);
}

/* The scan goes eight bytes at a time: an escape at every place and in front of every byte. */
static void an_escape_is_seen_at_every_place(void **state)
{
    (void)state;
    for (int byte = 1; byte < 256; byte++) {
        for (size_t at = 0; at < 24; at++) {
            char text[24];
            char expected[64] = "\"";
            size_t n = 1;
            memset(text, byte, sizeof text);
            text[at] = '"';
            if (byte < 0x20 || byte == '"' || byte == '\\') {
                continue;
            }
            for (size_t i = 0; i < sizeof text; i++) {
                if (i == at) {
                    expected[n++] = '\\';
                }
                expected[n++] = text[i];
            }
            expected[n++] = '"';
            buf out;
            buf_init(&out, SIZE_MAX);
            assert_true(rec_json_string(&out, text, sizeof text));
            assert_int_equal(out.size, n);
            assert_memory_equal(out.data, expected, n);
            buf_fini(&out);
        }
    }
}

static void separators_follow_the_style(void **state)
{
    (void)state;
    const char *const json = "{\"b\":[1,2.0,{}],\"a\":{\"x\":null,\"y\":[]},\"b\":true, \"c\\u0000d\" : false}";
    expect(json, strlen(json), REC_JSON_PYTHON, "{\"b\": true, \"a\": {\"x\": null, \"y\": []}, \"c\\u0000d\": false}");
    expect(json, strlen(json), REC_JSON_COMPACT, "{\"b\":true,\"a\":{\"x\":null,\"y\":[]},\"c\\u0000d\":false}");
}

static void a_full_buffer_is_a_failure(void **state)
{
    (void)state;
    js_doc *doc;
    assert_int_equal(js_parse("[[1,2],[3,{\"a\":4}]]", 19, "test", NULL, &doc, NULL), DI_OK);
    for (size_t max = 0; max < 19; max++) {
        buf out;
        buf_init(&out, max);
        assert_false(rec_json_value(&out, js_root(doc), REC_JSON_COMPACT));
        assert_true(out.full);
        buf_fini(&out);
    }
    js_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_the_digits_of_each_style),
        cmocka_unit_test(long_spellings_are_numbers_like_others),
        cmocka_unit_test(random_doubles_read_back_from_the_fewest_digits),
        cmocka_unit_test(strings_escape_what_json_must_escape_and_nothing_else),
        cmocka_unit_test(an_escape_is_seen_at_every_place),
        cmocka_unit_test(separators_follow_the_style),
        cmocka_unit_test(a_full_buffer_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
