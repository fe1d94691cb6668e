/* recipe.h - what other rooms may use of the conversation layer: the public interface, and what a constraint on the answer needs to know
 * of a request beyond it. */
#ifndef RECIPE_RECIPE_H
#define RECIPE_RECIPE_H

#include <deepinfer/recipe.h>

#include "core/json.h"

/* The body as it was read; borrowed. */
const js_value *rec_request_body(const di_request *request);

/* A tool that the answer may call; borrowed. */
typedef struct rec_offer {
    const char *name; /* as the prompt spells it */
    size_t n_name;
    const js_value *parameters; /* the schema as the request gives it; NULL = none */
    bool strict;
} rec_offer;

/* Writes at most `capacity` of them; returns how many there are. *required: one must be called, and the prompt ends behind the first line
 * of a block of calls. *refused: there are tools, and none may be called. */
size_t rec_request_offers(const di_request *request, rec_offer *out, size_t capacity, bool *required, bool *refused);

#endif
