/* gram_tags.h - structural tags; inside of gram_tags*.c only. */
#ifndef GRAMMAR_GRAM_TAGS_H
#define GRAMMAR_GRAM_TAGS_H

#include "grammar/gram_ebnf.h"

typedef struct gram_tagger {
    gram_source *s;
    gram_cfg *g;
    gram_lang *l;
    uint32_t depth; /* of formats in formats */
} gram_tagger;

/* --- gram_tags.c --------------------------------------------------------------------------------------------------- */

/* What a format stands for. `stops` are strings that free text at its end may not have. NULL after a failure, here and below. */
gram_part *gram_tag_format(gram_tagger *k, const js_value *v, gram_ex stops);

/* --- gram_tags_part.c: faults, fields, free text, tags -------------------------------------------------------------- */

void gram_tag_fault(gram_tagger *k, const char *what, const char *name);
void gram_tag_unsupported(gram_tagger *k, const char *what);
const js_value *gram_tag_field(gram_tagger *k, const js_value *v, const char *name, js_kind kind);
bool gram_tag_flag(gram_tagger *k, const js_value *v, const char *name);
gram_ex gram_tag_string(gram_tagger *k, const js_value *v);
/* Any of a list of strings; none when the list is not there. */
gram_ex gram_tag_strings(gram_tagger *k, const js_value *v, const char *name);
/* Texts with one of `parts` somewhere, but with !end not only at their end. */
gram_ex gram_tag_texts_with(gram_tagger *k, gram_ex parts, bool end);
gram_ex gram_tag_texts_without(gram_tagger *k, gram_ex parts);
gram_part *gram_tag_text(gram_tagger *k, gram_ex e);
gram_part *gram_tag_token(gram_tagger *k, const js_value *v);
bool gram_tag_is_token(const js_value *v);
/* A tag behind the first n bytes of its beginning. */
gram_part *gram_tag_behind(gram_tagger *k, const js_value *tag, size_t n);
/* Any tag of a list. */
gram_part *gram_tag_any(gram_tagger *k, const js_value *list);

/* --- gram_tags_region.c: regions in free text ----------------------------------------------------------------------- */

gram_part *gram_tag_triggered(gram_tagger *k, const js_value *v, gram_ex stops);
gram_part *gram_tag_dispatch(gram_tagger *k, const js_value *v, gram_ex stops);
gram_part *gram_tag_token_triggered(gram_tagger *k, const js_value *v, gram_ex stops);
gram_part *gram_tag_separated(gram_tagger *k, const js_value *v);
gram_part *gram_tag_old_form(gram_tagger *k, const js_value *root);

#endif
