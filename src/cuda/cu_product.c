/* cu_product.c - products of a stage with whatever form its matrices have: tiles (kernels/linear.cu; with many tokens kernels/gemm.cu,
 * which gives the same bits), up to three of a kind in one launch, or the checkpoint's order (kernels/plain.cu). Which form a matrix has
 * follows from its shape alone (cu_weights.c), so results never depend on the batch. */
#include "cuda/cu_int.h"

#define ROWS_AS_THEY_ARE 16 /* up to so many are fetched one by one */

static cu_linear tiled_job(const cu_product *p)
{
    const cu_packed *w = cu_packed_of(p->w);
    return (cu_linear){.packed = w->data,
                       .n_out = (int32_t)w->n_out,
                       .n_in = (int32_t)w->n_in,
                       .split = cu_split(w->format, w->n_out, w->n_in),
                       .group_rows = p->group_rows,
                       .x = p->x,
                       .ldx = p->ldx > 0 ? p->ldx : w->n_in,
                       .y16 = p->y16,
                       .y32 = p->y32,
                       .ldy = w->n_out};
}

static cu_plain plain_job(const cu_product *p, int32_t n_rows)
{
    const cu_packed *w = cu_packed_of(p->w);
    return (cu_plain){.format = w->format == OPS_F32    ? CU_PLAIN_F32
                                : w->format == OPS_BF16 ? CU_PLAIN_BF16
                                : w->format == OPS_FP4  ? CU_PLAIN_FP4
                                                        : CU_PLAIN_FP8,
                      .data = w->data,
                      .scale = w->scale,
                      .n_out = (int32_t)w->n_out,
                      .n_in = (int32_t)w->n_in,
                      .n_rows = n_rows,
                      .x = p->x,
                      .ldx = p->ldx > 0 ? p->ldx : w->n_in,
                      .y16 = p->y16,
                      .y32 = p->y32,
                      .ldy = w->n_out};
}

/* Groups of a block-diagonal matrix one after the other. Their outputs are a multiple of 32, so that scales begin with them. */
static bool run_plain(cu_device *dev, const char *stage, const cu_product *p, int32_t n_rows)
{
    cu_plain job = plain_job(p, n_rows);
    const int32_t rows = p->group_rows > 0 ? p->group_rows : job.n_out;
    const size_t codes = (size_t)rows * (size_t)job.n_in;
    const size_t scales = (size_t)rows * (size_t)job.n_in / (job.format == CU_PLAIN_FP8 ? 32 * 32 : 32);
    const size_t bytes = job.format == CU_PLAIN_F32 ? 4 * codes : job.format == CU_PLAIN_BF16 ? 2 * codes : codes;
    const int32_t n_groups = job.n_out / rows;
    job.n_out = rows;
    for (int32_t g = 0; g < n_groups; g++) {
        if (!cu_ok(dev, cu_launch_plain(&job, dev->stream), stage)) {
            return false;
        }
        job.data += job.format == CU_PLAIN_FP4 ? codes / 2 : bytes;
        job.scale += job.scale != NULL ? scales : 0;
        job.x += job.n_in;
        job.y16 += job.y16 != NULL ? rows : 0;
        job.y32 += job.y32 != NULL ? rows : 0;
    }
    return true;
}

static bool go_together(const cu_linear_set *set, const cu_packed *w, const cu_linear *job, cu_format format)
{
    return set->n_jobs > 0 && set->n_jobs < CU_MAX_JOBS && set->format == format && set->jobs[0].split == job->split && w->tiles;
}

/* Products of many tokens want rows of x that are packed once for all, and outputs that can be written 16 bytes at a time. */
static bool same_rows(const cu_linear *a, const cu_linear *b)
{
    return a->x == b->x && a->ldx == b->ldx && a->n_in == b->n_in && a->group_rows == 0 && b->group_rows == 0;
}

static bool suits_many(const cu_device *dev, const cu_linear_set *set)
{
    bool good = dev->hopper && set->n_rows >= (set->format == CU_BF16 ? CU_MANY_ROWS_BF16 : CU_MANY_ROWS);
    for (int32_t j = 0; j < set->n_jobs; j++) {
        const cu_linear *job = &set->jobs[j];
        good = good && job->group_rows % 128 == 0 && job->ldx % 2 == 0 && (uintptr_t)job->x % 4 == 0 && (uintptr_t)job->y16 % 16 == 0;
    }
    return good;
}

