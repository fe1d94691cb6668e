/* gram_grammar.h - a compiled grammar: one machine, shared by matchers behind a lock.
 *
 * Matchers read rows of the byte automaton without the lock; whatever grows the machine, and the cache of masks, is behind it. What a
 * step or a mask gives does not depend on who else uses the grammar or in which order. When the machine fails (memory, work), it fails
 * for everybody from then on: its tables may lack something. */
#ifndef GRAMMAR_GRAM_GRAMMAR_H
#define GRAMMAR_GRAM_GRAMMAR_H

#include "grammar/gram_machine.h"
#include "grammar/gram_vocab.h"

#include "core/buf.h"

#define GRAM_CACHED_MASKS 64

typedef struct gram_cached_mask {
    uint64_t vocabulary; /* its id */
    size_t words;
    gram_pos pos;
    uint32_t *mask; /* owned; NULL = empty */
    bool restricts;
    uint64_t used;  /* at this turn */
} gram_cached_mask;

/* Of a walk over tokens (gram_mask_walk.c): a place, and which children of the node there come next. */
typedef struct gram_walk_level {
    gram_pos pos;
    const uint32_t *row;
    uint32_t kid;
    uint32_t end;
} gram_walk_level;

/* Of a walk along names (gram_mask_key.c). */
typedef struct gram_name_place {
    gram_pos pos;
    uint64_t path[4]; /* bits of the bytes that stay on the way */
    const uint32_t *colon; /* row behind the name, NULL elsewhere */
    bool used;        /* a name used before begins like this */
    uint32_t kid;     /* children of the node that come next */
    uint32_t end;
} gram_name_place;

/* What is known of states, whatever the context (gram_mask_lex.c). */
typedef struct gram_state_masks {
    gram_state_mask **slots; /* [n_slots], a power of two, by hash; NULL = empty */
    uint32_t n_slots;
    uint32_t n;
    size_t bytes;
} gram_state_masks;

struct di_grammar {
    int refs; /* atomic */
    di_grammar_kind kind;
    int64_t step_work;
    pthread_mutex_t lock; /* guards all below */
    gram_mem mem;
    gram_lang lang;
    gram_forms forms;
    gram_lexes lexes;
    gram_machine machine;
    buf warnings; /* lines; NUL instead of newline */
    gram_cached_mask cache[GRAM_CACHED_MASKS];
    uint64_t turn;
    gram_state_masks state_masks;
    gram_walk_level *levels; /* [stack_size] of a walk over tokens, with its bytes and places of names beside */
    uint8_t *path;
    gram_name_place *places;
    gram_pos *ways; /* of a token that goes with the text: the place behind each byte */
    uint32_t stack_size;
    int32_t *hits;   /* [n_hits] tokens found by it */
    uint32_t n_hits;
    uint32_t hit_capacity;
    di_grammar_stats stats;
};

static inline void gram_lock(di_grammar *g) { (void)pthread_mutex_lock(&g->lock); }
static inline void gram_unlock(di_grammar *g) { (void)pthread_mutex_unlock(&g->lock); }

/* With the lock held: a new budget of work for one step; false when the machine has failed. */
bool gram_begin_step(di_grammar *g);

/* --- gram_token.c: added tokens that a grammar names ---------------------------------------------------------------- */

/* All of them are added tokens of the vocabulary that do not end a sequence; else DI_E_ARGUMENT. */
di_status gram_tokens_check(const di_grammar *g, const di_vocabulary *v, di_error *err);
/* These with the lock held. */
void gram_tokens_allow(const di_grammar *g, const di_vocabulary *v, gram_pos pos, uint32_t *mask);
bool gram_tokens_take(di_grammar *g, const di_vocabulary *v, int32_t id, gram_pos *pos); /* false: it may not come */
bool gram_tokens_any(const di_grammar *g, gram_pos pos); /* some may come */

/* --- gram_mask.c -------------------------------------------------------------------------------------------------- */

/* With the lock held. `text` is all that was accepted. */
di_status gram_mask_at(di_grammar *g, di_vocabulary *v, gram_pos pos, const uint8_t *text, size_t n_text, uint32_t *mask, bool *restricts,
                       di_error *err);

/* The same place for the purpose of masks: counts that are far from every bound are one. */
gram_pos gram_mask_key(const di_grammar *g, const di_vocabulary *v, gram_pos pos);

#endif
