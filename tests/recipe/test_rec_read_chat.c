/* rec_read_chat.c, rec_chat_tools.c, rec_chat_messages.c and what the readers share: fields, messages and faults of Chat requests
 * (recipe.md 3.1-3.3). */
#include "req_support.h"

#include <deepinfer/scheduler.h>

static const req_place here = {DI_CHAT, REQ_V41, NULL};
static const req_place v4 = {DI_CHAT, REQ_V4, NULL};

#define HI "'messages':[{'role':'user','content':'Hi'}]"
#define MESSAGES(list) "'messages':[" list "]"
#define ASK "{'role':'user','content':'a'}"
#define FN(name) "{'type':'function','function':{'name':'" name "'}}"
#define ONE_CALL(id) "{'id':'" id "','type':'function','function':{'name':'f','arguments':'{}'}}"
#define CALLING(calls) "{'role':'assistant','tool_calls':[" calls "]}"
#define GIVES(id) "{'role':'tool','tool_call_id':'" id "','content':'" id "'}"
#define BLOCKS(list) MESSAGES("{'role':'user','content':[" list "]}")
#define PICTURE(url) "{'type':'image_url','image_url':{'url':'" url "'}}"
#define PNG "data:image/png;base64,"

#define INSUFFICIENT "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. " \
                     "(insufficient tool messages following tool_calls message)"
#define STRAY "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
#define FOREIGN(id) "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id', The " \
                    "following tool_call_ids did not have response messages: " id

static void roles_become_entries(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {MESSAGES("{'role':'system','content':'s'}," ASK), "<｜begin▁of▁sentence｜>" SYSTEM("s") USER("a") END},
        {MESSAGES("{'role':'developer','content':'s'}," ASK), "<｜begin▁of▁sentence｜>" SYSTEM("s") USER("a") END},
        {MESSAGES("{'role':'system','content':''}," ASK), "<｜begin▁of▁sentence｜>" USER("a") END},
        {MESSAGES("{'role':'system','content':[]}," ASK), "<｜begin▁of▁sentence｜>" USER("a") END},
        {MESSAGES("{'role':'system','content':[{'type':'text','text':''},{'type':'text','text':''}]}," ASK),
         "<｜begin▁of▁sentence｜>" SYSTEM("\n\n") USER("a") END},
        {MESSAGES(ASK ",{'role':'assistant','content':'b'},{'role':'latest_reminder','content':'r'}"),
         USER("a") ANSWER("b") "<｜latest_reminder｜>r" END},
        {MESSAGES(ASK ",{'role':'assistant','content':[]}"), USER("a") ANSWER("") END},
        {MESSAGES("{'role':'user','name':'bob','content':[{'type':'text','text':'x'},{'type':'text','text':'y'}]}"), USER("x\n\ny") END},
        {MESSAGES("{'role':'user','content':[]}"), USER("") END},
    };
    req_expect_tails(&here, cases, REQ_N(cases));
}

static void calls_are_answered_at_once_in_any_order(void **state)
{
    (void)state;
    static const req_case fine[] = {
        {MESSAGES(ASK "," CALLING(ONE_CALL("1") "," ONE_CALL("2")) "," GIVES("2") "," GIVES("1")),
         "<｜User｜>" RESULT("1") "\n\n" RESULT("2") END},
        {MESSAGES(ASK "," CALLING(ONE_CALL("")) "," GIVES("")), "<｜User｜>" RESULT("") END},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1")) "," GIVES("1") "," CALLING(ONE_CALL("1")) "," GIVES("1")), RESULT("1") END},
    };
    static const req_case faults[] = {
        {MESSAGES(ASK "," CALLING(ONE_CALL("1"))), INSUFFICIENT},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1") "," ONE_CALL("2")) "," GIVES("1") "," ASK), INSUFFICIENT},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1")) ",{'role':'user','content':[" PICTURE("x") "]}"), INSUFFICIENT},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1")) ",{'role':'system','content':''}," GIVES("1")), INSUFFICIENT},
        {MESSAGES(ASK "," GIVES("1")), STRAY},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1")) "," GIVES("1") "," GIVES("1")), STRAY},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1")) "," GIVES("z")), FOREIGN("z")},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1") "," ONE_CALL("2")) "," GIVES("1") "," GIVES("1")),
         "Duplicate value for 'tool_call_id' of 1 in message[3]"},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1") "," ONE_CALL("2") "," ONE_CALL("2"))),
         "Duplicate value for 'tool_call_id' of 2 in message[1]"},
        {MESSAGES(ASK "," CALLING("")),
         "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead."},
        {MESSAGES(ASK ",{'role':'assistant'}"), "Invalid assistant message: content or tool_calls must be set"},
        {MESSAGES(ASK ",{'role':'assistant','content':null,'reasoning_content':'r'}"),
         "Invalid assistant message: content or tool_calls must be set"},
        {MESSAGES(""), "Empty input messages"},
    };
    req_expect_tails(&here, fine, REQ_N(fine));
    req_expect_errors(&here, faults, REQ_N(faults));
}

