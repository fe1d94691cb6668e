/* gram_lang_int.h - how expressions are kept; inside of gram_lang*.c only. */
#ifndef GRAMMAR_GRAM_LANG_INT_H
#define GRAMMAR_GRAM_LANG_INT_H

#include "grammar/gram_lang.h"

/* Fields of gram_node by operator. Normal forms: no kid of OR or AND is one again, at most one is a SET; the head of a CAT is no CAT; a
 * REP of something nullable has min 0; EX_ANY is REP(CHAR, 0, INF). */
enum {
    EX_NONE,
    EX_EPS,
    EX_SET,  /* a = set */
    EX_CAT,  /* a, then b */
    EX_REP,  /* a, b to c times */
    EX_OR,   /* kids[0, a) */
    EX_AND,  /* kids[0, a) */
    EX_NOT,  /* a */
    EX_WORDS /* words [b, c) of list a, what follows their first d characters, which they share */
};

/* Bits of gram_node.known. */
enum { KNOWN_EMPTY = 1, KNOWN_LENGTHS = 2 };

/* The expression of these fields. */
gram_ex gram_ex_plain(gram_lang *l, uint8_t op, uint32_t a, uint32_t b, uint32_t c, uint32_t d, bool nullable);

/* Words [from, to) of a list behind their first characters, which they share. */
gram_ex gram_ex_words_rest(gram_lang *l, uint32_t list, uint32_t from, uint32_t to, uint32_t depth);

/* Words of lists, or several such, and nothing else. */
bool gram_ex_is_listed(const gram_lang *l, gram_ex e);

/* Of the words that are entry `at` of the work stack, those that all other entries from `base` on accept; the stack is cut there. */
gram_ex gram_ex_filter_words(gram_lang *l, uint32_t base, uint32_t at);

#endif
