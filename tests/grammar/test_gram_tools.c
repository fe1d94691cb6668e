/* Tool calls in the model's own form: which blocks are taken, token by token, with the marker as one added token.
 * The vocabulary is the demo model's, whose tokenizer has the marker. */
#include "gram_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define M "｜DSML｜"
#define OPEN "\n\n<" M " calls>\n"
#define CLOSE "\n</" M " calls>"
#define CALL(name) "<" M " invoke name=\"" name "\">\n"
#define CALL_END "\n</" M " invoke>"
#define TEXT(name, value) "<" M " parameter name=\"" name "\" string=\"true\">" value "</" M " parameter>"
#define JSON(name, value) "<" M " parameter name=\"" name "\" string=\"false\">" value "</" M " parameter>"

static di_tokenizer *tokenizer;
static di_vocabulary *vocabulary;
enum { END_ID = 1 };

static const char weather[] = "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":8},"
                              "\"days\":{\"type\":\"integer\",\"minimum\":1,"
                              "\"maximum\":7},\"unit\":{\"enum\":[\"C\",\"F\",1]}},\"required\":[\"city\"],\"additionalProperties\":false}";

static di_grammar_tools tools_of(const di_grammar_tool *list, size_t n, di_grammar_tool_choice choice)
{
    return (di_grammar_tools){.tools = list, .n_tools = n, .choice = choice, .marker = M, .block = " calls", .call = " invoke", .parameter = " parameter"};
}

