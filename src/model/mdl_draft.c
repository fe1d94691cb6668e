/* mdl_draft.c - the draft model: its context out of the backbone's taps, and the forward pass of a block (dspark.md 1.3-1.8). Read it
 * beside those sections.
 *
 * Context rows are written for every row that passes the last tap layer, drafts under verification included: rings have room for rows that
 * are taken back (mdl_seq_rewind), and a block sees only rows before its anchor. A prompt's rows that stop early leave a window's worth
 * at the last tap layer, which is all that a block ever sees (4.3).
 *
 * While nobody proposes, passes may do without (mdl_draft_rest): blocks then see no row before the last of these passes, and as a block
 * sees a window of rows at most, they are what they would have been as soon as that many have run since. */
#include "core/core.h"
#include "model/model_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int32_t mdl_draft_block(const mdl_runner *r) { return r->draft ? r->c->draft.block_size : 0; }
int32_t mdl_draft_most(const mdl_runner *r) { return r->draft ? r->max_rows / r->c->draft.block_size : 0; }

void mdl_draft_rest(mdl_runner *r, bool rest) { r->draft_rests = rest && r->draft; }

/* ---- context (1.3, 1.4) ---- */

/* main_x = rmsnorm(main_proj(taps), main_norm). */
static void make_main_x(mdl_runner *r, int32_t n_rows)
{
    const mdl_config *const c = r->c;
    r->ops->attn_in(r->dev, &(ops_attn_in_args){.n_rows = n_rows,
                                               .hidden = c->draft.n_taps * c->hidden,
                                               .q_lora = c->hidden,
                                               .norm_eps = c->norm_eps,
                                               .u = r->b.taps,
                                               .wq_a = &r->w.draft.main_proj,
                                               .q_norm = r->w.draft.main_norm,
                                               .qr = r->b.main_x});
    mdl_trace_send(r, -1, "main_x", DI_BF16, r->b.main_x, 2, n_rows, c->hidden, 0);
}

/* Each stage's row of a committed token comes from the same main_x. */
static void write_context(mdl_runner *r, int32_t n_rows, int32_t n_items)
{
    const mdl_config *const c = r->c;
    for (int32_t s = 0; s < c->draft.n_stages; s++) {
        const mdl_layer_weights *const w = &r->w.draft.stages[s];
        r->ops->attn_in(r->dev, &(ops_attn_in_args){.n_rows = n_rows,
                                                   .hidden = c->hidden,
                                                   .head_dim = c->head_dim,
                                                   .rope_dim = c->rope_dim,
                                                   .norm_eps = c->norm_eps,
                                                   .u = r->b.main_x,
                                                   .pos = r->b.pos,
                                                   .rope = r->rope_plain,
                                                   .wkv = &w->wkv,
                                                   .kv_norm = w->kv_norm,
                                                   .kv = r->b.kv});
        r->ops->window_store(r->dev, &(ops_window_store_args){.n_seqs = n_items,
                                                             .seqs = r->seqs,
                                                             .ring_slots = r->layout.ring_slots,
                                                             .row_bytes = (int32_t)r->layout.window_row_bytes,
                                                             .ring_offset = r->layout.draft_ring_offset[s],
                                                             .kv = r->b.kv});
    }
}

void mdl_draft_tap(mdl_runner *r, int32_t layer, int32_t n_rows, int32_t n_items)
{
    const mdl_config *const c = r->c;
    const int64_t width = (int64_t)c->draft.n_taps * c->hidden;
    int32_t before = 0; /* taps of earlier layers: ascending order, whatever that of the ids is */
    bool tapped = false;
    for (int32_t i = 0; r->draft && !r->draft_rests && i < c->draft.n_taps; i++) {
        before += c->draft.taps[i] < layer;
        tapped = tapped || c->draft.taps[i] == layer;
    }
    if (!tapped) {
        return;
    }
    r->ops->tap(r->dev, &(ops_tap_args){.n_rows = n_rows,
                                       .hc = c->hc,
                                       .hidden = c->hidden,
                                       .ld = width,
                                       .x = r->b.x,
                                       .out = r->b.taps + (size_t)before * (size_t)c->hidden});
    if (before == c->draft.n_taps - 1) {
        mdl_trace_send(r, -1, "taps", DI_BF16, r->b.taps, 2, n_rows, width, 0);
        make_main_x(r, n_rows);
        write_context(r, n_rows, n_items);
    }
}

