/* moves.cu - rows that are copied, looked up or added: embedding, taps, rows that stay in a batch, the Engram memory, inputs of the draft's
 * heads (model.md 3.1, 3.5.4, 4.2; dspark.md 1.3, 1.7). */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/block.cuh"
#include "cuda/kernels/exact.cuh"
#include "cuda/kernels/launch.cuh"

#define THREADS 256

/* --- Embedding --------------------------------------------------------------------------------------------------------------------- */

/* grid (rows, pieces of a row) */
static __global__ void __launch_bounds__(THREADS) embed_kernel(const uint16_t *table, const int32_t *ids, const uint16_t *rows,
                                                               const uint8_t *row_given, int hc, int hidden, uint16_t *x, float *pre)
{
    pdl_release();
    pdl_wait();
    const size_t t = blockIdx.x;
    const int i = blockIdx.y * THREADS + threadIdx.x;
    const bool given = rows != nullptr && row_given[t] != 0;
    const uint16_t *from = given ? rows + t * hidden : table + (size_t)ids[t] * hidden;
    if (i < hidden) {
        const uint16_t v = from[i];
        for (int k = 0; k < hc; k++) {
            x[(t * hc + k) * hidden + i] = v;
        }
    }
    if (i < hc) {
        pre[t * hc + i] = i == 0 ? 1.0f : 0.0f;
    }
}

extern "C" int cu_launch_embed(const uint16_t *table, const int32_t *ids, const uint16_t *rows, const uint8_t *row_given, int32_t n_rows,
                               int32_t hc, int32_t hidden, uint16_t *x, float *pre, cu_stream stream)
{
    return cu_launch(embed_kernel, dim3((unsigned)n_rows, (unsigned)(hidden + THREADS - 1) / THREADS), dim3(THREADS), 0, stream, table, ids,
                     rows, row_given, hc, hidden, x, pre);
}

/* --- Taps -------------------------------------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS) tap_kernel(const uint16_t *x, int hc, int hidden, int64_t ld, uint16_t *out)
{
    pdl_release();
    pdl_wait();
    const int i = blockIdx.y * THREADS + threadIdx.x;
    if (i >= hidden) {
        return;
    }
    const uint16_t *row = x + (size_t)blockIdx.x * hc * hidden + i;
    float sum = bf16_widen(row[0]);
    for (int k = 1; k < hc; k++) {
        sum = __fadd_rn(sum, bf16_widen(row[(size_t)k * hidden]));
    }
    out[blockIdx.x * ld + i] = (uint16_t)bf16_bits(__fdiv_rn(sum, (float)hc));
}

extern "C" int cu_launch_tap(const uint16_t *x, int32_t n_rows, int32_t hc, int32_t hidden, int64_t ld, uint16_t *out, cu_stream stream)
{
    return cu_launch(tap_kernel, dim3((unsigned)n_rows, (unsigned)(hidden + THREADS - 1) / THREADS), dim3(THREADS), 0, stream, x, hc,
                     hidden,
                     ld, out);
}

/* --- Rows that stay ------------------------------------------------------------------------------------------------------------------ */

/* grid (rows, pieces of 4 KiB) */
static __global__ void __launch_bounds__(THREADS) gather_kernel(const uint8_t *buffer, int64_t row_bytes, const int32_t *from, uint8_t *out)
{
    pdl_release();
    pdl_wait();
    const uint8_t *src = buffer + from[blockIdx.x] * row_bytes;
    uint8_t *dst = out + blockIdx.x * row_bytes;
    const int64_t at = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * 16;
    if (row_bytes % 16 == 0) {
        if (at < row_bytes) {
            *(uint4 *)(dst + at) = *(const uint4 *)(src + at);
        }
        return;
    }
    for (int64_t i = at; i < at + 16 && i < row_bytes; i++) {
        dst[i] = src[i];
    }
}

extern "C" int cu_launch_gather_rows(const uint8_t *buffer, int64_t row_bytes, const int32_t *from, int32_t n, uint8_t *out,
                                     cu_stream stream)
{
    const unsigned pieces = (unsigned)((row_bytes + 16 * THREADS - 1) / (16 * THREADS));
    return cu_launch(gather_kernel, dim3((unsigned)n, pieces), dim3(THREADS), 0, stream, buffer, row_bytes, from, out);
}

/* --- Engram ------------------------------------------------------------------------------------------------------------------------ */

/* grid (rows, pieces): a warp takes 32 columns, which have one scale in the table and one on the way out. */
static __global__ void __launch_bounds__(THREADS) lookup_kernel(const __grid_constant__ cu_engram_job a)
{
    pdl_release();
    pdl_wait();
    const int width = a.n_columns * a.head_dim;
    const int i = blockIdx.y * THREADS + threadIdx.x;
    if (i >= width) { /* whole warps: head_dim is a multiple of 32 */
        return;
    }
    const size_t t = blockIdx.x;
    const size_t row = (size_t)a.rows[t * a.n_columns + i / a.head_dim];
    const int c = i % a.head_dim;
    const float s = e8m0_value(a.table_scale[row * (a.head_dim / 32) + c / 32]);
    const float v = __fmul_rn(e4m3_value(a.table[row * a.head_dim + c]), s);
    const uint32_t code = q8_scale_code(warp_max(fabsf(v)));
    a.z[t * width + i] = (uint16_t)(__float_as_uint(q8_rounded(v, code)) >> 16);
}

