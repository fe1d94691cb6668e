/* Tests of buf.c. */
#include "support/unit.h"

#include "core/buf.h"

#include <string.h>

static void appends_grow_and_terminate(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, 100000);
    assert_null(b.data);
    for (int i = 0; i < 10000; i++) {
        assert_true(buf_append(&b, &"0123456789"[i % 10], 1));
        assert_int_equal(b.data[b.size], '\0');
    }
    assert_int_equal(b.size, 10000);
    assert_memory_equal(b.data + 9990, "0123456789", 10);
    assert_true(buf_append(&b, NULL, 0));
    buf_clear(&b);
    assert_int_equal(b.size, 0);
    assert_string_equal(b.data, "");
    assert_true(buf_puts(&b, "again"));
    assert_string_equal(b.data, "again");
    buf_fini(&b);
}

static void the_maximum_is_kept(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, 5);
    assert_true(buf_puts(&b, "12345"));
    assert_false(buf_puts(&b, "6"));
    assert_true(b.failed && b.full);
    assert_false(buf_append(&b, NULL, 0));
    assert_string_equal(b.data, "12345");
    buf_clear(&b);
    assert_false(b.failed || b.full);
    assert_false(buf_printf(&b, "%d", 123456));
    assert_int_equal(b.size, 0);
    buf_fini(&b);
    buf_init(&b, SIZE_MAX);
    assert_true(buf_puts(&b, "x"));
    buf_fini(&b);
}

static void printf_formats(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, 1000);
    assert_true(buf_printf(&b, "%s=%d;", "a", 1));
    assert_true(buf_printf(&b, "%0300d", 7));
    assert_int_equal(b.size, 304);
    assert_memory_equal(b.data, "a=1;000", 7);
    buf_fini(&b);
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *json;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"q\"b\\s/", 6, "\"q\\\"b\\\\s/\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\0\x1F\x7F", 3, "\"\\u0000\\u001f\x7F\""},
        {"\xE2\x82\xAC", 3, "\"\xE2\x82\xAC\""},
        {"a\xFFz", 3, "\"a\xEF\xBF\xBDz\""},
        {"\xE2\x82", 2, "\"\xEF\xBF\xBD\""},
        {"\xE2\x82\x41", 3, "\"\xEF\xBF\xBD\x41\""},
        {"\xC0\x80", 2, "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf b;
        buf_init(&b, 1000);
        assert_true(buf_json_string(&b, cases[i].text, cases[i].size));
        assert_string_equal(b.data, cases[i].json);
        buf_fini(&b);
    }
    buf b;
    buf_init(&b, 4);
    assert_false(buf_json_string(&b, "abc", 3));
    buf_fini(&b);
}

static void reals_are_short_and_read_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"}, {0.1, "0.1"}, {-2.5, "-2.5"}, {1e300, "1e+300"}, {2.0 / 3, "0.6666666666666666"}, {0.1 + 0.2, "0.30000000000000004"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf b;
        buf_init(&b, 100);
        assert_true(buf_real(&b, cases[i].value));
        assert_string_equal(b.data, cases[i].text);
        buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_grow_and_terminate),
        cmocka_unit_test(the_maximum_is_kept),
        cmocka_unit_test(printf_formats),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(reals_are_short_and_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
