/* linear.cu - products of few tokens with dense matrices: y = x W^T, weights FP8 or BF16, up to three matrices in one launch.
 *
 * An item is 64 output rows, 16 a warp, and a block of tokens. A matrix with few rows is cut across its inputs into four canonical chunks
 * (cu_linear.split), one of these ways:
 *   in turn   every warp runs through the chunks one after the other (matrices with rows enough)
 *   warps     16 rows an item, a chunk a warp; the sums meet in the block's shared memory. For one or two tokens
 *   clusters  the four blocks of a cluster take a chunk each of the same 64 rows and send their sums to each other's shared memory; block r
 *             adds those of rows 16 r .. + 15. Tokens are fetched once for 64 rows
 * All give ((c0 + c1) + c2) + c3: which was used never shows in a result. Items are walked in a fixed stride.
 *
 * With more than 16 tokens x comes arranged (cu_launch_arrange).
 *
 * The first stages of weights are under way before the kernel waits for the one in front (bench/cuda/lab_chain.cu). */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/quantise.cuh"
#include "cuda/kernels/strip.cuh"

#define CHUNKS 4
#define ITEM_ROWS CU_GROUP_ROWS

struct linear_item {
    int job;
    int row0;
    int token0;
    int n_tokens;
};

static __host__ __device__ int item_rows(const cu_linear_set &set) { return set.way == CU_WARPS ? CU_STRIP_ROWS : ITEM_ROWS; }
static __device__ int item_chunks(const cu_linear_set &set) { return set.way == CU_IN_TURN ? 1 : CHUNKS; }

static __device__ linear_item find_item(const cu_linear_set &set, int i)
{
    const int rows = item_rows(set);
    const int blocks = (set.n_rows + set.block_rows - 1) / set.block_rows;
    linear_item item;
    item.token0 = i % blocks * set.block_rows;
    item.n_tokens = set.n_rows - item.token0 < set.block_rows ? set.n_rows - item.token0 : set.block_rows;
    item.job = 0;
    i /= blocks;
    for (; item.job + 1 < set.n_jobs && i >= set.jobs[item.job].n_out / rows; item.job++) {
        i -= set.jobs[item.job].n_out / rows;
    }
    item.row0 = i * rows;
    return item;
}

template <int FORMAT>
struct linear_sizes {
    static const uint32_t TILE = FORMAT == CU_FP8 ? CU_TILE_BYTES_FP8 : CU_TILE_BYTES_BF16;
    static const uint32_t SLOT = 2 * TILE; /* of one warp */
};

/* Where a block stands: alone, or one of a cluster that shares items. */
struct linear_place {
    int first;  /* item */
    int stride; /* of items */
    int chunk;  /* of the inputs, in a cluster */
};

static __device__ linear_place place_of(const cu_linear_set &set)
{
    const int blocks = set.way == CU_CLUSTERS ? CHUNKS : 1;
    return {(int)blockIdx.x / blocks, (int)gridDim.x / blocks, (int)blockIdx.x % blocks};
}

/* What one lane of the fetching warp copies for every tile of an item: weights and a token. */
struct linear_copies {
    const uint8_t *weights; /* lane 0: of all warps; or lanes 0 .. 3: of one warp each */
    const uint8_t *token; /* or, by lane 0, all tokens; NULL = none */
    uint32_t token_bytes;
    uint32_t token_stride;
    int n_tiles;
    uint32_t bytes; /* of the whole stage */
};

