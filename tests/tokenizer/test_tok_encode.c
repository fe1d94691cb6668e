/* Encoding through the public API: capacity, flags, invalid UTF-8, added tokens, long pieces, threads. */
#include "tok_support.h"

#include <pthread.h>

static di_tokenizer *demo;

static int open_demo(void **state)
{
    (void)state;
    demo = sup_demo();
    return 0;
}

static int close_demo(void **state)
{
    (void)state;
    di_tokenizer_close(demo);
    return 0;
}

static void plain_text_never_gives_an_added_token(void **state)
{
    (void)state;
    static const char text[] = "a<\xEF\xBD\x9CUser\xEF\xBD\x9C>b<think>";
    size_t n;
    int32_t *ids = sup_encode(demo, text, sizeof text - 1, 0, &n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(di_tokenizer_flags(demo, ids[i]) & DI_TOKEN_ADDED, 0);
    }
    free(ids);
    sup_expect_ids(demo, text, sizeof text - 1, DI_ENCODE_SPECIAL, "67 3060 68 3068");
}

static void added_tokens_match_leftmost_then_longest(void **state)
{
    (void)state;
    tok_added added;
    tok_match match;
    assert_int_equal(tok_added_init(&added, NULL), DI_OK);
    assert_int_equal(tok_added_add(&added, (const uint8_t *)"<a", 2, 10, 0, NULL), DI_OK);
    assert_int_equal(tok_added_add(&added, (const uint8_t *)"<a>x", 4, 11, 0, NULL), DI_OK);
    assert_int_equal(tok_added_add(&added, (const uint8_t *)"a>", 2, 12, 1, NULL), DI_OK);
    const uint8_t *s = (const uint8_t *)"<<a><a>x";
    assert_true(tok_added_next(&added, 0, s, 0, 8, &match));
    assert_int_equal(match.id, 10);
    assert_int_equal(match.begin, 1);
    assert_int_equal(match.end, 3);
    assert_true(tok_added_next(&added, 0, s, 3, 8, &match));
    assert_int_equal(match.id, 11);
    assert_int_equal(match.end, 8);
    assert_true(tok_added_next(&added, 0, s, 3, 7, &match));
    assert_int_equal(match.id, 10);
    assert_false(tok_added_next(&added, 0, s, 8, 8, &match));
    assert_true(tok_added_next(&added, 1, s, 0, 8, &match));
    assert_int_equal(match.begin, 2);
    assert_int_equal(tok_added_find(&added, (const uint8_t *)"<a>x", 4), 11);
    assert_int_equal(tok_added_find(&added, (const uint8_t *)"<a>", 3), TOK_NONE);
    tok_added_fini(&added);
}

static void the_needed_number_is_returned_whatever_the_capacity(void **state)
{
    (void)state;
    static const char text[] = "The answer is 12345.";
    size_t whole;
    int32_t *all = sup_encode(demo, text, sizeof text - 1, 0, &whole);
    for (size_t capacity = 0; capacity <= whole; capacity++) {
        int32_t *ids = malloc(capacity * sizeof *ids + 1);
        assert_non_null(ids);
        size_t n = 0;
        assert_int_equal(di_tokenizer_encode(demo, text, sizeof text - 1, 0, ids, capacity, &n, NULL), DI_OK);
        assert_int_equal(n, whole);
        assert_memory_equal(ids, all, capacity * sizeof *ids);
        free(ids);
    }
    size_t n = 1;
    assert_int_equal(di_tokenizer_encode(demo, "", 0, 0, NULL, 0, &n, NULL), DI_OK);
    assert_int_equal(n, 0);
    assert_int_equal(di_tokenizer_encode(demo, NULL, 0, DI_ENCODE_SPECIAL, NULL, 0, &n, NULL), DI_OK);
    assert_int_equal(n, 0);
    free(all);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    size_t n = 7;
    di_error err;
    assert_int_equal(di_tokenizer_encode(demo, "a", 1, 8, NULL, 0, &n, &err), DI_E_ARGUMENT);
    assert_int_equal(di_tokenizer_encode(demo, "a", TOK_MAX_TEXT + 1, 0, NULL, 0, &n, &err), DI_E_LIMIT);
    assert_int_equal(di_tokenizer_decode(demo, NULL, 0, 8, NULL, 0, &n, &err), DI_E_ARGUMENT);
    assert_int_equal(n, 7);
}

static void invalid_utf8_is_read_as_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        const char *bad;
        const char *good;
    } cases[] = {
        {"a\xFF" "b", "a\xEF\xBF\xBD" "b"},
        {"\xE4\xBD", "\xEF\xBF\xBD"},
        {"\xE4\xBD" "a", "\xEF\xBF\xBD" "a"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF5\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"<\xF4\x90\x80\x80>", "<\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_bad;
        size_t n_good;
        int32_t *bad = sup_encode(demo, cases[i].bad, strlen(cases[i].bad), 0, &n_bad);
        int32_t *good = sup_encode(demo, cases[i].good, strlen(cases[i].good), 0, &n_good);
        assert_int_equal(n_bad, n_good);
        assert_memory_equal(bad, good, n_good * sizeof *good);
        free(bad);
        free(good);
    }
}

