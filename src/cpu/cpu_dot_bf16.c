/* cpu_dot_bf16.c - FP8 and BF16 panels times rows of BF16 pairs (cpu_dot.h), for AVX-512 with BF16 and GFNI. Few rows
 * read four panels side by side and widen codes in registers; many rows read two, and FP8 is widened once a chunk. */
#include "cpu/cpu_dot.h"
#include "cpu/cpu_int.h"
#include "cpu/cpu_quads.inc"
#include "ops/formats.h"

#include <math.h>
#include <string.h>

#define CHUNK 128  /* inputs: those of two panels fill a quarter of the first cache */
#define AHEAD 4096 /* bytes from a load to the prefetch in its stream */
#define ROWS_MAX 12

/* What panels hold: codes, codes with a zero or subnormal among them, BF16, or BF16 made of codes. */
typedef enum kind { CODES, SMALL_CODES, VALUES, WIDENED } kind;

/* Panels of a call, from an input on that starts a block. */
typedef struct dot_view {
    const uint8_t *codes;
    size_t stride; /* bytes from panel to panel */
    size_t left;   /* bytes to the end of a panel */
    const float *scale[CPU_PANELS_MAX]; /* of blocks; not for VALUES */
} dot_view;

typedef __m512 sums[ROWS_MAX][CPU_PANELS_MAX];

CPU_INLINE size_t input_bytes(const kind k) { return k == CODES || k == SMALL_CODES ? CPU_PANEL : 2 * CPU_PANEL; }

/* Two pairs of inputs of one panel, p at the first. */
CPU_INLINE void load_pairs(const kind k, const uint8_t *p, __m512i out[2])
{
    if (k == CODES || k == SMALL_CODES) {
        const __m512i codes = _mm512_loadu_si512(p);
        const quad_bytes b = k == CODES ? quads_normal(codes) : quads_exact(codes);
        out[0] = quads_words(b, 0);
        out[1] = quads_words(b, 1);
    } else {
        out[0] = _mm512_loadu_si512(p);
        out[1] = _mm512_loadu_si512(p + 64);
    }
}

/* part = the sums of the block at p. */
CPU_INLINE void sum_block(const kind k, const size_t np, const size_t g, const uint8_t *p, size_t stride, size_t ahead,
                          const uint32_t *pairs, sums part)
{
    CPU_UNROLL
    for (size_t r = 0; r < g; r++) {
        CPU_UNROLL
        for (size_t q = 0; q < np; q++) {
            part[r][q] = _mm512_setzero_ps();
        }
    }
    for (size_t i = 0; i < 32; i += 4, p += 4 * input_bytes(k), pairs += 2 * g) {
        __m512i in[CPU_PANELS_MAX][2];
        CPU_UNROLL
        for (size_t q = 0; q < np; q++) {
            load_pairs(k, p + q * stride, in[q]);
            if (ahead != 0) {
                cpu_prefetch(p + q * stride + ahead);
            }
            if (ahead != 0 && k == VALUES) {
                cpu_prefetch(p + q * stride + ahead + 64);
            }
        }
        CPU_UNROLL
        for (size_t t = 0; t < 2; t++) {
            CPU_UNROLL
            for (size_t r = 0; r < g; r++) {
                const __m512i a = _mm512_set1_epi32((int32_t)pairs[t * g + r]);
                CPU_UNROLL
                for (size_t q = 0; q < np; q++) {
                    part[r][q] = _mm512_dpbf16_ps(part[r][q], (__m512bh)in[q][t], (__m512bh)a);
                }
            }
        }
    }
}

