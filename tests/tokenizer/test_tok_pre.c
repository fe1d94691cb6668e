/* Pieces of the pre-tokenizer: the cases that an approximate implementation gets wrong (tokenizer.md 4.3, 13). */
#include "tok_support.h"

typedef struct split_case {
    const char *text;
    size_t n;
    const char *pieces; /* '|' between pieces */
} split_case;

#define CASE(text, pieces) {text, sizeof(text) - 1, pieces}

static const split_case cases[] = {
    CASE("Hello, world!", "Hello|,| world|!"),
    CASE("1234567", "123|456|7"),
    CASE("a  1", "a|  |1"),
    CASE("a  b", "a| | b"),
    CASE("a   ", "a|   "),
    CASE("\xEF\xBC\x91\xEF\xBC\x92\xEF\xBC\x93\xEF\xBC\x94", "\xEF\xBC\x91\xEF\xBC\x92\xEF\xBC\x93|\xEF\xBC\x94"),
    CASE("\xC2\xBD\xC2\xBD\xC2\xBD\xC2\xBD", "\xC2\xBD\xC2\xBD\xC2\xBD|\xC2\xBD"),
    CASE("x  \xE5\xA5\xBD", "x|  |\xE5\xA5\xBD"),
    CASE("\xE5\xA5\xBD" "a", "\xE5\xA5\xBD|a"),
    CASE("\xC2\xA0" "b", "\xC2\xA0" "b"),
    CASE("\tb", "\tb"),
    CASE("\nb", "\n|b"),
    CASE("\xCC\x81" "b", "\xCC\x81" "b"),
    CASE(".com\xC3\xA9", ".com|\xC3\xA9"),
    CASE("\001\002a", "\001|\002a"),
    CASE("\001\002", "\001\002"),
    CASE("\001\002 .", "\001\002| ."),
    CASE("hi!\n\ndef", "hi|!\n\n|def"),
    CASE("a \n\n  b", "a| \n\n| | b"),
    CASE("a\r\n\r\n", "a|\r\n\r\n"),
    CASE("a \xC2\x85\xE2\x80\xA8 ", "a| \xC2\x85\xE2\x80\xA8 "),
    CASE("it's (ok)", "it|'s| (|ok|)"),
    CASE(" .. x", " ..| x"),
    CASE("a  .", "a| | ."),
    CASE("\xE3\x83\xBB\n", "\xE3\x83\xBB|\n"),
    CASE(" \xE3\x83\xBB", " |\xE3\x83\xBB"),
    CASE("\xE3\x83\xBB\xE3\x81\x82", "\xE3\x83\xBB|\xE3\x81\x82"),
    CASE("\xE3\x81\x82\xE3\x82\x99\xE3\x81\x82", "\xE3\x81\x82\xE3\x82\x99\xE3\x81\x82"),
    CASE("\xE3\x81\x80\xE3\x81\x82", "\xE3\x81\x80\xE3\x81\x82"),
    CASE("\xE9\xBE\xA5\xE9\xBE\xA6", "\xE9\xBE\xA5|\xE9\xBE\xA6"),
    CASE("_foo_bar", "_foo|_bar"),
    CASE("_1", "_|1"),
    CASE("\xE2\x80\x8B" "a", "\xE2\x80\x8B" "a"),
    CASE("\xF0\x9F\x98\x80!\n", "\xF0\x9F\x98\x80!\n"),
};

static void cuts_as_the_regular_expressions_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint8_t *s = (const uint8_t *)cases[i].text;
        const size_t n = cases[i].n;
        char joined[256];
        size_t used = 0;
        for (size_t at = 0; at < n;) {
            const size_t end = tok_piece_end(s, n, at);
            assert_true(end > at && end <= n);
            if (at != 0) {
                joined[used++] = '|';
            }
            memcpy(joined + used, s + at, end - at);
            used += end - at;
            at = end;
        }
        joined[used] = '\0';
        assert_string_equal(joined, cases[i].pieces);
    }
}

/* Scanners take bytes as they come; on rubbish they only have to move forward and stay inside. */
static void moves_forward_on_arbitrary_bytes(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        const size_t n = 1 + sup_random(&seed) % 24;
        uint8_t *s = malloc(n);
        assert_non_null(s);
        for (size_t i = 0; i < n; i++) {
            const uint64_t r = sup_random(&seed);
            s[i] = (uint8_t)(r % 3 == 0 ? r >> 8 : 0xC0 | (r >> 8 & 0x3F));
        }
        for (size_t at = 0; at < n;) {
            const size_t end = tok_piece_end(s, n, at);
            assert_true(end > at && end <= n);
            at = end;
        }
        free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_as_the_regular_expressions_do),
        cmocka_unit_test(moves_forward_on_arbitrary_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
