/* The cache of compiled grammars: one is found again, and one that has grown with its texts is left to those who have it. */
#include "support/unit.h"

#include "chat/chat_grammars.h"
#include "core/buf.h"

#include <deepinfer/grammar.h>

#include <stdio.h>
#include <string.h>

enum { NAMES_A_TEXT = 400, LENGTH = 200, MOST_TEXTS = 100 };

/* Lets the grammar read an object of long names that it has not seen. */
static void read_names(di_grammar *g, uint64_t *random)
{
    buf text;
    buf_init(&text, (size_t)1 << 20);
    for (int i = 0; i < NAMES_A_TEXT; i++) {
        char name[LENGTH + 1];
        for (int k = 0; k < LENGTH; k++) {
            name[k] = (char)(unit_random(random) % 26 + 'a');
        }
        name[LENGTH] = '\0';
        assert_true(buf_printf(&text, "%s\"%s\":1", i == 0 ? "{" : ",", name));
    }
    di_matcher *m;
    size_t n_accepted = 0;
    assert_int_equal(di_matcher_new(g, NULL, &m, NULL), DI_OK);
    assert_int_equal(di_matcher_accept_bytes(m, text.data, text.size, &n_accepted, NULL), DI_OK);
    assert_int_equal(n_accepted, text.size);
    di_matcher_free(m);
    buf_fini(&text);
}

static void a_grown_grammar_is_compiled_anew(void **state)
{
    (void)state;
    const uint8_t key[DIGEST_BYTES] = {1, 2, 3};
    chat_grammars cache = {.turn = 0};
    uint64_t random = 9;
    int n_texts = 0;
    di_grammar *g;
    assert_int_equal(di_grammar_compile(DI_GRAMMAR_JSON_OBJECT, "", 0, NULL, &g, NULL, NULL), DI_OK);
    chat_grammars_keep(&cache, key, g);
    for (di_grammar *got = chat_grammars_get(&cache, key); got != NULL; got = chat_grammars_get(&cache, key)) {
        assert_ptr_equal(got, g);
        assert_true(n_texts < MOST_TEXTS);
        read_names(got, &random);
        di_grammar_free(got);
        n_texts++;
    }
    assert_true(n_texts > 1);
    assert_int_equal(cache.n, 0);
    assert_int_equal(cache.n_bytes, 0);
    read_names(g, &random); /* whoever has it goes on */
    chat_grammars_keep(&cache, key, g);
    assert_int_equal(cache.n, 1);
    chat_grammars_fini(&cache);
    di_grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grown_grammar_is_compiled_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
