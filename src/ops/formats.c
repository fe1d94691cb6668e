/* formats.c - see formats.h. Branch-free where rows are processed, so that the compiler can vectorise. */
#include "ops/formats.h"

#include "ops/vector.h"

#define E2M1_VALUES 0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f

/* E4M3, one sign: subnormals are multiples of 2^-9; then eight mantissas for each power of two u; the last code is NaN. */
#define E4M3_SUB(s) s 0x0p-9f, s 0x1p-9f, s 0x2p-9f, s 0x3p-9f, s 0x4p-9f, s 0x5p-9f, s 0x6p-9f, s 0x7p-9f
#define E4M3_ROW(s, u) \
    s 1.0f * u, s 1.125f * u, s 1.25f * u, s 1.375f * u, s 1.5f * u, s 1.625f * u, s 1.75f * u, s 1.875f * u
#define E4M3_TOP(s) s 256.0f, s 288.0f, s 320.0f, s 352.0f, s 384.0f, s 416.0f, s 448.0f, NAN
#define E4M3_HALF(s) \
    E4M3_SUB(s), E4M3_ROW(s, 0x1p-6f), E4M3_ROW(s, 0x1p-5f), E4M3_ROW(s, 0x1p-4f), E4M3_ROW(s, 0x1p-3f), \
    E4M3_ROW(s, 0x1p-2f), E4M3_ROW(s, 0x1p-1f), E4M3_ROW(s, 1.0f), E4M3_ROW(s, 2.0f), E4M3_ROW(s, 4.0f), E4M3_ROW(s, 8.0f), \
    E4M3_ROW(s, 16.0f), E4M3_ROW(s, 32.0f), E4M3_ROW(s, 64.0f), E4M3_ROW(s, 128.0f), E4M3_TOP(s)

static const float E4M3_TABLE[256] = {E4M3_HALF(+), E4M3_HALF(-)};
static const float E2M1_TABLE[16] = {E2M1_VALUES};

/* Both values of a byte: low nibble, high nibble. */
#define E2M1_HIGH(h) \
    {0.0f, h}, {0.5f, h}, {1.0f, h}, {1.5f, h}, {2.0f, h}, {3.0f, h}, {4.0f, h}, {6.0f, h}, {-0.0f, h}, {-0.5f, h}, {-1.0f, h}, \
    {-1.5f, h}, {-2.0f, h}, {-3.0f, h}, {-4.0f, h}, {-6.0f, h}
static const float E2M1_PAIRS[256][2] = {
    E2M1_HIGH(0.0f),  E2M1_HIGH(0.5f),  E2M1_HIGH(1.0f),  E2M1_HIGH(1.5f),  E2M1_HIGH(2.0f),  E2M1_HIGH(3.0f),
    E2M1_HIGH(4.0f),  E2M1_HIGH(6.0f),  E2M1_HIGH(-0.0f), E2M1_HIGH(-0.5f), E2M1_HIGH(-1.0f), E2M1_HIGH(-1.5f),
    E2M1_HIGH(-2.0f), E2M1_HIGH(-3.0f), E2M1_HIGH(-4.0f), E2M1_HIGH(-6.0f)};

static const float C448 = 0x1.24924ap-9f; /* fp32(1/448) = 0x3B124925 */
static const float C6 = 0x1.555556p-3f;   /* fp32(1/6)   = 0x3E2AAAAB */

const float *fmt_e4m3_table(void) { return E4M3_TABLE; }
const float *fmt_e2m1_table(void) { return E2M1_TABLE; }

float e4m3_to_f32(uint8_t code) { return E4M3_TABLE[code]; }
float e2m1_to_f32(uint8_t code) { return E2M1_TABLE[code & 15]; }

float e8m0_to_f32(uint8_t code)
{
    /* 2^-127 is an fp32 subnormal: the exponent-field shift would give 0. */
    if (code == 0) {
        return 0x1p-127f;
    }
    return code == 255 ? NAN : fmt_float((uint32_t)code << 23);
}

/* Rounds 0 <= x < 2^22 to an integer, ties to even. */
static inline float round_even(float x) { return (x + 0x1p23f) - 0x1p23f; }

static inline __attribute__((always_inline)) uint8_t e4m3_code(float x)
{
    uint32_t u = fmt_bits(x);
    uint32_t sign = (u >> 24) & 0x80u;
    float a = fmt_float(u & 0x7FFFFFFFu);
    a = a > 448.0f ? 448.0f : a; /* NaN stays */
    uint32_t b = fmt_bits(a);
    uint32_t normal = ((b + 0x7FFFFu + ((b >> 20) & 1u)) >> 20) - ((127u - 7u) << 3);
    uint32_t tiny = (uint32_t)(a < 0x1p-6f ? round_even(a * 0x1p9f) : 0.0f);
    uint32_t code = a < 0x1p-6f ? tiny : normal;
    code = a == a ? code : 0x7Fu;
    return (uint8_t)(sign | code);
}

uint8_t e4m3_from_f32(float x) { return e4m3_code(x); }

static inline __attribute__((always_inline)) uint8_t e2m1_code(float x)
{
    uint32_t u = fmt_bits(x);
    float a = fmt_float(u & 0x7FFFFFFFu);
    a = a < 6.0f ? a : 6.0f;
    float low = round_even(a * 2.0f);         /* grid 0.5: codes 0..4 */
    float mid = round_even(a) + 2.0f;         /* grid 1: codes 4..6 */
    float high = round_even(a * 0.5f) + 4.0f; /* grid 2: codes 6, 7 */
    float code = a < 2.0f ? low : a < 4.0f ? mid : high;
    return (uint8_t)((uint32_t)code | ((u >> 28) & 8u));
}

