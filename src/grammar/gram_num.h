/* gram_num.h - numbers of JSON text as an automaton: digits come one by one, and after each it is known exactly whether the number can
 * still become one that a formula accepts.
 *
 * The language of spellings: -?(0|[1-9][0-9]{0,29})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})? (longer where a bound has more
 * digits). Values are decimal and exact. A state keeps what the atoms of the formulas need and no more:
 *  - the constants of the formulas are sorted by their digits; those that agree with the digits so far are a range [low, high)
 *  - for each modulus the remainder of the digits without their trailing zeros, whose number is kept too: then x is a multiple of
 *    c·10^-s exactly when  remainder · 10^(zeros - fraction digits + exponent + s)  is one of c and the exponent of ten is not negative
 *
 * Thread: the holder of the grammar's lock. */
#ifndef GRAMMAR_GRAM_NUM_H
#define GRAMMAR_GRAM_NUM_H

#include "grammar/gram_form.h"

#define GRAM_MAX_MODULI 4

typedef struct gram_num_plan gram_num_plan;

typedef struct gram_nums {
    gram_mem *mem;
    gram_forms *forms;
    gram_tuples plan_keys; /* formulas for numbers: the goal, then the observed ones */
    gram_num_plan *plans;
    uint32_t plan_capacity;
    gram_tuples states;    /* plan, then the fields of a state */
    uint8_t *alive;        /* [states.n] */
    uint32_t alive_capacity;
    uint32_t n_alive;
    bool integers_any;     /* integral values may be written with fraction or exponent where integers are asked for */
} gram_nums;

void gram_nums_init(gram_nums *nums, gram_mem *mem, gram_forms *forms);

/* The automaton for values that satisfy `goal`, of which each of `observed` will be asked at the end (formulas of GRAM_NUMBER). */
uint32_t gram_num_plan_of(gram_nums *nums, gram_form goal, const gram_form *observed, uint32_t n);

bool gram_num_only_ints(const gram_nums *nums, uint32_t plan);     /* every value is an integer, spelled without fraction and exponent */
bool gram_num_has_multiples(const gram_nums *nums, uint32_t plan); /* it says something about multiples */

/* States: GRAM_NONE is dead. */
uint32_t gram_num_start(gram_nums *nums, uint32_t plan);
uint32_t gram_num_step(gram_nums *nums, uint32_t state, uint8_t byte);

/* The text so far is a number that satisfies the goal. */
bool gram_num_complete(gram_nums *nums, uint32_t state);

/* Of a complete one: whether it satisfies observed formula i. */
bool gram_num_observe(gram_nums *nums, uint32_t state, uint32_t i);

#endif
