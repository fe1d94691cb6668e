/* gram_support.h - what the tests of the grammar share: compiling, and whether a text is in a grammar. */
#ifndef GRAMMAR_GRAM_SUPPORT_H
#define GRAMMAR_GRAM_SUPPORT_H

#include "support/unit.h"

#include "core/buf.h"
#include "core/json.h"

#include <deepinfer/grammar.h>

/* A text of the grammar has this many bytes before the first that can't follow; GRAM_WHOLE when all of it is in the grammar,
 * GRAM_PREFIX when it only begins like one. Fails the test on errors other than budgets; those are GRAM_BUDGET. */
enum { GRAM_WHOLE = -1, GRAM_PREFIX = -2, GRAM_BUDGET = -3 };
int64_t gram_check(di_grammar *grammar, const char *text, size_t n);

/* Compiles or fails the test. `options` may be NULL. */
di_grammar *gram_must(di_grammar_kind kind, const char *text, const di_grammar_options *options);

/* "" when each text up to NULL is in the grammar (or is not, as `inside` says), else the first that isn't. */
const char *gram_first_wrong(di_grammar_kind kind, const char *grammar, const di_grammar_options *options, bool inside,
                             const char *const *texts);

/* The demo model's tokenizer and its vocabulary with one end id, for a main(): 0, or 1 with the reason on stderr. `vocabulary` NULL = not wanted.
 * The caller frees both. */
int gram_open_demo(di_tokenizer **tokenizer, int32_t end_id, di_vocabulary **vocabulary);

/* Writes a value as JSON: compact, or `spaced` as Python's json.dumps does. */
void gram_write_json(buf *out, const js_value *value, bool spaced);

#endif
