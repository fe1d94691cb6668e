/* stage_clock.c - see stage_clock.h. */
#include "stage_clock.h"

#include "core/clock.h"
#include "engine/engine_int.h"
#include "model/model_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STAGES(X)                                                                                                      \
    X(embed)                                                                                                           \
    X(seam_open)                                                                                                       \
    X(seam_close)                                                                                                      \
    X(engram)                                                                                                          \
    X(attn_in)                                                                                                         \
    X(compress)                                                                                                        \
    X(query)                                                                                                           \
    X(index)                                                                                                           \
    X(attend)                                                                                                          \
    X(window_store)                                                                                                    \
    X(attn_out)                                                                                                        \
    X(router)                                                                                                          \
    X(experts)                                                                                                         \
    X(head)                                                                                                            \
    X(keep_rows)

#define NUMBER(name) STAGE_##name,
enum { STAGES(NUMBER) N_STAGES };

static const ops_backend *real;
static ops_backend timed;
static int64_t spent_ns[N_STAGES];

#define TIMED(name)                                                                                                    \
    static void timed_##name(ops_device *dev, const ops_##name##_args *a)                                              \
    {                                                                                                                  \
        const int64_t start = clock_now_ns();                                                                          \
        real->name(dev, a);                                                                                            \
        spent_ns[STAGE_##name] += clock_now_ns() - start;                                                              \
    }
STAGES(TIMED)

void stage_clock_start(di_engine *engine)
{
    real = engine->backend;
    timed = *real;
    memset(spent_ns, 0, sizeof spent_ns);
#define REPLACE(name) timed.name = timed_##name;
    STAGES(REPLACE)
    engine->runner->ops = &timed;
}

void stage_clock_stop(di_engine *engine) { engine->runner->ops = real; }

int64_t stage_clock_ns(void)
{
    int64_t sum = 0;
    for (int i = 0; i < N_STAGES; i++) {
        sum += spent_ns[i];
    }
    return sum;
}

void stage_clock_print(int n_steps)
{
#define NAME(name) #name,
    static const char *const NAMES[N_STAGES] = {STAGES(NAME)};
    for (int i = 0; i < N_STAGES; i++) {
        if (spent_ns[i] != 0) {
            fprintf(stderr, "    %-12s %9.3f ms a step\n", NAMES[i], (double)spent_ns[i] * 1e-6 / n_steps);
        }
    }
}
