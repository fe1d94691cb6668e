/* rec_custom_input.h - a custom tool's input, taken out of the JSON arguments {"input": "..."} while they arrive (recipe.md 5.2).
 *
 * Arguments of another form pass as they are. How they are cut changes nothing. */
#ifndef RECIPE_REC_CUSTOM_INPUT_H
#define RECIPE_REC_CUSTOM_INPUT_H

#include "core/buf.h"

typedef enum rec_input_state {
    REC_INPUT_PREFIX, /* nothing but {"input":" and blanks so far, kept in `held` */
    REC_INPUT_VALUE,
    REC_INPUT_RAW,    /* another form */
    REC_INPUT_DONE    /* behind the closing quote */
} rec_input_state;

typedef struct rec_custom_input {
    rec_input_state state;
    size_t matched;  /* characters of the prefix */
    buf held;        /* text of the prefix */
    char escape[12]; /* \uD83D\uDE00, or its beginning */
    size_t n_escape;
} rec_custom_input;

void rec_custom_init(rec_custom_input *c);
void rec_custom_fini(rec_custom_input *c);

/* Appends to `out` what the text shows of the input; false without memory. */
bool rec_custom_feed(rec_custom_input *c, const char *text, size_t size, buf *out);

/* No more text comes: what is left of a broken escape. A value that has not begun is an empty input. */
bool rec_custom_end(rec_custom_input *c, buf *out);

#endif
