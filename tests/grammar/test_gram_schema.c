/* JSON Schemas as languages: each keyword takes and refuses what the drafts say, texts go wrong where they do, and what can't be
 * enforced is refused with a pointer. */
#include "gram_support.h"

#include <string.h>

#define IN(...) ((const char *const[]){__VA_ARGS__, NULL})

static const di_grammar_options any_order = {.order = DI_ORDER_ANY};

static void verdicts(const char *schema, const char *const *valid, const char *const *invalid)
{
    const char *wrong = gram_first_wrong(DI_GRAMMAR_SCHEMA, schema, &any_order, true, valid);
    if (wrong[0] != '\0') {
        fail_msg("%s should take %s", schema, wrong);
    }
    wrong = gram_first_wrong(DI_GRAMMAR_SCHEMA, schema, &any_order, false, invalid);
    if (wrong[0] != '\0') {
        fail_msg("%s should not take %s", schema, wrong);
    }
}

static void refused(const char *schema, di_status status, const char *kind, const char *where)
{
    di_error err;
    di_grammar_fault fault;
    di_grammar *g = NULL;
    assert_int_equal(di_grammar_compile(DI_GRAMMAR_SCHEMA, schema, strlen(schema), NULL, &g, &fault, &err), status);
    assert_string_equal(fault.kind, kind);
    assert_string_equal(fault.where, where);
}

static void anything_is_json_of_any_type(void **state)
{
    (void)state;
    verdicts("{}", IN("null", "true", "false", "0", "-1.5e3", "\"a\\n\\u0000\"", "[]", "{}", "[1, {\"a\": [null]}]"),
             IN("", "nul", "01", "1.", "\"\t\"", "[1,]", "{\"a\"}", "{\"a\":1,\"a\":2}", "1 ", " 1", "[1]]", "\"\\ud800\"", "'a'"));
}

static void types_and_numbers(void **state)
{
    (void)state;
    verdicts("{\"type\":\"integer\",\"minimum\":-3,\"exclusiveMaximum\":120}", IN("-3", "0", "119", "99"),
             IN("-4", "120", "1.0", "-", "1e1", "1000", "-0.5"));
    verdicts("{\"type\":\"number\",\"exclusiveMinimum\":0.05,\"maximum\":2.5}", IN("0.051", "2.5", "2.50", "1e-1", "0.25e1"),
             IN("0.05", "2.51", "-1", "0", "1e1"));
    verdicts("{\"type\":\"integer\",\"multipleOf\":7}", IN("0", "7", "-14", "700007"), IN("1", "8", "-13", "700001"));
    verdicts("{\"type\":[\"null\",\"boolean\"]}", IN("null", "true"), IN("1", "\"true\""));
    verdicts("{\"multipleOf\":0.01,\"type\":\"number\"}", IN("1.25", "0.1", "3"), IN("0.001", "1.255"));
}

/* The last character must be a digit, and no digit has an escape of its own: a backslash there was a dead end. */
static void a_backslash_needs_an_escape_that_fits(void **state)
{
    (void)state;
    di_grammar *g = gram_must(DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":3,\"pattern\":\"[0-9]\"}", NULL);
    assert_int_equal(gram_check(g, "\"ab\\", 4), 3);
    assert_int_equal(gram_check(g, "\"a\\n1\"", 6), GRAM_WHOLE);
    assert_int_equal(gram_check(g, "\"a\\u", 4), GRAM_PREFIX);
    di_grammar_free(g);
}

/* With no other constant than zero the sign of a number was forgotten. */
static void numbers_are_compared_with_zero(void **state)
{
    (void)state;
    verdicts("{\"type\":\"integer\",\"minimum\":0}", IN("0", "7"), IN("-7"));
    verdicts("{\"exclusiveMaximum\":0}", IN("-0.5", "-1e3"), IN("0", "0.0", "1e-9", "7"));
    verdicts("{\"const\":0}", IN("0", "0.0", "0e9"), IN("5", "-1", "0.1"));
    verdicts("{\"type\":\"integer\",\"not\":{\"const\":0}}", IN("1", "-20"), IN("0"));
    verdicts("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}", IN("[0,1]", "[0]"), IN("[0,0]"));
}

