/* folder_clock.h - the clock by which records of folders expire, moved by the test. A header, because only tests that are linked with
 * --wrap=time may have it: the first line that the linker sees of __real_time is here. Any thread. */
#ifndef ENGINE_FOLDER_CLOCK_H
#define ENGINE_FOLDER_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

static atomic_llong folder_clock_ahead_s;

time_t __real_time(time_t *out);
time_t __wrap_time(time_t *out);

time_t __wrap_time(time_t *out)
{
    const time_t now = __real_time(NULL) + (time_t)atomic_load(&folder_clock_ahead_s);
    if (out != NULL) {
        *out = now;
    }
    return now;
}

static inline void folder_clock_pass(int64_t seconds) { atomic_fetch_add(&folder_clock_ahead_s, seconds); }

#endif
