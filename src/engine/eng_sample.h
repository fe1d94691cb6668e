/* eng_sample.h - chooses the next id of one sequence from its logits.
 *
 * Order (architecture.md 5): grammar mask; logit bias; repetition, presence, frequency penalty; minimum tokens; temperature;
 * min-p; top-k; top-p; then argmax over (scaled logit + Gumbel noise), where the noise is a function of (seed, position, id).
 * Hence a choice depends on the logits, the settings, the counted ids and the position, and on nothing else; choosing changes
 * nothing. Temperature 0 takes the highest processed logit, of equal ones the lowest id.
 *
 * Extremes: NaN anywhere is DI_E_FORMAT. -inf is never chosen. Ids at +inf share the whole probability, everything else has
 * none (greedy: the lowest of them). A bias or penalty cannot move an infinite logit.
 *
 * Owner: the sequence. Thread: one at a time. */
#ifndef ENGINE_ENG_SAMPLE_H
#define ENGINE_ENG_SAMPLE_H

#include "engine/eng_verify.h"

#include <deepinfer/engine.h>

#define ENG_MAX_VOCAB (1 << 19) /* sums of masses stay below 2^63 */

typedef struct eng_sampler eng_sampler;

/* Copies `settings`. Errors: DI_E_ARGUMENT (names the field, its value and range), DI_E_MEMORY. */
di_status eng_sampler_new(const di_sampling *settings, int32_t vocab, eng_sampler **out, di_error *err);
void eng_sampler_free(eng_sampler *sampler);

/* Counts an id of the sequence: prompt ids for the repetition penalty, sampled ones for all three and for min_tokens.
 * Ids outside the vocabulary are ignored. */
void eng_sampler_accept(eng_sampler *sampler, int32_t id, bool is_prompt);

/* Undoes one eng_sampler_accept(sampler, id, false), in any order: drafts that were tried and not kept. */
void eng_sampler_retract(eng_sampler *sampler, int32_t id);

/* Chooses among logits [vocab] for the token at `position` (its own index in the sequence). mask: bit id % 32 of word id / 32
 * is 1 where the grammar allows the id; NULL = all; bits past the vocabulary are ignored. Does not allocate, does not count.
 * Errors: DI_E_ARGUMENT (negative position), DI_E_FORMAT (NaN, or every logit is -inf), DI_E_STATE (the mask, or mask and
 * min_tokens together, leave no id). */
di_status eng_sampler_choose(eng_sampler *sampler, const float *logits, int64_t position, const uint32_t *mask,
                             di_sample *out, di_error *err);

/* What the token behind a row is drawn from: the ids that are left of it with their probabilities, as eng_sampler_choose has them up to the
 * noise; what has less than 2^-44 of the best one's is left out. Temperature > 0. Does not count. Errors: as of eng_sampler_choose;
 * DI_E_MEMORY. */
di_status eng_sampler_law(eng_sampler *sampler, const float *logits, const uint32_t *mask, eng_law *out, di_error *err);
/* The sample that choosing `id` of the row gives which was looked at last. */
void eng_sampler_report(const eng_sampler *sampler, const float *logits, int32_t id, di_sample *out);
uint64_t eng_sampler_seed(const eng_sampler *sampler);

/* Seed of choice i of a request for several choices (architecture.md 5). */
uint64_t eng_sampler_choice_seed(uint64_t seed, uint32_t choice);

#endif
