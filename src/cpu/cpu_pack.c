/* cpu_pack.c - checkpoint layout to panels of 16 outputs (cpu_int.h). Done once a matrix, when a device loads its
 * weights, by all threads of its pool; each output row is read once, in order. */
#include "cpu/cpu_int.h"

#include "core/arith.h"
#include "ops/formats.h"
#include "ops/vector.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t bytes16 __attribute__((vector_size(16)));

static size_t code_bits(ops_format format)
{
    return format == OPS_F32 ? 32 : format == OPS_BF16 ? 16 : format == OPS_FP8 ? 8 : 4;
}

/* out[i] = bytes i of the sixteen rows: four rounds, each interleaving rows whose numbers differ in one bit. */
static void transpose_bytes(bytes16 row[16], uint8_t *out)
{
    bytes16 next[16];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            next[2 * i] =
                __builtin_shufflevector(row[i], row[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                                      14, 30, 15, 31);
        }
        memcpy(row, next, sizeof next);
    }
    memcpy(out, row, sizeof next);
}

/* Rows of one panel of FP8 codes; missing rows are zero. True when a code is NaN. */
static bool pack_fp8(const uint8_t *src, size_t n_rows, size_t k, uint8_t *panel)
{
    uint8_t nan = 0;
    for (size_t i = 0; i < k; i += 16) {
        bytes16 row[CPU_PANEL] = {{0}};
        bytes16 found = {0};
        for (size_t r = 0; r < n_rows; r++) {
            memcpy(&row[r], src + r * k + i, sizeof row[r]);
            found |= (bytes16)((row[r] & 0x7F) == 0x7F);
        }
        transpose_bytes(row, panel + i * CPU_PANEL);
        for (int b = 0; b < 16; b++) {
            nan |= found[b];
        }
    }
    return nan != 0;
}

/* Is there a NaN, or a zero or subnormal, in 32 codes? */
typedef struct code_kinds {
    bool nan;
    bool small;
} code_kinds;

static code_kinds kinds_of(const uint8_t *codes)
{
    bytes16 nan = {0};
    bytes16 small = {0};
    code_kinds kinds = {.nan = false};
    for (size_t i = 0; i < 32; i += 16) {
        bytes16 c;
        memcpy(&c, codes + i, sizeof c);
        nan |= (bytes16)((c & 0x7F) == 0x7F);
        small |= (bytes16)((c & 0x78) == 0);
    }
    for (int b = 0; b < 16; b++) {
        kinds.nan = kinds.nan || nan[b] != 0;
        kinds.small = kinds.small || small[b] != 0;
    }
    return kinds;
}

/* The same in quads; makes the scales of blocks with small codes negative. */
static bool pack_quads(const uint8_t *src, size_t n_rows, size_t k, uint8_t *panel, float *scale)
{
    bool nan = false;
    for (size_t g = 0; g < k / 32; g++) {
        bool small = n_rows < CPU_PANEL;
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *in = src + r * k + g * 32;
            uint8_t *out = panel + g * 32 * CPU_PANEL + r / 4 * 16 + r % 4 * 2;
            const code_kinds kinds = kinds_of(in);
            nan = nan || kinds.nan;
            small = small || kinds.small;
            for (size_t i = 0; i < 8; i++) {
                out[i * 64] = in[i * 4 + 1];
                out[i * 64 + 1] = in[i * 4];
                out[i * 64 + 8] = in[i * 4 + 3];
                out[i * 64 + 9] = in[i * 4 + 2];
            }
        }
        scale[g] = small ? -scale[g] : scale[g];
    }
    return nan;
}

