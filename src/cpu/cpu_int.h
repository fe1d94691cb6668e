/* cpu_int.h - inside the CPU backend: packed weights and the kernels that read them.
 *
 * A packed matrix holds the same codes as the checkpoint in panels of 16 outputs, input by input, so that one load
 * gives codes for 16 outputs and no sum ever crosses lanes. Kernels decode in registers. Sums run in the reference's
 * order, and every product that is not exact in fp32 is rounded before it is added, so results equal the reference bit
 * by bit. A kernel walks several panels side by side: each is a stream of its own to the memory system, and several
 * streams are what one core needs to use all of its bandwidth. */
#ifndef CPU_CPU_INT_H
#define CPU_CPU_INT_H

#include "core/pool.h"
#include "cpu/cpu_dot.h"
#include "cpu/cpu_store.h"
#include "ops/ref.h"

#include <stddef.h>

#define CPU_PANEL 16     /* outputs */
#define CPU_PANELS_MAX 4 /* side by side in one call */

/* Panel p starts at codes + p * panel_bytes:
 *   FP8  [n_in][16] E4M3 bytes; or, with `quads`, [n_in / 4][4][2][4][2]: four outputs, two pairs of inputs, one
 *        output, one input, so that codes can be widened to bf16 pairs without leaving their part of a register
 *   FP4  [n_in / 8][16] little-endian 32-bit words, input 8i + j in bits 4j..4j+3; then scale [n_in / 32][16] E8M0 bytes
 *   BF16 [n_in / 2][16][2] uint16, pairs of inputs
 *   F32  [n_in][16] fp32
 * The odd input of a pair comes first: the dot product of pairs (cpu_dot.h) begins with the second.
 *
 * FP8 scales are block_scale [n_panels][n_in / 32] fp32; without quads times 2^8 (see the decoders), with quads
 * negative where one of the 512 codes is zero or subnormal. BF16 has one: 1 when each value is zero or of a size within
 * the limits of cpu_dot.h, otherwise 0. Outputs past n_out have zero codes. Owned by the device
 * that made it; read-only after that. */
typedef struct cpu_packed {
    ops_format format;
    int64_t n_out;
    int64_t n_in;
    bool quads;
    size_t n_panels;
    size_t panel_bytes;
    const uint8_t *codes;
    const float *block_scale;
    size_t bytes; /* of the whole allocation */
} cpu_packed;

/* Does cpu_dot.h take it? */
static inline bool cpu_packed_dot(const cpu_packed *p)
{
    return p->format == OPS_BF16 ? p->block_scale[0] != 0.0f : p->quads;
}

/* NULL when the matrix has a shape or value that the kernels do not take (n_in no multiple of 32, a NaN code or scale)
 * or memory is short; the reference path then serves it. quads: the form of FP8. `store` NULL = the heap; `threads`
 * NULL = this one. */
cpu_packed *cpu_pack(const ops_matrix *w, bool quads, cpu_store *store, pool *threads);
void cpu_packed_free(cpu_packed *p, cpu_store *store);
/* The same for an FP4 matrix whose codes and scales may lie in the memory of the form (ops_backend.form), which is the
 * caller's: never free it. False leaves w as it is. */
bool cpu_pack_in_place(ops_matrix *w, void *memory);
/* Names of the layout above, with and without quads, for forms that are kept in files. A change of the layout needs a new version
 * (tests/cpu/test_cpu_kept.c). */
#define CPU_KEPT_QUADS "panels16-quads-2"
#define CPU_KEPT_PLAIN "panels16-2"
/* The panels and scales of a packed matrix as one range that starts at `codes`; 0 for a shape that is refused. */
size_t cpu_kept_bytes(const ops_matrix *w);
/* A packed matrix over such a range, which stays the caller's. NULL when the shape is refused or memory is short. */
cpu_packed *cpu_pack_attach(const ops_matrix *w, bool quads, const void *kept, cpu_store *store);
/* Bytes that cpu_pack will take; SIZE_MAX when it refuses the shape. */
size_t cpu_packed_bytes(const ops_matrix *w);

/* Rows of x side by side in groups, so that a kernel reads one stream whatever their number: a group of g rows holds
 * [k][g], and the groups follow one another. A group is as large as the rows left allow, of 12, 8, 4, 3, 2, 1. One row
 * is its own group. */
static inline size_t cpu_group(size_t rows_left)
{
    return rows_left >= 12 ? 12 : rows_left >= 8 ? 8 : rows_left >= 4 ? 4 : rows_left;
}

/* Rows of a product, in groups. A group that starts at row r0 has its part of each array at r0 times a row's length. */
typedef struct cpu_rows {
    const float *x; /* [k][g]; with `fixed` set the rows as they are, ldx apart */
    size_t ldx;
    const int16_t *fixed; /* [k / 2][g][2] and */
    const float *unit;    /* [k / 32][g], see cpu_fixed.h; NULL = floating point */
    const uint32_t *pairs; /* [k / 2][g], see cpu_dot.h; NULL = floating point, or integers */
} cpu_rows;

/* Kernels for a query with few heads, over rows in block order (cpu_blocks_avx512.c). Lengths are multiples of `chunk`.
 */
typedef struct cpu_blocks {
    size_t chunk;

    /* To block order, and back again. */
    void (*turn_row)(float *x, size_t n);

    /* As those of cpu_kernels, to block order. */
    void (*unpack_q8)(const uint8_t *row, size_t n, float *x);
    void (*unpack_q4n)(const uint8_t *row, size_t n, float *x);

    /* out[r * ld_row + h * ld_head] = rows[r] times q[h] in partial sums of 16 channels. q: [n_heads rounded up to
     * 4][d] */
    void (*logits)(const float *const *rows, size_t n_rows, const float *q, size_t n_heads, size_t d, float *out,
                   size_t ld_row, size_t ld_head);
} cpu_blocks;

