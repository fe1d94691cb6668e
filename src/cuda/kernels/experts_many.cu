/* experts_many.cu - the mixture of experts for many tokens (model.md 3.10): the products of experts.cu with the engine of gemm.cuh, bit for
 * bit.
 *
 * Assignments are sorted by expert, each expert's rows beginning at a multiple of eight and cut into blocks of at most 192; every
 * assignment's activations go to the Q8 grid and into packed rows; phase 1 makes h = silu(w1 x) * (w3 x), packed rows too; phase 2 w2 h;
 * experts_rows.cu adds up each token's contributions. The shared expert is one more, with all tokens.
 *
 * A block of tokens is multiplied by the narrowest of some widths that holds it. Blocks are sorted into classes by width, and a class has
 * a kernel of its own: several widths in one need more registers than there are. An item is 128 rows:
 * in phase 1 64 units, gate rows in the lower octet of each warp's sixteen and up rows in the upper, so that a unit's two sums meet in one
 * thread, and the 32 units of a Q8 scale in one warpgroup. Columns between an expert's last row and the next multiple of eight
 * hold anything; nobody looks at them. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/quantise.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAVE_WGMMA 1
#else
#define HAVE_WGMMA 0
#endif

#include "cuda/kernels/gemm.cuh"

#define MOST_TOKENS CU_MANY_TOKENS
#define SORT_THREADS 1024
#define LISTS (CU_MAX_EXPERTS + 1) /* with the shared expert */

/* --- Sorting ------------------------------------------------------------------------------------------------------------------------ */

/* The sum of the values of the threads in front, over the block. */
static __device__ int sum_before(int mine, int *warp_sum)
{
    const int lane = threadIdx.x % 32;
    int s = mine;
    for (int d = 1; d < 32; d *= 2) {
        const int up = __shfl_up_sync(0xFFFFFFFFu, s, d);
        s += lane >= d ? up : 0;
    }
    if (lane == 31) {
        warp_sum[threadIdx.x / 32] = s;
    }
    __syncthreads();
    for (int w = 0; w < (int)threadIdx.x / 32; w++) {
        s += warp_sum[w];
    }
    return s - mine;
}

/* Of a routed block. */
static __device__ int class_of(int n) { return n <= 64 ? 0 : n <= 128 ? 1 : n <= 160 ? 2 : 3; }

static __global__ void __launch_bounds__(SORT_THREADS) sort_kernel(const __grid_constant__ cu_experts_args a)
{
    __shared__ int count[LISTS];
    __shared__ int first[LISTS];
    __shared__ int warp_sum[SORT_THREADS / 32];
    __shared__ int n_of_class[CU_MANY_CLASSES];
    pdl_release();
    pdl_wait();
    const int e = threadIdx.x;
    const int n = a.n_rows * a.n_active;
    if (e < LISTS) {
        count[e] = 0;
    }
    if (e < CU_MANY_CLASSES) {
        n_of_class[e] = 0;
    }
    for (int i = e; i < a.work.most_rows; i += SORT_THREADS) {
        a.work.slots[i] = -1;
    }
    __syncthreads();
    for (int i = e; i < n; i += SORT_THREADS) {
        atomicAdd(&count[a.ids[i]], 1);
    }
    __syncthreads();
    const int mine = e == a.n_experts ? a.n_rows : e < a.n_experts ? count[e] : 0;
    const int blocks = (mine + MOST_TOKENS - 1) / MOST_TOKENS;
    const int before = sum_before((mine + 7) / 8 * 8, warp_sum);
    const int per_block = blocks > 0 ? ((mine + blocks - 1) / blocks + 7) / 8 * 8 : 0;
    for (int i = 0; i < blocks; i++) {
        const int from = i * per_block;
        const int n_tokens = mine - from < per_block ? mine - from : per_block;
        const int which = e == a.n_experts ? CU_MANY_SHARED : class_of(n_tokens);
        a.work.many[which * a.work.most_blocks + atomicAdd(&n_of_class[which], 1)] = {e, before + from, n_tokens, 0};
    }
    if (e <= a.n_experts) {
        first[e] = before;
        count[e] = 0;
    }
    if (e == a.n_experts) {
        a.work.counters[CU_MANY_CLASSES] = (uint32_t)(before + (mine + 7) / 8 * 8);
    }
    __syncthreads();
    if (e < CU_MANY_CLASSES) {
        a.work.counters[e] = (uint32_t)n_of_class[e];
    }
    for (int i = e; i < n + a.n_rows; i += SORT_THREADS) {
        const int token = i < n ? i / a.n_active : i - n;
        const int place = i < n ? i % a.n_active : a.n_active;
        const int expert = i < n ? a.ids[i] : a.n_experts;
        const int at = first[expert] + (i < n ? atomicAdd(&count[expert], 1) : token);
        a.work.slots[at] = token * (a.n_active + 1) + place;
        a.work.slot_weight[at] = i < n ? a.weights[i] : 1.0f;
    }
}