template <int FORMAT>
static __device__ linear_copies copies_of(const cu_linear_set &set, const linear_item &item, int chunk, int lane)
{
    const uint32_t SLOT = linear_sizes<FORMAT>::SLOT;
    const cu_linear &job = set.jobs[item.job];
    const int all_tiles = job.n_in / CU_TILE_INPUTS;
    linear_copies c;
    c.n_tiles = all_tiles / item_chunks(set);
    const int group = item.row0 / CU_GROUP_ROWS;
    const int strip = item.row0 % CU_GROUP_ROWS / CU_STRIP_ROWS;
    const int first_tile = (set.way == CU_WARPS ? lane % CHUNKS : chunk) * c.n_tiles;
    c.weights = job.packed + ((size_t)group * all_tiles + first_tile) * STRIP_WARPS * SLOT + strip * SLOT;
    c.token = nullptr;
    c.token_bytes = TOKEN_BYTES;
    c.token_stride = TOKEN_BYTES;
    if (job.arranged != nullptr) {
        const int diagonal = job.group_rows > 0 ? item.row0 / job.group_rows * all_tiles : 0;
        const size_t first = (size_t)(item.token0 / CU_ARRANGED_ROWS) * (job.ldx / CU_TILE_INPUTS) + diagonal + chunk * c.n_tiles;
        c.token_bytes = item.n_tokens * TOKEN_PITCH;
        c.token_stride = CU_ARRANGED_ROWS * TOKEN_PITCH;
        c.token = lane == 0 ? job.arranged + first * c.token_stride : nullptr;
        c.bytes = STRIP_WARPS * SLOT + c.token_bytes;
        return c;
    }
    const int parts = set.way == CU_WARPS ? CHUNKS : 1; /* of each token in a stage */
    if (lane < parts * item.n_tokens) {
        const int diagonal = job.group_rows > 0 ? item.row0 / job.group_rows * job.n_in : 0;
        const int token = item.token0 + lane % item.n_tokens;
        const int first = (set.way == CU_WARPS ? lane / item.n_tokens : chunk) * c.n_tiles * CU_TILE_INPUTS;
        c.token = (const uint8_t *)(job.x + (size_t)token * job.ldx + diagonal + first);
    }
    c.bytes = STRIP_WARPS * SLOT + parts * item.n_tokens * TOKEN_BYTES;
    return c;
}

/* The fetching warp. */
template <int FORMAT>
static __device__ void fetch(const cu_linear_set &set, strip_ring ring, const linear_place &place, int lane)
{
    const uint32_t SLOT = linear_sizes<FORMAT>::SLOT;
    const uint64_t policy = policy_evict_first();
    auto fetch_weights = [&](const linear_copies &c, int tile) {
        if (lane == 0) {
            mbar_expect(ring.full_bar(), c.bytes);
        }
        __syncwarp();
        if (lane < (set.way == CU_WARPS ? CHUNKS : 1)) {
            const uint32_t bytes = set.way == CU_WARPS ? SLOT : STRIP_WARPS * SLOT;
            bulk_load_once(smem_address(ring.stage()) + lane * SLOT, c.weights + (size_t)tile * STRIP_WARPS * SLOT, bytes, ring.full_bar(),
                           policy);
        }
    };
    auto fetch_tokens = [&](const linear_copies &c, int tile) {
        if (c.token != nullptr) {
            bulk_load(smem_address(ring.stage()) + STRIP_WARPS * SLOT + lane * TOKEN_PITCH, c.token + (size_t)tile * c.token_stride,
                      c.token_bytes, ring.full_bar());
        }
    };
    int i = place.first;
    if (i >= set.n_items) {
        return;
    }
    linear_copies c = copies_of<FORMAT>(set, find_item(set, i), place.chunk, lane);
    /* Weights do not depend on the kernel in front; of the first item, as many tiles as the ring holds. */
    const strip_ring start = ring;
    const int early = c.n_tiles < ring.n_stages ? c.n_tiles : ring.n_stages;
    for (int tile = 0; tile < early; tile++) {
        fetch_weights(c, tile);
        ring.next();
    }
    pdl_wait();
    proxy_fence();
    ring = start;
    for (int tile = 0; tile < early; tile++) {
        fetch_tokens(c, tile);
        ring.next();
    }
    int tile = early;
    while (true) {
        for (; tile < c.n_tiles; tile++) {
            ring.wait_empty();
            fetch_weights(c, tile);
            fetch_tokens(c, tile);
            ring.next();
        }
        i += place.stride;
        if (i >= set.n_items) {
            return;
        }
        c = copies_of<FORMAT>(set, find_item(set, i), place.chunk, lane);
        tile = 0;
    }
}

