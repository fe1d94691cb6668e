/* cu_linear.c - the stages that are mostly dense products: attention inputs, query, output projection, router, head (model.md 3.7 to
 * 3.9). Each is a chain of launches on the device's stream: activations to the Q8 grid where the weights are quantised, the product, the
 * rest of the row's work. */
#include "cuda/cu_int.h"

#include <stddef.h>

static cu_linear job(const ops_matrix *w, const bf16 *x)
{
    const cu_packed *p = cu_packed_of(w);
    return (cu_linear){.packed = p->bytes,
                       .n_out = (int32_t)p->n_out,
                       .n_in = (int32_t)p->n_in,
                       .split = cu_split(p->format, p->n_out, p->n_in),
                       .x = x,
                       .ldx = p->n_in,
                       .ldy = p->n_out};
}

static cu_linear job16(const ops_matrix *w, const bf16 *x, bf16 *y)
{
    cu_linear j = job(w, x);
    j.y16 = y;
    return j;
}

static cu_linear job32(const ops_matrix *w, const bf16 *x, float *y)
{
    cu_linear j = job(w, x);
    j.y32 = y;
    return j;
}

static size_t rows_bytes(int32_t n_rows, int32_t n, size_t size) { return cu_scratch_bytes((size_t)n_rows * (size_t)n * size); }

/* The products and formats that a stage needs; a matrix that was never loaded, or in another form, is refused. */
static bool has_form(cu_device *dev, const char *stage, const ops_matrix *w, ops_format format)
{
    if (cu_packed_of(w) == NULL || w->format != format) {
        cu_refuse(dev, stage, "a matrix is not loaded, or not stored as in the released checkpoint");
        return false;
    }
    return true;
}

void cu_attn_in(ops_device *device, const ops_attn_in_args *a)
{
    cu_device *dev = cu_of(device);
    size_t bytes = rows_bytes(a->n_rows, a->hidden, 2) + rows_bytes(a->n_rows, a->q_lora, 2) + rows_bytes(a->n_rows, a->head_dim, 2);
    if (!cu_stage_begin(dev, bytes) || !has_form(dev, "attn_in", a->wq_a, OPS_FP8) || !has_form(dev, "attn_in", a->wkv, OPS_FP8)) {
        return;
    }
    bf16 *x = cu_scratch(dev, (size_t)a->n_rows * (size_t)a->hidden * 2);
    bf16 *q = cu_scratch(dev, (size_t)a->n_rows * (size_t)a->q_lora * 2);
    bf16 *kv = cu_scratch(dev, (size_t)a->n_rows * (size_t)a->head_dim * 2);
    cu_linear_set set = {.jobs = {job16(a->wq_a, x, q), job16(a->wkv, x, kv)}, .n_jobs = 2, .n_rows = a->n_rows, .format = CU_FP8};
    cu_attn_rows rows = {.n_rows = a->n_rows, .q_lora = a->q_lora, .head_dim = a->head_dim, .rope_dim = a->rope_dim, .eps = a->norm_eps,
                         .q = q, .kv = kv, .pos = a->pos, .rope = a->rope, .q_norm = a->q_norm, .kv_norm = a->kv_norm, .qr = a->qr,
                         .packed = a->kv};
    (void)(cu_ok(dev, cu_launch_quantise(a->u, x, a->n_rows, a->hidden, dev->stream), "attn_in") &&
           cu_ok(dev, cu_launch_linear(&set, dev->n_sms, dev->stream), "attn_in") &&
           cu_ok(dev, cu_launch_attn_rows(&rows, dev->stream), "attn_in"));
}

