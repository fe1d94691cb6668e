/* gram_lex.h - the byte automaton: states with rows of 256 cells, made when they are first asked for.
 *
 * A place in a text is (context, state, count): see gram_pos in gram_machine.h. A cell says what a byte does:
 *
 *   0                    the byte can't follow
 *   id                   the next state; context and count stay
 *   id | GRAM_CHECK      the same, if the count is not beyond the next state's limit
 *   id | GRAM_COUNT ...  a character ends: the count goes up first
 *   GRAM_SLOW | hint     the machine has to be asked (gram_machine.c): the context matters, or the cell is not known yet
 *
 * Rows are filled under the grammar's lock and read without it: a row is published by the store of its pointer, a cell that changes
 * later by an atomic store. States never move and never change once they are seen.
 *
 * Characters: a vector is a list of expressions that are followed together (gram_lang.h), so that the end of a text tells which of them
 * it is in. gram_chars.c turns their derivatives into bytes: UTF-8 as it is, or inside of JSON strings with their escapes. */
#ifndef GRAMMAR_GRAM_LEX_H
#define GRAMMAR_GRAM_LEX_H

#include "grammar/gram_lang.h"

#define GRAM_SLOW 0x80000000u
#define GRAM_COUNT 0x40000000u
#define GRAM_CHECK 0x20000000u
#define GRAM_ID 0x1FFFFFFFu
#define GRAM_DEAD 0u

typedef enum gram_lex_kind {
    LX_NONE,    /* state 0 */
    LX_CHAR,    /* between characters: mode, vector, lengths */
    LX_TAIL,    /* inside of one in UTF-8: mode, vector, lengths, first and last character, bytes to come */
    LX_SKIP,    /* the same where all of them lead to one vector */
    LX_ESCAPE,  /* behind a backslash: mode, vector, lengths */
    LX_HEX,     /* behind \u: mode, vector, lengths, value so far, digits to come, high surrogate before or 0 */
    LX_LOW,     /* behind a high surrogate: mode, vector, lengths, the surrogate, 0 or 1 for a backslash taken */
    LX_NUMBER,  /* plan, state (gram_num.h) */
    LX_LITERAL, /* which of null, false, true; characters taken */
    LX_VALUE,   /* a value begins: gap, goal */
    LX_FIRST_ITEM, /* gap, goal or GRAM_NONE */
    LX_FIRST_KEY, /* these: gap */
    LX_NEXT_KEY,
    LX_COLON,
    LX_AFTER_MEMBER,
    LX_AFTER_ITEM,
    LX_DONE,
    LX_ROW      /* of a general grammar (gram_cfg.h) */
} gram_lex_kind;

typedef enum gram_mode {
    MODE_RAW,      /* plain text */
    MODE_GRAMMAR,  /* the same; where an expression but the first ends or dies, the context decides (gram_cfg.h) */
    MODE_STRING,   /* inside of a JSON string, up to its quote */
    MODE_KEY,      /* inside of a member's name; every state can be gone on from */
    MODE_KEY_CHECK /* the same, but the context decides */
} gram_mode;

typedef struct gram_lex {
    uint8_t kind;
    uint8_t mode;
    bool looped;          /* the next ones are known (gram_loop.c) */
    bool loops_alike;     /* the need is the same behind all of them */
    uint16_t loops;       /* classes of characters (gram_vocab.h) that may come in any order */
    uint32_t loop_chars;  /* up to so many of them; GRAM_INF = any number */
    uint32_t loop_need;   /* characters that must fit behind them, in counted texts */
    uint32_t limit;       /* of the count, for cells with GRAM_CHECK */
    const uint32_t *words; /* behind the kind, as listed above */
    uint32_t *row;        /* NULL = not filled; atomic */
} gram_lex;

/* Lengths that a counted text may have. */
typedef struct gram_span {
    uint32_t min; /* GRAM_INF: there are others between, and the count must be looked at */
    uint32_t max;
} gram_span;

typedef struct gram_vec_row gram_vec_row;

typedef struct gram_vec {
    const uint32_t *ex; /* [n] */
    uint32_t n;
    bool any;           /* alive while any of them is, else while the first is */
    const gram_vec_row *row;
} gram_vec;

struct gram_vec_row {
    uint32_t n;
    gram_seg seg[]; /* to = vector */
};

typedef struct gram_lexes {
    gram_mem *mem;
    gram_lang *lang;
    gram_chunks states;
    gram_tuples keys;
    gram_tuples vec_keys; /* any, expressions */
    gram_vec *vecs;       /* [vec_keys.n]; 0 is dead */
    uint32_t vec_capacity;
    gram_tuples spans;    /* 0 = none */
    bool escapes_all;
} gram_lexes;

bool gram_lexes_init(gram_lexes *x, gram_mem *mem, gram_lang *lang);

static inline gram_lex *gram_lex_at(const gram_lexes *x, uint32_t id) { return gram_chunk_at(&x->states, id, sizeof(gram_lex)); }

/* The state with these words behind its kind; 0 after a failure. */
uint32_t gram_lex_id(gram_lexes *x, gram_lex_kind kind, const uint32_t *words, uint32_t n);

/* An empty row: all dead. NULL after a failure. */
uint32_t *gram_lex_new_row(gram_lexes *x);
static inline void gram_lex_publish(gram_lex *state, uint32_t *row) { __atomic_store_n(&state->row, row, __ATOMIC_RELEASE); }
static inline const uint32_t *gram_lex_row(const gram_lex *state) { return __atomic_load_n(&state->row, __ATOMIC_ACQUIRE); }
static inline uint32_t gram_cell(const uint32_t *row, uint8_t byte) { return __atomic_load_n(&row[byte], __ATOMIC_ACQUIRE); }

/* The vector of n expressions, 0 when it is dead. */
uint32_t gram_vec_id(gram_lexes *x, const gram_ex *ex, uint32_t n, bool any);
/* An expression but the first has come to an end, or is dead. */
bool gram_vec_turns(const gram_lexes *x, uint32_t vec);
const gram_vec_row *gram_vec_row_of(gram_lexes *x, uint32_t vec);
uint32_t gram_vec_step(gram_lexes *x, uint32_t vec, uint32_t c);
uint32_t gram_span_id(gram_lexes *x, gram_span span);
gram_span gram_span_at(const gram_lexes *x, uint32_t id);

/* --- gram_chars.c ------------------------------------------------------------------------------------------------- */

/* Letters behind a backslash, and the characters that they stand for. */
extern const char gram_short_escapes[9];
extern const char gram_short_chars[9];

/* The state between characters; span 0 = not counted. 0 when the vector is dead. */
uint32_t gram_chars_state(gram_lexes *x, gram_mode mode, uint32_t vec, uint32_t span);
void gram_chars_fill(gram_lexes *x, uint32_t id);

/* The state behind `byte` in a state of mode MODE_KEY_CHECK whose cell names none; 0 when there is none. */
uint32_t gram_chars_next(gram_lexes *x, uint32_t id, uint8_t byte);

/* Character that `byte` ends in state `id`, which is one of the kinds of gram_chars.c; GRAM_NONE when it ends none. */
uint32_t gram_chars_ended(const gram_lexes *x, uint32_t id, uint8_t byte);

/* Whether `accept` holds for a vector that the character being written may lead to, of mode MODE_KEY_CHECK: it gets the vector and the
 * range of characters, first > last when the state is between characters. */
typedef bool gram_accept_fn(void *user, uint32_t vec, uint32_t first, uint32_t last);
bool gram_chars_reaches(gram_lexes *x, uint32_t id, gram_accept_fn *accept, void *user);

#endif
