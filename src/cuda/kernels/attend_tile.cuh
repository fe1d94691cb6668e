/* attend_tile.cuh - one tile of attention, 64 slots, for 8 or 16 heads of a row (model.md 3.8), in the reference's arithmetic
 * (ops/ref_attend.c): a logit is summed in parts of 16 channels, a tile's values in two parts of 32 slots. A row has the reference's bits
 * however its tiles and heads are shared among blocks. A tile's rows are decoded once, as BF16, which holds them exactly; they are keys and
 * values at once. */
#ifndef CUDA_KERNELS_ATTEND_TILE_CUH
#define CUDA_KERNELS_ATTEND_TILE_CUH

#include "cuda/cu_kernels.h"
#include "cuda/kernels/exact.cuh"
#include "cuda/kernels/ptx.cuh"
#include "cuda/kernels/seqs.cuh"

#include <math_constants.h>

#define TILE 64
#define THREADS 256
#define WARPS (THREADS / 32)
#define MOST_DIM (2 * THREADS) /* a thread has two channels of the values */
#define PITCH (MOST_DIM + 8)   /* values a row: lanes that read 16 bytes of neighbouring rows meet no bank twice */

struct source {
    const uint8_t *row; /* packed; NULL = none */
    bool is_window;
};

template <int HEADS> struct tile_shared {
    uint16_t rows[TILE][PITCH];
    float q[HEADS][MOST_DIM];
    float x[HEADS][TILE + 4]; /* logits */
    float p[TILE][HEADS + 4]; /* exponentials, rounded */
    source sources[TILE];
};

/* Where one query's slots lie. */
struct slot_list {
    const uint8_t *kv;    /* rows of the batch */
    int64_t kv_first;     /* position of ... */
    int64_t kv_row0;      /* ... this row */
    const uint8_t *ring;
    int ring_slots;
    int64_t oldest;
    int n_window;
    const int32_t *entries;
};

static __device__ __forceinline__ const uint8_t *window_row(const slot_list &l, int64_t pos, int bytes)
{
    const int64_t at = pos - l.kv_first;
    return at >= 0 ? l.kv + (l.kv_row0 + at) * bytes : l.ring + pos % l.ring_slots * bytes;
}

