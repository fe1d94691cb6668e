/* stage_clock.h - how long each stage of an engine takes, and so what a step costs outside them.
 *
 * stage_clock_start() puts a table in front of the engine's backend that reads the clock before and behind every stage;
 * stage_clock_stop() puts the old one back. One engine at a time, its thread only: stages know nothing but their
 * device, so what they count stands in static memory. Reading the clock takes about 50 ns a stage. */
#ifndef BENCH_STAGE_CLOCK_H
#define BENCH_STAGE_CLOCK_H

#include <deepinfer/engine.h>

#include <stdint.h>

void stage_clock_start(di_engine *engine);
void stage_clock_stop(di_engine *engine);

/* Time in all stages since the start. */
int64_t stage_clock_ns(void);

/* A line for each stage that ran, to standard error; n steps were measured. */
void stage_clock_print(int n_steps);

#endif
