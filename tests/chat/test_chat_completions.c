/* POST /v1/completions: forms of the prompt, choices, echo, stop strings, characters split over tokens, the old shape of
 * log-probabilities, and errors that name their field. */
#include "chat_support.h"

#include <stdio.h>

#define MODEL "{\"model\":\"DeepSeek-V4.1-Flash\","
#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

typedef struct scene {
    held_script script;
    di_service *service;
} scene;

static void open_scene(scene *x, const char *text)
{
    held_init(&x->script, text, INT64_MAX);
    x->service = chat_open(&x->script, NULL);
}

static void close_scene(scene *x)
{
    chat_close(x->service, &x->script);
}

static void ask(scene *x, const char *body, int http_status, const char *const *parts)
{
    char *const text = chat_ask(x->service, DI_ROUTE_COMPLETIONS, body, http_status);
    for (; *parts != NULL; parts++) {
        expect_part(text, *parts);
    }
    free(text);
}

/* The texts of a stream's chunks, one behind the other. */
static void expect_streamed(scene *x, const char *body, const char *expected)
{
    char *const text = chat_ask(x->service, DI_ROUTE_COMPLETIONS, body, 200);
    buf all;
    buf_init(&all, 1 << 16);
    for (const char *at = strstr(text, "data: {"); at != NULL; at = strstr(at + 1, "data: {")) {
        js_doc *doc = NULL;
        const char *const end = strstr(at, "\n\n");
        assert_non_null(end);
        assert_int_equal(js_parse(at + 6, (size_t)(end - at) - 6, "chunk", NULL, &doc, NULL), DI_OK);
        const js_value *const choice = js_at(js_get(js_root(doc), "choices"), 0);
        size_t n;
        const char *const piece = js_string(js_get(choice, "text"), &n);
        buf_append(&all, piece, n);
        js_free(doc);
    }
    assert_string_equal(all.size > 0 ? all.data : "", expected);
    expect_part(text, "data: [DONE]\n\n");
    buf_fini(&all);
    free(text);
}

static void a_prompt_is_text_or_ids_or_several_of_them(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, " world");
    ask(&x, MODEL "\"prompt\":\"Hello\"}", 200,
        PARTS("{\"id\":\"cmpl-", "\"object\":\"text_completion\"", "\"model\":\"DeepSeek-V4.1-Flash\"",
              "\"choices\":[{\"index\":0,\"text\":\" world\",\"logprobs\":null,\"finish_reason\":\"stop\"}]", "\"usage\":{\"prompt_tokens\":"));
    ask(&x, MODEL "\"prompt\":[0,42]}", 200, PARTS("\"text\":\" world\"", "\"prompt_tokens\":2,"));
    ask(&x, MODEL "\"prompt\":[\"Hello\",\"Hi\"],\"n\":2}", 200,
        PARTS("{\"index\":0,\"text\":\" world\"", "{\"index\":1,\"text\":\" world\"", "{\"index\":2,", "{\"index\":3,"));
    ask(&x, MODEL "\"prompt\":[[0,42],[0,43,44]]}", 200, PARTS("{\"index\":1,\"text\":\" world\"", "\"prompt_tokens\":5,"));
    close_scene(&x);
}

static void special_tokens_in_a_prompt_are_recognised(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "x");
    ask(&x, MODEL "\"prompt\":\"<｜begin▁of▁sentence｜><｜User｜>\"}", 200, PARTS("\"prompt_tokens\":2,"));
    close_scene(&x);
}

static void max_tokens_is_16_unless_said(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "1234567890123456789012345678901234567890");
    ask(&x, MODEL "\"prompt\":\"a\"}", 200,
        PARTS("\"text\":\"1234567890123456\"", "\"finish_reason\":\"length\"", "\"completion_tokens\":16,"));
    ask(&x, MODEL "\"prompt\":\"a\",\"max_tokens\":3}", 200, PARTS("\"text\":\"123\""));
    ask(&x, MODEL "\"prompt\":\"a\",\"max_tokens\":0}", 200, PARTS("\"text\":\"\"", "\"finish_reason\":\"length\"", "\"completion_tokens\":0,"));
    ask(&x, MODEL "\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true}", 200, PARTS("\"text\":\"a\""));
    expect_streamed(&x, MODEL "\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true,\"stream\":true}", "a");
    close_scene(&x);
}

