/* Random expressions over two letters against their language written out: every word of up to eight letters is in both or in neither,
 * and is a beginning in both or in neither. */
#include "gram_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LENGTH = 8, N_WORDS = (1 << (MAX_LENGTH + 1)) - 1, MAX_TEXT = 4000, N_EXPRESSIONS = 3000 };

/* A word is (1 << length) - 1 + its letters as bits, so that shorter words come first. */
typedef struct language {
    bool has[N_WORDS];
} language;

typedef struct made { /* an expression */
    char text[MAX_TEXT];
    language words;
    int positions; /* letters when repetitions are written out: no shortest way to an end is longer */
} made;

static int length_of(int word)
{
    int n = 0;
    while (word + 1 >= 1 << (n + 1)) {
        n++;
    }
    return n;
}

static int join(int a, int b)
{
    const int n = length_of(a);
    const int m = length_of(b);
    if (n + m > MAX_LENGTH) {
        return -1;
    }
    return (1 << (n + m)) - 1 + (((a + 1 - (1 << n)) << m) | (b + 1 - (1 << m)));
}

static void concatenate(language *out, const language *a, const language *b)
{
    language all = {{false}};
    for (int i = 0; i < N_WORDS; i++) {
        for (int k = 0; a->has[i] && k < N_WORDS; k++) {
            const int word = b->has[k] ? join(i, k) : -1;
            if (word < 0 && b->has[k]) {
                break; /* the words behind are no shorter */
            }
            if (word >= 0) {
                all.has[word] = true;
            }
        }
    }
    *out = all;
}

static void repeat(language *out, const language *a, int min, int max)
{
    language power = {{true}};
    language all = {{false}};
    for (int i = 0; i <= max; i++) {
        for (int k = 0; i >= min && k < N_WORDS; k++) {
            all.has[k] = all.has[k] || power.has[k];
        }
        concatenate(&power, &power, a);
    }
    *out = all;
}

static made *make(uint64_t *random, int depth)
{
    made *const out = calloc(1, sizeof *out);
    assert_non_null(out);
    const uint64_t kind = unit_random(random) % (depth == 0 ? 4 : 10);
    if (kind < 4) {
        static const char *const leaves[] = {"a", "b", "[ab]", "(?:)"};
        (void)strcpy(out->text, leaves[kind]);
        out->words.has[0] = kind == 3;
        out->words.has[1] = kind == 0 || kind == 2;
        out->words.has[2] = kind == 1 || kind == 2;
        out->positions = kind != 3;
        return out;
    }
    made *const a = make(random, depth - 1);
    if (kind < 8) {
        made *const b = make(random, depth - 1);
        if (kind < 6) {
            (void)snprintf(out->text, MAX_TEXT, "%.1900s%.1900s", a->text, b->text);
            concatenate(&out->words, &a->words, &b->words);
        } else {
            (void)snprintf(out->text, MAX_TEXT, "(?:%.1900s|%.1900s)", a->text, b->text);
            for (int i = 0; i < N_WORDS; i++) {
                out->words.has[i] = a->words.has[i] || b->words.has[i];
            }
        }
        out->positions = a->positions + b->positions;
        free(b);
    } else {
        static const struct {
            const char *text;
            int min;
            int max;
            int copies;
        } counts[] = {{"*", 0, MAX_LENGTH, 1}, {"+", 1, MAX_LENGTH, 1}, {"?", 0, 1, 1}, {"{2}", 2, 2, 2}, {"{1,3}", 1, 3, 3}, {"{2,}", 2, MAX_LENGTH, 2}};
        const uint64_t which = unit_random(random) % 6;
        (void)snprintf(out->text, MAX_TEXT, "(%.3900s)%s", a->text, counts[which].text);
        repeat(&out->words, &a->words, counts[which].min, counts[which].max > counts[which].min ? counts[which].max : counts[which].min);
        out->positions = a->positions * counts[which].copies;
    }
    free(a);
    return out;
}

static void spell(int word, char *text)
{
    const int n = length_of(word);
    for (int i = 0; i < n; i++) {
        text[i] = (word + 1 - (1 << n)) >> (n - 1 - i) & 1 ? 'b' : 'a';
    }
}

static bool begins_one(const language *words, int word)
{
    const int n = length_of(word);
    for (int longer = word; longer < N_WORDS; longer++) {
        const int more = length_of(longer) - n;
        if (words->has[longer] && (longer + 1) >> more == word + 1) {
            return true;
        }
    }
    return false;
}

static void expect_same(const made *e)
{
    di_grammar *const g = gram_must(DI_GRAMMAR_REGEX, e->text, NULL);
    for (int word = 0; word < N_WORDS; word++) {
        char text[MAX_LENGTH + 1] = "";
        const int n = length_of(word);
        spell(word, text);
        const int64_t at = gram_check(g, text, (size_t)n);
        if ((at == GRAM_WHOLE) != e->words.has[word]) {
            fail_msg("/%s/ and \"%s\": %s", e->text, text, at == GRAM_WHOLE ? "accepted" : "rejected");
        }
        const bool begins = begins_one(&e->words, word);
        if (begins ? at >= 0 : n + e->positions <= MAX_LENGTH && at == GRAM_PREFIX) {
            fail_msg("/%s/ and the beginning \"%s\": %s", e->text, text, begins ? "rejected" : "accepted");
        }
    }
    di_grammar_free(g);
}

static void random_expressions_mean_their_language(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (int i = 0; i < N_EXPRESSIONS; i++) {
        made *const e = make(&random, 1 + i % 4);
        expect_same(e);
        free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_expressions_mean_their_language)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