static void images_are_looked_at_from_outside(void **state)
{
    (void)state;
    static const char *const fine[] = {"http://x", "HTTPS://x", "httpfoo", PNG "AA", PNG "AAA=", PNG "AB==", PNG " A A ", PNG "%41%41",
                                       PNG "AA%3D%3D", PNG "AA#x", PNG, "DATA:IMAGE/PNG;base64,AA", " data:image/webp; base64,AA",
                                       "data:image/jpg;x=y;base64,AA", "data:image/gif,x;base64,AA"};
#define UNSUPPORTED(what) ".messages[0]: You have uploaded an unsupported " what ". Please make sure your " what \
                          " is valid and has one of the following formats: webp, png, jpeg, and gif."
    static const req_case faults[] = {
        {BLOCKS(PICTURE("")), ".messages[0]: Unsupported image_url format"},
        {BLOCKS(PICTURE("ftp://x")), ".messages[0]: Unsupported image_url format"},
        {BLOCKS(PICTURE("data:image/png,AA")), ".messages[0]: Unsupported image_url format"},
        {BLOCKS(PICTURE("data:image/png;BASE64,AA")), ".messages[0]: Unsupported image_url format"},
        {BLOCKS(PICTURE("data:image/png;#base64,AA")), ".messages[0]: Unsupported image_url format"},
        {BLOCKS(PICTURE("data:text/plain;base64,AA")), UNSUPPORTED("image")},
        {BLOCKS(PICTURE("data:image/png/;base64,AA")), UNSUPPORTED("image")},
        {BLOCKS(PICTURE(PNG "***")), ".messages[0]: Invalid base64 data"},
        {BLOCKS(PICTURE(PNG "A")), ".messages[0]: Invalid base64 data"},
        {BLOCKS(PICTURE(PNG "AA=")), ".messages[0]: Invalid base64 data"},
        {BLOCKS(PICTURE(PNG "AA==AA")), ".messages[0]: Invalid base64 data"},
        {BLOCKS(PICTURE(PNG "-_-_")), ".messages[0]: Invalid base64 data"},
        {BLOCKS("{'type':'file'}"), ".messages[0]: file must have a file_id or file_data"},
        {BLOCKS("{'type':'file','file':{'filename':'x'}}"), ".messages[0]: file must have a file_id or file_data"},
        {BLOCKS("{'type':'file','file_id':''}"),
         ".messages[0]: file_id is not supported. Pass the image as a base64 data url instead."},
        {BLOCKS("{'type':'file','file_id':'a','file_data':'b'}"), ".messages[0]: file cannot have both file_id and file_data"},
        {BLOCKS("{'type':'file','file_data':'http://x'}"), ".messages[0]: file_data is not a valid base64 data url"},
        {BLOCKS("{'type':'file','file_data':'" PNG "A'}"), ".messages[0]: file_data is not a valid base64 data url"},
        {BLOCKS("{'type':'file','file_data':'data:application/pdf;base64,AA'}"), UNSUPPORTED("file")},
        {MESSAGES("{'role':'assistant','content':[" PICTURE("x") "]}"), "Image in assistant message is not supported"},
        {MESSAGES("{'role':'assistant','content':[{'type':'file'}]}"), ".messages[0]: file must have a file_id or file_data"},
        {MESSAGES("{'role':'assistant','content':[{'type':'file','file_data':'" PNG "AA'}]}"),
         "Image in assistant message is not supported"},
    };
    for (size_t i = 0; i < REQ_N(fine); i++) {
        char body[256];
        size_t n;
        (void)snprintf(body, sizeof body, BLOCKS(PICTURE("%s")), fine[i]);
        req_read r = req_open(&here, body);
        const di_image_ref *const images = di_request_images(r.request, &n);
        assert_int_equal(n, 1);
        assert_string_equal(images[0].data, fine[i]);
        assert_string_equal(images[0].path, ".messages[0]");
        assert_int_equal(images[0].kind, i < 3 ? DI_IMAGE_URL : DI_IMAGE_DATA_URL);
        req_close(&r);
    }
    req_expect_tail(&here, BLOCKS("{'type':'file','file':{'file_data':'" PNG "AA'}}"), USER("<｜image｜>") END);
    req_expect_errors(&here, faults, REQ_N(faults));
    for (size_t i = 0; i < REQ_N(faults); i++) { /* V4 looks at none */
        req_read r = req_open(&v4, faults[i].body);
        assert_non_null(strstr(di_request_prompt(r.request, NULL), "[Unsupported Image]"));
        req_close(&r);
    }
}