/* Sixteen rows of words, i a multiple of 16 of each: the same four rounds with words. */
OPS_CLONES static void transpose_words(const uint8_t *src, size_t n, uint8_t *panel)
{
    for (size_t i = 0; i < n; i += 16) {
        v16_bits row[16];
        v16_bits next[16];
        for (int r = 0; r < 16; r++) {
            memcpy(&row[r], src + ((size_t)r * n + i) * 4, sizeof row[r]);
        }
        for (int round = 0; round < 4; round++) {
            for (int r = 0; r < 8; r++) {
                next[2 * r] = __builtin_shufflevector(row[r], row[r + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                next[2 * r + 1] =
                    __builtin_shufflevector(row[r], row[r + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            }
            memcpy(row, next, sizeof next);
        }
        memcpy(panel + i * CPU_PANEL * 4, row, sizeof row);
    }
}

/* 32-bit words: [n_rows][n] to [n][16]. Eight FP4 codes make one. */
static void pack_words(const uint8_t *src, size_t n_rows, size_t n, uint8_t *panel)
{
    if (n_rows == CPU_PANEL && n % 16 == 0) {
        transpose_words(src, n, panel);
        return;
    }
    for (size_t r = 0; r < n_rows; r++) {
        const uint8_t *in = src + r * n * 4;
        uint8_t *out = panel + r * 4;
        for (size_t i = 0; i < n; i++) {
            memcpy(out + i * CPU_PANEL * 4, in + i * 4, 4);
        }
    }
}

/* Are all of n values, two a word, zero or of a size that the dot product takes? Exchanges those of a word. */
OPS_CLONES static bool turn_pairs(uint32_t *words, size_t n)
{
    const uint32_t low = (uint32_t)(127 + CPU_DOT_MIN) << 7;
    const uint32_t high = (uint32_t)(127 + CPU_DOT_MAX) << 7;
    uint32_t odd = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = words[i] & 0x7FFF;
        const uint32_t b = words[i] >> 16 & 0x7FFF;
        odd |= (uint32_t)(a != 0) & (uint32_t)(a - low >= high - low);
        odd |= (uint32_t)(b != 0) & (uint32_t)(b - low >= high - low);
        words[i] = words[i] << 16 | words[i] >> 16;
    }
    return odd == 0;
}

/* Scales of one panel of FP4 rows, [n_rows][groups] to [groups][16]. True when one is no normal power of two. */
static bool pack_scales(const uint8_t *src, size_t n_rows, size_t groups, uint8_t *panel)
{
    bool odd = false;
    if (n_rows < CPU_PANEL) {
        memset(panel, 0, groups * CPU_PANEL);
    }
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t g = 0; g < groups; g++) {
            uint8_t code = src[r * groups + g];
            panel[g * CPU_PANEL + r] = code;
            odd = odd || code == 0 || code == 255;
        }
    }
    return odd;
}

/* Scales of one row of blocks, times `factor`: codes that are decoded through fp16, whose exponent is biased by 8 more,
 * need 2^8 to make up for it. False for a NaN. */
static bool block_scales(const ops_matrix *w, size_t block_row, float factor, float *scale)
{
    const size_t groups = (size_t)w->n_in / 32;
    bool ok = true;
    for (size_t g = 0; g < groups; g++) {
        scale[g] = e8m0_to_f32(w->scale[block_row * groups + g]) * factor;
        ok = ok && scale[g] == scale[g];
    }
    return ok;
}

typedef struct pack_run {
    const ops_matrix *w;
    const cpu_packed *p;
    uint8_t *codes;
    float *scale; /* FP8 */
    _Atomic bool refused;
    _Atomic bool no_dot;
} pack_run;

static void pack_panels(void *arg, size_t begin, size_t end, int thread)
{
    pack_run *run = arg;
    const ops_matrix *w = run->w;
    const size_t k = (size_t)w->n_in;
    const size_t row_bytes = k * code_bits(w->format) / 8;
    (void)thread;
    for (size_t p = begin; p < end; p++) {
        const size_t o0 = p * CPU_PANEL;
        const size_t left = (size_t)w->n_out - o0;
        const size_t n = left < CPU_PANEL ? left : CPU_PANEL;
        const uint8_t *src = w->data + o0 * row_bytes;
        uint8_t *panel = run->codes + p * run->p->panel_bytes;
        bool refused = false;
        if (n < CPU_PANEL) {
            memset(panel, 0, run->p->panel_bytes);
        }
        switch (w->format) {
        case OPS_FP8: {
            float *scale = run->scale + p * (k / 32);
            refused = !block_scales(w, o0 / 32, run->p->quads ? 1.0f : 256.0f, scale);
            refused = (run->p->quads ? pack_quads(src, n, k, panel, scale) : pack_fp8(src, n, k, panel)) || refused;
            break;
        }
        case OPS_FP4:
            pack_words(src, n, k / 8, panel);
            refused = pack_scales(w->scale + o0 * (k / 32), n, k / 32, panel + k / 2 * CPU_PANEL);
            break;
        case OPS_BF16:
            pack_words(src, n, k / 2, panel);
            if (!turn_pairs((uint32_t *)(void *)panel, k / 2 * CPU_PANEL)) {
                atomic_store(&run->no_dot, true);
            }
            break;
        default:
            pack_words(src, n, k, panel);
            break;
        }
        if (refused) {
            atomic_store(&run->refused, true);
        }
    }
}

/* Fills the sizes; false when they overflow. */
static bool plan(const ops_matrix *w, cpu_packed *p, size_t *n_scales)
{
    const size_t k = (size_t)w->n_in;
    size_t codes;
    size_t scales;
    *p = (cpu_packed){.format = w->format, .n_out = w->n_out, .n_in = w->n_in};
    p->n_panels = ((size_t)w->n_out + CPU_PANEL - 1) / CPU_PANEL;
    p->panel_bytes = k * CPU_PANEL * code_bits(w->format) / 8 + (w->format == OPS_FP4 ? k / 32 * CPU_PANEL : 0);
    *n_scales = w->format == OPS_FP8 ? p->n_panels * (k / 32) : w->format == OPS_BF16 ? 1 : 0;
    return ar_mul(p->n_panels, p->panel_bytes, &codes) && ar_mul(*n_scales, sizeof(float), &scales) &&
           ar_add(codes, scales, &p->bytes) && ar_add(p->bytes, sizeof *p + 3 * 64, &p->bytes);
}

static bool takes_shape(const ops_matrix *w)
{
    return w->format != OPS_FP8R && w->n_in % 32 == 0 && w->n_out > 0 && w->n_in > 0;
}

size_t cpu_packed_bytes(const ops_matrix *w)
{
    cpu_packed layout;
    size_t n_scales;
    return takes_shape(w) && plan(w, &layout, &n_scales) ? layout.bytes : SIZE_MAX;
}

static size_t codes_bytes(const cpu_packed *layout) { return (layout->n_panels * layout->panel_bytes + 63) / 64 * 64; }

/* Where the parts of a packed matrix are in its memory. */
static uint8_t *place(cpu_packed *layout, uint8_t *memory)
{
    uint8_t *const codes = memory + (sizeof *layout + 63) / 64 * 64;
    layout->bytes = layout->bytes / 64 * 64;
    layout->codes = codes;
    layout->block_scale = (float *)(void *)(codes + codes_bytes(layout));
    return codes;
}

cpu_packed *cpu_pack(const ops_matrix *w, bool quads, cpu_store *store, pool *threads)
{
    cpu_packed layout;
    size_t n_scales;
    if (!takes_shape(w) || !plan(w, &layout, &n_scales)) {
        return NULL;
    }
    layout.bytes = layout.bytes / 64 * 64;
    uint8_t *memory = store != NULL ? cpu_store_take(store, layout.bytes) : aligned_alloc(64, layout.bytes);
    if (memory == NULL) {
        return NULL;
    }
    pack_run run = {.w = w, .p = &layout, .codes = place(&layout, memory)};
    run.scale = (float *)layout.block_scale;
    layout.quads = quads && w->format == OPS_FP8;
    pool_run(threads, layout.n_panels, pack_panels, &run);
    if (atomic_load(&run.refused)) {
        cpu_packed_free((cpu_packed *)(void *)memory, store);
        return NULL;
    }
    const size_t filled = layout.n_panels * layout.panel_bytes;
    memset(run.codes + filled, 0, codes_bytes(&layout) - filled); /* a weight cache writes all of it */
    if (w->format == OPS_BF16) {
        run.scale[0] = atomic_load(&run.no_dot) ? 0.0f : 1.0f;
    }
    memcpy(memory, &layout, sizeof layout);
    return (cpu_packed *)(void *)memory;
}

void cpu_packed_free(cpu_packed *p, cpu_store *store)
{
    if (store != NULL) {
        cpu_store_give(store, p);
    } else {
        free(p);
    }
}

/* --- In place ------------------------------------------------------------------------------------------------------- */

/* Only what pack_scales takes. */
static bool scales_fit(const ops_matrix *w)
{
    const size_t n = (size_t)w->n_out * (size_t)w->n_in / 32;
    bool odd = false;
    for (size_t i = 0; i < n; i++) {
        odd = odd || w->scale[i] == 0 || w->scale[i] == 255;
    }
    return !odd;
}

/* A panel takes more bytes than its codes had, so that packing from front to back overwrites no codes of later panels
 * when the last codes end behind the last panel; those of the panel itself, and all scales, are set aside first. One
 * thread: panels must come in order. */
bool cpu_pack_in_place(ops_matrix *w, void *memory)
{
    cpu_packed layout;
    size_t n_scales;
    if (w->format != OPS_FP4 || !takes_shape(w) || !plan(w, &layout, &n_scales) || !scales_fit(w)) {
        return false;
    }
    const size_t k = (size_t)w->n_in;
    const size_t groups = k / 32;
    uint8_t *const scales = malloc((size_t)w->n_out * groups + CPU_PANEL * k / 2);
    if (scales == NULL) {
        return false;
    }
    uint8_t *const codes = scales + (size_t)w->n_out * groups;
    memcpy(scales, w->scale, (size_t)w->n_out * groups);
    uint8_t *panel = place(&layout, memory);
    for (size_t o = 0; o < (size_t)w->n_out; o += CPU_PANEL, panel += layout.panel_bytes) {
        const size_t left = (size_t)w->n_out - o;
        const size_t n = left < CPU_PANEL ? left : CPU_PANEL;
        memcpy(codes, w->data + o * (k / 2), n * (k / 2));
        if (n < CPU_PANEL) {
            memset(panel, 0, layout.panel_bytes);
        }
        pack_words(codes, n, k / 8, panel);
        (void)pack_scales(scales + o * groups, n, groups, panel + k / 2 * CPU_PANEL);
    }
    memcpy(memory, &layout, sizeof layout);
    free(scales);
    w->packed = memory;
    w->data = NULL;
    w->scale = NULL;
    return true;
}

/* --- Kept in files -------------------------------------------------------------------------------------------------- */

size_t cpu_kept_bytes(const ops_matrix *w)
{
    cpu_packed layout;
    size_t n_scales;
    return takes_shape(w) && plan(w, &layout, &n_scales) ? codes_bytes(&layout) + n_scales * sizeof(float) : 0;
}

cpu_packed *cpu_pack_attach(const ops_matrix *w, bool quads, const void *kept, cpu_store *store)
{
    cpu_packed layout;
    size_t n_scales;
    if (!takes_shape(w) || !plan(w, &layout, &n_scales)) {
        return NULL;
    }
    cpu_packed *const p = cpu_store_take(store, sizeof *p);
    if (p != NULL) {
        *p = layout;
        p->quads = quads && w->format == OPS_FP8;
        p->codes = kept;
        p->block_scale = (const float *)(const void *)(p->codes + codes_bytes(p));
    }
    return p;
}
