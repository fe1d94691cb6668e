/* rec_strict.c: what strict calling makes of schemas, and what it refuses (recipe.md 3.1). */
#include "req_support.h"

static const req_place chat = {DI_CHAT, REQ_V41, NULL};

#define ASK "'messages':[{'role':'user','content':'x'}],"
#define TOOL(parameters) ASK "'tools':[{'type':'function','function':{'name':'f','strict':true," parameters "}}]"
#define FORMAT(schema) ASK "'response_format':{'type':'json_schema','json_schema':{'strict':true,'schema':" schema "}}"

/* The property `a` alone, and what surrounds its strict form. */
#define A(schema) TOOL("'parameters':{'type':'object','properties':{'a':" schema "}}")
#define STRICT_A(schema) "{\"type\":\"object\",\"properties\":{\"a\":" schema "},\"additionalProperties\":false,\"required\":[\"a\"]}"

static void expect_constraint(const char *body, const char *before, const char *schema, const char *behind)
{
    req_read r = req_open(&chat, body);
    const di_inference *const inference = di_request_inference(r.request);
    char expected[2048];
    const int n = snprintf(expected, sizeof expected, "%s%s%s", before, schema, behind);
    assert_true(n > 0 && (size_t)n < sizeof expected);
    if (inference->constraint_size != (size_t)n || memcmp(inference->constraint_text, expected, (size_t)n) != 0) {
        fail_msg("%s\n  gives %s\n  not   %s", body, inference->constraint_text, expected);
    }
    req_close(&r);
}

static void expect_parameters(const req_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        expect_constraint(cases[i].body, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":null,\"parameters\":",
                          cases[i].expected, ",\"strict\":true}}]");
    }
}

static void each_kind_keeps_its_keywords_in_order(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {A("{'title':'t','minLength':1,'enum':['x','y'],'default':'x','const':'x','format':'uuid','pattern':'p','description':'d',"
           "'type':'string'}"),
         STRICT_A("{\"type\":\"string\",\"description\":\"d\",\"pattern\":\"p\",\"format\":\"uuid\",\"enum\":[\"x\",\"y\"]}")},
        {A("{'multipleOf':0.5,'exclusiveMaximum':9,'exclusiveMinimum':0,'maximum':8,'minimum':1e0,'default':2,'const':3,"
           "'description':'d','enum':[1],'type':'number'}"),
         STRICT_A("{\"type\":\"number\",\"description\":\"d\",\"const\":3,\"default\":2,\"minimum\":1.0,\"maximum\":8,"
                  "\"exclusiveMinimum\":0,\"exclusiveMaximum\":9,\"multipleOf\":0.5}")},
        {A("{'type':'integer','minimum':1,'title':'t'}"), STRICT_A("{\"type\":\"integer\",\"minimum\":1}")},
        {A("{'description':'d','minItems':1,'items':{'type':'boolean','const':true},'type':'array'}"),
         STRICT_A("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"description\":\"d\"}")},
        {A("{'type':['string','null'],'description':'d','enum':['a']}"),
         STRICT_A("{\"type\":[\"string\",\"null\"],\"description\":\"d\"}")},
        {A("{'title':'t','anyOf':[{'type':'string','title':'t'},{'type':'null'}],'description':'d'}"),
         STRICT_A("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}],\"description\":\"d\"}")},
        {A("{'$ref':'#','description':'d'}"), STRICT_A("{\"$ref\":\"#\"}")},
        {A("{'anyOf':[{'type':'null'}],'type':'string','$ref':'#'}"), STRICT_A("{\"type\":\"string\"}")},
        {A("{'anyOf':[{'type':'null'}],'$ref':'#'}"), STRICT_A("{\"anyOf\":[{\"type\":\"null\"}]}")},
        {A("{'type':'string','description':null,'pattern':null,'format':null,'enum':null}"), STRICT_A("{\"type\":\"string\"}")},
    };
    expect_parameters(cases, REQ_N(cases));
}

static void all_properties_are_required_and_no_others(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {TOOL("'parameters':{'description':'d','required':['b','a'],'properties':{'a':{'type':'null'},'b':{'type':'null'}},'type':'object',"
              "'minProperties':1}"),
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},\"additionalProperties\":false,"
         "\"required\":[\"a\",\"b\"],\"description\":\"d\"}"},
        {A("{'type':'object','properties':{'q\\\"':{'type':'null'}},'additionalProperties':false}"),
         STRICT_A("{\"type\":\"object\",\"properties\":{\"q\\\"\":{\"type\":\"null\"}},\"additionalProperties\":false,"
                  "\"required\":[\"q\\\"\"]}")},
        {TOOL("'parameters':{'type':'object'}"), "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false,\"required\":[]}"},
        {TOOL("'parameters':null"), "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false,\"required\":[]}"},
    };
    expect_parameters(cases, REQ_N(cases));
}

static void definitions_stay_under_both_names(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {TOOL("'parameters':{'type':'object','$defs':{'t':{'type':'string','title':'t'}},'$def':{'u':{'type':'null'}},'properties':{}}"),
         "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false,\"required\":[],\"$def\":{\"u\":{\"type\":\"null\"}},"
         "\"$defs\":{\"t\":{\"type\":\"string\"}}}"},
    };
    expect_parameters(cases, REQ_N(cases));
}

