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

static void the_last_line_start_is_preferred(void **state)
{
    (void)state;
    const uint8_t *s = (const uint8_t *)"ab1\ncd\n ef2gh";
    assert_int_equal(tok_cut_before(s, 13, 0, 9), 4);  /* behind the first line feed; a space follows the second */
    assert_int_equal(tok_cut_before(s, 13, 4, 13), 13);
    assert_int_equal(tok_cut_before(s, 13, 4, 12), 11); /* no line start: behind the digit */
    assert_int_equal(tok_cut_before(s, 13, 4, 9), 4);   /* none at all */
    assert_int_equal(tok_cut_before(s, 13, 0, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_encode_as_the_whole_with_the_demo_tokenizer),
        cmocka_unit_test(parts_encode_as_the_whole_with_the_real_tokenizer),
        cmocka_unit_test(the_last_line_start_is_preferred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
