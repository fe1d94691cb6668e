/* Constraints between preparation and engine: compiled once, found again, refused with their place, and many at a time. The tokens come from
 * a script, which is not held to a grammar. */
#include "chat/chat_compile.h"
#include "chat_support.h"

#include <stdio.h>

enum { MANY = 24, KINDS = 6 };

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
        cmocka_unit_test(old_names_are_a_warning),
        cmocka_unit_test(many_at_a_time),
    };
    return cmocka_run_group_tests(tests, open_scripted, close_scripted);
}