static void long_links_are_refused(void **state)
{
    (void)state;
    char body[9000];
    di_error err;
    req_read r;
    for (size_t n = 8192; n <= 8193; n++) {
        (void)snprintf(body, sizeof body, BLOCKS("{'type':'text','text':'t'}," PICTURE("http://%0*d")), (int)n - 7, 0);
        const di_status status = req_try(&here, body, &r, &err);
        assert_int_equal(status, n == 8192 ? DI_OK : DI_E_ARGUMENT);
        req_close(&r);
    }
    assert_string_equal(err.message, ".messages[0].image_url.url[1]: image_url.url external link length 8193 too long, max link length "
                                     "8192. Consider passing file data directly with base64 data url instead.");
}

static void one_fault_wins_over_another(void **state)
{
    (void)state;
    static const req_case steps[] = { /* each wins over all that follow */
        {"'tools':[" FN("a b") "]",
         "Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern "
         "'^[a-zA-Z0-9_-]+$'."},
        {"'tools':[" FN("d") "," FN("d") "]", "Tool names must be unique."},
        {"'stop':['']", "Invalid 'stop[0]': empty string. Expected a string with minimum length 1, but got an empty string instead."},
        {"'stream_options':{}", "stream_options should be set along with stream = true"},
        {"'response_format':{'type':'json_schema','json_schema':{'schema':5}}",
         "Invalid json schema: a schema is an object, true or false"},
        {"'n':0", "Invalid n value, the valid range of n is [1, 128]"},
        {"'presence_penalty':3", "Invalid presence_penalty value, the valid range of presence_penalty is [-2, 2]"},
        {"'frequency_penalty':3", "Invalid frequency_penalty value, the valid range of frequency_penalty is [-2, 2]"},
        {"'temperature':3", "Invalid temperature value, the valid range of temperature is [0, 2]"},
        {"'top_p':0", "Invalid top_p value, the valid range of top_p is (0, 1.0]"},
        {"'top_logprobs':21", "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used."},
        {"'max_tokens':0", "Invalid max_tokens value, the valid range of max_tokens is [1, 393216]"},
        {"'seed':9223372036854775808", "Invalid seed value, the valid range of seed is [0, 2^63)"},
    };
    for (size_t i = 0; i < REQ_N(steps); i++) {
        for (size_t k = i; k < REQ_N(steps); k++) {
            char body[1024];
            (void)snprintf(body, sizeof body, "%s,%s," HI, steps[k].body, steps[i].body); /* the later of two `tools` counts */
            req_expect_error(&here, body, DI_E_ARGUMENT, steps[i].expected);
        }
    }
    req_expect_error(&here, MESSAGES(GIVES("1")) ",'n':0,'tools':[" FN("d") "," FN("d") "]", DI_E_ARGUMENT, STRAY);
    req_expect_error(&here, HI ",'response_format':{'type':'json_object'},'tools':[" FN("d") "," FN("d") "]", DI_E_ARGUMENT,
                     "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.");
}

static void tools_are_checked_one_after_the_other(void **state)
{
    (void)state;
    static const char bad[] = "{'type':'function','function':{'name':'s','parameters':{}}}";
    char body[512];
    (void)snprintf(body, sizeof body, HI ",'tools':[" FN("d") ",%s," FN("d") "]", bad);
    req_expect_error(&here, body, DI_E_ARGUMENT,
                     "Invalid schema for function 's': schema must be a JSON Schema of 'type: \"object\"', got 'type: null'.");
    (void)snprintf(body, sizeof body, HI ",'tools':[" FN("d") "," FN("d") ",%s]", bad);
    req_expect_error(&here, body, DI_E_ARGUMENT, "Tool names must be unique.");
    (void)snprintf(body, sizeof body, HI ",'tools':[%s],'tool_choice':'none'", bad);
    req_expect_tail(&here, body, USER("Hi") END); /* nobody will see it */
}

