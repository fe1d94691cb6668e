/* gram_num_alive.c - whether the digits so far can still become a number that the formula accepts.
 *
 * Most states are decided by arithmetic; what is left is searched digit by digit, and kept. */
#include "grammar/gram_num_int.h"

#define ORDINARY 900 /* place of the first digit */

/* Some exponent in [from, to] makes the number good, or with `how` might. The truth of every atom changes at few exponents only: where the
 * magnitude meets that of a constant, and where the number becomes a multiple. */
static bool good_exponent(const gram_nums *nums, const num_state *st, int32_t from, int32_t to, multiples how)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    num_state with = *st;
    with.phase = EXP_DIGITS;
    const int32_t place = gram_num_place(st);
    const int32_t shift = (int32_t)st->n_fraction - (int32_t)st->zeros;
    for (uint32_t i = 0; i < plan->n_places + plan->n_moduli + 3; i++) {
        int32_t first = to;
        int32_t last = to;
        if (i < plan->n_places) {
            first = plan->places[i] - place - 1;
            last = first + 2;
        } else if (i < plan->n_places + plan->n_moduli) {
            first = shift - plan->moduli[i - plan->n_places].s - 1;
            last = first + LAST_POWER + 1;
        } else if (i == plan->n_places + plan->n_moduli) {
            first = last = from;
        } else if (i == plan->n_places + plan->n_moduli + 1) {
            first = shift - 1; /* where it becomes integral */
            last = shift;
        }
        for (int32_t e = first < from ? from : first; e <= last && e <= to; e++) {
            if (how == AS_THEY_ARE ? gram_num_is_good(nums, &with, e) : gram_num_evaluate(nums, &with, e, plan->goal, how) != GRAM_NO_WAY) {
                return true;
            }
        }
    }
    return false;
}

/* Whether an exponent that goes on from the digits there are makes the number good. */
static bool exponent_alive(const gram_nums *nums, const num_state *st)
{
    int32_t power = 1;
    for (uint32_t more = 0; st->exp_digits + more <= 3; more++, power *= 10) {
        const int32_t first = (int32_t)st->exp * power;
        const int32_t last = first + power - 1;
        if (st->exp_digits + more == 0) {
            continue;
        }
        if ((st->phase == EXP || st->exp_negative == 0) && good_exponent(nums, st, first, last, AS_THEY_ARE)) {
            return true;
        }
        if ((st->phase == EXP || st->exp_negative != 0) && good_exponent(nums, st, -last, -first, AS_THEY_ARE)) {
            return true;
        }
    }
    return false;
}

/* The one modulus that digits must be searched for, when it is too large to try them all; c = 0 when there is none, or several.
 * Where an integer is asked for besides, it is that of the integers among the multiples. */
static num_modulus large_modulus(const gram_num_plan *plan, uint32_t *which)
{
    num_modulus found = {0, 0};
    bool integers = false;
    for (uint32_t i = 0; i < plan->n_moduli; i++) {
        if (plan->moduli[i].c == 1 && plan->moduli[i].s == 0) {
            integers = true;
            continue;
        }
        if (found.c != 0 || plan->moduli[i].c < 64) {
            return (num_modulus){0, 0};
        }
        found = plan->moduli[i];
        *which = i;
    }
    if (plan->only_ints ? found.s < 0 : plan->plain) {
        return (num_modulus){0, 0};
    }
    for (; integers && found.s > 0 && found.c % 2 == 0; found.s--) {
        found.c /= 2; /* not by 10: the digits of a modulus have no zero at the end */
    }
    for (; integers && found.s > 0 && found.c % 5 == 0; found.s--) {
        found.c /= 5;
    }
    found.s = integers && found.s > 0 ? 0 : found.s;
    return found;
}

/* When comparisons depend on the magnitude alone any more: with j more digits the numbers made are a whole range, and it holds a
 * multiple when it is long enough. An exponent from `fits` on makes a multiple of c a multiple of c·10^-s. */
static bool reaches_multiple(gram_nums *nums, const num_state *st, uint32_t which, num_modulus m)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    const uint32_t whole = st->phase == WHOLE ? plan->max_whole - st->n_whole : 0;
    const uint32_t fraction = plan->only_ints ? 0 : plan->max_fraction - st->n_fraction;
    uint64_t remainder = st->rest[which] % m.c; /* of all digits so far */
    for (uint32_t i = 0; i < st->zeros && i < 64; i++) {
        remainder = remainder * 10 % m.c;
    }
    uint64_t range = 1;
    for (uint32_t j = 0; j <= whole + fraction && gram_spend(nums->mem, 4); j++) {
        num_state with = *st;
        with.n_whole += j > whole ? whole : j;
        with.n_fraction += j > whole ? j - whole : 0;
        const int32_t fits = (int32_t)with.n_fraction - m.s;
        const int32_t from = plan->only_ints || fits < -MAX_EXPONENT ? (plan->only_ints ? 0 : -MAX_EXPONENT) : fits;
        const int32_t to = plan->only_ints ? 0 : MAX_EXPONENT;
        const uint64_t missing = (m.c - remainder) % m.c;
        if (missing < range && (!plan->only_ints || fits <= 0) && from <= to && good_exponent(nums, &with, from, to, ALL_MULTIPLES)) {
            return true;
        }
        remainder = remainder * 10 % m.c;
        range = range < UINT64_MAX / 10 ? range * 10 : range;
    }
    return false;
}

