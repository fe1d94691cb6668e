/* forward.c - one batch of tokens through the backbone, in the order of model.md 3.1. Read it beside that section: names are the same.
 *
 * Rows are the tokens of all items, item by item. Every stage works on all rows; r->seqs says which belong to which sequence. Layers behind
 * the last KV source own nothing but window KV, so a prompt row that no later result depends on stops early (model.md 4.2): rows leave the
 * batch between the key/value part and the query part of a decoder layer, and every result stays exactly the same.
 *
 * Bounded replay of the decoder (dspark.md 4.3) is the same with fewer rows, and not exact: nothing before seq->decoder_from enters a
 * decoder layer, nor is it seen there. That place is known before the prompt runs, so its last window can run in as many passes as it
 * likes, and inputs of layers need not be kept from pass to pass as in dspark.md 4.5: every row sees what it would see in one pass. */
#include "core/core.h"
#include "model/model_int.h"
#include "ops/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct forward {
    mdl_runner *r;
    const mdl_item *items;
    int32_t n_items;
    int32_t n_rows; /* rows still in the batch */
    bool any_given; /* rows of images */
} forward;

static int64_t clamp_rows(int64_t n, int64_t most) { return n < 0 ? 0 : n > most ? most : n; }

/* --- Which rows go on (4.2) -------------------------------------------------------------------------------------------- */

/* Of all tokens fed together, the last reach_out(L) must leave layer L, and window - 1 more must enter it for their window KV. */
static int64_t reach_out(const mdl_runner *r, const mdl_item *item, int32_t layer)
{
    int64_t wanted = item->n_logits > 1 ? item->n_logits : 1;
    return wanted + (int64_t)(r->c->n_layers - 1 - layer) * (r->c->window - 1);
}

/* How many of an item's rows stay: those that leave the layer, and `more` before them. A trace shows every row there is. */
static int32_t kept_rows(const mdl_runner *r, const mdl_item *item, const ops_seq *s, int32_t layer, int64_t more)
{
    const bool all = item->full || r->trace != NULL;
    const int64_t exact = all ? s->n_rows : reach_out(r, item, layer) + more - item->n_after;
    const int64_t replayed = s->pos0 + s->n_rows - item->seq->decoder_from;
    return (int32_t)clamp_rows(exact < replayed ? exact : replayed, s->n_rows);
}

static void set_window_rows(forward *f)
{
    memcpy(f->r->kv_seqs, f->r->seqs, (size_t)f->n_items * sizeof *f->r->seqs);
}

/* Keeps the last rows of each item. Moves everything that later stages of the layer read. */
static void keep_last(forward *f, int32_t layer, int64_t more)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    mdl_buffers *b = &r->b;
    int32_t rows = 0;
    for (int32_t i = 0; i < f->n_items; i++) {
        ops_seq *s = &r->seqs[i];
        int32_t keep = kept_rows(r, &f->items[i], s, layer, more);
        r->moves[i] = (ops_move){.src = s->row0 + s->n_rows - keep, .dst = rows, .n_rows = keep};
        s->pos0 += s->n_rows - keep;
        s->row0 = rows;
        s->n_rows = keep;
        rows += keep;
    }
    if (rows == f->n_rows) {
        return;
    }
    f->n_rows = rows;
    size_t hidden = (size_t)c->hidden;
    size_t hc = (size_t)c->hc;
    size_t columns = (size_t)r->model->engram.n_columns * sizeof(int64_t);
    void *buffers[11 + MDL_MAX_ENGRAM_LAYERS] = {b->pos, b->is_text, b->x, b->site_pre, b->post, b->comb, b->u,
                                                  b->qr, b->list, b->candidates, b->taps};
    size_t row_bytes[11 + MDL_MAX_ENGRAM_LAYERS] = {sizeof(int64_t),
                                                   1,
                                                   hc * hidden * sizeof(bf16),
                                                   hc * sizeof(float),
                                                   hc * sizeof(float),
                                                   hc * hc * sizeof(float),
                                                   hidden * sizeof(bf16),
                                                   (size_t)c->q_lora * sizeof(bf16),
                                                   (size_t)c->index_topk * sizeof(int32_t),
                                                   (size_t)r->cand_stride,
                                                   (size_t)c->draft.n_taps * hidden * sizeof(bf16)};
    int32_t n = 11;
    for (int32_t e = 0; e < c->engram.n_layers; e++, n++) {
        buffers[n] = b->hash + (size_t)e * (size_t)r->max_rows * (size_t)r->model->engram.n_columns;
        row_bytes[n] = columns;
    }
    r->ops->keep_rows(r->dev, &(ops_keep_rows_args){.n_moves = f->n_items,
                                                   .moves = r->moves,
                                                   .n_buffers = n,
                                                   .buffers = buffers,
                                                   .row_bytes = row_bytes});
}

