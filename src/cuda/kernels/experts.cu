/* experts.cu - the mixture of experts for few to some hundred tokens (model.md 3.10): routed FP4 experts and the shared FP8 one.
 *
 * Three launches: experts_rows.cu puts the activations on the Q8 grid and sorts the (token, expert) assignments into blocks of at most
 * twelve tokens of one expert; this kernel reads every needed weight once; experts_rows.cu adds up each token's contributions. Phase 1
 * makes h = silu(w1 x) * (w3 x), phase 2 w2 h. Resident blocks take items in order from one counter, all of phase 1 before phase 2, and
 * an item of phase 2 waits only for the phase-1 items of its own expert, so weights are always under way.
 *
 * An item is four warps' work, equal bytes for all: 64 units of a routed expert in phase 1 (16 gate and 16 up rows a warp, so that a
 * unit's two sums meet in one thread), 32 of the shared one; 128 or 64 rows in phase 2. The 32 units that share a Q8 scale are always in
 * one item. Columns hold tokens in no particular order: nothing that is computed depends on a token's column or on its neighbours.
 *
 * Progress: an item of phase 2 waits for items with smaller numbers only, and those belong to running blocks. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/quantise.cuh"
#include "cuda/kernels/strip.cuh"

#define SLOT (4 * CU_TILE_BYTES_FP4) /* of one warp in a stage */
#define FEW_TOKENS 8
#define PER_SM 3
#define BOARDS (STRIP_MAX_STAGES + 1) /* items that the fetching warp may be ahead, and the one in work */

struct expert_item {
    int phase; /* 1 or 2; 0 = no more items */
    bool shared;
    int index; /* of the block, in its list */
    int part;  /* of the matrix */
};

/* What the fetching warp tells the others about an item. */
struct item_board {
    int32_t phase;
    bool shared;
    int32_t index;
    int32_t part;
    int32_t n;     /* tokens */
    int32_t h_row; /* of the first token's row in work.h */
    int32_t slot[CU_BLOCK_TOKENS]; /* row of work.out of each column */
    float weight[CU_BLOCK_TOKENS];
};

static __device__ __forceinline__ int shared_blocks(const cu_experts_args &a) { return (a.n_rows + a.block_rows - 1) / a.block_rows; }

static __device__ expert_item find_item(const cu_experts_args &a, int routed, int i)
{
    const int n_shared = shared_blocks(a);
    expert_item item = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        int parts = (k < 2 ? a.inter / 32 : a.hidden / 64) / (k % 2 == 1 ? 2 : 1);
        int n = (k % 2 == 0 ? n_shared : routed) * parts;
        if (i >= 0 && i < n) {
            item.shared = k % 2 == 0;
            item.phase = 1 + k / 2;
            item.index = i / parts;
            item.part = i % parts;
        }
        i -= n;
    }
    return item;
}

/* What one lane copies for every tile of an item: lanes 0 and 1 weights, the next ones a token each. */
struct expert_copies {
    const uint8_t *from; /* NULL = nothing */
    uint32_t to;         /* in the stage */
    uint32_t bytes;
    uint32_t stride;
    uint32_t all_bytes; /* of the stage */
    int n_tiles;
    bool is_token;
};

#define WEIGHT_LANES 2

/* Phase 1: gate rows, then up rows, a group or half of one each. Phase 2: two groups or one. */
static __device__ void weight_copies(const expert_item &item, const cu_expert &w, int lane, expert_copies *c)
{
    c->stride = 8 * (item.shared ? CU_TILE_BYTES_FP8 : CU_TILE_BYTES_FP4);
    const size_t group = (size_t)c->n_tiles * c->stride;
    const uint8_t *rows = item.phase == 2 ? w.w2 : lane == 0 ? w.w1 : w.w3;
    if (!item.shared) {
        c->bytes = c->stride;
        c->from = rows + (item.phase == 1 ? item.part : item.part * 2 + lane) * group;
    } else if (item.phase == 1) {
        c->bytes = c->stride / 2;
        c->from = rows + item.part / 2 * group + item.part % 2 * c->bytes;
    } else if (lane == 0) {
        c->bytes = c->stride;
        c->from = rows + item.part * group;
    }
    c->to = lane * c->bytes;
}

