/* cu_device.c - a GPU: opening it, its memory, its scratch, its failures. The CUDA runtime is linked statically, so a program that was
 * built with it also starts where no driver is. Owner of a device: whoever opened it; one thread. */
#include "core/arith.h"
#include "core/err.h"
#include "cuda/cu_int.h"

#include <cuda_runtime_api.h>

#include <stdio.h>

bool cu_ok(cu_device *dev, int cuda_error, const char *what)
{
    if (cuda_error == (int)cudaSuccess) {
        return true;
    }
    if (dev->error.code == DI_OK) {
        err_set(&dev->error, cuda_error == (int)cudaErrorMemoryAllocation ? DI_E_MEMORY : DI_E_DEVICE, "GPU %d: %s: %s", dev->ordinal, what,
                cudaGetErrorString((cudaError_t)cuda_error));
    }
    return false;
}

void cu_refuse(cu_device *dev, const char *stage, const char *why)
{
    if (dev->error.code == DI_OK) {
        err_set(&dev->error, DI_E_UNSUPPORTED, "GPU stage %s: %s", stage, why);
    }
}

void cu_select(cu_device *dev) { cu_ok(dev, (int)cudaSetDevice(dev->ordinal), "select"); }

/* At least so many bytes at *memory, which moves when it grows: what was captured with it is forgotten. */
static bool grow(cu_device *dev, uint8_t **memory, size_t *size, size_t bytes)
{
    if (bytes <= *size) {
        return true;
    }
    if (dev->steps.recording != NULL) {
        cu_refuse(dev, "step", "its scratch was not planned");
        return false;
    }
    cu_steps_forget(dev);
    /* The old block may still be read by work that has been asked for. */
    if (!cu_ok(dev, (int)cudaStreamSynchronize(dev->stream), "synchronise") || !cu_ok(dev, (int)cudaFree(*memory), "free scratch")) {
        return false;
    }
    *memory = NULL;
    *size = 0;
    void *fresh;
    if (!cu_ok(dev, (int)cudaMalloc(&fresh, bytes), "scratch")) {
        return false;
    }
    *memory = fresh;
    *size = bytes;
    return true;
}

uint8_t *cu_packed_rows(cu_device *dev, int32_t padded_rows, int64_t width)
{
    return grow(dev, &dev->packed, &dev->packed_size, (size_t)padded_rows * (size_t)width * 2) ? dev->packed : NULL;
}

bool cu_arranged_reserve(cu_device *dev, int32_t n_rows, int64_t width)
{
    const int32_t most = n_rows < CU_STEP_ROWS ? n_rows : CU_STEP_ROWS;
    return grow(dev, &dev->arranged, &dev->arranged_size, cu_arranged_bytes(most, width));
}

bool cu_stage_begin(cu_device *dev, size_t scratch_bytes)
{
    dev->scratch_used = 0;
    cu_select(dev);
    if (dev->error.code != DI_OK) {
        return false;
    }
    if (dev->planning) {
        dev->planned = scratch_bytes > dev->planned ? scratch_bytes : dev->planned;
        return false;
    }
    return grow(dev, &dev->scratch, &dev->scratch_size, scratch_bytes);
}

void cu_plan(ops_device *device, bool begin)
{
    cu_device *dev = cu_of(device);
    dev->planning = begin;
    if (!begin && dev->error.code == DI_OK) {
        (void)grow(dev, &dev->scratch, &dev->scratch_size, dev->planned);
    }
}

void *cu_scratch(cu_device *dev, size_t bytes)
{
    void *p = dev->scratch + dev->scratch_used;
    dev->scratch_used += cu_scratch_bytes(bytes);
    return p;
}

static bool capability_fits(int ordinal)
{
    int major = 0;
    int minor = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal) == cudaSuccess && (major == 9 || major == 10) &&
           minor == 0;
}

bool cu_available(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (capability_fits(i)) {
            return true;
        }
    }
    return false;
}

