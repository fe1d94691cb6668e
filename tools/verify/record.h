/* record.h - what the engine's trace said in one phase (a prefill in any chunking, a decode step), gathered by name.
 *
 * Passes of a phase are appended row by row, so that chunking does not show. Rows keep their own length: scores and selections
 * grow with the position. Records stay in the order in which the trace first named them: the order of the forward pass. */
#ifndef VERIFY_RECORD_H
#define VERIFY_RECORD_H

#include "core/core.h"

#include <deepinfer/model.h>

typedef struct vf_row {
    size_t offset; /* elements */
    size_t n;
} vf_row;

typedef struct vf_record {
    char *name;
    di_dtype dtype;
    uint8_t *data;
    size_t n_elements;
    size_t capacity;
    vf_row *rows;
    size_t n_rows;
    size_t row_capacity;
} vf_record;

typedef struct vf_trace {
    vf_record *records;
    size_t n;
    size_t capacity;
    di_status status; /* DI_E_MEMORY when something is missing */
} vf_trace;

/* The trace callback; `user` is a vf_trace. Values of "cache." are one row each. */
void vf_trace_on(void *user, const di_trace *tensor);

/* Forgets values, keeps the names and their order. */
void vf_trace_clear(vf_trace *t);
void vf_trace_fini(vf_trace *t);

/* NULL when nothing of that name came since the last clear; else *rank = its place in the order. */
const vf_record *vf_trace_find(const vf_trace *t, const char *name, size_t *rank);

size_t vf_dtype_bytes(di_dtype dtype);

/* Element i of an array of that type, exactly. */
double vf_number(di_dtype dtype, const uint8_t *data, size_t i);

#endif
