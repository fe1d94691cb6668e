/* stage_clock.h - how long each stage of an engine takes, and so what a step costs outside them.
 *
 * stage_clock_start() puts a table in front of the engine's backend that reads the clock before and behind every stage;
 * stage_clock_stop() puts the old one back. One engine at a time, its thread only: stages know nothing but their
 * device, so what they count stands in static memory. Reading the clock takes about 50 ns a stage. */
#ifndef BENCH_STAGE_CLOCK_H
#define BENCH_STAGE_CLOCK_H

#include "model/mdl_config.h"

#include <deepinfer/engine.h>

#include <stdbool.h>
#include <stdint.h>

void stage_clock_start(di_engine *engine);
void stage_clock_stop(di_engine *engine);

/* Each stage is waited for before the clock is read again: for backends that work beside the host. From the next start on. */
void stage_clock_waits(bool on);

/* Time in all stages since the start. */
int64_t stage_clock_ns(void);

enum { STAGE_CLOCK_STAGES = 15 };

/* What each stage took in each layer since the start, and how many rows; what is no layer's stands behind the last one. */
typedef struct stage_cells {
    int64_t ns[STAGE_CLOCK_STAGES][MDL_MAX_LAYERS + 1];
    int64_t rows[STAGE_CLOCK_STAGES][MDL_MAX_LAYERS + 1];
} stage_cells;

void stage_clock_cells(stage_cells *out);

/* What the rows of `part` would take at the times a row of `full`, which has a row wherever `part` has one. */
double stage_clock_predict(const stage_cells *full, const stage_cells *part);

/* A line for each stage that ran, to standard error; n steps were measured. */
void stage_clock_print(int n_steps);

#endif
