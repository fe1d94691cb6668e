/* Forged cache files: changed anywhere, the checksum made right again. Each is refused or gives a tokenizer that stays inside its
 * memory (which the sanitizers watch), whatever its ids mean. Without a right checksum every change is refused. */
#include "tok_support.h"

#include "core/file.h"
#include "tokenizer/tok_cache.h"

#include <unistd.h>

#define ROUNDS 400

static uint8_t *demo_cache(size_t *size)
{
    static const uint8_t digest[DIGEST_BYTES];
    char name[] = "prop_tok_cache.XXXXXX";
    const int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    di_tokenizer *const tok = sup_demo();
    const tok_stamp stamp = {.size = 1};
    tok_cache_store(name, &stamp, digest, tok);
    di_tokenizer_close(tok);
    char *data = NULL;
    assert_int_equal(file_read(name, (size_t)1 << 30, &data, size, NULL), DI_OK);
    assert_int_equal(unlink(name), 0);
    /* Where a mapping would be: page-aligned, nothing readable behind it. */
    uint8_t *const file = aligned_alloc(4096, (*size + 4095) / 4096 * 4096);
    assert_non_null(file);
    memcpy(file, data, *size);
    free(data);
    return file;
}

static di_tokenizer *adopt(const uint8_t *file, size_t size)
{
    file_map map = {.data = file, .size = size}; /* no base: closing it unmaps nothing */
    return tok_cache_adopt(&map);
}

static void seal(uint8_t *file, size_t size)
{
    const uint64_t sum = tok_cache_checksum(file, size);
    memcpy(file + offsetof(tok_cache_head, checksum), &sum, sizeof sum);
}

static void use(const di_tokenizer *tok, uint64_t *random)
{
    uint8_t text[512];
    char back[64];
    di_detokenizer *stream = NULL;
    const size_t n = sup_random_text(random, sizeof text, text);
    size_t n_ids;
    size_t n_back;
    int32_t *const ids = sup_encode(tok, text, n, DI_ENCODE_SPECIAL, &n_ids);
    (void)di_tokenizer_decode(tok, ids, n_ids, 0, back, sizeof back, &n_back, NULL);
    (void)di_tokenizer_find(tok, (const char *)text, n);
    assert_int_equal(di_detokenizer_new(tok, 0, &stream, NULL), DI_OK);
    for (int32_t id = 0; id < di_tokenizer_vocab_size(tok); id += 7) {
        const char *part;
        (void)di_detokenizer_push(stream, id, &part, &n_back, NULL);
    }
    di_detokenizer_free(stream);
    free(ids);
}

static void forged_files_are_harmless(void **state)
{
    (void)state;
    size_t size;
    uint8_t *const file = demo_cache(&size);
    uint8_t *const original = malloc(size);
    uint64_t random = 5;
    int taken = 0;
    assert_non_null(original);
    memcpy(original, file, size);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(file, original, size);
        for (uint64_t changes = 1 + sup_random(&random) % 3; changes > 0; changes--) {
            /* Half of them in the head, where the numbers are. */
            const size_t range = sup_random(&random) % 2 == 0 ? 128 : size - 8;
            const uint64_t value = sup_random(&random) % 4 == 0 ? UINT64_MAX : sup_random(&random);
            memcpy(file + sup_random(&random) % range, &value, 1 + sup_random(&random) % 8);
        }
        if (memcmp(file, original, size) != 0) {
            assert_null(adopt(file, size));
        }
        seal(file, size);
        di_tokenizer *const tok = adopt(file, size);
        if (tok != NULL) {
            taken++;
            use(tok, &random);
            di_tokenizer_close(tok);
        }
    }
    memcpy(file, original, size);
    di_tokenizer *const whole = adopt(file, size);
    assert_non_null(whole);
    di_tokenizer_close(whole);
    assert_true(taken > 0 && taken < ROUNDS);
    free(original);
    free(file);
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    size_t size;
    uint8_t *const file = demo_cache(&size);
    uint64_t random = 6;
    for (int round = 0; round < 100; round++) {
        const size_t cut = round < 8 ? (size_t)round : sup_random(&random) % size;
        if (cut > TOK_CACHE_SUMMED) {
            seal(file, cut);
        }
        assert_null(adopt(file, cut));
    }
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_files_are_harmless),
        cmocka_unit_test(cut_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
