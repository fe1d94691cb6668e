/* draft_run.h - one output with drafts: a scheduler of its own over the engine, tokens shown as they come, figures of the drafts behind. */
#ifndef TOOLS_DRAFT_RUN_H
#define TOOLS_DRAFT_RUN_H

#include "draft.h"
#include "output.h"

typedef struct cli_draft_run cli_draft_run;

/* `vocabulary` belongs to the grammar of tasks, NULL = they have none. All are borrowed. Errors: those of di_scheduler_new. */
di_status cli_draft_run_new(di_engine *engine, const cli_draft *draft, di_vocabulary *vocabulary, cli_output *output, cli_draft_run **out,
                            di_error *err);
void cli_draft_run_free(cli_draft_run *run); /* NULL is ignored */

/* Generates one output to its end, a stop string or an interrupt (*interrupted). Fills what the figures say of prompt and tokens. */
di_status cli_draft_run_task(cli_draft_run *run, const di_task_options *task, cli_figures *figures, cli_finish *finish, bool *interrupted,
                             di_error *err);

/* Acceptance by place, tokens a step, what drafts cost: for people on standard error, or as one JSON line on standard output. */
di_status cli_draft_run_report(const cli_draft_run *run, bool json, di_error *err);

#endif
