/* Tests of digest.c (vectors of FIPS 180-4) and clock.c. */
#include "support/unit.h"

#include "core/clock.h"
#include "core/digest.h"

#include <string.h>

static void known_digests(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t digest[DIGEST_BYTES];
        char hex[DIGEST_HEX_BYTES];
        assert_int_equal(digest_sha256(cases[i][0], strlen(cases[i][0]), digest, NULL), DI_OK);
        digest_hex(digest, hex);
        assert_string_equal(hex, cases[i][1]);
    }
}

static void digests_are_compared_byte_by_byte(void **state)
{
    (void)state;
    uint8_t a[DIGEST_BYTES];
    uint8_t b[DIGEST_BYTES];
    assert_int_equal(digest_sha256("abc", 3, a, NULL), DI_OK);
    memcpy(b, a, sizeof b);
    assert_true(digest_equal(a, b));
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        b[i] ^= 1;
        assert_false(digest_equal(a, b));
        b[i] ^= 1;
    }
}

static void the_clock_does_not_run_backwards(void **state)
{
    (void)state;
    int64_t last = clock_now_ns();
    assert_true(last > 0);
    for (int i = 0; i < 1000; i++) {
        const int64_t now = clock_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_digests),
        cmocka_unit_test(digests_are_compared_byte_by_byte),
        cmocka_unit_test(the_clock_does_not_run_backwards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