di_status cu_open(const ops_device_options *options, ops_device **out, di_error *err)
{
    int n = 0;
    cudaError_t status = cudaGetDeviceCount(&n);
    if (status != cudaSuccess) {
        return err_set(err, DI_E_DEVICE, "no CUDA device: %s", cudaGetErrorString(status));
    }
    if (options->ordinal < 0 || options->ordinal >= n) {
        return err_set(err, DI_E_ARGUMENT, "GPU %d: this machine has %d", options->ordinal, n);
    }
    if (!capability_fits(options->ordinal)) {
        return err_set(err, DI_E_UNSUPPORTED, "GPU %d: the kernels are built for compute capability 9.0 and 10.0", options->ordinal);
    }
    cu_device *dev = ar_calloc(1, sizeof *dev);
    if (dev == NULL) {
        return err_memory(err, "device", sizeof *dev);
    }
    int generation = 0;
    dev->ordinal = options->ordinal;
    if (!cu_ok(dev, (int)cudaSetDevice(dev->ordinal), "select") ||
        !cu_ok(dev, (int)cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking), "stream") ||
        !cu_ok(dev, (int)cudaDeviceGetAttribute(&dev->n_sms, cudaDevAttrMultiProcessorCount, dev->ordinal), "multiprocessors") ||
        !cu_ok(dev, (int)cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, dev->ordinal), "generation")) {
        di_status code = dev->error.code;
        if (err != NULL) {
            *err = dev->error;
        }
        cu_close((ops_device *)(void *)dev);
        return code;
    }
    dev->hopper = generation == 9;
    *out = (ops_device *)(void *)dev;
    return DI_OK;
}

void cu_close(ops_device *device)
{
    if (device == NULL) {
        return;
    }
    cu_device *dev = cu_of(device);
    cu_select(dev);
    while (dev->tables != NULL) {
        cu_expert_table *next = dev->tables->next;
        cudaFree(dev->tables->experts);
        free(dev->tables);
        dev->tables = next;
    }
    cu_steps_free(dev);
    cu_tables_free(dev);
    cudaFree(dev->scratch);
    cudaFree(dev->packed);
    cudaFree(dev->arranged);
    if (dev->stream != NULL) {
        cudaStreamDestroy(dev->stream);
    }
    free(dev);
}

di_status cu_sync(ops_device *device, di_error *err)
{
    cu_device *dev = cu_of(device);
    cu_select(dev);
    cu_ok(dev, (int)cudaStreamSynchronize(dev->stream), "work");
    di_status status = dev->error.code;
    if (status != DI_OK && err != NULL) {
        *err = dev->error;
    }
    dev->error.code = DI_OK;
    return status;
}

void *cu_mem_alloc(ops_device *device, size_t bytes)
{
    cu_device *dev = cu_of(device);
    cu_select(dev);
    void *p = NULL;
    size_t size = bytes > 0 ? bytes : 1;
    if (cudaMalloc(&p, size) != cudaSuccess) {
        (void)cudaGetLastError(); /* running out is an answer here, not a failure of the device */
        return NULL;
    }
    cu_ok(dev, (int)cudaMemsetAsync(p, 0, size, dev->stream), "clear");
    return p;
}

void cu_mem_free(ops_device *device, void *memory)
{
    cu_device *dev = cu_of(device);
    if (memory != NULL) {
        cu_select(dev);
        cu_ok(dev, (int)cudaFree(memory), "free");
    }
}

void cu_upload(ops_device *device, void *dst, const void *src_host, size_t bytes)
{
    cu_device *dev = cu_of(device);
    cu_select(dev);
    cu_ok(dev, (int)cudaMemcpyAsync(dst, src_host, bytes, cudaMemcpyHostToDevice, dev->stream), "upload");
}

void cu_download(ops_device *device, void *dst_host, const void *src, size_t bytes)
{
    cu_device *dev = cu_of(device);
    cu_select(dev);
    if (cu_ok(dev, (int)cudaMemcpyAsync(dst_host, src, bytes, cudaMemcpyDeviceToHost, dev->stream), "download")) {
        cu_ok(dev, (int)cudaStreamSynchronize(dev->stream), "download");
    }
}

void cu_copy(ops_device *device, void *dst, const void *src, size_t bytes)
{
    cu_device *dev = cu_of(device);
    cu_select(dev);
    cu_ok(dev, (int)cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, dev->stream), "copy");
}

void *cu_stream_of(ops_device *device) { return cu_of(device)->stream; }
