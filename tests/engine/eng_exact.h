/* eng_exact.h - the distribution that a row's token should have, computed in double precision by sorting, and whether draws follow it. */
#ifndef ENGINE_ENG_EXACT_H
#define ENGINE_ENG_EXACT_H

#include <deepinfer/engine.h>

#define EXACT_MOST 512 /* ids */

/* What stands in front of the token. */
typedef struct exact_text {
    const int32_t *prompt;
    size_t n_prompt;
    const int32_t *sampled;
    size_t n_sampled;
} exact_text;

/* p[vocab] of the ids that the settings leave of logits[vocab], under a mask or NULL. */
void exact_law(const di_sampling *settings, const exact_text *text, const uint32_t *mask, const float *logits, int vocab, double *p);

/* Chi-square of n cells with probabilities p, of which so many draws were `seen`; cells that expect fewer than 5 are taken together. A draw
 * where none can be gives 0. */
double exact_p_value(const int *seen, const double *p, int n, int draws);

#endif
