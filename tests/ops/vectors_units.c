/* Golden single steps (units/units.safetensors, made with the official code) against the reference stages. Tensors named in
 * `exact_bytes` and all integers must be equal; BF16 within one ulp of the element, F32 within four ulps of the row's largest value
 * (fixtures README, section 3). `engram_hash` is checked in tests/model/vectors_engram.c. */
#include "core/core.h"
#include "ops/ref.h"
#include "ops/rope.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static st_file *file;
static ops_device *dev;
static int n_passed;

/* --- Access ------------------------------------------------------------------------------------------------------------ */

static const st_tensor *tensor(const char *name)
{
    const st_tensor *t = st_find(file, name);
    if (t == NULL) {
        fail_msg("units.safetensors has no %s", name);
    }
    return t;
}

static size_t count(const st_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) {
        n *= (size_t)t->dims[i];
    }
    return n;
}

/* Any float tensor as fp32; the caller frees. */
static float *floats(const char *name)
{
    const st_tensor *t = tensor(name);
    size_t n = count(t);
    float *out = ar_calloc(n, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) {
        if (t->dtype == ST_BF16) {
            bf16 v;
            memcpy(&v, t->data + 2 * i, 2);
            out[i] = bf16_to_f32(v);
        } else {
            assert_int_equal(t->dtype, ST_F32);
            memcpy(&out[i], t->data + 4 * i, 4);
        }
    }
    return out;
}

/* Copies with the alignment of the element. */
static void *copied(const char *name)
{
    const st_tensor *t = tensor(name);
    void *p = ar_calloc(t->size, 1);
    assert_non_null(p);
    memcpy(p, t->data, t->size);
    return p;
}

static int32_t dim(const char *name, int i) { return (int32_t)tensor(name)->dims[i]; }

static ops_matrix matrix(const char *weight, const char *scale, ops_format format, int64_t n_in)
{
    const st_tensor *t = tensor(weight);
    return (ops_matrix){
        .format = format, .n_out = t->dims[0], .n_in = n_in, .data = t->data, .scale = scale != NULL ? tensor(scale)->data : NULL};
}

/* --- Criteria ---------------------------------------------------------------------------------------------------------- */

static float ulp_bf16(float x)
{
    int e;
    frexpf(x, &e);
    return ldexpf(1.0f, e - 8);
}

static void expect_bf16(const char *name, const bf16 *got)
{
    float *want = floats(name);
    size_t n = count(tensor(name));
    for (size_t i = 0; i < n; i++) {
        float g = bf16_to_f32(got[i]);
        if (!(fabsf(g - want[i]) <= ulp_bf16(want[i]))) {
            fail_msg("%s[%zu]: got %.9g, golden %.9g", name, i, (double)g, (double)want[i]);
        }
    }
    free(want);
    n_passed++;
}

static void expect_f32(const char *name, const float *got)
{
    const st_tensor *t = tensor(name);
    float *want = floats(name);
    size_t n = count(t);
    size_t row = t->n_dims > 1 ? n / (size_t)t->dims[0] : n; /* row t = token t; a vector is one row */
    for (size_t i = 0; i < n; i++) {
        float top = 0.0f;
        for (size_t j = i / row * row; j < (i / row + 1) * row; j++) {
            top = fmaxf(top, fabsf(want[j]));
        }
        if (!(fabsf(got[i] - want[i]) <= 4.0f * FLT_EPSILON * top)) {
            fail_msg("%s[%zu]: got %.9g, golden %.9g", name, i, (double)got[i], (double)want[i]);
        }
    }
    free(want);
    n_passed++;
}

static void expect_bytes(const char *name, const void *got)
{
    const st_tensor *t = tensor(name);
    for (size_t i = 0; i < t->size; i++) {
        if (t->data[i] != ((const uint8_t *)got)[i]) {
            fail_msg("%s: byte %zu is %02x, golden %02x", name, i, ((const uint8_t *)got)[i], t->data[i]);
        }
    }
    n_passed++;
}

/* --- Units ------------------------------------------------------------------------------------------------------------- */

