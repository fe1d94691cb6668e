/* cu_int.h - inside the CUDA backend: the device, packed weights, scratch.
 *
 * Owner of a device: whoever opened it; one thread. A packed weight belongs to the device that loaded it. Scratch belongs to the running
 * stage: the next stage on the same stream may use the same bytes, since work on a stream runs in order. */
#ifndef CUDA_CU_INT_H
#define CUDA_CU_INT_H

#include "cuda/cu_kernels.h"
#include "cuda/cuda.h"

/* What ops_matrix.packed points to. */
typedef struct cu_packed {
    ops_format format;
    int64_t n_out;
    int64_t n_in;
    uint8_t *bytes; /* device: tiles (kernels/expand.cuh), or the checkpoint's bytes where no product reads them */
} cu_packed;

/* Device table of the experts of one layer, made at its first use. */
typedef struct cu_expert_table {
    struct cu_expert_table *next;
    const ops_expert *key; /* ops_experts_args.experts */
    cu_expert *experts;    /* device [n_experts] */
} cu_expert_table;

typedef struct cu_device {
    cu_stream stream;
    int ordinal;
    int n_sms;
    di_error error; /* first failure since the last sync; code DI_OK = none */
    uint8_t *scratch;
    size_t scratch_size;
    size_t scratch_used;
    cu_expert_table *tables;
} cu_device;

static inline cu_device *cu_of(ops_device *dev) { return (cu_device *)(void *)dev; }

/* Records a failed CUDA call, given as its cudaError_t. True when it succeeded. */
bool cu_ok(cu_device *dev, int cuda_error, const char *what);
/* Records that a stage was given what it can't do. */
void cu_refuse(cu_device *dev, const char *stage, const char *why);

/* Starts a stage with so much scratch (the sum of cu_scratch_bytes of its pieces). False after a failure that sync has not reported. */
bool cu_stage_begin(cu_device *dev, size_t scratch_bytes);
/* Next piece of the stage's scratch, aligned to 256 bytes. */
void *cu_scratch(cu_device *dev, size_t bytes);
static inline size_t cu_scratch_bytes(size_t bytes) { return (bytes + 255) / 256 * 256; }

static inline const cu_packed *cu_packed_of(const ops_matrix *w) { return w->packed; }

/* Canonical chunks of inputs of a product with this matrix: 1 or 4, by its form alone. Changing the rule changes results. */
int32_t cu_split(ops_format format, int64_t n_out, int64_t n_in);

#endif
