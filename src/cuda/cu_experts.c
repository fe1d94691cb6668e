/* cu_experts.c - the experts stage: the device's table of a layer's experts, work memory, launch (kernels/experts.cu). */
#include "core/arith.h"
#include "cuda/cu_int.h"

#include <cuda_runtime_api.h>

#define NOT_LOADED "a matrix is not loaded, or not stored as in the released checkpoint"

static const uint8_t *bytes_of(const ops_matrix *w, ops_format format, int64_t n_out, int64_t n_in)
{
    const cu_packed *p = cu_packed_of(w);
    return p != NULL && p->format == format && p->n_out == n_out && p->n_in == n_in ? p->bytes : NULL;
}

static cu_expert expert_of(const ops_expert *e, ops_format format, const ops_experts_args *a)
{
    return (cu_expert){.w1 = bytes_of(e->w1, format, a->inter, a->hidden),
                       .w2 = bytes_of(e->w2, format, a->hidden, a->inter),
                       .w3 = bytes_of(e->w3, format, a->inter, a->hidden)};
}

static bool is_whole(const cu_expert *e) { return e->w1 != NULL && e->w2 != NULL && e->w3 != NULL; }

/* The layer's table, made and uploaded at its first use. NULL after a failure. */
static const cu_expert *table_of(cu_device *dev, const ops_experts_args *a)
{
    for (const cu_expert_table *t = dev->tables; t != NULL; t = t->next) {
        if (t->key == a->experts) {
            return t->experts;
        }
    }
    size_t n = (size_t)a->n_experts;
    cu_expert_table *table = ar_calloc(1, sizeof *table);
    cu_expert *host = ar_calloc(n, sizeof *host);
    void *memory = NULL;
    if (table == NULL || host == NULL) {
        cu_ok(dev, (int)cudaErrorMemoryAllocation, "table of experts");
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        host[i] = expert_of(&a->experts[i], OPS_FP4, a);
        if (!is_whole(&host[i])) {
            cu_refuse(dev, "experts", NOT_LOADED);
            goto out;
        }
    }
    if (!cu_ok(dev, (int)cudaMalloc(&memory, n * sizeof *host), "table of experts") ||
        !cu_ok(dev, (int)cudaMemcpyAsync(memory, host, n * sizeof *host, cudaMemcpyHostToDevice, dev->stream), "table of experts") ||
        !cu_ok(dev, (int)cudaStreamSynchronize(dev->stream), "table of experts")) {
        goto out;
    }
    *table = (cu_expert_table){.next = dev->tables, .key = a->experts, .experts = memory};
    dev->tables = table;
    free(host);
    return table->experts;
out:
    cudaFree(memory);
    free(table);
    free(host);
    return NULL;
}

void cu_experts(ops_device *device, const ops_experts_args *a)
{
    cu_device *dev = cu_of(device);
    size_t rows = (size_t)a->n_rows;
    size_t routed = rows * (size_t)a->n_active;
    size_t all = routed + rows;
    const size_t sizes[] = {rows * (size_t)a->hidden * 2,    all * (size_t)a->inter * 2, all * (size_t)a->hidden * 2,
                            routed * sizeof(cu_token_block), all * sizeof(uint32_t),     2 * sizeof(uint32_t)};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bytes += cu_scratch_bytes(sizes[i]);
    }
    if (!cu_stage_begin(dev, bytes)) {
        return;
    }
    if (a->hidden % 256 != 0 || a->inter % 256 != 0 || a->n_experts > CU_MAX_EXPERTS) {
        cu_refuse(dev, "experts", "sizes are no multiples of 256, or more than 512 experts");
        return;
    }
    cu_experts_args args = {.n_rows = a->n_rows, .hidden = a->hidden, .inter = a->inter, .n_experts = a->n_experts, .n_active = a->n_active,
                            .limit = a->swiglu_limit, .u = a->u, .ids = a->ids, .weights = a->weights, .y = a->y};
    args.shared = expert_of(&a->shared, OPS_FP8, a);
    if (!is_whole(&args.shared)) {
        cu_refuse(dev, "experts", NOT_LOADED);
        return;
    }
    args.experts = table_of(dev, a);
    if (args.experts == NULL) {
        return;
    }
    cu_experts_work *w = &args.work;
    w->x = cu_scratch(dev, sizes[0]);
    w->h = cu_scratch(dev, sizes[1]);
    w->out = cu_scratch(dev, sizes[2]);
    w->blocks = cu_scratch(dev, sizes[3]);
    w->done = cu_scratch(dev, sizes[4]);
    w->counters = cu_scratch(dev, sizes[5]);
    cu_ok(dev, cu_launch_experts(&args, dev->n_sms, dev->stream), "experts");
}
