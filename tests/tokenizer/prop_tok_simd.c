/* Every way to cut text gives the same ends: those of the pieces, and inside of pieces of ideographs the closed seams. */
#include "tok_support.h"

#define MAX_TEXT 400u
#define MAX_ENDS (MAX_TEXT + 2 * TOK_WINDOW)

/* One of each kind that the rules tell apart, and what ends a window early. */
static const char *const units[] = {
    "a", "Z", "7", ".", " ", "\t", "\n", "\r", "\x01", "\xC3\xA9", "\xE5\xA5\xBD", "\xE3\x81\x82", "\xC2\xA0",
};

#define N_UNITS (sizeof units / sizeof *units)

static size_t append(uint8_t *text, size_t n, const char *unit)
{
    const size_t size = strlen(unit);
    memcpy(text + n, unit, size);
    return n + size;
}

/* All ends; `places` is how many a call may give. */
static size_t cut_all(tok_cut_fn *cut, const di_tokenizer *tok, const uint8_t *s, size_t n, size_t places, uint32_t *ends)
{
    size_t count = 0;
    for (size_t at = 0; at < n; at = ends[count - 1]) {
        uint32_t some[2 * TOK_WINDOW];
        const size_t n_some = cut(tok, s, n, at, some, places);
        assert_in_range(n_some, 1, places);
        assert_true(count + n_some <= MAX_ENDS);
        memcpy(ends + count, some, n_some * sizeof *ends);
        count += n_some;
        assert_in_range(ends[count - 1], at + 1, n);
    }
    return count;
}

static void assert_pieces(const di_tokenizer *tok, const uint8_t *s, size_t n, const uint32_t *ends, size_t count)
{
    size_t k = 0;
    for (size_t at = 0; at < n;) {
        const size_t end = tok_piece_end(s, n, at);
        for (; k < count && ends[k] < end; k++) { /* a seam */
            const uint8_t *const seam = s + ends[k];
            assert_true(ends[k] - at >= TOK_CJK_BYTES && end - ends[k] >= TOK_CJK_BYTES);
            assert_true(tok_seam_closed(tok, tok_cjk_index(seam - TOK_CJK_BYTES), tok_cjk_index(seam)));
        }
        assert_true(k < count);
        assert_int_equal(ends[k++], end);
        at = end;
    }
    assert_int_equal(k, count);
}

/* The text lies in memory of its own size, so that a sanitizer sees reads behind it. */
static void check(const di_tokenizer *tok, const uint8_t *text, size_t n)
{
    uint32_t want[MAX_ENDS];
    uint32_t ends[MAX_ENDS];
    uint8_t *const s = malloc(n + 1);
    assert_non_null(s);
    uint8_t *const exact = s + 1; /* at an odd address */
    memcpy(exact, text, n);
    const size_t count = cut_all(tok_cut_plain, tok, exact, n, 2 * TOK_WINDOW, want);
    assert_pieces(tok, exact, n, want, count);
    for (size_t i = 0; tok_cut_variant(i) != NULL; i++) {
        for (size_t places = TOK_WINDOW; places <= 2 * TOK_WINDOW; places += TOK_WINDOW / 2) {
            assert_int_equal(cut_all(tok_cut_variant(i), tok, exact, n, places, ends), count);
            assert_memory_equal(ends, want, count * sizeof *ends);
        }
    }
    free(s);
}

static void every_short_sequence_of_kinds(void **state)
{
    (void)state;
    di_tokenizer *const tok = sup_demo();
    static const char *const before[] = {"", "0123456789 the quick fox jumped over it, and was gone.  ---"};
    static const char *const behind[] = {"x and then some more of it, so that the window is full up to its end", "",
                                         " \n\n    1    \n .  .\n   a\n  \n\n  b  c .d !!e 4444444f   5   ,,    \n"};
    for (size_t code = 0; code < N_UNITS * N_UNITS * N_UNITS * N_UNITS; code++) {
        for (size_t i = 0; i < 2 * 3; i++) {
            uint8_t text[MAX_TEXT];
            size_t n = append(text, 0, before[i % 2]);
            for (size_t rest = code, k = 0; k < 4; k++, rest /= N_UNITS) {
                n = append(text, n, units[rest % N_UNITS]);
            }
            check(tok, text, append(text, n, behind[i / 2]));
        }
    }
    di_tokenizer_close(tok);
}

static void runs_of_any_length(void **state)
{
    (void)state;
    di_tokenizer *const tok = sup_demo();
    uint64_t seed = 33;
    for (int round = 0; round < 20000; round++) {
        uint8_t text[MAX_TEXT];
        size_t n = 0;
        const size_t kinds = round % 3 == 0 ? N_UNITS : 8; /* mostly ASCII */
        while (n + 100 * 3 <= MAX_TEXT) {
            const uint64_t random = sup_random(&seed);
            const size_t longest = random % 16 == 0 ? 99 : 3;
            for (uint64_t times = 1 + (random >> 8) % longest; times != 0; times--) {
                n = append(text, n, units[(random >> 40) % kinds]);
            }
        }
        check(tok, text, n);
    }
    di_tokenizer_close(tok);
}

static void any_text_and_any_bytes(void **state)
{
    (void)state;
    di_tokenizer *const tok = sup_demo();
    uint64_t seed = 34;
    for (int round = 0; round < 20000; round++) {
        uint8_t text[MAX_TEXT];
        size_t n = sup_random_text(&seed, sizeof text, text);
        for (size_t i = 0; round % 2 == 0 && i < n; i++) {
            text[i] = (uint8_t)(sup_random(&seed) & 0x7F); /* every control character, every sign */
        }
        check(tok, text, n);
    }
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_short_sequence_of_kinds),
        cmocka_unit_test(runs_of_any_length),
        cmocka_unit_test(any_text_and_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
