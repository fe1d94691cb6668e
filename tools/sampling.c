/* sampling.c - see sampling.h. */
#include "sampling.h"

#include "tools.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_BIAS 100

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
    cli_add_list(p, "logit-bias", "ID=BIAS", &s->logit_bias, "makes a token likelier or, down to -100, impossible; may be repeated");
}

static bool read_bias(const char *text, di_logit_bias *out)
{
    char *end = NULL;
    errno = 0;
    const long long id = strtoll(text, &end, 10);
    if (end == text || *end != '=' || errno != 0 || id < 0 || id > INT32_MAX) {
        return false;
    }
    const char *const number = end + 1;
    const double bias = strtod(number, &end);
    *out = (di_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    return end != number && *end == '\0' && bias >= -MAX_BIAS && bias <= MAX_BIAS;
}

int cli_check_sampling(const cli_parser *p, cli_sampling *s)
{
    for (size_t i = 0; i < s->logit_bias.n; i++) {
        if (!read_bias(s->logit_bias.items[i], &s->bias[i])) {
            return cli_usage(p, "--logit-bias: '%s' is not ID=BIAS with a token id and a number from -%d to %d", s->logit_bias.items[i],
                             MAX_BIAS, MAX_BIAS);
        }
    }
    return CLI_OK;
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
    out->bias = s->logit_bias.n > 0 ? s->bias : NULL;
    out->n_bias = s->logit_bias.n;
}
