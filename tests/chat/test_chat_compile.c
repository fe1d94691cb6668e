/* Constraints between preparation and engine: compiled once, found again, refused with their place, and many at a time. The tokens come from
 * a script, which is not held to a grammar. Where calls meet in one compilation, it stands still until the test lets it go. */
#include "chat/chat_compile.h"
#include "chat_support.h"

#include <stdio.h>

enum { MANY = 24, KINDS = 6, TOGETHER = 5 };

static held_script script;
static di_service *service;

static int open_scripted(void **state)
{
    chat_setup(state);
    held_init(&script, "Hello", INT64_MAX);
    service = chat_open(&script, NULL);
    return 0;
}

static int close_scripted(void **state)
{
    chat_close(service, &script);
    return chat_teardown(state);
}

static chat_compiler_stats figures(void)
{
    chat_compiler_stats out;
    chat_compiler_get_stats(service->compiler, &out);
    return out;
}

static void a_constraint_is_compiled_once(void **state)
{
    (void)state;
    const chat_compiler_stats before = figures();
    for (int i = 0; i < 3; i++) {
        free(chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"structured_outputs\":{\"regex\":\"once\"}}", 200));
    }
    /* other options make another grammar */
    free(chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"structured_output\":{\"kind\":\"regex\",\"value\":\"once\",\"lenient\":true}}", 200));
    const chat_compiler_stats after = figures();
    assert_int_equal(after.n_compiled - before.n_compiled, 2);
    assert_int_equal(after.n_hits - before.n_hits, 2);
    assert_int_equal(after.n_grammars - before.n_grammars, 2);
    assert_true(after.n_bytes > before.n_bytes);
}

static void a_wrong_constraint_is_refused_with_its_place(void **state)
{
    (void)state;
    const chat_compiler_stats before = figures();
    char *text = chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"structured_outputs\":{\"regex\":\"a(b\"}}", 400);
    expect_part(text, "structured_outputs.regex: ");
    free(text);
    text = chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"guided_json\":{\"properties\":{\"a\":{\"$ref\":\"https://example.org/x\"}}}}", 400);
    expect_part(text, "guided_json: ");
    expect_part(text, "/properties/a");
    free(text);
    assert_int_equal(figures().n_refused - before.n_refused, 2);
    text = chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"regex\":\"a\",\"guided_choice\":[\"a\"]}", 400);
    expect_part(text, "guided_choice and regex");
    free(text);
}

static void old_names_are_a_warning(void **state)
{
    (void)state;
    di_call *const c = chat_submit(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"guided_regex\":\"old\"}");
    free(chat_read_all(c));
    assert_string_equal(di_call_warnings(c), "guided_regex: taken as structured_outputs.regex, which is the name here");
    di_call_free(c);
    di_call *const plain = chat_submit(service, DI_ROUTE_CHAT, CHAT_HELLO "}");
    free(chat_read_all(plain));
    assert_null(di_call_warnings(plain));
    di_call_free(plain);
}

static void a_refusal_has_field_and_code(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        const char *said;
    } cases[] = {
        {"\"structured_outputs\":{\"regex\":\"a(b\"}", "\"param\":\"structured_outputs.regex\",\"code\":\"invalid_regex\""},
        {"\"structured_outputs\":{\"regex\":7}", "\"param\":\"structured_outputs.regex\",\"code\":\"invalid_type\""},
        {"\"structured_outputs\":{\"choice\":[]}", "\"param\":\"structured_outputs.choice\",\"code\":\"invalid_value\""},
        {"\"structured_outputs\":7", "\"param\":\"structured_outputs\",\"code\":\"invalid_type\""},
        {"\"structured_outputs\":{\"json\":{\"type\":\"strin\"}}", "\"param\":\"structured_outputs.json\",\"code\":\"invalid_schema\""},
        {"\"regex\":\"a\",\"guided_choice\":[\"a\"]", "\"param\":\"regex\",\"code\":\"conflicting_constraints\""},
        {"\"guided_json\":{\"properties\":{\"a\":{\"$ref\":\"https://example.org/x\"}}}",
         "\"param\":\"guided_json\",\"code\":\"unsupported_keyword\""},
        {"\"guided_json\":{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}",
         "\"param\":\"guided_json\",\"code\":\"unsatisfiable_schema\""},
        {"\"grammar\":\"root ::= a\"", "\"param\":\"grammar\",\"code\":\"undefined_rule\""},
        {"\"structured_output\":{\"kind\":\"regex\"}", "\"param\":\"structured_output.value\",\"code\":\"missing_required_parameter\""},
        {"\"structured_output\":{\"kind\":\"regex\",\"value\":\"a\",\"limits\":{\"max_depth\":0}}",
         "\"param\":\"structured_output.limits.max_depth\",\"code\":\"invalid_value\""},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"properties\":{\"a/b\":7}}}}",
         "(at /properties/a~1b)\",\"type\":\"invalid_request_error\",\"param\":\"response_format.json_schema.schema\",\"code\":\"invalid_schema\""},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a b\",\"schema\":{}}}",
         "\"param\":\"response_format.json_schema.name\",\"code\":\"invalid_value\""},
        {"\"response_format\":{\"type\":\"prose\"}", "\"param\":\"response_format.type\",\"code\":\"invalid_request_error\""},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true,"
         "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(?<=x)y\"}},\"required\":[\"a\"],"
         "\"additionalProperties\":false}}}]",
         "\"param\":\"tools[1].function.parameters\",\"code\":\"unsupported_regex\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[1024];
        (void)snprintf(body, sizeof body, CHAT_HELLO ",%s}", cases[i].fields);
        char *const text = chat_ask(service, DI_ROUTE_CHAT, body, 400);
        expect_part(text, cases[i].said);
        free(text);
    }
    char *const text = chat_ask(service, DI_ROUTE_MESSAGES,
                                "{\"model\":\"DeepSeek-V4.1-Flash\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                                "\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"properties\":{\"a\":7}}}}",
                                400);
    expect_part(text, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"output_format.schema: ");
    expect_part(text, "/properties/a");
    free(text);
}