static void quant(void **state)
{
    (void)state;
    enum { ROWS = 64, N = 64 };
    float *x = floats("quant.in.x");
    static uint8_t codes[ROWS][N], scales[ROWS][2], packed[2][ROWS][N / 2], e_scale[ROWS][2], n_scale[ROWS][4];
    static bf16 value[3][ROWS][N];
    for (size_t r = 0; r < ROWS; r++) {
        uint8_t row[N + N / 16];
        float out[N];
        fmt_q8_pack(x + r * N, N, row);
        memcpy(codes[r], row, N);
        memcpy(scales[r], row + N, 2);
        fmt_q8_unpack(row, N, out);
        fmt_f32_to_bf16(out, N, value[0][r]);
        float rounded[N];
        memcpy(rounded, x + r * N, sizeof rounded);
        fmt_q8_round(rounded, N);
        assert_memory_equal(rounded, out, sizeof out);
        fmt_q4e_pack(x + r * N, N, row);
        memcpy(packed[0][r], row, N / 2);
        memcpy(e_scale[r], row + N / 2, 2);
        fmt_q4e_unpack(row, N, out);
        fmt_f32_to_bf16(out, N, value[1][r]);
        fmt_q4n_pack(x + r * N, N, row);
        memcpy(packed[1][r], row, N / 2);
        memcpy(n_scale[r], row + N / 2, 4);
        fmt_q4n_unpack(row, N, out);
        fmt_f32_to_bf16(out, N, value[2][r]);
    }
    expect_bytes("quant.out.q8_codes", codes);
    expect_bytes("quant.out.q8_scale", scales);
    expect_bytes("quant.out.q8_value", value[0]);
    expect_bytes("quant.out.q4e_packed", packed[0]);
    expect_bytes("quant.out.q4e_scale", e_scale);
    expect_bytes("quant.out.q4e_value", value[1]);
    expect_bytes("quant.out.q4n_packed", packed[1]);
    expect_bytes("quant.out.q4n_scale", n_scale);
    expect_bytes("quant.out.q4n_value", value[2]);
    free(x);
}

static void gemm(const char *unit, ops_format format)
{
    char x_name[64], w_name[64], s_name[64], y_name[64];
    snprintf(x_name, sizeof x_name, "%s.in.x", unit);
    snprintf(w_name, sizeof w_name, "%s.in.weight", unit);
    snprintf(s_name, sizeof s_name, "%s.in.scale", unit);
    snprintf(y_name, sizeof y_name, "%s.out.y", unit);
    int32_t rows = dim(x_name, 0);
    size_t n = (size_t)dim(x_name, 1);
    float *x = floats(x_name);
    ops_matrix w = matrix(w_name, s_name, format, (int64_t)n);
    bf16 *y = ar_calloc((size_t)rows * (size_t)w.n_out, sizeof *y);
    for (int32_t r = 0; r < rows; r++) {
        fmt_q8_round(x + (size_t)r * n, n);
    }
    ref_linear job = ref_linear_to_bf16(&w, x, rows, y);
    assert_true(ref_stage_begin(ref_of(dev)));
    ref_linear_run(ref_of(dev), &job, 1);
    expect_bf16(y_name, y);
    free(x);
    free(y);
}

static void gemm_fp8(void **state)
{
    (void)state;
    gemm("gemm_fp8", OPS_FP8);
}

static void gemm_fp4(void **state)
{
    (void)state;
    gemm("gemm_fp4", OPS_FP4);
}

static void rmsnorm(void **state)
{
    (void)state;
    size_t rows = (size_t)dim("rmsnorm.in.x", 0);
    size_t n = (size_t)dim("rmsnorm.in.x", 1);
    float *x = floats("rmsnorm.in.x");
    float *w = floats("rmsnorm.in.weight");
    bf16 *y = ar_calloc(rows * n, sizeof *y);
    for (size_t r = 0; r < rows; r++) {
        ref_rmsnorm(x + r * n, w, n, 1e-20f, x + r * n);
    }
    fmt_f32_to_bf16(x, rows * n, y);
    expect_bf16("rmsnorm.out.y", y);
    free(x);
    free(w);
    free(y);
}

