/* eng_stop.h - stop strings over streamed text.
 *
 * Text comes in pieces of any size. What can no longer belong to a stop string goes out at once; the longest end that may
 * still grow into one is held back. The first completed stop string (the one that ends first; of several that end together the
 * longest, of equal ones the first given) ends the output: neither it nor anything behind it goes out. The result does not
 * depend on how the text was cut into pieces.
 *
 * Each string is followed by the automaton of Knuth, Morris and Pratt (SIAM J. Comput. 6, 1977), so the work is linear in the
 * text for every string, and what is held back needs no copy: it is a prefix of a stop string. If text and strings are UTF-8
 * and pieces end between characters, so does the output. Owner: the sequence. Thread: one at a time. */
#ifndef ENGINE_ENG_STOP_H
#define ENGINE_ENG_STOP_H

#include "core/buf.h"

#include <deepinfer/base.h>

#define ENG_STOP_MAX_STRINGS 16
#define ENG_STOP_MAX_BYTES 1024

typedef struct eng_stop eng_stop;

/* Copies n strings of sizes[i] bytes (1 to ENG_STOP_MAX_BYTES); n = 0 lets everything through.
 * Errors: DI_E_ARGUMENT (too many, an empty or a too long one), DI_E_MEMORY. */
di_status eng_stop_new(const char *const *strings, const size_t *sizes, size_t n, eng_stop **out, di_error *err);
void eng_stop_free(eng_stop *stop);

/* Takes the next piece and appends to `out` what is free to go. After a match, pieces are dropped.
 * Errors: DI_E_LIMIT when `out` can take no more (it is full or memory is short; the text is lost). */
di_status eng_stop_push(eng_stop *stop, const char *text, size_t size, buf *out, di_error *err);

/* The text has ended: appends what was held back. */
di_status eng_stop_flush(eng_stop *stop, buf *out, di_error *err);

int eng_stop_matched(const eng_stop *stop);     /* index of the string that ended the text, -1 = none so far */
size_t eng_stop_held_bytes(const eng_stop *stop); /* held back now */
void eng_stop_reset(eng_stop *stop);            /* ready for another text */

#endif