/* Also fills the board. */
static __device__ expert_copies copies_of(const cu_experts_args &a, const expert_item &item, item_board *board, int lane)
{
    const int column = lane - WEIGHT_LANES;
    int n;
    int h_row;
    int token = 0;
    int slot = 0;
    float weight = 1.0f;
    cu_expert w;
    if (item.shared) {
        const int first = item.index * a.block_rows;
        n = a.n_rows - first < a.block_rows ? a.n_rows - first : a.block_rows;
        h_row = a.n_rows * a.n_active + first;
        token = first + column;
        slot = token * (a.n_active + 1) + a.n_active;
        w = a.shared;
    } else {
        const cu_token_block *block = &a.work.blocks[item.index];
        n = block->n;
        h_row = block->first;
        w = block->weights;
        if (column >= 0 && column < CU_BLOCK_TOKENS) {
            token = block->token[column];
            slot = block->slot[column];
            weight = block->weight[column];
        }
    }
    expert_copies c = {};
    c.n_tiles = (item.phase == 1 ? a.hidden : a.inter) / CU_TILE_INPUTS;
    c.all_bytes = (item.shared ? 8 * CU_TILE_BYTES_FP8 : 16 * CU_TILE_BYTES_FP4) + n * TOKEN_BYTES;
    if (lane == 0) {
        board->phase = item.phase;
        board->shared = item.shared;
        board->index = item.index;
        board->part = item.part;
        board->n = n;
        board->h_row = h_row;
    }
    if (lane < WEIGHT_LANES) {
        weight_copies(item, w, lane, &c);
    } else if (column < n) {
        board->slot[column] = slot;
        board->weight[column] = weight;
        const uint16_t *row = item.phase == 1 ? a.work.x + (size_t)token * a.hidden : a.work.h + (size_t)(h_row + column) * a.inter;
        c.is_token = true;
        c.from = (const uint8_t *)row;
        c.to = STRIP_WARPS * SLOT + column * TOKEN_PITCH;
        c.bytes = TOKEN_BYTES;
        c.stride = TOKEN_BYTES;
    }
    return c;
}

static __device__ __forceinline__ void issue(const expert_copies &c, const strip_ring &ring, int tile, bool tokens, uint64_t policy)
{
    if (c.from != nullptr && c.is_token == tokens) {
        uint32_t to = smem_address(ring.stage()) + c.to;
        if (tokens) {
            bulk_load(to, c.from + (size_t)tile * c.stride, c.bytes, ring.full_bar());
        } else {
            bulk_load_once(to, c.from + (size_t)tile * c.stride, c.bytes, ring.full_bar(), policy);
        }
    }
}

static __device__ __forceinline__ void expect(const expert_copies &c, const strip_ring &ring, int lane)
{
    if (lane == 0) {
        mbar_expect(ring.full_bar(), c.all_bytes);
    }
    __syncwarp();
}

/* The kernel in front has sorted the assignments; returns the number of routed blocks. */
static __device__ int wait_in_front(const cu_experts_args &a)
{
    pdl_wait();
    proxy_fence();
    return (int)a.work.counters[1];
}

/* The fetching warp. The next item is taken when this one is nearly fetched, so that a block that waits takes no work from others, and
 * early enough that looking it up costs nothing. */
