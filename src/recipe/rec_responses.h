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

/* What the custom tool apply_patch tells the model (rec_apply_patch.c). */
extern const char rec_apply_patch_opening[];
extern const char rec_apply_patch_rest[];
extern const char rec_apply_patch_schema[];

#endif