/* --- Input ------------------------------------------------------------------------------------------------------------- */

/* H = ngram_hash(ids), once per forward (3.5.3). Host layout as on the device: [engram layer][max_rows, columns]. */
static void hash_row(forward *f, mdl_seq *seq, int32_t id, bool in_image, int32_t row)
{
    mdl_runner *r = f->r;
    const mdl_engram *e = &r->model->engram;
    int64_t rows[MDL_MAX_ENGRAM_LAYERS * MDL_MAX_ENGRAM_COLUMNS];
    if (e->n_layers == 0) {
        return;
    }
    mdl_seq_push_recent(seq, mdl_engram_id(e, id, in_image), e->max_ngram);
    mdl_engram_hash(e, seq->recent, seq->n_recent < e->max_ngram ? seq->n_recent : e->max_ngram, rows);
    size_t n = (size_t)e->n_columns;
    for (int32_t l = 0; l < e->n_layers; l++) {
        memcpy(r->host_hash + ((size_t)l * (size_t)r->max_rows + (size_t)row) * n, rows + (size_t)l * n, n * sizeof *rows);
    }
}

static di_status upload_given(forward *f, di_error *err)
{
    mdl_runner *r = f->r;
    size_t bytes = (size_t)r->c->hidden * sizeof(bf16);
    if (r->b.given == NULL) {
        r->b.given = r->ops->mem_alloc(r->dev, (size_t)r->max_rows * bytes);
        if (r->b.given == NULL) {
            return err_memory(err, "image rows", (size_t)r->max_rows * bytes);
        }
    }
    for (int32_t i = 0; i < f->n_items; i++) {
        const mdl_item *item = &f->items[i];
        if (item->embed != NULL) {
            r->ops->upload(r->dev, r->b.given + (size_t)r->seqs[i].row0 * (size_t)r->c->hidden, item->embed, (size_t)item->n * bytes);
        }
    }
    return DI_OK;
}

/* Ids, positions and hashes of the batch to the device; sets the sequences. */
static di_status give_input(forward *f, di_error *err)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    bool any_given = false;
    f->n_rows = 0;
    for (int32_t i = 0; i < f->n_items; i++) {
        const mdl_item *item = &f->items[i];
        mdl_seq *seq = item->seq;
        r->seqs[i] = (ops_seq){.row0 = f->n_rows,
                               .n_rows = item->n,
                               .pos0 = seq->n_tokens,
                               .window_from = seq->window_from,
                               .state = seq->state,
                               .pages = seq->pages};
        for (int32_t t = 0; t < item->n; t++, f->n_rows++) {
            bool in_image = item->in_image != NULL && item->in_image[t] != 0;
            r->host_ids[f->n_rows] = item->ids[t];
            r->host_pos[f->n_rows] = seq->n_tokens + t;
            r->host_text[f->n_rows] = !in_image;
            r->host_given[f->n_rows] = in_image && item->embed != NULL;
            any_given = any_given || r->host_given[f->n_rows];
            hash_row(f, seq, item->ids[t], in_image, f->n_rows);
        }
        seq->n_tokens += item->n;
        seq->draft_from = r->draft_rests ? seq->n_tokens : seq->draft_from;
    }
    size_t rows = (size_t)f->n_rows;
    r->ops->upload(r->dev, r->b.ids, r->host_ids, rows * sizeof(int32_t));
    r->ops->upload(r->dev, r->b.pos, r->host_pos, rows * sizeof(int64_t));
    r->ops->upload(r->dev, r->b.is_text, r->host_text, rows);
    r->ops->upload(r->dev, r->b.row_given, r->host_given, rows);
    if (r->rows != NULL) {
        mdl_rows_begin(r->rows);
    }
    for (int32_t l = 0; l < c->engram.n_layers; l++) {
        size_t at = (size_t)l * (size_t)r->max_rows * (size_t)r->model->engram.n_columns;
        if (r->rows != NULL) {
            mdl_rows_ask(r->rows, l, r->host_hash + at, f->n_rows);
        }
        r->ops->upload(r->dev, r->b.hash + at, r->host_hash + at, rows * (size_t)r->model->engram.n_columns * sizeof(int64_t));
    }
    f->any_given = any_given;
    return any_given ? upload_given(f, err) : DI_OK;
}

