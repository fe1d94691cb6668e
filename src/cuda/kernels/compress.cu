/* compress.cu - latents of completed groups, index keys and compressed rows (model.md 3.7.1): the row work between and behind the products
 * of ops_compress, in the reference's arithmetic (ops/ref_project.c). One block a batch row; rows that complete no group have nothing to do
 * but, perhaps, to be kept as the first token of a group. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/exact.cuh"
#include "cuda/kernels/launch.cuh"
#include "cuda/kernels/ptx.cuh"
#include "cuda/kernels/seqs.cuh"

#define THREADS 128
#define MOST_DIM 512

/* A batch row as these kernels see it. */
struct group_row {
    const cu_seq *seq;
    int64_t pos;
    bool complete;
};

static __device__ group_row row_of(const cu_compress_job &a)
{
    const cu_seq &seq = seq_at(a.seqs, seq_of_row(a.seqs, blockIdx.x));
    const int64_t pos = seq.pos0 + ((int)blockIdx.x - seq.row0);
    return {&seq, pos, (pos + 1) % a.ratio == 0};
}

/* Where the first token of a group is kept; pos is its position. */
static __device__ float *open_group(const cu_compress_job &a, const cu_seq &seq, int64_t pos)
{
    return (float *)(seq.state + a.open_offset) + pos / 2 % a.open_groups * 2 * a.head_dim;
}

static __global__ void __launch_bounds__(THREADS) latent_kernel(const __grid_constant__ cu_compress_job a)
{
    __shared__ float x[MOST_DIM];
    __shared__ float lanes[16];
    pdl_release();
    pdl_wait();
    const int dim = a.head_dim;
    const size_t at = (size_t)blockIdx.x * dim;
    const group_row r = row_of(a);
    if (!r.complete) {
        for (int i = threadIdx.x; i < dim; i += THREADS) {
            a.lat[at + i] = 0;
        }
        return;
    }
    const bool from_state = (int)blockIdx.x == r.seq->row0;
    const float *open = a.ratio == 2 ? open_group(a, *r.seq, r.pos - 1) : nullptr;
    for (int i = threadIdx.x; i < dim; i += THREADS) {
        float v = a.kv[at + i];
        if (a.ratio == 2) { /* softmax over the two tokens, channel by channel */
            const float a0 = from_state ? open[i] : a.kv[at - dim + i];
            const float s0 = from_state ? open[dim + i] : a.gate[at - dim + i];
            const float s1 = a.gate[at + i];
            const float top = s0 > s1 ? s0 : s1;
            const float e0 = rounded_exp(__fsub_rn(s0, top));
            const float e1 = rounded_exp(__fsub_rn(s1, top));
            const float sum = __fadd_rn(e0, e1);
            v = __fadd_rn(__fmul_rn(__fdiv_rn(e0, sum), a0), __fmul_rn(__fdiv_rn(e1, sum), v));
        }
        x[i] = bf16_rounded(v);
    }
    const float factor = exact_rms_factor(x, dim, a.norm_eps, lanes);
    for (int i = threadIdx.x; i < dim; i += THREADS) {
        a.lat[at + i] = (uint16_t)bf16_bits(__fmul_rn(a.norm[i], __fmul_rn(x[i], factor)));
    }
}

/* Rotates the last rope_dim of n values in shared memory. */
static __device__ void rotate_tail(float *x, int n, const cu_compress_job &a, int64_t pos)
{
    for (int i = threadIdx.x; i < a.rope_dim / 2; i += THREADS) {
        float *pair = x + n - a.rope_dim + 2 * i;
        float lo = pair[0];
        float hi = pair[1];
        rotate_pair(lo, hi, turn_of(a.rope[i], pos), 1.0f);
        pair[0] = bf16_rounded(lo);
        pair[1] = bf16_rounded(hi);
    }
}

