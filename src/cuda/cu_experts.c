/* cu_experts.c - the experts stage: the device's table of a layer's experts, work memory, launches. Experts whose matrices have tiles take
 * the kernel that streams each needed weight once (kernels/experts.cu), with many tokens those of kernels/experts_many.cu; others the
 * products of kernels/plain.cu. Which it is never shows in a result: with tiles or without follows from the sizes of the layer alone. */
#include "core/arith.h"
#include "cuda/cu_int.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

#define NOT_LOADED "a matrix is not loaded, or not stored as in the released checkpoint"

static const cu_packed *matrix_of(const ops_matrix *w, ops_format format, int64_t n_out, int64_t n_in)
{
    const cu_packed *p = cu_packed_of(w);
    return p != NULL && p->format == format && p->n_out == n_out && p->n_in == n_in ? p : NULL;
}

/* The three matrices of an expert, all of one form. False when one is missing. */
static bool matrices_of(const ops_expert *e, ops_format format, const ops_experts_args *a, const cu_packed *out[3])
{
    out[0] = matrix_of(e->w1, format, a->inter, a->hidden);
    out[1] = matrix_of(e->w2, format, a->hidden, a->inter);
    out[2] = matrix_of(e->w3, format, a->inter, a->hidden);
    return out[0] != NULL && out[1] != NULL && out[2] != NULL;
}

/* Entry i of a table. False when a matrix is missing, or its form is another one. */
static bool fill_entry(void *entries, size_t i, bool tiles, const cu_packed *w[3])
{
    if (w[0]->tiles != tiles || w[1]->tiles != tiles || w[2]->tiles != tiles) {
        return false;
    }
    if (tiles) {
        ((cu_expert *)entries)[i] = (cu_expert){.w1 = w[0]->data, .w2 = w[1]->data, .w3 = w[2]->data};
        return true;
    }
    for (int k = 0; k < 3; k++) {
        ((cu_plain_expert *)entries)[i].w[k] = (cu_plain_weight){.data = w[k]->data, .scale = w[k]->scale};
    }
    return true;
}

/* The layer's table, made and uploaded at its first use. NULL after a failure. */
static const cu_expert_table *table_of(cu_device *dev, const ops_experts_args *a)
{
    for (const cu_expert_table *t = dev->tables; t != NULL; t = t->next) {
        if (t->key == a->experts) {
            return t;
        }
    }
    const size_t n = (size_t)a->n_experts;
    const cu_packed *w[3];
    if (n == 0 || !matrices_of(&a->experts[0], OPS_FP4, a, w)) {
        cu_refuse(dev, "experts", NOT_LOADED);
        return NULL;
    }
    const bool tiles = w[0]->tiles;
    const size_t bytes = n * (tiles ? sizeof(cu_expert) : sizeof(cu_plain_expert));
    cu_expert_table *table = ar_calloc(1, sizeof *table);
    void *host = ar_calloc(bytes, 1);
    void *memory = NULL;
    if (table == NULL || host == NULL) {
        cu_ok(dev, (int)cudaErrorMemoryAllocation, "table of experts");
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        if (!matrices_of(&a->experts[i], OPS_FP4, a, w) || !fill_entry(host, i, tiles, w)) {
            cu_refuse(dev, "experts", NOT_LOADED);
            goto out;
        }
    }
    if (!cu_ok(dev, (int)cudaMalloc(&memory, bytes), "table of experts") ||
        !cu_ok(dev, (int)cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, dev->stream), "table of experts") ||
        !cu_ok(dev, (int)cudaStreamSynchronize(dev->stream), "table of experts")) {
        goto out;
    }
    *table = (cu_expert_table){.next = dev->tables, .key = a->experts, .experts = memory, .tiles = tiles};
    dev->tables = table;
    free(host);
    return table;
out:
    cudaFree(memory);
    free(table);
    free(host);
    return NULL;
}

/* Sum of n pieces of scratch. */
static size_t sum_of(const size_t *sizes, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += cu_scratch_bytes(sizes[i]);
    }
    return bytes;
}

/* The stage's arguments, without work memory. False when a matrix of the shared expert is missing. */
static bool tiled_args(const ops_experts_args *a, const cu_expert_table *table, cu_experts_args *args)
{
    const cu_packed *w[3];
    *args = (cu_experts_args){.n_rows = a->n_rows, .hidden = a->hidden, .inter = a->inter, .n_experts = a->n_experts,
                              .n_active = a->n_active, .limit = a->swiglu_limit, .u = a->u, .ids = a->ids, .weights = a->weights,
                              .experts = table->experts, .y = a->y};
    return matrices_of(&a->shared, OPS_FP8, a, w) && fill_entry(&args->shared, 0, true, w);
}

