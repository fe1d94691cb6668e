/* srv_limit.h - how much one key may ask for: requests a minute and requests at a time.
 *
 * The rate is a token bucket that holds a minute's requests, kept as one number: the time at which it will be full again (the generic
 * cell rate algorithm of ATM networks). Times are CLOCK_MONOTONIC, so setting the clock moves nothing. Any thread, no lock. */
#ifndef SERVER_SRV_LIMIT_H
#define SERVER_SRV_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct srv_limit {
    int32_t rate;        /* requests a minute; 0 = no limit */
    int32_t concurrency; /* requests at a time; 0 = no limit */
    _Atomic int64_t full_at;
    _Atomic int32_t running;
} srv_limit;

typedef enum srv_verdict { SRV_ADMITTED, SRV_TOO_MANY, SRV_TOO_FAST } srv_verdict;

/* Counts a request in, or says why not and after how many seconds to try again. Who was admitted leaves later. */
srv_verdict srv_limit_enter(srv_limit *limit, int64_t now, int32_t *retry_after_s);
void srv_limit_leave(srv_limit *limit);

#endif