static void embed(forward *f)
{
    mdl_runner *r = f->r;
    r->ops->embed(r->dev, &(ops_embed_args){.n_rows = f->n_rows,
                                           .hc = r->c->hc,
                                           .hidden = r->c->hidden,
                                           .embed = &r->w.embed,
                                           .ids = r->b.ids,
                                           .rows = f->any_given ? r->b.given : NULL,
                                           .row_given = r->b.row_given,
                                           .x = r->b.x,
                                           .pre = r->b.pre});
    mdl_trace_embed(r, f->n_rows);
}

/* --- Sites ------------------------------------------------------------------------------------------------------------- */

/* X = engram_L(X, H) (3.5.4). */
static void engram(forward *f, int32_t layer, int32_t i_engram)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    const mdl_engram_weights *w = &r->w.layers[layer].engram;
    int32_t columns = r->model->engram.n_columns;
    const ops_matrix *table = &w->table;
    if (r->rows != NULL && mdl_rows_wait(r->rows, i_engram, &table, &r->read_error) != DI_OK) {
        return;
    }
    r->ops->engram(r->dev, &(ops_engram_args){.n_rows = f->n_rows,
                                             .hc = c->hc,
                                             .hidden = c->hidden,
                                             .n_columns = columns,
                                             .head_dim = c->engram.head_dim,
                                             .norm_eps = c->norm_eps,
                                             .rows = r->b.hash + (size_t)i_engram * (size_t)r->max_rows * (size_t)columns,
                                             .is_text = r->b.is_text,
                                             .table = table,
                                             .wkv = &w->wkv,
                                             .q_weight = w->q_weight,
                                             .k_weight = w->k_weight,
                                             .x = r->b.x});
    mdl_trace_send(r, layer, "engram_out", DI_BF16, r->b.x, 3, f->n_rows, c->hc, c->hidden);
}

/* --- Attention (3.7, 3.8, 3.12) ---------------------------------------------------------------------------------------- */

static const float *rope_of(const mdl_runner *r, int32_t layer) { return r->c->ratio[layer] > 0 ? r->rope_yarn : r->rope_plain; }

/* Where the rows of KV sources go: into the pages, for frozen tokens into the scratch page. Uses kv_seqs, which is free until the window
 * rows are known. */
static const ops_seq *written_seqs(forward *f)
{
    mdl_runner *r = f->r;
    bool any = false;
    for (int32_t i = 0; i < f->n_items; i++) {
        const mdl_seq *seq = f->items[i].seq;
        const bool frozen = seq->n_tokens <= seq->n_frozen; /* n_tokens is that behind the pass */
        r->kv_seqs[i] = r->seqs[i];
        r->kv_seqs[i].pages = frozen ? r->scratch_pages : r->seqs[i].pages;
        any = any || frozen;
    }
    return any ? r->kv_seqs : r->seqs;
}

/* KV sources: latents of the completed groups -> index keys and compressed KV (3.7.1). */
static void compress(forward *f, int32_t layer)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    const ops_seq *const seqs = written_seqs(f);
    const mdl_compressor_weights *w = &r->w.layers[layer].compressor;
    r->ops->compress(r->dev, &(ops_compress_args){.n_rows = f->n_rows,
                                                 .n_seqs = f->n_items,
                                                 .seqs = seqs,
                                                 .ratio = c->ratio[layer],
                                                 .hidden = c->hidden,
                                                 .head_dim = c->head_dim,
                                                 .rope_dim = c->rope_dim,
                                                 .index_dim = c->index_dim,
                                                 .norm_eps = c->norm_eps,
                                                 .u = r->b.u,
                                                 .rope = rope_of(r, layer),
                                                 .wkv = &w->wkv,
                                                 .wgate = &w->wgate,
                                                 .norm = w->norm,
                                                 .index_wk = &w->index_wk,
                                                 .index_k_norm = w->index_k_norm,
                                                 .compressed = r->layout.compressed[layer],
                                                 .index_keys = r->layout.index_keys[layer],
                                                 .open_offset = r->layout.open_offset[layer]});
}

