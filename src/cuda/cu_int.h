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
    bool tiles;           /* bytes are tiles (kernels/expand.cuh); else the checkpoint's, in its order */
    uint8_t *bytes;       /* device; NULL = the checkpoint's own memory, which the device reads (scale points there too) */
    const uint8_t *data;  /* device address of what `bytes` holds */
    const uint8_t *scale; /* device; of untiled matrices */
} cu_packed;

/* Device table of the experts of one layer, made at its first use. */
typedef struct cu_expert_table {
    struct cu_expert_table *next;
    const ops_expert *key; /* ops_experts_args.experts */
    void *experts;         /* device [n_experts] cu_expert, or cu_plain_expert where the matrices have no tiles */
    bool tiles;
} cu_expert_table;

/* A table of sequences on the device, and what it holds. The host's copy is compared with what the next stage needs: the stages of a step
 * have few tables between them. */
typedef struct cu_table {
    uint8_t *host;
    uint8_t *device;
    size_t size;
    size_t capacity;
} cu_table;

#define CU_TABLES 8

/* A pass that was seen before (ops_step), and its graph once it was seen twice. Used again when its place is needed. */
typedef struct cu_graph {
    int32_t n_rows; /* 0 = free */
    int32_t n_seqs;
    int64_t reach; /* tokens that selection has room for */
    const void *key;
    uint64_t used;
    struct CUgraphExec_st *exec; /* NULL = none yet */
    bool never;                  /* it could not be captured */
} cu_graph;

#define CU_GRAPHS 64
#define CU_STEP_ROWS 512

/* Passes that repeat (cu_step.c). Their tables of sequences lie at the same place in every pass: one without pages, one with them. */
typedef struct cu_steps {
    cu_graph graphs[CU_GRAPHS];
    uint64_t clock;
    uint8_t *host; /* pinned */
    uint8_t *device;
    size_t capacity;
    size_t at[2];
    size_t size[2];
    cu_graph *recording; /* stages are captured for it; NULL = they run */
} cu_steps;

typedef struct cu_device {
    cu_stream stream;
    int ordinal;
    int n_sms;
    di_error error; /* first failure since the last sync; code DI_OK = none */
    uint8_t *scratch;
    size_t scratch_size;
    size_t scratch_used;
    cu_expert_table *tables;
    cu_table seqs[CU_TABLES];
    cu_table building; /* host only: the table that a stage asks for */
    int next_table;
    bool hopper;     /* has the instructions of products with many tokens */
    uint8_t *packed; /* rows of the running product with many tokens */
    size_t packed_size;
    bool planning; /* stages only say how much scratch they need */
    size_t planned;
    cu_steps steps;
    uint8_t *arranged; /* rows of the running products (cu_launch_arrange) */
    size_t arranged_size;
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

/* Bytes of scratch for n_rows rows of n elements. */
static inline size_t cu_rows_bytes(int32_t n_rows, int64_t n, size_t size) { return cu_scratch_bytes((size_t)n_rows * (size_t)n * size); }

/* This thread works with the device's GPU from here on. */
void cu_select(cu_device *dev);

/* One product of a stage: y = x W^T, x BF16 on the grid that the stage wants. Exactly one of y16 and y32 is set; rows of y are w->n_out
 * apart. */
typedef struct cu_product {
    const ops_matrix *w;
    const bf16 *x;
    int64_t ldx;        /* 0 = w->n_in */
    int32_t group_rows; /* as in cu_linear */
    bf16 *y16;
    float *y32;
} cu_product;

/* From so many rows on products take the kernels for many tokens (kernels/gemm.cuh), where the device has them. The bits are the same.
 * BF16 matrices with many tokens are routers: few outputs, too few items for the large ones of these kernels. */
#define CU_MANY_ROWS 128
#define CU_MANY_ROWS_BF16 1024
#define CU_MANY_ROWS_EXPERTS 1024

/* Memory for packed rows (cu_launch_pack_rows), until the next call. NULL after a failure. */
uint8_t *cu_packed_rows(cu_device *dev, int32_t padded_rows, int64_t width);

/* Memory for arranged rows, where products arrange so many. Stages with wide rows plan with it. False after a failure. */
bool cu_arranged_reserve(cu_device *dev, int32_t n_rows, int64_t width);

/* Products of the same rows: matrices with tiles that go together in one launch. False after a failure. */
bool cu_products(cu_device *dev, const char *stage, const cu_product *products, size_t n, int32_t n_rows);

/* The sequences of a stage on the device; page_tokens 0 = without pages. False after a failure. */
bool cu_seqs_of(cu_device *dev, const ops_seq *seqs, int32_t n_seqs, int32_t page_tokens, cu_seqs *out);
/* n bytes of the host on the device, until CU_TABLES - 1 other tables have been asked for. NULL after a failure. */
const void *cu_table_of(cu_device *dev, const void *bytes, size_t n);
void cu_tables_free(cu_device *dev);
/* The table of cu_seqs_of in dev->building; its size, and where row_seq begins. False after a failure. */
bool cu_seqs_build(cu_device *dev, const ops_seq *seqs, int32_t n_seqs, int32_t page_tokens, size_t *bytes, size_t *row_seq_at);

/* Graphs are made anew when memory that they use moves. */
void cu_steps_forget(cu_device *dev);
void cu_steps_free(cu_device *dev);
/* Tokens that selection makes room for, at least `tokens`: in a pass that repeats, one bound for many passes. */
int64_t cu_reach(const cu_device *dev, int64_t tokens);

static inline cu_paged cu_paged_of(const ops_paged *p)
{
    return (cu_paged){.offset = (int64_t)p->offset, .per_page = p->per_page, .row_bytes = p->row_bytes};
}

static inline const cu_packed *cu_packed_of(const ops_matrix *w) { return w->packed; }

/* Canonical chunks of inputs of a product with this matrix: 1 or 4, by its form alone. Changing the rule changes results. */
int32_t cu_split(ops_format format, int64_t n_out, int64_t n_in);

#endif
