/* Tests of rec_read_messages.c and the rec_messages_*.c: what recipe.md 3.5 asks for beyond the vectors. */
#include "req_support.h"

static const req_place here = {DI_MESSAGES, REQ_V41, NULL};
static const req_place v4 = {DI_MESSAGES, REQ_V4, NULL};
static const di_recipe_options dropping_options = {.thinking_off = true, .drop_messages_web_search = true};
static const req_place dropping = {DI_MESSAGES, REQ_V41, &dropping_options};
static const di_recipe_options forcing_options = {.thinking_off = true, .messages_any_forces_call = true};
static const req_place forcing = {DI_MESSAGES, REQ_V41, &forcing_options};

#define MESSAGES(list) "'messages':[" list "]"
#define ASK "{'role':'user','content':'q'}"
#define FROM(role, blocks) ",{'role':'" role "','content':[" blocks "]}"
#define BY(role, text) ",{'role':'" role "','content':'" text "'}"
#define TEXT(text) "{'type':'text','text':'" text "'}"
#define THINK(text) "{'type':'thinking','thinking':'" text "','signature':'s'}"
#define USE(id) "{'type':'tool_use','id':'" id "','name':'f','input':{}}"
#define GOT(id, content) "{'type':'tool_result','tool_use_id':'" id "','content':" content "}"
#define REF(name) "{'type':'tool_reference','tool_name':'" name "'}"
#define ADD(name) "{'type':'tool_addition','tool':{'type':'tool_reference','name':'" name "'}}"
#define TOOL(name) "{'name':'" name "','input_schema':{'type':'object'}}"
#define LATER(name) "{'name':'" name "','input_schema':{'type':'object'},'defer_loading':true}"
#define THREE ",'tools':[" TOOL("f") "," LATER("d") "," LATER("e") "]"
#define CHOOSE(name) ",'tool_choice':{'type':'tool','name':'" name "'}"
#define LINE(name) "{\"name\": \"" name "\", \"description\": \"\", \"parameters\": {\"type\": \"object\"}}"

/* ---- tools ---- */