static void strings(void **state)
{
    (void)state;
    verdicts("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", IN("\"ab\"", "\"猫猫😀\"", "\"\\n\\\"\"", "\"\\u0001a\""),
             IN("\"a\"", "\"abcd\"", "\"\"", "\"\\n\""));
    verdicts("{\"type\":\"string\",\"pattern\":\"b+\"}", IN("\"b\"", "\"abbc\"", "\"\\\\b\""), IN("\"\"", "\"ac\"", "\"\\b\""));
    verdicts("{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":3,\"not\":{\"enum\":[\"abc\",\"x\"]}}", IN("\"ab\"", "\"abd\""),
             IN("\"abc\"", "\"x\"", "\"abcd\"", "\"A\""));
    verdicts("{\"type\":\"string\",\"format\":\"date\"}", IN("\"2024-02-29\"", "\"2023-12-31\""),
             IN("\"2023-02-29\"", "\"2023-13-01\"", "\"2023-1-1\""));
    verdicts("{\"type\":\"string\",\"format\":\"ipv4\",\"pattern\":\"^10\\\\.\"}", IN("\"10.0.0.255\""), IN("\"11.0.0.1\"", "\"10.0.0.256\""));
    verdicts("{\"type\":\"string\",\"maxLength\":100000}", IN("\"\"", "\"abc\""), IN("1"));
}

static void objects(void **state)
{
    (void)state;
    verdicts("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"required\":[\"a\"]}",
             IN("{\"a\":1}", "{\"b\":[],\"a\":1}", "{\"c\":0,\"a\":1,\"d\":{}}"), IN("{}", "{\"b\":1}", "{\"a\":\"x\"}", "{\"a\":1,\"a\":2}"));
    verdicts("{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":false}", IN("{}", "{\"a\":1}"), IN("{\"b\":1}", "{\"ab\":1}"));
    verdicts("{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"},\"y$\":{\"minimum\":5}},\"additionalProperties\":{\"type\":"
             "\"string\"}}",
             IN("{\"x\":1}", "{\"xy\":5}", "{\"y\":7,\"z\":\"s\"}"), IN("{\"x\":1.5}", "{\"xy\":4}", "{\"z\":1}", "{\"xy\":5.5}"));
    verdicts("{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2},\"minProperties\":1,\"maxProperties\":2}", IN("{\"a\":1}", "{\"aa\":1,\"b\":2}"),
             IN("{}", "{\"aaa\":1}", "{\"a\":1,\"b\":2,\"c\":3}"));
    verdicts("{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", IN("{}", "{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"),
             IN("{\"a\":1}"));
    verdicts("{\"type\":\"object\",\"additionalProperties\":true}", IN("{\"\\n\":1,\"n\":2}"), IN("{\"\\n\":1,\"\\n\":2}"));
}

static void arrays(void **state)
{
    (void)state;
    verdicts("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}", IN("[1]", "[1,2,3]"),
             IN("[]", "[1,2,3,4]", "[\"a\"]"));
    verdicts("{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"type\":\"string\"}],\"items\":false}", IN("[]", "[1]", "[1,\"a\"]"),
             IN("[2]", "[1,2]", "[1,\"a\",0]"));
    verdicts("{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2,\"a\"]}}", IN("[]", "[1,2]", "[\"a\",1,2]"),
             IN("[1,1]", "[1,2,\"a\",1]", "[1,1.0]"));
    verdicts("{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"maxContains\":2}", IN("[null]", "[1,null,2,null]"),
             IN("[]", "[1]", "[null,null,null]"));
}

/* Words are taken out of the list in which they are, where beginnings and ends of others are among them. */
static void used_words_are_no_items_any_more(void **state)
{
    (void)state;
    verdicts("{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"b\",\"\",\"ab\",\"a\",\"abc\",\"ac\"]}}",
             IN("[\"ab\",\"abc\",\"a\",\"\",\"ac\",\"b\"]", "[\"\",\"b\",\"abc\",\"ac\"]"),
             IN("[\"ab\",\"abc\",\"ab\"]", "[\"\",\"\"]", "[\"a\",\"ab\",\"a\"]", "[\"b\",\"\\u0062\"]", "[\"abcd\"]"));
}

/* A number beyond the range of doubles, as an item, once made the whole grammar fail. */
static void items_that_are_huge_numbers_are_compared(void **state)
{
    (void)state;
    verdicts("{\"type\":\"array\",\"uniqueItems\":true}", IN("[6e744,6e743]", "[1e999,-1e999,1e-999,0]", "[[6e744],[6e745]]"),
             IN("[6e744,60e743]", "[1e999,10e+998,1]", "[[6e744],[6e744]]", "[1e-999,10e-999,1e-999]"));
}

