/* gram_cfg.h - context-free grammars: rules over texts, JSON values and named tokens, followed byte by byte.
 *
 * A grammar is given as a tree for each rule (gram_part). What is regular in it, rules that are not recursive
 * included, becomes one expression (gram_lang.h); only the rest is parsed, by Earley's method (1970) with two
 * changes:
 *
 *  - Rows are named by what they hold, not by where they are. An *item* is a place in a rule, and a
 *    *continuation*: what to do at the end of the rule. A continuation is a rule that was begun in a row: at its
 *    end, all items of that row that wait for it go on. Rows and continuations are interned, so that equal
 *    situations are one place wherever they occur in the text.
 *  - A rule that is the last thing its only caller waits for gets the continuation of that caller (the tail calls
 *    of Leo, 1991). So lists that are written recursively to the right cost no more than those to the left.
 *
 * Between the ends of symbols nothing is parsed. A place in the text is a set of symbols being read, each with its
 * *after*: the items behind it. Texts are read together as one vector of expressions (gram_lex.h, MODE_GRAMMAR;
 * its first expression stands for all texts behind which the whole text may end), and where none of them ends or
 * dies with a byte, its row settles the byte. A JSON value alone is a place of the JSON machine whose root frame
 * knows the after. All other sets are states of their own (LX_ROW).
 *
 * All ways to read a text are followed at once; rules, texts and values that can't be completed are left out when
 * the grammar is made. So a place that is reached can always be completed.
 *
 * Owner: the grammar. Thread: the holder of its lock. */
#ifndef GRAMMAR_GRAM_CFG_H
#define GRAMMAR_GRAM_CFG_H

#include "grammar/gram_machine.h"

#define GRAM_MAX_RULES 20000u
#define GRAM_MAX_SYMBOLS 500000u
#define GRAM_MAX_ITEMS 4000u   /* of a row */
#define GRAM_MAX_NESTING 200u     /* levels of a tree */
#define GRAM_MAX_TOKENS 10000u /* named in a grammar */

/* --- Trees: what the readers of grammars make (gram_part.c) -------------------------------------------------------- */

typedef enum gram_part_kind {
    PART_TEXT,  /* an expression */
    PART_RULE,  /* a rule by its number */
    PART_JSON,  /* a JSON value that satisfies a goal */
    PART_TOKEN, /* a named token by its number */
    PART_LATER, /* a rule whose alternatives are made when it is first begun; see gram_cfg.unfold */
    PART_CAT,   /* kids, left to right */
    PART_ALT,
    PART_REP,   /* one kid, min to max times */
    PART_AND,   /* these two of what is regular only */
    PART_NOT    /* one kid; all other texts */
} gram_part_kind;

typedef struct gram_part {
    gram_part_kind kind;
    bool regular; /* known once the grammar is finished */
    uint32_t id;
    uint32_t min;
    uint32_t max; /* GRAM_INF = any number */
    struct gram_part *first;
    struct gram_part *last;
    struct gram_part *next;
} gram_part;

typedef struct gram_rule {
    gram_part *body;       /* NULL: used and not defined yet */
    int64_t offset;        /* of the name where it was first seen */
    bool regular;
    gram_ex ex;            /* regular only */
    uint32_t nt;           /* the others, once the grammar is finished */
} gram_rule;

/* The token of an id, or of a spelling when that is not NULL. */
typedef struct gram_token_name {
    int32_t id;
    const char *spelling;
    size_t n;
} gram_token_name;

typedef uint32_t gram_sym; /* what stands in a rule: kind and number */
enum { SYM_END, SYM_RULE, SYM_TEXT, SYM_JSON, SYM_TOKEN };
#define GRAM_SYM(kind, id) ((gram_sym)(kind) << 28 | (id))
#define GRAM_SYM_KIND(sym) ((sym) >> 28)
#define GRAM_SYM_ID(sym) ((sym) & 0x0FFFFFFFu)