static void mhc(void **state)
{
    (void)state;
    enum { HC = 4 };
    int32_t rows = dim("mhc.in.X", 0);
    size_t d = (size_t)dim("mhc.in.X", 2);
    bf16 *x = copied("mhc.in.X");
    bf16 *y = copied("mhc.in.y");
    float *base = floats("mhc.in.base");
    float *scale = floats("mhc.in.scale");
    float *pre_in = floats("mhc.out.pre");
    float *norm = ar_calloc(d, sizeof *norm);
    float *out = ar_calloc((size_t)rows * (2 + HC) * HC, sizeof *out);
    bf16 *u = ar_calloc((size_t)rows * d, sizeof *u);
    ops_matrix fn = matrix("mhc.in.fn", NULL, OPS_F32, (int64_t)(HC * d));
    float *post = out + rows * HC;
    float *comb = post + rows * HC;
    ref_seam_open(dev, &(ops_seam_open_args){.n_rows = rows, .hc = HC, .hidden = (int32_t)d, .iters = 20, .hc_eps = 1e-6f, .norm_eps = 1e-20f,
                                             .x = x, .pre_in = pre_in, .fn = &fn, .base = base, .scale = scale, .norm = norm,
                                             .pre = out, .post = post, .comb = comb, .u = u});
    expect_f32("mhc.out.pre", out);
    expect_f32("mhc.out.post", post);
    expect_f32("mhc.out.comb", comb);
    float *wide = floats("mhc.in.X");
    float *collapsed = ar_calloc(d, sizeof *collapsed);
    for (size_t t = 0; t < (size_t)rows; t++) {
        ref_collapse(wide + t * HC * d, pre_in + t * HC, HC, d, collapsed);
        fmt_f32_to_bf16(collapsed, d, u + t * d);
    }
    expect_bf16("mhc.out.collapse", u);
    float *post_golden = floats("mhc.out.post");
    float *comb_golden = floats("mhc.out.comb");
    ref_seam_close(dev, &(ops_seam_close_args){.n_rows = rows, .hc = HC, .hidden = (int32_t)d, .y = y, .post = post_golden, .comb = comb_golden, .x = x});
    expect_bf16("mhc.out.expand", x);
    void *all[] = {x, y, base, scale, pre_in, norm, out, u, wide, collapsed, post_golden, comb_golden};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void mhc_mixes(void **state)
{
    (void)state;
    size_t rows = (size_t)dim("mhc_mixes.in.m", 0);
    float *m = floats("mhc_mixes.in.m");
    float *base = floats("mhc_mixes.in.base");
    float *scale = floats("mhc_mixes.in.scale");
    float *out = ar_calloc(rows * 24, sizeof *out);
    float *post = out + rows * 4;
    float *comb = post + rows * 4;
    for (size_t t = 0; t < rows; t++) {
        ref_mhc_coefficients(m + t * 24, base, scale, 4, 20, 1e-6f, out + t * 4, post + t * 4, comb + t * 16);
    }
    expect_f32("mhc_mixes.out.pre", out);
    expect_f32("mhc_mixes.out.post", post);
    expect_f32("mhc_mixes.out.comb", comb);
    free(m);
    free(base);
    free(scale);
    free(out);
}

/* The manifest's own tolerance for these: 2e-6, out of reach without the official frequencies. */
static void expect_table(const char *name, const float *frequencies, size_t n)
{
    char full[2][64];
    const int32_t *pos = copied("rope_table.in.positions");
    snprintf(full[0], sizeof full[0], "rope_table.out.%s_cos", name);
    snprintf(full[1], sizeof full[1], "rope_table.out.%s_sin", name);
    float *want[2] = {floats(full[0]), floats(full[1])};
    size_t rows = (size_t)dim(full[0], 0); /* the smaller tables list only positions below 192, which come first */
    assert_int_equal(dim(full[0], 1), n);
    for (size_t r = 0; r < rows; r++) {
        float got[2][32];
        rope_row(frequencies, n, pos[r], got[0], got[1]);
        for (size_t k = 0; k < 2; k++) {
            for (size_t i = 0; i < n; i++) {
                if (!(fabsf(got[k][i] - want[k][r * n + i]) <= 1.9e-6f)) {
                    fail_msg("%s: position %d, %zu: got %.9g, golden %.9g", full[k], pos[r], i, (double)got[k][i], (double)want[k][r * n + i]);
                }
            }
        }
    }
    n_passed += 2;
    free((void *)pos);
    free(want[0]);
    free(want[1]);
}

static void rope_table(void **state)
{
    (void)state;
    float f[32];
    rope_frequencies(10000.0, 64, f);
    expect_table("released_plain", f, 32);
    rope_frequencies(160000.0, 64, f);
    rope_yarn(160000.0, 64, 16.0, 32.0, 1.0, 65536, f);
    expect_table("released_yarn", f, 32);
    rope_frequencies(10000.0, 16, f);
    expect_table("t6_plain", f, 8);
    rope_frequencies(160000.0, 16, f);
    rope_yarn(160000.0, 16, 4.0, 32.0, 1.0, 32, f);
    expect_table("t6_yarn", f, 8);
    rope_frequencies(160000.0, 32, f);
    rope_yarn(160000.0, 32, 4.0, 32.0, 1.0, 32, f);
    expect_table("odd_yarn", f, 16);
}

static void rope_rotation(void **state)
{
    (void)state;
    size_t rows = (size_t)dim("rope_apply.in.x", 0);
    size_t heads = (size_t)dim("rope_apply.in.x", 1);
    int32_t *pos = copied("rope_apply.in.positions");
    bf16 *out = ar_calloc(rows * heads * 64, sizeof *out);
    float f[32], c[32], s[32];
    rope_frequencies(160000.0, 64, f);
    rope_yarn(160000.0, 64, 16.0, 32.0, 1.0, 65536, f);
    for (int inverse = 0; inverse < 2; inverse++) {
        float *x = floats("rope_apply.in.x");
        for (size_t t = 0; t < rows; t++) {
            rope_row(f, 32, pos[t], c, s);
            for (size_t h = 0; h < heads; h++) {
                rope_apply(x + (t * heads + h) * 64, 32, c, s, inverse);
            }
        }
        fmt_f32_to_bf16(x, rows * heads * 64, out);
        expect_bf16(inverse ? "rope_apply.out.inverse" : "rope_apply.out.rotated", out);
        free(x);
    }
    free(pos);
    free(out);
}

static void engram_write(void **state)
{
    (void)state;
    int32_t rows = dim("engram_write.in.X", 0);
    bf16 *x = copied("engram_write.in.X");
    float *q = floats("engram_write.in.q_weight");
    float *k = floats("engram_write.in.k_weight");
    const int32_t *ids = copied("engram_write.in.rows");
    const int32_t *mask = copied("engram_write.in.text_mask");
    int64_t *table_rows = ar_calloc((size_t)rows * 4, sizeof *table_rows);
    uint8_t *is_text = ar_calloc((size_t)rows, 1);
    for (int32_t i = 0; i < rows * 4; i++) {
        table_rows[i] = ids[i];
    }
    for (int32_t i = 0; i < rows; i++) {
        is_text[i] = (uint8_t)mask[i];
    }
    ops_matrix table = matrix("engram_write.in.table", "engram_write.in.table_scale", OPS_FP8R, 32);
    ops_matrix wkv = matrix("engram_write.in.wkv", "engram_write.in.wkv_scale", OPS_FP8, 128);
    ref_engram(dev, &(ops_engram_args){.n_rows = rows, .hc = 4, .hidden = 32, .n_columns = 4, .head_dim = 32, .norm_eps = 1e-20f,
                                       .rows = table_rows, .is_text = is_text, .table = &table, .wkv = &wkv, .q_weight = q, .k_weight = k, .x = x});
    expect_bf16("engram_write.out.X", x);
    void *all[] = {x, q, k, (void *)ids, (void *)mask, table_rows, is_text};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void router_unit(const char *unit, int32_t active)
{
    char name[7][64];
    const char *part[] = {"in.x", "in.weight", "in.bias", "in.bias_vl", "in.image_mask", "out.ids", "out.weights"};
    for (size_t i = 0; i < 7; i++) {
        snprintf(name[i], sizeof name[i], "%s.%s", unit, part[i]);
    }
    int32_t rows = dim(name[0], 0);
    int32_t hidden = dim(name[0], 1);
    bf16 *u = copied(name[0]);
    float *bias = floats(name[2]);
    float *bias_vl = floats(name[3]);
    const int32_t *image = copied(name[4]);
    uint8_t *is_text = ar_calloc((size_t)rows, 1);
    int32_t *ids = ar_calloc((size_t)(rows * active), sizeof *ids);
    float *weights = ar_calloc((size_t)(rows * active), sizeof *weights);
    for (int32_t i = 0; i < rows; i++) {
        is_text[i] = !image[i];
    }
    ops_matrix gate = matrix(name[1], NULL, OPS_BF16, hidden);
    ref_router(dev, &(ops_router_args){.n_rows = rows, .hidden = hidden, .n_experts = (int32_t)gate.n_out, .n_active = active, .routed_scale = 1.5f,
                                       .u = u, .is_text = is_text, .gate = &gate, .bias = bias, .bias_vl = bias_vl, .ids = ids, .weights = weights});
    expect_bytes(name[5], ids);
    expect_f32(name[6], weights);
    void *all[] = {u, bias, bias_vl, (void *)image, is_text, ids, weights};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void router(void **state)
{
    (void)state;
    router_unit("router", 6);
    router_unit("router_small", 2);
}

/* One routed expert beside a shared one of zeros: y = bf16(expert). */
static void expert(void **state)
{
    (void)state;
    enum { D = 32, INTER = 64 };
    static const uint8_t zeros[INTER * D];
    int32_t rows = dim("expert.in.x", 0);
    bf16 *u = copied("expert.in.x");
    float *w = floats("expert.in.w");
    int32_t *ids = ar_calloc((size_t)rows, sizeof *ids);
    bf16 *y = ar_calloc((size_t)rows * D, sizeof *y);
    ops_matrix w1 = matrix("expert.in.w1", "expert.in.w1_scale", OPS_FP4, D);
    ops_matrix w2 = matrix("expert.in.w2", "expert.in.w2_scale", OPS_FP4, INTER);
    ops_matrix w3 = matrix("expert.in.w3", "expert.in.w3_scale", OPS_FP4, D);
    ops_matrix wide = {.format = OPS_FP8, .n_out = INTER, .n_in = D, .data = zeros, .scale = zeros};
    ops_matrix narrow = {.format = OPS_FP8, .n_out = D, .n_in = INTER, .data = zeros, .scale = zeros};
    ops_expert routed = {.w1 = &w1, .w2 = &w2, .w3 = &w3};
    ops_experts_args a = {.n_rows = rows, .hidden = D, .inter = INTER, .n_experts = 1, .n_active = 1, .swiglu_limit = 2.0f, .u = u, .ids = ids,
                          .weights = w, .experts = &routed, .shared = {.w1 = &wide, .w2 = &narrow, .w3 = &wide}, .y = y};
    ref_experts(dev, &a);
    expect_bf16("expert.out.routed", y);
    for (int32_t i = 0; i < rows; i++) {
        w[i] = 1.0f;
    }
    ref_experts(dev, &a);
    expect_bf16("expert.out.unweighted", y);
    free(u);
    free(w);
    free(ids);
    free(y);
}

static void sparse_attention(void **state)
{
    (void)state;
    enum { D = 64, H = 4, TILE = 64 };
    size_t rows = (size_t)dim("sparse_attention.in.q", 0);
    size_t n_slots = (size_t)dim("sparse_attention.in.slots", 1);
    float *q = floats("sparse_attention.in.q");
    float *kv = floats("sparse_attention.in.kv");
    float *sink = floats("sparse_attention.in.sink");
    const int32_t *slots = copied("sparse_attention.in.slots");
    bf16 *o = ar_calloc(rows * H * D, sizeof *o);
    float *memory = ar_calloc(ref_attention_floats(H, D), sizeof *memory);
    for (size_t t = 0; t < rows; t++) {
        ref_attention st;
        ref_attention_begin(&st, H, D, 0.125f, memory);
        for (size_t s0 = 0; s0 < n_slots; s0 += TILE) {
            static float v[TILE][D], kt[D][TILE];
            uint64_t valid = 0;
            memset(v, 0, sizeof v);
            for (size_t i = 0; i < TILE && s0 + i < n_slots; i++) {
                int32_t slot = slots[t * n_slots + s0 + i];
                if (slot >= 0) {
                    memcpy(v[i], kv + (size_t)slot * D, sizeof v[i]);
                    valid |= (uint64_t)1 << i;
                }
            }
            for (size_t c = 0; c < D; c++) {
                for (size_t i = 0; i < TILE; i++) {
                    kt[c][i] = v[i][c];
                }
            }
            ref_attention_tile(&st, q + t * H * D, kt[0], TILE, v[0], D, valid);
        }
        ref_attention_end(&st, sink, o + t * H * D);
    }
    expect_bf16("sparse_attention.out.o", o);
    void *all[] = {q, kv, sink, (void *)slots, o, memory};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

/* Seven tokens in one call, then one by one. */
static void compressor(int32_t ratio)
{
    enum { D = 32, HIDDEN = 64, INDEX = 32, TOKENS = 11 };
    const char *unit = ratio == 1 ? "compressor_r1" : "compressor_r2";
    char name[5][64];
    const char *part[] = {"in.u", "in.wkv", "in.wgate", "in.norm", "out.latents"};
    for (size_t i = 0; i < 5; i++) {
        snprintf(name[i], sizeof name[i], "%s.%s", unit, part[i]);
    }
    static const bf16 index_wk[INDEX * D];
    static const float ones[INDEX], still[D / 2];
    static float open_groups[OPS_OPEN_GROUPS * 2 * D];
    const float *const open_group = open_groups + (TOKENS - 1) / 2 % OPS_OPEN_GROUPS * 2 * D; /* of the last token */
    static uint8_t page[TOKENS * 256];
    static bf16 latents[TOKENS][D];
    uint8_t *pages[1] = {page};
    bf16 *u = copied(name[0]);
    float *norm = floats(name[3]);
    ops_matrix wkv = matrix(name[1], NULL, OPS_BF16, HIDDEN);
    ops_matrix wgate = ratio == 2 ? matrix(name[2], NULL, OPS_BF16, HIDDEN) : (ops_matrix){0};
    ops_matrix wk = {.format = OPS_BF16, .n_out = INDEX, .n_in = D, .data = (const uint8_t *)index_wk};
    for (int32_t at = 0; at < TOKENS;) {
        int32_t n = at == 0 ? 7 : 1;
        ops_seq seq = {.n_rows = n, .pos0 = at, .state = (uint8_t *)open_groups, .pages = pages};
        ref_compress(dev, &(ops_compress_args){.n_rows = n, .n_seqs = 1, .seqs = &seq, .ratio = ratio, .hidden = HIDDEN, .head_dim = D,
                                               .rope_dim = D, .index_dim = INDEX, .norm_eps = 1e-20f, .u = u + at * HIDDEN, .rope = still,
                                               .wkv = &wkv, .wgate = &wgate, .norm = norm, .index_wk = &wk, .index_k_norm = ones,
                                               .compressed = {.per_page = 128, .row_bytes = (int32_t)fmt_q4n_bytes(D)},
                                               .index_keys = {.offset = TOKENS * 128, .per_page = 128, .row_bytes = (int32_t)fmt_q4e_bytes(INDEX)},
                                               .latents = latents[at / ratio]});
        at += n;
    }
    expect_bf16(name[4], latents[0]);
    if (ratio == 2) {
        expect_f32("compressor_r2.out.open_kv", open_group);
        expect_f32("compressor_r2.out.open_score", open_group + D);
    }
    free(u);
    free(norm);
}

static void compressors(void **state)
{
    (void)state;
    compressor(1);
    compressor(2);
}

static void candidates(void **state)
{
    (void)state;
    size_t rows = (size_t)dim("candidates.in.scores", 0);
    size_t n = (size_t)dim("candidates.in.scores", 1);
    float *score = floats("candidates.in.scores");
    const int32_t *visible = copied("candidates.in.visible");
    int32_t *mask = ar_calloc(rows * n, sizeof *mask);
    for (size_t t = 0; t < rows; t++) {
        float block[64];
        uint64_t keys[64];
        int32_t picked[64];
        uint8_t bits[8];
        ref_candidates(score + t * n, visible[t], 8, 4, block, keys, picked, bits, sizeof bits);
        for (size_t j = 0; j < n; j++) {
            mask[t * n + j] = bits[j / 8 / 8] >> (j / 8 % 8) & 1;
        }
    }
    expect_bytes("candidates.out.mask", mask);
    free(score);
    free((void *)visible);
    free(mask);
}

int main(void)
{
    const char *root = getenv("DI_TEST_DATA");
    char path[1024];
    if (root != NULL) {
        snprintf(path, sizeof path, "%s/model/units/units.safetensors", root);
    } else {
        const char *source = getenv("DI_SOURCE_DIR");
        snprintf(path, sizeof path, "%s/tests/data/model/units/units.safetensors", source != NULL ? source : ".");
    }
    if (!file_exists(path)) {
        printf("units.safetensors: 0 passed, 1 skipped (not there: %s)\n", path);
        return 0;
    }
    di_error err = {0};
    if (st_open(path, &file, &err) != DI_OK || ref_backend.open(&(ops_device_options){.n_threads = 2}, &dev, &err) != DI_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quant),        cmocka_unit_test(gemm_fp8),      cmocka_unit_test(gemm_fp4),         cmocka_unit_test(rmsnorm),
        cmocka_unit_test(mhc),          cmocka_unit_test(mhc_mixes),     cmocka_unit_test(rope_table),       cmocka_unit_test(rope_rotation),
        cmocka_unit_test(engram_write), cmocka_unit_test(router),        cmocka_unit_test(expert),           cmocka_unit_test(sparse_attention),
        cmocka_unit_test(compressors),  cmocka_unit_test(candidates),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("units.safetensors: %d passed, 4 skipped (engram_hash: tests/model/vectors_engram)\n", n_passed);
    ref_backend.close(dev);
    st_close(file);
    return failed;
}