static void a_choice_keeps_one_tool(void **state)
{
    (void)state;
    static const req_case listed[] = {
        {HI ",'tools':[" FN("f") "," FN("g") "]", "f g"},
        {HI ",'tools':[" FN("f") "," FN("g") "],'tool_choice':{'type':'function','function':{'name':'g'}}", "g"},
        {HI ",'tools':[" FN("f") "],'tool_choice':'none'", ""},
        {HI ",'tools':[],'tool_choice':'required'", ""},
        {HI ",'tool_choice':{'type':'function','function':{'name':'g'}}", ""},
    };
    static const req_case faults[] = {
        {HI ",'tools':[" FN("f") "],'tool_choice':{'type':'function','function':{'name':'g'}}",
         "Invalid value for 'tool_call': no function named 'g' was specified in the 'tools' parameter."},
        {HI ",'tools':[" FN("f") "],'tool_choice':'required','thinking':{'type':'enabled'}",
         "Thinking mode does not support this tool_choice"},
    };
    for (size_t i = 0; i < REQ_N(listed); i++) {
        req_expect_listed(&here, listed[i].body, listed[i].expected);
    }
    req_expect_errors(&here, faults, REQ_N(faults));
    req_expect_tail(&here, HI ",'tools':[" FN("f") "],'tool_choice':'required'", USER("Hi") MUST_CALL);
}

#define ALLOWED(mode, tools) ",'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'" mode "','tools':[" tools "]}}"
#define NAMES(name) "{'type':'function','function':{'name':'" name "'}}"

/* The prompt stays as it is, so that one prefix of the cache serves every choice. */
static void allowed_tools_leave_the_prompt_alone(void **state)
{
    (void)state;
    static const char tools[] = HI ",'tools':[" FN("f") "," FN("g") "," FN("h") "]";
    static const req_case listed[] = {
        {HI ",'tools':[" FN("f") "," FN("g") "," FN("h") "]" ALLOWED("auto", NAMES("h") "," NAMES("f")), "f h"},
        {HI ",'tools':[" FN("f") "," FN("g") "," FN("h") "]" ALLOWED("required", NAMES("g")), "g"},
        {HI ",'tools':[" FN("f") "," FN("g") "]" ALLOWED("auto", NAMES("g") "," NAMES("f") "," NAMES("g")), "f g"},
    };
    static const req_case faults[] = {
        {HI ",'tools':[" FN("f") "]" ALLOWED("auto", NAMES("f") "," NAMES("x")),
         "Invalid value for 'tool_choice': no function named 'x' was specified in the 'tools' parameter."},
        {HI ALLOWED("auto", NAMES("f")), "Invalid value for 'tool_choice': no function named 'f' was specified in the 'tools' parameter."},
        {HI ",'tools':[" FN("f") "],'thinking':{'type':'enabled'}" ALLOWED("required", NAMES("f")),
         "Thinking mode does not support this tool_choice"},
    };
    static const req_case forms[] = {
        {HI ",'tool_choice':{'type':'allowed_tools'}", "tool_choice.allowed_tools: missing field"},
        {HI ",'tool_choice':{'type':'allowed_tools','allowed_tools':{'tools':[]}}", "tool_choice.allowed_tools.mode: missing field"},
        {HI ALLOWED("none", NAMES("f")), "tool_choice.allowed_tools.mode: unknown variant `none`"},
        {HI ALLOWED("auto", ""), "tool_choice.allowed_tools.tools: expected at least one tool"},
        {HI ",'tools':[" FN("f") "]" ALLOWED("auto", "{'type':'mcp'}"), "tool_choice.allowed_tools.tools[0].type: unknown variant `mcp`"},
        {HI ",'tools':[" FN("f") "]" ALLOWED("auto", NAMES("f") ",{'type':'function'}"),
         "tool_choice.allowed_tools.tools[1].function: missing field"},
    };
    req_read all = req_open(&here, tools);
    req_read some = req_open(&here, listed[0].body);
    size_t n;
    size_t n_some;
    const char *const prompt = di_request_prompt(all.request, &n);
    const char *const same = di_request_prompt(some.request, &n_some);
    assert_int_equal(n, n_some);
    assert_memory_equal(prompt, same, n);
    req_close(&all);
    req_close(&some);
    for (size_t i = 0; i < REQ_N(listed); i++) {
        req_expect_listed(&here, listed[i].body, listed[i].expected);
    }
    req_expect_tail(&here, listed[1].body, USER("Hi") MUST_CALL);
    req_expect_errors(&here, faults, REQ_N(faults));
    req_expect_bad_forms(&here, forms, REQ_N(forms));
}

