/* A choice under a grammar, step by step: masks behind accepted tokens and behind drafts are those of a matcher that went the same way, the
 * end of the reasoning may stand anywhere among them, and drafts leave nothing behind. */
#include "engine/eng_grammar.h"
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_DRAFTS = 5, END = 1 };

static di_tokenizer *tokenizer;
static di_vocabulary *vocabulary;
static di_grammar *grammar;
static size_t words;

static int set_up(void **state)
{
    static const char expression[] = "[ab]{2,4}!";
    const int32_t end = END;
    char path[1024];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/models/demo/tokenizer.json", getenv("DI_SOURCE_DIR"));
    assert_int_equal(di_tokenizer_open(path, &tokenizer, NULL), DI_OK);
    assert_int_equal(di_vocabulary_new(tokenizer, &end, 1, &vocabulary, NULL), DI_OK);
    assert_int_equal(di_grammar_compile(DI_GRAMMAR_REGEX, expression, sizeof expression - 1, NULL, &grammar, NULL, NULL), DI_OK);
    words = di_vocabulary_mask_words(vocabulary);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    di_grammar_free(grammar);
    di_vocabulary_free(vocabulary);
    di_tokenizer_close(tokenizer);
    return 0;
}

static int32_t id_of(const char *text)
{
    const int32_t id = di_tokenizer_find(tokenizer, text, strlen(text));
    assert_true(id >= 0);
    return id;
}

static eng_constraint *open_constraint(bool waits)
{
    eng_constraint *c = NULL;
    const eng_constraint_options o = {
        .grammar = grammar, .vocabulary = vocabulary, .waits = waits, .begin_id = id_of("</think>"), .n_drafts = N_DRAFTS};
    assert_int_equal(eng_constraint_new(&o, &c, NULL), DI_OK);
    return c;
}

static bool allows(const uint32_t *mask, int32_t id) { return (mask[id / 32] >> id % 32 & 1) != 0; }

/* The mask is that behind `text`. */
static void expect_mask(const uint32_t *mask, const char *text)
{
    di_matcher *m;
    size_t n;
    uint32_t *const expected = calloc(words, sizeof *expected);
    assert_non_null(expected);
    assert_non_null(mask);
    assert_int_equal(di_matcher_new(grammar, vocabulary, &m, NULL), DI_OK);
    assert_int_equal(di_matcher_accept_bytes(m, text, strlen(text), &n, NULL), DI_OK);
    assert_int_equal(n, strlen(text));
    assert_int_equal(di_matcher_mask(m, expected, NULL, NULL), DI_OK);
    assert_memory_equal(mask, expected, words * sizeof *mask);
    di_matcher_free(m);
    free(expected);
}

/* Everything but the end. */
static void expect_reasoning(const uint32_t *mask)
{
    assert_non_null(mask);
    assert_false(allows(mask, END));
    assert_true(allows(mask, id_of("</think>")));
    assert_true(allows(mask, id_of("z")));
}

static void accept(eng_constraint *c, const char *token, bool end)
{
    bool ended = !end;
    assert_true(eng_constraint_accept(c, end ? END : id_of(token), &ended));
    assert_int_equal(ended, end);
    assert_null(eng_constraint_error(c));
}

static void masks_follow_the_drafts(void **state)
{
    (void)state;
    eng_constraint *const c = open_constraint(false);
    const int32_t drafts[] = {id_of("a"), id_of("b"), id_of("!"), END};
    assert_int_equal(eng_constraint_prepare(c, drafts, 4), 4); /* nothing follows the end */
    expect_mask(eng_constraint_mask(c), "");
    accept(c, "a", false);
    expect_mask(eng_constraint_mask(c), "a");
    accept(c, "b", false);
    expect_mask(eng_constraint_mask(c), "ab");
    accept(c, "!", false);
    expect_mask(eng_constraint_mask(c), "ab!");
    accept(c, "", true);
    assert_null(eng_constraint_mask(c));
    eng_constraint_free(c);
}

static void a_draft_that_is_forbidden_ends_the_line(void **state)
{
    (void)state;
    eng_constraint *const c = open_constraint(false);
    const int32_t drafts[] = {id_of("a"), id_of("z"), id_of("b")};
    assert_int_equal(eng_constraint_prepare(c, drafts, 3), 2);
    accept(c, "a", false);
    expect_mask(eng_constraint_mask(c), "a");
    accept(c, "b", false); /* what was sampled in place of the draft */
    assert_null(eng_constraint_mask(c));
    assert_null(eng_constraint_error(c));
    assert_int_equal(eng_constraint_prepare(c, NULL, 0), 1);
    expect_mask(eng_constraint_mask(c), "ab");
    eng_constraint_free(c);
}

static void the_reasoning_may_end_among_the_drafts(void **state)
{
    (void)state;
    eng_constraint *const c = open_constraint(true);
    const int32_t drafts[] = {id_of("z"), id_of("</think>"), id_of("b"), id_of("</think>")};
    assert_int_equal(eng_constraint_prepare(c, drafts, 4), 4); /* a second one is no text of the grammar */
    expect_reasoning(eng_constraint_mask(c));
    accept(c, "z", false);
    expect_reasoning(eng_constraint_mask(c));
    accept(c, "</think>", false);
    expect_mask(eng_constraint_mask(c), "");
    accept(c, "b", false);
    expect_mask(eng_constraint_mask(c), "b");
    eng_constraint_free(c);
}

