/* gram_matcher.h - inside of a matcher. */
#ifndef GRAMMAR_GRAM_MATCHER_H
#define GRAMMAR_GRAM_MATCHER_H

#include "grammar/gram_cfg.h"
#include "grammar/gram_grammar.h"

typedef struct gram_step_taken { /* state behind it */
    gram_pos pos;
    uint32_t n_text;
    bool ended;
} gram_step_taken;

struct di_matcher {
    di_grammar *grammar; /* retained */
    di_vocabulary *vocabulary;
    gram_step_taken *steps; /* [n_steps], the first is the beginning */
    size_t n_steps;
    size_t capacity;
    uint8_t *text;
    size_t text_capacity;
};

static inline const gram_step_taken *gram_now(const di_matcher *m) { return &m->steps[m->n_steps - 1]; }

#endif
