/* cu_weights.c - weights on the device: checkpoint bytes are uploaded once and packed there into tiles (kernels/pack.cu). */
#include "core/arith.h"
#include "core/err.h"
#include "cuda/cu_int.h"

#include <cuda_runtime_api.h>

int32_t cu_split(ops_format format, int64_t n_out, int64_t n_in)
{
    /* Fewer than some two hundred items of 64 rows leave the memory idle; four chunks of the inputs make four times as many. Results of
     * BF16 matrices stay in fp32 (router, head), where a shorter chain is as exact as the reference's order. */
    bool few = n_out / 64 < 200;
    return (few || format == OPS_BF16) && n_in % (4 * CU_TILE_INPUTS) == 0 ? 4 : 1;
}

static bool matrix_sizes(const ops_matrix *w, size_t *data, size_t *scale)
{
    size_t n;
    size_t groups = ((size_t)w->n_in + 31) / 32;
    if (w->n_out <= 0 || w->n_in <= 0 || !ar_mul((size_t)w->n_out, (size_t)w->n_in, &n) || n > SIZE_MAX / 8) {
        return false;
    }
    *data = w->format == OPS_F32 ? 4 * n : w->format == OPS_BF16 ? 2 * n : w->format == OPS_FP4 ? n / 2 : n;
    *scale = 0;
    if (w->format == OPS_FP8) {
        *scale = ((size_t)w->n_out + 31) / 32 * groups;
    } else if (w->format == OPS_FP8R || w->format == OPS_FP4) {
        *scale = (size_t)w->n_out * groups;
    }
    return true;
}

static bool is_packable(const ops_matrix *w)
{
    return w->n_out % CU_GROUP_ROWS == 0 && w->n_in % CU_TILE_INPUTS == 0;
}

/* Checkpoint bytes to tiles. raw holds data and scales on the device. */
static di_status pack(cu_device *dev, const ops_matrix *w, uint8_t *raw, size_t data, uint8_t *out, di_error *err)
{
    cu_format format = w->format == OPS_FP4 ? CU_FP4 : w->format == OPS_FP8 ? CU_FP8 : CU_BF16;
    void *bad = NULL;
    uint32_t n_bad = 0;
    bool done = cu_ok(dev, (int)cudaMalloc(&bad, sizeof n_bad), "counter") &&
                cu_ok(dev, (int)cudaMemsetAsync(bad, 0, sizeof n_bad, dev->stream), "counter") &&
                cu_ok(dev, cu_launch_pack(format, raw, raw + data, w->n_out, w->n_in, out, bad, dev->stream), "pack") &&
                cu_ok(dev, (int)cudaMemcpyAsync(&n_bad, bad, sizeof n_bad, cudaMemcpyDeviceToHost, dev->stream), "pack") &&
                cu_ok(dev, (int)cudaStreamSynchronize(dev->stream), "pack");
    cudaFree(bad);
    if (!done) {
        return cu_sync((ops_device *)(void *)dev, err);
    }
    if (n_bad > 0) {
        return err_set(err, DI_E_UNSUPPORTED, "matrix [%lld, %lld]: %u codes or scales are NaN or too large for the GPU's tiles",
                       (long long)w->n_out, (long long)w->n_in, n_bad);
    }
    return DI_OK;
}

di_status cu_weight_load(ops_device *device, ops_matrix *w, ops_weight_use use, di_error *err)
{
    cu_device *dev = cu_of(device);
    size_t data;
    size_t scale;
    if (!matrix_sizes(w, &data, &scale)) {
        return err_set(err, DI_E_ARGUMENT, "matrix [%lld, %lld]: size out of range", (long long)w->n_out, (long long)w->n_in);
    }
    bool tiles = use == OPS_USE_PRODUCT && w->format != OPS_F32;
    if (tiles && (w->format == OPS_FP8R || !is_packable(w))) {
        return err_set(err, DI_E_UNSUPPORTED,
                       "matrix [%lld, %lld]: GPU products take outputs in multiples of 64 and inputs in multiples of 256",
                       (long long)w->n_out, (long long)w->n_in);
    }
    void *raw = NULL;
    void *out = NULL;
    di_status status = DI_OK;
    cu_packed *packed = ar_calloc(1, sizeof *packed);
    if (packed == NULL) {
        return err_memory(err, "packed matrix", sizeof *packed);
    }
    if (!cu_ok(dev, (int)cudaMalloc(&raw, data + scale), "weight") ||
        !cu_ok(dev, (int)cudaMemcpyAsync(raw, w->data, data, cudaMemcpyHostToDevice, dev->stream), "upload") ||
        !cu_ok(dev, (int)cudaMemcpyAsync((uint8_t *)raw + data, w->scale, scale, cudaMemcpyHostToDevice, dev->stream), "upload")) {
        status = cu_sync(device, err);
        goto out;
    }
    if (tiles) {
        size_t bytes = (size_t)(w->n_out / 8) * (size_t)(w->n_in / CU_TILE_INPUTS) *
                       cu_tile_bytes(w->format == OPS_FP4 ? CU_FP4 : w->format == OPS_FP8 ? CU_FP8 : CU_BF16);
        if (!cu_ok(dev, (int)cudaMalloc(&out, bytes), "weight")) {
            status = cu_sync(device, err);
            goto out;
        }
        status = pack(dev, w, raw, data, out, err);
    } else {
        status = cu_sync(device, err); /* the copy has left the caller's memory */
        out = raw;
        raw = NULL;
    }
    if (status == DI_OK) {
        *packed = (cu_packed){.format = w->format, .n_out = w->n_out, .n_in = w->n_in, .bytes = out};
        w->packed = packed;
        packed = NULL;
        out = NULL;
    }
out:
    cudaFree(raw);
    cudaFree(out);
    free(packed);
    return status;
}

void cu_weight_free(ops_device *device, ops_matrix *w)
{
    cu_packed *packed = w->packed;
    if (packed != NULL) {
        cu_ok(cu_of(device), (int)cudaFree(packed->bytes), "free weight");
        free(packed);
        w->packed = NULL;
    }
}
