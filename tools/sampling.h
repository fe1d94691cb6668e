/* sampling.h - how the next token is chosen, as options of the commands that generate. */
#ifndef TOOLS_SAMPLING_H
#define TOOLS_SAMPLING_H

#include "options.h"

#include <deepinfer/engine.h>

typedef struct cli_sampling {
    double temperature;
    double top_p;
    double min_p;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    int64_t top_k;
    int64_t seed;
} cli_sampling;

#define CLI_SAMPLING_DEFAULT {.top_p = 1, .repetition_penalty = 1} /* greedy */

void cli_add_sampling(cli_parser *p, cli_sampling *s);

/* di_sampling_default with what the options say. */
void cli_sampling_get(const cli_sampling *s, di_sampling *out);

#endif
