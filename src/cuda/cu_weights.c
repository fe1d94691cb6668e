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

/* Experts are packed altogether or not at all, so both of their sizes must fit. */
static bool is_packable(const ops_matrix *w)
{
    int64_t rows = w->format == OPS_FP4 ? CU_TILE_INPUTS : CU_GROUP_ROWS;
    return w->format != OPS_F32 && w->format != OPS_FP8R && w->n_out % rows == 0 && w->n_in % CU_TILE_INPUTS == 0;
}

/* A table that leaves less than a fifth of the free memory for everything else stays where it is. */
static bool is_too_large(size_t bytes)
{
    size_t free_bytes = 0;
    size_t all = 0;
    return cudaMemGetInfo(&free_bytes, &all) == cudaSuccess && bytes > free_bytes / 5 * 4;
}

/* Makes the checkpoint's memory readable to the device. */
static di_status read_in_place(cu_device *dev, const ops_matrix *w, size_t data, size_t scale, cu_packed *packed, di_error *err)
{
    const unsigned flags = cudaHostRegisterMapped | cudaHostRegisterReadOnly;
    void *data_address = NULL;
    void *scale_address = NULL;
    if (!cu_ok(dev, (int)cudaHostRegister((void *)w->data, data, flags), "look-up table")) {
        return cu_sync((ops_device *)(void *)dev, err);
    }
    if (!cu_ok(dev, (int)cudaHostRegister((void *)w->scale, scale, flags), "look-up table")) {
        cudaHostUnregister((void *)w->data);
        return cu_sync((ops_device *)(void *)dev, err);
    }
    if (!cu_ok(dev, (int)cudaHostGetDevicePointer(&data_address, (void *)w->data, 0), "look-up table") ||
        !cu_ok(dev, (int)cudaHostGetDevicePointer(&scale_address, (void *)w->scale, 0), "look-up table")) {
        cudaHostUnregister((void *)w->data);
        cudaHostUnregister((void *)w->scale);
        return cu_sync((ops_device *)(void *)dev, err);
    }
    packed->data = data_address;
    packed->scale = scale_address;
    return DI_OK;
}

/* Checkpoint bytes to tiles; data and scale lie on the device. */
static di_status pack(cu_device *dev, const ops_matrix *w, const uint8_t *data, const uint8_t *scale, uint8_t *out, di_error *err)
{
    cu_format format = w->format == OPS_FP4 ? CU_FP4 : w->format == OPS_FP8 ? CU_FP8 : CU_BF16;
    void *bad = NULL;
    uint32_t n_bad = 0;
    bool done = cu_ok(dev, (int)cudaMalloc(&bad, sizeof n_bad), "counter") &&
                cu_ok(dev, (int)cudaMemsetAsync(bad, 0, sizeof n_bad, dev->stream), "counter") &&
                cu_ok(dev, cu_launch_pack(format, data, scale, w->n_out, w->n_in, out, bad, dev->stream), "pack") &&
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
    const bool tiles = use == OPS_USE_PRODUCT && is_packable(w);
    if (use == OPS_USE_PRODUCT && w->n_in % 32 != 0) {
        return err_set(err, DI_E_UNSUPPORTED, "matrix [%lld, %lld]: GPU products take inputs in multiples of 32", (long long)w->n_out,
                       (long long)w->n_in);
    }
    void *raw = NULL;
    void *out = NULL;
    di_status status = DI_OK;
    cu_packed *packed = ar_calloc(1, sizeof *packed);
    if (packed == NULL) {
        return err_memory(err, "packed matrix", sizeof *packed);
    }
    *packed = (cu_packed){.format = w->format, .n_out = w->n_out, .n_in = w->n_in, .tiles = tiles};
    cu_select(dev);
    if (use == OPS_USE_LOOKUP && is_too_large(data + scale)) {
        status = read_in_place(dev, w, data, scale, packed, err);
        goto out;
    }
    const size_t scale_at = (data + 255) / 256 * 256;
    if (!cu_ok(dev, (int)cudaMalloc(&raw, scale_at + scale), "weight") ||
        !cu_ok(dev, (int)cudaMemcpyAsync(raw, w->data, data, cudaMemcpyHostToDevice, dev->stream), "upload") ||
        !cu_ok(dev, (int)cudaMemcpyAsync((uint8_t *)raw + scale_at, w->scale, scale, cudaMemcpyHostToDevice, dev->stream), "upload")) {
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
        status = pack(dev, w, raw, (uint8_t *)raw + scale_at, out, err);
    } else {
        status = cu_sync(device, err); /* the copy has left the caller's memory */
        out = raw;
        raw = NULL;
    }
    if (status == DI_OK) {
        packed->bytes = out;
        packed->data = out;
        packed->scale = tiles ? NULL : (const uint8_t *)out + scale_at;
        out = NULL;
    }
out:
    if (status == DI_OK) {
        w->packed = packed;
        packed = NULL;
    }
    cudaFree(raw);
    cudaFree(out);
    free(packed);
    return status;
}

void cu_weight_free(ops_device *device, ops_matrix *w)
{
    cu_device *dev = cu_of(device);
    cu_packed *packed = w->packed;
    if (packed != NULL) {
        cu_select(dev);
        if (packed->bytes != NULL) {
            cu_ok(dev, (int)cudaFree(packed->bytes), "free weight");
        } else {
            cu_ok(dev, (int)cudaHostUnregister((void *)w->data), "free weight");
            cu_ok(dev, (int)cudaHostUnregister((void *)w->scale), "free weight");
        }
        free(packed);
        w->packed = NULL;
    }
}
