/* cu_stream.c - the stages of the residual streams: seams (model.md 3.3, 3.4). The kernels are for four streams, as released. */
#include "cuda/cu_int.h"

#include <stddef.h>

static bool has_four_streams(cu_device *dev, const char *stage, int32_t hc)
{
    if (hc != CU_SEAM_STREAMS) {
        cu_refuse(dev, stage, "the kernels take four residual streams");
        return false;
    }
    return true;
}

void cu_seam_open(ops_device *device, const ops_seam_open_args *a)
{
    cu_device *dev = cu_of(device);
    if (a->n_rows == 0 || !cu_stage_begin(dev, 0) || !has_four_streams(dev, "seam_open", a->hc)) {
        return;
    }
    if (a->hidden % 32 != 0 || a->hidden > 8192) {
        cu_refuse(dev, "seam_open", "hidden is no multiple of 32, or above 8192");
        return;
    }
    if (a->fn != NULL && (cu_packed_of(a->fn) == NULL || a->fn->format != OPS_F32)) {
        cu_refuse(dev, "seam_open", "the mixing matrix is not loaded");
        return;
    }
    cu_seam_open_job job = {.n_rows = a->n_rows,
                            .hidden = a->hidden,
                            .iters = a->iters,
                            .hc_eps = a->hc_eps,
                            .norm_eps = a->norm_eps,
                            .x = a->x,
                            .pre_in = a->pre_in,
                            .fn = a->fn != NULL ? (const float *)(const void *)cu_packed_of(a->fn)->bytes : NULL,
                            .base = a->base,
                            .scale = a->scale,
                            .norm = a->norm,
                            .pre = a->pre,
                            .post = a->post,
                            .comb = a->comb,
                            .u = a->u};
    cu_ok(dev, cu_launch_seam_open(&job, dev->stream), "seam_open");
}

void cu_seam_close(ops_device *device, const ops_seam_close_args *a)
{
    cu_device *dev = cu_of(device);
    if (a->n_rows == 0 || !cu_stage_begin(dev, 0) || !has_four_streams(dev, "seam_close", a->hc)) {
        return;
    }
    if (a->hidden % 2 != 0) {
        cu_refuse(dev, "seam_close", "hidden is odd");
        return;
    }
    cu_seam_close_job job = {.n_rows = a->n_rows, .hidden = a->hidden, .y = a->y, .post = a->post, .comb = a->comb, .x = a->x};
    cu_ok(dev, cu_launch_seam_close(&job, dev->stream), "seam_close");
}
