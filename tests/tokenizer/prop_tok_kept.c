/* What the caches of pieces answer is what merging gives: pieces of every length on both sides of their limits, met again and again
 * and in between others that take the same places. */
#include "tok_support.h"

#define ROUNDS 3000
#define MAX_PIECE 300u

static void caches_change_nothing(void **state)
{
    (void)state;
    di_tokenizer *const tok = sup_demo();
    tok_scratch *const merging = tok_scratch_new();
    assert_non_null(merging);
    for (int round = 0; round < ROUNDS; round++) {
        uint8_t piece[MAX_PIECE];
        int32_t merged[MAX_PIECE];
        tok_out out = {.ids = merged, .capacity = MAX_PIECE};
        uint64_t random = (uint64_t)(round % (ROUNDS / 3)) + 1; /* every piece three times */
        const size_t n = 1 + sup_random(&random) % MAX_PIECE;
        for (size_t i = 0; i < n; i++) {
            piece[i] = (uint8_t)("etaoinshrdluq"[sup_random(&random) % 13]);
        }
        assert_int_equal(tok_piece_end(piece, n, 0), n);
        assert_true(tok_long_merge(tok, merging, piece, n, &out));
        size_t n_ids;
        int32_t *const ids = sup_encode(tok, piece, n, 0, &n_ids);
        assert_int_equal(n_ids, out.n);
        assert_memory_equal(ids, merged, n_ids * sizeof *ids);
        free(ids);
    }
    tok_scratch_free(merging);
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
