/* Each route answers with its own shape, in one piece and as a stream, and says what is wrong with a body in the words of its API. */
#include "chat_support.h"

static held_script script;
static di_service *service;

static int open_scripted(void **state)
{
    chat_setup(state);
    held_init(&script, "Hello there, how are you?", INT64_MAX);
    service = chat_open(&script, NULL);
    return 0;
}

static int close_scripted(void **state)
{
    chat_close(service, &script);
    return chat_teardown(state);
}

static void ask(di_route route, const char *body, int http_status, const char *const *parts)
{
    char *const text = chat_ask(service, route, body, http_status);
    for (; *parts != NULL; parts++) {
        expect_part(text, *parts);
    }
    free(text);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void chat_answers_in_one_piece(void **state)
{
    (void)state;
    ask(DI_ROUTE_CHAT, CHAT_HELLO "}", 200,
        PARTS("{\"id\":\"chatcmpl-", "\"object\":\"chat.completion\"", "\"content\":\"Hello there, how are you?\"",
              "\"finish_reason\":\"stop\"", "\"completion_tokens\":"));
}

static void chat_streams_an_event_a_token(void **state)
{
    (void)state;
    char *const text = chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"stream\":true}", 200);
    expect_part(text, "\"object\":\"chat.completion.chunk\"");
    expect_part(text, "data: [DONE]\n\n");
    /* role, one for each token, finish, [DONE] */
    assert_int_equal(count_parts(text, "data: "), 1 + (script.n - 1) + 1 + 1);
    free(text);
}

static void responses_and_messages_have_their_shapes(void **state)
{
    (void)state;
    ask(DI_ROUTE_RESPONSES, "{\"model\":\"DeepSeek-V4.1-Flash\",\"input\":\"Hi\",\"reasoning\":{\"effort\":\"none\"}}", 200,
        PARTS("\"object\":\"response\"", "\"status\":\"completed\"", "\"text\":\"Hello there, how are you?\""));
    ask(DI_ROUTE_RESPONSES, "{\"model\":\"DeepSeek-V4.1-Flash\",\"input\":\"Hi\",\"reasoning\":{\"effort\":\"none\"},\"stream\":true}", 200,
        PARTS("event: response.created\n", "event: response.completed\n"));
    ask(DI_ROUTE_MESSAGES,
        "{\"model\":\"DeepSeek-V4.1-Flash\",\"max_tokens\":100,\"thinking\":{\"type\":\"disabled\"},"
        "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
        200, PARTS("{\"id\":\"msg_", "\"type\":\"message\"", "\"text\":\"Hello there, how are you?\"", "\"stop_reason\":\"end_turn\""));
    ask(DI_ROUTE_MESSAGES,
        "{\"model\":\"DeepSeek-V4.1-Flash\",\"max_tokens\":3,\"thinking\":{\"type\":\"disabled\"},\"stream\":true,"
        "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
        200, PARTS("event: message_start\n", "\"stop_reason\":\"max_tokens\"", "event: message_stop\n"));
}

static void tokens_are_counted_made_and_unmade(void **state)
{
    (void)state;
    ask(DI_ROUTE_COUNT_TOKENS, "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", 200,
        PARTS("{\"input_tokens\":"));
    ask(DI_ROUTE_TOKENIZE, "{\"prompt\":\"Hi\"}", 200, PARTS("{\"count\":", "\"max_model_len\":16384,\"tokens\":["));
    ask(DI_ROUTE_TOKENIZE, " {\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"thinking\":{\"type\":\"disabled\"}}", 200,
        PARTS("\"tokens\":[0,3060,", ",3061,3069]}"));
    ask(DI_ROUTE_DETOKENIZE, "{\"tokens\":[0,3060]}", 200, PARTS("{\"prompt\":\"<｜begin▁of▁sentence｜><｜User｜>\"}"));
    ask(DI_ROUTE_DETOKENIZE, "{\"tokens\":[]}", 200, PARTS("{\"prompt\":\"\"}"));
}

static void bad_bodies_are_refused_in_the_words_of_the_api(void **state)
{
    (void)state;
    ask(DI_ROUTE_CHAT, "", 400, PARTS("\"type\":\"invalid_request_error\""));
    ask(DI_ROUTE_CHAT, "{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", 400,
        PARTS("The supported API model names are DeepSeek-V4-Pro, DeepSeek-V4.1-Flash, but you passed x."));
    ask(DI_ROUTE_MESSAGES, "[]", 400, PARTS("{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\""));
    ask(DI_ROUTE_CHAT,
        "{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":"
        "{\"url\":\"https://example.com/a.png\"}}]}]}",
        400, PARTS(".messages[0]", "images are not supported by this server yet"));
    ask(DI_ROUTE_CHAT, CHAT_HELLO ",\"max_tokens\":16384}", 400, PARTS("This model's maximum context length is 16384 tokens."));
    ask(DI_ROUTE_TOKENIZE, "{}", 400, PARTS("give one of prompt and messages"));
    ask(DI_ROUTE_TOKENIZE, "{\"prompt\":1}", 400, PARTS("prompt: expected a string, not "));
    ask(DI_ROUTE_DETOKENIZE, "{\"tokens\":[99999]}", 400, PARTS("tokens[0]: token ids are 0..3071, not 99999"));
    ask(DI_ROUTE_DETOKENIZE, "{\"tokens\":\"a\"}", 400, PARTS("tokens: expected an array"));
    ask(DI_ROUTE_COUNT_TOKENS, "{\"model\":\"DeepSeek-V4.1-Flash\"}", 400, PARTS("\"type\":\"error\""));
}

static void choices_of_one_request_are_told_apart(void **state)
{
    (void)state;
    char *const text = chat_ask(service, DI_ROUTE_CHAT, CHAT_HELLO ",\"n\":3,\"max_tokens\":2}", 200);
    assert_int_equal(count_parts(text, "\"finish_reason\":\"length\""), 3);
    expect_part(text, "\"completion_tokens\":6");
    free(text);
}

static void a_stop_string_ends_a_choice_and_frees_its_memory(void **state)
{
    (void)state;
    di_service_stats stats;
    ask(DI_ROUTE_CHAT, CHAT_HELLO ",\"stop\":\", how\"}", 200, PARTS("\"content\":\"Hello there\"", "\"finish_reason\":\"stop\""));
    ask(DI_ROUTE_CHAT, CHAT_HELLO ",\"stop\":\", how\",\"n\":2,\"stream\":true}", 200, PARTS("[DONE]"));
    do {
        di_service_get_stats(service, &stats);
    } while (stats.scheduler.n_running != 0 || stats.n_output != 0);
    assert_int_equal(stats.n_running, 0);
    assert_int_equal(di_service_pending(service), 0);
}

static void log_probabilities_are_passed_on(void **state)
{
    (void)state;
    ask(DI_ROUTE_CHAT, CHAT_HELLO ",\"logprobs\":true,\"max_tokens\":2}", 200, PARTS("\"logprobs\":{\"content\":[{\"token\":\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_answers_in_one_piece),
        cmocka_unit_test(chat_streams_an_event_a_token),
        cmocka_unit_test(responses_and_messages_have_their_shapes),
        cmocka_unit_test(tokens_are_counted_made_and_unmade),
        cmocka_unit_test(bad_bodies_are_refused_in_the_words_of_the_api),
        cmocka_unit_test(choices_of_one_request_are_told_apart),
        cmocka_unit_test(a_stop_string_ends_a_choice_and_frees_its_memory),
        cmocka_unit_test(log_probabilities_are_passed_on),
    };
    return cmocka_run_group_tests(tests, open_scripted, close_scripted);
}
