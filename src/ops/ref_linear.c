/* ref_linear.c - the matrix product of the reference: weights are decoded once a tile, outputs run in vectors, each reduction runs in
 * ascending order in partial sums of 32 or 16 (model.md 3.2; lemmas L1-L3 of 2.3 make decoded operands exact). */
#include "core/arith.h"
#include "ops/ref.h"
#include "ops/vector.h"

/* Rows r of a times one 32-wide panel; m is a constant at each call so that the sums stay in registers. */
static inline __attribute__((always_inline)) void mm_rows(float *c, size_t ldc, const float *a, size_t lda, const size_t m,
                                                          const float *b, size_t ldb, size_t k, size_t block)
{
    v16 acc[4][2] = {{{0}}};
    for (size_t k0 = 0; k0 < k; k0 += block) {
        size_t k1 = k0 + block < k ? k0 + block : k;
        v16 part[4][2] = {{{0}}};
        for (size_t i = k0; i < k1; i++) {
            const v16u *row = (const v16u *)(b + i * ldb);
            v16 b0 = row[0];
            v16 b1 = row[1];
            for (size_t r = 0; r < m; r++) {
                float x = a[r * lda + i];
                part[r][0] += x * b0;
                part[r][1] += x * b1;
            }
        }
        for (size_t r = 0; r < m; r++) {
            acc[r][0] += part[r][0];
            acc[r][1] += part[r][1];
        }
    }
    for (size_t r = 0; r < m; r++) {
        v16u *out = (v16u *)(c + r * ldc);
        out[0] = acc[r][0];
        out[1] = acc[r][1];
    }
}

OPS_CLONES void ref_mm32(float *c, size_t ldc, const float *a, size_t lda, size_t m, const float *b, size_t ldb, size_t k,
                         size_t block)
{
    size_t r = 0;
    for (; r + 4 <= m; r += 4) {
        mm_rows(c + r * ldc, ldc, a + r * lda, lda, 4, b, ldb, k, block);
    }
    switch (m - r) {
    case 3:
        mm_rows(c + r * ldc, ldc, a + r * lda, lda, 3, b, ldb, k, block);
        break;
    case 2:
        mm_rows(c + r * ldc, ldc, a + r * lda, lda, 2, b, ldb, k, block);
        break;
    case 1:
        mm_rows(c + r * ldc, ldc, a + r * lda, lda, 1, b, ldb, k, block);
        break;
    default:
        break;
    }
}

static uint16_t load16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static void decode_f32(const ops_matrix *w, int64_t o0, int64_t n, float *tile)
{
    for (int64_t o = 0; o < n; o++) {
        const uint8_t *src = w->data + (size_t)(o0 + o) * (size_t)w->n_in * 4;
        for (int64_t k = 0; k < w->n_in; k++) {
            memcpy(&tile[k * REF_TILE + o], src + 4 * k, 4);
        }
    }
}

static void decode_bf16(const ops_matrix *w, int64_t o0, int64_t n, float *tile)
{
    for (int64_t o = 0; o < n; o++) {
        const uint8_t *src = w->data + (size_t)(o0 + o) * (size_t)w->n_in * 2;
        for (int64_t k = 0; k < w->n_in; k++) {
            tile[k * REF_TILE + o] = bf16_to_f32(load16(src + 2 * k));
        }
    }
}

/* Scale of output row o at column block g, for the three scaled formats. */
static float scale_at(const ops_matrix *w, int64_t o, int64_t g)
{
    int64_t per_row = (w->n_in + 31) / 32;
    int64_t row = w->format == OPS_FP8 ? o / 32 : o;
    return e8m0_to_f32(w->scale[row * per_row + g]);
}

static void decode_fp8(const ops_matrix *w, int64_t o0, int64_t n, float *tile)
{
    const float *value = fmt_e4m3_table();
    for (int64_t k0 = 0; k0 < w->n_in; k0 += 32) {
        int64_t k1 = k0 + 32 < w->n_in ? k0 + 32 : w->n_in;
        for (int64_t o = 0; o < n; o++) {
            const uint8_t *src = w->data + (size_t)(o0 + o) * (size_t)w->n_in;
            float s = scale_at(w, o0 + o, k0 / 32);
            for (int64_t k = k0; k < k1; k++) {
                tile[k * REF_TILE + o] = value[src[k]] * s;
            }
        }
    }
}

static void decode_fp4(const ops_matrix *w, int64_t o0, int64_t n, float *tile)
{
    const float *value = fmt_e2m1_table();
    for (int64_t k0 = 0; k0 < w->n_in; k0 += 32) {
        for (int64_t o = 0; o < n; o++) {
            const uint8_t *src = w->data + ((size_t)(o0 + o) * (size_t)w->n_in + (size_t)k0) / 2;
            float s = scale_at(w, o0 + o, k0 / 32);
            for (int64_t i = 0; i < 16; i++) {
                tile[(k0 + 2 * i) * REF_TILE + o] = value[src[i] & 15] * s;
                tile[(k0 + 2 * i + 1) * REF_TILE + o] = value[src[i] >> 4] * s;
            }
        }
    }
}

void ref_decode_tile(const ops_matrix *w, int64_t o0, int64_t n, float *tile)
{
    if (n < REF_TILE) {
        memset(tile, 0, (size_t)w->n_in * REF_TILE * sizeof *tile);
    }
    switch (w->format) {
    case OPS_F32:
        decode_f32(w, o0, n, tile);
        break;
    case OPS_BF16:
        decode_bf16(w, o0, n, tile);
        break;
    case OPS_FP8:
    case OPS_FP8R:
        decode_fp8(w, o0, n, tile);
        break;
    case OPS_FP4:
        decode_fp4(w, o0, n, tile);
        break;
    }
}

