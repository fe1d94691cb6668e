/* Tests of json.c. */
#include "support/unit.h"

#include "core/json.h"

#include <locale.h>
#include <math.h>
#include <string.h>

static js_doc *parse(const char *text)
{
    js_doc *doc = NULL;
    di_error err;
    if (js_parse(text, strlen(text), "doc", NULL, &doc, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return doc;
}

static void values_have_kind_and_content(void **state)
{
    (void)state;
    js_doc *const doc = parse("{\"i\":-42,\"r\":0.25,\"s\":\"a\\u0000b\",\"t\":true,\"f\":false,\"n\":null,\"a\":[1,[2]],\"o\":{}}");
    const js_value *const root = js_root(doc);
    size_t length;
    assert_int_equal(js_length(root), 8);
    assert_int_equal(js_int(js_get(root, "i")), -42);
    assert_true(js_number(js_get(root, "i")) == -42.0);
    assert_int_equal(js_kind_of(js_get(root, "r")), JS_NUMBER);
    assert_true(js_number(js_get(root, "r")) == 0.25);
    assert_memory_equal(js_string(js_get(root, "s"), &length), "a\0b", 4);
    assert_int_equal(length, 3);
    assert_int_equal(js_length(js_get(root, "s")), 3);
    assert_true(js_bool(js_get(root, "t")));
    assert_false(js_bool(js_get(root, "f")));
    assert_int_equal(js_kind_of(js_get(root, "f")), JS_BOOL);
    assert_non_null(js_get(root, "n"));
    assert_int_equal(js_kind_of(js_get(root, "n")), JS_NULL);
    const js_value *const array = js_get(root, "a");
    assert_int_equal(js_length(array), 2);
    assert_int_equal(js_int(js_at(array, 0)), 1);
    assert_int_equal(js_int(js_at(js_at(array, 1), 0)), 2);
    assert_null(js_at(array, 2));
    assert_int_equal(js_kind_of(js_get(root, "o")), JS_OBJECT);
    assert_int_equal(js_length(js_get(root, "o")), 0);
    js_free(doc);
    js_free(NULL);
}

static void readers_accept_anything(void **state)
{
    (void)state;
    js_doc *const doc = parse("[7,\"x\"]");
    const js_value *const seven = js_at(js_root(doc), 0);
    size_t length = 9;
    assert_int_equal(js_kind_of(NULL), JS_NULL);
    assert_int_equal(js_length(NULL), 0);
    assert_null(js_get(NULL, "a"));
    assert_null(js_get(seven, "a"));
    assert_null(js_get(js_root(doc), "a"));
    assert_null(js_at(NULL, 0));
    assert_null(js_at(seven, 0));
    assert_null(js_member(js_root(doc), 0, NULL));
    assert_null(js_key(seven, &length));
    assert_string_equal(js_string(seven, &length), "");
    assert_int_equal(length, 0);
    assert_false(js_bool(seven));
    assert_int_equal(js_int(js_at(js_root(doc), 1)), 0);
    assert_true(js_number(NULL) == 0.0);
    assert_null(js_spelling(js_at(js_root(doc), 1), NULL));
    js_free(doc);
}

static void members_keep_their_order(void **state)
{
    (void)state;
    js_doc *const doc = parse("{\"z\":0,\"m\":1,\"\":2,\"a\":3,\"ab\":4,\"A\":5}");
    static const char *const keys[] = {"z", "m", "", "a", "ab", "A"};
    for (size_t i = 0; i < 6; i++) {
        const char *key = NULL;
        const js_value *const value = js_member(js_root(doc), i, &key);
        assert_string_equal(key, keys[i]);
        assert_int_equal(js_int(value), i);
        assert_ptr_equal(js_get(js_root(doc), keys[i]), value);
        assert_string_equal(js_key(value, NULL), keys[i]);
    }
    assert_null(js_member(js_root(doc), 6, NULL));
    assert_null(js_get(js_root(doc), "b"));
    js_free(doc);
}

static void integers_are_exact_to_their_limits(void **state)
{
    (void)state;
    js_doc *const doc = parse("[9223372036854775807,-9223372036854775808,9223372036854775808,-9223372036854775809,-0,0,1.0,1e2,"
                              "18446744073709551615]");
    const js_value *const r = js_root(doc);
    assert_true(js_int(js_at(r, 0)) == INT64_MAX);
    assert_true(js_int(js_at(r, 1)) == INT64_MIN);
    static const js_kind kinds[] = {JS_INT, JS_INT, JS_NUMBER, JS_NUMBER, JS_NUMBER, JS_INT, JS_NUMBER, JS_NUMBER, JS_NUMBER};
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(js_kind_of(js_at(r, i)), kinds[i]);
    }
    assert_true(js_number(js_at(r, 2)) == 9223372036854775808.0);
    assert_true(signbit(js_number(js_at(r, 4))));
    assert_int_equal(js_int(js_at(r, 6)), 0);
    size_t length;
    assert_string_equal(js_spelling(js_at(r, 8), &length), "18446744073709551615");
    assert_int_equal(length, 20);
    assert_string_equal(js_spelling(js_at(r, 7), NULL), "1e2");
    js_free(doc);
}

static void numbers_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is not installed, the test still reads the number */
    js_doc *const doc = parse("1.5");
    assert_true(js_number(js_root(doc)) == 1.5);
    js_free(doc);
    setlocale(LC_ALL, "C");
}