static void a_refusal_names_field_and_place(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        rec_refusal said;
    } cases[] = {
        {HI ",'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':{'properties':{'a~/':{'type':'x'}}}}}",
         {"response_format.json_schema.schema", "invalid_schema", "/properties/a~0~1/type"}},
        {HI ",'response_format':{'type':'json_schema','json_schema':{'name':'n','strict':true,'schema':{'type':'object','properties':"
            "{'a':{'type':'array'}}}}}",
         {"response_format.json_schema.schema", "invalid_schema", "/properties/a"}},
        {HI ",'tools':[" FN("f") ",{'type':'function','function':{'name':'g','parameters':{'type':'object','required':7}}}]",
         {"tools[1].function.parameters", "invalid_schema", "/required"}},
        {HI ",'response_format':{'type':'json_object'}", {"response_format", "", ""}},
        {HI ",'response_format':{'type':'regex'}", {"response_format.regex", "", ""}},
        {HI ",'tools':[" FN("f") "]" ALLOWED("auto", NAMES("f") "," NAMES("x")), {"tool_choice.allowed_tools.tools[1]", "", ""}},
        {HI ",'temperature':9", {"", "", ""}},
    };
    for (size_t i = 0; i < REQ_N(cases); i++) {
        char *const body = req_body(&here, cases[i].body);
        rec_refusal said = {.param = "untouched"};
        di_recipe *recipe = NULL;
        di_request *request = NULL;
        di_error err;
        assert_int_equal(di_recipe_open(NULL, here.options, &recipe, &err), DI_OK);
        assert_int_not_equal(rec_request_read(recipe, DI_CHAT, body, strlen(body), &said, &request, &err), DI_OK);
        assert_string_equal(said.param, cases[i].said.param);
        assert_string_equal(said.code, cases[i].said.code);
        assert_string_equal(said.where, cases[i].said.where);
        di_recipe_close(recipe);
        free(body);
    }
}

static void how_drafts_are_verified_may_be_said(void **state)
{
    (void)state;
    static const char *const bodies[] = {HI, HI ",'verify':null", HI ",'verify':'coupled'", HI ",'verify':'block'", HI ",'verify':'rejection'"};
    static const int32_t rules[] = {-1, -1, DI_VERIFY_COUPLED, DI_VERIFY_BLOCK, DI_VERIFY_REJECTION};
    for (size_t i = 0; i < REQ_N(bodies); i++) {
        req_read r = req_open(&here, bodies[i]);
        assert_int_equal(di_request_inference(r.request)->verify, rules[i]);
        req_close(&r);
    }
}

static void an_answer_may_be_continued(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        const char *tail;
        di_output_stage stage;
    } cases[] = {
        {MESSAGES(ASK ",{'role':'assistant','content':'b','prefix':true}"), "<｜Assistant｜></think>b", DI_STAGE_CONTENT},
        {MESSAGES(ASK ",{'role':'assistant','content':[{'type':'text','text':'b'}],'prefix':true}"), "<｜Assistant｜></think>b",
         DI_STAGE_CONTENT},
        {MESSAGES(ASK ",{'role':'assistant','content':'','prefix':true}"), "<｜Assistant｜></think>", DI_STAGE_NONE},
        {MESSAGES(ASK ",{'role':'assistant','content':'b','reasoning_content':'r','prefix':true}") ",'thinking':{'type':'enabled'}",
         "<think>r</think>b", DI_STAGE_CONTENT},
        {MESSAGES(ASK ",{'role':'assistant','content':'','reasoning_content':'r','prefix':true}") ",'thinking':{'type':'enabled'}",
         "<｜Assistant｜><think>r", DI_STAGE_REASONING},
        {MESSAGES(ASK ",{'role':'assistant','content':'','prefix':true}") ",'thinking':{'type':'enabled'}", "<｜Assistant｜><think>",
         DI_STAGE_REASONING_START},
        {MESSAGES("{'role':'user','content':'a','prefix':true}"), USER("a") END, DI_STAGE_NONE},
    };
    static const req_case faults[] = {
        {MESSAGES(ASK ",{'role':'assistant','content':'b','prefix':true}," ASK),
         "Invalid completion message: prefix set true with message which is not final message or message role is not assistant"},
        {MESSAGES(ASK ",{'role':'assistant','content':'b','prefix':true}") ",'tools':[" FN("f") "],'tool_choice':'none'",
         "Function call should not be used with prefix"},
        {MESSAGES(ASK ",{'role':'assistant','content':'json','prefix':true}") ",'response_format':{'type':'json_object'}",
         "response_format json_object should not be used with prefix"},
        {MESSAGES(ASK ",{'role':'assistant','prefix':true,'tool_calls':[" ONE_CALL("1") "]}"), INSUFFICIENT},
        {MESSAGES(ASK "," CALLING(ONE_CALL("1")) "," GIVES("1") ",{'role':'assistant','content':'b','prefix':true}"),
         "Function call should not be used with prefix"},
    };
    for (size_t i = 0; i < REQ_N(cases); i++) {
        req_expect_tail(&here, cases[i].body, cases[i].tail);
        req_read r = req_open(&here, cases[i].body);
        assert_int_equal(di_request_output(r.request)->stage, cases[i].stage);
        req_close(&r);
    }
    req_expect_errors(&here, faults, REQ_N(faults));
}

