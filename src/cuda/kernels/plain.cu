/* plain.cu - products with matrices as they lie in the checkpoint, for forms that have no tiles: any number of outputs, inputs in
 * multiples of 32. The order of sums is the reference's (ops/ref_linear.c): partial sums of 32 inputs, 16 for fp32 weights, each walked
 * in ascending order, so results have its bits.
 *
 * A block makes 64 outputs of 16 or 64 rows; a thread four outputs of one or four rows. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/exact.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/ptx.cuh"

#define THREADS 256
#define OUTPUTS 64
#define PITCH (OUTPUTS + 4)
#define DEPTH 32

struct plain_matrix {
    const uint8_t *data;
    const uint8_t *scale;
    int n_out;
    int n_in;
};

/* Eight weights of output o from input k on; zeros behind the last output. */
template <int FORMAT>
static __device__ __forceinline__ void load_weights(const plain_matrix &w, int o, int k, float (&v)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = 0.0f;
    }
    if (o >= w.n_out) {
        return;
    }
    const size_t at = (size_t)o * w.n_in + k;
    if (FORMAT == CU_PLAIN_F32) {
        const float4 a = *(const float4 *)(w.data + 4 * at);
        const float4 b = *(const float4 *)(w.data + 4 * at + 16);
        const float words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = words[i];
        }
    } else if (FORMAT == CU_PLAIN_BF16) {
        const uint4 a = *(const uint4 *)(w.data + 2 * at);
        const uint32_t words[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = bf16_widen(words[i / 2] >> 16 * (i % 2) & 0xFFFFu);
        }
    } else if (FORMAT == CU_PLAIN_FP8) {
        const uint2 a = *(const uint2 *)(w.data + at);
        const float s = e8m0_value(w.scale[(size_t)(o / 32) * ((w.n_in + 31) / 32) + k / 32]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = __fmul_rn(e4m3_value((i < 4 ? a.x : a.y) >> 8 * (i % 4) & 0xFFu), s);
        }
    } else {
        const uint32_t a = *(const uint32_t *)(w.data + at / 2);
        const float s = e8m0_value(w.scale[(size_t)o * ((w.n_in + 31) / 32) + k / 32]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = __fmul_rn(e2m1_value(a >> 4 * i & 0xFu), s);
        }
    }
}

/* Products are exact but for fp32 weights, so one rounding is what the reference has too. */
template <int FORMAT>
static __device__ __forceinline__ float add_product(float sum, float x, float w)
{
    return FORMAT == CU_PLAIN_F32 ? __fadd_rn(sum, __fmul_rn(x, w)) : __fmaf_rn(x, w, sum);
}

struct plain_shared {
    float w[DEPTH][PITCH];
    float x[DEPTH][OUTPUTS];
};

/* Rows of x that one call multiplies: number r is at x + row(r) * ldx. */
struct plain_rows {
    const uint16_t *x;
    int64_t ldx;
    const int32_t *gather; /* NULL = in order */
    int n;
};

template <int FORMAT, int ROWS>
static __device__ void plain_block(const plain_matrix &w, const plain_rows &rows, int o0, int r0, plain_shared &s, float (&acc)[ROWS][4])
{
    const int tx = threadIdx.x % 16;
    const int ty = threadIdx.x / 16;
    const int part_depth = FORMAT == CU_PLAIN_F32 ? 16 : 32;
    for (int k0 = 0; k0 < w.n_in; k0 += DEPTH) {
        float v[8];
        load_weights<FORMAT>(w, o0 + threadIdx.x / 4, k0 + threadIdx.x % 4 * 8, v);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            s.w[threadIdx.x % 4 * 8 + i][threadIdx.x / 4] = v[i];
        }
        for (int i = threadIdx.x; i < 16 * ROWS * DEPTH / 2; i += THREADS) {
            const int r = r0 + i / (DEPTH / 2);
            const int k = i % (DEPTH / 2) * 2;
            uint32_t pair = 0;
            if (r < rows.n) {
                const int64_t row = rows.gather != nullptr ? rows.gather[r] : r;
                pair = *(const uint32_t *)(rows.x + row * rows.ldx + k0 + k);
            }
            s.x[k][r - r0] = bf16_widen(pair & 0xFFFFu);
            s.x[k + 1][r - r0] = bf16_widen(pair >> 16);
        }
        __syncthreads();
#pragma unroll
        for (int p0 = 0; p0 < DEPTH; p0 += part_depth) {
            float part[ROWS][4] = {};
#pragma unroll 8
            for (int k = p0; k < p0 + part_depth; k++) {
                const float4 wk = *(const float4 *)&s.w[k][tx * 4];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float x = s.x[k][ty * ROWS + r];
                    part[r][0] = add_product<FORMAT>(part[r][0], x, wk.x);
                    part[r][1] = add_product<FORMAT>(part[r][1], x, wk.y);
                    part[r][2] = add_product<FORMAT>(part[r][2], x, wk.z);
                    part[r][3] = add_product<FORMAT>(part[r][3], x, wk.w);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    acc[r][c] = __fadd_rn(acc[r][c], part[r][c]);
                }
            }
        }
    }
}