template <int NT>
static __device__ void store_sums(const cu_linear &job, const linear_item &item, int row, const float (&sum)[1][NT][4], int lane)
{
#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int column = t * 8 + lane % 4 * 2 + c % 2;
            if (column < item.n_tokens) {
                size_t at = (size_t)(item.token0 + column) * job.ldy + row + lane / 4 + c / 2 * 8;
                if (job.y32 != nullptr) {
                    job.y32[at] = sum[0][t][c];
                } else {
                    job.y16[at] = (uint16_t)bf16_bits(sum[0][t][c]);
                }
            }
        }
    }
}

/* Sums of a cluster meet here: two rounds in turn, a piece from every block. */
template <int NT>
struct sum_box {
    float4 sum[2][CHUNKS][NT][32];
};

/* Sends the sums of this warp's rows to the block that adds them; the warp of that number there. */
template <int NT>
static __device__ void send_sums(const sum_box<NT> *box, uint32_t bar, int round, int warp, int lane, const float (&sum)[1][NT][4])
{
    const uint32_t rank = cluster_rank();
#pragma unroll
    for (int t = 0; t < NT; t++) {
        uint32_t at = smem_address(&box->sum[round][rank][t][lane]);
        cluster_store(cluster_address(at, (uint32_t)warp), make_float4(sum[0][t][0], sum[0][t][1], sum[0][t][2], sum[0][t][3]));
    }
    __syncwarp();
    if (lane == 0) {
        cluster_arrive(cluster_address(bar + 8 * round, (uint32_t)warp));
    }
}

template <int NT>
static __device__ void add_sums(const sum_box<NT> *box, int round, int lane, float (&sum)[1][NT][4])
{
#pragma unroll
    for (int t = 0; t < NT; t++) {
        float4 v = box->sum[round][0][t][lane];
#pragma unroll
        for (int k = 1; k < CHUNKS; k++) {
            const float4 w = box->sum[round][k][t][lane];
            v = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
        }
        sum[0][t][0] = v.x;
        sum[0][t][1] = v.y;
        sum[0][t][2] = v.z;
        sum[0][t][3] = v.w;
    }
}

