/* rec_responses.h - inside of the Responses reader: its tools with their names, and what a tool search found.
 *
 * Every tool of a request is read before its items: those of `tools`, then those that tool search outputs bring along, in order.
 * Only then are namespace members named (recipe.md 2.2, 3.4), because a top-level name anywhere in the request comes first. */
#ifndef RECIPE_REC_RESPONSES_H
#define RECIPE_REC_RESPONSES_H

#include "recipe/rec_read.h"

typedef struct rec_found { /* one tool_search_output */
    rec_tool **tools;      /* [n_tools] that become known here */
    size_t n_tools;
} rec_found;

typedef struct rec_responses {
    di_request *r;
    const js_value *items;    /* NULL: the input is one text */
    rec_found *found;         /* [items]; V4.1 only, else NULL */
    rec_tool **tools;         /* [n_tools] declared ones, then those that a search found and nobody declared */
    size_t n_tools;
    rec_names used;           /* every name of a tool or a historical call; those outside namespaces come first */
    rec_tool **by_name;       /* of `used`, as far as tools outside namespaces reach */
    rec_names bases;          /* name that was taken -> next number to try */
    uint64_t *next_number;
    rec_names pairs;          /* namespace and member -> pair_names */
    rec_str *pair_names;
    const js_value *patch_schema; /* of the custom tool, once there is one */
    rec_str patch_description;
} rec_responses;

/* Reads `tools` and the tools of all tool search outputs into x->tools and x->found. */
di_status rec_responses_tools(rec_responses *x, di_error *err);

/* No tool before it has its name. Members of a namespace always get one of their own. */
bool rec_responses_first(const rec_responses *x, const rec_tool *tool);

/* Gives members of namespaces their names, once all tools are known. */
di_status rec_responses_name_members(rec_responses *x, di_error *err);

/* The name in the prompt of a historical call in a namespace: the declared one, else a new one that stays. */
di_status rec_responses_call_name(rec_responses *x, rec_str space, rec_str member, rec_str *out, di_error *err);

/* tool_choice, then the checks of tools (3.1): fills r->talk.tools. */
di_status rec_responses_choice(rec_responses *x, di_error *err);

/* Tools as the result of their tool search: compact JSON. */
di_status rec_responses_found_text(rec_responses *x, const js_value *tools, rec_str *out, di_error *err);

/* input and instructions -> messages. */
di_status rec_responses_input(rec_responses *x, di_error *err);

/* A message's or an output's content: text, or blocks of the kinds that its place allows. */
typedef enum rec_responses_place { REC_R_MESSAGE, REC_R_ANSWER, REC_R_OUTPUT } rec_responses_place;

di_status rec_responses_content(rec_responses *x, rec_responses_place place, const js_value *item, const rec_path *at,
                                rec_content *out, di_error *err);

/* ---- the walk over input items ---- */

typedef enum rec_item {
    REC_I_MESSAGE,
    REC_I_REASONING,
    REC_I_CALL,
    REC_I_CUSTOM_CALL,
    REC_I_SEARCH_CALL,
    REC_I_OUTPUT,
    REC_I_CUSTOM_OUTPUT,
    REC_I_SEARCH_OUTPUT,
    REC_I_OTHER
} rec_item;

typedef struct rec_pending { /* a call */
    rec_call call;
    size_t output;       /* index of the item that answered it; SIZE_MAX: none yet */
    rec_content result;
} rec_pending;

typedef struct rec_walk {
    rec_responses *x;
    rec_names call_ids;     /* -> calls, in order of their items */
    rec_pending *calls;
    rec_names output_ids;   /* -> first output of each id */
    size_t *output_items;
    rec_pending **group;    /* [n_group] of the calls */
    size_t n_group;
    size_t n_open;          /* of the group, without an output */
    rec_message *thinker;   /* the message whose reasoning is still in `reasoning` */
    buf reasoning;
} rec_walk;

rec_item rec_item_kind(const rec_responses *x, const js_value *item);
bool rec_item_answers(rec_item k); /* an output of a call */

di_status rec_walk_add(rec_walk *w, rec_role role, rec_message **out, di_error *err);
di_status rec_walk_settle(rec_walk *w, di_error *err); /* writes the reasoning that is still being gathered */

/* Dictionaries of all calls and outputs, before the first item. */
di_status rec_walk_prepare(rec_walk *w, di_error *err);
di_status rec_walk_call(rec_walk *w, rec_item k, const js_value *item, const rec_path *at, di_error *err);
di_status rec_walk_output(rec_walk *w, const js_value *item, const rec_path *at, di_error *err);
di_status rec_walk_flush(rec_walk *w, di_error *err); /* ends the group, if there is one */

/* What the custom tool apply_patch tells the model (rec_apply_patch.c). */
extern const char rec_apply_patch_opening[];
extern const char rec_apply_patch_rest[];
extern const char rec_apply_patch_schema[];

#endif
