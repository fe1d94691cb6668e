/* cpu_linear.c - products of packed matrices: which thread does which panels, and where results go.
 *
 * The panels of all jobs of a stage stand in one row, cut into units of up to four; each thread has a contiguous stretch
 * of about equal cost, and one that is done takes units from the stretches of others: a processor that is slower, or
 * serves somebody else for a moment, holds nobody up. An output depends on its own row alone, so neither the cut nor
 * who computes it changes a bit. */
#include "core/arith.h"
#include "cpu/cpu_fixed.h"
#include "cpu/cpu_int.h"
#include "ops/vector.h"

#include <stdatomic.h>

#define ROWS 96 /* done at once: their results stay in the first cache, their inputs in the second */

/* A thread's stretch of units, on a cache line of its own. */
typedef struct stretch {
    _Alignas(64) _Atomic size_t next;
    size_t end;
} stretch;

typedef struct linear_run {
    const cpu_device *dev;
    const ref_linear *jobs;
    const size_t *first; /* [n_jobs + 1] units before each job */
    const double *cost;  /* [n_jobs + 1] cost before each job */
    size_t n_jobs;
    size_t per_unit; /* panels */
    stretch *stretches; /* [threads] */
    cpu_rows *rows;  /* [n_jobs] x == NULL for the reference path */
    float *tiles;    /* [threads] decoded tile of jobs that take the reference path */
    size_t tile_floats;
} linear_run;

/* A job's matrix is served from panels when its first output starts one; otherwise by the reference. */
static bool is_packed(const ref_linear *job) { return job->w->packed != NULL && job->out0 % CPU_PANEL == 0; }

static size_t panels_of_job(const ref_linear *job) { return ((size_t)job->n_out + CPU_PANEL - 1) / CPU_PANEL; }

/* The reference's tiles are two panels. */
static size_t units_of(const ref_linear *job, size_t per_unit)
{
    if (job->n_rows <= 0) {
        return 0;
    }
    return is_packed(job) ? (panels_of_job(job) + per_unit - 1) / per_unit
                          : ((size_t)job->n_out + REF_TILE - 1) / REF_TILE;
}

OPS_CLONES static void round_values(const float *x, size_t n, bf16 *out)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const v16 v = *(const v16u *)(x + i);
        v16_to_bf16(&v, out + i);
    }
    fmt_f32_to_bf16(x + i, n - i, out + i);
}

static void store(const ref_linear *job, size_t o, size_t n, size_t r0, size_t m, const float *c, size_t ldc)
{
    for (size_t r = 0; r < m; r++) {
        const size_t at = (r0 + r) * job->ldy + o;
        if (job->y16 != NULL) {
            round_values(c + r * ldc, n, job->y16 + at);
        } else {
            memcpy(job->y32 + at, c + r * ldc, n * sizeof *c);
        }
    }
}

static void run_unit(const linear_run *run, size_t j, size_t unit, float *tile)
{
    const ref_linear *job = &run->jobs[j];
    if (run->rows[j].x == NULL) {
        ref_linear_tile(job, unit, tile, NULL);
        return;
    }
    enum { LDC = CPU_PANELS_MAX * CPU_PANEL };
    _Alignas(64) float c[ROWS * LDC];
    const cpu_packed *packed = job->w->packed;
    const size_t panels = panels_of_job(job);
    const size_t p0 = unit * run->per_unit;
    const size_t n_panels = panels - p0 < run->per_unit ? panels - p0 : run->per_unit;
    const size_t o = p0 * CPU_PANEL;
    const size_t left = (size_t)job->n_out - o;
    const size_t n = left < n_panels * CPU_PANEL ? left : n_panels * CPU_PANEL;
    const size_t panel = (size_t)job->out0 / CPU_PANEL + p0;
    const size_t rows = (size_t)job->n_rows;
    const size_t k = (size_t)job->w->n_in;
    for (size_t r0 = 0; r0 < rows; r0 += ROWS) {
        const size_t m = rows - r0 < ROWS ? rows - r0 : ROWS;
        cpu_rows in = run->rows[j];
        in.x += r0 * in.ldx;
        if (in.fixed != NULL) {
            in.fixed += r0 * k;
            in.unit += r0 * (k / 32);
            run->dev->fixed(packed, panel, n_panels, &in, m, c, LDC);
        } else if (in.pairs != NULL) {
            run->dev->dot(packed, panel, n_panels, in.pairs + r0 * (k / 2), m, c, LDC);
        } else {
            (packed->quads ? run->dev->quads : run->dev->kernels->panels)(packed, panel, n_panels, in.x, m, c, LDC);
        }
        store(job, o, n, r0, m, c, LDC);
    }
}

