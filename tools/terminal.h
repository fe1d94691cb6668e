/* terminal.h - text for people: colours where they are wanted, and no text of a model or a request that drives the terminal. */
#ifndef TOOLS_TERMINAL_H
#define TOOLS_TERMINAL_H

#include "core/buf.h"

#include <stdio.h>

#define TERM_RESET "\033[0m"
#define TERM_DIM "\033[2m"
#define TERM_MARK "\033[36m" /* control tokens, tool calls */

/* A terminal that takes colours: not "dumb", and NO_COLOR is not set. */
bool term_has_colour(FILE *stream);

/* Appends UTF-8 text with control characters (but newline and tab) in caret notation: ESC as ^[. */
bool term_put(buf *out, const char *text, size_t size);

#endif
