/* Masks against single steps, over the demo model's vocabulary: a token is in the mask exactly when it is accepted, an end id exactly when
 * the text is complete, no mask is empty, and nothing depends on what was asked before. */
#include "gram_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static di_tokenizer *tokenizer;
static di_vocabulary *vocabulary;
static size_t n_words;
static int32_t n_ids;

enum { END_ID = 1, MAX_TOKENS = 60 };

static const struct {
    di_grammar_kind kind;
    const char *text;
} grammars[] = {
    {DI_GRAMMAR_SCHEMA, "{}"},
    {DI_GRAMMAR_JSON_OBJECT, ""},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":5}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":40}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z ]+[0-9]$\",\"maxLength\":20}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"x\"}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"date-time\"}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"not\":{\"enum\":[\"the\",\"a\",\"them\"]},\"maxLength\":6}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":1000,\"multipleOf\":0.25}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"the\":{\"type\":\"integer\"},\"them\":{\"type\":\"string\"}},"
                        "\"required\":[\"the\"],\"additionalProperties\":{\"type\":\"null\"},\"maxProperties\":3}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"uniqueItems\":true,\"maxItems\":4}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"the\",\"them\",\"then\",\"\",\"a\",\"an\",\"é\",\"猫\"]}}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true}"},
    {DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"é\":{},\"猫\":{}},\"patternProperties\":{\"^[à-ÿ]\":{\"type\":\"null\"}},"
                        "\"propertyNames\":{\"maxLength\":3}}"},
    {DI_GRAMMAR_SCHEMA, "{\"oneOf\":[{\"type\":\"array\",\"contains\":{\"const\":1}},{\"type\":\"array\",\"minItems\":3},{\"enum\":[{\"a\":[1]}]}]}"},
    {DI_GRAMMAR_SCHEMA, "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"boolean\"},\"n\":{"
                        "\"$ref\":\"#/$defs/n\"}},\"required\":[\"v\"],\"additionalProperties\":false}}}"},
    {DI_GRAMMAR_REGEX, "(?:[a-z]+ ){2,9}(?:the|end)\\."},
    {DI_GRAMMAR_REGEX, "[^x]{0,12}x?"},
    {DI_GRAMMAR_REGEX, "(?!.*ab).*"},
    {DI_GRAMMAR_CHOICE, "[\"the\",\"then\",\"the end\",\"猫\"]"},
};

static bool has(const uint32_t *mask, int32_t id) { return (mask[id / 32] >> id % 32 & 1) != 0; }

