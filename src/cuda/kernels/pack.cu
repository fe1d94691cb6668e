/* pack.cu - checkpoint layout to packed tiles (expand.cuh), on the device, once a matrix at load.
 *
 * A thread makes the 16-byte pieces of one octet's tile that it will later own in the products, so reads are short runs of a row and
 * writes are contiguous. Two things a trained model never holds can't be packed and are counted instead: NaN codes, and scales whose
 * multiplier would leave the range of BF16. */
#include "cuda/cu_kernels.h"
#include "cuda/kernels/expand.cuh"

#include <cuda_runtime.h>

/* Bit of a word where bit `bit` (sign last) of code `code` goes: see expand_fp4 and expand_fp8. */
__constant__ const uint8_t FP4_PLACE[8][4] = {{6, 7, 8, 15},     {22, 23, 24, 31}, {2, 3, 4, 11},   {18, 19, 20, 27},
                                              {12, 13, 14, 21}, {28, 29, 30, 5},  {0, 9, 10, 17}, {16, 25, 26, 1}};
__constant__ const uint8_t FP8_PLACE[2][8] = {{4, 5, 6, 7, 8, 9, 10, 15}, {0, 1, 2, 3, 12, 13, 14, 11}};

struct pack_args {
    const uint8_t *data;
    const uint8_t *scale;
    uint8_t *out;
    int64_t n_out;
    int64_t n_in;
    uint32_t *bad;
};

/* Eight codes in four checkpoint bytes to one word. */
static __device__ uint32_t spread_fp4(const uint8_t *codes)
{
    uint32_t word = 0;
    for (int i = 0; i < 8; i++) {
        uint32_t code = codes[i / 2] >> (i % 2 * 4) & 15;
        for (int bit = 0; bit < 4; bit++) {
            word |= (code >> bit & 1) << FP4_PLACE[i][bit];
        }
    }
    return word;
}

static __device__ uint32_t spread_fp8(const uint8_t *codes, uint32_t *bad)
{
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t code = codes[i];
        if ((code & 0x7F) == 0x7F) {
            atomicAdd(bad, 1);
        }
        for (int bit = 0; bit < 8; bit++) {
            word |= (code >> bit & 1) << (FP8_PLACE[i / 2][bit] + i % 2 * 16);
        }
    }
    return word;
}

static __device__ uint8_t scale_byte(uint32_t code, uint32_t bias, uint32_t *bad)
{
    if (code + bias > 254) {
        atomicAdd(bad, 1);
        return 0;
    }
    return (uint8_t)(code + bias);
}

/* grid (tiles along the inputs, octets), 32 threads */
static __global__ void pack_fp4(const pack_args a)
{
    int lane = threadIdx.x;
    int64_t octet = blockIdx.y;
    int64_t tile = blockIdx.x;
    uint8_t *out = a.out + ((octet / 8 * gridDim.x + tile) * 8 + octet % 8) * CU_TILE_BYTES_FP4;
    int64_t row = octet * 8 + lane / 4;
    const uint8_t *in = a.data + (row * a.n_in + tile * CU_TILE_INPUTS + lane % 4 * 16) / 2;
    for (int b = 0; b < 4; b++) {
        uint32_t *word = (uint32_t *)(out + b / 2 * 512 + lane * 16 + b % 2 * 8);
        word[0] = spread_fp4(in + b * 32);
        word[1] = spread_fp4(in + b * 32 + 4);
    }
    for (int i = lane; i < 64; i += 32) { /* [row][half][block] */
        int64_t r = octet * 8 + i / 8;
        int64_t group = tile * 8 + i % 4 * 2 + i / 4 % 2;
        out[1024 + i] = scale_byte(a.scale[r * (a.n_in / 32) + group], CU_SCALE_BIAS_FP4, a.bad);
    }
}

static __global__ void pack_fp8(const pack_args a)
{
    int lane = threadIdx.x;
    int64_t octet = blockIdx.y;
    int64_t tile = blockIdx.x;
    uint8_t *out = a.out + ((octet / 8 * gridDim.x + tile) * 8 + octet % 8) * CU_TILE_BYTES_FP8;
    const uint8_t *in = a.data + (octet * 8 + lane / 4) * a.n_in + tile * CU_TILE_INPUTS + lane % 4 * 16;
    for (int b = 0; b < 4; b++) {
        uint32_t *word = (uint32_t *)(out + b * 512 + lane * 16);
        for (int j = 0; j < 4; j++) {
            word[j] = spread_fp8(in + b * 64 + j * 4, a.bad);
        }
    }
    if (lane < 16) {
        int64_t group = tile * 8 + lane % 4 * 2 + lane / 4 % 2;
        uint32_t code = lane < 8 ? a.scale[octet / 4 * (a.n_in / 32) + group] : 0;
        out[2048 + lane] = lane < 8 ? scale_byte(code, CU_SCALE_BIAS_FP8, a.bad) : 0;
    }
}

static __global__ void pack_bf16(const pack_args a)
{
    int lane = threadIdx.x;
    int64_t octet = blockIdx.y;
    int64_t tile = blockIdx.x;
    uint8_t *out = a.out + ((octet / 8 * gridDim.x + tile) * 8 + octet % 8) * CU_TILE_BYTES_BF16;
    const uint8_t *in = a.data + ((octet * 8 + lane / 4) * a.n_in + tile * CU_TILE_INPUTS + lane % 4 * 16) * 2;
    for (int i = 0; i < 8; i++) {
        *(uint4 *)(out + i * 512 + lane * 16) = *(const uint4 *)(in + i / 2 * 128 + i % 2 * 16);
    }
}

extern "C" int cu_launch_pack(cu_format format, const uint8_t *data, const uint8_t *scale, int64_t n_out, int64_t n_in, uint8_t *out,
                              uint32_t *bad, cu_stream stream)
{
    const pack_args a = {data, scale, out, n_out, n_in, bad};
    dim3 grid((unsigned)(n_in / CU_TILE_INPUTS), (unsigned)(n_out / 8));
    switch (format) {
    case CU_FP4:
        pack_fp4<<<grid, 32, 0, stream>>>(a);
        break;
    case CU_FP8:
        pack_fp8<<<grid, 32, 0, stream>>>(a);
        break;
    default:
        pack_bf16<<<grid, 32, 0, stream>>>(a);
        break;
    }
    return (int)cudaGetLastError();
}
