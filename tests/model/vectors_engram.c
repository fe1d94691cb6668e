/* Golden n-gram hash of the released constants (units.safetensors, `engram_hash`), and the values written in model.md 3.5.2, A.6, B. */
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "model/mdl_engram.h"

static mdl_config released(void)
{
    mdl_config c = {.vocab = 129280};
    c.engram = (mdl_engram_config){.n_layers = 2,
                                   .layers = {1, 14},
                                   .n_rows = {384006168, 384016682},
                                   .max_ngram = 4,
                                   .n_heads = 8,
                                   .head_dim = 256,
                                   .vocab_start = 16000000,
                                   .pad_token_id = 2,
                                   .compressed_vocab = 99092};
    return c;
}

static void constants_are_the_released_ones(void **state)
{
    (void)state;
    mdl_config c = released();
    mdl_engram e = {0};
    di_error err = {0};
    assert_int_equal(mdl_engram_constants(&c, &e, &err), DI_OK);
    static const int64_t multipliers[2][4] = {{76632096046245, 4839876093313, 35959672319349, 73987337458391},
                                              {67716810739261, 51510806800915, 30921347202721, 82619226485591}};
    assert_memory_equal(e.multiplier[0], multipliers[0], sizeof multipliers[0]);
    assert_memory_equal(e.multiplier[1], multipliers[1], sizeof multipliers[1]);
    assert_int_equal(e.prime[0][0], 16000057);
    assert_int_equal(e.prime[0][23], 16000463);
    assert_int_equal(e.prime[1][0], 16000477);
    assert_int_equal(e.prime[1][23], 16000889);
}

static void test_multipliers_are_numpys(void **state)
{
    (void)state;
    static const int64_t want[5][4] = {{22948963341361471, 9720090748611819, 1476226777048821, 595470825660793},
                                       {29662608052400909, 1873410163432121, 13919202536988139, 28638879857136817},
                                       {31841131192811251, 1950019090429101, 28509641033320619, 7337012813361983},
                                       {59325216104801821, 3746820326864245, 27838405073976279, 57277759714273633},
                                       {63682262385622503, 3900038180858203, 57019282066641241, 14674025626723967}};
    static const int32_t layer[5] = {0, 1, 4, 1, 4};
    static const int32_t vocab[5] = {256, 256, 256, 128, 128};
    for (size_t i = 0; i < 5; i++) {
        int64_t got[4];
        mdl_engram_multipliers(layer[i], vocab[i], 4, got);
        assert_memory_equal(got, want[i], sizeof got);
    }
}

static void hash_of_four_tokens(void **state)
{
    (void)state;
    mdl_config c = released();
    mdl_engram e = {0};
    int64_t rows[48];
    assert_int_equal(mdl_engram_constants(&c, &e, NULL), DI_OK);
    mdl_engram_hash(&e, (const int32_t[]){10, 20, 30, 40}, 4, rows);
    assert_int_equal(rows[0], 10250667);
    assert_int_equal(rows[7], 124972355);
    assert_int_equal(rows[23], 381142068);
    assert_int_equal(rows[24], 13402985);
    assert_int_equal(rows[47], 370522085);
}

static void a_wrong_table_size_is_named(void **state)
{
    (void)state;
    mdl_config c = released();
    mdl_engram e = {0};
    di_error err = {0};
    c.engram.n_rows[1]++;
    assert_int_equal(mdl_engram_constants(&c, &e, &err), DI_E_FORMAT);
    assert_non_null(strstr(err.message, "engram_num_embeddings[1] is 384016683"));
    assert_non_null(strstr(err.message, "384016682"));
}

static st_file *units(void)
{
    char path[1024];
    st_file *file = NULL;
    di_error err = {0};
    const char *data = getenv("DI_TEST_DATA");
    const char *source = getenv("DI_SOURCE_DIR");
    if (data != NULL) {
        snprintf(path, sizeof path, "%s/model/units/units.safetensors", data);
    } else {
        snprintf(path, sizeof path, "%s/tests/data/model/units/units.safetensors", source != NULL ? source : ".");
    }
    if (!file_exists(path)) {
        printf("units.safetensors: 0 passed, 1 skipped (not there)\n");
        return NULL;
    }
    assert_int_equal(st_open(path, &file, &err), DI_OK);
    return file;
}

static int32_t at(const st_file *file, const char *name, size_t i)
{
    int32_t v;
    const st_tensor *t = st_find(file, name);
    assert_non_null(t);
    memcpy(&v, t->data + 4 * i, 4);
    return v;
}

static void golden_rows(void **state)
{
    (void)state;
    st_file *file = units();
    if (file == NULL) {
        return;
    }
    mdl_config c = released();
    mdl_engram e = {.pad = 1};
    assert_int_equal(mdl_engram_constants(&c, &e, NULL), DI_OK);
    size_t n = (size_t)st_find(file, "engram_hash.in.ids")->dims[0];
    int32_t history[64];
    for (size_t p = 0; p < n; p++) {
        bool text = at(file, "engram_hash.in.text_mask", p) != 0;
        history[p] = text ? at(file, "engram_hash.in.ids", p) / 2 : MDL_ENGRAM_DEAD;
        int32_t recent[4];
        int32_t n_recent = 0;
        for (size_t s = 0; s < 4 && s <= p; s++) {
            recent[n_recent++] = history[p - s];
        }
        int64_t rows[48];
        mdl_engram_hash(&e, recent, n_recent, rows);
        for (size_t i = 0; i < 48; i++) {
            assert_int_equal(rows[i], at(file, "engram_hash.out.rows", p * 48 + i));
        }
    }
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < 24; i++) {
            assert_int_equal(e.prime[l][i], at(file, "engram_hash.out.primes", l * 24 + i));
            assert_int_equal(e.offset[l][i], at(file, "engram_hash.out.offsets", l * 24 + i));
        }
        for (size_t i = 0; i < 8; i++) {
            assert_int_equal((int32_t)(e.multiplier[l][i / 2] >> (i % 2 * 32)), at(file, "engram_hash.out.multipliers", l * 8 + i));
        }
    }
    printf("units.safetensors: 4 passed, 0 skipped (engram_hash)\n");
    st_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_are_the_released_ones), cmocka_unit_test(test_multipliers_are_numpys),
        cmocka_unit_test(hash_of_four_tokens),             cmocka_unit_test(a_wrong_table_size_is_named),
        cmocka_unit_test(golden_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
