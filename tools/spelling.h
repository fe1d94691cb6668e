/* spelling.h - did you mean: the nearest of some names to a misspelt one. */
#ifndef TOOLS_SPELLING_H
#define TOOLS_SPELLING_H

#include <deepinfer/base.h>

typedef struct cli_nearest {
    const char *wanted;
    const char *name; /* the nearest so far, borrowed; NULL = none is near */
    size_t distance;
} cli_nearest;

void cli_nearest_init(cli_nearest *n, const char *wanted);
void cli_nearest_try(cli_nearest *n, const char *name);

#endif
