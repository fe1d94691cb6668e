/* gram_num_value.c - what the atoms of formulas say of a number: the digits of a state, with an exponent. */
#include "grammar/gram_num_int.h"

int gram_num_by_digits(const gram_forms *f, uint32_t a, uint32_t b)
{
    const gram_dec *x = &f->dec[a];
    const gram_dec *y = &f->dec[b];
    const int order = memcmp(x->digits, y->digits, x->n < y->n ? x->n : y->n);
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

uint32_t gram_num_find_digits(const gram_forms *f, const uint32_t *list, uint32_t n, uint32_t dec)
{
    uint32_t from = 0;
    while (from < n) {
        const uint32_t middle = from + (n - from) / 2;
        if (gram_num_by_digits(f, list[middle], dec) < 0) {
            from = middle + 1;
        } else {
            n = middle;
        }
    }
    return from;
}

static int compare(const gram_nums *nums, const num_state *st, int32_t exponent, uint32_t dec)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    const gram_dec *d = &nums->forms->dec[dec];
    const int sign = st->negative != 0 ? -1 : 1;
    if (st->nonzero == 0) {
        return d->n == 0 ? 0 : d->negative ? 1 : -1;
    }
    if (d->n == 0 || d->negative != (st->negative != 0)) {
        return sign;
    }
    const int32_t place = gram_num_place(st) + exponent;
    if (place != d->place) {
        return place > d->place ? sign : -sign;
    }
    const uint32_t i = gram_num_find_digits(nums->forms, plan->decs, plan->n_decs, dec);
    if (i < st->low || i >= st->high) {
        return i < st->low ? sign : -sign;
    }
    return st->compared >= d->n ? 0 : -sign;
}

static bool is_multiple(const num_state *st, int32_t exponent, num_modulus m, uint32_t rest)
{
    const int32_t power = (int32_t)st->zeros - (int32_t)st->n_fraction + exponent + m.s;
    if (st->nonzero == 0 || power < 0) {
        return st->nonzero == 0;
    }
    uint64_t r = rest;
    for (int32_t i = 0; i < power && i < LAST_POWER && r != 0; i++) {
        r = r * 10 % m.c;
    }
    return r == 0;
}

num_modulus gram_num_modulus_of(const gram_forms *f, gram_form atom)
{
    if (gram_atom_kind(f, atom) == AT_INT) {
        return (num_modulus){1, 0};
    }
    const gram_dec *d = &f->dec[gram_atom_words(f, atom)[0]];
    num_modulus m = {0, (int32_t)d->n - d->place};
    for (uint32_t i = 0; i < d->n; i++) {
        m.c = m.c * 10 + d->digits[i];
    }
    return m;
}

uint32_t gram_num_modulus_index(const gram_nums *nums, const gram_num_plan *plan, gram_form atom)
{
    const num_modulus m = gram_num_modulus_of(nums->forms, atom);
    uint32_t i = 0;
    while (i < plan->n_moduli && (plan->moduli[i].c != m.c || plan->moduli[i].s != m.s)) {
        i++;
    }
    return i;
}

typedef struct asked {
    const gram_nums *nums;
    const num_state *st;
    int32_t exponent;
    multiples how;
} asked;

static gram_truth atom_truth(void *user, gram_form atom)
{
    const asked *about = user;
    const gram_forms *f = about->nums->forms;
    const gram_num_plan *plan = &about->nums->plans[about->st->plan];
    if (gram_atom_kind(f, atom) != AT_CMP) {
        const uint32_t i = gram_num_modulus_index(about->nums, plan, atom);
        if (about->how == ANY_ONE) {
            return GRAM_MAYBE;
        }
        const bool is = about->how == AS_THEY_ARE ? is_multiple(about->st, about->exponent, plan->moduli[i], about->st->rest[i])
                                                  : about->how == ALL_MULTIPLES;
        return is ? GRAM_SURE : GRAM_NO_WAY;
    }
    const uint32_t *w = gram_atom_words(f, atom);
    const int order = compare(about->nums, about->st, about->exponent, w[1]);
    const bool holds[] = {[GRAM_LESS] = order < 0, [GRAM_AT_MOST] = order <= 0, [GRAM_EQUAL] = order == 0,
                          [GRAM_AT_LEAST] = order >= 0, [GRAM_MORE] = order > 0};
    return holds[w[0]] ? GRAM_SURE : GRAM_NO_WAY;
}

gram_truth gram_num_evaluate(const gram_nums *nums, const num_state *st, int32_t exponent, gram_form x, multiples how)
{
    asked about = {nums, st, exponent, how};
    return gram_form_truth(nums->forms, x, atom_truth, &about);
}

bool gram_num_is_good(const gram_nums *nums, const num_state *st, int32_t exponent)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    const bool spelled = st->phase >= DOT;
    if (plan->plain && spelled && is_multiple(st, exponent, (num_modulus){1, 0}, 0)) {
        return false;
    }
    return gram_num_evaluate(nums, st, exponent, plan->goal, AS_THEY_ARE) == GRAM_SURE;
}
