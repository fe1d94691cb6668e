/* Number formats: every code of each format both ways, rounding at every boundary, the spec's worked examples (model.md A.1-A.3, 2.3). */
#include "support/unit.h"

#include <stdio.h>

#include "ops/formats.h"

static void bf16_takes_every_code_back(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0xFFFF; code++) {
        float x = bf16_to_f32((bf16)code);
        bf16 back = bf16_from_f32(x);
        if (x != x) {
            assert_int_equal(back, code | 0x40); /* NaN stays NaN, quiet */
        } else {
            assert_int_equal(back, code);
        }
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x7F7F; code++) {
        uint32_t low = code << 16;
        assert_int_equal(bf16_from_f32(fmt_float(low | 0x7FFF)), code);
        assert_int_equal(bf16_from_f32(fmt_float(low | 0x8000)), code + (code & 1));
        assert_int_equal(bf16_from_f32(fmt_float(low | 0x8001)), code + 1);
        assert_int_equal(bf16_from_f32(fmt_float(low | 0x80008000u)), (code + (code & 1)) | 0x8000u);
    }
    assert_int_equal(bf16_from_f32(3.4e38f), 0x7F80); /* beyond the largest: infinity */
}

/* The definition, independent of the table (model.md 2.3). */
static double e4m3_defined(unsigned code)
{
    unsigned e = code >> 3 & 15;
    unsigned m = code & 7;
    double v = e == 0 ? ldexp(m, -9) : ldexp(8 + m, (int)e - 10);
    return code & 0x80 ? -v : v;
}

static void e4m3_takes_every_code_back(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        float x = e4m3_to_f32((uint8_t)code);
        if ((code & 0x7F) == 0x7F) {
            assert_true(x != x);
            assert_int_equal(e4m3_from_f32(x) & 0x7F, 0x7F);
            continue;
        }
        assert_true((double)x == e4m3_defined(code));
        assert_int_equal(e4m3_from_f32(x), code);
        assert_int_equal(fmt_bits(x) >> 31, code >> 7); /* -0 too */
    }
}

/* Between two neighbours: the middle goes to the even code, its fp32 neighbours to the nearer one. */
static void e4m3_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 0x7E; code++) {
        float middle = (float)((e4m3_defined(code) + e4m3_defined(code + 1)) / 2);
        assert_int_equal(e4m3_from_f32(middle), code + (code & 1));
        assert_int_equal(e4m3_from_f32(nextafterf(middle, 0.0f)), code);
        assert_int_equal(e4m3_from_f32(nextafterf(middle, 1e9f)), code + 1);
        assert_int_equal(e4m3_from_f32(-middle), (code + (code & 1)) | 0x80);
    }
    assert_int_equal(e4m3_from_f32(449.0f), 0x7E);
    assert_int_equal(e4m3_from_f32(1e30f), 0x7E);
    assert_int_equal(e4m3_from_f32(-INFINITY), 0xFE);
    assert_int_equal(e4m3_from_f32(296.0f), 0x79); /* A.3 */
}

static void e2m1_takes_every_code_back(void **state)
{
    (void)state;
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (unsigned code = 0; code < 16; code++) {
        float x = e2m1_to_f32((uint8_t)code);
        assert_true(fabsf(x) == values[code & 7]);
        assert_int_equal(fmt_bits(x) >> 31, code >> 3);
        assert_int_equal(e2m1_from_f32(x), code);
    }
}

static void e2m1_rounds_as_the_specification_says(void **state)
{
    (void)state;
    static const float border[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    static const unsigned tie[7] = {0, 2, 2, 4, 4, 6, 6};
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(e2m1_from_f32(border[i]), tie[i]);
        assert_int_equal(e2m1_from_f32(nextafterf(border[i], 0.0f)), i);
        assert_int_equal(e2m1_from_f32(nextafterf(border[i], 9.0f)), i + 1);
        assert_int_equal(e2m1_from_f32(-border[i]), tie[i] | 8);
    }
    assert_int_equal(e2m1_from_f32(-0.1f), 8);
    assert_int_equal(e2m1_from_f32(7.0f), 7);
}

static void e8m0_is_a_power_of_two(void **state)
{
    (void)state;
    for (unsigned code = 0; code < 255; code++) {
        assert_true((double)e8m0_to_f32((uint8_t)code) == ldexp(1.0, (int)code - 127));
    }
    assert_true(e8m0_to_f32(255) != e8m0_to_f32(255));
}

static void expect_hex(const uint8_t *got, size_t n, const char *hex)
{
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        assert_int_equal(got[i], byte);
    }
}

