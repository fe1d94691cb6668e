/* Character classes: the generated table against its source, and the borders that matter. */
#include "tok_support.h"

static const char class_letters[] = "ONLMPSW";

/* The table equals unicode_classes.tsv at every code point. */
static void table_equals_its_source(void **state)
{
    (void)state;
    size_t size;
    char *text = sup_data("unicode_classes.tsv", &size);
    if (text == NULL) {
        skip();
    }
    uint8_t *kinds = calloc(0x110000, 1);
    assert_non_null(kinds);
    char *line = text;
    while (line != NULL && *line != '\0') {
        char name[8];
        unsigned first;
        unsigned last;
        if (*line != '#' && sscanf(line, "%7s %x %x", name, &first, &last) == 3) {
            const unsigned bits =
                strcmp(name, "CJK") == 0 ? TOK_CJK : (unsigned)(strchr(class_letters, name[0]) - class_letters);
            for (unsigned cp = first; cp <= last; cp++) {
                kinds[cp] |= (uint8_t)bits;
            }
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    unsigned count[8] = {0};
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        assert_int_equal(tok_kind(cp), kinds[cp]);
        count[kinds[cp] & TOK_CLASS_MASK]++;
    }
    assert_int_equal(count[TOK_L], 141028);
    assert_int_equal(count[TOK_N], 1911);
    assert_int_equal(count[TOK_P], 855);
    assert_int_equal(count[TOK_S], 8514);
    assert_int_equal(count[TOK_M], 2501);
    assert_int_equal(count[TOK_W], 25);
    free(kinds);
    free(text);
}

static void borders_of_the_cjk_set(void **state)
{
    (void)state;
    assert_int_equal(tok_kind(0x3040), TOK_CJK | TOK_O);
    assert_int_equal(tok_kind(0x3099), TOK_CJK | TOK_M);
    assert_int_equal(tok_kind(0x309B), TOK_CJK | TOK_S);
    assert_int_equal(tok_kind(0x30A0), TOK_CJK | TOK_P);
    assert_int_equal(tok_kind(0x30FF), TOK_CJK | TOK_L);
    assert_int_equal(tok_kind(0x3100), TOK_O);
    assert_int_equal(tok_kind(0x4DFF), TOK_S);
    assert_int_equal(tok_kind(0x9FA5), TOK_CJK | TOK_L);
    assert_int_equal(tok_kind(0x9FA6), TOK_L);
    assert_int_equal(tok_kind(0x3005), TOK_L);
    assert_int_equal(tok_kind(0x110000), TOK_O);
    assert_int_equal(tok_kind(UINT32_MAX), TOK_O);
}

static void ascii_table_equals_the_large_one(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 256; c++) {
        assert_int_equal(tok_ascii_kind[c], c < 0x80 ? tok_kind(c) : TOK_NOT_ASCII);
    }
}

static void bytes_that_are_no_character_stay_in_bounds(void **state)
{
    (void)state;
    for (unsigned lead = 0x80; lead < 256; lead++) {
        for (size_t n = 1; n <= 4; n++) {
            uint8_t *s = malloc(n);
            assert_non_null(s);
            memset(s, 0xFF, n);
            s[0] = (uint8_t)lead;
            size_t length;
            (void)tok_kind_at(s, n, 0, &length);
            assert_in_range(length, 1, n);
            free(s);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_equals_its_source),
        cmocka_unit_test(borders_of_the_cjk_set),
        cmocka_unit_test(ascii_table_equals_the_large_one),
        cmocka_unit_test(bytes_that_are_no_character_stay_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
