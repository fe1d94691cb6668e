/* cpu_fixed_vnni.c - FP4 panels times rows of integers (cpu_fixed.h), for AVX-512 with VNNI: one permutation makes 32
 * weights, one instruction adds 32 products. Few rows read four panels side by side, many rows two, as the panel kernel
 * does. A block that is not exact is added afterwards, row by row, in floating point. */
#include "cpu/cpu_fixed.h"
#include "cpu/cpu_int.h"
#include "cpu/cpu_vector_avx512.inc"
#include "ops/formats.h"

#define AHEAD 2048 /* bytes from a load to the prefetch in its stream */
#define SCALES_AHEAD 256
#define ROWS_MAX 12

#define MAX_EXPONENT 100 /* units and their inverses stay normal */

/* Pairs of one block (cpu_fixed.h) and u / 2; 0 and zeros when they are not exact. */
static float fix_block(const float *x, __m512i *pairs)
{
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
    const vf x0 = vf_load(x);
    const vf x1 = vf_load(x + 16);
    const float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
    const int exponent = top == 0.0f ? 0 : (int)(fmt_bits(top) >> 23) - 127;
    *pairs = _mm512_setzero_si512();
    if (exponent < -MAX_EXPONENT || exponent > MAX_EXPONENT) {
        return 0.0f;
    }
    const vf per_unit = vf_set1(fmt_float((uint32_t)(127 + 14 - exponent) << 23));
    const vf v0 = vf_mul(x0, per_unit);
    const vf v1 = vf_mul(x1, per_unit);
    const __m512i i0 = _mm512_cvttps_epi32(v0);
    const __m512i i1 = _mm512_cvttps_epi32(v1);
    if (_mm512_cmpeq_ps_mask(_mm512_cvtepi32_ps(i0), v0) != 0xFFFF ||
        _mm512_cmpeq_ps_mask(_mm512_cvtepi32_ps(i1), v1) != 0xFFFF) {
        return 0.0f; /* NaNs end here too */
    }
    const __m512i even = _mm512_and_si512(_mm512_permutex2var_epi32(i0, low, i1), _mm512_set1_epi32(0xFFFF));
    const __m512i odd = _mm512_slli_epi32(_mm512_permutex2var_epi32(i0, high, i1), 16);
    *pairs = _mm512_or_si512(even, odd);
    return fmt_float((uint32_t)(127 - 15 + exponent) << 23);
}

void cpu_fix_row(const float *x, size_t k, size_t g, int16_t *fixed, float *unit)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i place = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)g));
    for (size_t b = 0; b < k / 32; b++) {
        __m512i pairs;
        unit[b * g] = fix_block(x + b * 32, &pairs);
        _mm512_i32scatter_epi32(fixed + b * 32 * g, place, pairs, 4);
    }
}

/* Panels of a call and the group of rows that they are multiplied with. */
typedef struct fixed_view {
    const uint8_t *codes;
    size_t stride; /* bytes from panel to panel */
    size_t k;
    const float *x; /* rows, ldx apart */
    size_t ldx;
    const int16_t *fixed;
    const float *unit;
} fixed_view;

/* The 32 codes of a block word, doubled: the upper half of the table repeats the lower, because the index has five
 * bits. */