static void quantisers_give_the_worked_examples(void **state)
{
    (void)state;
    float x[32];
    uint8_t row[64];
    for (int i = 0; i < 32; i++) {
        x[i] = (float)((37 * i) % 64 - 32) / 16.0f;
    }
    fmt_q8_pack(x, 32, row);
    expect_hex(row, 32, "f862f36fec74d8f668f271e97650f56bf072e47860f46eed74dcf766f270ea76");
    assert_int_equal(row[32], 120);
    for (int i = 0; i < 32; i++) {
        x[i] = bf16_round((float)((29 * i) % 50 - 25) / 7.0f);
    }
    fmt_q8_pack(x, 32, row);
    expect_hex(row, 32, "f661f26eea73d1f568f071e67559f36bed72def663f16fe97400f469ef71e376");
    assert_int_equal(row[32], 121);
    fmt_q4n_pack(x, 32, row);
    expect_hex(row, 16, "2f5e6cf8d3b5174e6dfae3c5074f6d7b");
    expect_hex(row + 16, 2, "3231");
    fmt_q4e_pack(x, 32, row);
    expect_hex(row, 16, "1e3c5bd8c2a4153d5bd9c1a4052d4c59");
    assert_int_equal(row[16], 127);
}

static uint8_t scale_of(void (*pack)(const float *, size_t, uint8_t *), float amax, size_t at)
{
    float x[32] = {0};
    uint8_t row[64];
    x[5] = -amax;
    x[20] = amax;
    pack(x, 32, row);
    return row[at];
}

static void scales_have_the_specified_edges(void **state)
{
    (void)state;
    for (int k = -10; k <= 20; k++) {
        assert_int_equal(scale_of(fmt_q8_pack, ldexpf(448.0f, k), 32), 127 + k);
        assert_int_equal(scale_of(fmt_q4e_pack, ldexpf(6.0f, k), 16), 127 + k);
    }
    assert_int_equal(scale_of(fmt_q8_pack, 450.0f, 32), 128);
    assert_int_equal(scale_of(fmt_q8_pack, 0.0f, 32), 127 - 22);
    assert_int_equal(scale_of(fmt_q4e_pack, 9.0f, 16), 128);
    assert_int_equal(scale_of(fmt_q4e_pack, 3.3f, 16), 127);
    assert_int_equal(scale_of(fmt_q4e_pack, 0.0f, 16), 1);
    assert_int_equal(scale_of(fmt_q4n_pack, 9.0f, 16), 0x3C); /* 1.5 */
    assert_int_equal(scale_of(fmt_q4n_pack, 3.3f, 16), 0x31); /* 0.5625 */
    assert_int_equal(scale_of(fmt_q4n_pack, 0.01f, 16), 0x01);
    assert_int_equal(scale_of(fmt_q4n_pack, 0.0f, 16), 0x01);
}

/* L4: packed rows are exact in bf16, and packing again changes nothing. (Q4N with a subnormal scale may: its steps are too coarse to
 * find the same scale again. Caches are packed once, so nothing depends on it.) */
static void packing_is_idempotent(void **state)
{
    (void)state;
    typedef struct format {
        void (*pack)(const float *, size_t, uint8_t *);
        void (*unpack)(const uint8_t *, size_t, float *);
        size_t bytes;
    } format;
    const format formats[] = {{fmt_q8_pack, fmt_q8_unpack, fmt_q8_bytes(96)},
                              {fmt_q4e_pack, fmt_q4e_unpack, fmt_q4e_bytes(96)},
                              {fmt_q4n_pack, fmt_q4n_unpack, fmt_q4n_bytes(96)}};
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        for (size_t f = 0; f < 3; f++) {
            float x[96];
            float y[96];
            float z[96];
            uint8_t row[160];
            uint8_t again[160];
            for (size_t i = 0; i < 96; i++) {
                seed = seed * 1664525u + 1013904223u;
                x[i] = bf16_round(ldexpf((float)(int32_t)seed, -31 - (int)(seed % 23)));
            }
            formats[f].pack(x, 96, row);
            formats[f].unpack(row, 96, y);
            for (size_t i = 0; i < 96; i++) {
                assert_true(bf16_round(y[i]) == y[i]);
            }
            formats[f].pack(y, 96, again);
            formats[f].unpack(again, 96, z);
            for (size_t i = 0; i < 96; i++) {
                bool coarse = formats[f].pack == fmt_q4n_pack && row[48 + i / 16] < 0x08;
                assert_true(coarse || fmt_bits(y[i]) == fmt_bits(z[i]));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_takes_every_code_back),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(e4m3_takes_every_code_back),
        cmocka_unit_test(e4m3_rounds_to_nearest_even),
        cmocka_unit_test(e2m1_takes_every_code_back),
        cmocka_unit_test(e2m1_rounds_as_the_specification_says),
        cmocka_unit_test(e8m0_is_a_power_of_two),
        cmocka_unit_test(quantisers_give_the_worked_examples),
        cmocka_unit_test(scales_have_the_specified_edges),
        cmocka_unit_test(packing_is_idempotent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
