/* eng_filter.h - min-p, top-k and top-p without sorting the vocabulary.
 *
 * Ids have one total order: higher processed logit first, equal logits by lower id. Each of the three filters keeps a prefix
 * of it, so together they are one cut: the last id that stays. It is found with one pass that fills a histogram over the
 * distance to the best logit, and a selection inside the one bin where the cut falls.
 *
 *   min-p  keeps p >= min_p * p(best), that is z >= log(min_p)
 *   top-k  keeps the first k
 *   top-p  keeps an id while the mass in front of it, among what the other two kept, is below top_p of their mass; the first
 *          id always stays
 *
 * where z = (logit - best) / temperature. Masses are integers (eng_gumbel.h), so the cut does not depend on any order of
 * summation. Cost: two passes over the logits, one more gather when top-k and top-p cut in different bins. */
#ifndef ENGINE_ENG_FILTER_H
#define ENGINE_ENG_FILTER_H

#include <deepinfer/engine.h>

#define ENG_FILTER_BINS 1024

/* Scratch of a selection; owner and thread: the sampler. */
typedef struct eng_filter {
    int32_t vocab;
    float temperature;
    float z_min;   /* log(min_p); -inf when min-p is off */
    int32_t top_k; /* 0 = off */
    float top_p;   /* 1 = off */
    uint64_t *keys; /* [vocab], NULL when top-k and top-p are off */
    uint64_t mass[ENG_FILTER_BINS];
    int32_t count[ENG_FILTER_BINS];
} eng_filter;

/* What stays: z >= z_min and eng_order_key(logit, id) >= key. */
typedef struct eng_cut {
    float z_min;
    uint64_t key; /* 0 = everything */
} eng_cut;

/* Settings must be checked and temperature > 0. Errors: DI_E_MEMORY. */
di_status eng_filter_init(eng_filter *f, const di_sampling *settings, int32_t vocab, di_error *err);
void eng_filter_fini(eng_filter *f);

/* logits [vocab], processed, without NaN; -inf = not a candidate; `max` is the highest of them and above -inf. */
eng_cut eng_filter_cut(eng_filter *f, const float *logits, float max);

/* The total order as a number: greater = earlier. */
uint64_t eng_order_key(float logit, int32_t id);
float eng_order_logit(uint64_t key);
int32_t eng_order_id(uint64_t key);

#endif