/* Index sources: LIST (and CAND at the candidate source) for this layer and those behind it (3.7.2). */
static void index_select(forward *f, int32_t layer)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    const mdl_indexer_weights *w = &r->w.layers[layer].indexer;
    mdl_trace_reserve_scores(r, f->n_rows, c->ratio[layer]);
    r->ops->index(r->dev, &(ops_index_args){.n_rows = f->n_rows,
                                           .n_seqs = f->n_items,
                                           .seqs = r->seqs,
                                           .ratio = c->ratio[layer],
                                           .hidden = c->hidden,
                                           .q_lora = c->q_lora,
                                           .rope_dim = c->rope_dim,
                                           .n_heads = c->index_heads,
                                           .index_dim = c->index_dim,
                                           .topk = c->index_topk,
                                           .n_blocks = c->candidate_blocks,
                                           .block_size = c->candidate_block_size,
                                           .cand_stride = r->cand_stride,
                                           .make_candidates = layer == c->candidate_layer,
                                           .use_candidates = c->candidate_layer >= 0 && layer > c->candidate_layer,
                                           .u = r->b.u,
                                           .qr = r->b.qr,
                                           .pos = r->b.pos,
                                           .rope = rope_of(r, layer),
                                           .wq_b = &w->wq_b,
                                           .weights_proj = &w->weights_proj,
                                           .index_keys = r->layout.index_keys[c->kv_source[layer]],
                                           .candidates = r->b.candidates,
                                           .list = r->b.list,
                                           .score = r->b.score,
                                           .score_stride = r->score_stride});
    mdl_trace_index(r, layer, f->n_rows);
}

/* Attention over window and list, then the ring keeps the newest window rows (3.8). */
static void attend(forward *f, int32_t layer)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    bool compressed = c->ratio[layer] > 0;
    r->ops->attend(r->dev, &(ops_attend_args){.n_rows = f->n_rows,
                                             .n_seqs = f->n_items,
                                             .seqs = r->seqs,
                                             .kv_seqs = r->kv_seqs,
                                             .n_heads = c->n_heads,
                                             .head_dim = c->head_dim,
                                             .rope_dim = c->rope_dim,
                                             .window = c->window,
                                             .topk = compressed ? c->index_topk : 0,
                                             .ratio = c->ratio[layer],
                                             .scale = (float)(1.0 / sqrt((double)c->head_dim)),
                                             .q = r->b.q,
                                             .kv = r->b.kv,
                                             .ring_slots = r->layout.ring_slots,
                                             .ring_offset = r->layout.ring_offset[layer],
                                             .compressed = compressed ? r->layout.compressed[c->kv_source[layer]] : (ops_paged){0},
                                             .list = r->b.list,
                                             .sink = r->w.layers[layer].attn_sink,
                                             .rope = rope_of(r, layer),
                                             .o = r->b.o});
}

static void window_store(forward *f, int32_t layer)
{
    mdl_runner *r = f->r;
    r->ops->window_store(r->dev, &(ops_window_store_args){.n_seqs = f->n_items,
                                                         .seqs = r->kv_seqs,
                                                         .ring_slots = r->layout.ring_slots,
                                                         .row_bytes = (int32_t)r->layout.window_row_bytes,
                                                         .ring_offset = r->layout.ring_offset[layer],
                                                         .kv = r->b.kv});
}

/* From here on rows before decoder_from are not to be seen. What stays of an item begins there at the earliest. */
static void cut_windows(forward *f)
{
    for (int32_t i = 0; i < f->n_items; i++) {
        ops_seq *const s = &f->r->seqs[i];
        const int64_t from = f->items[i].seq->decoder_from;
        s->window_from = from > s->window_from && s->n_rows > 0 ? from : s->window_from;
    }
}