/* ---- the block (1.6) ---- */

static void trace_stage(mdl_runner *r, int32_t stage, const char *name, di_dtype dtype, const void *data, int32_t n_dims, int64_t d1,
                        int64_t d2)
{
    char full[32];
    (void)snprintf(full, sizeof full, "stage%d.%s", stage, name);
    mdl_trace_send(r, -1, full, dtype, data, n_dims, (int64_t)r->n_blocks * r->c->draft.block_size, d1, d2);
}

static void block_attention(mdl_runner *r, int32_t n_rows, int32_t stage)
{
    const mdl_config *const c = r->c;
    const mdl_layer_weights *const w = &r->w.draft.stages[stage];
    mdl_block_attn_in(r, n_rows, w, r->rope_plain);
    mdl_block_query(r, n_rows, w, r->rope_plain);
    r->ops->draft_attend(r->dev, &(ops_draft_attend_args){.n_seqs = r->n_blocks,
                                                         .seqs = r->seqs,
                                                         .n_heads = c->n_heads,
                                                         .head_dim = c->head_dim,
                                                         .rope_dim = c->rope_dim,
                                                         .window = c->window,
                                                         .ring_slots = r->layout.ring_slots,
                                                         .scale = (float)(1.0 / sqrt((double)c->head_dim)),
                                                         .q = r->b.q,
                                                         .kv = r->b.kv,
                                                         .ring_offset = r->layout.draft_ring_offset[stage],
                                                         .sink = w->attn_sink,
                                                         .rope = r->rope_plain,
                                                         .o = r->b.o});
    mdl_block_attn_out(r, n_rows, w);
}

/* Drafts are text, also behind images: is_text is 1 in every row, and bias_vl never used. */
static void block_experts(mdl_runner *r, int32_t n_rows, int32_t stage)
{
    const int32_t n_active = r->c->draft.n_active_experts;
    const mdl_layer_weights *const w = &r->w.draft.stages[stage];
    mdl_block_router(r, n_rows, w, n_active);
    trace_stage(r, stage, "router_ids", DI_I32, r->b.expert_ids, 2, n_active, 0);
    mdl_block_experts(r, n_rows, w, r->c->n_layers + stage, n_active);
}

static void block_stage(mdl_runner *r, int32_t n_rows, int32_t stage)
{
    const mdl_layer_weights *const w = &r->w.draft.stages[stage];
    mdl_block_seam_open(r, n_rows, &w->hc_attn, w->attn_norm, r->b.pre, r->b.site_pre, r->b.u);
    block_attention(r, n_rows, stage);
    mdl_block_seam_close(r, n_rows);
    mdl_block_seam_open(r, n_rows, &w->hc_ffn, w->ffn_norm, r->b.site_pre, r->b.pre, r->b.u);
    block_experts(r, n_rows, stage);
    mdl_block_seam_close(r, n_rows);
    trace_stage(r, stage, "x_out", DI_BF16, r->b.x, 3, r->c->hc, r->c->hidden);
}

/* The first position whose context row is there. */
static int64_t context_from(const mdl_seq *seq)
{
    const int64_t from = seq->window_from > seq->decoder_from ? seq->window_from : seq->decoder_from;
    return from > seq->draft_from ? from : seq->draft_from;
}

/* ids = anchor, then the noise token; positions from the anchor's on. */
static void lay_out(mdl_runner *r, const mdl_seq *const *seqs, const int32_t *anchors, int32_t n)
{
    const int32_t block = r->c->draft.block_size;
    for (int32_t i = 0; i < n; i++) {
        const mdl_seq *const seq = seqs[i];
        r->seqs[i] = (ops_seq){.row0 = i * block,
                               .n_rows = block,
                               .pos0 = seq->n_tokens,
                               .window_from = context_from(seq),
                               .state = seq->state,
                               .pages = seq->pages};
        for (int32_t t = 0; t < block; t++) {
            r->host_ids[i * block + t] = t == 0 ? anchors[i] : r->c->draft.noise_token_id;
            r->host_pos[i * block + t] = seq->n_tokens + t;
            r->host_text[i * block + t] = 1;
        }
    }
    const size_t rows = (size_t)(n * block);
    r->ops->upload(r->dev, r->b.ids, r->host_ids, rows * sizeof(int32_t));
    r->ops->upload(r->dev, r->b.pos, r->host_pos, rows * sizeof(int64_t));
    r->ops->upload(r->dev, r->b.is_text, r->host_text, rows);
}

