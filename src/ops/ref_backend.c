/* ref_backend.c - the reference as a backend: device, memory, scratch, table. Owner of a device: whoever opened it; one thread. */
#include "core/arith.h"
#include "core/err.h"
#include "ops/ref.h"

#include <stdlib.h>

/* Scratch is a chain of blocks that grows to the largest stage and is then reused. */
struct ref_block {
    ref_block *next;
    size_t size;
    size_t used;
    size_t kept; /* of `used`, what ref_scratch_drop leaves */
};

#define ALIGN ((size_t)64)
#define BLOCK_MIN ((size_t)4 << 20)

static uint8_t *block_memory(ref_block *b) { return (uint8_t *)b + (sizeof *b + ALIGN - 1) / ALIGN * ALIGN; }

static ref_block *block_new(size_t bytes)
{
    size_t size = bytes > BLOCK_MIN ? bytes : BLOCK_MIN;
    size_t total;
    if (!ar_add(size, 2 * ALIGN, &total)) {
        return NULL;
    }
    ref_block *b = aligned_alloc(ALIGN, (total + ALIGN - 1) / ALIGN * ALIGN);
    if (b != NULL) {
        *b = (ref_block){.size = size};
    }
    return b;
}

void *ref_scratch(ref_device *dev, size_t n, size_t size)
{
    size_t bytes;
    if (ar_mul(n, size, &bytes) && ar_add(bytes, ALIGN - 1, &bytes)) {
        bytes &= ~(ALIGN - 1);
        ref_block **link = &dev->scratch;
        for (; *link != NULL; link = &(*link)->next) {
            if ((*link)->size - (*link)->used >= bytes) {
                break;
            }
        }
        if (*link == NULL) {
            *link = block_new(bytes);
        }
        if (*link != NULL) {
            void *p = block_memory(*link) + (*link)->used;
            (*link)->used += bytes;
            return p;
        }
    }
    if (dev->error.code == DI_OK) {
        err_memory(&dev->error, "stage scratch", n * size);
    }
    return NULL;
}

void ref_scratch_keep(ref_device *dev)
{
    for (ref_block *b = dev->scratch; b != NULL; b = b->next) {
        b->kept = b->used;
    }
}

void ref_scratch_drop(ref_device *dev)
{
    for (ref_block *b = dev->scratch; b != NULL; b = b->next) {
        b->used = b->kept;
    }
}

bool ref_stage_begin(ref_device *dev)
{
    for (ref_block *b = dev->scratch; b != NULL; b = b->next) {
        b->used = 0;
        b->kept = 0;
    }
    return dev->error.code == DI_OK;
}

void ref_scratch_free(ref_device *dev)
{
    while (dev->scratch != NULL) {
        ref_block *next = dev->scratch->next;
        free(dev->scratch);
        dev->scratch = next;
    }
}

di_status ref_device_init(ref_device *dev, const ops_device_options *options, di_error *err)
{
    *dev = (ref_device){.linear = ref_linear_run, .unpack_keys = ref_unpack_keys, .products = ref_products};
    di_status status = pool_new(options->n_threads, &dev->pool, err);
    if (status == DI_OK) {
        dev->n_threads = pool_threads(dev->pool);
    }
    return status;
}

void ref_device_fini(ref_device *dev)
{
    pool_free(dev->pool);
    ref_scratch_free(dev);
}

static bool always(void) { return true; }

static di_status ref_open(const ops_device_options *options, ops_device **out, di_error *err)
{
    ref_device *dev = calloc(1, sizeof *dev);
    if (dev == NULL) {
        return err_memory(err, "device", sizeof *dev);
    }
    di_status status = ref_device_init(dev, options, err);
    if (status != DI_OK) {
        free(dev);
        return status;
    }
    *out = (ops_device *)dev;
    return DI_OK;
}

static void ref_close(ops_device *device)
{
    if (device != NULL) {
        ref_device_fini(ref_of(device));
        free(device);
    }
}

int32_t ref_n_threads(const ops_device *dev) { return ((const ref_device *)(const void *)dev)->n_threads; }

di_status ref_sync(ops_device *device, di_error *err)
{
    ref_device *dev = ref_of(device);
    di_status status = dev->error.code;
    if (status != DI_OK && err != NULL) {
        *err = dev->error;
    }
    dev->error.code = DI_OK;
    return status;
}

void *ref_mem_alloc(ops_device *dev, size_t bytes)
{
    (void)dev;
    size_t size = bytes > 0 ? bytes : 1;
    if (size > SIZE_MAX - 255) {
        return NULL;
    }
    size = (size + 255) / 256 * 256;
    void *p = aligned_alloc(256, size);
    if (p != NULL) {
        memset(p, 0, size);
    }
    return p;
}

void ref_mem_free(ops_device *dev, void *memory)
{
    (void)dev;
    free(memory);
}

void ref_copy(ops_device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    memcpy(dst, src, bytes);
}

static di_status ref_weight_load(ops_device *dev, ops_matrix *matrix, ops_weight_use use, di_error *err)
{
    (void)dev;
    (void)matrix;
    (void)use;
    (void)err;
    return DI_OK;
}

static void ref_weight_free(ops_device *dev, ops_matrix *matrix)
{
    (void)dev;
    (void)matrix;
}

static size_t ref_form_bytes(const ops_device *dev, const ops_matrix *shape)
{
    (void)dev;
    (void)shape;
    return 0;
}

static void ref_form(ops_device *dev, ops_matrix *const *matrices, void *const *memory, size_t n)
{
    (void)dev;
    (void)matrices;
    (void)memory;
    (void)n;
}

const ops_backend ref_backend = {
    .name = "ref",
    .description = "plain C reference, any processor",
    .numerics = "exact-1",
    .available = always,
    .open = ref_open,
    .close = ref_close,
    .n_threads = ref_n_threads,
    .sync = ref_sync,
    .mem_alloc = ref_mem_alloc,
    .mem_free = ref_mem_free,
    .upload = ref_copy,
    .download = ref_copy,
    .copy = ref_copy,
    .weight_load = ref_weight_load,
    .weight_free = ref_weight_free,
    .form_bytes = ref_form_bytes,
    .form = ref_form,
    .embed = ref_embed,
    .seam_open = ref_seam_open,
    .seam_close = ref_seam_close,
    .engram = ref_engram,
    .attn_in = ref_attn_in,
    .compress = ref_compress,
    .query = ref_query,
    .index = ref_index,
    .attend = ref_attend,
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
