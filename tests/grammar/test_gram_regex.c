/* Regular expressions as languages: what each construct means, what is refused and where, and that nothing takes long. */
#include "gram_support.h"

#include <string.h>

#define IN(...) ((const char *const[]){__VA_ARGS__, NULL})

static void inside(const char *regex, const char *const *texts)
{
    const char *const wrong = gram_first_wrong(DI_GRAMMAR_REGEX, regex, NULL, true, texts);
    if (wrong[0] != '\0') {
        fail_msg("/%s/ should take %s", regex, wrong);
    }
}

static void outside(const char *regex, const char *const *texts)
{
    const char *const wrong = gram_first_wrong(DI_GRAMMAR_REGEX, regex, NULL, false, texts);
    if (wrong[0] != '\0') {
        fail_msg("/%s/ should not take %s", regex, wrong);
    }
}

static void refused(const char *regex, const char *kind, int64_t offset)
{
    di_error err;
    di_grammar_fault fault;
    di_grammar *g = NULL;
    assert_int_not_equal(di_grammar_compile(DI_GRAMMAR_REGEX, regex, strlen(regex), NULL, &g, &fault, &err), DI_OK);
    assert_string_equal(fault.kind, kind);
    assert_int_equal(fault.offset, offset);
}

static void the_whole_text_matches(void **state)
{
    (void)state;
    inside("abc", IN("abc"));
    outside("abc", IN("", "ab", "abcd", "xabc", "abc\n"));
    inside("a|bc|", IN("a", "bc", ""));
    outside("a|bc|", IN("abc", "b"));
    inside("^abc$", IN("abc"));
}

static void repetitions_count(void **state)
{
    (void)state;
    inside("a{2,3}b*c+d?", IN("aac", "aaabbbccd"));
    outside("a{2,3}b*c+d?", IN("ac", "aaaac", "aab", "aacdd"));
    inside("(ab){2}", IN("abab"));
    outside("(ab){2}", IN("ab", "ababab"));
    inside("(?:a*)*b", IN("b", "aaaaaaaab"));
    inside("x{0}y{3,}", IN("yyy", "yyyyyyy"));
    outside("x{0}y{3,}", IN("xyyy", "yy"));
    inside("a+?b", IN("ab", "aab"));
}

static void classes_are_sets_of_characters(void **state)
{
    (void)state;
    inside("[a-c\\-\\]x]+", IN("abc-]x"));
    outside("[a-c]", IN("d", "ab", ""));
    inside("[^a-c]", IN("d", "é", "😀", "\n"));
    outside("[^a-c]", IN("a", "\xC3", "\xFF"));
    inside("\\d\\w\\s", IN("1_ ", "9z\t"));
    outside("\\d", IN("a", "\xD9\xA1"));
    outside("\\S", IN(" ", "\xC2\xA0"));
    inside(".", IN("x", "猫"));
    outside(".", IN("\n", "\r", "\xE2\x80\xA8", ""));
    inside("(?s).", IN("\n"));
    inside("(?i)straße", IN("STRAßE", "Straße"));
    inside("\\p{Lu}\\p{Nd}", IN("A1", "Ä٣"));
    outside("\\p{Lu}", IN("a", "1"));
    inside("\\u00e9\\x41\\n", IN("éA\n"));
}

static void only_well_formed_text_is_taken(void **state)
{
    (void)state;
    outside("[^a]*", IN("\x80", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"));
    inside("[^a]*", IN("", "\xF4\x8F\xBF\xBF", "\xEF\xBF\xBF"));
}

static void look_ahead_is_an_intersection(void **state)
{
    (void)state;
    inside("(?=.*[0-9])(?=.*[a-z])[a-z0-9]{4,}", IN("abc1", "1abc"));
    outside("(?=.*[0-9])(?=.*[a-z])[a-z0-9]{4,}", IN("abcd", "1234", "a1"));
    inside("(?!foo).*", IN("fo", "bar", "fob", ""));
    outside("(?!foo).*", IN("foo", "foobar"));
}

static void what_can_not_be_is_refused_with_its_place(void **state)
{
    (void)state;
    refused("a^b", "invalid_regex", -1);
    refused("a(b", "invalid_regex", 1);
    refused("a)b", "invalid_regex", 1);
    refused("[b-a]", "invalid_regex", 2);
    refused("(a)\\1", "unsupported_regex", 3);
    refused("a(?<=b)", "unsupported_regex", 1);
    refused("[^\\s\\S]", "invalid_regex", -1);
}

static void dangerous_expressions_end(void **state)
{
    (void)state;
    char text[2049];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    outside("(x+x+)+y", IN(text));
    inside("(x*)*(x*)*(x*)*", IN(text));
    char deep[60001];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    di_error err;
    di_grammar *g = NULL;
    assert_int_not_equal(di_grammar_compile(DI_GRAMMAR_REGEX, deep, strlen(deep), NULL, &g, NULL, &err), DI_OK);
}

static void a_wrong_text_is_told_where(void **state)
{
    (void)state;
    di_grammar *const g = gram_must(DI_GRAMMAR_REGEX, "[a-z]{3}=[0-9]+", NULL);
    assert_int_equal(gram_check(g, "abc=12", 6), GRAM_WHOLE);
    assert_int_equal(gram_check(g, "abc=", 4), GRAM_PREFIX);
    assert_int_equal(gram_check(g, "abcd=1", 6), 3);
    assert_int_equal(gram_check(g, "abc=1x", 6), 5);
    di_grammar_free(g);
}

/* "ab" goes nowhere in a(bc&bd): a text that no member begins with is refused at its first byte that goes astray. */
static void what_leads_nowhere_is_dead_at_once(void **state)
{
    (void)state;
    di_grammar *const g = gram_must(DI_GRAMMAR_REGEX, "(?=ab?c)ab*d|az", NULL);
    assert_int_equal(gram_check(g, "ab", 2), 1);
    assert_int_equal(gram_check(g, "az", 2), GRAM_WHOLE);
    di_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_text_matches),
        cmocka_unit_test(repetitions_count),
        cmocka_unit_test(classes_are_sets_of_characters),
        cmocka_unit_test(only_well_formed_text_is_taken),
        cmocka_unit_test(look_ahead_is_an_intersection),
        cmocka_unit_test(what_can_not_be_is_refused_with_its_place),
        cmocka_unit_test(dangerous_expressions_end),
        cmocka_unit_test(a_wrong_text_is_told_where),
        cmocka_unit_test(what_leads_nowhere_is_dead_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
