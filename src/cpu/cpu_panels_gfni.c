/* cpu_panels_gfni.c - the panel kernel for FP8 in quads, for AVX-512 with GFNI (cpu_quads.inc): a bf16 becomes fp32 by a
 * shift or a mask, two instructions a vector instead of four through fp16. */
#include "cpu/cpu_int.h"
#include "cpu/cpu_quads.inc"
#include "cpu/cpu_vector_avx512.inc"

#include <math.h>

#define ROWS_MAX 12
#define PANELS_FEW 4
#define PANELS_MANY 2
#define PANELS_NAME cpu_panels_gfni
#define ONLY_QUADS

static inline void from_words(__m512i words, vf out[2][PV])
{
    out[0][0] = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32((int)0xFFFF0000u)));
    out[1][0] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

static inline void vf_quads(const uint8_t *p, size_t pair, vf out[2][PV])
{
    from_words(quads_words(quads_normal(_mm512_loadu_si512(p)), pair), out);
}

static inline void vf_quads_exact(const uint8_t *p, size_t pair, vf out[2][PV])
{
    from_words(quads_words(quads_exact(_mm512_loadu_si512(p)), pair), out);
}

#include "cpu/cpu_panels_body.inc"
