/* Pieces of 64 MB: one run of one character is one piece, is never cut, and takes time in proportion (tokenizer.md 5, 12.7). */
#include "tok_support.h"

#include "core/clock.h"

#define BYTES ((size_t)64 << 20)
#define NS_PER_BYTE 400 /* ten times what a quiet machine needs; quadratic merging would take years */

static void a_piece_of_64_megabytes_takes_linear_time(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_real("v41");
    if (tok == NULL) {
        tok = sup_demo();
    }
    char *text = malloc(BYTES);
    int32_t *ids = malloc(BYTES * sizeof *ids);
    assert_non_null(text);
    assert_non_null(ids);
    static const char runs[] = {'a', ' ', '\n'};
    for (size_t i = 0; i < sizeof runs; i++) {
        memset(text, runs[i], BYTES);
        size_t n_ids = 0;
        const int64_t start = clock_now_ns();
        assert_int_equal(di_tokenizer_encode(tok, text, BYTES, 0, ids, BYTES, &n_ids, NULL), DI_OK);
        assert_true(clock_now_ns() - start < (int64_t)BYTES * NS_PER_BYTE);
        size_t n_text = 0;
        for (size_t k = 0; k < n_ids; k++) {
            size_t n;
            (void)di_tokenizer_bytes(tok, ids[k], &n);
            n_text += n;
        }
        assert_int_equal(n_text, BYTES);
    }
    free(ids);
    free(text);
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_of_64_megabytes_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