template <int ROWS>
static __device__ void plain_store(const float (&acc)[ROWS][4], int o0, int n_out, int r0, int n_rows, uint16_t *y16, float *y32,
                                   int64_t ldy)
{
    const int o = o0 + threadIdx.x % 16 * 4;
    const int r = r0 + threadIdx.x / 16 * ROWS;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (r + i < n_rows && o + c < n_out) {
                const size_t at = (size_t)(r + i) * ldy + o + c;
                if (y32 != nullptr) {
                    y32[at] = acc[i][c];
                } else {
                    y16[at] = (uint16_t)bf16_bits(acc[i][c]);
                }
            }
        }
    }
}

/* grid (blocks of outputs, blocks of rows) */
template <int FORMAT, int ROWS>
static __global__ void __launch_bounds__(THREADS) plain_kernel(const __grid_constant__ cu_plain a)
{
    __shared__ plain_shared s;
    const int o0 = (int)blockIdx.x * OUTPUTS;
    const int r0 = (int)blockIdx.y * 16 * ROWS;
    const plain_matrix w = {a.data, a.scale, a.n_out, a.n_in};
    const plain_rows rows = {a.x, a.ldx, nullptr, a.n_rows};
    float acc[ROWS][4] = {};
    pdl_release();
    pdl_wait();
    plain_block<FORMAT, ROWS>(w, rows, o0, r0, s, acc);
    plain_store<ROWS>(acc, o0, a.n_out, r0, a.n_rows, a.y16, a.y32, a.ldy);
}

/* Few rows of few outputs (weights of index heads, routers of odd sizes) would leave blocks of 64 outputs alone with a long walk. Here a
 * block has one output and eight rows, a thread partial sums, which do not depend on each other; then a thread a row adds them in order.
 * grid (outputs, blocks of rows) */
#define FEW_ROWS 8

template <int FORMAT>
static __global__ void __launch_bounds__(THREADS) plain_few_kernel(const __grid_constant__ cu_plain a)
{
    constexpr int PART = FORMAT == CU_PLAIN_F32 ? 16 : 32;
    extern __shared__ float parts[]; /* [FEW_ROWS][n_parts + 1] */
    const plain_matrix w = {a.data, a.scale, a.n_out, a.n_in};
    const int n_parts = a.n_in / PART;
    const int o = (int)blockIdx.x;
    const int r0 = (int)blockIdx.y * FEW_ROWS;
    const int n = min(FEW_ROWS, a.n_rows - r0);
    pdl_release();
    bool waited = false;
    for (int p = threadIdx.x; p < n_parts; p += THREADS) {
        float v[PART / 8][8];
#pragma unroll
        for (int i = 0; i < PART / 8; i++) {
            load_weights<FORMAT>(w, o, p * PART + 8 * i, v[i]);
        }
        if (!waited) { /* weights are nobody's output */
            pdl_wait();
            waited = true;
        }
        for (int r = 0; r < n; r++) {
            const uint16_t *x = a.x + (int64_t)(r0 + r) * a.ldx + p * PART;
            float part = 0.0f;
#pragma unroll
            for (int k = 0; k < PART; k += 2) {
                const uint32_t pair = *(const uint32_t *)(x + k);
                part = add_product<FORMAT>(part, bf16_widen(pair & 0xFFFFu), v[k / 8][k % 8]);
                part = add_product<FORMAT>(part, bf16_widen(pair >> 16), v[k / 8][k % 8 + 1]);
            }
            parts[r * (n_parts + 1) + p] = part;
        }
    }
    if (!waited) {
        pdl_wait();
    }
    __syncthreads();
    if ((int)threadIdx.x < n) {
        const float *mine = parts + threadIdx.x * (n_parts + 1);
        float sum = 0.0f;
#pragma unroll 8
        for (int p = 0; p < n_parts; p++) {
            sum = __fadd_rn(sum, mine[p]);
        }
        const size_t at = (size_t)(r0 + threadIdx.x) * a.ldy + o;
        if (a.y32 != nullptr) {
            a.y32[at] = sum;
        } else {
            a.y16[at] = (uint16_t)bf16_bits(sum);
        }
    }
}

