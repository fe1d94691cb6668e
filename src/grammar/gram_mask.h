/* gram_mask.h - inside of the mask engine.
 *
 * A mask is made in one of three ways:
 *
 *  - Most of it depends on the state of the byte automaton alone, not on the context: which tokens stay inside of a
 *    text, a number, a gap. gram_mask_lex.c computes that once for each state and keeps it, with the *exits*: bytes at
 *    which the machine has to be asked, and what is left of the tokens behind them. A mask then is a copy, and a walk
 *    over the rests.
 *  - Inside of a name that the context must look at, the state says nothing by itself; gram_mask_key.c puts the mask
 *    together from names of classes, which are a state of their own, and a walk along the declared and the used names.
 *  - Where neither fits (the text matters, or every byte asks the machine), gram_mask_walk.c walks over all tokens.
 *
 * All three give the same mask. Thread: the holder of the grammar's lock. */
#ifndef GRAMMAR_GRAM_MASK_H
#define GRAMMAR_GRAM_MASK_H

#include "grammar/gram_grammar.h"

typedef struct gram_mask_work {
    di_grammar *g;
    gram_machine *m;
    di_vocabulary *v;
    const uint8_t *text;
    size_t n_text;
    gram_pos start; /* exactly, not as in the key */
    uint32_t *mask;
    const gram_tree *tree; /* that was walked over */
    bool exactly;   /* where the text is needed, it is looked at; else what needs it is left out */
    bool textual;   /* it was needed: the mask holds for this text only, or without `exactly` may lack something */
    uint32_t n_exact; /* tokens that went their way with the text (gram_mask_lex.c); the last one's, up to the byte that is dead: */
    const uint8_t *way;
    uint32_t n_way;
    bool way_ends;
} gram_mask_work;

static inline void gram_mask_allow(const gram_mask_work *w, int32_t token)
{
    for (; token >= 0; token = w->v->same[token]) {
        w->mask[token / 32] |= 1u << token % 32;
    }
}

static inline void gram_mask_allow_all(const gram_mask_work *w, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        gram_mask_allow(w, tokens[i]);
    }
}

static inline void gram_mask_forbid(const gram_mask_work *w, int32_t token)
{
    for (; token >= 0; token = w->v->same[token]) {
        w->mask[token / 32] &= ~(1u << token % 32);
    }
}

/* --- gram_loop.c: texts that can always be gone on from ------------------------------------------------------------ */

/* From a place every text of up to `chars` characters of `classes` may follow; `exact`: and no longer one. */
typedef struct gram_loops {
    uint16_t classes;
    uint32_t chars;
    bool exact;
} gram_loops;

gram_loops gram_loops_of(gram_machine *m, gram_pos pos);

/* --- gram_mask_walk.c ---------------------------------------------------------------------------------------------- */

/* A cell that the machine has to be asked for, met at a node of the tree. */
typedef struct gram_exit {
    uint32_t lex;
    uint32_t n;
    uint8_t byte;
    const gram_trie_node *node;
} gram_exit;

typedef struct gram_exits {
    gram_exit *at;
    uint32_t n;
    uint32_t capacity;
    bool failed; /* out of memory */
} gram_exits;

/* Memory for a walk over the tokens of a vocabulary. */
bool gram_walk_room(di_grammar *g, const di_vocabulary *v);

/* The tokens that may follow `pos`: those of the returned slice, if any, and the hits of the grammar. With `exits` the
 * machine is not asked: cells that need it are noted there, and the tokens behind them left out. */
const gram_slice *gram_mask_hits(gram_mask_work *w, gram_pos pos, gram_exits *exits);
/* The tokens that end in or below a node, where the place is `pos`, as hits. */
void gram_mask_hits_below(gram_mask_work *w, const gram_tree *tree, const gram_trie_node *node, gram_pos pos);
/* Makes the mask of a slice (NULL = none) and the hits. */
void gram_mask_fill(gram_mask_work *w, const gram_slice *slice);

/* --- gram_mask_lex.c ----------------------------------------------------------------------------------------------- */

/* Makes the mask of the tokens that may follow by what is kept for the state. False when that can't be done; the mask is
 * undefined then. */
bool gram_mask_by_state(gram_mask_work *w, gram_pos pos);
void gram_state_masks_free(gram_state_masks *masks);

/* --- gram_mask_key.c ----------------------------------------------------------------------------------------------- */

/* The same inside of a name that the context must look at. */
bool gram_mask_by_names(gram_mask_work *w, gram_pos pos);

#endif
