/* ref_project.c - the linear parts of attention: low-rank query and window KV, query up-projection, output projection, and the
 * compressor that makes latents, index keys and compressed KV (model.md 3.7, 3.7.1, 3.8). */
#include "ops/ref.h"
#include "ops/rope.h"

/* Rotates the last rope_dim of n channels at position pos and rounds them to bf16; the others are rounded already. */
static void rotate_tail(float *x, size_t n, const float *frequencies, size_t rope_dim, int64_t pos)
{
    float c[OPS_MAX_ROPE_DIM / 2];
    float s[OPS_MAX_ROPE_DIM / 2];
    float *tail = x + n - rope_dim;
    rope_row(frequencies, rope_dim / 2, pos, c, s);
    rope_apply(tail, rope_dim / 2, c, s, 0);
    for (size_t i = 0; i < rope_dim; i++) {
        tail[i] = bf16_round(tail[i]);
    }
}

static void round_row(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = bf16_round(x[i]);
    }
}

/* --- attn_in ---------------------------------------------------------------------------------------------------------- */

typedef struct attn_in_run {
    const ops_attn_in_args *a;
    float *qr; /* [n_rows, q_lora] GEMM results, already bf16 values */
    float *kv; /* [n_rows, head_dim] */
} attn_in_run;

static void attn_in_rows(void *arg, size_t begin, size_t end, int thread)
{
    const attn_in_run *run = arg;
    const ops_attn_in_args *a = run->a;
    size_t q = (size_t)a->q_lora;
    size_t d = (size_t)a->head_dim;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        if (a->wq_a != NULL) {
            float *qr = run->qr + t * q;
            round_row(qr, q);
            ref_rmsnorm(qr, a->q_norm, q, a->norm_eps, qr);
            fmt_f32_to_bf16(qr, q, a->qr + t * q);
        }
        if (a->wkv != NULL) {
            float *kv = run->kv + t * d;
            round_row(kv, d);
            ref_rmsnorm(kv, a->kv_norm, d, a->norm_eps, kv);
            round_row(kv, d);
            rotate_tail(kv, d, a->rope, (size_t)a->rope_dim, a->pos[t]);
            fmt_q8_pack(kv, d, a->kv + t * fmt_q8_bytes(d));
        }
    }
}

void ref_attn_in(ops_device *device, const ops_attn_in_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    attn_in_run run = {.a = a};
    const float *u = ref_widen(dev, a->u, a->n_rows, (size_t)a->hidden, true);
    run.qr = ref_scratch(dev, (size_t)a->n_rows * (size_t)a->q_lora, sizeof(float));
    run.kv = ref_scratch(dev, (size_t)a->n_rows * (size_t)a->head_dim, sizeof(float));
    if (u == NULL || run.qr == NULL || run.kv == NULL) {
        return;
    }
    ref_linear jobs[2];
    size_t n_jobs = 0;
    if (a->wq_a != NULL) {
        jobs[n_jobs++] = ref_linear_to_f32(a->wq_a, u, a->n_rows, run.qr);
    }
    if (a->wkv != NULL) {
        jobs[n_jobs++] = ref_linear_to_f32(a->wkv, u, a->n_rows, run.kv);
    }
    dev->linear(dev, jobs, n_jobs);
    pool_run(dev->pool, (size_t)a->n_rows, attn_in_rows, &run);
}

/* --- query ------------------------------------------------------------------------------------------------------------ */

static void query_rows(void *arg, size_t begin, size_t end, int thread)
{
    const ops_query_args *a = arg;
    size_t d = (size_t)a->head_dim;
    size_t r = (size_t)a->rope_dim;
    float c[OPS_MAX_ROPE_DIM / 2];
    float s[OPS_MAX_ROPE_DIM / 2];
    float tail[OPS_MAX_ROPE_DIM];
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        rope_row(a->rope, r / 2, a->pos[t], c, s);
        for (size_t h = 0; h < (size_t)a->n_heads; h++) {
            bf16 *q = a->q + (t * (size_t)a->n_heads + h) * d + d - r;
            fmt_bf16_to_f32(q, r, tail);
            rope_apply(tail, r / 2, c, s, 0);
            fmt_f32_to_bf16(tail, r, q);
        }
    }
}

