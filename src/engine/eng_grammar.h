/* eng_grammar.h - a choice under a grammar: where it is, and masks for the rows of a pass (structured_output.md 7, 9).
 *
 * The masks of a pass follow from what is known when it is handed over: the tokens so far and the drafts. So helper threads make them
 * while the pass runs, and sampling waits only for what is not ready then. Drafts are chosen under masks too, which the next pass uses.
 *
 *   eng_constraint_prepare    masks behind what was accepted, and behind each draft      helpers, beside a pass
 *   eng_constraint_mask       the mask for the next token; eng_constraint_accept it      executor, sampling
 *   eng_constraint_try        a draft, under the mask; all are taken back together       executor, proposing
 *   eng_constraint_forced     drafts that the grammar leaves no choice about             executor, proposing
 *
 * A constraint may wait for the id that ends the reasoning: until then every id is allowed but those that end the sequence. Where in a
 * row of drafts that id stands makes no difference.
 *
 * Owner: the choice, while it runs. Threads: from the hand-over of a pass until its masks are awaited the helpers', then the executor's
 * until the pass has ended, else the scheduler's. */
#ifndef ENGINE_ENG_GRAMMAR_H
#define ENGINE_ENG_GRAMMAR_H

#include <deepinfer/grammar.h>

typedef struct eng_constraint eng_constraint;

typedef struct eng_constraint_options {
    di_grammar *grammar;
    di_vocabulary *vocabulary;
    bool waits;       /* for begin_id */
    int32_t begin_id;
    int32_t n_drafts; /* at most so many in a row */
    int64_t max_tokens; /* by which the text shall have ended; 0 = it may be cut */
} eng_constraint_options;

/* Errors: DI_E_ARGUMENT (the grammar asks for what the vocabulary lacks), DI_E_MEMORY. */
di_status eng_constraint_new(const eng_constraint_options *options, eng_constraint **out, di_error *err);
void eng_constraint_free(eng_constraint *c); /* NULL is ignored */

/* Makes the masks for the next token and behind each of the drafts [n] that is allowed. Returns how many
 * masks were made: some may be there from proposing the same drafts, and none are when it has failed. */
int32_t eng_constraint_prepare(eng_constraint *c, const int32_t *drafts, int32_t n);

/* The mask for the next token; NULL: it has failed. */
const uint32_t *eng_constraint_mask(const eng_constraint *c);
/* The mask behind so many of the drafts that masks were prepared for; NULL: one of them is not allowed, or ends the text. */
const uint32_t *eng_constraint_mask_at(const eng_constraint *c, int32_t ahead);
/* Whether the text ends with a token, where it is allowed. */
bool eng_constraint_ends_with(const eng_constraint *c, int32_t id);

/* Takes a token that was chosen under the mask, or before a preemption; *ended tells whether the text has ended with it. False: it has
 * failed. */
bool eng_constraint_accept(eng_constraint *c, int32_t id, bool *ended);

/* Text that every answer goes on with, as tokens for drafts; at most `capacity`. Returns how many. Behind sampling. */
int32_t eng_constraint_forced(eng_constraint *c, int32_t *ids, int32_t capacity);

/* Why it has failed; NULL: it has not. DI_E_LIMIT (the budget of the grammar), DI_E_MEMORY, DI_E_INTERNAL (a fault of this program). */
const di_error *eng_constraint_error(const eng_constraint *c);

/* The mask for the next draft; NULL: nothing can be proposed. */
const uint32_t *eng_constraint_try_mask(eng_constraint *c);
/* Takes a draft that was chosen under it. False: no other one can follow. */
bool eng_constraint_try(eng_constraint *c, int32_t id);
void eng_constraint_take_back(eng_constraint *c);

#endif