CPU_INLINE __m512i code_table(void)
{
    const __m256i half = _mm256_setr_epi16(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm512_broadcast_i64x4(half);
}

CPU_INLINE vf scale_of(const fixed_view *w, size_t q, size_t b)
{
    return vf_e8m0(w->codes + q * w->stride + w->k * (CPU_PANEL / 2) + b * CPU_PANEL);
}

/* Block b of row r in floating point, onto c; panels side by side, as each is a chain of additions. */
CPU_INLINE void add_floating(const fixed_view *w, const size_t np, size_t b, size_t r, float *c)
{
    const float *x = w->x + r * w->ldx + b * 32;
    const uint8_t *codes = w->codes + b * 32 * (CPU_PANEL / 2);
    vf part[CPU_PANELS_MAX];
    CPU_UNROLL
    for (size_t q = 0; q < np; q++) {
        part[q] = vf_zero();
    }
    for (size_t i8 = 0; i8 < 4; i8++) {
        CPU_UNROLL
        for (size_t i = 0; i < 8; i++) {
            CPU_UNROLL
            for (size_t q = 0; q < np; q++) {
                part[q] = vf_fma(vf_set1(x[i8 * 8 + i]), vf_fp4(codes + q * w->stride + i8 * 64, (int)i), part[q]);
            }
        }
    }
    CPU_UNROLL
    for (size_t q = 0; q < np; q++) {
        vf_store(c + q * CPU_PANEL, vf_add(vf_load(c + q * CPU_PANEL), vf_mul(part[q], scale_of(w, q, b))));
    }
}

/* Sums of block b, as integers. */
CPU_INLINE void sum_block(const size_t np, const size_t g, const fixed_view *w, size_t b, size_t ahead,
                          __m512i sum[ROWS_MAX][CPU_PANELS_MAX])
{
    const __m512i table = code_table();
    CPU_UNROLL
    for (size_t r = 0; r < g; r++) {
        CPU_UNROLL
        for (size_t q = 0; q < np; q++) {
            sum[r][q] = _mm512_setzero_si512();
        }
    }
    for (size_t i8 = 0; i8 < 4; i8++) {
        const uint8_t *codes = w->codes + (b * 4 + i8) * 64;
        const int16_t *fixed = w->fixed + (b * 4 + i8) * 4 * g * 2;
        CPU_UNROLL
        for (size_t t = 0; t < 4; t++) {
            __m512i in[CPU_PANELS_MAX];
            if (g <= 4 && t < np) {
                cpu_prefetch(codes + t * w->stride + ahead);
            }
            CPU_UNROLL
            for (size_t q = 0; q < np; q++) {
                const __m512i words = _mm512_loadu_si512(codes + q * w->stride);
                in[q] = _mm512_permutexvar_epi16(_mm512_srli_epi32(words, (unsigned)(4 * t)), table);
            }
            CPU_UNROLL
            for (size_t r = 0; r < g; r++) {
                int32_t pair;
                memcpy(&pair, fixed + (t * g + r) * 2, sizeof pair);
                const __m512i a = _mm512_set1_epi32(pair);
                CPU_UNROLL
                for (size_t q = 0; q < np; q++) {
                    sum[r][q] = _mm512_dpwssd_epi32(sum[r][q], in[q], a);
                }
            }
        }
    }
}

/* c[r][...] += a group of rows times np panels. */
CPU_INLINE void add_group(const size_t np, const size_t g, const fixed_view *w, float *c, size_t ldc)
{
    const __mmask16 rows = (__mmask16)((1u << g) - 1);
    for (size_t b = 0; b < w->k / 32; b++) {
        /* Behind the codes of these panels come those of the next ones. */
        const size_t ahead = AHEAD + (b * 256 + AHEAD < w->k * 8 ? 0 : np * w->stride - w->k * 8);
        cpu_prefetch(w->codes + b % np * w->stride + w->k * 8 + b * CPU_PANEL + SCALES_AHEAD);
        const float *unit = w->unit + b * g;
        __m512i sum[ROWS_MAX][CPU_PANELS_MAX];
        sum_block(np, g, w, b, ahead, sum);
        CPU_UNROLL
        for (size_t q = 0; q < np; q++) {
            const vf s = scale_of(w, q, b);
            CPU_UNROLL
            for (size_t r = 0; r < g; r++) {
                float *at = c + r * ldc + q * CPU_PANEL;
                const vf part = vf_mul(_mm512_cvtepi32_ps(sum[r][q]), vf_mul(s, vf_set1(unit[r])));
                vf_store(at, vf_add(vf_load(at), part));
            }
        }
        const __m512 units = _mm512_maskz_loadu_ps(rows, unit);
        const __mmask16 inexact = _mm512_mask_cmp_ps_mask(rows, units, _mm512_setzero_ps(), _CMP_EQ_OQ);
        for (unsigned left = inexact; left != 0; left &= left - 1) {
            const size_t r = (size_t)__builtin_ctz(left);
            add_floating(w, np, b, r, c + r * ldc);
        }
    }
}

CPU_INLINE void add_rows(const size_t np, fixed_view w, const cpu_rows *rows, size_t m, float *c, size_t ldc)
{
    for (size_t r = 0; r < m;) {
        const size_t g = cpu_group(m - r);
        w.x = rows->x + r * rows->ldx;
        w.fixed = rows->fixed + r * w.k;
        w.unit = rows->unit + r * (w.k / 32);
        float *out = c + r * ldc;
        r += g;
        if (g == 1) {
            add_group(np, 1, &w, out, ldc);
        } else if (g == 2) {
            add_group(np, 2, &w, out, ldc);
        } else if (g == 3) {
            add_group(np, 3, &w, out, ldc);
        } else if (g == 4) {
            add_group(np, 4, &w, out, ldc);
        } else if (g == 8 && np <= 2) {
            add_group(np, 8, &w, out, ldc);
        } else if (g == 12 && np <= 2) {
            add_group(np, 12, &w, out, ldc);
        }
    }
}

void cpu_fixed_vnni(const cpu_packed *p, size_t panel, size_t n_panels, const cpu_rows *rows, size_t n_rows, float *c,
                    size_t ldc)
{
    const size_t most = n_rows <= 4 ? CPU_PANELS_MAX : 2;
    for (size_t r = 0; r < n_rows; r++) {
        memset(c + r * ldc, 0, n_panels * CPU_PANEL * sizeof *c);
    }
    for (size_t q = 0; q < n_panels;) {
        const fixed_view w = {.codes = p->codes + (panel + q) * p->panel_bytes,
                              .stride = p->panel_bytes,
                              .k = (size_t)p->n_in,
                              .ldx = rows->ldx};
        const size_t left = n_panels - q < most ? n_panels - q : most;
        if (left >= 4) {
            add_rows(4, w, rows, n_rows, c + q * CPU_PANEL, ldc);
            q += 4;
        } else if (left >= 2) {
            add_rows(2, w, rows, n_rows, c + q * CPU_PANEL, ldc);
            q += 2;
        } else {
            add_rows(1, w, rows, n_rows, c + q * CPU_PANEL, ldc);
            q += 1;
        }
    }
}
