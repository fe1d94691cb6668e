/* ops_types.h - the values that stages exchange: number formats, stored matrices, row spans. */
#ifndef OPS_OPS_TYPES_H
#define OPS_OPS_TYPES_H

#include <deepinfer/base.h>

/* Widths that stages keep on the stack; the configuration is checked against them. */
#define OPS_MAX_ROPE_DIM 512
#define OPS_MAX_INDEX_DIM 1024
#define OPS_MAX_HC 8

typedef uint16_t bf16; /* bit pattern; helpers in ops/formats.h */

/* How a matrix is stored in the checkpoint (model.md 2.3). All are row-major [n_out, n_in]. */
typedef enum ops_format {
    OPS_F32,  /* little-endian fp32 */
    OPS_BF16, /* little-endian bf16 */
    OPS_FP8,  /* E4M3 bytes, one E8M0 scale per 32 x 32 block: scale [ceil(n_out/32), ceil(n_in/32)] */
    OPS_FP8R, /* E4M3 bytes, one E8M0 scale per row and 32 columns: scale [n_out, n_in/32] (Engram tables) */
    OPS_FP4   /* two E2M1 per byte (even column low), one E8M0 scale per row and 32 columns: scale [n_out, n_in/32] */
} ops_format;

/* A weight. `data` and `scale` borrow the mapped checkpoint (byte-aligned only). A backend may attach its own form through
 * `packed`; it owns that memory and frees it in weight_free. */
typedef struct ops_matrix {
    ops_format format;
    int64_t n_out;
    int64_t n_in;
    const uint8_t *data;
    const uint8_t *scale; /* NULL for OPS_F32 and OPS_BF16 */
    void *packed;         /* backend's own; NULL = none */
} ops_matrix;

#endif