/* A computing warp. */
template <int FORMAT, int NT>
static __device__ void compute(const cu_linear_set &set, strip_ring ring, const linear_place &place, sum_box<NT> *box,
                               uint32_t box_bar, int warp, int lane)
{
    const uint32_t SLOT = linear_sizes<FORMAT>::SLOT;
    int n_done = 0;
    for (int i = place.first; i < set.n_items; i += place.stride, n_done++) {
        const linear_item item = find_item(set, i);
        const cu_linear &job = set.jobs[item.job];
        const int n_tiles = job.n_in / CU_TILE_INPUTS / item_chunks(set);
        const int chunk = set.way == CU_IN_TURN ? n_tiles / job.split : n_tiles;
        uint32_t offset[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) {
            offset[t] = STRIP_WARPS * SLOT + token_offset(t, item.n_tokens, lane);
            offset[t] += set.way == CU_WARPS ? warp * item.n_tokens * TOKEN_PITCH : 0;
        }
        float sum[1][NT][4] = {};
        float acc[1][NT][4] = {};
        for (int tile = 0, left = chunk; tile < n_tiles; tile++) {
            ring.wait_full();
            const uint8_t *stage = ring.stage();
            const uint8_t *lo[1] = {stage + warp * SLOT};
            const uint8_t *hi[1] = {stage + warp * SLOT + linear_sizes<FORMAT>::TILE};
            const uint8_t *token[NT];
#pragma unroll
            for (int t = 0; t < NT; t++) {
                token[t] = stage + offset[t];
            }
            strip_tile<FORMAT>(acc, lo, hi, token, lane);
            ring.release(lane);
            if (--left == 0) {
                left = chunk;
#pragma unroll
                for (int t = 0; t < NT; t++) {
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        sum[0][t][c] += acc[0][t][c];
                        acc[0][t][c] = 0.0f;
                    }
                }
            }
        }
        const int round = n_done % 2;
        if (set.way == CU_IN_TURN) {
            store_sums<NT>(job, item, item.row0 + warp * CU_STRIP_ROWS, sum, lane);
            continue;
        }
        if (set.way == CU_WARPS) {
            box->sum[round][warp][0][lane] = make_float4(sum[0][0][0], sum[0][0][1], sum[0][0][2], sum[0][0][3]);
            strip_sync(); /* one barrier an item is enough: rounds alternate */
            if (warp == n_done % STRIP_WARPS) {
                add_sums(box, round, lane, sum);
                store_sums<NT>(job, item, item.row0, sum, lane);
            }
            continue;
        }
        const int rank = (int)cluster_rank();
        if (n_done == 0) {
            cluster_barrier_wait(); /* every block's barriers are initialised */
        }
        send_sums(box, box_bar, round, warp, lane, sum);
        if (warp == rank) {
            cluster_wait(box_bar + 8 * round, n_done / 2 & 1);
            add_sums(box, round, lane, sum);
            store_sums<NT>(job, item, item.row0 + rank * CU_STRIP_ROWS, sum, lane);
        }
        /* No warp sends its next sums before this block's are added: then a round's box is free when its turn comes again. */
        strip_sync();
    }
}

template <int FORMAT, int NT>
static __global__ void __launch_bounds__(STRIP_THREADS, FORMAT == CU_FP8 ? (NT == 1 ? 4 : 3) : 2)
linear_kernel(const __grid_constant__ cu_linear_set set)
{
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ uint64_t bars[2 * STRIP_MAX_STAGES];
    __shared__ uint64_t box_bars[2];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const linear_place place = place_of(set);
    sum_box<NT> *box = (sum_box<NT> *)(memory + set.n_stages * set.stage_bytes);
    pdl_release();
    strip_ring ring;
    ring.begin(memory, bars, set.stage_bytes, set.n_stages);
    if (threadIdx.x == 0) {
        ring.init_barriers();
        mbar_init(smem_address(box_bars), CHUNKS);
        mbar_init(smem_address(box_bars + 1), CHUNKS);
        mbar_init_fence();
    }
    __syncthreads();
    if (set.way == CU_CLUSTERS) {
        cluster_barrier_arrive();
    }
    if (warp == STRIP_WARPS) {
        fetch<FORMAT>(set, ring, place, lane);
        if (set.way == CU_CLUSTERS) {
            cluster_barrier_wait();
        }
    } else {
        compute<FORMAT, NT>(set, ring, place, box, smem_address(box_bars), warp, lane);
    }
    if (set.way == CU_CLUSTERS) { /* others may still be sending */
        cluster_barrier_arrive();
        cluster_barrier_wait();
    }
}