static void faults_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        di_status code;
        const char *message;
    } cases[] = {
        {"{\"a\":1,\n\"a\":2}", DI_E_FORMAT, "doc: line 2: duplicate key \"a\""},
        {"[{\"x\":{\"k\":1,\"k\":2}}]", DI_E_FORMAT, "duplicate key \"k\""},
        {"{\"a\":1,\"\\u0061\":2}", DI_E_FORMAT, "duplicate key \"a\""},
        {"[1e999]", DI_E_FORMAT, "1e999 is out of range"},
        {"[-1e999]", DI_E_FORMAT, "out of range"},
        {"{\"a\":\"\\ud800\"}", DI_E_FORMAT, "lone surrogate"},
        {"[1", DI_E_FORMAT, "unexpected end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        js_doc *doc = NULL;
        di_error err;
        const di_status status = js_parse(cases[i].text, strlen(cases[i].text), "doc", NULL, &doc, &err);
        unit_expect_error(status, cases[i].code, &err, "doc: line ", cases[i].message, NULL);
        assert_null(doc);
    }
}

static void numbers_of_any_size_keep_their_spelling(void **state)
{
    (void)state;
    js_doc *doc = NULL;
    size_t n;
    const js_limits limits = {.numbers_any_size = true};
    assert_int_equal(js_parse("[1e999]", 7, "doc", &limits, &doc, NULL), DI_OK);
    assert_int_equal(js_kind_of(js_at(js_root(doc), 0)), JS_NUMBER);
    assert_string_equal(js_spelling(js_at(js_root(doc), 0), &n), "1e999");
    js_free(doc);
}

static void depth_is_limited(void **state)
{
    (void)state;
    char text[140];
    memset(text, '[', 70);
    memset(text + 70, ']', 70);
    js_doc *doc = NULL;
    di_error err;
    assert_int_equal(js_parse(text + 6, 128, "doc", NULL, &doc, &err), DI_OK);
    js_free(doc);
    unit_expect_error(js_parse(text + 5, 130, "doc", NULL, &doc, &err), DI_E_LIMIT, &err, "nested", NULL);
    const js_limits limits = {.max_depth = 70};
    assert_int_equal(js_parse(text, 140, "doc", &limits, &doc, &err), DI_OK);
    js_free(doc);
}

static void deep_nesting_may_be_a_fault_of_the_text(void **state)
{
    (void)state;
    const js_limits limits = {.max_depth = 2, .deep_is_malformed = true};
    js_doc *doc = NULL;
    di_error err;
    unit_expect_error(js_parse("[[[]]]", 6, "deep", &limits, &doc, &err), DI_E_FORMAT, &err, "deep", NULL);
    assert_int_equal(err.code, DI_E_FORMAT);
    assert_null(doc);
    assert_int_equal(js_parse("[[]]", 4, "deep", &limits, &doc, &err), DI_OK);
    js_free(doc);
}

/* The limit is about what parsing needs, working space included; what the document holds afterwards is less. */
static void memory_is_limited(void **state)
{
    (void)state;
    static const char text[] = "[1,2,{\"key\":[\"string\",null]},3]";
    size_t needed = 0;
    for (size_t max = 1; needed == 0; max++) {
        const js_limits limits = {.max_bytes = max};
        js_doc *doc = NULL;
        di_error err;
        const di_status status = js_parse(text, sizeof text - 1, "small", &limits, &doc, &err);
        if (status == DI_OK) {
            needed = max;
            assert_in_range(js_doc_bytes(doc), sizeof text, needed);
            js_free(doc);
        } else {
            unit_expect_error(status, DI_E_LIMIT, &err, "small", "bytes of memory", NULL);
            assert_null(doc);
        }
    }
    assert_in_range(needed, 200, 2000);
}

static void the_last_duplicate_may_win(void **state)
{
    (void)state;
    const js_limits limits = {.last_duplicate_wins = true};
    const char *const text = "{\"b\":1,\"a\":2,\"b\":3,\"c\":{\"x\":1,\"x\":[5]},\"a\":4,\"b\":\"last\"}";
    js_doc *doc;
    assert_int_equal(js_parse(text, strlen(text), "doc", &limits, &doc, NULL), DI_OK);
    const js_value *const root = js_root(doc);
    static const char *const keys[] = {"b", "a", "c"};
    assert_int_equal(js_length(root), 3);
    for (size_t i = 0; i < 3; i++) {
        const char *key;
        assert_ptr_equal(js_member(root, i, &key), js_get(root, keys[i]));
        assert_string_equal(key, keys[i]);
    }
    assert_string_equal(js_string(js_get(root, "b"), NULL), "last");
    assert_int_equal(js_int(js_get(root, "a")), 4);
    assert_int_equal(js_int(js_at(js_get(js_get(root, "c"), "x"), 0)), 5);
    js_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_have_kind_and_content),       cmocka_unit_test(readers_accept_anything),
        cmocka_unit_test(members_keep_their_order),           cmocka_unit_test(integers_are_exact_to_their_limits),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale), cmocka_unit_test(faults_are_refused),
        cmocka_unit_test(numbers_of_any_size_keep_their_spelling),
        cmocka_unit_test(depth_is_limited),                   cmocka_unit_test(the_last_duplicate_may_win),
        cmocka_unit_test(deep_nesting_may_be_a_fault_of_the_text), cmocka_unit_test(memory_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