void cu_query(ops_device *device, const ops_query_args *a)
{
    cu_device *dev = cu_of(device);
    if (!cu_stage_begin(dev, rows_bytes(a->n_rows, a->q_lora, 2)) || !has_form(dev, "query", a->wq_b, OPS_FP8)) {
        return;
    }
    bf16 *x = cu_scratch(dev, (size_t)a->n_rows * (size_t)a->q_lora * 2);
    cu_linear_set set = {.jobs = {job16(a->wq_b, x, a->q)}, .n_jobs = 1, .n_rows = a->n_rows, .format = CU_FP8};
    cu_rotate rotate = {.n_rows = a->n_rows, .n_heads = a->n_heads, .head_dim = a->head_dim, .rope_dim = a->rope_dim, .pos = a->pos,
                        .rope = a->rope, .q = a->q};
    (void)(cu_ok(dev, cu_launch_quantise(a->qr, x, a->n_rows, a->q_lora, dev->stream), "query") &&
           cu_ok(dev, cu_launch_linear(&set, dev->n_sms, dev->stream), "query") &&
           cu_ok(dev, cu_launch_rotate(&rotate, dev->stream), "query"));
}

void cu_attn_out(ops_device *device, const ops_attn_out_args *a)
{
    cu_device *dev = cu_of(device);
    int32_t low = a->n_groups * a->o_lora;
    if (!cu_stage_begin(dev, rows_bytes(a->n_rows, low, 2)) || !has_form(dev, "attn_out", a->wo_a, OPS_FP8) ||
        !has_form(dev, "attn_out", a->wo_b, OPS_FP8)) {
        return;
    }
    if (a->o_lora % 64 != 0) {
        cu_refuse(dev, "attn_out", "o_lora is no multiple of 64");
        return;
    }
    bf16 *x = cu_scratch(dev, (size_t)a->n_rows * (size_t)low * 2);
    cu_linear_set down = {.jobs = {job16(a->wo_a, a->o, a->low)}, .n_jobs = 1, .n_rows = a->n_rows, .format = CU_FP8};
    down.jobs[0].group_rows = a->o_lora;
    down.jobs[0].ldx = (int64_t)a->n_groups * a->group_in;
    cu_linear_set up = {.jobs = {job16(a->wo_b, x, a->y)}, .n_jobs = 1, .n_rows = a->n_rows, .format = CU_FP8};
    (void)(cu_ok(dev, cu_launch_linear(&down, dev->n_sms, dev->stream), "attn_out") &&
           cu_ok(dev, cu_launch_quantise(a->low, x, a->n_rows, low, dev->stream), "attn_out") &&
           cu_ok(dev, cu_launch_linear(&up, dev->n_sms, dev->stream), "attn_out"));
}

void cu_router(ops_device *device, const ops_router_args *a)
{
    cu_device *dev = cu_of(device);
    if (!cu_stage_begin(dev, rows_bytes(a->n_rows, a->n_experts, 4)) || !has_form(dev, "router", a->gate, OPS_BF16)) {
        return;
    }
    if (a->n_experts > CU_MAX_EXPERTS || a->n_active > 32) {
        cu_refuse(dev, "router", "more than 512 experts, or 32 active ones");
        return;
    }
    float *logits = cu_scratch(dev, (size_t)a->n_rows * (size_t)a->n_experts * 4);
    cu_linear_set set = {.jobs = {job32(a->gate, a->u, logits)}, .n_jobs = 1, .n_rows = a->n_rows, .format = CU_BF16};
    cu_route route = {.n_rows = a->n_rows, .n_experts = a->n_experts, .n_active = a->n_active, .scale = a->routed_scale, .logits = logits,
                      .is_text = a->is_text, .bias = a->bias, .bias_vl = a->bias_vl, .ids = a->ids, .weights = a->weights};
    (void)(cu_ok(dev, cu_launch_linear(&set, dev->n_sms, dev->stream), "router") &&
           cu_ok(dev, cu_launch_route(&route, dev->stream), "router"));
}

void cu_head(ops_device *device, const ops_head_args *a)
{
    cu_device *dev = cu_of(device);
    if (!cu_stage_begin(dev, 0) || !has_form(dev, "head", a->head, OPS_BF16)) {
        return;
    }
    cu_linear_set set = {.jobs = {job32(a->head, a->h, a->logits)}, .n_jobs = 1, .n_rows = a->n_rows, .format = CU_BF16};
    cu_ok(dev, cu_launch_linear(&set, dev->n_sms, dev->stream), "head");
}
