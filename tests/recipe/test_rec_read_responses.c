/* Tests of rec_read_responses.c and the rec_responses_*.c: what recipe.md 3.4 asks for beyond the vectors. */
#include "req_support.h"

static const req_place here = {DI_RESPONSES, REQ_V41, NULL};
static const req_place v4 = {DI_RESPONSES, REQ_V4, NULL};
static const di_recipe_options thinking_options = {.thinking_off = false};
static const req_place thinking = {DI_RESPONSES, REQ_V41, &thinking_options};

#define ASK "{'role':'user','content':'q'},"
#define FC(id, name) "{'type':'function_call','call_id':'" id "','name':'" name "','arguments':'{}'},"
#define SPACED(id, space, name) \
    "{'type':'function_call','call_id':'" id "','namespace':'" space "','name':'" name "','arguments':'{}'},"
#define FO(id, text) "{'type':'function_call_output','call_id':'" id "','output':'" text "'},"
#define SEARCH(id) "{'type':'tool_search_call','call_id':'" id "','arguments':{}},"
#define FOUND(id, tools) "{'type':'tool_search_output','call_id':'" id "','tools':[" tools "]},"
#define REASON(text) "{'type':'reasoning','content':[{'type':'reasoning_text','text':'" text "'}]},"
#define SAY(role, text) "{'role':'" role "','content':'" text "'},"
#define INPUT(items) "'input':[" items "{'type':'ignored'}]"
#define F(name) "{'type':'function','name':'" name "'}"
#define NS(name, tools) "{'type':'namespace','name':'" name "','tools':[" tools "]}"

/* ---- calls and outputs ---- */