static void an_echo_stands_in_front(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, " world");
    ask(&x, MODEL "\"prompt\":\"Hello\",\"echo\":true}", 200, PARTS("\"text\":\"Hello world\""));
    ask(&x, MODEL "\"prompt\":[\"A\",\"B\"],\"echo\":true}", 200, PARTS("\"text\":\"A world\"", "\"text\":\"B world\""));
    expect_streamed(&x, MODEL "\"prompt\":\"Hello\",\"echo\":true,\"stream\":true}", "Hello world");
    close_scene(&x);
}

static void a_stream_ends_with_usage_when_asked_for(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "123");
    char *text = chat_ask(x.service, DI_ROUTE_COMPLETIONS, MODEL "\"prompt\":\"a\",\"stream\":true}", 200);
    assert_int_equal(count_parts(text, "data: "), 3 + 1 + 1);
    expect_no_part(text, "usage");
    free(text);
    text = chat_ask(x.service, DI_ROUTE_COMPLETIONS,
                    MODEL "\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", 200);
    assert_int_equal(count_parts(text, "\"usage\":null"), 3 + 1);
    expect_part(text, "\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":3,\"total_tokens\":4,");
    free(text);
    close_scene(&x);
}

static void characters_split_over_tokens_stay_whole(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "a猫🙂é");
    expect_streamed(&x, MODEL "\"prompt\":\"a\",\"stream\":true}", "a猫🙂é");
    ask(&x, MODEL "\"prompt\":\"a\"}", 200, PARTS("\"text\":\"a猫🙂é\""));
    close_scene(&x);
    /* cut off inside a character: one replacement character */
    open_scene(&x, "猫");
    assert_true(x.script.n > 2);
    ask(&x, MODEL "\"prompt\":\"a\",\"max_tokens\":1}", 200, PARTS("\"text\":\"\uFFFD\""));
    close_scene(&x);
}

static void stop_strings_end_the_text_across_tokens(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "1234567890");
    ask(&x, MODEL "\"prompt\":\"a\",\"stop\":\"56\"}", 200, PARTS("\"text\":\"1234\"", "\"finish_reason\":\"stop\""));
    ask(&x, MODEL "\"prompt\":\"a\",\"stop\":[\"zz\",\"34\"]}", 200, PARTS("\"text\":\"12\""));
    ask(&x, MODEL "\"prompt\":\"a\",\"stop\":\"9x\"}", 200, PARTS("\"text\":\"1234567890\""));
    expect_streamed(&x, MODEL "\"prompt\":\"a\",\"stop\":\"56\",\"stream\":true,\"n\":1}", "1234");
    expect_streamed(&x, MODEL "\"prompt\":\"a\",\"stop\":\"0x\",\"stream\":true}", "1234567890");
    close_scene(&x);
}

static void stop_ids_end_the_text_and_eos_may_be_ignored(void **state)
{
    (void)state;
    scene x;
    char body[256];
    open_scene(&x, "123");
    snprintf(body, sizeof body, MODEL "\"prompt\":\"a\",\"stop_token_ids\":[%d]}", (int)x.script.ids[1]);
    ask(&x, body, 200, PARTS("\"text\":\"1\"", "\"finish_reason\":\"stop\""));
    ask(&x, MODEL "\"prompt\":\"a\",\"ignore_eos\":true,\"max_tokens\":8}", 200, PARTS("\"text\":\"123123\"", "\"finish_reason\":\"length\""));
    close_scene(&x);
}