void ref_query(ops_device *device, const ops_query_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    const float *qr = ref_widen(dev, a->qr, a->n_rows, (size_t)a->q_lora, true);
    if (qr == NULL) {
        return;
    }
    ref_linear job = ref_linear_to_bf16(a->wq_b, qr, a->n_rows, a->q);
    dev->linear(dev, &job, 1);
    pool_run(dev->pool, (size_t)a->n_rows, query_rows, (void *)a);
}

/* --- attn_out --------------------------------------------------------------------------------------------------------- */

void ref_attn_out(ops_device *device, const ops_attn_out_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    size_t low = (size_t)a->n_groups * (size_t)a->o_lora;
    size_t wide = (size_t)a->n_groups * (size_t)a->group_in;
    const float *o = ref_widen(dev, a->o, a->n_rows, wide, false);
    ref_linear *jobs = ref_scratch(dev, (size_t)a->n_groups, sizeof *jobs);
    if (o == NULL || jobs == NULL) {
        return;
    }
    for (int32_t g = 0; g < a->n_groups; g++) {
        jobs[g] = (ref_linear){.w = a->wo_a,
                               .out0 = (int64_t)g * a->o_lora,
                               .n_out = a->o_lora,
                               .x = o + (size_t)g * (size_t)a->group_in,
                               .ldx = wide,
                               .n_rows = a->n_rows,
                               .y16 = a->low + (size_t)g * (size_t)a->o_lora,
                               .ldy = low};
    }
    dev->linear(dev, jobs, (size_t)a->n_groups);
    const float *mid = ref_widen(dev, a->low, a->n_rows, low, true);
    if (mid != NULL) {
        ref_linear job = ref_linear_to_bf16(a->wo_b, mid, a->n_rows, a->y);
        dev->linear(dev, &job, 1);
    }
}

/* --- compress --------------------------------------------------------------------------------------------------------- */

typedef struct latent {
    const ops_seq *seq;
    int64_t entry;    /* index in the cache */
    int32_t last_row; /* batch row that completes the group */
} latent;

typedef struct compress_run {
    const ops_compress_args *a;
    const float *kv;   /* [n_rows, head_dim] GEMM with wkv, fp32 */
    const float *gate; /* [n_rows, head_dim] ratio 2 */
    latent *latents;
    float *lat;  /* [n_latents, head_dim] normalised, bf16 values, before rope */
    float *keys; /* [n_latents, index_dim] GEMM with wk */
} compress_run;

/* Where the first token of a group is kept: pos is its position. */
static float *open_group(const ops_compress_args *a, const ops_seq *seq, int64_t pos)
{
    const size_t group = (size_t)(pos / 2 % OPS_OPEN_GROUPS) * 2 * (size_t)a->head_dim;
    return (float *)(void *)(seq->state + a->open_offset) + group;
}

/* Softmax over the two tokens of a group, channel by channel. */
static void pool_pair(const float *a0, const float *s0, const float *a1, const float *s1, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        float top = s0[i] > s1[i] ? s0[i] : s1[i];
        float e0 = expf(s0[i] - top);
        float e1 = expf(s1[i] - top);
        float sum = e0 + e1;
        out[i] = e0 / sum * a0[i] + e1 / sum * a1[i];
    }
}

static void latent_rows(void *arg, size_t begin, size_t end, int thread)
{
    const compress_run *run = arg;
    const ops_compress_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    (void)thread;
    for (size_t g = begin; g < end; g++) {
        const latent *l = &run->latents[g];
        float *out = run->lat + g * d;
        size_t row = (size_t)l->last_row * d;
        if (a->ratio == 1) {
            memcpy(out, run->kv + row, d * sizeof *out);
        } else {
            bool from_state = l->last_row == l->seq->row0;
            const float *open = open_group(a, l->seq, l->entry * 2);
            const float *a0 = from_state ? open : run->kv + row - d;
            const float *s0 = from_state ? open + d : run->gate + row - d;
            pool_pair(a0, s0, run->kv + row, run->gate + row, d, out);
        }
        round_row(out, d);
        ref_rmsnorm(out, a->norm, d, a->norm_eps, out);
        round_row(out, d);
        if (a->latents != NULL) {
            fmt_f32_to_bf16(out, d, a->latents + g * d);
        }
    }
}

