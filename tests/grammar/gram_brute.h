/* gram_brute.h - random JSON Schemas over a small universe of values, with a validator of their own: all members of a schema can be
 * written down, so it is plain which texts may go on and how. */
#ifndef GRAMMAR_GRAM_BRUTE_H
#define GRAMMAR_GRAM_BRUTE_H

#include "core/buf.h"
#include "core/json.h"

#define BRUTE_MAX_VALUES 256

typedef struct brute_universe {
    js_doc *docs[BRUTE_MAX_VALUES]; /* owned */
    char texts[BRUTE_MAX_VALUES][40]; /* compact; objects in each order of their members */
    size_t n;
} brute_universe;

void brute_universe_init(brute_universe *u);
void brute_universe_fini(brute_universe *u);

/* Appends a random schema, whose depth of combinations is at most `depth`. */
void brute_schema(buf *out, uint64_t *random, int depth);

/* Appends a schema that allows the universe alone and demands `schema` besides. */
void brute_wrap(buf *out, const char *schema);

/* What JSON Schema says, for the keywords that brute_schema uses. */
bool brute_valid(const js_value *schema, const js_value *value);

#endif
