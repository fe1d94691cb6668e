/* ref_moe.c - router and experts (model.md 3.9, 3.10). */
#include "ops/ops_exp.h"
#include "ops/ref.h"
#include "ops/vector.h"

#include <stdlib.h>

/* --- Router ----------------------------------------------------------------------------------------------------------- */

typedef struct router_run {
    const ops_router_args *a;
    const float *z; /* [n_rows, n_experts] logits */
    float *score;   /* per thread [2, n_experts]: unbiased, biased */
    uint64_t *keys; /* per thread [n_experts] */
} router_run;

static float softplus(float z) { return z > 20.0f ? z : log1pf(expf(z)); }

static void router_rows(void *arg, size_t begin, size_t end, int thread)
{
    const router_run *run = arg;
    const ops_router_args *a = run->a;
    size_t n = (size_t)a->n_experts;
    size_t k = (size_t)a->n_active;
    float *score = run->score + (size_t)thread * 2 * n;
    float *biased = score + n;
    for (size_t t = begin; t < end; t++) {
        const float *bias = a->is_text[t] ? a->bias : a->bias_vl;
        for (size_t e = 0; e < n; e++) {
            score[e] = sqrtf(softplus(run->z[t * n + e]));
            biased[e] = score[e] + bias[e];
        }
        int32_t *ids = a->ids + t * k;
        float *w = a->weights + t * k;
        ref_top_k(biased, a->n_experts, a->n_active, run->keys + (size_t)thread * n, ids);
        float sum = 0.0f;
        for (size_t i = 0; i < k; i++) {
            sum += score[ids[i]];
        }
        for (size_t i = 0; i < k; i++) {
            /* With one active expert the official code skips the normalisation. */
            w[i] = (k == 1 ? score[ids[i]] : score[ids[i]] / (sum + 1e-20f)) * a->routed_scale;
        }
    }
}

void ref_router(ops_device *device, const ops_router_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    size_t n = (size_t)a->n_experts;
    const float *u = ref_widen(dev, a->u, a->n_rows, (size_t)a->hidden, false);
    float *z = ref_scratch(dev, (size_t)a->n_rows * n, sizeof(float));
    router_run run = {.a = a, .z = z};
    run.score = ref_scratch(dev, (size_t)dev->n_threads * 2 * n, sizeof(float));
    run.keys = ref_scratch(dev, (size_t)dev->n_threads * n, sizeof(uint64_t));
    if (u == NULL || z == NULL || run.score == NULL || run.keys == NULL) {
        return;
    }
    ref_linear job = ref_linear_to_f32(a->gate, u, a->n_rows, z);
    dev->linear(dev, &job, 1);
    pool_run(dev->pool, (size_t)a->n_rows, router_rows, &run);
}

/* --- Experts ---------------------------------------------------------------------------------------------------------- */

/* Work is a list of assignments (row, slot) sorted by expert; the shared expert takes every row as one more slot with weight 1. */
typedef struct experts_run {
    const ops_experts_args *a;
    size_t n_assign;      /* n_rows * (n_active + 1) */
    const int32_t *row;   /* [n_assign] batch row */
    const float *weight;  /* [n_assign] */
    const int32_t *place; /* [n_rows, n_active + 1] assignment of each (row, slot); the last slot is the shared expert */
    const float *u;       /* [n_rows, hidden] Q8 values */
    float *x;             /* [n_assign, hidden] gathered */
    float *gate;          /* [n_assign, inter] then h */
    float *up;            /* [n_assign, inter] */
    bf16 *out;            /* [n_assign, hidden] */
    const size_t *start;  /* [n_experts + 2] assignments before those of each expert; the last expert is the shared one */
    const ops_expert *experts; /* [n_experts]; with a feed only those that are there */
    ref_linear *jobs;     /* [2 * (n_experts + 1)] */
} experts_run;

/* Some of the experts, ids in ascending order: what is done at once. */
typedef struct experts_part {
    const experts_run *run;
    const int32_t *ids;
    size_t *first; /* [n + 1] assignments of the part before each */
    size_t n;
} experts_part;

static void gather_rows(void *arg, size_t begin, size_t end, int thread)
{
    const experts_run *run = arg;
    size_t d = (size_t)run->a->hidden;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        memcpy(run->x + i * d, run->u + (size_t)run->row[i] * d, d * sizeof(float));
    }
}

