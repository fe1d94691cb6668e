/* Ends in time: completions are texts of the grammar, and short; masks that know how many tokens are left let
 * every text end. */
#include "gram_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static di_tokenizer *tokenizer;
static di_vocabulary *vocabulary;
static size_t n_words;
enum { END_ID = 1 };

static const struct {
    di_grammar_kind kind;
    const char *text;
    const char *begun;
    const char *rest;
} cases[] = {
    {DI_GRAMMAR_SCHEMA, "{}", "", "0"},
    {DI_GRAMMAR_SCHEMA, "{}", "[{\"a\":[1,", "0]}]"},
    {DI_GRAMMAR_SCHEMA, "{}", "{\"a\": \"b\\", "\"\"}"},
    {DI_GRAMMAR_JSON_OBJECT, "", "{\"a\"", ":0}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":3}", "\"a", "  \""},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"b\":{\"const\":\"x\"},\"a\":{},\"long\":{\"type\":\"boolean\"}},\"required\":[\"long\"],"
                        "\"additionalProperties\":false}",
     "{\"b\":\"x\"", ",\"long\":true}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":4,\"uniqueItems\":true}", "[0,1", ",2,3]"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"minProperties\":2}", "{\"\":1,", "\" \":0}"},
    {DI_GRAMMAR_SCHEMA, "{\"enum\":[\"abcdef\",\"abd\",\"abcxyz\"]}", "\"abc", "def\""},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z]{4}(-[0-9]{3})?$\"}", "\"ab", "aa\""},
    {DI_GRAMMAR_REGEX, "(ab|abcd)+e", "abc", "de"},
    {DI_GRAMMAR_REGEX, "[^x]*xyz", "猫", "xyz"},
    {DI_GRAMMAR_GBNF, "root ::= \"(\" (root \";\")* \"end)\"", "((end);(", "end);end)"},
    {DI_GRAMMAR_LARK, "start: \"a\" %json {\"type\":\"array\",\"minItems\":2} \"b\"", "a[[", "],0]b"},
    {DI_GRAMMAR_TAGS, "{\"type\":\"triggered_tags\",\"triggers\":[\"<f\"],\"tags\":[{\"begin\":\"<f>\",\"content\":{\"type\":\"json_schema\",\"json_schema\":"
                      "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\"}},\"required\":[\"x\"]}},\"end\":\"</f>\"}]}",
     "text <f", ">{\"x\":0}</f>"},
};

static void completions_are_the_shortest(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        di_error err;
        di_matcher *m;
        char rest[256];
        size_t n;
        size_t n_tokens;
        di_grammar *const g = gram_must(cases[i].kind, cases[i].text, NULL);
        assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
        assert_int_equal(di_matcher_accept_bytes(m, cases[i].begun, strlen(cases[i].begun), &n, &err), DI_OK);
        assert_int_equal(n, strlen(cases[i].begun));
        if (di_matcher_completion(m, rest, sizeof rest, &n, &n_tokens, &err) != DI_OK) {
            fail_msg("%s: %s", cases[i].text, err.message);
        }
        if (n != strlen(cases[i].rest) || memcmp(rest, cases[i].rest, n) != 0) {
            fail_msg("%s: behind %s comes %.*s", cases[i].text, cases[i].begun, (int)n, rest);
        }
        assert_true(n_tokens >= 1 && n_tokens <= n);
        di_matcher_free(m);
        di_grammar_free(g);
    }
}

static bool has(const uint32_t *mask, int32_t id) { return (mask[id / 32] >> id % 32 & 1) != 0; }

static int32_t choose(const uint32_t *mask, uint64_t *random)
{
    size_t n = 0;
    for (size_t i = 0; i < n_words; i++) {
        n += (size_t)__builtin_popcount(mask[i]);
    }
    assert_true(n > 0);
    size_t skip = (size_t)(unit_random(random) % n);
    for (int32_t id = 0;; id++) {
        if (has(mask, id) && skip-- == 0) {
            return id;
        }
    }
}

/* Takes at most n_left tokens. */
static void walk(size_t which, size_t n_left, uint64_t seed)
{
    di_error err;
    di_matcher *m;
    uint64_t random = seed;
    bool accepted;
    di_grammar *const g = gram_must(cases[which].kind, cases[which].text, NULL);
    uint32_t *const mask = calloc(n_words, sizeof *mask);
    assert_non_null(mask);
    assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
    for (size_t left = n_left;; left--) {
        if (left == 0) {
            fail_msg("%s: not at its end after %zu tokens", cases[which].text, n_left);
        }
        if (di_matcher_mask_within(m, left, mask, NULL, NULL, &err) != DI_OK) {
            fail_msg("%s: %s", cases[which].text, err.message);
        }
        const int32_t id = choose(mask, &random);
        assert_int_equal(di_matcher_accept(m, id, &accepted, &err), DI_OK);
        assert_true(accepted);
        if (id == END_ID) {
            break;
        }
    }
    di_matcher_free(m);
    di_grammar_free(g);
    free(mask);
}