/* y = attention_L(u). May leave fewer rows in the batch, also none. */
static void attention(forward *f, int32_t layer)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    const mdl_layer_weights *w = &r->w.layers[layer];
    bool decoder = layer >= r->decoder_start;
    if (mdl_is_kv_source(c, layer)) {
        compress(f, layer); /* every row, in every layer that owns a cache */
    }
    if (decoder) {
        keep_last(f, layer, c->window - 1);
    }
    if (layer == r->decoder_start) {
        cut_windows(f);
    }
    set_window_rows(f);
    mdl_block_attn_in(r, f->n_rows, w, rope_of(r, layer));
    mdl_trace_send(r, layer, "qr", DI_BF16, r->b.qr, 2, f->n_rows, c->q_lora, 0);
    if (decoder) {
        keep_last(f, layer, 0);
    }
    if (f->n_rows > 0) {
        mdl_block_query(r, f->n_rows, w, rope_of(r, layer));
        if (mdl_is_index_source(c, layer)) {
            index_select(f, layer);
        }
        attend(f, layer);
        mdl_block_attn_out(r, f->n_rows, w);
    }
    window_store(f, layer);
    mdl_trace_send(r, layer, "wo_b_in", DI_BF16, r->b.low, 2, f->n_rows, c->o_groups * c->o_lora, 0);
    mdl_trace_send(r, layer, "attn_out", DI_BF16, r->b.y, 2, f->n_rows, c->hidden, 0);
}

/* --- Mixture of experts (3.9, 3.10) ------------------------------------------------------------------------------------ */

static void moe(forward *f, int32_t layer)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    const mdl_layer_weights *w = &r->w.layers[layer];
    mdl_block_router(r, f->n_rows, w, c->n_active_experts);
    mdl_trace_send(r, layer, "router_ids", DI_I32, r->b.expert_ids, 2, f->n_rows, c->n_active_experts, 0);
    mdl_trace_send(r, layer, "router_w", DI_F32, r->b.expert_weights, 2, f->n_rows, c->n_active_experts, 0);
    if (layer + 1 < c->n_layers) {
        mdl_block_guess(r, f->n_rows, &r->w.layers[layer + 1], layer + 1, c->n_active_experts);
    }
    mdl_block_experts(r, f->n_rows, w, layer, c->n_active_experts);
    mdl_trace_send(r, layer, "ffn_out", DI_BF16, r->b.y, 2, f->n_rows, c->hidden, 0);
}

/* --- Head -------------------------------------------------------------------------------------------------------------- */

di_status mdl_reserve_logits(mdl_runner *r, int32_t rows, di_error *err)
{
    if (rows <= r->logits_rows) {
        return DI_OK;
    }
    size_t bytes = (size_t)rows * (size_t)r->c->vocab * sizeof(float);
    r->ops->mem_free(r->dev, r->b.logits);
    r->logits_rows = 0;
    r->b.logits = r->ops->mem_alloc(r->dev, bytes);
    if (r->b.logits == NULL) {
        return err_memory(err, "logits", bytes);
    }
    r->logits_rows = rows;
    return DI_OK;
}

static void score(mdl_runner *r, int32_t rows)
{
    r->ops->head(r->dev, &(ops_head_args){
                             .n_rows = rows, .hidden = r->c->hidden, .head = &r->w.head, .h = r->b.u, .logits = r->b.logits});
    mdl_trace_send(r, -1, "logits", DI_F32, r->b.logits, 2, rows, r->c->vocab, 0);
}

static void fetch(mdl_runner *r, int32_t rows, float *logits)
{
    r->ops->download(r->dev, logits, r->b.logits, (size_t)rows * (size_t)r->c->vocab * sizeof(float));
}

