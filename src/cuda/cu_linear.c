/* cu_linear.c - the stages that are mostly dense products: attention inputs, query, output projection, router, head (model.md 3.7 to
 * 3.9). Each is a chain of launches on the device's stream: activations to the Q8 grid where the weights are quantised, the product, the
 * rest of the row's work. */
#include "cuda/cu_int.h"

#include <stddef.h>

#define MOST_ROPE 512 /* of kernels/rows.cu */

static bool rope_fits(cu_device *dev, const char *stage, int32_t rope_dim)
{
    if (rope_dim > MOST_ROPE) {
        cu_refuse(dev, stage, "more than 512 rotated channels");
        return false;
    }
    return true;
}

void cu_attn_in(ops_device *device, const ops_attn_in_args *a)
{
    cu_device *dev = cu_of(device);
    const size_t x_bytes = cu_rows_bytes(a->n_rows, a->hidden, 2);
    const size_t q_bytes = cu_rows_bytes(a->n_rows, a->q_lora, 2);
    const size_t kv_bytes = cu_rows_bytes(a->n_rows, a->head_dim, 2);
    if (a->n_rows == 0 || !cu_stage_begin(dev, x_bytes + q_bytes + kv_bytes) || !rope_fits(dev, "attn_in", a->rope_dim)) {
        return;
    }
    bf16 *x = cu_scratch(dev, x_bytes);
    bf16 *q = cu_scratch(dev, q_bytes);
    bf16 *kv = cu_scratch(dev, kv_bytes);
    cu_product products[2];
    size_t n = 0;
    if (a->wq_a != NULL) {
        products[n++] = (cu_product){.w = a->wq_a, .x = x, .y16 = q};
    }
    if (a->wkv != NULL) {
        products[n++] = (cu_product){.w = a->wkv, .x = x, .y16 = kv};
    }
    const cu_attn_rows rows = {.n_rows = a->n_rows, .q_lora = a->q_lora, .head_dim = a->head_dim, .rope_dim = a->rope_dim,
                               .eps = a->norm_eps,
                               .q = a->wq_a != NULL ? q : NULL, .kv = a->wkv != NULL ? kv : NULL, .pos = a->pos, .rope = a->rope,
                               .q_norm = a->q_norm, .kv_norm = a->kv_norm, .qr = a->qr, .packed = a->kv};
    (void)(cu_ok(dev, cu_launch_quantise(a->u, x, a->n_rows, a->hidden, dev->stream), "attn_in") &&
           cu_products(dev, "attn_in", products, n, a->n_rows) && cu_ok(dev, cu_launch_attn_rows(&rows, dev->stream), "attn_in"));
}

void cu_query(ops_device *device, const ops_query_args *a)
{
    cu_device *dev = cu_of(device);
    const size_t bytes = cu_rows_bytes(a->n_rows, a->q_lora, 2);
    if (a->n_rows == 0 || !cu_stage_begin(dev, bytes) || !rope_fits(dev, "query", a->rope_dim)) {
        return;
    }
    bf16 *x = cu_scratch(dev, bytes);
    const cu_product product = {.w = a->wq_b, .x = x, .y16 = a->q};
    const cu_rotate rotate = {.n_rows = a->n_rows, .n_heads = a->n_heads, .head_dim = a->head_dim, .rope_dim = a->rope_dim, .pos = a->pos,
                              .rope = a->rope, .q = a->q};
    (void)(cu_ok(dev, cu_launch_quantise(a->qr, x, a->n_rows, a->q_lora, dev->stream), "query") &&
           cu_products(dev, "query", &product, 1, a->n_rows) && cu_ok(dev, cu_launch_rotate(&rotate, dev->stream), "query"));
}

void cu_attn_out(ops_device *device, const ops_attn_out_args *a)
{
    cu_device *dev = cu_of(device);
    const int32_t low = a->n_groups * a->o_lora;
    const size_t bytes = cu_rows_bytes(a->n_rows, low, 2);
    if (dev->planning) {
        (void)cu_arranged_reserve(dev, a->n_rows, (int64_t)a->n_groups * a->group_in);
    }
    if (a->n_rows == 0 || !cu_stage_begin(dev, bytes)) {
        return;
    }
    bf16 *x = cu_scratch(dev, bytes);
    const cu_product down = {.w = a->wo_a, .x = a->o, .ldx = (int64_t)a->n_groups * a->group_in, .group_rows = a->o_lora, .y16 = a->low};
    const cu_product up = {.w = a->wo_b, .x = x, .y16 = a->y};
    (void)(cu_products(dev, "attn_out", &down, 1, a->n_rows) &&
           cu_ok(dev, cu_launch_quantise(a->low, x, a->n_rows, low, dev->stream), "attn_out") &&
           cu_products(dev, "attn_out", &up, 1, a->n_rows));
}

void cu_router(ops_device *device, const ops_router_args *a)
{
    cu_device *dev = cu_of(device);
    const size_t bytes = cu_rows_bytes(a->n_rows, a->n_experts, 4);
    if (a->n_rows == 0 || !cu_stage_begin(dev, bytes)) {
        return;
    }
    if (a->n_experts > CU_MAX_EXPERTS || a->n_active > 32) {
        cu_refuse(dev, "router", "more than 512 experts, or 32 active ones");
        return;
    }
    float *logits = cu_scratch(dev, bytes);
    const cu_product product = {.w = a->gate, .x = a->u, .y32 = logits};
    const cu_route route = {.n_rows = a->n_rows, .n_experts = a->n_experts, .n_active = a->n_active, .scale = a->routed_scale,
                            .logits = logits,
                            .is_text = a->is_text, .bias = a->bias, .bias_vl = a->bias_vl, .ids = a->ids, .weights = a->weights};
    (void)(cu_products(dev, "router", &product, 1, a->n_rows) && cu_ok(dev, cu_launch_route(&route, dev->stream), "router"));
}

void cu_head(ops_device *device, const ops_head_args *a)
{
    cu_device *dev = cu_of(device);
    const cu_product product = {.w = a->head, .x = a->h, .y32 = a->logits};
    if (a->n_rows > 0 && cu_stage_begin(dev, 0)) {
        cu_products(dev, "head", &product, 1, a->n_rows);
    }
}
