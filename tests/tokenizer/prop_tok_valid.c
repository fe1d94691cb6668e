/* tok_valid_prefix is utf8_valid_prefix: on every sequence of three bytes from 0xC0 on, whole and cut, and on damaged text. */
#include "tok_support.h"

#include "core/utf8.h"

static void every_sequence_of_three_bytes(void **state)
{
    (void)state;
    for (uint32_t code = 0xC00000; code <= 0xFFFFFF; code += code % 3 + 1) {
        const uint8_t s[5] = {(uint8_t)(code >> 16), (uint8_t)(code >> 8), (uint8_t)code, 'x', 'y'};
        for (size_t n = 2; n <= sizeof s; n++) {
            assert_int_equal(tok_valid_prefix(s, n), utf8_valid_prefix(s, n));
        }
    }
}

static void damaged_text(void **state)
{
    (void)state;
    uint64_t seed = 55;
    size_t n_valid = 0;
    for (int round = 0; round < 50000; round++) {
        uint8_t text[200];
        const size_t n = sup_random_text(&seed, sizeof text, text);
        for (uint64_t times = sup_random(&seed) % 3; n != 0 && times != 0; times--) {
            text[sup_random(&seed) % n] = (uint8_t)sup_random(&seed);
        }
        const size_t valid = tok_valid_prefix(text, n);
        assert_int_equal(valid, utf8_valid_prefix(text, n));
        n_valid += valid == n;
    }
    assert_in_range(n_valid, 10000, 40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_of_three_bytes),
        cmocka_unit_test(damaged_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
