/* Grammars in GBNF and Lark as languages, what is refused and where, and structural tags. */
#include "gram_support.h"

#include <string.h>

#define IN(...) ((const char *const[]){__VA_ARGS__, NULL})

static void inside(di_grammar_kind kind, const char *grammar, const char *const *texts)
{
    const char *const wrong = gram_first_wrong(kind, grammar, NULL, true, texts);
    if (wrong[0] != '\0') {
        fail_msg("%s should take %s", grammar, wrong);
    }
}

static void outside(di_grammar_kind kind, const char *grammar, const char *const *texts)
{
    const char *const wrong = gram_first_wrong(kind, grammar, NULL, false, texts);
    if (wrong[0] != '\0') {
        fail_msg("%s should not take %s", grammar, wrong);
    }
}

static void refused(di_grammar_kind kind, const char *grammar, di_status status, const char *fault_kind, int64_t offset, const char *message)
{
    di_error err;
    di_grammar_fault fault;
    di_grammar *g = NULL;
    const di_status got = di_grammar_compile(kind, grammar, strlen(grammar), NULL, &g, &fault, &err);
    if (got != status || strcmp(fault.kind, fault_kind) != 0 || fault.offset != offset || strstr(err.message, message) == NULL) {
        fail_msg("%s: %s, %s, %lld: %s", grammar, di_status_name(got), fault.kind, (long long)fault.offset, err.message);
    }
}

/* --- GBNF --------------------------------------------------------------------------------------------------------- */

static const char arithmetic[] = "root ::= expr\n"
                                 "# left recursion, and nesting\n"
                                 "expr ::= expr [-+] term | term\n"
                                 "term ::= term \"*\" factor | factor\n"
                                 "factor ::= [0-9]+ | \"(\" expr \")\"\n";

static void rules_may_be_recursive_in_every_way(void **state)
{
    (void)state;
    inside(DI_GRAMMAR_GBNF, arithmetic, IN("1", "12+3", "1+2*3-4", "(1)", "((1+2)*3)", "2*(3-(4))"));
    outside(DI_GRAMMAR_GBNF, arithmetic, IN("", "+1", "1+", "(1", "1)", "()", "1**2", "(1+2)*"));
    inside(DI_GRAMMAR_GBNF, "root ::= \"a\" root \"b\" | \"\"", IN("", "ab", "aaabbb"));
    outside(DI_GRAMMAR_GBNF, "root ::= \"a\" root \"b\" | \"\"", IN("a", "aab", "abab", "ba"));
    inside(DI_GRAMMAR_GBNF, "root ::= root root | \"a\" | \"\"", IN("", "a", "aaaaaaaaaaaa"));
    outside(DI_GRAMMAR_GBNF, "root ::= root root | \"a\" | \"\"", IN("b", "ab"));
    inside(DI_GRAMMAR_GBNF, "root ::= x\nx ::= y \"1\" | \"2\"\ny ::= x \"3\" | \"4\"", IN("2", "41", "231", "41313131"));
    outside(DI_GRAMMAR_GBNF, "root ::= x\nx ::= y \"1\" | \"2\"\ny ::= x \"3\" | \"4\"", IN("4", "23", "411"));
    inside(DI_GRAMMAR_GBNF, "root ::= [ab] root [ab] | \"c\"", IN("c", "acb", "abcba", "bacaa"));
    outside(DI_GRAMMAR_GBNF, "root ::= [ab] root [ab] | \"c\"", IN("ac", "aacb", "cc"));
}

static void unit_cycles_and_empty_rules_end(void **state)
{
    (void)state;
    inside(DI_GRAMMAR_GBNF, "root ::= x\nx ::= y | \"a\" x \"b\"\ny ::= x | e\ne ::= \"\"", IN("", "ab", "aabb"));
    outside(DI_GRAMMAR_GBNF, "root ::= x\nx ::= y | \"a\" x \"b\"\ny ::= x | e\ne ::= \"\"", IN("a", "abab"));
    inside(DI_GRAMMAR_GBNF, "root ::= e e root \"x\" e | e\ne ::= \"\"", IN("", "x", "xxxx"));
}

