/* gram_ebnf.h - readers of grammars: two dialects of EBNF, and structural tags. Each makes rules and trees
 * (gram_cfg.h).
 *
 * GBNF is the dialect of llama.cpp (its grammars/README.md): name ::= alternatives. Lark is the subset of the
 * Python package of that name which vLLM and llguidance take; lexing is not greedy: a text is in the language when
 * any way to cut it into terminals fits. Structural tags are the JSON of xgrammar (docs/structural_tag). Recursion
 * of the readers is bounded by GRAM_MAX_NESTING. */
#ifndef GRAMMAR_GRAM_EBNF_H
#define GRAMMAR_GRAM_EBNF_H

#include "grammar/gram_cfg.h"
#include "grammar/gram_schema.h"

/* What readers need besides the grammar. */
typedef struct gram_source {
    gram_cfg *cfg;
    const di_grammar_options *options;
    gram_schema_options schema;
    buf *warnings;
} gram_source;

/* Each returns the number of the rule to start from; after a failure anything. `n` bytes are UTF-8 or refused. */
uint32_t gram_ebnf(gram_source *s, const char *text, size_t n); /* whichever of the two it looks like */
uint32_t gram_gbnf(gram_source *s, const char *text, size_t n);
uint32_t gram_lark(gram_source *s, const char *text, size_t n);
uint32_t gram_tags(gram_source *s, const js_value *root);

/* A JSON value that a schema accepts. */
gram_part *gram_source_json(gram_source *s, const js_value *schema);

/* --- Reading text (gram_ebnf.c) ------------------------------------------------------------------------------------ */

typedef struct gram_reader {
    gram_source *source;
    gram_cfg *cfg;
    gram_mem *mem;
    const char *text; /* [n] */
    size_t n;
    size_t at;
    uint32_t depth;
    uint32_t scope;   /* names of rules of different texts are different */
} gram_reader;

gram_reader gram_read_begin(gram_source *s, const char *text, size_t n);
void gram_read_fault(gram_reader *r, size_t at, const char *what);       /* with line and column */
void gram_read_unsupported(gram_reader *r, size_t at, const char *what);
static inline int gram_read_peek(const gram_reader *r) { return r->at < r->n ? (uint8_t)r->text[r->at] : -1; }
bool gram_read_at(const gram_reader *r, const char *text);
bool gram_read_take(gram_reader *r, const char *text);
/* A character, or an escape: \n \r \t \b \f \v \0 \xHH \uHHHH \UHHHHHHHH, and any other ASCII character that is no
 * letter or digit. */
uint32_t gram_read_char(gram_reader *r);
uint32_t gram_read_number(gram_reader *r); /* decimal, at most GRAM_MAX_REPEAT */
gram_part *gram_read_string(gram_reader *r); /* behind a quote, up to the next */
gram_part *gram_read_class(gram_reader *r);  /* behind "[" */
gram_part *gram_read_token(gram_reader *r);  /* <[id]> or <spelling>, at "<" */
gram_part *gram_read_repeated(gram_reader *r, gram_part *kid, uint32_t min, uint32_t max, size_t at);
bool gram_read_enter(gram_reader *r); /* false when it is nested too deep; each success needs depth-- */

/* The rule of text[from, to). */
uint32_t gram_read_rule(gram_reader *r, size_t from, size_t to);

#endif
