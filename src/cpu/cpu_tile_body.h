/* cpu_tile_body.h - the tile kernel, written over a few vector operations that the including file defines for its instruction set:
 *
 *   vf, NV                 vector of floats; vectors a tile (32 / lanes)
 *   vf_zero vf_load vf_store vf_set1 vf_add vf_mul vf_fma(a, b, c) = a * b + c
 *   decode_fp8(p, out[NV])   32 E4M3 codes, values times 2^-8     decode_fp4(p, out[NV])   16 bytes, 32 values
 *   decode_bf16(p, out[NV])  32 bf16
 *   FUSED_ROWS             most rows for which decoding again for each group of rows is cheaper than a decoded copy
 *
 * Order of sums (ops/ref.h): blocks of 32 inputs (16 for fp32 weights), ascending, then the running sum. Scales are powers of two and are
 * applied to the block's sum, which commutes with rounding. Products of bf16 values are exact in fp32, so fused multiply-add rounds once
 * where the reference rounds once; fp32 weights are multiplied and added separately. */

static inline __attribute__((always_inline)) void block_decoded(ops_format format, const uint8_t *codes, size_t i, vf out[NV])
{
    switch (format) {
    case OPS_FP8:
        decode_fp8(codes + i * 32, out);
        break;
    case OPS_FP4:
        decode_fp4(codes + i * 16, out);
        break;
    case OPS_BF16:
        decode_bf16(codes + i * 64, out);
        break;
    default:
        for (size_t v = 0; v < NV; v++) {
            out[v] = vf_load((const float *)(const void *)(codes + i * 128) + v * (32 / NV));
        }
        break;
    }
}

static inline __attribute__((always_inline)) vf block_scale(ops_format format, const float *scale, size_t g, size_t v)
{
    return format == OPS_FP8 ? vf_set1(scale[g]) : vf_load(scale + g * 32 + v * (32 / NV));
}

/* n_blocks blocks of inputs from k0 on, m rows. Blocks are independent sums until they are added in order: with few rows, several at once
 * hide the latency of the additions. format, m, n_blocks are constants at each call. */
static inline __attribute__((always_inline)) void blocks_of(const ops_format format, const size_t m, const size_t n_blocks,
                                                            const uint8_t *codes, const float *scale, size_t k0, const float *x, size_t ldx,
                                                            vf acc[4][NV])
{
    const bool scaled = format == OPS_FP8 || format == OPS_FP4;
    const size_t block = format == OPS_F32 ? 16 : 32;
    vf part[4][4][NV];
    for (size_t b = 0; b < n_blocks; b++) {
        for (size_t r = 0; r < m; r++) {
            for (size_t v = 0; v < NV; v++) {
                part[b][r][v] = vf_zero();
            }
        }
    }
    for (size_t i = k0; i < k0 + block; i++) {
        for (size_t b = 0; b < n_blocks; b++) {
            vf w[NV];
            block_decoded(format, codes, i + b * block, w);
            for (size_t r = 0; r < m; r++) {
                vf a = vf_set1(x[r * ldx + i + b * block]);
                for (size_t v = 0; v < NV; v++) {
                    vf p = part[b][r][v];
                    part[b][r][v] = format == OPS_F32 ? vf_add(p, vf_mul(a, w[v])) : vf_fma(a, w[v], p);
                }
            }
        }
    }
    for (size_t b = 0; b < n_blocks; b++) {
        for (size_t r = 0; r < m; r++) {
            for (size_t v = 0; v < NV; v++) {
                vf p = part[b][r][v];
                acc[r][v] = vf_add(acc[r][v], scaled ? vf_mul(p, block_scale(format, scale, k0 / 32 + b, v)) : p);
            }
        }
    }
}

