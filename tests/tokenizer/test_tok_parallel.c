/* Encoding with threads gives the ids of encoding with one, for texts with few, many and no places to cut. */
#include "tok_support.h"

#define TEXT_BYTES (((size_t)2 << 19) + 70000) /* some ranges and a bit */
#define LONG_BYTES ((size_t)9 << 20)           /* more than a section of two threads */

static void assert_same(const di_tokenizer *tok, const char *text, size_t n, unsigned flags, int n_threads)
{
    size_t n_ids;
    size_t n_parallel = 0;
    int32_t *const ids = sup_encode(tok, text, n, flags, &n_ids);
    int32_t *const parallel = malloc((n_ids + 1) * sizeof *parallel);
    assert_non_null(parallel);
    parallel[n_ids] = -7;
    assert_int_equal(di_tokenizer_encode_parallel(tok, text, n, flags, n_threads, parallel, n_ids, &n_parallel, NULL), DI_OK);
    assert_int_equal(n_parallel, n_ids);
    assert_memory_equal(parallel, ids, n_ids * sizeof *ids);
    assert_int_equal(parallel[n_ids], -7);
    free(ids);
    free(parallel);
}

static void repeat(char *text, size_t n, const char *unit)
{
    const size_t size = strlen(unit);
    for (size_t i = 0; i < n; i++) {
        text[i] = i / size * size + size <= n ? unit[i % size] : ' ';
    }
}

static void too_little_room_is_kept_to(void **state)
{
    (void)state;
    di_tokenizer *const tok = sup_demo();
    char *const text = malloc(TEXT_BYTES);
    size_t n_ids;
    size_t n_parallel = 0;
    assert_non_null(text);
    repeat(text, TEXT_BYTES, "one line of 12 words\n");
    int32_t *const ids = sup_encode(tok, text, TEXT_BYTES, 0, &n_ids);
    int32_t *const parallel = malloc(n_ids * sizeof *parallel);
    assert_non_null(parallel);
    for (size_t room = 0; room < n_ids; room += n_ids / 3) {
        memset(parallel, 0xFF, n_ids * sizeof *parallel);
        assert_int_equal(di_tokenizer_encode_parallel(tok, text, TEXT_BYTES, 0, 2, parallel, room, &n_parallel, NULL), DI_OK);
        assert_int_equal(n_parallel, n_ids);
        assert_memory_equal(parallel, ids, room * sizeof *ids);
        assert_int_equal(parallel[room], -1);
    }
    free(ids);
    free(parallel);
    free(text);
    di_tokenizer_close(tok);
}

static void same_ids_for_any_text(void **state)
{
    static const char *const units[] = {
        "a",                                                     /* no cut at all */
        "\n",                                                    /* line feeds without a line */
        "one line of 12 words \xE4\xBD\xA0\xE5\xA5\xBD\n",       /* cuts everywhere */
        "\xE4\xBD\xA0\xE5\xA5\xBD",                              /* characters of three bytes, no cut */
        "<\xEF\xBD\x9CUser\xEF\xBD\x9C>hi \n\xC2\xA0\xE4\xB8\xAD", /* added tokens */
        "x1",                                                    /* cuts of rule 2 only */
    };
    (void)state;
    di_tokenizer *const tok = sup_demo();
    char *const text = malloc(TEXT_BYTES + 16);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        repeat(text, TEXT_BYTES, units[i]);
        assert_same(tok, text, TEXT_BYTES, i % 2 == 0 ? DI_ENCODE_SPECIAL : 0, 2 + (int)i % 2);
    }
    assert_same(tok, text, TEXT_BYTES, DI_ENCODE_SPECIAL, 2); /* cuts, but no lines */
    /* A cut at the very beginning, then none. */
    repeat(text, TEXT_BYTES, "a");
    memcpy(text, "\n1", 2);
    assert_same(tok, text, TEXT_BYTES, 0, 2);
    uint64_t random = 3;
    size_t n = 0;
    while (n + 4096 < TEXT_BYTES) {
        n += sup_random_text(&random, 4096, (uint8_t *)text + n);
    }
    assert_same(tok, text, n, 0, 4);
    assert_same(tok, text, n, DI_ENCODE_SPECIAL, 0);
    text[n / 2] = (char)0xFF;
    assert_same(tok, text, n, 0, 2);
    free(text);
    di_tokenizer_close(tok);
}

/* Sections, stripes, threads without a stripe of their own; one call after the other, in which scratches and their memory come back. */
static void same_ids_for_any_number_of_threads(void **state)
{
    static const int threads[] = {2, 9, 3};
    (void)state;
    di_tokenizer *const tok = sup_demo();
    char *const text = calloc(LONG_BYTES, 1);
    assert_non_null(text);
    uint64_t random = 5;
    for (size_t n = 0; n + 16 < LONG_BYTES;) {
        uint64_t word = sup_random(&random) % 3000;
        const size_t end = n + 3 + word % 9;
        while (n < end) {
            text[n++] = "etaoinshrdluqEX"[sup_random(&word) % 15];
        }
        text[n++] = word % 9 == 0 ? '\n' : ' ';
    }
    memset(text + LONG_BYTES / 2, 'a', (size_t)300 << 10); /* ranges without a cut */
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        assert_same(tok, text, LONG_BYTES - i * 100000, i % 2 == 0 ? 0 : DI_ENCODE_SPECIAL, threads[i]);
    }
    free(text);
    di_tokenizer_close(tok);
}

/* Wherever the wrong byte is: at an end, at a border of two ranges, or a character cut short by it. */
static void text_that_is_not_valid_gives_the_ids_of_one_thread(void **state)
{
    static const size_t places[] = {0, 1, (size_t)128 << 10, ((size_t)128 << 10) + 1, ((size_t)256 << 10) - 1, TEXT_BYTES - 1};
    (void)state;
    di_tokenizer *const tok = sup_demo();
    char *const text = malloc(TEXT_BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        repeat(text, TEXT_BYTES, i % 2 == 0 ? "one line of 12 words\n" : "\xE4\xBD\xA0\xE5\xA5\xBD 1");
        text[places[i]] = (char)(i % 2 == 0 ? 0xE4 : 0xFF);
        assert_same(tok, text, TEXT_BYTES, 0, 2);
    }
    free(text);
    di_tokenizer_close(tok);
}

static void small_texts_and_wrong_arguments(void **state)
{
    (void)state;
    di_tokenizer *const tok = sup_demo();
    size_t n_ids;
    di_error err;
    assert_same(tok, "hello", 5, 0, 2);
    assert_same(tok, "", 0, 0, 2);
    assert_int_equal(di_tokenizer_encode_parallel(tok, "a", 1, 0, -1, NULL, 0, &n_ids, &err), DI_E_ARGUMENT);
    assert_int_equal(di_tokenizer_encode_parallel(tok, "a", 1, 0, 65, NULL, 0, &n_ids, &err), DI_E_ARGUMENT);
    assert_int_equal(di_tokenizer_encode_parallel(tok, "a", 1, 8, 2, NULL, 0, &n_ids, &err), DI_E_ARGUMENT);
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids_for_any_text),
        cmocka_unit_test(same_ids_for_any_number_of_threads),
        cmocka_unit_test(text_that_is_not_valid_gives_the_ids_of_one_thread),
        cmocka_unit_test(too_little_room_is_kept_to),
        cmocka_unit_test(small_texts_and_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
