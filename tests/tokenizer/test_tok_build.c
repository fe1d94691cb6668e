/* Building a tokenizer: the properties that the fast paths rely on are checked, contradictions are refused. */
#include "tok_support.h"

/* A source made by hand: 256 byte tokens with ids 0..255, then what a test adds. */
typedef struct maker {
    tok_source source;
    char text[1 << 14];
    tok_source_entry vocab[300];
    tok_source_entry added[8];
    tok_source_merge merges[16];
} maker;

static tok_slice keep(maker *m, const char *text, size_t n)
{
    const tok_slice slice = {.offset = (uint32_t)m->source.text_size, .size = (uint32_t)n};
    memcpy(m->text + m->source.text_size, text, n);
    m->source.text_size += n;
    return slice;
}

static void add_vocab(maker *m, const char *text, size_t n, int32_t id)
{
    m->vocab[m->source.n_vocab++] = (tok_source_entry){.spelling = keep(m, text, n), .id = id};
}

static void add_added(maker *m, const char *text, int32_t id)
{
    m->added[m->source.n_added++] = (tok_source_entry){.spelling = keep(m, text, strlen(text)), .id = id};
}

static void add_merge(maker *m, const char *left, const char *right)
{
    m->merges[m->source.n_merges].left = keep(m, left, strlen(left));
    m->merges[m->source.n_merges++].right = keep(m, right, strlen(right));
}

static maker *new_maker(void)
{
    maker *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->source.text = m->text;
    m->source.vocab = m->vocab;
    m->source.added = m->added;
    m->source.merges = m->merges;
    for (int byte = 0; byte < 256; byte++) {
        const uint8_t b = (uint8_t)byte;
        uint8_t spelled[2];
        const size_t n = tok_alphabet_encode(&b, 1, spelled);
        add_vocab(m, (const char *)spelled, n, byte);
    }
    return m;
}