static void strings_classes_and_repetitions(void **state)
{
    (void)state;
    inside(DI_GRAMMAR_GBNF, "root ::= \"a\\n\\x41\\u732b\\\"\" [^a-c\\]]{2} .", IN("a\nA猫\"xyz", "a\nA猫\"de猫"));
    outside(DI_GRAMMAR_GBNF, "root ::= [^a-c\\]]{2}", IN("ax", "x]", "x", "xyz"));
    inside(DI_GRAMMAR_GBNF, "root ::= (\"ab\" | [0-9]+){1,2} x? x{,1}\nx ::= \"(\" x? \")\"", IN("ab", "ab12", "12(())", "12()(())"));
    outside(DI_GRAMMAR_GBNF, "root ::= (\"ab\"){1,2}", IN("", "ababab"));
    inside(DI_GRAMMAR_GBNF, "root ::= x{2,}\nx ::= \"(\" x* \")\"", IN("()()", "(())()()"));
    outside(DI_GRAMMAR_GBNF, "root ::= x{2,}\nx ::= \"(\" x* \")\"", IN("()", "(()())"));
    inside(DI_GRAMMAR_GBNF, "root ::=\n  \"a\"\n  | \"b\" # one\n    \"c\"\n\nother ::= \"x\"", IN("a", "bc"));
}

