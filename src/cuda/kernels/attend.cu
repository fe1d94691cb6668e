/* attend.cu - attention of each row over its window and its list, and inside blocks of drafts (model.md 3.8, dspark.md 1.6), in the
 * reference's arithmetic: tiles of 64 slots in order, online softmax with its exponential, sums in its order (ops/ref_attend.c). The
 * results have its bits.
 *
 * A block takes one row and four heads. A tile's rows are decoded once into shared memory as BF16, which holds them exactly; they are keys
 * and values at once. Logits: a thread for each head and slot. Values: a thread for two channels of all four heads. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/exact.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/ptx.cuh"
#include "cuda/kernels/seqs.cuh"

#include <math_constants.h>

#define TILE 64
#define HEADS 4
#define THREADS (TILE * HEADS)
#define MOST_DIM 512
#define PITCH (MOST_DIM + 8) /* values a row: lanes that read 16 bytes of neighbouring rows meet no bank twice */

struct attend_shared {
    uint16_t rows[TILE][PITCH];
    float q[HEADS][MOST_DIM];
    float x[HEADS][TILE];       /* logits, then exponentials */
    float p[TILE][HEADS];       /* probabilities, rounded */
    float max[HEADS];
    float den[HEADS];
    float alpha[HEADS];
    const uint8_t *source[TILE]; /* packed rows of the tile; NULL = none */
    uint8_t is_window[TILE];
    turn turns[MOST_DIM / 2];
    int n_slots;
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

static __device__ void decode_tile(attend_shared &s, int dim)
{
    for (int i = threadIdx.x; i < TILE * dim / 8; i += THREADS) {
        const int slot = i / (dim / 8);
        const int c = i % (dim / 8) * 8;
        const uint8_t *row = s.source[slot];
        *(uint4 *)&s.rows[slot][c] = row != nullptr ? decode_eight(row, s.is_window[slot] != 0, dim, c) : make_uint4(0, 0, 0, 0);
    }
}

/* One logit: partial sums of 16 channels. */
static __device__ float dot_row(const uint16_t *k, const float *q, int dim)
{
    float acc = 0.0f;
    for (int c0 = 0; c0 < dim; c0 += 16) {
        float part = 0.0f;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 v = *(const uint4 *)(k + c0 + half * 8);
            const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 qq = *(const float2 *)(q + c0 + half * 8 + 2 * i);
                part = __fmaf_rn(qq.x, bf16_widen(words[i] & 0xFFFFu), part);
                part = __fmaf_rn(qq.y, bf16_widen(words[i] >> 16), part);
            }
        }
        acc = __fadd_rn(acc, part);
    }
    return acc;
}

/* Two warps hold the 64 logits of a head. */
static __device__ void softmax_tile(attend_shared &s)
{
    const int h = threadIdx.x / TILE;
    const int slot = threadIdx.x % TILE;
    const int lane = threadIdx.x % 32;
    float top = s.max[h];
    const float x0 = s.x[h][lane];
    const float x1 = s.x[h][lane + 32];
    top = fmaxf(top, fmaxf(x0, x1));
    for (int d = 16; d > 0; d /= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
    }
    const float e = exact_exp(__fsub_rn(s.x[h][slot], top));
    __syncthreads();
    s.x[h][slot] = e;
    s.p[slot][h] = bf16_rounded(e);
    if (slot == 0) {
        s.alpha[h] = exact_exp(__fsub_rn(s.max[h], top));
    }
    __syncthreads();
    if (slot < 32) { /* sixteen columns of four, then across */
        const int i = lane % 16;
        const float column = __fadd_rn(__fadd_rn(__fadd_rn(s.x[h][i], s.x[h][16 + i]), s.x[h][32 + i]), s.x[h][48 + i]);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            sum = __fadd_rn(sum, __shfl_sync(0xFFFFFFFFu, column, j));
        }
        if (slot == 0) {
            s.den[h] = __fadd_rn(__fmul_rn(s.den[h], s.alpha[h]), sum);
            s.max[h] = top;
        }
    }
}

