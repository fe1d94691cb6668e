/* gram_hunt.h - a hunt for dead ends: random steps under the mask through random schemas. */
#ifndef GRAMMAR_GRAM_HUNT_H
#define GRAMMAR_GRAM_HUNT_H

#include <deepinfer/grammar.h>

typedef struct gram_hunt_counts {
    int64_t steps;   /* tokens chosen */
    int64_t schemas;
    int64_t texts;   /* that came to their end */
    int64_t given_up; /* walks that ran into a limit */
    int64_t judged;  /* of these, by the validator of gram_brute.h */
} gram_hunt_counts;

/* Takes at least so many steps. Fails the test when a mask is empty, an allowed token is not accepted, or a text that ended is not valid. */
void gram_hunt(di_vocabulary *vocabulary, const di_tokenizer *tokenizer, int32_t end_id, int64_t steps, uint64_t seed, gram_hunt_counts *out);

#endif
