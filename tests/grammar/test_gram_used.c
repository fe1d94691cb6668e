/* Sets of used names: what they hold, that equal ones are one, and that thousands of names of one object cost little. */
#include "gram_support.h"

#include "grammar/gram_used.h"

#include <string.h>

#define N_NAMES 2000
#define MAX_CHARS 6

typedef struct fixture {
    gram_mem mem;
    gram_lang lang;
    gram_used_sets sets;
} fixture;

static void open_sets(fixture *f)
{
    gram_mem_init(&f->mem, (size_t)64 << 20);
    assert_true(gram_lang_init(&f->lang, &f->mem));
    assert_true(gram_used_init(&f->sets, &f->mem));
}

/* Names over an alphabet of n characters, every third of them beyond ASCII. */
static uint32_t random_name(uint64_t *random, uint32_t n, uint32_t *chars)
{
    const uint32_t length = (uint32_t)(unit_random(random) % (MAX_CHARS + 1));
    for (uint32_t i = 0; i < length; i++) {
        const uint32_t which = (uint32_t)(unit_random(random) % n);
        chars[i] = which % 3 == 2 ? 0x4E00 + which : 'A' + which;
    }
    return length;
}

static bool holds(const fixture *f, gram_used set, const uint32_t *chars, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        set = gram_used_step(&f->sets, set, chars[i]);
    }
    return gram_used_ends(&f->sets, set);
}

static void a_set_holds_what_was_added(void **state)
{
    (void)state;
    static uint32_t names[N_NAMES][MAX_CHARS];
    static uint32_t lengths[N_NAMES];
    fixture f;
    open_sets(&f);
    uint64_t random = 1;
    gram_used set = GRAM_NONE_USED;
    for (uint32_t i = 0; i < N_NAMES; i++) {
        lengths[i] = random_name(&random, 40, names[i]);
        set = gram_used_add(&f.sets, set, names[i], lengths[i]);
        assert_true(holds(&f, set, names[i], lengths[i]));
    }
    for (uint32_t i = 0; i < N_NAMES; i++) {
        uint32_t other[MAX_CHARS];
        const uint32_t n = random_name(&random, 40, other);
        bool there = false;
        for (uint32_t k = 0; k < N_NAMES && !there; k++) {
            there = lengths[k] == n && memcmp(names[k], other, n * sizeof *other) == 0;
        }
        assert_true(holds(&f, set, names[i], lengths[i]));
        assert_int_equal(holds(&f, set, other, n), there);
    }
    gram_used backwards = GRAM_NONE_USED;
    for (uint32_t i = N_NAMES; i-- > 0;) {
        backwards = gram_used_add(&f.sets, backwards, names[i], lengths[i]);
    }
    assert_int_equal(backwards, set);
    assert_int_equal(gram_used_add(&f.sets, set, names[0], lengths[0]), set);
    gram_mem_fini(&f.mem);
}

static gram_used add_text(fixture *f, gram_used set, const char *text)
{
    uint32_t chars[16];
    uint32_t n = 0;
    for (; text[n] != '\0'; n++) {
        chars[n] = (unsigned char)text[n];
    }
    return gram_used_add(&f->sets, set, chars, n);
}

static void first_characters_are_known(void **state)
{
    (void)state;
    fixture f;
    open_sets(&f);
    uint64_t bytes[4] = {0};
    gram_used set = add_text(&f, GRAM_NONE_USED, "");
    gram_used_first(&f.sets, set, bytes);
    assert_int_equal(bytes[0] | bytes[1] | bytes[2] | bytes[3], 0);
    for (const char *c = "zmab~0"; *c != '\0'; c++) {
        set = add_text(&f, set, (const char[]){*c, 'x', '\0'});
    }
    set = gram_used_add(&f.sets, set, &(const uint32_t){0x20AC}, 1);
    gram_used_first(&f.sets, set, bytes);
    for (uint32_t c = 0; c < 0x80; c++) {
        assert_int_equal(bytes[c / 64] >> c % 64 & 1, c != 0 && strchr("zmab~0", (int)c) != NULL);
    }
    assert_int_equal(bytes[2], 1);
    gram_mem_fini(&f.mem);
}