static __device__ void fetch(const cu_experts_args &a, strip_ring ring, item_board *boards, int lane)
{
    const uint64_t policy = policy_evict_first();
    const int n_shared = shared_blocks(a);
    const bool early = (int)blockIdx.x < n_shared * (a.inter / 32); /* only the shared expert does not depend on the routing */
    int routed = early ? 0 : wait_in_front(a);
    expert_item item = find_item(a, routed, blockIdx.x);
    expert_copies c = {};
    if (item.phase > 0) {
        c = copies_of(a, item, boards, lane);
    }
    __syncwarp(); /* lane 0 announces what all lanes wrote on the board */
    bool first = true;
    for (int n_items = 1; item.phase > 0; n_items++) {
        /* Weights first, as far as there is room; then the tokens, when what makes them is done. */
        const strip_ring start = ring;
        int ahead = 0;
        for (; ahead < c.n_tiles && ahead < ring.n_stages; ahead++) {
            if (ahead > 0 && !ring.is_empty()) {
                break;
            }
            ring.wait_empty();
            expect(c, ring, lane);
            issue(c, ring, ahead, false, policy);
            ring.next();
        }
        if (first && early) {
            routed = wait_in_front(a);
        }
        first = false;
        if (item.phase == 2) {
            const uint32_t *done = a.work.done + (item.shared ? item.index : n_shared + item.index);
            const uint32_t wanted = (uint32_t)(a.inter / (item.shared ? 32 : 64));
            while (flag_load(done) < wanted) {
            }
            proxy_fence();
        }
        ring = start;
        for (int tile = 0; tile < ahead; tile++) {
            issue(c, ring, tile, true, policy);
            ring.next();
        }
        int taken = 0;
        expert_item next;
        expert_copies next_copies = {};
        for (int tile = ahead;; tile++) {
            if (tile == (c.n_tiles - 3 > ahead ? c.n_tiles - 3 : ahead) && lane == 0) {
                taken = (int)atomicAdd(&a.work.counters[0], 1);
            }
            if (tile == (c.n_tiles - 1 > ahead ? c.n_tiles - 1 : ahead)) {
                next = find_item(a, routed, __shfl_sync(0xFFFFFFFFu, taken, 0));
                if (next.phase > 0) {
                    next_copies = copies_of(a, next, boards + n_items % BOARDS, lane);
                }
            }
            if (tile >= c.n_tiles) {
                break;
            }
            ring.wait_empty();
            expect(c, ring, lane);
            issue(c, ring, tile, false, policy);
            issue(c, ring, tile, true, policy);
            ring.next();
        }
        item = next;
        c = next_copies;
        __syncwarp();
        if (item.phase == 0 && lane == 0) {
            boards[n_items % BOARDS].phase = 0;
        }
    }
    if (lane == 0) {
        if (first) {
            boards[0].phase = 0;
        }
        mbar_wait(ring.empty + 8 * ring.slot, ring.parity ^ 1);
        mbar_arrive(ring.full_bar());
    }
}

static __device__ float activate(float gate, float up, float limit, float weight)
{
    float g = fminf(bf16_rounded(gate), limit);
    float u = fminf(fmaxf(bf16_rounded(up), -limit), limit);
    float h = __fmul_rn(__fdiv_rn(g, __fadd_rn(1.0f, expf(-g))), u);
    return bf16_rounded(__fmul_rn(weight, h));
}

/* Puts h of one item on the Q8 grid and stores it. The 32 units of a scale lie, for one column, in the lanes of equal lane % 4 of
 * `group` neighbouring warps, ROWS of each thread. */
template <int NT, int ROWS>
static __device__ void store_units(const cu_experts_args &a, const item_board &board, const float (&value)[NT][ROWS][2], int unit0,
                                   float (*amax)[16])
{
    const int group = 4 / ROWS;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float top = 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                top = fmaxf(top, fabsf(value[t][r][c]));
            }
            for (int d = 4; d < 32; d *= 2) {
                top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
            }
            if (lane < 4) {
                amax[warp][t * 8 + lane * 2 + c] = top;
            }
        }
    }
    strip_sync();
