/* gram_compile.h - between gram_compile.c (options, limits, life) and gram_compile_kind.c (what each kind of
 * constraint becomes). */
#ifndef GRAMMAR_GRAM_COMPILE_H
#define GRAMMAR_GRAM_COMPILE_H

#include "grammar/gram_ebnf.h"
#include "grammar/gram_grammar.h"

#define GRAM_MAX_TOOLS 1024

typedef struct gram_compiler {
    di_grammar *g;
    const di_grammar_options *options;
} gram_compiler;

typedef struct gram_constraint {
    di_grammar_kind kind;
    const char *text;
    size_t n;
} gram_constraint;

/* Both set the machine's start. */
void gram_compile_text(gram_compiler *c, const gram_constraint *constraint);
void gram_compile_tools(gram_compiler *c, const di_grammar_tools *tools);

#endif