static void missing_reasoning_may_be_refused(void **state)
{
    (void)state;
    static const di_recipe_options options = {.reject_missing_reasoning = true};
    const req_place place = {DI_CHAT, REQ_V41, &options};
#define MISSING "The `reasoning_content` in the thinking mode must be passed back to the API."
    static const req_case faults[] = {
        {MESSAGES(ASK "," CALLING(ONE_CALL("1")) "," GIVES("1")), MISSING},
        {MESSAGES(ASK ",{'role':'assistant','content':'b'}") ",'tools':[" FN("f") "]", MISSING},
        {MESSAGES(ASK ",{'role':'assistant','content':'b','prefix':true}") ",'tools':[" FN("f") "]", MISSING},
        {MESSAGES(ASK "," CALLING(ONE_CALL("call_000_ET_x")) "," GIVES("call_000_ET_x")), MISSING},
    };
    static const char *const fine[] = {
        MESSAGES(ASK ",{'role':'assistant','content':'b'}"),
        MESSAGES("{'role':'assistant','content':'b'}," ASK) ",'tools':[" FN("f") "]",
        MESSAGES(ASK ",{'role':'assistant','content':'b','reasoning_content':''}") ",'tools':[" FN("f") "]",
        MESSAGES(ASK "," CALLING(ONE_CALL("1") "," ONE_CALL("call_01_ET_x")) "," GIVES("1") "," GIVES("call_01_ET_x")),
        MESSAGES(ASK ",{'role':'assistant','content':'b','prefix':true}"),
        MESSAGES(ASK "," CALLING(ONE_CALL("1")) "," GIVES("1")) ",'thinking':{'type':'disabled'}",
    };
    req_expect_errors(&place, faults, REQ_N(faults));
    for (size_t i = 0; i < REQ_N(fine); i++) {
        req_read r = req_open(&place, fine[i]);
        req_close(&r);
    }
}

static void numbers_reach_the_engine(void **state)
{
    (void)state;
    req_read r = req_open(&here, HI ",'n':128,'max_completion_tokens':7,'seed':9223372036854775807,'logprobs':true,'top_logprobs':20,"
                                    "'presence_penalty':-2,'frequency_penalty':2.0000000001,'temperature':2.0000000001,"
                                    "'logit_bias':{'12':-100,'007':1.5},'stop':'END'");
    const di_inference *const i = di_request_inference(r.request);
    assert_int_equal(i->n, 128);
    assert_int_equal(i->max_tokens, 7);
    assert_true(i->has_seed && i->seed == INT64_MAX && i->logprobs);
    assert_int_equal(i->top_logprobs, 20);
    assert_true(i->presence_penalty == -2.0f && i->frequency_penalty == 2.0f && i->temperature == 2.0f);
    assert_int_equal(i->n_bias, 2);
    assert_true(i->bias[0].id == 12 && i->bias[0].bias == -100.0f && i->bias[1].id == 7 && i->bias[1].bias == 1.5f);
    assert_int_equal(di_request_output(r.request)->n_stops, 1);
    assert_string_equal(di_request_output(r.request)->stops[0], "END");
    req_close(&r);
    r = req_open(&here, HI ",'max_tokens':5,'max_completion_tokens':7");
    assert_int_equal(di_request_inference(r.request)->max_tokens, 5);
    req_close(&r);
    req_expect_error(&here, HI ",'max_tokens':5,'max_completion_tokens':393217", DI_E_ARGUMENT,
                     "Invalid max_tokens value, the valid range of max_tokens is [1, 393216]");
    req_expect_error(&here, HI ",'top_p':1e-60", DI_E_ARGUMENT, "Invalid top_p value, the valid range of top_p is (0, 1.0]");
    req_expect_error(&here, HI ",'temperature':1e300", DI_E_ARGUMENT,
                     "Invalid temperature value, the valid range of temperature is [0, 2]");
    req_expect_error(&here, HI ",'logit_bias':{'1':100.5}", DI_E_ARGUMENT,
                     "Invalid logit_bias value of token 1, the valid range is [-100, 100]");
}

