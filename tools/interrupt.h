/* interrupt.h - Ctrl-C without a handler: SIGINT is blocked in every thread and asked for between steps, so that nothing runs at a
 * bad moment and there is no global. Process-wide like the signal itself; call from the main thread. */
#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include <stdbool.h>

/* Worker threads inherit the mask of the thread that makes them: block before an engine is opened. */
void cli_block_interrupt(bool block);

/* True when SIGINT came since the last call. */
bool cli_take_interrupt(void);

#endif
