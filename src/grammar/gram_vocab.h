/* gram_vocab.h - the tokens as a tree of bytes, and slices of it that are allowed or not as a whole.
 *
 * The tree is an array in depth-first order; a node says how large its subtree is, so that a walk jumps over what it need not see.
 *
 * Slices: inside of a string nearly every token is allowed because all of its characters are ordinary there. Characters fall into 15
 * classes, and a token has the set of classes of its characters. Where a state leads back to itself for whole classes (gram_lex.loops),
 * all tokens of those classes are allowed, as a mask made once, and only the others need a walk. For sets of classes that hold most
 * tokens there is a second tree of the others alone.
 *
 * A vocabulary is immutable but for its slices, which are made when they are first asked for, behind a lock, and for what is known of the
 * commonest states, which whoever needs it first makes and publishes. */
#ifndef GRAMMAR_GRAM_VOCAB_H
#define GRAMMAR_GRAM_VOCAB_H

#include <deepinfer/grammar.h>

#include "grammar/gram_lex.h"

#include <pthread.h>

#define GRAM_N_CLASSES 15
#define GRAM_QUOTES 0x0002u  /* the class of the quote */
#define GRAM_BROKEN 0x8000u  /* not well-formed characters: in no slice */
#define GRAM_MAX_SLICES 96
#define GRAM_SLICE_CHARS 32u /* lengths up to which slices of short tokens are made */

typedef struct gram_trie_node {
    int32_t token;    /* that ends here, -1 = none */
    uint32_t size;    /* of the subtree, this node included */
    uint16_t depth;   /* bytes from the root */
    uint16_t classes; /* of all characters of all tokens in the subtree */
    uint8_t byte;
    uint8_t chars;    /* of the longest token in the subtree, at most 255 */
} gram_trie_node;

/* Nodes in depth-first order, the root first, and the children of each once more: those of node i are
 * [first[i], first[i + 1]), so that a walk sees their bytes side by side. */
typedef struct gram_tree {
    gram_trie_node *nodes; /* [n] */
    uint32_t n;
    uint32_t *first; /* [n + 1] */
    uint8_t *bytes;  /* [n - 1] */
    uint32_t *kids;  /* [n - 1] nodes */
} gram_tree;

typedef struct gram_slice {
    uint16_t classes;
    uint32_t max_chars;    /* of a token; GRAM_INF = any number */
    uint32_t longest;      /* token of these classes, in characters */
    uint32_t *mask;
    gram_tree rest; /* the tokens with other classes; no nodes = use the whole tree */
} gram_slice; /* those with a bound borrow the tree of the one without */

typedef struct gram_state_mask gram_state_mask; /* gram_mask_lex.c */
void gram_state_mask_free(gram_state_mask *s);

struct di_vocabulary {
    const di_tokenizer *tokenizer;
    int32_t n_ids;
    uint64_t id;            /* random: tells it from others in caches */
    size_t words;           /* of a mask */
    int32_t *end_ids;
    size_t n_end_ids;
    gram_tree tree;
    int32_t *same;          /* [n_ids] another token with the same bytes, -1 = none; NULL = there are none */
    uint32_t max_depth;
    uint32_t max_chars;     /* of a token */
    uint16_t *token_classes; /* [n_ids]; 0 = no token of the tree */
    uint8_t *token_chars;   /* [n_ids], at most 255 */
    uint32_t *all;          /* mask of all tokens of the tree and the end ids */
    uint32_t unworthy[(1u << GRAM_N_CLASSES) / 32]; /* bits of sets of classes that have no slice; atomic */
    pthread_mutex_t lock;   /* guards slices */
    gram_slice *slices[GRAM_MAX_SLICES]; /* published one after the other */
    uint32_t n_slices;
    gram_state_mask *any_text[2]; /* inside of a JSON string that may be any, without and with all escapes; NULL = not made; atomic */
};

/* The classes of characters, as ranges; class i is ranges[i]. */
typedef struct gram_char_class {
    const uint32_t *ranges; /* n pairs of first and last */
    uint32_t n;
} gram_char_class;
extern const gram_char_class gram_char_classes[GRAM_N_CLASSES];

/* A slice for states in which any max_chars characters of `classes` may come: its own bound is that, none when it makes no difference, or
 * may be lower, but not when `exact` and low. NULL when none is worth it. */
const gram_slice *gram_vocab_slice(di_vocabulary *v, uint16_t classes, uint32_t max_chars, bool exact);

/* Fills in the children of all nodes. False: out of memory. */
bool gram_tree_index(gram_tree *tree);
void gram_tree_fini(gram_tree *tree);

static inline bool gram_vocab_is_end(const di_vocabulary *v, int32_t id)
{
    for (size_t i = 0; i < v->n_end_ids; i++) {
        if (v->end_ids[i] == id) {
            return true;
        }
    }
    return false;
}

#endif