/* Those of a set that have the same rows, together. */
static bool run_many(cu_device *dev, const char *stage, const cu_linear_set *set)
{
    const int32_t padded = cu_padded_rows(set->n_rows);
    for (int32_t j = 0; j < set->n_jobs;) {
        cu_linear_set part = {.n_rows = set->n_rows, .format = set->format, .padded_rows = padded};
        const cu_linear *first = &set->jobs[j];
        part.jobs[part.n_jobs++] = set->jobs[j++];
        for (; j < set->n_jobs && same_rows(&set->jobs[j], first); j++) {
            part.jobs[part.n_jobs++] = set->jobs[j];
        }
        const int32_t width = first->n_in * (first->group_rows > 0 ? first->n_out / first->group_rows : 1);
        uint8_t *packed = cu_packed_rows(dev, padded, width);
        if (packed == NULL) {
            return false;
        }
        part.packed_rows = packed;
        const cu_pack_rows rows = {.x = first->x, .ldx = first->ldx, .n_rows = set->n_rows, .padded_rows = padded, .n = width,
                                   .out = packed};
        if (!cu_ok(dev, cu_launch_pack_rows(&rows, dev->stream), stage) ||
            !cu_ok(dev, cu_launch_gemm(&part, dev->n_sms, dev->stream), stage)) {
            return false;
        }
    }
    return true;
}

static bool flush(cu_device *dev, const char *stage, cu_linear_set *set)
{
    bool good = true;
    if (set->n_jobs > 0 && suits_many(dev, set)) {
        good = run_many(dev, stage, set);
    } else if (set->n_jobs > 0) {
        good = cu_ok(dev, cu_launch_linear(set, dev->n_sms, dev->stream), stage);
    }
    set->n_jobs = 0;
    return good;
}

static bool is_usable(cu_device *dev, const char *stage, const cu_product *p)
{
    const cu_packed *w = cu_packed_of(p->w);
    if (w == NULL || w->format == OPS_FP8R || (w->tiles && w->format == OPS_FP4)) {
        cu_refuse(dev, stage, "a matrix is not loaded, or not stored as in the released checkpoint");
        return false;
    }
    if (p->group_rows % (w->tiles ? CU_GROUP_ROWS : 32) != 0) {
        cu_refuse(dev, stage, "outputs of a group are no multiple of 32, or of 64 where the matrix has tiles");
        return false;
    }
    return true;
}

static bool arranges(const cu_product *p, int32_t n_rows)
{
    return cu_packed_of(p->w)->tiles && n_rows > ROWS_AS_THEY_ARE && n_rows <= CU_STEP_ROWS;
}

/* The arranged rows of product i: those of an earlier product of the call, or new ones. NULL after a failure. */
static const uint8_t *arranged_of(cu_device *dev, const char *stage, const cu_product *products, size_t i, int32_t n_rows)
{
    size_t at = 0;
    const cu_linear job = tiled_job(&products[i]);
    for (size_t k = 0; k < i; k++) {
        if (arranges(&products[k], n_rows)) {
            const cu_linear other = tiled_job(&products[k]);
            if (other.x == job.x && other.ldx == job.ldx) {
                return dev->arranged + at;
            }
            at += cu_arranged_bytes(n_rows, other.ldx);
        }
    }
    uint8_t *const out = dev->arranged + at;
    return cu_ok(dev, cu_launch_arrange(job.x, n_rows, job.ldx, out, dev->stream), stage) ? out : NULL;
}

bool cu_products(cu_device *dev, const char *stage, const cu_product *products, size_t n, int32_t n_rows)
{
    cu_linear_set set = {.n_rows = n_rows};
    int64_t width = 0;
    if (n_rows == 0) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_usable(dev, stage, &products[i])) {
            return false;
        }
        width += arranges(&products[i], n_rows) ? tiled_job(&products[i]).ldx : 0;
    }
    if (!cu_arranged_reserve(dev, n_rows, width)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const cu_packed *w = cu_packed_of(products[i].w);
        if (!w->tiles) {
            if (!run_plain(dev, stage, &products[i], n_rows)) {
                return false;
            }
            continue;
        }
        cu_linear job = tiled_job(&products[i]);
        if (arranges(&products[i], n_rows) && (job.arranged = arranged_of(dev, stage, products, i, n_rows)) == NULL) {
            return false;
        }
        const cu_format format = w->format == OPS_FP8 ? CU_FP8 : CU_BF16;
        if (!go_together(&set, w, &job, format) && !flush(dev, stage, &set)) {
            return false;
        }
        set.format = format;
        set.jobs[set.n_jobs++] = job;
    }
    return flush(dev, stage, &set);
}
