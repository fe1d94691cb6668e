/* prompt.h - where the prompt of `generate` comes from and how it becomes token ids.
 *
 * Exactly one source: --prompt, --prompt-file, --prompt-ids, or standard input when it is no terminal. Text is encoded as it
 * stands: no BOS is put in front (--bos does), and role markers written in it are text (--special recognises them).
 * --chat makes one user message of it, answered without thinking; conversations are what `deepinfer chat` is for. */
#ifndef TOOLS_PROMPT_H
#define TOOLS_PROMPT_H

#include "options.h"

#include <deepinfer/model.h>

typedef struct cli_prompt_options {
    const char *text;
    const char *file; /* "-" = standard input */
    const char *ids;
    bool special;
    bool bos;
    bool chat;
} cli_prompt_options;

typedef struct cli_prompt {
    int32_t *ids; /* owned */
    size_t n;
} cli_prompt;

void cli_add_prompt(cli_parser *p, cli_prompt_options *o);

/* Checks that the options name one source; prints what is wrong and returns CLI_USAGE, else CLI_OK. */
int cli_check_prompt(const cli_parser *p, const cli_prompt_options *o);

/* Errors: DI_E_IO, DI_E_MEMORY, DI_E_LIMIT; DI_E_ARGUMENT for an empty prompt, an id list that is none, or text for a model
 * without tokenizer. */
di_status cli_read_prompt(const di_model *model, const cli_prompt_options *o, cli_prompt *out, di_error *err);
void cli_prompt_fini(cli_prompt *prompt);

#endif