/* h = w * silu(gate) * up, rounded to bf16. */
OPS_CLONES static void activate(float *gate, const float *up, size_t n, float limit, float w)
{
    enum { PART = 64 };
    for (size_t j0 = 0; j0 < n; j0 += PART) {
        const size_t m = n - j0 < PART ? n - j0 : PART;
        float g[PART];
        float e[PART];
        for (size_t j = 0; j < m; j++) {
            const float x = bf16_round(gate[j0 + j]);
            g[j] = x > limit ? limit : x;
            e[j] = -g[j];
        }
        ops_exp(e, m, e);
        for (size_t j = 0; j < m; j++) {
            float v = bf16_round(up[j0 + j]);
            v = v < -limit ? -limit : v > limit ? limit : v;
            const float h = g[j] / (1.0f + e[j]) * v;
            gate[j0 + j] = bf16_round(w * h);
        }
    }
}

static void activate_rows(void *arg, size_t begin, size_t end, int thread)
{
    const experts_part *part = arg;
    const experts_run *run = part->run;
    size_t n = (size_t)run->a->inter;
    size_t x = 0;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        while (i >= part->first[x + 1]) {
            x++;
        }
        const size_t at = run->start[part->ids[x]] + i - part->first[x];
        float *gate = run->gate + at * n;
        activate(gate, run->up + at * n, n, run->a->swiglu_limit, run->weight[at]);
        fmt_q8_round(gate, n); /* as the input of w2 */
    }
}

OPS_CLONES static void combine_rows(void *arg, size_t begin, size_t end, int thread)
{
    const experts_run *run = arg;
    size_t d = (size_t)run->a->hidden; /* a multiple of 32 */
    size_t slots = (size_t)run->a->n_active + 1;
    (void)thread;
    for (size_t t = begin; t < end; t++) {
        const int32_t *place = run->place + t * slots;
        for (size_t i = 0; i < d; i += 16) {
            v16 sum = {0};
            for (size_t s = 0; s < slots; s++) {
                v16 x;
                v16_from_bf16(run->out + (size_t)place[s] * d + i, &x);
                sum += x;
            }
            v16_to_bf16(&sum, run->a->y + t * d + i);
        }
    }
}

/* Counting sort of the assignments by expert. start[e] .. start[e + 1] are the assignments of expert e; e == n_experts is shared. */
static void sort_assignments(const ops_experts_args *a, size_t *start, int32_t *row, float *weight, int32_t *place)
{
    size_t n = (size_t)a->n_experts;
    size_t k = (size_t)a->n_active;
    size_t rows = (size_t)a->n_rows;
    memset(start, 0, (n + 2) * sizeof *start);
    for (size_t i = 0; i < rows * k; i++) {
        start[a->ids[i] + 1]++;
    }
    start[n + 1] = rows;
    for (size_t e = 0; e <= n; e++) {
        start[e + 1] += start[e];
    }
    for (size_t t = 0; t < rows; t++) {
        for (size_t s = 0; s <= k; s++) {
            size_t e = s < k ? (size_t)a->ids[t * k + s] : n;
            size_t at = start[e]++;
            row[at] = (int32_t)t;
            weight[at] = s < k ? a->weights[t * k + s] : 1.0f;
            place[t * (k + 1) + s] = (int32_t)at;
        }
    }
    memmove(start + 1, start, (n + 1) * sizeof *start);
    start[0] = 0;
}

/* Gate and up branch, or down, of the part's experts. */
static void expert_products(ref_device *dev, const experts_part *part, bool down)
{
    const experts_run *run = part->run;
    const ops_experts_args *a = run->a;
    size_t d = (size_t)a->hidden;
    size_t m = (size_t)a->inter;
    size_t n = 0;
    for (size_t i = 0; i < part->n; i++) {
        const int32_t e = part->ids[i];
        const ops_expert *x = e < a->n_experts ? &run->experts[e] : &a->shared;
        size_t at = run->start[e];
        int32_t rows = (int32_t)(run->start[e + 1] - at);
        if (down) {
            run->jobs[n++] = ref_linear_to_bf16(x->w2, run->gate + at * m, rows, run->out + at * d);
        } else {
            run->jobs[n++] = ref_linear_to_f32(x->w1, run->x + at * d, rows, run->gate + at * m);
            run->jobs[n++] = ref_linear_to_f32(x->w3, run->x + at * d, rows, run->up + at * m);
        }
    }
    dev->linear(dev, run->jobs, n);
}

