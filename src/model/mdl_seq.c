/* mdl_seq.c - the caches of one sequence: a state and pages that its owner lends. Used by the runner's thread only. */
#include "core/core.h"
#include "model/model_int.h"

#include <stdlib.h>
#include <string.h>

void mdl_seq_init(mdl_runner *r, mdl_seq *seq, uint8_t *state)
{
    *seq = (mdl_seq){.runner = r, .state = state};
}

void mdl_seq_fini(mdl_seq *seq)
{
    free(seq->pages);
    *seq = (mdl_seq){0};
}

di_status mdl_seq_reserve(mdl_seq *seq, int32_t n_pages, di_error *err)
{
    if (n_pages <= seq->page_capacity) {
        return DI_OK;
    }
    int32_t capacity = seq->page_capacity > 0 ? seq->page_capacity : 8;
    while (capacity < n_pages) {
        capacity *= 2;
    }
    uint8_t **pages = realloc(seq->pages, (size_t)capacity * sizeof *pages);
    if (pages == NULL) {
        return err_memory(err, "page list", (size_t)capacity * sizeof *pages);
    }
    seq->pages = pages;
    seq->page_capacity = capacity;
    return DI_OK;
}

void mdl_seq_add_page(mdl_seq *seq, uint8_t *page)
{
    seq->pages[seq->n_pages++] = page;
}

void mdl_seq_resume(mdl_seq *seq, const int32_t *ids, int64_t start, int64_t n_frozen)
{
    const mdl_engram *e = &seq->runner->model->engram;
    const int64_t keep = MDL_MAX_NGRAM + OPS_REWIND;
    const int64_t from = start > keep ? start - keep : 0;
    for (int64_t t = from; t < start && e->n_layers > 0; t++) {
        mdl_seq_push_recent(seq, mdl_engram_id(e, ids[t], false), e->max_ngram);
    }
    seq->n_tokens = start;
    seq->n_frozen = n_frozen;
}

void mdl_seq_continue(mdl_seq *seq, const mdl_seq *from)
{
    seq->n_tokens = from->n_tokens;
    seq->n_frozen = from->n_frozen;
    seq->window_from = from->window_from;
    seq->decoder_from = from->decoder_from;
    seq->draft_from = from->draft_from;
    seq->n_recent = from->n_recent;
    memcpy(seq->recent, from->recent, sizeof seq->recent);
}

/* Engram looks at the last max_ngram compressed ids; what a rewind brings back is kept behind them. */
void mdl_seq_push_recent(mdl_seq *seq, int32_t id, int32_t max_ngram)
{
    const int32_t most = max_ngram + OPS_REWIND;
    const int32_t n = seq->n_recent < most ? seq->n_recent : most - 1;
    memmove(seq->recent + 1, seq->recent, (size_t)n * sizeof *seq->recent);
    seq->recent[0] = id;
    seq->n_recent = n + 1;
}

void mdl_seq_rewind(mdl_seq *seq, int32_t n)
{
    if (n > 0 && seq->n_recent > 0) {
        seq->n_recent -= n;
        memmove(seq->recent, seq->recent + n, (size_t)seq->n_recent * sizeof *seq->recent);
    }
    seq->n_tokens -= n;
    seq->draft_from = seq->draft_from < seq->n_tokens ? seq->draft_from : seq->n_tokens;
}

void mdl_copy_state(mdl_runner *r, void *dst, const void *src) { r->ops->copy(r->dev, dst, src, r->layout.state_bytes); }
void mdl_copy_page(mdl_runner *r, void *dst, const void *src) { r->ops->copy(r->dev, dst, src, r->layout.page_bytes); }
void *mdl_alloc(mdl_runner *r, size_t bytes) { return r->ops->mem_alloc(r->dev, bytes); }
void mdl_free(mdl_runner *r, void *memory) { r->ops->mem_free(r->dev, memory); }

int64_t mdl_window(const mdl_runner *r) { return r->c->window; }

int64_t mdl_halo(const mdl_runner *r) { return r->c->window + (int64_t)(r->c->n_layers - 1) * (r->c->window - 1); }

int64_t mdl_encoder_halo(const mdl_runner *r) { return (int64_t)r->decoder_start * (r->c->window - 1); }

int64_t mdl_decoder_reach(const mdl_runner *r, int64_t n_logits)
{
    return n_logits + (int64_t)(r->c->n_layers - r->decoder_start) * (r->c->window - 1);
}
