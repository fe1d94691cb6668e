/* Stop strings: any cutting of the text gives the output of a naive search over the whole text, and nothing is held back
 * longer than needed. Small alphabets, so that strings overlap, contain each other and repeat. */
#include "engine/eng_stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MAX_TEXT 200
#define ROUNDS 20000

static uint32_t random_below(uint64_t *x, uint32_t n)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*x >> 33) % n);
}

typedef struct oracle {
    size_t n_out; /* bytes before the match, or all */
    int matched;
} oracle;

/* The first end of any string; of those with this end the longest, then the first given. */
static oracle search(const char *text, size_t size, const char *const *strings, const size_t *sizes, size_t n)
{
    for (size_t end = 1; end <= size; end++) {
        oracle o = {0, -1};
        for (size_t i = 0; i < n; i++) {
            const bool ends_here = sizes[i] <= end && memcmp(text + end - sizes[i], strings[i], sizes[i]) == 0;
            if (ends_here && (o.matched < 0 || sizes[i] > sizes[o.matched])) {
                o = (oracle){end - sizes[i], (int)i};
            }
        }
        if (o.matched >= 0) {
            return o;
        }
    }
    return (oracle){size, -1};
}

/* Longest end of the text that begins one of the strings. */
static size_t must_hold(const char *text, size_t size, const char *const *strings, const size_t *sizes, size_t n)
{
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = best + 1; k < sizes[i] && k <= size; k++) {
            if (memcmp(text + size - k, strings[i], k) == 0) {
                best = k;
            }
        }
    }
    return best;
}

static void any_cutting_gives_the_naive_result(void **state)
{
    (void)state;
    uint64_t x = 7;
    for (int round = 0; round < ROUNDS; round++) {
        char text[MAX_TEXT];
        char storage[ENG_STOP_MAX_STRINGS][12];
        const char *strings[ENG_STOP_MAX_STRINGS];
        size_t sizes[ENG_STOP_MAX_STRINGS];
        const uint32_t letters = 1 + random_below(&x, 4);
        const size_t size = random_below(&x, MAX_TEXT);
        const size_t n = random_below(&x, 5);
        for (size_t i = 0; i < size; i++) {
            text[i] = (char)('a' + random_below(&x, letters));
        }
        for (size_t i = 0; i < n; i++) {
            sizes[i] = 1 + random_below(&x, 12);
            strings[i] = storage[i];
            for (size_t k = 0; k < sizes[i]; k++) {
                storage[i][k] = (char)('a' + random_below(&x, letters));
            }
        }
        eng_stop *stop = NULL;
        assert_int_equal(eng_stop_new(strings, sizes, n, &stop, NULL), DI_OK);
        buf out;
        buf_init(&out, MAX_TEXT);
        for (size_t at = 0; at < size && eng_stop_matched(stop) < 0;) {
            const size_t piece = random_below(&x, (uint32_t)(size - at < 20 ? size - at : 20)) + 1;
            assert_int_equal(eng_stop_push(stop, text + at, piece, &out, NULL), DI_OK);
            at += piece;
            if (eng_stop_matched(stop) < 0) {
                const size_t held = must_hold(text, at, strings, sizes, n);
                assert_int_equal(eng_stop_held_bytes(stop), held);
                assert_int_equal(out.size, at - held);
            }
        }
        assert_int_equal(eng_stop_flush(stop, &out, NULL), DI_OK);
        const oracle want = search(text, size, strings, sizes, n);
        assert_int_equal(eng_stop_matched(stop), want.matched);
        assert_int_equal(out.size, want.n_out);
        if (want.n_out > 0) {
            assert_memory_equal(out.data, text, want.n_out);
        }
        buf_fini(&out);
        eng_stop_free(stop);
    }
}

static void longest_strings_at_full_number_work_bytewise(void **state)
{
    (void)state;
    static char storage[ENG_STOP_MAX_STRINGS][ENG_STOP_MAX_BYTES];
    const char *strings[ENG_STOP_MAX_STRINGS];
    size_t sizes[ENG_STOP_MAX_STRINGS];
    for (int i = 0; i < ENG_STOP_MAX_STRINGS; i++) {
        memset(storage[i], 'a', ENG_STOP_MAX_BYTES);
        storage[i][ENG_STOP_MAX_BYTES - 1] = (char)('b' + i);
        strings[i] = storage[i];
        sizes[i] = ENG_STOP_MAX_BYTES;
    }
    eng_stop *stop = NULL;
    assert_int_equal(eng_stop_new(strings, sizes, ENG_STOP_MAX_STRINGS, &stop, NULL), DI_OK);
    buf out;
    buf_init(&out, 100000);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(eng_stop_push(stop, "a", 1, &out, NULL), DI_OK);
    }
    assert_int_equal(out.size, 5000 - (ENG_STOP_MAX_BYTES - 1));
    assert_int_equal(eng_stop_push(stop, "f", 1, &out, NULL), DI_OK);
    assert_int_equal(eng_stop_matched(stop), 4);
    assert_int_equal(out.size, 5000 - (ENG_STOP_MAX_BYTES - 1));
    buf_fini(&out);
    eng_stop_free(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cutting_gives_the_naive_result),
        cmocka_unit_test(longest_strings_at_full_number_work_bytewise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
