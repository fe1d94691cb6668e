/* gram_text.h - strings of JSON text: which formulas about strings become which automaton.
 *
 * A plan is for a goal and observed formulas. Three ways, the cheapest that is exact:
 *  - no lengths: the vector of all expressions (gram_lex.h)
 *  - lengths only: the count alone decides
 *  - an expression that has texts of every length between its shortest and longest, whatever it has begun with, and a length: both beside
 *    each other, so that a bound of 100,000 costs no more than one of 10
 * else lengths become expressions, which count down. */
#ifndef GRAMMAR_GRAM_TEXT_H
#define GRAMMAR_GRAM_TEXT_H

#include "grammar/gram_form.h"
#include "grammar/gram_lex.h"

typedef struct gram_text_plan {
    gram_form goal;
    const gram_form *observed; /* [n] */
    uint32_t n;
    bool lengths_only;
    gram_span span;
    uint32_t vec;  /* 0 = no text satisfies the goal */
    uint32_t span_id;
} gram_text_plan;

typedef struct gram_texts {
    gram_mem *mem;
    gram_forms *forms;
    gram_lexes *lexes;
    gram_tuples plan_keys;
    gram_text_plan *plans;
    uint32_t plan_capacity;
    gram_tuples exs;    /* formulas whose expression is known */
    gram_ex *ex_values;
    uint32_t ex_capacity;
} gram_texts;

void gram_texts_init(gram_texts *t, gram_mem *mem, gram_forms *forms, gram_lexes *lexes);

/* Formulas of GRAM_STRING. */
uint32_t gram_text_plan_of(gram_texts *t, gram_form goal, const gram_form *observed, uint32_t n);

/* The strings of a formula of GRAM_STRING as one expression. */
gram_ex gram_text_ex(gram_texts *t, gram_form form);

/* The state at the beginning, 0 when no text satisfies the goal. */
uint32_t gram_text_start(gram_texts *t, uint32_t plan, gram_mode mode);

/* At the end of a text, in state `lex` (LX_CHAR) with n characters: whether the goal holds, and each of the observed ones. */
bool gram_text_complete(gram_texts *t, uint32_t plan, uint32_t lex, uint32_t n);
bool gram_text_observe(gram_texts *t, uint32_t plan, uint32_t lex, uint32_t n, uint32_t i);

#endif
