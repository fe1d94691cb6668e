/* gram_num.c - see gram_num.h. */
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

void gram_nums_init(gram_nums *nums, gram_mem *mem, gram_forms *forms)
{
    *nums = (gram_nums){.mem = mem, .forms = forms};
}

static const num_state *state_at(const gram_nums *nums, uint32_t id) { return (const num_state *)(nums->states.at[id] + 1); }

/* --- The value of a state with an exponent ------------------------------------------------------------------------ */

/* 0.d1d2... · 10^place */
static int32_t place_of(const num_state *st)
{
    return st->nonzero == 2 ? (int32_t)st->n_whole : -(int32_t)st->leading;
}

static int by_digits(const gram_forms *f, uint32_t a, uint32_t b)
{
    const gram_dec *x = &f->dec[a];
    const gram_dec *y = &f->dec[b];
    const int order = memcmp(x->digits, y->digits, x->n < y->n ? x->n : y->n);
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* The first constant of a sorted list whose digits are not less. */
static uint32_t find_digits(const gram_forms *f, const uint32_t *list, uint32_t n, uint32_t dec)
{
    uint32_t from = 0;
    while (from < n) {
        const uint32_t middle = from + (n - from) / 2;
        if (by_digits(f, list[middle], dec) < 0) {
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
    const int32_t place = place_of(st) + exponent;
    if (place != d->place) {
        return place > d->place ? sign : -sign;
    }
    const uint32_t i = find_digits(nums->forms, plan->decs, plan->n_decs, dec);
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

static num_modulus modulus_of(const gram_forms *f, gram_form atom)
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

static uint32_t modulus_index(const gram_nums *nums, const gram_num_plan *plan, gram_form atom)
{
    const num_modulus m = modulus_of(nums->forms, atom);
    uint32_t i = 0;
    while (i < plan->n_moduli && (plan->moduli[i].c != m.c || plan->moduli[i].s != m.s)) {
        i++;
    }
    return i;
}

/* How atoms about multiples are taken. */
typedef enum multiples { AS_THEY_ARE, ANY_ONE, ALL_MULTIPLES, NO_MULTIPLES } multiples;

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
        const uint32_t i = modulus_index(about->nums, plan, atom);
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

static gram_truth evaluate(const gram_nums *nums, const num_state *st, int32_t exponent, gram_form x, multiples how)
{
    asked about = {nums, st, exponent, how};
    return gram_form_truth(nums->forms, x, atom_truth, &about);
}

/* The number that ends here, with this exponent, is one of the language. */
static bool is_good(const gram_nums *nums, const num_state *st, int32_t exponent)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    const bool spelled = st->phase >= DOT;
    if (plan->plain && spelled && is_multiple(st, exponent, (num_modulus){1, 0}, 0)) {
        return false;
    }
    return evaluate(nums, st, exponent, plan->goal, AS_THEY_ARE) == GRAM_SURE;
}

/* --- Plans -------------------------------------------------------------------------------------------------------- */

static void add_constant(gram_nums *nums, gram_num_plan *plan, uint32_t dec, uint32_t *list)
{
    const gram_dec *d = &nums->forms->dec[dec];
    if (d->n == 0) {
        return;
    }
    const int32_t fraction = (int32_t)d->n - d->place;
    if (d->place > (int32_t)plan->max_whole && d->place <= GRAM_MAX_DIGITS) {
        plan->max_whole = (uint32_t)d->place;
    }
    if (fraction > (int32_t)plan->max_fraction && fraction <= GRAM_MAX_DIGITS) {
        plan->max_fraction = (uint32_t)fraction;
    }
    uint32_t place = 0;
    while (place < plan->n_places && plan->places[place] != d->place) {
        place++;
    }
    if (place == plan->n_places) {
        plan->places[plan->n_places++] = d->place;
    }
    const uint32_t at = find_digits(nums->forms, list, plan->n_decs, dec);
    if (at < plan->n_decs && by_digits(nums->forms, list[at], dec) == 0) {
        return;
    }
    memmove(list + at + 1, list + at, (plan->n_decs - at) * sizeof *list);
    list[at] = dec;
    plan->n_decs++;
    (void)gram_spend(nums->mem, 1 + plan->n_decs / 16);
}

static void count_atom(void *user, gram_form atom)
{
    (void)atom;
    ++*(uint32_t *)user;
}

typedef struct gatherer {
    gram_nums *nums;
    gram_num_plan *plan;
    uint32_t *list;
} gatherer;

static void add_atom(void *user, gram_form atom)
{
    const gatherer *g = user;
    gram_nums *nums = g->nums;
    gram_num_plan *plan = g->plan;
    const gram_forms *f = nums->forms;
    const gram_atom kind = gram_atom_kind(f, atom);
    if (kind == AT_CMP) {
        add_constant(nums, plan, gram_atom_words(f, atom)[1], g->list);
        return;
    }
    plan->plain = plan->plain || (kind == AT_INT && !nums->integers_any);
    if (modulus_index(nums, plan, atom) < plan->n_moduli) {
        return;
    }
    if (plan->n_moduli == GRAM_MAX_MODULI) {
        gram_fail(nums->mem, DI_E_LIMIT, "the grammar is too complex: more than %d multiples for one number", GRAM_MAX_MODULI);
        return;
    }
    plan->moduli[plan->n_moduli++] = modulus_of(f, atom);
}

static gram_truth int_is_false(void *user, gram_form atom)
{
    return gram_atom_kind(user, atom) == AT_INT ? GRAM_NO_WAY : GRAM_MAYBE;
}

uint32_t gram_num_plan_of(gram_nums *nums, gram_form goal, const gram_form *observed, uint32_t n)
{
    gram_forms *f = nums->forms;
    gram_stack *work = &f->lang->work;
    const uint32_t base = work->n;
    (void)gram_push(nums->mem, work, goal);
    for (uint32_t i = 0; i < n; i++) {
        (void)gram_push(nums->mem, work, observed[i]);
    }
    bool is_new;
    const uint32_t id = gram_tuple(nums->mem, &nums->plan_keys, work->words + base, work->n - base, &is_new);
    work->n = base;
    if (!is_new) {
        return id;
    }
    gram_num_plan *plans = gram_grow(nums->mem, nums->plans, id, &nums->plan_capacity, sizeof *plans);
    uint32_t n_atoms = 0;
    gram_form_each_atom(f, goal, count_atom, &n_atoms);
    for (uint32_t i = 0; i < n; i++) {
        gram_form_each_atom(f, observed[i], count_atom, &n_atoms);
    }
    uint32_t *list = gram_alloc(nums->mem, n_atoms, sizeof *list);
    int32_t *places = gram_alloc(nums->mem, n_atoms, sizeof *places);
    if (plans == NULL || list == NULL || places == NULL) {
        return 0;
    }
    nums->plans = plans;
    gram_num_plan *plan = &plans[id];
    *plan = (gram_num_plan){.goal = goal, .observed = nums->plan_keys.at[id] + 2, .decs = list, .places = places, .max_whole = MAX_WHOLE,
                            .max_fraction = MAX_FRACTION};
    gatherer all = {nums, plan, list};
    gram_form_each_atom(f, goal, add_atom, &all);
    for (uint32_t i = 0; i < n; i++) {
        gram_form_each_atom(f, observed[i], add_atom, &all);
    }
    plan->only_ints = plan->plain && gram_form_truth(f, goal, int_is_false, f) == GRAM_NO_WAY;
    for (uint32_t i = 0; i < plan->n_moduli; i++) {
        plan->zeros = plan->zeros || !plan->only_ints || plan->moduli[i].c != 1 || plan->moduli[i].s != 0;
    }
    plan->zeros = plan->zeros || (plan->plain && !plan->only_ints);
    return id;
}

/* --- States ------------------------------------------------------------------------------------------------------- */

/* Forgets what makes no difference any more, so that equal situations are one state. */
static uint32_t intern(gram_nums *nums, num_state *st)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    if (st->low >= st->high) {
        st->compared = 0;
    }
    if (plan->n_decs == 0) {
        st->low = st->high = st->compared = st->leading = 0;
        if (!plan->zeros) {
            st->negative = st->exp = st->exp_negative = st->nonzero = 0;
        }
    }
    if (!plan->zeros) {
        st->zeros = 0;
    }
    bool is_new;
    const uint32_t id = gram_tuple(nums->mem, &nums->states, (const uint32_t *)st, STATE_WORDS, &is_new);
    if (is_new) {
        uint8_t *alive = gram_grow(nums->mem, nums->alive, id, &nums->alive_capacity, 1);
        if (alive == NULL) {
            return 0;
        }
        nums->alive = alive;
        alive[id] = UNKNOWN;
    }
    return id;
}

/* A digit of the mantissa that counts: all but the zeros in front. */
static void add_significant(const gram_nums *nums, num_state *st, uint32_t digit)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    const gram_forms *f = nums->forms;
    uint32_t low = st->low;
    uint32_t high = st->high;
    while (low < high) {
        const gram_dec *d = &f->dec[plan->decs[low]];
        if ((st->compared < d->n ? d->digits[st->compared] : 0) >= digit) {
            break;
        }
        low++;
    }
    while (low < high) {
        const gram_dec *d = &f->dec[plan->decs[high - 1]];
        if ((st->compared < d->n ? d->digits[st->compared] : 0) <= digit) {
            break;
        }
        high--;
    }
    st->low = low;
    st->high = high;
    st->compared++;
    if (digit == 0) {
        st->zeros++;
        return;
    }
    for (uint32_t i = 0; i < plan->n_moduli; i++) {
        uint64_t r = st->rest[i];
        for (uint32_t k = 0; k <= st->zeros && r != 0; k++) {
            r = r * 10 % plan->moduli[i].c;
        }
        st->rest[i] = (uint32_t)((r + digit) % plan->moduli[i].c);
    }
    st->zeros = 0;
}

static bool add_digit(const gram_nums *nums, num_state *st, uint32_t digit)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    switch ((num_phase)st->phase) {
    case START:
    case MINUS:
        st->phase = digit == 0 ? ZERO : WHOLE;
        st->n_whole = 1;
        break;
    case WHOLE:
        if (st->n_whole == plan->max_whole) {
            return false;
        }
        st->n_whole++;
        break;
    case DOT:
    case FRACTION:
        if (st->n_fraction == plan->max_fraction) {
            return false;
        }
        st->phase = FRACTION;
        st->n_fraction++;
        break;
    case EXP:
    case EXP_SIGN:
    case EXP_DIGITS:
        if (st->exp_digits == 3) {
            return false;
        }
        st->phase = EXP_DIGITS;
        st->exp_digits++;
        st->exp = st->exp * 10 + digit;
        return true;
    default:
        return false; /* nothing may follow a leading zero */
    }
    if (digit == 0 && st->nonzero == 0) {
        st->leading += st->phase == FRACTION;
        return true;
    }
    if (st->nonzero == 0) {
        st->nonzero = st->phase == WHOLE ? 2 : 1;
    }
    add_significant(nums, st, digit);
    return true;
}

