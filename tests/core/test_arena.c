/* Arena: pieces are zeroed, aligned, apart from each other, and the budget holds for every mix of sizes. */
#include "support/unit.h"

#include "core/arena.h"

#include <string.h>

static void pieces_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, SIZE_MAX);
    enum { N = 2000 };
    unsigned char *piece[N];
    size_t size[N];
    uint32_t random = 1;
    for (int i = 0; i < N; i++) {
        random = random * 1664525u + 1013904223u;
        size[i] = i % 97 == 0 ? random >> 12 : random >> 24;
        piece[i] = arena_alloc(&a, 1, size[i]);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % _Alignof(max_align_t), 0);
        for (size_t j = 0; j < size[i]; j++) {
            assert_int_equal(piece[i][j], 0);
        }
        memset(piece[i], i & 0xff, size[i]);
    }
    for (int i = 0; i < N; i++) {
        for (size_t j = 0; j < size[i]; j++) {
            assert_int_equal(piece[i][j], i & 0xff);
        }
    }
    arena_fini(&a);
    assert_int_equal(a.held, 0);
}

static void the_budget_holds(void **state)
{
    (void)state;
    for (size_t budget = 0; budget < 70000; budget += 997) {
        arena a;
        arena_init(&a, budget);
        size_t got = 0;
        while (arena_alloc(&a, 3, 100)) {
            got += 300;
        }
        assert_true(a.held <= budget);
        assert_true(got <= budget);
        assert_true(got + 1024 > budget / 2); /* most of a budget can be used */
        assert_null(arena_alloc(&a, 1, budget + 1));
        assert_true(a.over_budget);
        arena_fini(&a);
    }
}

static void overflow_is_refused(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, SIZE_MAX);
    assert_null(arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, SIZE_MAX, 1));
    assert_null(arena_alloc(&a, 1, SIZE_MAX - 40));
    assert_null(arena_copy(&a, "", SIZE_MAX));
    assert_non_null(arena_alloc(&a, 0, 8));
    assert_non_null(arena_alloc(&a, 8, 0));
    arena_fini(&a);
}

static void copies_end_with_nul(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, 1 << 20);
    const char *copy = arena_copy(&a, "ab\0c", 4);
    assert_memory_equal(copy, "ab\0c", 5);
    assert_string_equal(arena_copy(&a, NULL, 0), "");
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(the_budget_holds),
        cmocka_unit_test(overflow_is_refused),
        cmocka_unit_test(copies_end_with_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
