/* The CPU backend's products equal the reference bit by bit: every format, widths with and without a rest, one to many
 * rows, all codes, for every instruction set that this machine has. */
#include "support/unit.h"

#include "cpu/cpu.h"
#include "cpu/cpu_dot.h"
#include "cpu/cpu_fixed.h"
#include "cpu/cpu_int.h"
#include "ops/ref.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static ops_device *ref;
static ops_device *cpu;

typedef struct shape {
    ops_format format;
    int64_t n_out;
    int64_t n_in;
} shape;

/* Random codes of any value but NaN; scales around 1. */
static ops_matrix random_matrix(const shape *s, uint64_t *seed)
{
    size_t n = (size_t)s->n_out * (size_t)s->n_in;
    size_t bytes = s->format == OPS_F32 ? 4 * n : s->format == OPS_BF16 ? 2 * n : s->format == OPS_FP8 ? n : n / 2;
    size_t scale_rows = s->format == OPS_FP8 ? ((size_t)s->n_out + 31) / 32 : (size_t)s->n_out;
    size_t scales = scale_rows * (((size_t)s->n_in + 31) / 32);
    uint8_t *data = malloc(bytes);
    uint8_t *scale = malloc(scales);
    assert_non_null(data);
    assert_non_null(scale);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)unit_random(seed);
        if (s->format == OPS_FP8 && (data[i] & 0x7F) == 0x7F) {
            data[i] ^= 1;
        }
    }
    for (size_t i = 0; s->format == OPS_F32 && i < n; i++) {
        float x = (float)(int32_t)unit_random(seed) * 0x1p-31f;
        memcpy(data + 4 * i, &x, 4);
    }
    for (size_t i = 0; s->format == OPS_BF16 && i < n; i++) {
        bf16 x = bf16_from_f32((float)(int32_t)unit_random(seed) * 0x1p-31f);
        memcpy(data + 2 * i, &x, 2);
    }
    for (size_t i = 0; i < scales; i++) {
        scale[i] = (uint8_t)(110 + unit_random(seed) % 24);
    }
    return (ops_matrix){.format = s->format, .n_out = s->n_out, .n_in = s->n_in, .data = data, .scale = scale};
}

static void run(ops_device *dev, const ops_matrix *w, const float *x, int32_t rows, float *y)
{
    ref_device *d = ref_of(dev);
    assert_true(ref_stage_begin(d));
    ref_linear job = ref_linear_to_f32(w, x, rows, y);
    d->linear(d, &job, 1);
}

/* m rows of k floats as kernels take them: groups of rows, each column by column. */
static void group_rows(const float *x, size_t m, size_t k, float *grouped)
{
    for (size_t r = 0; r < m;) {
        const size_t g = cpu_group(m - r);
        for (size_t i = 0; i < k * g; i++) {
            grouped[r * k + i] = x[(r + i % g) * k + i / g];
        }
        r += g;
    }
}

static void compare(const shape *s, int32_t rows, uint64_t *seed)
{
    ops_matrix w = random_matrix(s, seed);
    size_t n = (size_t)rows * (size_t)s->n_in;
    float *x = malloc(n * sizeof *x);
    float *want = malloc((size_t)rows * (size_t)s->n_out * sizeof *want);
    float *got = malloc((size_t)rows * (size_t)s->n_out * sizeof *got);
    assert_true(x != NULL && want != NULL && got != NULL);
    for (size_t i = 0; i < n; i++) {
        x[i] = bf16_round((float)(int32_t)unit_random(seed) * 0x1p-29f);
    }
    for (size_t r = 0; r < (size_t)rows && s->format != OPS_BF16 && s->format != OPS_F32 && s->n_in % 32 == 0; r++) {
        fmt_q8_round(x + r * (size_t)s->n_in, (size_t)s->n_in);
    }
    run(ref, &w, x, rows, want);
    assert_int_equal(cpu_backend.weight_load(cpu, &w, OPS_USE_PRODUCT, NULL), DI_OK);
    assert_true((w.packed != NULL) == (s->n_in % 32 == 0));
    run(cpu, &w, x, rows, got);
    if (memcmp(want, got, (size_t)rows * (size_t)s->n_out * sizeof *want) != 0) {
        fail_msg("format %d, [%lld, %lld], %d rows: other bits than the reference", (int)s->format, (long long)s->n_out,
                 (long long)s->n_in, rows);
    }
    cpu_backend.weight_free(cpu, &w);
    free((void *)w.data);
    free((void *)w.scale);
    free(x);
    free(want);
    free(got);
}