static bool some_byte_alive(gram_nums *nums, const num_state *st)
{
    static const char bytes[] = "0512346789.-";
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
        num_state next = *st;
        if (gram_num_move(nums, &next, (uint8_t)bytes[i]) && gram_num_is_alive(nums, gram_num_intern(nums, &next))) {
            return true;
        }
    }
    return false;
}

/* More zeros before the point make the number larger, as an exponent would, which may not be allowed. */
static bool good_with_zeros(const gram_nums *nums, const num_state *st)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    bool good = false;
    for (uint32_t j = 1; !good && st->phase == WHOLE && j <= plan->max_whole - st->n_whole; j++) {
        good = gram_num_is_good(nums, st, (int32_t)j);
    }
    return good;
}

/* No constant has a magnitude that only the last exponents reach. */
static bool is_ordinary(const gram_num_plan *plan)
{
    bool ordinary = true;
    for (uint32_t i = 0; i < plan->n_places; i++) {
        ordinary = ordinary && plan->places[i] < ORDINARY && plan->places[i] > -ORDINARY;
    }
    return ordinary;
}

/* The same where nothing but integers is asked for besides comparisons. The number is one when its exponent puts all digits
 * before the point: every digit other than zero makes that harder, so what one more can't do, several can't. */
static gram_truth integers_alive(const gram_nums *nums, const num_state *st)
{
    num_state more = *st;
    more.phase = FRACTION;
    more.n_fraction++;
    more.zeros = 0;
    if (more.n_fraction > nums->plans[st->plan].max_fraction) {
        return GRAM_NO_WAY;
    }
    if (good_exponent(nums, &more, -MAX_EXPONENT, MAX_EXPONENT, AS_THEY_ARE)) {
        return GRAM_SURE;
    }
    return good_exponent(nums, &more, -MAX_EXPONENT, MAX_EXPONENT, NO_MULTIPLES) ? GRAM_MAYBE : GRAM_NO_WAY;
}

/* A mantissa whose digits decide all comparisons but for its magnitude, and that can get digits other than zero. */
static gram_truth decided_alive(gram_nums *nums, const num_state *st)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    if (!plan->zeros) {
        const bool good = plan->only_ints ? good_with_zeros(nums, st)
                                          : good_exponent(nums, st, -MAX_EXPONENT, MAX_EXPONENT, AS_THEY_ARE);
        return good ? GRAM_SURE : GRAM_NO_WAY;
    }
    const int32_t most = plan->only_ints ? (int32_t)(plan->max_whole - st->n_whole) : MAX_EXPONENT + (int32_t)plan->max_whole;
    if (!good_exponent(nums, st, plan->only_ints ? 0 : -MAX_EXPONENT, most, ANY_ONE)) {
        return GRAM_NO_WAY;
    }
    if (plan->n_moduli == 1 && plan->moduli[0].c == 1 && plan->moduli[0].s == 0 && !plan->plain && is_ordinary(plan)) {
        return integers_alive(nums, st);
    }
    uint32_t which = 0;
    const num_modulus large = large_modulus(plan, &which);
    if (large.c == 0) {
        return GRAM_MAYBE;
    }
    if (reaches_multiple(nums, st, which, large)) {
        return GRAM_SURE;
    }
    return good_exponent(nums, st, plan->only_ints ? 0 : -MAX_EXPONENT, most, NO_MULTIPLES) ? GRAM_MAYBE : GRAM_NO_WAY;
}

/* There are no more digits of constants to compare with. */
static bool is_past_digits(const gram_nums *nums, const num_state *st)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    for (uint32_t i = st->low; i < st->high; i++) {
        if (nums->forms->dec[plan->decs[i]].n > st->compared) {
            return false;
        }
    }
    return true;
}

static bool compute_alive(gram_nums *nums, const num_state *st)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    if (st->phase >= EXP) {
        return exponent_alive(nums, st);
    }
    const bool mantissa = st->phase == ZERO || st->phase == WHOLE || st->phase == FRACTION;
    if (mantissa && gram_num_is_good(nums, st, 0)) {
        return true;
    }
    if (mantissa && !plan->only_ints && good_exponent(nums, st, -MAX_EXPONENT, MAX_EXPONENT, AS_THEY_ARE)) {
        return true;
    }
    if (mantissa && st->nonzero != 0 && is_past_digits(nums, st)) {
        if (good_with_zeros(nums, st)) {
            return true;
        }
        num_state greater = *st; /* as a digit other than zero will make it */
        greater.low = greater.high;
        const gram_truth decided = decided_alive(nums, &greater);
        if (decided != GRAM_MAYBE) {
            return decided == GRAM_SURE;
        }
    }
    return some_byte_alive(nums, st);
}

bool gram_num_is_alive(gram_nums *nums, uint32_t id)
{
    if (nums->alive[id] != UNKNOWN || !gram_spend(nums->mem, 4)) {
        return nums->alive[id] == ALIVE;
    }
    const num_state st = *gram_num_state_at(nums, id);
    const bool alive = compute_alive(nums, &st);
    if (!gram_failed(nums->mem)) {
        nums->alive[id] = alive ? ALIVE : NOT_ALIVE;
    }
    return alive;
}
