/* Replies beyond the recorded streams: several choices, errors, the queue, call ids, numbers, what custom tools show. */
#include "reply_support.h"

#include "recipe/rec_custom_input.h"

#define HEAD \
    "{\"id\":\"R\",\"object\":\"chat.completion.chunk\"," \
    "\"created\":5,\"model\":\"m\",\"system_fingerprint\":null,\"choices\":[{\"index\":"
#define MID ",\"logprobs\":null,\"finish_reason\":"
#define CALL_BEGIN "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">"
#define CALL_END "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"

static di_reply *reply_with(di_protocol protocol, const di_output_options *output)
{
    const di_reply_options options = {.id = "R", .created = 5, .model = "m", .protocol = protocol, .output = *output,
                                      .no_usage = true};
    di_reply *reply;
    di_error err;
    if (di_reply_new(fixture.recipe, NULL, &options, &reply, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return reply;
}

static void push(di_reply *reply, int32_t choice, const char *text)
{
    di_error err;
    if (di_reply_push_text(reply, choice, text, strlen(text), 1, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
}

static void finish(di_reply *reply, int32_t choice, di_finish reason)
{
    assert_int_equal(di_reply_finish(reply, choice, reason, NULL), DI_OK);
}

static void expect_event(di_reply *reply, const char *name, const char *data)
{
    di_event event;
    assert_true(di_reply_next_event(reply, &event));
    if (name == NULL) {
        assert_null(event.name);
    } else {
        assert_string_equal(event.name, name);
    }
    assert_string_equal(event.data, data);
    assert_int_equal(event.size, strlen(data));
}

static void expect_no_event(di_reply *reply)
{
    di_event event;
    assert_false(di_reply_next_event(reply, &event));
}

static void expect_frames(di_reply *reply, const char *frames)
{
    const char *text;
    size_t n;
    assert_int_equal(di_reply_frames(reply, &text, &n, NULL), DI_OK);
    if (n != strlen(frames) || memcmp(text, frames, n) != 0) {
        fail_msg("frames are\n%.*s\nnot\n%s", (int)n, text, frames);
    }
}

static void expect_in_body(di_reply *reply, const char *part)
{
    const char *text;
    size_t n;
    assert_int_equal(di_reply_body(reply, &text, &n, NULL), DI_OK);
    assert_int_equal(strlen(text), n);
    if (strstr(text, part) == NULL) {
        fail_msg("no %s in %s", part, text);
    }
}

/* ---- choices ---- */

static di_request *chat_request(const char *body)
{
    di_request *request;
    di_error err;
    if (di_request_read(fixture.recipe, DI_CHAT, body, strlen(body), &request, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return request;
}

static void choices_end_in_any_order_and_the_last_one_shows_the_usage(void **state)
{
    (void)state;
    di_request *const request = chat_request("{\"model\":\"DeepSeek-V4.1-Flash\",\"n\":3,\"stream\":true,\"thinking\":{\"type\":"
                                             "\"disabled\"},\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    const di_reply_options options = {.id = "R", .created = 5, .model = "m"};
    di_reply *reply;
    assert_int_equal(di_reply_new(fixture.recipe, request, &options, &reply, NULL), DI_OK);
    assert_int_equal(di_reply_ready(reply, 7, 2, NULL), DI_OK);
    for (int i = 0; i < 3; i++) {
        char data[512];
        (void)snprintf(data, sizeof data, HEAD "%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}" MID "null}]}", i);
        expect_event(reply, NULL, data);
    }
    push(reply, 2, "two");
    push(reply, 0, "zero");
    push(reply, 0, "!");
    expect_event(reply, NULL, HEAD "2,\"delta\":{\"content\":\"two\"}" MID "null}]}");
    expect_event(reply, NULL, HEAD "0,\"delta\":{\"content\":\"zero!\"}" MID "null}]}"); /* nobody had taken it */
    finish(reply, 2, DI_FINISH_STOP);
    expect_event(reply, NULL, HEAD "2,\"delta\":{\"content\":\"\"}" MID "\"stop\"}]}");
    finish(reply, 1, DI_FINISH_LENGTH);
    expect_event(reply, NULL, HEAD "1,\"delta\":{\"content\":\"\"}" MID "\"length\"}]}");
    expect_no_event(reply);
    assert_int_equal(di_reply_body(reply, &(const char *){NULL}, &(size_t){0}, NULL), DI_E_STATE);
    finish(reply, 0, DI_FINISH_STOP);
    expect_event(reply, NULL, HEAD "0,\"delta\":{\"content\":\"\"}" MID "\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
                                   "\"total_tokens\":10,\"prompt_tokens_details\":{\"cached_tokens\":2},"
                                   "\"prompt_cache_hit_tokens\":2,\"prompt_cache_miss_tokens\":5}}");
    expect_event(reply, NULL, "[DONE]");
    expect_in_body(reply, "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                          "\"content\":\"zero!\"}" MID "\"stop\"},{\"index\":1,");
    expect_in_body(reply, "{\"index\":2,\"message\":{\"role\":\"assistant\","
                          "\"content\":\"two\"}" MID "\"stop\"}],\"usage\":{\"prompt_tokens\":7");
    di_usage usage;
    di_reply_usage(reply, &usage);
    assert_int_equal(usage.completion_tokens, 3);
    di_reply_free(reply);
    di_request_free(request);
}

static void choices_have_call_ids_of_their_own(void **state)
{
    (void)state;
    di_request *const request =
        chat_request("{\"model\":\"DeepSeek-V4.1-Flash\",\"n\":2,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                     "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}");
    const di_reply_options options = {.id = "R"};
    char ids[2][2][64];
    for (int round = 0; round < 2; round++) {
        di_reply *reply;
        assert_int_equal(di_reply_new(fixture.recipe, request, &options, &reply, NULL), DI_OK);
        for (int32_t i = 0; i < 2; i++) {
            push(reply, i, CALL_BEGIN "x" CALL_END);
            finish(reply, i, DI_FINISH_STOP);
            assert_int_equal(di_reply_finished(reply, i), DI_FINISH_TOOL_CALLS);
        }
        const char *text;
        size_t n;
        assert_int_equal(di_reply_body(reply, &text, &n, NULL), DI_OK);
        for (int i = 0; i < 2; i++) {
            text = strstr(text, "\"call_00_ET_"); /* thinking was on and gave nothing */
            assert_non_null(text);
            memcpy(ids[round][i], text, 37);
            ids[round][i][37] = '\0';
            text += 37;
        }
        di_reply_free(reply);
    }
    assert_string_not_equal(ids[0][0], ids[0][1]);
    assert_string_equal(ids[0][0], ids[1][0]); /* the same every time */
    assert_string_equal(ids[0][1], ids[1][1]);
    di_request_free(request);
}

/* ---- errors ---- */

static void a_failure_takes_the_place_of_the_finish(void **state)
{
    (void)state;
    static const struct {
        di_protocol protocol;
        const char *name;
        const char *data;
    } cases[] = {
        {DI_CHAT, NULL, "{\"error\":{\"message\":\"no \\\"power\\\"\",\"type\":\"internal_error\","
                        "\"param\":null,\"code\":\"internal_error\"}}"},
        {DI_MESSAGES, "error", "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"no \\\"power\\\"\"}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        di_reply *const reply = reply_with(cases[i].protocol, &(di_output_options){.tools = false});
        reply_list before = {.n = 0};
        push(reply, 0, "Hello");
        reply_drain(&before, reply);
        assert_int_equal(di_reply_fail(reply, 500, "no \"power\"", NULL), DI_OK);
        expect_event(reply, cases[i].name, cases[i].data);
        expect_no_event(reply);
        assert_int_equal(di_reply_finished(reply, 0), DI_FINISH_CUT);
        push(reply, 0, " more"); /* has no effect */
        finish(reply, 0, DI_FINISH_STOP);
        expect_no_event(reply);
        assert_int_equal(di_reply_fail(reply, 500, "again", NULL), DI_E_STATE);
        assert_int_equal(di_reply_body(reply, &(const char *){NULL}, &(size_t){0}, NULL), DI_E_STATE);
        reply_list_free(&before);
        di_reply_free(reply);
    }
}

static void a_failure_may_come_before_everything_else(void **state)
{
    (void)state;
    static const char *const names[] = {"response.created", "response.in_progress", "response.failed"};
    di_event event;
    for (int status = 503; status <= 529; status += 529 - 503) {
        di_reply *const reply = reply_with(DI_MESSAGES, &(di_output_options){.tools = false});
        assert_int_equal(di_reply_fail(reply, status, "full", NULL), DI_OK);
        expect_event(reply, "error", "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"full\"}}");
        expect_no_event(reply);
        di_reply_free(reply);
    }
    di_reply *const reply = reply_with(DI_RESPONSES, &(di_output_options){.tools = false});
    assert_int_equal(di_reply_fail(reply, 503, "full", NULL), DI_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(di_reply_next_event(reply, &event));
        assert_string_equal(event.name, names[i]);
    }
    expect_no_event(reply);
    assert_int_equal(di_reply_ready(reply, 1, 0, NULL), DI_E_STATE);
    di_reply_free(reply);
}

static void a_failed_response_shows_what_came(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *code;
    } cases[] = {{500, "server_error"}, {503, "server_error"}, {429, "rate_limit_exceeded"}, {400, "invalid_prompt"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        di_reply *const reply = reply_with(DI_RESPONSES, &(di_output_options){.tools = false});
        di_event event;
        char error[128];
        push(reply, 0, "Hello");
        assert_int_equal(di_reply_fail(reply, cases[i].status, "no power", NULL), DI_OK);
        for (int k = 0; k < 6; k++) {
            assert_true(di_reply_next_event(reply, &event));
        }
        assert_string_equal(event.name, "response.failed");
        (void)snprintf(error, sizeof error, "\"error\":{\"code\":\"%s\",\"message\":\"no power\"}", cases[i].code);
        assert_non_null(strstr(event.data, error));
        assert_non_null(strstr(event.data, "\"status\":\"failed\""));
        assert_non_null(strstr(event.data, "\"status\":\"incomplete\",\"role\":\"assistant\",\"phase\":\"final_answer\",\"content\":"
                                           "[{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"Hello\"}]"));
        assert_non_null(strstr(event.data, "\"sequence_number\":5}"));
        expect_no_event(reply);
        di_reply_free(reply);
    }
}

static void a_generation_cut_inside_a_call_is_an_error(void **state)
{
    (void)state;
    for (int p = DI_CHAT; p <= DI_MESSAGES; p++) {
        di_reply *const reply = reply_with((di_protocol)p, &(di_output_options){.tools = true});
        push(reply, 0, CALL_BEGIN "x");
        finish(reply, 0, DI_FINISH_CUT);
        assert_int_equal(di_reply_finished(reply, 0), DI_FINISH_CUT);
        di_event event = {.data = ""};
        while (di_reply_next_event(reply, &event)) {
            assert_string_not_equal(event.data, "[DONE]");
        }
        assert_non_null(strstr(event.data, "broke off"));
        di_reply_free(reply);
        di_reply *const whole = reply_with((di_protocol)p, &(di_output_options){.tools = true});
        push(whole, 0, CALL_BEGIN "x" CALL_END);
        finish(whole, 0, DI_FINISH_CUT);
        assert_int_equal(di_reply_finished(whole, 0), DI_FINISH_TOOL_CALLS);
        expect_in_body(whole, "call_00_");
        di_reply_free(whole);
    }
}

static void a_failure_of_a_choice_ends_all(void **state)
{
    (void)state;
    di_request *const request =
        chat_request("{\"model\":\"DeepSeek-V4.1-Flash\",\"n\":2,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                     "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}");
    di_reply *reply;
    assert_int_equal(di_reply_new(fixture.recipe, request, &(di_reply_options){.id = "R"}, &reply, NULL), DI_OK);
    push(reply, 1, CALL_BEGIN);
    finish(reply, 1, DI_FINISH_CUT);
    assert_int_equal(di_reply_finished(reply, 0), DI_FINISH_CUT);
    push(reply, 0, "ignored");
    finish(reply, 0, DI_FINISH_STOP);
    di_event event = {.data = ""};
    while (di_reply_next_event(reply, &event)) {
    }
    assert_memory_equal(event.data, "{\"error\":", 9);
    di_reply_free(reply);
    di_request_free(request);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    const di_reply_options nameless = {.model = "m"};
    const di_reply_options modelless = {.id = "R"};
    const di_reply_options foreign = {.id = "R", .model = "m", .protocol = (di_protocol)9};
    di_reply *reply = NULL;
    assert_int_equal(di_reply_new(fixture.recipe, NULL, &nameless, &reply, NULL), DI_E_ARGUMENT);
    assert_int_equal(di_reply_new(fixture.recipe, NULL, &modelless, &reply, NULL), DI_E_ARGUMENT);
    assert_int_equal(di_reply_new(fixture.recipe, NULL, &foreign, &reply, NULL), DI_E_ARGUMENT);
    assert_null(reply);
    reply = reply_with(DI_CHAT, &(di_output_options){.tools = false});
    assert_int_equal(di_reply_push_text(reply, 1, "x", 1, 1, NULL), DI_E_ARGUMENT);
    assert_int_equal(di_reply_push_text(reply, -1, "x", 1, 1, NULL), DI_E_ARGUMENT);
    assert_int_equal(di_reply_finish(reply, 0, DI_FINISH_TOOL_CALLS, NULL), DI_E_ARGUMENT);
    assert_int_equal(di_reply_ready(reply, -1, 0, NULL), DI_E_ARGUMENT);
    assert_int_equal(di_reply_ready(reply, 0, -1, NULL), DI_E_ARGUMENT);
    expect_no_event(reply);
    push(reply, 0, "x");
    assert_int_equal(di_reply_ready(reply, 1, 0, NULL), DI_E_STATE);
    finish(reply, 0, DI_FINISH_STOP);
    assert_int_equal(di_reply_finish(reply, 0, DI_FINISH_STOP, NULL), DI_E_STATE);
    assert_int_equal(di_reply_fail(reply, 500, "late", NULL), DI_E_STATE);
    di_reply_free(reply);
    di_reply_free(NULL);
}

/* ---- the queue ---- */

static void frames_are_server_sent_events(void **state)
{
    (void)state;
    di_reply *const reply = reply_with(DI_CHAT, &(di_output_options){.tools = false});
    expect_frames(reply, "");
    push(reply, 0, "a\n\"b\"");
    expect_frames(reply, "data: " HEAD "0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}" MID "null}]}\n\n"
                         "data: " HEAD "0,\"delta\":{\"content\":\"a\\n\\\"b\\\"\"}" MID "null}]}\n\n");
    expect_frames(reply, "");
    push(reply, 0, "c");
    push(reply, 0, "d");
    di_event event;
    assert_true(di_reply_next_event(reply, &event)); /* one alone, then the rest as frames */
    assert_non_null(strstr(event.data, "\"cd\""));
    push(reply, 0, "e");
    expect_frames(reply, "data: " HEAD "0,\"delta\":{\"content\":\"e\"}" MID "null}]}\n\n");
    di_reply_free(reply);
    di_reply *const messages = reply_with(DI_MESSAGES, &(di_output_options){.tools = false});
    finish(messages, 0, DI_FINISH_STOP);
    expect_frames(messages,
                  "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"R\",\"type\":\"message\",\"role\":"
                  "\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":0,"
                  "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0,\"service_tier\":\"standard\"}}}\n\n"
                  "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},"
                  "\"usage\":{\"input_tokens\":0,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0,"
                  "\"service_tier\":\"standard\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    di_reply_free(messages);
}

/* A caller who always leaves one event behind gets all of them, in order. */
static void events_left_behind_are_not_lost(void **state)
{
    (void)state;
    di_request *const request = chat_request("{\"model\":\"DeepSeek-V4.1-Flash\",\"n\":2,\"thinking\":{\"type\":\"disabled\"},"
                                             "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    di_reply *reply;
    assert_int_equal(di_reply_new(fixture.recipe, request, &(di_reply_options){.id = "R"}, &reply, NULL), DI_OK);
    int next[2] = {0, 0};
    di_event event;
    assert_int_equal(di_reply_ready(reply, 1, 0, NULL), DI_OK);
    assert_true(di_reply_next_event(reply, &event));
    for (int i = 0; i < 2000; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "<%d>", i / 2);
        push(reply, i % 2, text); /* no neighbours to be joined */
        assert_true(di_reply_next_event(reply, &event));
        const char *const content = strstr(event.data, "\"content\":\"<");
        const int choice = strstr(event.data, "\"index\":0") != NULL ? 0 : 1;
        if (content != NULL) {
            assert_int_equal(strtol(content + 12, NULL, 10), next[choice]++);
        }
    }
    assert_int_equal(next[0] + next[1], 1999);
    assert_true(di_reply_next_event(reply, &event));
    expect_no_event(reply);
    di_reply_free(reply);
    di_request_free(request);
}

/* ---- values ---- */

static void names_of_the_caller_may_hold_anything(void **state)
{
    (void)state;
    for (int p = DI_CHAT; p <= DI_MESSAGES; p++) {
        const di_reply_options options = {.id = "a\"b\\\n\xff", .model = "m\"", .fingerprint = "f\"", .protocol = (di_protocol)p,
                                          .output = {.tools = true, .stage = DI_STAGE_REASONING_START}};
        di_reply *reply;
        reply_list events = {.n = 0};
        const char *text;
        size_t n;
        assert_int_equal(di_reply_new(fixture.recipe, NULL, &options, &reply, NULL), DI_OK);
        push(reply, 0, "t</think>x" CALL_BEGIN "x" CALL_END);
        finish(reply, 0, DI_FINISH_STOP);
        reply_drain(&events, reply); /* parses each */
        assert_int_equal(di_reply_body(reply, &text, &n, NULL), DI_OK);
        free(reply_normal(text, n, false));
        assert_non_null(strstr(text, "a\\\"b\\\\\\n\xef\xbf\xbd"));
        reply_list_free(&events);
        di_reply_free(reply);
    }
}

static void a_completed_response_says_when(void **state)
{
    (void)state;
    di_reply *const reply = reply_with(DI_RESPONSES, &(di_output_options){.tools = false});
    push(reply, 0, "x");
    di_reply_set_time(reply, 77);
    finish(reply, 0, DI_FINISH_STOP);
    expect_in_body(reply, "\"created_at\":5,\"status\":\"completed\",\"background\":false,\"completed_at\":77,");
    di_reply_free(reply);
}

static void a_response_repeats_what_was_asked(void **state)
{
    (void)state;
    static const struct {
        const char *asked;
        const char *repeated;
    } cases[] = {
        {"\"temperature\":0.7,\"top_p\":1", "\"temperature\":0.7,"},
        {"\"temperature\":0.7,\"top_p\":1", "\"top_p\":1.0,"},
        {"\"instructions\":\"Be \\\"brief\\\".\"", "\"instructions\":\"Be \\\"brief\\\".\",\"max_output_tokens\":null,"},
        {"\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"}", "\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},"},
        {"\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"},\"name\":\"n\"}}",
         "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{\"type\":\"object\"},"
         "\"strict\":null},\"verbosity\":null}"},
        {"\"reasoning\":{\"effort\":\"none\"},\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],"
         "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}",
         "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"},\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":null,"
         "\"parameters\":null,\"strict\":null}],"},
        {"\"tools\":[{\"type\":\"web_search\",\"user_location\":null},{\"type\":\"custom\","
         "\"name\":\"apply_patch\",\"description\":\"d\"}]",
         "\"tools\":[{\"type\":\"web_search\",\"user_location\":null},{\"type\":\"custom\","
         "\"name\":\"apply_patch\",\"description\":\"d\"}],"},
        {"\"metadata\":{\"a\":\"b\"},\"user\":\"u\"", "\"user\":\"u\",\"metadata\":{}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[1024];
        di_request *request;
        di_reply *reply;
        di_error err;
        const int n = snprintf(body, sizeof body, "{\"model\":\"DeepSeek-V4.1-Flash\",\"input\":\"x\",%s}", cases[i].asked);
        if (di_request_read(fixture.recipe, DI_RESPONSES, body, (size_t)n, &request, &err) != DI_OK) {
            fail_msg("%s", err.message);
        }
        assert_int_equal(di_reply_new(fixture.recipe, request, &(di_reply_options){.id = "R"}, &reply, NULL), DI_OK);
        finish(reply, 0, DI_FINISH_STOP);
        expect_in_body(reply, cases[i].repeated);
        di_reply_free(reply);
        di_request_free(request);
    }
}

static void log_probabilities_have_their_shortest_digits(void **state)
{
    (void)state;
    di_tokenizer *const tokenizer = out_demo();
    di_recipe *const with = out_recipe(tokenizer);
    const di_token_logprob top[] = {{.id = 40, .logprob = -0.1f}, {.id = 41, .logprob = -1.0f / 0.0f}};
    const di_token_logprobs logprobs = {.id = 40, .logprob = -1e-7f, .n_top = 2, .top = top};
    const di_reply_options options = {.id = "R", .model = "m", .protocol = DI_CHAT};
    di_reply *reply;
    assert_int_equal(di_reply_new(with, NULL, &options, &reply, NULL), DI_OK);
    assert_int_equal(di_reply_push_ids(reply, 0, &(int32_t){40}, 1, &logprobs, NULL), DI_OK);
    finish(reply, 0, DI_FINISH_STOP);
    expect_in_body(reply, "\"logprob\":-1e-7,");
    expect_in_body(reply, "\"logprob\":-0.1,");
    expect_in_body(reply, "\"logprob\":-9999.0,");
    di_reply_free(reply);
    di_recipe_close(with);
    di_tokenizer_close(tokenizer);
}

/* ---- custom input ---- */

static const struct {
    const char *arguments;
    const char *input;
} inputs[] = {
    {"{\"input\": \"a b\"}", "a b"},
    {" {\t\"input\"\n:\r\"x\" , \"more\": 1}", "x"},
    {"{\"input\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t"},
    {"{\"input\": \"\\u00e9\\ud83d\\ude00\\u6771\"}", "é😀東"},
    {"{\"input\": \"\\uD83D\\u0041\\uD83D\\uD83D\\uDE00\"}", "\\uD83DA\\uD83D😀"},
    {"{\"input\": \"\\uDE00x\\uD83Dx\\uD83D\\n\"}", "\\uDE00x\\uD83Dx\\uD83D\n"},
    {"{\"input\": \"\\q\\u12G4\\u1\"}", "\\q\\u12G4\\u1"},
    {"{\"input\": \"\\uD83D\\u1\\uD83D", "\\uD83D\\u1\\uD83D"},
    {"{\"input\": \"東京 🦀\nraw\"}", "東京 🦀\nraw"},
    {"{\"input\": \"cut \\u00", "cut \\u00"},
    {"{\"input\": \"cut \\", "cut \\"},
    {"{\"input\": \"cut", "cut"},
    {"{\"input\": ", ""},
    {"{", ""},
    {"", ""},
    {"{}", "{}"},
    {"{\"patch\": \"x\"}", "{\"patch\": \"x\"}"},
    {"{\"inputs\": \"x\"}", "{\"inputs\": \"x\"}"},
    {"{\"in put\": \"x\"}", "{\"in put\": \"x\"}"},
    {"{\"input\": [1]}", "{\"input\": [1]}"},
    {"{ \"input\" : null}", "{ \"input\" : null}"},
    {"[1]", "[1]"},
};

/* However it is cut: in two, and byte by byte. */
static void custom_input_is_taken_out_of_its_arguments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        const char *const text = inputs[i].arguments;
        const size_t n = strlen(text);
        for (size_t cut = 0; cut <= n + 1; cut++) {
            rec_custom_input c;
            buf out;
            buf_init(&out, SIZE_MAX);
            rec_custom_init(&c);
            for (size_t k = 0; k < n;) {
                const size_t size = cut > n ? 1 : k == 0 && cut > 0 ? cut : n - k;
                assert_true(rec_custom_feed(&c, text + k, size, &out));
                k += size;
            }
            assert_true(rec_custom_end(&c, &out));
            if (out.size != strlen(inputs[i].input) || (out.size != 0 && memcmp(out.data, inputs[i].input, out.size) != 0)) {
                fail_msg("%s cut at %zu gives %.*s", text, cut, (int)out.size, out.size != 0 ? out.data : "");
            }
            rec_custom_fini(&c);
            buf_fini(&out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_end_in_any_order_and_the_last_one_shows_the_usage),
        cmocka_unit_test(choices_have_call_ids_of_their_own),
        cmocka_unit_test(a_failure_takes_the_place_of_the_finish),
        cmocka_unit_test(a_failure_may_come_before_everything_else),
        cmocka_unit_test(a_failed_response_shows_what_came),
        cmocka_unit_test(a_generation_cut_inside_a_call_is_an_error),
        cmocka_unit_test(a_failure_of_a_choice_ends_all),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(frames_are_server_sent_events),
        cmocka_unit_test(events_left_behind_are_not_lost),
        cmocka_unit_test(names_of_the_caller_may_hold_anything),
        cmocka_unit_test(a_completed_response_says_when),
        cmocka_unit_test(a_response_repeats_what_was_asked),
        cmocka_unit_test(log_probabilities_have_their_shortest_digits),
        cmocka_unit_test(custom_input_is_taken_out_of_its_arguments),
    };
    return cmocka_run_group_tests(tests, out_set_up_text, out_tear_down);
}