#define FEW_BLOCKS 4096
#define FEW_BYTES 49152 /* shared memory without asking for more */

template <int FORMAT>
static bool launch_few(const cu_plain &a, cu_stream stream, int *status)
{
    const size_t bytes = FEW_ROWS * ((size_t)a.n_in / (FORMAT == CU_PLAIN_F32 ? 16 : 32) + 1) * sizeof(float);
    const unsigned blocks = (unsigned)(a.n_rows + FEW_ROWS - 1) / FEW_ROWS;
    if (bytes > FEW_BYTES || (size_t)a.n_out * blocks > FEW_BLOCKS) {
        return false;
    }
    *status = cu_launch(plain_few_kernel<FORMAT>, dim3((unsigned)a.n_out, blocks), dim3(THREADS), bytes, stream, a);
    return true;
}

template <int FORMAT>
static int launch_plain(const cu_plain &a, cu_stream stream)
{
    int status;
    if (launch_few<FORMAT>(a, stream, &status)) {
        return status;
    }
    const unsigned outputs = (unsigned)(a.n_out + OUTPUTS - 1) / OUTPUTS;
    if (a.n_rows <= 16) {
        return cu_launch(plain_kernel<FORMAT, 1>, dim3(outputs), dim3(THREADS), 0, stream, a);
    }
    return cu_launch(plain_kernel<FORMAT, 4>, dim3(outputs, (unsigned)(a.n_rows + 63) / 64), dim3(THREADS), 0, stream, a);
}

extern "C" int cu_launch_plain(const cu_plain *args, cu_stream stream)
{
    switch (args->format) {
    case CU_PLAIN_F32:
        return launch_plain<CU_PLAIN_F32>(*args, stream);
    case CU_PLAIN_BF16:
        return launch_plain<CU_PLAIN_BF16>(*args, stream);
    case CU_PLAIN_FP8:
        return launch_plain<CU_PLAIN_FP8>(*args, stream);
    default:
        return launch_plain<CU_PLAIN_FP4>(*args, stream);
    }
}

/* --- Routed experts ------------------------------------------------------------------------------------------------------------ */

/* grid (blocks of outputs, experts): a block walks through its expert's rows. */
static __global__ void __launch_bounds__(THREADS) plain_experts_kernel(const __grid_constant__ cu_plain_experts a)
{
    __shared__ plain_shared s;
    pdl_release();
    pdl_wait();
    const int first = a.start[blockIdx.y];
    const int n = a.start[blockIdx.y + 1] - first;
    const int o0 = (int)blockIdx.x * OUTPUTS;
    const cu_plain_weight m = a.experts[blockIdx.y].w[a.which];
    const plain_matrix w = {m.data, m.scale, a.n_out, a.n_in};
    const plain_rows rows = {a.gather ? a.x : a.x + (size_t)first * a.n_in, a.n_in, a.gather ? a.row + first : nullptr, n};
    for (int r0 = 0; r0 < n; r0 += 16) {
        float acc[1][4] = {};
        plain_block<CU_PLAIN_FP4, 1>(w, rows, o0, r0, s, acc);
        plain_store<1>(acc, o0, a.n_out, r0, n, a.y16 != nullptr ? a.y16 + (size_t)first * a.n_out : nullptr,
                       a.y32 != nullptr ? a.y32 + (size_t)first * a.n_out : nullptr, a.n_out);
    }
}

extern "C" int cu_launch_plain_experts(const cu_plain_experts *args, cu_stream stream)
{
    const unsigned outputs = (unsigned)(args->n_out + OUTPUTS - 1) / OUTPUTS;
    return cu_launch(plain_experts_kernel, dim3(outputs, (unsigned)args->n_experts), dim3(THREADS), 0, stream, *args);
}