/* --- Products ----------------------------------------------------------------------------------------------------------------------- */

typedef gemm_sizes<CU_FP8, MOST_TOKENS> ring_sizes;

#define H_ATOMS 16 /* of packed h that are put together at once */
#define H_BYTES (H_ATOMS * GEMM_ATOM)
#define AT_TURN ring_sizes::AT_TURN /* phase 2: turned outputs; phase 1: packed h, then the largest magnitudes */
#define SHARED_BYTES (AT_TURN + H_BYTES + GEMM_GROUPS * 4 * MOST_TOKENS * 4)

#if HAVE_WGMMA
template <int PHASE>
static __device__ __forceinline__ int parts_of(const cu_experts_args &a)
{
    return PHASE == 1 ? a.inter / CU_GROUP_ROWS : a.hidden / GEMM_ROWS;
}

template <int PHASE, int FORMAT>
static __device__ void fetch(const cu_experts_args &a, int which, gemm_rings ring, uint8_t *memory)
{
    pdl_wait();
    proxy_fence();
    const int parts = parts_of<PHASE>(a);
    const int n_items = (int)a.work.counters[which] * parts;
    const cu_many_block *blocks = a.work.many + which * a.work.most_blocks;
    gemm_copies c;
    c.n_tiles = (PHASE == 1 ? a.hidden : a.inter) / CU_TILE_INPUTS;
    c.token_stride = (size_t)a.work.most_rows / 8 * GEMM_ATOM;
    for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
        const cu_many_block block = blocks[i / parts];
        const cu_expert w = FORMAT == CU_FP8 ? a.shared : a.experts[block.expert];
        const size_t group = (size_t)c.n_tiles * gemm_sizes<FORMAT, MOST_TOKENS>::GROUP;
        const int part = i % parts;
        c.weights[0] = PHASE == 1 ? w.w1 + part * group : w.w2 + 2 * part * group;
        c.weights[1] = PHASE == 1 ? w.w3 + part * group : w.w2 + (2 * part + 1) * group;
        c.tokens = (PHASE == 1 ? a.work.packed_x : a.work.packed_h) + (size_t)block.row0 / 8 * GEMM_ATOM;
        c.token_bytes = (uint32_t)(block.n + 7) / 8 * GEMM_ATOM;
        gemm_fetch<FORMAT, ring_sizes>(c, ring, memory);
    }
}

/* x / y correctly rounded, y >= 1, where no step under- or overflows: the steps of the compiler's own division without its slow path, which
 * is a call and costs the registers of one. Where they do, the quotient is so small that the Q8 grid has a zero of its sign for it. */
static __device__ __forceinline__ float divide(float x, float y)
{
    float r;
    y = fminf(y, 0x1.fffffep127f);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
    r = __fmaf_rn(r, __fmaf_rn(-y, r, 1.0f), r);
    float q = __fmul_rn(x, r);
    q = __fmaf_rn(r, __fmaf_rn(-y, q, x), q);
    return __fmaf_rn(r, __fmaf_rn(-y, q, x), q);
}

static __device__ __forceinline__ float activate(float gate, float up, float limit, float weight)
{
    float g = fminf(bf16_rounded(gate), limit);
    float u = fminf(fmaxf(bf16_rounded(up), -limit), limit);
    float h = __fmul_rn(divide(g, __fadd_rn(1.0f, expf(-g))), u);
    return bf16_rounded(__fmul_rn(weight, h));
}

