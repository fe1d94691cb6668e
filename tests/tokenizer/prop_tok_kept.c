/* What the caches of pieces answer is what merging gives: pieces of every length on both sides of their limits, met again and again
 * and in between others that take the same places. */
#include "tok_support.h"

#define ROUNDS 3000
#define MAX_PIECE 300u
#define FULL_PIECES ((size_t)3 << (TOK_CACHE_LOG2 - 1))

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

/* More short pieces than the cache has places for: they come to its four places and go, change them and come again. */
static void a_full_cache_changes_nothing(void **state)
{
    (void)state;
    di_tokenizer *const tok = sup_demo();
    tok_scratch *const merging = tok_scratch_new();
    char *const text = malloc(FULL_PIECES * 9);
    int32_t *const merged = malloc(FULL_PIECES * 9 * sizeof *merged);
    uint64_t random = 1;
    size_t n = 0;
    assert_true(merging != NULL && text != NULL && merged != NULL);
    tok_out out = {.ids = merged, .capacity = FULL_PIECES * 9};
    for (size_t k = 0; k < FULL_PIECES; k++) {
        const size_t begin = n;
        uint64_t letters = k % 3 == 0 ? k % 1000 : sup_random(&random); /* some come often */
        text[n++] = ' ';
        for (int i = 0; i < 6; i++, letters /= 26) {
            text[n++] = (char)('a' + letters % 26);
        }
        assert_true(tok_long_merge(tok, merging, (const uint8_t *)text + begin, n - begin, &out));
    }
    for (int pass = 0; pass < 2; pass++) {
        size_t n_ids;
        int32_t *const ids = sup_encode(tok, text, n, 0, &n_ids);
        assert_int_equal(n_ids, out.n);
        assert_memory_equal(ids, merged, n_ids * sizeof *ids);
        free(ids);
    }
    free(text);
    free(merged);
    tok_scratch_free(merging);
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_change_nothing),
        cmocka_unit_test(a_full_cache_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
