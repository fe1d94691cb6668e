/* eng_draft.c - proposals of the draft model, as the public API gives them: the likeliest token each time (dspark.md 1.7, 1.8). */
#include "core/core.h"
#include "engine/engine_int.h"

#include <stdlib.h>

int32_t di_engine_draft_length(const di_engine *e) { return mdl_draft_block(e->runner); }

static di_status check_draft(const di_sequence *s, int32_t anchor, int32_t capacity, di_error *err)
{
    const di_engine *const e = s->engine;
    if (mdl_draft_block(e->runner) == 0) {
        return err_set(err, DI_E_UNSUPPORTED, "no draft model: the checkpoint has none, or the engine was opened without `draft`");
    }
    if (anchor < 0 || anchor >= e->c->vocab || capacity < 1) {
        return err_set(err, DI_E_ARGUMENT, "draft behind id %d into %d places: the vocabulary is 0..%d", anchor, capacity,
                       e->c->vocab - 1);
    }
    if (s->failed || eng_queued(s) > 0 || s->caches.n_tokens == 0) {
        return err_set(err, DI_E_STATE, "the sequence has tokens that did not run, or none at all: run it before drafting");
    }
    return mdl_draft_most(e->runner) > 0 ? DI_OK
                                         : err_set(err, DI_E_STATE, "chunk_tokens is smaller than a draft: at least %d",
                                                   mdl_draft_block(e->runner));
}

static int32_t likeliest(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

di_status di_sequence_draft(di_sequence *s, int32_t anchor, int32_t *ids, float *confidence, int32_t capacity, int32_t *n, di_error *err)
{
    di_status status = check_draft(s, anchor, capacity, err);
    if (status != DI_OK) {
        return status;
    }
    mdl_runner *const r = s->engine->runner;
    const mdl_seq *const seq = &s->caches;
    const int32_t most = mdl_draft_block(r) < capacity ? mdl_draft_block(r) : capacity;
    float *const logits = ar_calloc((size_t)s->engine->c->vocab, sizeof *logits);
    if (logits == NULL) {
        return err_memory(err, "draft logits", (size_t)s->engine->c->vocab * sizeof *logits);
    }
    status = mdl_draft_begin(r, &seq, &anchor, 1, err);
    for (int32_t i = 0; i < most && status == DI_OK; i++) {
        status = mdl_draft_step(r, i, i == 0 ? &anchor : &ids[i - 1], logits, &confidence[i], err);
        ids[i] = likeliest(logits, s->engine->c->vocab);
    }
    free(logits);
    if (status == DI_OK) {
        *n = most;
    }
    return status;
}