static __device__ __forceinline__ void block_sync() { asm volatile("bar.sync 3, 256;" ::: "memory"); }

/* h of 64 units, on the Q8 grid, into packed rows: they are the 64 inputs number `part` of phase 2. */
template <int N>
static __device__ __forceinline__ void store_units(const cu_experts_args &a, const cu_many_block &block, int part, float (&acc)[N / 2],
                                                   uint8_t *memory)
{
    float *amax = (float *)(memory + AT_TURN + H_BYTES);
    uint8_t *turn = memory + AT_TURN;
    const int group = threadIdx.x / 128;
    const int warp = threadIdx.x % 128 / 32;
    const int lane = threadIdx.x % 32;
    const float *weight = a.work.slot_weight + block.row0;
#pragma unroll
    for (int t = 0; t < N / 8; t++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int column = t * 8 + lane % 4 * 2 + c;
            const float v = activate(acc[4 * t + c], acc[4 * t + c + 2], a.limit, column < block.n ? weight[column] : 0.0f);
            float top = fabsf(v);
            for (int d = 4; d < 32; d *= 2) {
                top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
            }
            if (lane < 4) {
                amax[(group * 4 + warp) * MOST_TOKENS + column] = top;
            }
            acc[4 * t + c] = v;
        }
        asm volatile("" ::: "memory"); /* eight tokens at a time: registers are scarce */
    }
    group_sync(group);
    const int p = group * 32 + warp * 8 + lane / 4; /* unit, and where it lies in its row */
    const int piece = p % 16 / 4 * 2 + p % 4 / 2;
    const uint32_t within = (uint32_t)(p / 16 * 4 + p % 2 * 2);
    uint8_t *h = a.work.packed_h + ((size_t)part * (a.work.most_rows / 8) + block.row0 / 8) * GEMM_ATOM;
    const int n_atoms = (block.n + 7) / 8;
#pragma unroll
    for (int first = 0; first < N / 8; first += H_ATOMS) {
#pragma unroll
        for (int t = first; t < first + H_ATOMS && t < N / 8; t++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int column = t * 8 + lane % 4 * 2 + c;
                float top = amax[group * 4 * MOST_TOKENS + column];
#pragma unroll
                for (int w = 1; w < 4; w++) {
                    top = fmaxf(top, amax[(group * 4 + w) * MOST_TOKENS + column]);
                }
                *(uint16_t *)(turn + (t - first) * GEMM_ATOM + packed_piece(column % 8, piece) + within) =
                    (uint16_t)(__float_as_uint(q8_rounded(acc[4 * t + c], q8_scale_code(top))) >> 16);
            }
            asm volatile("" ::: "memory");
        }
        block_sync();
        const int n = n_atoms - first < H_ATOMS ? n_atoms - first : H_ATOMS;
        for (int i = threadIdx.x; i < n * (GEMM_ATOM / 16); i += GEMM_GROUPS * 128) {
            ((uint4 *)h)[first * (GEMM_ATOM / 16) + i] = ((const uint4 *)turn)[i];
        }
        block_sync();
    }
}

template <int PHASE, int FORMAT, int N>
static __device__ __forceinline__ void run_item(const cu_experts_args &a, const cu_many_block &block, int part, gemm_rings &ring,
                                                uint8_t *memory)
{
    const uint32_t TILE = gemm_sizes<FORMAT, N>::TILE;
    const int group = threadIdx.x / 128;
    const int warp = threadIdx.x % 128 / 32;
    float acc[N / 2];
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        acc[k] = 0.0f;
    }
    const uint32_t lo = PHASE == 1 ? (group * 4 + warp) * TILE : (group * 8 + warp * 2) * TILE;
    const int n_tiles = (PHASE == 1 ? a.hidden : a.inter) / CU_TILE_INPUTS;
    gemm_chain<FORMAT, N, ring_sizes>(acc, ring, memory, lo, lo + (PHASE == 1 ? 8 : 1) * TILE, n_tiles, threadIdx.x % 32);
    if constexpr (PHASE == 1) {
        store_units<N>(a, block, part, acc, memory);
    } else {
        const int32_t *slots = a.work.slots + block.row0;
        uint16_t *out = a.work.out + part * GEMM_ROWS + group * CU_GROUP_ROWS;
        gemm_store16<N>(acc, block.n, memory + AT_TURN + group * 2 * GEMM_TURN_BYTES, group, [&](int token, int c, uint4 v) {
            *(uint4 *)(out + (size_t)slots[token] * a.hidden + 8 * c) = v;
        });
    }
}

