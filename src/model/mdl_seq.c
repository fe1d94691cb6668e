/* mdl_seq.c - the caches of one sequence: a fixed block and pages that are added as it grows. Owner: whoever called mdl_seq_init;
 * used by the runner's thread only. */
#include "core/core.h"
#include "model/model_int.h"

#include <stdlib.h>
#include <string.h>

di_status mdl_seq_init(mdl_runner *r, mdl_seq *seq, di_error *err)
{
    *seq = (mdl_seq){.runner = r};
    seq->state = r->ops->mem_alloc(r->dev, r->layout.state_bytes);
    return seq->state != NULL ? DI_OK : err_memory(err, "sequence state", r->layout.state_bytes);
}

void mdl_seq_fini(mdl_seq *seq)
{
    mdl_runner *r = seq->runner;
    if (r == NULL) {
        return;
    }
    for (int32_t i = 0; i < seq->n_pages; i++) {
        r->ops->mem_free(r->dev, seq->pages[i]);
    }
    free(seq->pages);
    r->ops->mem_free(r->dev, seq->state);
    *seq = (mdl_seq){0};
}

static di_status grow_list(mdl_seq *seq, int32_t need, di_error *err)
{
    int32_t capacity = seq->page_capacity > 0 ? seq->page_capacity : 8;
    while (capacity < need) {
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

di_status mdl_seq_reserve(mdl_seq *seq, int64_t n_tokens, di_error *err)
{
    mdl_runner *r = seq->runner;
    if (n_tokens > r->max_tokens) {
        return err_set(err, DI_E_LIMIT, "%lld tokens are more than the context of %lld", (long long)n_tokens, (long long)r->max_tokens);
    }
    int32_t need = r->layout.page_bytes > 0 ? (int32_t)((n_tokens + MDL_PAGE_TOKENS - 1) / MDL_PAGE_TOKENS) : 0;
    if (need > seq->page_capacity) {
        di_status status = grow_list(seq, need, err);
        if (status != DI_OK) {
            return status;
        }
    }
    while (seq->n_pages < need) {
        uint8_t *page = r->ops->mem_alloc(r->dev, r->layout.page_bytes);
        if (page == NULL) {
            return err_memory(err, "sequence page", r->layout.page_bytes);
        }
        seq->pages[seq->n_pages++] = page;
    }
    return DI_OK;
}

size_t mdl_seq_bytes(const mdl_seq *seq)
{
    const mdl_layout *l = &seq->runner->layout;
    return l->state_bytes + (size_t)seq->n_pages * l->page_bytes;
}
