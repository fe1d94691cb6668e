/* gram_regex.h - regular expressions to gram_ex, exactly: anchors, word boundaries and look-ahead included.
 *
 * The syntax is that of ECMAScript, as JSON Schema asks, with what other dialects add where it does not clash: (?i) (?s) (?m) (?x),
 * (?P<n>...), \A, \z. \d and \w are ASCII, \s is ECMA's white space. $ is the very end of the text. Refused, because not regular or not
 * worth their price: back-references, look-behind, atomic and possessive groups; look-ahead and word boundaries inside of unbounded loops.
 *
 * How: the syntax tree is compiled from right to left with the language of the rest of the text at hand (the continuation). Assertions
 * look at what is left of them, so there is a continuation for each kind of place: text start, after a line end, after a word character,
 * after another one. Look-ahead is an intersection with the continuation, its negation one with a complement. */
#ifndef GRAMMAR_GRAM_REGEX_H
#define GRAMMAR_GRAM_REGEX_H

#include "grammar/gram_lang.h"

#define GRAM_MAX_REGEX (64u * 1024)
#define GRAM_MAX_GROUPS 256
#define GRAM_MAX_REPEAT 1000000

enum {
    GRAM_REGEX_SEARCH = 1, /* anywhere in the text, else the whole text */
    GRAM_REGEX_FOLD = 2,   /* as with (?i) */
    GRAM_REGEX_DOT_ALL = 4 /* as with (?s) */
};

/* GRAM_EX_NONE after a failure: invalid_regex or unsupported_regex, with the offset. */
gram_ex gram_regex(gram_lang *l, const char *text, size_t n, unsigned flags);

#endif
