/* Facts of the released V4.1 tokenizer (tokenizer.md 1, 10, 12): exhaustive over its products, bytes and compressed ids. */
#include "tok_support.h"

#include "core/digest.h"
#include "core/utf8.h"

static di_tokenizer *v41;
static int n_passed;

static void need_file(void)
{
    if (v41 == NULL) {
        skip();
    }
}

static void every_product_encodes_to_itself(void **state)
{
    (void)state;
    need_file();
    assert_true(v41->whole_pieces);
    assert_int_equal(v41->n_base, 128000);
    tok_scratch *scratch = tok_scratch_new();
    assert_non_null(scratch);
    for (int32_t id = 259; id < 128000; id++) {
        size_t n;
        const uint8_t *s = di_tokenizer_bytes(v41, id, &n);
        int32_t ids[4];
        tok_out out = {.ids = ids, .capacity = 4};
        assert_true(tok_long_merge(v41, scratch, s, n, &out));
        assert_int_equal(out.n, 1);
        assert_int_equal(ids[0], id);
        assert_int_equal(tok_pieces_find(v41, s, n), id);
    }
    tok_scratch_free(scratch);
    n_passed++;
}

static void single_bytes_have_the_known_ids(void **state)
{
    (void)state;
    need_file();
    int32_t next = 3;
    for (int byte = 0x21; byte <= 0xFF; byte++) {
        if (byte <= 0x7E || (byte >= 0xA1 && byte != 0xAD)) {
            assert_int_equal(v41->byte_id[byte], next++);
        }
    }
    for (int byte = 0; byte <= 0xFF; byte++) {
        if (!((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD))) {
            assert_int_equal(v41->byte_id[byte], next++);
        }
    }
    assert_int_equal(next, 259);
    assert_int_equal(v41->byte_id['\n'], 201);
    assert_int_equal(v41->byte_id[' '], 223);
    n_passed++;
}

static void the_table_has_the_known_counts(void **state)
{
    (void)state;
    need_file();
    unsigned added = 0;
    unsigned special = 0;
    unsigned fragments = 0;
    assert_int_equal(di_tokenizer_vocab_size(v41), 129280);
    for (int32_t id = 0; id < 129280; id++) {
        const unsigned flags = di_tokenizer_flags(v41, id);
        added += (flags & DI_TOKEN_ADDED) != 0;
        special += (flags & DI_TOKEN_SPECIAL) != 0;
        fragments += (flags & DI_TOKEN_FRAGMENT) != 0;
    }
    assert_int_equal(added, 1283);
    assert_int_equal(special, 1229);
    assert_int_equal(fragments, 1470);
    sup_expect_ids(v41, "Hello, world!", 13, 0, "19923 14 2058 3");
    n_passed++;
}

static void compressed_ids_have_the_known_digest(void **state)
{
    (void)state;
    need_file();
    int32_t *map = malloc(129280 * sizeof *map);
    assert_non_null(map);
    int32_t n;
    assert_int_equal(tok_engram_map(v41, map, &n, NULL), DI_OK);
    assert_int_equal(n, 99092);
    for (int32_t id = 128000; id < 129280; id++) {
        assert_int_equal(map[id], id - 30188);
    }
    static const int32_t spots[][2] = {{2, 2},        {223, 174},      {270, 237},       {1000, 604},
                                       {5000, 4191},  {50000, 10486},  {100000, 76407},  {127999, 97811}};
    for (size_t i = 0; i < sizeof spots / sizeof *spots; i++) {
        assert_int_equal(map[spots[i][0]], spots[i][1]);
    }
    uint8_t digest[DIGEST_BYTES];
    char hex[DIGEST_HEX_BYTES];
    assert_int_equal(digest_sha256(map, 128000 * sizeof *map, digest, NULL), DI_OK);
    digest_hex(digest, hex);
    assert_string_equal(hex, "a44a9e7328b760556106bce7c1002c9fa632bc2f5c8e054ad9ce3ff8f8bfa8db");
    assert_int_equal(digest_sha256(map, 129280 * sizeof *map, digest, NULL), DI_OK);
    digest_hex(digest, hex);
    assert_string_equal(hex, "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
    free(map);
    n_passed++;
}

/* Each scalar value alone, doubled, and between letters comes back from its ids. */
static void every_character_survives_the_way_there_and_back(void **state)
{
    (void)state;
    need_file();
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            continue;
        }
        uint8_t c[4];
        char text[32];
        char back[128];
        int32_t ids[32];
        size_t n_ids;
        size_t n_back;
        const int n = utf8_encode(cp, c);
        memcpy(text, c, (size_t)n);
        text[n] = 'a';
        memcpy(text + n + 1, c, (size_t)n);
        memcpy(text + 2 * n + 1, c, (size_t)n);
        text[3 * n + 1] = 'a';
        const size_t size = (size_t)(3 * n + 2);
        assert_int_equal(di_tokenizer_encode(v41, text, size, DI_ENCODE_SPECIAL, ids, 32, &n_ids, NULL), DI_OK);
        assert_int_equal(di_tokenizer_decode(v41, ids, n_ids, 0, back, sizeof back, &n_back, NULL), DI_OK);
        assert_int_equal(n_back, size);
        assert_memory_equal(back, text, size);
    }
    n_passed++;
}

static int open_v41(void **state)
{
    (void)state;
    v41 = sup_real("v41");
    return 0;
}

static int close_v41(void **state)
{
    (void)state;
    di_tokenizer_close(v41);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_product_encodes_to_itself),
        cmocka_unit_test(single_bytes_have_the_known_ids),
        cmocka_unit_test(the_table_has_the_known_counts),
        cmocka_unit_test(compressed_ids_have_the_known_digest),
        cmocka_unit_test(every_character_survives_the_way_there_and_back),
    };
    const int failed = cmocka_run_group_tests(tests, open_v41, close_v41);
    const int n_skipped = (int)(sizeof tests / sizeof *tests) - n_passed - failed;
    printf("v41.json: %d passed, %d skipped%s\n", n_passed, n_skipped, n_skipped != 0 ? " (the file is not there)" : "");
    return failed;
}
