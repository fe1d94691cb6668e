/* ref_stream.c - the residual streams: embedding, hyper-connection seams, norms, row moves (model.md 3.1, 3.3, 3.4). */
#include "ops/ref.h"
#include "ops/vector.h"

OPS_CLONES float ref_sum_squares(const float *x, size_t n)
{
    v16 sum = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 v = *(const v16u *)(x + i);
        sum += v * v;
    }
    for (size_t lane = 0; i < n; i++, lane++) {
        sum[lane] += x[i] * x[i];
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; lane++) {
            sum[lane] += sum[lane + half];
        }
    }
    return sum[0];
}

OPS_CLONES void ref_rmsnorm(const float *x, const float *w, size_t n, float eps, float *y)
{
    float r = 1.0f / sqrtf(ref_sum_squares(x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i++) {
        y[i] = w[i] * (x[i] * r);
    }
}

/* --- Embedding -------------------------------------------------------------------------------------------------------- */

static void embed_rows(void *arg, size_t begin, size_t end, int thread)
{
    const ops_embed_args *a = arg;
    size_t d = (size_t)a->hidden;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const void *src = a->embed->data + (size_t)a->ids[t] * d * sizeof(bf16);
        if (a->rows != NULL && a->row_given[t]) {
            src = a->rows + t * d;
        }
        for (size_t k = 0; k < (size_t)a->hc; k++) {
            memcpy(a->x + (t * (size_t)a->hc + k) * d, src, d * sizeof(bf16));
            a->pre[t * (size_t)a->hc + k] = k == 0 ? 1.0f : 0.0f;
        }
    }
}

void ref_embed(ops_device *device, const ops_embed_args *a)
{
    pool_run(ref_of(device)->pool, (size_t)a->n_rows, embed_rows, (void *)a);
}

/* --- Hyper-connections ------------------------------------------------------------------------------------------------ */

static void normalise_rows(float *c, int32_t hc, float eps)
{
    for (int32_t j = 0; j < hc; j++) {
        float sum = 0.0f;
        for (int32_t k = 0; k < hc; k++) {
            sum += c[j * hc + k];
        }
        for (int32_t k = 0; k < hc; k++) {
            c[j * hc + k] /= sum + eps;
        }
    }
}

static void normalise_columns(float *c, int32_t hc, float eps)
{
    for (int32_t k = 0; k < hc; k++) {
        float sum = 0.0f;
        for (int32_t j = 0; j < hc; j++) {
            sum += c[j * hc + k];
        }
        for (int32_t j = 0; j < hc; j++) {
            c[j * hc + k] /= sum + eps;
        }
    }
}

static void softmax_row(float *c, int32_t n, float eps)
{
    float top = c[0];
    for (int32_t k = 1; k < n; k++) {
        top = c[k] > top ? c[k] : top;
    }
    float sum = 0.0f;
    for (int32_t k = 0; k < n; k++) {
        c[k] = expf(c[k] - top);
        sum += c[k];
    }
    for (int32_t k = 0; k < n; k++) {
        c[k] = c[k] / sum + eps;
    }
}

void ref_mhc_coefficients(const float *m, const float *base, const float *scale, int32_t hc, int32_t iters, float eps, float *pre,
                          float *post, float *comb)
{
    for (int32_t k = 0; k < hc; k++) {
        pre[k] = ref_sigmoid(m[k] * scale[0] + base[k]) + eps;
        post[k] = 2.0f * ref_sigmoid(m[hc + k] * scale[1] + base[hc + k]);
    }
    for (int32_t i = 0; i < hc * hc; i++) {
        comb[i] = m[2 * hc + i] * scale[2] + base[2 * hc + i];
    }
    for (int32_t j = 0; j < hc; j++) {
        softmax_row(comb + j * hc, hc, eps);
    }
    normalise_columns(comb, hc, eps);
    for (int32_t i = 1; i < iters; i++) {
        normalise_rows(comb, hc, eps);
        normalise_columns(comb, hc, eps);
    }
}

OPS_CLONES void ref_collapse(const float *x, const float *pre, size_t hc, size_t n, float *u)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16 sum = pre[0] * *(const v16u *)(x + i);
        for (size_t k = 1; k < hc; k++) {
            sum += pre[k] * *(const v16u *)(x + k * n + i);
        }
        uint16_t rounded[16];
        v16_to_bf16(&sum, rounded);
        v16_from_bf16(rounded, &sum);
        *(v16u *)(u + i) = sum;
    }
    for (; i < n; i++) {
        float sum = pre[0] * x[i];
        for (size_t k = 1; k < hc; k++) {
            sum += pre[k] * x[k * n + i];
        }
        u[i] = bf16_round(sum);
    }
}

typedef struct seam_run {
    const ops_seam_open_args *a;
    const float *wide; /* [n_rows, hc * hidden] X in fp32 */
    const float *mix;  /* [n_rows, (2 + hc) * hc] fn . v; NULL = no coefficients */
    float *row;        /* [threads, hidden] */
} seam_run;