extern "C" int cu_launch_engram_lookup(const cu_engram_job *args, cu_stream stream)
{
    const unsigned pieces = (unsigned)(args->n_columns * args->head_dim + THREADS - 1) / THREADS;
    return cu_launch(lookup_kernel, dim3((unsigned)args->n_rows, pieces), dim3(THREADS), 0, stream, *args);
}

/* grid (rows, streams) */
static __global__ void __launch_bounds__(THREADS) write_kernel(const __grid_constant__ cu_engram_job a)
{
    __shared__ float scratch[32];
    pdl_release();
    pdl_wait();
    const size_t t = blockIdx.x;
    const int k = blockIdx.y;
    const int n = a.hidden;
    uint16_t *x = a.x + (t * a.hc + k) * n;
    const uint16_t *key = a.kv + (t * (a.hc + 1) + k) * n;
    const uint16_t *value = a.kv + (t * (a.hc + 1) + a.hc) * n;
    float xx = 0.0f;
    float kk = 0.0f;
    float xk = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        const float v = bf16_widen(x[i]);
        const float w = bf16_widen(key[i]);
        xx = __fadd_rn(xx, __fmul_rn(v, v));
        kk = __fadd_rn(kk, __fmul_rn(w, w));
        xk = __fadd_rn(xk, __fmul_rn(__fmul_rn(v, __fmul_rn(a.q_weight[(size_t)k * n + i], a.k_weight[(size_t)k * n + i])), w));
    }
    xx = block_sum(xx, scratch);
    kk = block_sum(kk, scratch);
    xk = block_sum(xk, scratch);
    const float rx = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(xx, (float)n), a.norm_eps)));
    const float rk = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(kk, (float)n), a.norm_eps)));
    const float root = (float)(1.0 / sqrt((double)n));
    const float dot = __fmul_rn(__fmul_rn(xk, __fmul_rn(rx, rk)), root);
    const float size = fabsf(dot);
    const float gate = a.is_text[t] != 0 ? rounded_sigmoid(copysignf(__fsqrt_rn(size > 1e-6f ? size : 1e-6f), dot)) : 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        x[i] = (uint16_t)bf16_bits(__fadd_rn(bf16_widen(x[i]), __fmul_rn(gate, bf16_widen(value[i]))));
    }
}

extern "C" int cu_launch_engram_write(const cu_engram_job *args, cu_stream stream)
{
    return cu_launch(write_kernel, dim3((unsigned)args->n_rows, (unsigned)args->hc), dim3(THREADS), 0, stream, *args);
}

/* --- Heads of the draft --------------------------------------------------------------------------------------------------------------- */

/* grid (rows, pieces of a joined row) */
static __global__ void __launch_bounds__(THREADS) markov_rows_kernel(const uint16_t *embed, const int32_t *previous, const uint16_t *h,
                                                                     int64_t ld_h, int hidden, int rank, uint16_t *e, uint16_t *joined)
{
    pdl_release();
    pdl_wait();
    const size_t t = blockIdx.x;
    const int i = blockIdx.y * THREADS + threadIdx.x;
    if (i >= hidden + rank) {
        return;
    }
    const uint16_t v = i < hidden ? h[t * ld_h + i] : embed[(size_t)previous[t] * rank + (i - hidden)];
    joined[t * (hidden + rank) + i] = v;
    if (i >= hidden) {
        e[t * rank + (i - hidden)] = v;
    }
}

extern "C" int cu_launch_markov_rows(const uint16_t *embed, const int32_t *previous, const uint16_t *h, int64_t ld_h, int32_t n_rows,
                                     int32_t hidden, int32_t rank, uint16_t *e, uint16_t *joined, cu_stream stream)
{
    return cu_launch(markov_rows_kernel, dim3((unsigned)n_rows, (unsigned)(hidden + rank + THREADS - 1) / THREADS), dim3(THREADS), 0,
                     stream,
                     embed, previous, h, ld_h, hidden, rank, e, joined);
}

static __global__ void __launch_bounds__(THREADS) add_base_kernel(float *logits, const float *base, int64_t ld_base, int64_t vocab)
{
    pdl_release();
    pdl_wait();
    const int64_t i = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (i < vocab) {
        const int64_t at = blockIdx.x * vocab + i;
        logits[at] = __fadd_rn(base[blockIdx.x * ld_base * vocab + i], logits[at]);
    }
}

extern "C" int cu_launch_add_base(float *logits, const float *base, int64_t ld_base, int32_t n_rows, int64_t vocab, cu_stream stream)
{
    return cu_launch(add_base_kernel, dim3((unsigned)n_rows, (unsigned)((vocab + THREADS - 1) / THREADS)), dim3(THREADS), 0, stream, logits,
                     base, ld_base, vocab);
}
