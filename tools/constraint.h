/* constraint.h - output that is held to a form, as options of the commands that generate. */
#ifndef TOOLS_CONSTRAINT_H
#define TOOLS_CONSTRAINT_H

#include "options.h"

#include <deepinfer/engine.h>
#include <deepinfer/grammar.h>

typedef struct cli_constraint {
    const char *schema;  /* files */
    const char *grammar_file;
    const char *regex;
    /* all owned; NULL = free output */
    di_grammar *grammar;
    di_vocabulary *vocabulary;
    di_matcher *matcher; /* of the output that is being generated */
    uint32_t *mask;
} cli_constraint;

void cli_add_constraint(cli_parser *p, cli_constraint *c);

/* Prints what is wrong and returns CLI_USAGE, else CLI_OK. */
int cli_check_constraint(const cli_parser *p, const cli_constraint *c);

/* Compiles. Nothing happens, here and below, when no option asks for a form. */
di_status cli_constraint_open(cli_constraint *c, const di_model *model, di_error *err);
void cli_constraint_close(cli_constraint *c);

/* Another output begins. */
di_status cli_constraint_begin(cli_constraint *c, di_error *err);

/* Chooses the next token of the sequence under the form: behind its end that is the model's end token. */
di_status cli_constraint_sample(cli_constraint *c, di_sequence *sequence, di_sample *out, di_error *err);

#endif