static void the_prompt_shows_the_strict_form_of_tools(void **state)
{
    (void)state;
    req_expect_schemas(&chat, A("{'type':'integer','minimum':1,'title':'t'}"),
                       "{\"name\": \"f\", \"description\": \"\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                       "\"integer\", \"minimum\": 1}}, \"additionalProperties\": false, \"required\": [\"a\"]}}");
}

static void a_format_keeps_its_words_in_the_prompt(void **state)
{
    (void)state;
    static const char body[] = FORMAT("{'type':'object','properties':{'a':{'type':'string','minLength':1}}}");
    expect_constraint(body, "", STRICT_A("{\"type\":\"string\"}"), "");
    req_read r = req_open(&chat, body);
    assert_non_null(strstr(di_request_prompt(r.request, NULL), "\"minLength\": 1"));
    req_close(&r);
}

#define PARAMETERS "Invalid tool parameters schema : "

static void what_strict_calling_refuses(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {A("{}"), PARAMETERS "one of `type`, `anyOf`, `$ref` field is required"},
        {A("true"), PARAMETERS "one of `type`, `anyOf`, `$ref` field is required"},
        {A("{'enum':['x']}"), PARAMETERS "one of `type`, `anyOf`, `$ref` field is required"},
        {A("{'type':'array'}"), PARAMETERS "missing field `items`"},
        {A("{'type':'array','items':{}}"), PARAMETERS "one of `type`, `anyOf`, `$ref` field is required"},
        {A("{'type':'object'}"), "An object with no properties is not allowed."},
        {A("{'anyOf':[{'type':'object','properties':{}}]}"), "An object with no properties is not allowed."},
        {A("{'type':'string','description':5}"), PARAMETERS "`description` is of type integer, expected a string"},
        {A("{'type':'string','enum':[1]}"), PARAMETERS "`enum` is of type integer, expected strings"},
        {A("{'type':'integer','minimum':1.5}"), PARAMETERS "`minimum` is of type number, expected an integer"},
        {A("{'type':'number','const':'x'}"), PARAMETERS "`const` is of type string, expected a number"},
        {A("{'type':'string','format':'date-time'}"),
         PARAMETERS "unknown variant `date-time`, expected one of `email`, `hostname`, `ipv4`, `ipv6`, `uuid`"},
        {A("{'type':['object','null']}"),
         PARAMETERS "field `type`: unknown variant `object`, expected one of `string`, `number`, `integer`, `boolean`, `null`"},
        {A("{'type':'object','properties':{'x':{'type':'null'}},'required':['x','x']}"), "Duplicate required property 'x'"},
        {A("{'type':'object','properties':{'x':{'type':'null'}},'required':['y']}"), "Required property 'y' not found in object"},
        {A("{'type':'object','properties':{'x':{'type':'null'}},'required':[]}"),
         "Required properties must match all properties in the object"},
        {TOOL("'parameters':{'type':'object','additionalProperties':true}"), "additionalProperties should not be true"},
        {TOOL("'parameters':{'type':'string'}"), "The top level of the function parameters schema must be an object."},
        {TOOL("'parameters':{'$ref':'#'}"), "The top level of the function parameters schema must be an object."},
        {TOOL("'parameters':{'type':'object','properties':{'a':{'type':'object'},'b':{}}}"), /* form before meaning */
         PARAMETERS "one of `type`, `anyOf`, `$ref` field is required"},
        {TOOL("'parameters':{'type':'object','properties':{'a':{'type':'object'}},'additionalProperties':true}"),
         "An object with no properties is not allowed."},
        {FORMAT("{'type':'string'}"), "The top level of the json schema must be an object."},
        {FORMAT("{'type':'object'}"), "An object with no properties is not allowed."},
        {FORMAT("{}"), "Invalid json schema: one of `type`, `anyOf`, `$ref` field is required"},
    };
    req_expect_errors(&chat, cases, REQ_N(cases));
}

static void strict_tools_are_not_checked_otherwise(void **state)
{
    (void)state;
    static const req_case cases[] = {
        {A("{'type':'string','pattern':'('}"), STRICT_A("{\"type\":\"string\",\"pattern\":\"(\"}")},
        {A("{'$ref':'#/no'}"), STRICT_A("{\"$ref\":\"#/no\"}")},
        {TOOL("'parameters':{'type':'object','$schema':'mine','minProperties':'x'}"),
         "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false,\"required\":[]}"},
    };
    expect_parameters(cases, REQ_N(cases));
}

static void budgets_are_kept(void **state)
{
    (void)state;
    req_expect_bounded(&chat, A("{'type':'object','properties':{'x':{'type':'array','items':{'type':'string'}}},'required':['x']}"));
    req_expect_bounded(&chat, FORMAT("{'type':'object','properties':{'x':{'anyOf':[{'type':'string'}]}},'required':['x']}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_keeps_its_keywords_in_order),
        cmocka_unit_test(all_properties_are_required_and_no_others),
        cmocka_unit_test(definitions_stay_under_both_names),
        cmocka_unit_test(the_prompt_shows_the_strict_form_of_tools),
        cmocka_unit_test(a_format_keeps_its_words_in_the_prompt),
        cmocka_unit_test(what_strict_calling_refuses),
        cmocka_unit_test(strict_tools_are_not_checked_otherwise),
        cmocka_unit_test(budgets_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
