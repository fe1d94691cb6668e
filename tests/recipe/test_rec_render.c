/* The worked examples of recipe.md 2.8, one by one: requests to whole prompts. And the seams that examples show best: what stands
 * before the first entry, what is written of a prefix, which text holds control tokens. */
#include "req_support.h"

static const di_recipe_options usual = {.thinking_off = false};

static const req_place chat = {DI_CHAT, REQ_V41, &usual};
static const req_place chat_v4 = {DI_CHAT, REQ_V4, &usual};
static const req_place responses = {DI_RESPONSES, REQ_V41, &usual};
static const req_place messages = {DI_MESSAGES, REQ_V41, &usual};

#define BOS "<｜begin▁of▁sentence｜>"
#define SCALE " (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
#define EFFORT(n) BOS "<｜System｜>Reasoning Effort: " n SCALE
#define THINKING "<｜Assistant｜><think>"
#define OFF "'thinking':{'type':'disabled'},"
#define DSML "｜DSML｜"

/* The tool instructions, with the names of block, call and parameter, and the schema lines. */
#define TOOLS(b, c, p, schemas)                                                                                                 \
    "\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing a "    \
    "\"<" DSML b ">\" block like the following:\n\n<" DSML b ">\n<" DSML c " name=\"$TOOL_NAME\">\n<" DSML p                      \
    " name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</" DSML p ">\n...\n</" DSML c ">\n<" DSML c                 \
    " name=\"$TOOL_NAME2\">\n...\n</" DSML c ">\n</" DSML b ">\n\nString parameters should be specified as is and set "           \
    "`string=\"true\"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set "         \
    "`string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "  \
    "<think>...</think> BEFORE any tool calls or final response.\n\nOtherwise, output directly after </think> with tool calls "   \
    "or final response.\n\n### Available Tool Schemas\n\n" schemas                                                                \
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
#define TOOLS41(schemas) TOOLS(" calls", " invoke", " parameter", schemas)
#define TOOLS4(schemas) TOOLS("tool_calls", "invoke", "parameter", schemas)

#define PARIS_41                                                                                                                \
    "\n\n<" DSML " calls>\n<" DSML " invoke name=\"get_weather\">\n<" DSML " parameter name=\"location\" string=\"true\">Paris</" \
    DSML " parameter>\n</" DSML " invoke>\n</" DSML " calls><｜end▁of▁sentence｜>"
#define PARIS_4                                                                                                                 \
    "\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"get_weather\">\n<" DSML "parameter name=\"location\" string=\"true\">Paris</" \
    DSML "parameter>\n</" DSML "invoke>\n</" DSML "tool_calls><｜end▁of▁sentence｜>"

static void expect(const req_place *place, const char *body, const char *prompt)
{
    req_read r = req_open(place, body);
    size_t n;
    const char *const got = di_request_prompt(r.request, &n);
    assert_int_equal(strlen(got), n);
    if (strcmp(got, prompt) != 0) {
        fail_msg("%s\n  gives %s\n  not   %s", body, got, prompt);
    }
    req_close(&r);
}

static void w1_a_greeting(void **state)
{
    (void)state;
    expect(&chat, "'messages':[{'role':'user','content':'Hello'}]", EFFORT("75") USER("Hello") THINKING);
    expect(&responses, "'input':'Hello'", EFFORT("75") USER("Hello") THINKING);
    expect(&messages, "'messages':[{'role':'user','content':'Hello'}]", EFFORT("75") USER("Hello") THINKING);
}

static void w2_a_system_text_without_thinking(void **state)
{
    (void)state;
    expect(&chat, OFF "'messages':[{'role':'system','content':'You are helpful.'},{'role':'user','content':'Hello'}]",
           BOS "<｜System｜>You are helpful." USER("Hello") END);
}

static void w3_effort(void **state)
{
    (void)state;
    expect(&chat, "'reasoning_effort':'max','messages':[{'role':'system','content':'sys'},{'role':'user','content':'Hi'}]",
           EFFORT("100") "sys" USER("Hi") THINKING);
    expect(&chat, "'reasoning_effort':'low','messages':[{'role':'user','content':'Hi'}]", EFFORT("50") USER("Hi") THINKING);
}

