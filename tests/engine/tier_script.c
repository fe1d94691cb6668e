/* tier_script.c - see tier_script.h. Three of four scripts begin like an earlier one of their group; long ones all begin like the first. */
#include "engine/tier_script.h"

#include "support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { LONG_SHARED = 1300, LONG_MOST = 1450, LONG_STEP = 10 };

static size_t below(uint64_t *seed, size_t n) { return (size_t)(unit_random(seed) % n); }

void script_fill(script *s, size_t n, int32_t vocab_size, uint64_t *seed)
{
    s->n = n;
    s->prompt = calloc(n, sizeof *s->prompt);
    assert_non_null(s->prompt);
    for (size_t i = 0; i < n; i++) {
        s->prompt[i] = (int32_t)below(seed, (size_t)vocab_size);
    }
}

void script_write(script *scripts, const crowd_plan *plan, size_t i, int32_t vocab_size, uint64_t *seed)
{
    static const char *const tenants[] = {"a", "a", "a", "b"};
    script *const s = &scripts[i];
    const bool is_long = i < plan->n_long;
    const size_t from = is_long || plan->group == 0 ? 0 : i / plan->group * plan->group;
    const script *const other = &scripts[is_long ? 0 : from + below(seed, i + 1 - from)];
    const size_t most = other == s ? 0 : is_long ? LONG_SHARED : below(seed, 4) == 0 ? 0 : SIZE_MAX;
    script_fill(s, is_long ? LONG_MOST - LONG_STEP * i : plan->least + below(seed, plan->most - plan->least + 1), vocab_size, seed);
    const size_t both = other->n < s->n ? other->n : s->n;
    memcpy(s->prompt, other->prompt, (both < most ? both : most) * sizeof *s->prompt);
    s->tenant = is_long ? "a" : tenants[below(seed, 4)];
    di_sampling_default(&s->sampling);
    s->sampling.temperature = below(seed, 2) == 0 ? 0.0f : 1.0f;
    s->sampling.seed = unit_random(seed);
}