static void products_have_the_references_bits(void **state)
{
    (void)state;
    const shape shapes[] = {{OPS_FP8, 64, 96}, {OPS_FP8, 33, 32},   {OPS_FP8, 128, 512}, {OPS_FP4, 64, 96},
                            {OPS_FP4, 40, 32}, {OPS_FP4, 128, 256}, {OPS_BF16, 3, 64},   {OPS_BF16, 96, 160},
                            {OPS_BF16, 7, 48}, {OPS_F32, 24, 384},  {OPS_F32, 24, 1024}, {OPS_FP8, 512, 1280}};
    const int32_t rows[] = {1, 2, 3, 4, 5, 7, 8, 63, 64, 65, 130};
    uint64_t seed = 7;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            compare(&shapes[s], rows[r], &seed);
        }
    }
}

/* A form made in the memory that holds codes and scales, as close to its end as they may lie, is the one that is made elsewhere. */
static void a_form_in_place_is_the_same(void **state)
{
    (void)state;
    const shape shapes[] = {{OPS_FP4, 16, 32}, {OPS_FP4, 64, 96}, {OPS_FP4, 40, 32}, {OPS_FP4, 128, 512}, {OPS_FP4, 33, 160}, {OPS_FP4, 1, 1024}};
    uint64_t seed = 13;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        ops_matrix w = random_matrix(&shapes[i], &seed);
        const size_t codes = (size_t)w.n_out * (size_t)w.n_in / 2;
        const size_t scales = codes / 16;
        const size_t form = cpu_backend.form_bytes(cpu, &w);
        const size_t bytes = form > codes + scales ? form : codes + scales;
        uint8_t *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
        ops_matrix m = w;
        ops_matrix *one = &m;
        void *at = memory;
        cpu_packed *want = cpu_pack(&w, false, NULL, NULL);
        assert_non_null(want);
        memcpy(memory, w.scale, scales);
        memcpy(memory + bytes - codes, w.data, codes);
        m.scale = memory;
        m.data = memory + bytes - codes;
        cpu_backend.form(cpu, &one, &at, 1);
        assert_ptr_equal(m.packed, memory);
        const cpu_packed *got = m.packed;
        assert_int_equal(got->n_panels, want->n_panels);
        assert_int_equal(got->panel_bytes, want->panel_bytes);
        assert_memory_equal(got->codes, want->codes, got->n_panels * got->panel_bytes);
        cpu_packed_free(want, NULL);
        free(memory);
        free((void *)w.data);
        free((void *)w.scale);
    }
}

/* A scale that the kernels do not take: the stored matrix stays as it is. */
static void a_matrix_without_a_form_is_left_alone(void **state)
{
    (void)state;
    uint64_t seed = 14;
    ops_matrix w = random_matrix(&(shape){OPS_FP4, 32, 64}, &seed);
    ((uint8_t *)w.scale)[17] = 255;
    ops_matrix m = w;
    ops_matrix *one = &m;
    uint8_t *memory = aligned_alloc(64, (cpu_backend.form_bytes(cpu, &w) + 63) / 64 * 64);
    void *at = memory;
    cpu_backend.form(cpu, &one, &at, 1);
    assert_null(m.packed);
    assert_ptr_equal(m.data, w.data);
    assert_ptr_equal(m.scale, w.scale);
    free(memory);
    free((void *)w.data);
    free((void *)w.scale);
}

