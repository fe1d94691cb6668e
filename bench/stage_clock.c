/* stage_clock.c - see stage_clock.h. */
#include "stage_clock.h"

#include "core/clock.h"
#include "engine/engine_int.h"
#include "model/model_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Name, and the rows it worked on: moving rows together is no work on any. */
#define STAGES(X)                                                                                                      \
    X(embed, a->n_rows)                                                                                                \
    X(seam_open, a->n_rows)                                                                                            \
    X(seam_close, a->n_rows)                                                                                           \
    X(engram, a->n_rows)                                                                                               \
    X(attn_in, a->n_rows)                                                                                              \
    X(compress, a->n_rows)                                                                                             \
    X(query, a->n_rows)                                                                                                \
    X(index, a->n_rows)                                                                                                \
    X(attend, a->n_rows)                                                                                               \
    X(window_store, rows_of(a->seqs, a->n_seqs))                                                                       \
    X(attn_out, a->n_rows)                                                                                             \
    X(router, a->n_rows)                                                                                               \
    X(experts, a->n_rows)                                                                                              \
    X(head, a->n_rows)                                                                                                 \
    X(keep_rows, 0)

#define NUMBER(name, rows) STAGE_##name,
enum { STAGES(NUMBER) N_STAGES };
_Static_assert((int)N_STAGES == (int)STAGE_CLOCK_STAGES, "a place for each stage");

static const ops_backend *real;
static ops_backend timed;
static stage_cells cells;
static int n_layers;
static int n_seams; /* of the running pass */
static bool waits;

static int64_t rows_of(const ops_seq *seqs, int32_t n)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < n; i++) {
        rows += seqs[i].n_rows;
    }
    return rows;
}

/* Each layer opens two seams; the one behind the last belongs to the head. What comes before the first is no layer's either. */
static int layer_of(int seam)
{
    return seam > 0 && seam <= 2 * n_layers ? (seam - 1) / 2 : n_layers;
}

static int64_t seam_of(int stage)
{
    n_seams = stage == STAGE_embed ? 0 : stage == STAGE_seam_open ? n_seams + 1 : n_seams;
    return layer_of(n_seams);
}

#define TIMED(name, n)                                                                                                 \
    static void timed_##name(ops_device *dev, const ops_##name##_args *a)                                              \
    {                                                                                                                  \
        const int64_t layer = seam_of(STAGE_##name);                                                                   \
        const int64_t start = clock_now_ns();                                                                          \
        real->name(dev, a);                                                                                            \
        if (waits) {                                                                                                   \
            (void)real->sync(dev, NULL); /* the pass's own sync says what went wrong */                                \
        }                                                                                                              \
        cells.ns[STAGE_##name][layer] += clock_now_ns() - start;                                                       \
        cells.rows[STAGE_##name][layer] += n;                                                                          \
    }
STAGES(TIMED)

void stage_clock_start(di_engine *engine)
{
    real = engine->backend;
    timed = *real;
    memset(&cells, 0, sizeof cells);
    n_layers = engine->c->n_layers;
#define REPLACE(name, rows) timed.name = timed_##name;
    STAGES(REPLACE)
    if (waits) {
        timed.step_begin = NULL; /* a pass that is recorded can't wait inside */
    }
    engine->runner->ops = &timed;
}

void stage_clock_waits(bool on) { waits = on; }

void stage_clock_stop(di_engine *engine) { engine->runner->ops = real; }

static int64_t spent_ns(int stage)
{
    int64_t sum = 0;
    for (int i = 0; i <= n_layers; i++) {
        sum += cells.ns[stage][i];
    }
    return sum;
}

int64_t stage_clock_ns(void)
{
    int64_t sum = 0;
    for (int i = 0; i < N_STAGES; i++) {
        sum += spent_ns(i);
    }
    return sum;
}

void stage_clock_cells(stage_cells *out) { *out = cells; }

double stage_clock_predict(const stage_cells *full, const stage_cells *part)
{
    double ns = 0.0;
    for (int s = 0; s < N_STAGES; s++) {
        for (int l = 0; l <= n_layers; l++) {
            ns += full->rows[s][l] > 0 ? (double)full->ns[s][l] * (double)part->rows[s][l] / (double)full->rows[s][l] : 0.0;
        }
    }
    return ns;
}

void stage_clock_print(int n_steps)
{
#define NAME(name, rows) #name,
    static const char *const NAMES[N_STAGES] = {STAGES(NAME)};
    for (int i = 0; i < N_STAGES; i++) {
        if (spent_ns(i) != 0) {
            fprintf(stderr, "    %-12s %9.3f ms a step\n", NAMES[i], (double)spent_ns(i) * 1e-6 / n_steps);
        }
    }
}
