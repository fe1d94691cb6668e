/* gram_lark.h - the reader of the Lark dialect; inside of gram_lark*.c only. */
#ifndef GRAMMAR_GRAM_LARK_H
#define GRAMMAR_GRAM_LARK_H

#include "grammar/gram_ebnf.h"

typedef struct gram_larker {
    gram_reader r;
    gram_part *ignored;  /* alternatives */
    uint32_t ignore;     /* rule of what may stand behind a terminal */
    bool in_terminal;
} gram_larker;

bool gram_lark_is_word(int c);
/* Blanks and comments; with `lines` line ends too. */
void gram_lark_skip(gram_reader *r, bool lines);
size_t gram_lark_word_end(const gram_reader *r);
bool gram_lark_is_terminal(const gram_reader *r, size_t from, size_t to);

/* What stands behind the colon of a rule, or in a group. */
gram_part *gram_lark_alternatives(gram_larker *k);

#endif
