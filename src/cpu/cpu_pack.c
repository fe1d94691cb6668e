/* cpu_pack.c - checkpoint layout to tiles of 32 outputs (cpu_int.h). Done once a matrix, when a device loads its weights. */
#include "cpu/cpu_int.h"

#include "core/arith.h"
#include "ops/formats.h"
#include "ops/ref.h"

#include <stdlib.h>

_Static_assert(CPU_TILE == REF_TILE, "tiles of both backends hold the same outputs");

static size_t code_bits(ops_format format)
{
    return format == OPS_F32 ? 32 : format == OPS_BF16 ? 16 : format == OPS_FP8 ? 8 : 4;
}

static bool has_nan(const ops_matrix *w)
{
    if (w->format != OPS_FP8) {
        return false;
    }
    for (size_t i = 0; i < (size_t)w->n_out * (size_t)w->n_in; i++) {
        if ((w->data[i] & 0x7F) == 0x7F) {
            return true;
        }
    }
    return false;
}

static void pack_codes(const ops_matrix *w, int64_t o, size_t column, uint8_t *tile)
{
    size_t k = (size_t)w->n_in;
    size_t row = (size_t)o * k;
    for (size_t i = 0; i < k; i++) {
        switch (w->format) {
        case OPS_F32:
            memcpy(tile + (i * CPU_TILE + column) * 4, w->data + (row + i) * 4, 4);
            break;
        case OPS_BF16:
            memcpy(tile + (i * CPU_TILE + column) * 2, w->data + (row + i) * 2, 2);
            break;
        case OPS_FP4: {
            unsigned code = w->data[(row + i) / 2] >> (i % 2 * 4) & 15;
            uint8_t *p = tile + i * (CPU_TILE / 2) + column / 2;
            *p = (uint8_t)(*p | code << (column % 2 * 4));
            break;
        }
        default:
            tile[i * CPU_TILE + column] = w->data[row + i];
            break;
        }
    }
}

/* E4M3 codes are decoded through fp16, whose exponent is biased by 8 more: 2^8 in the scale makes up for it. */
static void pack_scales(const ops_matrix *w, int64_t o0, int64_t n, float *scale)
{
    size_t groups = (size_t)w->n_in / 32;
    for (size_t g = 0; g < groups; g++) {
        if (w->format == OPS_FP8) {
            scale[g] = e8m0_to_f32(w->scale[(size_t)(o0 / 32) * groups + g]) * 256.0f;
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            scale[g * CPU_TILE + (size_t)j] = e8m0_to_f32(w->scale[(size_t)(o0 + j) * groups + g]);
        }
    }
}

cpu_packed *cpu_pack(const ops_matrix *w)
{
    size_t k = (size_t)w->n_in;
    size_t tiles = ((size_t)w->n_out + CPU_TILE - 1) / CPU_TILE;
    bool scaled = w->format == OPS_FP8 || w->format == OPS_FP4;
    if (w->format == OPS_FP8R || w->n_in % 32 != 0 || has_nan(w)) {
        return NULL;
    }
    cpu_packed layout = {.format = w->format, .n_out = w->n_out, .n_in = w->n_in};
    layout.tile_bytes = k * CPU_TILE * code_bits(w->format) / 8;
    layout.tile_scales = !scaled ? 0 : w->format == OPS_FP8 ? k / 32 : k; /* n_in / 32 groups of 1 or 32 */
    size_t head = (sizeof layout + 63) / 64 * 64;
    size_t codes = tiles * layout.tile_bytes;
    layout.bytes = (head + codes + tiles * layout.tile_scales * sizeof(float) + 63) / 64 * 64;
    uint8_t *memory = aligned_alloc(64, layout.bytes);
    if (memory == NULL) {
        return NULL;
    }
    memset(memory, 0, layout.bytes);
    float *scale = (float *)(void *)(memory + head + codes);
    for (size_t t = 0; t < tiles; t++) {
        int64_t o0 = (int64_t)t * CPU_TILE;
        int64_t n = w->n_out - o0 < CPU_TILE ? w->n_out - o0 : CPU_TILE;
        for (int64_t j = 0; j < n; j++) {
            pack_codes(w, o0 + j, (size_t)j, memory + head + t * layout.tile_bytes);
        }
        if (scaled) {
            pack_scales(w, o0, n, scale + t * layout.tile_scales);
        }
    }
    layout.codes = memory + head;
    layout.scale = scale;
    memcpy(memory, &layout, sizeof layout);
    return (cpu_packed *)(void *)memory;
}

void cpu_packed_free(cpu_packed *p) { free(p); }
