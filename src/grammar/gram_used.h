/* gram_used.h - sets of names that grow by one name at a time, all of whose versions are kept.
 *
 * A set is a tree by characters. What may come first at one place of it is a search tree whose nodes have a character, what follows that,
 * and the sets with smaller and with larger characters. It is a treap (Aragon and Seidel, 1989) whose priorities are hashes of the
 * characters, so its shape depends on the characters alone: equal sets are equal ids, and a name more costs as many new nodes as it has
 * characters, times the logarithm of what may come beside them. Everything else is shared with the set before.
 *
 * Owner: the grammar. Thread: the holder of its lock. */
#ifndef GRAMMAR_GRAM_USED_H
#define GRAMMAR_GRAM_USED_H

#include "grammar/gram_lang.h"

typedef uint32_t gram_used; /* a set of names, or what is left of it behind a beginning */
#define GRAM_NONE_USED 0u   /* the empty one */

typedef struct gram_used_sets {
    gram_mem *mem;
    gram_tuples keys; /* character and whether a name ends before it, what follows, smaller ones, larger ones */
    gram_used *along; /* of gram_used_add: the sets along a name. Kept, as the arena takes nothing back */
    uint32_t along_capacity;
} gram_used_sets;

bool gram_used_init(gram_used_sets *u, gram_mem *mem);

/* With the name of n characters; GRAM_NONE_USED after a failure. */
gram_used gram_used_add(gram_used_sets *u, gram_used set, const uint32_t *chars, uint32_t n);

/* What is left behind a character. */
gram_used gram_used_step(const gram_used_sets *u, gram_used set, uint32_t c);

/* One of the names ends here. */
bool gram_used_ends(const gram_used_sets *u, gram_used set);

/* Sets the bits of the first characters of the names, as bytes; those beyond ASCII are one: 0x80. */
void gram_used_first(const gram_used_sets *u, gram_used set, uint64_t bytes[4]);

/* Some string of the expression is not in the set. */
bool gram_used_leaves(gram_used_sets *u, gram_lang *l, gram_ex e, gram_used set);

#endif
