/* mdl_flat.c - caches as flat bytes that outlive a process: what goes to the lower tiers of the KV cache and comes back bit for bit.
 *
 * A page is flat already: rows in the released packed formats (model.md 5). Of a state only what a sequence that resumes behind `at`
 * tokens can still read is written: the window rows of each layer in the order of their positions, not in that of ring slots, so equal
 * prefixes give equal bytes whatever the sequence did before. Units end at even positions, so no group is open there. A snapshot inside a
 * prompt lacks the windows of decoder layers (4.2), and is shorter by them.
 *
 * What these bytes mean is in the fingerprint (mdl_fingerprint.c), which is part of every key. */
#include "model/model_int.h"

#include <string.h>

size_t mdl_flat_page_bytes(const mdl_runner *r) { return r->layout.page_bytes; }

static size_t ring_bytes(const mdl_runner *r) { return (size_t)r->c->window * r->layout.window_row_bytes; }

static int32_t n_layers_of(const mdl_runner *r, bool whole) { return whole ? r->c->n_layers : r->decoder_start; }

static int32_t n_stages_of(const mdl_runner *r, bool whole) { return whole && r->draft ? r->c->draft.n_stages : 0; }

size_t mdl_flat_state_bytes(const mdl_runner *r, bool whole)
{
    return (size_t)(n_layers_of(r, whole) + n_stages_of(r, whole)) * ring_bytes(r);
}

void mdl_flat_page_out(mdl_runner *r, void *out, const void *page) { r->ops->download(r->dev, out, page, r->layout.page_bytes); }
void mdl_flat_page_in(mdl_runner *r, void *page, const void *bytes) { r->ops->upload(r->dev, page, bytes, r->layout.page_bytes); }

/* Consecutive positions that lie side by side in a ring. */
typedef struct piece {
    size_t slot;
    size_t row; /* of the flat window */
    size_t n;
} piece;

/* A window behind `at` tokens is at most two pieces; rows of positions below zero are in none. */
static int32_t pieces_of(const mdl_runner *r, int64_t at, piece out[2])
{
    const int64_t window = r->c->window;
    const int64_t from = at > window ? at - window : 0;
    const int64_t slots = r->layout.ring_slots;
    const int64_t slot = from % slots;
    const int64_t n = at - from;
    const int64_t first = n < slots - slot ? n : slots - slot;
    const int64_t row = window - n;
    out[0] = (piece){.slot = (size_t)slot, .row = (size_t)row, .n = (size_t)first};
    out[1] = (piece){.slot = 0, .row = (size_t)(row + first), .n = (size_t)(n - first)};
    return n > first ? 2 : 1;
}

static void ring_out(mdl_runner *r, uint8_t *out, const uint8_t *ring, int64_t at)
{
    const size_t row = r->layout.window_row_bytes;
    piece pieces[2];
    const int32_t n = pieces_of(r, at, pieces);
    memset(out, 0, pieces[0].row * row);
    for (int32_t i = 0; i < n; i++) {
        r->ops->download(r->dev, out + pieces[i].row * row, ring + pieces[i].slot * row, pieces[i].n * row);
    }
}

static void ring_in(mdl_runner *r, uint8_t *ring, const uint8_t *bytes, int64_t at)
{
    const size_t row = r->layout.window_row_bytes;
    piece pieces[2];
    const int32_t n = pieces_of(r, at, pieces);
    for (int32_t i = 0; i < n; i++) {
        r->ops->upload(r->dev, ring + pieces[i].slot * row, bytes + pieces[i].row * row, pieces[i].n * row);
    }
}

/* Offset in the state of the i-th ring: layers, then stages of the draft. */
static size_t ring_at(const mdl_runner *r, int32_t n_layers, int32_t i)
{
    return i < n_layers ? r->layout.ring_offset[i] : r->layout.draft_ring_offset[i - n_layers];
}

void mdl_flat_state_out(mdl_runner *r, void *out, const void *state, int64_t at, bool whole)
{
    const int32_t n_layers = n_layers_of(r, whole);
    const int32_t n = n_layers + n_stages_of(r, whole);
    for (int32_t i = 0; i < n; i++) {
        ring_out(r, (uint8_t *)out + (size_t)i * ring_bytes(r), (const uint8_t *)state + ring_at(r, n_layers, i), at);
    }
}

void mdl_flat_state_in(mdl_runner *r, void *state, const void *bytes, int64_t at, bool whole)
{
    const int32_t n_layers = n_layers_of(r, whole);
    const int32_t n = n_layers + n_stages_of(r, whole);
    for (int32_t i = 0; i < n; i++) {
        ring_in(r, (uint8_t *)state + ring_at(r, n_layers, i), (const uint8_t *)bytes + (size_t)i * ring_bytes(r), at);
    }
}