static void store_rows(void *arg, size_t begin, size_t end, int thread)
{
    const compress_run *run = arg;
    const ops_compress_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    size_t k = (size_t)a->index_dim;
    size_t r = (size_t)a->rope_dim;
    (void)thread;
    for (size_t g = begin; g < end; g++) {
        const latent *l = &run->latents[g];
        int64_t pos = l->entry * a->ratio;
        float *key = run->keys + g * k;
        round_row(key, k);
        ref_rmsnorm(key, a->index_k_norm, k, a->norm_eps, key);
        round_row(key, k);
        rotate_tail(key, k, a->rope, r, pos);
        fmt_q4e_pack(key, k, ref_paged_row(l->seq, &a->index_keys, l->entry));
        rotate_tail(run->lat + g * d, d, a->rope, r, pos);
        fmt_q4n_pack(run->lat + g * d, d, ref_paged_row(l->seq, &a->compressed, l->entry));
    }
}

/* Lists the groups that the batch completes. Returns how many. */
static size_t list_latents(const ops_compress_args *a, latent *out)
{
    size_t n = 0;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        const ops_seq *seq = &a->seqs[i];
        for (int32_t t = 0; t < seq->n_rows; t++) {
            int64_t pos = seq->pos0 + t;
            if ((pos + 1) % a->ratio == 0) {
                out[n++] = (latent){.seq = seq, .entry = pos / a->ratio, .last_row = seq->row0 + t};
            }
        }
    }
    return n;
}

/* First tokens of the last groups, complete ones too: behind a rewind one of them may be open again. */
static void keep_open_groups(const compress_run *run)
{
    const ops_compress_args *a = run->a;
    size_t d = (size_t)a->head_dim;
    for (int32_t i = 0; i < a->n_seqs && a->ratio == 2; i++) {
        const ops_seq *seq = &a->seqs[i];
        for (int32_t t = seq->n_rows > OPS_REWIND ? seq->n_rows - OPS_REWIND : 0; t < seq->n_rows; t++) {
            const int64_t pos = seq->pos0 + t;
            if (pos % 2 == 0) {
                size_t row = (size_t)(seq->row0 + t) * d;
                float *open = open_group(a, seq, pos);
                memcpy(open, run->kv + row, d * sizeof(float));
                memcpy(open + d, run->gate + row, d * sizeof(float));
            }
        }
    }
}

void ref_compress(ops_device *device, const ops_compress_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    size_t d = (size_t)a->head_dim;
    size_t rows = (size_t)a->n_rows;
    const float *u = ref_widen(dev, a->u, a->n_rows, (size_t)a->hidden, false);
    float *kv = ref_scratch(dev, rows * d, sizeof(float));
    float *gate = ref_scratch(dev, rows * d, sizeof(float));
    compress_run run = {.a = a, .kv = kv, .gate = gate};
    run.latents = ref_scratch(dev, rows, sizeof(latent));
    run.lat = ref_scratch(dev, rows * d, sizeof(float));
    run.keys = ref_scratch(dev, rows * (size_t)a->index_dim, sizeof(float));
    if (u == NULL || kv == NULL || gate == NULL || run.latents == NULL || run.lat == NULL || run.keys == NULL) {
        return;
    }
    ref_linear jobs[2] = {ref_linear_to_f32(a->wkv, u, a->n_rows, kv)};
    if (a->ratio == 2) {
        jobs[1] = ref_linear_to_f32(a->wgate, u, a->n_rows, gate);
    }
    dev->linear(dev, jobs, (size_t)a->ratio);
    size_t n = list_latents(a, run.latents);
    pool_run(dev->pool, n, latent_rows, &run);
    ref_linear key_job = ref_linear_to_f32(a->index_wk, run.lat, (int32_t)n, run.keys);
    dev->linear(dev, &key_job, 1);
    pool_run(dev->pool, n, store_rows, &run);
    keep_open_groups(&run);
}
