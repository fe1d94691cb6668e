/* Bodies that nobody means well: sizes, depths and spellings at and beyond the limits. Each is read or refused with the right status,
 * within its budget of memory, and in a time that grows with its size (a quadratic step would run into the time limit). */
#include "req_support.h"

static const req_place chat = {DI_CHAT, REQ_V41, NULL};

/* A body built piece by piece. */
typedef struct body {
    buf text;
} body;

static body begin(const char *model)
{
    body b;
    buf_init(&b.text, SIZE_MAX);
    buf_printf(&b.text, "{\"model\":\"%s\",", model);
    return b;
}

static void repeat(body *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_puts(&b->text, text);
    }
}

/* Reads it under a budget (0: the usual one) and frees it; the request is left in *out when it is wanted. */
static di_status read_body(body *b, di_protocol protocol, size_t budget, di_error *err, req_read *out)
{
    const di_recipe_options options = {.thinking_off = true, .max_request_bytes = budget};
    req_read r = {.recipe = NULL};
    assert_false(b->text.failed);
    assert_int_equal(di_recipe_open(NULL, &options, &r.recipe, err), DI_OK);
    const di_status status = di_request_read(r.recipe, protocol, b->text.data, b->text.size, &r.request, err);
    buf_fini(&b->text);
    if (out != NULL && status == DI_OK) {
        *out = r;
    } else {
        req_close(&r);
    }
    return status;
}

static void expect_status(body *b, di_protocol protocol, di_status expected, const char *part)
{
    di_error err = {.message = ""};
    const di_status status = read_body(b, protocol, 0, &err, NULL);
    if (status != expected || (part != NULL && strstr(err.message, part) == NULL)) {
        fail_msg("%s: %s, expected %s with \"%s\"", di_status_name(status), err.message, di_status_name(expected), part ? part : "");
    }
}

static void twenty_megabytes_of_text_are_read(void **state)
{
    (void)state;
    req_read r;
    di_error err;
    size_t n;
    body b = begin(REQ_V41);
    buf_puts(&b.text, "\"messages\":[{\"role\":\"user\",\"content\":\"");
    repeat(&b, "twenty megabytes \\n", 20000000 / 18);
    buf_puts(&b.text, "\"}]}");
    assert_int_equal(read_body(&b, DI_CHAT, 0, &err, &r), DI_OK);
    (void)di_request_prompt(r.request, &n);
    assert_true(n > 20000000 / 18 * 18);
    req_close(&r);
}

