/* gram_tools.h - tool calls in the model's own form (deepinfer/grammar.h has it) as a general grammar. */
#ifndef GRAMMAR_GRAM_TOOLS_H
#define GRAMMAR_GRAM_TOOLS_H

#include "grammar/gram_ebnf.h"

/* The number of the rule to start from. `answer` is the constraint of answers, NULL = free text. */
uint32_t gram_tools(gram_source *s, const di_grammar_tools *tools, gram_part *answer);

/* --- Inside of gram_tools*.c ---------------------------------------------------------------------------------------- */

typedef struct gram_tool_param {
    uint32_t rule; /* name, value and the end of the value */
    bool required;
} gram_tool_param;

typedef struct gram_tool {
    gram_tool_param *params; /* [n], strict only */
    uint32_t n;
} gram_tool;

typedef struct gram_toolbox {
    gram_source *s;
    gram_cfg *g;
    gram_lang *l;
    const di_grammar_tools *given; /* while compiling only */
    gram_tool *list;
    uint32_t n_tools;
    gram_tuples laters;  /* tool, whether names follow or another parameter may, bits of parameters that were there */
    uint32_t *later_nts; /* [laters.n] + 1 */
    uint32_t later_capacity;
    gram_sym token;      /* these: what unfolded rules are made of */
    gram_sym next;       /* line end and beginning of a parameter up to the marker */
    gram_sym name;       /* behind it, up to the name */
    gram_sym close;      /* line end and end of a call up to the marker */
    gram_sym closed;     /* behind it */
} gram_toolbox;

gram_ex gram_tool_text(gram_toolbox *k, const char *bytes);
gram_ex gram_tool_cat(gram_toolbox *k, gram_ex a, gram_ex b, gram_ex c);
void gram_tool_add_text(gram_toolbox *k, gram_part *to, gram_ex e);
/* Text, the marker, and the name of a tag with what is behind it. */
void gram_tool_add_mark(gram_toolbox *k, gram_part *to, gram_ex before, const char *tag, const char *behind);
/* Name and value of a parameter up to the end of its tag, in all ways to write the values of a formula. NULL: there are none. */
gram_part *gram_tool_values(gram_toolbox *k, gram_ex name, gram_form form);
/* Fills in the parameters of tool i, which is strict. */
void gram_tool_strict(gram_toolbox *k, size_t i);

#endif