static bool begin_tiled(cu_device *dev, const ops_experts_args *a, const cu_expert_table *table, size_t bytes, cu_experts_args *args)
{
    if (!cu_stage_begin(dev, bytes)) {
        return false;
    }
    if (!tiled_args(a, table, args)) {
        cu_refuse(dev, "experts", NOT_LOADED);
        return false;
    }
    return true;
}

static void tiled_experts(cu_device *dev, const ops_experts_args *a, const cu_expert_table *table)
{
    const size_t rows = (size_t)a->n_rows;
    const size_t routed = rows * (size_t)a->n_active;
    const size_t all = routed + rows;
    const size_t sizes[] = {rows * (size_t)a->hidden * 2,    all * (size_t)a->inter * 2, all * (size_t)a->hidden * 2,
                            routed * sizeof(cu_token_block), all * sizeof(uint32_t),     2 * sizeof(uint32_t)};
    cu_experts_args args;
    if (!begin_tiled(dev, a, table, sum_of(sizes, sizeof sizes / sizeof sizes[0]), &args)) {
        return;
    }
    cu_experts_work *work = &args.work;
    work->x = cu_scratch(dev, sizes[0]);
    work->h = cu_scratch(dev, sizes[1]);
    work->out = cu_scratch(dev, sizes[2]);
    work->blocks = cu_scratch(dev, sizes[3]);
    work->done = cu_scratch(dev, sizes[4]);
    work->counters = cu_scratch(dev, sizes[5]);
    cu_ok(dev, cu_launch_experts(&args, dev->n_sms, dev->stream), "experts");
}

/* Many tokens (kernels/experts_many.cu). The bits are those of tiled_experts. */
static void many_experts(cu_device *dev, const ops_experts_args *a, const cu_expert_table *table)
{
    const size_t packed = (size_t)cu_many_rows(a->n_rows, a->n_active, a->n_experts);
    const size_t blocks = (size_t)cu_many_blocks(a->n_rows, a->n_active, a->n_experts);
    const size_t all = (size_t)a->n_rows * (size_t)(a->n_active + 1);
    const size_t sizes[] = {packed * (size_t)a->hidden * 2, packed * (size_t)a->inter * 2, all * (size_t)a->hidden * 2,
                            packed * sizeof(int32_t),       packed * sizeof(float),
                            blocks * CU_MANY_CLASSES * sizeof(cu_many_block), (CU_MANY_CLASSES + 1) * sizeof(uint32_t)};
    cu_experts_args args;
    if (!begin_tiled(dev, a, table, sum_of(sizes, sizeof sizes / sizeof sizes[0]), &args)) {
        return;
    }
    cu_experts_work *work = &args.work;
    work->packed_x = cu_scratch(dev, sizes[0]);
    work->packed_h = cu_scratch(dev, sizes[1]);
    work->out = cu_scratch(dev, sizes[2]);
    work->slots = cu_scratch(dev, sizes[3]);
    work->slot_weight = cu_scratch(dev, sizes[4]);
    work->many = cu_scratch(dev, sizes[5]);
    work->counters = cu_scratch(dev, sizes[6]);
    work->most_rows = (int32_t)packed;
    work->most_blocks = (int32_t)blocks;
    cu_ok(dev, cu_launch_experts_many(&args, dev->n_sms, dev->stream), "experts");
}

/* Work memory of experts without tiles. */
typedef struct plain_work {
    bf16 *x;      /* [rows, hidden] Q8 values */
    float *gate;  /* [assignments, inter] */
    float *up;    /* [assignments, inter] */
    bf16 *h;      /* [assignments, inter] */
    bf16 *out;    /* [assignments, hidden] */
    bf16 *shared; /* [rows, hidden] */
    int32_t *start;
    int32_t *row;
    float *weight;
    int32_t *place;
} plain_work;

static bool plain_shared(cu_device *dev, const ops_experts_args *a, const plain_work *w)
{
    const cu_product in[] = {{.w = a->shared.w1, .x = w->x, .y32 = w->gate}, {.w = a->shared.w3, .x = w->x, .y32 = w->up}};
    const cu_product out = {.w = a->shared.w2, .x = w->h, .y16 = w->shared};
    return cu_products(dev, "experts", in, 2, a->n_rows) &&
           cu_ok(dev, cu_launch_plain_activate(w->gate, w->up, NULL, a->swiglu_limit, a->n_rows, a->inter, w->h, dev->stream), "experts") &&
           cu_products(dev, "experts", &out, 1, a->n_rows);
}

