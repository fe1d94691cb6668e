/* The cache of longer pieces: what was kept comes back, also when the room for it was used up several times. */
#include "tok_support.h"

#define LONGEST TOK_KEPT_BYTES

/* Piece k and its ids; all differ. */
static size_t make_piece(uint64_t k, uint8_t s[LONGEST], int32_t ids[LONGEST])
{
    uint64_t random = k + 1;
    const size_t n = sizeof k + sup_random(&random) % (LONGEST - sizeof k + 1);
    for (size_t i = 0; i < n; i++) {
        s[i] = (uint8_t)sup_random(&random);
        ids[i] = (int32_t)(sup_random(&random) % TOK_MAX_IDS);
    }
    memcpy(s, &k, sizeof k);
    return n;
}

static void assert_kept(const tok_scratch *scratch, const uint8_t *s, size_t n, const int32_t *ids)
{
    int32_t got[LONGEST + 1];
    for (size_t capacity = n + 1; capacity + 3 > n; capacity--) { /* enough room, just enough, too little */
        tok_out out = {.ids = got, .capacity = capacity};
        memset(got, 0xFF, sizeof got);
        assert_true(tok_kept_emit(scratch, tok_hash(s, n), s, n, &out));
        assert_int_equal(out.n, n);
        assert_memory_equal(got, ids, (capacity < n ? capacity : n) * sizeof *ids);
        assert_int_equal(got[capacity < n ? capacity : n], -1);
    }
}

static void what_was_kept_comes_back(void **state)
{
    (void)state;
    const uint64_t n_pieces = 3 * TOK_KEPT_ROOM / (5 * LONGEST / 2);
    tok_scratch *const scratch = tok_scratch_new();
    uint8_t s[LONGEST];
    int32_t ids[LONGEST];
    size_t n_found = 0;
    assert_non_null(scratch);
    for (uint64_t k = 0; k < n_pieces; k++) {
        const size_t n = make_piece(k, s, ids);
        tok_out out = {.ids = NULL};
        assert_false(tok_kept_emit(scratch, tok_hash(s, n), s, n, &out));
        tok_kept_add(scratch, tok_hash(s, n), s, n, ids, n);
        assert_kept(scratch, s, n, ids);
        assert_true(scratch->n_records <= TOK_KEPT_ROOM);
    }
    for (uint64_t k = 0; k < n_pieces; k++) {
        const size_t n = make_piece(k, s, ids);
        tok_out out = {.ids = NULL};
        if (tok_kept_emit(scratch, tok_hash(s, n), s, n, &out)) {
            assert_kept(scratch, s, n, ids);
            n_found++;
        }
    }
    assert_in_range(n_found, 1, n_pieces - 1); /* the older ones were forgotten */
    tok_scratch_free(scratch);
}

static void pieces_with_the_same_hash_are_told_apart(void **state)
{
    (void)state;
    tok_scratch *const scratch = tok_scratch_new();
    uint8_t s[9][LONGEST];
    int32_t ids[9][LONGEST];
    size_t n[9];
    tok_out out = {.ids = NULL};
    assert_non_null(scratch);
    for (uint64_t k = 0; k < 9; k++) {
        n[k] = make_piece(k, s[k], ids[k]);
        tok_kept_add(scratch, 7, s[k], n[k], ids[k], n[k]);
    }
    assert_false(tok_kept_emit(scratch, 7, s[0], n[0], &out)); /* a set holds eight */
    for (uint64_t k = 1; k < 9; k++) {
        int32_t got[LONGEST];
        out = (tok_out){.ids = got, .capacity = LONGEST};
        assert_true(tok_kept_emit(scratch, 7, s[k], n[k], &out));
        assert_int_equal(out.n, n[k]);
        assert_memory_equal(got, ids[k], n[k] * sizeof *got);
    }
    tok_scratch_free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_kept_comes_back),
        cmocka_unit_test(pieces_with_the_same_hash_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