static void texts_end_within_their_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t seed = 0; seed < 2; seed++) {
            walk(i, 24 + 20 * seed, 100 * i + seed);
        }
    }
}

/* Many names are as good as each other: the search gives up, the machine is still good, and masks leave nothing out. */
static void a_search_that_is_too_long_is_given_up(void **state)
{
    (void)state;
    di_error err;
    di_matcher *m;
    size_t n;
    bool closing;
    di_grammar *const g = gram_must(DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"minProperties\":5}", NULL);
    uint32_t *const mask = calloc(2 * n_words, sizeof *mask);
    assert_non_null(mask);
    assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
    unit_expect_error(di_matcher_completion(m, NULL, 0, &n, NULL, &err), DI_E_LIMIT, &err, "too far away", NULL);
    assert_int_equal(di_matcher_mask_within(m, 30, mask, NULL, &closing, &err), DI_OK);
    assert_false(closing);
    assert_int_equal(di_matcher_mask(m, mask + n_words, NULL, &err), DI_OK);
    assert_memory_equal(mask, mask + n_words, n_words * sizeof *mask);
    di_matcher_free(m);
    di_grammar_free(g);
    free(mask);
}

/* The states that a search makes stay; it takes a part of the memory at most, and leaves the rest to the text. */
static void a_search_leaves_memory_for_the_text(void **state)
{
    (void)state;
    di_error err;
    di_matcher *m;
    size_t n;
    const di_grammar_options options = {.limits = {.max_memory_bytes = (size_t)4 << 20}};
    const char text[] = "{\"a\":1,\"b\":2}";
    di_grammar *const g = gram_must(DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"minProperties\":5}", &options);
    assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
    for (int i = 0; i < 3; i++) {
        unit_expect_error(di_matcher_completion(m, NULL, 0, &n, NULL, &err), DI_E_LIMIT, &err, "too far away", NULL);
    }
    assert_int_equal(di_matcher_accept_bytes(m, text, sizeof text - 2, &n, &err), DI_OK);
    assert_int_equal(n, sizeof text - 2);
    di_matcher_free(m);
    di_grammar_free(g);
}

static void without_room_the_shortest_way_is_taken(void **state)
{
    (void)state;
    di_error err;
    di_matcher *m;
    bool closing;
    bool accepted;
    size_t n;
    size_t n_tokens;
    char rest[256];
    di_grammar *const g = gram_must(DI_GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"const\":\"abcdefgh\"},\"minItems\":3}", NULL);
    uint32_t *const mask = calloc(n_words, sizeof *mask);
    assert_non_null(mask);
    assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
    for (size_t taken = 0;; taken++) {
        size_t before;
        uint64_t random = 1;
        assert_int_equal(di_matcher_completion(m, rest, sizeof rest, &n, &before, &err), DI_OK);
        assert_int_equal(di_matcher_mask_within(m, 2, mask, NULL, &closing, &err), DI_OK);
        const int32_t id = choose(mask, &random);
        assert_int_equal(di_matcher_accept(m, id, &accepted, &err), DI_OK);
        assert_true(accepted);
        if (id == END_ID) {
            break;
        }
        assert_true(closing || before < 2);
        assert_int_equal(di_matcher_completion(m, rest, sizeof rest, &n, &n_tokens, &err), DI_OK);
        assert_int_equal(n_tokens, before - 1);
    }
    di_matcher_free(m);
    di_grammar_free(g);
    free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions_are_the_shortest),
        cmocka_unit_test(texts_end_within_their_tokens),
        cmocka_unit_test(a_search_that_is_too_long_is_given_up),
        cmocka_unit_test(a_search_leaves_memory_for_the_text),
        cmocka_unit_test(without_room_the_shortest_way_is_taken),
    };
    if (gram_open_demo(&tokenizer, END_ID, &vocabulary) != 0) {
        return 1;
    }
    n_words = di_vocabulary_mask_words(vocabulary);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    di_vocabulary_free(vocabulary);
    di_tokenizer_close(tokenizer);
    return failed;
}