static void drafts_that_cross_the_reasoning_leave_nothing_behind(void **state)
{
    (void)state;
    eng_constraint *const c = open_constraint(true);
    const int32_t drafts[] = {id_of("</think>"), id_of("a")};
    assert_int_equal(eng_constraint_prepare(c, drafts, 2), 3);
    accept(c, "z", false);
    assert_int_equal(eng_constraint_prepare(c, NULL, 0), 1);
    expect_reasoning(eng_constraint_mask(c));
    eng_constraint_free(c);
}

static void masks_of_proposing_are_used_again(void **state)
{
    (void)state;
    eng_constraint *const c = open_constraint(false);
    const int32_t drafts[] = {id_of("b"), id_of("a")};
    expect_mask(eng_constraint_try_mask(c), "");
    assert_true(eng_constraint_try(c, drafts[0]));
    expect_mask(eng_constraint_try_mask(c), "b");
    assert_true(eng_constraint_try(c, drafts[1]));
    eng_constraint_take_back(c);
    assert_int_equal(eng_constraint_prepare(c, drafts, 2), 1); /* the one behind the last draft */
    expect_mask(eng_constraint_mask(c), "");
    accept(c, "b", false);
    expect_mask(eng_constraint_mask(c), "b");
    accept(c, "a", false);
    expect_mask(eng_constraint_mask(c), "ba");
    eng_constraint_free(c);
}

static void no_draft_follows_the_end(void **state)
{
    (void)state;
    eng_constraint *const c = open_constraint(false);
    const char *const text[] = {"a", "b", "!"};
    for (int i = 0; i < 3; i++) {
        assert_non_null(eng_constraint_try_mask(c));
        assert_true(eng_constraint_try(c, id_of(text[i])));
    }
    assert_non_null(eng_constraint_try_mask(c));
    assert_false(eng_constraint_try(c, END));
    assert_null(eng_constraint_try_mask(c));
    eng_constraint_take_back(c);
    assert_int_equal(eng_constraint_prepare(c, NULL, 0), 0);
    expect_mask(eng_constraint_mask(c), "");
    eng_constraint_free(c);
}

static void a_forbidden_token_is_an_error_of_this_choice(void **state)
{
    (void)state;
    eng_constraint *const c = open_constraint(false);
    eng_constraint *const other = open_constraint(false);
    bool ended;
    assert_int_equal(eng_constraint_prepare(c, NULL, 0), 1);
    assert_false(eng_constraint_accept(c, id_of("z"), &ended));
    assert_int_equal(eng_constraint_error(c)->code, DI_E_INTERNAL);
    assert_int_equal(eng_constraint_prepare(c, NULL, 0), 0);
    assert_null(eng_constraint_mask(c));
    assert_int_equal(eng_constraint_prepare(other, NULL, 0), 1);
    expect_mask(eng_constraint_mask(other), "");
    eng_constraint_free(c);
    eng_constraint_free(other);
}

/* Ids of a text. */
static size_t ids_of(const char *text, int32_t *ids, size_t capacity)
{
    size_t n;
    assert_int_equal(di_tokenizer_encode(tokenizer, text, strlen(text), 0, ids, capacity, &n, NULL), DI_OK);
    return n;
}

/* The tokens are those of the whole text, wherever in it the sequence stands; no more than there is place for, and none where there is a
 * choice, before the constraint begins or behind the end. */
static void what_is_forced_is_cut_as_the_tokenizer_cuts_it(void **state)
{
    (void)state;
    static const char choice[] = "[\"{\\\"first name\\\": \\\"Ada\\\", \\\"born\\\": 1815}\"]";
    static const char said[] = "{\"first name\": \"Ada\", \"born\": 1815}";
    int32_t whole[64];
    int32_t got[64];
    bool ended = false;
    di_grammar *one = NULL;
    eng_constraint *c = NULL;
    assert_int_equal(di_grammar_compile(DI_GRAMMAR_CHOICE, choice, sizeof choice - 1, NULL, &one, NULL, NULL), DI_OK);
    const eng_constraint_options o = {
        .grammar = one, .vocabulary = vocabulary, .waits = true, .begin_id = id_of("</think>"), .n_drafts = N_DRAFTS};
    const size_t n = ids_of(said, whole, sizeof whole / sizeof whole[0]);
    assert_int_equal(eng_constraint_new(&o, &c, NULL), DI_OK);
    assert_int_equal(eng_constraint_forced(c, got, 64), 0);
    assert_true(eng_constraint_accept(c, id_of("</think>"), &ended));
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(eng_constraint_forced(c, got, 64), n - i);
        assert_memory_equal(got, whole + i, (n - i) * sizeof *got);
        assert_int_equal(eng_constraint_forced(c, got, 2), n - i < 2 ? n - i : 2);
        assert_true(eng_constraint_accept(c, whole[i], &ended));
    }
    assert_int_equal(eng_constraint_forced(c, got, 64), 0);
    assert_true(eng_constraint_accept(c, END, &ended));
    assert_int_equal(eng_constraint_forced(c, got, 64), 0);
    eng_constraint_free(c);
    di_grammar_free(one);
    c = open_constraint(false);
    assert_int_equal(eng_constraint_forced(c, got, 64), 0); /* [ab] */
    eng_constraint_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_follow_the_drafts),
        cmocka_unit_test(a_draft_that_is_forbidden_ends_the_line),
        cmocka_unit_test(the_reasoning_may_end_among_the_drafts),
        cmocka_unit_test(drafts_that_cross_the_reasoning_leave_nothing_behind),
        cmocka_unit_test(masks_of_proposing_are_used_again),
        cmocka_unit_test(no_draft_follows_the_end),
        cmocka_unit_test(a_forbidden_token_is_an_error_of_this_choice),
        cmocka_unit_test(what_is_forced_is_cut_as_the_tokenizer_cuts_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