/* m rows, decoding in registers; format and m are constants at each call. */
static inline __attribute__((always_inline)) void fused(const ops_format format, const size_t m, const uint8_t *codes, const float *scale,
                                                        size_t k, const float *x, size_t ldx, float *c)
{
    const size_t block = format == OPS_F32 ? 16 : 32;
    const size_t at_once = m == 1 ? 4 : m == 2 ? 2 : 1;
    vf acc[4][NV];
    for (size_t r = 0; r < m; r++) {
        for (size_t v = 0; v < NV; v++) {
            acc[r][v] = vf_zero();
        }
    }
    size_t k0 = 0;
    for (; k0 + at_once * block <= k; k0 += at_once * block) {
        blocks_of(format, m, at_once, codes, scale, k0, x, ldx, acc);
    }
    for (; k0 < k; k0 += block) {
        blocks_of(format, m, 1, codes, scale, k0, x, ldx, acc);
    }
    for (size_t r = 0; r < m; r++) {
        for (size_t v = 0; v < NV; v++) {
            vf_store(c + r * 32 + v * (32 / NV), acc[r][v]);
        }
    }
}

/* Rows in groups of up to FUSED_ROWS. */
static inline __attribute__((always_inline)) void fused_rows(const ops_format format, const uint8_t *codes, const float *scale, size_t k,
                                                             const float *x, size_t ldx, size_t m, float *c)
{
    size_t r = 0;
    for (; r + FUSED_ROWS <= m; r += FUSED_ROWS) {
        fused(format, FUSED_ROWS, codes, scale, k, x + r * ldx, ldx, c + r * 32);
    }
    for (; r + 2 <= m; r += 2) {
        fused(format, 2, codes, scale, k, x + r * ldx, ldx, c + r * 32);
    }
    if (r < m) {
        fused(format, 1, codes, scale, k, x + r * ldx, ldx, c + r * 32);
    }
}

/* The tile as fp32 [k][32], scale included, for many rows. The extra factor of E4M3 is part of the scale. */
static inline __attribute__((always_inline)) void decode_all(const ops_format format, const uint8_t *codes, const float *scale, size_t k,
                                                             float *out)
{
    const bool scaled = format == OPS_FP8 || format == OPS_FP4;
    for (size_t i = 0; i < k; i++) {
        vf w[NV];
        block_decoded(format, codes, i, w);
        for (size_t v = 0; v < NV; v++) {
            vf_store(out + i * 32 + v * (32 / NV), scaled ? vf_mul(w[v], block_scale(format, scale, i / 32, v)) : w[v]);
        }
    }
}

/* A decoded tile is summed like bf16 codes: no scale left, exact products. */
static inline __attribute__((always_inline)) void tile_rows(const ops_format format, const uint8_t *codes, const float *scale, size_t k,
                                                            const float *x, size_t ldx, size_t m, float *c, float *scratch)
{
    if (format == OPS_F32 || m <= FUSED_ROWS) {
        fused_rows(format, codes, scale, k, x, ldx, m, c);
    } else {
        decode_all(format, codes, scale, k, scratch);
        fused_rows(DECODED, (const uint8_t *)(const void *)scratch, NULL, k, x, ldx, m, c);
    }
}

void TILE_NAME(const cpu_packed *p, size_t t, const float *x, size_t ldx, size_t m, float *c, float *scratch)
{
    const uint8_t *codes = p->codes + t * p->tile_bytes;
    const float *scale = p->scale + t * p->tile_scales;
    size_t k = (size_t)p->n_in;
    switch (p->format) {
    case OPS_FP8:
        tile_rows(OPS_FP8, codes, scale, k, x, ldx, m, c, scratch);
        break;
    case OPS_FP4:
        tile_rows(OPS_FP4, codes, scale, k, x, ldx, m, c, scratch);
        break;
    case OPS_BF16:
        tile_rows(OPS_BF16, codes, scale, k, x, ldx, m, c, scratch);
        break;
    default:
        tile_rows(OPS_F32, codes, scale, k, x, ldx, m, c, scratch);
        break;
    }
}
