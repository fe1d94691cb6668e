/* gram_num_int.h - numbers; inside of gram_num*.c only. */
#ifndef GRAMMAR_GRAM_NUM_INT_H
#define GRAMMAR_GRAM_NUM_INT_H

#include "grammar/gram_num.h"

#define MAX_WHOLE 30u
#define MAX_FRACTION 30u
#define MAX_EXPONENT 999
#define LAST_POWER 31 /* 10^31 has every factor 2 and 5 of a modulus below 2^30 */

typedef enum num_phase { START, MINUS, ZERO, WHOLE, DOT, FRACTION, EXP, EXP_SIGN, EXP_DIGITS } num_phase;

typedef struct num_modulus {
    uint32_t c;
    int32_t s; /* c · 10^-s */
} num_modulus;

struct gram_num_plan {
    gram_form goal;
    const gram_form *observed;
    const uint32_t *decs; /* [n_decs] constants that are not zero, by their digits; equal digits once */
    uint32_t n_decs;
    int32_t *places; /* [n_places] of the constants, once each */
    uint32_t n_places;
    num_modulus moduli[GRAM_MAX_MODULI]; /* 1 for AT_INT */
    uint32_t n_moduli;
    uint32_t max_whole;
    uint32_t max_fraction;
    bool plain;     /* integral values are written without fraction and exponent */
    bool only_ints; /* and there are no others */
    bool signs;     /* something is compared with zero */
    bool zeros;     /* how many zeros are at the end makes a difference */
};

typedef struct num_state {
    uint32_t plan;
    uint32_t phase;
    uint32_t negative;
    uint32_t n_whole;
    uint32_t n_fraction;
    uint32_t leading;  /* zeros behind the point before the first other digit */
    uint32_t nonzero;  /* there was a digit other than zero; 2 = before the point */
    uint32_t zeros;    /* at the end */
    uint32_t compared; /* digits from the first other than zero on, as long as low < high */
    uint32_t low;
    uint32_t high;
    uint32_t exp_negative;
    uint32_t exp_digits;
    uint32_t exp;
    uint32_t rest[GRAM_MAX_MODULI];
} num_state;

enum { STATE_WORDS = sizeof(num_state) / sizeof(uint32_t) };
enum { UNKNOWN, ALIVE, NOT_ALIVE };

static inline const num_state *gram_num_state_at(const gram_nums *nums, uint32_t id)
{
    return (const num_state *)(nums->states.at[id] + 1);
}

/* 0.d1d2... · 10^place */
static inline int32_t gram_num_place(const num_state *st)
{
    return st->nonzero == 2 ? (int32_t)st->n_whole : -(int32_t)st->leading;
}

/* --- gram_num_value.c: a state with an exponent ------------------------------------------------------------------- */

int gram_num_by_digits(const gram_forms *f, uint32_t a, uint32_t b);
/* The first constant of a sorted list whose digits are not less. */
uint32_t gram_num_find_digits(const gram_forms *f, const uint32_t *list, uint32_t n, uint32_t dec);
num_modulus gram_num_modulus_of(const gram_forms *f, gram_form atom);
/* n_moduli when the plan has not got it. */
uint32_t gram_num_modulus_index(const gram_nums *nums, const gram_num_plan *plan, gram_form atom);

/* How atoms about multiples are taken. */
typedef enum multiples { AS_THEY_ARE, ANY_ONE, ALL_MULTIPLES, NO_MULTIPLES } multiples;

gram_truth gram_num_evaluate(const gram_nums *nums, const num_state *st, int32_t exponent, gram_form x, multiples how);
/* The number that ends here, with this exponent, is one of the language. */
bool gram_num_is_good(const gram_nums *nums, const num_state *st, int32_t exponent);

/* --- gram_num.c: states ------------------------------------------------------------------------------------------- */

uint32_t gram_num_intern(gram_nums *nums, num_state *st);
/* False when the byte can't follow by form alone. */
bool gram_num_move(const gram_nums *nums, num_state *st, uint8_t byte);

/* --- gram_num_alive.c --------------------------------------------------------------------------------------------- */

/* It can still become a good number. */
bool gram_num_is_alive(gram_nums *nums, uint32_t id);

#endif
