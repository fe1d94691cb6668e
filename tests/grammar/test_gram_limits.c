/* Inputs made to hurt: each ends in a defined error within its limits, or is handled; compiling can be cancelled;
 * and one grammar is used by many threads at once. */
#include "gram_support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *repeated(const char *before, const char *what, size_t n, const char *behind)
{
    const size_t n_before = strlen(before);
    const size_t n_what = strlen(what);
    char *text = malloc(n_before + n * n_what + strlen(behind) + 1);
    assert_non_null(text);
    memcpy(text, before, n_before);
    for (size_t i = 0; i < n; i++) {
        memcpy(text + n_before + i * n_what, what, n_what);
    }
    memcpy(text + n_before + n * n_what, behind, strlen(behind) + 1);
    return text;
}

static di_status compile(di_grammar_kind kind, const char *text, const di_grammar_options *options, di_grammar **g, di_grammar_fault *fault)
{
    di_error err;
    *g = NULL;
    return di_grammar_compile(kind, text, strlen(text), options, g, fault, &err);
}

static void refused(di_grammar_kind kind, char *text, di_status status, const char *fault_kind)
{
    di_grammar *g;
    di_grammar_fault fault;
    const di_grammar_options options = {.limits = {.compile_ms = 60000}}; /* sanitizers are slow */
    const di_status got = compile(kind, text, &options, &g, &fault);
    if (got != status || strcmp(fault.kind, fault_kind) != 0) {
        fail_msg("%.60s: %s, %s", text, di_status_name(got), fault.kind);
    }
    free(text);
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    refused(DI_GRAMMAR_REGEX, repeated("", "(", 60000, ""), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_GBNF, repeated("root ::= ", "(", 60000, ""), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_LARK, repeated("start: ", "(", 60000, ""), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_LARK, repeated("start: ", "~", 60000, "A"), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_GBNF, repeated("root ::= \"a\"", "?", 60000, ""), DI_E_FORMAT, "invalid_grammar");
    refused(DI_GRAMMAR_SCHEMA, repeated("", "{\"not\":", 60000, ""), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_TAGS, repeated("", "{\"type\":\"star\",\"content\":", 100, "{\"type\":\"any_text\"}") /* not closed */, DI_E_FORMAT,
            "invalid_schema");
}

static void sizes_have_limits(void **state)
{
    (void)state;
    refused(DI_GRAMMAR_GBNF, repeated("root ::= (root \"a\"){1000000}", "", 0, ""), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_GBNF, repeated("root ::= \"a\"{1000001}", "", 0, ""), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_CHOICE, repeated("[\"a\"", ",\"a\"", 60000, "]"), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_SCHEMA, repeated("{\"enum\":[0", ",0", 1000000, "]}"), DI_E_LIMIT, "limit_exceeded");
    refused(DI_GRAMMAR_GBNF, repeated("root ::= \"a\"", " ", 5000000, ""), DI_E_LIMIT, "limit_exceeded");
    char *rules = malloc(21000 * 24 + 64);
    assert_non_null(rules);
    size_t at = (size_t)sprintf(rules, "root ::= \"a\"\n");
    for (int i = 0; i < 20001; i++) {
        at += (size_t)sprintf(rules + at, "r%d ::= \"a\"\n", i);
    }
    refused(DI_GRAMMAR_GBNF, rules, DI_E_LIMIT, "limit_exceeded");
}

/* A text of n letters; false when a budget ended it, which is no error of the test. */
static bool takes(const char *grammar, size_t n, bool *whole)
{
    di_grammar *g = gram_must(DI_GRAMMAR_GBNF, grammar, NULL);
    char *text = repeated("", "a", n, "");
    const int64_t got = gram_check(g, text, n);
    *whole = got == GRAM_WHOLE;
    free(text);
    di_grammar_free(g);
    return got != GRAM_BUDGET;
}

static void ambiguous_grammars_are_followed_as_far_as_the_limits_go(void **state)
{
    (void)state;
    bool whole;
    assert_true(takes("root ::= root root | \"a\" | \"\"", 100, &whole));
    assert_true(whole);
    (void)takes("root ::= root root | \"a\" | \"\"", 100000, &whole); /* it ends */
    assert_true(takes("root ::= item | root item\nitem ::= \"a\" | \"aa\"", 2000, &whole));
    assert_true(whole);
}

/* Rows are the same again and again, so length costs nothing but time. */
static void long_lists_stay_small(void **state)
{
    (void)state;
    static const char *const lists[] = {"root ::= \"a\" root | \"a\"\nx ::= root",
                                        "root ::= root \"a\" | \"a\"", "root ::= x root | x\nx ::= \"a\" | \"(\" root \")\"",
                                        "root ::= x*\nx ::= \"a\" | \"(\" root \")\""};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        di_grammar *g = gram_must(DI_GRAMMAR_GBNF, lists[i], NULL);
        di_grammar_stats few;
        di_grammar_stats many;
        char *text = repeated("", "a", 20000, "");
        assert_int_equal(gram_check(g, text, 100), GRAM_WHOLE);
        di_grammar_get_stats(g, &few);
        assert_int_equal(gram_check(g, text, 20000), GRAM_WHOLE);
        di_grammar_get_stats(g, &many);
        assert_int_equal(many.memory_bytes, few.memory_bytes);
        assert_int_equal(many.n_states, few.n_states);
        free(text);
        di_grammar_free(g);
    }
}

