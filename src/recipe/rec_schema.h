/* rec_schema.h - inside of the check of JSON schemas: the meta-schemas as a table, and the references. */
#ifndef RECIPE_REC_SCHEMA_H
#define RECIPE_REC_SCHEMA_H

#include "recipe/rec_read.h"

typedef enum rec_draft { REC_DRAFT4, REC_DRAFT6, REC_DRAFT7, REC_DRAFT2019, REC_DRAFT2020, REC_N_DRAFTS } rec_draft;

typedef struct rec_check {
    rec_draft draft;
    bool no_memory;
    char reason[256]; /* of the first fault */
    char where[256];  /* of it: a JSON pointer */
} rec_check;

/* Notes the first fault: "properties.a.type: <text>". Returns false. */
bool rec_schema_fault(rec_check *c, const rec_path *at, const char *key, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Is the value, with everything below it, a schema of the draft? */
bool rec_schema_valid(rec_check *c, const js_value *schema, const rec_path *at);

/* The same without what is below it. */
bool rec_schema_keywords(rec_check *c, const js_value *schema, const rec_path *at);

/* Called for each value at a place where a schema belongs; false stops. */
typedef bool (*rec_schema_visit)(void *arg, const js_value *schema, const rec_path *at);

/* The schemas directly inside a schema. `live`: without those that nothing but a reference leads to ($defs and the like). */
bool rec_schema_inside(rec_draft draft, const js_value *schema, const rec_path *at, bool live, rec_schema_visit visit, void *arg);

/* Does every reference lead to a schema? Only what can be reached from the root counts. */
bool rec_schema_refs(rec_check *c, const js_value *root);

/* Well-formed as a regular expression of ECMA-262; what escapes and classes mean is not looked at. */
bool rec_pattern_valid(rec_str pattern);

#endif