static void later_outputs_move_next_to_their_calls(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {INPUT(ASK FC("c", "f") SAY("user", "x") FO("c", "o")),
         USER("q") ANSWER(CALLS(CALL("f"))) USER(RESULT("o")) "\n\nx" END},
        {INPUT(ASK FC("c", "f") SAY("system", "x") FO("c", "o") SAY("user", "y")),
         USER("q") ANSWER(CALLS(CALL("f"))) USER(RESULT("o")) SYSTEM("x") USER("y") END},
        {INPUT(ASK FC("c", "f") SAY("assistant", "x") FO("c", "o")),
         USER("q") ANSWER(CALLS(CALL("f"))) USER(RESULT("o")) ANSWER("x") END},
        {INPUT(ASK FC("b", "f") FC("a", "g") FO("a", "1") SAY("user", "x") FO("b", "2")),
         USER("q") ANSWER(CALLS(CALL("g") "\n" CALL("f"))) USER(RESULT("1")) "\n\n" RESULT("2") "\n\nx" END},
        {INPUT(ASK FC("a", "f") SAY("user", "x") FC("b", "g") FO("b", "2") FO("a", "1")),
         USER("q") ANSWER(CALLS(CALL("f"))) USER(RESULT("1")) "\n\nx" ANSWER(CALLS(CALL("g"))) USER(RESULT("2")) END},
        {INPUT(ASK FC("a", "f") SAY("user", "x") FC("b", "g") SAY("user", "y") FO("a", "1") FO("b", "2")),
         USER("q") ANSWER(CALLS(CALL("f"))) USER(RESULT("1")) "\n\nx" ANSWER(CALLS(CALL("g"))) USER(RESULT("2")) "\n\ny" END},
        {INPUT(ASK SEARCH("s") SAY("user", "x") FOUND("s", F("h"))),
         RESULT("[{\"type\":\"function\",\"name\":\"h\",\"description\":null,\"parameters\":null,\"strict\":null}]")
             NEWS(SCHEMA("h")) USER("x") END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
    req_expect_tail(&thinking, INPUT(ASK FC("c", "f") REASON("r") FO("c", "o")) ",'tools':[" F("f") "]",
                    USER("q") "<｜Assistant｜><think></think>" CALLS(CALL("f")) "<｜end▁of▁sentence｜>" USER(RESULT("o"))
                    "<｜Assistant｜><think>r</think><｜end▁of▁sentence｜><｜Assistant｜><think>");
}

static void calls_and_outputs_must_pair(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {INPUT(FO("a", "")FC("a", "f")), "No tool call found for tool output with call_id a."},
        {INPUT(FC("a", "f") SAY("user", "x")), "No tool output found for tool call a."},
        {INPUT(FC("b", "f") FC("a", "f")), "No tool output found for tool call a."},
        {INPUT(FC("b", "f") FC("a", "f") FO("a", "")), "No tool output found for tool call b."},
        {INPUT(FC("a", "f") SAY("user", "x") FO("a", "1") FO("a", "2")), "Duplicate tool output for call_id: a."},
        {INPUT(FC("a", "f") FO("a", "1") FC("a", "f") FO("a", "2")), "Duplicate 'call_id': a."},
        {INPUT(FC("a", "f") FO("", "1")),
         "Invalid 'input[1].call_id': empty string. Expected a string with minimum length 1, but got an empty string instead."},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
}

static void any_kind_of_output_answers_any_kind_of_call(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {INPUT("{'type':'custom_tool_call','call_id':'a','name':'p','input':'i\\n'}," FO("a", "o")),
         "<｜DSML｜ parameter name=\"input\" string=\"true\">i\n</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
         "</｜DSML｜ calls><｜end▁of▁sentence｜>" USER(RESULT("o")) END},
        {INPUT(FC("a", "f") "{'type':'custom_tool_call_output','call_id':'a'},"), ANSWER(CALLS(CALL("f"))) USER(RESULT("")) END},
        {INPUT(SEARCH("a") FO("a", "o")), ANSWER(CALLS(CALL("tool_search"))) USER(RESULT("o")) END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
}

/* ---- turns of the assistant ---- */

static void answers_and_reasoning_join_in_one_turn(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {INPUT(SAY("assistant", "") SAY("assistant", "x")), ANSWER("x") END},
        {INPUT(SAY("assistant", "x") SAY("assistant", "")), ANSWER("x") END},
        {INPUT("{'role':'assistant','content':[]}," SAY("assistant", "x")), ANSWER("x") END},
        {INPUT("{'role':'assistant','content':[{'type':'output_text','text':''},{'type':'output_text','text':''}]},"
               SAY("assistant", "x")), ANSWER("\n\n\n\nx") END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
#define TURN(reasoning, text) "<｜Assistant｜><think>" reasoning "</think>" text "<｜end▁of▁sentence｜>"
#define TOOL ",'tools':[" F("f") "]"
    static const req_case thoughts[] = {
        {INPUT(REASON("1") SAY("assistant", "") REASON("2") SAY("assistant", "x")) TOOL, TURN("1\n2", "x") "<｜Assistant｜><think>"},
        {INPUT(REASON("1") REASON("") REASON("2")) TOOL, TURN("1\n2", "") "<｜Assistant｜><think>"},
        {INPUT("{'type':'reasoning','content':[{'text':''},{'text':'b'}]},") TOOL, TURN("\nb", "") "<｜Assistant｜><think>"},
        {INPUT(SAY("assistant", "x") REASON("2") FC("c", "f") FO("c", "o") SAY("assistant", "y")) TOOL,
         TURN("", "x") TURN("2", CALLS(CALL("f"))) USER(RESULT("o")) TURN("", "y") "<｜Assistant｜><think>"},
    };
    req_expect_tails(&thinking, thoughts, REQ_N(thoughts));
}

static void reasoning_must_come_back_where_it_is_asked_for(void **state)
{
    (void)state;
#define LOST "The `reasoning_text` in the thinking mode must be passed back to the API."
    static const di_recipe_options options = {.reject_missing_reasoning = true};
    const req_place strict = {DI_RESPONSES, REQ_V41, &options};
    static const req_case faults[] = {
        {INPUT(ASK FC("c", "f") FO("c", "")), LOST},
        {INPUT(ASK REASON("r") FC("c", "f") FO("c", "") FC("d", "f") FO("d", "")), LOST},
        {INPUT(ASK SAY("assistant", "a")) TOOL, LOST},
        {INPUT(ASK SAY("assistant", "a")) TOOL ",'tool_choice':'none'", LOST},
        {INPUT(ASK SAY("assistant", "a") SAY("system", "s")) TOOL, LOST},
    };
    static const char *const fine[] = {
        INPUT(ASK SAY("assistant", "a")), /* without tools and calls */
        INPUT(ASK FC("call_00_ET_x", "f") FO("call_00_ET_x", "")),
        INPUT(ASK FC("c", "f") FO("c", "") SAY("user", "x")) TOOL,
        INPUT(ASK SAY("assistant", "a")) TOOL ",'reasoning':{'effort':'none'}",
    };
    req_expect_errors(&strict, faults, REQ_N(faults));
    for (size_t i = 0; i < REQ_N(fine); i++) {
        req_read r = req_open(&strict, fine[i]);
        req_close(&r);
    }
}

/* ---- tools ---- */

static void a_search_may_bring_declared_tools_along(void **state)
{
    (void)state;
#define G_SCHEMA "{\"name\": \"g\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"minProperties\": 1}}"
#define G "{'type':'function','name':'g','description':'d','parameters':{'type':'object','minProperties':1}"
    req_expect_tail(&here, INPUT(ASK SEARCH("s") FOUND("s", G "}")) ",'tools':[" G ",'defer_loading':true}]", NEWS(G_SCHEMA) END);
    req_expect_schemas(&here, INPUT(ASK SEARCH("s") FOUND("s", G "}")) ",'tools':[" G "}]", G_SCHEMA);
    req_expect_listed(&here, INPUT(SEARCH("s") FOUND("s", G "}," F("h"))) ",'tools':[" G "}]", "g h*");
    req_expect_listed(&here, INPUT(SEARCH("s") FOUND("s", F("h")) SEARCH("t") FOUND("t", F("h"))), "h*");
    req_expect_listed(&here, INPUT(SEARCH("s") FOUND("s", "{'type':'custom','name':'apply_patch'}"))
                      ",'tools':[{'type':'custom','name':'apply_patch'}]", "apply_patch");
    static const req_case others[] = {
        {INPUT(SEARCH("s") FOUND("s", "{'type':'function','name':'g','description':'e'}")), "Tool names must be unique."},
        {INPUT(SEARCH("s") FOUND("s", F("g"))), "Tool names must be unique."},
        {INPUT(SEARCH("s") FOUND("s", "{'type':'function','name':'g','description':'d','parameters':{'type':'object',"
                                      "'minProperties':1.0}}")), "Tool names must be unique."},
        {INPUT(SEARCH("s") FOUND("s", "{'type':'function','name':'g','description':'d','parameters':{'type':'object'}}")),
         "Tool names must be unique."},
    };
    for (size_t i = 0; i < REQ_N(others); i++) {
        char body[1024];
        snprintf(body, sizeof body, "%s,'tools':[%s}]", others[i].body, G);
        req_expect_error(&here, body, DI_E_ARGUMENT, others[i].expected);
    }
}

static void what_a_search_found_is_its_result(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {INPUT(SEARCH("s") FOUND("s", "{'type':'web_search','filters':{}},{'type':'custom','name':'apply_patch','format':1}")) ,
         "[{\"type\":\"web_search\",\"search_context_size\":null,\"user_location\":null},{\"type\":\"custom\",\"name\":\"apply_patch\"}]"},
        {INPUT(SEARCH("s") FOUND("s", "{'type':'tool_search','description':'d'}")),
         "[{\"type\":\"tool_search\",\"execution\":null,\"description\":\"d\",\"parameters\":null}]"},
        {INPUT(SEARCH("s") FOUND("s", NS("n", "{'type':'function','name':'a','strict':false,'x':1}") "," NS("e", ""))),
         "[{\"type\":\"function\",\"name\":\"a\",\"description\":null,\"parameters\":null,\"strict\":false,"
         "\"namespace\":{\"name\":\"n\",\"description\":\"\"}}]"},
        {INPUT(SEARCH("s") FOUND("s", "{'type':'mcp','a':[1.50]}")), "[{\"type\":\"mcp\",\"a\":[1.5]}]"},
    };
    for (size_t i = 0; i < REQ_N(cases); i++) {
        char body[1024];
        char tail[512];
        snprintf(body, sizeof body, "%s,'tool_choice':'none'", cases[i].body); /* nothing announced behind it */
        snprintf(tail, sizeof tail, "<tool_result>%s</tool_result>" END, cases[i].expected);
        req_expect_tail(&here, body, tail);
    }
}

#define ALLOW(mode, names) ",'tool_choice':{'type':'allowed_tools','mode':'" mode "','tools':[" names "]}"

/* Found tools too; the prompt stays as it is. */
static void allowed_tools_narrow_the_choice(void **state)
{
    (void)state;
    static const char both[] = "'input':'x','tools':[" F("f") ",{'type':'custom','name':'apply_patch'}]";
    req_read all = req_open(&here, both);
    req_read some = req_open(&here, "'input':'x','tools':[" F("f") ",{'type':'custom','name':'apply_patch'}]"
                                    ALLOW("auto", "{'type':'custom','name':'apply_patch'}"));
    size_t n;
    size_t n_some;
    const char *const prompt = di_request_prompt(all.request, &n);
    const char *const same = di_request_prompt(some.request, &n_some);
    assert_int_equal(n, n_some);
    assert_memory_equal(prompt, same, n);
    req_close(&all);
    req_close(&some);
    req_expect_listed(&here, both, "f apply_patch");
    req_expect_listed(&here, "'input':'x','tools':[" F("f") "," F("g") "]" ALLOW("required", F("g")), "g");
    req_expect_error(&here, "'input':'x','tools':[" F("g") "]" ALLOW("auto", F("h")), DI_E_ARGUMENT,
                     "Invalid value for 'tool_choice': no function named 'h' was specified in the 'tools' parameter.");
}

static void announcements_follow_the_choice(void **state)
{
    (void)state;
#define TWO SEARCH("s") FOUND("s", F("h") "," F("i")) SEARCH("t") FOUND("t", F("k"))
#define NAMED(name) ",'tool_choice':{'type':'function','name':'" name "'}"
#define FOUND_H_I "[{\"type\":\"function\",\"name\":\"h\",\"description\":null,\"parameters\":null,\"strict\":null}," \
    "{\"type\":\"function\",\"name\":\"i\",\"description\":null,\"parameters\":null,\"strict\":null}]"
#define FOUND_K "[{\"type\":\"function\",\"name\":\"k\",\"description\":null,\"parameters\":null,\"strict\":null}]"
    static const req_case cases[] = {
        {INPUT(TWO) NAMED("i"), RESULT(FOUND_H_I) NEWS(SCHEMA("i")) ANSWER(CALLS(CALL("tool_search"))) USER(RESULT(FOUND_K)) MUST_CALL},
        {INPUT(TWO) NAMED("k"), RESULT(FOUND_H_I) ANSWER(CALLS(CALL("tool_search"))) USER(RESULT(FOUND_K)) NEWS(SCHEMA("k")) MUST_CALL},
        {INPUT(TWO) ",'tool_choice':'none'", RESULT(FOUND_H_I) ANSWER(CALLS(CALL("tool_search"))) USER(RESULT(FOUND_K)) END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
    req_expect_listed(&here, INPUT(TWO) NAMED("k"), "k*");
    req_expect_listed(&here, INPUT(TWO) ",'tools':[" F("f") "]" NAMED("f"), "f");
    req_expect_listed(&here, INPUT(TWO) ",'tools':[" F("f") "]", "f h* i* k*");
}

static void members_of_namespaces_get_names_of_their_own(void **state)
{
    (void)state;
    static const req_case in_v41[] = {
        {"'input':'x','tools':[" NS("a", F("b")) "," NS("a", F("b")) "," NS("a", F("b_1")) "]", "a::b a::b_1 a::b_1_1"},
        {INPUT(SEARCH("s") FOUND("s", NS("a", F("b")))) ",'tools':[" NS("a", F("b")) "]", "a::b a::b_1*"},
    };
    static const req_case in_v4[] = {
        {"'input':'x','tools':[" NS("a", F("b")) "," F("a__b") "," NS("a", F("b_1")) "," NS("a", F("b")) "]",
         "a__b_1 a__b a__b_1_1 a__b_2"},
        {"'input':'x','tools':[" NS("a_", F("b")) "," NS("a", F("_b")) "," NS("a__", F("b")) "]", "a_b a_b_1 a__b"},
        {"'input':'x','tools':[" F("a__b_1") "," NS("a", F("b")) "," F("a__b") "]", "a__b_1 a__b_2 a__b"},
    };
    for (size_t i = 0; i < REQ_N(in_v41); i++) {
        req_expect_listed(&here, in_v41[i].body, in_v41[i].expected);
    }
    for (size_t i = 0; i < REQ_N(in_v4); i++) {
        req_expect_listed(&v4, in_v4[i].body, in_v4[i].expected);
    }
}

static void historical_calls_use_the_declared_name(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {INPUT(SPACED("1", "a", "b") FO("1", "")) ",'tools':[" NS("a", F("b")) "," NS("a", F("b")) "]",
         ANSWER(CALLS(CALL("a::b"))) USER(RESULT("")) END},
        {INPUT(SPACED("1", "", "b") FO("1", "")), ANSWER(CALLS(CALL("::b"))) USER(RESULT("")) END},
        {INPUT(SPACED("1", "g", "b") FC("2", "b") FO("1", "") FO("2", "")),
         ANSWER(CALLS(CALL("g::b") "\n" CALL("b"))) USER(RESULT("")) "\n\n" RESULT("") END},
        {INPUT(SPACED("1", "a:", "b") SPACED("2", "a", ":b") SPACED("3", "a", ":b") FO("1", "") FO("2", "") FO("3", "")),
         ANSWER(CALLS(CALL("a:::b") "\n" CALL("a:::b_1") "\n" CALL("a:::b_1")))
             USER(RESULT("")) "\n\n" RESULT("") "\n\n" RESULT("") END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
    req_expect_tail(&v4, INPUT(SPACED("1", "q", "r") FO("1", "")) ",'tools':[" F("q__r") "]",
                    "<｜DSML｜invoke name=\"q__r_1\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls><｜end▁of▁sentence｜>" USER(RESULT("")) END);
}

static void v4_leaves_the_description_of_a_namespace_out(void **state)
{
    (void)state;
#define SAID "'input':'x','tools':[{'type':'namespace','name':'n','description':'D','tools':[{'type':'function','name':'f'}]}]"
    req_expect_schemas(&here, SAID, "{\"name\": \"n::f\", \"description\": \"D\\n\", \"parameters\": {}}");
    req_expect_schemas(&v4, SAID, SCHEMA("n__f"));
}

static void v4_knows_no_tool_search(void **state)
{
    (void)state;
    req_expect_listed(&v4, "'input':'x','tools':[{'type':'tool_search','execution':'client'}," F("f") "]", "f");
    req_expect_tail(&v4, INPUT(ASK SEARCH("s") FOUND("s", F("a"))), USER("q") END);
    req_expect_error(&v4, INPUT(SEARCH("s") FO("s", "")), DI_E_ARGUMENT, "No tool call found for tool output with call_id s.");
    req_expect_error(&v4, INPUT(FC("s", "f") FOUND("s", "")), DI_E_ARGUMENT, "No tool output found for tool call s.");
}

static void strict_and_other_tools_may_be_mixed(void **state)
{
    (void)state;
    req_expect_listed(&here, "'input':'x','tools':[{'type':'function','name':'f','strict':true,'parameters':{'type':'object',"
                             "'properties':{}}}," F("g") ",{'type':'custom','name':'apply_patch'}]", "f g apply_patch");
}

/* What writers split names by. */
static void declared_tools_tell_what_they_are(void **state)
{
    (void)state;
    req_read r = req_open(&here, INPUT(SEARCH("s") FOUND("s", NS("b", F("m")))) ",'tools':[{'type':'tool_search','execution':'client'},"
                          "{'type':'custom','name':'apply_patch'}," NS("a", F("m")) "," F("f") ",{'type':'mcp'}],'tool_choice':'none'");
    const di_request *const request = r.request;
    assert_int_equal(request->n_declared, 5);
    const rec_tool *const *const tools = (const rec_tool *const *)request->declared;
    assert_true(tools[0]->search && !tools[0]->custom && tools[0]->space.size == 0);
    assert_string_equal(tools[0]->name.data, "tool_search");
    assert_true(tools[1]->custom && !tools[1]->search);
    assert_string_equal(tools[1]->name.data, "apply_patch");
    assert_string_equal(tools[2]->name.data, "a::m");
    assert_string_equal(tools[2]->space.data, "a");
    assert_string_equal(tools[2]->member.data, "m");
    assert_true(!tools[2]->deferred && !tools[2]->custom);
    assert_string_equal(tools[3]->name.data, "f");
    assert_int_equal(tools[3]->space.size, 0);
    assert_string_equal(tools[4]->name.data, "b::m");
    assert_string_equal(tools[4]->space.data, "b");
    assert_true(tools[4]->deferred);
    assert_int_equal(request->talk.n_tools, 0);
    req_close(&r);
}

/* ---- images ---- */

static void images_have_their_place_in_messages(void **state)
{
    (void)state;
#define IMG(fields) "{'type':'input_image'" fields "}"
#define OUT(blocks) FC("a", "f") "{'type':'function_call_output','call_id':'a','output':[" blocks "]},"
    static const req_case cases[] = {
        {INPUT(OUT("{'type':'input_text','text':''}," IMG(",'file_id':'x'"))),
         "input[1].output[1]: file_id is not supported. Pass the image as a base64 data url instead."},
        {INPUT(OUT(IMG(",'image_url':''"))), "input[1].output[0]: input_image must have image_url or file_id"},
        {INPUT(OUT(IMG(",'image_url':'a','file_id':''"))), "input[1].output[0]: input_image cannot have both image_url and file_id"},
        {INPUT("{'role':'assistant','content':[" IMG(",'image_url':'ftp:x'") "]},"),
         "input[0]: Image in assistant message is unsupported"},
        {INPUT("{'role':'assistant','content':[" IMG("") "]},"), "input[0].content[0]: input_image must have image_url or file_id"},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
    for (size_t i = 0; i < REQ_N(cases); i++) { /* V4 looks at none */
        req_read r = req_open(&v4, cases[i].body);
        assert_non_null(strstr(di_request_prompt(r.request, NULL), "[Unsupported Image]"));
        req_close(&r);
    }
    char *const body = malloc(9100);
    assert_non_null(body);
    snprintf(body, 9100, INPUT("{'role':'user','content':[" IMG(",'image_url':'http%08193d'") "]},"), 0);
    req_expect_error(&here, body, DI_E_ARGUMENT,
                     "input[0].content[0]: image_url external link length 8197 too long, max link length 8192. Consider passing file "
                     "data directly with base64 data url instead.");
    free(body);
}

/* ---- faults ---- */

static void the_first_of_several_faults_is_reported(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {"'input':[],'tools':[" F("a b") "],'temperature':3",
         "Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."},
        {"'input':[],'tools':[" F("g") "," F("g") "],'temperature':3", "Input items array must not be empty"},
        {"'input':'x','tools':[" F("g") "," F("g") "],'temperature':3", "Tool names must be unique."},
        {"'input':'x','tools':[" F("g") "],'tool_choice':{'type':'function','name':'h'},'temperature':3",
         "Invalid value for 'tool_call': no function named 'h' was specified in the 'tools' parameter."},
        {"'input':'x','temperature':3,'text':{'format':{'type':'json_object'}}",
         "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'."},
        {"'input':'x','temperature':3,'top_logprobs':21", "Invalid temperature value, the valid range of temperature is [0, 2]"},
        {"'input':'x','max_output_tokens':0,'top_logprobs':21",
         "Invalid top_logprobs value, the valid range of top_logprobs is [0, 20]."},
        {"'input':'x','tools':[{'type':'namespace','name':'n','tools':[{'type':'function','name':'a b'}]}]",
         "Invalid 'tools[0].tools[0].name': string does not match pattern. Expected a string that matches the pattern "
         "'^[a-zA-Z0-9_-]+$'."},
        {INPUT(SEARCH("s") FOUND("s", F(""))) ",'tool_choice':'none'",
         "Invalid 'input[1].tools[0].name': empty string. Expected a string with minimum length 1, but got an empty string instead."},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
    static const di_recipe_options no_search = {.thinking_off = true, .reject_responses_web_search = true};
    const req_place strict = {DI_RESPONSES, REQ_V41, &no_search};
    req_expect_error(&strict, "'input':'x','tool_choice':{'type':'web_search'}", DI_E_ARGUMENT, "Server tools are not supported");
}

static void unchosen_tools_are_not_checked(void **state)
{
    (void)state;
    req_expect_tail(&here, "'input':'x','tools':[" F("g") "," F("g") ",{'type':'function','name':'h','parameters':{}}],"
                           "'tool_choice':'none'", USER("x") END);
}

static void forms_are_refused_with_their_path(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {"'input':5", "input"},
        {"'input':[5]", "input[0]"},
        {"'input':[{}]", "input[0].role"},
        {"'input':[{'type':null,'role':'user','content':''}]", "input[0]"},
        {"'input':[{'role':'user'}]", "input[0].content"},
        {"'input':[{'role':'user','content':[{'type':'text'}]}]", "input[0].content[0].type"},
        {"'input':[{'role':'user','content':[{'type':'input_text'}]}]", "input[0].content[0].text"},
        {"'input':[{'type':'reasoning','content':'x'}]", "input[0].content"},
        {"'input':[{'type':'reasoning','content':[{}]}]", "input[0].content[0].text"},
        {"'input':[{'type':'function_call','call_id':'a','name':'f','arguments':{}}]", "input[0].arguments"},
        {"'input':[{'type':'function_call','name':'f','arguments':''}]", "input[0].call_id"},
        {"'input':[{'type':'tool_search_call','call_id':'a','arguments':'{}'}]", "input[0].arguments"},
        {"'input':[{'type':'tool_search_call','call_id':'a'}]", "input[0].arguments"},
        {"'input':[{'type':'tool_search_call','call_id':'a','arguments':{},'execution':'x'}]", "input[0].execution"},
        {INPUT(SEARCH("a") "{'type':'tool_search_output','call_id':'a'},"), "input[1].tools"},
        {INPUT(SEARCH("a") "{'type':'tool_search_output','call_id':'a','tools':null},"), "input[1].tools"},
        {INPUT(SEARCH("a") FOUND("a", "{}")), "input[1].tools[0].type"},
        {INPUT(FC("a", "f") "{'type':'function_call_output','call_id':'a'},"), "input[1].output"},
        {INPUT(FC("a", "f") "{'type':'function_call_output','call_id':'a','output':[{'type':'output_text','text':''}]},"),
         "input[1].output[0].type"},
        {"'input':'x','tools':{}", "tools"},
        {"'input':'x','tools':[5]", "tools[0].type"},
        {"'input':'x','tools':[{'type':'namespace','name':'n'}]", "tools[0].tools"},
        {"'input':'x','tools':[{'type':'namespace','name':'n','tools':[{'type':'web_search'}]}]", "tools[0].tools[0].type"},
        {"'input':'x','tools':[{'type':'function','name':'f','strict':1}]", "tools[0].strict"},
        {"'input':'x','tool_choice':'any'", "tool_choice"},
        {"'input':'x','tool_choice':5", "tool_choice"},
        {"'input':'x','tool_choice':{'type':'some_tools'}", "tool_choice.type"},
        {"'input':'x','tool_choice':{'type':'allowed_tools'}", "tool_choice.mode"},
        {"'input':'x','tool_choice':{'type':'allowed_tools','mode':'none'}", "tool_choice.mode"},
        {"'input':'x','tool_choice':{'type':'allowed_tools','mode':'auto'}", "tool_choice.tools"},
        {"'input':'x','tool_choice':{'type':'allowed_tools','mode':'auto','tools':[]}", "tool_choice.tools"},
        {"'input':'x','tool_choice':{'type':'allowed_tools','mode':'auto','tools':[5]}", "tool_choice.tools[0]"},
        {"'input':'x','tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':'mcp'}]}", "tool_choice.tools[0].type"},
        {"'input':'x','tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':'function'}]}", "tool_choice.tools[0].name"},
        {"'input':'x','text':{'verbosity':'x'}", "text.verbosity"},
        {"'input':'x','text':{'format':{'type':'json_schema','schema':{}}}", "text.format.name"},
        {"'input':'x','text':{'format':{'type':'json_schema','name':'n'}}", "text.format.schema"},
        {"'input':'x','reasoning':{'effort':50}", "reasoning.effort"},
        {"'input':'x','reasoning':{'summary':'x'}", "reasoning.summary"},
        {"'input':'x','user':5", "user"},
        {"'input':'x','instructions':5", "instructions"},
        {"'input':'x','top_logprobs':2.0", "top_logprobs"},
    };
    req_expect_bad_forms(&here, cases, REQ_N(cases));
}

/* ---- size ---- */

static void memory_may_end_anywhere(void **state)
{
    (void)state;
#define RICH INPUT(ASK SAY("developer", "d") REASON("1") REASON("2") SPACED("c", "n", "m") SEARCH("s") \
    "{'type':'custom_tool_call','call_id':'p','name':'apply_patch','input':'x'}," REASON("3") \
    FOUND("s", F("a") "," NS("n", F("m")) ",{'type':'custom','name':'apply_patch'}") FO("c", "o") \
    "{'type':'custom_tool_call_output','call_id':'p','output':[{'type':'input_text','text':'t'}," \
    "{'type':'input_image','image_url':'https://example.org/'}]}," SAY("assistant", "1") SAY("assistant", "2")) \
    ",'tools':[" NS("n", F("m") "," F("k")) ",{'type':'custom','name':'apply_patch'}],'instructions':'i'"
    req_expect_bounded(&here, RICH);
    req_expect_bounded(&v4, RICH);
}

enum { MANY = 10000 };

/* Reads `n` repeats of a pattern whose %d are the number, wrapped in an input list. */
static req_read read_many(const char *head, const char *first, const char *second, bool second_backwards, const char *tail)
{
    buf b;
    buf_init(&b, SIZE_MAX);
    buf_puts(&b, head);
    for (int i = 0; i < MANY; i++) {
        buf_printf(&b, first, i, i);
    }
    for (int i = 0; second != NULL && i < MANY; i++) {
        buf_printf(&b, second, second_backwards ? MANY - 1 - i : i);
    }
    buf_puts(&b, tail);
    assert_false(b.failed);
    req_read r = req_open(&here, b.data);
    buf_fini(&b);
    return r;
}

static size_t count_messages(const di_request *r, rec_role role)
{
    size_t n = 0;
    for (const rec_message *m = r->talk.first; m != NULL; m = m->next) {
        n += m->role == role ? 1 : 0;
    }
    return n;
}

static void many_calls_pair_in_any_order(void **state)
{
    (void)state;
    req_read r = read_many("'input':[", FC("c%d", "f"), FO("c%d", "o"), true, "{'type':'ignored'}]");
    assert_int_equal(count_messages(r.request, REC_ASSISTANT), 1);
    assert_int_equal(r.request->talk.first->n_calls, MANY);
    assert_string_equal(r.request->talk.first->calls[2].id.data, "c10");
    assert_int_equal(count_messages(r.request, REC_TOOL), MANY);
    req_close(&r);
    r = read_many("'input':[", FC("c%d", "f") SAY("user", "%d"), FO("c%d", "o"), true, "{'type':'ignored'}]");
    assert_int_equal(count_messages(r.request, REC_ASSISTANT), MANY);
    assert_int_equal(count_messages(r.request, REC_TOOL), MANY);
    req_close(&r);
}

static void many_namespaces_may_clash(void **state)
{
    (void)state;
    req_read r = read_many("'input':'x','tools':[", NS("n", F("f")) ",", NULL, false, "{'type':'ignored'}]");
    assert_int_equal(r.request->n_declared, MANY);
    assert_string_equal(r.request->declared[0]->name.data, "n::f");
    assert_string_equal(r.request->declared[MANY - 1]->name.data, "n::f_9999");
    req_close(&r);
    r = read_many("'input':'x','tools':[", NS("n", F("f")) "," NS("n", F("f_%d")) ",", NULL, false, "{'type':'ignored'}]");
    assert_int_equal(r.request->n_declared, 2 * MANY);
    req_close(&r);
}

static void many_reasoning_items_join(void **state)
{
    (void)state;
    req_read r = read_many("'input':[", REASON("%d"), NULL, false, "{'type':'ignored'}]");
    assert_int_equal(count_messages(r.request, REC_ASSISTANT), 1);
    assert_int_equal(r.request->talk.first->reasoning.size, 10 + 90 * 2 + 900 * 3 + 9000 * 4 + MANY - 1);
    req_close(&r);
}

static void many_searches_redeclare_one_large_tool(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, SIZE_MAX);
    buf_puts(&b, "'tools':[{'type':'function','name':'g','parameters':{'type':'object','required':[");
    for (int i = 0; i < MANY; i++) {
        buf_printf(&b, "'p%d',", i);
    }
    buf_puts(&b, "'q'],'x':[]}}],'tool_choice':'none','input':[");
    for (int i = 0; i < MANY; i++) {
        buf_printf(&b, SEARCH("s%d") FOUND("s%d", "{'type':'function','name':'g','parameters':{'type':'object',"
                                                  "'required':['p0'],'x':[]}}"), i, i);
    }
    buf_puts(&b, "{'type':'ignored'}]");
    assert_false(b.failed);
    req_read r = req_open(&here, b.data);
    assert_int_equal(r.request->n_declared, MANY + 1);
    req_close(&r);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allowed_tools_narrow_the_choice),
        cmocka_unit_test(later_outputs_move_next_to_their_calls),
        cmocka_unit_test(calls_and_outputs_must_pair),
        cmocka_unit_test(any_kind_of_output_answers_any_kind_of_call),
        cmocka_unit_test(answers_and_reasoning_join_in_one_turn),
        cmocka_unit_test(reasoning_must_come_back_where_it_is_asked_for),
        cmocka_unit_test(a_search_may_bring_declared_tools_along),
        cmocka_unit_test(what_a_search_found_is_its_result),
        cmocka_unit_test(announcements_follow_the_choice),
        cmocka_unit_test(members_of_namespaces_get_names_of_their_own),
        cmocka_unit_test(historical_calls_use_the_declared_name),
        cmocka_unit_test(v4_leaves_the_description_of_a_namespace_out),
        cmocka_unit_test(v4_knows_no_tool_search),
        cmocka_unit_test(strict_and_other_tools_may_be_mixed),
        cmocka_unit_test(declared_tools_tell_what_they_are),
        cmocka_unit_test(images_have_their_place_in_messages),
        cmocka_unit_test(the_first_of_several_faults_is_reported),
        cmocka_unit_test(unchosen_tools_are_not_checked),
        cmocka_unit_test(forms_are_refused_with_their_path),
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(many_calls_pair_in_any_order),
        cmocka_unit_test(many_namespaces_may_clash),
        cmocka_unit_test(many_reasoning_items_join),
        cmocka_unit_test(many_searches_redeclare_one_large_tool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
