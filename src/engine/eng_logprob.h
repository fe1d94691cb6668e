/* eng_logprob.h - passes over raw logits: checked copy under a grammar mask, highest value, log-softmax, the best few. */
#ifndef ENGINE_ENG_LOGPROB_H
#define ENGINE_ENG_LOGPROB_H

#include <deepinfer/engine.h>

/* Copies logits [vocab] to `out`, with -inf where the mask (bit id % 32 of word id / 32; NULL = all) has a 0.
 * Errors: DI_E_FORMAT for a NaN, masked or not. */
di_status eng_mask_copy(float *out, const float *logits, int32_t vocab, const uint32_t *mask, di_error *err);

/* Highest of n >= 1 values without NaN, -inf when there is nothing else. */
float eng_highest(const float *x, int32_t n);

/* log(sum of exp(x - max)), fp32, the same for any order of summation. max = eng_highest > -inf. +inf values share the whole
 * probability (eng_scale). */
float eng_log_sum(const float *x, int32_t n, float max);

/* The n_top best ids above -inf, best first, equal values by lower id, as order keys. Returns how many there are. */
int32_t eng_best(const float *x, int32_t n, int32_t n_top, uint64_t keys[DI_MAX_TOP_LOGPROBS]);

#endif
