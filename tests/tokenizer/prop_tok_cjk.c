/* Starting from characters instead of bytes gives the same ids, with both merge loops, and so does cutting at closed seams (tok_cjk.c
 * says why). */
#include "tok_support.h"

#include "core/utf8.h"

/* Characters out of tokens, so that merges happen, and any others, so that rare ones and cut ones do. */
static size_t random_piece(const di_tokenizer *tok, uint64_t *seed, size_t max, uint8_t *out)
{
    size_t n = 0;
    const size_t limit = 3 + sup_random(seed) % (max - 3);
    while (n + 3 <= limit) {
        const uint64_t r = sup_random(seed);
        if (r % 3 == 0) {
            n += (size_t)utf8_encode(r % 2 == 0 ? 0x3041 + (uint32_t)(r >> 8) % 0x60 : 0x4E00 + (uint32_t)(r >> 8) % 0x51A6, out + n);
            continue;
        }
        size_t size;
        const uint8_t *s = tok_token(tok, (int32_t)((r >> 8) % (uint64_t)tok->n_ids), &size);
        for (size_t i = 0; i + 3 <= size && n + 3 <= limit; i++) {
            size_t length;
            if ((tok_kind_at(s, size, i, &length) & TOK_CJK) != 0 && length == 3) {
                memcpy(out + n, s + i, 3);
                n += 3;
                i += 2;
            }
        }
    }
    return n;
}

/* Ids of text as the rules cut it, merged from bytes. */
static size_t encode_bytewise(const di_tokenizer *plain, tok_scratch *scratch, const uint8_t *s, size_t n, int32_t *ids)
{
    tok_out out = {.ids = ids, .capacity = TOK_SHORT_BYTES};
    for (size_t at = 0; at < n;) {
        const size_t end = tok_piece_end(s, n, at);
        assert_true(tok_long_merge(plain, scratch, s + at, end - at, &out));
        at = end;
    }
    return out.n;
}

static void check_tokenizer(di_tokenizer *tok, di_tokenizer *plain, size_t n_usable)
{
    size_t usable = 0;
    for (size_t i = 0; i < TOK_N_CJK; i++) {
        usable += tok->cjk[i] != TOK_NONE;
        plain->cjk[i] = TOK_NONE;
    }
    assert_true(usable >= n_usable);
    tok_scratch *scratch = tok_scratch_new();
    assert_non_null(scratch);
    uint64_t seed = 21;
    size_t seams = 0;
    for (int round = 0; round < 60000; round++) {
        uint8_t s[TOK_SHORT_BYTES];
        int32_t want[TOK_SHORT_BYTES];
        int32_t ids[TOK_SHORT_BYTES];
        const size_t n = random_piece(tok, &seed, sizeof s, s);
        const size_t n_want = tok_short_merge(plain, s, n, want);
        assert_int_equal(tok_short_merge(tok, s, n, ids), n_want);
        assert_memory_equal(ids, want, n_want * sizeof *ids);
        tok_out out = {.ids = ids, .capacity = TOK_SHORT_BYTES};
        assert_true(tok_long_merge(tok, scratch, s, n, &out));
        assert_int_equal(out.n, n_want);
        assert_memory_equal(ids, want, n_want * sizeof *ids);
        out = (tok_out){.ids = ids, .capacity = TOK_SHORT_BYTES};
        for (size_t at = 0; at < n;) {
            uint32_t ends[TOK_WINDOW];
            const size_t n_ends = tok_cut_plain(tok, s, n, at, ends, TOK_WINDOW);
            seams += n_ends - 1;
            for (size_t i = 0; i < n_ends; at = ends[i++]) {
                assert_true(tok_long_merge(plain, scratch, s + at, ends[i] - at, &out));
            }
        }
        assert_int_equal(out.n, encode_bytewise(plain, scratch, s, n, want));
        assert_memory_equal(ids, want, out.n * sizeof *ids);
    }
    assert_true(seams > n_usable);
    tok_scratch_free(scratch);
    di_tokenizer_close(tok);
    di_tokenizer_close(plain);
}

static void with_the_demo_tokenizer(void **state)
{
    (void)state;
    check_tokenizer(sup_demo(), sup_demo(), 1);
}

static void with_the_real_tokenizer(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_real("v41");
    if (tok == NULL) {
        skip();
    }
    check_tokenizer(tok, sup_real("v41"), 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_the_demo_tokenizer),
        cmocka_unit_test(with_the_real_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