static void what_an_expression_leaves_is_told_exactly(void **state)
{
    (void)state;
    fixture f;
    open_sets(&f);
    gram_lang *l = &f.lang;
    const gram_ex letter = gram_ex_set(l, gram_set_of(l, (const uint32_t[]){'a', 'c'}, 1));
    const gram_ex upto2 = gram_ex_rep(l, letter, 0, 2);
    gram_used set = GRAM_NONE_USED;
    static const char *const TEXTS[] = {"", "a", "aa", "ab", "ac", "b", "ba", "bb", "bc", "c", "ca", "cb", "cc"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        assert_true(gram_used_leaves(&f.sets, l, upto2, set));
        set = add_text(&f, set, TEXTS[i]);
    }
    assert_false(gram_used_leaves(&f.sets, l, upto2, set));
    assert_false(gram_used_leaves(&f.sets, l, letter, gram_used_step(&f.sets, set, 'b')));
    assert_true(gram_used_leaves(&f.sets, l, gram_ex_rep(l, letter, 0, 3), set));
    assert_true(gram_used_leaves(&f.sets, l, GRAM_EX_ANY, set));
    assert_false(gram_used_leaves(&f.sets, l, GRAM_EX_NONE, GRAM_NONE_USED));
    gram_mem_fini(&f.mem);
}

static void names_that_ran_out_are_no_beginning(void **state)
{
    (void)state;
    di_grammar *g = gram_must(DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"patternProperties\":{\"^[a-e]{6}$\":{\"const\":1}},"
                              "\"additionalProperties\":false}", NULL);
    const char text[] = "{\"aaaaaa\":1,\"aaaaab\":1,\"aaaaac\":1,\"aaaaad\":1,\"aaaaae\":1,\"aaaaa";
    assert_int_equal(gram_check(g, text, sizeof text - 1), sizeof text - 2);
    const char one_left[] = "{\"aaaaaa\":1,\"aaaaab\":1,\"aaaaad\":1,\"aaaaae\":1,\"aaaaac\":1}";
    assert_int_equal(gram_check(g, one_left, sizeof one_left - 1), GRAM_WHOLE);
    di_grammar_free(g);
}

/* Once each name copied the list of those before it, and a few hundred used the memory of a grammar up. */
static void thousands_of_names_of_one_object_cost_little(void **state)
{
    (void)state;
    enum { N = 3000 };
    di_grammar *g = gram_must(DI_GRAMMAR_SCHEMA, "{\"type\":\"object\",\"properties\":{\"known\":{\"type\":\"integer\"}}}", NULL);
    buf text;
    buf_init(&text, (size_t)1 << 20);
    uint64_t random = 5;
    for (int i = 0; i < N; i++) {
        (void)buf_printf(&text, "%s\"%c%llx-%d\":%d", i == 0 ? "{" : ",", 'a' + i % 26, (unsigned long long)unit_random(&random), i, i);
    }
    const size_t open = text.size;
    (void)buf_puts(&text, "}");
    assert_int_equal(gram_check(g, text.data, text.size), GRAM_WHOLE);
    di_grammar_stats stats;
    di_grammar_get_stats(g, &stats);
    assert_in_range(stats.memory_bytes, 1, (size_t)32 << 20);
    /* The first name again: its quote must not come. */
    const size_t length = (size_t)(strchr(text.data + 2, '"') - text.data) - 1;
    text.size = open;
    (void)buf_puts(&text, ",");
    char name[64];
    memcpy(name, text.data + 1, length + 1);
    (void)buf_append(&text, name, length + 1);
    assert_int_equal(gram_check(g, text.data, text.size), text.size - 1);
    buf_fini(&text);
    di_grammar_free(g);
}

/* A mask walks the same ways again and again, and the arena takes nothing back. */
static void what_is_there_costs_no_memory(void **state)
{
    (void)state;
    enum { LENGTH = 300, TIMES = 1000 };
    uint32_t name[LENGTH];
    fixture f;
    open_sets(&f);
    for (uint32_t i = 0; i < LENGTH; i++) {
        name[i] = 'a' + i % 26;
    }
    const gram_used once = gram_used_add(&f.sets, GRAM_NONE_USED, name, LENGTH);
    const size_t held = f.mem.mem.held;
    const size_t left = f.mem.mem.left;
    for (int i = 0; i < TIMES; i++) {
        assert_int_equal(gram_used_add(&f.sets, GRAM_NONE_USED, name, LENGTH), once);
        assert_int_equal(gram_used_add(&f.sets, once, name, LENGTH), once);
    }
    assert_int_equal(f.mem.mem.held, held);
    assert_int_equal(f.mem.mem.left, left);
    gram_mem_fini(&f.mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_holds_what_was_added),
        cmocka_unit_test(first_characters_are_known),
        cmocka_unit_test(what_an_expression_leaves_is_told_exactly),
        cmocka_unit_test(names_that_ran_out_are_no_beginning),
        cmocka_unit_test(thousands_of_names_of_one_object_cost_little),
        cmocka_unit_test(what_is_there_costs_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
