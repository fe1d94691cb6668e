/* Packed weights that are kept in files: what a device attaches computes the bits of what it packs, and the layout is the one that
 * its name stands for. */
#include "support/unit.h"

#include "core/digest.h"
#include "cpu/cpu.h"
#include "cpu/cpu_int.h"

#include <stdlib.h>
#include <string.h>

enum { OUT = 40, IN = 96, ROWS = 3 };

static const ops_format formats[] = {OPS_F32, OPS_BF16, OPS_FP8, OPS_FP4};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static uint8_t codes[OUT * IN * 4];
static uint8_t scales[OUT * IN / 32];

/* Codes without NaN in any format, scales around 1. */
static ops_matrix matrix_of(ops_format format)
{
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof codes; i++) {
        codes[i] = (uint8_t)(unit_random(&seed) & 0xBE);
    }
    for (size_t i = 0; i < sizeof scales; i++) {
        scales[i] = (uint8_t)(120 + unit_random(&seed) % 14);
    }
    const bool scaled = format == OPS_FP8 || format == OPS_FP4;
    return (ops_matrix){.format = format, .n_out = OUT, .n_in = IN, .data = codes, .scale = scaled ? scales : NULL};
}

static ops_device *open_device(const char *isa)
{
    const ops_device_options o = {.n_threads = 2, .isa = isa};
    ops_device *dev = NULL;
    di_error err;
    if (cpu_backend.open(&o, &dev, &err) != DI_OK) {
        return NULL; /* this processor has no such instructions */
    }
    return dev;
}

static void multiply(ops_device *dev, const ops_matrix *w, float *y)
{
    float x[ROWS * IN];
    for (size_t i = 0; i < ROWS * IN; i++) {
        x[i] = bf16_to_f32(bf16_from_f32((float)(i % 17) - 8.0f));
    }
    assert_true(ref_stage_begin(ref_of(dev)));
    const ref_linear job = ref_linear_to_f32(w, x, ROWS, y);
    ref_of(dev)->linear(ref_of(dev), &job, 1);
}

static void attached_weights_give_the_bits_of_packed_ones(void **state)
{
    static const char *const isas[] = {"avx2", "avx512", "avx512vnni", "avx512bf16"};
    (void)state;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        ops_device *const dev = open_device(isas[i]);
        for (int f = 0; f < N_FORMATS && dev != NULL; f++) {
            float want[ROWS * OUT];
            float got[ROWS * OUT];
            ops_matrix w = matrix_of(formats[f]);
            assert_int_equal(cpu_backend.weight_load(dev, &w, OPS_USE_PRODUCT, NULL), DI_OK);
            multiply(dev, &w, want);
            const size_t size = cpu_backend.kept_bytes(dev, &w);
            uint8_t *const kept = aligned_alloc(64, (size + 63) / 64 * 64);
            assert_non_null(kept);
            memcpy(kept, cpu_backend.kept_form(dev, &w), size);
            cpu_backend.weight_free(dev, &w);
            assert_null(cpu_backend.kept_form(dev, &w));

            w.data = NULL; /* and of nothing else */
            w.scale = NULL;
            assert_int_equal(cpu_backend.weight_attach(dev, &w, kept, NULL), DI_OK);
            assert_ptr_equal(cpu_backend.kept_form(dev, &w), kept);
            multiply(dev, &w, got);
            assert_memory_equal(got, want, sizeof want);
            cpu_backend.weight_free(dev, &w);
            free(kept);
        }
        cpu_backend.close(dev);
    }
}

/* When this fails the layout has changed: give CPU_KEPT_QUADS and CPU_KEPT_PLAIN the next number, and put the new sums here. Files of the
 * old one would be computed with as if they were of the new one. */
static void the_layout_is_the_one_of_its_name(void **state)
{
    static const struct {
        ops_format format;
        bool quads;
        const char *sum;
    } rows[] = {
        {OPS_F32, false, "be759e5914291819"},
        {OPS_BF16, false, "208dc3b3fca3b10c"},
        {OPS_FP8, false, "9c4551be9de44e4b"},
        {OPS_FP8, true, "f4bb46b6507ee04f"},
        {OPS_FP4, false, "09ee3bcdfa242ca0"},
    };
    (void)state;
    assert_string_equal(CPU_KEPT_QUADS, "panels16-quads-2");
    assert_string_equal(CPU_KEPT_PLAIN, "panels16-2");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ops_matrix w = matrix_of(rows[i].format);
        uint8_t digest[DIGEST_BYTES];
        char hex[DIGEST_HEX_BYTES];
        cpu_packed *const p = cpu_pack(&w, rows[i].quads, NULL, NULL);
        assert_non_null(p);
        assert_int_equal(digest_sha256(p->codes, cpu_kept_bytes(&w), digest, NULL), DI_OK);
        digest_hex(digest, hex);
        hex[16] = '\0';
        assert_string_equal(hex, rows[i].sum);
        cpu_packed_free(p, NULL);
    }
}

static void shapes_that_are_never_packed_have_no_form(void **state)
{
    (void)state;
    ops_matrix w = matrix_of(OPS_FP8);
    w.n_in = 48;
    assert_int_equal(cpu_kept_bytes(&w), 0);
    assert_null(cpu_pack_attach(&w, false, codes, &(cpu_store){.slabs = NULL}));
    w = matrix_of(OPS_FP4);
    w.format = OPS_FP8R;
    assert_int_equal(cpu_kept_bytes(&w), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attached_weights_give_the_bits_of_packed_ones),
        cmocka_unit_test(the_layout_is_the_one_of_its_name),
        cmocka_unit_test(shapes_that_are_never_packed_have_no_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