#define TWO_TOOLS                                                                                                               \
    OFF "'messages':[{'role':'user','content':'Weather in Paris?'}],'tools':[{'type':'function','function':{'name':'get_weather',"  \
        "'description':'Get weather','parameters':{'type':'object','properties':{'location':{'type':'string','description':"    \
        "'City'}},'required':['location'],'additionalProperties':false}}},{'type':'function','function':{'name':'get_time',"     \
        "'parameters':{'type':'object','properties':{}}}}],'tool_choice':"
#define WEATHER_LINE                                                                                                            \
    "{\"name\": \"get_weather\", \"description\": \"Get weather\", \"parameters\": {\"type\": \"object\", \"properties\": "      \
    "{\"location\": {\"type\": \"string\", \"description\": \"City\"}}, \"required\": [\"location\"], "                          \
    "\"additionalProperties\": false}}"
#define TIME_LINE "{\"name\": \"get_time\", \"description\": \"\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}"

static void w4_tools_and_their_choice(void **state)
{
    (void)state;
    const char *const both = BOS "<｜System｜>" TOOLS41(WEATHER_LINE "\n" TIME_LINE) USER("Weather in Paris?") END;
    expect(&chat, TWO_TOOLS "'auto'", both);
    expect(&chat, TWO_TOOLS "'required'", BOS "<｜System｜>" TOOLS41(WEATHER_LINE "\n" TIME_LINE) USER("Weather in Paris?") MUST_CALL);
    expect(&chat, TWO_TOOLS "{'type':'function','function':{'name':'get_time'}}",
           BOS "<｜System｜>" TOOLS41(TIME_LINE) USER("Weather in Paris?") MUST_CALL);
    expect(&chat, TWO_TOOLS "'none'", BOS USER("Weather in Paris?") END);
}

#define HISTORY                                                                                                                 \
    OFF "'messages':[{'role':'user','content':'Weather in Paris?'},{'role':'assistant','content':'','reasoning_content':'Need the " \
        "weather tool.','tool_calls':[{'id':'call_1','type':'function','function':{'name':'get_weather','arguments':'{\\\"location\\\": "   \
        "\\\"Paris\\\"}'}}]},{'role':'tool','tool_call_id':'call_1','content':'{\\\"temp\\\": 20}'}],'tools':[{'type':'function',"          \
        "'function':{'name':'get_weather','parameters':{'type':'object'}}}]"
#define PLAIN_WEATHER "{\"name\": \"get_weather\", \"description\": \"\", \"parameters\": {\"type\": \"object\"}}"

static void w5_w14_a_call_and_its_result(void **state)
{
    (void)state;
    expect(&chat, HISTORY,
           BOS "<｜System｜>" TOOLS41(PLAIN_WEATHER) USER("Weather in Paris?") "<｜Assistant｜></think>" PARIS_41
           USER(RESULT("{\"temp\": 20}")) END);
    expect(&chat_v4, HISTORY,
           BOS TOOLS4(PLAIN_WEATHER) USER("Weather in Paris?") "<｜Assistant｜></think>" PARIS_4
           USER(RESULT("{\"temp\": 20}")) END);
}

static void w6_images(void **state)
{
    (void)state;
    req_read r = req_open(&chat, "'messages':[{'role':'user','content':[{'type':'text','text':'What is this?'},{'type':'image_url',"
                                 "'image_url':{'url':'https://example.com/a.png','detail':'low'}},{'type':'image_url','image_url':"
                                 "{'url':'data:image/png;base64,AAAA'}}]}]");
    size_t n;
    assert_string_equal(di_request_prompt(r.request, NULL),
                        EFFORT("75") USER("What is this?\n\n<｜image｜>\n\n<｜image｜>") THINKING);
    const di_image_ref *const images = di_request_images(r.request, &n);
    assert_int_equal(n, 2);
    assert_int_equal(images[0].kind, DI_IMAGE_URL);
    assert_int_equal(images[0].detail, DI_DETAIL_LOW);
    assert_int_equal(images[1].kind, DI_IMAGE_DATA_URL);
    assert_int_equal(images[1].detail, DI_DETAIL_HIGH);
    assert_int_equal(images[1].size, strlen("data:image/png;base64,AAAA"));
    req_close(&r);
}

