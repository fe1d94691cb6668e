/* Streaming decode gives the one-shot text for every sequence of ids, and nothing it pushed out is half a character. */
#include "tok_support.h"

#include "core/utf8.h"

static void check_sequence(const di_tokenizer *tok, di_detokenizer *stream, const int32_t *ids, size_t n, unsigned flags)
{
    size_t n_whole;
    char *whole = sup_decode(tok, ids, n, flags, &n_whole);
    assert_int_equal(utf8_valid_prefix((const uint8_t *)whole, n_whole), n_whole);
    size_t at = 0;
    for (size_t i = 0; i <= n; i++) {
        const char *text;
        size_t size;
        const di_status status = i < n ? di_detokenizer_push(stream, ids[i], &text, &size, NULL)
                                       : di_detokenizer_finish(stream, &text, &size, NULL);
        assert_int_equal(status, DI_OK);
        assert_true(at + size <= n_whole);
        assert_memory_equal(text, whole + at, size);
        assert_int_equal(utf8_valid_prefix((const uint8_t *)text, size), size);
        at += size;
    }
    assert_int_equal(at, n_whole);
    free(whole);
}

static void check_tokenizer(const di_tokenizer *tok)
{
    const int32_t n_ids = di_tokenizer_vocab_size(tok);
    uint64_t seed = 5;
    for (unsigned flags = 0; flags <= DI_DECODE_SKIP_SPECIAL; flags++) {
        di_detokenizer *stream = NULL;
        assert_int_equal(di_detokenizer_new(tok, flags, &stream, NULL), DI_OK);
        for (int round = 0; round < 5000; round++) {
            int32_t ids[24];
            const size_t n = sup_random(&seed) % 25;
            for (size_t i = 0; i < n; i++) {
                const uint64_t r = sup_random(&seed);
                /* Single bytes often, so that characters are split; now and then an id outside the table or a control. */
                ids[i] = r % 4 == 0 ? (int32_t)((r >> 8) % (uint64_t)(n_ids + 20)) - 10
                                    : r % 4 == 1 ? (int32_t)((r >> 8) % 4) : 97 + (int32_t)((r >> 8) % 162);
            }
            check_sequence(tok, stream, ids, n, flags);
        }
        di_detokenizer_free(stream);
    }
}

static void streaming_equals_one_shot_with_the_demo_tokenizer(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_demo();
    check_tokenizer(tok);
    di_tokenizer_close(tok);
}

static void streaming_equals_one_shot_with_the_real_tokenizer(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_real("v41");
    if (tok == NULL) {
        skip();
    }
    check_tokenizer(tok);
    di_tokenizer_close(tok);
}

/* A cut text is what was asked for and no more, and the full length is known. */
static void capacity_bounds_the_text(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_demo();
    const int32_t ids[] = {43, 3068, 44};
    for (size_t capacity = 0; capacity <= 9; capacity++) {
        char text[10] = "..........";
        size_t n;
        assert_int_equal(di_tokenizer_decode(tok, ids, 3, 0, text, capacity, &n, NULL), DI_OK);
        assert_int_equal(n, 9);
        assert_memory_equal(text, "I<think>J", capacity);
        assert_int_equal(text[capacity], '.');
    }
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streaming_equals_one_shot_with_the_demo_tokenizer),
        cmocka_unit_test(streaming_equals_one_shot_with_the_real_tokenizer),
        cmocka_unit_test(capacity_bounds_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