static bool plain_routed(cu_device *dev, const ops_experts_args *a, const plain_work *w, const cu_plain_expert *experts)
{
    const int32_t n = a->n_rows * a->n_active;
    const cu_plain_sort sort = {.n_rows = a->n_rows, .n_active = a->n_active, .n_experts = a->n_experts, .ids = a->ids,
                                .weights = a->weights,
                                .start = w->start, .row = w->row, .weight = w->weight, .place = w->place};
    const cu_plain_experts gate = {.n_experts = a->n_experts, .n_out = a->inter, .n_in = a->hidden, .which = 0, .gather = true, .x = w->x,
                                   .start = w->start, .row = w->row, .experts = experts, .y32 = w->gate};
    cu_plain_experts up = gate;
    up.which = 2;
    up.y32 = w->up;
    const cu_plain_experts down = {.n_experts = a->n_experts, .n_out = a->hidden, .n_in = a->inter, .which = 1, .x = w->h,
                                   .start = w->start,
                                   .row = w->row, .experts = experts, .y16 = w->out};
    return cu_ok(dev, cu_launch_plain_sort(&sort, dev->stream), "experts") &&
           cu_ok(dev, cu_launch_plain_experts(&gate, dev->stream), "experts") &&
           cu_ok(dev, cu_launch_plain_experts(&up, dev->stream), "experts") &&
           cu_ok(dev, cu_launch_plain_activate(w->gate, w->up, w->weight, a->swiglu_limit, n, a->inter, w->h, dev->stream), "experts") &&
           cu_ok(dev, cu_launch_plain_experts(&down, dev->stream), "experts");
}

/* The shared expert first: it borrows the memory of the routed ones. */
static void plain_experts(cu_device *dev, const ops_experts_args *a, const cu_expert_table *table)
{
    const size_t rows = (size_t)a->n_rows;
    const size_t routed = rows * (size_t)a->n_active;
    const size_t hidden = (size_t)a->hidden;
    const size_t inter = (size_t)a->inter;
    const size_t sizes[] = {rows * hidden * 2,   routed * inter * 4, routed * inter * 4,
                            routed * inter * 2,  routed * hidden * 2, rows * hidden * 2,
                            ((size_t)a->n_experts + 1) * 4, routed * 4, routed * 4, routed * 4};
    const cu_packed *shared[3];
    if (!cu_stage_begin(dev, sum_of(sizes, sizeof sizes / sizeof sizes[0]))) {
        return;
    }
    if (!matrices_of(&a->shared, OPS_FP8, a, shared)) {
        cu_refuse(dev, "experts", NOT_LOADED);
        return;
    }
    plain_work w;
    w.x = cu_scratch(dev, sizes[0]);
    w.gate = cu_scratch(dev, sizes[1]);
    w.up = cu_scratch(dev, sizes[2]);
    w.h = cu_scratch(dev, sizes[3]);
    w.out = cu_scratch(dev, sizes[4]);
    w.shared = cu_scratch(dev, sizes[5]);
    w.start = cu_scratch(dev, sizes[6]);
    w.row = cu_scratch(dev, sizes[7]);
    w.weight = cu_scratch(dev, sizes[8]);
    w.place = cu_scratch(dev, sizes[9]);
    (void)(cu_ok(dev, cu_launch_quantise(a->u, w.x, a->n_rows, a->hidden, dev->stream), "experts") && plain_shared(dev, a, &w) &&
           plain_routed(dev, a, &w, table->experts) &&
           cu_ok(dev, cu_launch_plain_combine(w.out, w.shared, w.place, a->n_rows, a->n_active, a->hidden, a->y, dev->stream), "experts"));
}

void cu_experts(ops_device *device, const ops_experts_args *a)
{
    cu_device *dev = cu_of(device);
    cu_select(dev);
    if (a->n_rows == 0 || dev->error.code != DI_OK) {
        return;
    }
    if (a->hidden % 32 != 0 || a->inter % 32 != 0 || a->n_experts > CU_MAX_EXPERTS) {
        cu_refuse(dev, "experts", "sizes are no multiples of 32, or more than 512 experts");
        return;
    }
    const cu_expert_table *table = table_of(dev, a);
    if (table != NULL && table->tiles && dev->hopper && a->n_rows >= CU_MANY_ROWS_EXPERTS) {
        many_experts(dev, a, table);
    } else if (table != NULL && table->tiles) {
        tiled_experts(dev, a, table);
    } else if (table != NULL) {
        plain_experts(dev, a, table);
    }
}