/* The kernels directly, so that AVX2 is tested on a machine that has AVX-512: every number of panels in a call, from
 * every panel on. */
static void every_instruction_set_agrees(void **state)
{
    (void)state;
    enum { K = 416, OUT = 7 * CPU_PANEL, M = 30, LDC = CPU_PANELS_MAX * CPU_PANEL };
    const bool wide =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    static float x[M * K], grouped[M * K], want[M * OUT], c[M * LDC];
    uint64_t seed = 11;
    for (size_t i = 0; i < M * K; i++) {
        x[i] = (float)(int32_t)(unit_random(&seed) % 255) - 127.0f;
    }
    for (int f = OPS_F32; f <= OPS_FP4; f++) {
        const shape s = {.format = (ops_format)f, .n_out = OUT, .n_in = K};
        if (f == OPS_FP8R) {
            continue;
        }
        ops_matrix w = random_matrix(&s, &seed);
        cpu_packed *p = cpu_pack(&w, false, NULL, NULL);
        assert_non_null(p);
        for (size_t n = 1; n <= CPU_PANELS_MAX; n++) {
            for (size_t m = 1; m <= M; m++) {
                const size_t panel = (m + n) % (OUT / CPU_PANEL - n + 1);
                run(ref, &w, x, (int32_t)m, want);
                group_rows(x, m, K, grouped);
                for (int isa = 0; isa < (wide ? 2 : 1); isa++) {
                    (isa == 0 ? cpu_panels_avx2 : cpu_panels_avx512)(p, panel, n, grouped, m, c, LDC);
                    for (size_t r = 0; r < m; r++) {
                        assert_memory_equal(c + r * LDC, want + r * OUT + panel * CPU_PANEL, n * CPU_PANEL * sizeof *c);
                    }
                }
            }
        }
        cpu_packed_free(p, NULL);
        free((void *)w.data);
        free((void *)w.scale);
    }
}

/* n panels of m rows of a kernel's output against the same columns of whole rows [m, out]. */
static void expect_panels(const float *c, size_t ldc, const float *want, size_t out, size_t m, size_t panel, size_t n)
{
    const size_t left = out - panel * CPU_PANEL;
    const size_t width = left < n * CPU_PANEL ? left : n * CPU_PANEL;
    for (size_t r = 0; r < m; r++) {
        assert_memory_equal(c + r * ldc, want + r * out + panel * CPU_PANEL, width * sizeof *c);
    }
}

/* FP8 in quads: matrices where every block, some blocks, no block and the last panel have zeros and subnormals. */
static void quads_have_the_references_bits(void **state)
{
    (void)state;
    enum { K = 160, OUT = 6 * CPU_PANEL + 5, PANELS = 7, M = 30, LDC = CPU_PANELS_MAX * CPU_PANEL };
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("gfni")) {
        skip();
    }
    static float x[M * K], grouped[M * K], want[M * OUT], c[M * LDC];
    uint64_t seed = 31;
    for (size_t i = 0; i < M * K; i++) {
        x[i] = bf16_round((float)(int32_t)unit_random(&seed) * 0x1p-29f);
    }
    for (int kind = 0; kind < 3; kind++) {
        const shape s = {.format = OPS_FP8, .n_out = OUT, .n_in = K};
        ops_matrix w = random_matrix(&s, &seed);
        for (size_t i = 0; i < OUT * K && kind > 0; i++) {
            uint8_t *code = (uint8_t *)(uintptr_t)w.data + i;
            *code |= (*code & 0x78) == 0 && !(kind == 1 && i % 1999 == 0) ? 8 : 0;
        }
        cpu_packed *p = cpu_pack(&w, true, NULL, NULL);
        assert_non_null(p);
        for (size_t n = 1; n <= CPU_PANELS_MAX; n++) {
            for (size_t m = 1; m <= M; m++) {
                const size_t panel = (m + n) % (PANELS - n + 1);
                run(ref, &w, x, (int32_t)m, want);
                group_rows(x, m, K, grouped);
                cpu_panels_gfni(p, panel, n, grouped, m, c, LDC);
                expect_panels(c, LDC, want, OUT, m, panel, n);
            }
        }
        cpu_packed_free(p, NULL);
        free((void *)w.data);
        free((void *)w.scale);
    }
}

