/* The compressed vocabulary of the demo model: its size, and the rules on tokens that show them. */
#include "tok_support.h"

static int32_t mapped(const di_tokenizer *tok, const int32_t *map, const char *bytes)
{
    const int32_t id = di_tokenizer_find(tok, bytes, strlen(bytes));
    assert_true(id >= 0);
    return map[id];
}

static void demo_map_has_the_size_its_config_states(void **state)
{
    (void)state;
    di_tokenizer *tok = sup_demo();
    int32_t map[3072];
    int32_t n = 0;
    assert_int_equal(tok_engram_map(tok, map, &n, NULL), DI_OK);
    assert_int_equal(n, 2231);
    /* Numbers appear in order, and none is left out. */
    int32_t highest = -1;
    for (int32_t id = 0; id < 3072; id++) {
        assert_in_range(map[id], 0, highest + 1);
        highest = map[id] > highest ? map[id] : highest;
    }
    assert_int_equal(highest, 2230);
    assert_int_equal(map[2], 2);
    assert_int_equal(mapped(tok, map, "a"), mapped(tok, map, "A"));
    assert_int_equal(mapped(tok, map, " t"), mapped(tok, map, "t"));
    assert_int_equal(mapped(tok, map, " "), mapped(tok, map, "\n"));
    assert_int_not_equal(mapped(tok, map, "a"), mapped(tok, map, "b"));
    di_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_map_has_the_size_its_config_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
