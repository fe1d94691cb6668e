/* mdl_block.c - the stages that a block of the backbone and one of the draft have alike (model.md 3.3-3.10, dspark.md 1.6).
 *
 * Their arguments are put together here once, from the configuration, the runner's buffers and the block's weights. What differs stays
 * with the caller: what attention sees, which rows go on, what is traced. */
#include "model/model_int.h"

void mdl_block_seam_open(mdl_runner *r, int32_t n_rows, const mdl_mhc_weights *hc, const float *norm, const float *pre_in, float *pre,
                         bf16 *u)
{
    r->ops->seam_open(r->dev, &(ops_seam_open_args){.n_rows = n_rows,
                                                   .hc = r->c->hc,
                                                   .hidden = r->c->hidden,
                                                   .iters = r->c->hc_iters,
                                                   .hc_eps = r->c->hc_eps,
                                                   .norm_eps = r->c->norm_eps,
                                                   .x = r->b.x,
                                                   .pre_in = pre_in,
                                                   .fn = hc != NULL ? &hc->fn : NULL,
                                                   .base = hc != NULL ? hc->base : NULL,
                                                   .scale = hc != NULL ? hc->scale : NULL,
                                                   .norm = norm,
                                                   .pre = pre,
                                                   .post = r->b.post,
                                                   .comb = r->b.comb,
                                                   .u = u});
}

void mdl_block_seam_close(mdl_runner *r, int32_t n_rows)
{
    r->ops->seam_close(r->dev, &(ops_seam_close_args){.n_rows = n_rows,
                                                     .hc = r->c->hc,
                                                     .hidden = r->c->hidden,
                                                     .y = r->b.y,
                                                     .post = r->b.post,
                                                     .comb = r->b.comb,
                                                     .x = r->b.x});
}

void mdl_block_attn_in(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, const float *rope)
{
    const mdl_config *const c = r->c;
    r->ops->attn_in(r->dev, &(ops_attn_in_args){.n_rows = n_rows,
                                               .hidden = c->hidden,
                                               .q_lora = c->q_lora,
                                               .head_dim = c->head_dim,
                                               .rope_dim = c->rope_dim,
                                               .norm_eps = c->norm_eps,
                                               .u = r->b.u,
                                               .pos = r->b.pos,
                                               .rope = rope,
                                               .wq_a = &w->wq_a,
                                               .q_norm = w->q_norm,
                                               .wkv = &w->wkv,
                                               .kv_norm = w->kv_norm,
                                               .qr = r->b.qr,
                                               .kv = r->b.kv});
}

void mdl_block_query(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, const float *rope)
{
    const mdl_config *const c = r->c;
    r->ops->query(r->dev, &(ops_query_args){.n_rows = n_rows,
                                           .q_lora = c->q_lora,
                                           .n_heads = c->n_heads,
                                           .head_dim = c->head_dim,
                                           .rope_dim = c->rope_dim,
                                           .qr = r->b.qr,
                                           .pos = r->b.pos,
                                           .rope = rope,
                                           .wq_b = &w->wq_b,
                                           .q = r->b.q});
}

void mdl_block_attn_out(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w)
{
    const mdl_config *const c = r->c;
    r->ops->attn_out(r->dev, &(ops_attn_out_args){.n_rows = n_rows,
                                                 .n_groups = c->o_groups,
                                                 .group_in = c->n_heads * c->head_dim / c->o_groups,
                                                 .o_lora = c->o_lora,
                                                 .hidden = c->hidden,
                                                 .o = r->b.o,
                                                 .wo_a = &w->wo_a,
                                                 .wo_b = &w->wo_b,
                                                 .low = r->b.low,
                                                 .y = r->b.y});
}

static void route(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, int32_t n_active, int32_t *ids, float *weights)
{
    r->ops->router(r->dev, &(ops_router_args){.n_rows = n_rows,
                                             .hidden = r->c->hidden,
                                             .n_experts = w->n_experts,
                                             .n_active = n_active,
                                             .routed_scale = r->c->routed_scale,
                                             .u = r->b.u,
                                             .is_text = r->b.is_text,
                                             .gate = &w->gate,
                                             .bias = w->gate_bias,
                                             .bias_vl = w->gate_bias_vl,
                                             .ids = ids,
                                             .weights = weights});
}

void mdl_block_router(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, int32_t n_active)
{
    route(r, n_rows, w, n_active, r->b.expert_ids, r->b.expert_weights);
}

void mdl_block_guess(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, int32_t layer, int32_t n_active)
{
    enum { MOST_ROWS = 8, MOST = 256 }; /* what many rows need is most of what there is */
    int32_t ids[MOST];
    const size_t n = (size_t)n_rows * (size_t)n_active;
    if (r->stream == NULL || n_rows > MOST_ROWS || n > MOST) {
        return;
    }
    route(r, n_rows, w, n_active, r->b.guess_ids, r->b.guess_weights);
    r->ops->download(r->dev, ids, r->b.guess_ids, n * sizeof *ids);
    mdl_stream_guess(r->stream, layer, ids, n);
}

void mdl_block_experts(mdl_runner *r, int32_t n_rows, const mdl_layer_weights *w, int32_t layer, int32_t n_active)
{
    r->ops->experts(r->dev, &(ops_experts_args){.n_rows = n_rows,
                                               .hidden = r->c->hidden,
                                               .inter = r->c->moe_inter,
                                               .n_experts = w->n_experts,
                                               .n_active = n_active,
                                               .swiglu_limit = r->c->swiglu_limit,
                                               .u = r->b.u,
                                               .ids = r->b.expert_ids,
                                               .weights = r->b.expert_weights,
                                               .experts = r->stream == NULL ? r->experts[layer] : NULL,
                                               .feed = r->stream != NULL ? mdl_stream_layer(r->stream, layer) : NULL,
                                               .shared = {.w1 = &w->shared.w1, .w2 = &w->shared.w2, .w3 = &w->shared.w3},
                                               .y = r->b.y});
}
