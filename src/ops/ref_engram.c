/* ref_engram.c - n-gram memory: look-up, projection, gate, write-back (model.md 3.5.4). */
#include "ops/ref.h"
#include "ops/vector.h"

typedef struct engram_run {
    const ops_engram_args *a;
    float *z;        /* [n_rows, n_columns * head_dim] */
    const float *kv; /* [n_rows, (hc + 1) * hidden] */
    float *row;      /* per thread [2, hidden] */
} engram_run;

static void lookup_rows(void *arg, size_t begin, size_t end, int thread)
{
    const engram_run *run = arg;
    const ops_engram_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    size_t columns = (size_t)a->n_columns;
    const float *value = fmt_e4m3_table();
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        float *z = run->z + t * columns * d;
        for (size_t c = 0; c < columns; c++) {
            size_t r = (size_t)a->rows[t * columns + c];
            const uint8_t *code = a->table->data + r * d;
            const uint8_t *scale = a->table->scale + r * (d / 32);
            for (size_t i = 0; i < d; i++) {
                z[c * d + i] = value[code[i]] * e8m0_to_f32(scale[i / 32]);
            }
        }
        fmt_q8_round(z, columns * d);
    }
}

/* sum_i (x_i * w_i) * k_i in sixteen interleaved partial sums. */
static float dot3(const float *x, const float *q, const float *k, const float *key, size_t n)
{
    float sum[16] = {0};
    for (size_t i = 0; i < n; i++) {
        sum[i % 16] += x[i] * (q[i] * k[i]) * key[i];
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; lane++) {
            sum[lane] += sum[lane + half];
        }
    }
    return sum[0];
}

static float gate_of(float dot)
{
    float magnitude = fabsf(dot);
    return ref_sigmoid(copysignf(sqrtf(magnitude > 1e-6f ? magnitude : 1e-6f), dot));
}

static void write_rows(void *arg, size_t begin, size_t end, int thread)
{
    const engram_run *run = arg;
    const ops_engram_args *a = run->a;
    size_t d = (size_t)a->hidden;
    size_t hc = (size_t)a->hc;
    float root = (float)(1.0 / sqrt((double)d));
    float *x = run->row + (size_t)thread * d;
    for (size_t t = begin; t < end; t++) {
        const float *kv = run->kv + t * (hc + 1) * d;
        const float *value = kv + hc * d;
        for (size_t k = 0; k < hc; k++) {
            bf16 *stream = a->x + (t * hc + k) * d;
            const float *key = kv + k * d;
            fmt_bf16_to_f32(stream, d, x);
            float rs = 1.0f / sqrtf(ref_sum_squares(x, d) / (float)d + a->norm_eps) *
                       (1.0f / sqrtf(ref_sum_squares(key, d) / (float)d + a->norm_eps));
            float dot = dot3(x, a->q_weight + k * d, a->k_weight + k * d, key, d) * rs * root;
            float gate = a->is_text[t] ? gate_of(dot) : 0.0f;
            for (size_t i = 0; i < d; i++) {
                stream[i] = bf16_from_f32(x[i] + gate * value[i]);
            }
        }
    }
}

static void round_rows(void *arg, size_t begin, size_t end, int thread)
{
    const engram_run *run = arg;
    size_t n = (size_t)(run->a->hc + 1) * (size_t)run->a->hidden;
    float *kv = (float *)run->kv;
    (void)thread;
    for (size_t i = begin * n; i < end * n; i++) {
        kv[i] = bf16_round(kv[i]);
    }
}

void ref_engram(ops_device *device, const ops_engram_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    size_t rows = (size_t)a->n_rows;
    engram_run run = {.a = a};
    run.z = ref_scratch(dev, rows * (size_t)a->n_columns * (size_t)a->head_dim, sizeof(float));
    float *kv = ref_scratch(dev, rows * (size_t)(a->hc + 1) * (size_t)a->hidden, sizeof(float));
    run.row = ref_scratch(dev, (size_t)dev->n_threads * (size_t)a->hidden, sizeof(float));
    run.kv = kv;
    if (run.z == NULL || kv == NULL || run.row == NULL) {
        return;
    }
    pool_run(dev->pool, rows, lookup_rows, &run);
    ref_linear job = ref_linear_to_f32(a->wkv, run.z, a->n_rows, kv);
    dev->linear(dev, &job, 1);
    pool_run(dev->pool, rows, round_rows, &run);
    pool_run(dev->pool, rows, write_rows, &run);
}
