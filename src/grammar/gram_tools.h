/* gram_tools.h - tool calls in the model's own form (deepinfer/grammar.h has it) as a general grammar. */
#ifndef GRAMMAR_GRAM_TOOLS_H
#define GRAMMAR_GRAM_TOOLS_H

#include "grammar/gram_ebnf.h"

/* The number of the rule to start from. `answer` is the constraint of answers, NULL = free text. */
uint32_t gram_tools(gram_source *s, const di_grammar_tools *tools, gram_part *answer);

#endif