/* --- Jobs over the pool ----------------------------------------------------------------------------------------------- */

typedef struct linear_run {
    const ref_linear *jobs;
    const size_t *first; /* [n_jobs + 1] number of tiles before each job */
    ref_tile_fn fn;
    void *user;
    float *tiles; /* [threads] tile memory of tile_floats each */
    size_t tile_floats;
} linear_run;

static size_t n_tiles(const ref_linear *job) { return (size_t)((job->n_out + REF_TILE - 1) / REF_TILE); }

void ref_linear_store(const ref_linear *job, size_t t, int32_t r0, int32_t m, const float *c)
{
    int64_t o = (int64_t)t * REF_TILE;
    size_t n = (size_t)(job->n_out - o < REF_TILE ? job->n_out - o : REF_TILE);
    for (int32_t r = 0; r < m; r++) {
        size_t at = (size_t)(r0 + r) * job->ldy + (size_t)o;
        if (job->y16 != NULL) {
            fmt_f32_to_bf16(c + (size_t)r * REF_TILE, n, job->y16 + at);
        } else {
            memcpy(job->y32 + at, c + (size_t)r * REF_TILE, n * sizeof(float));
        }
    }
}

/* Rows in groups of 64, so that the outputs stay in the cache. */
void ref_linear_tile(const ref_linear *job, size_t t, float *scratch, void *user)
{
    (void)user;
    int64_t o = (int64_t)t * REF_TILE;
    int64_t n = job->n_out - o < REF_TILE ? job->n_out - o : REF_TILE;
    size_t block = job->w->format == OPS_F32 ? REF_K_BLOCK_FINE : REF_K_BLOCK;
    float c[64][REF_TILE];
    ref_decode_tile(job->w, job->out0 + o, n, scratch);
    for (int32_t r0 = 0; r0 < job->n_rows; r0 += 64) {
        int32_t m = job->n_rows - r0 < 64 ? job->n_rows - r0 : 64;
        ref_mm32(c[0], REF_TILE, job->x + (size_t)r0 * job->ldx, job->ldx, (size_t)m, scratch, REF_TILE, (size_t)job->w->n_in, block);
        ref_linear_store(job, t, r0, m, c[0]);
    }
}

static void run_tiles(void *arg, size_t begin, size_t end, int thread)
{
    const linear_run *run = arg;
    float *tile = run->tiles + (size_t)thread * run->tile_floats;
    size_t j = 0;
    for (size_t t = begin; t < end; t++) {
        while (t >= run->first[j + 1]) {
            j++;
        }
        run->fn(&run->jobs[j], t - run->first[j], tile, run->user);
    }
}

void ref_linear_tiles(ref_device *dev, const ref_linear *jobs, size_t n_jobs, ref_tile_fn fn, void *user)
{
    linear_run run = {.jobs = jobs, .fn = fn, .user = user};
    size_t *first = ref_scratch(dev, n_jobs + 1, sizeof *first);
    int64_t max_in = 0;
    if (first == NULL) {
        return;
    }
    first[0] = 0;
    for (size_t j = 0; j < n_jobs; j++) {
        first[j + 1] = first[j] + (jobs[j].n_rows > 0 ? n_tiles(&jobs[j]) : 0);
        max_in = jobs[j].w->n_in > max_in ? jobs[j].w->n_in : max_in;
    }
    run.first = first;
    run.tile_floats = (size_t)max_in * REF_TILE;
    run.tiles = ref_scratch(dev, (size_t)dev->n_threads * run.tile_floats, sizeof(float));
    if (run.tiles != NULL) {
        pool_run(dev->pool, first[n_jobs], run_tiles, &run);
    }
}

void ref_linear_run(ref_device *dev, const ref_linear *jobs, size_t n_jobs)
{
    ref_linear_tiles(dev, jobs, n_jobs, ref_linear_tile, NULL);
}

ref_linear ref_linear_to_bf16(const ops_matrix *w, const float *x, int32_t n_rows, bf16 *y)
{
    return (ref_linear){.w = w, .n_out = w->n_out, .x = x, .ldx = (size_t)w->n_in, .n_rows = n_rows, .y16 = y, .ldy = (size_t)w->n_out};
}

ref_linear ref_linear_to_f32(const ops_matrix *w, const float *x, int32_t n_rows, float *y)
{
    return (ref_linear){.w = w, .n_out = w->n_out, .x = x, .ldx = (size_t)w->n_in, .n_rows = n_rows, .y32 = y, .ldy = (size_t)w->n_out};
}

typedef struct widen_run {
    const bf16 *x;
    float *out;
    size_t n;
    bool quantise;
} widen_run;

static void widen_rows(void *arg, size_t begin, size_t end, int thread)
{
    const widen_run *w = arg;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        fmt_bf16_to_f32(w->x + r * w->n, w->n, w->out + r * w->n);
        if (w->quantise) {
            fmt_q8_round(w->out + r * w->n, w->n);
        }
    }
}

float *ref_widen(ref_device *dev, const bf16 *x, int32_t n_rows, size_t n, bool quantise)
{
    widen_run run = {.x = x, .n = n, .quantise = quantise};
    run.out = ref_scratch(dev, (size_t)n_rows * n, sizeof(float));
    if (run.out != NULL) {
        pool_run(dev->pool, (size_t)n_rows, widen_rows, &run);
    }
    return run.out;
}
