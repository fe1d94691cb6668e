/* cpu_backend.c - the CPU backend: the reference's stages over packed weights, with the widest kernels that this
 * processor has.
 *
 * Results equal the reference bit by bit (tests/cpu). Weights are packed while they fit three quarters of the machine's
 * memory; what does not fit stays in the mapped checkpoint and takes the reference path. Owner of a device: whoever
 * opened it; one thread. */
#include "core/err.h"
#include "cpu/cpu_int.h"
#include "ops/ref.h"

#include <stdlib.h>
#include <unistd.h>

#if defined(__x86_64__)
static const cpu_kernels *best_kernels(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
        return &cpu_kernels_avx512;
    }
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    return avx2 ? &cpu_kernels_avx2 : NULL; /* every processor with AVX2 and FMA has F16C */
}

static cpu_panels_fn best_quads(void)
{
    return best_kernels() == &cpu_kernels_avx512 && __builtin_cpu_supports("gfni") ? cpu_panels_gfni : NULL;
}

static cpu_fixed_fn best_fixed(void)
{
    return best_kernels() == &cpu_kernels_avx512 && __builtin_cpu_supports("avx512vnni") ? cpu_fixed_vnni : NULL;
}
#else
static const cpu_kernels *best_kernels(void) { return NULL; }
static cpu_panels_fn best_quads(void) { return NULL; }
static cpu_fixed_fn best_fixed(void) { return NULL; }
#endif

static bool available(void) { return best_kernels() != NULL; }

static di_status cpu_open(const ops_device_options *options, ops_device **out, di_error *err)
{
    if (!available()) {
        return err_set(err, DI_E_UNSUPPORTED, "the cpu backend needs AVX2 and FMA; use \"ref\"");
    }
    cpu_device *dev = calloc(1, sizeof *dev);
    if (dev == NULL) {
        return err_memory(err, "device", sizeof *dev);
    }
    di_status status = ref_device_init(&dev->ref, options, err);
    if (status != DI_OK) {
        free(dev);
        return status;
    }
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_size = sysconf(_SC_PAGESIZE);
    dev->budget = pages > 0 && page_size > 0 ? (size_t)pages / 4 * 3 * (size_t)page_size : 0;
    dev->kernels = best_kernels();
    dev->quads = best_quads();
    dev->fixed = best_fixed();
    dev->ref.linear = cpu_linear;
    dev->ref.unpack_keys = dev->kernels->unpack_keys;
    dev->ref.products = dev->kernels->products;
    *out = (ops_device *)dev;
    return DI_OK;
}

static void cpu_close(ops_device *device)
{
    if (device != NULL) {
        ref_device_fini(ref_of(device));
        cpu_store_fini(&((cpu_device *)(void *)device)->store);
        free(device);
    }
}

static di_status weight_load(ops_device *device, ops_matrix *matrix, ops_weight_use use, di_error *err)
{
    cpu_device *dev = (cpu_device *)(void *)device;
    (void)err;
    if (use == OPS_USE_PRODUCT && cpu_packed_bytes(matrix) <= dev->budget) {
        cpu_packed *p = cpu_pack(matrix, dev->quads != NULL, &dev->store, dev->ref.pool);
        matrix->packed = p;
        dev->budget -= p != NULL ? p->bytes : 0;
    }
    return DI_OK;
}

static void weight_free(ops_device *device, ops_matrix *matrix)
{
    cpu_packed_free(matrix->packed, &((cpu_device *)(void *)device)->store);
    matrix->packed = NULL;
}

const ops_backend cpu_backend = {
    .name = "cpu",
    .description = "packed weights, AVX2 or AVX-512",
    .available = available,
    .open = cpu_open,
    .close = cpu_close,
    .n_threads = ref_n_threads,
    .sync = ref_sync,
    .mem_alloc = ref_mem_alloc,
    .mem_free = ref_mem_free,
    .upload = ref_copy,
    .download = ref_copy,
    .copy = ref_copy,
    .weight_load = weight_load,
    .weight_free = weight_free,
    .embed = ref_embed,
    .seam_open = ref_seam_open,
    .seam_close = ref_seam_close,
    .engram = ref_engram,
    .attn_in = ref_attn_in,
    .compress = ref_compress,
    .query = ref_query,
    .index = ref_index,
    .attend = cpu_attend,
    .window_store = ref_window_store,
    .attn_out = ref_attn_out,
    .router = ref_router,
    .experts = ref_experts,
    .head = ref_head,
    .tap = ref_tap,
    .draft_attend = ref_draft_attend,
    .markov = ref_markov,
    .keep_rows = ref_keep_rows,
};