/* Groups of a matrix (wo_a) start at any multiple of the group's width: some at a panel, some not. */
static void parts_of_a_matrix_have_the_references_bits(void **state)
{
    (void)state;
    enum { K = 64, OUT = 160, ROWS = 5 };
    uint64_t seed = 5;
    const shape s = {OPS_FP8, OUT, K};
    ops_matrix w = random_matrix(&s, &seed);
    static float x[ROWS * K], want[ROWS * OUT], got[ROWS * OUT];
    for (size_t i = 0; i < ROWS * K; i++) {
        x[i] = bf16_round((float)(int32_t)unit_random(&seed) * 0x1p-29f);
    }
    assert_int_equal(cpu_backend.weight_load(cpu, &w, OPS_USE_PRODUCT, NULL), DI_OK);
    for (int64_t width = 32; width <= 96; width += 32) {
        ref_linear jobs[5];
        size_t n = 0;
        memset(want, 0, sizeof want);
        memset(got, 0, sizeof got);
        for (int64_t o = 0; o + width <= OUT; o += width, n++) {
            jobs[n] = (ref_linear){
                .w = &w, .out0 = o, .n_out = width, .x = x, .ldx = K, .n_rows = ROWS, .y32 = want + o, .ldy = OUT};
        }
        assert_true(ref_stage_begin(ref_of(ref)) && ref_stage_begin(ref_of(cpu)));
        ref_of(ref)->linear(ref_of(ref), jobs, n);
        for (size_t i = 0; i < n; i++) {
            jobs[i].y32 = got + jobs[i].out0;
        }
        ref_of(cpu)->linear(ref_of(cpu), jobs, n);
        assert_memory_equal(want, got, sizeof want);
    }
    cpu_backend.weight_free(cpu, &w);
    free((void *)w.data);
    free((void *)w.scale);
}

/* Integers where blocks allow them, floating point where one value is too small beside the largest, where it is huge,
 * infinite or NaN; rows of zeros; every number of panels and rows. */
static void integers_have_the_references_bits(void **state)
{
    (void)state;
    enum { K = 160, OUT = 6 * CPU_PANEL, M = 30 };
    if (!__builtin_cpu_supports("avx512vnni")) {
        skip();
    }
    static float x[M * K], unit[M * K / 32], want[M * OUT], c[M * CPU_PANELS_MAX * CPU_PANEL];
    static int16_t fixed[M * K];
    uint64_t seed = 21;
    const shape s = {.format = OPS_FP4, .n_out = OUT, .n_in = K};
    ops_matrix w = random_matrix(&s, &seed);
    cpu_packed *p = cpu_pack(&w, false, NULL, NULL);
    assert_non_null(p);
    for (size_t m = 1; m <= M; m++) {
        size_t n_floating = 0;
        for (size_t i = 0; i < m * K; i++) {
            const uint64_t kind = unit_random(&seed) % 97;
            const float size = kind == 0 ? 0x1p-16f : kind == 1 && m % 3 == 0 ? 0x1p105f : kind == 2 ? 0.0f : 1.0f;
            x[i] = i / 32 % 7 == 0 ? 0.0f : bf16_round((float)(int32_t)unit_random(&seed) * 0x1p-29f) * size;
        }
        if (m % 5 == 0) {
            x[unit_random(&seed) % (m * K)] = m % 2 == 0 ? INFINITY : NAN;
        }
        for (size_t r = 0; r < m;) {
            const size_t g = cpu_group(m - r);
            for (size_t i = 0; i < g; i++) {
                cpu_fix_row(x + (r + i) * K, K, g, fixed + r * K + 2 * i, unit + r * (K / 32) + i);
            }
            r += g;
        }
        for (size_t i = 0; i < m * K / 32; i++) {
            n_floating += unit[i] == 0.0f;
        }
        assert_true(m < 4 || (n_floating > 0 && n_floating < m * K / 32));
        run(ref, &w, x, (int32_t)m, want);
        for (size_t n = 1; n <= CPU_PANELS_MAX; n++) {
            const size_t panel = (m + n) % (OUT / CPU_PANEL - n + 1);
            const cpu_rows rows = {.x = x, .ldx = K, .fixed = fixed, .unit = unit};
            cpu_fixed_vnni(p, panel, n, &rows, m, c, CPU_PANELS_MAX * CPU_PANEL);
            for (size_t r = 0; r < m; r++) {
                for (size_t o = 0; o < n * CPU_PANEL; o++) {
                    const float a = c[r * CPU_PANELS_MAX * CPU_PANEL + o];
                    const float b = want[r * OUT + panel * CPU_PANEL + o];
                    assert_true(fmt_bits(a) == fmt_bits(b) || (a != a && b != b));
                }
            }
        }
    }
    cpu_packed_free(p, NULL);
    free((void *)w.data);
    free((void *)w.scale);
}