static __device__ float amax_of(const float *x, int n)
{
    float m = 0.0f;
    for (int i = 0; i < n; i++) {
        m = fmaxf(m, fabsf(x[i]));
    }
    return m;
}

/* A group of 16 (Q4N) or 32 (Q4E) values a thread. */
static __device__ void pack_group(const float *x, int n, float s, uint8_t *out)
{
    for (int i = 0; i < n / 2; i++) {
        out[i] = (uint8_t)(e2m1_code(__fdiv_rn(x[2 * i], s)) | e2m1_code(__fdiv_rn(x[2 * i + 1], s)) << 4);
    }
}

/* First tokens of the last groups, complete ones too: behind a rewind one of them may be open again. */
static __device__ void keep_open(const cu_compress_job &a, const group_row &r)
{
    const int left = r.seq->row0 + r.seq->n_rows - (int)blockIdx.x;
    if (a.ratio != 2 || r.pos % 2 != 0 || left > 2 * a.open_groups) {
        return;
    }
    float *open = open_group(a, *r.seq, r.pos);
    const size_t at = (size_t)blockIdx.x * a.head_dim;
    for (int i = threadIdx.x; i < a.head_dim; i += THREADS) {
        open[i] = a.kv[at + i];
        open[a.head_dim + i] = a.gate[at + i];
    }
}

static __global__ void __launch_bounds__(THREADS) store_kernel(const __grid_constant__ cu_compress_job a)
{
    __shared__ float x[MOST_DIM];
    __shared__ float key[MOST_DIM];
    __shared__ float lanes[16];
    pdl_release();
    pdl_wait();
    const group_row r = row_of(a);
    keep_open(a, r);
    if (!r.complete) {
        return;
    }
    const int dim = a.head_dim;
    const int k = a.index_dim;
    const int64_t entry = r.pos / a.ratio;
    const int64_t pos = entry * a.ratio;
    for (int i = threadIdx.x; i < dim; i += THREADS) {
        x[i] = bf16_widen(a.lat[(size_t)blockIdx.x * dim + i]);
    }
    for (int i = threadIdx.x; i < k; i += THREADS) {
        key[i] = bf16_widen(a.key[(size_t)blockIdx.x * k + i]);
    }
    const float factor = exact_rms_factor(key, k, a.norm_eps, lanes);
    for (int i = threadIdx.x; i < k; i += THREADS) {
        key[i] = bf16_rounded(__fmul_rn(a.index_k_norm[i], __fmul_rn(key[i], factor)));
    }
    __syncthreads();
    rotate_tail(key, k, a, pos);
    rotate_tail(x, dim, a, pos);
    __syncthreads();
    uint8_t *key_row = paged_row(a.seqs, *r.seq, a.index_keys, entry);
    for (int g = threadIdx.x; g < k / 32; g += THREADS) {
        const uint32_t code = q4e_scale_code(amax_of(key + g * 32, 32));
        pack_group(key + g * 32, 32, e8m0_value(code), key_row + g * 16);
        key_row[k / 2 + g] = (uint8_t)code;
    }
    uint8_t *row = paged_row(a.seqs, *r.seq, a.compressed, entry);
    for (int g = threadIdx.x; g < dim / 16; g += THREADS) {
        const uint32_t code = q4n_scale_code(amax_of(x + g * 16, 16));
        pack_group(x + g * 16, 16, e4m3_value(code), row + g * 8);
        row[dim / 2 + g] = (uint8_t)code;
    }
}

extern "C" int cu_launch_compress_latents(const cu_compress_job *args, cu_stream stream)
{
    return cu_launch(latent_kernel, dim3((unsigned)args->n_rows), dim3(THREADS), 0, stream, *args);
}

extern "C" int cu_launch_compress_store(const cu_compress_job *args, cu_stream stream)
{
    return cu_launch(store_kernel, dim3((unsigned)args->n_rows), dim3(THREADS), 0, stream, *args);
}
