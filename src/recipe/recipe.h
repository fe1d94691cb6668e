/* recipe.h - what other rooms may use of the conversation layer: the public interface, what a constraint on the answer needs to know of a
 * request beyond it, and what is said of one that is refused. */
#ifndef RECIPE_RECIPE_H
#define RECIPE_RECIPE_H

#include <deepinfer/recipe.h>

#include "core/buf.h"
#include "core/json.h"

/* What a refused request says for programs; its message is for people. It goes from where the fault is found to the error's body. */
typedef struct rec_refusal {
    char param[160]; /* the field: "response_format.json_schema.schema"; "" = unsaid */
    char code[40];   /* what is wrong with it: "invalid_schema"; "" = that of the HTTP status */
    char where[256]; /* JSON pointer into the schema that the field holds; "" = all of it */
} rec_refusal;

/* Sets what has not been said. */
void rec_refusal_set(rec_refusal *refusal, const char *param, const char *code);

/* As di_request_read; *refusal (may be NULL) is set when the body is refused. */
di_status rec_request_read(const di_recipe *recipe, di_protocol protocol, const char *json, size_t n, rec_refusal *refusal,
                           di_request **out, di_error *err);

/* The body of an error in the protocol's own shape: OpenAI's has all of the refusal, Anthropic's the place, in its message. `refusal` may
 * be NULL. False: no memory. */
bool rec_error_body(di_protocol protocol, int http_status, const char *message, const rec_refusal *refusal, buf *out);

/* The field of a body that holds this very value: "tools[0].function.parameters"; and its place inside of a schema, as a JSON pointer.
 * False: it isn't in there, and nothing is written. */
bool rec_find_field(const js_value *body, const js_value *value, char *out, size_t capacity);
bool rec_find_pointer(const js_value *schema, const js_value *value, char *out, size_t capacity);

/* The body as it was read; borrowed. */
const js_value *rec_request_body(const di_request *request);

/* A tool that the answer may call; borrowed. */
typedef struct rec_offer {
    const char *name; /* as the prompt spells it */
    size_t n_name;
    const js_value *parameters; /* the schema as the request gives it; NULL = none */
    bool strict;
} rec_offer;

typedef struct rec_offering {
    bool required; /* one must be called, and the prompt ends behind the first line of a block of calls */
    bool refused;  /* there are tools, and none may be called */
    bool narrowed; /* the prompt has other tools too, which may not be called */
} rec_offering;

/* Writes at most `capacity` of them; returns how many there are. */
size_t rec_request_offers(const di_request *request, rec_offer *out, size_t capacity, rec_offering *how);

#endif