/* c[r][...] += n inputs of np panels times a group of rows. */
CPU_INLINE void add_group(const kind k, const size_t np, const size_t g, const dot_view *w, size_t n,
                          const uint32_t *pairs, float *c, size_t ldc)
{
    const size_t block = 32 * input_bytes(k);
    for (size_t b = 0; b < n / 32; b++) {
        const uint8_t *p = w->codes + b * block;
        /* Behind these panels come the next ones. */
        const size_t next = b * block + AHEAD < w->left ? 0 : (np - 1) * w->stride;
        const size_t ahead = k == WIDENED ? 0 : AHEAD + next;
        sums part;
        bool small = false;
        CPU_UNROLL
        for (size_t q = 0; q < np && k == CODES; q++) {
            small = small || w->scale[q][b] < 0.0f;
        }
        if (small) {
            sum_block(SMALL_CODES, np, g, p, w->stride, ahead, pairs + b * 16 * g, part);
        } else {
            sum_block(k, np, g, p, w->stride, ahead, pairs + b * 16 * g, part);
        }
        CPU_UNROLL
        for (size_t q = 0; q < np; q++) {
            const __m512 s = k == VALUES ? _mm512_setzero_ps() : _mm512_set1_ps(fabsf(w->scale[q][b]));
            CPU_UNROLL
            for (size_t r = 0; r < g; r++) {
                float *at = c + r * ldc + q * CPU_PANEL;
                const __m512 sum = k == VALUES ? part[r][q] : _mm512_mul_ps(part[r][q], s);
                _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum));
            }
        }
    }
}

/* n inputs, from input k0 of the rows on. */
CPU_INLINE void add_rows(const kind k, const size_t np, const dot_view *w, size_t k0, size_t n, const uint32_t *pairs,
                         size_t row_pairs, size_t m, float *c, size_t ldc)
{
    for (size_t r = 0; r < m;) {
        const size_t g = cpu_group(m - r);
        const uint32_t *in = pairs + r * row_pairs + k0 / 2 * g;
        float *out = c + r * ldc;
        r += g;
        if (g == 12 && np <= 2) {
            add_group(k, np, 12, w, n, in, out, ldc);
        } else if (g == 8 && np <= 2) {
            add_group(k, np, 8, w, n, in, out, ldc);
        } else if (g == 4) {
            add_group(k, np, 4, w, n, in, out, ldc);
        } else if (g == 3) {
            add_group(k, np, 3, w, n, in, out, ldc);
        } else if (g == 2) {
            add_group(k, np, 2, w, n, in, out, ldc);
        } else if (g == 1) {
            add_group(k, np, 1, w, n, in, out, ldc);
        }
    }
}

/* n inputs of np panels as [np][n / 2][16] pairs. */
CPU_INLINE void widen(const size_t np, const dot_view *w, size_t n, uint8_t *out)
{
    for (size_t q = 0; q < np; q++) {
        for (size_t i = 0; i < n; i += 4, out += 128) {
            const __m512i codes = _mm512_loadu_si512(w->codes + q * w->stride + i * CPU_PANEL);
            const quad_bytes b = w->scale[q][i / 32] < 0.0f ? quads_exact(codes) : quads_normal(codes);
            _mm512_storeu_si512(out, quads_words(b, 0));
            _mm512_storeu_si512(out + 64, quads_words(b, 1));
        }
    }
}

/* Many rows: a chunk of inputs at a time, so that its weights stay in the first cache for all of them. */
CPU_INLINE void many_rows(const kind k, const size_t np, dot_view w, size_t n_in, const uint32_t *pairs, size_t m,
                          float *c, size_t ldc)
{
    _Alignas(64) uint8_t memory[2 * CHUNK * 2 * CPU_PANEL];
    for (size_t k0 = 0; k0 < n_in; k0 += CHUNK) {
        const size_t n = n_in - k0 < CHUNK ? n_in - k0 : CHUNK;
        if (k == VALUES) {
            add_rows(VALUES, np, &w, k0, n, pairs, n_in / 2, m, c, ldc);
        } else {
            dot_view widened = w;
            widened.codes = memory;
            widened.stride = n * 2 * CPU_PANEL;
            widen(np, &w, n, memory);
            add_rows(WIDENED, np, &widened, k0, n, pairs, n_in / 2, m, c, ldc);
        }
        w.codes += n * input_bytes(k);
        w.left -= n * input_bytes(k);
        for (size_t q = 0; q < np && k != VALUES; q++) {
            w.scale[q] += n / 32;
        }
    }
}

CPU_INLINE void run_panels(const kind k, const size_t np, const cpu_packed *p, size_t panel, const uint32_t *pairs,
                           size_t m, float *c, size_t ldc)
{
    const size_t n_in = (size_t)p->n_in;
    dot_view w = {.codes = p->codes + panel * p->panel_bytes, .stride = p->panel_bytes, .left = p->panel_bytes};
    for (size_t q = 0; q < np && k != VALUES; q++) {
        w.scale[q] = p->block_scale + (panel + q) * (n_in / 32);
    }
    if (m > ROWS_MAX && np <= 2) {
        many_rows(k, np, w, n_in, pairs, m, c, ldc);
    } else {
        add_rows(k, np, &w, 0, n_in, pairs, n_in / 2, m, c, ldc);
    }
}

