/* compare.h - the criteria of the golden data, as their README states them, over one case.
 *
 * Criterion 1: each float tensor within its three tolerances (largest difference, relative RMS, cosine).
 * Criterion 2: selections (topk, router_ids, candidates) equal as sets. In a case marked `selection_changes` one may move; from
 * the first row where one did, the golden values are another computation: there logits must meet the looser bound of the
 * manifest, and other floats are not compared. In any other case a moved row is a difference.
 * Criterion 3 is about sets of cases and lives in cmd_verify.c; this file gives the relative RMS of the logits.
 * Other integers are equal. An argmax counts where the golden gap between best and second exceeds the bound of the tensor. */
#ifndef VERIFY_COMPARE_H
#define VERIFY_COMPARE_H

#include "golden.h"
#include "record.h"

#define VF_NAME_BYTES 96
#define VF_TEXT_BYTES 256

typedef struct vf_difference {
    bool any;
    int phase;   /* with rank: the place in the forward pass */
    size_t rank;
    char tensor[VF_NAME_BYTES];
    int64_t row; /* position of the token; -1 = not about one */
    char text[VF_TEXT_BYTES];
} vf_difference;

typedef void (*vf_difference_fn)(const vf_difference *difference);

typedef struct vf_result {
    const char *name;
    const char *kind;
    size_t n_tensors;
    double worst; /* largest share of a tolerance that was used up */
    char worst_tensor[VF_NAME_BYTES];
    vf_difference first; /* in the order of the forward pass */
    size_t n_differences;
    int64_t moved_row; /* first row with another selection; -1 = none */
    char moved_tensor[VF_NAME_BYTES];
    double logits_rel_rms; /* largest of the case's logits; -1 = it has none */
    bool judged;           /* for criterion 3 */
    vf_difference_fn listener; /* hears of every difference, in the order of comparing; NULL = nobody */
} vf_result;

/* Values of the engine that belong to golden tensors of one phase. */
typedef struct vf_phase_values {
    int phase;
    int64_t base;           /* position of row 0 */
    size_t n_rows;          /* rows of the phase */
    int64_t n_tokens;       /* fed so far, for caches */
    const vf_trace *trace;
    const vf_trace *logits; /* "logits" or "decode_logits" */
} vf_phase_values;

void vf_result_init(vf_result *r, const vf_case *c);

/* Compares all golden tensors of the phase. Errors are about the golden data or memory; differences go to *r. */
di_status vf_compare_phase(const vf_case *c, const vf_phase_values *v, vf_result *r, di_error *err);

#endif