/* Dot products of pairs, FP8 with and without zeros and subnormals and BF16: every number of panels and rows. */
static void pairs_have_the_references_bits(void **state)
{
    (void)state;
    enum { K = 288, OUT = 6 * CPU_PANEL + 5, PANELS = 7, M = 30, LDC = CPU_PANELS_MAX * CPU_PANEL };
    if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("gfni") || !cpu_dot_is_exact()) {
        skip();
    }
    static float x[M * K], want[M * OUT], c[M * LDC];
    static uint32_t pairs[M * K / 2];
    uint64_t seed = 41;
    for (size_t i = 0; i < M * K; i++) { /* sizes far apart, so that sums are rounded; the smallest and the largest too */
        const int e = (int)(unit_random(&seed) % 21) - 30 - (i % 101 == 0 ? 25 : 0) + (i % 103 == 0 ? 50 : 0);
        x[i] = i % 17 == 0 ? 0.0f : bf16_round(ldexpf((float)(int32_t)unit_random(&seed), e));
        x[i] = fabsf(x[i]) >= 0x1p-55f && fabsf(x[i]) < 0x1p55f ? x[i] : -0.0f;
    }
    for (int kind = 0; kind < 4; kind++) {
        const shape s = {.format = kind < 3 ? OPS_FP8 : OPS_BF16, .n_out = OUT, .n_in = K};
        ops_matrix w = random_matrix(&s, &seed);
        for (size_t i = 0; i < OUT * K && (kind == 1 || kind == 2); i++) {
            uint8_t *code = (uint8_t *)(uintptr_t)w.data + i;
            *code |= (*code & 0x78) == 0 && !(kind == 1 && i % 1999 == 0) ? 8 : 0;
        }
        cpu_packed *p = cpu_pack(&w, true, NULL, NULL);
        assert_non_null(p);
        assert_true(cpu_packed_dot(p));
        for (size_t m = 1; m <= M; m++) {
            run(ref, &w, x, (int32_t)m, want);
            for (size_t r = 0; r < m;) {
                const size_t g = cpu_group(m - r);
                for (size_t i = 0; i < g; i++) {
                    assert_true(cpu_dot_row(x + (r + i) * K, K, g, pairs + r * (K / 2) + i));
                }
                r += g;
            }
            for (size_t n = 1; n <= CPU_PANELS_MAX; n++) {
                const size_t panel = (m + n) % (PANELS - n + 1);
                cpu_dot_bf16(p, panel, n, pairs, m, c, LDC);
                expect_panels(c, LDC, want, OUT, m, panel, n);
            }
        }
        cpu_packed_free(p, NULL);
        free((void *)w.data);
        free((void *)w.scale);
    }
}

/* What pairs cannot hold: values that are no BF16, tiny, huge, infinite or NaN, anywhere in a row or in a matrix. The
 * products have the reference's bits all the same. */
