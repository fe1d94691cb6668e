/* attend.cu - attention of each row over its window and its list, and inside blocks of drafts (model.md 3.8, dspark.md 1.6), with the
 * reference's bits. The arithmetic of a tile is in attend_tile.cuh; here is who does which tiles.
 *
 *   few rows   a cluster for a row and 8 or 16 heads, a block for each tile. All tiles are decoded and have their logits at the same time;
 *              the blocks tell each other their largest ones, so each knows the largest up to its own tile; then the values of all
 *              tiles, and each block adds a share of the channels in the order of the tiles.
 *   many rows  a block for a row and 16 heads goes through the tiles in order.
 *
 * Both do the same operations in the same order for each output. */
#include "cuda/kernels/attend_tile.cuh"
#include "cuda/kernels/launch.cuh"

#define MOST_TILES 16 /* blocks of a cluster */

static const float LEAST = -1e30f; /* what the largest logit begins with */

/* Sources of a query with window and list. */
struct window_and_list {
    const cu_attend_job &a;
    const cu_seq &seq;
    slot_list l;
    int n_slots;

    __device__ source at(int i) const
    {
        if (i >= n_slots) {
            return {nullptr, false};
        }
        if (i < l.n_window) {
            return {window_row(l, l.oldest + i, a.head_dim + a.head_dim / 32), true};
        }
        return {paged_row(a.seqs, seq, a.compressed, l.entries[i - l.n_window]), false};
    }
};

/* Ring rows in ascending position mod window, then the block's. */
struct ring_and_block {
    const cu_attend_job &a;
    const cu_seq &seq;
    int64_t from;
    int n_ring;
    int n_slots;

    __device__ source at(int i) const
    {
        const int bytes = a.head_dim + a.head_dim / 32;
        if (i >= n_slots) {
            return {nullptr, false};
        }
        if (i >= n_ring) {
            return {a.kv + (int64_t)(seq.row0 + i - n_ring) * bytes, true};
        }
        /* The n_ring positions before pos0, by their slot: those from the last multiple of the window on come first. */
        const int64_t turn0 = seq.pos0 - seq.pos0 % a.window; /* position of slot 0 in the newest round */
        const int64_t newest = seq.pos0 - (turn0 > from ? turn0 : from);
        const int64_t pos = i < newest ? seq.pos0 - newest + i : from + (i - newest);
        return {seq.state + a.ring_offset + pos % a.ring_slots * bytes, true};
    }
};

/* By all threads of the block. */
static __device__ window_and_list slots_of_row(const cu_attend_job &a, int row, int64_t *pos)
{
    const int i_seq = seq_of_row(a.seqs, row);
    const cu_seq &seq = seq_at(a.seqs, i_seq);
    const cu_seq &kv_seq = seq_at(a.kv_seqs, i_seq);
    *pos = seq.pos0 + (row - seq.row0);
    const int64_t oldest = *pos - a.window + 1;
    window_and_list s = {a, seq, {}, 0};
    s.l.kv = a.kv;
    s.l.kv_first = kv_seq.pos0;
    s.l.kv_row0 = kv_seq.row0;
    s.l.ring = seq.state + a.ring_offset;
    s.l.ring_slots = a.ring_slots;
    s.l.oldest = oldest > seq.window_from ? oldest : seq.window_from;
    s.l.n_window = (int)(*pos - s.l.oldest + 1);
    s.l.entries = a.topk > 0 ? a.list + (size_t)row * a.topk : nullptr;
    s.n_slots = s.l.n_window;
    for (int i = threadIdx.x; i - (int)threadIdx.x < a.topk; i += THREADS) { /* -1 ends a list early */
        s.n_slots += __syncthreads_count(i < a.topk && s.l.entries[i] >= 0);
    }
    return s;
}

/* One pair of channels of a head, done. */
static __device__ void put_pair(const cu_attend_job &a, int row, int head, int c, float lo, float hi, const turn *turns)
{
    lo = bf16_rounded(lo);
    hi = bf16_rounded(hi);
    if (c >= a.head_dim - a.rope_dim) {
        rotate_pair(lo, hi, turns[(c - (a.head_dim - a.rope_dim)) / 2], -1.0f);
    }
    *(uint32_t *)&a.o[((size_t)row * a.n_heads + head) * a.head_dim + c] = bf16_bits(lo) | bf16_bits(hi) << 16;
}

