/* gram_num.c - the states of numbers, digit by digit; see gram_num.h. */
#include "grammar/gram_num_int.h"

void gram_nums_init(gram_nums *nums, gram_mem *mem, gram_forms *forms)
{
    *nums = (gram_nums){.mem = mem, .forms = forms};
}

/* Forgets what makes no difference any more, so that equal situations are one state. */
uint32_t gram_num_intern(gram_nums *nums, num_state *st)
{
    const gram_num_plan *plan = &nums->plans[st->plan];
    if (st->low >= st->high) {
        st->compared = 0;
    }
    if (plan->n_decs == 0) {
        st->low = st->high = st->compared = st->leading = 0;
        if (!plan->zeros) {
            st->exp = st->exp_negative = 0;
            st->negative = plan->signs ? st->negative : 0;
            st->nonzero = plan->signs ? st->nonzero : 0;
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

bool gram_num_move(const gram_nums *nums, num_state *st, uint8_t byte)
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

/* --- Use ---------------------------------------------------------------------------------------------------------- */

uint32_t gram_num_start(gram_nums *nums, uint32_t plan)
{
    num_state st = {.plan = plan, .phase = START, .high = nums->plans[plan].n_decs};
    const uint32_t id = gram_num_intern(nums, &st);
    return !gram_failed(nums->mem) && gram_num_is_alive(nums, id) ? id : GRAM_NONE;
}

uint32_t gram_num_step(gram_nums *nums, uint32_t state, uint8_t byte)
{
    num_state st = *gram_num_state_at(nums, state);
    if (!gram_num_move(nums, &st, byte)) {
        return GRAM_NONE;
    }
    const uint32_t id = gram_num_intern(nums, &st);
    return !gram_failed(nums->mem) && gram_num_is_alive(nums, id) ? id : GRAM_NONE;
}

static int32_t exponent_of(const num_state *st)
{
    return st->exp_negative != 0 ? -(int32_t)st->exp : (int32_t)st->exp;
}

bool gram_num_complete(gram_nums *nums, uint32_t state)
{
    const num_state *st = gram_num_state_at(nums, state);
    const bool ends = st->phase == ZERO || st->phase == WHOLE || st->phase == FRACTION || st->phase == EXP_DIGITS;
    return ends && gram_num_is_good(nums, st, exponent_of(st));
}

bool gram_num_observe(gram_nums *nums, uint32_t state, uint32_t i)
{
    const num_state *st = gram_num_state_at(nums, state);
    return gram_num_evaluate(nums, st, exponent_of(st), nums->plans[st->plan].observed[i], AS_THEY_ARE) == GRAM_SURE;
}