static void w7_an_answer_in_json(void **state)
{
    (void)state;
    const char *const body = "'messages':[{'role':'system','content':'Answer with json.'},{'role':'user','content':'Give me a "
                             "number'}],'response_format':{'type':'json_object'}";
    expect(&chat, body,
           EFFORT("75") "Answer with json.\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
           "{\"type\": \"json_object\"}" USER("Give me a number") THINKING);
    expect(&(req_place){DI_CHAT, REQ_V4, NULL}, body,
           BOS "Answer with json.\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON "
           "object ONLY." USER("Give me a number") END);
}

static void w8_a_reminder(void **state)
{
    (void)state;
    expect(&chat, "'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'y'},{'role':'latest_reminder','content':"
                  "'Be brief.'}]",
           EFFORT("75") USER("x") ANSWER("y") "<｜latest_reminder｜>Be brief." THINKING);
}

static void w9_responses_items(void **state)
{
    (void)state;
    expect(&responses, "'instructions':'Be concise.','input':[{'role':'user','content':'Hi'},{'type':'function_call','call_id':'c',"
                       "'name':'get_weather','arguments':'{\\\"location\\\": \\\"Paris\\\"}'},{'type':'function_call_output','call_id':'c',"
                       "'output':'20C'}]",
           EFFORT("75") "Be concise." USER("Hi") "<｜Assistant｜></think>" PARIS_41 USER(RESULT("20C")) THINKING);
}

static void w10_w11_messages_blocks(void **state)
{
    (void)state;
    expect(&messages, "'thinking':{'type':'enabled'},'messages':[{'role':'user','content':'Weather?'},{'role':'assistant','content':["
                      "{'type':'thinking','thinking':'Need tool.'},{'type':'tool_use','id':'t','name':'get_weather','input':"
                      "{'location':'Paris'}}]},{'role':'user','content':[{'type':'tool_result','tool_use_id':'t','content':'20C'}]}],"
                      "'tools':[{'name':'get_weather','input_schema':{'type':'object'}}]",
           EFFORT("75") TOOLS41(PLAIN_WEATHER) USER("Weather?") "<｜Assistant｜><think>Need tool.</think>" PARIS_41
           USER(RESULT("20C")) THINKING);
    expect(&messages, OFF "'system':[{'type':'text','text':'System A'},{'type':'text','text':'System B'}],'messages':[{'role':'user',"
                      "'content':'x'}]",
           BOS "<｜System｜>System A\n\nSystem B" USER("x") END);
}

static void w12_a_namespace(void **state)
{
    (void)state;
    const char *const body =
        "'reasoning':{'effort':'none'},'input':'Hi','tools':[{'type':'namespace','name':'weather','description':'Weather tools',"
        "'tools':[{'type':'function','name':'current','description':'Current weather','parameters':{'type':'object'}},{'type':"
        "'function','name':'forecast'}]}]";
    expect(&responses, body,
           BOS "<｜System｜>" TOOLS41("{\"name\": \"weather::current\", \"description\": \"Weather tools\\nCurrent weather\", "
                                      "\"parameters\": {\"type\": \"object\"}}\n{\"name\": \"weather::forecast\", \"description\": "
                                      "\"Weather tools\\n\", \"parameters\": {}}") USER("Hi") END);
}

#define V4_HIGH                                                                                                                 \
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\nYou MUST be very thorough in your thinking and "           \
    "comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all "        \
    "potential paths, edge cases, and adversarial scenarios.\nExplicitly write out your entire deliberation process, "           \
    "documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is " \
    "left unchecked.\n\n"