static di_status reserve(mdl_runner *r, int32_t n_rows, di_error *err)
{
    const di_status status = mdl_reserve_logits(r, n_rows, err);
    if (status != DI_OK || r->b.draft_logits != NULL) {
        return status;
    }
    const size_t bytes = (size_t)mdl_draft_most(r) * (size_t)r->c->vocab * sizeof(float);
    r->b.draft_logits = r->ops->mem_alloc(r->dev, bytes);
    return r->b.draft_logits != NULL ? DI_OK : err_memory(err, "draft logits", bytes);
}

di_status mdl_draft_begin(mdl_runner *r, const mdl_seq *const *seqs, const int32_t *anchors, int32_t n, di_error *err)
{
    const mdl_config *const c = r->c;
    const int32_t rows = n * c->draft.block_size;
    di_status status = reserve(r, rows, err);
    if (status != DI_OK) {
        return status;
    }
    r->failed = false;
    r->n_blocks = n;
    if (r->reader != NULL) {
        mdl_reader_begin(r->reader);
    }
    lay_out(r, seqs, anchors, n);
    r->ops->embed(r->dev, &(ops_embed_args){.n_rows = rows,
                                           .hc = c->hc,
                                           .hidden = c->hidden,
                                           .embed = &r->w.embed,
                                           .ids = r->b.ids,
                                           .x = r->b.x,
                                           .pre = r->b.pre});
    for (int32_t s = 0; s < c->draft.n_stages; s++) {
        block_stage(r, rows, s);
    }
    mdl_block_seam_open(r, rows, NULL, NULL, r->b.pre, NULL, r->b.head_hidden);
    mdl_trace_send(r, -1, "head_hidden", DI_BF16, r->b.head_hidden, 2, rows, c->hidden, 0);
    mdl_block_seam_open(r, rows, NULL, r->w.draft.norm, r->b.pre, NULL, r->b.u);
    r->ops->head(r->dev, &(ops_head_args){.n_rows = rows, .hidden = c->hidden, .head = &r->w.head, .h = r->b.u, .logits = r->b.logits});
    mdl_trace_send(r, -1, "base_logits", DI_F32, r->b.logits, 2, rows, c->vocab, 0);
    status = r->ops->sync(r->dev, err);
    return status == DI_OK && r->failed ? err_set(err, DI_E_MEMORY, "out of memory: trace of a draft") : status;
}

/* ---- Markov and confidence heads (1.7, 1.8) ---- */

di_status mdl_draft_step(mdl_runner *r, int32_t i, const int32_t *previous, float *logits, float *confidence, di_error *err)
{
    const mdl_config *const c = r->c;
    const mdl_draft_weights *const w = &r->w.draft;
    const size_t n = (size_t)r->n_blocks;
    r->ops->upload(r->dev, r->b.previous, previous, n * sizeof *previous);
    r->ops->markov(r->dev, &(ops_markov_args){.n_rows = r->n_blocks,
                                             .hidden = c->hidden,
                                             .rank = c->draft.markov_rank,
                                             .vocab = c->vocab,
                                             .ld_base = c->draft.block_size,
                                             .previous = r->b.previous,
                                             .h = r->b.head_hidden + (size_t)i * (size_t)c->hidden,
                                             .base = r->b.logits + (size_t)i * (size_t)c->vocab,
                                             .embed = &w->markov_embed,
                                             .head = &w->markov_head,
                                             .proj = &w->confidence_proj,
                                             .logits = r->b.draft_logits,
                                             .confidence = r->b.confidence});
    mdl_trace_send(r, -1, "logits", DI_F32, r->b.draft_logits, 2, r->n_blocks, c->vocab, 0);
    mdl_trace_send(r, -1, "confidence", DI_F32, r->b.confidence, 1, r->n_blocks, 0, 0);
    r->ops->download(r->dev, logits, r->b.draft_logits, n * (size_t)c->vocab * sizeof *logits);
    r->ops->download(r->dev, confidence, r->b.confidence, n * sizeof *confidence);
    return r->ops->sync(r->dev, err);
}