/* Logits of the wanted rows: the last n_logits of what was fed together. u holds the normalised hidden rows. */
static di_status head(forward *f, float *logits, int32_t *n_logits, di_error *err)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    int32_t at = 0;
    for (int32_t i = 0; i < f->n_items; i++) {
        ops_seq *s = &r->seqs[i];
        int32_t want = (int32_t)clamp_rows(f->items[i].n_logits - f->items[i].n_after, s->n_rows);
        r->moves[i] = (ops_move){.src = s->row0 + s->n_rows - want, .dst = at, .n_rows = want};
        at += want;
    }
    *n_logits = at;
    if (at == 0) {
        return DI_OK;
    }
    di_status status = mdl_reserve_logits(r, at, err);
    if (status != DI_OK) {
        return status;
    }
    void *buffer = r->b.u;
    size_t bytes = (size_t)c->hidden * sizeof(bf16);
    r->ops->keep_rows(r->dev, &(ops_keep_rows_args){
                                  .n_moves = f->n_items, .moves = r->moves, .n_buffers = 1, .buffers = &buffer, .row_bytes = &bytes});
    score(r, at);
    fetch(r, at, logits);
    return DI_OK;
}

/* --- The whole pass (3.1) ---------------------------------------------------------------------------------------------- */

static void layer_pass(forward *f, int32_t layer)
{
    mdl_runner *r = f->r;
    const mdl_config *c = r->c;
    const mdl_layer_weights *w = &r->w.layers[layer];

    /* Attention site: coefficients of X, collapse with the PREVIOUS site's pre. */
    mdl_block_seam_open(r, f->n_rows, &w->hc_attn, w->attn_norm, r->b.pre, r->b.site_pre, r->b.u);
    mdl_trace_hc(r, layer, "hc_attn", f->n_rows, r->b.site_pre);
    mdl_trace_send(r, layer, "attn_in", DI_BF16, r->b.u, 2, f->n_rows, c->hidden, 0);
    attention(f, layer);
    if (f->n_rows == 0) {
        return;
    }
    mdl_block_seam_close(r, f->n_rows);

    /* FFN site: collapse with THIS layer's attention pre; its own pre goes to the next layer. */
    mdl_block_seam_open(r, f->n_rows, &w->hc_ffn, w->ffn_norm, r->b.site_pre, r->b.pre, r->b.u);
    mdl_trace_hc(r, layer, "hc_ffn", f->n_rows, r->b.pre);
    mdl_trace_send(r, layer, "ffn_in", DI_BF16, r->b.u, 2, f->n_rows, c->hidden, 0);
    moe(f, layer);
    mdl_block_seam_close(r, f->n_rows);
    mdl_trace_send(r, layer, "x_out", DI_BF16, r->b.x, 3, f->n_rows, c->hc, c->hidden);
    mdl_trace_send(r, layer, "pre_out", DI_F32, r->b.pre, 2, f->n_rows, c->hc, 0);
}

/* The scratch page, with the first pass that needs it. */
static di_status reserve_scratch(forward *f, di_error *err)
{
    mdl_runner *r = f->r;
    bool any = false;
    for (int32_t i = 0; i < f->n_items; i++) {
        any = any || f->items[i].seq->n_tokens < f->items[i].seq->n_frozen;
    }
    if (!any || r->scratch_pages != NULL) {
        return DI_OK;
    }
    const size_t n = (size_t)((r->max_tokens + MDL_PAGE_TOKENS - 1) / MDL_PAGE_TOKENS);
    uint8_t *const page = r->layout.page_bytes > 0 ? mdl_alloc(r, r->layout.page_bytes) : NULL;
    uint8_t **const pages = ar_calloc(n, sizeof *pages);
    if ((page == NULL && r->layout.page_bytes > 0) || pages == NULL) {
        mdl_free(r, page);
        free(pages);
        return err_memory(err, "scratch page", r->layout.page_bytes + n * sizeof *pages);
    }
    for (size_t i = 0; i < n; i++) {
        pages[i] = page;
    }
    r->scratch_page = page;
    r->scratch_pages = pages;
    return DI_OK;
}

/* X through all layers, then u = the normalised hidden rows. May leave no row. */
static void backbone(forward *f)
{
    mdl_runner *r = f->r;
    int32_t i_engram = 0;
    embed(f);
    for (int32_t layer = 0; layer < r->c->n_layers && f->n_rows > 0 && r->read_error.code == DI_OK; layer++) {
        if (i_engram < r->c->engram.n_layers && r->c->engram.layers[i_engram] == layer) {
            engram(f, layer, i_engram++);
        }
        mdl_draft_tap(r, layer, f->n_rows, f->n_items);
        layer_pass(f, layer);
    }
    if (f->n_rows > 0 && r->read_error.code == DI_OK) {
        mdl_block_seam_open(r, f->n_rows, NULL, r->w.norm, r->b.pre, NULL, r->b.u);
        mdl_trace_send(r, -1, "final_norm", DI_BF16, r->b.u, 2, f->n_rows, r->c->hidden, 0);
    }
}

