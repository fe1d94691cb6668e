/* rope.c - see rope.h.
 *
 * The fp32 power function of the official run is not the correctly rounded one: for each of the two released thetas 8 or 10 of
 * 32 frequencies differ by one ulp, which at position 10^6 moves an angle by 1e-2. The tables below hold the official bits
 * (model.md A.5; the second one with YaRN undone). Widths that divide 64 take every (64 / rope_dim)-th entry, since
 * theta^(-2i/16) = theta^(-2(4i)/64). Any other theta or width is computed in double and rounded. */
#include "ops/rope.h"

#include "ops/formats.h"

#include <math.h>

static const uint32_t THETA_1E4[32] = {
    0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887, 0x3e088d77,
    0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d2cba15, 0x3d0186e3, 0x3cc2434f, 0x3c91ad39, 0x3c5a7bf2,
    0x3c23d70a, 0x3bf5b9b0, 0x3bb8449c, 0x3b8a2e77, 0x3b4f3e38, 0x3b1b690d, 0x3ae91528, 0x3aaec98e,
    0x3a83126f, 0x3a44948c, 0x3a136a16, 0x39dd1725, 0x39a5cb60, 0x3978a815, 0x393a7753, 0x390bd472};

static const uint32_t THETA_16E4[32] = {
    0x3f800000, 0x3f300a3a, 0x3ef21c1f, 0x3ea67d01, 0x3e64f92e, 0x3e1d7475, 0x3dd88cb4, 0x3d94e963,
    0x3d4ccccd, 0x3d0cd4fb, 0x3cc1b019, 0x3c8530ce, 0x3c372dbf, 0x3bfbed88, 0x3bad3d5e, 0x3b6e4237,
    0x3b23d70a, 0x3ae154c5, 0x3a9af347, 0x3a551ae3, 0x3a128aff, 0x39c98ad3, 0x398a977e, 0x393e9b60,
    0x3903126f, 0x38b443d0, 0x3877eba6, 0x382a7be8, 0x37ea77ff, 0x37a13bdc, 0x375dbf30, 0x37187c4d};

static double corr(double theta, int32_t rope_dim, int32_t original, double beta)
{
    return rope_dim * log(original / (beta * 2.0 * 3.14159265358979323846)) / (2.0 * log(theta));
}

void rope_frequencies(double theta, int32_t rope_dim, float *out)
{
    const uint32_t *table = theta == 10000.0 ? THETA_1E4 : theta == 160000.0 ? THETA_16E4 : NULL;
    bool tabled = table != NULL && rope_dim <= 64 && 64 % rope_dim == 0;
    for (int32_t i = 0; i < rope_dim / 2; i++) {
        out[i] = tabled ? fmt_float(table[i * (64 / rope_dim)]) : (float)(1.0 / pow(theta, 2.0 * i / rope_dim));
    }
}

void rope_yarn(double theta, int32_t rope_dim, double factor, double beta_fast, double beta_slow, int32_t original_positions,
               float *frequencies)
{
    double low = fmax(floor(corr(theta, rope_dim, original_positions, beta_fast)), 0.0);
    double high = fmin(ceil(corr(theta, rope_dim, original_positions, beta_slow)), rope_dim - 1);
    float span = (float)fmax(high - low, 0.001);
    for (int32_t i = 0; i < rope_dim / 2; i++) {
        float ramp = ((float)i - (float)low) / span;
        ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
        float smooth = 1.0f - ramp;
        frequencies[i] = frequencies[i] / (float)factor * (1.0f - smooth) + frequencies[i] * smooth;
    }
}

void rope_row(const float *frequencies, size_t n, int64_t pos, float *cos_out, float *sin_out)
{
    float p = (float)pos;
    for (size_t i = 0; i < n; i++) {
        float angle = p * frequencies[i];
        cos_out[i] = cosf(angle);
        sin_out[i] = sinf(angle);
    }
}

void rope_apply(float *x, size_t n, const float *cos_in, const float *sin_in, int inverse)
{
    float sign = inverse ? -1.0f : 1.0f;
    for (size_t i = 0; i < n; i++) {
        float a = x[2 * i];
        float b = x[2 * i + 1];
        float c = cos_in[i];
        float s = sign * sin_in[i];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = a * s + b * c;
    }
}
