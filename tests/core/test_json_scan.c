/* Tests of json_scan.c. */
#include "support/unit.h"

#include "core/json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One letter an event: { } [ ] k(ey) s(tring) n(umber) t f 0(null) .(end) !(error). */
static const char *events_of(const char *text, size_t size, int max_depth, di_error *err)
{
    static char out[4096];
    static const char letters[] = "!.{}[]ksntf0";
    jsc scan;
    size_t n = 0;
    jsc_init(&scan, text, size, "doc", max_depth);
    for (;;) {
        const jsc_event event = jsc_next(&scan, err);
        assert_true(n + 1 < sizeof out);
        out[n++] = letters[event];
        if (event == JSC_END || event == JSC_ERROR) {
            assert_int_equal(jsc_next(&scan, NULL), event); /* repeats */
            break;
        }
    }
    out[n] = '\0';
    return out;
}

static void documents_give_their_events(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"1", "n."},
        {" \t\r\n\"a\" ", "s."},
        {"true", "t."},
        {"false", "f."},
        {"null", "0."},
        {"{}", "{}."},
        {"[]", "[]."},
        {"[1,-0,0.5,1e9,1E-9,1.5e+3,-12.0]", "[nnnnnnn]."},
        {"{\"a\":{\"b\":[true,{}]},\"c\":null}", "{k{k[t{}]}k0}."},
        {"[[[]],[ ] , [1 ]]", "[[[]][][n]]."},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"", "s."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        di_error err = {.message = ""};
        assert_string_equal(events_of(cases[i][0], strlen(cases[i][0]), 0, &err), cases[i][1]);
    }
}

static void malformed_texts_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"", "unexpected end"},
        {"  ", "unexpected end"},
        {"[", "unexpected end"},
        {"[1", "unexpected end"},
        {"[1,", "unexpected end"},
        {"{\"a\":", "unexpected end"},
        {"[1,]", "where a value"},
        {"[,1]", "where a value"},
        {"[1 2]", "expected ',' or ']'"},
        {"{\"a\":1 \"b\":2}", "expected ',' or '}'"},
        {"{\"a\":1,}", "where a key"},
        {"{a:1}", "where a key"},
        {"{1:1}", "where a key"},
        {"{\"a\" 1}", "colon"},
        {"{\"a\"}", "colon"},
        {"{\"a\"", "colon"},
        {"[1}", "expected ',' or ']'"},
        {"{\"a\":1]", "expected ',' or '}'"},
        {"]", "where a value"},
        {"1 2", "after the document"},
        {"{}x", "after the document"},
        {"tru", "unexpected character"},
        {"nul", "unexpected character"},
        {"True", "where a value"},
        {"NaN", "where a value"},
        {"Infinity", "where a value"},
        {"+1", "where a value"},
        {".5", "where a value"},
        {"'a'", "where a value"},
        {"-", "malformed number"},
        {"-a", "malformed number"},
        {"01", "leading zero"},
        {"-012", "leading zero"},
        {"1.", "after the point"},
        {"1.e3", "after the point"},
        {"1e", "in the exponent"},
        {"1e+", "in the exponent"},
        {"0x10", "after the document"},
        {"\"abc", "unterminated"},
        {"\"abcdefgh\\", "unterminated"},
        {"\"a\nb\"", "control character"},
        {"\"a\x1F\"", "control character"},
        {"\"\\x\"", "unknown escape"},
        {"\"\\u12\"", "hexadecimal"},
        {"\"\\u12g4\"", "hexadecimal"},
        {"\"\\u\"", "hexadecimal"},
        {"\"\\ud800\"", "lone surrogate"},
        {"\"\\udc00\"", "lone surrogate"},
        {"\"\\ud800\\n\"", "lone surrogate"},
        {"\"\\ud800\\ud800\"", "lone surrogate"},
        {"\"\\ud800abcdef\"", "lone surrogate"},
        {"\"\xFF\"", "UTF-8"},
        {"\"\xC0\x80\"", "UTF-8"},
        {"\"\xED\xA0\x80\"", "UTF-8"},
        {"\"\xE2\x82\"", "UTF-8"},
        {"\"\xE2\x82", "UTF-8"},
        {"\xEF\xBB\xBF{}", "where a value"},
        {"/* c */ 1", "where a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        di_error err = {.message = ""};
        const char *const events = events_of(cases[i].text, strlen(cases[i].text), 0, &err);
        if (events[strlen(events) - 1] != '!') {
            fail_msg("accepted: %s", cases[i].text);
        }
        unit_expect_error(err.code, DI_E_FORMAT, &err, "doc: line ", cases[i].message, NULL);
    }
}

