/* gram_machine.h - the automaton of one grammar, byte by byte.
 *
 * A place in a text is a gram_pos. Most bytes are settled by the row of its state (gram_lex.h); gram_machine_step is for the
 * others. What it found lately is kept by (place, byte): tokens that begin alike take the same steps.
 *
 * Two kinds of steps depend on the text before: the end of a name that is no declared one (it must not come again), and the end of an item
 * of an array whose items differ. When tokens are tried out there is no text: then a name counts as one that nobody looked at
 * (GRAM_ANON), and where that is not enough the answer is GRAM_STEP_EXACT, and the caller goes the way again with the text.
 *
 * Thread: the holder of the grammar's lock. */
#ifndef GRAMMAR_GRAM_MACHINE_H
#define GRAMMAR_GRAM_MACHINE_H

#include "grammar/gram_json.h"

typedef struct gram_pos {
    uint32_t ctx; /* frame of the JSON machine; 0 elsewhere */
    uint32_t lex;
    uint32_t n;   /* characters of a counted text, blanks of a gap; of a name: its beginning among the names used before */
} gram_pos;

/* The text before a byte, in two parts. */
typedef struct gram_before {
    const uint8_t *head;
    size_t n_head;
    const uint8_t *tail;
    size_t n_tail;
} gram_before;

typedef enum gram_step_result { GRAM_STEP_DEAD, GRAM_STEP_OK, GRAM_STEP_EXACT } gram_step_result;

typedef struct gram_gaps { /* white space between the parts of JSON text */
    di_grammar_whitespace kind;
    gram_ex pattern;
} gram_gaps;

#define GRAM_EVENTS 2048u

typedef struct gram_event {
    gram_pos from; /* lex 0 = none */
    gram_pos to;   /* lex 0 = dead */
    uint8_t byte;
} gram_event;

typedef struct gram_cfg gram_cfg; /* gram_cfg.h */

typedef struct gram_machine {
    gram_mem *mem;
    gram_lang *lang;
    gram_forms *forms;
    gram_lexes *lexes;
    gram_json json;
    gram_cfg *cfg; /* NULL when there is no general grammar */
    gram_gaps gaps;
    gram_event *events; /* [GRAM_EVENTS] steps found lately, by their hash */
    gram_pos start;
} gram_machine;

bool gram_machine_init(gram_machine *m, gram_mem *mem, gram_forms *forms, gram_lexes *lexes);

/* The row of a state, filled if need be. NULL after a failure. */
const uint32_t *gram_machine_row(gram_machine *m, uint32_t lex);

/* Any byte at any place. `before` NULL: there is no text. */
gram_step_result gram_machine_step(gram_machine *m, gram_pos *pos, uint8_t byte, const gram_before *before);

/* The text may end here. */
bool gram_machine_accepts(gram_machine *m, gram_pos pos);

/* --- gram_gap.c --------------------------------------------------------------------------------------------------- */

#define GRAM_NO_GAP 0u
uint32_t gram_gap_start(const gram_machine *m);
bool gram_gap_may_end(const gram_machine *m, uint32_t gap);
/* Fills the cells for white space of a state of kind `kind` whose first word is `gap`; other words are kept. */
void gram_gap_fill(gram_machine *m, uint32_t lex, uint32_t *row);
bool gram_gap_is_counted(uint32_t gap); /* the count need not be zero here */

/* --- gram_js.c: JSON ---------------------------------------------------------------------------------------------- */

/* The beginning of a value that satisfies a goal, and its root frame. `after` is for gram_cfg.h: what follows it, + 1; 0 = nothing. */
bool gram_js_start(gram_machine *m, uint32_t goal, uint32_t after, gram_pos *out);
bool gram_js_is_done(gram_machine *m, gram_pos pos); /* a whole value was read, of a root frame */
void gram_js_fill(gram_machine *m, uint32_t lex);
gram_step_result gram_js_step(gram_machine *m, gram_pos *pos, uint8_t byte, uint32_t hint, const gram_before *before, bool *textual);
/* The state of what a name's vector leaves of names of the classes that are allowed in `ctx`, without declared ones;
 * 0 when there are none. */
uint32_t gram_js_class_names(gram_machine *m, uint32_t ctx, uint32_t vec);

/* --- gram_js_text.c: looking back --------------------------------------------------------------------------------- */

/* The name whose closing quote comes next, among those of the grammar. */
uint32_t gram_js_name_before(gram_machine *m, const gram_before *before);
/* The formula of exactly the value that ends before (with `byte` when that belongs to it, else -1). */
gram_form gram_js_value_before(gram_machine *m, const gram_before *before, int byte);

#endif