/* Counting sort of the assignments by expert, one block. Which of an expert's rows comes first is open, and shows in no result. */
static __global__ void __launch_bounds__(CU_MAX_EXPERTS) plain_sort_kernel(const __grid_constant__ cu_plain_sort a)
{
    __shared__ int count[CU_MAX_EXPERTS];
    const int e = threadIdx.x;
    const int n = a.n_rows * a.n_active;
    pdl_release();
    pdl_wait();
    count[e] = 0;
    __syncthreads();
    for (int i = e; i < n; i += blockDim.x) {
        atomicAdd(&count[a.ids[i]], 1);
    }
    __syncthreads();
    if (e == 0) {
        int sum = 0;
        for (int i = 0; i < a.n_experts; i++) {
            const int mine = count[i];
            count[i] = sum;
            a.start[i] = sum;
            sum += mine;
        }
        a.start[a.n_experts] = sum;
    }
    __syncthreads();
    for (int i = e; i < n; i += blockDim.x) {
        const int at = atomicAdd(&count[a.ids[i]], 1);
        a.row[at] = i / a.n_active;
        a.weight[at] = a.weights[i];
        a.place[i] = at;
    }
}

extern "C" int cu_launch_plain_sort(const cu_plain_sort *args, cu_stream stream)
{
    return cu_launch(plain_sort_kernel, dim3(1), dim3(CU_MAX_EXPERTS), 0, stream, *args);
}

/* h = w * silu(gate) * up on the Q8 grid; grid (rows, pieces of a row), a warp a scale. weight NULL = 1 */
static __global__ void __launch_bounds__(THREADS) plain_activate_kernel(const float *gate, const float *up, const float *weight,
                                                                        float limit,
                                                                        int n, uint16_t *h)
{
    pdl_release();
    pdl_wait();
    const int i = blockIdx.y * THREADS + threadIdx.x;
    const size_t at = (size_t)blockIdx.x * n + i;
    float v = 0.0f;
    if (i < n) {
        const float w = weight != nullptr ? weight[blockIdx.x] : 1.0f;
        const float g = fminf(bf16_rounded(gate[at]), limit);
        const float u = fminf(fmaxf(bf16_rounded(up[at]), -limit), limit);
        v = bf16_rounded(__fmul_rn(w, __fmul_rn(__fdiv_rn(g, __fadd_rn(1.0f, exact_exp(-g))), u)));
    }
    float top = fabsf(v);
    for (int d = 16; d > 0; d /= 2) {
        top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, d));
    }
    if (i < n) {
        h[at] = (uint16_t)(__float_as_uint(q8_rounded(v, q8_scale_code(top))) >> 16);
    }
}

extern "C" int cu_launch_plain_activate(const float *gate, const float *up, const float *weight, float limit, int32_t n_rows, int32_t n,
                                        uint16_t *h, cu_stream stream)
{
    return cu_launch(plain_activate_kernel, dim3((unsigned)n_rows, (unsigned)(n + THREADS - 1) / THREADS), dim3(THREADS), 0, stream, gate,
                     up, weight, limit, n, h);
}

/* Contributions of a token in the order of its list, the shared expert last. grid (pieces of the row, tokens) */
static __global__ void __launch_bounds__(THREADS) plain_combine_kernel(const uint16_t *routed, const uint16_t *shared, const int32_t *place,
                                                                       int n_active, int hidden, uint16_t *y)
{
    pdl_release();
    pdl_wait();
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= hidden) {
        return;
    }
    float sum = 0.0f;
    for (int s = 0; s < n_active; s++) {
        sum = __fadd_rn(sum, bf16_widen(routed[(size_t)place[blockIdx.y * n_active + s] * hidden + i]));
    }
    const size_t at = (size_t)blockIdx.y * hidden + i;
    y[at] = (uint16_t)bf16_bits(__fadd_rn(sum, bf16_widen(shared[at])));
}

extern "C" int cu_launch_plain_combine(const uint16_t *routed, const uint16_t *shared, const int32_t *place, int32_t n_rows,
                                       int32_t n_active,
                                       int32_t hidden, uint16_t *y, cu_stream stream)
{
    return cu_launch(plain_combine_kernel, dim3((unsigned)(hidden + THREADS - 1) / THREADS, (unsigned)n_rows), dim3(THREADS), 0, stream,
                     routed, shared, place, n_active, hidden, y);
}
