/* mdl_layout.h - where a sequence keeps what (model.md 5).
 *
 * A sequence's state is one fixed block (window rings of every layer, open groups of ratio-2 sources, rings of the draft) and a
 * growing list of pages. Rings have OPS_REWIND slots more than the window, so that the last tokens can be taken back (dspark.md 2.6). A
 * page holds MDL_PAGE_TOKENS tokens: for each KV source its compressed rows, then its index-key rows, in the released packed formats
 * (890 bytes a token as released). All offsets are multiples of 64. */
#ifndef MODEL_MDL_LAYOUT_H
#define MODEL_MDL_LAYOUT_H

#include "model/mdl_config.h"
#include "ops/ops.h"

#define MDL_PAGE_TOKENS 128

typedef struct mdl_layout {
    size_t window_row_bytes;
    int32_t ring_slots;
    size_t state_bytes;
    size_t page_bytes;
    size_t ring_offset[MDL_MAX_LAYERS];     /* in the state; every backbone layer */
    size_t open_offset[MDL_MAX_LAYERS];     /* in the state; ratio-2 KV sources */
    size_t draft_ring_offset[MDL_MAX_LAYERS]; /* in the state; draft stages */
    ops_paged compressed[MDL_MAX_LAYERS];   /* in a page; KV sources */
    ops_paged index_keys[MDL_MAX_LAYERS];
} mdl_layout;

/* With or without the draft model's rings. */
void mdl_layout_init(const mdl_config *c, bool draft, mdl_layout *out);

/* Payload bytes a token adds on average: the figure users know (890 as released). */
int64_t mdl_layout_bytes_per_token(const mdl_config *c);

#endif