/* The last warp, while others do something else. */
static __device__ void make_turns(const cu_attend_job &a, int64_t pos, turn *turns)
{
    for (int i = (int)threadIdx.x - (THREADS - 32); i >= 0 && i < a.rope_dim / 2; i += 32) {
        turns[i] = turn_of(a.rope[i], pos);
    }
}

/* --- Many rows: tiles in order ---------------------------------------------------------------------------------------------------- */

#define HEADS 16

struct many_shared {
    tile_shared<HEADS> t;
    float max[HEADS];
    float den[HEADS];
    float alpha[HEADS];
    turn turns[MOST_DIM / 2];
};

/* The largest logits so far, exponentials, sums: a head at a time for each warp. */
static __device__ void weigh_tile(many_shared &s)
{
    for (int h = (int)threadIdx.x / 32; h < HEADS; h += WARPS) {
        const float before = s.max[h];
        const float top = fmaxf(before, largest(s.t.x[h]));
        const float sum = weigh(s.t, h, top);
        __syncwarp(); /* every lane has read what the first one changes */
        if (threadIdx.x % 32 == 0) {
            const float alpha = exact_exp(__fsub_rn(before, top));
            s.alpha[h] = alpha;
            s.den[h] = __fadd_rn(__fmul_rn(s.den[h], alpha), sum);
            s.max[h] = top;
        }
    }
}