static void faults_of_gbnf_have_their_place(void **state)
{
    (void)state;
    refused(DI_GRAMMAR_GBNF, "root ::= \"a", DI_E_FORMAT, "invalid_grammar", 9, "line 1, column 10");
    refused(DI_GRAMMAR_GBNF, "root ::= x\nx ::= [a", DI_E_FORMAT, "invalid_grammar", 17, "line 2, column 7");
    refused(DI_GRAMMAR_GBNF, "root ::= y", DI_E_FORMAT, "undefined_rule", 9, "'y'");
    refused(DI_GRAMMAR_GBNF, "rot ::= \"y\"", DI_E_FORMAT, "undefined_rule", 0, "'root'");
    refused(DI_GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", DI_E_FORMAT, "invalid_grammar", 13, "twice");
    refused(DI_GRAMMAR_GBNF, "root ::= (\"a\"", DI_E_FORMAT, "invalid_grammar", 9, "parenthesis");
    refused(DI_GRAMMAR_GBNF, "root ::= \"a\"{3,2}", DI_E_FORMAT, "invalid_grammar", 12, "wrong way round");
    refused(DI_GRAMMAR_GBNF, "root ::= !<[5]>", DI_E_UNSUPPORTED, "invalid_grammar", 9, "not supported");
    refused(DI_GRAMMAR_GBNF, "root ::= root \"a\"", DI_E_FORMAT, "invalid_grammar", -1, "no text");
    refused(DI_GRAMMAR_GBNF, "root ::= \"\\q\"", DI_E_FORMAT, "invalid_grammar", 10, "escape");
    refused(DI_GRAMMAR_GBNF, "root ::= \"\xff\"", DI_E_FORMAT, "invalid_grammar", 10, "UTF-8");
}

/* --- Lark --------------------------------------------------------------------------------------------------------- */

static void lark_rules_and_terminals(void **state)
{
    (void)state;
    static const char sums[] = "// sums\n"
                               "?start: sum\n"
                               "sum: product | sum (\"+\" | \"-\") product -> add\n"
                               "product: NUMBER\n"
                               "       | \"(\" sum \")\"\n"
                               "%import common.NUMBER\n"
                               "%import common.WS_INLINE -> WS\n"
                               "%ignore WS\n";
    inside(DI_GRAMMAR_LARK, sums, IN("1", " 1 + 2", "(1.5 -(2e3 )) ", "1+2"));
    outside(DI_GRAMMAR_LARK, sums, IN("", "1 2 +", "(1", "1\n"));
    static const char words[] = "start: GREETING \" \" /[a-z]+/i \"!\"~1..3 [TAIL]\nGREETING: \"hello\"i | \"bye\"\nTAIL: \"a\"..\"c\" ~ 2\n";
    inside(DI_GRAMMAR_LARK, words, IN("HeLLo World!", "bye x!!!ab"));
    outside(DI_GRAMMAR_LARK, words, IN("Bye x!", "hello x", "hello x!a", "hello x!!!!"));
}

static void lark_lexing_is_not_greedy(void **state)
{
    (void)state;
    inside(DI_GRAMMAR_LARK, "start: A B\nA: /a+/\nB: \"ab\"", IN("aab", "aaaab"));
    inside(DI_GRAMMAR_LARK, "start: C \"x\"*\nC[lazy]: /.*x/", IN("abx", "xx", "axxx"));
    inside(DI_GRAMMAR_LARK, "start: T\nT: /[a-z]+/ & ~(\"if\" | \"else\")", IN("iff", "i", "elsewhere"));
    outside(DI_GRAMMAR_LARK, "start: T\nT: /[a-z]+/ & ~(\"if\" | \"else\")", IN("if", "else", ""));
}

static void lark_takes_schemas(void **state)
{
    (void)state;
    static const char call[] = "start: \"call \" args \";\"+\nargs: %json {\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
                               "\"required\":[\"a\"],\"additionalProperties\":false} | %json {\"type\": \"number\"}\n";
    inside(DI_GRAMMAR_LARK, call, IN("call {\"a\": 12};", "call {\"a\":1};;", "call 1.5e3;", "call 12;;"));
    outside(DI_GRAMMAR_LARK, call, IN("call {};", "call {\"a\": 12}", "call 1.;", "call ;", "call {\"a\":\"x\"};"));
    inside(DI_GRAMMAR_LARK, "start: %json {\"type\": \"integer\"} /[0-9]x/", IN("12x", "-1239x"));
    outside(DI_GRAMMAR_LARK, "start: %json {\"type\": \"integer\"} /[0-9]x/", IN("1x", "x", "012x"));
    inside(DI_GRAMMAR_LARK, "start: %json {\"type\": \"string\"} | /\"[a-c]+x/ | %json {\"const\": [\"a\"]}", IN("\"ab\"", "\"abx", "[\"a\"]", "\"x\""));
    outside(DI_GRAMMAR_LARK, "start: %json {\"type\": \"string\"} | /\"[a-c]+x/", IN("\"abxx", "\"adx", "\""));
}

static void faults_of_lark(void **state)
{
    (void)state;
    refused(DI_GRAMMAR_LARK, "start: A\n", DI_E_FORMAT, "undefined_rule", 7, "'A'");
    refused(DI_GRAMMAR_LARK, "start: \"a\"\nA.2: \"b\"\n", DI_E_UNSUPPORTED, "invalid_grammar", 12, "priority");
    refused(DI_GRAMMAR_LARK, "%declare A\n", DI_E_UNSUPPORTED, "invalid_grammar", 0, "directive");
    refused(DI_GRAMMAR_LARK, "%import common.NOPE\nstart: NOPE", DI_E_UNSUPPORTED, "invalid_grammar", 15, "library");
    refused(DI_GRAMMAR_LARK, "start: /a(/\n", DI_E_FORMAT, "invalid_regex", 9, "group");
    refused(DI_GRAMMAR_LARK, "start: %json {\"type\": \"nope\"}\n", DI_E_FORMAT, "invalid_schema", -1, "");
    refused(DI_GRAMMAR_LARK, "start: ~start | \"a\"\n", DI_E_UNSUPPORTED, "invalid_grammar", -1, "recursive");
}

static void the_dialect_is_found_out(void **state)
{
    (void)state;
    inside(DI_GRAMMAR_EBNF, "root ::= \"a\"", IN("a"));
    inside(DI_GRAMMAR_EBNF, "start: \"a\"", IN("a"));
    const di_grammar_options options = {.root = "other"};
    assert_string_equal(gram_first_wrong(DI_GRAMMAR_EBNF, "root ::= \"a\"\nother ::= \"b\"", &options, true, IN("b")), "");
}

/* --- Tags --------------------------------------------------------------------------------------------------------- */

#define CALLS "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<fn=\"],\"tags\":[" \
              "{\"begin\":\"<fn=a>\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}},\"end\":\"</fn>\"}," \
              "{\"begin\":\"<fn=b>\",\"content\":{\"type\":\"any_text\"},\"end\":[\"</fn>\",\"<end>\"]}]"

static void text_is_free_until_a_trigger(void **state)
{
    (void)state;
    inside(DI_GRAMMAR_TAGS, CALLS "}}", IN("", "free < text <fn", "<fn=a>12</fn>", "x<fn=a>1</fn>y<fn=b>any </f text<end><fn=a>2</fn>", "<<fn=b></fn>>"));
    outside(DI_GRAMMAR_TAGS, CALLS "}}", IN("<fn=", "<fn=c>", "<fn=a>x</fn>", "<fn=a>1", "a<fn=b>x"));
    inside(DI_GRAMMAR_TAGS, CALLS ",\"at_least_one\":true}}", IN("<fn=a>12</fn>", "<fn=a>12</fn> and <fn=b>x</fn>."));
    outside(DI_GRAMMAR_TAGS, CALLS ",\"at_least_one\":true}}", IN("", "x<fn=a>12</fn>"));
    inside(DI_GRAMMAR_TAGS, CALLS ",\"stop_after_first\":true}}", IN("", "text", "x<fn=a>12</fn>"));
    outside(DI_GRAMMAR_TAGS, CALLS ",\"stop_after_first\":true}}", IN("<fn=a>12</fn>x", "<fn=a>1</fn><fn=a>1</fn>"));
    inside(DI_GRAMMAR_TAGS, CALLS ",\"excludes\":[\"bad\"]}}", IN("ba <fn=a>12</fn> ba"));
    outside(DI_GRAMMAR_TAGS, CALLS ",\"excludes\":[\"bad\"]}}", IN("bad", "<fn=a>12</fn> bad", "bad<fn=a>12</fn>"));
    static const char old[] = "{\"structures\":[{\"begin\":\"<f>\",\"schema\":{\"type\":\"boolean\"},\"end\":\"</f>\"}],\"triggers\":[\"<f\"]}";
    inside(DI_GRAMMAR_TAGS, old, IN("a<f>true</f>b", "x", ""));
    outside(DI_GRAMMAR_TAGS, old, IN("<f>1</f>", "<fx"));
}

static void formats_compose(void **state)
{
    (void)state;
    static const char all[] = "{\"type\":\"sequence\",\"elements\":[{\"type\":\"const_string\",\"value\":\"A:\"},{\"type\":\"or\",\"elements\":["
                              "{\"type\":\"regex\",\"pattern\":\"[0-9]+\"},"
                              "{\"type\":\"grammar\",\"grammar\":\"root ::= \\\"(\\\" root \\\")\\\" | \\\"x\\\"\"}]},"
                              "{\"type\":\"optional\",\"content\":{\"type\":\"const_string\",\"value\":\"?\"}},"
                              "{\"type\":\"repeat\",\"min\":1,\"max\":2,\"content\":{\"type\":\"const_string\",\"value\":\"!\"}}]}";
    inside(DI_GRAMMAR_TAGS, all, IN("A:12!", "A:((x))?!!", "A:x!"));
    outside(DI_GRAMMAR_TAGS, all, IN("A:12", "A:((x)!", "A:12?""?!", "A:1!!!"));
    static const char list[] = "{\"type\":\"tags_with_separator\",\"separator\":\",\","
                               "\"tags\":[{\"begin\":\"<\",\"content\":{\"type\":\"any_text\"},\"end\":\">\"}]}";
    inside(DI_GRAMMAR_TAGS, list, IN("", "<a>", "<a>,<b>,<>"));
    outside(DI_GRAMMAR_TAGS, list, IN("<a>,", "<a><b>", ",<a>", "<a>b>"));
    static const char dispatch[] = "{\"type\":\"tag\",\"begin\":\"[\",\"end\":\"]\",\"content\":{\"type\":\"dispatch\",\"rules\":[[\"#\",{\"type\":\"regex\","
                                   "\"pattern\":\"[0-9]{2}\"}],[\"$\",{\"type\":\"const_string\",\"value\":\"x\"}]]}}";
    inside(DI_GRAMMAR_TAGS, dispatch, IN("[]", "[abc]", "[a#12b$x$x#34]"));
    outside(DI_GRAMMAR_TAGS, dispatch, IN("[#1]", "[a]b]", "[$y]", "[#12"));
}

static void faults_of_tags(void **state)
{
    (void)state;
    refused(DI_GRAMMAR_TAGS, "{\"type\":\"nope\"}", DI_E_UNSUPPORTED, "invalid_grammar", -1, "nope");
    refused(DI_GRAMMAR_TAGS, "[1]", DI_E_FORMAT, "invalid_grammar", -1, "type");
    refused(DI_GRAMMAR_TAGS, "{\"type\":\"const_string\"}", DI_E_FORMAT, "invalid_grammar", -1, "value");
    refused(DI_GRAMMAR_TAGS, "{\"type\":\"triggered_tags\",\"triggers\":[\"x\"],"
            "\"tags\":[{\"begin\":\"y\",\"content\":{\"type\":\"any_text\"},\"end\":\"z\"}]}",
            DI_E_FORMAT, "invalid_grammar", -1, "trigger");
    refused(DI_GRAMMAR_TAGS, "{\"type\":\"tag\",\"begin\":\"y\",\"end\":\"z\"}", DI_E_FORMAT, "invalid_grammar", -1, "content");
    refused(DI_GRAMMAR_TAGS, "{\"type\":", DI_E_FORMAT, "invalid_schema", -1, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_may_be_recursive_in_every_way),
        cmocka_unit_test(unit_cycles_and_empty_rules_end),
        cmocka_unit_test(strings_classes_and_repetitions),
        cmocka_unit_test(faults_of_gbnf_have_their_place),
        cmocka_unit_test(lark_rules_and_terminals),
        cmocka_unit_test(lark_lexing_is_not_greedy),
        cmocka_unit_test(lark_takes_schemas),
        cmocka_unit_test(faults_of_lark),
        cmocka_unit_test(the_dialect_is_found_out),
        cmocka_unit_test(text_is_free_until_a_trigger),
        cmocka_unit_test(formats_compose),
        cmocka_unit_test(faults_of_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
