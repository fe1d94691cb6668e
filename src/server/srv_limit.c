/* srv_limit.c - see srv_limit.h. */
#include "server/srv_limit.h"

#define SECOND_NS INT64_C(1000000000)
#define MINUTE_NS (60 * SECOND_NS)

/* The bucket may be empty for a minute at most: a request fits when it is full again no later than that. */
static bool take_token(srv_limit *limit, int64_t now, int32_t *retry_after_s)
{
    const int64_t interval = MINUTE_NS / limit->rate;
    int64_t old = atomic_load_explicit(&limit->full_at, memory_order_relaxed);
    for (;;) {
        const int64_t from = old > now ? old : now;
        if (from + interval > now + MINUTE_NS) {
            *retry_after_s = (int32_t)((from + interval - now - MINUTE_NS + SECOND_NS - 1) / SECOND_NS);
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(&limit->full_at, &old, from + interval, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            return true;
        }
    }
}

srv_verdict srv_limit_enter(srv_limit *limit, int64_t now, int32_t *retry_after_s)
{
    const int32_t before = atomic_fetch_add_explicit(&limit->running, 1, memory_order_relaxed);
    if (limit->concurrency > 0 && before >= limit->concurrency) {
        atomic_fetch_sub_explicit(&limit->running, 1, memory_order_relaxed);
        *retry_after_s = 1;
        return SRV_TOO_MANY;
    }
    if (limit->rate > 0 && !take_token(limit, now, retry_after_s)) {
        atomic_fetch_sub_explicit(&limit->running, 1, memory_order_relaxed);
        return SRV_TOO_FAST;
    }
    return SRV_ADMITTED;
}

void srv_limit_leave(srv_limit *limit)
{
    atomic_fetch_sub_explicit(&limit->running, 1, memory_order_relaxed);
}
