/* output.h - what `generate` writes to standard output, token by token.
 *
 * For people: the text as it comes, flushed piece by piece, never half a character; ids when the model has no tokenizer.
 * For machines (--json), JSON lines: one object a token,
 *   {"choice":0,"index":0,"id":51,"text":"8","logprob":-0.01,"top":[{"id":51,"text":"8","logprob":-0.01}]}
 * ("text" may be empty while a character is unfinished; "logprob" and "top" with --logprobs), and one object a choice at its end,
 *   {"choice":0,"done":true,"finish":"stop","text":"...","ids":[...],"prompt_tokens":19, ... figures of the summary ...}
 * A stop token ends the text and is no part of it, but is listed as a token. Text that may become a stop string comes when it no
 * longer can; the last object names the one that ended the text ("stop_string"). */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include "core/core.h"

#include <deepinfer/engine.h>
#include <deepinfer/tokenizer.h>

typedef enum cli_finish { CLI_STOP, CLI_LENGTH, CLI_CONTEXT, CLI_CANCELLED } cli_finish;

/* Figures of one choice. */
typedef struct cli_figures {
    int64_t prompt_tokens;
    int64_t generated_tokens;
    double load_s;
    double prompt_s;      /* from the first forward pass to the logits of the prompt's last token */
    double first_token_s; /* the same, to the first token chosen */
    double generate_s;    /* from the first token chosen to the last */
    int64_t peak_bytes;   /* high-water mark of resident memory; 0 = unknown */
    const char *backend;
    int32_t n_threads;
} cli_figures;

typedef struct cli_output {
    const di_tokenizer *tokenizer; /* NULL = write ids */
    di_detokenizer *stream;        /* owned */
    di_stop *stop;                 /* owned; NULL without tokenizer */
    const char *const *stop_strings;
    bool json;
    bool logprobs;
    int64_t choice;
    int64_t n_choices;
    int64_t index; /* of the next token of this choice */
    buf text;      /* of this choice, for its last object */
    buf ids;
    buf line;
} cli_output;

di_status cli_output_init(cli_output *o, const di_tokenizer *tokenizer, bool json, bool logprobs, int64_t n_choices, di_error *err);

/* Strings that end the text, borrowed. Errors: those of di_stop_new, and DI_E_ARGUMENT without a tokenizer. */
di_status cli_output_stop_at(cli_output *o, const char *const *strings, size_t n, di_error *err);

void cli_output_fini(cli_output *o);

/* All return DI_E_IO when standard output takes no more. */
di_status cli_output_begin(cli_output *o, int64_t choice, di_error *err);
di_status cli_output_echo(cli_output *o, const int32_t *ids, size_t n, di_error *err); /* the prompt; no effect with --json */
di_status cli_output_token(cli_output *o, const di_sample *sample, di_error *err);
bool cli_output_stopped(const cli_output *o); /* a stop string is complete */
di_status cli_output_end(cli_output *o, cli_finish finish, const cli_figures *figures, di_error *err);

/* The summary for people, on standard error. */
void cli_print_figures(const cli_figures *figures);

/* Bytes of the process's resident high-water mark (VmHWM); 0 where the system does not say. */
int64_t cli_peak_bytes(void);

#endif
