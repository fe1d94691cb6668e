/* mdl_layout.h - where a sequence keeps what (model.md 5).
 *
 * A sequence's state is one fixed block (window rings of every layer, open groups of ratio-2 sources) and a growing list of pages. A page
 * holds MDL_PAGE_TOKENS tokens: for each KV source its compressed rows, then its index-key rows, in the released packed formats
 * (890 bytes a token as released). All offsets are multiples of 64. */
#ifndef MODEL_MDL_LAYOUT_H
#define MODEL_MDL_LAYOUT_H

#include "model/mdl_config.h"
#include "ops/ops.h"

#define MDL_PAGE_TOKENS 128

typedef struct mdl_layout {
    size_t window_row_bytes;
    size_t state_bytes;
    size_t page_bytes;
    size_t ring_offset[MDL_MAX_LAYERS];     /* in the state; every backbone layer */
    size_t open_offset[MDL_MAX_LAYERS];     /* in the state; ratio-2 KV sources */
    ops_paged compressed[MDL_MAX_LAYERS];   /* in a page; KV sources */
    ops_paged index_keys[MDL_MAX_LAYERS];
} mdl_layout;

void mdl_layout_init(const mdl_config *c, mdl_layout *out);

/* Payload bytes a token adds on average: the figure users know (890 as released). */
int64_t mdl_layout_bytes_per_token(const mdl_config *c);

#endif