static void tools_of_type_custom_are_the_clients(void **state)
{
    (void)state;
    req_expect_schemas(&here, MESSAGES(ASK) ",'tools':[{'type':'custom','name':'f','input_schema':{'type':'object'}}]", LINE("f"));
    static const req_case cases[] = {
        {MESSAGES(ASK) ",'tools':[" TOOL("f") ",{'type':'web_search_20250305','name':'web_search'}]",
         "tools[1]: server tools are not supported"},
        {MESSAGES(ASK) ",'tools':[{'type':'bash_20250124','name':'bash'}]", "tools[0]: server tools are not supported"},
        {MESSAGES(ASK) ",'tools':[{'type':'custom','name':'f'}]",
         "Invalid schema for function 'f': null is not of types \"boolean\", \"object\""},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
    req_expect_error(&dropping, MESSAGES(ASK) ",'tools':[{'type':'web_fetch_1','name':'x'}]", DI_E_ARGUMENT,
                     "tools[0]: server tools are not supported");
}

static void the_choice_of_a_dropped_web_search_is_no_choice(void **state)
{
    (void)state;
#define WEB "{'type':'web_search_20250305','name':'ws'},"
    req_expect_tail(&dropping, MESSAGES(ASK) ",'tools':[" WEB TOOL("f") "]" CHOOSE("ws"), USER("q") END);
    req_expect_listed(&dropping, MESSAGES(ASK) ",'tools':[" WEB TOOL("f") "]" CHOOSE("ws"), "f");
    static const req_case faults[] = {
        {MESSAGES(ASK) ",'tools':[" WEB TOOL("f") "]" CHOOSE("web_search"),
         "Invalid value for 'tool_call': no function named 'web_search' was specified in the 'tools' parameter."},
        {MESSAGES(ASK) ",'tools':[" WEB "{'type':'web_search_1'}]" CHOOSE("f"),
         "Invalid value for 'tool_call': no function named 'f' was specified in the 'tools' parameter."},
    };
    req_expect_errors(&dropping, faults, REQ_N(faults));
    req_expect_tail(&here, MESSAGES(ASK) CHOOSE("f"), USER("q") END); /* no tools at all: nothing to choose */
}

static void the_chosen_deferred_tool_is_listed(void **state)
{
    (void)state;
    req_expect_schemas(&here, MESSAGES(ASK) THREE CHOOSE("d"), LINE("d"));
    req_expect_listed(&here, MESSAGES(ASK) THREE CHOOSE("d"), "d");
    req_expect_tail(&here, MESSAGES(ASK) THREE CHOOSE("d"), USER("q") MUST_CALL);
    /* ... unless the conversation does it. */
    req_expect_schemas(&here, MESSAGES(ASK FROM("system", ADD("d"))) THREE CHOOSE("d"), "");
    req_expect_tail(&here, MESSAGES(ASK FROM("system", ADD("d"))) THREE CHOOSE("d"), NEWS(LINE("d")) MUST_CALL);
    req_expect_listed(&here, MESSAGES(ASK FROM("system", ADD("d"))) THREE CHOOSE("d"), "d*");
    req_expect_schemas(&here, MESSAGES(ASK FROM("system", ADD("d"))) THREE CHOOSE("e"), LINE("e"));
    req_expect_tail(&here, MESSAGES(ASK FROM("system", ADD("d"))) THREE CHOOSE("e"), USER("q") MUST_CALL);
}

static void any_forces_a_call_only_where_asked_for(void **state)
{
    (void)state;
#define ANY ",'tool_choice':{'type':'any','disable_parallel_tool_use':true}"
    req_expect_tail(&here, MESSAGES(ASK) THREE ANY, USER("q") END);
    req_expect_tail(&forcing, MESSAGES(ASK) THREE ANY, USER("q") MUST_CALL);
    req_expect_listed(&forcing, MESSAGES(ASK) THREE ANY, "f d* e*");
    req_expect_tail(&forcing, MESSAGES(ASK) ANY, USER("q") END);
    req_expect_error(&forcing, MESSAGES(ASK) THREE ANY ",'thinking':{'type':'enabled'}", DI_E_ARGUMENT,
                     "Thinking mode does not support this tool_choice");
    req_read r = req_open(&forcing, MESSAGES(ASK) THREE ANY);
    assert_int_equal(di_request_inference(r.request)->constraint, DI_CONSTRAINT_TOOL_REQUIRED);
    assert_true(di_request_output(r.request)->in_tools);
    req_close(&r);
}

static void announcements_keep_their_order_and_follow_the_choice(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {MESSAGES(ASK FROM("system", ADD("e") "," TEXT("x") "," ADD("d") "," TEXT("y"))) THREE,
         SYSTEM("x\n\ny\n\n### Updated Tool Schemas\n\n" LINE("e") "\n" LINE("d")) END},
        {MESSAGES(ASK FROM("system", ADD("f") "," ADD("f"))) THREE, NEWS(LINE("f") "\n" LINE("f")) END},
        {MESSAGES(ASK FROM("assistant", USE("1") "," USE("2")) FROM("user", GOT("1", "[" REF("e") "]") ","
                  GOT("2", "[" REF("d") "," TEXT("t") "]") "," TEXT("x")) BY("user", "y")) THREE,
         USER(RESULT("e")) "\n\n" RESULT("d\n\nt") "\n\nx" NEWS(LINE("e") "\n" LINE("d")) USER("y") END},
        {MESSAGES(ASK FROM("system", ADD("d")) FROM("system", TEXT("s") "," ADD("e")) FROM("system", TEXT(""))) THREE
         ",'tool_choice':{'type':'none'}", USER("q") SYSTEM("s") SYSTEM("") END},
        {MESSAGES(ASK FROM("system", ADD("d")) FROM("system", TEXT("s") "," ADD("e") "," ADD("d"))) THREE CHOOSE("e"),
         USER("q") SYSTEM("s\n\n### Updated Tool Schemas\n\n" LINE("e")) MUST_CALL},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
    req_expect_tail(&v4, MESSAGES(ASK FROM("system", ADD("d"))) THREE, USER("q") END);
    req_expect_listed(&v4, MESSAGES(ASK) THREE, "f d e");
    static const req_case faults[] = {
        {MESSAGES(ASK FROM("system", TEXT("") "," ADD("zz"))) THREE,
         "messages.1.content.1: `tool_addition` references unknown tool 'zz'"},
        {MESSAGES(ASK FROM("assistant", USE("1")) FROM("user", GOT("1", "[" REF("zz") "]"))) THREE,
         "messages.2.content.0: tool reference 'zz' not found in available tools"},
    };
    req_expect_errors(&here, faults, REQ_N(faults));
    req_expect_errors(&v4, faults, REQ_N(faults));
}

static void not_all_tools_may_be_deferred(void **state)
{
    (void)state;
#define ALL ",'tools':[" LATER("d") "," LATER("e") "],'tool_choice':{'type':'none'}"
    req_expect_error(&here, MESSAGES(ASK) ALL, DI_E_ARGUMENT,
                     "tools: at least one tool must have defer_loading=false. All tools cannot be deferred.");
    req_expect_tail(&v4, MESSAGES(ASK) ALL, USER("q") END);
}

/* ---- turns ---- */

static void redacted_thinking_is_dropped(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {MESSAGES(ASK FROM("assistant", "{'type':'redacted_thinking','data':'x'}," TEXT("a"))), USER("q") ANSWER("a") END},
        {MESSAGES(ASK FROM("assistant", "{'type':'redacted_thinking'}")), USER("q") ANSWER("") END},
        {MESSAGES(ASK FROM("assistant", USE("1") ",{'type':'redacted_thinking','data':'x'}") FROM("user", GOT("1", "null"))),
         ANSWER(CALLS(CALL("f"))) USER(RESULT("")) END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
    req_expect_error(&here, MESSAGES("{'role':'user','content':[{'type':'redacted_thinking','data':'x'}]}"), DI_E_ARGUMENT,
                     "messages.0.content: thinking blocks may only be in `assistant` messages");
}

static void blocks_of_an_answer_join(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {MESSAGES(ASK FROM("assistant", TEXT("") "," TEXT("") "," TEXT("b"))), ANSWER("b") END},
        {MESSAGES(ASK FROM("assistant", TEXT("a") "," TEXT("") "," TEXT("b"))), ANSWER("a\n\n\n\nb") END},
        {MESSAGES(ASK FROM("assistant", TEXT("a") ",{'type':'document','source':{'media_type':null}}")),
         ANSWER("a\n\n[Unsupported document type: unknown]") END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
#define ON ",'thinking':{'type':'adaptive'}" THREE
    static const req_case thoughts[] = {
        {MESSAGES(ASK FROM("assistant", THINK("") "," THINK(""))) ON, "<｜Assistant｜><think>\n\n</think><｜end▁of▁sentence｜>"
         "<｜Assistant｜><think>"},
        {MESSAGES(ASK FROM("assistant", THINK("1") "," TEXT("a") "," THINK("2"))) ON,
         "<｜Assistant｜><think>1\n\n2</think>a<｜end▁of▁sentence｜><｜Assistant｜><think>"},
    };
    req_expect_tails(&here, thoughts, REQ_N(thoughts));
}

static void reasoning_must_come_back_where_it_is_asked_for(void **state)
{
    (void)state;
#define LOST "The `content[].thinking` in the thinking mode must be passed back to the API."
    static const di_recipe_options options = {.reject_missing_reasoning = true};
    const req_place strict = {DI_MESSAGES, REQ_V41, &options};
    const req_place strict_v4 = {DI_MESSAGES, REQ_V4, &options};
    static const req_case faults[] = {
        {MESSAGES(ASK FROM("assistant", USE("1")) FROM("user", GOT("1", "''"))), LOST},
        {MESSAGES(ASK BY("assistant", "a")) THREE, LOST},
        {MESSAGES(ASK BY("assistant", "a") BY("system", "s")) THREE ",'tool_choice':{'type':'none'}", LOST},
    };
    static const char *const fine[] = {
        MESSAGES(ASK BY("assistant", "a")), /* without tools and calls */
        MESSAGES(ASK FROM("assistant", USE("1")) FROM("user", GOT("1", "''") "," TEXT("x"))) THREE,
        MESSAGES(ASK FROM("assistant", THINK("") "," USE("1")) FROM("user", GOT("1", "''"))) THREE,
    };
    req_expect_errors(&strict, faults, REQ_N(faults));
    for (size_t i = 0; i < REQ_N(fine); i++) {
        req_read r = req_open(&strict, fine[i]);
        req_close(&r);
    }
    req_read r = req_open(&strict_v4, faults[2].body); /* there the user says it */
    req_close(&r);
}

static void input_of_a_call_is_written_in_python_style(void **state)
{
    (void)state;
#define WITH(input) MESSAGES(ASK FROM("assistant", "{'type':'tool_use','id':'1','name':'f','input':" input "}") \
                             FROM("user", "{'type':'tool_result','tool_use_id':'1'}"))
#define ARGUMENT(key, string, value) "<｜DSML｜ parameter name=\"" key "\" string=\"" string "\">" value "</｜DSML｜ parameter>"
#define REST "\n</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜>" USER(RESULT("")) END
    static const req_case cases[] = {
        {WITH("[1e-7,1.0,{'a':null}]"), ARGUMENT("arguments", "true", "[1e-7, 1.0, {\"a\": null}]") REST},
        {WITH("{'a':1e-7,'b':[1e5]}"), ARGUMENT("a", "false", "1e-07") "\n" ARGUMENT("b", "false", "[100000.0]") REST},
        {WITH("null"), ARGUMENT("arguments", "true", "null") REST},
        {WITH("'s'"), ARGUMENT("arguments", "true", "\"s\"") REST},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
}

#define UNANSWERED(where, ids) \
    where "`tool_use` ids were found without `tool_result` blocks immediately after: " ids \
          ". Each `tool_use` block must have a corresponding `tool_result` block in the next message."

static void calls_and_results_must_pair(void **state)
{
    (void)state;
#define TWO FROM("assistant", USE("b") "," USE("a"))
    static const req_case cases[] = {
        {MESSAGES(ASK TWO), UNANSWERED("messages.1:", "a, b")},
        {MESSAGES(ASK TWO BY("user", "x")), UNANSWERED("messages.2: ", "a, b")},
        {MESSAGES(ASK TWO BY("assistant", "x")), UNANSWERED("messages.2: ", "a, b")},
        {MESSAGES(ASK TWO BY("system", "x")), UNANSWERED("messages.2: ", "a, b")},
        {MESSAGES(ASK TWO FROM("user", TEXT("x") "," GOT("a", "''") "," GOT("b", "''"))), UNANSWERED("messages.2: ", "a, b")},
        {MESSAGES(ASK TWO FROM("user", GOT("b", "''") "," TEXT("x") "," GOT("a", "''"))), UNANSWERED("messages.2: ", "a")},
        {MESSAGES(ASK TWO FROM("user", GOT("b", "''"))), UNANSWERED("messages.1:", "a")},
        {MESSAGES(ASK TWO FROM("user", GOT("b", "''")) FROM("user", GOT("a", "''"))), UNANSWERED("messages.1:", "a")},
        {MESSAGES(ASK FROM("assistant", USE("1") "," TEXT(""))), UNANSWERED("messages.1.1: ", "1")},
        {MESSAGES(ASK TWO FROM("user", GOT("a", "''") "," GOT("c", "''"))),
         "unexpected `messages.2.content.1: tool_use_id` found in `tool_result` blocks: c. Each `tool_result` block must have a "
         "corresponding `tool_use` block in the previous message."},
        {MESSAGES(ASK TWO FROM("user", GOT("a", "''") "," GOT("b", "''")) FROM("user", GOT("a", "''"))),
         "unexpected `messages.3.content.0: tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must have a "
         "corresponding `tool_use` block in the previous message."},
        {MESSAGES(ASK TWO FROM("user", GOT("a", "''") "," GOT("a", "''"))),
         "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: a"},
        {MESSAGES(ASK FROM("assistant", USE("1") "," USE("1"))), "messages.1.content.1: `tool_use` ids must be unique"},
        {MESSAGES(ASK TWO FROM("user", "")), "messages.2: all messages must have non-empty content"},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
    req_expect_tail(&here, MESSAGES(ASK FROM("assistant", USE("")) FROM("user", GOT("", "''")) FROM("assistant", USE(""))
                                    FROM("user", GOT("", "'x'"))), USER(RESULT("x")) END);
}

static void blocks_stand_where_they_may(void **state)
{
    (void)state;
#define WEB_RESULT "{'type':'web_search_tool_result','tool_use_id':'s','content':[]}"
#define WEB_USE "{'type':'server_tool_use','id':'s','name':'web_search','input':{}}"
    static const req_case cases[] = {
        {MESSAGES(ASK FROM("user", USE("1"))), "messages.1: `tool_use` blocks can only be in `assistant` messages"},
        {MESSAGES(ASK FROM("system", WEB_USE)), "messages.1: `tool_use` blocks can only be in `assistant` messages"},
        {MESSAGES(ASK FROM("user", WEB_RESULT)), "messages.1: `web_search_tool_result` blocks can only be in `assistant` messages"},
        {MESSAGES(ASK FROM("assistant", GOT("1", "''"))), "messages.1: `tool_result` blocks can only be in `user` messages"},
        {MESSAGES(ASK FROM("system", GOT("1", "''"))), "messages.1: `tool_result` blocks can only be in `user` messages"},
        {MESSAGES(ASK FROM("assistant", ADD("f"))), "messages.1: `tool_addition` blocks can only be in `system` messages"},
        {MESSAGES(ASK FROM("user", ADD("f"))), "messages.1: `tool_addition` blocks can only be in `system` messages"},
        {MESSAGES(ASK FROM("system", THINK(""))), "messages.1.content: thinking blocks may only be in `assistant` messages"},
        {MESSAGES(ASK FROM("assistant", WEB_USE)), "Unsupported content block: server tools are not supported"},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
    req_expect_tail(&dropping, MESSAGES(ASK FROM("assistant", USE("1") "," WEB_USE "," WEB_RESULT "," USE("2"))
                                        FROM("user", GOT("2", "''") "," GOT("1", "''"))),
                    ANSWER(CALLS(CALL("f") "\n" CALL("f"))) USER(RESULT("")) "\n\n" RESULT("") END);
}

static void v4_turns_system_messages_into_reminders(void **state)
{
    (void)state;
#define V4_REMINDER(text) "<system-reminder>\n" text "\n</system-reminder>"
    static const req_case cases[] = {
        {MESSAGES(ASK FROM("system", TEXT("a") "," TEXT("b"))), USER("q") "\n\n" V4_REMINDER("a\n\nb") END},
        {MESSAGES(ASK FROM("system", TEXT("") "," TEXT(""))), USER("q") "\n\n" V4_REMINDER("\n\n") END},
        {MESSAGES(ASK FROM("system", TEXT(""))), USER("q") END},
        {MESSAGES(ASK FROM("system", "")), USER("q") END},
        {MESSAGES(ASK FROM("system", "{'type':'image','source':{'type':'url','url':'nowhere'}}")),
         USER("q") "\n\n" V4_REMINDER("[Unsupported Image]") END},
    };
    req_expect_tails(&v4, cases, REQ_N(cases));
}

/* ---- images ---- */

static void images_have_their_place_in_messages(void **state)
{
    (void)state;
#define IMAGE(source) "{'type':'image','source':{" source "}}"
#define IN_RESULT(source) MESSAGES(ASK FROM("assistant", USE("1")) FROM("user", GOT("1", "[" TEXT("") "," IMAGE(source) "]")))
    static const req_case cases[] = {
        {MESSAGES(ASK FROM("user", IMAGE("'type':'url','url':'ftp:x'"))), "messages.1.content[0]: invalid url: \"ftp:x\""},
        {MESSAGES(ASK FROM("user", IMAGE("'type':'url','url':'data:image/png;base64,AA=='"))),
         "messages.1.content[0]: invalid url: \"data:image/png;base64,AA==\""},
        {MESSAGES(ASK FROM("system", IMAGE("'type':'file','file_id':'x'"))),
         "messages.1.content[0]: file_id is not supported. Pass the image as a base64 data url instead."},
        {IN_RESULT("'type':'file','file_id':'x'"),
         "messages.2.content.0.tool_result.content[1]: file_id is not supported. Pass the image as a base64 data url instead."},
        {IN_RESULT("'type':'url','url':''"), "messages.2.content.0.tool_result.content[1]: invalid url: \"\""},
        {MESSAGES(ASK FROM("user", IMAGE("'type':'base64','media_type':'image/png','data':'A'"))),
         "messages.1.content[0]: base64 decode error"},
        {MESSAGES(ASK FROM("assistant", IMAGE("'type':'url','url':'https://example.org/'"))),
         "Image in assistant message is unsupported"},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
    for (size_t i = 0; i < REQ_N(cases); i++) { /* V4 looks at none */
        req_read r = req_open(&v4, cases[i].body);
        assert_non_null(strstr(di_request_prompt(r.request, NULL), "[Unsupported Image]"));
        req_close(&r);
    }
}

/* ---- faults ---- */

static void the_first_of_several_faults_is_reported(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {MESSAGES("") ",'tools':[" TOOL("a b") "],'max_tokens':0",
         "Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."},
        {MESSAGES("") ",'tools':[" TOOL("a") "," TOOL("a") "],'max_tokens':0", "messages: at least one message is required"},
        {MESSAGES(ASK) ",'tools':[{'name':'a','input_schema':{}}," TOOL("a") "]",
         "Invalid schema for function 'a': schema must be a JSON Schema of 'type: \"object\"', got 'type: null'."},
        {MESSAGES(ASK) ",'tools':[" TOOL("a") ",{'name':'a','input_schema':{}}]" CHOOSE("b"), "Tool names must be unique."},
        {MESSAGES(ASK) ",'tools':[" TOOL("a") "],'stop_sequences':['']" CHOOSE("b"),
         "Invalid value for 'tool_call': no function named 'b' was specified in the 'tools' parameter."},
        {MESSAGES(ASK) ",'stop_sequences':[''],'temperature':3",
         "Invalid 'stop[0]': empty string. Expected a string with minimum length 1, but got an empty string instead."},
        {MESSAGES(ASK) ",'max_tokens':0,'temperature':3", "Invalid temperature value, the valid range of temperature is [0, 2]"},
    };
    req_expect_errors(&here, cases, REQ_N(cases));
}

static void forms_are_refused_with_their_path(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {"'max_tokens':1", "messages"},
        {"'messages':null", "messages"},
        {"'messages':[5]", "messages[0].role"},
        {"'messages':[{'role':'tool','content':''}]", "messages[0].role"},
        {"'messages':[{'role':'user'}]", "messages[0].content"},
        {"'messages':[{'role':'user','content':null}]", "messages[0].content"},
        {"'messages':[{'role':'user','content':['x']}]", "messages[0].content[0].type"},
        {"'messages':[{'role':'user','content':[{'type':'search_result'}]}]", "messages[0].content[0].type"},
        {"'messages':[{'role':'user','content':[{'type':'text','text':null}]}]", "messages[0].content[0].text"},
        {"'messages':[{'role':'user','content':[{'type':'document'}]}]", "messages[0].content[0].source"},
        {"'messages':[{'role':'user','content':[{'type':'image','source':{'type':'base64','media_type':'image/bmp','data':''}}]}]",
         "messages[0].content[0].source.media_type"},
        {"'messages':[{'role':'assistant','content':[{'type':'thinking'}]}]", "messages[0].content[0].thinking"},
        {"'messages':[{'role':'assistant','content':[{'type':'tool_use','id':'1','name':'f'}]}]", "messages[0].content[0].input"},
        {"'messages':[{'role':'system','content':[{'type':'tool_addition','tool':{'type':'x','name':'f'}}]}]",
         "messages[0].content[0].tool.type"},
        {MESSAGES(ASK FROM("assistant", USE("1")) FROM("user", GOT("1", "5"))), "messages[2].content[0].content"},
        {MESSAGES(ASK FROM("assistant", USE("1")) FROM("user", GOT("1", "[{'type':'tool_use'}]"))),
         "messages[2].content[0].content[0].type"},
        {MESSAGES(ASK FROM("assistant", USE("1")) FROM("user", "{'type':'tool_result','tool_use_id':'1','is_error':1}")),
         "messages[2].content[0].is_error"},
        {MESSAGES(ASK) ",'system':5", "system"},
        {MESSAGES(ASK) ",'system':[{'type':'image'}]", "system[0].type"},
        {MESSAGES(ASK) ",'metadata':{'user_id':5}", "metadata.user_id"},
        {MESSAGES(ASK) ",'tools':[5]", "tools[0].name"},
        {MESSAGES(ASK) ",'tools':[{'name':'f','defer_loading':1}]", "tools[0].defer_loading"},
        {MESSAGES(ASK) ",'tool_choice':'auto'", "tool_choice"},
        {MESSAGES(ASK) ",'tool_choice':{'type':'tool'}", "tool_choice.name"},
        {MESSAGES(ASK) ",'thinking':{}", "thinking.type"},
        {MESSAGES(ASK) ",'output_config':{'effort':5}", "output_config.effort"},
        {MESSAGES(ASK) ",'stop_sequences':'x'", "stop_sequences"},
        {MESSAGES(ASK) ",'stream':1", "stream"},
    };
    req_expect_bad_forms(&here, cases, REQ_N(cases));
}

/* ---- size ---- */

static void memory_may_end_anywhere(void **state)
{
    (void)state;
#define RICH MESSAGES(ASK FROM("assistant", THINK("1") "," TEXT("a") "," THINK("2") "," USE("1") "," USE("2")) \
    FROM("user", GOT("1", "[" REF("d") "," IMAGE("'type':'base64','media_type':'image/jpg','data':'AAAA'") "]") "," \
         GOT("2", "'x'") ",{'type':'document','source':{'media_type':'a/b'}}") \
    FROM("system", TEXT("s") "," ADD("e") "," TEXT("t"))) THREE ",'system':[" TEXT("a") "," TEXT("b") "]"
    req_expect_bounded(&here, RICH);
    req_expect_bounded(&v4, RICH);
}

enum { MANY = 10000 };

static void put_numbered(buf *b, const char *pattern, int n, bool backwards)
{
    for (int i = 0; i < n; i++) {
        buf_puts(b, i > 0 ? "," : "");
        buf_printf(b, pattern, backwards ? n - 1 - i : i);
    }
}

static void many_calls_pair_in_any_order(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, SIZE_MAX);
    buf_puts(&b, "'messages':[" ASK ",{'role':'assistant','content':[");
    put_numbered(&b, USE("c%d"), MANY, false);
    buf_puts(&b, "]}");
    const size_t without = b.size;
    buf_puts(&b, ",{'role':'user','content':[");
    put_numbered(&b, GOT("c%d", "''"), MANY, true);
    buf_puts(&b, "]}]");
    assert_false(b.failed);
    req_read r = req_open(&here, b.data);
    assert_int_equal(r.request->talk.first->next->n_calls, MANY);
    req_close(&r);

    b.data[without] = ']'; /* nobody answers: the message is cut, not the memory */
    b.data[without + 1] = '\0';
    di_error err;
    const di_status status = req_try(&here, b.data, &r, &err);
    unit_expect_error(status, DI_E_ARGUMENT, &err, "messages.1:`tool_use` ids were found", "c0, c1, c10, c100, c1000", NULL);
    req_close(&r);
    buf_fini(&b);
}

static void many_turns_and_tools_are_read(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, SIZE_MAX);
    buf_puts(&b, "'messages':[" ASK);
    for (int i = 0; i < MANY; i++) {
        buf_printf(&b, FROM("assistant", USE("1")) FROM("user", GOT("1", "[" REF("t%d") "]")), i);
    }
    buf_puts(&b, "],'tools':[" TOOL("f") ",");
    put_numbered(&b, LATER("t%d"), MANY, true);
    buf_puts(&b, "]");
    assert_false(b.failed);
    req_read r = req_open(&here, b.data);
    assert_int_equal(r.request->n_declared, MANY + 1);
    assert_int_equal(r.request->talk.last->n_announced, 1);
    assert_string_equal(r.request->talk.last->announced[0]->name.data, "t9999");
    req_close(&r);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_of_type_custom_are_the_clients),
        cmocka_unit_test(the_choice_of_a_dropped_web_search_is_no_choice),
        cmocka_unit_test(the_chosen_deferred_tool_is_listed),
        cmocka_unit_test(any_forces_a_call_only_where_asked_for),
        cmocka_unit_test(announcements_keep_their_order_and_follow_the_choice),
        cmocka_unit_test(not_all_tools_may_be_deferred),
        cmocka_unit_test(redacted_thinking_is_dropped),
        cmocka_unit_test(blocks_of_an_answer_join),
        cmocka_unit_test(reasoning_must_come_back_where_it_is_asked_for),
        cmocka_unit_test(input_of_a_call_is_written_in_python_style),
        cmocka_unit_test(calls_and_results_must_pair),
        cmocka_unit_test(blocks_stand_where_they_may),
        cmocka_unit_test(v4_turns_system_messages_into_reminders),
        cmocka_unit_test(images_have_their_place_in_messages),
        cmocka_unit_test(the_first_of_several_faults_is_reported),
        cmocka_unit_test(forms_are_refused_with_their_path),
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(many_calls_pair_in_any_order),
        cmocka_unit_test(many_turns_and_tools_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