static void combinators_are_exact(void **state)
{
    (void)state;
    verdicts("{\"oneOf\":[{\"type\":\"integer\",\"multipleOf\":2},{\"type\":\"integer\",\"multipleOf\":3}]}", IN("2", "3", "4", "9"),
             IN("6", "1", "0", "12", "\"a\""));
    verdicts("{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}],\"not\":{\"const\":\"no\"},\"type\":[\"string\",\"integer\"]}", IN("\"yes\"", "5"),
             IN("\"no\"", "4", "null"));
    verdicts("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},{\"properties\":{\"a\":{\"minimum\":3}},\"required\":[\"a\"]}],"
             "\"type\":\"object\"}",
             IN("{\"a\":3}"), IN("{}", "{\"a\":2}", "{\"a\":3.5}"));
    verdicts("{\"type\":\"object\",\"if\":{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},\"then\":{\"required\":[\"x\"]},"
             "\"else\":{\"required\":[\"y\"]}}",
             IN("{\"k\":1,\"x\":0}", "{\"k\":2,\"y\":0}", "{\"y\":0}", "{\"x\":0,\"k\":1}"), IN("{\"k\":1}", "{\"k\":1,\"y\":0}", "{\"x\":0}"));
    verdicts("{\"not\":{\"type\":\"object\",\"required\":[\"a\"]}}", IN("{}", "1", "{\"b\":1}"), IN("{\"a\":1}", "{\"b\":1,\"a\":0}"));
    verdicts("{\"enum\":[1,{\"a\":[true],\"b\":\"x\"},\"s\"]}", IN("1", "{\"b\":\"x\",\"a\":[true]}", "\"s\""),
             IN("2", "{\"a\":[true]}", "{\"a\":[false],\"b\":\"x\"}"));
    verdicts("{\"allOf\":[{\"properties\":{\"a\":{}}}],\"unevaluatedProperties\":false,\"type\":\"object\"}", IN("{}", "{\"a\":1}"), IN("{\"b\":1}"));
}

static void references_may_be_recursive(void **state)
{
    (void)state;
    verdicts("{\"$ref\":\"#/$defs/list\",\"$defs\":{\"list\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":"
             "\"#/$defs/list\"}]}},\"required\":[\"next\"],\"additionalProperties\":false}}}",
             IN("{\"next\":null}", "{\"next\":{\"next\":{\"next\":null}}}"), IN("{}", "{\"next\":{}}", "null", "{\"next\":{\"next\":1}}"));
}

static void the_order_is_that_of_the_options(void **state)
{
    (void)state;
    const char *const closed = "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}},\"additionalProperties\":false}";
    const di_grammar_options schema_order = {.order = DI_ORDER_SCHEMA};
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, closed, NULL, true, IN("{\"b\":1,\"a\":2}", "{\"a\":2}")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, closed, NULL, false, IN("{\"a\":1,\"b\":2}")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, closed, &any_order, true, IN("{\"a\":1,\"b\":2}")), "");
    const char *const open = "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}}}";
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, open, NULL, true, IN("{\"a\":1,\"b\":2}")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, open, &schema_order, false, IN("{\"a\":1,\"b\":2}")), "");
}

static void white_space_is_that_of_the_options(void **state)
{
    (void)state;
    const di_grammar_options compact = {.whitespace = DI_WHITESPACE_COMPACT};
    const di_grammar_options blanks = {.whitespace = DI_WHITESPACE_ANY};
    const di_grammar_options pattern = {.whitespace = DI_WHITESPACE_PATTERN, .whitespace_pattern = " ?"};
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, "{}", NULL, true, IN("[1, 2]", "[\n  1,\n  2\n]", "{ \"a\" : 1 }")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, "{}", NULL, false, IN("[1,  2]", "[1\r]", "[1\n\n]")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, "{}", &compact, false, IN("[1, 2]", "[ ]")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, "{}", &blanks, true, IN("[1 \r\n\t , 2]")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, "{}", &pattern, true, IN("[1, 2]")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_SCHEMA, "{}", &pattern, false, IN("[1,  2]", "[1,\n2]")), "");
}

static void what_can_not_be_is_refused_with_a_pointer(void **state)
{
    (void)state;
    refused("{\"properties\":{\"a\":{\"type\":\"text\"}}}", DI_E_FORMAT, "invalid_schema", "/properties/a/type");
    refused("{\"items\":{\"$ref\":\"http://x.test/y\"}}", DI_E_UNSUPPORTED, "unsupported_keyword", "/items/$ref");
    refused("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", DI_E_FORMAT, "unsatisfiable_schema", "");
    refused("{\"properties\":{\"a/b\":{\"required\":true}}}", DI_E_FORMAT, "invalid_schema", "/properties/a~1b/required");
    refused("{\"properties\":[]}", DI_E_FORMAT, "invalid_schema", "/properties");
    refused("{\"$ref\":\"#/a\",\"a\":{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/a\"}},\"required\":[\"x\"]}}", DI_E_FORMAT,
            "unsatisfiable_schema", "");
    refused("[", DI_E_FORMAT, "invalid_schema", "");
}

