/* Memory for transfers: whole blocks, aligned for any disk, none of it given out twice. */
#include "support/unit.h"

#include "kv/kv_pages.h"
#include "kv/kv_record.h"

#include <stdint.h>
#include <string.h>

static void pieces_are_aligned_and_apart(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, KV_BLOCK, KV_BLOCK + 1, 131072, 3 << 20, 114688, 2 << 20, 5};
    enum { N = 64 };
    unsigned char *pieces[N];
    kv_pages pages = {.chunks = NULL};
    for (size_t i = 0; i < N; i++) {
        const size_t size = sizes[i % (sizeof sizes / sizeof sizes[0])];
        pieces[i] = kv_pages_take(&pages, size);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % KV_BLOCK, 0);
        memset(pieces[i], (int)i, (size_t)kv_padded(size));
    }
    for (size_t i = 0; i < N; i++) {
        const size_t size = (size_t)kv_padded(sizes[i % (sizeof sizes / sizeof sizes[0])]);
        assert_int_equal(pieces[i][0], i);
        assert_int_equal(pieces[i][size - 1], i);
        assert_memory_equal(pieces[i], pieces[i] + 1, size - 1);
    }
    kv_pages_fini(&pages);
    assert_null(pages.chunks);
}

static void what_can_not_be_had_is_refused_and_does_no_harm(void **state)
{
    (void)state;
    kv_pages pages = {.chunks = NULL};
    assert_null(kv_pages_take(&pages, SIZE_MAX));
    assert_null(kv_pages_take(&pages, SIZE_MAX / 2 + 1));
    assert_non_null(kv_pages_take(&pages, KV_BLOCK));
    kv_pages_fini(&pages);
    kv_pages_fini(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_apart),
        cmocka_unit_test(what_can_not_be_had_is_refused_and_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
