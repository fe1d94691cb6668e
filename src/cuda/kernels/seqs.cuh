/* seqs.cuh - sequences as kernels see them (cu_seqs): who a row belongs to, where its caches are. */
#ifndef CUDA_KERNELS_SEQS_CUH
#define CUDA_KERNELS_SEQS_CUH

#include "cuda/cu_kernels.h"

__device__ __forceinline__ int seq_of_row(const cu_seqs &s, int row) { return ((const int32_t *)(s.table + s.row_seq_at))[row]; }

__device__ __forceinline__ const cu_seq &seq_at(const cu_seqs &s, int i) { return ((const cu_seq *)s.table)[i]; }

/* Row j of a paged cache. */
__device__ __forceinline__ uint8_t *paged_row(const cu_seqs &s, const cu_seq &seq, const cu_paged &p, int64_t j)
{
    uint8_t *const *pages = (uint8_t *const *)(s.table + seq.pages_at);
    return pages[j / p.per_page] + p.offset + j % p.per_page * (int64_t)p.row_bytes;
}

#endif