/* ---- one compilation of several calls ---- */

/* The compilation that stands still. One at a time, for a machine of two processors has one thread for it. */
typedef struct held_compile {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t n_begun;
    int64_t n_allowed;
    int64_t n_ask;   /* times that it shall ask whether it is cancelled */
    int64_t n_asked;
    bool told;       /* what it was answered last */
} held_compile;

static held_compile held = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static di_status compile_held(const chat_constraint *source, bool (*cancelled)(void *user), void *user, di_grammar **out,
                              di_grammar_fault *fault, di_error *err)
{
    pthread_mutex_lock(&held.mutex);
    const int64_t turn = ++held.n_begun;
    bool is_cancelled = false;
    pthread_cond_broadcast(&held.changed);
    while (turn > held.n_allowed && !is_cancelled) {
        if (held.n_asked < held.n_ask) {
            pthread_mutex_unlock(&held.mutex);
            is_cancelled = cancelled(user);
            pthread_mutex_lock(&held.mutex);
            held.told = is_cancelled;
            held.n_asked++;
            pthread_cond_broadcast(&held.changed);
        } else {
            pthread_cond_wait(&held.changed, &held.mutex);
        }
    }
    pthread_mutex_unlock(&held.mutex);
    return is_cancelled ? err_set(err, DI_E_CANCELLED, "cancelled") : chat_compile_source(source, cancelled, user, out, fault, err);
}

static void held_begins(int64_t n)
{
    pthread_mutex_lock(&held.mutex);
    while (held.n_begun < n) {
        pthread_cond_wait(&held.changed, &held.mutex);
    }
    pthread_mutex_unlock(&held.mutex);
}

static void held_goes(int64_t n)
{
    pthread_mutex_lock(&held.mutex);
    held.n_allowed = n;
    pthread_cond_broadcast(&held.changed);
    pthread_mutex_unlock(&held.mutex);
}

/* Returns what it was told. */
static bool held_asks(void)
{
    pthread_mutex_lock(&held.mutex);
    const int64_t n = ++held.n_ask;
    pthread_cond_broadcast(&held.changed);
    while (held.n_asked < n) {
        pthread_cond_wait(&held.changed, &held.mutex);
    }
    const bool told = held.told;
    pthread_mutex_unlock(&held.mutex);
    return told;
}

static bool has_joined(void *arg)
{
    return figures().n_joined >= *(const int64_t *)arg;
}

static void wait_joined(int64_t n)
{
    chat_until(has_joined, &n);
}