static di_grammar *compile(const di_grammar_tools *tools)
{
    di_error err;
    di_grammar *g = NULL;
    if (di_grammar_compile_tools(tools, NULL, &g, NULL, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return g;
}

/* The text in tokens, with markers as one: GRAM_WHOLE, GRAM_PREFIX, or how many tokens were taken. */
static int64_t take(di_grammar *g, const char *text)
{
    di_error err;
    di_matcher *m;
    int32_t ids[2048];
    size_t n;
    size_t n_valid;
    bool accepted;
    assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
    assert_int_equal(di_tokenizer_encode(tokenizer, text, strlen(text), DI_ENCODE_SPECIAL, ids, 2048, &n, &err), DI_OK);
    assert_true(n <= 2048);
    uint32_t *const rows = calloc((n + 1) * di_vocabulary_mask_words(vocabulary), sizeof *rows);
    assert_non_null(rows);
    assert_int_equal(di_matcher_mask_chain(m, ids, n, rows, &n_valid, &err), DI_OK);
    for (size_t i = 0; i < n; i++) { /* masks say the same as steps */
        const uint32_t *const mask = rows + i * di_vocabulary_mask_words(vocabulary);
        if (i <= n_valid) {
            assert_int_equal((mask[ids[i] / 32] >> ids[i] % 32 & 1) != 0, i < n_valid);
        }
        if (i < n_valid) {
            assert_int_equal(di_matcher_accept(m, ids[i], &accepted, &err), DI_OK);
            assert_true(accepted);
        }
    }
    bool complete;
    assert_int_equal(di_matcher_is_complete(m, &complete, &err), DI_OK);
    di_matcher_free(m);
    free(rows);
    return n_valid < n ? (int64_t)n_valid : complete ? GRAM_WHOLE : GRAM_PREFIX;
}

static void expect(di_grammar *g, const char *text, bool whole)
{
    const int64_t got = take(g, text);
    if ((got == GRAM_WHOLE) != whole) {
        fail_msg("%s: %lld", text, (long long)got);
    }
}

static void strict_parameters_follow_the_schema(void **state)
{
    (void)state;
    const di_grammar_tool list[] = {{"weather", weather, strlen(weather), true}};
    const di_grammar_tools tools = tools_of(list, 1, DI_TOOL_CHOICE_REQUIRED);
    di_grammar *const g = compile(&tools);
    expect(g, OPEN CALL("weather") TEXT("city", "Paris") CALL_END CLOSE, true);
    expect(g, OPEN CALL("weather") TEXT("city", "a\"</b") "\n" JSON("days", "3") CALL_END CLOSE, true);
    expect(g, OPEN CALL("weather") JSON("days", "3") "\n" TEXT("unit", "C") "\n" TEXT("city", "") CALL_END CLOSE, true);
    expect(g, OPEN CALL("weather") JSON("unit", "1") "\n" TEXT("city", "x") CALL_END CLOSE, true);
    expect(g, OPEN CALL("weather") TEXT("city", "x") CALL_END "\n" CALL("weather") TEXT("city", "y") CALL_END CLOSE, true);
    expect(g, OPEN CALL("weather") JSON("days", "3") CALL_END CLOSE, false);                              /* missing */
    expect(g, OPEN CALL("weather") CALL_END CLOSE, false);
    expect(g, OPEN CALL("weather") TEXT("city", "x") "\n" TEXT("city", "y") CALL_END CLOSE, false);       /* repeated */
    expect(g, OPEN CALL("weather") TEXT("city", "x") "\n" TEXT("town", "y") CALL_END CLOSE, false);       /* undeclared */
    expect(g, OPEN CALL("weather") JSON("city", "\"x\"") CALL_END CLOSE, false);                          /* not as a string is written */
    expect(g, OPEN CALL("weather") TEXT("city", "x") "\n" TEXT("days", "3") CALL_END CLOSE, false);
    expect(g, OPEN CALL("weather") TEXT("city", "x") "\n" JSON("days", "8") CALL_END CLOSE, false);
    expect(g, OPEN CALL("weather") TEXT("city", "123456789") CALL_END CLOSE, false);
    expect(g, OPEN CALL("whether") TEXT("city", "x") CALL_END CLOSE, false);
    expect(g, "text" OPEN CALL("weather") TEXT("city", "x") CALL_END CLOSE, false);
    di_grammar_free(g);
}

static void other_tools_have_well_formed_blocks(void **state)
{
    (void)state;
    const di_grammar_tool list[] = {{"a", NULL, 0, false}, {"weather", weather, strlen(weather), true}};
    di_grammar_tools tools = tools_of(list, 2, DI_TOOL_CHOICE_AUTO);
    di_grammar *g = compile(&tools);
    expect(g, "", true);
    expect(g, "An answer.\n\n< 3 and <b>", true);
    expect(g, "Let me see." OPEN CALL("a") CALL_END CLOSE, true);
    expect(g, "Let me see." OPEN CALL("a") "</" M " invoke>" CLOSE, false); /* V4.1 has an empty line there */
    expect(g, OPEN CALL("a") TEXT("x", "any < text\n\n") "\n" JSON("y", "{\"a\": [1, 2]}") "\n" TEXT("x", "again") CALL_END CLOSE, true);
    expect(g, OPEN CALL("a") JSON("y", "[1") CALL_END CLOSE, false);
    expect(g, OPEN CALL("b") TEXT("x", "1") CALL_END CLOSE, false);
    expect(g, OPEN CALL("a") TEXT("x", "1") CALL_END CLOSE "\n", false);
    expect(g, "<" M " calls>\n", false);
    di_grammar_free(g);
    tools.single = true;
    g = compile(&tools);
    expect(g, OPEN CALL("a") TEXT("x", "1") CALL_END CLOSE, true);
    expect(g, OPEN CALL("a") TEXT("x", "1") CALL_END "\n" CALL("a") TEXT("x", "1") CALL_END CLOSE, false);
    di_grammar_free(g);
    tools.opened = true;
    tools.old_empty = true;
    tools.choice = DI_TOOL_CHOICE_REQUIRED;
    g = compile(&tools);
    expect(g, CALL("a") "</" M " invoke>" CLOSE, true);
    expect(g, OPEN CALL("a") TEXT("x", "1") CALL_END CLOSE, false);
    di_grammar_free(g);
}

static void an_answer_may_be_constrained_or_alone(void **state)
{
    (void)state;
    const di_grammar_tool list[] = {{"a", NULL, 0, false}};
    di_grammar_tools tools = tools_of(list, 1, DI_TOOL_CHOICE_AUTO);
    tools.has_answer_kind = true;
    tools.answer_kind = DI_GRAMMAR_SCHEMA;
    tools.answer = "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\"}},\"required\":[\"x\"],\"additionalProperties\":false}";
    tools.n_answer = strlen(tools.answer);
    di_grammar *g = compile(&tools);
    expect(g, "{\"x\": 1.5}", true);
    expect(g, OPEN CALL("a") TEXT("x", "1") CALL_END CLOSE, true);
    expect(g, "free", false);
    expect(g, "{\"x\": 1.5}" OPEN CALL("a") TEXT("x", "1") CALL_END CLOSE, false);
    di_grammar_free(g);
    tools = tools_of(NULL, 0, DI_TOOL_CHOICE_NONE);
    g = compile(&tools);
    expect(g, "anything\n\n<", true);
    expect(g, "\n\n<" M, false);
    di_grammar_free(g);
}

static void refused(const di_grammar_tools *tools, di_status status, const char *kind, const char *where, const char *message)
{
    di_error err;
    di_grammar_fault fault;
    di_grammar *g = NULL;
    const di_status got = di_grammar_compile_tools(tools, NULL, &g, &fault, &err);
    if (got != status || strcmp(fault.kind, kind) != 0 || strcmp(fault.where, where) != 0 || strstr(err.message, message) == NULL) {
        fail_msg("%s, %s, %s: %s", di_status_name(got), fault.kind, fault.where, err.message);
    }
}

static void what_cannot_be_enforced_is_refused(void **state)
{
    (void)state;
    static const char open[] = "{\"type\":\"object\",\"properties\":{\"x\":{}}}";
    static const char any[] = "{\"anyOf\":[{\"required\":[\"x\"]},{\"required\":[\"y\"]}],\"additionalProperties\":false,\"properties\":{\"x\":{},\"y\":{}}}";
    static const char never[] = "{\"type\":\"object\",\"properties\":{\"x\":false},\"required\":[\"x\"],\"additionalProperties\":false}";
    static const char wrong[] = "{\"properties\":{\"x\":{\"type\":\"nope\"}}}";
    const di_grammar_tool list[] = {{"a", NULL, 0, false}, {"b", open, strlen(open), true}};
    const di_grammar_tool list_any[] = {{"a", any, strlen(any), true}};
    const di_grammar_tool list_never[] = {{"a", never, strlen(never), true}};
    const di_grammar_tool list_wrong[] = {{"a", NULL, 0, false}, {"b", wrong, strlen(wrong), true}};
    const di_grammar_tool twice[] = {{"a", NULL, 0, false}, {"a", NULL, 0, false}};
    di_grammar_tools tools = tools_of(list, 2, DI_TOOL_CHOICE_AUTO);
    refused(&tools, DI_E_UNSUPPORTED, "unsupported_keyword", "/1", "additionalProperties");
    const di_grammar_options lenient = {.lenient = true};
    di_error err;
    di_grammar *g;
    assert_int_equal(di_grammar_compile_tools(&tools, &lenient, &g, NULL, &err), DI_OK);
    assert_non_null(strstr(di_grammar_warning(g, 0), "declared parameters only"));
    di_grammar_free(g);
    tools = tools_of(list_any, 1, DI_TOOL_CHOICE_AUTO);
    refused(&tools, DI_E_UNSUPPORTED, "unsupported_keyword", "/0", "only properties");
    tools = tools_of(list_never, 1, DI_TOOL_CHOICE_AUTO);
    refused(&tools, DI_E_FORMAT, "unsatisfiable_schema", "/0", "required");
    tools = tools_of(list_wrong, 2, DI_TOOL_CHOICE_AUTO);
    refused(&tools, DI_E_FORMAT, "invalid_schema", "/1/properties/x/type", "");
    tools = tools_of(twice, 2, DI_TOOL_CHOICE_AUTO);
    refused(&tools, DI_E_ARGUMENT, "", "", "one name");
    tools = tools_of(NULL, 0, DI_TOOL_CHOICE_REQUIRED);
    refused(&tools, DI_E_ARGUMENT, "", "", "need a tool");
}

static void the_marker_must_be_an_added_token(void **state)
{
    (void)state;
    const di_grammar_tool list[] = {{"a", NULL, 0, false}};
    di_grammar_tools tools = tools_of(list, 1, DI_TOOL_CHOICE_AUTO);
    di_error err;
    di_matcher *m;
    tools.marker = "a";
    di_grammar *g = compile(&tools);
    unit_expect_error(di_matcher_new(g, vocabulary, &m, &err), DI_E_ARGUMENT, &err, "no added token", NULL);
    di_grammar_free(g);
    tools.marker = "no such token";
    g = compile(&tools);
    unit_expect_error(di_matcher_new(g, vocabulary, &m, &err), DI_E_ARGUMENT, &err, "not in the vocabulary", NULL);
    di_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_parameters_follow_the_schema),
        cmocka_unit_test(other_tools_have_well_formed_blocks),
        cmocka_unit_test(an_answer_may_be_constrained_or_alone),
        cmocka_unit_test(what_cannot_be_enforced_is_refused),
        cmocka_unit_test(the_marker_must_be_an_added_token),
    };
    if (gram_open_demo(&tokenizer, END_ID, &vocabulary) != 0) {
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    di_vocabulary_free(vocabulary);
    di_tokenizer_close(tokenizer);
    return failed;
}
