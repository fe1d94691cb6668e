/* rec_schema.c and its parts: which schemas are schemas, where references may lead, what is a regular expression (recipe.md 3.1). */
#include "req_support.h"

#include "recipe/rec_schema.h"

#define DRAFT(n) "'$schema':'http://json-schema.org/draft-0" #n "/schema#',"
#define DRAFT_2019 "'$schema':'https://json-schema.org/draft/2019-09/schema',"

/* ' stands for ". */
static js_doc *parse(const char *text)
{
    const js_limits limits = {.max_depth = REC_MAX_DEPTH, .last_duplicate_wins = true};
    const size_t n = strlen(text);
    char *const json = malloc(n + 1);
    js_doc *doc = NULL;
    di_error err;
    assert_non_null(json);
    for (size_t i = 0; i <= n; i++) {
        json[i] = text[i];
        if (text[i] == '\'') {
            json[i] = '"';
        }
    }
    if (js_parse(json, n, "schema", &limits, &doc, &err) != DI_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    free(json);
    return doc;
}

static di_status check(const char *schema, di_error *err)
{
    js_doc *const doc = parse(schema);
    char where[64] = "";
    const di_status status = rec_check_response_schema(js_root(doc), where, sizeof where, err);
    js_free(doc);
    return status;
}

static void expect_good(const char *const *schemas, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        di_error err;
        if (check(schemas[i], &err) != DI_OK) {
            fail_msg("%s: %s", schemas[i], err.message);
        }
    }
}

static void expect_bad(const char *const *schemas, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        di_error err = {.message = ""};
        if (check(schemas[i], &err) != DI_E_ARGUMENT || strncmp(err.message, "Invalid json schema: ", 21) != 0) {
            fail_msg("%s: accepted, or \"%s\"", schemas[i], err.message);
        }
    }
}

static void keywords_of_the_newest_draft(void **state)
{
    (void)state;
    static const char *const good[] = {
        "true", "false", "{}", "{'type':'string'}", "{'type':['string','null']}", "{'required':[]}", "{'required':['a','b']}",
        "{'enum':[]}", "{'enum':[1,1]}", "{'minLength':0}", "{'minLength':2.0}", "{'multipleOf':0.5}", "{'minimum':-1.5}",
        "{'items':true}", "{'prefixItems':[{}]}", "{'properties':{'a':{},'b':false}}", "{'anyOf':[{},true]}", "{'const':{'type':'x'}}",
        "{'dependencies':{'a':['b'],'c':{}}}", "{'dependentRequired':{'a':['b']}}", "{'$id':'http://x/y#'}", "{'$anchor':'_a-1.b'}",
        "{'$anchor':'a'}", "{'default':5}", "{'x-mine':{'type':'x'}}", "{'additionalItems':5}", "{'id':5}", "{'readOnly':true}",
        "{'patternProperties':{'^a':{}}}", "{'contentSchema':{}}", "{'unevaluatedItems':false}", "{'$schema':''}",
        "{'$schema':'https://json-schema.org/draft/2020-12/schema#'}", "{'$schema':'http://json-schema.org/schema#'}",
    };
    static const char *const bad[] = {
        "null", "5", "[]", "'x'", "{'type':'strin'}", "{'type':5}", "{'type':null}", "{'type':[]}", "{'type':['string','string']}",
        "{'type':['string','x']}", "{'required':'a'}", "{'required':[1]}", "{'required':['a','b','a']}", "{'enum':'x'}",
        "{'minLength':-1}", "{'minLength':1.5}", "{'maxItems':'x'}", "{'multipleOf':0}", "{'minimum':'x'}", "{'exclusiveMinimum':true}",
        "{'uniqueItems':1}", "{'items':5}", "{'items':[{}]}", "{'prefixItems':[]}", "{'properties':5}", "{'properties':{'a':5}}",
        "{'anyOf':[]}", "{'oneOf':{}}", "{'allOf':[5]}", "{'not':5}", "{'if':5}", "{'dependencies':{'a':5}}",
        "{'dependentRequired':{'a':['b','b']}}", "{'dependentSchemas':{'a':5}}", "{'$defs':{'a':5}}", "{'definitions':{'a':5}}",
        "{'description':5}", "{'format':5}", "{'pattern':5}", "{'pattern':'('}", "{'patternProperties':{'(':{}}}", "{'examples':5}",
        "{'deprecated':5}", "{'$id':'a#b'}", "{'$anchor':'1a'}", "{'$anchor':''}", "{'$ref':5}", "{'$schema':5}", "{'$vocabulary':5}",
        "{'$comment':5}", "{'$schema':'http://example.org/mine'}", "{'properties':{'a':{'items':{'type':'x'}}}}", "{'contentSchema':5}",
    };
    expect_good(good, REQ_N(good));
    expect_bad(bad, REQ_N(bad));
}