static di_tokenizer *expect_built(maker *m)
{
    di_tokenizer *tok = NULL;
    di_error err = {.message = ""};
    if (tok_build(&m->source, &tok, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    free(m);
    return tok;
}

static void expect_refused(maker *m, const char *message)
{
    di_tokenizer *tok = NULL;
    di_error err = {.message = ""};
    assert_int_not_equal(tok_build(&m->source, &tok, &err), DI_OK);
    assert_null(tok);
    if (strstr(err.message, message) == NULL) {
        fail_msg("\"%s\" does not hold \"%s\"", err.message, message);
    }
    free(m);
}

static void merges_apply_in_order(void **state)
{
    (void)state;
    maker *m = new_maker();
    add_vocab(m, "ab", 2, 256);
    add_vocab(m, "abc", 3, 257);
    add_merge(m, "a", "b");
    add_merge(m, "ab", "c");
    di_tokenizer *tok = expect_built(m);
    assert_true(tok->whole_pieces);
    sup_expect_ids(tok, "abc", 3, 0, "257");
    sup_expect_ids(tok, "abab", 4, 0, "256 256");
    assert_int_equal(di_tokenizer_find(tok, "ab", 2), 256);
    assert_int_equal(di_tokenizer_find(tok, "bc", 2), -1);
    di_tokenizer_close(tok);
}

/* "abc" = a + bc, but "ab" merges first, so that "abc" never comes out of its own bytes. */
static void a_product_that_does_not_encode_to_itself_turns_the_shortcut_off(void **state)
{
    (void)state;
    maker *m = new_maker();
    add_vocab(m, "ab", 2, 256);
    add_vocab(m, "bc", 2, 257);
    add_vocab(m, "abc", 3, 258);
    add_merge(m, "a", "b");
    add_merge(m, "b", "c");
    add_merge(m, "a", "bc");
    di_tokenizer *tok = expect_built(m);
    assert_false(tok->whole_pieces);
    sup_expect_ids(tok, "abc", 3, 0, "256 99");
    di_tokenizer_close(tok);
}

/* An entry that no merge makes decodes, but text never gives it. */
static void an_unreachable_entry_is_not_found_in_text(void **state)
{
    (void)state;
    maker *m = new_maker();
    add_vocab(m, "xy", 2, 256);
    di_tokenizer *tok = expect_built(m);
    sup_expect_ids(tok, "xy", 2, 0, "120 121");
    const int32_t id = 256;
    size_t n;
    char *text = sup_decode(tok, &id, 1, 0, &n);
    assert_string_equal(text, "xy");
    free(text);
    di_tokenizer_close(tok);
}

/* A base entry that is an added token too must not come out of plain text, even when its spelling is in the alphabet. */
static void an_added_spelling_in_the_vocabulary_is_matched_only_on_request(void **state)
{
    (void)state;
    maker *m = new_maker();
    add_vocab(m, "<t>", 3, 256);
    add_added(m, "<t>", 256);
    di_tokenizer *tok = expect_built(m);
    sup_expect_ids(tok, "a<t>", 4, 0, "97 60 116 62");
    sup_expect_ids(tok, "a<t>", 4, DI_ENCODE_SPECIAL, "97 256");
    di_tokenizer_close(tok);

    m = new_maker();
    add_vocab(m, "<t", 2, 256);
    add_added(m, "<t", 256);
    add_merge(m, "<", "t");
    expect_refused(m, "merge 0");
}

/* A vocabulary string outside the byte alphabet is literal UTF-8; so is an added one inside it (U+010D would mean CR). */
static void literal_spellings_stay_literal(void **state)
{
    (void)state;
    maker *m = new_maker();
    add_vocab(m, "\xE2\x96\x81x", 4, 256);
    add_added(m, "\xC4\x8D", 257);
    di_tokenizer *tok = expect_built(m);
    const int32_t ids[] = {256, 257};
    size_t n;
    char *text = sup_decode(tok, ids, 2, 0, &n);
    assert_string_equal(text, "\xE2\x96\x81x\xC4\x8D");
    free(text);
    di_tokenizer_close(tok);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    maker *m = new_maker();
    m->source.n_vocab--;
    expect_refused(m, "no token for the single byte 0xFF");

    m = new_maker();
    add_vocab(m, "ab", 2, 257);
    expect_refused(m, "id 256 is missing");

    m = new_maker();
    add_vocab(m, "ab", 2, 255);
    expect_refused(m, "id 255 is given to two entries");

    m = new_maker();
    add_vocab(m, "a", 1, 256);
    expect_refused(m, "id 256 has the spelling of another entry");

    m = new_maker();
    add_added(m, "<t>", 255);
    expect_refused(m, "id 255 has another spelling in model.vocab");

    m = new_maker();
    add_added(m, "<t>", 256);
    add_added(m, "<t>", 257);
    expect_refused(m, "ids 256 and 257 have the same content");

    m = new_maker();
    add_added(m, "", 256);
    expect_refused(m, "id 256 has an empty content");

    m = new_maker();
    add_merge(m, "a", "b");
    expect_refused(m, "merge 0 is not in model.vocab");

    m = new_maker();
    add_vocab(m, "ab", 2, 257);
    add_vocab(m, "bc", 2, 256);
    add_merge(m, "a", "b");
    add_merge(m, "b", "c");
    expect_refused(m, "merge 1 makes id 256 after id 257");

    m = new_maker();
    add_vocab(m, "ab", 2, 256);
    add_merge(m, "a", "b");
    add_merge(m, "a", "b");
    expect_refused(m, "merge 1 makes id 256 after id 256");

    m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->source.text = m->text;
    expect_refused(m, "no token for the single byte 0x00");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_apply_in_order),
        cmocka_unit_test(a_product_that_does_not_encode_to_itself_turns_the_shortcut_off),
        cmocka_unit_test(an_unreachable_entry_is_not_found_in_text),
        cmocka_unit_test(an_added_spelling_in_the_vocabulary_is_matched_only_on_request),
        cmocka_unit_test(literal_spellings_stay_literal),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
