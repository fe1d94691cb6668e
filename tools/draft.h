/* draft.h - options about drafts: --draft off|fixed:K|auto and --verify block|rejection|coupled. */
#ifndef TOOLS_DRAFT_H
#define TOOLS_DRAFT_H

#include "options.h"

#include <deepinfer/scheduler.h>

typedef struct cli_draft {
    const char *draft;  /* as they were given; NULL = not */
    const char *verify;
} cli_draft;

/* seeded: the command has a seed in any case. */
void cli_add_draft(cli_parser *p, cli_draft *d, bool seeded);
/* CLI_OK, or a message and CLI_USAGE. */
int cli_check_draft(const cli_parser *p, const cli_draft *d);
/* Drafts that are asked for need a draft model. Errors: DI_E_UNSUPPORTED. */
di_status cli_find_draft(const cli_draft *d, const di_model *model, di_error *err);
/* What was asked for; it has been checked. */
bool cli_draft_on(const cli_draft *d);
int32_t cli_draft_tokens(const cli_draft *d); /* of di_scheduler_options; 0 = all there are */
bool cli_draft_auto(const cli_draft *d);
di_verify cli_draft_verify(const cli_draft *d, di_verify unsaid);

#endif