static void log_probabilities_have_the_old_shape(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "12猫");
    char *text = chat_ask(x.service, DI_ROUTE_COMPLETIONS, MODEL "\"prompt\":\"a\",\"logprobs\":0}", 200);
    expect_part(text, "\"logprobs\":{\"tokens\":[\"1\",\"2\",");
    expect_part(text, "\"text_offset\":[0,1,2");
    expect_part(text, "\"top_logprobs\":[{\"1\":");
    expect_part(text, "\"token_logprobs\":[");
    expect_part(text, "\"bytes:\\\\xe7");
    free(text);
    /* tokens of a stop string are not shown */
    text = chat_ask(x.service, DI_ROUTE_COMPLETIONS, MODEL "\"prompt\":\"a\",\"logprobs\":0,\"stop\":\"2\"}", 200);
    expect_part(text, "\"tokens\":[\"1\"]");
    expect_part(text, "\"text_offset\":[0]");
    free(text);
    text = chat_ask(x.service, DI_ROUTE_COMPLETIONS, MODEL "\"prompt\":\"a\",\"logprobs\":0,\"stream\":true,\"stop\":\"2猫x\"}", 200);
    expect_part(text, "\"text\":\"1\",\"logprobs\":{\"tokens\":[\"1\"]");
    free(text);
    close_scene(&x);
}

static void token_ids_are_shown_when_asked_for(void **state)
{
    (void)state;
    scene x;
    char part[64];
    open_scene(&x, "12");
    snprintf(part, sizeof part, "\"token_ids\":[%d,%d]", (int)x.script.ids[0], (int)x.script.ids[1]);
    ask(&x, MODEL "\"prompt\":\"a\",\"return_token_ids\":true}", 200, PARTS(part));
    close_scene(&x);
}

static void all_sampling_fields_are_taken(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "12");
    ask(&x,
        MODEL "\"prompt\":\"a\",\"temperature\":0.5,\"top_p\":0.9,\"min_p\":0.1,\"top_k\":-1,\"presence_penalty\":1,"
              "\"frequency_penalty\":-1.5,\"repetition_penalty\":1.1,\"logit_bias\":{\"42\":-100,\"43\":1.5},\"seed\":-7,\"min_tokens\":1,"
              "\"best_of\":1,\"verify\":\"rejection\",\"suffix\":null,\"user\":\"u\",\"unknown\":[]}",
        200, PARTS("\"text\":\"12\""));
    close_scene(&x);
}

