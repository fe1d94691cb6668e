/* gram_close.h - the shortest way to the end of a text.
 *
 * A search over the places of the machine, byte by byte, that looks first where the least is to come (A*, Hart,
 * Nilsson and Raphael 1968): an open container needs its bracket, a text the characters that its expression asks
 * for. All ways of the least length are kept, and the first in the order of bytes is taken. So what is left of a
 * completion behind any of its tokens is the completion there. */
#ifndef GRAMMAR_GRAM_CLOSE_H
#define GRAMMAR_GRAM_CLOSE_H

#include "grammar/gram_matcher.h"

#define GRAM_MAX_COMPLETION 4096u

/* The node of the token tree that a byte leads to, 0 when there is none. */
static inline uint32_t gram_kid_of(const gram_tree *tree, uint32_t node, uint32_t byte)
{
    for (uint32_t i = tree->first[node]; i < tree->first[node + 1]; i++) {
        if (tree->bytes[i] == byte) {
            return tree->kids[i];
        }
    }
    return 0;
}

/* A byte, or 256 + the number of a named token. */
typedef uint32_t gram_out;

/* With the lock held, and a step begun. The completion of `pos`, where `text` was accepted: *n symbols are written
 * to `out` [GRAM_MAX_COMPLETION]. DI_E_LIMIT when it is too far away; then the machine is still good. */
di_status gram_complete(di_grammar *g, gram_pos pos, const uint8_t *text, size_t n_text, gram_out *out, size_t *n, di_error *err);

/* Bytes that are still to come at `pos`, at least. */
uint32_t gram_least_to_come(gram_machine *m, gram_pos pos);

/* least[i] is the least number of tokens that spell out[i, n); SIZE_MAX when none do. Returns least[0]. */
size_t gram_least_tokens(const di_vocabulary *v, const gram_out *out, size_t n, size_t least[GRAM_MAX_COMPLETION + 1]);

#endif