static void values_outside_of_pairs_have_the_references_bits(void **state)
{
    (void)state;
    enum { K = 64, OUT = 40, ROWS = 3 };
    const float odd[] = {0x1p-56f, 0x1p55f,   -0x1p-126f, 0x1p-133f, -0x1p127f, 1.0f + 0x1p-8f,
                         INFINITY, -INFINITY, NAN,        0x1p-60f,  -0x1p60f};
    uint64_t seed = 43;
    for (size_t i = 0; i < 2 * sizeof odd / sizeof *odd; i++) {
        const float value = odd[i / 2];
        const bool in_row = i % 2 == 0;
        static float x[ROWS * K], want[ROWS * OUT], got[ROWS * OUT];
        static uint32_t pairs[K / 2];
        const shape s = {.format = OPS_BF16, .n_out = OUT, .n_in = K};
        ops_matrix w = random_matrix(&s, &seed);
        for (size_t j = 0; j < ROWS * K; j++) {
            x[j] = bf16_round((float)(int32_t)unit_random(&seed) * 0x1p-29f);
        }
        const size_t at = unit_random(&seed) % (ROWS * K);
        const bf16 stored = bf16_from_f32(value);
        if (in_row) {
            x[at] = value;
        } else {
            memcpy((uint8_t *)(uintptr_t)w.data + 2 * (unit_random(&seed) % (OUT * K)), &stored, 2);
        }
        if (__builtin_cpu_supports("avx512f") && in_row) {
            assert_false(cpu_dot_row(x + at / K * K, K, 1, pairs));
        }
        run(ref, &w, x, ROWS, want);
        assert_int_equal(cpu_backend.weight_load(cpu, &w, OPS_USE_PRODUCT, NULL), DI_OK);
        assert_non_null(w.packed);
        assert_true(in_row == cpu_packed_dot(w.packed) || value == 1.0f + 0x1p-8f);
        run(cpu, &w, x, ROWS, got);
        for (size_t j = 0; j < ROWS * OUT; j++) {
            assert_true(fmt_bits(got[j]) == fmt_bits(want[j]) || (got[j] != got[j] && want[j] != want[j]));
        }
        cpu_backend.weight_free(cpu, &w);
        free((void *)w.data);
        free((void *)w.scale);
    }
}

static void a_nan_code_takes_the_reference_path(void **state)
{
    (void)state;
    uint64_t seed = 3;
    const shape s = {OPS_FP8, 32, 32};
    ops_matrix w = random_matrix(&s, &seed);
    ((uint8_t *)w.data)[5] = 0x7F;
    float x[32] = {0};
    float y[32];
    assert_int_equal(cpu_backend.weight_load(cpu, &w, OPS_USE_PRODUCT, NULL), DI_OK);
    assert_null(w.packed);
    run(cpu, &w, x, 1, y);
    assert_true(y[0] != y[0]);
    free((void *)w.data);
    free((void *)w.scale);
}

int main(void)
{
    if (!cpu_backend.available()) {
        printf("skipped: this processor has no AVX2\n");
        return 0;
    }
    const ops_device_options options = {.n_threads = 2};
    if (ref_backend.open(&options, &ref, NULL) != DI_OK || cpu_backend.open(&options, &cpu, NULL) != DI_OK) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_references_bits),
        cmocka_unit_test(a_form_in_place_is_the_same),
        cmocka_unit_test(a_matrix_without_a_form_is_left_alone),
        cmocka_unit_test(every_instruction_set_agrees),
        cmocka_unit_test(quads_have_the_references_bits),
        cmocka_unit_test(parts_of_a_matrix_have_the_references_bits),
        cmocka_unit_test(integers_have_the_references_bits),
        cmocka_unit_test(pairs_have_the_references_bits),
        cmocka_unit_test(values_outside_of_pairs_have_the_references_bits),
        cmocka_unit_test(a_nan_code_takes_the_reference_path),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ref_backend.close(ref);
    cpu_backend.close(cpu);
    return failed;
}
