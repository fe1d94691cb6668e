/* cpu_backend.c - the CPU backend: the reference's stages over packed weights, with the widest kernels that this
 * processor has, or those asked for.
 *
 * Results equal the reference bit by bit (tests/cpu). Weights are packed while they fit three quarters of the machine's
 * memory; what does not fit stays in the mapped checkpoint and takes the reference path. Owner of a device: whoever
 * opened it; one thread. */
#include "core/err.h"
#include "cpu/cpu_int.h"
#include "ops/ref.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One instruction set, the widest last. Within the last one GFNI is used where the processor has it. */
typedef struct isa {
    const char *name;
    bool there;
    const cpu_kernels *kernels;
    cpu_panels_fn quads;
    cpu_fixed_fn fixed;
    cpu_dot_fn dot;
} isa;

enum { N_ISAS = 4 };

#if defined(__x86_64__)
static void list_isas(isa out[N_ISAS])
{
    __builtin_cpu_init();
    /* Every processor with AVX2 and FMA has F16C. */
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    out[0] = (isa){"avx2", avx2, &cpu_kernels_avx2, NULL, NULL, NULL};
    out[1] = (isa){"avx512", avx512, &cpu_kernels_avx512, NULL, NULL, NULL};
    out[2] = (isa){"avx512vnni", avx512 && __builtin_cpu_supports("avx512vnni"), &cpu_kernels_avx512,
                   __builtin_cpu_supports("gfni") ? cpu_panels_gfni : NULL, cpu_fixed_vnni, NULL};
    out[3] = out[2];
    out[3].name = "avx512bf16";
    out[3].there = out[2].there && out[2].quads != NULL && __builtin_cpu_supports("avx512bf16") && cpu_dot_is_exact();
    out[3].dot = cpu_dot_bf16;
}
#else
static void list_isas(isa out[N_ISAS])
{
    static const char *const names[N_ISAS] = {"avx2", "avx512", "avx512vnni", "avx512bf16"};
    for (int i = 0; i < N_ISAS; i++) {
        out[i] = (isa){.name = names[i]};
    }
}
#endif

static di_status choose_isa(const char *name, isa *out, di_error *err)
{
    isa all[N_ISAS];
    list_isas(all);
    if (name == NULL || strcmp(name, "auto") == 0) {
        for (int i = N_ISAS - 1; i >= 0; i--) {
            if (all[i].there) {
                *out = all[i];
                return DI_OK;
            }
        }
        return err_set(err, DI_E_UNSUPPORTED, "the cpu backend needs AVX2 and FMA; use \"ref\"");
    }
    for (int i = 0; i < N_ISAS; i++) {
        if (strcmp(name, all[i].name) == 0) {
            *out = all[i];
            return all[i].there ? DI_OK : err_set(err, DI_E_UNSUPPORTED, "cpu_isa: this processor has no %s", name);
        }
    }
    return err_set(err, DI_E_ARGUMENT, "cpu_isa is '%s': must be auto, avx2, avx512, avx512vnni or avx512bf16", name);
}

static bool available(void)
{
    isa widest;
    return choose_isa(NULL, &widest, NULL) == DI_OK;
}

static di_status cpu_open(const ops_device_options *options, ops_device **out, di_error *err)
{
    isa chosen;
    di_status status = choose_isa(options->isa, &chosen, err);
    if (status != DI_OK) {
        return status;
    }
    cpu_device *dev = calloc(1, sizeof *dev);
    if (dev == NULL) {
        return err_memory(err, "device", sizeof *dev);
    }
    status = ref_device_init(&dev->ref, options, err);
    if (status != DI_OK) {
        free(dev);
        return status;
    }
    status = cpu_place(dev, options->pin, err);
    if (status != DI_OK) {
        ref_device_fini(&dev->ref);
        free(dev);
        return status;
    }
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_size = sysconf(_SC_PAGESIZE);
    dev->budget = pages > 0 && page_size > 0 ? (size_t)pages / 4 * 3 * (size_t)page_size : 0;
    dev->kernels = chosen.kernels;
    dev->quads = chosen.quads;
    dev->fixed = chosen.fixed;
    dev->dot = chosen.dot;
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
        cpus_close(((cpu_device *)(void *)device)->cpus);
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

static size_t form_bytes(const ops_device *device, const ops_matrix *shape)
{
    const size_t bytes = cpu_packed_bytes(shape);
    (void)device;
    return bytes != SIZE_MAX ? bytes / 64 * 64 : 0;
}

typedef struct form_run {
    ops_matrix *const *matrices;
    void *const *memory;
} form_run;

static void form_some(void *arg, size_t begin, size_t end, int thread)
{
    const form_run *run = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        (void)cpu_pack_in_place(run->matrices[i], run->memory[i]);
    }
}

static void form(ops_device *device, ops_matrix *const *matrices, void *const *memory, size_t n)
{
    form_run run = {.matrices = matrices, .memory = memory};
    pool_run(ref_of(device)->pool, n, form_some, &run);
}

/* --- Forms in files --------------------------------------------------------------------------------------------------------- */

static const char *kept_name(const ops_device *device)
{
    return ((const cpu_device *)(const void *)device)->quads != NULL ? CPU_KEPT_QUADS : CPU_KEPT_PLAIN;
}

static size_t kept_bytes(const ops_device *device, const ops_matrix *shape)
{
    (void)device;
    return cpu_kept_bytes(shape);
}

static const void *kept_form(const ops_device *device, const ops_matrix *matrix)
{
    const cpu_packed *p = matrix->packed;
    (void)device;
    return p != NULL ? p->codes : NULL;
}

static di_status weight_attach(ops_device *device, ops_matrix *matrix, const void *form, di_error *err)
{
    cpu_device *dev = (cpu_device *)(void *)device;
    matrix->packed = cpu_pack_attach(matrix, dev->quads != NULL, form, &dev->store);
    return matrix->packed != NULL ? DI_OK : err_memory(err, "packed matrix", sizeof(cpu_packed));
}

static const char *placement(const ops_device *device) { return ((const cpu_device *)(const void *)device)->placement; }

const ops_backend cpu_backend = {
    .name = "cpu",
    .description = "packed weights, AVX2 or AVX-512",
    .numerics = "exact-1",
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
    .form_bytes = form_bytes,
    .form = form,
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
    .draft_attend = cpu_draft_attend,
    .markov = ref_markov,
    .keep_rows = ref_keep_rows,
    .kept_name = kept_name,
    .kept_bytes = kept_bytes,
    .kept_form = kept_form,
    .weight_attach = weight_attach,
    .placement = placement,
};