/* Four bytes of a packed row of width n. */
static __device__ __forceinline__ uint32_t load_word(const uint8_t *p, int n)
{
    if (n % 128 == 0) { /* then rows are a multiple of 4 bytes */
        return *(const uint32_t *)p;
    }
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Eight values of a packed row from channel c on, as four BF16 pairs. */
static __device__ __forceinline__ uint4 decode_eight(const uint8_t *row, bool is_window, int n, int c)
{
    uint32_t word[4];
    float v[8];
    if (is_window) { /* Q8 */
        const float s = e8m0_value(row[n + c / 32]);
        const uint32_t codes[2] = {load_word(row + c, n), load_word(row + c + 4, n)};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = __fmul_rn(e4m3_value(codes[i / 4] >> 8 * (i % 4) & 0xFFu), s);
        }
    } else {
        const float s = e4m3_value(row[n / 2 + c / 16]);
        const uint32_t codes = load_word(row + c / 2, n);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = __fmul_rn(e2m1_value(codes >> 4 * i & 15u), s);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word[i] = __float_as_uint(v[2 * i]) >> 16 | (__float_as_uint(v[2 * i + 1]) & 0xFFFF0000u);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <int HEADS> static __device__ void load_queries(tile_shared<HEADS> &s, const cu_attend_job &a, int row, int h0)
{
    const int pairs = a.head_dim / 2;
    for (int i = threadIdx.x; i < HEADS * pairs; i += THREADS) {
        const int h = i / pairs;
        const int c = i % pairs * 2;
        const uint32_t two = h0 + h < a.n_heads ? *(const uint32_t *)&a.q[((size_t)row * a.n_heads + h0 + h) * a.head_dim + c] : 0u;
        *(float2 *)&s.q[h][c] = make_float2(bf16_widen(two & 0xFFFFu), bf16_widen(two >> 16));
    }
}

template <int HEADS> static __device__ void decode_tile(tile_shared<HEADS> &s, int dim)
{
    const int chunks = dim / 8;
#pragma unroll 8
    for (int i = threadIdx.x; i < TILE * chunks; i += THREADS) {
        const int slot = i / chunks;
        const int c = i % chunks * 8;
        const source &from = s.sources[slot];
        *(uint4 *)&s.rows[slot][c] = from.row != nullptr ? decode_eight(from.row, from.is_window, dim, c) : make_uint4(0, 0, 0, 0);
    }
}

/* x of all heads, -inf for slots from n_valid on: a thread for a slot and a quarter of the heads, in parts of 16 channels. */
template <int HEADS> static __device__ void make_logits(tile_shared<HEADS> &s, int dim, float scale, int n_valid)
{
    enum { MINE = HEADS / (THREADS / TILE) };
    const int slot = threadIdx.x % TILE;
    const int h0 = threadIdx.x / TILE * MINE;
    float acc[MINE] = {};
    for (int c0 = 0; c0 < dim; c0 += 16) {
        float part[MINE] = {};
#pragma unroll
        for (int c = c0; c < c0 + 16; c += 8) {
            const uint4 k = *(const uint4 *)&s.rows[slot][c];
            const uint32_t words[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float lo = bf16_widen(words[i] & 0xFFFFu);
                const float hi = __uint_as_float(words[i] & 0xFFFF0000u);
#pragma unroll
                for (int h = 0; h < MINE; h++) {
                    const float2 q = *(const float2 *)&s.q[h0 + h][c + 2 * i];
                    part[h] = __fmaf_rn(q.x, lo, part[h]);
                    part[h] = __fmaf_rn(q.y, hi, part[h]);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < MINE; h++) {
            acc[h] = __fadd_rn(acc[h], part[h]);
        }
    }
#pragma unroll
    for (int h = 0; h < MINE; h++) {
        s.x[h0 + h][slot] = slot < n_valid ? __fmul_rn(acc[h], scale) : -CUDART_INF_F;
    }
}

/* By a warp: the largest logit of a head, in all lanes. */
static __device__ float largest(const float *x)
{
    const int lane = threadIdx.x % 32;
    float top = fmaxf(x[lane], x[lane + 32]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
    }
    return top;
}

/* By a warp: a head's exponentials, rounded, into p; their sum in all lanes: sixteen columns of four, then across. */
template <int HEADS> static __device__ float weigh(tile_shared<HEADS> &s, int h, float top)
{
    const int lane = threadIdx.x % 32;
    const float low = exact_exp(__fsub_rn(s.x[h][lane], top));
    const float high = exact_exp(__fsub_rn(s.x[h][lane + 32], top));
    s.p[lane][h] = bf16_rounded(low);
    s.p[lane + 32][h] = bf16_rounded(high);
    const float second = __shfl_down_sync(0xFFFFFFFFu, low, 16);
    const float fourth = __shfl_down_sync(0xFFFFFFFFu, high, 16);
    const float column = __fadd_rn(__fadd_rn(__fadd_rn(low, second), high), fourth);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 16; j++) {
        sum = __fadd_rn(sum, __shfl_sync(0xFFFFFFFFu, column, j));
    }
    return sum;
}

/* Values of heads h0 to h0 + 7, channels c and c + 1: two parts of 32 slots. */
template <int HEADS> static __device__ void make_values(const tile_shared<HEADS> &s, int h0, int c, float (&v)[8][2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float part[8][2] = {};
#pragma unroll 4
        for (int i = half * 32; i < half * 32 + 32; i++) {
            const uint32_t row = *(const uint32_t *)&s.rows[i][c];
            const float lo = bf16_widen(row & 0xFFFFu);
            const float hi = __uint_as_float(row & 0xFFFF0000u);
            const float4 p0 = *(const float4 *)&s.p[i][h0];
            const float4 p1 = *(const float4 *)&s.p[i][h0 + 4];
            const float p[8] = {p0.x, p0.y, p0.z, p0.w, p1.x, p1.y, p1.z, p1.w};
#pragma unroll
            for (int h = 0; h < 8; h++) {
                part[h][0] = __fmaf_rn(p[h], lo, part[h][0]);
                part[h][1] = __fmaf_rn(p[h], hi, part[h][1]);
            }
        }
#pragma unroll
        for (int h = 0; h < 8; h++) {
            v[h][0] = half == 0 ? part[h][0] : __fadd_rn(v[h][0], part[h][0]);
            v[h][1] = half == 0 ? part[h][1] : __fadd_rn(v[h][1], part[h][1]);
        }
    }
}

#endif