template <typename SLOTS>
static __device__ void attend_in_order(many_shared &s, const cu_attend_job &a, const SLOTS &slots, int row, int64_t pos)
{
    const int dim = a.head_dim;
    const int h0 = (int)blockIdx.y * HEADS;
    const int c = (int)threadIdx.x * 2;
    float o[HEADS][2] = {};
    load_queries(s.t, a, row, h0);
    make_turns(a, pos, s.turns);
    if (threadIdx.x < HEADS) {
        s.max[threadIdx.x] = LEAST;
        s.den[threadIdx.x] = 0.0f;
    }
    for (int s0 = 0; s0 < slots.n_slots; s0 += TILE) {
        __syncthreads();
        if (threadIdx.x < TILE) {
            s.t.sources[threadIdx.x] = slots.at(s0 + (int)threadIdx.x);
        }
        __syncthreads();
        decode_tile(s.t, dim);
        __syncthreads();
        make_logits(s.t, dim, a.scale, slots.n_slots - s0);
        __syncthreads();
        weigh_tile(s);
        __syncthreads();
#pragma unroll
        for (int g = 0; g < HEADS && c < dim; g += 8) {
            float v[8][2];
            make_values(s.t, g, c, v);
#pragma unroll
            for (int h = 0; h < 8; h++) {
                o[g + h][0] = __fadd_rn(__fmul_rn(o[g + h][0], s.alpha[g + h]), v[h][0]);
                o[g + h][1] = __fadd_rn(__fmul_rn(o[g + h][1], s.alpha[g + h]), v[h][1]);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (c < dim && h0 + h < a.n_heads) {
            const float den = __fadd_rn(s.den[h], exact_exp(__fsub_rn(a.sink[h0 + h], s.max[h])));
            put_pair(a, row, h0 + h, c, __fdiv_rn(o[h][0], den), __fdiv_rn(o[h][1], den), s.turns);
        }
    }
}

/* grid (rows, groups of heads) */
static __global__ void __launch_bounds__(THREADS, 2) attend_many_kernel(const __grid_constant__ cu_attend_job a)
{
    extern __shared__ __align__(16) uint8_t memory[];
    many_shared &s = *(many_shared *)memory;
    int64_t pos;
    pdl_release();
    pdl_wait();
    const window_and_list slots = slots_of_row(a, (int)blockIdx.x, &pos);
    attend_in_order(s, a, slots, (int)blockIdx.x, pos);
}

/* grid (rows, groups of heads) */
static __global__ void __launch_bounds__(THREADS, 2) draft_attend_kernel(const __grid_constant__ cu_attend_job a)
{
    extern __shared__ __align__(16) uint8_t memory[];
    many_shared &s = *(many_shared *)memory;
    pdl_release();
    pdl_wait();
    const int row = (int)blockIdx.x;
    const cu_seq &seq = seq_at(a.seqs, seq_of_row(a.seqs, row));
    const int64_t oldest = seq.pos0 - a.window;
    const int64_t from = oldest > seq.window_from ? oldest : seq.window_from;
    const int n_ring = (int)(seq.pos0 - from);
    const ring_and_block slots = {a, seq, from, n_ring, n_ring + seq.n_rows};
    attend_in_order(s, a, slots, row, seq.pos0 + (row - seq.row0));
}

/* --- Few rows: a block for each tile ---------------------------------------------------------------------------------------------- */

#define VALUES_PITCH (MOST_DIM + 4)

template <int N> struct few_shared {
    tile_shared<N> t; /* rows: in the end a tile's values, float [N][VALUES_PITCH] */
    float top[N];     /* largest logit of this tile */
    float sum[N];     /* of its exponentials */
    float tops[MOST_TILES][N]; /* of all tiles, then the largest up to each */
    float sums[MOST_TILES][N];
    float alphas[MOST_TILES][N];
    float den[N];
    turn turns[MOST_DIM / 2];
};

static_assert(sizeof(float) * HEADS * VALUES_PITCH <= sizeof(uint16_t) * TILE * PITCH, "a tile's values fit where its rows were");

/* What each tile's block says of its heads. */
template <int N> static __device__ void gather(float (&out)[MOST_TILES][N], const float *mine, int n_tiles)
{
    for (int i = threadIdx.x; i < n_tiles * N; i += THREADS) {
        out[i / N][i % N] = cluster_load(cluster_address(smem_address(mine + i % N), (uint32_t)(i / N)));
    }
    __syncthreads();
}

template <int N> static __device__ void find_alphas(few_shared<N> &s, int n_tiles)
{
    gather<N>(s.tops, s.top, n_tiles);
    if (threadIdx.x < N) {
        float top = LEAST;
        for (int t = 0; t < n_tiles; t++) {
            top = fmaxf(top, s.tops[t][threadIdx.x]);
            s.tops[t][threadIdx.x] = top;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n_tiles * N; i += THREADS) {
        const int t = i / N;
        const int h = i % N;
        s.alphas[t][h] = exact_exp(__fsub_rn(t > 0 ? s.tops[t - 1][h] : LEAST, s.tops[t][h]));
    }
}

/* Into the memory of the tile's rows. */
template <int N> static __device__ void keep_values(few_shared<N> &s, int dim)
{
    const int c = (int)threadIdx.x * 2;
    float(*values)[VALUES_PITCH] = (float(*)[VALUES_PITCH])s.t.rows;
    float v[N / 8][8][2];
#pragma unroll
    for (int g = 0; g < N / 8 && c < dim; g++) {
        make_values(s.t, g * 8, c, v[g]);
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < N && c < dim; h++) {
        *(float2 *)&values[h][c] = make_float2(v[h / 8][h % 8][0], v[h / 8][h % 8][1]);
    }
}

/* This block's share of the channels, over all tiles in order. */
template <int N> static __device__ void add_tiles(const few_shared<N> &s, const cu_attend_job &a, int row, int h0, int n_tiles)
{
    const int units = a.head_dim / 4;
    const uint32_t values = smem_address(s.t.rows);
    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < N * units; i += (int)gridDim.x * THREADS) {
        const int h = i / units;
        const int c = i % units * 4;
        const uint32_t at = values + (uint32_t)(h * VALUES_PITCH + c) * 4;
        float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (int t = 0; t < n_tiles; t++) {
            const float alpha = s.alphas[t][h];
            const float4 v = cluster_load4(cluster_address(at, (uint32_t)t));
            o.x = __fadd_rn(__fmul_rn(o.x, alpha), v.x);
            o.y = __fadd_rn(__fmul_rn(o.y, alpha), v.y);
            o.z = __fadd_rn(__fmul_rn(o.z, alpha), v.z);
            o.w = __fadd_rn(__fmul_rn(o.w, alpha), v.w);
        }
        if (h0 + h < a.n_heads) {
            const float den = s.den[h];
            put_pair(a, row, h0 + h, c, __fdiv_rn(o.x, den), __fdiv_rn(o.y, den), s.turns);
            put_pair(a, row, h0 + h, c + 2, __fdiv_rn(o.z, den), __fdiv_rn(o.w, den), s.turns);
        }
    }
}

/* grid (tiles of the longest possible list, groups of N heads, rows), clusters along the tiles */
template <int N> static __global__ void __launch_bounds__(THREADS, 2) attend_few_kernel(const __grid_constant__ cu_attend_job a)
{
    extern __shared__ __align__(16) uint8_t memory[];
    few_shared<N> &s = *(few_shared<N> *)memory;
    const int tile = (int)blockIdx.x;
    const int h0 = (int)blockIdx.y * N;
    const int row = (int)blockIdx.z;
    const int warp = (int)threadIdx.x / 32;
    int64_t pos;
    pdl_release();
    pdl_wait();
    const window_and_list slots = slots_of_row(a, row, &pos);
    const int n_tiles = (slots.n_slots + TILE - 1) / TILE;
    if (tile < n_tiles) {
        if (threadIdx.x < TILE) {
            s.t.sources[threadIdx.x] = slots.at(tile * TILE + (int)threadIdx.x);
        }
        load_queries(s.t, a, row, h0);
        __syncthreads();
        decode_tile(s.t, a.head_dim);
        __syncthreads();
        make_logits(s.t, a.head_dim, a.scale, slots.n_slots - tile * TILE);
        __syncthreads();
        for (int h = warp; h < N; h += WARPS) {
            const float top = largest(s.t.x[h]);
            if (threadIdx.x % 32 == 0) {
                s.top[h] = top;
            }
        }
    }
    cluster_barrier_arrive();
    make_turns(a, pos, s.turns);
    cluster_barrier_wait();
    find_alphas(s, n_tiles);
    if (tile < n_tiles) {
        for (int h = warp; h < N; h += WARPS) {
            const float sum = weigh(s.t, h, s.tops[tile][h]);
            if (threadIdx.x % 32 == 0) {
                s.sum[h] = sum;
            }
        }
        __syncthreads();
        keep_values(s, a.head_dim);
    }
    cluster_barrier_arrive();
    cluster_barrier_wait();
    gather<N>(s.sums, s.sum, n_tiles);
    if (threadIdx.x < N) {
        const int h = (int)threadIdx.x;
        float den = 0.0f;
        for (int t = 0; t < n_tiles; t++) {
            den = __fadd_rn(__fmul_rn(den, s.alphas[t][h]), s.sums[t][h]);
        }
        s.den[h] = h0 + h < a.n_heads ? __fadd_rn(den, exact_exp(__fsub_rn(a.sink[h0 + h], s.tops[n_tiles - 1][h]))) : 1.0f;
    }
    __syncthreads();
    add_tiles(s, a, row, h0, n_tiles);
    cluster_barrier_arrive(); /* nobody's values go before all have read them */
    cluster_barrier_wait();
}

/* --- Launches --------------------------------------------------------------------------------------------------------------------- */

static int launch_many(void (*kernel)(cu_attend_job), const cu_attend_job *args, cu_stream stream)
{
    const dim3 grid((unsigned)args->n_rows, (unsigned)(args->n_heads + HEADS - 1) / HEADS);
    const int status = (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(many_shared));
    return status != 0 ? status : cu_launch(kernel, grid, dim3(THREADS), sizeof(many_shared), stream, *args);
}

template <int N> static int launch_few(const cu_attend_job *args, int tiles, cu_stream stream)
{
    const int bytes = (int)sizeof(few_shared<N>);
    const dim3 grid((unsigned)tiles, (unsigned)(args->n_heads + N - 1) / N, (unsigned)args->n_rows);
    int status = (int)cudaFuncSetAttribute(attend_few_kernel<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status == 0 && tiles > 8) {
        status = (int)cudaFuncSetAttribute(attend_few_kernel<N>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    return status != 0 ? status : cu_launch_clusters(attend_few_kernel<N>, tiles, grid, dim3(THREADS), (size_t)bytes, stream, *args);
}

/* Two blocks fit a multiprocessor. */
extern "C" int cu_launch_attend(const cu_attend_job *args, int n_sms, cu_stream stream)
{
    const int tiles = (args->window + args->topk + TILE - 1) / TILE;
    const int64_t work = (int64_t)args->n_rows * args->n_heads * tiles; /* heads of tiles */
    if (tiles > MOST_TILES || work > 8 * HEADS * n_sms) {
        return launch_many(attend_many_kernel, args, stream);
    }
    return work > 2 * 8 * n_sms ? launch_few<16>(args, tiles, stream) : launch_few<8>(args, tiles, stream);
}

extern "C" int cu_launch_draft_attend(const cu_attend_job *args, cu_stream stream)
{
    return launch_many(draft_attend_kernel, args, stream);
}

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