OPS_CLONES static void seam_rows(void *arg, size_t begin, size_t end, int thread)
{
    const seam_run *run = arg;
    const ops_seam_open_args *a = run->a;
    size_t d = (size_t)a->hidden;
    size_t hc = (size_t)a->hc;
    size_t n_mix = (2 + hc) * hc;
    float *u = run->row + (size_t)thread * d;
    for (size_t t = begin; t < end; t++) {
        const float *x = run->wide + t * hc * d;
        if (run->mix != NULL) {
            float m[(2 + OPS_MAX_HC) * OPS_MAX_HC];
            float r = 1.0f / sqrtf(ref_sum_squares(x, hc * d) / (float)(hc * d) + a->norm_eps);
            for (size_t i = 0; i < n_mix; i++) {
                m[i] = run->mix[t * n_mix + i] * r;
            }
            ref_mhc_coefficients(m, a->base, a->scale, a->hc, a->iters, a->hc_eps, a->pre + t * hc, a->post + t * hc,
                                 a->comb + t * hc * hc);
        }
        ref_collapse(x, a->pre_in + t * hc, hc, d, u);
        if (a->norm != NULL) {
            ref_rmsnorm(u, a->norm, d, a->norm_eps, u);
        }
        fmt_f32_to_bf16(u, d, a->u + t * d);
    }
}

void ref_seam_open(ops_device *device, const ops_seam_open_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    seam_run run = {.a = a};
    float *wide = ref_widen(dev, a->x, a->n_rows, (size_t)a->hc * (size_t)a->hidden, false);
    run.wide = wide;
    run.row = ref_scratch(dev, (size_t)dev->n_threads * (size_t)a->hidden, sizeof(float));
    if (wide == NULL || run.row == NULL) {
        return;
    }
    if (a->fn != NULL) {
        float *mix = ref_scratch(dev, (size_t)a->n_rows * (size_t)a->fn->n_out, sizeof(float));
        if (mix == NULL) {
            return;
        }
        ref_linear job = ref_linear_to_f32(a->fn, wide, a->n_rows, mix);
        dev->linear(dev, &job, 1);
        run.mix = mix;
    }
    pool_run(dev->pool, (size_t)a->n_rows, seam_rows, &run);
}

/* Sixteen channels from i on of one row. */
static inline __attribute__((always_inline)) void close_channels(const float *post, const float *comb, size_t hc, size_t d,
                                                                 const bf16 *y16, bf16 *x)
{
    v16 old[OPS_MAX_HC];
    v16 y;
    v16_from_bf16(y16, &y);
    for (size_t j = 0; j < hc; j++) {
        v16_from_bf16(x + j * d, &old[j]);
    }
    for (size_t k = 0; k < hc; k++) {
        v16 mixed = comb[k] * old[0];
        for (size_t j = 1; j < hc; j++) {
            mixed += comb[j * hc + k] * old[j];
        }
        mixed = post[k] * y + mixed;
        v16_to_bf16(&mixed, x + k * d);
    }
}

OPS_CLONES static void close_rows(void *arg, size_t begin, size_t end, int thread)
{
    const ops_seam_close_args *a = arg;
    size_t d = (size_t)a->hidden; /* a multiple of 32 */
    size_t hc = (size_t)a->hc;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const float *post = a->post + t * hc;
        const float *comb = a->comb + t * hc * hc;
        for (size_t i = 0; i < d; i += 16) {
            bf16 *x = a->x + t * hc * d + i;
            if (hc == 4) {
                close_channels(post, comb, 4, d, a->y + t * d + i, x);
            } else {
                close_channels(post, comb, hc, d, a->y + t * d + i, x);
            }
        }
    }
}

void ref_seam_close(ops_device *device, const ops_seam_close_args *a)
{
    pool_run(ref_of(device)->pool, (size_t)a->n_rows, close_rows, (void *)a);
}

/* --- Rows and head ---------------------------------------------------------------------------------------------------- */

void ref_keep_rows(ops_device *device, const ops_keep_rows_args *a)
{
    (void)device;
    for (int32_t b = 0; b < a->n_buffers; b++) {
        uint8_t *p = a->buffers[b];
        size_t bytes = a->row_bytes[b];
        for (int32_t i = 0; p != NULL && i < a->n_moves; i++) {
            const ops_move *m = &a->moves[i];
            memmove(p + (size_t)m->dst * bytes, p + (size_t)m->src * bytes, (size_t)m->n_rows * bytes);
        }
    }
}

void ref_head(ops_device *device, const ops_head_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    float *h = ref_widen(dev, a->h, a->n_rows, (size_t)a->hidden, false);
    if (h != NULL) {
        ref_linear job = ref_linear_to_f32(a->head, h, a->n_rows, a->logits);
        dev->linear(dev, &job, 1);
    }
}