static void errors_name_their_field(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *message;
    } cases[] = {
        {"{}", "model: missing field"},
        {"{\"model\":1}", "model: expected a string, not "},
        {"{\"model\":\"x\",\"prompt\":\"a\"}", "The supported API model names are "},
        {MODEL "\"n\":1}", "prompt: missing field"},
        {MODEL "\"prompt\":1}", "prompt: expected a string or an array, not "},
        {MODEL "\"prompt\":[]}", "prompt: is empty"},
        {MODEL "\"prompt\":\"\"}", "prompt: is empty"},
        {MODEL "\"prompt\":[\"a\",\"\"]}", "prompt[1]: is empty"},
        {MODEL "\"prompt\":[1,\"a\"]}", "prompt[1]: expected a token id, not string"},
        {MODEL "\"prompt\":[\"a\",1]}", "prompt[1]: expected a string or an array of token ids, not "},
        {MODEL "\"prompt\":[[3072]]}", "prompt[0][0]: token ids are 0..3071, not 3072"},
        {MODEL "\"prompt\":[-1]}", "prompt[0]: token ids are 0..3071, not -1"},
        {MODEL "\"prompt\":\"a\",\"max_tokens\":-1}", "max_tokens: must be in 0.."},
        {MODEL "\"prompt\":\"a\",\"max_tokens\":1.5}", "max_tokens: expected an integer, not "},
        {MODEL "\"prompt\":\"a\",\"max_tokens\":16384}", "This model's maximum context length is 16384 tokens."},
        {MODEL "\"prompt\":\"a\",\"n\":0}", "n: must be in 1..128"},
        {MODEL "\"prompt\":\"a\",\"n\":2,\"best_of\":3}", "best_of: must be equal to n, which is 2"},
        {MODEL "\"prompt\":\"a\",\"logprobs\":6}", "logprobs: must be in 0..5"},
        {MODEL "\"prompt\":\"a\",\"logprobs\":1,\"echo\":true}", "logprobs: those of a prompt are not computed"},
        {MODEL "\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix: "},
        {MODEL "\"prompt\":\"a\",\"stream\":1}", "stream: expected a boolean, not "},
        {MODEL "\"prompt\":\"a\",\"stream_options\":{}}", "stream_options: needs stream = true"},
        {MODEL "\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":1}}", "stream_options: include_usage: expected"},
        {MODEL "\"prompt\":\"a\",\"stop\":1}", "stop: expected a string or an array of strings"},
        {MODEL "\"prompt\":\"a\",\"stop\":\"\"}", "stop: a string must have 1 to 1024 bytes"},
        {MODEL "\"prompt\":\"a\",\"temperature\":\"hot\"}", "temperature: expected a number, not string"},
        {MODEL "\"prompt\":\"a\",\"temperature\":2.1}", "temperature: must be in 0..2"},
        {MODEL "\"prompt\":\"a\",\"logit_bias\":{\"x\":1}}", "logit_bias: \\\"x\\\" is no token id"},
        {MODEL "\"prompt\":\"a\",\"logit_bias\":{\"1\":101}}", "logit_bias: the bias of token 1"},
        {MODEL "\"prompt\":\"a\",\"logit_bias\":[]}", "logit_bias: expected an object"},
        {MODEL "\"prompt\":\"a\",\"stop_token_ids\":[99999]}", "stop_token_ids[0]: token ids are"},
        {MODEL "\"prompt\":\"a\",\"min_tokens\":17}", "min_tokens: must be at most max_tokens, which is 16"},
        {MODEL "\"prompt\":\"a\",\"seed\":1e30}", "seed: expected an integer"},
        {MODEL "\"prompt\":\"a\",\"verify\":\"none\"}", "verify: 'none' is neither coupled, block nor rejection"},
        {MODEL "\"prompt\":\"a\",\"verify\":true}", "verify: expected a string"},
        {MODEL "\"prompt\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"],\"n\":128}", "prompt: prompts times n is at most 1024"},
        {"[]", "invalid request body: expected an object, not array"},
        {"{", "invalid JSON request"},
    };
    scene x;
    open_scene(&x, "x");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ask(&x, cases[i].body, 400, PARTS("\"type\":\"invalid_request_error\"", cases[i].message));
    }
    close_scene(&x);
}

static void a_cancelled_stream_says_so(void **state)
{
    (void)state;
    scene x;
    open_scene(&x, "1234567890");
    held_allow(&x.script, 2);
    di_call *const c = chat_submit(x.service, DI_ROUTE_COMPLETIONS, MODEL "\"prompt\":[\"a\",\"b\"],\"stream\":true,\"n\":2}");
    chat_wait_phase(c, DI_CALL_PREFILL);
    di_call_cancel(c);
    held_allow(&x.script, INT64_MAX);
    char *const text = chat_read_all(c);
    expect_part(text, "data: {\"error\":{\"message\":\"The request was cancelled.\"");
    expect_no_part(text, "[DONE]");
    free(text);
    di_call_free(c);
    close_scene(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_text_or_ids_or_several_of_them),
        cmocka_unit_test(special_tokens_in_a_prompt_are_recognised),
        cmocka_unit_test(max_tokens_is_16_unless_said),
        cmocka_unit_test(an_echo_stands_in_front),
        cmocka_unit_test(a_stream_ends_with_usage_when_asked_for),
        cmocka_unit_test(characters_split_over_tokens_stay_whole),
        cmocka_unit_test(stop_strings_end_the_text_across_tokens),
        cmocka_unit_test(stop_ids_end_the_text_and_eos_may_be_ignored),
        cmocka_unit_test(log_probabilities_have_the_old_shape),
        cmocka_unit_test(token_ids_are_shown_when_asked_for),
        cmocka_unit_test(all_sampling_fields_are_taken),
        cmocka_unit_test(errors_name_their_field),
        cmocka_unit_test(a_cancelled_stream_says_so),
    };
    return cmocka_run_group_tests(tests, chat_setup, chat_teardown);
}
