/* gram_regex_int.h - the syntax tree between gram_regex.c (parser) and gram_regex_ex.c (compiler). */
#ifndef GRAMMAR_GRAM_REGEX_INT_H
#define GRAMMAR_GRAM_REGEX_INT_H

#include "grammar/gram_regex.h"

typedef enum rx_kind {
    RX_EMPTY,
    RX_SET,
    RX_CAT,        /* kids, left to right */
    RX_ALT,
    RX_REP,        /* one kid */
    RX_START,
    RX_END,
    RX_LINE_START, /* ^ and $ under (?m) */
    RX_LINE_END,
    RX_BOUNDARY,   /* \b, negated: \B */
    RX_AHEAD       /* one kid */
} rx_kind;

typedef struct rx_node {
    rx_kind kind;
    bool negated;
    bool plain;   /* no assertion inside */
    bool anchors; /* the only assertions inside are RX_START and RX_END */
    gram_set set;
    uint32_t min;
    uint32_t max;
    struct rx_node *first; /* kid */
    struct rx_node *last;
    struct rx_node *next;  /* sibling */
} rx_node;

gram_set gram_rx_words(gram_lang *l); /* \w */
gram_set gram_rx_lines(gram_lang *l); /* LF CR U+2028 U+2029 */

gram_ex gram_rx_compile(gram_lang *l, const rx_node *root, unsigned flags);

#endif