static void malformed_fields_are_named(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {"'x':1", "messages"},
        {"'messages':null", "messages"},
        {"'messages':{}", "messages"},
        {"'messages':['x']", "messages[0]"},
        {MESSAGES("{'content':'x'}"), "messages[0].role: missing field"},
        {MESSAGES("{'role':'function','content':'x'}"), "messages[0].role: unknown variant `function`"},
        {MESSAGES("{'role':'user'}"), "messages[0].content: missing field"},
        {MESSAGES("{'role':'user','content':null}"), "messages[0].content"},
        {MESSAGES("{'role':'user','content':5}"), "messages[0].content"},
        {MESSAGES("{'role':'user','content':'x','name':5}"), "messages[0].name"},
        {MESSAGES("{'role':'latest_reminder','content':[]}"), "messages[0].content"},
        {MESSAGES("{'role':'assistant','content':'x','prefix':'yes'}"), "messages[0].prefix"},
        {MESSAGES("{'role':'assistant','content':'x','reasoning_content':5}"), "messages[0].reasoning_content"},
        {MESSAGES("{'role':'assistant','tool_calls':[{'type':'function'}]}"), "messages[0].tool_calls[0].id"},
        {MESSAGES("{'role':'assistant','tool_calls':[{'id':'1','type':'custom'}]}"), "messages[0].tool_calls[0].type"},
        {MESSAGES("{'role':'assistant','tool_calls':[{'id':'1','type':'function','function':{'name':'f','arguments':{}}}]}"),
         "messages[0].tool_calls[0].function.arguments"},
        {MESSAGES("{'role':'tool','content':'x'}"), "messages[0].tool_call_id"},
        {BLOCKS("'x'"), "messages[0].content[0]"},
        {BLOCKS("{'type':'input_audio'}"), "messages[0].content[0].type: unknown variant `input_audio`"},
        {BLOCKS("{'type':'text'}"), "messages[0].content[0].text"},
        {BLOCKS("{'type':'image_url','image_url':'x'}"), "messages[0].content[0].image_url"},
        {BLOCKS("{'type':'image_url','image_url':{'url':'x','detail':'ultra'}}"), "messages[0].content[0].image_url.detail"},
        {BLOCKS("{'type':'file','file_data':5}"), "messages[0].content[0].file_data"},
        {HI ",'max_tokens':2.0", "max_tokens"},
        {HI ",'max_tokens':-1", "max_tokens"},
        {HI ",'max_tokens':5000000000", "max_tokens"},
        {HI ",'temperature':'1'", "temperature"},
        {HI ",'n':1.0", "n: "},
        {HI ",'seed':-1", "seed"},
        {HI ",'seed':1.5", "seed"},
        {HI ",'stop':[1]", "stop[0]"},
        {HI ",'stop':5", "stop"},
        {HI ",'stream':'yes'", "stream"},
        {HI ",'stream':true,'stream_options':'x'", "stream_options"},
        {HI ",'logprobs':1", "logprobs"},
        {HI ",'logit_bias':'x'", "logit_bias"},
        {HI ",'verify':'Block'", "verify: unknown variant `Block`, expected one of `coupled`, `block`, `rejection`"},
        {HI ",'verify':1", "verify"},
        {HI ",'logit_bias':{'a':1}", "logit_bias: `a` is not a token id"},
        {HI ",'logit_bias':{'-1':1}", "logit_bias: `-1` is not a token id"},
        {HI ",'logit_bias':{'2147483648':1}", "logit_bias: `2147483648` is not a token id"},
        {HI ",'logit_bias':{'':1}", "logit_bias: `` is not a token id"},
        {HI ",'reasoning_effort':75", "reasoning_effort"},
        {HI ",'reasoning_effort':'huge'", "reasoning_effort: unknown variant `huge`"},
        {HI ",'thinking':{}", "thinking.type: missing field"},
        {HI ",'thinking':{'type':'enabled','budget_tokens':-5}", "thinking.budget_tokens"},
        {HI ",'parallel_tool_calls':'x'", "parallel_tool_calls"},
        {HI ",'tools':{}", "tools"},
        {HI ",'tools':[{'function':{'name':'f'}}]", "tools[0].type: missing field"},
        {HI ",'tools':[{'type':'web_search'}]", "tools[0].type: unknown variant `web_search`, expected `function`"},
        {HI ",'tools':[{'type':'function'}]", "tools[0].function: missing field"},
        {HI ",'tools':[{'type':'function','function':{'name':'f','strict':'x'}}]", "tools[0].function.strict"},
        {HI ",'tool_choice':'any'", "tool_choice: unknown variant `any`"},
        {HI ",'tool_choice':{'type':'function','name':'f'}", "tool_choice.function: missing field"},
        {HI ",'response_format':{}", "response_format.type: missing field"},
        {HI ",'response_format':{'type':'json_schema'}", "response_format.json_schema: missing field"},
        {HI ",'response_format':{'type':'json_schema','json_schema':{}}", "response_format.json_schema.schema: missing field"},
        {HI ",'response_format':{'type':'json_schema','json_schema':{'schema':{},'name':5}}", "response_format.json_schema.name"},
        {HI ",'response_format':{'type':'regex'}", "response_format.regex: missing field"},
        {HI ",'reasoning_effort':'一二三四五六七八九十一二三四五六七八九十一二三四五六七八九十'",
         "unknown variant `一二三四五六七八九十一二三四五六七八九十一`, expected one of `none`"},
    };
    req_expect_bad_forms(&here, cases, REQ_N(cases));
}

