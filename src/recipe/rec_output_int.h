/* rec_output_int.h - inside of the output parser.
 *
 *   ids or text (rec_output.c) --UTF-8 (rec_feed.c)--> bytes and markers --stages (rec_stages.h)--> lengths and actions
 *     --pieces (rec_pieces.c)--> what di_output_next hands out
 *
 * Every byte that comes out of the UTF-8 step has a position, counted from 0. The bytes before `assigned` have got
 * their action; the rest lies in `held`, because it may still become a marker. Log-probabilities travel beside the
 * text as spans of positions. */
#ifndef RECIPE_REC_OUTPUT_INT_H
#define RECIPE_REC_OUTPUT_INT_H

#include "recipe/rec_stages.h"

/* Positions of the text that one id gave. Ids that share a character share its bytes. */
typedef struct rec_span {
    uint64_t begin;
    uint64_t end; /* UINT64_MAX while its last character is incomplete */
    int32_t id;
    float logprob;
    size_t top;   /* first of its alternatives in `tops` */
    int32_t n_top;
    bool attached;
} rec_span;

typedef struct rec_piece {
    di_piece_kind kind;
    int32_t call;
    size_t text; /* offset in `text` */
    size_t size;
    size_t first_logprob; /* offset in `attached` */
    size_t n_logprobs;
} rec_piece;

/* What the present call has given. */
typedef struct rec_pieces {
    rec_piece *items;
    size_t n;
    size_t capacity;
    size_t next; /* for di_output_next */
    buf text;
} rec_pieces;

typedef struct rec_logprobs {
    rec_span *spans; /* in order of begin */
    size_t n_spans;
    size_t spans_capacity;
    size_t first;    /* earlier ones have got their action */
    di_token_logprob *tops;
    size_t n_tops;
    size_t tops_capacity;
    size_t *attached; /* indices of spans that accompany a piece */
    size_t n_attached;
    size_t attached_capacity;
    di_token_logprobs *public; /* [n_attached] as handed out */
    size_t public_capacity;
} rec_logprobs;

typedef enum rec_input { REC_IN_NOTHING, REC_IN_TEXT, REC_IN_IDS } rec_input;

struct di_output {
    const di_recipe *recipe;
    rec_machine machine;
    rec_input input;
    bool broken;         /* memory ended in the middle of a call */
    bool ended;          /* by di_output_finish */
    di_finish finish;
    rec_str stop;        /* that matched */
    uint8_t cut[4];      /* incomplete character */
    size_t n_cut;
    buf held;            /* bytes without an action, from `held_at` on */
    size_t held_at;
    uint64_t assigned;
    buf name;            /* of the call that begins */
    int32_t n_calls;     /* with a whole name */
    bool spaced;         /* JSON answers: the last thing shown was a blank */
    rec_pieces pieces;
    rec_logprobs logprobs;
    int64_t completion_tokens;
    int64_t reasoning_tokens;
};

/* ---- reading (rec_feed.c); false: no memory ---- */

/* Any bytes; invalid ones become U+FFFD, an incomplete character at the end waits. `n_spans`: spans of the ids before
 * these bytes. */
bool rec_feed_bytes(di_output *o, const char *text, size_t n, size_t n_spans);
/* REC_END_THINK or REC_DSML, as a control id. No character may be incomplete. */
bool rec_feed_marker(di_output *o, rec_marker marker);
/* Nothing completes the incomplete character: it becomes U+FFFD. */
bool rec_feed_cut(di_output *o, size_t n_spans);
/* What is held gets this action. */
bool rec_give_held(di_output *o, rec_action action);
/* Position of the next byte that is fed. */
uint64_t rec_position(const di_output *o);

/* ---- pieces (rec_pieces.c); false: no memory ---- */

void rec_pieces_clear(di_output *o);
void rec_pieces_fini(di_output *o);

/* Text at positions [assigned, assigned + size) gets its action. */
bool rec_assign(di_output *o, rec_action action, const char *text, size_t size);

/* A match beyond the bytes of it: labels, names, the stop string. */
bool rec_fire(di_output *o, const rec_pattern *pattern);

/* The last piece. */
bool rec_finish_piece(di_output *o);

/* ---- log-probabilities ---- */

/* Before the text of an id: what it carries. */
bool rec_span_open(di_output *o, uint64_t position, const di_token_logprobs *logprobs);
/* Open spans up to the n-th end at this position. */
void rec_spans_close(di_output *o, size_t n, uint64_t position);
/* Behind the last use in a call: fills what di_output_next hands out. */
bool rec_logprobs_publish(di_output *o);

#endif