static void older_drafts_have_their_own_keywords(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{" DRAFT(4) "'minimum':1,'exclusiveMinimum':true}", "{" DRAFT(4) "'items':[{}],'additionalItems':false}",
        "{" DRAFT(4) "'const':1,'contains':5,'if':5,'$id':5,'$defs':5}", "{" DRAFT(4) "'additionalProperties':true}",
        "{" DRAFT(6) "'exclusiveMinimum':1,'properties':{'a':true},'required':[]}", "{" DRAFT(6) "'if':5,'$comment':5,'readOnly':5}",
        "{" DRAFT(7) "'if':{},'then':false,'items':[{}],'prefixItems':5,'$defs':{'a':5}}", "{" DRAFT_2019 "'items':[true]}",
        "{" DRAFT_2019 "'prefixItems':5,'$dynamicRef':5}",
    };
    static const char *const bad[] = {
        "{" DRAFT(4) "'exclusiveMinimum':true}", "{" DRAFT(4) "'exclusiveMinimum':1,'minimum':1}", "{" DRAFT(4) "'items':true}",
        "{" DRAFT(4) "'items':[]}", "{" DRAFT(4) "'required':[]}", "{" DRAFT(4) "'properties':{'a':true}}", "{" DRAFT(4) "'id':5}",
        "{" DRAFT(4) "'minLength':1.0}", "{" DRAFT(4) "'dependencies':{'a':[]}}", "{" DRAFT(4) "'allOf':[true]}",
        "{" DRAFT(6) "'contains':5}", "{" DRAFT(6) "'$id':5}", "{" DRAFT(7) "'if':5}", "{" DRAFT(7) "'readOnly':5}",
        "{" DRAFT(7) "'exclusiveMinimum':true}", "{" DRAFT_2019 "'$recursiveAnchor':5}", "{" DRAFT_2019 "'additionalItems':5}",
        "{" DRAFT_2019 "'$anchor':'_a'}",
    };
    expect_good(good, REQ_N(good));
    expect_bad(bad, REQ_N(bad));
}

static void references_lead_to_schemas(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{'$ref':'#'}",
        "{'properties':{'a':{'$ref':'#/properties/b'},'b':{}}}",
        "{'properties':{'a':{'$ref':'#/$defs/a~1b%25'}},'$defs':{'a/b%':{}}}",
        "{'anyOf':[{'$ref':'#/anyOf/1'},{}]}",
        "{'properties':{'a':{'$ref':'#x'},'b':{'$anchor':'x'}}}",
        "{'$id':'http://x/y','properties':{'a':{'$ref':'http://x/y#/properties/b'},'b':{}}}",
        "{'$id':'http://x/y','properties':{'a':{'$ref':'z'},'b':{'$id':'z'}}}",
        "{'properties':{'a':{'$id':'http://x/i','$ref':'#/x','x':{}}}}",
        "{'x-parts':{'q':{}},'properties':{'a':{'$ref':'#/x-parts/q'}}}",
        "{'$ref':'https://json-schema.org/draft/2020-12/schema'}",
        "{'enum':[{'$ref':'#/no'}],'const':{'$ref':'#/no'},'default':{'$ref':'#/no'},'x-mine':{'$ref':'#/no'}}",
        "{'$defs':{'unused':{'$ref':'#/no'}}}",
        "{'then':{'$ref':'#/no'}}",
        "{" DRAFT(7) "'allOf':[{'$ref':'#','not':{'$ref':'#/no'}}]}",
        "{" DRAFT(4) "'id':'http://x/y','definitions':{'a':{'id':'#here'}},'allOf':[{'$ref':'#here'}]}",
        "{'properties':{'$ref':{'type':'string'}}}",
        "{'$dynamicRef':'#m','$defs':{'a':{'$dynamicAnchor':'m'}}}",
    };
    static const char *const bad[] = {
        "{'$ref':'#/no'}",
        "{'$ref':'#no'}",
        "{'$ref':'other.json'}",
        "{'$ref':'http://example.org/s'}",
        "{'anyOf':[{'$ref':'#/anyOf/1'}]}",
        "{'anyOf':[{'$ref':'#/anyOf/00'}]}",
        "{'$ref':'#/type','type':'object'}",
        "{'x-parts':{'q':5},'properties':{'a':{'$ref':'#/x-parts/q'}}}",
        "{'x-parts':{'q':{'type':'x'}},'properties':{'a':{'$ref':'#/x-parts/q'}}}",
        "{'$ref':'#/$defs/a','$defs':{'a':{'$ref':'#/$defs/b'},'b':{'$ref':'#/no'}}}",
        "{'if':{},'then':{'$ref':'#/no'}}",
        "{'dependencies':{'a':{'$ref':'#/no'}}}",
        "{'$dynamicRef':'#no'}",
    };
    expect_good(good, REQ_N(good));
    expect_bad(bad, REQ_N(bad));
}

static void messages_name_the_place(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {"{'properties':{'a':{'anyOf':[{},{'type':'strin'}]}}}", "Invalid json schema: properties.a.anyOf[1].type: not a type name"},
        {"{'required':['a','a']}", "Invalid json schema: required: `a` is there twice"},
        {"{'$ref':'#/no'}", "Invalid json schema: $ref: `#/no` leads nowhere"},
        {"7", "Invalid json schema: a schema is an object, true or false"},
    };
    for (size_t i = 0; i < REQ_N(cases); i++) {
        di_error err;
        assert_int_equal(check(cases[i].body, &err), DI_E_ARGUMENT);
        assert_string_equal(err.message, cases[i].expected);
    }
}