CPU_INLINE void run_kind(const kind k, const cpu_packed *p, size_t panel, size_t n_panels, const uint32_t *pairs,
                         size_t m, float *c, size_t ldc)
{
    for (size_t q = 0; q < n_panels;) {
        const size_t left = n_panels - q;
        float *out = c + q * CPU_PANEL;
        if (left >= 4 && m <= 4) {
            run_panels(k, 4, p, panel + q, pairs, m, out, ldc);
            q += 4;
        } else if (left >= 2) {
            run_panels(k, 2, p, panel + q, pairs, m, out, ldc);
            q += 2;
        } else {
            run_panels(k, 1, p, panel + q, pairs, m, out, ldc);
            q += 1;
        }
    }
}

void cpu_dot_bf16(const cpu_packed *p, size_t panel, size_t n_panels, const uint32_t *pairs, size_t n_rows, float *c,
                  size_t ldc)
{
    for (size_t r = 0; r < n_rows; r++) {
        memset(c + r * ldc, 0, n_panels * CPU_PANEL * sizeof *c);
    }
    if (p->quads) {
        run_kind(CODES, p, panel, n_panels, pairs, n_rows, c, ldc);
    } else {
        run_kind(VALUES, p, panel, n_panels, pairs, n_rows, c, ldc);
    }
}

bool cpu_dot_row(const float *x, size_t k, size_t g, uint32_t *pairs)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i place = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)g));
    const __m512i low = _mm512_set1_epi32((127 + CPU_DOT_MIN) << 23);
    const __m512i span = _mm512_set1_epi32((CPU_DOT_MAX - CPU_DOT_MIN) << 23);
    __mmask16 wrong = 0;
    for (size_t i = 0; i < k; i += 32) {
        const __m512i a = _mm512_loadu_si512(x + i);
        const __m512i b = _mm512_loadu_si512(x + i + 16);
        for (int h = 0; h < 2; h++) {
            const __m512i size = _mm512_and_si512(h == 0 ? a : b, _mm512_set1_epi32(0x7FFFFFFF));
            const __mmask16 there = _mm512_test_epi32_mask(size, size);
            wrong |= _mm512_mask_cmpge_epu32_mask(there, _mm512_sub_epi32(size, low), span);
            wrong |= _mm512_test_epi32_mask(size, _mm512_set1_epi32(0xFFFF));
        }
        const __m512i upper = _mm512_permutex2var_epi32(a, even, b);
        const __m512i lower = _mm512_srli_epi32(_mm512_permutex2var_epi32(a, odd, b), 16);
        const __m512i words = _mm512_or_si512(upper, lower);
        if (g == 1) {
            _mm512_storeu_si512(pairs + i / 2, words);
        } else {
            _mm512_i32scatter_epi32(pairs + i / 2 * g, place, words, 4);
        }
    }
    return wrong == 0;
}

bool cpu_dot_is_exact(void)
{
    uint32_t seed = 1;
    bool exact = true;
    for (int n = 0; n < 64; n++) {
        uint32_t a[16];
        uint32_t b[16];
        float c[16];
        float got[16];
        for (int i = 0; i < 48; i++) { /* random signs and mantissas, exponents close enough to meet */
            seed = seed * 1664525 + 1013904223;
            const uint32_t word = (seed & 0x87FF87FFu) | 0x38003800u;
            if (i < 32) {
                (i < 16 ? a : b)[i % 16] = word;
            } else {
                c[i - 32] = fmt_float(word ^ seed >> 20);
            }
        }
        const __m512 sum = _mm512_dpbf16_ps(_mm512_loadu_ps(c), (__m512bh)_mm512_loadu_si512(a),
                                            (__m512bh)_mm512_loadu_si512(b));
        _mm512_storeu_ps(got, sum);
        for (int i = 0; i < 16; i++) {
            const float first = fmaf(fmt_float(a[i] & 0xFFFF0000u), fmt_float(b[i] & 0xFFFF0000u), c[i]);
            exact = exact && got[i] == fmaf(fmt_float(a[i] << 16), fmt_float(b[i] << 16), first);
        }
    }
    return exact;
}
