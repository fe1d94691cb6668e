/* sampling.c - see sampling.h. */
#include "sampling.h"

void cli_add_sampling(cli_parser *p, cli_sampling *s)
{
    cli_add_real(p, "temperature", "T", &s->temperature, 0, 100, "0 = always the likeliest token (default)");
    cli_add_int(p, "seed", "N", &s->seed, 0, INT64_MAX, "the same seed gives the same text (0)");
    cli_add_real(p, "top-p", "P", &s->top_p, 0, 1, "least set of tokens with this much probability; 1 = off");
    cli_add_int(p, "top-k", "K", &s->top_k, 0, INT32_MAX, "the K likeliest tokens; 0 = off");
    cli_add_real(p, "min-p", "P", &s->min_p, 0, 1, "tokens at least P times as likely as the likeliest; 0 = off");
    cli_add_real(p, "repetition-penalty", "X", &s->repetition_penalty, 0.01, 100, "over tokens of prompt and output; 1 = off");
    cli_add_real(p, "presence-penalty", "X", &s->presence_penalty, -2, 2, "once for a token in the output; 0 = off");
    cli_add_real(p, "frequency-penalty", "X", &s->frequency_penalty, -2, 2, "for each time it is there; 0 = off");
}

void cli_sampling_get(const cli_sampling *s, di_sampling *out)
{
    di_sampling_default(out);
    out->temperature = (float)s->temperature;
    out->top_p = (float)s->top_p;
    out->min_p = (float)s->min_p;
    out->top_k = (int32_t)s->top_k;
    out->repetition_penalty = (float)s->repetition_penalty;
    out->presence_penalty = (float)s->presence_penalty;
    out->frequency_penalty = (float)s->frequency_penalty;
    out->seed = (uint64_t)s->seed;
}