static void unknown_models_are_listed_by_name(void **state)
{
    (void)state;
    static const di_model_alias aliases[] = {{"a-model", DI_V4}, {"z-model", DI_V41}};
    static const di_recipe_options options = {.aliases = aliases, .n_aliases = 2, .thinking_off = true};
    const req_place unknown = {DI_CHAT, "gpt", &options};
    const req_place alias = {DI_CHAT, "a-model", &options};
    req_expect_error(&unknown, HI, DI_E_ARGUMENT,
                     "The supported API model names are DeepSeek-V4-Pro, DeepSeek-V4.1-Flash, a-model, z-model, but you passed gpt.");
    req_read r = req_open(&alias, HI);
    assert_int_equal(di_request_version(r.request), DI_V4);
    assert_string_equal(di_request_model(r.request), "a-model");
    req_close(&r);
}

static void json_may_be_said_anywhere_in_the_messages(void **state)
{
    (void)state;
    static const char *const fine[] = {
        MESSAGES("{'role':'user','content':'some jSoN'}"),
        MESSAGES(ASK ",{'role':'latest_reminder','content':'JSON'}"),
        MESSAGES(ASK ",{'role':'assistant','content':'json'}"),
        MESSAGES(ASK "," CALLING(ONE_CALL("json")) "," GIVES("json")),
    };
    static const char *const refused[] = {
        MESSAGES("{'role':'user','content':[{'type':'text','text':'js'},{'type':'text','text':'on'}]}"),
        BLOCKS(PICTURE("http://json")),
        MESSAGES(ASK ",{'role':'assistant','content':'x','reasoning_content':'json'}"),
    };
    for (size_t i = 0; i < REQ_N(fine) + REQ_N(refused); i++) {
        char body[512];
        di_error err;
        req_read r;
        const bool good = i < REQ_N(fine);
        (void)snprintf(body, sizeof body, "%s,'response_format':{'type':'json_object'}", good ? fine[i] : refused[i - REQ_N(fine)]);
        assert_int_equal(req_try(&here, body, &r, &err), good ? DI_OK : DI_E_ARGUMENT);
        req_close(&r);
    }
}

static void budgets_are_kept(void **state)
{
    (void)state;
    req_expect_bounded(&here, MESSAGES(ASK "," CALLING(ONE_CALL("1") "," ONE_CALL("2")) "," GIVES("2") "," GIVES("1")) ",'tools':[" FN(
                                  "f") "],'stop':['a','b'],'logit_bias':{'1':1}");
    req_expect_bounded(&here, BLOCKS("{'type':'text','text':'t'}," PICTURE(PNG "AA")) ",'response_format':{'type':'regex','regex':'a+'}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles_become_entries),
        cmocka_unit_test(calls_are_answered_at_once_in_any_order),
        cmocka_unit_test(images_are_looked_at_from_outside),
        cmocka_unit_test(long_links_are_refused),
        cmocka_unit_test(one_fault_wins_over_another),
        cmocka_unit_test(tools_are_checked_one_after_the_other),
        cmocka_unit_test(a_choice_keeps_one_tool),
        cmocka_unit_test(allowed_tools_leave_the_prompt_alone),
        cmocka_unit_test(a_refusal_names_field_and_place),
        cmocka_unit_test(how_drafts_are_verified_may_be_said),
        cmocka_unit_test(an_answer_may_be_continued),
        cmocka_unit_test(missing_reasoning_may_be_refused),
        cmocka_unit_test(numbers_reach_the_engine),
        cmocka_unit_test(malformed_fields_are_named),
        cmocka_unit_test(unknown_models_are_listed_by_name),
        cmocka_unit_test(json_may_be_said_anywhere_in_the_messages),
        cmocka_unit_test(budgets_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
