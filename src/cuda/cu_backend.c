/* cu_backend.c - the CUDA backend as a table. */
#include "cuda/cuda.h"

#include <stddef.h>

static int32_t one_thread(const ops_device *dev)
{
    (void)dev;
    return 1;
}

const ops_backend cuda_backend = {
    .name = "cuda",
    .description = "NVIDIA GPU, compute capability 9.0 or 10.0",
    .numerics = NULL,
    .available = cu_available,
    .open = cu_open,
    .close = cu_close,
    .n_threads = one_thread,
    .sync = cu_sync,
    .mem_alloc = cu_mem_alloc,
    .mem_free = cu_mem_free,
    .upload = cu_upload,
    .download = cu_download,
    .copy = cu_copy,
    .weight_load = cu_weight_load,
    .weight_free = cu_weight_free,
    .embed = cu_embed,
    .seam_open = cu_seam_open,
    .seam_close = cu_seam_close,
    .engram = cu_engram,
    .attn_in = cu_attn_in,
    .compress = cu_compress,
    .query = cu_query,
    .index = cu_index,
    .attend = cu_attend,
    .window_store = cu_window_store,
    .attn_out = cu_attn_out,
    .router = cu_router,
    .experts = cu_experts,
    .head = cu_head,
    .tap = cu_tap,
    .draft_attend = cu_draft_attend,
    .markov = cu_markov,
    .keep_rows = cu_keep_rows,
};
