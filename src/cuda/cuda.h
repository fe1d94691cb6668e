/* cuda.h - the CUDA backend for Hopper and Blackwell: the table for ops/backend_list.c, and its members for tests and benches.
 *
 * A device owns one stream; stages only ask for work on it, in order, and may be captured into a CUDA graph once each has been planned or
 * has run with its largest batch. One thread at a time per device. */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include "ops/ops.h"

extern const ops_backend cuda_backend;

/* Is there a GPU that these kernels were built for (compute capability 9.0 or 10.0)? */
bool cu_available(void);

/* options->ordinal chooses the GPU. Errors: DI_E_DEVICE, DI_E_UNSUPPORTED, DI_E_MEMORY. */
di_status cu_open(const ops_device_options *options, ops_device **out, di_error *err);
void cu_close(ops_device *dev);
di_status cu_sync(ops_device *dev, di_error *err);

void *cu_mem_alloc(ops_device *dev, size_t bytes);
void cu_mem_free(ops_device *dev, void *memory);
/* From and to pageable memory these return when the bytes have been read or have arrived. */
void cu_upload(ops_device *dev, void *dst, const void *src_host, size_t bytes);
void cu_download(ops_device *dev, void *dst_host, const void *src, size_t bytes);
void cu_copy(ops_device *dev, void *dst, const void *src, size_t bytes);

/* Packs FP8 and BF16 matrices of products (n_out a multiple of 64, n_in of 256) and FP4 ones (both multiples of 256); others are uploaded
 * as they are. The matrix's own bytes are not needed afterwards, but for a look-up table that does not fit on the device: that is read
 * where it lies. Errors: DI_E_UNSUPPORTED (shape, NaN codes, scales), DI_E_MEMORY. */
di_status cu_weight_load(ops_device *dev, ops_matrix *matrix, ops_weight_use use, di_error *err);
void cu_weight_free(ops_device *dev, ops_matrix *matrix);

void cu_embed(ops_device *dev, const ops_embed_args *a);
void cu_seam_open(ops_device *dev, const ops_seam_open_args *a);
void cu_seam_close(ops_device *dev, const ops_seam_close_args *a);
void cu_engram(ops_device *dev, const ops_engram_args *a);
void cu_attn_in(ops_device *dev, const ops_attn_in_args *a);
void cu_compress(ops_device *dev, const ops_compress_args *a);
void cu_query(ops_device *dev, const ops_query_args *a);
void cu_index(ops_device *dev, const ops_index_args *a);
void cu_attend(ops_device *dev, const ops_attend_args *a);
void cu_window_store(ops_device *dev, const ops_window_store_args *a);
void cu_attn_out(ops_device *dev, const ops_attn_out_args *a);
void cu_router(ops_device *dev, const ops_router_args *a);
void cu_experts(ops_device *dev, const ops_experts_args *a);
void cu_head(ops_device *dev, const ops_head_args *a);
void cu_tap(ops_device *dev, const ops_tap_args *a);
void cu_draft_attend(ops_device *dev, const ops_draft_attend_args *a);
void cu_markov(ops_device *dev, const ops_markov_args *a);
void cu_keep_rows(ops_device *dev, const ops_keep_rows_args *a);

void cu_plan(ops_device *dev, bool begin);
bool cu_step_begin(ops_device *dev, const ops_step *step);
bool cu_step_end(ops_device *dev);

/* The device's stream (a cudaStream_t), for benches that capture stages into graphs. */
void *cu_stream_of(ops_device *dev);

#endif
