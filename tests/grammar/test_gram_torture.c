/* Fails each allocation of compiling and matching in turn (support/torture.h): a clean DI_E_MEMORY, no leak.
 * ctest: wrap=malloc,calloc,realloc,strdup,aligned_alloc,free timeout=300 */
#include "gram_support.h"
#include "support/torture.h"

#include <deepinfer/grammar.h>

#include <stdio.h>

static di_tokenizer *tokenizer;
enum { END_ID = 1 };

typedef struct torture_case {
    const char *name;
    di_grammar_kind kind;
    const char *text;
    const char *begun;
} torture_case;

static const torture_case cases[] = {
    {"regex", DI_GRAMMAR_REGEX, "(a|bc)+[d-f]{2,5}", "abc"},
    {"schema", DI_GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"enum\":[1,\"x\",null]},\"uniqueItems\":true}},\"required\":[\"a\"]}",
     "{\"a\": [1, \"x\"], \"b\": 2"},
    {"choice", DI_GRAMMAR_CHOICE, "[\"one\",\"two\"]", "t"},
    {"gbnf", DI_GRAMMAR_GBNF, "root ::= root \"+\" part | part\npart ::= [0-9]+ | \"(\" root \")\" | \"a\"{2,3}", "1+(2"},
    {"lark", DI_GRAMMAR_LARK, "start: A [B] %json {\"type\":\"boolean\"} | \"(\" start \")\"\nA: /x+/\nB: A \"y\"\n%ignore \" \"", "( x"},
    {"tags", DI_GRAMMAR_TAGS,
     "{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[{\"begin\":\"<f>\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":"
     "\"array\"}},\"end\":\"</f>\"}]}",
     "text <f>[1"},
};

static di_status match(di_grammar *g, const char *begun, di_error *err)
{
    di_vocabulary *v = NULL;
    di_matcher *m = NULL;
    di_matcher *copy = NULL;
    uint32_t *mask = NULL;
    const int32_t end = END_ID;
    size_t n;
    size_t n_tokens;
    char rest[64];
    di_status status = di_vocabulary_new(tokenizer, &end, 1, &v, err);
    if (status == DI_OK) {
        mask = calloc(di_vocabulary_mask_words(v), sizeof *mask);
        status = mask != NULL ? di_matcher_new(g, v, &m, err) : DI_E_MEMORY;
        if (mask == NULL) {
            (void)snprintf(err->message, sizeof err->message, "out of memory");
            err->code = DI_E_MEMORY;
        }
    }
    if (status == DI_OK) {
        status = di_matcher_accept_bytes(m, begun, strlen(begun), &n, err);
    }
    if (status == DI_OK) {
        status = di_matcher_mask(m, mask, NULL, err);
    }
    if (status == DI_OK) {
        status = di_matcher_fork(m, &copy, err);
    }
    if (status == DI_OK) {
        status = di_matcher_completion(copy, rest, sizeof rest, &n, &n_tokens, err);
    }
    if (status == DI_OK) {
        status = di_matcher_accept_bytes(copy, rest, n, &n, err);
    }
    di_matcher_free(copy);
    di_matcher_free(m);
    di_vocabulary_free(v);
    free(mask);
    return status;
}

static di_status compile_and_match(const void *arg, di_error *err)
{
    const torture_case *c = arg;
    di_grammar *g;
    di_status status = di_grammar_compile(c->kind, c->text, strlen(c->text), NULL, &g, NULL, err);
    if (status == DI_OK) {
        status = match(g, c->begun, err);
        di_grammar_free(g);
    }
    return status;
}

static di_status tools(const void *arg, di_error *err)
{
    (void)arg;
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"},\"y\":{\"type\":\"number\"}},"
                                 "\"additionalProperties\":false}";
    const di_grammar_tool list[] = {{"a", NULL, 0, false}, {"b", schema, sizeof schema - 1, true}};
    const di_grammar_tools all = {.tools = list, .n_tools = 2, .marker = "｜DSML｜", .block = " calls", .call = " invoke", .parameter = " parameter"};
    di_grammar *g;
    di_status status = di_grammar_compile_tools(&all, NULL, &g, NULL, err);
    if (status == DI_OK) {
        status = match(g, "an answer\n\n<", err);
        di_grammar_free(g);
    }
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        torture_all(cases[i].name, compile_and_match, &cases[i], 20);
    }
    torture_all("tools", tools, NULL, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    if (gram_open_demo(&tokenizer, 0, NULL) != 0) {
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    di_tokenizer_close(tokenizer);
    return failed;
}
