/* draft.c - see draft.h. */
#include "draft.h"

#include "tools.h"

#include "core/err.h"

#include <string.h>

static const char *const rules[] = {[DI_VERIFY_COUPLED] = "coupled", [DI_VERIFY_BLOCK] = "block", [DI_VERIFY_REJECTION] = "rejection"};
enum { N_RULES = sizeof rules / sizeof rules[0] };

void cli_add_draft(cli_parser *p, cli_draft *d, bool seeded)
{
    cli_add_string(p, "draft", "WHAT", &d->draft,
                   "off, fixed:K = K drafts of the draft model a step, or auto = as many as pay; what texts come is unchanged (off)");
    cli_add_string(p, "verify", "HOW", &d->verify,
                   seeded ? "of drafts when sampling: coupled = the text is that without drafts; block and rejection keep more (coupled)"
                          : "of drafts when sampling without a seed: block, rejection, or coupled: texts follow from seeds alone (block)");
}

/* Drafts a step: 0 = off, or as the scheduler chooses; -1 = not understood. */
static int32_t tokens_of(const char *text)
{
    static const char fixed[] = "fixed:";
    const size_t n = sizeof fixed - 1;
    if (text == NULL || strcmp(text, "off") == 0 || strcmp(text, "auto") == 0) {
        return 0;
    }
    const bool one_digit = strncmp(text, fixed, n) == 0 && text[n] >= '1' && text[n] <= '9' && text[n + 1] == '\0';
    return one_digit ? text[n] - '0' : -1;
}

static int rule_of(const char *text)
{
    int i = 0;
    while (i < N_RULES && strcmp(text, rules[i]) != 0) {
        i++;
    }
    return i;
}

int cli_check_draft(const cli_parser *p, const cli_draft *d)
{
    if (tokens_of(d->draft) < 0) {
        return cli_usage(p, "--draft: '%s' is neither off, auto nor fixed:K with K from 1 to 9", d->draft);
    }
    if (d->verify != NULL && rule_of(d->verify) == N_RULES) {
        return cli_usage(p, "--verify: '%s' is neither block, rejection nor coupled", d->verify);
    }
    return CLI_OK;
}

di_status cli_find_draft(const cli_draft *d, const di_model *model, di_error *err)
{
    di_model_info info;
    di_model_get_info(model, &info);
    return info.n_draft_layers > 0 || !cli_draft_on(d)
               ? DI_OK
               : err_set(err, DI_E_UNSUPPORTED, "--draft %s: this model has no draft layers (num_nextn_predict_layers is 0)", d->draft);
}

bool cli_draft_auto(const cli_draft *d) { return d->draft != NULL && strcmp(d->draft, "auto") == 0; }
int32_t cli_draft_tokens(const cli_draft *d) { return tokens_of(d->draft); }
bool cli_draft_on(const cli_draft *d) { return cli_draft_auto(d) || cli_draft_tokens(d) > 0; }
di_verify cli_draft_verify(const cli_draft *d, di_verify unsaid) { return d->verify != NULL ? (di_verify)rule_of(d->verify) : unsaid; }