static void mask_of(di_matcher *m, uint32_t *mask)
{
    di_error err;
    if (di_matcher_mask(m, mask, NULL, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
}

/* Every id of the vocabulary, one step and back. */
static void expect_exact(di_matcher *m, const uint32_t *mask, const char *name)
{
    di_error err;
    for (int32_t id = 0; id < n_ids; id++) {
        bool accepted;
        assert_int_equal(di_matcher_accept(m, id, &accepted, &err), DI_OK);
        if (accepted) {
            assert_int_equal(di_matcher_rollback(m, 1, &err), DI_OK);
        }
        if (accepted != has(mask, id)) {
            fail_msg("%s: after %zu steps id %d is %s", name, di_matcher_steps(m), id, accepted ? "not in the mask" : "wrongly in the mask");
        }
    }
}

/* An allowed id, each as likely, but the end id where it may be one time in four. */
static int32_t choose(const uint32_t *mask, uint64_t *random)
{
    int32_t n = 0;
    for (size_t i = 0; i < n_words; i++) {
        n += __builtin_popcount(mask[i]);
    }
    assert_int_not_equal(n, 0);
    if (has(mask, END_ID) && (n == 1 || unit_random(random) % 4 == 0)) {
        return END_ID;
    }
    int32_t skip = (int32_t)(unit_random(random) % (uint64_t)n);
    for (int32_t id = 0;; id++) {
        if (has(mask, id) && skip-- == 0) {
            return id;
        }
    }
}

static void walk(size_t which, uint64_t seed, bool all)
{
    di_error err;
    di_matcher *m;
    di_grammar *const g = gram_must(grammars[which].kind, grammars[which].text, NULL);
    uint32_t *const mask = calloc(2 * n_words, sizeof *mask);
    uint64_t random = seed;
    assert_non_null(mask);
    assert_int_equal(di_matcher_new(g, vocabulary, &m, &err), DI_OK);
    for (int step = 0; step < MAX_TOKENS; step++) {
        bool accepted;
        mask_of(m, mask);
        if ((all && step < 20) || unit_random(&random) % 16 == 0) {
            expect_exact(m, mask, grammars[which].text);
            mask_of(m, mask + n_words); /* from the cache, or again */
            assert_memory_equal(mask, mask + n_words, n_words * sizeof *mask);
        }
        const int32_t id = choose(mask, &random);
        assert_int_equal(di_matcher_accept(m, id, &accepted, &err), DI_OK);
        assert_true(accepted);
        if (id == END_ID) {
            break;
        }
        if (unit_random(&random) % 8 == 0) {
            assert_int_equal(di_matcher_rollback(m, 1, &err), DI_OK);
            mask_of(m, mask + n_words);
            assert_memory_equal(mask, mask + n_words, n_words * sizeof *mask);
        }
    }
    di_matcher_free(m);
    di_grammar_free(g);
    free(mask);
}

static void a_mask_is_what_single_steps_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        for (uint64_t seed = 0; seed < 4; seed++) {
            walk(i, seed * 1000 + i, seed == 0);
        }
    }
}

static void a_fresh_matcher_gives_the_same_masks(void **state)
{
    (void)state;
    di_error err;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        di_matcher *a;
        di_matcher *b;
        int32_t ids[MAX_TOKENS];
        size_t n = 0;
        size_t n_valid;
        bool accepted = true;
        uint64_t random = 77 + i;
        di_grammar *const g = gram_must(grammars[i].kind, grammars[i].text, NULL);
        di_grammar *const fresh = gram_must(grammars[i].kind, grammars[i].text, NULL);
        uint32_t *const rows = calloc((MAX_TOKENS + 2) * n_words, sizeof *rows);
        uint32_t *const mask = rows + (MAX_TOKENS + 1) * n_words;
        assert_int_equal(di_matcher_new(g, vocabulary, &a, &err), DI_OK);
        assert_int_equal(di_matcher_new(fresh, vocabulary, &b, &err), DI_OK);
        for (; n < MAX_TOKENS; n++) {
            mask_of(a, mask);
            ids[n] = choose(mask, &random);
            if (ids[n] == END_ID) {
                break;
            }
            assert_int_equal(di_matcher_accept(a, ids[n], &accepted, &err), DI_OK);
        }
        assert_int_equal(di_matcher_mask_chain(b, ids, n, rows, &n_valid, &err), DI_OK);
        assert_int_equal(n_valid, n);
        assert_int_equal(di_matcher_steps(b), 0);
        assert_int_equal(di_matcher_rollback(a, n, &err), DI_OK);
        for (size_t k = 0; k < n; k++) {
            mask_of(a, mask);
            assert_memory_equal(mask, rows + k * n_words, n_words * sizeof *mask);
            assert_int_equal(di_matcher_accept(a, ids[k], &accepted, &err), DI_OK);
        }
        di_matcher_free(a);
        di_matcher_free(b);
        di_grammar_free(g);
        di_grammar_free(fresh);
        free(rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_is_what_single_steps_say),
        cmocka_unit_test(a_fresh_matcher_gives_the_same_masks),
    };
    if (gram_open_demo(&tokenizer, END_ID, &vocabulary) != 0) {
        return 1;
    }
    n_words = di_vocabulary_mask_words(vocabulary);
    n_ids = di_tokenizer_vocab_size(tokenizer);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    di_vocabulary_free(vocabulary);
    di_tokenizer_close(tokenizer);
    return failed;
}