#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int column = t * 8 + lane % 4 * 2 + c;
            if (column >= board.n) {
                continue;
            }
            float top = 0.0f;
            for (int w = warp / group * group; w < (warp / group + 1) * group; w++) {
                top = fmaxf(top, amax[w][column]);
            }
            uint32_t code = q8_scale_code(top);
            uint16_t *h = a.work.h + (size_t)(board.h_row + column) * a.inter + unit0 + lane / 4;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                h[r * 8] = (uint16_t)(__float_as_uint(q8_rounded(value[t][r][c], code)) >> 16);
            }
        }
    }
}

/* Two m-tiles: the first holds gate rows, the second up rows. */
template <int NT>
static __device__ void finish_phase1(const cu_experts_args &a, const item_board &board, const float (&acc)[2][NT][4], float (*amax)[16])
{
    const int lane = threadIdx.x % 32;
    float value[NT][2][2];
#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int column = t * 8 + lane % 4 * 2 + c;
            float w = board.weight[column < board.n ? column : 0];
            value[t][0][c] = activate(acc[0][t][c], acc[1][t][c], a.limit, w);
            value[t][1][c] = activate(acc[0][t][c + 2], acc[1][t][c + 2], a.limit, w);
        }
    }
    store_units<NT, 2>(a, board, value, board.part * 64 + threadIdx.x / 32 * 16, amax);
}

/* One m-tile: its first octet holds gate rows, its second up rows. */
template <int NT>
static __device__ void finish_phase1(const cu_experts_args &a, const item_board &board, const float (&acc)[1][NT][4], float (*amax)[16])
{
    const int lane = threadIdx.x % 32;
    float value[NT][1][2];
#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int column = t * 8 + lane % 4 * 2 + c;
            float w = board.weight[column < board.n ? column : 0];
            value[t][0][c] = activate(acc[0][t][c], acc[0][t][c + 2], a.limit, w);
        }
    }
    store_units<NT, 1>(a, board, value, board.part * 32 + threadIdx.x / 32 * 8, amax);
}

template <int MT, int NT>
static __device__ void finish_phase2(const cu_experts_args &a, const item_board &board, const float (&acc)[MT][NT][4])
{
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int row0 = (board.part * STRIP_WARPS + warp) * MT * 16 + lane / 4;
#pragma unroll
    for (int t = 0; t < NT; t++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int column = t * 8 + lane % 4 * 2 + c;
            if (column >= board.n) {
                continue;
            }
            uint16_t *out = a.work.out + (size_t)board.slot[column] * a.hidden + row0;
#pragma unroll
            for (int m = 0; m < MT; m++) {
                out[m * 16] = (uint16_t)bf16_bits(acc[m][t][c]);
                out[m * 16 + 8] = (uint16_t)bf16_bits(acc[m][t][c + 2]);
            }
        }
    }
}

template <int FORMAT, int MT, int NT>
static __device__ __forceinline__ void run_item(const cu_experts_args &a, const item_board &board, strip_ring &ring, float (*amax)[16])
{
    const int TILE = FORMAT == CU_FP4 ? CU_TILE_BYTES_FP4 : CU_TILE_BYTES_FP8;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int phase = board.phase;
    const int n_tiles = (phase == 1 ? a.hidden : a.inter) / CU_TILE_INPUTS;
    /* In phase 1 the first half of the stage is gate rows, the second up rows, of which a warp has a strip each (two m-tiles) or an octet
     * each (one). In phase 2 the stage is rows in order. */
    int at = warp * MT * 2 * TILE;
    int next_m = 2 * TILE;
    int next_octet = TILE;
    if (phase == 1 && MT == 2) {
        at = warp * 2 * TILE;
        next_m = 8 * TILE;
    } else if (phase == 1) {
        at = warp * TILE;
        next_octet = 4 * TILE;
    }
    uint32_t offset[NT];
#pragma unroll
    for (int t = 0; t < NT; t++) {
        offset[t] = STRIP_WARPS * SLOT + token_offset(t, board.n, lane);
    }
    float acc[MT][NT][4] = {};
    for (int tile = 0; tile < n_tiles; tile++) {
        ring.wait_full();
        const uint8_t *stage = ring.stage();
        const uint8_t *lo[MT];
        const uint8_t *hi[MT];
        const uint8_t *token[NT];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            lo[m] = stage + at + m * next_m;
            hi[m] = lo[m] + next_octet;
        }
#pragma unroll
        for (int t = 0; t < NT; t++) {
            token[t] = stage + offset[t];
        }
        strip_tile<FORMAT>(acc, lo, hi, token, lane);
        ring.release(lane);
    }
    if (phase == 1) {
        finish_phase1<NT>(a, board, acc, amax);
    } else {
        finish_phase2<MT, NT>(a, board, acc);
    }
}

