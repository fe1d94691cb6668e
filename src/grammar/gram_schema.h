/* gram_schema.h - a JSON Schema to a formula. Drafts 2020-12 (the default), 2019-09, 7, 6 and 4, as "$schema" says. */
#ifndef GRAMMAR_GRAM_SCHEMA_H
#define GRAMMAR_GRAM_SCHEMA_H

#include "grammar/gram_form.h"

#include "core/buf.h"
#include "core/json.h"

#include <deepinfer/grammar.h>

#define GRAM_MAX_SCHEMA_DEPTH 256
#define GRAM_MAX_PROPERTIES 50000
#define GRAM_MAX_ENUM 50000

typedef struct gram_schema_options {
    di_grammar_formats formats;
    bool lenient;
    bool closed;
} gram_schema_options;

/* `warnings` gets a line for each thing that was weakened or ignored. Failures: invalid_schema, unsupported_keyword and those of regular
 * expressions, with a JSON pointer in mem->where. */
gram_form gram_schema(gram_forms *forms, const js_value *root, const gram_schema_options *options, buf *warnings);

/* One JSON value, and no other, in all its spellings. */
gram_form gram_schema_const(gram_forms *forms, const js_value *value);

/* --- Formats (gram_format.c) -------------------------------------------------------------------------------------- */

/* The language of a named format; false when there is none of that name. */
bool gram_format(gram_lang *lang, const char *name, gram_ex *out);

#endif