template <int FORMAT, int NT>
static int launch(cu_linear_set set, int n_sms, cu_stream stream)
{
    const int tokens = (set.n_rows < set.block_rows ? set.n_rows : set.block_rows) * (set.way == CU_WARPS ? CHUNKS : 1);
    const int blocks = set.way == CU_CLUSTERS ? CHUNKS : 1;
    const uint32_t box = set.way == CU_IN_TURN ? 0 : (uint32_t)sizeof(sum_box<NT>);
    int per_sm = FORMAT == CU_FP8 ? (NT == 1 && set.way != CU_CLUSTERS ? 4 : 3) : 2;
    set.stage_bytes = STRIP_WARPS * linear_sizes<FORMAT>::SLOT + tokens * TOKEN_PITCH;
    /* Blocks with less than three stages lose more than one more block a multiprocessor gains. */
    for (;; per_sm--) {
        set.n_stages = (int32_t)((CU_SHARED_BYTES / per_sm - box - 2048) / set.stage_bytes);
        if (set.n_stages >= 3 || per_sm == 1) {
            break;
        }
    }
    set.n_stages = set.n_stages < STRIP_MAX_STAGES ? set.n_stages : STRIP_MAX_STAGES;
    set.n_items = 0;
    for (int j = 0; j < set.n_jobs; j++) {
        set.n_items += set.jobs[j].n_out / item_rows(set) * ((set.n_rows + set.block_rows - 1) / set.block_rows);
    }
    const int bytes = (int)(set.stage_bytes * set.n_stages + box);
    const int most = n_sms * per_sm / blocks;
    const int grid = (set.n_items < most ? set.n_items : most) * blocks;
    int status = (int)cudaFuncSetAttribute(linear_kernel<FORMAT, NT>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status == 0) {
        status = cu_launch_clusters(linear_kernel<FORMAT, NT>, blocks, dim3((unsigned)grid), dim3(STRIP_THREADS), (size_t)bytes, stream,
                                    set);
    }
    return status;
}

template <int FORMAT>
static int launch_blocks(cu_linear_set set, int n_sms, cu_stream stream)
{
    if (set.n_rows <= 8) {
        set.block_rows = 8;
        return launch<FORMAT, 1>(set, n_sms, stream);
    }
    if (set.n_rows <= 16) {
        set.block_rows = 16;
        return launch<FORMAT, 2>(set, n_sms, stream);
    }
    set.block_rows = 32;
    return launch<FORMAT, 4>(set, n_sms, stream);
}

#define WARPS_TOKENS 4 /* up to so many, four copies of a token's tile cost less than a cluster */

extern "C" int cu_launch_linear(const cu_linear_set *set, int n_sms, cu_stream stream)
{
    cu_linear_set s = *set;
    int items = 0;
    for (int j = 0; j < s.n_jobs; j++) {
        items += s.jobs[j].n_out / ITEM_ROWS;
    }
    const bool few = s.jobs[0].split == CHUNKS && items < 2 * n_sms;
    s.way = !few ? CU_IN_TURN : s.n_rows <= WARPS_TOKENS ? CU_WARPS : CU_CLUSTERS;
    return s.format == CU_FP8 ? launch_blocks<CU_FP8>(s, n_sms, stream) : launch_blocks<CU_BF16>(s, n_sms, stream);
}

/* grid (tiles of a row, blocks of rows) */
static __global__ void __launch_bounds__(256) arrange_kernel(const uint16_t *x, int n_rows, int64_t ldx, uint8_t *out)
{
    pdl_release();
    pdl_wait();
    const int lane = threadIdx.x % 32;
    for (int r = threadIdx.x / 32; r < CU_ARRANGED_ROWS; r += 8) {
        const size_t row = (size_t)blockIdx.y * CU_ARRANGED_ROWS + r;
        if (row < (size_t)n_rows) {
            const uint4 v = *(const uint4 *)(x + row * ldx + (size_t)blockIdx.x * CU_TILE_INPUTS + lane * 8);
            *(uint4 *)(out + (((size_t)blockIdx.y * gridDim.x + blockIdx.x) * CU_ARRANGED_ROWS + r) * TOKEN_PITCH + lane * 16) = v;
        }
    }
}

extern "C" int cu_launch_arrange(const uint16_t *x, int32_t n_rows, int64_t ldx, uint8_t *out, cu_stream stream)
{
    const dim3 grid((unsigned)(ldx / CU_TILE_INPUTS), (unsigned)(n_rows + CU_ARRANGED_ROWS - 1) / CU_ARRANGED_ROWS);
    return cu_launch(arrange_kernel, grid, dim3(256), 0, stream, x, n_rows, ldx, out);
}
