/* cu_backend.c - the CUDA backend as a table. */
#include "core/err.h"
#include "cuda/cu_int.h"
#include "cuda/cuda.h"

#include <stddef.h>

static int32_t one_thread(const ops_device *dev)
{
    (void)dev;
    return 1;
}

/* The bounds that stages check again with every call; here they have the names of config.json. */
static di_status suits(const ops_sizes *s, di_error *err)
{
    const struct {
        const char *name;
        int32_t value, multiple, most;
    } bounds[] = {
        {"hidden_size", s->hidden, 32, 8192},
        {"head_dim", s->head_dim, 32, 512},
        {"qk_rope_head_dim", s->rope_dim, 2, s->head_dim},
        {"o_lora_rank", s->o_lora, CU_GROUP_ROWS, INT32_MAX},
        {"index_n_heads", s->index_heads, 1, 256},
        {"index_head_dim", s->index_dim, 32, CU_MAX_INDEX_DIM},
        {"moe_intermediate_size", s->moe_inter, 32, INT32_MAX},
        {"n_routed_experts", s->n_experts, 1, CU_MAX_EXPERTS},
        {"num_experts_per_tok", s->n_active, 1, 32},
        {"engram_head_dim", s->engram_dim, 32, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        if (bounds[i].value % bounds[i].multiple != 0 || bounds[i].value > bounds[i].most) {
            return err_set(err, DI_E_UNSUPPORTED, "GPU: %s is %d: its kernels take multiples of %d up to %d (use --backend cpu)",
                           bounds[i].name, (int)bounds[i].value, (int)bounds[i].multiple, (int)bounds[i].most);
        }
    }
    if (s->hc != CU_SEAM_STREAMS) {
        return err_set(err, DI_E_UNSUPPORTED, "GPU: hc_mult is %d: its kernels take %d residual streams (use --backend cpu)", (int)s->hc,
                       CU_SEAM_STREAMS);
    }
    return DI_OK;
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
    .suits = suits,
    .plan = cu_plan,
    .step_begin = cu_step_begin,
    .step_end = cu_step_end,
};
