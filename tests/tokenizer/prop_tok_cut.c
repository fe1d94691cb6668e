/* Safe cut points: encoding the parts gives the ids of the whole; cuts are found where they are. */
#include "tok_support.h"

static void check_tokenizer(const di_tokenizer *tok)
{
    uint64_t seed = 9;
    size_t n_cuts = 0;
    for (int round = 0; round < 4000; round++) {
        uint8_t text[120];
        const size_t n = sup_random_text(&seed, sizeof text, text);
        size_t n_whole;
        int32_t *whole = sup_encode(tok, text, n, 0, &n_whole);
        for (size_t i = 1; i < n; i++) {
            if ((text[i] & 0xC0) == 0x80 || !tok_is_cut(text, n, i)) {
                continue;
            }
            size_t n_left;
            size_t n_right;
            int32_t *left = sup_encode(tok, text, i, 0, &n_left);
            int32_t *right = sup_encode(tok, text + i, n - i, 0, &n_right);
            assert_int_equal(n_left + n_right, n_whole);
            assert_memory_equal(left, whole, n_left * sizeof *left);
            assert_memory_equal(right, whole + n_left, n_right * sizeof *right);
            free(left);
            free(right);
            n_cuts++;
        }
        free(whole);
    }
    assert_true(n_cuts > 10000);
}

static void parts_encode_as_the_whole_with_the_demo_tokenizer(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_demo();
    check_tokenizer(tok);
    di_tokenizer_close(tok);
}

static void parts_encode_as_the_whole_with_the_real_tokenizer(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_real("v41");
    if (tok == NULL) {
        skip();
    }
    check_tokenizer(tok);
    di_tokenizer_close(tok);
}

static void line_starts_are_preferred(void **state)
{
    (void)state;
    const uint8_t *s = (const uint8_t *)"ab1\ncd\n ef2gh";
    assert_int_equal(tok_cut_after(s, 13, 0, 13, false), 4);  /* behind the first line feed */
    assert_int_equal(tok_cut_after(s, 13, 4, 9, false), 4);   /* the range begins with it */
    assert_int_equal(tok_cut_after(s, 13, 5, 13, false), 10); /* a space follows the second: before the digit */
    assert_int_equal(tok_cut_after(s, 13, 5, 13, true), 13);
    assert_int_equal(tok_cut_after(s, 13, 5, 10, false), 10); /* none: the end of the range is outside of it */
    assert_int_equal(tok_cut_after(s, 13, 4, 4, false), 4);
}

/* In any text, also when it is not UTF-8, a cut is found in a range exactly when there is one. */
static void cuts_are_found_where_they_are(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 3000; round++) {
        uint8_t text[96];
        size_t n = sup_random_text(&seed, sizeof text, text);
        for (size_t i = 0; i < n && round % 3 == 0; i++) {
            text[i] = (uint8_t)sup_random(&seed);
        }
        const size_t from = n == 0 ? 0 : sup_random(&seed) % n;
        const size_t to = from + sup_random(&seed) % (n - from + 1);
        size_t any = to;
        size_t line = to;
        for (size_t i = to; i-- > from;) {
            const bool cut = tok_is_cut(text, n, i);
            any = cut && (text[i] & 0xC0) != 0x80 ? i : any;
            line = cut && i > 0 && text[i - 1] == '\n' ? i : line;
        }
        assert_int_equal(tok_cut_after(text, n, from, to, true), line);
        assert_int_equal(tok_cut_after(text, n, from, to, false), line != to ? line : any);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_encode_as_the_whole_with_the_demo_tokenizer),
        cmocka_unit_test(parts_encode_as_the_whole_with_the_real_tokenizer),
        cmocka_unit_test(line_starts_are_preferred),
        cmocka_unit_test(cuts_are_found_where_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
