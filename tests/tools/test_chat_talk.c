/* test_chat_talk.c - the conversation as a Chat body, and which command serves a tool. */
#include "support/unit.h"

#include "chat_talk.h"
#include "chat_tool.h"

#include <string.h>

static void check_body(const chat_talk *talk, const char *wanted)
{
    di_error err;
    buf body;
    buf_init(&body, 1 << 20);
    assert_int_equal(chat_talk_body(talk, &body, &err), DI_OK);
    assert_string_equal(body.data, wanted);
    buf_fini(&body);
}

static void test_a_body_has_settings_and_messages(void **state)
{
    const char *const stops[] = {"a\"", "b"};
    chat_talk talk = {.stops = stops, .n_stops = 2};
    di_error err;
    (void)state;
    assert_int_equal(chat_talk_set_system(&talk, "Be brief.", &err), DI_OK);
    assert_true(chat_talk_set_thinking(&talk, "max"));
    assert_int_equal(chat_talk_add_user(&talk, "x\0y", 3, &err), DI_OK);
    check_body(&talk, "{\"model\":\"DeepSeek-V4.1-Flash\",\"thinking\":{\"type\":\"enabled\"},\"reasoning_effort\":\"max\","
                      "\"stop\":[\"a\\\"\",\"b\"],\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                      "{\"role\":\"user\",\"content\":\"x\\u0000y\"}]}");
    chat_talk_cut(&talk, 0);
    talk.n_stops = 0;
    assert_int_equal(chat_talk_set_system(&talk, "", &err), DI_OK);
    assert_true(chat_talk_set_thinking(&talk, "off"));
    check_body(&talk, "{\"model\":\"DeepSeek-V4.1-Flash\",\"thinking\":{\"type\":\"disabled\"},\"messages\":[]}");
    assert_false(chat_talk_set_thinking(&talk, "hard"));
    chat_talk_fini(&talk);
}

static void test_calls_get_ids_that_results_name(void **state)
{
    chat_talk talk = {.n_calls = 7};
    chat_call calls[2] = {{.name = (char[]){"f"}}, {.name = (char[]){"g\""}}};
    chat_answer answer = {.calls = calls, .n_calls = 2, .finish = DI_FINISH_TOOL_CALLS};
    di_error err;
    (void)state;
    buf_init(&calls[0].arguments, 100);
    buf_init(&calls[1].arguments, 100);
    buf_init(&answer.reasoning, 100);
    buf_init(&answer.text, 100);
    assert_true(buf_puts(&calls[1].arguments, "{}"));
    assert_true(buf_puts(&answer.reasoning, "why"));
    assert_int_equal(chat_talk_add_answer(&talk, &answer, &err), DI_OK);
    assert_int_equal(chat_talk_add_result(&talk, &calls[1], "r", 1, &err), DI_OK);
    check_body(&talk, "{\"model\":\"DeepSeek-V4.1-Flash\",\"thinking\":{\"type\":\"disabled\"},\"messages\":[{\"role\":\"assistant\","
                      "\"content\":\"\",\"reasoning_content\":\"why\",\"tool_calls\":["
                      "{\"id\":\"call_7\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}},"
                      "{\"id\":\"call_8\",\"type\":\"function\",\"function\":{\"name\":\"g\\\"\",\"arguments\":\"{}\"}}]},"
                      "{\"role\":\"tool\",\"tool_call_id\":\"call_8\",\"content\":\"r\"}]}");
    buf_fini(&calls[0].arguments);
    buf_fini(&calls[1].arguments);
    buf_fini(&answer.reasoning);
    buf_fini(&answer.text);
    chat_talk_fini(&talk);
}

static void test_many_messages_keep_their_order(void **state)
{
    chat_talk talk = {.n_calls = 0};
    di_error err;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        const char digit = (char)('0' + i % 10);
        assert_int_equal(chat_talk_add_user(&talk, &digit, 1, &err), DI_OK);
    }
    assert_int_equal(talk.n_messages, 1000);
    assert_string_equal(talk.messages[999], "{\"role\":\"user\",\"content\":\"9\"}");
    chat_talk_cut(&talk, 3);
    assert_int_equal(talk.n_messages, 3);
    assert_string_equal(talk.messages[2], "{\"role\":\"user\",\"content\":\"2\"}");
    chat_talk_fini(&talk);
}

static void test_a_tool_has_its_own_command_or_the_general_one(void **state)
{
    const cli_list list = {.items = {"f=first", "A=1 ./all x=y", "./all --k=v", "g-2=second --x=y"}, .n = 4};
    const cli_list none = {.n = 0};
    (void)state;
    assert_string_equal(chat_tool_command(&list, "f"), "first");
    assert_string_equal(chat_tool_command(&list, "g-2"), "second --x=y");
    assert_string_equal(chat_tool_command(&list, "A"), "1 ./all x=y");
    assert_string_equal(chat_tool_command(&list, "ff"), "./all --k=v");
    assert_null(chat_tool_command(&none, "f"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_body_has_settings_and_messages),
        cmocka_unit_test(test_calls_get_ids_that_results_name),
        cmocka_unit_test(test_many_messages_keep_their_order),
        cmocka_unit_test(test_a_tool_has_its_own_command_or_the_general_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