typedef struct gram_nt { /* a rule, or a part of one, as it is parsed */
    uint32_t first_alt;  /* + 1, 0 = none */
    uint32_t later;      /* what gram_cfg.unfold is given, + 1; 0 = the alternatives are there */
    uint32_t mark;       /* the last row being made that begins it, + 1 */
    uint32_t local;      /* its number there */
    bool nullable;
    bool productive;     /* it has texts */
} gram_nt;

typedef struct gram_alt {
    uint32_t dot;  /* place of its first symbol */
    uint32_t lhs;
    uint32_t next; /* of the same rule, + 1 */
    bool productive;
} gram_alt;

typedef struct gram_item {
    uint32_t dot;  /* place of the symbol that comes next, 0 = the end of a rule */
    uint32_t cont; /* continuation, GRAM_CONT_END = the end of the text */
} gram_item;
#define GRAM_CONT_END 0u

typedef struct gram_start {
    gram_sym sym;
    uint32_t after; /* interned items */
} gram_start;

typedef struct gram_cfg_row {
    bool accepts;
    const gram_start *starts; /* [n_starts] symbols that may come, ascending */
    uint32_t n_starts;
    const gram_item *waits;   /* items behind a rule that was begun here, rule by rule */
    const uint32_t *nts;      /* [n_nts] rules begun here, ascending */
    const uint32_t *firsts;   /* [n_nts + 1] where their waits begin */
    uint32_t n_nts;
} gram_cfg_row;

/* While a row is made: an item that waits for a symbol. Its continuation is one, or that of a rule begun in this
 * row. */
typedef struct gram_wait {
    uint32_t sym; /* for rules their local number */
    uint32_t dot; /* behind the symbol */
    uint32_t source;
    bool local;
} gram_wait;

/* A text being read, or a named token that may come. */
typedef struct gram_comp {
    uint32_t token; /* + 1; 0 = a text of `ex` */
    uint32_t after;
    gram_ex ex;
} gram_comp;

struct gram_cfg {
    gram_machine *m;
    gram_mem *mem;
    gram_lang *lang;

    gram_rule *rules; /* [n_rules] */
    uint32_t n_rules;
    uint32_t rule_capacity;
    gram_tuples rule_names;    /* bytes; ids are numbers of rules */
    gram_token_name *tokens;   /* [n_tokens] */
    uint32_t n_tokens;
    uint32_t token_capacity;

    gram_sym *syms; /* [n_syms], the first is an end */
    uint32_t n_syms;
    uint32_t sym_capacity;
    gram_nt *nts;   /* [n_nts]; those of rules that are not regular come first */
    uint32_t n_nts;
    uint32_t nt_capacity;
    gram_alt *alts;
    uint32_t n_alts;
    uint32_t alt_capacity;
    /* Gives the rule `nt` its alternatives (gram_cfg_new_nt, gram_cfg_put_alt): all have texts, none the empty one. */
    void (*unfold)(struct gram_cfg *g, uint32_t nt, uint32_t later);
    void *user;

    gram_tuples row_keys; /* accepts, items */
    gram_cfg_row *rows;
    uint32_t row_capacity;
    gram_tuples conts;    /* row, rule; the first is none */
    uint32_t *cont_marks; /* the last search that saw it */
    uint32_t cont_capacity;
    uint32_t search;
    uint32_t n_scopes;    /* of names of rules (gram_ebnf.h) */
    gram_tuples afters;   /* items */
    gram_tuples ctxs;     /* for MODE_GRAMMAR: for each expression of the vector but the first: named token + 1 or 0, after */
    gram_tuples sets;     /* for LX_ROW */
    gram_stack raw;       /* items that are yet to be looked at */
    gram_stack kernel;
    gram_wait *rule_waits; /* [n] of the row being made */
    uint32_t n_rule_waits;
    uint32_t rule_wait_capacity;
    gram_wait *sym_waits;
    uint32_t n_sym_waits;
    uint32_t sym_wait_capacity;
    gram_stack local;     /* rules begun in it */
    gram_stack targets;   /* and their continuations; see gram_cfg_row.c */
    gram_ex finals;       /* the place that is put together (gram_cfg_step.c): texts behind which nothing comes */
    gram_comp *comps;     /* [n_comps] */
    uint32_t n_comps;
    uint32_t comp_capacity;
    gram_pos *values;     /* [n_values] JSON values being read */
    uint32_t n_values;
    uint32_t value_capacity;
};