/* Kernels of one instruction set. Rows and columns are fp32; every product in them is exact, so each may be fused with
 * its addition. */
typedef struct cpu_kernels {
    const char *name;

    /* c[r][0 .. 16 * n_panels) = n_rows rows times panels from `panel` on; n_panels 1..CPU_PANELS_MAX, ldc in floats.
     * x: whole groups. */
    void (*panels)(const cpu_packed *p, size_t panel, size_t n_panels, const float *x, size_t n_rows, float *c,
                   size_t ldc);

    /* Packed cache rows of n values (formats.h) to fp32; n is a multiple of 32. */
    void (*unpack_q8)(const uint8_t *row, size_t n, float *x);
    void (*unpack_q4n)(const uint8_t *row, size_t n, float *x);

    /* Kernels of index scoring (ops/ref.h). */
    ref_keys_fn unpack_keys;
    ref_score_fn products;

    /* out[r][c] = sum over i < k of rows[r][i] * columns[i][c], in partial sums of `block` (16 or 32) inputs; n_columns
     * is a multiple of 16. */
    void (*rows_times)(const float *const *rows, size_t n_rows, const float *columns, size_t ld_columns,
                       size_t n_columns, size_t k, size_t block, float *out, size_t ld_out);

    /* o[h][c] += sum over r < n_rows of p[h][r] * rows[r][c], in partial sums of 32 rows, c < n; n is a multiple of 32.
     * p: 64 a head. */
    void (*add_rows)(const float *p, size_t n_heads, const float *const *rows, size_t n_rows, size_t n, float *o);

    const cpu_blocks *blocks; /* NULL = this instruction set has none */
} cpu_kernels;

extern const cpu_blocks cpu_blocks_avx512;

extern const cpu_kernels cpu_kernels_avx2;
extern const cpu_kernels cpu_kernels_avx512;

void cpu_panels_avx2(const cpu_packed *p, size_t panel, size_t n_panels, const float *x, size_t n_rows, float *c,
                     size_t ldc);
void cpu_panels_avx512(const cpu_packed *p, size_t panel, size_t n_panels, const float *x, size_t n_rows, float *c,
                       size_t ldc);

/* The same for FP8 in quads; needs AVX-512 and GFNI. */
typedef void (*cpu_panels_fn)(const cpu_packed *p, size_t panel, size_t n_panels, const float *x, size_t n_rows,
                              float *c, size_t ldc);
void cpu_panels_gfni(const cpu_packed *p, size_t panel, size_t n_panels, const float *x, size_t n_rows, float *c,
                     size_t ldc);

/* The same for FP4 with rows as integers; needs AVX-512 VNNI. */
typedef void (*cpu_fixed_fn)(const cpu_packed *p, size_t panel, size_t n_panels, const cpu_rows *rows, size_t n_rows,
                             float *c, size_t ldc);
void cpu_fixed_vnni(const cpu_packed *p, size_t panel, size_t n_panels, const cpu_rows *rows, size_t n_rows, float *c,
                    size_t ldc);

/* The same as BF16 dot products (cpu_dot.h), of matrices that cpu_packed_dot tells of. */
typedef void (*cpu_dot_fn)(const cpu_packed *p, size_t panel, size_t n_panels, const uint32_t *pairs, size_t n_rows,
                           float *c, size_t ldc);
void cpu_dot_bf16(const cpu_packed *p, size_t panel, size_t n_panels, const uint32_t *pairs, size_t n_rows, float *c,
                  size_t ldc);

/* The device: the reference's, with packed weights. Owner and thread as of ops_device. */
typedef struct cpu_device {
    ref_device ref; /* first: the reference's stages take this device */
    const cpu_kernels *kernels;
    cpu_panels_fn quads; /* NULL = FP8 goes through kernels->panels */
    cpu_fixed_fn fixed;  /* NULL = FP4 goes through kernels->panels */
    cpu_store store;     /* packed weights */
    size_t budget;       /* bytes that may still be packed */
    cpus *cpus;          /* NULL = threads run anywhere */
    char placement[160]; /* see ops_backend */
    cpu_dot_fn dot;      /* NULL = products of BF16 values go through `quads` and kernels->panels */
} cpu_device;

/* Puts threads and memory in their places, as options.pin says (cpu_place.c). What cannot be done is said in dev->placement.
 * Errors: DI_E_ARGUMENT (no such value), DI_E_MEMORY. */
di_status cpu_place(cpu_device *dev, const char *pin, di_error *err);

/* All jobs over the pool, packed matrices through the kernels, others through the reference. */
void cpu_linear(ref_device *dev, const ref_linear *jobs, size_t n_jobs);

void cpu_attend(ops_device *device, const ops_attend_args *a);
void cpu_draft_attend(ops_device *device, const ops_draft_attend_args *a);

/* Inside kernels: functions that vanish into their callers, loops over constants that vanish altogether. Not under
 * sanitizers, where every load is a call: dozens of unrolled copies would take minutes to compile. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CPU_INLINE static
#define CPU_UNROLL
#elif defined(__clang__)
#define CPU_INLINE static inline __attribute__((always_inline))
#define CPU_UNROLL _Pragma("unroll")
#else
#define CPU_INLINE static inline __attribute__((always_inline))
#define CPU_UNROLL _Pragma("GCC unroll 16")
#endif

/* A line that is read once, soon, into the second cache: more lines can be on their way there than to the first, and
 * streams of panels want about as many as the memory's delay holds. */
static inline void cpu_prefetch(const void *p) { __builtin_prefetch(p, 0, 2); }

#endif