static bool after_some_calls(void *user)
{
    int *left = user;
    return --*left <= 0;
}

static void compiling_can_be_cancelled(void **state)
{
    (void)state;
    static const struct {
        di_grammar_kind kind;
        const char *before;
        const char *part;
        const char *behind;
    } long_ones[] = {
        {DI_GRAMMAR_GBNF, "root ::= root ", "\"abcdefgh\" [a-z] ", "| \"x\""},
        {DI_GRAMMAR_LARK, "start: start ", "\"abcdefgh\" /[a-z]/ ", "| \"x\""},
        {DI_GRAMMAR_SCHEMA, "{\"allOf\":[{}", ",{\"pattern\":\"a+b{3}[c-d]\"}", "]}"},
        {DI_GRAMMAR_REGEX, "x", "(a|b|c)", "y"},
    };
    for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++) {
        int left = 1;
        di_grammar *g;
        const di_grammar_options options = {.cancelled = after_some_calls, .user = &left};
        char *text = repeated(long_ones[i].before, long_ones[i].part, long_ones[i].kind == DI_GRAMMAR_REGEX ? 9000 : 40000, long_ones[i].behind);
        if (compile(long_ones[i].kind, text, &options, &g, NULL) != DI_E_CANCELLED) {
            fail_msg("%.40s", text);
        }
        assert_int_equal(left, 0); /* it was not asked again */
        free(text);
    }
}

static void a_budget_of_work_is_kept(void **state)
{
    (void)state;
    di_grammar *g;
    di_grammar_fault fault;
    const di_grammar_options options = {.limits = {.compile_work = 3000}};
    char *text = repeated("root ::= ", "\"abcdefgh\" [a-z] root ", 5000, "| \"x\"");
    assert_int_equal(compile(DI_GRAMMAR_GBNF, text, &options, &g, &fault), DI_E_LIMIT);
    assert_string_equal(fault.kind, "too_complex");
    free(text);
}

/* --- Threads ------------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = 40 };

typedef struct worker {
    di_grammar *shared;
    uint64_t random;
    bool ok;
    char text[64];
    size_t n_text;
} worker;

/* Random brackets that the grammar allows, and what it says of them; then a grammar of its own. */
static void *work(void *user)
{
    worker *w = user;
    static const char letters[] = "([{}])a,";
    di_error err;
    w->ok = true;
    for (int round = 0; round < ROUNDS && w->ok; round++) {
        di_matcher *m;
        di_grammar *own = NULL;
        w->ok = di_matcher_new(w->shared, NULL, &m, &err) == DI_OK;
        w->n_text = 0;
        for (int i = 0; w->ok && i < 60; i++) {
            const char c = letters[unit_random(&w->random) % (sizeof letters - 1)];
            size_t n;
            w->ok = di_matcher_accept_bytes(m, &c, 1, &n, &err) == DI_OK;
            if (n == 1) {
                w->text[w->n_text++] = c;
            }
        }
        di_matcher_free(m);
        static const char gbnf[] = "root ::= \"(\" root \")\" | %s";
        w->ok = w->ok && di_grammar_compile(DI_GRAMMAR_GBNF, gbnf, strlen(gbnf), NULL, &own, NULL, &err) == DI_E_FORMAT;
        di_grammar_free(own);
    }
    return NULL;
}

static void a_grammar_is_shared_by_threads(void **state)
{
    (void)state;
    static const char gbnf[] = "root ::= part*\npart ::= \"(\" root \")\" | \"[\" root \"]\" | \"{\" root (\",\" root)* \"}\" | \"a\"+";
    di_grammar *g = gram_must(DI_GRAMMAR_GBNF, gbnf, NULL);
    di_grammar *alone = gram_must(DI_GRAMMAR_GBNF, gbnf, NULL);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.shared = g, .random = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        worker same = {.shared = alone, .random = (uint64_t)i + 1};
        (void)work(&same);
        assert_true(workers[i].ok && same.ok);
        assert_int_equal(workers[i].n_text, same.n_text);
        assert_memory_equal(workers[i].text, same.text, same.n_text);
    }
    di_grammar_free(g);
    di_grammar_free(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(ambiguous_grammars_are_followed_as_far_as_the_limits_go),
        cmocka_unit_test(long_lists_stay_small),
        cmocka_unit_test(compiling_can_be_cancelled),
        cmocka_unit_test(a_budget_of_work_is_kept),
        cmocka_unit_test(a_grammar_is_shared_by_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
