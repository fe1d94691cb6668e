/* mdl_stream.h - routed experts from the disk, for models larger than the memory that they may take (ops/ops_feed.h).
 *
 * A fixed number of slots holds experts of all layers; what a layer needs and no slot has is read in one batch, while the stage computes
 * what is there. Bits do not depend on what was in memory. A guess of the next layer's experts, made by its router from this layer's
 * input, fills the time in which the disk would have nothing to do; it is trusted as far as guesses were right lately.
 *
 * Experts have numbers: those of the backbone layer by layer, then those of the draft stage by stage. Owner and thread: the runner. */
#ifndef MODEL_MDL_STREAM_H
#define MODEL_MDL_STREAM_H

#include "model/mdl_reader.h"
#include "model/mdl_slots.h"
#include "model/mdl_weights.h"
#include "model/model.h"

typedef struct mdl_stream mdl_stream;

/* Layers, or stages, of equally many experts. */
typedef struct mdl_expert_group {
    const mdl_layer_weights *layers; /* [n_layers] borrowed */
    int32_t n_layers;
    int32_t n_experts; /* a layer */
} mdl_expert_group;

#define MDL_EXPERT_GROUPS 2 /* backbone, draft */
#define MDL_STREAM_LEAST 2  /* slots: one is read while another computes */

/* Bytes of one slot: of the largest expert in whichever of its two forms takes more, with room for aligned reads. */
size_t mdl_stream_slot_bytes(const ops_backend *ops, const ops_device *dev, const mdl_expert_group *groups);

/* As many slots as `bytes` hold, at least MDL_STREAM_LEAST and at most one an expert. Reader, backend and device are borrowed.
 * Errors: DI_E_MEMORY. */
di_status mdl_stream_new(const ops_backend *ops, ops_device *dev, const mdl_expert_group groups[MDL_EXPERT_GROUPS], mdl_reader *reader,
                         size_t bytes, mdl_stream **out, di_error *err);
void mdl_stream_free(mdl_stream *s); /* before its reader is used by others again: reads must be over, or the reader freed */

/* The feed of a layer (of the backbone, then stages of the draft), for one call of the experts stage. */
ops_feed *mdl_stream_layer(mdl_stream *s, int32_t layer);

/* ids [n], any order, repeats allowed, are likely in `layer`, which comes next. For the call of the stage that follows: read behind what
 * the stage itself needs. */
void mdl_stream_guess(mdl_stream *s, int32_t layer, const int32_t *ids, size_t n);

/* Fills its fields of the statistics. */
void mdl_stream_get_stats(const mdl_stream *s, mdl_stream_stats *out);

#endif
