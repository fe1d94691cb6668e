/* clock.h - time for measurements. */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t clock_now_ns(void);

#endif
