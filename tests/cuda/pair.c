/* pair.c - see pair.h. */
#include "cuda/pair.h"

#include <stdio.h>
#include <stdlib.h>

bool gpu_pair_open(gpu_pair *pair)
{
    const ops_device_options options = {.n_threads = 0};
    if (!cu_available()) {
        printf("skipped: no GPU of compute capability 9.0 or 10.0\n");
        return false;
    }
    di_error err;
    if (ref_backend.open(&options, &pair->ref, &err) != DI_OK || cu_open(&options, &pair->gpu, &err) != DI_OK) {
        printf("%s\n", err.message);
        exit(1);
    }
    return true;
}

void gpu_pair_close(gpu_pair *pair)
{
    cu_close(pair->gpu);
    ref_backend.close(pair->ref);
}

float gpu_normal(uint64_t *seed)
{
    uint64_t r = unit_random(seed);
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        sum += (float)(r >> (16 * i) & 0xFFFF) * 0x1p-16f - 0.5f;
    }
    return sum * 1.7320508f; /* four uniform values have variance 1/3 */
}

bf16 *gpu_rows(size_t n, uint64_t *seed)
{
    bf16 *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        x[i] = bf16_from_f32(gpu_normal(seed));
    }
    return x;
}

void gpu_list(const bool *taken, int32_t n_experts, int32_t *ids, float *weights, uint64_t *seed)
{
    size_t k = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        if (taken[e]) {
            ids[k] = e;
            weights[k++] = 0.25f + 0.05f * gpu_normal(seed);
        }
    }
}

float *gpu_floats(size_t n, float mean, float spread, uint64_t *seed)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        x[i] = mean + spread * gpu_normal(seed);
    }
    return x;
}

/* Scale codes around the one that makes a row's sum as large as one input. */
static uint8_t scale_code(int64_t n_in, float code_size, uint64_t *seed)
{
    float wanted = 1.0f / (sqrtf((float)n_in) * code_size);
    return (uint8_t)(127 + ilogbf(wanted) - 1 + (int)(unit_random(seed) % 3));
}

ops_matrix gpu_matrix(gpu_pair *pair, ops_format format, int64_t n_out, int64_t n_in, uint64_t *seed)
{
    size_t n = (size_t)n_out * (size_t)n_in;
    size_t bytes = format == OPS_F32 ? 4 * n : format == OPS_BF16 ? 2 * n : format == OPS_FP8 ? n : n / 2;
    size_t scales = format == OPS_FP8 ? (size_t)(n_out + 31) / 32 * (size_t)(n_in / 32) : (size_t)n_out * (size_t)(n_in / 32);
    uint8_t *data = malloc(bytes);
    uint8_t *scale = malloc(scales);
    assert_true(data != NULL && scale != NULL);
    float gain = 1.0f / sqrtf((float)n_in);
    for (size_t i = 0; i < n; i++) {
        float x = gpu_normal(seed);
        bf16 b;
        switch (format) {
        case OPS_FP8:
            data[i] = e4m3_from_f32(x * 100.0f);
            break;
        case OPS_FP4:
            data[i / 2] = (uint8_t)(i % 2 == 0 ? e2m1_from_f32(x * 2.0f) : data[i / 2] | e2m1_from_f32(x * 2.0f) << 4);
            break;
        case OPS_BF16:
            b = bf16_from_f32(x * gain);
            memcpy(data + 2 * i, &b, 2);
            break;
        default:
            x *= gain;
            memcpy(data + 4 * i, &x, 4);
            break;
        }
    }
    for (size_t i = 0; i < scales; i++) {
        scale[i] = scale_code(n_in, format == OPS_FP8 ? 100.0f : 2.0f, seed);
    }
    ops_matrix w = {.format = format, .n_out = n_out, .n_in = n_in, .data = data, .scale = scale};
    di_error err = {.code = DI_OK};
    if (cu_weight_load(pair->gpu, &w, OPS_USE_PRODUCT, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return w;
}

void gpu_matrix_free(gpu_pair *pair, ops_matrix *w)
{
    cu_weight_free(pair->gpu, w);
    free((void *)w->data);
    free((void *)w->scale);
}

void *gpu_upload(gpu_pair *pair, const void *host, size_t bytes)
{
    void *p = cu_mem_alloc(pair->gpu, bytes);
    assert_non_null(p);
    if (host != NULL) {
        cu_upload(pair->gpu, p, host, bytes);
    }
    return p;
}

void *gpu_download(gpu_pair *pair, const void *device, size_t bytes)
{
    void *p = malloc(bytes);
    assert_non_null(p);
    cu_download(pair->gpu, p, device, bytes);
    di_error err = {.code = DI_OK};
    if (cu_sync(pair->gpu, &err) != DI_OK) {
        fail_msg("%s", err.message);
    }
    return p;
}

static double ulp16(float x)
{
    int e;
    frexpf(x, &e);
    return ldexp(1.0, e - 8);
}

gpu_difference gpu_compare16(const bf16 *got, const bf16 *want, size_t n, size_t row)
{
    gpu_difference d = {.n = n};
    for (size_t r = 0; r < n; r += row) {
        float top = 0.0f;
        for (size_t i = r; i < r + row; i++) {
            top = fmaxf(top, fabsf(bf16_to_f32(want[i])));
        }
        for (size_t i = r; i < r + row; i++) {
            float g = bf16_to_f32(got[i]);
            float w = bf16_to_f32(want[i]);
            double unit = fmax(ulp16(w), (double)top * 0x1p-16);
            d.flips += got[i] != want[i];
            d.worst = g == g ? fmax(d.worst, fabs((double)g - (double)w) / unit) : INFINITY;
        }
    }
    return d;
}

gpu_difference gpu_compare32(const float *got, const float *want, size_t n, size_t row)
{
    gpu_difference d = {.n = n};
    for (size_t r = 0; r < n; r += row) {
        double top = 0.0;
        for (size_t i = r; i < r + row; i++) {
            top = fmax(top, fabs((double)want[i]));
        }
        for (size_t i = r; i < r + row; i++) {
            double off = fabs((double)got[i] - (double)want[i]) / (top * 0x1p-23);
            d.flips += got[i] != want[i];
            d.worst = got[i] == got[i] ? fmax(d.worst, off) : INFINITY;
        }
    }
    return d;
}

void gpu_expect(const char *stage, int32_t n_rows, gpu_difference d, double share, double worst)
{
    double flipped = (double)d.flips / (double)d.n;
    printf("{\"bench\":\"gpu_stage\",\"case\":\"%s_%d\",\"metric\":\"differs\",\"value\":%.4g,\"unit\":\"%%\",\"baseline\":\"ref\",\"ratio\":%.4g}\n",
           stage, n_rows, 100.0 * flipped, d.worst);
    fflush(stdout);
    if (flipped > share || !(d.worst <= worst)) {
        fail_msg("%s, %d rows: %zu of %zu values differ, the worst by %.3g ulp", stage, n_rows, d.flips, d.n, d.worst);
    }
}