static void tools_take_objects(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {"{}", "schema must be a JSON Schema of 'type: \"object\"', got 'type: null'."},
        {"true", "schema must be a JSON Schema of 'type: \"object\"', got 'type: null'."},
        {"{'type':'array'}", "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'."},
        {"{'type':['object']}", "schema must be a JSON Schema of 'type: \"object\"', got 'type: [\"object\"]'."},
        {"{'type':'array','properties':5}", "properties: not an object"},
    };
    for (size_t i = 0; i < REQ_N(cases); i++) {
        js_doc *const doc = parse(cases[i].body);
        char expected[256];
        char where[64];
        di_error err;
        (void)snprintf(expected, sizeof expected, "Invalid schema for function 'f': %s", cases[i].expected);
        assert_int_equal(rec_check_tool_schema(REC_STR("f"), js_root(doc), where, sizeof where, &err), DI_E_ARGUMENT);
        assert_string_equal(err.message, expected);
        js_free(doc);
    }
    js_doc *const doc = parse("{'type':'object'}");
    char where[8];
    assert_int_equal(rec_check_tool_schema(REC_STR("f"), js_root(doc), where, sizeof where, NULL), DI_OK);
    js_free(doc);
}

/* A chain of references, each target inside the one before: a walk that follows each anew would take n^2 steps. */
static void many_references_are_followed_once(void **state)
{
    (void)state;
    enum { N = 100000, DEPTH = 100 };
    buf text;
    di_error err;
    buf_init(&text, SIZE_MAX);
    buf_puts(&text, "{'$ref':'#/$defs/0','$defs':{");
    for (int i = 0; i < N; i++) {
        buf_printf(&text, "'%d':{'$ref':'#/$defs/%d','$anchor':'a%d'},", i, i + 1, i);
    }
    buf_printf(&text, "'%d':{'$ref':'#a%d'}},'anyOf':[", N, N / 2);
    for (int i = 0; i < DEPTH; i++) {
        buf_puts(&text, "{'$ref':'#/anyOf/0");
        for (int k = 0; k < i; k++) {
            buf_puts(&text, "/items");
        }
        buf_puts(&text, "','items':");
    }
    buf_puts(&text, "{'anyOf':[");
    for (int i = 0; i < N; i++) {
        buf_puts(&text, "{},");
    }
    buf_puts(&text, "{}]}");
    for (int i = 0; i < DEPTH; i++) {
        buf_puts(&text, "}");
    }
    buf_puts(&text, "]}");
    assert_false(text.failed);
    if (check(text.data, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    buf_fini(&text);
}

static void patterns_are_regular_expressions(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",         "a",       "^a$",     "a|b",      "|",       "()",       "(?:a)",      "(?=a)b",  "(?!a)",    "(?<=a)b", "(?<!a)b",
        "(?<n>a)",  "(?P<n>a)", "(?i)a",  "(?i:a)",   "(?-i)a",  "a*",       "a*?",        "a+?",     "a{2}",     "a{2,}",   "a{2,5}?",
        "a{0002,03}", "a{1}{2}", "{",     "a{",       "a{1",     "{}",       "]",          "}",       "[a-z]",    "[^a-z]",  "[]",
        "[a\\]b]",  "[\\d-x]", "[a-]",    "[-a]",     "[[]",     "[a&&b]",   "\\d\\w\\s",  "\\(",     "\\u{1F600}", "\\p{L}", "(a)\\1",
        "é+",       "[é-ü]",   "^(?:a|[b-z]{2,3})+$", "(?=a)*", "a{99999}", "\\/", "a\xF0\x9F\xA6\x80*",
    };
    static const char *const bad[] = {
        "(", ")", "a)", "(a", "[", "[a", "[^", "\\", "[\\", "*", "+a", "?", "a**", "a*{2}*", "(*)", "(|*)", "a{2,1}", "a{10,9}", "{2}",
        "[z-a]", "[ü-é]", "(?", "(?a", "(?>a)", "(?#x)", "(?<>a)", "(?<n", "(?P=n)", "(?)", "(?:", "((a)", "a|*",
    };
    for (size_t i = 0; i < REQ_N(good); i++) {
        if (!rec_pattern_valid((rec_str){good[i], strlen(good[i])})) {
            fail_msg("refused: %s", good[i]);
        }
    }
    for (size_t i = 0; i < REQ_N(bad); i++) {
        if (rec_pattern_valid((rec_str){bad[i], strlen(bad[i])})) {
            fail_msg("accepted: %s", bad[i]);
        }
    }
    assert_true(rec_pattern_valid((rec_str){"a\0b", 3}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_of_the_newest_draft),
        cmocka_unit_test(older_drafts_have_their_own_keywords),
        cmocka_unit_test(references_lead_to_schemas),
        cmocka_unit_test(messages_name_the_place),
        cmocka_unit_test(tools_take_objects),
        cmocka_unit_test(many_references_are_followed_once),
        cmocka_unit_test(patterns_are_regular_expressions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