/* The computing warps. */
template <int NT>
static __device__ void compute(const cu_experts_args &a, strip_ring ring, const item_board *boards, float (*amax)[16])
{
    const int n_shared = shared_blocks(a);
    for (int n_items = 0;; n_items++) {
        const item_board &board = boards[n_items % BOARDS];
        ring.wait_full(); /* what is written on the board comes with the item's first stage */
        if (board.phase == 0) {
            return;
        }
        if (board.shared) {
            run_item<CU_FP8, 1, NT>(a, board, ring, amax);
        } else if (NT == 1 || board.n <= 8) {
            run_item<CU_FP4, 2, 1>(a, board, ring, amax);
        } else {
            run_item<CU_FP4, 2, NT>(a, board, ring, amax);
        }
        if (board.phase == 1) {
            proxy_fence(); /* phase 2 fetches h with bulk copies */
            strip_sync();
            if (threadIdx.x == 0) {
                flag_add(a.work.done + (board.shared ? board.index : n_shared + board.index));
            }
        }
    }
}

template <int NT>
static __global__ void __launch_bounds__(STRIP_THREADS, PER_SM) stream_kernel(const __grid_constant__ cu_experts_args a)
{
    extern __shared__ __align__(128) uint8_t memory[];
    __shared__ uint64_t bars[2 * STRIP_MAX_STAGES];
    __shared__ item_board boards[BOARDS];
    __shared__ float amax[STRIP_WARPS][16];
    pdl_release();
    strip_ring ring;
    ring.begin(memory, bars, a.stage_bytes, a.n_stages);
    if (threadIdx.x == 0) {
        ring.init_barriers();
    }
    __syncthreads();
    if (threadIdx.x / 32 == STRIP_WARPS) {
        fetch(a, ring, boards, threadIdx.x % 32);
    } else {
        compute<NT>(a, ring, boards, amax);
    }
}

template <int NT>
static int launch_stream(const cu_experts_args &a, int grid, cu_stream stream)
{
    const int bytes = (int)a.stage_bytes * a.n_stages;
    int status = (int)cudaFuncSetAttribute(stream_kernel<NT>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (status == 0) {
        status = cu_launch(stream_kernel<NT>, dim3((unsigned)grid), dim3(STRIP_THREADS), (size_t)bytes, stream, a);
    }
    return status;
}

extern "C" int cu_launch_experts(const cu_experts_args *args, int n_sms, cu_stream stream)
{
    cu_experts_args a = *args;
    const int grid = n_sms * PER_SM;
    a.block_rows = a.n_rows <= FEW_TOKENS ? FEW_TOKENS : CU_BLOCK_TOKENS;
    a.stage_bytes = STRIP_WARPS * SLOT + (uint32_t)(a.n_rows < a.block_rows ? a.n_rows : a.block_rows) * TOKEN_PITCH;
    a.n_stages = (int32_t)((CU_SHARED_BYTES / PER_SM - 4096) / a.stage_bytes);
    int status = cu_launch_experts_prepare(&a, grid, stream);
    if (status == 0) {
        status = a.block_rows == FEW_TOKENS ? launch_stream<1>(a, grid, stream) : launch_stream<2>(a, grid, stream);
    }
    return status == 0 ? cu_launch_experts_combine(&a, stream) : status;
}