static void w13_the_older_version(void **state)
{
    (void)state;
    expect(&chat_v4, "'messages':[{'role':'user','content':'Hello'}]", BOS V4_HIGH USER("Hello") THINKING);
    expect(&chat_v4, OFF "'messages':[{'role':'system','content':'You are helpful.'},{'role':'user','content':'Hello'}]",
           BOS "You are helpful." USER("Hello") END);
    expect(&chat_v4, "'reasoning_effort':'low','messages':[{'role':'user','content':'Hello'}]", BOS USER("Hello") THINKING);
}

static void w15_a_later_system_text(void **state)
{
    (void)state;
    const char *const body = "'messages':[{'role':'user','content':'Hello'},{'role':'system','content':'Answer in French from now "
                             "on.'},{'role':'user','content':'Bonjour'}]";
    expect(&chat, body, EFFORT("75") USER("Hello") SYSTEM("Answer in French from now on.") USER("Bonjour") THINKING);
    expect(&chat_v4, body, BOS V4_HIGH "Answer in French from now on." USER("Hello\n\nBonjour") THINKING);
}

#define SUMS                                                                                                                    \
    "'messages':[{'role':'system','content':'sys'},{'role':'user','content':'What is 2+2?'},{'role':'assistant','content':"     \
    "'2 + 2 = 4.','reasoning_content':'Simple arithmetic.'},{'role':'user','content':'Thanks! And 3+3?'}]"

static void w16_reasoning_is_kept_with_tools_only(void **state)
{
    (void)state;
    expect(&chat, SUMS, EFFORT("75") "sys" USER("What is 2+2?") ANSWER("2 + 2 = 4.") USER("Thanks! And 3+3?") THINKING);
    expect(&chat, SUMS ",'tools':[{'type':'function','function':{'name':'get_weather','parameters':{'type':'object'}}}]",
           EFFORT("75") "sys" TOOLS41(PLAIN_WEATHER) USER("What is 2+2?")
           "<｜Assistant｜><think>Simple arithmetic.</think>2 + 2 = 4.<｜end▁of▁sentence｜>" USER("Thanks! And 3+3?") THINKING);
}

#define TWO_RESULTS                                                                                                             \
    OFF "'messages':[{'role':'user','content':'x'},{'role':'assistant','tool_calls':[{'id':'second','type':'function','function':"  \
        "{'name':'b','arguments':'{}'}},{'id':'first','type':'function','function':{'name':'a','arguments':'{}'}}]},{'role':'tool'," \
        "'tool_call_id':'first','content':'first result'},{'role':'tool','tool_call_id':'second','content':'second result'}]"

static void w17_results_in_the_order_of_their_calls(void **state)
{
    (void)state;
    expect(&chat, TWO_RESULTS,
           BOS USER("x") "<｜Assistant｜></think>" CALLS(CALL("b") "\n" CALL("a")) "<｜end▁of▁sentence｜>"
           USER(RESULT("second result") "\n\n" RESULT("first result")) END);
    req_expect_tail(&chat_v4, TWO_RESULTS, USER(RESULT("first result") "\n\n" RESULT("second result")) END);
}

/* ---- beyond the examples ---- */

static void a_prefix_is_left_open(void **state)
{
    (void)state;
    static const req_case thinking[] = {
        {"'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'a','reasoning_content':'r','prefix':true}]",
         USER("x") "<｜Assistant｜><think>r</think>a"},
        {"'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'','reasoning_content':'r','prefix':true}]",
         USER("x") "<｜Assistant｜><think>r"},
        {"'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'','prefix':true}]", USER("x") THINKING},
        {OFF "'messages':[{'role':'user','content':'x'},{'role':'assistant','content':'a','reasoning_content':'r','prefix':true}]",
         USER("x") "<｜Assistant｜></think>a"},
    };
    req_expect_tails(&chat, thinking, REQ_N(thinking));
}