template <int PHASE, int FORMAT, int N>
static __device__ __forceinline__ void compute(const cu_experts_args &a, int which, gemm_rings ring, uint8_t *memory)
{
    pdl_wait(); /* the lists */
    const int parts = parts_of<PHASE>(a);
    const int n_items = (int)a.work.counters[which] * parts;
    const cu_many_block *blocks = a.work.many + which * a.work.most_blocks;
    cu_many_block next = blocks[(int)blockIdx.x < n_items ? blockIdx.x / parts : 0];
    for (int i = blockIdx.x; i < n_items; i += gridDim.x) {
        const cu_many_block block = next;
        next = blocks[(i + (int)gridDim.x < n_items ? i + (int)gridDim.x : i) / parts];
        run_item<PHASE, FORMAT, N>(a, block, i % parts, ring, memory);
    }
}
#endif

template <int PHASE, int FORMAT, int N>
static __global__ void __launch_bounds__(GEMM_THREADS, 1) many_kernel(const __grid_constant__ cu_experts_args a, int which)
{
#if HAVE_WGMMA
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t bars[GEMM_BARS];
    pdl_release();
    gemm_rings ring;
    ring.begin(bars);
    if (threadIdx.x == 0) {
        ring.init_barriers();
    }
    __syncthreads();
    if (threadIdx.x / 128 == GEMM_GROUPS) {
        registers_shrink<24>();
        if (threadIdx.x % 128 == 0) {
            fetch<PHASE, FORMAT>(a, which, ring, memory);
        }
    } else {
        registers_grow<240>();
        compute<PHASE, FORMAT, N>(a, which, ring, memory);
    }
#endif
}

template <int PHASE, int FORMAT, int N>
static void launch_class(int *status, const cu_experts_args &a, int which, int n_sms, cu_stream stream)
{
    void (*kernel)(const cu_experts_args, int) = many_kernel<PHASE, FORMAT, N>;
    if (*status == 0) {
        *status = (int)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED_BYTES);
    }
    if (*status == 0) {
        *status = cu_launch(kernel, dim3((unsigned)n_sms), dim3(GEMM_THREADS), (size_t)SHARED_BYTES, stream, a, which);
    }
}

template <int PHASE>
static void launch_phase(int *status, const cu_experts_args &a, int n_sms, cu_stream stream)
{
    launch_class<PHASE, CU_FP8, 192>(status, a, CU_MANY_SHARED, n_sms, stream);
    launch_class<PHASE, CU_FP4, 192>(status, a, 3, n_sms, stream);
    launch_class<PHASE, CU_FP4, 160>(status, a, 2, n_sms, stream);
    launch_class<PHASE, CU_FP4, 128>(status, a, 1, n_sms, stream);
    launch_class<PHASE, CU_FP4, 64>(status, a, 0, n_sms, stream);
}

extern "C" int cu_launch_experts_many(const cu_experts_args *args, int n_sms, cu_stream stream)
{
    const cu_experts_args a = *args;
    const cu_pack_rows pack = {a.u, a.hidden, a.n_rows, a.work.most_rows, a.hidden, true, a.work.packed_x, a.work.slots, a.n_active + 1,
                               a.work.counters + CU_MANY_CLASSES};
    int status = cu_launch(sort_kernel, dim3(1), dim3(SORT_THREADS), 0, stream, a);
    if (status == 0) {
        status = cu_launch_pack_rows(&pack, stream);
    }
    launch_phase<1>(&status, a, n_sms, stream);
    launch_phase<2>(&status, a, n_sms, stream);
    return status == 0 ? cu_launch_experts_combine(&a, stream) : status;
}
