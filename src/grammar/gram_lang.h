/* gram_lang.h - regular languages over characters, as hash-consed expressions with ∪ ∩ ¬ and bounded repetition.
 *
 * Characters are Unicode scalar values. An expression (gram_ex) is an id; equal ids are equal languages, different ids may be equal too.
 * Everything is asked through derivatives (Brzozowski 1964; Owens, Reppy and Turon 2009): gram_row(e) maps every first character to the
 * expression of what may follow. Rows are ranges of characters with one result each, computed symbolically and kept. Bounds of
 * repetitions count down in the expression, and alternatives that differ only in such bounds are merged, so that a{1,1000000} costs
 * no more than it is used.
 *
 * Finite sets of strings (enumerations, names of members) are one expression: a range of a sorted list, narrowed character by character.
 *
 * Nothing here returns an error: see gram_mem.h. Thread: the holder of the grammar's lock. */
#ifndef GRAMMAR_GRAM_LANG_H
#define GRAMMAR_GRAM_LANG_H

#include "grammar/gram_mem.h"

typedef uint32_t gram_ex;
typedef uint32_t gram_set; /* of characters */

#define GRAM_LAST_CHAR 0x10FFFFu
#define GRAM_INF UINT32_MAX

/* Known to every gram_lang. */
enum {
    GRAM_EX_NONE, /* the empty language */
    GRAM_EX_EPS,  /* the empty string alone */
    GRAM_EX_ANY,  /* all strings */
    GRAM_EX_CHAR  /* all strings of one character */
};
enum { GRAM_SET_EMPTY, GRAM_SET_ALL };

typedef struct gram_seg {
    uint32_t last; /* last character of the range; the first is one behind the range before */
    gram_ex to;
} gram_seg;

typedef struct gram_row {
    uint32_t n;
    gram_seg seg[]; /* [n], covers 0..GRAM_LAST_CHAR; neighbours differ */
} gram_row;

/* Lengths, in characters, of the strings of an expression. */
typedef struct gram_lengths {
    uint32_t min;
    uint32_t max; /* GRAM_INF = no bound */
    bool dense;   /* every length between occurs: only then are min and max exact */
} gram_lengths;

typedef struct gram_word {
    const uint32_t *chars;
    uint32_t n;
} gram_word;

typedef struct gram_node {
    uint8_t op;
    bool nullable;
    uint8_t known; /* bits: emptiness and lengths are known (gram_lang_ask.c) */
    bool empty;
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t d;
    const uint32_t *kids; /* of unions and intersections: [a], ascending */
    const gram_row *row;  /* NULL = not computed yet */
    gram_lengths lengths;
    uint32_t mark;  /* of the last search for emptiness that saw it */
    uint32_t visit; /* the same of searches for a shortest string */
} gram_node;

typedef struct gram_lang {
    gram_mem *mem;
    gram_tuples sets;  /* first and last characters of ranges, ascending */
    gram_tuples keys;  /* of nodes */
    gram_node *nodes;  /* [keys.n] */
    uint32_t node_capacity;
    const gram_word **lists; /* sorted lists of words, by the tuple that holds their characters */
    uint32_t n_lists;
    uint32_t list_capacity;
    gram_stack work;
    uint32_t search; /* number of the last search */
} gram_lang;

bool gram_lang_init(gram_lang *l, gram_mem *mem);

/* --- Sets (gram_set.c) -------------------------------------------------------------------------------------------- */

/* Of n ranges, pairs of first and last, in any order. Surrogates are left out. */
gram_set gram_set_of(gram_lang *l, const uint32_t *ranges, uint32_t n);
gram_set gram_set_not(gram_lang *l, gram_set a);
gram_set gram_set_or(gram_lang *l, gram_set a, gram_set b);
gram_set gram_set_and(gram_lang *l, gram_set a, gram_set b);
bool gram_set_has(const gram_lang *l, gram_set a, uint32_t c);
const uint32_t *gram_set_ranges(const gram_lang *l, gram_set a, uint32_t *n); /* n pairs, ascending, apart */
gram_set gram_set_fold(gram_lang *l, gram_set a); /* with every character that differs in case only */

/* General category of Unicode ("L", "Lu", "Letter" ...), false when there is none of that name. */
bool gram_set_category(gram_lang *l, const char *name, size_t n, gram_set *out);

/* --- Expressions (gram_lang.c) ------------------------------------------------------------------------------------ */

gram_ex gram_ex_set(gram_lang *l, gram_set a); /* one character of the set */
gram_ex gram_ex_char(gram_lang *l, uint32_t c);
gram_ex gram_ex_cat(gram_lang *l, gram_ex a, gram_ex b);
gram_ex gram_ex_or(gram_lang *l, const gram_ex *kids, uint32_t n);
gram_ex gram_ex_or2(gram_lang *l, gram_ex a, gram_ex b);
gram_ex gram_ex_and(gram_lang *l, const gram_ex *kids, uint32_t n);
gram_ex gram_ex_and2(gram_lang *l, gram_ex a, gram_ex b);
gram_ex gram_ex_not(gram_lang *l, gram_ex a);
gram_ex gram_ex_rep(gram_lang *l, gram_ex a, uint32_t min, uint32_t max); /* max GRAM_INF = no bound */
gram_ex gram_ex_some(gram_lang *l, gram_ex a); /* its strings of at least one character */

/* The strings themselves; `words` is copied. Duplicates are dropped. */
gram_ex gram_ex_words(gram_lang *l, const gram_word *words, uint32_t n);
/* The same, but a rest that is empty stays what it is, so that the end tells which word it was. Not to be combined with others. */
gram_ex gram_ex_kept_words(gram_lang *l, const gram_word *words, uint32_t n);
gram_ex gram_ex_text(gram_lang *l, const char *utf8, size_t n); /* one string; invalid bytes are dropped */

/* When e is the rest of a list of words: its list, and the range of words that go on this way. */
bool gram_ex_is_words(const gram_lang *l, gram_ex e, uint32_t *list, uint32_t *from, uint32_t *to);
const gram_word *gram_list_word(const gram_lang *l, uint32_t list, uint32_t i);

/* Every text is the beginning of one of its strings, as far as the form tells. */
bool gram_ex_is_open(const gram_lang *l, gram_ex e);

static inline bool gram_nullable(const gram_lang *l, gram_ex e) { return l->nodes[e].nullable; }

/* --- Derivatives (gram_lang_row.c) -------------------------------------------------------------------------------- */

/* Never NULL; after a failure everything leads to GRAM_EX_NONE. */
const gram_row *gram_row_of(gram_lang *l, gram_ex e);
gram_ex gram_step(gram_lang *l, gram_ex e, uint32_t c);
bool gram_ex_has(gram_lang *l, gram_ex e, const uint32_t *chars, uint32_t n); /* membership */

/* --- Questions (gram_lang_ask.c) ---------------------------------------------------------------------------------- */

bool gram_empty(gram_lang *l, gram_ex e);

/* Number of strings, but at most `cap`; exact below it. */
uint32_t gram_count(gram_lang *l, gram_ex e, uint32_t cap);
gram_lengths gram_lengths_of(gram_lang *l, gram_ex e);

/* A shortest string, pushed to `out` (characters; small ASCII letters and digits where there is a choice). False when empty. */
bool gram_shortest(gram_lang *l, gram_ex e, gram_stack *out);

#endif