/* One piece may be the whole text. The time is bounded by the test's limit: quadratic merging would not end. */
static void long_runs_encode_and_decode_back(void **state)
{
    (void)state;
    static const char *const units[] = {"a", " ", "-", "\xE5\xA5\xBD", "\xCC\x81", "\xF0\x9F\x91\xA9\xE2\x80\x8D", "^", "\n", "1", "\001"};
    const size_t n = 1 << 20;
    char *text = malloc(n + 8);
    assert_non_null(text);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        const size_t size = strlen(units[u]);
        size_t length = 0;
        while (length < n) {
            memcpy(text + length, units[u], size);
            length += size;
        }
        size_t n_ids;
        size_t n_text;
        int32_t *ids = sup_encode(demo, text, length, 0, &n_ids);
        char *back = sup_decode(demo, ids, n_ids, 0, &n_text);
        assert_int_equal(n_text, length);
        assert_memory_equal(back, text, length);
        free(ids);
        free(back);
    }
    free(text);
}

static void both_merge_loops_agree(void **state)
{
    (void)state;
    uint64_t seed = 3;
    tok_scratch *scratch = tok_scratch_new();
    assert_non_null(scratch);
    for (int round = 0; round < 20000; round++) {
        uint8_t text[TOK_SHORT_BYTES];
        const size_t n = sup_random_text(&seed, sizeof text, text);
        if (n == 0) {
            continue;
        }
        int32_t short_ids[TOK_SHORT_BYTES];
        int32_t long_ids[TOK_SHORT_BYTES];
        tok_out out = {.ids = long_ids, .capacity = TOK_SHORT_BYTES};
        const size_t n_short = tok_short_merge(demo, text, n, short_ids);
        assert_true(tok_long_merge(demo, scratch, text, n, &out));
        assert_int_equal(out.n, n_short);
        assert_memory_equal(short_ids, long_ids, n_short * sizeof *short_ids);
    }
    tok_scratch_free(scratch);
}

static void *encode_many(void *arg)
{
    uint64_t seed = 11;
    uint64_t *sum = arg;
    for (int round = 0; round < 3000; round++) {
        uint8_t text[200];
        int32_t ids[600];
        size_t n_ids = 0;
        const size_t n = sup_random_text(&seed, sizeof text, text);
        if (di_tokenizer_encode(demo, (const char *)text, n, DI_ENCODE_SPECIAL, ids, 600, &n_ids, NULL) != DI_OK) {
            return arg;
        }
        for (size_t i = 0; i < n_ids; i++) {
            *sum = *sum * 31 + (uint64_t)ids[i];
        }
    }
    return NULL;
}

static void threads_share_one_tokenizer(void **state)
{
    (void)state;
    pthread_t threads[4];
    uint64_t sums[4] = {0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &sums[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
        assert_true(sums[i] == sums[0]);
    }
}

static void open_names_what_is_wrong(void **state)
{
    (void)state;
    di_tokenizer *tok = NULL;
    di_error err;
    assert_int_equal(di_tokenizer_open("no/such/tokenizer.json", &tok, &err), DI_E_IO);
    assert_non_null(strstr(err.message, "no/such/tokenizer.json"));
    assert_null(tok);
}

static void single_tokens_are_looked_up(void **state)
{
    (void)state;
    assert_int_equal(di_tokenizer_vocab_size(demo), 3072);
    assert_int_equal(di_tokenizer_find(demo, "A", 1), 35);
    assert_int_equal(di_tokenizer_find(demo, "<think>", 7), 3068);
    assert_int_equal(di_tokenizer_find(demo, "", 0), -1);
    assert_int_equal(di_tokenizer_find(demo, "no such token here", 18), -1);
    size_t n = 9;
    assert_null(di_tokenizer_bytes(demo, -1, &n));
    assert_int_equal(n, 0);
    assert_null(di_tokenizer_bytes(demo, 3072, &n));
    assert_memory_equal(di_tokenizer_bytes(demo, 3068, &n), "<think>", 7);
    assert_int_equal(n, 7);
    assert_int_equal(di_tokenizer_flags(demo, 0), DI_TOKEN_ADDED | DI_TOKEN_SPECIAL);
    assert_int_equal(di_tokenizer_flags(demo, 3068), DI_TOKEN_ADDED);
    assert_int_equal(di_tokenizer_flags(demo, 35), 0);
    assert_int_equal(di_tokenizer_flags(demo, 190), DI_TOKEN_FRAGMENT);
    assert_int_equal(di_tokenizer_flags(demo, -5), 0);
    assert_int_equal(di_tokenizer_flags(demo, 1 << 30), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_never_gives_an_added_token),
        cmocka_unit_test(added_tokens_match_leftmost_then_longest),
        cmocka_unit_test(the_needed_number_is_returned_whatever_the_capacity),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(invalid_utf8_is_read_as_replacement_characters),
        cmocka_unit_test(long_runs_encode_and_decode_back),
        cmocka_unit_test(both_merge_loops_agree),
        cmocka_unit_test(threads_share_one_tokenizer),
        cmocka_unit_test(open_names_what_is_wrong),
        cmocka_unit_test(single_tokens_are_looked_up),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
