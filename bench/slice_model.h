/* slice_model.h - a slice of the released model for benches: two layers of real shapes with random weights, in the released layout.
 *
 * One layer of ratio 2 and one of ratio 1, both with compressor and indexer, n_experts routed experts a layer, a vocabulary of 4096.
 * Random gates choose experts evenly. */
#ifndef BENCH_SLICE_MODEL_H
#define BENCH_SLICE_MODEL_H

#include <deepinfer/base.h>

#include <stddef.h>
#include <stdint.h>

#define SLICE_VOCAB 4096

/* What the model weighs. */
typedef struct slice_model {
    int32_t n_experts;
    size_t dense_bytes; /* of both layers, shared experts included */
    size_t dense_values;
    size_t head_bytes;
    size_t expert_bytes; /* of one routed expert */
    size_t expert_values;
} slice_model;

/* Fills `out`; writes the checkpoint into folder `dir` unless it is there. Ends the program where that fails. */
void slice_model_prepare(slice_model *out, int32_t n_experts, const char *dir);

#endif
