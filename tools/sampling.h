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
    cli_list logit_bias; /* "ID=BIAS" */
    di_logit_bias bias[CLI_MAX_LIST]; /* [logit_bias.n] once cli_check_sampling has read them */
} cli_sampling;

#define CLI_SAMPLING_DEFAULT {.top_p = 1, .repetition_penalty = 1} /* greedy */

void cli_add_sampling(cli_parser *p, cli_sampling *s);

/* Reads the biases; prints what is wrong and returns CLI_USAGE, else CLI_OK. */
int cli_check_sampling(const cli_parser *p, cli_sampling *s);

/* di_sampling_default with what the options say; the biases are borrowed from s. */
void cli_sampling_get(const cli_sampling *s, di_sampling *out);

#endif