/* Relative time of one unit: decoding costs about as much as the products of two rows; products of pairs take half as
 * long. */
static double unit_cost(const linear_run *run, size_t j)
{
    const ref_linear *job = &run->jobs[j];
    const double rows = (double)job->n_rows;
    return (double)job->w->n_in * (run->rows[j].fixed != NULL || run->rows[j].pairs != NULL ? 2.0 + rows / 2.0 : 2.0 + rows);
}

/* First unit of share `t` of `n`: where the running cost passes t / n of all. */
static size_t share_start(const linear_run *run, size_t t, size_t n)
{
    const double target = run->cost[run->n_jobs] * (double)t / (double)n;
    size_t j = 0;
    while (j < run->n_jobs && run->cost[j + 1] <= target) {
        j++;
    }
    if (j == run->n_jobs) {
        return run->first[j];
    }
    const size_t units = run->first[j + 1] - run->first[j];
    const size_t at = (size_t)((target - run->cost[j]) / unit_cost(run, j) + 0.5);
    return run->first[j] + (at < units ? at : units);
}

static void run_stretch(const linear_run *run, stretch *from, float *tile)
{
    size_t j = 0;
    size_t u;
    while ((u = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed)) < from->end) {
        while (u >= run->first[j + 1]) {
            j++;
        }
        run_unit(run, j, u - run->first[j], tile);
    }
}

/* Its own stretch, and then what is left of the others'. */
static void run_stretches(void *arg, size_t begin, size_t end, int thread)
{
    const linear_run *run = arg;
    const size_t n = (size_t)run->dev->ref.n_threads;
    float *tile = run->tiles + (size_t)thread * run->tile_floats;
    for (size_t t = begin; t < end; t++) {
        for (size_t i = 0; i < n; i++) {
            run_stretch(run, &run->stretches[(t + i) % n], tile);
        }
    }
}

/* --- Rows in groups ---------------------------------------------------------------------------------------------- */

/* Rows of a job that are brought into groups, and where they go; NULL = not wanted. */
typedef struct group_job {
    const ref_linear *job;
    float *x;
    int16_t *fixed;
    float *unit;
    uint32_t *pairs;
    size_t n_slices; /* of a group's inputs: parts of about equal size share out better than a few groups do */
    size_t first;    /* slices before its own, of all such jobs */
} group_job;

enum { SLICES_MAX = 4, SLICE_MIN = 4096 /* values */ };

typedef struct group_run {
    group_job *jobs;
    size_t n_jobs;
    _Atomic bool no_dot; /* a row that pairs cannot hold */
} group_run;

static size_t n_groups(size_t rows)
{
    const size_t rest = rows % 12; /* eight, four, and what is left in one */
    return rows / 12 + rest / 8 + rest / 4 % 2 + (rest % 4 != 0 ? 1 : 0);
}