/* o += p v for two channels of every head: partial sums of 32 slots. */
static __device__ void add_values(const attend_shared &s, int c, float (&o)[HEADS][2])
{
    float product[HEADS][2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float part[HEADS][2] = {};
#pragma unroll 8
        for (int i = half * 32; i < half * 32 + 32; i++) {
            const uint32_t v = *(const uint32_t *)&s.rows[i][c];
            const float lo = bf16_widen(v & 0xFFFFu);
            const float hi = bf16_widen(v >> 16);
            const float4 p = *(const float4 *)s.p[i];
            const float ph[HEADS] = {p.x, p.y, p.z, p.w};
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                part[h][0] = __fmaf_rn(ph[h], lo, part[h][0]);
                part[h][1] = __fmaf_rn(ph[h], hi, part[h][1]);
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            product[h][0] = half == 0 ? part[h][0] : __fadd_rn(product[h][0], part[h][0]);
            product[h][1] = half == 0 ? part[h][1] : __fadd_rn(product[h][1], part[h][1]);
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (s.alpha[h] != 1.0f) {
            o[h][0] = __fmul_rn(o[h][0], s.alpha[h]);
            o[h][1] = __fmul_rn(o[h][1], s.alpha[h]);
        }
        o[h][0] = __fadd_rn(o[h][0], product[h][0]);
        o[h][1] = __fadd_rn(o[h][1], product[h][1]);
    }
}

/* Sources of a tile of a query with window and list. */
struct window_and_list {
    const cu_attend_job &a;
    const cu_seq &seq;
    slot_list l;

    __device__ void place(attend_shared &s, int slot, int at) const
    {
        const int dim = a.head_dim;
        s.is_window[slot] = at < l.n_window;
        if (at >= s.n_slots) {
            s.source[slot] = nullptr;
        } else if (at < l.n_window) {
            s.source[slot] = window_row(l, l.oldest + at, dim + dim / 32);
        } else {
            s.source[slot] = paged_row(a.seqs, seq, a.compressed, l.entries[at - l.n_window]);
        }
    }
};

/* Ring rows in ascending position mod window, then the block's. */
struct ring_and_block {
    const cu_attend_job &a;
    const cu_seq &seq;
    int64_t from;
    int n_ring;

    __device__ void place(attend_shared &s, int slot, int at) const
    {
        const int bytes = a.head_dim + a.head_dim / 32;
        s.is_window[slot] = 1;
        if (at >= s.n_slots) {
            s.source[slot] = nullptr;
        } else if (at < n_ring) {
            /* The n_ring positions before pos0, by their slot: those from the last multiple of the window on come first. */
            const int64_t turn0 = seq.pos0 - seq.pos0 % a.window; /* position of slot 0 in the newest round */
            const int64_t newest = seq.pos0 - (turn0 > from ? turn0 : from);
            const int64_t pos = at < newest ? seq.pos0 - newest + at : from + (at - newest);
            s.source[slot] = seq.state + a.ring_offset + pos % a.ring_slots * bytes;
        } else {
            s.source[slot] = a.kv + (int64_t)(seq.row0 + at - n_ring) * bytes;
        }
    }
};

template <typename SLOTS>
static __device__ void attend_heads(attend_shared &s, const cu_attend_job &a, const SLOTS &slots, int row, int64_t pos)
{
    const int dim = a.head_dim;
    const int h0 = (int)blockIdx.y * HEADS;
    const int n_heads = a.n_heads - h0 < HEADS ? a.n_heads - h0 : HEADS;
    const int c = threadIdx.x * 2;
    float o[HEADS][2] = {};
    for (int i = threadIdx.x; i < HEADS * dim; i += THREADS) {
        const int h = i / dim;
        s.q[h][i % dim] = h < n_heads ? bf16_widen(a.q[((size_t)row * a.n_heads + h0 + h) * dim + i % dim]) : 0.0f;
    }
    for (int i = threadIdx.x; i < a.rope_dim / 2; i += THREADS) {
        s.turns[i] = turn_of(a.rope[i], pos);
    }
    if (threadIdx.x < HEADS) {
        s.max[threadIdx.x] = -1e30f;
        s.den[threadIdx.x] = 0.0f;
    }
    for (int s0 = 0; s0 < s.n_slots; s0 += TILE) {
        __syncthreads();
        if (threadIdx.x < TILE) {
            slots.place(s, threadIdx.x, s0 + threadIdx.x);
        }
        __syncthreads();
        decode_tile(s, dim);
        __syncthreads();
        {
            const int h = threadIdx.x / TILE;
            const int slot = threadIdx.x % TILE;
            const float x = __fmul_rn(dot_row(s.rows[slot], s.q[h], dim), a.scale);
            s.x[h][slot] = s0 + slot < s.n_slots ? x : -CUDART_INF_F;
        }
        __syncthreads();
        softmax_tile(s);
        __syncthreads();
        if (c < dim) {
            add_values(s, c, o);
        }
    }
    if (c >= dim) {
        return;
    }
    for (int h = 0; h < n_heads; h++) {
        const float den = __fadd_rn(s.den[h], exact_exp(__fsub_rn(a.sink[h0 + h], s.max[h])));
        float lo = bf16_rounded(__fdiv_rn(o[h][0], den));
        float hi = bf16_rounded(__fdiv_rn(o[h][1], den));
        if (c >= dim - a.rope_dim) {
            rotate_pair(lo, hi, s.turns[(c - (dim - a.rope_dim)) / 2], -1.0f);
        }
        *(uint32_t *)&a.o[((size_t)row * a.n_heads + h0 + h) * dim + c] = bf16_bits(lo) | bf16_bits(hi) << 16;
    }
}

/* grid (rows, groups of heads) */
static __global__ void __launch_bounds__(THREADS) attend_kernel(const __grid_constant__ cu_attend_job a)
{
    extern __shared__ __align__(16) uint8_t memory[];
    attend_shared &s = *(attend_shared *)memory;
    pdl_release();
    pdl_wait();
    const int row = blockIdx.x;
    const int i_seq = seq_of_row(a.seqs, row);
    const cu_seq &seq = seq_at(a.seqs, i_seq);
    const cu_seq &kv_seq = seq_at(a.kv_seqs, i_seq);
    const int64_t pos = seq.pos0 + (row - seq.row0);
    window_and_list slots = {a, seq, {}};
    const int64_t oldest = pos - a.window + 1;
    slots.l.kv = a.kv;
    slots.l.kv_first = kv_seq.pos0;
    slots.l.kv_row0 = kv_seq.row0;
    slots.l.ring = seq.state + a.ring_offset;
    slots.l.ring_slots = a.ring_slots;
    slots.l.oldest = oldest > seq.window_from ? oldest : seq.window_from;
    slots.l.n_window = (int)(pos - slots.l.oldest + 1);
    slots.l.entries = a.topk > 0 ? a.list + (size_t)row * a.topk : nullptr;
    if (threadIdx.x == 0) { /* -1 ends a list early: its length by halves */
        int lo = 0;
        int hi = a.topk;
        while (lo < hi) {
            const int mid = (lo + hi) / 2;
            if (slots.l.entries[mid] >= 0) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        s.n_slots = slots.l.n_window + lo;
    }
    __syncthreads();
    attend_heads(s, a, slots, row, pos);
}

static __global__ void __launch_bounds__(THREADS) draft_attend_kernel(const __grid_constant__ cu_attend_job a)
{
    extern __shared__ __align__(16) uint8_t memory[];
    attend_shared &s = *(attend_shared *)memory;
    pdl_release();
    pdl_wait();
    const int row = blockIdx.x;
    const cu_seq &seq = seq_at(a.seqs, seq_of_row(a.seqs, row));
    const int64_t oldest = seq.pos0 - a.window;
    const int64_t from = oldest > seq.window_from ? oldest : seq.window_from;
    const ring_and_block slots = {a, seq, from, (int)(seq.pos0 - from)};
    if (threadIdx.x == 0) {
        s.n_slots = slots.n_ring + seq.n_rows;
    }
    __syncthreads();
    attend_heads(s, a, slots, row, seq.pos0 + (row - seq.row0));
}

static int launch(void (*kernel)(cu_attend_job), const cu_attend_job *args, cu_stream stream)
{
    const dim3 grid((unsigned)args->n_rows, (unsigned)(args->n_heads + HEADS - 1) / HEADS);
    const int status = (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(attend_shared));
    return status != 0 ? status : cu_launch(kernel, grid, dim3(THREADS), sizeof(attend_shared), stream, *args);
}

extern "C" int cu_launch_attend(const cu_attend_job *args, cu_stream stream) { return launch(attend_kernel, args, stream); }

extern "C" int cu_launch_draft_attend(const cu_attend_job *args, cu_stream stream) { return launch(draft_attend_kernel, args, stream); }

/* --- Window rings ------------------------------------------------------------------------------------------------------------------ */

/* grid (rows) */
static __global__ void __launch_bounds__(128) window_store_kernel(const __grid_constant__ cu_seqs seqs, int ring_slots, int row_bytes,
                                                                  int64_t ring_offset, const uint8_t *kv)
{
    pdl_release();
    pdl_wait();
    const int i_seq = seq_of_row(seqs, blockIdx.x);
    if (i_seq < 0) {
        return;
    }
    const cu_seq &seq = seq_at(seqs, i_seq);
    const int t = (int)blockIdx.x - seq.row0;
    if (t < seq.n_rows - ring_slots) {
        return;
    }
    uint8_t *out = seq.state + ring_offset + (seq.pos0 + t) % ring_slots * row_bytes;
    for (int i = threadIdx.x; i < row_bytes; i += 128) {
        out[i] = kv[(size_t)blockIdx.x * row_bytes + i];
    }
}

extern "C" int cu_launch_window_store(const cu_seqs *seqs, int32_t rows, int32_t ring_slots, int32_t row_bytes, int64_t ring_offset,
                                      const uint8_t *kv, cu_stream stream)
{
    return cu_launch(window_store_kernel, dim3((unsigned)rows), dim3(128), 0, stream, *seqs, ring_slots, row_bytes, ring_offset, kv);
}