static void other_kinds(void **state)
{
    (void)state;
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_CHOICE, "[\"a\",\"ab\",\"x y\"]", NULL, true, IN("a", "ab", "x y")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_CHOICE, "[\"a\",\"ab\",\"x y\"]", NULL, false, IN("", "x", "abb")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_JSON_OBJECT, "", NULL, true, IN("{}", "{\"a\": [1]}")), "");
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_JSON_OBJECT, "", NULL, false, IN("[]", "1", "{} ")), "");
}

static void a_wrong_text_is_told_where(void **state)
{
    (void)state;
    di_grammar *const g =
        gram_must(DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"n\":{\"maximum\":99,\"type\":\"integer\",\"minimum\":10}},"
                                     "\"required\":[\"n\"],\"additionalProperties\":false}",
                  NULL);
    assert_int_equal(gram_check(g, "{\"n\":42}", 8), GRAM_WHOLE);
    assert_int_equal(gram_check(g, "{\"n\":4}", 7), 6);
    assert_int_equal(gram_check(g, "{\"n\":421", 8), 7);
    assert_int_equal(gram_check(g, "{\"m", 3), 2);
    assert_int_equal(gram_check(g, "{}", 2), 1);
    assert_int_equal(gram_check(g, "{\"n\":4", 6), GRAM_PREFIX);
    di_grammar_free(g);
}

static void steps_can_be_taken_back_and_forked(void **state)
{
    (void)state;
    di_error err;
    di_matcher *m;
    di_matcher *fork;
    size_t n;
    bool complete;
    di_grammar *const g = gram_must(DI_GRAMMAR_SCHEMA, "{\"enum\":[\"ab\",\"ac\",[1]]}", NULL);
    assert_int_equal(di_matcher_new(g, NULL, &m, &err), DI_OK);
    assert_int_equal(di_matcher_accept_bytes(m, "\"a", 2, &n, &err), DI_OK);
    assert_int_equal(di_matcher_fork(m, &fork, &err), DI_OK);
    assert_int_equal(di_matcher_accept_bytes(m, "b\"", 2, &n, &err), DI_OK);
    assert_int_equal(di_matcher_is_complete(m, &complete, &err), DI_OK);
    assert_true(complete);
    assert_int_equal(di_matcher_steps(m), 2);
    unit_expect_error(di_matcher_rollback(m, 3, &err), DI_E_ARGUMENT, &err, "3 steps", NULL);
    assert_int_equal(di_matcher_rollback(m, 2, &err), DI_OK);
    assert_int_equal(di_matcher_accept_bytes(m, "[1]", 3, &n, &err), DI_OK);
    assert_int_equal(n, 3);
    assert_int_equal(di_matcher_accept_bytes(fork, "[1]", 3, &n, &err), DI_OK);
    assert_int_equal(n, 0);
    assert_int_equal(di_matcher_accept_bytes(fork, "c\"", 2, &n, &err), DI_OK);
    assert_int_equal(n, 2);
    char forced[16];
    assert_int_equal(di_matcher_forced(fork, forced, sizeof forced, &n, &err), DI_OK);
    assert_int_equal(n, 0);
    di_matcher_free(fork);
    di_matcher_free(m);
    di_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anything_is_json_of_any_type),
        cmocka_unit_test(types_and_numbers),
        cmocka_unit_test(a_backslash_needs_an_escape_that_fits),
        cmocka_unit_test(numbers_are_compared_with_zero),
        cmocka_unit_test(strings),
        cmocka_unit_test(objects),
        cmocka_unit_test(arrays),
        cmocka_unit_test(used_words_are_no_items_any_more),
        cmocka_unit_test(items_that_are_huge_numbers_are_compared),
        cmocka_unit_test(combinators_are_exact),
        cmocka_unit_test(references_may_be_recursive),
        cmocka_unit_test(the_order_is_that_of_the_options),
        cmocka_unit_test(white_space_is_that_of_the_options),
        cmocka_unit_test(what_can_not_be_is_refused_with_a_pointer),
        cmocka_unit_test(other_kinds),
        cmocka_unit_test(a_wrong_text_is_told_where),
        cmocka_unit_test(steps_can_be_taken_back_and_forked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
