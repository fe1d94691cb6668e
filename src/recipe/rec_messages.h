/* rec_messages.h - inside of the Messages reader: tools, turns, blocks. */
#ifndef RECIPE_REC_MESSAGES_H
#define RECIPE_REC_MESSAGES_H

#include "recipe/rec_read.h"

typedef struct rec_messages {
    di_request *r;
    rec_tool **tools;     /* [n_tools] in order */
    size_t n_tools;
    rec_names names;      /* -> by_name */
    rec_tool **by_name;
    rec_names dropped;    /* names of web search tools that are left out */
} rec_messages;

/* Blocks of all roles; which are allowed where is the turn's business. */
typedef enum rec_block {
    REC_B_TEXT, REC_B_IMAGE, REC_B_DOCUMENT, REC_B_THINKING, REC_B_REDACTED, REC_B_SERVER_USE, REC_B_USE, REC_B_RESULT,
    REC_B_SERVER_RESULT, REC_B_ADDITION
} rec_block;

/* messages[message].content[block], and inside of a tool result its content[part]. */
typedef struct rec_block_place {
    size_t message;
    size_t block;
    size_t part;
    bool in_result;
} rec_block_place;

di_status rec_messages_tools(rec_messages *x, di_error *err);
/* tool_choice, then the checks of tools (3.1): fills r->talk.tools. */
di_status rec_messages_choice(rec_messages *x, di_error *err);
/* NULL when there is no tool of that name. */
rec_tool *rec_messages_find(const rec_messages *x, rec_str name);

di_status rec_messages_turns(rec_messages *x, di_error *err);

/* The walk over messages. */
typedef struct rec_turns {
    rec_messages *x;
    size_t index;        /* of the message */
    const rec_path *at;  /* its place */
    rec_names ids;       /* tool_use ids of the turn before, when n_ids > 0 */
    rec_str *id;         /* [n_ids] */
    bool *answered;      /* [n_ids] */
    size_t n_ids;
    size_t n_open;       /* not answered */
} rec_turns;

di_status rec_turns_add(rec_turns *t, rec_role role, rec_message **out, di_error *err);
/* Blocks of the assistant's turn; leaves the ids of its calls in *t. */
di_status rec_turns_answer(rec_turns *t, const js_value *blocks, const rec_path *list, di_error *err);

/* Refusals. `where` is the official beginning, blank included, which differs from case to case: a message that should have brought
 * results, or the turn that did not get all of them. */
di_status rec_turns_unanswered(rec_turns *t, const char *where, di_error *err);
di_status rec_turns_before(rec_turns *t, di_error *err);
di_status rec_turns_behind(rec_turns *t, size_t turn, di_error *err);
di_status rec_turns_misplaced(const rec_turns *t, rec_block kind, di_error *err);

di_status rec_messages_kind(const js_value *block, const rec_path *at, rec_block *out, di_error *err);
/* text, image, document: appended to *out. */
di_status rec_messages_part(rec_messages *x, rec_block kind, const js_value *block, const rec_path *at, rec_block_place place,
                            rec_content *out, di_error *err);
/* Content of a tool result. Tools that it names are appended to known[*n_known], which has room for all its parts. */
di_status rec_messages_result(rec_messages *x, const js_value *block, const rec_path *at, rec_block_place place, rec_content *out,
                              rec_tool **known, size_t *n_known, di_error *err);

#endif