/* Twenty megabytes of small values take more memory than any other body of their size. */
static void twenty_megabytes_of_small_values_stay_within_the_budget(void **state)
{
    (void)state;
    static const char *const values[] = {"1,", "{},", "\"\",", "[1],", "{\"a\":1},"};
    for (size_t i = 0; i < REQ_N(values); i++) {
        di_error err;
        body b = begin(REQ_V41);
        buf_puts(&b.text, "\"x\":[");
        repeat(&b, values[i], 20000000 / strlen(values[i]));
        buf_puts(&b.text, "0],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
        const di_status status = read_body(&b, DI_CHAT, (size_t)256 << 20, &err, NULL);
        assert_int_equal(status, DI_E_LIMIT);
        assert_int_equal(di_recipe_http_status(status), 413);
    }
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    static const struct {
        size_t depth; /* of the arrays, which lie in two containers */
        di_status expected;
    } cases[] = {{1, DI_OK}, {126, DI_OK}, {127, DI_E_FORMAT}, {10000, DI_E_FORMAT}, {5000000, DI_E_FORMAT}};
    for (size_t i = 0; i < REQ_N(cases); i++) {
        body b = begin(REQ_V41);
        buf_puts(&b.text, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"deep\":");
        repeat(&b, "[", cases[i].depth);
        repeat(&b, "]", cases[i].depth);
        buf_puts(&b.text, "}");
        expect_status(&b, DI_CHAT, cases[i].expected, cases[i].expected == DI_OK ? NULL : "invalid JSON request");
    }
}

/* Deeper than a document may be, arguments are raw text. */
static void deep_arguments_are_one_parameter(void **state)
{
    (void)state;
    static const size_t depths[] = {126, 127, 10000};
    for (size_t i = 0; i < REQ_N(depths); i++) {
        req_read r;
        di_error err;
        body b = begin(REQ_V41);
        buf_puts(&b.text, "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\",\"function\":{\"name\":"
                          "\"f\",\"arguments\":\"{\\\"key\\\":");
        repeat(&b, "[", depths[i]);
        repeat(&b, "]", depths[i]);
        buf_puts(&b.text, "}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"i\",\"content\":\"\"}]}");
        assert_int_equal(read_body(&b, DI_CHAT, 0, &err, &r), DI_OK);
        const char *const prompt = di_request_prompt(r.request, NULL);
        assert_true((strstr(prompt, "parameter name=\"key\" string=\"false\">") != NULL) == (depths[i] <= 126));
        assert_true((strstr(prompt, "parameter name=\"arguments\" string=\"true\">") != NULL) == (depths[i] > 126));
        req_close(&r);
    }
}

static void odd_json_is_what_the_rules_say(void **state)
{
    (void)state;
    static const char before[] = "'messages':[{'role':'user','content':'";
    static const struct {
        const char *content;
        const char *behind;
        di_status expected;
    } cases[] = {
        {"\\ud83e\\udd80", "'}]", DI_OK},
        {"\\ud83e", "'}]", DI_E_FORMAT},
        {"\\udd80\\ud83e", "'}]", DI_E_FORMAT},
        {"a\\u0000b", "'}]", DI_OK},
        {"tab\there", "'}]", DI_E_FORMAT},
        {"\xC3", "'}]", DI_E_FORMAT},
        {"\xED\xA0\x80", "'}]", DI_E_FORMAT},
        {"x", "'}],'unknown':1e400", DI_E_FORMAT},
        {"x", "'}],'unknown':123456789012345678901234567890", DI_OK},
        {"x", "'}],'unknown':-0.0e-99999", DI_OK},
        {"x", "'}],'max_tokens':123456789012345678901234567890", DI_E_FORMAT},
        {"x", "'}],'seed':18446744073709551616", DI_E_FORMAT},
        {"x", "','content':'y','role':'user'}]", DI_OK},
        {"x", "'}]} {", DI_E_FORMAT},
        {"x", "'}],'unknown':01", DI_E_FORMAT},
        {"x", "'}],'unknown':NaN", DI_E_FORMAT},
        {"x", "'}],", DI_E_FORMAT},
    };
    for (size_t i = 0; i < REQ_N(cases); i++) {
        char text[512];
        req_read r;
        di_error err;
        (void)snprintf(text, sizeof text, "%s%s%s", before, cases[i].content, cases[i].behind);
        const di_status status = req_try(&chat, text, &r, &err);
        if (status != cases[i].expected) {
            fail_msg("%s: %s", text, status == DI_OK ? "read" : err.message);
        }
        req_close(&r);
    }
    req_expect_tail(&chat, "'messages':[{'role':'user','content':'x','content':'y'}]", USER("y") END);
}

static void bodies_that_are_no_object_are_refused(void **state)
{
    (void)state;
    static const char *const bodies[] = {"", " ", "[]", "null", "\"x\"", "1", "{", "{}", "\xEF\xBB\xBF{}"};
    for (int protocol = DI_CHAT; protocol <= DI_MESSAGES; protocol++) {
        for (size_t i = 0; i < REQ_N(bodies); i++) {
            di_recipe *recipe;
            di_request *request = NULL;
            di_error err;
            assert_int_equal(di_recipe_open(NULL, NULL, &recipe, &err), DI_OK);
            assert_int_equal(di_request_read(recipe, (di_protocol)protocol, bodies[i], strlen(bodies[i]), &request, &err), DI_E_FORMAT);
            assert_null(request);
            di_recipe_close(recipe);
        }
    }
}

static void more_messages_than_allowed_are_refused(void **state)
{
    static const struct {
        di_protocol protocol;
        const char *body;
        const char *message;
    } cases[] = {
        {DI_CHAT, "{\"model\":\"m\",\"messages\":[1,2,3,4]}", "messages: 4 are too many, at most 3 are taken"},
        {DI_MESSAGES, "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[1,2,3,4]}", "messages: 4 are too many, at most 3 are taken"},
        {DI_RESPONSES, "{\"model\":\"m\",\"input\":[1,2,3,4]}", "input: 4 are too many, at most 3 are taken"},
    };
    const di_recipe_options options = {.max_messages = 3};
    di_recipe *recipe = NULL;
    (void)state;
    assert_int_equal(di_recipe_open(NULL, &options, &recipe, NULL), DI_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        di_request *request = NULL;
        di_error err = {.message = ""};
        const di_status status = di_request_read(recipe, cases[i].protocol, cases[i].body, strlen(cases[i].body), &request, &err);
        assert_int_equal(status, DI_E_ARGUMENT);
        assert_string_equal(err.message, cases[i].message);
    }
    di_recipe_close(recipe);
}

static void ten_thousand_messages_are_read(void **state)
{
    (void)state;
    for (int protocol = DI_CHAT; protocol <= DI_MESSAGES; protocol++) {
        body b = begin(REQ_V41);
        buf_puts(&b.text, protocol == DI_RESPONSES ? "\"input\":[" : "\"messages\":[");
        repeat(&b, "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},", 10000);
        repeat(&b, "{\"role\":\"user\",\"content\":\"same role\"},", 10000);
        buf_puts(&b.text, "{\"role\":\"user\",\"content\":\"c\"}]}");
        expect_status(&b, (di_protocol)protocol, DI_OK, NULL);
    }
}

/* One turn with ten thousand calls, whose results come in the opposite order. */
static void ten_thousand_calls_and_results_are_sorted(void **state)
{
    (void)state;
    static const char *const models[] = {REQ_V41, REQ_V4};
    for (size_t m = 0; m < 2; m++) {
        body b = begin(models[m]);
        buf_puts(&b.text, "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"tool_calls\":[");
        for (int i = 0; i < 10000; i++) {
            buf_printf(&b.text, "%s{\"id\":\"c%d\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}", i > 0 ? "," : "", i);
        }
        buf_puts(&b.text, "]}");
        for (int i = 9999; i >= 0; i--) {
            buf_printf(&b.text, ",{\"role\":\"tool\",\"tool_call_id\":\"c%d\",\"content\":\"%d\"}", i, i);
        }
        buf_puts(&b.text, "]}");
        req_read r;
        di_error err;
        assert_int_equal(read_body(&b, DI_CHAT, 0, &err, &r), DI_OK);
        const char *const first = strstr(di_request_prompt(r.request, NULL), "<tool_result>");
        assert_non_null(first);
        assert_int_equal(strncmp(first, "<tool_result>0</tool_result>\n\n<tool_result>1", 44), 0);
        req_close(&r);
    }
}

static void ten_thousand_tools_are_read(void **state)
{
    (void)state;
    static const char *const forms[] = {
        [DI_CHAT] = "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\",\"parameters\":{\"type\":\"object\"}}}",
        [DI_RESPONSES] = "%s{\"type\":\"function\",\"name\":\"f%d\",\"parameters\":{\"type\":\"object\"}}",
        [DI_MESSAGES] = "%s{\"name\":\"f%d\",\"input_schema\":{\"type\":\"object\"}}",
    };
    for (int protocol = DI_CHAT; protocol <= DI_MESSAGES; protocol++) {
        for (int repeated = 0; repeated < 2; repeated++) {
            body b = begin(REQ_V41);
            buf_puts(&b.text, protocol == DI_RESPONSES ? "\"input\":\"x\"" : "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]");
            buf_puts(&b.text, ",\"tools\":[");
            for (int i = 0; i < 10000; i++) {
                const char *const between = i > 0 ? "," : "";
                const int number = repeated != 0 && i == 9999 ? 0 : i;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
                buf_printf(&b.text, forms[protocol], between, number);
#pragma GCC diagnostic pop
            }
            buf_puts(&b.text, "]}");
            expect_status(&b, (di_protocol)protocol, repeated != 0 ? DI_E_ARGUMENT : DI_OK, repeated != 0 ? "must be unique" : NULL);
        }
    }
}

static void every_budget_is_kept(void **state)
{
    (void)state;
    req_expect_bounded(&chat, "'messages':[{'role':'system','content':'s'},{'role':'user','content':[{'type':'text','text':'a'},{'type':"
                              "'image_url','image_url':{'url':'http://x'}}]},{'role':'assistant','content':'<｜box｜>','tool_calls':[{'id':"
                              "'i','type':'function','function':{'name':'f','arguments':'{\\\"a\\\": [1, 2.5], \\\"b\\\": \\\"c\\\"}'}}]},"
                              "{'role':'tool','tool_call_id':'i','content':'r'}],'tools':[{'type':'function','function':{'name':'f',"
                              "'parameters':{'type':'object'}}}]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_megabytes_of_text_are_read),
        cmocka_unit_test(twenty_megabytes_of_small_values_stay_within_the_budget),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(deep_arguments_are_one_parameter),
        cmocka_unit_test(odd_json_is_what_the_rules_say),
        cmocka_unit_test(bodies_that_are_no_object_are_refused),
        cmocka_unit_test(more_messages_than_allowed_are_refused),
        cmocka_unit_test(ten_thousand_messages_are_read),
        cmocka_unit_test(ten_thousand_calls_and_results_are_sorted),
        cmocka_unit_test(ten_thousand_tools_are_read),
        cmocka_unit_test(every_budget_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