/* out[i][r] = row r, input i, for g rows; k is a multiple of 4. Four rows turn as squares of four. */
static inline __attribute__((always_inline)) void interleave(const float *x, size_t ldx, size_t k, const size_t g,
                                                             float *out)
{
    typedef float f4 __attribute__((vector_size(16)));
    const size_t squares = g / 4 * 4;
    for (size_t i = 0; i < k; i += 4) {
        for (size_t r = 0; r < squares; r += 4) {
            f4 a[4];
            for (size_t n = 0; n < 4; n++) {
                memcpy(&a[n], x + (r + n) * ldx + i, sizeof a[n]);
            }
            const f4 low01 = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5);
            const f4 high01 = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
            const f4 low23 = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
            const f4 high23 = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
            a[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
            a[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
            a[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
            a[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
            for (size_t n = 0; n < 4; n++) {
                memcpy(out + (i + n) * g + r, &a[n], sizeof a[n]);
            }
        }
        for (size_t n = i; n < i + 4; n++) {
            for (size_t r = squares; r < g; r++) {
                out[n * g + r] = x[r * ldx + n];
            }
        }
    }
}

/* Slice number i of a job: some inputs, whole blocks, of a group of rows. */
static void make_slice(group_run *run, const group_job *to, size_t i)
{
    const ref_linear *job = to->job;
    const size_t k = (size_t)job->w->n_in;
    const size_t rows = (size_t)job->n_rows;
    const size_t group = i / to->n_slices;
    const size_t slice = i % to->n_slices;
    const size_t k0 = k / 32 * slice / to->n_slices * 32;
    const size_t n_in = k / 32 * (slice + 1) / to->n_slices * 32 - k0;
    size_t r0 = group < rows / 12 ? group * 12 : rows / 12 * 12;
    for (size_t n = rows / 12; n < group; n++) {
        r0 += cpu_group(rows - r0);
    }
    const size_t g = cpu_group(rows - r0);
    const float *x = job->x + r0 * job->ldx + k0;
    for (size_t r = 0; to->fixed != NULL && r < g; r++) {
        cpu_fix_row(x + r * job->ldx, n_in, g, to->fixed + r0 * k + k0 * g + r * 2,
                    to->unit + r0 * (k / 32) + k0 / 32 * g + r);
    }
    for (size_t r = 0; to->pairs != NULL && r < g; r++) {
        if (!cpu_dot_row(x + r * job->ldx, n_in, g, to->pairs + r0 * (k / 2) + k0 / 2 * g + r)) {
            atomic_store_explicit(&run->no_dot, true, memory_order_relaxed);
        }
    }
    if (to->x == NULL) {
        return;
    }
    float *out = to->x + r0 * k + k0 * g;
    if (g == 12) {
        interleave(x, job->ldx, n_in, 12, out);
    } else if (g == 8) {
        interleave(x, job->ldx, n_in, 8, out);
    } else if (g == 4) {
        interleave(x, job->ldx, n_in, 4, out);
    } else {
        interleave(x, job->ldx, n_in, g, out);
    }
}

static void make_groups(void *arg, size_t begin, size_t end, int thread)
{
    group_run *run = arg;
    size_t j = 0;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        while (j + 1 < run->n_jobs && i >= run->jobs[j + 1].first) {
            j++;
        }
        make_slice(run, &run->jobs[j], i - run->jobs[j].first);
    }
}

/* The same rows as those of the job before? Gate and up branch, query and key share theirs. */
static bool same_rows(const ref_linear *a, const ref_linear *b)
{
    return a->x == b->x && a->ldx == b->ldx && a->n_rows == b->n_rows && a->w->n_in == b->w->n_in;
}

/* How a job's rows stand: as they are or in groups of floats, as integers, as pairs. */
typedef enum row_form { FLOATS, INTEGERS, PAIRS } row_form;

static row_form form_of(const linear_run *run, const ref_linear *job, bool dot)
{
    if (run->dev->fixed != NULL && job->w->format == OPS_FP4) {
        return INTEGERS;
    }
    const cpu_packed *p = job->w->packed;
    return dot && run->dev->dot != NULL && cpu_packed_dot(p) ? PAIRS : FLOATS;
}

/* Memory for the rows of a job. False when it is short. */
static bool take_rows(ref_device *dev, const ref_linear *job, row_form form, group_job *to)
{
    const size_t n = (size_t)job->n_rows * (size_t)job->w->n_in;
    const size_t slices = n / SLICE_MIN + 1;
    *to = (group_job){.job = job, .n_slices = slices < SLICES_MAX ? slices : SLICES_MAX};
    if (form == PAIRS) {
        to->pairs = ref_scratch(dev, n / 2, sizeof *to->pairs);
        return to->pairs != NULL;
    }
    if (form == INTEGERS) {
        to->fixed = ref_scratch(dev, n, sizeof *to->fixed);
        to->unit = ref_scratch(dev, n / 32, sizeof *to->unit);
        return to->fixed != NULL && to->unit != NULL;
    }
    to->x = ref_scratch(dev, n, sizeof *to->x);
    return to->x != NULL;
}

/* Fills run->rows; with `dot`, rows become pairs where matrices take them. False when memory is short. */
static bool fill_rows(ref_device *dev, linear_run *run, bool dot, bool *no_dot)
{
    group_run groups = {.jobs = ref_scratch(dev, run->n_jobs, sizeof *groups.jobs)};
    size_t n = 0;
    if (groups.jobs == NULL) {
        return false;
    }
    for (size_t j = 0; j < run->n_jobs; j++) {
        const ref_linear *job = &run->jobs[j];
        run->rows[j] = (cpu_rows){.x = is_packed(job) ? job->x : NULL, .ldx = job->ldx};
        if (!is_packed(job)) {
            continue;
        }
        const row_form form = form_of(run, job, dot);
        if (job->n_rows == 1 && form == FLOATS) {
            continue; /* a single row is its own group, in place */
        }
        if (j > 0 && is_packed(job - 1) && form_of(run, job - 1, dot) == form && same_rows(job, job - 1)) {
            run->rows[j] = run->rows[j - 1];
            continue;
        }
        group_job *to = &groups.jobs[groups.n_jobs++];
        if (!take_rows(dev, job, form, to)) {
            return false;
        }
        to->first = n;
        n += n_groups((size_t)job->n_rows) * to->n_slices;
        run->rows[j] = form == FLOATS ? (cpu_rows){.x = to->x, .ldx = (size_t)job->w->n_in}
                                      : (cpu_rows){.x = job->x,
                                                   .ldx = job->ldx,
                                                   .fixed = to->fixed,
                                                   .unit = to->unit,
                                                   .pairs = to->pairs};
    }
    pool_run(dev->pool, n, make_groups, &groups);
    *no_dot = atomic_load(&groups.no_dot);
    return true;
}

/* Values that pairs cannot hold are rare; then no job of the stage has pairs. */
static bool prepare_rows(ref_device *dev, linear_run *run)
{
    bool no_dot;
    return fill_rows(dev, run, true, &no_dot) && (!no_dot || fill_rows(dev, run, false, &no_dot));
}

void cpu_linear(ref_device *dev, const ref_linear *jobs, size_t n_jobs)
{
    linear_run run = {.dev = (const cpu_device *)dev, .jobs = jobs, .n_jobs = n_jobs, .per_unit = CPU_PANELS_MAX};
    const size_t threads = (size_t)dev->n_threads;
    size_t *first = ref_scratch(dev, n_jobs + 1, sizeof *first);
    double *cost = ref_scratch(dev, n_jobs + 1, sizeof *cost);
    size_t panels = 0;
    int64_t unpacked_in = 0;
    for (size_t j = 0; j < n_jobs; j++) {
        panels += jobs[j].n_rows > 0 ? panels_of_job(&jobs[j]) : 0;
        unpacked_in = !is_packed(&jobs[j]) && jobs[j].w->n_in > unpacked_in ? jobs[j].w->n_in : unpacked_in;
    }
    run.tile_floats = (size_t)unpacked_in * REF_TILE;
    run.tiles = ref_scratch(dev, threads * run.tile_floats, sizeof(float));
    run.rows = ref_scratch(dev, n_jobs, sizeof *run.rows);
    run.stretches = ref_scratch(dev, threads, sizeof *run.stretches);
    if (run.stretches == NULL || first == NULL || cost == NULL || run.tiles == NULL || run.rows == NULL || !prepare_rows(dev, &run)) {
        return;
    }
    while (run.per_unit > 1 && panels < 4 * threads * run.per_unit) {
        run.per_unit /= 2; /* few panels: smaller units share out better */
    }
    first[0] = 0;
    cost[0] = 0;
    for (size_t j = 0; j < n_jobs; j++) {
        const size_t units = units_of(&jobs[j], run.per_unit);
        first[j + 1] = first[j] + units;
        cost[j + 1] = cost[j] + (double)units * unit_cost(&run, j);
    }
    run.first = first;
    run.cost = cost;
    for (size_t t = 0; t < threads; t++) {
        atomic_init(&run.stretches[t].next, share_start(&run, t, threads));
        run.stretches[t].end = share_start(&run, t + 1, threads);
    }
    pool_run(dev->pool, threads, run_stretches, &run);
}