/* Is the pass one whose stages depend on the number of rows and sequences alone (ops_step)? As steps of decoding are: every row goes
 * through every layer and gives logits. */
static bool repeats(const forward *f)
{
    const mdl_runner *r = f->r;
    bool yes = r->ops->step_begin != NULL && r->trace == NULL && r->stream == NULL && r->rows == NULL && !f->any_given;
    for (int32_t i = 0; i < f->n_items && yes; i++) {
        const mdl_item *item = &f->items[i];
        const ops_seq *s = &r->seqs[i];
        yes = item->n_logits - item->n_after >= s->n_rows && kept_rows(r, item, s, r->c->n_layers - 1, 0) == s->n_rows &&
              item->seq->decoder_from <= s->window_from && item->seq->n_tokens > item->seq->n_frozen;
    }
    return yes;
}

static di_status run_repeated(forward *f, float *logits, int32_t *n_logits, di_error *err)
{
    mdl_runner *r = f->r;
    const di_status status = mdl_reserve_logits(r, f->n_rows, err);
    if (status != DI_OK) {
        return status;
    }
    const ops_step step = {.n_rows = f->n_rows,
                           .n_seqs = f->n_items,
                           .seqs = r->seqs,
                           .page_tokens = MDL_PAGE_TOKENS,
                           .key = r->b.logits + r->draft_rests}; /* other stages, other key */
    bool done = r->ops->step_begin(r->dev, &step);
    for (int tries = 0; !done && tries < 2; tries++) {
        backbone(f);
        score(r, f->n_rows);
        done = tries > 0 || r->ops->step_end(r->dev);
    }
    *n_logits = f->n_rows;
    fetch(r, f->n_rows, logits);
    return DI_OK;
}

static di_status run_pass(forward *f, float *logits, int32_t *n_logits, di_error *err)
{
    mdl_runner *r = f->r;
    di_status status = reserve_scratch(f, err);
    if (status == DI_OK) {
        status = give_input(f, err);
    }
    if (status != DI_OK) {
        return status;
    }
    if (repeats(f)) {
        return run_repeated(f, logits, n_logits, err);
    }
    backbone(f);
    if (r->read_error.code != DI_OK) {
        if (err != NULL) {
            *err = r->read_error;
        }
        return r->read_error.code;
    }
    return f->n_rows > 0 ? head(f, logits, n_logits, err) : DI_OK;
}

void mdl_plan_pass(mdl_runner *r)
{
    const int64_t before = r->max_tokens - r->max_rows;
    mdl_seq seq = {.runner = r};
    const mdl_item item = {.seq = &seq, .n = r->max_rows, .full = true};
    forward f = {.r = r, .items = &item, .n_items = 1, .n_rows = r->max_rows};
    if (r->ops->plan == NULL || r->trace != NULL) {
        return;
    }
    r->seqs[0] = (ops_seq){.n_rows = r->max_rows, .pos0 = before > 0 ? before : 0};
    r->ops->plan(r->dev, true);
    backbone(&f);
    score(r, f.n_rows);
    r->ops->plan(r->dev, false);
}

di_status mdl_forward(mdl_runner *r, const mdl_item *items, int32_t n_items, float *logits, int32_t *n_logits, di_error *err)
{
    forward f = {.r = r, .items = items, .n_items = n_items};
    *n_logits = 0;
    r->failed = false;
    r->read_error.code = DI_OK;
    if (r->reader != NULL) {
        mdl_reader_begin(r->reader);
    }
    di_status status = run_pass(&f, logits, n_logits, err);
    /* Also behind a failed pass: a failure left in the device would be reported by the next pass, of other sequences. */
    const di_status device = r->ops->sync(r->dev, status == DI_OK ? err : NULL);
    status = status == DI_OK ? device : status;
    if (status == DI_OK && r->failed) {
        status = err_set(err, DI_E_MEMORY, "out of memory: trace of a pass");
    }
    return status;
}