static void run_part(ref_device *dev, experts_part *part)
{
    const size_t *start = part->run->start;
    part->first[0] = 0;
    for (size_t i = 0; i < part->n; i++) {
        part->first[i + 1] = part->first[i] + start[part->ids[i] + 1] - start[part->ids[i]];
    }
    expert_products(dev, part, false);
    pool_run(dev->pool, part->first[part->n], activate_rows, part);
    expert_products(dev, part, true);
}

/* The experts as they arrive, the shared one while they are awaited. */
static bool run_fed(ref_device *dev, experts_run *run, experts_part *part, int32_t *ids)
{
    const ops_experts_args *a = run->a;
    ops_expert *experts = ref_scratch(dev, (size_t)a->n_experts, sizeof *experts);
    const int32_t shared = a->n_experts;
    int32_t left = (int32_t)part->n - 1;
    if (experts == NULL) {
        return false;
    }
    run->experts = experts;
    ref_scratch_keep(dev);
    a->feed->begin(a->feed, ids, left);
    part->ids = &shared;
    part->n = 1;
    run_part(dev, part);
    part->ids = ids;
    while (left > 0) {
        int32_t n = 0;
        if (a->feed->take(a->feed, ids, &n, experts, &dev->error) != DI_OK) {
            return false;
        }
        part->n = (size_t)n;
        ref_scratch_drop(dev);
        run_part(dev, part);
        a->feed->done(a->feed);
        left -= n;
    }
    return dev->error.code == DI_OK;
}

/* Experts that have rows, the shared one last. */
static size_t list_experts(const experts_run *run, int32_t *ids)
{
    size_t n = 0;
    for (int32_t e = 0; e <= run->a->n_experts; e++) {
        if (run->start[e + 1] > run->start[e]) {
            ids[n++] = e;
        }
    }
    return n;
}

void ref_experts(ops_device *device, const ops_experts_args *a)
{
    ref_device *dev = ref_of(device);
    if (!ref_stage_begin(dev)) {
        return;
    }
    size_t n = (size_t)a->n_rows * (size_t)(a->n_active + 1);
    size_t *start = ref_scratch(dev, (size_t)a->n_experts + 2, sizeof *start);
    int32_t *row = ref_scratch(dev, n, sizeof *row);
    float *weight = ref_scratch(dev, n, sizeof *weight);
    int32_t *place = ref_scratch(dev, n, sizeof *place);
    int32_t *ids = ref_scratch(dev, (size_t)a->n_experts + 1, sizeof *ids);
    experts_run run = {
        .a = a, .n_assign = n, .row = row, .weight = weight, .place = place, .start = start, .experts = a->experts};
    experts_part part = {.run = &run, .ids = ids};
    part.first = ref_scratch(dev, (size_t)a->n_experts + 2, sizeof *part.first);
    run.jobs = ref_scratch(dev, 2 * ((size_t)a->n_experts + 1), sizeof *run.jobs);
    run.u = ref_widen(dev, a->u, a->n_rows, (size_t)a->hidden, true);
    run.x = ref_scratch(dev, n * (size_t)a->hidden, sizeof(float));
    run.gate = ref_scratch(dev, n * (size_t)a->inter, sizeof(float));
    run.up = ref_scratch(dev, n * (size_t)a->inter, sizeof(float));
    run.out = ref_scratch(dev, n * (size_t)a->hidden, sizeof(bf16));
    if (start == NULL || row == NULL || weight == NULL || place == NULL || ids == NULL || part.first == NULL ||
        run.jobs == NULL || run.u == NULL || run.x == NULL || run.gate == NULL || run.up == NULL || run.out == NULL) {
        return;
    }
    sort_assignments(a, start, row, weight, place);
    part.n = list_experts(&run, ids);
    pool_run(dev->pool, n, gather_rows, &run);
    if (a->feed == NULL) {
        run_part(dev, &part);
    } else if (!run_fed(dev, &run, &part, ids)) {
        return;
    }
    pool_run(dev->pool, (size_t)a->n_rows, combine_rows, &run);
}