gram_cfg *gram_cfg_new(gram_machine *m);

/* NULL after a failure. */
gram_part *gram_part_new(gram_cfg *g, gram_part_kind kind, uint32_t id);
gram_part *gram_part_text(gram_cfg *g, const char *utf8, size_t n); /* this text alone */
gram_part *gram_part_rep(gram_cfg *g, gram_part *kid, uint32_t min, uint32_t max);
/* Puts a kid (NULL is ignored) at the end of a CAT or ALT. */
void gram_part_add(gram_part *parent, gram_part *kid);

/* The rule of a name, made when there is none. `offset` is where it was read, for messages. */
uint32_t gram_cfg_rule(gram_cfg *g, const char *name, size_t n, int64_t offset);
/* A rule without a name. */
uint32_t gram_cfg_new_rule(gram_cfg *g, gram_part *body);
uint32_t gram_cfg_token(gram_cfg *g, gram_token_name name);

/* --- gram_cfg_make.c ----------------------------------------------------------------------------------------------- */

/* All rules are there: *out is the beginning of the texts of `root`. False after a failure. */
bool gram_cfg_finish(gram_cfg *g, uint32_t root, gram_pos *out);
static inline bool gram_sym_nullable(const gram_cfg *g, gram_sym sym)
{
    return (GRAM_SYM_KIND(sym) == SYM_RULE && g->nts[GRAM_SYM_ID(sym)].nullable) ||
           (GRAM_SYM_KIND(sym) == SYM_TEXT && gram_nullable(g->lang, GRAM_SYM_ID(sym)));
}

uint32_t gram_cfg_new_nt(gram_cfg *g);
gram_sym gram_cfg_rule_sym(const gram_cfg *g, uint32_t rule); /* of a rule of a tree, once the grammar is finished */
void gram_cfg_put_alt(gram_cfg *g, uint32_t nt, const gram_sym *syms, uint32_t n);

/* --- gram_cfg_alive.c ---------------------------------------------------------------------------------------------- */

bool gram_sym_productive(gram_cfg *g, gram_sym sym); /* it has texts */
/* Finds out which rules have texts and which the empty one, and takes alternatives without texts out. */
void gram_cfg_drop_dead(gram_cfg *g);

/* --- gram_cfg_row.c ------------------------------------------------------------------------------------------------ */

/* The row of the items in g->raw, which is emptied. */
uint32_t gram_cfg_row_of(gram_cfg *g);
void gram_cfg_push_after(gram_cfg *g, uint32_t after); /* to g->raw */
bool gram_cfg_is_final(const gram_cfg *g, uint32_t after); /* nothing but the end of the text */


/* --- gram_cfg_step.c ----------------------------------------------------------------------------------------------- */

/* The beginning of a text that follows syms[dot]. */
bool gram_cfg_start(gram_cfg *g, uint32_t dot, gram_pos *out);

/* A byte that the row of a state of MODE_GRAMMAR or LX_ROW does not settle. */
gram_step_result gram_cfg_step(gram_cfg *g, gram_pos *pos, uint8_t byte, uint32_t hint, const gram_before *before, bool *textual);
void gram_cfg_fill(gram_cfg *g, uint32_t lex); /* the row of a state LX_ROW */
bool gram_cfg_accepts(const gram_cfg *g, gram_pos pos);

/* A JSON value of this grammar has ended: what may follow. */
gram_step_result gram_cfg_value_done(gram_cfg *g, gram_pos *pos);

/* The i-th named token that may come at a place, GRAM_NONE when there are no more. */
uint32_t gram_cfg_token_at(const gram_cfg *g, gram_pos pos, uint32_t i);
/* Takes a named token; false when it may not come. */
bool gram_cfg_take_token(gram_cfg *g, gram_pos *pos, uint32_t token);

#endif