static void arguments_that_are_no_object_are_one_parameter(void **state)
{
    (void)state;
    req_expect_tail(&(req_place){DI_CHAT, REQ_V41, NULL},
                    "'messages':[{'role':'user','content':'x'},{'role':'assistant','tool_calls':[{'id':'i','type':'function','function':"
                    "{'name':'f','arguments':'[1]'}}]},{'role':'tool','tool_call_id':'i','content':''}]",
                    CALLS("<" DSML " invoke name=\"f\">\n<" DSML " parameter name=\"arguments\" string=\"true\">[1]</" DSML
                          " parameter>\n</" DSML " invoke>") "<｜end▁of▁sentence｜>" USER(RESULT("")) END);
}

/* Control tokens of the text `marker` in the prompt of a body. */
static size_t count_marker(const req_place *place, const char *body, rec_marker marker)
{
    req_read r = req_open(place, body);
    size_t n = 0;
    for (size_t i = 0; i < r.request->n_ranges; i++) {
        const di_range range = r.request->ranges[i];
        const rec_str spelling = r.recipe->spelling[r.request->markers[i]];
        assert_int_equal(range.end - range.begin, spelling.size);
        assert_memory_equal(r.request->prompt.data + range.begin, spelling.data, spelling.size);
        n += r.request->markers[i] == marker ? 1 : 0;
    }
    req_close(&r);
    return n;
}

static void grounding_tokens_count_in_the_models_own_text(void **state)
{
    (void)state;
    const char *const body = "'messages':[{'role':'user','content':'<｜box｜>'},{'role':'assistant','content':'<｜box｜><｜boz｜><｜box｜"
                             "<｜box｜>'},{'role':'user','content':'<｜box｜>'}]";
    assert_int_equal(count_marker(&chat, body, REC_GROUND + 5), 2);
    assert_int_equal(count_marker(&chat_v4, body, REC_GROUND + 5), 2);
}

static void the_tool_instructions_have_their_control_tokens(void **state)
{
    (void)state;
    const char *const body = TWO_TOOLS "'auto'";
    assert_int_equal(count_marker(&chat, body, REC_DSML), 9);
    assert_int_equal(count_marker(&chat, body, REC_THINK), 2);
    assert_int_equal(count_marker(&chat, body, REC_END_THINK), 3); /* one is of the turn to come */
}

static void nul_bytes_are_text(void **state)
{
    (void)state;
    req_read r = req_open(&(req_place){DI_CHAT, REQ_V41, NULL}, "'messages':[{'role':'user','content':'a\\u0000b'}]");
    size_t n;
    const char *const prompt = di_request_prompt(r.request, &n);
    assert_memory_equal(prompt, BOS "<｜User｜>a\0b" END, sizeof(BOS "<｜User｜>a\0b" END) - 1);
    assert_int_equal(n, sizeof(BOS "<｜User｜>a\0b" END) - 1);
    req_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(w1_a_greeting),
        cmocka_unit_test(w2_a_system_text_without_thinking),
        cmocka_unit_test(w3_effort),
        cmocka_unit_test(w4_tools_and_their_choice),
        cmocka_unit_test(w5_w14_a_call_and_its_result),
        cmocka_unit_test(w6_images),
        cmocka_unit_test(w7_an_answer_in_json),
        cmocka_unit_test(w8_a_reminder),
        cmocka_unit_test(w9_responses_items),
        cmocka_unit_test(w10_w11_messages_blocks),
        cmocka_unit_test(w12_a_namespace),
        cmocka_unit_test(w13_the_older_version),
        cmocka_unit_test(w15_a_later_system_text),
        cmocka_unit_test(w16_reasoning_is_kept_with_tools_only),
        cmocka_unit_test(w17_results_in_the_order_of_their_calls),
        cmocka_unit_test(a_prefix_is_left_open),
        cmocka_unit_test(arguments_that_are_no_object_are_one_parameter),
        cmocka_unit_test(grounding_tokens_count_in_the_models_own_text),
        cmocka_unit_test(the_tool_instructions_have_their_control_tokens),
        cmocka_unit_test(nul_bytes_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