static void nul_bytes_are_ordinary_bad_bytes(void **state)
{
    (void)state;
    di_error err;
    assert_string_equal(events_of("\0", 1, 0, &err), "!");
    assert_string_equal(events_of("1\0", 2, 0, &err), "n!");
    assert_string_equal(events_of("\"a\0b\"", 5, 0, &err), "!");
    assert_string_equal(events_of("\"\\\0\"", 4, 0, &err), "!");
}

static void errors_name_line_and_column(void **state)
{
    (void)state;
    di_error err;
    const char *const text = "{\n  \"a\": 1,\n  \"b\" 2\n}";
    events_of(text, strlen(text), 0, &err);
    unit_expect_error(err.code, DI_E_FORMAT, &err, "doc: line 3, column 7: a colon must follow a key", NULL);
}

static void depth_is_limited(void **state)
{
    (void)state;
    di_error err;
    assert_string_equal(events_of("[[1]]", 5, 2, &err), "[[n]].");
    assert_string_equal(events_of("[[[1]]]", 7, 2, &err), "[[!");
    unit_expect_error(err.code, DI_E_LIMIT, &err, "nested too deeply", NULL);
    char deep[2 * JSC_MAX_DEPTH + 2];
    memset(deep, '[', JSC_MAX_DEPTH);
    memset(deep + JSC_MAX_DEPTH, ']', JSC_MAX_DEPTH);
    assert_null(strchr(events_of(deep, 2 * JSC_MAX_DEPTH, 0, &err), '!'));
    memset(deep, '[', JSC_MAX_DEPTH + 1);
    assert_non_null(strchr(events_of(deep, 2 * JSC_MAX_DEPTH, 0, &err), '!'));
    /* Objects and arrays keep their kind at every level. */
    assert_string_equal(events_of("[{\"a\":[{\"b\":[]}]},[]]", 21, 0, &err), "[{k[{k[]}]}[]].");
}

static void tokens_show_and_unescape_their_text(void **state)
{
    (void)state;
    const char *const text = "[\"plain text beyond eight\", \"a\\u00e9\\ud83d\\ude00\\n\\/\", -1.50e3, \"\\u0000\"]";
    jsc scan;
    char out[64];
    jsc_init(&scan, text, strlen(text), "doc", 0);
    assert_int_equal(jsc_next(&scan, NULL), JSC_ARRAY_BEGIN);
    assert_int_equal(jsc_next(&scan, NULL), JSC_STRING);
    assert_false(scan.token_escaped);
    assert_int_equal(jsc_unescape(&scan, out), 23);
    assert_memory_equal(out, "plain text beyond eight", 23);
    assert_int_equal(jsc_next(&scan, NULL), JSC_STRING);
    assert_true(scan.token_escaped);
    assert_int_equal(jsc_unescape(&scan, out), 9);
    assert_memory_equal(out, "a\xC3\xA9\xF0\x9F\x98\x80\n/", 9);
    assert_int_equal(jsc_next(&scan, NULL), JSC_NUMBER);
    assert_int_equal(scan.token_size, 7);
    assert_memory_equal(scan.token, "-1.50e3", 7);
    assert_int_equal(jsc_next(&scan, NULL), JSC_STRING);
    assert_int_equal(jsc_unescape(&scan, out), 1);
    assert_int_equal(out[0], '\0');
    assert_int_equal(jsc_next(&scan, NULL), JSC_ARRAY_END);
    assert_int_equal(jsc_next(&scan, NULL), JSC_END);
}

static void skip_steps_over_whole_values(void **state)
{
    (void)state;
    const char *const text = "{\"a\":{\"x\":[1,{}]},\"b\":[[]],\"c\":3}";
    jsc scan;
    jsc_init(&scan, text, strlen(text), "doc", 0);
    assert_int_equal(jsc_next(&scan, NULL), JSC_OBJECT_BEGIN);
    for (char key = 'a'; key <= 'c'; key++) {
        assert_int_equal(jsc_next(&scan, NULL), JSC_KEY);
        assert_int_equal(scan.token[0], key);
        assert_true(jsc_skip(&scan, jsc_next(&scan, NULL), NULL));
    }
    assert_int_equal(jsc_next(&scan, NULL), JSC_OBJECT_END);
    assert_int_equal(jsc_next(&scan, NULL), JSC_END);
    di_error err;
    jsc_init(&scan, "[1,", 3, "doc", 0);
    assert_false(jsc_skip(&scan, jsc_next(&scan, &err), &err));
    assert_false(jsc_skip(&scan, jsc_next(&scan, &err), &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_give_their_events),         cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(nul_bytes_are_ordinary_bad_bytes),    cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(depth_is_limited),                    cmocka_unit_test(tokens_show_and_unescape_their_text),
        cmocka_unit_test(skip_steps_over_whole_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