/* False when the byte can't follow by form alone. */
static bool move(const gram_nums *nums, num_state *st, uint8_t byte)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    if (byte >= '0' && byte <= '9') {
        return add_digit(nums, st, byte - (uint32_t)'0');
    }
    if (byte == '-' && st->phase == START) {
        st->phase = MINUS;
        st->negative = 1;
        return true;
    }
    if ((byte == '-' || byte == '+') && st->phase == EXP) {
        st->phase = EXP_SIGN;
        st->exp_negative = byte == '-';
        return true;
    }
    const bool mantissa = st->phase == ZERO || st->phase == WHOLE || st->phase == FRACTION;
    if (!mantissa || plan->only_ints) {
        return false;
    }
    if (byte == '.' && st->phase != FRACTION) {
        st->phase = DOT;
        return true;
    }
    if (byte == 'e' || byte == 'E') {
        st->phase = EXP;
        return true;
    }
    return false;
}

/* --- Can it still become a good one? ------------------------------------------------------------------------------ */

/* Some exponent in [from, to] makes the number good, or with `how` might. The truth of every atom changes at few exponents only: where the
 * magnitude meets that of a constant, and where the number becomes a multiple. */
static bool good_exponent(const gram_nums *nums, const num_state *st, int32_t from, int32_t to, multiples how)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    num_state with = *st;
    with.phase = EXP_DIGITS;
    const int32_t place = place_of(st);
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
            if (how == AS_THEY_ARE ? is_good(nums, &with, e) : evaluate(nums, &with, e, plan->goal, how) != GRAM_NO_WAY) {
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

static bool is_alive(gram_nums *nums, uint32_t id);

static bool some_byte_alive(gram_nums *nums, const num_state *st)
{
    static const char bytes[] = "0512346789.-";
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
        num_state next = *st;
        if (move(nums, &next, (uint8_t)bytes[i]) && is_alive(nums, intern(nums, &next))) {
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
        good = is_good(nums, st, (int32_t)j);
    }
    return good;
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
    if (mantissa && (is_good(nums, st, 0) || (!plan->only_ints && good_exponent(nums, st, -MAX_EXPONENT, MAX_EXPONENT, AS_THEY_ARE)))) {
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

static bool is_alive(gram_nums *nums, uint32_t id)
{
    if (nums->alive[id] != UNKNOWN || !gram_spend(nums->mem, 4)) {
        return nums->alive[id] == ALIVE;
    }
    const num_state st = *state_at(nums, id);
    const bool alive = compute_alive(nums, &st);
    if (!gram_failed(nums->mem)) {
        nums->alive[id] = alive ? ALIVE : NOT_ALIVE;
    }
    return alive;
}

uint32_t gram_num_start(gram_nums *nums, uint32_t plan)
{
    num_state st = {.plan = plan, .phase = START, .high = nums->plans[plan].n_decs};
    const uint32_t id = intern(nums, &st);
    return !gram_failed(nums->mem) && is_alive(nums, id) ? id : GRAM_NONE;
}

uint32_t gram_num_step(gram_nums *nums, uint32_t state, uint8_t byte)
{
    num_state st = *state_at(nums, state);
    if (!move(nums, &st, byte)) {
        return GRAM_NONE;
    }
    const uint32_t id = intern(nums, &st);
    return !gram_failed(nums->mem) && is_alive(nums, id) ? id : GRAM_NONE;
}

static int32_t exponent_of(const num_state *st)
{
    return st->exp_negative != 0 ? -(int32_t)st->exp : (int32_t)st->exp;
}

bool gram_num_complete(gram_nums *nums, uint32_t state)
{
    const num_state *st = state_at(nums, state);
    const bool ends = st->phase == ZERO || st->phase == WHOLE || st->phase == FRACTION || st->phase == EXP_DIGITS;
    return ends && is_good(nums, st, exponent_of(st));
}

bool gram_num_observe(gram_nums *nums, uint32_t state, uint32_t i)
{
    const num_state *st = state_at(nums, state);
    return evaluate(nums, st, exponent_of(st), nums->plans[st->plan].observed[i], AS_THEY_ARE) == GRAM_SURE;
}

bool gram_num_only_ints(const gram_nums *nums, uint32_t plan) { return nums->plans[plan].only_ints; }
bool gram_num_has_multiples(const gram_nums *nums, uint32_t plan) { return nums->plans[plan].n_moduli != 0; }
