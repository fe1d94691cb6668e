/* mdl_layout.c - see mdl_layout.h. Sizes come from a checked configuration, so sums cannot overflow. */
#include "model/mdl_layout.h"

#include "ops/formats.h"

#include <string.h>

static size_t take(size_t *at, size_t bytes)
{
    size_t offset = *at;
    *at = (offset + bytes + 63) / 64 * 64;
    return offset;
}

void mdl_layout_init(const mdl_config *c, bool draft, mdl_layout *out)
{
    size_t d = (size_t)c->head_dim;
    memset(out, 0, sizeof *out);
    out->window_row_bytes = fmt_q8_bytes(d);
    out->ring_slots = c->window + OPS_REWIND;
    for (int32_t l = 0; l < c->n_layers; l++) {
        out->ring_offset[l] = take(&out->state_bytes, (size_t)out->ring_slots * out->window_row_bytes);
    }
    for (int32_t s = 0; draft && s < c->draft.n_stages; s++) {
        out->draft_ring_offset[s] = take(&out->state_bytes, (size_t)out->ring_slots * out->window_row_bytes);
    }
    for (int32_t i = 0; i < c->n_kv_sources; i++) {
        int32_t l = c->kv_sources[i];
        int32_t per_page = MDL_PAGE_TOKENS / c->ratio[l];
        if (c->ratio[l] == 2) {
            out->open_offset[l] = take(&out->state_bytes, OPS_OPEN_GROUPS * 2 * d * sizeof(float));
        }
        out->compressed[l] = (ops_paged){.per_page = per_page, .row_bytes = (int32_t)fmt_q4n_bytes(d)};
        out->compressed[l].offset = take(&out->page_bytes, (size_t)per_page * fmt_q4n_bytes(d));
        out->index_keys[l] = (ops_paged){.per_page = per_page, .row_bytes = (int32_t)fmt_q4e_bytes((size_t)c->index_dim)};
        out->index_keys[l].offset = take(&out->page_bytes, (size_t)per_page * fmt_q4e_bytes((size_t)c->index_dim));
    }
}

int64_t mdl_layout_bytes_per_token(const mdl_config *c)
{
    size_t twice = 0; /* per two tokens, since ratio 2 adds a row every other one */
    for (int32_t i = 0; i < c->n_kv_sources; i++) {
        size_t row = fmt_q4n_bytes((size_t)c->head_dim) + fmt_q4e_bytes((size_t)c->index_dim);
        twice += row * 2 / (size_t)c->ratio[c->kv_sources[i]];
    }
    return (int64_t)(twice / 2);
}