uint8_t e2m1_from_f32(float x) { return e2m1_code(x); }

/* Smallest power of two >= v, as its E8M0 byte; v is a positive normal fp32 (model.md 3.2). */
static inline uint32_t pow2ceil_code(float v)
{
    uint32_t u = fmt_bits(v);
    return (u >> 23) + ((u & 0x7FFFFFu) != 0);
}

/* Sixteen running maxima at a time, n a multiple of 16. A NaN is never larger, and magnitudes have no order to lose. */
static inline __attribute__((always_inline)) float amax_of(const float *x, size_t n)
{
    float m[16] = {0};
    for (size_t i = 0; i < n; i += 16) {
        for (size_t lane = 0; lane < 16; lane++) {
            const float a = fabsf(x[i + lane]);
            m[lane] = a > m[lane] ? a : m[lane];
        }
    }
    for (size_t half = 8; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; lane++) {
            m[lane] = m[lane + half] > m[lane] ? m[lane + half] : m[lane];
        }
    }
    return m[0];
}

static inline float clamp(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }

static inline __attribute__((always_inline)) uint32_t q8_scale(const float *x)
{
    float amax = amax_of(x, 32);
    return pow2ceil_code((amax > 1e-4f ? amax : 1e-4f) * C448);
}

OPS_CLONES void fmt_q8_pack(const float *x, size_t n, uint8_t *row)
{
    for (size_t g = 0; g < n / 32; g++) {
        uint32_t code = q8_scale(x + g * 32);
        float s = e8m0_to_f32((uint8_t)code);
        for (size_t i = 0; i < 32; i++) {
            row[g * 32 + i] = e4m3_code(clamp(x[g * 32 + i] / s, 448.0f));
        }
        row[n + g] = (uint8_t)code;
    }
}

OPS_CLONES void fmt_q8_unpack(const uint8_t *row, size_t n, float *x)
{
    for (size_t g = 0; g < n / 32; g++) {
        float s = e8m0_to_f32(row[n + g]);
        for (size_t i = 0; i < 32; i++) {
            x[g * 32 + i] = E4M3_TABLE[row[g * 32 + i]] * s;
        }
    }
}

/* e4m3 rounding of |x| <= 448 without leaving fp32: drop mantissa bits below 2^-3 of the exponent, at least 2^-9. Adding and
 * subtracting 1.5 * 2^23 units of the wanted step rounds to that step, ties to even. */
static inline float e4m3_round(float x)
{
    uint32_t e = fmt_bits(x) & 0x7F800000u;
    uint32_t floor_e = 121u << 23; /* 2^-6: smallest normal */
    e = e < floor_e ? floor_e : e;
    float magic = fmt_float(e + (20u << 23)) * 1.5f; /* step 2^(e-3) = ulp of 2^(e+20) */
    return copysignf((x + magic) - magic, x); /* the sum loses the sign of a zero */
}

OPS_CLONES void fmt_q8_round(float *x, size_t n)
{
    for (size_t g = 0; g < n / 32; g++) {
        float s = e8m0_to_f32((uint8_t)q8_scale(x + g * 32));
        for (size_t i = 0; i < 32; i++) {
            float q = e4m3_round(clamp(x[g * 32 + i] / s, 448.0f));
            x[g * 32 + i] = q * s;
        }
    }
}

/* n is at most 32. */
static inline __attribute__((always_inline)) void pack_nibbles(const float *x, size_t n, float s, uint8_t *out)
{
    uint8_t code[32];
    for (size_t i = 0; i < n; i++) {
        code[i] = e2m1_code(x[i] / s);
    }
    for (size_t i = 0; i < n / 2; i++) {
        out[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
    }
}

static void unpack_nibbles(const uint8_t *in, size_t n, float s, float *x)
{
    for (size_t i = 0; i < n / 2; i++) {
        memcpy(x + 2 * i, E2M1_PAIRS[in[i]], sizeof E2M1_PAIRS[0]);
    }
    for (size_t i = 0; i < n; i++) {
        x[i] *= s;
    }
}

OPS_CLONES void fmt_q4e_pack(const float *x, size_t n, uint8_t *row)
{
    for (size_t g = 0; g < n / 32; g++) {
        float amax = amax_of(x + g * 32, 32);
        float floor_amax = 6.0f * 0x1p-126f;
        uint32_t code = pow2ceil_code((amax > floor_amax ? amax : floor_amax) * C6);
        pack_nibbles(x + g * 32, 32, e8m0_to_f32((uint8_t)code), row + g * 16);
        row[n / 2 + g] = (uint8_t)code;
    }
}

OPS_CLONES void fmt_q4e_unpack(const uint8_t *row, size_t n, float *x)
{
    for (size_t g = 0; g < n / 32; g++) {
        unpack_nibbles(row + g * 16, 32, e8m0_to_f32(row[n / 2 + g]), x + g * 32);
    }
}

OPS_CLONES void fmt_q4n_pack(const float *x, size_t n, uint8_t *row)
{
    for (size_t g = 0; g < n / 16; g++) {
        float amax = amax_of(x + g * 16, 16);
        float floor_amax = 6.0f * 0x1p-9f;
        uint8_t code = e4m3_from_f32((amax > floor_amax ? amax : floor_amax) / 6.0f);
        pack_nibbles(x + g * 16, 16, E4M3_TABLE[code], row + g * 8);
        row[n / 2 + g] = code;
    }
}

OPS_CLONES void fmt_q4n_unpack(const uint8_t *row, size_t n, float *x)
{
    for (size_t g = 0; g < n / 16; g++) {
        unpack_nibbles(row + g * 8, 16, E4M3_TABLE[row[n / 2 + g]], x + g * 16);
    }
}