/* The same constraint in the words of different fields is one grammar; each call has the warnings of its own words. */
static void submit_together(di_call *calls[TOGETHER], const char *regex)
{
    static const char *const words[] = {"\"structured_outputs\":{\"regex\":\"%s\"}", "\"guided_regex\":\"%s\"",
                                        "\"structured_output\":{\"kind\":\"regex\",\"value\":\"%s\"}"};
    for (int i = 0; i < TOGETHER; i++) {
        char field[128];
        char body[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(field, sizeof field, words[i % 3], regex);
#pragma GCC diagnostic pop
        (void)snprintf(body, sizeof body, CHAT_HELLO ",%s}", field);
        calls[i] = chat_submit(service, DI_ROUTE_CHAT, body);
    }
}

static void calls_that_come_together_share_a_compilation(void **state)
{
    (void)state;
    di_call *calls[TOGETHER];
    const chat_compiler_stats before = figures();
    const int64_t begun = held.n_begun;
    submit_together(calls, "together");
    held_begins(begun + 1);
    wait_joined(before.n_joined + TOGETHER - 1);
    held_goes(begun + 1);
    for (int i = 0; i < TOGETHER; i++) {
        free(chat_read_all(calls[i]));
        assert_int_equal(chat_info(calls[i]).http_status, 200);
        assert_int_equal(di_call_warnings(calls[i]) != NULL, i % 3 == 1);
        di_call_free(calls[i]);
    }
    assert_int_equal(held.n_begun, begun + 1);
    assert_int_equal(figures().n_compiled - before.n_compiled, 1);
    assert_int_equal(figures().n_joined - before.n_joined, TOGETHER - 1);
}

static void a_refusal_is_one_for_each_call(void **state)
{
    (void)state;
    di_call *calls[TOGETHER];
    static const char *const fields[] = {"structured_outputs.regex", "guided_regex", "structured_output.value"};
    const chat_compiler_stats before = figures();
    const int64_t begun = held.n_begun;
    submit_together(calls, "wrong(");
    held_begins(begun + 1);
    wait_joined(before.n_joined + TOGETHER - 1);
    held_goes(begun + 1);
    for (int i = 0; i < TOGETHER; i++) {
        char said[96];
        char *const text = chat_read_all(calls[i]);
        assert_int_equal(chat_info(calls[i]).http_status, 400);
        (void)snprintf(said, sizeof said, "\"param\":\"%s\",\"code\":\"invalid_regex\"", fields[i % 3]);
        expect_part(text, said);
        free(text);
        di_call_free(calls[i]);
    }
    assert_int_equal(figures().n_refused - before.n_refused, TOGETHER);
}

/* Who leaves ends at once; the compilation goes on for those who stay, whoever came first. */
static void a_compilation_ends_with_the_last_that_leaves(void **state)
{
    (void)state;
    di_call *calls[TOGETHER];
    const chat_compiler_stats before = figures();
    const int64_t begun = held.n_begun;
    submit_together(calls, "leaving");
    held_begins(begun + 1);
    wait_joined(before.n_joined + TOGETHER - 1);
    for (int i = 0; i < TOGETHER; i++) {
        di_call_cancel(calls[i]);
        assert_int_equal(held_asks(), i == TOGETHER - 1);
        assert_int_equal(chat_info(calls[i]).http_status, 499);
        for (int k = i + 1; k < TOGETHER; k++) {
            assert_int_equal(chat_info(calls[k]).phase, DI_CALL_PREPARING);
        }
    }
    for (int i = 0; i < TOGETHER; i++) {
        free(chat_read_all(calls[i]));
        di_call_free(calls[i]);
    }
    assert_int_equal(figures().n_compiled, before.n_compiled);
    assert_int_equal(figures().n_refused, before.n_refused);
    /* nobody joins what was given up */
    held_goes(begun + 2);
    free(chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"structured_outputs\":{\"regex\":\"leaving\"}}", 200));
    assert_int_equal(held.n_begun, begun + 2);
    assert_int_equal(figures().n_compiled, before.n_compiled + 1);
}

static int hold_compilations(void **state)
{
    (void)state;
    chat_compiler_set(service->compiler, compile_held);
    return 0;
}

static int let_compilations_go(void **state)
{
    (void)state;
    chat_compiler_set(service->compiler, chat_compile_source);
    return 0;
}

static void many_at_a_time(void **state)
{
    (void)state;
    di_call *calls[MANY];
    for (int i = 0; i < MANY; i++) {
        char body[512];
        (void)snprintf(body, sizeof body, CHAT_HELLO ",\"structured_outputs\":{\"regex\":\"many{%d}\"}}", 1 + i % KINDS);
        calls[i] = chat_submit(service, DI_ROUTE_CHAT, body);
        if (i % 5 == 4) {
            di_call_cancel(calls[i]);
        }
    }
    for (int i = 0; i < MANY; i++) {
        free(chat_read_all(calls[i]));
        const di_call_info info = chat_info(calls[i]);
        assert_true(info.http_status == 200 || (i % 5 == 4 && info.http_status == 499));
        di_call_free(calls[i]);
    }
    assert_true(figures().n_grammars >= KINDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_constraint_is_compiled_once),
        cmocka_unit_test(a_wrong_constraint_is_refused_with_its_place),
        cmocka_unit_test(a_refusal_has_field_and_code),
        cmocka_unit_test(old_names_are_a_warning),
        cmocka_unit_test_setup_teardown(calls_that_come_together_share_a_compilation, hold_compilations, let_compilations_go),
        cmocka_unit_test_setup_teardown(a_refusal_is_one_for_each_call, hold_compilations, let_compilations_go),
        cmocka_unit_test_setup_teardown(a_compilation_ends_with_the_last_that_leaves, hold_compilations, let_compilations_go),
        cmocka_unit_test(many_at_a_time),
    };
    return cmocka_run_group_tests(tests, open_scripted, close_scripted);
}
