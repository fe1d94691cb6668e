/* rec_stages.h - the matcher of the output parser: stages, their patterns, and what is partly matched (recipe.md
 * 4.2, 4.3).
 *
 * A stage has patterns in order of priority and one action for what matches none of them. Patterns are spelled in
 * symbols: a byte, or one of the two markers as a whole. A machine for text knows bytes only; a machine for ids
 * gets a marker as one symbol, so that ordinary bytes never make one. Lengths are always bytes of text: a marker
 * symbol counts as its spelling.
 *
 * The machine says what matched and how many bytes may still become a match (`hold`); the text itself is the
 * caller's. It is resumable after any symbol and allocates nothing after rec_machine_init. One thread. */
#ifndef RECIPE_REC_STAGES_H
#define RECIPE_REC_STAGES_H

#include "recipe/rec_int.h"

typedef enum rec_stage_id {
    REC_S_CONTENT_START, /* newlines at the very start are dropped */
    REC_S_CONTENT,
    REC_S_JSON,
    REC_S_AFTER_JSON,
    REC_S_TOOL_CALLS,
    REC_S_TOOL_NAME,
    REC_S_ARGS_FIRST,
    REC_S_ARGS,
    REC_S_PARAM_NAME,
    REC_S_PARAM_TYPE,
    REC_S_VALUE_STRING,
    REC_S_VALUE_RAW,
    REC_S_REASONING_START,
    REC_S_REASONING,
    REC_S_FINISHED,
    REC_N_STAGES
} rec_stage_id;

typedef enum rec_action {
    REC_A_SKIP,
    REC_A_TEXT,
    REC_A_REASONING,
    REC_A_SPACE,      /* text around a JSON answer: one blank */
    REC_A_NAME,       /* collected until REC_A_NAME_END */
    REC_A_RAW,        /* argument text as it is */
    REC_A_ESCAPED,    /* argument text inside a JSON string */
    REC_A_LABEL,      /* argument text of the pattern, not of the input */
    REC_A_CALL_BEGIN,
    REC_A_NAME_END,
    REC_A_STOP
} rec_action;

typedef enum rec_pattern_kind {
    REC_LITERAL,
    REC_AFTER_NEWLINES, /* any run of \n right before the literal belongs to the match */
    REC_FIRST_NEWLINE,  /* one \n as the first symbol of the stage */
    REC_HOLD_ONLY       /* never matches: only says what must be held back */
} rec_pattern_kind;

typedef struct rec_pattern {
    rec_pattern_kind kind;
    rec_stage_id next;
    rec_action action;
    const char *label;     /* of REC_A_LABEL */
    rec_str stop;          /* of REC_A_STOP */
    uint32_t n;            /* symbols */
    uint32_t marker_at;    /* index of its one marker symbol; n when there is none */
    uint32_t marker_extra; /* bytes of that marker's spelling, less one */
    uint16_t *symbols;     /* [n] */
    uint32_t *fail;        /* [n + 1] symbols that still match when symbol k does not (Knuth, Morris, Pratt) */
} rec_pattern;

enum { REC_MAX_BRANCHES = REC_MAX_STOPS + 8 };

typedef struct rec_stage {
    rec_action idle; /* for what matches nothing */
    uint32_t n;
    const rec_pattern *branches[REC_MAX_BRANCHES];
    bool starts[256]; /* bytes that may begin a match */
} rec_stage;

typedef struct rec_branch {
    uint32_t k;      /* symbols of the literal matched so far */
    size_t newlines; /* counted in front of it */
} rec_branch;

typedef struct rec_machine {
    rec_stage *stages;     /* [REC_N_STAGES] */
    rec_pattern *patterns; /* [n_patterns] */
    size_t n_patterns;
    char *stop_text;       /* the stop strings one behind the other */
    rec_str stops[REC_MAX_STOPS];
    size_t n_stops;
    bool tools;
    bool json;
    uint16_t *symbols;     /* of all patterns */
    uint32_t *fails;
    rec_stage_id at;
    bool fresh;            /* nothing seen since the stage was entered */
    size_t hold;           /* bytes that may still become a match */
    rec_branch branches[REC_MAX_BRANCHES];
} rec_machine;

typedef struct rec_match {
    const rec_pattern *pattern; /* NULL: none */
    size_t size;                /* bytes that belong to it, the last ones seen */
} rec_match;

/* Copies the stop strings and lays out the stages. Errors: DI_E_ARGUMENT, DI_E_LIMIT, DI_E_MEMORY; the machine is
 * then empty. */
di_status rec_machine_init(rec_machine *m, const di_recipe *recipe, const di_output_options *options, di_error *err);
void rec_machine_fini(rec_machine *m);

/* Spells the patterns for ids or for text: once, before the first symbol. */
void rec_machine_spell(rec_machine *m, const di_recipe *recipe, bool ids);

/* All matches are forgotten. */
void rec_machine_enter(rec_machine *m, rec_stage_id stage);

/* Reads bytes up to the end of the first match, else all. Returns how many were read. The caller enters the next
 * stage. */
size_t rec_machine_bytes(rec_machine *m, const char *text, size_t n, rec_match *match);

/* Reads one marker: REC_END_THINK or REC_DSML. */
void rec_machine_marker(rec_machine *m, rec_marker marker, rec_match *match);

#endif
